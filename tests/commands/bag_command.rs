//! `sensorium bag check | cut | merge | convert`, from the outside.

use crate::support;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

use sensorium::io::bag::{Bag, BagTopic, BagWriter, BagWriterSettings};
use sensorium::io::messages::{CLOCK_TYPE, IMAGE_TYPE, TF_TYPE};
use sensorium::io::ros::Qos;
use serde_json::Value;

fn bag(arguments: &[&dyn AsRef<OsStr>]) -> Output {
    let mut command = crate::tiny::sensorium();
    command
        .arg("bag")
        .args(arguments.iter().map(AsRef::as_ref))
        .env("NO_COLOR", "1");
    command.output().unwrap()
}

fn done(arguments: &[&dyn AsRef<OsStr>]) -> String {
    let output = bag(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What a command that failed said.
fn failed(arguments: &[&dyn AsRef<OsStr>]) -> String {
    let output = bag(arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Messages or topics as an independent reader has them.
fn oracle(reader: &str, path: &Path) -> Option<Vec<Value>> {
    let output = support::run(support::oracle("read_bag.py")?.arg(reader).arg(path));
    let text = String::from_utf8(output).unwrap();
    Some(
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
    )
}

/// Time, topic and checksum of each message, sorted: readers differ in the order of equal times.
fn keys(lines: &[Value]) -> Vec<(u64, String, u64)> {
    let key = |line: &Value| {
        (
            line["log_time"].as_u64().unwrap(),
            line["topic"].as_str().unwrap().to_owned(),
            line["crc32"].as_u64().unwrap(),
        )
    };
    let mut keys: Vec<_> = lines.iter().map(key).collect();
    keys.sort();
    keys
}

/// A bag of one topic with messages at these times, each of one byte behind its header.
fn small(path: &Path, topic: &BagTopic, times_ns: &[u64]) {
    let mut writer = BagWriter::create(path, BagWriterSettings::default()).unwrap();
    let id = writer.add_topic(topic).unwrap();
    for (i, time_ns) in times_ns.iter().enumerate() {
        writer
            .write(id, *time_ns, *time_ns, &[0, 1, 0, 0, i as u8])
            .unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn a_cut_holds_the_messages_of_its_range_and_topics_and_no_others() {
    let Some(source) = support::data("bags/evo_nav2_turtlebot/nav2_turtlebot.mcap") else {
        return;
    };
    let Some(every) = oracle("mcap", &source) else {
        return;
    };
    let first = every
        .iter()
        .map(|line| line["log_time"].as_u64().unwrap())
        .min()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (start_ns, end_ns) = (first + 10_250_000_000, first + 15_500_000_000);
    let absolute = |ns: u64| format!("@{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    let (from, to) = (absolute(start_ns), absolute(end_ns));
    let within = |line: &&Value| (start_ns..end_ns).contains(&line["log_time"].as_u64().unwrap());
    let expected: Vec<Value> = every.iter().filter(within).cloned().collect();
    assert!(expected.len() > 100 && expected.len() < every.len() / 2);
    for (name, arguments) in [
        ("offset", ["--start", "10.25", "--end", "15.5"]),
        ("duration", ["--start", "10.25", "--duration", "5.25"]),
        ("absolute", ["--start", &from, "--end", &to]),
    ] {
        let out = folder.path().join(name);
        let [a, b, c, d] = arguments;
        let said = done(&[&"cut", &source, &a, &b, &c, &d, &"--no-latched", &"--out", &out]);
        assert!(said.contains(&format!("{} messages", expected.len())), "{said}");
        assert!(
            keys(&oracle("folder", &out).unwrap()) == keys(&expected),
            "{name}"
        );
    }
    let out = folder.path().join("topics.mcap");
    done(&[
        &"cut",
        &source,
        &"--topics",
        &"/tf*,/odom",
        &"--exclude",
        &"/tf_static",
        &"--out",
        &out,
    ]);
    let wanted = |line: &&Value| ["/tf", "/odom"].contains(&line["topic"].as_str().unwrap());
    let expected: Vec<Value> = every.iter().filter(wanted).cloned().collect();
    let cut = oracle("mcap", &out).unwrap();
    assert!(keys(&cut) == keys(&expected));
    // Times of publishing, definitions and what was offered come along.
    let published = |lines: &[Value]| {
        let times = lines.iter().map(|line| line["publish_time"].as_u64());
        times.collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(published(&cut), published(&expected));
    let known = Bag::open(&source).unwrap();
    for topic in Bag::open(&out).unwrap().topics() {
        assert!(known.topics().contains(topic), "{topic:?}");
        assert!(topic.type_hash.is_some() && !topic.offered_qos.is_empty());
    }

    let told = failed(&[&"cut", &source, &"--topics", &"/nope", &"--out", &out]);
    assert!(
        told.contains("/nope is in no bag") && told.contains("/odom"),
        "{told}"
    );
    let told = failed(&[&"cut", &source, &"--start", &"1000", &"--out", &"never.mcap"]);
    assert!(
        told.contains("outside the bag") && told.contains("97.3"),
        "{told}"
    );
    let told = failed(&[
        &"cut",
        &source,
        &"--start",
        &"9",
        &"--end",
        &"9",
        &"--out",
        &"never.mcap",
    ]);
    assert!(told.contains("ends before it begins"), "{told}");
}

#[test]
fn a_cut_keeps_what_latched_topics_had_before_its_start() {
    let folder = tempfile::tempdir().unwrap();
    let [fixed, moving, both] =
        ["static.mcap", "clock.mcap", "both.mcap"].map(|name| folder.path().join(name));
    small(
        &fixed,
        &BagTopic::of_type("/tf_static", TF_TYPE).offering(Qos::latched(1)),
        &[5, 6],
    );
    small(
        &moving,
        &BagTopic::of_type("/clock", CLOCK_TYPE),
        &[0, 5, 10, 15, 20],
    );
    done(&[&"merge", &fixed, &moving, &"--out", &both]);
    let times = |path: &Path| -> Vec<(u64, String)> {
        let messages = Bag::open(path).unwrap().all_messages();
        messages
            .map(|m| m.unwrap())
            .map(|m| (m.log_time_ns, m.topic.to_string()))
            .collect()
    };
    let at = |ns: u64, topic: &str| (ns, topic.to_owned());
    let out = folder.path().join("cut.mcap");
    let said = done(&[&"cut", &both, &"--start", &"0.000000010", &"--out", &out]);
    assert!(
        said.contains("5 messages (2 of them latched before the start)"),
        "{said}"
    );
    let mut expected = vec![at(10, "/tf_static"), at(10, "/tf_static")];
    expected.extend([10, 15, 20].map(|ns| at(ns, "/clock")));
    assert_eq!(times(&out), expected);
    done(&[
        &"cut",
        &both,
        &"--start",
        &"0.000000010",
        &"--no-latched",
        &"--out",
        &out,
        &"--force",
    ]);
    assert_eq!(times(&out), [10, 15, 20].map(|ns| at(ns, "/clock")));
}

#[test]
fn merged_bags_hold_the_messages_of_all_in_order() {
    let parts = ["multiple_files_0", "multiple_files_1", "multiple_files_2"];
    let base = "bags/rosbag2_resources/rosbag2_py/test/resources/mcap/reindex_test_bags/multiple_files";
    let Some(base) = support::data(base) else { return };
    let parts = parts.map(|name| base.join(format!("{name}.mcap")));
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("merged");
    let said = done(&[&"merge", &parts[2], &parts[0], &parts[1], &"--out", &out]);
    assert!(said.contains("3177 messages"), "{said}");
    let Some(merged) = oracle("folder", &out) else {
        return;
    };
    assert!(
        merged
            .windows(2)
            .all(|pair| pair[0]["log_time"].as_u64() <= pair[1]["log_time"].as_u64())
    );
    let mut expected = Vec::new();
    for part in &parts {
        expected.extend(oracle("mcap", part).unwrap());
    }
    assert!(keys(&merged) == keys(&expected));
}

#[test]
fn a_topic_of_two_types_is_refused_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, c] = ["a.mcap", "b.mcap", "c.mcap"].map(|name| folder.path().join(name));
    small(&a, &BagTopic::of_type("/x", TF_TYPE), &[1]);
    small(&b, &BagTopic::of_type("/x", IMAGE_TYPE), &[2]);
    let told = failed(&[&"merge", &a, &b, &"--out", &c]);
    assert!(
        told.contains("/x") && told.contains(TF_TYPE) && told.contains(IMAGE_TYPE),
        "{told}"
    );
    // The same name of a type that was defined otherwise.
    let hashed = |digit: &str| {
        let mut topic = BagTopic::of_type("/x", TF_TYPE);
        topic.type_hash = Some(format!("RIHS01_{}", digit.repeat(64)).parse().unwrap());
        topic
    };
    let [d, e] = ["d.mcap", "e.mcap"].map(|name| folder.path().join(name));
    small(&d, &hashed("1"), &[1]);
    small(&e, &hashed("2"), &[2]);
    let told = failed(&[&"merge", &d, &e, &"--out", &c]);
    assert!(told.contains("RIHS01_1") && told.contains("RIHS01_2"), "{told}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4);
}

#[test]
fn converting_there_and_back_loses_nothing() {
    let base = "bags/rosbag2_resources/rosbag2_tests/resources/sqlite3/bag_with_topics_and_service_events";
    for source in [base, "bags/evo_tf_example", "bags/rosbags_rs/test_bag_sqlite3"] {
        let Some(source) = support::data(source) else {
            return;
        };
        let Some(expected) = oracle("folder", &source) else {
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let [mcap, plain, back] = ["mcap", "plain", "back"].map(|name| folder.path().join(name));
        done(&[&"convert", &source, &"--out", &mcap]);
        done(&[
            &"convert",
            &mcap,
            &"--compression",
            &"none",
            &"--split-size",
            &"20kB",
            &"--out",
            &plain,
        ]);
        done(&[&"convert", &plain, &"--storage", &"sqlite3", &"--out", &back]);
        let known = Bag::open(&source).unwrap();
        for path in [&mcap, &plain, &back] {
            assert!(
                keys(&oracle("folder", path).unwrap()) == keys(&expected),
                "{path:?}"
            );
            let bag = Bag::open(path).unwrap();
            assert_eq!(
                (bag.topics(), bag.warnings()),
                (known.topics(), &[][..]),
                "{path:?}"
            );
        }
        assert!(mcap.join("mcap_0.mcap").is_file() && back.join("back_0.db3").is_file());
    }
}

#[test]
fn an_output_that_exists_is_replaced_only_by_force() {
    let folder = tempfile::tempdir().unwrap();
    let [a, out] = ["a.mcap", "out.mcap"].map(|name| folder.path().join(name));
    small(&a, &BagTopic::of_type("/x", TF_TYPE), &[1, 2, 3]);
    std::fs::write(&out, "precious").unwrap();
    let told = failed(&[&"convert", &a, &"--out", &out]);
    assert!(
        told.contains("exists already") && told.contains("--force"),
        "{told}"
    );
    assert_eq!(std::fs::read(&out).unwrap(), b"precious");
    done(&[&"convert", &a, &"--out", &out, &"--force"]);
    assert_eq!(Bag::open(&out).unwrap().message_count(), 3);
    // A bag may take its own place.
    done(&[
        &"cut",
        &out,
        &"--start",
        &"0.000000001",
        &"--out",
        &out,
        &"--force",
    ]);
    assert_eq!(Bag::open(&out).unwrap().message_count(), 2);
}

/// Public reports: foxglove/mcap issue 697, rosbag2 issue 2003 (a recording that was cut off is mended).
#[test]
fn what_is_whole_of_a_damaged_bag_is_carried_over_and_the_rest_told() {
    let Some(source) = support::data("bags/mcap_crate/compressed.mcap") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let [cut, out] = ["cut.mcap", "out.mcap"].map(|name| folder.path().join(name));
    let file = std::fs::read(source).unwrap();
    std::fs::write(&cut, &file[..file.len() / 2]).unwrap();
    let told = failed(&[&"convert", &cut, &"--out", &out]);
    assert!(
        told.contains("truncated at offset") && told.contains("not everything"),
        "{told}"
    );
    let whole = Bag::open(&cut)
        .unwrap()
        .all_messages()
        .filter(Result::is_ok)
        .count() as u64;
    assert!(whole > 100);
    let mended = Bag::open(&out).unwrap();
    assert_eq!((mended.message_count(), mended.warnings()), (whole, &[][..]));
    let Some(read) = oracle("mcap", &out) else { return };
    assert_eq!(read.len() as u64, whole);
}

#[test]
fn a_disk_that_takes_no_more_is_told_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("large.mcap");
    let topic = BagTopic::of_type("/x", TF_TYPE);
    let mut writer = BagWriter::create(&source, BagWriterSettings::default()).unwrap();
    let id = writer.add_topic(&topic).unwrap();
    for i in 0..200 {
        writer.write(id, i, i, &vec![i as u8; 10_000]).unwrap();
    }
    writer.finish().unwrap();
    for out in ["out.mcap", "out", "out.db3"] {
        let mut command = Command::new("bash");
        // Files may have 256 KiB; without the trap the system would end the process instead of refusing.
        let script = "trap '' XFSZ; ulimit -f 256; exec \"$0\" \"$@\"";
        command.args(["-c", script, env!("CARGO_BIN_EXE_sensorium"), "bag", "convert"]);
        command.arg(&source).args(["--compression", "none", "--out"]);
        let output = command
            .arg(folder.path().join(out))
            .env("NO_COLOR", "1")
            .output()
            .unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{out}: {told}");
        assert!(
            told.contains("riting") || told.contains("cannot write"),
            "{out}: {told}"
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "{out}");
    }
}

/// Public reports: rosbag2 issue 139 (ROS 1 bags, empty files, bags without metadata).
#[test]
fn check_gives_every_bag_one_line_with_the_reason_for_each_refusal() {
    let Some(root) = support::data("bags") else { return };
    let output = bag(&[&"check", &root]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |name: &str| {
        let path = root.join(name).display().to_string();
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| line.contains(&format!("{path}: ")))
            .collect();
        assert_eq!(lines.len(), 1, "{name}: {lines:?}");
        lines[0]
    };
    for (name, status, said) in [
        (
            "evo_nav2_turtlebot/nav2_turtlebot.mcap",
            "ok  ",
            "4 topics, 8197 messages, 97.355 s",
        ),
        ("evo_tf_example", "ok  ", "518 messages"),
        ("rosbag2js_sample/sample.db3", "ok  ", "5 messages"),
        (
            "rosbag2_resources/ros2bag/test/resources/empty_bag",
            "ok  ",
            "2 topics, 0 messages",
        ),
        (
            "amber_soccer_goal",
            "damaged",
            "12 of 13 files named in the metadata are missing",
        ),
        (
            "malformed/chunk_not_closed.mcap",
            "damaged",
            "truncated at offset 39",
        ),
        ("malformed/ros1_test_bag.bag", "refused", "is a ROS 1 bag"),
        ("malformed/zero_byte.db3", "refused", "0 bytes"),
        ("malformed/zstd_chunk_with_padding.mcap", "ok  ", "12 messages"),
        (
            "rosbag2_resources/rosbag2_py/test/resources/sqlite3/wbag",
            "refused",
            "none of the 5 files it names is here",
        ),
    ] {
        let line = line(name);
        assert!(line.starts_with(status) && line.contains(said), "{line}");
    }
    // Every line is a bag, and every file of a bag is in one.
    let statuses = ["ok  ", "damaged  ", "refused  "];
    assert!(
        text.lines()
            .all(|line| statuses.iter().any(|status| line.starts_with(status))),
        "{text}"
    );
    assert_eq!(
        text.lines().filter(|line| !line.starts_with("ok")).count(),
        5,
        "{text}"
    );
    let whole = root.join("evo_tf_example");
    assert!(done(&[&"check", &whole]).starts_with("ok"));
    // A bag without messages is whole.
    let empty = root.join("rosbag2_resources/ros2bag/test/resources/empty_bag");
    assert!(done(&[&"check", &empty]).starts_with("ok"));
    let json = done(&[&"check", &whole, &root.join("rosbag2peek"), &"--format", &"json"]);
    let lines: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (lines.len(), &lines[0]["status"], &lines[0]["messages"]),
        (2, &"ok".into(), &518.into())
    );
    assert!(failed(&[&"check", &root.join("mcap_crate/no_such.mcap")]).is_empty());
}

#[test]
fn check_counts_messages_that_are_no_cdr_and_those_that_the_metadata_misses() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bag");
    let mut writer = BagWriter::create(&path, BagWriterSettings::default()).unwrap();
    let id = writer.add_topic(&BagTopic::of_type("/x", TF_TYPE)).unwrap();
    for (i, data) in [&[0, 1, 0, 0, 5][..], &[9, 9, 9, 9], &[0], &[0, 0, 0, 0]]
        .iter()
        .enumerate()
    {
        writer.write(id, i as u64, 0, data).unwrap();
    }
    writer.finish().unwrap();
    let output = bag(&[&"check", &path]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text.starts_with("damaged") && text.contains("2 messages that are no CDR, the first of /x at 1 ns"),
        "{text}"
    );

    let metadata = path.join("metadata.yaml");
    let yaml = std::fs::read_to_string(&metadata).unwrap();
    std::fs::write(&metadata, yaml.replace("message_count: 4", "message_count: 7")).unwrap();
    small(
        &path.join("bag_0.mcap.new"),
        &BagTopic::of_type("/x", TF_TYPE),
        &[1, 2],
    );
    std::fs::rename(
        path.join("bag_0.mcap.new/bag_0.mcap.new_0.mcap"),
        path.join("bag_0.mcap"),
    )
    .unwrap();
    std::fs::remove_dir_all(path.join("bag_0.mcap.new")).unwrap();
    let text = String::from_utf8(bag(&[&"check", &path]).stdout).unwrap();
    assert!(
        text.starts_with("damaged") && text.contains("2 of 7 messages"),
        "{text}"
    );
}
