//! `sensorium run` on bad input, bad settings and bad luck: a clear error, and nothing lost without being counted.

use crate::tiny;
use std::path::Path;

use prost::Message;
use sensorium::image::encode_jpeg;
use sensorium::io::bag::Bag;
use sensorium::weights::proto::ModelProto;
use tiny::{Lab, Outcome, film, found, numbered};

const TOPIC: &str = "/camera/image";
const PERIOD_NS: u64 = 100_000_000;

fn refused(run: &Outcome, words: &[&str]) {
    assert_eq!(run.code, Some(1), "{run:?}");
    assert_eq!(run.out, "", "nothing was run");
    for word in words {
        assert!(run.told.contains(word), "{word} in {}", run.told);
    }
}

fn boxes(lab: &Lab, name: &str) -> Vec<[f64; 4]> {
    lab.lines(name)
        .iter()
        .flat_map(found)
        .map(|(_, square)| square)
        .collect()
}

// Bags.

#[test]
fn a_bag_cut_within_a_message_gives_every_whole_frame_and_says_where_it_ends() {
    let lab = Lab::new();
    let frames: Vec<_> = (0..20)
        .map(|i| tiny::raw(TOPIC, i as u64 * PERIOD_NS, &numbered(i).0))
        .collect();
    let bag = lab.bag(&frames);
    let file = std::fs::read(&bag).unwrap();
    let last = &frames[12].data;
    let at = file
        .windows(last.len())
        .position(|window| window == last)
        .unwrap();
    std::fs::write(&bag, &file[..at + last.len() - 1]).unwrap();
    let run = lab.run(&["--jsonl", "out.jsonl"]);
    assert_eq!((run.code, run.frames()), (Some(1), [12, 12, 0, 0]), "{run:?}");
    assert!(
        run.told
            .contains("source camera: bag.mcap is truncated at offset"),
        "{}",
        run.told
    );
    assert_eq!(
        boxes(&lab, "out.jsonl"),
        (0..12).map(|i| numbered(i).1).collect::<Vec<_>>()
    );
    // The table, the program that reads it and the exit code say the same.
    let incomplete = run.summary()["incomplete"].to_string();
    assert!(incomplete.contains("truncated"), "{incomplete}");
}

fn database(path: &Path, rows: &[(i64, &[u8])]) {
    let connection = rusqlite::Connection::open(path).unwrap();
    let tables = "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT);
                  CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB);
                  INSERT INTO topics VALUES (1, '/camera/image', 'sensor_msgs/Image', 'cdr');";
    connection.execute_batch(tables).unwrap();
    for row in rows {
        let insert = "INSERT INTO messages(topic_id, timestamp, data) VALUES (1, ?1, ?2)";
        connection.execute(insert, *row).unwrap();
    }
}

#[test]
fn an_empty_bag_is_a_run_of_no_frames() {
    let lab = Lab::new();
    database(&lab.path("empty.db3"), &[]);
    let run = lab.run(&[
        "--bag",
        "empty.db3",
        "--jsonl",
        "out.jsonl",
        "--record",
        "tape.mcap",
    ]);
    assert_eq!((run.code, run.frames()), (Some(0), [0; 4]), "{run:?}");
    assert_eq!(std::fs::read(lab.path("out.jsonl")).unwrap(), b"");
    assert_eq!(Bag::open(&lab.path("tape.mcap")).unwrap().message_count(), 0);

    let frame = tiny::raw(TOPIC, 0, &numbered(3).0);
    database(&lab.path("one.db3"), &[(5, &frame.data)]);
    let run = lab.run(&["--bag", "one.db3", "--jsonl", "out.jsonl"]);
    assert_eq!((run.code, run.frames()), (Some(0), [1, 1, 0, 0]), "{run:?}");
    assert_eq!(boxes(&lab, "out.jsonl"), [numbered(3).1]);
}

