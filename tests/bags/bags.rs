//! Real recordings, read as their independent readers (`rosbags`, `mcap`, SQLite) read them.

use crate::support;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use sensorium::io::bag::{Bag, BagError, BagLimits, BagMessage, BagWarning, Storage, TimeRange};
use sensorium::io::messages::{CompressedFormat, CompressedImageMsg, IMAGE_TYPE, ImageCodec, ImageMsg};

fn all(bag: &Bag) -> Vec<BagMessage> {
    bag.all_messages().collect::<Result<_, _>>().unwrap()
}

/// What both sides must agree on; the order of equal times is each reader's own.
type Line = (u64, String, String, u32, usize);

fn ours(bag: &Bag) -> Vec<Line> {
    let messages = all(bag);
    assert!(
        messages
            .windows(2)
            .all(|pair| pair[0].log_time_ns <= pair[1].log_time_ns)
    );
    let lines = messages.iter().map(|m| {
        let (topic, type_name) = (m.topic.to_string(), m.type_name.to_string());
        (
            m.log_time_ns,
            topic,
            type_name,
            crc32fast::hash(&m.data),
            m.data.len(),
        )
    });
    let mut lines: Vec<Line> = lines.collect();
    lines.sort();
    lines
}

fn theirs(reader: &str, path: &Path) -> Option<Vec<Line>> {
    let output = support::run(support::oracle("read_bag.py")?.arg(reader).arg(path));
    let text = String::from_utf8(output).unwrap();
    let lines = text.lines().map(|line| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| value[key].as_str().unwrap().to_owned();
        let number = |key: &str| value[key].as_u64().unwrap();
        // The long form of a type name, as its documentation has it.
        let type_name = match text("type").split('/').collect::<Vec<_>>()[..] {
            [package, name] => format!("{package}/msg/{name}"),
            _ => text("type"),
        };
        (
            number("log_time"),
            text("topic"),
            type_name,
            number("crc32") as u32,
            number("size") as usize,
        )
    });
    let mut lines: Vec<Line> = lines.collect();
    lines.sort();
    Some(lines)
}

