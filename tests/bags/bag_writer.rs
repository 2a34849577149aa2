//! Bags written here, as `rosbags`, `mcap` and SQLite read them.

use crate::support;
use std::path::Path;

use sensorium::io::bag::{Bag, BagTopic, BagWriteError, BagWriter, BagWriterSettings, Storage, WrittenBag};
use sensorium::io::messages::{CLOCK_TYPE, IMAGE_TYPE, POINT_CLOUD_TYPE, TF_TYPE, definition};
use sensorium::io::recorder::RecordCompression;
use sensorium::io::ros::{History, Qos};
use serde_json::Value;

const START_NS: u64 = 1_700_000_000_000_000_000;

/// Hash of `tf2_msgs/msg/TFMessage`, as ROS 2 publishes it.
const TF_HASH: &str = "RIHS01_e369d0f05a23ae52508854b66f6aa0437f3449d652e8cbf22d5abe85d020f087";

fn oracle(reader: &str, path: &Path) -> Option<Vec<Value>> {
    let output = support::run(support::oracle("read_bag.py")?.arg(reader).arg(path));
    let text = String::from_utf8(output).unwrap();
    Some(
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
    )
}

fn topics() -> [BagTopic; 4] {
    let tf_static = BagTopic::of_type("/tf_static", TF_TYPE).offering(Qos::latched(1));
    assert_eq!(
        tf_static.type_hash.map(|hash| hash.to_string()).as_deref(),
        Some(TF_HASH)
    );
    let keep_all = Qos {
        history: History::KeepAll,
        ..Qos::reliable(1)
    };
    [
        tf_static,
        BagTopic::of_type("/camera/image", IMAGE_TYPE)
            .offering(Qos::sensor_data(5))
            .offering(keep_all),
        BagTopic::of_type("/points \"front\": #1", POINT_CLOUD_TYPE),
        BagTopic::of_type("/clock", CLOCK_TYPE),
    ]
}

/// Message `i` of 100: topic, log time, publish time, bytes. The last topic has none.
fn message(i: u64) -> (usize, u64, u64, Vec<u8>) {
    let log_time_ns = START_NS + i * 10_000_000;
    let mut data = vec![0, 1, 0, 0];
    data.extend(std::iter::repeat_n(i as u8, 100 + (i as usize * 37) % 400));
    ((i % 3) as usize, log_time_ns, log_time_ns - 5, data)
}

fn write(path: &Path, settings: BagWriterSettings) -> WrittenBag {
    let mut writer = BagWriter::create(path, settings).unwrap();
    let ids = topics().map(|topic| writer.add_topic(&topic).unwrap());
    for i in 0..100 {
        let (topic, log_time_ns, publish_time_ns, data) = message(i);
        writer
            .write(ids[topic], log_time_ns, publish_time_ns, &data)
            .unwrap();
    }
    writer.finish().unwrap()
}

/// Every message is there, in order, as it was written.
fn assert_messages(lines: &[Value], with_publish_time: bool) {
    assert_eq!(lines.len(), 100);
    for (i, line) in lines.iter().enumerate() {
        let (topic, log_time_ns, publish_time_ns, data) = message(i as u64);
        assert_eq!(line["topic"], *topics()[topic].name, "{i}");
        assert_eq!(line["log_time"], log_time_ns, "{i}");
        assert_eq!(line["crc32"], crc32fast::hash(&data), "{i}");
        if with_publish_time {
            assert_eq!(line["publish_time"], publish_time_ns, "{i}");
        }
    }
}

/// Name, type, count, hash and profiles of each topic.
fn assert_topics(lines: &[Value]) {
    assert_eq!(lines.len(), 4);
    for (line, (topic, messages)) in lines.iter().zip(topics().iter().zip([34, 33, 33, 0])) {
        assert_eq!(line["topic"], *topic.name);
        assert_eq!(line["type"], *topic.type_name);
        assert_eq!(line["messages"], messages);
        let hash = topic.type_hash.map(|hash| hash.to_string()).unwrap_or_default();
        assert_eq!(line["hash"], hash);
        assert_eq!(line["format"], "MSG");
        assert_eq!(line["definition"], definition(&topic.type_name).unwrap());
    }
    let none = serde_json::json!([]);
    assert_eq!(
        lines[0]["qos"],
        serde_json::json!([["RELIABLE", "TRANSIENT_LOCAL", "KEEP_LAST", 1]])
    );
    assert_eq!(
        lines[1]["qos"],
        serde_json::json!([
            ["BEST_EFFORT", "VOLATILE", "KEEP_LAST", 5],
            ["RELIABLE", "VOLATILE", "KEEP_ALL", 0]
        ])
    );
    assert_eq!((&lines[2]["qos"], &lines[3]["qos"]), (&none, &none));
}

