//! ROS 2 messages against `rosbags`: every field by name, both byte orders, and what damaged bytes do.

use crate::support;
use proptest::prelude::*;
use sensorium::io::bag::Bag;
use sensorium::io::cdr::CdrError;
use sensorium::io::messages::*;
use sensorium::outputs::{DetectedObject, ObjectLabel, OrientationAvailability, PoseVariance, Twist2D};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

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

fn time(of: &TimeMsg) -> Value {
    json!({"sec": of.sec, "nanosec": of.nanosec})
}

fn bare_pose(of: &PoseMsg) -> Value {
    json!({"position": vector(&of.position), "orientation": quaternion(&of.orientation)})
}

fn pose(of: &PoseWithCovarianceMsg) -> Value {
    json!({"pose": bare_pose(&of.pose), "covariance": all_bits(&of.covariance)})
}

fn bare_twist(of: &TwistMsg) -> Value {
    json!({"linear": vector(&of.linear), "angular": vector(&of.angular)})
}

fn twist(of: &TwistWithCovarianceMsg) -> Value {
    json!({"twist": bare_twist(&of.twist), "covariance": all_bits(&of.covariance)})
}

fn roi(of: &RegionOfInterestMsg) -> Value {
    json!({
        "x_offset": of.x_offset, "y_offset": of.y_offset, "height": of.height, "width": of.width,
        "do_rectify": of.do_rectify,
    })
}

fn cloud(of: &PointCloud2Msg<'_>) -> Value {
    let field = |f: &PointFieldMsg<'_>| json!({"name": f.name, "offset": f.offset, "datatype": f.datatype, "count": f.count});
    json!({
        "header": header(&of.header), "height": of.height, "width": of.width,
        "fields": of.fields.iter().map(field).collect::<Vec<_>>(), "is_bigendian": of.is_bigendian,
        "point_step": of.point_step, "row_step": of.row_step, "data": hex_of(of.data), "is_dense": of.is_dense,
    })
}

fn status(of: &DiagnosticStatusMsg<'_>) -> Value {
    let value = |v: &KeyValueMsg<'_>| json!({"key": v.key, "value": v.value});
    json!({
        "level": of.level, "name": of.name, "message": of.message, "hardware_id": of.hardware_id,
        "values": of.values.iter().map(value).collect::<Vec<_>>(),
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
            (cloud(&m), m.encode()?)
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
        DETECTED_OBJECTS_WITH_FEATURE_TYPE => {
            let m = DetectedObjectsWithFeatureMsg::decode(bytes)?;
            let with_feature = |o: &DetectedObjectWithFeatureMsg<'_>| {
                let feature = json!({"cluster": cloud(&o.feature.cluster), "roi": roi(&o.feature.roi)});
                json!({"object": object(&o.object), "feature": feature})
            };
            let objects: Vec<_> = m.feature_objects.iter().map(with_feature).collect();
            (
                json!({"header": header(&m.header), "feature_objects": objects}),
                m.encode()?,
            )
        }
        CAMERA_INFO_TYPE => {
            let m = CameraInfoMsg::decode(bytes)?;
            let value = json!({
                "header": header(&m.header), "height": m.height, "width": m.width,
                "distortion_model": m.distortion_model, "d": all_bits(&m.d), "k": all_bits(&m.k),
                "r": all_bits(&m.r), "p": all_bits(&m.p), "binning_x": m.binning_x, "binning_y": m.binning_y,
                "roi": roi(&m.roi),
            });
            (value, m.encode()?)
        }
        IMU_TYPE => {
            let m = ImuMsg::decode(bytes)?;
            let value = json!({
                "header": header(&m.header), "orientation": quaternion(&m.orientation),
                "orientation_covariance": all_bits(&m.orientation_covariance),
                "angular_velocity": vector(&m.angular_velocity),
                "angular_velocity_covariance": all_bits(&m.angular_velocity_covariance),
                "linear_acceleration": vector(&m.linear_acceleration),
                "linear_acceleration_covariance": all_bits(&m.linear_acceleration_covariance),
            });
            (value, m.encode()?)
        }
        DIAGNOSTIC_ARRAY_TYPE => {
            let m = DiagnosticArrayMsg::decode(bytes)?;
            let all: Vec<_> = m.status.iter().map(status).collect();
            (json!({"header": header(&m.header), "status": all}), m.encode()?)
        }
        FLOAT64_STAMPED_TYPE => {
            let m = Float64StampedMsg::decode(bytes)?;
            (json!({"stamp": time(&m.stamp), "data": bits(m.data)}), m.encode())
        }
        PUBLISHED_TIME_TYPE => {
            let m = PublishedTimeMsg::decode(bytes)?;
            let value = json!({"header": header(&m.header), "published_stamp": time(&m.published_stamp)});
            (value, m.encode()?)
        }
        STRING_TYPE => {
            let m = StringMsg::decode(bytes)?;
            (json!({"data": m.data}), m.encode()?)
        }
        POSE_STAMPED_TYPE => {
            let m = PoseStampedMsg::decode(bytes)?;
            (
                json!({"header": header(&m.header), "pose": bare_pose(&m.pose)}),
                m.encode()?,
            )
        }
        POSE_WITH_COVARIANCE_STAMPED_TYPE => {
            let m = PoseWithCovarianceStampedMsg::decode(bytes)?;
            (
                json!({"header": header(&m.header), "pose": pose(&m.pose)}),
                m.encode()?,
            )
        }
        TWIST_STAMPED_TYPE => {
            let m = TwistStampedMsg::decode(bytes)?;
            (
                json!({"header": header(&m.header), "twist": bare_twist(&m.twist)}),
                m.encode()?,
            )
        }
        TWIST_WITH_COVARIANCE_STAMPED_TYPE => {
            let m = TwistWithCovarianceStampedMsg::decode(bytes)?;
            (
                json!({"header": header(&m.header), "twist": twist(&m.twist)}),
                m.encode()?,
            )
        }
        other => panic!("{other}"),
    })
}

