//! What changes between two pipelines, and what of it a run can take over.

use sensorium::pipeline::{ActorFaultKind, Mount, OnSinkFailure, SupervisionSettings};

use super::{GOOD, parse, set};

/// The steps from the good file with `own` set to the one with `new` set, one a line.
fn steps_in(text: &str, own: &[(&str, &str)], new: &[(&str, &str)]) -> Vec<String> {
    let load = |changes: &[(&str, &str)]| parse(text, &set(changes)).unwrap();
    let diff = load(own).diff(&load(new));
    assert_eq!(diff.is_live(), !diff.to_string().contains("takes a new run"));
    diff.steps.iter().map(ToString::to_string).collect()
}

fn steps(own: &[(&str, &str)], new: &[(&str, &str)]) -> Vec<String> {
    steps_in(GOOD, own, new)
}

#[test]
fn the_same_file_changes_nothing_whatever_its_comments_say() {
    assert_eq!(steps(&[], &[]), [""; 0]);
    let commented = format!("# A comment.\n{GOOD}");
    let diff = parse(GOOD, &set(&[]))
        .unwrap()
        .diff(&parse(&commented, &set(&[])).unwrap());
    assert!(diff.is_empty());
    assert_eq!(diff.to_string(), "nothing changes");
}

#[test]
fn thresholds_are_set_while_frames_flow() {
    let new = [
        ("models.nano.score_threshold", "0.45"),
        ("models.nano.nms_threshold", "0.6"),
        ("models.nano.max_detections", "7"),
    ];
    let expected = [
        "set score_threshold of detector to 0.45 (nothing is interrupted)",
        "set nms_threshold of detector to 0.6 (nothing is interrupted)",
        "set max_detections of detector to 7 (nothing is interrupted)",
    ];
    assert_eq!(steps(&[], &new), expected);
}

#[test]
fn what_is_captured_or_opened_once_takes_a_new_run() {
    for (key, value, what) in [
        ("device.threads", "3", "device"),
        ("supervision.limit", "7", "supervision"),
        ("models.nano.precision", "bf16", "models.nano"),
        ("models.nano.max_streams", "3", "models.nano"),
        ("nodes.detector.prepare_workers", "3", "nodes.detector"),
        ("nodes.camera.rate", "2.0", "nodes.camera"),
        ("nodes.camera.topics", "auto", "nodes.camera"),
        (
            "channels.edges.0.capacity",
            "9",
            "the channels into nodes.detector",
        ),
        ("nodes.out.key", "a/{stream}", "nodes.out"),
    ] {
        let steps = steps(&[], &[(key, value)]);
        assert_eq!(steps.len(), 1, "{key}: {steps:?}");
        assert!(
            steps[0].starts_with(&format!("{what} changes: this takes a new run, for ")),
            "{key}: {steps:?}"
        );
    }
    // The key that results are published under carries the name, too.
    let renamed = steps(&[], &[("pipeline", "rear")]);
    assert!(
        renamed[0].starts_with("pipeline changes: this takes a new run"),
        "{renamed:?}"
    );
}

#[test]
fn sinks_and_topics_come_and_go() {
    let (off, a, b) = (
        [],
        [("nodes.tape.path", "a.mcap")],
        [("nodes.tape.path", "b.mcap")],
    );
    assert_eq!(steps(&off, &a), ["open the sink tape (nothing is interrupted)"]);
    assert_eq!(
        steps(&a, &off),
        ["close the sink tape (nothing else is interrupted)"]
    );
    let reopened = "close the sink tape and open it again (results in between do not reach it)";
    assert_eq!(steps(&a, &b), [reopened]);
    // So does a sink whose channel changes, and only that one.
    let text = GOOD.replace(
        "on_full: drop_oldest }",
        "on_full: drop_oldest }\n    - { from: detector, to: tape, capacity: 5 }",
    );
    let wider = [a[0], ("channels.edges.1.capacity", "6")];
    assert_eq!(steps_in(&text, &a, &wider), [reopened]);
    assert_eq!(
        steps(&[], &[("nodes.camera.topics", "[/b, /c]")]),
        [
            "play /a of camera no more (its frames under way come out)",
            "play /c of camera too (other streams go on)",
        ]
    );
}

