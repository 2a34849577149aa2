//! Message definitions and their hashes, against `rosbags` and what ROS 2 itself wrote into bags.

use crate::support;
use proptest::prelude::*;
use sensorium::io::interface::{DefinitionError, Interface, hash_of_definition};
use sensorium::io::messages::*;
use serde_json::Value;

/// Types whose hash is published.
const PUBLISHED: [(&str, &str); 13] = [
    (
        STRING_TYPE,
        "df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18",
    ),
    (
        "std_msgs/msg/Header",
        "f49fb3ae2cf070f793645ff749683ac6b06203e41c891e17701b1cb597ce6a01",
    ),
    (
        POINT_CLOUD_TYPE,
        "9198cabf7da3796ae6fe19c4cb3bdd3525492988c70522628af5daa124bae2b5",
    ),
    (
        IMAGE_TYPE,
        "d31d41a9a4c4bc8eae9be757b0beed306564f7526c88ea6a4588fb9582527d47",
    ),
    (
        COMPRESSED_IMAGE_TYPE,
        "15640771531571185e2efc8a100baf923961a4d15d5569652e6cb6691e8e371a",
    ),
    (
        CAMERA_INFO_TYPE,
        "b3dfd68ff46c9d56c80fd3bd4ed22c7a4ddce8c8348f2f59c299e73118e7e275",
    ),
    (
        TF_TYPE,
        "e369d0f05a23ae52508854b66f6aa0437f3449d652e8cbf22d5abe85d020f087",
    ),
    (
        ODOMETRY_TYPE,
        "3cc97dc7fb7502f8714462c526d369e35b603cfc34d946e3f2eda2766dfec6e0",
    ),
    (
        CLOCK_TYPE,
        "692f7a66e93a3c83e71765d033b60349ba68023a8c689a79e48078bcb5c58564",
    ),
    (
        DIAGNOSTIC_ARRAY_TYPE,
        "5a8a36efb05fb25070fa0fb3810290c0e6cd4862b54a8fb975a1ee8dc55a333e",
    ),
    (
        DETECTED_OBJECTS_TYPE,
        "2facd6b15786cbd1f720cdd23d22e6d60d2e7e83b8dff8fd401330e24edb187b",
    ),
    (
        DETECTED_OBJECTS_WITH_FEATURE_TYPE,
        "57ca7ba338d93c8174ea5a411ed093a01cd22df19c934ffb977103c98d697291",
    ),
    (
        FLOAT64_STAMPED_TYPE,
        "588b194ed7eddc089b6ca098eb093e92f29bdad96ebd906fc9282816335942eb",
    ),
];

#[test]
fn known_types_have_the_hashes_of_ros_2() {
    for (type_name, hash) in PUBLISHED {
        assert_eq!(
            type_hash(type_name).map(|hash| hash.to_string()),
            Some(format!("RIHS01_{hash}")),
            "{type_name}"
        );
    }
    assert_eq!(type_hash("std_msgs/String"), type_hash(STRING_TYPE));
    assert_eq!(type_hash("std_msgs/msg/Strings"), None);
    // Not a known type, but a published hash.
    let char_hash = "RIHS01_3ad2d04dd29ba19d04b16659afa3ccaedd691914b02a64e82e252f2fa6a586a9"
        .parse()
        .unwrap();
    assert_eq!(
        hash_of_definition("std_msgs/msg/Char", "char data\n"),
        Ok(char_hash)
    );
}

#[test]
fn every_known_type_hashes_as_rosbags_hashes_it() {
    let Some(mut oracle) = support::oracle("definitions.py") else {
        return;
    };
    let known: Vec<(String, String)> = known_types()
        .map(|name| (name.clone(), definition(&name).unwrap()))
        .collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), serde_json::to_vec(&known).unwrap()).unwrap();
    let output = String::from_utf8(support::run(oracle.arg("known").arg(file.path()))).unwrap();
    let mut standard = 0;
    for ((name, text), line) in known.iter().zip(output.lines()) {
        let [by_text, own] = serde_json::from_str::<[Value; 2]>(line).unwrap();
        let hash = type_hash(name).unwrap();
        assert_eq!(hash_of_definition(name, text), Ok(hash), "{name}");
        assert_eq!(by_text, hash.to_string(), "{name}");
        // rosbags carries the standard messages, not Autoware's.
        if own.is_null() {
            assert!(
                name.starts_with("autoware_") || name.starts_with("tier4_"),
                "{name}"
            );
        } else {
            assert_eq!(own, hash.to_string(), "{name}");
            standard += 1;
        }
    }
    assert_eq!(output.lines().count(), known.len());
    assert!(standard > 40, "{standard}");
}

#[test]
fn definitions_in_bags_hash_to_what_ros_2_wrote_beside_them() {
    let Some(folder) = support::data("bags") else {
        return;
    };
    let Some(mut oracle) = support::oracle("definitions.py") else {
        return;
    };
    let output = String::from_utf8(support::run(oracle.arg("bags").arg(folder))).unwrap();
    let (mut by_rosbags, mut recorded, mut services, mut chars) = (0, 0, 0, 0);
    for line in output.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let name = line["type"].as_str().unwrap();
        let text = line["text"].as_str().unwrap();
        let hash = hash_of_definition(name, text);
        // rosbags takes a `char` for a type of its own, and wrote some of these bags; to ROS 2 it is a `uint8`.
        if text.lines().any(|line| line.starts_with("char")) {
            chars += 1;
            continue;
        }
        if name.contains("/srv/") {
            assert_eq!(hash, Err(DefinitionError::TypeName(name.to_owned())));
            services += 1;
            continue;
        }
        if let Some(expected) = line["rosbags"].as_str() {
            assert_eq!(hash.as_ref().unwrap().to_string(), expected, "{name}");
            by_rosbags += 1;
        }
        // Some bags of test suites hold words such as "hash2".
        if let Some(expected) = line["recorded"]
            .as_str()
            .filter(|text| text.starts_with("RIHS01_"))
        {
            assert_eq!(hash.unwrap().to_string(), expected, "{name}");
            recorded += 1;
        }
    }
    assert!(
        by_rosbags > 180 && recorded > 90 && services > 1 && chars < 10,
        "{by_rosbags} {recorded} {services} {chars}"
    );
}