#[test]
fn what_is_no_bag_is_refused_in_words() {
    let lab = Lab::new();
    std::fs::write(lab.path("zero.db3"), b"").unwrap();
    refused(&lab.run(&["--bag", "zero.db3"]), &["zero.db3 has 0 bytes"]);
    std::fs::write(lab.path("old.bag"), b"#ROSBAG V2.0\nE\0\0\0").unwrap();
    refused(
        &lab.run(&["--bag", "old.bag"]),
        &["ROS 1 bag", "rosbags-convert --src old.bag --dst <new folder>"],
    );
    std::fs::write(lab.path("noise.mcap"), [7; 300]).unwrap();
    refused(&lab.run(&["--bag", "noise.mcap"]), &["neither MCAP nor SQLite"]);
    refused(&lab.run(&["--bag", "none.mcap"]), &["none.mcap cannot be found"]);
}

#[test]
fn a_topic_that_is_not_in_the_bag_lists_those_that_are() {
    let lab = Lab::new();
    lab.bag(&film("/left/image", 1, PERIOD_NS));
    let run = lab.run(&[
        "--set",
        "nodes.camera.topics=[/right/image]",
        "--jsonl",
        "out.jsonl",
    ]);
    refused(
        &run,
        &[
            "topic /right/image is not in the bag",
            "/left/image [sensor_msgs/msg/CompressedImage]",
        ],
    );
    assert!(!lab.path("out.jsonl").exists());
}

// Frames.

#[test]
fn a_jpeg_cut_in_half_between_two_good_ones_costs_itself_alone() {
    let lab = Lab::new();
    let jpeg = |i: usize| encode_jpeg(&numbered(i).0.view(), 100).unwrap();
    let whole = jpeg(1);
    lab.bag(&[
        tiny::compressed(TOPIC, 0, "jpeg", &jpeg(0)),
        tiny::compressed(TOPIC, PERIOD_NS, "jpeg", &whole[..whole.len() / 2]),
        tiny::compressed(TOPIC, 2 * PERIOD_NS, "jpeg", &jpeg(2)),
    ]);
    let run = lab.run(&["--jsonl", "out.jsonl"]);
    assert_eq!((run.code, run.frames()), (Some(0), [3, 2, 1, 0]), "{run:?}");
    assert_eq!(
        run.drops(),
        [("detector/prepare".into(), "decode_failed".into(), 1)]
    );
    let lines = lab.lines("out.jsonl");
    let numbers: Vec<_> = lines
        .iter()
        .map(|l| (l["seq"].clone(), l["dropped_before"].clone()))
        .collect();
    assert_eq!(numbers, [(0.into(), 0.into()), (2.into(), 1.into())]);
    assert!(run.told.contains("frame refused"), "{}", run.told);
}

