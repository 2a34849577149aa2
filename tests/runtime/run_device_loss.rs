//! `sensorium run` with a device that fails: what was on it is counted, and the run goes on where it can.

use crate::tiny;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sensorium::image::encode_png;
use serde_json::Value;
use tiny::{Lab, Outcome, film, found, numbered, picture};

const TOPIC: &str = "/camera/image";
const PERIOD_NS: u64 = 100_000_000;

/// What a device that is lost by plan says.
const CAUSE: &str = "the fault plan says so";

/// An option that injects these faults.
fn faults(list: &str) -> String {
    format!("device.fault={{ faults: [ {list} ] }}")
}

/// A run of so many frames with faults and short pauses. Every dropped frame is logged.
fn run(lab: &Lab, faulty: &str, more: &[&str]) -> Outcome {
    let faulty = faults(faulty);
    let mut arguments = vec!["-vv", "--jsonl", "out.jsonl", "--set", &faulty];
    if !more.iter().any(|option| option.starts_with("device.restart")) {
        arguments.extend(["--set", "device.restart={ backoff_ms: 10 }"]);
    }
    arguments.extend(more);
    lab.run(&arguments)
}

fn lab_with(count: usize) -> Lab {
    let lab = Lab::new();
    lab.bag(&film(TOPIC, count, PERIOD_NS));
    lab
}

fn number(line: &Value, key: &str) -> u64 {
    line[key].as_u64().unwrap()
}

fn restarts(run: &Outcome) -> u64 {
    number(&run.summary(), "device_restarts")
}

/// Numbers of the frames that the log says were dropped on the device.
fn logged_drops(run: &Outcome) -> BTreeSet<u64> {
    run.told
        .split("frame dropped ")
        .skip(1)
        .filter(|entry| entry.contains("place=\"device\" reason=device_error"))
        .map(|entry| {
            let seq = entry.split("seq=").nth(1).unwrap();
            seq.split(' ').next().unwrap().parse().unwrap()
        })
        .collect()
}

/// That every frame but the missing ones came out, in order and as if nothing had happened.
fn whole_but_for(lab: &Lab, count: u64, missing: &BTreeSet<u64>) -> Vec<Value> {
    let lines = lab.lines("out.jsonl");
    let seqs: Vec<u64> = lines.iter().map(|line| number(line, "seq")).collect();
    let expected: Vec<u64> = (0..count).filter(|seq| !missing.contains(seq)).collect();
    assert_eq!(seqs, expected);
    for line in &lines {
        let (_, square) = numbered(number(line, "seq") as usize);
        assert_eq!(found(line), [("red".to_owned(), square)], "{line}");
    }
    lines
}

#[test]
fn a_device_that_is_lost_costs_what_is_on_it_and_the_run_goes_on() {
    for (queues, most) in [("1", 1), ("2", 2)] {
        let lab = lab_with(60);
        let queues = format!("device.queues={queues}");
        let run = run(
            &lab,
            "{ kind: lose_device, call: replay, at: { nth: 20 } }",
            &["--set", &queues],
        );
        assert_eq!((run.code, restarts(&run)), (Some(0), 1), "{run:?}");
        let missing = logged_drops(&run);
        let lost = missing.len() as u64;
        assert!((1..=most).contains(&lost), "{missing:?}");
        // The frame whose replay was the twentieth, and the one before it if it was under way.
        assert_eq!(missing, (20 - lost..20).collect());
        assert_eq!(run.frames(), [60, 60 - lost, lost, 0]);
        assert_eq!(run.drops(), [("device".into(), "device_error".into(), lost)]);
        assert_eq!(run.summary()["incomplete"], serde_json::json!([]));

        let lines = whole_but_for(&lab, 60, &missing);
        let fresh: Vec<u64> = lines
            .iter()
            .filter(|line| line.get("fresh").is_some())
            .map(|line| number(line, "seq"))
            .collect();
        assert_eq!(
            fresh,
            [20],
            "the first frame after the restart says so, and no other"
        );
        assert_eq!(number(&lines[20 - lost as usize], "dropped_before"), lost);
        for words in [
            "WARN sensorium::runtime::detectors: faults are injected into the device",
            &format!("WARN sensorium::runtime::owner::recovery: the device is lost cause=\"{CAUSE}\""),
            "INFO sensorium::runtime::owner::recovery: the device is back device=cpu after_ms=",
        ] {
            assert!(run.told.contains(words), "{words} in {}", run.told);
        }
    }
}