const LINE: &str = "================================================================================";

#[test]
fn one_type_may_be_written_in_several_ways() {
    let text = |header: &str, name: &str, time: &str| {
        format!(
            "# What a header is for.\n{header} header # with a comment\nuint8 ONE = 1\n\n{LINE}\nMSG: {name}\n\
             {time} stamp\nstring frame_id \"map\"\r\n{LINE}\nMSG: builtin_interfaces/msg/Time\nint32 sec\nuint32 nanosec"
        )
    };
    let plain = text("std_msgs/Header", "std_msgs/Header", "builtin_interfaces/Time");
    let hash = hash_of_definition("here_msgs/msg/Thing", &plain).unwrap();
    let long = text(
        "std_msgs/msg/Header",
        "std_msgs/msg/Header",
        "builtin_interfaces/msg/Time",
    );
    assert_eq!(hash_of_definition("here_msgs/Thing", &long), Ok(hash));
    // A part of the same package needs no package.
    let near = text("Header", "here_msgs/Header", "builtin_interfaces/Time");
    let far = text(
        "here_msgs/Header",
        "here_msgs/msg/Header",
        "builtin_interfaces/msg/Time",
    );
    let near = hash_of_definition("here_msgs/Thing", &near);
    assert_eq!(near, hash_of_definition("here_msgs/Thing", &far));
    assert_ne!(near, Ok(hash));
    let interface = Interface::parse("here_msgs/Thing", &plain).unwrap();
    let top = interface.top().unwrap();
    assert_eq!(
        (top.type_name.as_str(), top.fields.len(), top.constants.len()),
        ("here_msgs/msg/Thing", 1, 1)
    );
    let header = interface.get("std_msgs/msg/Header").unwrap();
    assert_eq!(header.fields[1].default.as_deref(), Some("\"map\""));
}

#[test]
fn what_is_wrong_with_a_definition_is_said() {
    let of = |text: &str| {
        hash_of_definition("here_msgs/msg/Thing", text)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        of("int32 a\nfloat99 b\n"),
        "here_msgs/msg/Thing uses here_msgs/msg/float99, which the text does not define; add its definition after a \
         line of 80 '='"
    );
    assert_eq!(
        of(&format!("int32 a\n{LINE}\nMSG: std_msgs/Header\nint32[x] b\n")),
        "definition of std_msgs/msg/Header, line 4: a capacity is a whole number from 1: \"int32[x] b\""
    );
    assert_eq!(
        of("int32 a\nint8 b\nint32 a\n"),
        "definition of here_msgs/msg/Thing: two fields are named a"
    );
    assert_eq!(
        of(&format!("int32 a\n{LINE}\nMSG: here_msgs/Thing\nint8 a\n")),
        "the text defines here_msgs/msg/Thing in two ways"
    );
    assert_eq!(
        of(&format!(
            "{LINE}\nIDL: here_msgs/msg/Thing\nmodule here_msgs {{\n"
        )),
        "the definition of here_msgs/msg/Thing is IDL (ros2idl), which is not read; record with a .msg definition \
         (ros2msg)"
    );
    assert_eq!(
        of(&format!("{LINE}\nint32 a\n")),
        "definition of here_msgs/msg/Thing, line 2: \"MSG: package/Name\" is expected behind a separator: \"int32 a\""
    );
    for name in [
        "Thing",
        "a/b/Thing",
        "here_msgs/srv/Thing_Event",
        "here msgs/Thing",
        "here_msgs/\"",
        "",
    ] {
        assert_eq!(
            hash_of_definition(name, "int32 a\n"),
            Err(DefinitionError::TypeName(name.to_owned())),
        );
    }
}

#[test]
fn a_message_that_holds_itself_is_hashed_in_bounded_time() {
    assert!(hash_of_definition("here_msgs/Thing", "Thing[] others\n").is_ok());
}

proptest! {
    #[test]
    fn any_text_is_a_definition_or_an_error(text in "([a-z]{1,8}|uint8|string|[#=<>\\[\\]\"' \n/]|[0-9]{1,3}|.){0,60}") {
        if let Ok(interface) = Interface::parse("here_msgs/msg/Thing", &text) {
            prop_assert!(interface.top().is_some());
            let _ = interface.hash();
        }
    }

    #[test]
    fn a_damaged_definition_is_read_or_refused(
        which in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<char>()), 1..6),
    ) {
        let names: Vec<String> = known_types().collect();
        let name = &names[which.index(names.len())];
        let mut text: Vec<char> = definition(name).unwrap().chars().collect();
        for (at, new) in changes {
            if !text.is_empty() {
                let at = at.index(text.len());
                text[at] = new;
            }
        }
        let _ = hash_of_definition(name, &text.iter().collect::<String>());
    }
}
