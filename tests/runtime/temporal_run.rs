//! `sensorium run` with models that keep states: streams that share one report what each reports alone.

use crate::tiny;
use std::collections::BTreeMap;

use sensorium::io::drive_bag::TF_TOPIC;
use sensorium::io::messages::{
    HeaderMsg, QuaternionMsg, TF_TYPE, TfMsg, TransformMsg, TransformStampedMsg, Vector3Msg,
};
use serde_json::Value;
use tiny::{Frame, Lab, Outcome, START_NS, film, numbered, outcome, raw, sensorium};

/// Runs a pipeline file of the lab.
fn run(lab: &Lab, text: &str, arguments: &[&str]) -> Outcome {
    std::fs::write(lab.path("states.yaml"), text).unwrap();
    let mut command = sensorium();
    command
        .current_dir(lab.path(""))
        .args(["run", "states.yaml", "--format", "json"]);
    outcome(command.args(arguments))
}

/// A JSON line without what depends on time.
fn timeless(mut line: Value) -> Value {
    line.as_object_mut().unwrap().remove("latency_us");
    line
}

/// As text, so that they can be sorted.
fn lines(lab: &Lab, name: &str) -> Vec<String> {
    let lines = lab.lines(name).into_iter();
    lines.map(|line| timeless(line).to_string()).collect()
}

/// A ring of maps that so many simulated drives run through, each with a seed of its own.
fn ring_of_drives(seeds: &[u32]) -> String {
    let sources: String = seeds
        .iter()
        .map(|seed| {
            format!(
                "  drive{seed}: {{ kind: source, simulate: {{ seconds: 0.6, seed: {seed} }}, rate: max }}\n"
            )
        })
        .collect();
    let names: Vec<String> = seeds.iter().map(|seed| format!("drive{seed}")).collect();
    format!(
        "pipeline: states\n\
         device: {{ threads: 2, queues: 2, arena_mib: 128 }}\n\
         models:\n  ring: {{ type: bev_ring, seed: 3, memory_frames: 2, score_threshold: 0.1, max_streams: 4 }}\n\
         nodes:\n{sources}  finder: {{ kind: detector, model: ring, input: [{}] }}\n  jsonl: {{ kind: jsonl, input: finder }}\n",
        names.join(", ")
    )
}

#[test]
fn four_lidars_through_one_ring_of_maps_report_what_each_reports_alone() {
    let lab = Lab::new();
    let seeds = [1, 2, 3, 4];
    let mut alone = Vec::new();
    for seed in seeds {
        let done = run(&lab, &ring_of_drives(&[seed]), &["--jsonl", "one.jsonl"]);
        assert_eq!((done.code, done.frames()), (Some(0), [6, 6, 0, 0]), "{done:?}");
        let own = lines(&lab, "one.jsonl");
        let fresh: Vec<bool> = own.iter().map(|line| line.contains("\"fresh\":true")).collect();
        assert_eq!(fresh, [true, false, false, false, false, false]);
        assert!(
            own.iter().all(|line| line.contains("\"label\"")),
            "there is something to differ"
        );
        alone.extend(own);
    }
    let done = run(&lab, &ring_of_drives(&seeds), &["--jsonl", "all.jsonl"]);
    assert_eq!((done.code, done.frames()), (Some(0), [24, 24, 0, 0]), "{done:?}");
    // The drives' topics have one name, so that lines are told apart by what is in them.
    let mut together = lines(&lab, "all.jsonl");
    together.sort();
    alone.sort();
    assert_eq!(together, alone);
}

const CAMERAS: &str = "\
pipeline: states
device: { threads: 1, queues: 2, arena_mib: 64 }
models:
  memory: { type: stream_queries, seed: 5, memory_frames: 2, score_threshold: 0.05 }
nodes:
  cameras: { kind: source, topics: auto, clock: bag, rate: max }
  finder: { kind: detector, model: memory, input: cameras }
  jsonl: { kind: jsonl, input: finder }
";
const PERIOD_NS: u64 = 100_000_000;

/// Two cameras that see different things, by turns.
fn two_cameras(count: usize) -> Vec<Frame> {
    let frames = (0..count).flat_map(|i| {
        let after_ns = i as u64 * PERIOD_NS;
        let [front, rear] = [numbered(i).0, numbered(count - i).0];
        [raw("/front", after_ns, &front), raw("/rear", after_ns + 1, &rear)]
    });
    frames.collect()
}

