//! Definition texts (`ros2msg`), which a recording carries along.

use super::{
    CLOCK_TYPE, COMPRESSED_IMAGE_TYPE, DETECTED_OBJECTS_TYPE, IMAGE_TYPE, MARKER_ARRAY_TYPE, ODOMETRY_TYPE,
    POINT_CLOUD_TYPE, TF_TYPE,
};

/// Definition text (`ros2msg`) of a message that this module writes, with those it is made of.
///
/// The dependencies follow the message, each after a line of 80 `=` and a line naming it, as rosbag2 and
/// Foxglove read it. `None` for a type that this module does not write.
#[must_use]
pub fn definition(type_name: &str) -> Option<String> {
    let (_, top) = MESSAGES.iter().find(|(name, _)| *name == type_name)?;
    let mut parts = Vec::new();
    add_parts(top, &mut parts);
    let mut text = (*top).to_owned();
    let line = "=".repeat(80);
    for (name, part) in parts {
        text.push_str(&format!("\n{line}\nMSG: {name}\n{part}"));
    }
    Some(text)
}

/// Adds the messages that `text` is made of, each once, every one before those that it is made of itself.
fn add_parts(text: &str, parts: &mut Vec<(&'static str, &'static str)>) {
    for field_type in text.lines().filter_map(|line| line.split(['[', ' ']).next()) {
        let Some(part) = PARTS.iter().find(|(name, _)| *name == field_type) else {
            continue;
        };
        if !parts.contains(part) {
            parts.push(*part);
            add_parts(part.1, parts);
        }
    }
}

/// Messages that are sent by themselves.
const MESSAGES: [(&str, &str); 8] = [
    (
        IMAGE_TYPE,
        "std_msgs/Header header\nuint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\n\
         uint8[] data\n",
    ),
    (
        COMPRESSED_IMAGE_TYPE,
        "std_msgs/Header header\nstring format\nuint8[] data\n",
    ),
    (
        POINT_CLOUD_TYPE,
        "std_msgs/Header header\nuint32 height\nuint32 width\nsensor_msgs/PointField[] fields\nbool is_bigendian\n\
         uint32 point_step\nuint32 row_step\nuint8[] data\nbool is_dense\n",
    ),
    (TF_TYPE, "geometry_msgs/TransformStamped[] transforms\n"),
    (
        ODOMETRY_TYPE,
        "std_msgs/Header header\nstring child_frame_id\ngeometry_msgs/PoseWithCovariance pose\n\
         geometry_msgs/TwistWithCovariance twist\n",
    ),
    (CLOCK_TYPE, "builtin_interfaces/Time clock\n"),
    (
        DETECTED_OBJECTS_TYPE,
        "std_msgs/Header header\nautoware_perception_msgs/DetectedObject[] objects\n",
    ),
    (MARKER_ARRAY_TYPE, "visualization_msgs/Marker[] markers\n"),
];