#[test]
fn images_that_lie_about_themselves_are_counted_by_what_is_wrong() {
    let lab = Lab::new();
    let image = numbered(9).0;
    let with = |i: u64, change: fn(&mut sensorium::io::messages::ImageMsg<'_>)| {
        tiny::raw_as(TOPIC, i * PERIOD_NS, &image, change)
    };
    let mut frames = vec![
        with(0, |_| {}),
        with(1, |m| m.step = 100),
        with(2, |m| m.height = 65),
        with(3, |m| m.width = 0),
        with(4, |m| {
            (m.width, m.height, m.step) = (u32::MAX, u32::MAX, u32::MAX)
        }),
        with(5, |m| m.data = &m.data[..100]),
        with(6, |m| m.encoding = "bayer_rggb16"),
        with(7, |m| m.encoding = "16UC1"),
        with(8, |m| m.encoding = ""),
        with(9, |_| {}),
        with(10, |_| {}),
    ];
    // Cut within the header, and within the pixels.
    frames[9].data.truncate(10);
    let len = frames[10].data.len();
    frames[10].data.truncate(len - 1);
    frames.push(with(11, |_| {}));
    lab.bag(&frames);
    let run = lab.run(&[
        "--jsonl",
        "out.jsonl",
        "--set",
        "nodes.detector.prepare_workers=3",
    ]);
    assert_eq!((run.code, run.frames()), (Some(0), [12, 2, 10, 0]), "{run:?}");
    let mut drops = run.drops();
    drops.sort();
    let drop = |place: &str, reason: &str, count| (place.to_owned(), reason.to_owned(), count);
    assert_eq!(
        drops,
        [
            drop("camera", "decode_failed", 1),
            drop("detector/prepare", "decode_failed", 1),
            drop("detector/prepare", "invalid_image", 5),
            drop("detector/prepare", "unsupported_encoding", 3),
        ]
    );
    let seqs: Vec<u64> = lab
        .lines("out.jsonl")
        .iter()
        .map(|l| l["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(seqs, [0, 11]);
}

// Models and pipeline files.

#[test]
fn a_model_that_is_none_is_refused_before_anything_is_written() {
    let lab = Lab::new();
    lab.bag(&film(TOPIC, 1, PERIOD_NS));
    std::fs::write(lab.path("out.jsonl"), "kept\n").unwrap();
    let run_with = |model: &[u8]| {
        std::fs::write(lab.path("bad.onnx"), model).unwrap();
        lab.run(&[
            "--model",
            "bad.onnx",
            "--jsonl",
            "out.jsonl",
            "--record",
            "tape.mcap",
        ])
    };
    let noise: Vec<u8> = (0..5_000_u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    refused(&run_with(&noise), &["model squares", "bad.onnx"]);
    refused(&run_with(b""), &["model squares", "bad.onnx"]);

    let network = tiny::network();
    refused(
        &run_with(&network[..network.len() / 2]),
        &["model squares", "bad.onnx"],
    );
    let mut huge = ModelProto::decode(&network[..]).unwrap();
    let constant = &mut huge.graph.as_mut().unwrap().initializer[0];
    constant.dims[0] = 1 << 60;
    refused(&run_with(&huge.encode_to_vec()), &["bad.onnx", "box8.w"]);

    assert_eq!(std::fs::read_to_string(lab.path("out.jsonl")).unwrap(), "kept\n");
    assert!(!lab.path("tape.mcap").exists());
}

#[test]
fn a_label_list_of_another_length_is_refused() {
    let lab = Lab::new();
    lab.bag(&film(TOPIC, 1, PERIOD_NS));
    std::fs::write(lab.path("colours.txt"), "blue\ngreen\n").unwrap();
    refused(
        &lab.run(&[]),
        &["the network has 3 classes, the label list 2 names", "`labels`"],
    );
    std::fs::write(lab.path("colours.txt"), "blue\n\nred\n").unwrap();
    refused(&lab.run(&[]), &["line 2 is empty"]);
}

#[test]
fn a_typing_error_is_shown_at_its_place_with_what_was_meant() {
    let lab = Lab::new();
    lab.bag(&film(TOPIC, 1, PERIOD_NS));
    let text = std::fs::read_to_string(lab.path("tiny.yaml")).unwrap();
    let typo = text.replace("score_threshold", "score_treshold");
    std::fs::write(lab.path("tiny.yaml"), typo).unwrap();
    refused(
        &lab.run(&[]),
        &[
            "tiny.yaml:9:5",
            "`score_treshold`",
            "did you mean `score_threshold`?",
        ],
    );
    std::fs::write(lab.path("tiny.yaml"), text.replace("capacity: 4", "capacity: 0")).unwrap();
    refused(
        &lab.run(&[]),
        &["tiny.yaml:17:24", "cannot be 0", "from 1 to 65536"],
    );
}

// Outputs.

#[test]
fn an_output_that_cannot_be_written_is_told_before_any_other_is_touched() {
    let lab = Lab::new();
    lab.bag(&film(TOPIC, 2, PERIOD_NS));
    std::fs::write(lab.path("kept.mcap"), "an earlier recording").unwrap();
    std::fs::write(lab.path("file"), "").unwrap();
    let run = lab.run(&["--record", "kept.mcap", "--jsonl", "none/out.jsonl"]);
    refused(
        &run,
        &["cannot write none/out.jsonl", "No such file or directory"],
    );
    let run = lab.run(&["--record", "kept.mcap", "--jsonl", "file/out.jsonl"]);
    refused(&run, &["cannot write file/out.jsonl"]);
    let run = lab.run(&["--record", "kept.mcap", "--jsonl", "."]);
    refused(&run, &["cannot write ."]);
    let run = lab.run(&["--record", "kept.mcap", "--report", "file"]);
    refused(&run, &["report folder file is not a folder"]);
    let run = lab.run(&["--record", "new.mcap", "--jsonl", "none/out.jsonl"]);
    refused(&run, &["none/out.jsonl"]);
    assert!(!lab.path("new.mcap").exists());
    let kept = std::fs::read_to_string(lab.path("kept.mcap")).unwrap();
    assert_eq!(kept, "an earlier recording");
}

#[test]
fn a_publisher_that_cannot_join_ends_the_run_before_files_are_touched() {
    let lab = Lab::new();
    lab.bag(&film(TOPIC, 2, PERIOD_NS));
    let text = std::fs::read_to_string(lab.path("tiny.yaml")).unwrap();
    // Port 1 of this machine is nobody's.
    let air = "  air: { kind: publisher, transport: zenoh, input: detector, mode: client, connect: [tcp/127.0.0.1:1] }";
    let text = text.replace("nodes:\n", &format!("nodes:\n{air}\n"));
    std::fs::write(lab.path("tiny.yaml"), text).unwrap();
    let run = lab.run(&["-q", "--jsonl", "out.jsonl", "--record", "tape.mcap"]);
    refused(
        &run,
        &["sink air: the zenoh session cannot be opened", "tcp/127.0.0.1:1"],
    );
    assert!(!run.told.contains(".rs:"), "{}", run.told);
    assert!(!lab.path("out.jsonl").exists() && !lab.path("tape.mcap").exists());
}

#[test]
fn a_run_never_writes_over_its_own_bag_nor_two_outputs_into_one_file() {
    let lab = Lab::new();
    let bag = lab.bag(&film(TOPIC, 2, PERIOD_NS));
    let before = std::fs::read(&bag).unwrap();
    refused(
        &lab.run(&["--record", "./bag.mcap"]),
        &["./bag.mcap belongs to the bag", "name another file"],
    );
    let folder = lab.path("");
    let run = lab.run(&["--bag", folder.to_str().unwrap(), "--jsonl", "bag.mcap"]);
    refused(&run, &["belongs to the bag"]);
    assert!(std::fs::read(&bag).unwrap() == before);
    let run = lab.run(&["--record", "both", "--jsonl", "./both"]);
    refused(&run, &["is also written by"]);
    assert!(!lab.path("both").exists());
}

#[test]
#[cfg(target_os = "linux")]
fn a_disk_that_is_full_is_counted_and_told_and_the_other_outputs_are_whole() {
    let lab = Lab::new();
    let frames: Vec<_> = (0..300)
        .map(|i| tiny::raw(TOPIC, i as u64 * PERIOD_NS, &numbered(i).0))
        .collect();
    lab.bag(&frames);
    let run = lab.run(&["--jsonl", "/dev/full", "--record", "tape.mcap"]);
    assert_eq!((run.code, run.frames()), (Some(1), [300, 300, 0, 0]), "{run:?}");
    assert_eq!(run.drops(), [("jsonl".into(), "sink_failed".into(), 300)]);
    assert!(
        run.told.contains("sink jsonl: writing /dev/full: No space left"),
        "{}",
        run.told
    );
    assert_eq!(Bag::open(&lab.path("tape.mcap")).unwrap().message_count(), 600);

    let run = lab.run(&["--jsonl", "out.jsonl", "--record", "/dev/full"]);
    assert_eq!((run.code, run.frames()), (Some(1), [300, 300, 0, 0]), "{run:?}");
    let [(place, reason, count)] = &run.drops()[..] else {
        panic!("{run:?}")
    };
    assert_eq!((place.as_str(), reason.as_str()), ("recorder", "sink_failed"));
    // What lay in the chunk that could not be written was taken for written.
    assert!(*count >= 150, "{count}");
    assert!(run.told.contains("No space left"), "{}", run.told);
    assert_eq!(lab.lines("out.jsonl").len(), 300);
}
