//! A run is changed while frames flow: what is not named in a change loses no frame.

use crate::live;
use crate::tiny;
use live::{answer, of, pipeline, start, with_nodes};
use sensorium::pipeline::{Pipeline, ReloadStep};
use sensorium::runtime::PipelineState::{Degraded, Ready};
use sensorium::runtime::{Control, ControlError, Reason, RunPhase, StreamFlow};
use serde_json::{Value, json};
use tiny::{Lab, found, numbered};

const PERIOD_NS: u64 = 20_000_000;
const COUNT: usize = 150;

/// Two cameras, at 50 Hz each when they are played as recorded: three seconds.
fn lab() -> Lab {
    let lab = Lab::new();
    let mut frames = Vec::new();
    for i in 0..COUNT {
        let after_ns = i as u64 * PERIOD_NS;
        frames.push(tiny::raw("/front", after_ns, &numbered(i).0));
        frames.push(tiny::raw("/rear", after_ns + 1, &numbered(i).0));
    }
    lab.bag(&frames);
    lab
}

/// The lab's pipeline, played as recorded.
fn paced(lab: &Lab, set: &[(&str, &str)]) -> Pipeline {
    let mut all = vec![("nodes.camera.rate", "1.0")];
    all.extend(set);
    pipeline(lab, &all)
}

fn seqs(lines: &[Value], stream: &str) -> Vec<u64> {
    let own = lines.iter().filter(|line| line["stream"] == stream);
    own.map(|line| line["seq"].as_u64().unwrap()).collect()
}

fn whole() -> Vec<u64> {
    (0..COUNT as u64).collect()
}

#[test]
fn a_parameter_holds_from_one_frame_on_and_no_frame_is_lost() {
    let lab = lab();
    let run = start(paced(&lab, &[]));
    run.until_out("/front", 5);
    let set = |name: &str, value: Value| answer(run.control.set_param("detector", name, value));
    let refused = set("score_treshold", json!(0.5)).unwrap_err().to_string();
    assert!(refused.contains("score_threshold"), "{refused}");
    let refused = set("score_threshold", json!(7)).unwrap_err().to_string();
    assert!(refused.contains("from 0 to 1"), "{refused}");
    let refused = answer(run.control.set_param("detektor", "score_threshold", json!(1.0))).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "there is no detector `detektor`; there is detector"
    );
    set("score_threshold", json!(1.0)).unwrap();
    let status = run.control.status();
    assert_eq!(status.parameters["detector"], json!({ "score_threshold": 1.0 }));
    let ended = run.end();
    let lines = lab.lines("out.jsonl");
    for stream in ["/front", "/rear"] {
        assert_eq!(seqs(&lines, stream), whole());
    }
    let shown: Vec<bool> = lines.iter().map(|line| !found(line).is_empty()).collect();
    let first_hidden = shown.iter().position(|shown| !shown).unwrap();
    assert!(first_hidden >= 5);
    assert!(
        shown[first_hidden..].iter().all(|shown| !shown),
        "it holds for good"
    );
    assert_eq!(ended.drops(), []);
}

#[test]
fn a_paused_stream_is_counted_and_the_other_one_is_whole() {
    let lab = lab();
    let run = start(paced(&lab, &[]));
    run.until_out("/rear", 5);
    answer(run.control.pause("/rear")).unwrap();
    let flow = |status: &sensorium::runtime::PipelineStatus| of(status, "/rear").unwrap().flow;
    assert_eq!(flow(&run.control.status()), StreamFlow::Paused);
    run.until("a paused frame", |status| {
        of(status, "/rear").unwrap().dropped >= 5
    });
    answer(run.control.resume("/rear")).unwrap();
    let ended = run.end();
    let paused = match &ended.drops()[..] {
        [(place, "stream_paused", count)] if place == "camera" => *count,
        drops => panic!("{drops:?}"),
    };
    let lines = lab.lines("out.jsonl");
    assert_eq!(seqs(&lines, "/front"), whole());
    let rear = seqs(&lines, "/rear");
    assert_eq!(rear.len() as u64, COUNT as u64 - paused);
    // One gap, where the pause was.
    let gaps = rear.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
    assert_eq!((gaps, rear.last()), (1, Some(&(COUNT as u64 - 1))));
}

