//! The ROS 2 messages that Sensorium reads and writes, one subject a file, with the definition texts that a recording
//! carries along.
//!
//! Decoding borrows names, pixels and points from the message and accepts both byte orders; encoding is little-endian.
//! What a message says is taken as it is: whether its sizes agree is for the reader of the content to check.

mod camera;
mod clock;
mod cloud;
mod debug;
mod definitions;
mod diagnostics;
mod features;
mod geometry;
mod header;
mod image;
mod imu;
mod markers;
mod objects;
mod odometry;
mod stamped;
mod text;
mod tf;
mod time;

pub use camera::{CameraInfoMsg, RegionOfInterestMsg};
pub use clock::ClockMsg;
pub use cloud::{PointCloud2Msg, PointFieldMsg, PointFields, field_type};
pub use debug::{Float64StampedMsg, PublishedTimeMsg};
pub use definitions::{definition, known_types, type_hash};
pub use diagnostics::{DiagnosticArrayMsg, DiagnosticStatusMsg, KeyValueMsg, diagnostic_level};
pub use features::{DetectedObjectWithFeatureMsg, DetectedObjectsWithFeatureMsg, FeatureMsg};
pub use geometry::{
    PoseMsg, PoseWithCovarianceMsg, QuaternionMsg, TransformMsg, TwistMsg, TwistWithCovarianceMsg, Vector3Msg,
};
pub use header::HeaderMsg;
pub use image::{CompressedFormat, CompressedImageMsg, ImageCodec, ImageMsg};
pub use imu::ImuMsg;
pub use markers::{MarkerArrayMsg, MarkerMsg, marker_action, marker_type};
pub use objects::{
    DetectedObjectKinematicsMsg, DetectedObjectMsg, DetectedObjectsMsg, ObjectClassificationMsg, ShapeMsg,
    shape_type,
};
pub use odometry::OdometryMsg;
pub use stamped::{
    PoseStampedMsg, PoseWithCovarianceStampedMsg, TwistStampedMsg, TwistWithCovarianceStampedMsg,
};
pub use text::StringMsg;
pub use tf::{TfMsg, TransformStampedMsg};
pub use time::TimeMsg;

/// ROS 2 name of [`ImageMsg`].
pub const IMAGE_TYPE: &str = "sensor_msgs/msg/Image";
/// ROS 2 name of [`CompressedImageMsg`].
pub const COMPRESSED_IMAGE_TYPE: &str = "sensor_msgs/msg/CompressedImage";
/// ROS 2 name of [`PointCloud2Msg`].
pub const POINT_CLOUD_TYPE: &str = "sensor_msgs/msg/PointCloud2";
/// ROS 2 name of [`TfMsg`].
pub const TF_TYPE: &str = "tf2_msgs/msg/TFMessage";
/// ROS 2 name of [`OdometryMsg`].
pub const ODOMETRY_TYPE: &str = "nav_msgs/msg/Odometry";
/// ROS 2 name of [`ClockMsg`].
pub const CLOCK_TYPE: &str = "rosgraph_msgs/msg/Clock";
/// ROS 2 name of [`DetectedObjectsMsg`].
pub const DETECTED_OBJECTS_TYPE: &str = "autoware_perception_msgs/msg/DetectedObjects";
/// ROS 2 name of [`DetectedObjectsWithFeatureMsg`].
pub const DETECTED_OBJECTS_WITH_FEATURE_TYPE: &str = "tier4_perception_msgs/msg/DetectedObjectsWithFeature";
/// ROS 2 name of [`CameraInfoMsg`].
pub const CAMERA_INFO_TYPE: &str = "sensor_msgs/msg/CameraInfo";
/// ROS 2 name of [`ImuMsg`].
pub const IMU_TYPE: &str = "sensor_msgs/msg/Imu";
/// ROS 2 name of [`DiagnosticArrayMsg`].
pub const DIAGNOSTIC_ARRAY_TYPE: &str = "diagnostic_msgs/msg/DiagnosticArray";
/// ROS 2 name of [`Float64StampedMsg`].
pub const FLOAT64_STAMPED_TYPE: &str = "autoware_internal_debug_msgs/msg/Float64Stamped";
/// ROS 2 name of [`PublishedTimeMsg`].
pub const PUBLISHED_TIME_TYPE: &str = "autoware_internal_msgs/msg/PublishedTime";
/// ROS 2 name of [`StringMsg`].
pub const STRING_TYPE: &str = "std_msgs/msg/String";
/// ROS 2 name of [`PoseStampedMsg`].
pub const POSE_STAMPED_TYPE: &str = "geometry_msgs/msg/PoseStamped";
/// ROS 2 name of [`PoseWithCovarianceStampedMsg`].
pub const POSE_WITH_COVARIANCE_STAMPED_TYPE: &str = "geometry_msgs/msg/PoseWithCovarianceStamped";
/// ROS 2 name of [`TwistStampedMsg`].
pub const TWIST_STAMPED_TYPE: &str = "geometry_msgs/msg/TwistStamped";
/// ROS 2 name of [`TwistWithCovarianceStampedMsg`].
pub const TWIST_WITH_COVARIANCE_STAMPED_TYPE: &str = "geometry_msgs/msg/TwistWithCovarianceStamped";
/// ROS 2 name of [`MarkerArrayMsg`].
pub const MARKER_ARRAY_TYPE: &str = "visualization_msgs/msg/MarkerArray";

/// Type name in its long form: `sensor_msgs/Image` becomes `sensor_msgs/msg/Image`; any other form stays.
#[must_use]
pub fn normalise_type(name: &str) -> String {
    match name.split_once('/') {
        Some((package, message)) if !message.contains('/') => format!("{package}/msg/{message}"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_type_names_get_their_msg_part() {
        assert_eq!(normalise_type("sensor_msgs/Image"), IMAGE_TYPE);
        assert_eq!(normalise_type(IMAGE_TYPE), IMAGE_TYPE);
        assert_eq!(normalise_type("pkg/srv/Add_Event"), "pkg/srv/Add_Event");
        assert_eq!(
            normalise_type("foxglove.ImageAnnotations"),
            "foxglove.ImageAnnotations"
        );
    }
}
