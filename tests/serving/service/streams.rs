//! Models with states as services: streams are kept apart, and frames of none stand alone.

use crate::tiny;
use serde_json::{Value, json};
use tiny::Lab;

use super::{PATIENCE, Service, engine_of, options, png};

/// Frames of a stream, and between which the model makes a difference.
const FRAMES: usize = 3;

/// A service of a model with the states of two streams.
fn stateful(lab: &Lab, kind: &str) -> Service {
    let file = format!(
        "pipeline: states\n\
         device: {{ threads: 1, queues: 2, arena_mib: 64 }}\n\
         models:\n  model: {{ type: {kind}, seed: 3, memory_frames: 2, score_threshold: 0.1, max_streams: 2 }}\n\
         nodes:\n  sensor: {{ kind: source, topics: auto }}\n  finder: {{ kind: detector, model: model, input: sensor }}\n"
    );
    std::fs::write(lab.path("states.yaml"), file).unwrap();
    let service = Service::start(engine_of(&lab.path("states.yaml"), None), options());
    service.client().wait_ready(PATIENCE).unwrap();
    service
}

/// A scattered cloud that differs from frame to frame.
fn cloud(i: usize) -> Value {
    let points: Vec<[f64; 4]> = (0..400)
        .map(|n| {
            let spread = |step: usize| ((n * step + i * 131) % 997) as f64 / 997.0;
            [
                spread(37) * 40.0 - 20.0,
                spread(71) * 40.0 - 20.0,
                spread(13) * 3.0 - 2.0,
                spread(29),
            ]
        })
        .collect();
    json!({ "points": points })
}

/// The request of a frame, of a stream or of none.
fn asked(kind: &str, i: usize, stream: Option<&str>, more: Value) -> Value {
    let mut body = match kind {
        "bev_ring" => cloud(i),
        _ => png(i).0,
    };
    if let Some(id) = stream {
        let mut stream = json!({ "id": id, "stamp_ns": i as i64 * 100_000_000 });
        stream
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        body["stream"] = stream;
    }
    body
}

/// What is found in a frame; there is something.
fn found(service: &Service, body: &Value) -> Value {
    let reply = service.predict(body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let found = reply.body["detections"].clone();
    assert!(!found.as_array().unwrap().is_empty(), "{}", reply.body);
    found
}

const KINDS: [&str; 2] = ["bev_ring", "stream_queries"];

#[test]
fn streams_that_take_turns_are_answered_as_each_is_alone() {
    for kind in KINDS {
        let lab = Lab::new();
        let service = stateful(&lab, kind);
        // Frames 0, 1, 2 of one, 5, 6, 7 of the other.
        let of = |offset: usize, name: &str| -> Vec<Value> {
            (0..FRAMES)
                .map(|i| {
                    let last = json!({ "last": i + 1 == FRAMES });
                    found(&service, &asked(kind, offset + i, Some(name), last))
                })
                .collect()
        };
        let alone = [of(0, "a"), of(5, "b")];
        let mut turns = [Vec::new(), Vec::new()];
        for i in 0..FRAMES {
            for (turns, (offset, name)) in turns.iter_mut().zip([(0, "c"), (5, "d")]) {
                turns.push(found(&service, &asked(kind, offset + i, Some(name), json!({}))));
            }
        }
        assert_eq!(turns, alone, "{kind}");
        // They are answered out of what was before.
        let first = json!({ "reset": true });
        let fresh = found(&service, &asked(kind, 1, Some("c"), first));
        assert_ne!(fresh, alone[0][1], "{kind}");
    }
}

#[test]
fn a_frame_without_a_stream_and_one_after_a_reset_know_of_none_before() {
    for kind in KINDS {
        let lab = Lab::new();
        let service = stateful(&lab, kind);
        let lone = found(&service, &asked(kind, 0, None, json!({})));
        let first = found(&service, &asked(kind, 0, Some("a"), json!({})));
        let _ = found(&service, &asked(kind, 1, Some("a"), json!({})));
        let _ = found(&service, &asked(kind, 2, None, json!({})));
        assert_eq!(found(&service, &asked(kind, 0, None, json!({}))), lone, "{kind}");
        let again = found(&service, &asked(kind, 0, Some("a"), json!({ "reset": true })));
        assert_eq!(again, first, "{kind}");
    }
}

#[test]
fn one_stream_too_many_is_told_until_another_has_sent_its_last_frame() {
    let lab = Lab::new();
    let kind = "stream_queries";
    let service = stateful(&lab, kind);
    // A frame that stands alone holds no place.
    let _ = found(&service, &asked(kind, 0, None, json!({})));
    for name in ["a", "b"] {
        let _ = found(&service, &asked(kind, 0, Some(name), json!({})));
    }
    for stream in [Some("c"), None] {
        let reply = service.predict(&asked(kind, 0, stream, json!({})));
        assert_eq!(reply.status, 400, "{}", reply.body);
        let told = reply.body["detail"].as_str().unwrap().to_owned();
        assert!(told.contains("the states of 2 stream(s)"), "{told}");
    }
    let _ = found(&service, &asked(kind, 1, Some("a"), json!({ "last": true })));
    let _ = found(&service, &asked(kind, 0, Some("c"), json!({})));
}

#[test]
fn what_is_null_is_left_out_and_stamps_may_be_seconds() {
    let lab = Lab::new();
    let service = stateful(&lab, "stream_queries");
    let stamped = |id: &str, stamp: Value| {
        let (mut body, _) = png(0);
        let mut stream = json!({ "id": id });
        stream
            .as_object_mut()
            .unwrap()
            .extend(stamp.as_object().unwrap().clone());
        body["stream"] = stream;
        for key in [
            "points",
            "sweeps",
            "calibration",
            "inputs",
            "params",
            "output_format",
            "frame_id",
        ] {
            body[key] = Value::Null;
        }
        body
    };
    let in_ns = found(&service, &stamped("a", json!({ "stamp_ns": 1_500_000_000 })));
    let in_s = found(
        &service,
        &stamped("b", json!({ "timestamp_s": 1.5, "stamp_ns": null })),
    );
    assert_eq!(in_s, in_ns);
    for (stamp, told) in [
        (
            json!({ "timestamp_s": 1.5, "stamp_ns": 7 }),
            "not expected beside `stamp_ns`",
        ),
        (json!({ "timestamp_s": 1e10 }), "expected less than"),
    ] {
        let reply = service.predict(&stamped("a", stamp));
        assert_eq!(reply.status, 400, "{}", reply.body);
        assert!(
            reply.body["detail"].as_str().unwrap().contains(told),
            "{}",
            reply.body
        );
    }
}