fn of_stream(lab: &Lab, name: &str) -> BTreeMap<String, Vec<Value>> {
    let mut streams: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for line in lab.lines(name) {
        let stream = line["stream"].as_str().unwrap().to_owned();
        streams.entry(stream).or_default().push(timeless(line));
    }
    streams
}

#[test]
fn two_cameras_through_one_memory_report_what_each_reports_alone() {
    let lab = Lab::new();
    lab.bag(&two_cameras(6));
    let both = run(&lab, CAMERAS, &["--bag", "bag.mcap", "--jsonl", "both.jsonl"]);
    assert_eq!((both.code, both.frames()), (Some(0), [12, 12, 0, 0]), "{both:?}");
    let together = of_stream(&lab, "both.jsonl");
    for topic in ["/front", "/rear"] {
        let only = format!("nodes.cameras.topics=[{topic}]");
        let done = run(
            &lab,
            CAMERAS,
            &["--bag", "bag.mcap", "--jsonl", "one.jsonl", "--set", &only],
        );
        assert_eq!((done.code, done.frames()), (Some(0), [6, 6, 0, 0]), "{done:?}");
        assert_eq!(of_stream(&lab, "one.jsonl")[topic], together[topic]);
    }
    assert_ne!(together["/front"][3]["objects"], together["/rear"][3]["objects"]);
}

/// Where the camera of every frame is: 4 m further ahead at each.
fn camera_moves(after_ns: u64, number: usize) -> Frame {
    let time_ns = START_NS + after_ns;
    let transform = TransformStampedMsg {
        header: HeaderMsg::new(time_ns as i64, "map").unwrap(),
        child_frame_id: "camera",
        transform: TransformMsg {
            translation: Vector3Msg {
                x: number as f64 * 4.0,
                y: 0.0,
                z: 1.5,
            },
            // An optical frame: z is ahead, x to the right.
            rotation: QuaternionMsg {
                x: -0.5,
                y: 0.5,
                z: -0.5,
                w: 0.5,
            },
        },
    };
    let transforms = vec![transform];
    Frame {
        topic: TF_TOPIC,
        type_name: TF_TYPE,
        time_ns,
        data: TfMsg { transforms }.encode().unwrap(),
    }
}

#[test]
fn the_transforms_of_a_bag_of_images_tell_a_memory_where_the_camera_was() {
    let lab = Lab::new();
    let frames = || (0..4).map(|i| (i, i as u64 * PERIOD_NS));
    let film: Vec<Frame> = frames()
        .flat_map(|(i, after_ns)| {
            [
                camera_moves(after_ns, i),
                raw("/front", after_ns + 1, &numbered(i).0),
            ]
        })
        .collect();
    // As the images are stamped a nanosecond later than the last transform, the next one comes before they are released.
    let ahead = camera_moves(4 * PERIOD_NS, 4);
    let in_world = CAMERAS.replace("seed: 5,", "seed: 5, world_frame: map,");
    let objects = |pipeline: &str, clock: &str| {
        let clock = format!("nodes.cameras.clock={clock}");
        let arguments = ["--bag", "bag.mcap", "--jsonl", "out.jsonl", "--set", &clock];
        let done = run(&lab, pipeline, &arguments);
        assert_eq!((done.code, done.frames()), (Some(0), [4, 4, 0, 0]), "{done:?}");
        let lines = lab.lines("out.jsonl").into_iter();
        lines.map(|line| line["objects"].clone()).collect::<Vec<Value>>()
    };
    let mut moved = film.clone();
    moved.push(ahead);
    moved.sort_by_key(|frame| (frame.type_name != TF_TYPE, frame.time_ns));
    for frame in moved.iter_mut().filter(|frame| frame.type_name == TF_TYPE) {
        frame.time_ns = START_NS;
    }
    lab.bag(&moved);
    let still = objects(CAMERAS, "bag");
    for clock in ["bag", "deterministic"] {
        let seen = objects(&in_world, clock);
        assert_eq!(
            seen[0], still[0],
            "the first frame has no past to bring to the present"
        );
        assert_ne!(seen[1..], still[1..], "{clock}: the camera moved");
    }
}

