//! Actors that fail: the frame that they held is lost and counted, they are started again, and everyone else goes on.

use crate::live;
use crate::tiny;
use std::collections::BTreeSet;

use live::{Ended, pipeline, start, with_nodes};
use sensorium::runtime::PipelineState::{Degraded, Failed, Ready, Starting};
use sensorium::runtime::{Reason, RuntimeError};
use tiny::{Lab, film, found, numbered};

const TOPIC: &str = "/camera/image";
const PERIOD_NS: u64 = 100_000_000;
const COUNT: u64 = 40;

fn lab() -> Lab {
    let lab = Lab::new();
    lab.bag(&film(TOPIC, COUNT as usize, PERIOD_NS));
    lab
}

/// A run to its end with one fault of an actor and these values set besides.
fn run_with(lab: &Lab, fault: &str, set: &[(&str, &str)]) -> Ended {
    let fault = format!("[ {fault} ]");
    let mut all = vec![
        ("supervision.fault", fault.as_str()),
        ("supervision.backoff_ms", "5"),
        ("nodes.detector.prepare_workers", "1"),
    ];
    all.extend(set);
    start(pipeline(lab, &all)).end()
}

/// Numbers of the frames whose results are in the file; each shows what it should.
fn written(lab: &Lab) -> BTreeSet<u64> {
    let lines = lab.lines("out.jsonl");
    for line in &lines {
        let seq = line["seq"].as_u64().unwrap();
        assert_eq!(
            found(line),
            [("red".to_owned(), numbered(seq as usize).1)],
            "{line}"
        );
    }
    let seqs: Vec<u64> = lines.iter().map(|line| line["seq"].as_u64().unwrap()).collect();
    assert!(seqs.is_sorted());
    seqs.into_iter().collect()
}

fn all_but(missing: impl IntoIterator<Item = u64>) -> BTreeSet<u64> {
    let mut all: BTreeSet<u64> = (0..COUNT).collect();
    for seq in missing {
        all.remove(&seq);
    }
    all
}

fn restarts(run: &Ended, actor: &str) -> u64 {
    let stage = run.status.stages.iter().find(|stage| stage.actor == actor);
    stage
        .unwrap_or_else(|| panic!("{actor}: {:#?}", run.status))
        .restarts
}

#[test]
fn an_actor_that_panics_loses_the_frame_that_it_held_and_no_other() {
    for actor in ["camera", "detector/prepare", "detector/finish"] {
        let lab = lab();
        let run = run_with(&lab, &format!("{{ actor: {actor}, kind: panic, nth: 8 }}"), &[]);
        assert_eq!(run.states(), [Starting, Ready, Degraded, Ready], "{actor}");
        let because = format!("{actor} is started again: the pipeline file injects a fault into {actor}");
        assert_eq!(run.because(), [because]);
        assert_eq!(run.drops(), [(actor.to_owned(), "panicked", 1)]);
        assert_eq!(restarts(&run, actor), 1);
        assert_eq!(written(&lab), all_but([7]), "{actor}");
        assert!(run.balanced().faults.is_empty(), "{:?}", run.balanced().faults);
    }
}

#[test]
fn a_sink_that_panics_loses_its_result_and_leaves_a_file_of_whole_lines() {
    let lab = lab();
    let run = run_with(&lab, "{ actor: jsonl, kind: panic, nth: 8 }", &[]);
    assert_eq!(run.drops(), [("jsonl".to_owned(), "panicked", 1)]);
    assert_eq!(run.balanced().summary.frames.frames_out, COUNT);
    assert!(
        run.states().starts_with(&[Starting, Ready, Degraded]),
        "{:?}",
        run.states()
    );
    assert_eq!(written(&lab), all_but([7]));
}

#[test]
fn a_worker_that_panics_costs_its_frame_and_restarts_nobody() {
    for actor in ["detector/prepare", "detector/finish"] {
        let lab = lab();
        let fault = format!("{{ actor: {actor}, kind: worker_panic, nth: 3, times: 2 }}");
        let run = run_with(&lab, &fault, &[]);
        assert_eq!(run.states(), [Starting, Ready, Degraded, Ready], "{actor}");
        assert_eq!(run.drops(), [(actor.to_owned(), "panicked", 2)]);
        assert_eq!(restarts(&run, actor), 0);
        assert_eq!(written(&lab), all_but([2, 3]), "{actor}");
    }
}