fn files_under(folder: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_under(&path, suffix));
        } else if path.extension().is_some_and(|s| s == suffix) {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn mcap_files_read_as_the_mcap_package_reads_them() {
    for file in [
        "bags/rosbag2_resources/rosbag2_py/test/resources/mcap/talker/talker.mcap",
        "bags/rosbag2_resources/rosbag2_cpp/test/rosbag2_cpp/bags/topics_and_services.mcap",
        "bags/rosbags_rs/test_bag_mcap/test_bag_mcap.mcap",
        "bags/evo_nav2_turtlebot/nav2_turtlebot.mcap",
        "bags/mcap_crate/compressed.mcap",
    ] {
        let Some(path) = support::data(file) else { return };
        let Some(expected) = theirs("mcap", &path) else {
            return;
        };
        assert!(!expected.is_empty());
        let bag = Bag::open(&path).unwrap();
        assert!(
            ours(&bag) == expected,
            "{file}: {} of {}",
            bag.message_count(),
            expected.len()
        );
        assert_eq!(bag.message_count(), expected.len() as u64, "{file}");
    }
}

#[test]
fn every_sqlite_bag_reads_as_sqlite_reads_it() {
    let Some(root) = support::data("bags") else { return };
    let files = files_under(&root, "db3");
    assert!(files.len() >= 20, "{files:?}");
    for path in files {
        let content = std::fs::read(&path).unwrap();
        if content.is_empty() {
            continue;
        }
        let Some(expected) = theirs("sqlite", &path) else {
            return;
        };
        // Others may have left something beside it before.
        let neighbours = || std::fs::read_dir(path.parent().unwrap()).unwrap().count();
        let before = neighbours();
        let bag = Bag::open(&path).unwrap();
        assert_eq!(bag.storage(), Storage::Sqlite3);
        assert!(
            ours(&bag) == expected,
            "{path:?}: {} of {}",
            bag.message_count(),
            expected.len()
        );
        assert_eq!(bag.message_count(), expected.len() as u64, "{path:?}");
        assert_eq!(neighbours(), before, "a file was created beside {path:?}");
    }
}

#[test]
fn whole_folders_read_as_rosbags_reads_them() {
    for folder in [
        "bags/rosbag2_resources/rosbag2_py/test/resources/mcap/wbag",
        "bags/rosbags_rs/test_bag_sqlite3",
        "bags/evo_tf_example",
        "bags/nebula_vlp32/1713492677464078412",
    ] {
        let Some(path) = support::data(folder) else { return };
        let Some(expected) = theirs("folder", &path) else {
            return;
        };
        let bag = Bag::open(&path).unwrap();
        assert!(
            ours(&bag) == expected,
            "{folder}: {} of {}",
            bag.message_count(),
            expected.len()
        );
        assert_eq!(
            bag.declared_message_count(),
            Some(expected.len() as u64),
            "{folder}"
        );
        assert_eq!(bag.warnings(), [], "{folder}");
        let by_metadata = Bag::open(&path.join("metadata.yaml")).unwrap();
        assert_eq!(by_metadata.message_count(), bag.message_count());
    }
}

#[test]
fn every_metadata_version_at_hand_is_understood() {
    let Some(root) = support::data("bags") else { return };
    let files = files_under(&root, "yaml");
    assert!(files.len() >= 30);
    for path in files {
        match Bag::open(&path) {
            Ok(bag) => assert!(!bag.topics().is_empty() || bag.message_count() == 0, "{path:?}"),
            // Some come without their files.
            Err(BagError::AllFilesMissing { .. }) => {}
            Err(error) => panic!("{path:?}: {error}"),
        }
    }
}

/// Public report: rosbag2 issue 1623 (zstd messages handed on as CDR).
#[test]
fn messages_compressed_one_by_one_are_images_and_missing_splits_are_counted() {
    let Some(path) = support::data("bags/amber_soccer_goal") else {
        return;
    };
    let bag = Bag::open(&path).unwrap();
    let [BagWarning::MissingFiles { missing, named: 13 }] = bag.warnings() else {
        panic!("{:?}", bag.warnings());
    };
    assert_eq!((missing.len(), missing[0].as_str()), (12, "soccer_goal_0.mcap"));
    assert_eq!(
        (bag.declared_message_count(), bag.compression()),
        (Some(251), "message")
    );
    let messages = all(&bag);
    assert_eq!(messages.len(), 2);
    for message in &messages {
        assert_eq!(&*message.type_name, IMAGE_TYPE);
        let image = ImageMsg::decode(&message.data).unwrap();
        assert_eq!(
            (image.width, image.height, image.encoding, image.step),
            (640, 480, "rgb8", 1920)
        );
        assert_eq!(image.data.len(), 640 * 480 * 3);
    }

    // The file alone says nothing of the compression.
    let alone = Bag::open(&path.join("soccer_goal_12.mcap")).unwrap();
    assert!(
        matches!(alone.warnings(), [BagWarning::UndeclaredCompression { .. }]),
        "{:?}",
        alone.warnings()
    );
    assert_eq!(alone.compression(), "message");
    assert_eq!(all(&alone), messages);
}

/// Public report: rosbag2 issue 139 (a db3 without metadata.yaml).
#[test]
fn a_sqlite_file_without_metadata_opens_with_its_types_in_long_form() {
    let Some(path) = support::data("bags/rosbag2js_sample/sample.db3") else {
        return;
    };
    let bag = Bag::open(&path).unwrap();
    let types: Vec<(&str, &str)> = bag
        .topics()
        .iter()
        .map(|t| (t.name.as_str(), t.type_name.as_str()))
        .collect();
    assert!(types.contains(&("/image", IMAGE_TYPE)), "{types:?}");
    let messages = all(&bag);
    let raw = messages.iter().find(|m| &*m.type_name == IMAGE_TYPE).unwrap();
    let image = ImageMsg::decode(&raw.data).unwrap();
    assert_eq!((image.width, image.height, image.encoding), (640, 480, "bgr8"));
    assert_eq!(image.data.len(), image.step as usize * 480);
    let jpeg = messages
        .iter()
        .find(|m| m.type_name.ends_with("CompressedImage"))
        .unwrap();
    let jpeg = CompressedImageMsg::decode(&jpeg.data).unwrap();
    assert_eq!(CompressedFormat::parse(jpeg.format).codec, Some(ImageCodec::Jpeg));
    assert_eq!(ImageCodec::of_bytes(jpeg.data), Some(ImageCodec::Jpeg));

    let folder = Bag::open(path.parent().unwrap()).unwrap();
    assert!(matches!(folder.warnings(), [BagWarning::NoMetadata { .. }]));
    assert_eq!(folder.message_count(), 5);
}

#[test]
fn what_is_no_bag_is_refused_with_what_to_do() {
    let Some(root) = support::data("bags") else { return };
    let open = |path: &str| Bag::open(&root.join(path)).unwrap_err();
    let ros1 = open("malformed/ros1_test_bag.bag");
    assert!(
        matches!(ros1, BagError::Ros1 { .. }) && ros1.to_string().contains("rosbags-convert"),
        "{ros1}"
    );
    let empty = open("malformed/zero_byte.db3");
    assert!(
        matches!(empty, BagError::EmptyFile { .. }) && empty.to_string().contains("0 bytes"),
        "{empty}"
    );
    assert!(matches!(
        open("mcap_conformance.tar.gz"),
        BagError::UnknownFormat { .. }
    ));
    assert!(matches!(open("mcap_crate/no_such.mcap"), BagError::Io { .. }));
    assert!(matches!(open("nebula_40p"), BagError::NoBagInFolder { .. }));
    let wrong = Bag::open(&root.join("evo_tf_example"))
        .unwrap()
        .messages(&["/nope"])
        .unwrap_err();
    assert!(wrong.to_string().contains("/tf"), "{wrong}");
}

#[test]
fn an_empty_bag_has_topics_and_no_messages() {
    let bag = "bags/rosbag2_resources/ros2bag/test/resources/empty_bag";
    let Some(path) = support::data(bag) else { return };
    let bag = Bag::open(&path).unwrap();
    assert_eq!(
        (bag.message_count(), bag.range_ns(), all(&bag).len()),
        (0, None, 0)
    );
}

#[test]
fn a_topic_filter_gives_that_topic_alone() {
    let Some(path) = support::data("bags/plotjuggler/rosbag2_test/rosbag2_test_0.db3") else {
        return;
    };
    let bag = Bag::open(&path).unwrap();
    assert_eq!(bag.message_count(), 4695);
    let topic = &bag.topics()[0];
    let got: Vec<BagMessage> = bag
        .messages(&[&topic.name])
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(got.len() as u64, topic.messages);
    assert!(got.iter().all(|m| *m.topic == *topic.name));
}

/// Public reports: rosbag2 issues 557 and 794 (file names with the bag's folder in front, and `.zstd`).
#[test]
fn files_compressed_whole_are_found_under_old_names_and_unpacked() {
    let Some(source) = support::data("bags/evo_tf_example") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let database = std::fs::read(source.join("tf_example.db3")).unwrap();
    let packed = zstd::encode_all(&database[..], 3).unwrap();
    std::fs::write(folder.path().join("tf_example.db3.zstd"), packed).unwrap();
    let metadata = std::fs::read_to_string(source.join("metadata.yaml")).unwrap();
    let expected = ours(&Bag::open(&source).unwrap());
    for name in [
        "tf_example.db3.zstd",
        "old/tf_example.db3.zstd",
        "old/tf_example.db3",
        "../tf_example.db3",
    ] {
        let patched = metadata
            .replace("tf_example.db3", name)
            .replace("compression_mode: ''", "compression_mode: FILE")
            .replace("compression_format: ''", "compression_format: zstd");
        assert!(patched.contains(name) && patched.contains("FILE"));
        std::fs::write(folder.path().join("metadata.yaml"), patched).unwrap();
        let bag = Bag::open(folder.path()).unwrap();
        assert_eq!(bag.compression(), "file", "{name}");
        assert!(ours(&bag) == expected, "{name}: {} messages", bag.message_count());
    }
    let limits = BagLimits {
        max_unpacked_bytes: 1000,
        ..BagLimits::default()
    };
    let error = Bag::open_with(folder.path(), limits).unwrap_err();
    assert!(matches!(error, BagError::TooLarge { limit: 1000, .. }), "{error}");
}

/// Public report: rqt_bag issue 146 (profiles as text and as a list).
#[test]
fn profiles_may_be_a_text_a_list_or_nothing() {
    let Some(source) = support::data("bags/rosbag2peek/test.db3") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(source, folder.path().join("b_0.db3")).unwrap();
    for (version, profiles) in [
        (4, "\"- history: 3\\n\""),
        (8, "''"),
        (9, "[{history: keep_last, depth: 1}]"),
        (9, ""),
    ] {
        let yaml = format!(
            "rosbag2_bagfile_information:\n  version: {version}\n  storage_identifier: sqlite3\n  message_count: 1\n\
             \x20 custom_data: ~\n  unheard_of: {{a: [1]}}\n  topics_with_message_count:\n    - topic_metadata:\n\
             \x20       name: /silent\n        type: std_msgs/String\n        serialization_format: cdr\n\
             \x20       offered_qos_profiles: {profiles}\n      message_count: 0\n\
             \x20 compression_format: ''\n  compression_mode: ''\n  relative_file_paths: [b_0.db3]\n"
        );
        std::fs::write(folder.path().join("metadata.yaml"), yaml).unwrap();
        let bag = Bag::open(folder.path()).unwrap();
        let silent = bag.topics().iter().find(|t| t.name == "/silent").unwrap();
        assert_eq!(
            (silent.type_name.as_str(), silent.messages),
            ("std_msgs/msg/String", 0)
        );
        assert_eq!(bag.message_count(), 1);
    }
    std::fs::write(
        folder.path().join("metadata.yaml"),
        "rosbag2_bagfile_information: 3",
    )
    .unwrap();
    assert!(matches!(Bag::open(folder.path()), Err(BagError::Metadata { .. })));
}

/// Public reports: foxglove/mcap PR 1179, rosbag2_storage_mcap issue 61 (indexes that are missing or half there).
#[test]
fn all_conformance_files_give_the_messages_that_their_json_lists() {
    let Some(archive) = support::data("bags/mcap_conformance.tar.gz") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    support::run(
        Command::new("tar")
            .arg("xzf")
            .arg(archive)
            .arg("-C")
            .arg(folder.path()),
    );
    let files = files_under(folder.path(), "mcap");
    assert_eq!(files.len(), 416);
    for path in files {
        let json = std::fs::read(path.with_extension("json")).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let records = json["records"].as_array().unwrap();
        let field = |record: &serde_json::Value, name: &str| {
            let fields = record["fields"].as_array().unwrap();
            let pair = fields.iter().find(|pair| pair[0] == name).unwrap();
            pair[1].as_str().unwrap().parse::<u64>().unwrap()
        };
        let messages = records.iter().filter(|record| record["type"] == "Message");
        let mut expected: Vec<(u64, u64)> = messages
            .map(|m| (field(m, "log_time"), field(m, "publish_time")))
            .collect();
        expected.sort();
        let bag = Bag::open(&path).unwrap();
        let got: Vec<(u64, u64)> = all(&bag)
            .iter()
            .map(|m| (m.log_time_ns, m.publish_time_ns))
            .collect();
        assert_eq!(got, expected, "{path:?}");
        assert_eq!(bag.message_count(), expected.len() as u64, "{path:?}");
        // Some of them run backwards on purpose.
        let harmless = |warning: &BagWarning| matches!(warning, BagWarning::OutOfOrder { .. });
        assert!(
            bag.warnings().iter().all(harmless),
            "{path:?}: {:?}",
            bag.warnings()
        );
    }
}

/// A SQLite bag with one topic and these payloads, one a second.
fn database(path: &Path, payloads: &[Vec<u8>]) {
    let connection = rusqlite::Connection::open(path).unwrap();
    let tables = "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT);
                  CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB);
                  INSERT INTO topics VALUES (1, '/a', 'std_msgs/String', 'cdr');";
    connection.execute_batch(tables).unwrap();
    for (second, payload) in (1i64..).zip(payloads) {
        let row = (second * 1_000_000_000, payload);
        connection
            .execute(
                "INSERT INTO messages(topic_id, timestamp, data) VALUES (1, ?1, ?2)",
                row,
            )
            .unwrap();
    }
}

