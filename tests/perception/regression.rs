//! One test for each public report of a bug that this program must not have. Reports about bags are in `bags.rs`
//! and `bag_damage.rs`.

use crate::support;
use crate::tiny;
use std::collections::HashSet;
use std::path::Path;

use prost::Message;
use sensorium::image::{decode_image, encode_png};
use sensorium::io::bag::Bag;
use sensorium::io::messages::{IMAGE_TYPE, ImageMsg};
use sensorium::weights::OnnxModel;
use sensorium::weights::proto::ModelProto;
use serde_json::Value;
use tiny::{Frame, Lab, found, numbered, picture};

const TOPIC: &str = "/camera/image";
const PERIOD_NS: u64 = 100_000_000;

/// Runs YOLOX-nano on these frames; the JSON lines. `None` without the weights.
fn yolox(lab: &Lab, frames: &[Frame], arguments: &[&str]) -> Option<Vec<Value>> {
    let model = support::data("models/yolox_nano_416.onnx")?;
    lab.bag(frames);
    let model = [
        "--model",
        model.to_str().unwrap(),
        "--jsonl",
        "out.jsonl",
        "--no-latency",
    ];
    let more = [
        "--set",
        "models.squares.labels=coco80",
        "--set",
        "device.arena_mib=128",
        "--set",
        "device.threads=auto",
    ];
    let run = lab.run(&[&model[..], &more[..], arguments].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    Some(lab.lines("out.jsonl"))
}

fn edges(detection: &Value) -> [f64; 4] {
    std::array::from_fn(|i| detection["box_xyxy"][i].as_f64().unwrap())
}

fn detections(line: &Value) -> &[Value] {
    line["detections"].as_array().unwrap()
}

/// autoware_universe PR 4089: boxes (0, 0, 0, 0) of score 0 beside the real ones, from a result buffer of fixed
/// size.
#[test]
fn only_real_detections_are_published() {
    let lab = Lab::new();
    lab.bag(&[
        tiny::raw(TOPIC, 0, &picture(&[(2, [0, 0]), (2, [56, 56]), (1, [16, 16])])),
        tiny::raw(TOPIC, PERIOD_NS, &picture(&[])),
        tiny::raw(TOPIC, 2 * PERIOD_NS, &picture(&[(0, [0, 32])])),
    ]);
    let run = lab.run(&["--jsonl", "out.jsonl"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let counts: Vec<usize> = lab
        .lines("out.jsonl")
        .iter()
        .map(|line| found(line).len())
        .collect();
    assert_eq!(counts, [3, 0, 1]);

    let Some(photo) = support::data("camera/photos/dog.jpg") else {
        return;
    };
    let dog = tiny::compressed(TOPIC, 0, "jpeg", &std::fs::read(photo).unwrap());
    let lines = yolox(&lab, &[dog], &["--set", "models.squares.score_threshold=0.35"]).unwrap();
    let labels: Vec<&str> = detections(&lines[0])
        .iter()
        .map(|d| d["label"].as_str().unwrap())
        .collect();
    assert_eq!(labels, ["dog", "bicycle", "car"]);
    for detection in detections(&lines[0]) {
        let [left, top, right, bottom] = edges(detection);
        assert!(
            detection["score"].as_f64().unwrap() >= 0.35 && right > left && bottom > top,
            "{detection}"
        );
    }
}

/// tensorrtx issue 1014, roboflow/inference PR 2344: boxes of objects at the border with negative coordinates, or
/// beyond the image.
#[test]
fn boxes_at_the_border_are_cut_to_the_image() {
    let Some(path) = support::data("lidar/kitti_mmdet3d/000008.png") else {
        return;
    };
    let png = std::fs::read(path).unwrap();
    let image = decode_image(&png).unwrap();
    let lab = Lab::new();
    let lines = yolox(&lab, &[tiny::compressed(TOPIC, 0, "png", &png)], &[]).unwrap();
    let boxes: Vec<[f64; 4]> = detections(&lines[0]).iter().map(edges).collect();
    for [left, top, right, bottom] in &boxes {
        assert!(*left >= 0.0 && *top >= 0.0, "{boxes:?}");
        assert!(
            *right <= image.width() as f64 && *bottom <= image.height() as f64,
            "{boxes:?}"
        );
    }
    // A car that the left border cuts, which ends at -1 before clipping, is there.
    assert!(boxes.iter().any(|b| b[0] == 0.0 && b[2] > 100.0), "{boxes:?}");
}

/// CarkusL/CenterPoint `pfe_sim.onnx`: nodes that stand before the ones they read from.
#[test]
fn a_network_whose_nodes_are_out_of_order_is_sorted() {
    let file = "models/lidar_pfe/centerpoint_nuscenes_pfe_sim_UNSORTED.onnx";
    let Some(path) = support::data(file) else { return };
    let proto = ModelProto::decode(&std::fs::read(&path).unwrap()[..]).unwrap();
    let graph = proto.graph.unwrap();
    let made: HashSet<&String> = graph.node.iter().flat_map(|n| &n.output).collect();
    let in_order = |nodes: &[(&[String], &[String])]| {
        let mut seen: HashSet<String> = HashSet::new();
        nodes.iter().all(|(inputs, outputs)| {
            let ready = inputs
                .iter()
                .all(|name| !made.contains(name) || seen.contains(name));
            seen.extend(outputs.iter().cloned());
            ready
        })
    };
    let file_order: Vec<_> = graph.node.iter().map(|n| (&n.input[..], &n.output[..])).collect();
    assert!(!in_order(&file_order), "the file proves nothing");
    let model = OnnxModel::open(&path).unwrap();
    let read_order: Vec<_> = model
        .all_nodes()
        .iter()
        .map(|n| (&n.inputs[..], &n.outputs[..]))
        .collect();
    assert!(in_order(&read_order));
    assert_eq!(model.all_nodes().len(), graph.node.len());
}

/// hpc203 `nanodet_m.onnx`: constants that are listed as inputs as well.
#[test]
fn constants_are_no_inputs_of_a_network() {
    let Some(path) = support::data("models/nanodet_m_416.onnx") else {
        return;
    };
    let proto = ModelProto::decode(&std::fs::read(&path).unwrap()[..]).unwrap();
    assert!(proto.graph.unwrap().input.len() > 100, "the file proves nothing");
    let model = OnnxModel::open(&path).unwrap();
    assert_eq!((model.inputs().len(), model.outputs().len()), (1, 6));
    let mut command = tiny::sensorium();
    let told = tiny::outcome(command.args(["model", "info"]).arg(&path));
    let rows = |kind: &str| {
        let text = |line: &str| line.trim_start_matches(['│', ' ']).starts_with(kind);
        told.out.lines().filter(|line| text(line)).count()
    };
    assert_eq!(
        (told.code, rows("input"), rows("output")),
        (Some(0), 1, 6),
        "{told:?}"
    );
}

/// The raw image of `rosbag2js_sample`: 640 x 480, bgr8, without padding.
fn sample_message() -> Option<Vec<u8>> {
    let path = support::data("bags/rosbag2js_sample/sample.db3")?;
    let bag = Bag::open(&path).unwrap();
    let mut messages = bag.all_messages().map(Result::unwrap);
    Some(messages.find(|m| &*m.type_name == IMAGE_TYPE).unwrap().data)
}

fn frame(after_ns: u64, message: &ImageMsg<'_>) -> Frame {
    Frame {
        topic: TOPIC,
        type_name: IMAGE_TYPE,
        time_ns: tiny::START_NS + after_ns,
        data: message.encode().unwrap(),
    }
}

/// vision_opencv issues 27 and 115, PR 394: rows with padding at their end throw, or shear the image.
#[test]
fn padding_at_the_end_of_rows_changes_nothing() {
    let Some(data) = sample_message() else { return };
    let message = ImageMsg::decode(&data).unwrap();
    assert_eq!((message.width, message.step), (640, 1920));
    let padded: Vec<u8> = message
        .data
        .chunks(1920)
        .flat_map(|row| row.iter().copied().chain([0x5a; 128]))
        .collect();
    let wide = ImageMsg {
        step: 2048,
        data: &padded,
        ..message
    };
    let lab = Lab::new();
    // So low that the scene has detections to compare.
    let low = ["--set", "models.squares.score_threshold=0.02"];
    let Some(lines) = yolox(&lab, &[frame(0, &message), frame(PERIOD_NS, &wide)], &low) else {
        return;
    };
    assert!(!detections(&lines[0]).is_empty(), "an empty scene proves nothing");
    assert_eq!(lines[0]["detections"], lines[1]["detections"]);
}

/// vision_opencv issues 548 and 253: `step` of 1280 on 1280 pixels of two bytes ends the node with an exception.
#[test]
fn a_step_shorter_than_a_row_costs_that_frame_alone() {
    let lab = Lab::new();
    let image = numbered(5).0;
    let depth = vec![0; 1280 * 4];
    let half_step = |encoding: &'static str, after_ns: u64| {
        tiny::raw_as(TOPIC, after_ns, &image, |m| {
            (m.encoding, m.width, m.height, m.step, m.data) = (encoding, 1280, 4, 1280, &depth);
        })
    };
    lab.bag(&[
        tiny::raw(TOPIC, 0, &image),
        half_step("16UC1", PERIOD_NS),
        half_step("rgb8", 2 * PERIOD_NS),
        tiny::raw_as(TOPIC, 3 * PERIOD_NS, &image, |m| m.data = &m.data[..64]),
        tiny::raw(TOPIC, 4 * PERIOD_NS, &image),
    ]);
    let run = lab.run(&["--jsonl", "out.jsonl"]);
    assert_eq!((run.code, run.frames()), (Some(0), [5, 2, 3, 0]), "{run:?}");
    assert!(
        lab.lines("out.jsonl")
            .iter()
            .all(|line| found(line)[0].1 == numbered(5).1)
    );
}

/// image_pipeline issues 377 and 1045: `8UC3` and Bayer encodings are taken for no colour.
#[test]
fn every_encoding_is_read_as_its_name_says_or_refused_by_name() {
    let lab = Lab::new();
    let image = numbered(20).0;
    let rgb = image.data();
    let pixels = |channels: &[usize]| -> Vec<u8> {
        let value = |p: &[u8], c: usize| if c == 3 { 255 } else { p[c] };
        rgb.chunks(3)
            .flat_map(|p| channels.iter().map(|&c| value(p, c)).collect::<Vec<_>>())
            .collect()
    };
    let read: [(&str, &[usize]); 6] = [
        ("rgb8", &[0, 1, 2]),
        ("bgr8", &[2, 1, 0]),
        ("8UC3", &[2, 1, 0]),
        ("rgba8", &[0, 1, 2, 3]),
        ("bgra8", &[2, 1, 0, 3]),
        ("mono8", &[0]),
    ];
    // Bayer and YUV images are in `image_messages.rs`.
    let refused = [
        "bayer_rggb16",
        "bayer_bggr16",
        "nv24",
        "rgb16",
        "16UC1",
        "32FC1",
        "RGB8",
        "",
    ];
    let mut frames = Vec::new();
    for (encoding, channels) in read {
        let data = pixels(channels);
        let after_ns = frames.len() as u64 * PERIOD_NS;
        frames.push(tiny::raw_as(TOPIC, after_ns, &image, |m| {
            (m.encoding, m.step, m.data) = (encoding, 64 * channels.len() as u32, &data);
        }));
    }
    for encoding in refused {
        let after_ns = frames.len() as u64 * PERIOD_NS;
        frames.push(tiny::raw_as(TOPIC, after_ns, &image, |m| m.encoding = encoding));
    }
    lab.bag(&frames);
    let run = lab.run(&["--jsonl", "out.jsonl", "-vv"]);
    assert_eq!((run.code, run.frames()), (Some(0), [14, 6, 8, 0]), "{run:?}");
    assert_eq!(
        run.drops(),
        [("detector/prepare".into(), "unsupported_encoding".into(), 8)]
    );
    for encoding in refused.iter().filter(|name| !name.is_empty()) {
        assert!(run.told.contains(encoding), "{encoding} in {}", run.told);
    }
    let red = [("red".to_owned(), numbered(20).1)];
    let lines = lab.lines("out.jsonl");
    for ((encoding, _), line) in read.iter().zip(&lines) {
        match *encoding {
            "mono8" => assert_eq!(found(line), [], "grey has no colour"),
            _ => assert_eq!(found(line), red, "{encoding}"),
        }
    }
}

/// image_transport_plugins issue 1: red and blue change places.
#[test]
fn red_and_blue_keep_their_places() {
    let lab = Lab::new();
    let image = picture(&[(0, [32, 0])]);
    let bgr: Vec<u8> = image.data().chunks(3).flat_map(|p| [p[2], p[1], p[0]]).collect();
    let png = encode_png(&image.view()).unwrap();
    lab.bag(&[
        tiny::raw(TOPIC, 0, &image),
        tiny::raw_as(TOPIC, PERIOD_NS, &image, |m| {
            (m.encoding, m.data) = ("bgr8", &bgr)
        }),
        // The encoding decides, also where it makes a blue square red.
        tiny::raw_as(TOPIC, 2 * PERIOD_NS, &image, |m| m.encoding = "bgr8"),
        tiny::raw_as(TOPIC, 3 * PERIOD_NS, &image, |m| m.data = &bgr),
        // As image_transport writes it, which names the encoding before compression and the one inside.
        tiny::compressed("/c", 4 * PERIOD_NS, "bgr8; png compressed bgr8", &png),
    ]);
    // Streams take turns at the device: only a deterministic run has one order of both.
    let run = lab.run(&["--jsonl", "out.jsonl", "--deterministic"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let colours: Vec<Vec<String>> = lab
        .lines("out.jsonl")
        .iter()
        .map(|line| found(line).into_iter().map(|(label, _)| label).collect())
        .collect();
    let blue = vec!["blue".to_owned()];
    // Every cell of the grid of stride 8 in the square sees red.
    let red = vec!["red".to_owned(); 16];
    assert_eq!(colours, [blue.clone(), blue.clone(), red.clone(), red, blue]);
}

/// kumuji/trt_yolo_ros PR 1: the image of a frame is overwritten by the next one while it is still in use.
#[test]
fn a_frame_is_never_overwritten_by_a_later_one_under_load() {
    const COUNT: usize = 800;
    let lab = Lab::new();
    lab.bag(&tiny::film(TOPIC, COUNT, PERIOD_NS));
    for settings in [
        ["channels.edges.0.on_full=block", "device.queues=2"],
        ["channels.edges.0.on_full=drop_oldest", "device.queues=2"],
        ["channels.edges.0.on_full=drop_newest", "device.queues=1"],
    ] {
        let run = lab.run(&[
            "--jsonl",
            "out.jsonl",
            "--record",
            "tape.mcap",
            "--set",
            settings[0],
            "--set",
            settings[1],
            "--set",
            "nodes.detector.prepare_workers=4",
            "--set",
            "nodes.detector.finish_workers=2",
        ]);
        let [came, out, dropped, lost] = run.frames();
        assert_eq!((run.code, came, lost), (Some(0), COUNT as u64, 0), "{run:?}");
        assert_eq!(came, out + dropped);
        let lines = lab.lines("out.jsonl");
        for line in &lines {
            let seq = line["seq"].as_u64().unwrap() as usize;
            assert_eq!(
                found(line),
                [("red".to_owned(), numbered(seq).1)],
                "frame {seq}, {settings:?}"
            );
        }
        recording_agrees(&lab.path("tape.mcap"), &lines);
    }
}

/// Every image of a recording lies beside the boxes of its own frame.
fn recording_agrees(tape: &Path, lines: &[Value]) {
    let bag = Bag::open(tape).unwrap();
    let times = |topic: &str| -> Vec<u64> {
        let messages = bag.messages(&[topic]).unwrap();
        messages.map(|message| message.unwrap().log_time_ns).collect()
    };
    let stamps: Vec<u64> = lines
        .iter()
        .map(|line| line["stamp_ns"].as_u64().unwrap())
        .collect();
    assert_eq!(times(TOPIC), stamps);
    assert_eq!(times("/camera/image/detections"), stamps);
}