#[test]
fn folders_are_read_by_rosbags_message_for_message_with_hashes_and_qos() {
    let folder = tempfile::tempdir().unwrap();
    let mcap = BagWriterSettings::default();
    let cases = [
        ("plain", mcap.clone(), 1),
        (
            "zstd",
            BagWriterSettings {
                compression: RecordCompression::Zstd,
                ..mcap.clone()
            },
            1,
        ),
        (
            "sizes",
            BagWriterSettings {
                split_bytes: Some(10_000),
                ..mcap.clone()
            },
            4,
        ),
        (
            "times",
            BagWriterSettings {
                split_duration_ns: Some(199_999_999),
                ..mcap.clone()
            },
            5,
        ),
        (
            "sqlite",
            BagWriterSettings {
                storage: Storage::Sqlite3,
                ..mcap.clone()
            },
            1,
        ),
        (
            "sqlite split",
            BagWriterSettings {
                storage: Storage::Sqlite3,
                split_bytes: Some(10_000),
                ..mcap
            },
            4,
        ),
    ];
    for (name, settings, files) in cases {
        let path = folder.path().join(name);
        let written = write(&path, settings);
        assert_eq!((written.messages, written.files), (100, files), "{name}");
        let Some(lines) = oracle("folder", &path) else {
            return;
        };
        assert_messages(&lines, false);
        assert_topics(&oracle("topics", &path).unwrap());
        let bag = Bag::open(&path).unwrap();
        assert_eq!((bag.file_count(), bag.warnings()), (files, &[][..]), "{name}");
        assert_eq!(bag.declared_message_count(), Some(100));
        assert_eq!(bag.size_bytes(), written.size_bytes);
        assert_eq!(bag.range_ns(), Some((START_NS, START_NS + 990_000_000)));
        let mut entries: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        entries.retain(|entry| entry.to_string_lossy().starts_with('.'));
        assert!(entries.is_empty(), "nothing unfinished is left: {entries:?}");
    }
}

#[test]
fn no_file_of_a_split_bag_is_larger_or_longer_than_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("split");
    let settings = BagWriterSettings {
        split_bytes: Some(8_000),
        split_duration_ns: Some(150_000_000),
        ..BagWriterSettings::default()
    };
    let written = write(&path, settings);
    let mut messages = 0;
    for number in 0..written.files {
        let bag = Bag::open(&path.join(format!("split_{number}.mcap"))).unwrap();
        assert!(bag.duration_ns() <= 150_000_000);
        let bytes: usize = bag
            .all_messages()
            .map(|message| message.unwrap().data.len())
            .sum();
        assert!(bytes <= 8_000, "{bytes}");
        messages += bag.message_count();
        // Every file tells all topics.
        assert_eq!(bag.topics().len(), 4);
    }
    assert_eq!(messages, 100);
}

#[test]
fn a_single_file_tells_everything_itself() {
    let folder = tempfile::tempdir().unwrap();
    for compression in [RecordCompression::None, RecordCompression::Zstd] {
        let path = folder.path().join(format!("{compression:?}.mcap"));
        write(
            &path,
            BagWriterSettings {
                compression,
                ..BagWriterSettings::default()
            },
        );
        assert!(path.is_file());
        let Some(lines) = oracle("mcap", &path) else {
            return;
        };
        assert_messages(&lines, true);
        let lines = oracle("channels", &path).unwrap();
        for (line, topic) in lines.iter().zip(topics()) {
            assert_eq!(line["topic"], *topic.name);
            assert_eq!(
                (&line["profile"], &line["schema_encoding"]),
                (&"ros2".into(), &"ros2msg".into())
            );
            assert_eq!(line["schema"], *topic.type_name);
            assert_eq!(line["definition"], definition(&topic.type_name).unwrap());
            let hash = topic.type_hash.map(|hash| hash.to_string()).unwrap_or_default();
            assert_eq!(line["metadata"]["topic_type_hash"], hash);
            let qos = line["metadata"]["offered_qos_profiles"].as_str().unwrap();
            assert_eq!(
                qos.contains("durability: transient_local"),
                topic.name == "/tf_static",
                "{qos}"
            );
            assert_eq!(
                qos.contains("reliability: best_effort"),
                topic.name == "/camera/image",
                "{qos}"
            );
            assert!(line["chunks"].as_u64().unwrap() > 0);
        }
        let record = &lines[4];
        assert_eq!((lines.len(), &record["record"]), (5, &"rosbag2".into()));
        let yaml = record["metadata"]["serialized_metadata"].as_str().unwrap();
        for said in [
            "version: 9\n",
            "storage_identifier: mcap\n",
            "message_count: 100\n",
            "custom_data: null\n",
        ] {
            assert!(yaml.contains(said), "{said} in {yaml}");
        }
        // The same bag with the same topics, when read here.
        let bag = Bag::open(&path).unwrap();
        for topic in topics() {
            let known = bag
                .topics()
                .iter()
                .find(|known| known.name == topic.name)
                .unwrap();
            assert_eq!(known.offered_qos, topic.offered_qos);
            assert_eq!(
                (known.type_hash, &known.definition),
                (topic.type_hash, &topic.definition)
            );
        }
    }
    let path = folder.path().join("file.db3");
    write(&path, BagWriterSettings::default());
    let Some(lines) = oracle("sqlite", &path) else {
        return;
    };
    assert_messages(&lines, false);
    let bag = Bag::open(&path).unwrap();
    assert_eq!((bag.storage(), bag.warnings()), (Storage::Sqlite3, &[][..]));
    assert_eq!(bag.topics()[3].offered_qos, [Qos::latched(1)]);
}