#[test]
fn a_message_that_decompresses_beyond_the_limit_is_refused_and_the_next_one_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bomb.db3");
    let plain = [0, 1, 0, 0, 1, 2, 3, 4];
    let bomb = zstd::encode_all(std::io::repeat(0).take(4 << 20), 3).unwrap();
    let broken = [&zstd::encode_all(&plain[..], 3).unwrap()[..12], &[0xff; 9]].concat();
    database(
        &path,
        &[
            bomb,
            broken,
            zstd::encode_all(&plain[..], 3).unwrap(),
            plain.to_vec(),
        ],
    );
    let limits = BagLimits {
        max_message_bytes: 1 << 20,
        ..BagLimits::default()
    };
    let bag = Bag::open_with(&path, limits).unwrap();
    assert!(matches!(
        bag.warnings(),
        [BagWarning::UndeclaredCompression { .. }]
    ));
    let items: Vec<_> = bag.all_messages().collect();
    assert!(
        matches!(items[0], Err(BagError::TooLarge { limit: 1_048_576, .. })),
        "{:?}",
        items[0]
    );
    assert!(
        matches!(items[1], Err(BagError::Decompress { .. })),
        "{:?}",
        items[1]
    );
    assert_eq!(items[2].as_ref().unwrap().data, plain);
    assert_eq!(items[3].as_ref().unwrap().data, plain);
    assert_eq!(items.len(), 4);
}

