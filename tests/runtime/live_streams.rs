//! Streams come and go while frames flow: what models keep of them, and the streams that nodes make of others.

use crate::live;
use crate::run_sets;
use crate::tiny;
use live::{answer, of, start};
use sensorium::pipeline::{Overrides, Pipeline};
use sensorium::runtime::{Control, RuntimeError, StreamFlow};
use serde_json::Value;
use tiny::{Lab, numbered, raw};

const PERIOD_NS: u64 = 20_000_000;

/// Queries with a memory of one stream, behind two cameras.
const MEMORY: &str = "\
pipeline: memory
device: { threads: 1, queues: 2, arena_mib: 64 }
models:
  memory: { type: stream_queries, seed: 5, memory_frames: 2, score_threshold: 0.05, max_streams: 1 }
nodes:
  camera: { kind: source, bag: bag.mcap, topics: [/front, /rear], rate: 1.0 }
  detector: { kind: detector, model: memory, input: camera }
  jsonl: { kind: jsonl, input: detector, path: out.jsonl }
";

/// Halves of sweeps, put together for a ring of maps.
pub(crate) const HALVES: &str = "\
pipeline: halves
device: { threads: 1, queues: 2, arena_mib: 128 }
models:
  ring: { type: bev_ring, seed: 3, memory_frames: 2, score_threshold: 0.1, max_streams: 4 }
nodes:
  bag: { kind: source, bag: bag.mcap, rate: 1.0 }
  pair: { kind: sync, input: bag, members: [{ topic: /lidar/left }, { topic: /lidar/right }] }
  cloud: { kind: concat, input: pair, output_frame: velodyne_top, stream: /lidar/all }
  detector: { kind: detector, model: ring, input: cloud }
  jsonl: { kind: jsonl, input: detector, path: out.jsonl }
";

/// The pipeline of this text, with its files in the lab.
fn load(lab: &Lab, text: &str) -> Pipeline {
    let folder = lab.path("");
    let text = ["bag.mcap", "out.jsonl"]
        .iter()
        .fold(text.to_owned(), |text, name| {
            text.replace(name, &folder.join(name).display().to_string())
        });
    Pipeline::parse(&lab.path("p.yaml"), text, &Overrides::default(), &|name| {
        std::env::var(name)
    })
    .unwrap_or_else(|error| panic!("{error:?}"))
}

#[test]
fn a_stream_that_is_taken_away_leaves_its_states_and_their_bank_to_the_next_one() {
    let lab = Lab::new();
    let frames = (0..300).flat_map(|i| {
        let (after_ns, image) = (i as u64 * PERIOD_NS, numbered(i).0);
        [
            raw("/front", after_ns, &image),
            raw("/rear", after_ns + 1, &image),
        ]
    });
    lab.bag(&frames.collect::<Vec<_>>());
    let run = start(load(&lab, MEMORY));
    let banks = || run.live.status().banks[0].used;
    run.until_out("/front", 5);
    run.until("rejected", |status| of(status, "/rear").unwrap().rejected);
    assert_eq!(banks(), 1);
    answer(run.control.remove_stream("camera", "/front")).unwrap();
    run.until_out("/rear", 3);
    assert_eq!(banks(), 1, "the other one has it");
    answer(run.control.remove_stream("camera", "/rear")).unwrap();
    assert_eq!(banks(), 0);
    answer(run.control.add_stream("camera", "/front")).unwrap();
    let before = of(&run.control.status(), "/front").unwrap().frames_out;
    run.until_out("/front", before + 3);
    run.shutdown.drain();
    run.end().balanced();
    let lines = lab.lines("out.jsonl");
    let fresh = |stream: &str| {
        let own = lines.iter().filter(|line| line["stream"] == stream);
        own.map(|line| line.get("fresh").is_some()).collect::<Vec<_>>()
    };
    let (front, rear) = (fresh("/front"), fresh("/rear"));
    assert!(front[0] && rear[0], "each begins with nothing");
    let counts = [&front, &rear].map(|fresh| fresh.iter().filter(|fresh| **fresh).count());
    assert_eq!(counts, [2, 1], "what came back begins with nothing again");
}

#[test]
fn streams_of_sets_and_of_clouds_are_paused_resumed_and_drained_like_any_other() {
    let lab = Lab::new();
    run_sets::bag(&lab, 60, |_, _| ());
    let run = start(load(&lab, HALVES));
    run.until_out("/lidar/all", 2);
    let status = run.control.status();
    let ends = |name: &str| {
        let stream = of(&status, name).unwrap();
        (stream.source.clone(), stream.detector.clone())
    };
    assert_eq!(ends("pair"), ("pair".into(), "cloud".into()));
    assert_eq!(ends("/lidar/all"), ("cloud".into(), "detector".into()));
    for name in ["/lidar/all", "pair"] {
        answer(run.control.pause(name)).unwrap();
        let status = run.until("dropped", |status| of(status, name).unwrap().dropped >= 2);
        assert_eq!(of(&status, name).unwrap().flow, StreamFlow::Paused);
        answer(run.control.resume(name)).unwrap();
        let out = of(&run.control.status(), name).unwrap().frames_out;
        run.until_out(name, out + 2);
    }
    answer(run.control.drain("/lidar/all")).unwrap();
    assert_eq!(of(&run.control.status(), "/lidar/all"), None);
    assert_eq!(run.live.status().banks[0].used, 0);
    let out = of(&run.control.status(), "pair").unwrap().frames_out;
    run.until_out("pair", out + 2);
    run.shutdown.drain();
    let ended = run.end();
    let mut drops = ended.drops();
    drops.retain(|(_, reason, _)| *reason == "stream_paused");
    drops.sort();
    let places: Vec<(&str, &str)> = drops.iter().map(|(place, why, _)| (&**place, *why)).collect();
    assert_eq!(
        places,
        [("cloud", "stream_paused"), ("pair", "stream_paused")],
        "{drops:?}"
    );
    assert!(drops.iter().all(|drop| drop.2 >= 2), "{drops:?}");
}

#[test]
fn a_hand_that_holds_a_run_is_refused_for_another_one_and_the_first_goes_on() {
    let lab = Lab::new();
    let count = 50;
    lab.bag(&tiny::film("/front", count, PERIOD_NS));
    let paced = || live::pipeline(&lab, &[("nodes.camera.rate", "1.0")]);
    let first = start(paced());
    first.until_out("/front", 2);
    let refused = |control: Control| {
        // Its files are not touched: they are those of the run that has the hand.
        let error = live::start_with(paced(), control)
            .end()
            .output
            .map(drop)
            .unwrap_err();
        assert!(matches!(error, RuntimeError::Incomplete(_)), "{error}");
        assert!(error.to_string().contains("a control is for one run"), "{error}");
    };
    refused(first.control.clone());
    let control = first.control.clone();
    assert_eq!(control.status().health.error, None);
    answer(control.pause("/front")).unwrap();
    answer(control.resume("/front")).unwrap();
    let ended = first.end();
    let dropped: u64 = ended.drops().iter().map(|drop| drop.2).sum();
    let lines: Vec<Value> = lab.lines("out.jsonl");
    assert_eq!(lines.len() as u64, count as u64 - dropped);
    refused(control);
    assert_eq!(ended.status.health.error, None);
}
