//! Definition texts (`ros2msg`), which a recording carries along, and the hashes of the types by them.
//!
//! The folder `msg` holds one file a message, with fields and constants only.

use crate::io::interface::hash_of_definition;
use crate::io::ros::TypeHash;

/// Definition text (`ros2msg`) of a message that this module knows, with those it is made of; `std_msgs/Header` and
/// `std_msgs/msg/Header` are one name.
///
/// The dependencies follow the message, each after a line of 80 `=` and a line naming it, as rosbag2 and
/// Foxglove read it. `None` for a type that this module does not know.
#[must_use]
pub fn definition(type_name: &str) -> Option<String> {
    let top = text_of(&short_name(type_name))?;
    let mut parts = Vec::new();
    add_parts(top, &mut parts);
    let mut text = top.to_owned();
    let line = "=".repeat(80);
    for (name, part) in parts {
        text.push_str(&format!("\n{line}\nMSG: {name}\n{part}"));
    }
    Some(text)
}

/// Hash (RIHS01) of a type that this module knows: what ROS 2 from Iron on puts into names and bags.
#[must_use]
pub fn type_hash(type_name: &str) -> Option<TypeHash> {
    hash_of_definition(type_name, &definition(type_name)?).ok()
}

/// Names of all types that this module knows, in their long form.
pub fn known_types() -> impl Iterator<Item = String> {
    MESSAGES.iter().map(|(name, _)| super::normalise_type(name))
}

/// Adds the messages that `text` is made of, each once, every one before those that it is made of itself.
fn add_parts(text: &str, parts: &mut Vec<(&'static str, &'static str)>) {
    for field_type in text.lines().filter_map(|line| line.split(['[', ' ']).next()) {
        let Some(part) = MESSAGES.iter().find(|(name, _)| *name == field_type) else {
            continue;
        };
        if !parts.contains(part) {
            parts.push(*part);
            add_parts(part.1, parts);
        }
    }
}

/// `std_msgs/msg/Header` as the files name it, `std_msgs/Header`.
fn short_name(type_name: &str) -> String {
    type_name.replacen("/msg/", "/", 1)
}

fn text_of(name: &str) -> Option<&'static str> {
    let (_, text) = MESSAGES.iter().find(|(known, _)| *known == name)?;
    Some(text)
}

/// Names and texts of the files in the folder `msg`.
macro_rules! messages {
    ($($package:ident: $($name:ident),+;)+) => {
        &[$($((
            concat!(stringify!($package), "/", stringify!($name)),
            include_str!(concat!("msg/", stringify!($package), "/", stringify!($name), ".msg")),
        ),)+)+]
    };
}

/// Every message by its name without `/msg`, and its definition.
const MESSAGES: &[(&str, &str)] = messages! {
    builtin_interfaces: Time, Duration;
    std_msgs: Header, Empty, String, Bool, Int32, UInt32, Int64, UInt64, Float32, Float64, ColorRGBA;
    geometry_msgs: Vector3, Vector3Stamped, Point, PointStamped, Point32, Polygon, PolygonStamped, Quaternion, QuaternionStamped, Pose, PoseArray, PoseStamped, PoseWithCovariance, PoseWithCovarianceStamped, Transform, TransformStamped, Twist, TwistStamped, TwistWithCovariance, TwistWithCovarianceStamped, Accel, AccelStamped, AccelWithCovariance, AccelWithCovarianceStamped;
    sensor_msgs: PointField, PointCloud2, Image, CompressedImage, RegionOfInterest, CameraInfo, Imu;
    nav_msgs: Odometry;
    tf2_msgs: TFMessage;
    rosgraph_msgs: Clock;
    diagnostic_msgs: KeyValue, DiagnosticStatus, DiagnosticArray;
    autoware_perception_msgs: ObjectClassification, Shape, DetectedObjectKinematics, DetectedObject, DetectedObjects;
    tier4_perception_msgs: Feature, DetectedObjectWithFeature, DetectedObjectsWithFeature;
    autoware_internal_debug_msgs: Float64Stamped;
    autoware_internal_msgs: PublishedTime;
    visualization_msgs: UVCoordinate, MeshFile, Marker, MarkerArray;
};