#[test]
fn a_write_ahead_log_that_was_left_behind_is_read_told_and_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("open.db3");
    database(&path, &[vec![1], vec![2]]);
    let connection = rusqlite::Connection::open(&path).unwrap();
    let mode: String = connection
        .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
        .unwrap();
    assert_eq!(mode, "wal");
    connection
        .execute("INSERT INTO messages VALUES (9, 1, 9000000000, x'03')", [])
        .unwrap();
    // As a recorder leaves it that was killed: the log is there, the shared memory is not.
    let copies = folder.path().join("copy");
    std::fs::create_dir(&copies).unwrap();
    for name in ["open.db3", "open.db3-wal"] {
        std::fs::copy(folder.path().join(name), copies.join(name)).unwrap();
    }
    let before = std::fs::read(copies.join("open.db3")).unwrap();
    let bag = Bag::open(&copies.join("open.db3")).unwrap();
    assert!(
        matches!(bag.warnings(), [BagWarning::WriteAheadLog { not_read: None, .. }]),
        "{:?}",
        bag.warnings()
    );
    let messages = all(&bag);
    assert_eq!((messages.len(), bag.message_count()), (3, 3));
    assert_eq!(
        (messages[2].log_time_ns, &messages[2].data[..]),
        (9_000_000_000, &[3][..])
    );
    assert_eq!(std::fs::read_dir(&copies).unwrap().count(), 2);
    assert!(std::fs::read(copies.join("open.db3")).unwrap() == before);

    // Without room for a copy the rest is read.
    let limits = BagLimits {
        max_unpacked_bytes: 1000,
        ..BagLimits::default()
    };
    let bag = Bag::open_with(&copies.join("open.db3"), limits).unwrap();
    assert!(bag.warnings()[0].loses_messages(), "{:?}", bag.warnings());
    assert!(
        bag.warnings()[0].to_string().contains("limit"),
        "{:?}",
        bag.warnings()
    );
    assert_eq!(all(&bag).len(), 2);
}

