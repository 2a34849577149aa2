//! What bags say of their topics, as `rosbags` reads it: definitions, type hashes, offered quality of service.

use crate::support;
use std::path::Path;

use sensorium::io::bag::{Bag, BagTopic, BagWarning};
use sensorium::io::ros::{Durability, History, Qos, Reliability};
use serde_json::Value;

/// The topics of a folder as `rosbags` has them.
fn theirs(folder: &Path) -> Option<Vec<Value>> {
    let output = support::run(support::oracle("read_bag.py")?.arg("topics").arg(folder));
    let text = String::from_utf8(output).unwrap();
    Some(
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
    )
}

/// A profile of `rosbags`, each once; what a recorder did not learn of the history is the default.
fn profiles(topic: &Value) -> Vec<Qos> {
    let mut profiles = Vec::new();
    for profile in topic["qos"].as_array().unwrap() {
        let depth = profile[3].as_u64().unwrap() as u32;
        let qos = Qos {
            reliability: match profile[0].as_str().unwrap() {
                "RELIABLE" => Reliability::Reliable,
                "BEST_EFFORT" => Reliability::BestEffort,
                other => panic!("{other}"),
            },
            durability: match profile[1].as_str().unwrap() {
                "VOLATILE" => Durability::Volatile,
                "TRANSIENT_LOCAL" => Durability::TransientLocal,
                other => panic!("{other}"),
            },
            history: match (profile[2].as_str().unwrap(), depth) {
                ("KEEP_ALL", _) => History::KeepAll,
                ("UNKNOWN", 0) => History::KeepLast(10),
                (_, depth) => History::KeepLast(depth),
            },
        };
        if !profiles.contains(&qos) {
            profiles.push(qos);
        }
    }
    profiles
}

fn hash(topic: &BagTopic) -> String {
    topic.type_hash.map(|hash| hash.to_string()).unwrap_or_default()
}

#[test]
fn topics_are_what_rosbags_says_of_them() {
    let mut with_hash = 0;
    let mut with_definition = 0;
    let mut with_profile = 0;
    for folder in [
        "rosbag2_resources/rosbag2_tests/resources/mcap/bag_with_topics_and_service_events",
        "rosbag2_resources/rosbag2_tests/resources/sqlite3/bag_with_topics_and_service_events",
        "rosbag2_resources/rosbag2_tests/resources/mcap/cdr_test",
        "rosbag2_resources/rosbag2_tests/resources/sqlite3/cdr_test",
        "rosbag2_resources/rosbag2_py/test/resources/mcap/talker",
        "rosbag2_resources/rosbag2_py/test/resources/mcap/wbag",
        "rosbags_rs/test_bag_mcap",
        "rosbags_rs/test_bag_sqlite3",
        "rosbag2parquet/array_msgs",
        "evo_tf_example",
        "nebula_vlp16/1673400471837873222",
    ] {
        let Some(path) = support::data(&format!("bags/{folder}")) else {
            return;
        };
        let Some(expected) = theirs(&path) else { return };
        let bag = Bag::open(&path).unwrap();
        assert_eq!(bag.topics().len(), expected.len(), "{folder}");
        for topic in expected {
            let ours = bag
                .topics()
                .iter()
                .find(|ours| topic["topic"] == *ours.name)
                .unwrap();
            let at = format!("{folder} {}", ours.name);
            assert_eq!(topic["type"], *ours.type_name, "{at}");
            // rosbags takes the hash from one place, the folder's metadata; files may have one where that has none.
            if topic["hash"] != "" {
                assert_eq!(topic["hash"], hash(ours), "{at}");
                with_hash += 1;
            }
            assert_eq!(ours.offered_qos, profiles(&topic), "{at}");
            // rosbags fills in the definitions of types that it knows itself, so only its own are compared.
            if let Some(definition) = &ours.definition {
                assert_eq!(definition.encoding, "ros2msg", "{at}");
                assert_eq!(
                    topic["definition"].as_str().unwrap().trim(),
                    definition.text.trim(),
                    "{at}"
                );
            }
            with_definition += usize::from(ours.definition.is_some());
            with_profile += usize::from(!ours.offered_qos.is_empty());
        }
    }
    assert_eq!((with_hash, with_profile, with_definition), (12, 19, 215));
}

#[test]
fn a_single_file_says_as_much_as_its_folder() {
    for (file, topic, depth) in [
        ("bags/evo_nav2_turtlebot/nav2_turtlebot.mcap", "/odom", 10),
        ("bags/autoware_mot_test_data1/test_data1.db3", "/tf", 100),
    ] {
        let Some(path) = support::data(file) else { return };
        let bag = Bag::open(&path).unwrap();
        let topic = bag.topics().iter().find(|known| known.name == topic).unwrap();
        assert_eq!(topic.offered_qos[0], Qos::reliable(depth), "{file}");
    }
}

#[test]
fn what_cannot_be_understood_is_left_out_with_a_warning() {
    let Some(source) = support::data("bags/rosbag2peek/test.db3") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(source, folder.path().join("b_0.db3")).unwrap();
    let yaml = "rosbag2_bagfile_information:\n  version: 9\n  storage_identifier: sqlite3\n  message_count: 1\n\
                \x20 topics_with_message_count:\n    - topic_metadata:\n        name: /silent\n        type: a/b\n\
                \x20       serialization_format: cdr\n        type_description_hash: RIHS01_12\n\
                \x20       offered_qos_profiles: [{history: keep_last, depth: 1, reliability: best_available, \
                durability: volatile}]\n      message_count: 0\n  relative_file_paths: [b_0.db3]\n";
    std::fs::write(folder.path().join("metadata.yaml"), yaml).unwrap();
    let bag = Bag::open(folder.path()).unwrap();
    let silent = bag.topics().iter().find(|topic| topic.name == "/silent").unwrap();
    assert_eq!((silent.offered_qos.len(), silent.type_hash), (0, None));
    let said: Vec<String> = bag.warnings().iter().map(ToString::to_string).collect();
    assert!(
        matches!(
            bag.warnings(),
            [BagWarning::TopicDetail { .. }, BagWarning::TopicDetail { .. }]
        ),
        "{said:?}"
    );
    assert!(
        said[0].contains("best_available") && said[1].contains("RIHS01_12"),
        "{said:?}"
    );
}
