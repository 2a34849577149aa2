//! The ROS 2 messages that Sensorium reads and writes, one subject a file, with the definition texts that a recording
//! carries along.
//!
//! Decoding borrows names, pixels and points from the message and accepts both byte orders; encoding is little-endian.
//! What a message says is taken as it is: whether its sizes agree is for the reader of the content to check.

mod clock;
mod cloud;
mod definitions;
mod geometry;
mod header;
mod image;
mod markers;
mod objects;
mod odometry;
mod tf;

pub use clock::ClockMsg;
pub use cloud::{PointCloud2Msg, PointFieldMsg, PointFields, field_type};
pub use definitions::definition;
pub use geometry::{
    PoseMsg, PoseWithCovarianceMsg, QuaternionMsg, TransformMsg, TwistMsg, TwistWithCovarianceMsg, Vector3Msg,
};
pub use header::HeaderMsg;
pub use image::{CompressedFormat, CompressedImageMsg, ImageCodec, ImageMsg};
pub use markers::{MarkerArrayMsg, MarkerMsg, marker_action, marker_type};
pub use objects::{
    DetectedObjectKinematicsMsg, DetectedObjectMsg, DetectedObjectsMsg, ObjectClassificationMsg, ShapeMsg,
    shape_type,
};
pub use odometry::OdometryMsg;
pub use tf::{TfMsg, TransformStampedMsg};

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