#[test]
fn after_a_restart_every_stream_starts_anew() {
    let lab = Lab::new();
    let mut frames = Vec::new();
    for i in 0..40 {
        let after_ns = i as u64 * PERIOD_NS;
        frames.push(tiny::raw("/front", after_ns, &numbered(i).0));
        let png = encode_png(&picture(&[(1, [i % 4 * 16, 16])]).view()).unwrap();
        frames.push(tiny::compressed("/rear", after_ns + 1, "png", &png));
    }
    lab.bag(&frames);
    let run = run(
        &lab,
        "{ kind: lose_device, call: replay, at: { nth: 31 } }, { kind: lose_device, call: read, at: { nth: 50 } }",
        &[
            "--set",
            "nodes.detector.prepare_workers=3",
            "--set",
            "nodes.detector.finish_workers=2",
        ],
    );
    let [came, out, dropped, lost] = run.frames();
    assert_eq!((run.code, restarts(&run)), (Some(0), 2), "{run:?}");
    assert_eq!((came, out + dropped, lost), (80, 80, 0), "{run:?}");
    assert!((2..=4).contains(&dropped), "{run:?}");
    let lines = lab.lines("out.jsonl");
    for stream in ["/front", "/rear"] {
        let own: Vec<&Value> = lines.iter().filter(|line| line["stream"] == stream).collect();
        let mut next = 0;
        for line in &own {
            let seq = number(line, "seq");
            assert_eq!(seq, next + number(line, "dropped_before"), "{stream}: {line}");
            next = seq + 1;
            let square = match stream {
                "/front" => ("red".to_owned(), numbered(seq as usize).1),
                _ => {
                    let left = (seq % 4 * 16) as f64;
                    ("green".to_owned(), [left, 16.0, left + 16.0, 32.0])
                }
            };
            assert_eq!(found(line), [square], "{stream}: {line}");
        }
        assert_eq!(next, 40, "{stream}");
        let fresh = own.iter().filter(|line| line["fresh"] == true).count();
        assert_eq!(fresh, 2, "{stream}: once after each restart");
    }
}

#[test]
fn a_device_that_is_lost_while_it_warms_up_or_captures_is_opened_again() {
    let lab = lab_with(6);
    let mut restarted = Vec::new();
    for launch in (1..).step_by(9) {
        let fault = format!("{{ kind: lose_device, call: launch, at: {{ nth: {launch} }} }}");
        let run = run(&lab, &fault, &[]);
        assert_eq!(
            (run.code, run.frames()),
            (Some(0), [6, 6, 0, 0]),
            "{launch}: {run:?}"
        );
        whole_but_for(&lab, 6, &BTreeSet::new());
        restarted.push(restarts(&run));
        // Launches are over once the traces are captured: no later one is hit.
        if restarts(&run) == 0 {
            break;
        }
        assert!(
            run.told.contains("the device was lost before the first frame"),
            "{}",
            run.told
        );
    }
    assert!(restarted.len() > 5, "{restarted:?}");
    assert!(
        restarted.iter().rev().skip(1).all(|&count| count == 1),
        "{restarted:?}"
    );
}

#[test]
fn a_device_that_cannot_be_used_at_all_is_an_error_at_once() {
    let lab = lab_with(2);
    let run = run(
        &lab,
        "{ kind: partial_capture, launches: 3, at: { nth: 1 } }",
        &[],
    );
    assert_eq!((run.code, run.out.as_str()), (Some(1), ""), "{run:?}");
    for words in [
        "device: squares: variant default: the capture failed: the trace needs",
        "bytes of the trace region are free",
    ] {
        assert!(run.told.contains(words), "{}", run.told);
    }
    assert!(!lab.path("out.jsonl").exists());
}

#[test]
fn a_device_that_is_lost_again_and_again_ends_the_run_with_the_cause() {
    let lab = lab_with(60);
    let run = run(
        &lab,
        "{ kind: lose_device, call: replay, at: { from: 5 } }",
        &["--set", "device.restart={ limit: 2, backoff_ms: 10 }"],
    );
    assert_eq!((run.code, restarts(&run)), (Some(1), 2), "{run:?}");
    let [came, out, dropped, lost] = run.frames();
    assert_eq!((came, lost), (out + dropped, 0), "{run:?}");
    assert!((3..=4).contains(&out), "{run:?}");
    assert_eq!(
        logged_drops(&run).len() as u64,
        4 - out + 3,
        "two more attempts, a frame each"
    );
    let told = format!("device: lost 3 times within 60 s: {CAUSE}");
    assert_eq!(run.summary()["incomplete"][0], told);
    assert!(run.told.contains(&told), "{}", run.told);
    assert!(
        run.told.contains("help: `device.restart` of the pipeline file"),
        "{}",
        run.told
    );
}