#[test]
fn a_bag_without_messages_has_topics_and_is_read() {
    let folder = tempfile::tempdir().unwrap();
    for storage in [Storage::Mcap, Storage::Sqlite3] {
        let path = folder.path().join(storage.name());
        let settings = BagWriterSettings {
            storage,
            ..BagWriterSettings::default()
        };
        let mut writer = BagWriter::create(&path, settings).unwrap();
        for topic in topics() {
            writer.add_topic(&topic).unwrap();
        }
        assert_eq!(writer.finish().unwrap().messages, 0);
        let bag = Bag::open(&path).unwrap();
        assert_eq!(
            (bag.topics().len(), bag.message_count(), bag.range_ns()),
            (4, 0, None)
        );
        let Some(lines) = oracle("topics", &path) else {
            return;
        };
        assert_eq!(lines.len(), 4);
    }
}

#[test]
fn what_has_the_name_stays_unless_it_is_a_bag_that_may_be_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bag");
    write(&path, BagWriterSettings::default());
    let refused = BagWriter::create(&path, BagWriterSettings::default()).unwrap_err();
    assert!(matches!(refused, BagWriteError::Exists { .. }), "{refused}");

    let again = BagWriterSettings {
        overwrite: true,
        ..BagWriterSettings::default()
    };
    // Until the new bag is complete the old one is there.
    let writer = BagWriter::create(&path, again.clone()).unwrap();
    assert_eq!(Bag::open(&path).unwrap().message_count(), 100);
    writer.finish().unwrap();
    assert_eq!(Bag::open(&path).unwrap().message_count(), 0);

    let other = folder.path().join("thesis");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("chapter_1.tex"), "words").unwrap();
    let refused = BagWriter::create(&other, again).unwrap_err();
    assert!(matches!(refused, BagWriteError::NotReplaced { .. }), "{refused}");
    assert!(other.join("chapter_1.tex").exists());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn a_writer_that_is_given_up_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["bag", "bag.mcap", "bag.db3"] {
        let mut writer = BagWriter::create(&folder.path().join(name), BagWriterSettings::default()).unwrap();
        let id = writer.add_topic(&topics()[0]).unwrap();
        writer.write(id, 1, 1, &[0; 1000]).unwrap();
        drop(writer);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{name}");
    }
}

#[test]
fn what_cannot_be_written_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let create = |name: &str, settings| BagWriter::create(&folder.path().join(name), settings);
    let split = BagWriterSettings {
        split_bytes: Some(1),
        ..BagWriterSettings::default()
    };
    assert!(matches!(
        create("one.mcap", split),
        Err(BagWriteError::SplitFile { .. })
    ));
    let zstd = BagWriterSettings {
        compression: RecordCompression::Zstd,
        ..BagWriterSettings::default()
    };
    assert!(matches!(
        create("one.db3", zstd),
        Err(BagWriteError::CompressedSqlite)
    ));

    let mut writer = create("bag", BagWriterSettings::default()).unwrap();
    let first = writer.add_topic(&BagTopic::of_type("/a", TF_TYPE)).unwrap();
    assert_eq!(
        writer.add_topic(&BagTopic::of_type("/a", TF_TYPE)).unwrap(),
        first
    );
    let error = writer
        .add_topic(&BagTopic::of_type("/a", IMAGE_TYPE))
        .unwrap_err();
    assert!(
        error.to_string().contains(TF_TYPE) && error.to_string().contains(IMAGE_TYPE),
        "{error}"
    );

    let mut writer = create("late.db3", BagWriterSettings::default()).unwrap();
    let id = writer.add_topic(&topics()[0]).unwrap();
    let error = writer.write(id, u64::MAX, 0, &[]).unwrap_err();
    assert!(
        matches!(
            error,
            BagWriteError::Time {
                time_ns: u64::MAX,
                ..
            }
        ),
        "{error}"
    );
}