#[test]
fn a_source_whose_thread_panics_plays_on_without_losing_a_frame() {
    let lab = lab();
    let run = run_with(
        &lab,
        "{ actor: camera, kind: worker_panic, nth: 5, times: 2 }",
        &[],
    );
    assert_eq!(run.states(), [Starting, Ready, Degraded, Ready, Degraded, Ready]);
    assert_eq!(restarts(&run, "camera"), 2);
    assert_eq!(run.drops(), []);
    assert_eq!(written(&lab), all_but([]));
}

#[test]
fn an_actor_that_keeps_failing_ends_the_run_with_an_error_that_says_so() {
    for (actor, kind) in [
        ("camera", "panic"),
        ("detector/prepare", "panic"),
        ("detector/prepare", "worker_panic"),
        ("detector/finish", "panic"),
        ("detector/finish", "worker_panic"),
    ] {
        let lab = lab();
        let fault = format!("{{ actor: {actor}, kind: {kind}, nth: 4, times: 1000 }}");
        let run = run_with(&lab, &fault, &[("supervision.limit", "2")]);
        assert_eq!(run.states().last(), Some(&Failed), "{actor}");
        assert_eq!(restarts(&run, actor), 2, "{actor}");
        let faults = &run.balanced().faults;
        let given_up = |fault: &RuntimeError| matches!(fault, RuntimeError::GivenUp { actor: a, failures: 3, .. } if a == actor);
        assert!(faults.iter().any(given_up), "{actor}: {faults:?}");
        let error = run.status.health.error.clone().unwrap();
        assert!(
            error.starts_with(&format!("actor {actor} failed 3 time(s) within 60 s")),
            "{error}"
        );
        let written = written(&lab);
        assert!(
            written.is_subset(&(0..COUNT).collect()) && written.len() <= 3,
            "{written:?}"
        );
    }
}

#[test]
fn a_sink_that_keeps_panicking_is_given_up_and_the_others_go_on() {
    let lab = lab();
    for (policy, ends) in [("go_on", false), ("end", true)] {
        let run = start(with_nodes(
            &lab,
            &["other: { kind: jsonl, input: detector, path: other.jsonl }"],
            &[
                ("supervision.on_sink_failure", policy),
                ("supervision.limit", "1"),
                ("supervision.backoff_ms", "5"),
                (
                    "supervision.fault",
                    "[ { actor: other, kind: panic, nth: 4, times: 1000 } ]",
                ),
            ],
        ))
        .end();
        let faults = &run.balanced().faults;
        assert!(
            matches!(&faults[..], [RuntimeError::GivenUp { actor, failures: 2, .. }] if actor == "other"),
            "{faults:?}"
        );
        assert_eq!(run.states().last() == Some(&Failed), ends, "{:?}", run.states());
        let lines = lab.lines("other.jsonl");
        assert_eq!(lines.len(), 3);
        if !ends {
            assert_eq!(written(&lab), all_but([]));
            let drops = run.drops();
            let failed = drops
                .iter()
                .find(|(place, reason, _)| place == "other" && *reason == "sink_failed");
            assert_eq!(failed.map(|(_, _, count)| *count), Some(COUNT - 5), "{drops:?}");
            let reasons = &run.status.health.reasons;
            assert!(
                reasons
                    .iter()
                    .any(|r| matches!(&r.reason, Reason::GivenUp { actor, .. } if actor == "other")),
                "{reasons:?}"
            );
        }
    }
}

#[test]
fn a_sink_that_cannot_write_tries_again_and_the_results_in_between_are_counted() {
    let lab = lab();
    let run = run_with(
        &lab,
        "{ actor: jsonl, kind: fail, nth: 6, times: 2 }",
        &[("supervision.backoff_ms", "0")],
    );
    assert_eq!(run.states(), [Starting, Ready, Degraded, Ready]);
    assert_eq!(
        run.because(),
        ["sink jsonl cannot write: the pipeline file says that it fails"]
    );
    assert_eq!(run.drops(), [("jsonl".to_owned(), "sink_failed", 2)]);
    assert_eq!(written(&lab), all_but([5, 6]));
    // The user is told once.
    let faults = &run.balanced().faults;
    assert!(
        matches!(&faults[..], [RuntimeError::Sink { node, .. }] if node == "jsonl"),
        "{faults:?}"
    );
}

