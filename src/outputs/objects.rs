//! Objects on the road.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Classes of Autoware's `ObjectClassification`, with its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[repr(u8)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ObjectLabel {
    Unknown = 0,
    Car = 1,
    Truck = 2,
    Bus = 3,
    Trailer = 4,
    Motorcycle = 5,
    Bicycle = 6,
    Pedestrian = 7,
}

impl ObjectLabel {
    /// Every class, by its number.
    pub const ALL: [Self; 8] = [
        Self::Unknown,
        Self::Car,
        Self::Truck,
        Self::Bus,
        Self::Trailer,
        Self::Motorcycle,
        Self::Bicycle,
        Self::Pedestrian,
    ];

    /// The name in capitals, as parameter files spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Car => "CAR",
            Self::Truck => "TRUCK",
            Self::Bus => "BUS",
            Self::Trailer => "TRAILER",
            Self::Motorcycle => "MOTORCYCLE",
            Self::Bicycle => "BICYCLE",
            Self::Pedestrian => "PEDESTRIAN",
        }
    }
}

/// What is known of an object's heading, with the numbers of Autoware's `DetectedObjectKinematics`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum OrientationAvailability {
    /// Nothing.
    Unavailable = 0,
    /// The axis, not which end is the front.
    SignUnknown = 1,
    /// All of it.
    Available = 2,
}

/// Movement in the object's own frame (x forward).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Twist2D {
    /// Forward speed in m/s.
    pub linear_x_mps: f64,
    /// Speed to the left in m/s.
    pub linear_y_mps: f64,
    /// Turn rate in rad/s, counter-clockwise.
    pub angular_z_radps: f64,
}

/// Variances of an object's pose, as far as a network says them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PoseVariance {
    /// Variances of x, y and z in m².
    pub position_m2: [f64; 3],
    /// Variance of the yaw angle in rad².
    pub yaw_rad2: f64,
}

/// A box around an object, standing upright on the road.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DetectedObject {
    /// The class.
    pub label: ObjectLabel,
    /// Probability that the object is there, 0 to 1.
    pub score: f32,
    /// Middle of the box in metres, in the frame of the cloud.
    pub position_m: [f64; 3],
    /// Heading in radians, counter-clockwise from x, in -π to π.
    pub yaw_rad: f64,
    /// Length (along the heading), width and height in metres.
    pub size_m: [f64; 3],
    /// How far `yaw_rad` is to be trusted.
    pub orientation: OrientationAvailability,
    /// Movement, where the network says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub twist: Option<Twist2D>,
    /// Variances of the pose, where the network says them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pose_variance: Option<PoseVariance>,
    /// Variances of the speed forward and to the left in m²/s², where the network says them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub twist_variance: Option<[f64; 2]>,
}

/// The objects detected in one sweep or set of sensors.
#[derive(Debug, Clone, PartialEq)]
pub struct DetectedObjects {
    /// The objects, best score first.
    pub objects: Vec<DetectedObject>,
    /// Name of the model that made them.
    pub model: Arc<str>,
    /// Coordinate frame that positions and headings refer to.
    pub frame_id: Arc<str>,
}
