//! ROS 2 messages against `rosbags`: every field by name, both byte orders, and what damaged bytes do.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use proptest::prelude::*;
use sensorium::io::bag::Bag;
use sensorium::io::cdr::CdrError;
use sensorium::io::messages::*;
use sensorium::outputs::{DetectedObject, ObjectLabel, OrientationAvailability, PoseVariance, Twist2D};
use serde_json::{Value, json};

fn hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2));
    let byte = |i: usize| u8::from_str_radix(&text[i..i + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

fn bits(value: f64) -> Value {
    format!("{:016x}", value.to_bits()).into()
}

fn all_bits(values: &[f64]) -> Value {
    values.iter().copied().map(bits).collect()
}

fn header(of: &HeaderMsg<'_>) -> Value {
    json!({"stamp": {"sec": of.stamp_sec, "nanosec": of.stamp_nanosec}, "frame_id": of.frame_id})
}

fn vector(of: &Vector3Msg) -> Value {
    json!({"x": bits(of.x), "y": bits(of.y), "z": bits(of.z)})
}

fn quaternion(of: &QuaternionMsg) -> Value {
    json!({"x": bits(of.x), "y": bits(of.y), "z": bits(of.z), "w": bits(of.w)})
}

fn pose(of: &PoseWithCovarianceMsg) -> Value {
    json!({
        "pose": {"position": vector(&of.pose.position), "orientation": quaternion(&of.pose.orientation)},
        "covariance": all_bits(&of.covariance),
    })
}

fn twist(of: &TwistWithCovarianceMsg) -> Value {
    json!({
        "twist": {"linear": vector(&of.twist.linear), "angular": vector(&of.twist.angular)},
        "covariance": all_bits(&of.covariance),
    })
}

fn object(of: &DetectedObjectMsg) -> Value {
    let class =
        |c: &ObjectClassificationMsg| json!({"label": c.label, "probability": bits(c.probability.into())});
    let corner =
        |c: &[f32; 3]| json!({"x": bits(c[0].into()), "y": bits(c[1].into()), "z": bits(c[2].into())});
    json!({
        "existence_probability": bits(of.existence_probability.into()),
        "classification": of.classification.iter().map(class).collect::<Vec<_>>(),
        "kinematics": {
            "pose_with_covariance": pose(&of.kinematics.pose_with_covariance),
            "has_position_covariance": of.kinematics.has_position_covariance,
            "orientation_availability": of.kinematics.orientation_availability,
            "twist_with_covariance": twist(&of.kinematics.twist_with_covariance),
            "has_twist": of.kinematics.has_twist,
            "has_twist_covariance": of.kinematics.has_twist_covariance,
        },
        "shape": {
            "type": of.shape.shape_type,
            "footprint": {"points": of.shape.footprint.iter().map(corner).collect::<Vec<_>>()},
            "dimensions": vector(&of.shape.dimensions),
        },
    })
}

fn hex_of(bytes: &[u8]) -> Value {
    bytes
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect::<String>()
        .into()
}

/// A message by field names, and encoded again.
fn read(type_name: &str, bytes: &[u8]) -> Result<(Value, Vec<u8>), CdrError> {
    Ok(match type_name {
        IMAGE_TYPE => {
            let m = ImageMsg::decode(bytes)?;
            let value = json!({
                "header": header(&m.header), "height": m.height, "width": m.width, "encoding": m.encoding,
                "is_bigendian": m.is_bigendian, "step": m.step, "data": hex_of(m.data),
            });
            (value, m.encode()?)
        }
        COMPRESSED_IMAGE_TYPE => {
            let m = CompressedImageMsg::decode(bytes)?;
            let value = json!({"header": header(&m.header), "format": m.format, "data": hex_of(m.data)});
            (value, m.encode()?)
        }
        POINT_CLOUD_TYPE => {
            let m = PointCloud2Msg::decode(bytes)?;
            let field = |f: &PointFieldMsg<'_>| json!({"name": f.name, "offset": f.offset, "datatype": f.datatype, "count": f.count});
            let value = json!({
                "header": header(&m.header), "height": m.height, "width": m.width,
                "fields": m.fields.iter().map(field).collect::<Vec<_>>(), "is_bigendian": m.is_bigendian,
                "point_step": m.point_step, "row_step": m.row_step, "data": hex_of(m.data), "is_dense": m.is_dense,
            });
            (value, m.encode()?)
        }
        TF_TYPE => {
            let m = TfMsg::decode(bytes)?;
            let transform = |t: &TransformStampedMsg<'_>| {
                json!({
                    "header": header(&t.header), "child_frame_id": t.child_frame_id,
                    "transform": {
                        "translation": vector(&t.transform.translation), "rotation": quaternion(&t.transform.rotation),
                    },
                })
            };
            let value = json!({"transforms": m.transforms.iter().map(transform).collect::<Vec<_>>()});
            (value, m.encode()?)
        }
        ODOMETRY_TYPE => {
            let m = OdometryMsg::decode(bytes)?;
            let value = json!({
                "header": header(&m.header), "child_frame_id": m.child_frame_id, "pose": pose(&m.pose),
                "twist": twist(&m.twist),
            });
            (value, m.encode()?)
        }
        CLOCK_TYPE => {
            let m = ClockMsg::decode(bytes)?;
            let value = json!({"clock": {"sec": m.clock_sec, "nanosec": m.clock_nanosec}});
            (value, m.encode())
        }
        DETECTED_OBJECTS_TYPE => {
            let m = DetectedObjectsMsg::decode(bytes)?;
            let objects: Vec<_> = m.objects.iter().map(object).collect();
            (
                json!({"header": header(&m.header), "objects": objects}),
                m.encode()?,
            )
        }
        other => panic!("{other}"),
    })
}

/// Every type, with the hash that ROS 2 gives it (Humble's definitions and later).
const TYPES: [(&str, &str); 7] = [
    (
        IMAGE_TYPE,
        "d31d41a9a4c4bc8eae9be757b0beed306564f7526c88ea6a4588fb9582527d47",
    ),
    (
        COMPRESSED_IMAGE_TYPE,
        "15640771531571185e2efc8a100baf923961a4d15d5569652e6cb6691e8e371a",
    ),
    (
        POINT_CLOUD_TYPE,
        "9198cabf7da3796ae6fe19c4cb3bdd3525492988c70522628af5daa124bae2b5",
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
        DETECTED_OBJECTS_TYPE,
        "2facd6b15786cbd1f720cdd23d22e6d60d2e7e83b8dff8fd401330e24edb187b",
    ),
];

fn ask(way: &str, type_name: &str, more: &[&str]) -> Option<Vec<String>> {
    let mut oracle = support::oracle("ros_messages.py")?;
    let text = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(text.path(), definition(type_name).unwrap()).unwrap();
    let output = support::run(oracle.arg(way).arg(type_name).arg(text.path()).args(more));
    let text = String::from_utf8(output).unwrap();
    Some(text.lines().map(str::to_owned).collect())
}

#[test]
fn random_messages_of_rosbags_are_read_by_name_in_both_byte_orders_and_written_byte_for_byte() {
    for (type_name, _) in TYPES {
        let Some(lines) = ask("make", type_name, &["60", "7"]) else {
            return;
        };
        assert_eq!(lines.len(), 60);
        for line in lines {
            let line: Value = serde_json::from_str(&line).unwrap();
            let little = hex(line["little"].as_str().unwrap());
            for bytes in [&little, &hex(line["big"].as_str().unwrap())] {
                let (fields, written) = read(type_name, bytes).unwrap();
                assert_eq!(fields, line["fields"], "{type_name}");
                assert_eq!(written, little, "{type_name}");
            }
        }
    }
}

#[test]
fn definitions_hash_to_the_types_of_ros_2() {
    for (type_name, hash) in TYPES {
        let Some(lines) = ask("hash", type_name, &[]) else {
            return;
        };
        assert_eq!(lines[0], format!("RIHS01_{hash}"), "{type_name}");
        // rosbags carries the standard messages, not Autoware's.
        let known = if type_name == DETECTED_OBJECTS_TYPE {
            "-"
        } else {
            &lines[0]
        };
        assert_eq!(lines[1], known, "{type_name}");
    }
}

#[test]
fn an_object_is_laid_out_as_autoware_lays_it_out() {
    let object = DetectedObject {
        label: ObjectLabel::Car,
        score: 0.9,
        position_m: [1.0, 2.0, 3.0],
        yaw_rad: 0.0,
        size_m: [4.0, 5.0, 6.0],
        orientation: OrientationAvailability::Available,
        twist: None,
        pose_variance: Some(PoseVariance {
            position_m2: [0.0; 3],
            yaw_rad2: 0.0,
        }),
        twist_variance: None,
    };
    let mut object = DetectedObjectMsg::from(&object);
    assert_eq!(object.classification[0].probability, 1.0);
    object.classification[0].probability = 0.5;
    let velocity = Vector3Msg {
        x: 4.0,
        y: 5.0,
        z: 6.0,
    };
    object.kinematics.has_twist = true;
    object.kinematics.twist_with_covariance.twist = TwistMsg {
        linear: velocity,
        angular: velocity,
    };
    let message = DetectedObjectsMsg {
        header: HeaderMsg::new(1_000_000_002, "base_link").unwrap(),
        objects: vec![object],
    };
    let bytes = message.encode().unwrap();
    assert_eq!(bytes.len(), 772);
    // Offsets within the body and the values there, worked out by hand from the definition.
    let body = &bytes[4..];
    let f64_at = |at: usize| f64::from_le_bytes(body[at..at + 8].try_into().unwrap());
    let f32_at = |at: usize| f32::from_le_bytes(body[at..at + 4].try_into().unwrap());
    let u32_at = |at: usize| u32::from_le_bytes(body[at..at + 4].try_into().unwrap());
    assert_eq!(
        (u32_at(0), u32_at(4), u32_at(8), &body[12..22]),
        (1, 2, 10, &b"base_link\0"[..])
    );
    assert_eq!(
        (u32_at(24), f32_at(28), u32_at(32), body[36], f32_at(40)),
        (1, 0.9, 1, 1, 0.5)
    );
    assert_eq!([48, 56, 64, 72, 96].map(f64_at), [1.0, 2.0, 3.0, 0.0, 1.0]);
    assert_eq!((body[392], body[393]), (1, 2));
    assert_eq!(
        [400, 408, 416, 424, 432, 440].map(f64_at),
        [4.0, 5.0, 6.0, 4.0, 5.0, 6.0]
    );
    assert_eq!((body[736], body[737], body[738], u32_at(740)), (1, 0, 0, 0));
    assert_eq!([744, 752, 760].map(f64_at), [4.0, 5.0, 6.0]);
    assert_eq!(DetectedObjectsMsg::decode(&bytes).unwrap(), message);
    assert_eq!(crc32fast::hash(&bytes), GOLDEN_CRC32);
}

/// Of the message that hashes to ceab5371... (SHA-256) as `rosbags` writes it.
const GOLDEN_CRC32: u32 = 0x71d3_9546;

#[test]
fn an_objects_variances_and_speeds_stand_where_their_flags_say() {
    let object = DetectedObject {
        label: ObjectLabel::Pedestrian,
        score: 0.25,
        position_m: [1.0, 2.0, 3.0],
        yaw_rad: -2.5,
        size_m: [4.0, 5.0, 6.0],
        orientation: OrientationAvailability::SignUnknown,
        twist: Some(Twist2D {
            linear_x_mps: 7.0,
            linear_y_mps: 8.0,
            angular_z_radps: 9.0,
        }),
        pose_variance: Some(PoseVariance {
            position_m2: [0.1, 0.2, 0.3],
            yaw_rad2: 0.4,
        }),
        twist_variance: Some([0.5, 0.6]),
    };
    let message = DetectedObjectMsg::from(&object);
    let kinematics = &message.kinematics;
    assert_eq!(
        (
            kinematics.has_position_covariance,
            kinematics.has_twist,
            kinematics.has_twist_covariance
        ),
        (true, true, true)
    );
    let mut expected = [0.0; 36];
    (expected[0], expected[7], expected[14], expected[35]) = (0.1, 0.2, 0.3, 0.4);
    assert_eq!(kinematics.pose_with_covariance.covariance, expected);
    let mut expected = [0.0; 36];
    (expected[0], expected[7]) = (0.5, 0.6);
    assert_eq!(kinematics.twist_with_covariance.covariance, expected);
    let of = kinematics.pose_with_covariance.pose.orientation;
    let yaw = (2.0 * (of.w * of.z + of.x * of.y)).atan2(1.0 - 2.0 * (of.y * of.y + of.z * of.z));
    assert!((yaw + 2.5).abs() < 1e-12, "{yaw}");
    assert_eq!(
        kinematics.twist_with_covariance.twist.linear,
        Vector3Msg {
            x: 7.0,
            y: 8.0,
            z: 0.0
        }
    );
    assert_eq!(
        kinematics.twist_with_covariance.twist.angular,
        Vector3Msg {
            x: 0.0,
            y: 0.0,
            z: 9.0
        }
    );
    assert_eq!(
        (message.label(), message.shape.shape_type),
        (ObjectLabel::Pedestrian, shape_type::BOUNDING_BOX)
    );
    let bare = DetectedObjectMsg::from(&DetectedObject {
        twist: None,
        pose_variance: None,
        twist_variance: None,
        ..object
    });
    let flags = bare.kinematics;
    assert!(!flags.has_position_covariance && !flags.has_twist && !flags.has_twist_covariance);
}

#[test]
fn messages_of_an_autoware_recording_are_written_as_they_were_read() {
    let Some(path) = support::data("bags/autoware_mot_test_data1/test_data1.db3") else {
        return;
    };
    let bag = Bag::open(&path).unwrap();
    let (mut objects, mut transforms) = (0, 0);
    for message in bag.all_messages() {
        let message = message.unwrap();
        let (fields, written) = read(&message.type_name, &message.data).unwrap();
        assert_eq!(written, *message.data);
        objects += fields["objects"].as_array().map_or(0, Vec::len);
        transforms += fields["transforms"].as_array().map_or(0, Vec::len);
    }
    assert_eq!((objects, transforms), (4589, 235));
}

/// One message of each type with something in every list.
fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let header = HeaderMsg::new(1_700_000_000_000_000_001, "velodyne_top").unwrap();
    let field = |name, offset, datatype| PointFieldMsg {
        name,
        offset,
        datatype,
        count: 1,
    };
    let cloud = PointCloud2Msg {
        header,
        height: 1,
        width: 2,
        fields: [field("x", 0, 7), field("y", 4, 7), field("z", 8, 7)]
            .into_iter()
            .collect(),
        is_bigendian: false,
        point_step: 12,
        row_step: 24,
        data: &[7; 24],
        is_dense: true,
    };
    let transform = TransformStampedMsg {
        header,
        child_frame_id: "base_link",
        transform: TransformMsg::default(),
    };
    let odometry = OdometryMsg {
        header,
        child_frame_id: "base_link",
        pose: PoseWithCovarianceMsg::default(),
        twist: TwistWithCovarianceMsg::default(),
    };
    let object = DetectedObjectMsg {
        classification: vec![
            ObjectClassificationMsg {
                label: 1,
                probability: 0.5
            };
            2
        ],
        shape: ShapeMsg {
            shape_type: shape_type::POLYGON,
            footprint: vec![[1.0; 3]; 3],
            dimensions: Vector3Msg::default(),
        },
        ..DetectedObjectMsg::default()
    };
    let objects = DetectedObjectsMsg {
        header,
        objects: vec![object; 2],
    };
    let tf = TfMsg {
        transforms: vec![transform; 3],
    };
    vec![
        (POINT_CLOUD_TYPE, cloud.encode().unwrap()),
        (TF_TYPE, tf.encode().unwrap()),
        (ODOMETRY_TYPE, odometry.encode().unwrap()),
        (CLOCK_TYPE, ClockMsg::new(-1).unwrap().encode()),
        (DETECTED_OBJECTS_TYPE, objects.encode().unwrap()),
    ]
}