/// Messages that others are made of.
const PARTS: [(&str, &str); 24] = [
    (
        "std_msgs/Header",
        "builtin_interfaces/Time stamp\nstring frame_id\n",
    ),
    ("builtin_interfaces/Time", "int32 sec\nuint32 nanosec\n"),
    (
        "sensor_msgs/PointField",
        "uint8 INT8=1\nuint8 UINT8=2\nuint8 INT16=3\nuint8 UINT16=4\nuint8 INT32=5\nuint8 UINT32=6\nuint8 FLOAT32=7\n\
         uint8 FLOAT64=8\nstring name\nuint32 offset\nuint8 datatype\nuint32 count\n",
    ),
    (
        "geometry_msgs/TransformStamped",
        "std_msgs/Header header\nstring child_frame_id\ngeometry_msgs/Transform transform\n",
    ),
    (
        "geometry_msgs/Transform",
        "geometry_msgs/Vector3 translation\ngeometry_msgs/Quaternion rotation\n",
    ),
    ("geometry_msgs/Vector3", "float64 x\nfloat64 y\nfloat64 z\n"),
    ("geometry_msgs/Point", "float64 x\nfloat64 y\nfloat64 z\n"),
    ("geometry_msgs/Point32", "float32 x\nfloat32 y\nfloat32 z\n"),
    ("geometry_msgs/Polygon", "geometry_msgs/Point32[] points\n"),
    (
        "geometry_msgs/Quaternion",
        "float64 x 0\nfloat64 y 0\nfloat64 z 0\nfloat64 w 1\n",
    ),
    (
        "geometry_msgs/Pose",
        "geometry_msgs/Point position\ngeometry_msgs/Quaternion orientation\n",
    ),
    (
        "geometry_msgs/PoseWithCovariance",
        "geometry_msgs/Pose pose\nfloat64[36] covariance\n",
    ),
    (
        "geometry_msgs/Twist",
        "geometry_msgs/Vector3 linear\ngeometry_msgs/Vector3 angular\n",
    ),
    (
        "geometry_msgs/TwistWithCovariance",
        "geometry_msgs/Twist twist\nfloat64[36] covariance\n",
    ),
    (
        "autoware_perception_msgs/DetectedObject",
        "float32 existence_probability\nautoware_perception_msgs/ObjectClassification[] classification\n\
         autoware_perception_msgs/DetectedObjectKinematics kinematics\nautoware_perception_msgs/Shape shape\n",
    ),
    (
        "autoware_perception_msgs/ObjectClassification",
        "uint8 UNKNOWN=0\nuint8 CAR=1\nuint8 TRUCK=2\nuint8 BUS=3\nuint8 TRAILER=4\nuint8 MOTORCYCLE=5\n\
         uint8 BICYCLE=6\nuint8 PEDESTRIAN=7\nuint8 ANIMAL=8\nuint8 HAZARD=9\nuint8 OVER_DRIVABLE=10\n\
         uint8 UNDER_DRIVABLE=11\nuint8 label\nfloat32 probability\n",
    ),
    (
        "autoware_perception_msgs/DetectedObjectKinematics",
        "uint8 UNAVAILABLE=0\nuint8 SIGN_UNKNOWN=1\nuint8 AVAILABLE=2\n\
         geometry_msgs/PoseWithCovariance pose_with_covariance\nbool has_position_covariance\n\
         uint8 orientation_availability\ngeometry_msgs/TwistWithCovariance twist_with_covariance\nbool has_twist\n\
         bool has_twist_covariance\n",
    ),
    (
        "autoware_perception_msgs/Shape",
        "uint8 BOUNDING_BOX=0\nuint8 CYLINDER=1\nuint8 POLYGON=2\nuint8 type\ngeometry_msgs/Polygon footprint\n\
         geometry_msgs/Vector3 dimensions\n",
    ),
    (
        "visualization_msgs/Marker",
        "int32 ARROW=0\nint32 CUBE=1\nint32 SPHERE=2\nint32 CYLINDER=3\nint32 LINE_STRIP=4\nint32 LINE_LIST=5\n\
         int32 CUBE_LIST=6\nint32 SPHERE_LIST=7\nint32 POINTS=8\nint32 TEXT_VIEW_FACING=9\nint32 MESH_RESOURCE=10\n\
         int32 TRIANGLE_LIST=11\nint32 ADD=0\nint32 MODIFY=0\nint32 DELETE=2\nint32 DELETEALL=3\n\
         std_msgs/Header header\nstring ns\nint32 id\nint32 type\nint32 action\ngeometry_msgs/Pose pose\n\
         geometry_msgs/Vector3 scale\nstd_msgs/ColorRGBA color\nbuiltin_interfaces/Duration lifetime\n\
         bool frame_locked\ngeometry_msgs/Point[] points\nstd_msgs/ColorRGBA[] colors\nstring texture_resource\n\
         sensor_msgs/CompressedImage texture\nvisualization_msgs/UVCoordinate[] uv_coordinates\nstring text\n\
         string mesh_resource\nvisualization_msgs/MeshFile mesh_file\nbool mesh_use_embedded_materials\n",
    ),
    (
        "std_msgs/ColorRGBA",
        "float32 r\nfloat32 g\nfloat32 b\nfloat32 a\n",
    ),
    ("builtin_interfaces/Duration", "int32 sec\nuint32 nanosec\n"),
    (
        "sensor_msgs/CompressedImage",
        "std_msgs/Header header\nstring format\nuint8[] data\n",
    ),
    ("visualization_msgs/UVCoordinate", "float32 u\nfloat32 v\n"),
    ("visualization_msgs/MeshFile", "string filename\nuint8[] data\n"),
];