#[test]
fn a_topic_is_taken_away_and_added_again_while_the_other_one_flows() {
    let lab = lab();
    let run = start(paced(&lab, &[("nodes.camera.topics", "[/front, /rear]")]));
    run.until_out("/rear", 5);
    answer(run.control.remove_stream("camera", "/rear")).unwrap();
    assert_eq!(of(&run.control.status(), "/rear"), None);
    let gone = answer(run.control.pause("/rear")).unwrap_err();
    assert_eq!(gone.to_string(), "there is no stream `/rear`; there is /front");
    let after = of(&run.control.status(), "/front").unwrap().frames_out;
    run.until_out("/front", after + 10);
    answer(run.control.add_stream("camera", "/rear")).unwrap();
    let twice = answer(run.control.add_stream("camera", "/rear")).unwrap_err();
    assert!(matches!(twice, ControlError::Flow { .. }), "{twice}");
    let unknown = answer(run.control.add_stream("camera", "/side")).unwrap_err();
    assert!(
        unknown.to_string().contains("topic /side is not in the bag"),
        "{unknown}"
    );
    let ended = run.end();
    assert_eq!(
        ended
            .drops()
            .iter()
            .map(|drop| drop.1)
            .filter(|r| *r != "stream_paused")
            .count(),
        0
    );
    let lines = lab.lines("out.jsonl");
    assert_eq!(seqs(&lines, "/front"), whole());
    // Numbers are of what was taken, so the picture tells which frame of the bag it is.
    let rear: Vec<Value> = lines
        .iter()
        .filter(|line| line["stream"] == "/rear")
        .cloned()
        .collect();
    let numbers: Vec<u64> = rear
        .iter()
        .map(|line| (line["stamp_ns"].as_u64().unwrap() - tiny::START_NS - 1) / PERIOD_NS)
        .collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "no frame twice");
    assert_eq!(numbers.last(), Some(&(COUNT as u64 - 1)));
    assert!(numbers.len() <= COUNT - 10, "ten frames passed without it");
}

#[test]
fn a_stream_without_a_place_gets_the_one_of_a_stream_that_is_drained() {
    let lab = lab();
    let run = start(paced(&lab, &[("models.squares.max_streams", "1")]));
    run.until("rejected", |status| {
        let rejected = Reason::StreamRejected {
            stream: "/rear".into(),
        };
        status.health.state == Degraded
            && status
                .health
                .reasons
                .iter()
                .any(|active| active.reason == rejected)
    });
    run.until_out("/front", 5);
    answer(run.control.drain("/front")).unwrap();
    run.until_out("/rear", 5);
    assert_eq!(run.control.status().health.state, Ready);
    let ended = run.end();
    let lines = lab.lines("out.jsonl");
    let front = seqs(&lines, "/front");
    assert_eq!(
        front,
        (0..front.len() as u64).collect::<Vec<_>>(),
        "what was under way came out"
    );
    assert_eq!(seqs(&lines, "/rear").last(), Some(&(COUNT as u64 - 1)));
    ended.balanced();
}

/// What a file asks for may have been asked for directly before.
#[test]
fn a_reload_goes_on_from_what_was_changed_directly() {
    let lab = lab();
    let load = |topics: &str| paced(&lab, &[("nodes.camera.topics", topics)]);
    let run = start(load("[/front, /rear]"));
    run.until_out("/rear", 5);
    answer(run.control.drain("/rear")).unwrap();
    let report = answer(run.control.reload(&load("[/front]"))).unwrap();
    let rear = |step: fn(String, String) -> ReloadStep| step("camera".into(), "/rear".into());
    let removed = rear(|source, topic| ReloadStep::RemoveStream { source, topic });
    assert_eq!((&report.done[..], report.is_complete()), (&[removed][..], true));
    answer(run.control.add_stream("camera", "/rear")).unwrap();
    let report = answer(run.control.reload(&load("[/front, /rear]"))).unwrap();
    let added = rear(|source, topic| ReloadStep::AddStream { source, topic });
    assert_eq!((&report.done[..], report.is_complete()), (&[added][..], true));
    let out = of(&run.control.status(), "/rear").unwrap().frames_out;
    run.until_out("/rear", out + 3);
    run.end().balanced();
    assert_eq!(seqs(&lab.lines("out.jsonl"), "/front"), whole());
}

#[test]
fn a_run_that_never_began_is_not_waited_for() {
    let lab = lab();
    let pipeline = paced(&lab, &[]);
    std::fs::remove_file(lab.path("bag.mcap")).unwrap();
    let run = start(pipeline);
    let waited = answer(run.control.wait_for(&[Ready]));
    assert!(matches!(waited, Err(ControlError::NotRunning)), "{waited:?}");
    let ended = run.end();
    assert_eq!(ended.status.phase, RunPhase::Over);
    assert!(ended.output.is_err());
}

