//! From decoded boxes to objects, as Autoware's `box3DToDetectedObject` of each detector does.

use std::f64::consts::{FRAC_PI_2, PI};

use super::boxes::Box3d;
use super::rounded::sin_cos;
use crate::outputs::{DetectedObject, ObjectLabel, OrientationAvailability, PoseVariance, Twist2D};

/// How a network's angle becomes a heading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum YawRule {
    /// `-yaw - π/2`: CenterPoint, trained in mmdetection3d's old frame.
    CenterPoint,
    /// `yaw + π/2`: TransFusion.
    TransFusion,
    /// `yaw`: BEVFusion.
    BevFusion,
}

impl YawRule {
    /// Heading in radians, computed in float64 and rounded to float32 as the nodes do; not brought into -π to π.
    #[must_use]
    pub fn heading(self, yaw_rad: f32) -> f32 {
        let yaw = f64::from(yaw_rad);
        match self {
            Self::CenterPoint => (-yaw - FRAC_PI_2) as f32,
            Self::TransFusion => (yaw + FRAC_PI_2) as f32,
            Self::BevFusion => yaw_rad,
        }
    }
}

/// The class that a name in `class_names` means: Autoware's names in capitals; `MOTORBIKE` (CenterPoint) and `MOTORCYCLE`
/// (the other detectors) are the same class. Any other name is unknown.
#[must_use]
pub fn semantic_label(class_name: &str) -> ObjectLabel {
    match class_name {
        "CAR" => ObjectLabel::Car,
        "TRUCK" => ObjectLabel::Truck,
        "BUS" => ObjectLabel::Bus,
        "TRAILER" => ObjectLabel::Trailer,
        "MOTORBIKE" | "MOTORCYCLE" => ObjectLabel::Motorcycle,
        "BICYCLE" => ObjectLabel::Bicycle,
        "PEDESTRIAN" => ObjectLabel::Pedestrian,
        _ => ObjectLabel::Unknown,
    }
}

/// Whether front and back of a class look alike to a LiDAR network: Autoware's car-like vehicles.
#[must_use]
pub const fn is_car_like(label: ObjectLabel) -> bool {
    matches!(
        label,
        ObjectLabel::Car | ObjectLabel::Truck | ObjectLabel::Bus | ObjectLabel::Trailer
    )
}

/// How boxes become objects.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectRules {
    labels: Vec<ObjectLabel>,
    yaw: YawRule,
    has_twist: bool,
}

impl ObjectRules {
    /// Rules for a network with these classes, in the order of its head. Twists are reported if `has_twist`.
    #[must_use]
    pub fn new<S: AsRef<str>>(class_names: &[S], yaw: YawRule, has_twist: bool) -> Self {
        Self {
            labels: class_names
                .iter()
                .map(|name| semantic_label(name.as_ref()))
                .collect(),
            yaw,
            has_twist,
        }
    }

    /// The object of a box. Boxes of classes without a name are unknown objects. Orientations of car-like objects have an
    /// unknown sign, all others none that is to be relied on. The twist is in the object's frame and does not turn;
    /// variances of the speed are those of its axes, in float32.
    #[must_use]
    pub fn object(&self, decoded: &Box3d) -> DetectedObject {
        let label = self
            .labels
            .get(decoded.label as usize)
            .copied()
            .unwrap_or(ObjectLabel::Unknown);
        let heading = self.yaw.heading(decoded.yaw_rad);
        let variance = decoded.variance.as_ref();
        let (twist, twist_variance) = if self.has_twist {
            let (sin, cos) = sin_cos(heading);
            let [vx, vy] = decoded.velocity_mps;
            let twist = Twist2D {
                linear_x_mps: f64::from(cos * vx + sin * vy),
                linear_y_mps: f64::from(-sin * vx + cos * vy),
                angular_z_radps: 0.0,
            };
            let turned = variance.map(|v| {
                let [x, y] = v.velocity_m2ps2;
                [x * cos * cos + y * sin * sin, x * sin * sin + y * cos * cos].map(f64::from)
            });
            (Some(twist), turned)
        } else {
            (None, None)
        };
        DetectedObject {
            label,
            score: decoded.score,
            position_m: decoded.position_m.map(f64::from),
            yaw_rad: wrapped(f64::from(heading)),
            size_m: decoded.size_m.map(f64::from),
            orientation: if is_car_like(label) {
                OrientationAvailability::SignUnknown
            } else {
                OrientationAvailability::Unavailable
            },
            twist,
            pose_variance: variance.map(|v| PoseVariance {
                position_m2: v.position_m2.map(f64::from),
                yaw_rad2: f64::from(v.yaw_rad2),
            }),
            twist_variance,
        }
    }
}

/// Appends the objects of `boxes` to `out`, in their order.
pub fn to_detected_objects(boxes: &[Box3d], rules: &ObjectRules, out: &mut Vec<DetectedObject>) {
    out.extend(boxes.iter().map(|decoded| rules.object(decoded)));
}

/// An angle brought into -π to π; one that is there already is left as it is.
pub(super) fn wrapped(angle_rad: f64) -> f64 {
    if (-PI..=PI).contains(&angle_rad) || !angle_rad.is_finite() {
        return angle_rad;
    }
    let turned = (angle_rad + PI).rem_euclid(2.0 * PI) - PI;
    turned.clamp(-PI, PI)
}