#[test]
fn a_device_that_does_not_come_back_ends_the_run_with_both_causes() {
    let lab = lab_with(60);
    let lose = "{ kind: lose_device, call: replay, at: { nth: 5 } }";
    // The first two captures are those of the start.
    let gone = format!("{lose}, {{ kind: partial_capture, launches: 0, at: {{ from: 3 }} }}");
    let ended = run(
        &lab,
        &gone,
        &["--set", "device.restart={ limit: 2, backoff_ms: 10 }"],
    );
    assert_eq!((ended.code, restarts(&ended)), (Some(1), 0), "{ended:?}");
    let [came, out, dropped, lost] = ended.frames();
    assert_eq!((came, lost), (out + dropped, 0), "{ended:?}");
    let told = format!(
        "device: lost ({CAUSE}) and not opened again in 2 attempt(s): squares: variant default: the capture failed: the trace needs"
    );
    assert!(ended.told.contains(&told), "{}", ended.told);

    let once = format!("{lose}, {{ kind: partial_capture, launches: 0, at: {{ nth: 3 }} }}");
    let back = run(&lab, &once, &[]);
    assert_eq!((back.code, restarts(&back)), (Some(0), 1), "{back:?}");
    assert!(
        back.told.contains("the device cannot be opened again yet"),
        "{}",
        back.told
    );
    whole_but_for(&lab, 60, &logged_drops(&back));
}

#[test]
fn without_restarts_and_in_a_deterministic_run_a_lost_device_is_the_end() {
    let lab = lab_with(30);
    for option in ["device.restart={ limit: 0 }", "nodes.camera.clock=deterministic"] {
        let run = run(
            &lab,
            "{ kind: lose_device, call: replay, at: { nth: 5 } }",
            &["--set", option],
        );
        assert_eq!((run.code, restarts(&run)), (Some(1), 0), "{run:?}");
        let [came, out, dropped, lost] = run.frames();
        assert_eq!((came, lost), (out + dropped, 0), "{run:?}");
        assert_eq!(run.summary()["incomplete"][0], format!("device: lost: {CAUSE}"));
    }
}

#[test]
fn an_event_that_is_lost_costs_the_frames_on_the_device_by_their_deadline() {
    let lab = lab_with(40);
    // A frame takes four events: uploaded, staging free, replayed, read. Whichever it is, something waits for it.
    for event in 41..45 {
        let fault = format!("{{ kind: lose_event, at: {{ nth: {event} }} }}");
        let run = run(&lab, &fault, &["--set", "device.frame_deadline_ms=200"]);
        assert_eq!((run.code, restarts(&run)), (Some(0), 1), "{event}: {run:?}");
        let missing = logged_drops(&run);
        assert!((1..=2).contains(&missing.len()), "{event}: {missing:?}");
        let dropped = missing.len() as u64;
        assert_eq!(run.frames(), [40, 40 - dropped, dropped, 0], "{event}");
        let cause = "cause=\"a frame did not come back within 200ms\"";
        assert!(run.told.contains(cause), "{event}: {}", run.told);
        whole_but_for(&lab, 40, &missing);
    }
}

#[test]
fn a_refused_call_costs_one_frame_and_nothing_else() {
    let lab = lab_with(60);
    // Beyond what setting up takes; of the calls that a frame makes several times, each.
    let calls = [
        ("write", 40..41),
        ("copy", 40..41),
        ("replay", 40..41),
        ("read", 40..41),
        ("record_event", 40..44),
        ("wait_event", 40..44),
    ];
    for (call, numbers) in calls {
        for nth in numbers {
            let fault = format!("{{ kind: refuse, call: {call}, at: {{ nth: {nth} }} }}");
            let run = run(&lab, &fault, &[]);
            assert_eq!(
                (run.code, run.frames(), restarts(&run)),
                (Some(0), [60, 59, 1, 0], 0),
                "{call} {nth}: {run:?}"
            );
            let lines = whole_but_for(&lab, 60, &logged_drops(&run));
            assert!(lines.iter().all(|line| line.get("fresh").is_none()));
        }
    }
}

#[test]
fn a_slow_queue_loses_nothing() {
    let lab = lab_with(20);
    let run = run(&lab, "{ kind: slow, factor: 5, queue: 1, at: { from: 1 } }", &[]);
    assert_eq!((run.code, run.frames()), (Some(0), [20, 20, 0, 0]), "{run:?}");
    whole_but_for(&lab, 20, &BTreeSet::new());
}