#[test]
fn a_reload_takes_parameters_sinks_and_topics_over_without_losing_a_frame() {
    let lab = lab();
    let own = [("nodes.camera.topics", "[/front, /rear]")];
    let second = "second: { kind: jsonl, input: detector, path: second.jsonl }";
    let moved = "second: { kind: jsonl, input: detector, path: moved.jsonl }";
    let load_with = |nodes: &[&str], set: &[(&str, &str)]| {
        let mut all = vec![("nodes.camera.rate", "1.0")];
        all.extend(set);
        with_nodes(&lab, nodes, &all)
    };
    let load = |set: &[(&str, &str)]| load_with(&[], set);
    let run = start(load(&own));
    run.until_out("/front", 5);

    // Nothing at all.
    let report = answer(run.control.reload(&load(&own))).unwrap();
    assert_eq!((report.done.len(), report.is_complete()), (0, true));

    // Something that takes a new run: nothing is done, not even what could be.
    let refused = load(&[
        own[0],
        ("models.squares.score_threshold", "0.5"),
        ("device.threads", "2"),
    ]);
    let error = answer(run.control.reload(&refused)).unwrap_err();
    assert!(
        matches!(&error, ControlError::NewRun { changes } if changes.len() == 1),
        "{error}"
    );
    assert!(
        error.to_string().contains("device changes: this takes a new run"),
        "{error}"
    );
    assert!(run.control.status().parameters.is_empty());

    // A second sink and another threshold.
    let more = load_with(&[second], &[own[0], ("models.squares.score_threshold", "0.5")]);
    let report = answer(run.control.reload(&more)).unwrap();
    let expected = [
        ReloadStep::SetParameter {
            detector: "detector".into(),
            name: "score_threshold".into(),
            value: json!(0.5),
        },
        ReloadStep::OpenSink {
            node: "second".into(),
        },
    ];
    assert_eq!((&report.done[..], report.is_complete()), (&expected[..], true));
    let lines_of =
        |name: &str| std::fs::read_to_string(lab.path(name)).map_or(0, |text| text.lines().count());
    run.until("lines in the second file", |_| lines_of("second.jsonl") > 5);

    // The second sink writes elsewhere, and a topic goes.
    let front = [
        ("nodes.camera.topics", "[/front]"),
        ("models.squares.score_threshold", "0.5"),
    ];
    let elsewhere = load_with(&[moved], &front);
    let report = answer(run.control.reload(&elsewhere)).unwrap();
    let expected = [
        ReloadStep::ReopenSink {
            node: "second".into(),
        },
        ReloadStep::RemoveStream {
            source: "camera".into(),
            topic: "/rear".into(),
        },
    ];
    assert_eq!((&report.done[..], report.is_complete()), (&expected[..], true));
    run.until("lines in the third file", |_| lines_of("moved.jsonl") > 5);

    // A sink that cannot be opened stops the reload there; the run goes on, and a good file is taken over from there.
    let nowhere = "third: { kind: jsonl, input: detector, path: no/such/folder.jsonl }";
    let bad = load_with(&[moved, nowhere], &front);
    let report = answer(run.control.reload(&bad)).unwrap();
    assert!(!report.is_complete());
    assert!(report.failed.unwrap().reason.contains("cannot write"));
    let closed = load(&front);
    let report = answer(run.control.reload(&closed)).unwrap();
    assert_eq!(
        report.done,
        [ReloadStep::CloseSink {
            node: "second".into()
        }]
    );

    let ended = run.end();
    ended.balanced();
    let lines = lab.lines("out.jsonl");
    assert_eq!(
        seqs(&lines, "/front"),
        whole(),
        "the stream that no step named is whole"
    );
    for name in ["second.jsonl", "moved.jsonl"] {
        let front = seqs(&lab.lines(name), "/front");
        assert!(
            front.windows(2).all(|pair| pair[1] == pair[0] + 1),
            "{name} has no gap: {front:?}"
        );
    }
    let ended_sinks = ended.status.stages.iter().any(|stage| stage.actor == "second");
    assert!(!ended_sinks, "a sink that is closed is not told of any more");
}