/// Every type.
const TYPES: [&str; 18] = [
    IMAGE_TYPE,
    COMPRESSED_IMAGE_TYPE,
    POINT_CLOUD_TYPE,
    TF_TYPE,
    ODOMETRY_TYPE,
    CLOCK_TYPE,
    DETECTED_OBJECTS_TYPE,
    DETECTED_OBJECTS_WITH_FEATURE_TYPE,
    CAMERA_INFO_TYPE,
    IMU_TYPE,
    DIAGNOSTIC_ARRAY_TYPE,
    FLOAT64_STAMPED_TYPE,
    PUBLISHED_TIME_TYPE,
    STRING_TYPE,
    POSE_STAMPED_TYPE,
    POSE_WITH_COVARIANCE_STAMPED_TYPE,
    TWIST_STAMPED_TYPE,
    TWIST_WITH_COVARIANCE_STAMPED_TYPE,
];

fn make(type_name: &str, count: &str, seed: &str) -> Option<Vec<String>> {
    let mut oracle = support::oracle("ros_messages.py")?;
    let text = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(text.path(), definition(type_name).unwrap()).unwrap();
    let output = support::run(oracle.arg(type_name).arg(text.path()).args([count, seed]));
    let text = String::from_utf8(output).unwrap();
    Some(text.lines().map(str::to_owned).collect())
}

#[test]
fn random_messages_of_rosbags_are_read_by_name_in_both_byte_orders_and_written_byte_for_byte() {
    for type_name in TYPES {
        let Some(lines) = make(type_name, "60", "7") else {
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
    // Of the message as `rosbags` writes it.
    let golden = "ceab537193395370cd0d6b0ed6872778b0190d64bba14d234424753957cf886e";
    assert_eq!(hex_of(&Sha256::digest(&bytes)), golden);
}

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
        objects: vec![object.clone(); 2],
    };
    let features = DetectedObjectsWithFeatureMsg {
        header,
        feature_objects: vec![
            DetectedObjectWithFeatureMsg {
                object,
                feature: FeatureMsg {
                    cluster: cloud.clone(),
                    roi: RegionOfInterestMsg::default(),
                },
            },
            DetectedObjectWithFeatureMsg::default(),
        ],
    };
    let camera = CameraInfoMsg {
        header,
        height: 480,
        width: 640,
        distortion_model: "plumb_bob",
        d: vec![0.5; 5],
        k: [1.0; 9],
        r: [0.0; 9],
        p: [2.0; 12],
        binning_x: 0,
        binning_y: 0,
        roi: RegionOfInterestMsg::default(),
    };
    let status = DiagnosticStatusMsg {
        level: diagnostic_level::WARN,
        name: "detector: times",
        message: "slow",
        hardware_id: "detector",
        values: vec![
            KeyValueMsg {
                key: "ms",
                value: "5"
            };
            2
        ],
    };
    let diagnostics = DiagnosticArrayMsg {
        header,
        status: vec![status; 2],
    };
    let tf = TfMsg {
        transforms: vec![transform; 3],
    };
    vec![
        (POINT_CLOUD_TYPE, cloud.encode().unwrap()),
        (TF_TYPE, tf.encode().unwrap()),
        (ODOMETRY_TYPE, odometry.encode().unwrap()),
        (CLOCK_TYPE, ClockMsg::new(-1).unwrap().encode()),
        (DETECTED_OBJECTS_WITH_FEATURE_TYPE, features.encode().unwrap()),
        (CAMERA_INFO_TYPE, camera.encode().unwrap()),
        (DIAGNOSTIC_ARRAY_TYPE, diagnostics.encode().unwrap()),
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