#[test]
fn every_truncation_is_a_typed_error() {
    for (type_name, bytes) in samples() {
        assert!(read(type_name, &bytes).is_ok());
        for len in 0..bytes.len() {
            let error = read(type_name, &bytes[..len]).unwrap_err();
            assert!(
                matches!(error, CdrError::TooShort { .. } | CdrError::NoHeader { .. }),
                "{type_name} {len}: {error}"
            );
        }
    }
}

#[test]
fn a_lying_count_is_an_error_before_anything_is_allocated_for_it() {
    for (type_name, bytes) in samples() {
        for at in (4..bytes.len() - 4).step_by(4) {
            let mut lying = bytes.clone();
            lying[at..at + 4].fill(0xff);
            // Whatever the word was, the answer is a value or an error; a length is always an error.
            let _ = read(type_name, &lying);
        }
    }
    let mut objects = samples().pop().unwrap().1;
    let count_at = 4 + 8 + 4 + 16;
    objects[count_at..count_at + 4].copy_from_slice(&3u32.to_le_bytes());
    let error = DetectedObjectsMsg::decode(&objects).unwrap_err();
    assert!(
        matches!(error, CdrError::TooShort { offset: 36, .. }),
        "{error:?}"
    );
}

proptest! {
    #[test]
    fn mutated_messages_are_read_or_refused_and_never_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        for (type_name, mut bytes) in samples() {
            for (at, value) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            if cuts {
                bytes.truncate(cut.index(bytes.len() + 1));
            }
            if let Ok((_, written)) = read(type_name, &bytes) {
                // What was read can be written, and reads as the same.
                prop_assert!(read(type_name, &written).is_ok());
            }
        }
    }
}