#[test]
fn a_hand_is_for_one_run_that_lasts_and_may_be_changed() {
    let lab = lab();
    let control = Control::default();
    assert_eq!(control.status().phase, RunPhase::Waiting);
    assert_eq!(answer(control.pause("/front")), Err(ControlError::NotRunning));

    let run = start(pipeline(&lab, &[("nodes.camera.clock", "deterministic")]));
    run.until("begun", |status| status.phase != RunPhase::Waiting);
    let control = run.control.clone();
    let paused = answer(control.pause("/front"));
    assert!(
        matches!(
            paused,
            Err(ControlError::Deterministic | ControlError::NotRunning)
        ),
        "{paused:?}"
    );
    let ended = run.end();
    assert_eq!(ended.status.phase, RunPhase::Over);
    assert_eq!(answer(control.pause("/front")), Err(ControlError::NotRunning));
    assert_eq!(ended.balanced().summary.frames.frames_out, 2 * COUNT as u64);
}

#[test]
fn a_status_tells_of_streams_stages_queues_and_the_device() {
    let lab = lab();
    let run = start(paced(&lab, &[]));
    run.until_out("/front", 3);
    let status = run.control.status();
    let json = serde_json::to_value(&status).unwrap();
    assert_eq!(
        (&json["pipeline"], &json["state"], &json["phase"]),
        (&json!("tiny"), &json!("ready"), &json!("running"))
    );
    let actors: Vec<&str> = status.stages.iter().map(|stage| stage.actor.as_str()).collect();
    for actor in ["camera", "detector/prepare", "detector/finish", "jsonl"] {
        assert!(actors.contains(&actor), "{actors:?}");
    }
    let queues: Vec<(&str, &str, usize)> = status
        .queues
        .iter()
        .map(|queue| (queue.from.as_str(), queue.to.as_str(), queue.capacity))
        .collect();
    assert!(queues.contains(&("camera", "detector/prepare", 4)), "{queues:?}");
    assert!(queues.contains(&("detector/finish", "jsonl", 4)), "{queues:?}");
    assert!(status.device.unwrap().name.starts_with("cpu"));
    run.shutdown.drain();
    let ended = run.end();
    assert!(ended.status.queues.is_empty(), "channels are closed");
    ended.balanced();
}

#[cfg(unix)]
#[test]
fn a_hangup_has_the_file_read_again() {
    use std::process::Command;
    use std::time::{Duration, Instant};

    let lab = lab();
    let original = std::fs::read_to_string(lab.path("tiny.yaml")).unwrap();
    let child = lab.start(&["--rate", "1", "--jsonl", "out.jsonl"]);
    let patience = Instant::now() + Duration::from_secs(120);
    let lines = || std::fs::read_to_string(lab.path("out.jsonl")).map_or(0, |text| text.lines().count());
    while lines() < 5 {
        assert!(Instant::now() < patience, "it never began");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::write(
        lab.path("tiny.yaml"),
        original.replace("score_threshold: 0.3", "score_threshold: 1.0"),
    )
    .unwrap();
    let hangup = Command::new("kill")
        .args(["-HUP", &child.id().to_string()])
        .status();
    assert!(hangup.unwrap().success());
    let run = tiny::await_end(child);
    assert_eq!((run.code, run.frames()[3]), (Some(0), 0), "{run:?}");
    let done = "done: set score_threshold of detector to 1.0 (nothing is interrupted)";
    assert!(run.told.contains(done), "{}", run.told);
    let lines = lab.lines("out.jsonl");
    assert_eq!(lines.len(), 2 * COUNT);
    assert!(found(&lines[2 * COUNT - 1]).is_empty() && !found(&lines[0]).is_empty());
}

#[cfg(unix)]
#[test]
fn the_check_command_tells_what_changes_between_two_files() {
    let lab = lab();
    let original = std::fs::read_to_string(lab.path("tiny.yaml")).unwrap();
    let changed = original
        .replace("score_threshold: 0.3", "score_threshold: 0.4")
        .replace("prepare_workers: 2", "prepare_workers: 3");
    std::fs::write(lab.path("new.yaml"), changed).unwrap();
    let run = tiny::outcome(tiny::sensorium().current_dir(lab.path(".")).args([
        "check",
        "new.yaml",
        "--against",
        "tiny.yaml",
    ]));
    assert_eq!(run.code, Some(0), "{run:?}");
    let expected = "nodes.detector changes: this takes a new run, for models are captured on the device before the \
                    first frame\n";
    assert_eq!(run.out, expected);
}