#[test]
fn a_recording_goes_on_in_another_file_and_both_can_be_read() {
    let lab = lab();
    let tape = lab.path("tape.mcap");
    let path = tape.display().to_string();
    let run = run_with(
        &lab,
        "{ actor: recorder, kind: fail, nth: 6 }",
        &[("supervision.backoff_ms", "0"), ("nodes.recorder.path", &path)],
    );
    assert_eq!(run.drops(), [("recorder".to_owned(), "sink_failed", 1)]);
    let count = |name: &str| {
        let bag = sensorium::io::bag::Bag::open(&lab.path(name)).unwrap();
        bag.topics()
            .iter()
            .find(|topic| *topic.name == *TOPIC)
            .unwrap()
            .messages
    };
    assert_eq!([count("tape.mcap"), count("tape.part2.mcap")], [5, COUNT - 6]);
    assert_eq!(written(&lab), all_but([]));
}

#[test]
fn a_worker_that_stands_still_loses_its_frame_and_another_takes_its_place() {
    for actor in ["detector/prepare", "detector/finish"] {
        let lab = lab();
        let fault = format!("{{ actor: {actor}, kind: stall, nth: 9, for_ms: 3600000 }}");
        let run = run_with(&lab, &fault, &[("supervision.watchdog_ms", "400")]);
        assert_eq!(run.drops(), [(actor.to_owned(), "stalled", 1)]);
        assert_eq!(written(&lab), all_but([8]), "{actor}");
        // It still stands there.
        let stalled = Reason::Stalled {
            actor: actor.to_owned(),
        };
        let reasons = &run.status.health.reasons;
        assert!(
            reasons.iter().any(|active| active.reason == stalled),
            "{reasons:?}"
        );
        assert!(run.balanced().faults.is_empty());
    }
}

#[test]
fn workers_that_all_stand_still_end_the_run() {
    let lab = lab();
    let fault = "{ actor: detector/finish, kind: stall, nth: 3, times: 1000, for_ms: 3600000 }";
    let run = run_with(
        &lab,
        fault,
        &[("supervision.watchdog_ms", "200"), ("supervision.limit", "1000")],
    );
    let faults = &run.balanced().faults;
    assert!(
        faults
            .iter()
            .any(|fault| fault.to_string().contains("2 of its workers stand still")),
        "{faults:?}"
    );
    assert_eq!(run.states().last(), Some(&Failed));
    assert_eq!(written(&lab), (0..2).collect());
}

#[test]
fn a_lost_device_degrades_the_pipeline_until_it_is_open_again() {
    let lab = lab();
    let run = start(pipeline(
        &lab,
        &[
            (
                "device.fault",
                "{ faults: [ { kind: lose_device, call: replay, at: { nth: 10 } } ] }",
            ),
            ("device.restart", "{ backoff_ms: 5 }"),
        ],
    ))
    .end();
    assert_eq!(run.states(), [Starting, Ready, Degraded, Ready]);
    assert!(
        run.because()[0].starts_with("the device is down: "),
        "{:?}",
        run.because()
    );
    assert_eq!(run.status.device.as_ref().unwrap().restarts, 1);
    run.balanced();
}

#[test]
fn a_sibling_stream_is_whole_while_another_one_makes_workers_panic() {
    let lab = Lab::new();
    let mut frames = Vec::new();
    for i in 0..20 {
        let after_ns = i as u64 * PERIOD_NS;
        frames.push(tiny::raw("/front", after_ns, &numbered(i).0));
        frames.push(tiny::raw("/rear", after_ns + 1, &numbered(i).0));
    }
    lab.bag(&frames);
    // Every second frame of the stage, so that none of the other stream is met.
    let faults: Vec<String> = (0..10)
        .map(|i| {
            format!(
                "{{ actor: detector/finish, kind: worker_panic, nth: {} }}",
                2 * i + 2
            )
        })
        .collect();
    let run = run_with(&lab, &faults.join(", "), &[]);
    let lines = lab.lines("out.jsonl");
    let count = |stream: &str| lines.iter().filter(|line| line["stream"] == stream).count();
    assert_eq!([count("/front"), count("/rear")], [20, 10]);
    assert_eq!(run.drops(), [("detector/finish".to_owned(), "panicked", 10)]);
    assert_eq!(restarts(&run, "detector/finish"), 0);
}