/// The objects of a film's frames from one on.
fn film_from(lab: &Lab, frames: &[Frame]) -> Vec<Value> {
    lab.bag(frames);
    let done = run(lab, CAMERAS, &["--bag", "bag.mcap", "--jsonl", "part.jsonl"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    lab.lines("part.jsonl")
        .into_iter()
        .map(|line| line["objects"].clone())
        .collect()
}

#[test]
fn after_a_lost_device_a_stream_goes_on_from_nothing() {
    let lab = Lab::new();
    let frames = film("/front", 16, PERIOD_NS);
    let whole = film_from(&lab, &frames);
    lab.bag(&frames);
    let faults = "device.fault={ faults: [ { kind: lose_device, call: replay, at: { nth: 7 } } ] }";
    let restart = "device.restart={ backoff_ms: 10 }";
    let arguments = [
        "--bag",
        "bag.mcap",
        "--jsonl",
        "out.jsonl",
        "--set",
        faults,
        "--set",
        restart,
    ];
    let done = run(&lab, CAMERAS, &arguments);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.summary()["device_restarts"], 1);
    let lines = lab.lines("out.jsonl");
    let is_fresh = |line: &Value| line.get("fresh").is_some();
    let fresh: Vec<usize> = (0..lines.len()).filter(|&i| is_fresh(&lines[i])).collect();
    let &[0, again] = fresh.as_slice() else {
        panic!("fresh at {fresh:?}");
    };
    let seq = |line: &Value| line["seq"].as_u64().unwrap() as usize;
    assert_eq!(
        seq(&lines[again]),
        7,
        "the frame after the one that was lost with the device"
    );
    for line in &lines[..again] {
        assert_eq!(line["objects"], whole[seq(line)]);
    }
    let after = film_from(&lab, &film("/front", 16, PERIOD_NS).split_off(7));
    let found: Vec<&Value> = lines[again..].iter().map(|line| &line["objects"]).collect();
    assert_eq!(found, after.iter().collect::<Vec<_>>());
    assert_ne!(
        after[..],
        whole[7..],
        "without its past the stream reports something else"
    );
}

#[test]
fn a_stream_that_gave_up_its_place_or_was_silent_starts_afresh() {
    let lab = Lab::new();
    lab.bag(&two_cameras(4));
    let run_with = |more: &[&str]| {
        let mut arguments = vec!["--bag", "bag.mcap", "--jsonl", "out.jsonl"];
        arguments.extend(more);
        let done = run(&lab, CAMERAS, &arguments);
        assert_eq!(done.code, Some(0), "{done:?}");
        let fresh = lab
            .lines("out.jsonl")
            .iter()
            .filter(|line| line.get("fresh").is_some())
            .count();
        (done, fresh)
    };
    let evicting = [
        "--set",
        "models.memory.max_streams=1",
        "--set",
        "models.memory.on_full=evict",
    ];
    let (done, fresh) = run_with(&evicting);
    assert_eq!((done.frames(), fresh), ([8, 8, 0, 0], 8), "{done:?}");
    let (_, fresh) = run_with(&["--set", "models.memory.max_gap_s=0.05"]);
    assert_eq!(fresh, 8);
    let (_, fresh) = run_with(&["--set", "models.memory.max_gap_s=0.5"]);
    assert_eq!(fresh, 2);
    let (done, fresh) = run_with(&["--set", "models.memory.max_streams=1"]);
    assert_eq!((done.frames(), fresh), ([8, 4, 4, 0], 1), "{done:?}");
    assert_eq!(done.drops()[0].1, "stream_rejected");
}

#[test]
fn mistakes_in_the_file_are_told() {
    let lab = Lab::new();
    lab.bag(&two_cameras(1));
    let told = |from: &str, to: &str, arguments: &[&str]| {
        let mut all = vec!["--bag", "bag.mcap"];
        all.extend(arguments);
        let done = run(&lab, &CAMERAS.replace(from, to), &all);
        assert_ne!(done.code, Some(0));
        done.told
    };
    for (from, to, words) in [
        ("memory_frames: 2", "memory_frames: 17", "16"),
        ("memory_frames: 2", "memory_frame: 2", "memory_frames"),
        ("stream_queries", "stream_query", "stream_queries"),
        ("seed: 5", "weights: a.onnx", "weights"),
        ("score_threshold: 0.05", "score_threshold: 1.0", "0.999"),
    ] {
        let told = told(from, to, &[]);
        assert!(told.contains(words), "{to}: {told}");
    }
    let told = told("seed: 5", "seed: 5", &["--model", "squares.onnx"]);
    assert!(told.contains("takes no weights"), "{told}");
}