#[test]
fn a_range_of_times_gives_what_lies_in_it() {
    for file in [
        "bags/evo_nav2_turtlebot/nav2_turtlebot.mcap",
        "bags/plotjuggler/rosbag2_test/rosbag2_test_0.db3",
        "bags/mcap_crate/compressed.mcap",
        "bags/rosbag2_resources/rosbag2_py/test/resources/mcap/wbag",
    ] {
        let Some(path) = support::data(file) else { return };
        let bag = Bag::open(&path).unwrap();
        let every = all(&bag);
        let (first, last) = bag.range_ns().unwrap();
        let third = (last - first) / 3;
        let middle = every[every.len() / 2].log_time_ns;
        for (start_ns, end_ns) in [
            (first + third, Some(last - third)),
            (0, Some(middle)),
            (middle, None),
            (middle, Some(middle + 1)),
            (last + 1, None),
            (u64::MAX, None),
            (middle, Some(first)),
            (0, Some(0)),
        ] {
            let range = TimeRange { start_ns, end_ns };
            let expected: Vec<&BagMessage> = every.iter().filter(|m| range.contains(m.log_time_ns)).collect();
            let got: Vec<BagMessage> = bag
                .messages_within(None, range)
                .unwrap()
                .map(Result::unwrap)
                .collect();
            assert!(
                got.iter().eq(expected.iter().copied()),
                "{file} {range:?}: {} of {}",
                got.len(),
                expected.len()
            );
            let topic = bag.topics()[0].name.as_str();
            let got = bag.messages_within(Some(&[topic]), range).unwrap().count();
            assert_eq!(
                got,
                expected.iter().filter(|m| *m.topic == *topic).count(),
                "{file} {range:?}"
            );
        }
    }
}