/// Nodes of every kind, the viewer before the publisher that measures.
const SETS: &str = "\
pipeline: sets
models:
  ring: { type: bev_ring, seed: 3 }
nodes:
  bag: { kind: source, bag: '' }
  pair: { kind: sync, input: bag, members: [{ topic: /left }, { topic: /right }] }
  cloud: { kind: concat, input: pair, output_frame: base_link }
  detector: { kind: detector, model: ring, input: cloud }
  viewer: { kind: publisher, transport: foxglove, input: detector, address: '127.0.0.1:8765' }
  out: { kind: publisher, transport: zenoh, input: detector, key: 'a/{stream}' }
  work: { kind: compute, role: sensor, period_ms: 10 }
";

#[test]
fn nodes_between_sources_and_detectors_take_a_new_run() {
    for (key, value, node) in [
        (
            "nodes.pair.members",
            "[{ topic: /left }, { topic: /rear }]",
            "pair",
        ),
        ("nodes.cloud.output_frame", "map", "cloud"),
        ("nodes.work.period_ms", "20", "work"),
    ] {
        let steps = steps_in(SETS, &[], &[(key, value)]);
        let expected = format!(
            "nodes.{node} changes: this takes a new run, for it is started with the nodes that it is connected with"
        );
        assert_eq!(steps, [expected], "{key}");
    }
    let without = SETS.replace("  work: { kind: compute, role: sensor, period_ms: 10 }\n", "");
    let diff = parse(SETS, &set(&[]))
        .unwrap()
        .diff(&parse(&without, &set(&[])).unwrap());
    assert_eq!((diff.steps.len(), diff.is_live()), (1, false), "{diff}");
}

#[test]
fn the_first_publisher_that_measures_stays_and_people_who_watch_come_and_go() {
    let moved = steps_in(SETS, &[], &[("nodes.viewer.address", "127.0.0.1:8766")]);
    let reopened = "close the sink viewer and open it again (results in between do not reach it)";
    assert_eq!(moved, [reopened]);
    let measuring = steps_in(SETS, &[], &[("nodes.out.key", "b/{stream}")]);
    let kept =
        "nodes.out changes: this takes a new run, for the first publisher measures when frames are published";
    assert_eq!(measuring, [kept]);
}

#[test]
fn where_the_sensors_are_is_read_once() {
    let own = parse(GOOD, &set(&[])).unwrap();
    let mut new = own.clone();
    new.mounts.push(Mount {
        parent: "base_link".into(),
        child: "camera".into(),
        translation_m: [0.0; 3],
        rotation: [0.0, 0.0, 0.0, 1.0],
    });
    let told = own.diff(&new).to_string();
    assert!(told.starts_with("mounts changes: this takes a new run"), "{told}");
}

#[test]
fn supervision_is_as_documented_and_faults_are_as_written() {
    let pipeline = parse(GOOD, &set(&[])).unwrap();
    let defaults = SupervisionSettings::default();
    assert_eq!(pipeline.supervision, defaults);
    assert_eq!(
        (defaults.limit, defaults.within_s, defaults.backoff_ms),
        (3, 60, 200)
    );
    assert_eq!((defaults.watchdog_ms, defaults.silence_ms), (10_000, 5_000));
    assert_eq!(defaults.on_sink_failure, OnSinkFailure::GoOn);
    let fault = "[ { actor: detector/finish, kind: stall, nth: 3, for_ms: 20 } ]";
    let pipeline = parse(GOOD, &set(&[("supervision.fault", fault)])).unwrap();
    let fault = &pipeline.supervision.fault[0];
    assert_eq!(
        (fault.kind, fault.nth, fault.times, fault.for_ms),
        (ActorFaultKind::Stall, 3, 1, 20)
    );
}