#[test]
fn a_stream_on_which_nothing_comes_is_told_until_something_does() {
    let lab = Lab::new();
    // Two seconds without a message, against a limit of a third of one.
    let frame = |i: u64| {
        let pause_ns = if i < 10 { 0 } else { 2_000_000_000 };
        tiny::raw(TOPIC, i * 20_000_000 + pause_ns, &numbered(i as usize).0)
    };
    let frames: Vec<_> = (0..40).map(frame).collect();
    lab.bag(&frames);
    let run = start(pipeline(
        &lab,
        &[("supervision.silence_ms", "300"), ("nodes.camera.rate", "1.0")],
    ))
    .end();
    assert!(
        run.because()
            .contains(&format!("nothing comes on {TOPIC}").as_str()),
        "{:?}",
        run.because()
    );
    assert_eq!(run.states().last(), Some(&Ready));
    assert_eq!(run.balanced().summary.frames.frames_out, 40);
}

#[test]
fn a_sensor_clock_that_jumps_is_told_once() {
    let lab = Lab::new();
    let mut frames = film(TOPIC, 15, PERIOD_NS);
    // The stamps are those of `film`, the times of arrival are not.
    for frame in &mut frames {
        frame.time_ns -= 100 * PERIOD_NS;
    }
    let mut late = film(TOPIC, 30, PERIOD_NS);
    frames.extend(late.drain(15..));
    lab.bag(&frames);
    let run = start(pipeline(&lab, &[])).end();
    let because = run.because();
    assert_eq!(because.len(), 1, "{because:?}");
    assert!(
        because[0].starts_with(&format!("stamps of {TOPIC} jumped from ")),
        "{because:?}"
    );
    assert_eq!(run.states(), [Starting, Ready, Degraded, Ready]);
}

#[test]
fn a_deterministic_run_restarts_nobody() {
    let lab = lab();
    let run = run_with(
        &lab,
        "{ actor: detector/finish, kind: panic, nth: 8 }",
        &[("nodes.camera.clock", "deterministic")],
    );
    let faults = &run.balanced().faults;
    assert!(
        matches!(&faults[..], [RuntimeError::GivenUp { failures: 1, .. }]),
        "{faults:?}"
    );
}

#[test]
fn the_command_exits_with_an_error_when_an_actor_is_given_up() {
    let lab = lab();
    let run = lab.run(&[
        "--set",
        "supervision={ limit: 1, backoff_ms: 5, fault: [ { actor: detector/prepare, kind: panic, nth: 3, times: 100 } ] }",
    ]);
    assert_eq!(run.code, Some(1), "{run:?}");
    for words in [
        "actor detector/prepare failed 2 time(s) within 60 s and is given up",
        "`supervision` of the pipeline file says how often an actor may fail",
        "faults are injected into actors: this is a switch for tests",
    ] {
        assert!(run.told.contains(words), "{words} in {}", run.told);
    }
    let [came, out, dropped, lost] = run.frames();
    assert_eq!((came, lost), (out + dropped, 0));
}

#[test]
fn faults_of_actors_that_do_not_exist_are_refused_with_their_place() {
    let lab = lab();
    let refused = |fault: &str| {
        let set = format!("supervision={{ fault: [ {fault} ] }}");
        let run = lab.run(&["--set", &set]);
        assert_eq!(run.code, Some(1), "{run:?}");
        run.told
    };
    let told = refused("{ actor: detector/finsh, kind: panic, nth: 1 }");
    assert!(told.contains("there is no actor `detector/finsh`"), "{told}");
    assert!(told.contains("did you mean `detector/finish`?"), "{told}");
    let told = refused("{ actor: jsonl, kind: worker_panic, nth: 1 }");
    assert!(
        told.contains("there is no actor `jsonl`"),
        "an inactive sink has no actor: {told}"
    );
    let told = refused("{ actor: camera, kind: fail, nth: 1 }");
    assert!(told.contains("`fail` cannot happen to `camera`"), "{told}");
}
