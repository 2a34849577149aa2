//! Sinks are opened, closed and moved by reloads: what may be written, and what is told of a sink that is closed.

use std::net::TcpListener;

use crate::live;
use crate::tiny;
use live::{Running, answer, start, with_nodes};
use sensorium::io::bag::Bag;
use sensorium::pipeline::{Pipeline, ReloadStep};
use sensorium::runtime::PipelineState::{Degraded, Ready};
use sensorium::runtime::{Reason, ReloadReport};
use tiny::{Lab, film};

const PERIOD_NS: u64 = 20_000_000;

/// Three seconds of one camera.
fn lab() -> Lab {
    let lab = Lab::new();
    lab.bag(&film("/front", 150, PERIOD_NS));
    lab
}

/// The lab's pipeline with more sinks, played as recorded.
fn with_sinks(lab: &Lab, sinks: &[&str]) -> Pipeline {
    let sinks: Vec<String> = sinks
        .iter()
        .map(|sink| sink.replace("LAB", &lab.path("").display().to_string()))
        .collect();
    let sinks: Vec<&str> = sinks.iter().map(String::as_str).collect();
    with_nodes(lab, &sinks, &[("nodes.camera.rate", "1.0")])
}

fn reload(run: &Running, lab: &Lab, sinks: &[&str]) -> ReloadReport {
    answer(run.control.reload(&with_sinks(lab, sinks))).unwrap()
}

fn refused(report: &ReloadReport) -> &str {
    assert!(report.done.is_empty(), "{report:?}");
    &report.failed.as_ref().unwrap().reason
}

#[test]
fn a_reload_opens_no_file_that_is_played_or_that_another_sink_writes() {
    const TAPE: &str = "tape: { kind: recorder, input: detector, path: LAB/tape.mcap }";
    let lab = lab();
    let bag = std::fs::read(lab.path("bag.mcap")).unwrap();
    let run = start(with_sinks(&lab, &[TAPE]));
    run.until_out("/front", 3);
    let onto_bag = "more: { kind: recorder, input: detector, path: LAB/bag.mcap }";
    let report = reload(&run, &lab, &[TAPE, onto_bag]);
    assert!(refused(&report).contains("belongs to the bag"), "{report:?}");
    let onto_lines = "more: { kind: jsonl, input: detector, path: LAB/out.jsonl }";
    let report = reload(&run, &lab, &[TAPE, onto_lines]);
    assert!(refused(&report).contains("also written by jsonl"), "{report:?}");
    // A sink that would move there goes on where it is.
    let moved = "tape: { kind: recorder, input: detector, path: LAB/out.jsonl }";
    let report = reload(&run, &lab, &[moved]);
    assert!(refused(&report).contains("also written by jsonl"), "{report:?}");
    assert!(reload(&run, &lab, &[TAPE]).done.is_empty(), "nothing has changed");
    // What another sink gives up may be taken in the same reload.
    let taken = "another: { kind: recorder, input: detector, path: LAB/tape.mcap }";
    let report = reload(&run, &lab, &[taken]);
    let expected = [
        ReloadStep::CloseSink { node: "tape".into() },
        ReloadStep::OpenSink {
            node: "another".into(),
        },
    ];
    assert_eq!((&report.done[..], report.is_complete()), (&expected[..], true));
    run.end().balanced();
    assert!(std::fs::read(lab.path("bag.mcap")).unwrap() == bag);
    assert_eq!(lab.lines("out.jsonl").len(), 150);
}

#[test]
fn a_sink_that_is_changed_loses_nothing_that_it_wrote() {
    const TAPE: &str = "tape: { kind: recorder, input: detector, path: LAB/tape.mcap }";
    const LINES: &str = "lines: { kind: jsonl, input: detector, path: LAB/lines.jsonl }";
    let lab = lab();
    let run = start(with_sinks(&lab, &[TAPE, LINES]));
    run.until_out("/front", 20);
    let bare = TAPE.replace("path:", "include_images: false, path:");
    let report = reload(&run, &lab, &[&bare]);
    assert!(report.is_complete() && report.done.len() == 2, "{report:?}");
    run.until_out("/front", 40);
    let report = reload(&run, &lab, &[&bare, LINES]);
    assert!(report.is_complete() && report.done.len() == 1, "{report:?}");
    run.end().balanced();

    let seqs: Vec<u64> = lab
        .lines("lines.jsonl")
        .iter()
        .map(|line| line["seq"].as_u64().unwrap())
        .collect();
    assert!(
        seqs.is_sorted() && seqs[0] == 0 && *seqs.last().unwrap() == 149,
        "{seqs:?}"
    );
    let gaps = seqs.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
    assert_eq!(gaps, 1, "while it was closed: {seqs:?}");
    let found = |name: &str| {
        let bag = Bag::open(&lab.path(name)).unwrap();
        let counts = |topic: &str| {
            let topics = bag.topics().iter();
            topics
                .filter(|it| it.name == topic)
                .map(|it| it.messages)
                .sum::<u64>()
        };
        (counts("/front"), counts("/front/detections"))
    };
    let (before, after) = (found("tape.mcap"), found("tape.part2.mcap"));
    assert_eq!(
        (before.0, after.0),
        (before.1, 0),
        "images go with boxes, and then no more"
    );
    assert!(
        before.1 >= 20 && after.1 > 0 && before.1 + after.1 <= 150,
        "{before:?} {after:?}"
    );
}

#[test]
fn after_a_sink_was_not_opened_again_it_is_known_not_to_be_there() {
    let lab = lab();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let viewer = |address: &str| {
        format!("viewer: {{ kind: publisher, transport: foxglove, input: detector, address: '{address}' }}")
    };
    let (free, taken) = (
        viewer("127.0.0.1:0"),
        viewer(&taken.local_addr().unwrap().to_string()),
    );
    let run = start(with_sinks(&lab, &[&free]));
    run.until_out("/front", 3);
    let queues = |run: &Running| {
        let queues = run.live.queues();
        queues.iter().filter(|queue| queue.to == "viewer").count()
    };
    assert_eq!(queues(&run), 1);
    let report = reload(&run, &lab, &[&taken]);
    assert!(!report.is_complete(), "{report:?}");
    assert_eq!(queues(&run), 0, "neither of the sink before nor of the one after");
    let report = reload(&run, &lab, &[&free]);
    let opened = ReloadStep::OpenSink {
        node: "viewer".into(),
    };
    assert_eq!((&report.done[..], report.is_complete()), (&[opened][..], true));
    assert_eq!(queues(&run), 1);
    run.end().balanced();
}

#[cfg(target_os = "linux")]
#[test]
fn a_sink_that_cannot_write_degrades_nothing_any_more_once_it_is_closed() {
    let lab = lab();
    let run = start(with_sinks(
        &lab,
        &["full: { kind: jsonl, input: detector, path: /dev/full }"],
    ));
    let failing = |reason: &Reason| matches!(reason, Reason::SinkFailing { sink, .. } if sink == "full");
    run.until("degraded", |status| {
        let mut reasons = status.health.reasons.iter();
        status.health.state == Degraded && reasons.any(|active| failing(&active.reason))
    });
    assert!(reload(&run, &lab, &[]).is_complete());
    let status = run.control.status();
    assert_eq!(
        (status.health.state, &status.health.reasons[..]),
        (Ready, &[][..])
    );
    assert!(!run.live.queues().iter().any(|queue| queue.to == "full"));
    run.end();
}