#[test]
fn a_device_is_not_opened_again_for_nothing() {
    let lab = lab_with(10);
    let since = Instant::now();
    let run = run(
        &lab,
        "{ kind: lose_device, call: replay, at: { nth: 10 } }",
        &["--set", "device.restart={ backoff_ms: 30000 }"],
    );
    assert!(
        since.elapsed() < Duration::from_secs(20),
        "no pause before the end"
    );
    assert_eq!((run.code, restarts(&run)), (Some(0), 0), "{run:?}");
    whole_but_for(&lab, 10, &logged_drops(&run));
}

#[cfg(unix)]
mod interrupts {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Starts a run whose device is lost at once and paused for long, and waits until that is so.
    fn start_outage(lab: &Lab, fault: &str) -> Child {
        let fault = faults(fault);
        let log = lab.path("log.txt");
        let child = lab
            .command(&[
                "--jsonl",
                "out.jsonl",
                "--set",
                &fault,
                "--set",
                "device.restart={ backoff_ms: 30000 }",
            ])
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !std::fs::read_to_string(&log).unwrap().contains(CAUSE) {
            assert!(Instant::now() < deadline, "the device was never lost");
            std::thread::sleep(Duration::from_millis(10));
        }
        child
    }

    /// Interrupts the run: it must end long before the pause does.
    fn interrupt(child: Child) -> (Option<i32>, String) {
        let since = Instant::now();
        let sent = Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn an_interrupt_does_not_wait_for_the_device() {
        let lab = lab_with(60);
        let child = start_outage(&lab, "{ kind: lose_device, call: replay, at: { nth: 5 } }");
        let (code, out) = interrupt(child);
        let summary: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(
            (code, &summary["incomplete"][0]),
            (Some(0), &"stopped before the end".into()),
            "{out}"
        );
        let frames = &summary["frames"];
        assert_eq!(number(frames, "lost"), 0, "{out}");
        assert_eq!(
            number(frames, "in"),
            number(frames, "out") + number(frames, "dropped"),
            "{out}"
        );
        let drops = summary["drops"].as_array().unwrap();
        assert!(
            drops
                .iter()
                .any(|drop| drop["place"] == "device" && drop["reason"] == "shutting_down"),
            "{out}"
        );
        whole_but_for(&lab, number(frames, "out"), &BTreeSet::new());
    }

    #[test]
    fn an_interrupt_does_not_wait_for_a_device_that_was_lost_before_the_first_frame() {
        let lab = lab_with(5);
        let child = start_outage(&lab, "{ kind: lose_device, call: launch, at: { nth: 1 } }");
        let (code, out) = interrupt(child);
        assert_eq!((code, out.as_str()), (Some(1), ""));
        let log = std::fs::read_to_string(lab.path("log.txt")).unwrap();
        assert!(log.contains(&format!("device: lost: {CAUSE}")), "{log}");
    }
}

/// Blocks whose weights were on the lost device bring them to the new one.
#[test]
fn a_model_of_blocks_comes_back_after_a_loss() {
    let lab = Lab::new();
    let weights = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/pipelines/weights/centerpoint_sim.safetensors"
    );
    let pipeline = format!(
        "pipeline: drive\n\
         device: {{ restart: {{ backoff_ms: 10 }}, fault: {{ faults: [ {{ kind: lose_device, call: replay, at: {{ nth: 2 }} }} ] }} }}\n\
         models:\n  objects: {{ type: centerpoint, weights: {weights} }}\n\
         nodes:\n  drive: {{ kind: source, simulate: {{ seconds: 0.5, seed: 1 }}, rate: max }}\n  \
         finder: {{ kind: detector, model: objects, input: drive }}\n  jsonl: {{ kind: jsonl, input: finder, path: out.jsonl }}\n"
    );
    std::fs::write(lab.path("drive.yaml"), pipeline).unwrap();
    let mut command = tiny::sensorium();
    command
        .current_dir(lab.path(""))
        .args(["run", "drive.yaml", "--format", "json"]);
    let run = tiny::outcome(&mut command);
    assert_eq!((run.code, restarts(&run)), (Some(0), 1), "{run:?}");
    let seqs: Vec<u64> = lab
        .lines("out.jsonl")
        .iter()
        .map(|line| number(line, "seq"))
        .collect();
    assert_eq!(seqs.last(), Some(&4), "{seqs:?}");
    assert!((3..=4).contains(&seqs.len()), "{seqs:?}");
}
