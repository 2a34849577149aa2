//! `autoware_perception_msgs/DetectedObjects`.

use super::{HeaderMsg, PoseWithCovarianceMsg, QuaternionMsg, TwistWithCovarianceMsg, Vector3Msg};
use crate::io::cdr::{CdrError, CdrReader, CdrWriter};
use crate::outputs::{DetectedObject, ObjectLabel};

/// Numbers of `autoware_perception_msgs/Shape.type`.
pub mod shape_type {
    /// A box of `dimensions`.
    pub const BOUNDING_BOX: u8 = 0;
    /// A cylinder.
    pub const CYLINDER: u8 = 1;
    /// A prism over `footprint`.
    pub const POLYGON: u8 = 2;
}

/// `autoware_perception_msgs/ObjectClassification`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ObjectClassificationMsg {
    /// Class; see [`ObjectLabel`] for 0 to 7, and 8 animal, 9 hazard, 10 over-drivable, 11 under-drivable.
    pub label: u8,
    /// Probability of the class.
    pub probability: f32,
}

/// `autoware_perception_msgs/DetectedObjectKinematics`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DetectedObjectKinematicsMsg {
    /// Middle of the object, in the frame of the message.
    pub pose_with_covariance: PoseWithCovarianceMsg,
    /// The pose's covariance is filled in.
    pub has_position_covariance: bool,
    /// See [`OrientationAvailability`](crate::outputs::OrientationAvailability).
    pub orientation_availability: u8,
    /// Movement in the object's own frame.
    pub twist_with_covariance: TwistWithCovarianceMsg,
    /// The twist is filled in.
    pub has_twist: bool,
    /// The twist's covariance is filled in.
    pub has_twist_covariance: bool,
}

/// `autoware_perception_msgs/Shape`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ShapeMsg {
    /// One of [`shape_type`].
    pub shape_type: u8,
    /// Corners of a polygon on the ground, in metres.
    pub footprint: Vec<[f32; 3]>,
    /// Length, width and height in metres.
    pub dimensions: Vector3Msg,
}

/// `autoware_perception_msgs/DetectedObject`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DetectedObjectMsg {
    /// Probability that the object is there.
    pub existence_probability: f32,
    /// Classes it may be of.
    pub classification: Vec<ObjectClassificationMsg>,
    /// Where it is and how it moves.
    pub kinematics: DetectedObjectKinematicsMsg,
    /// How large it is.
    pub shape: ShapeMsg,
}

/// `autoware_perception_msgs/DetectedObjects`.
#[derive(Debug, Clone, PartialEq)]
pub struct DetectedObjectsMsg<'a> {
    /// Stamp and frame, those of the cloud or image.
    pub header: HeaderMsg<'a>,
    /// The objects.
    pub objects: Vec<DetectedObjectMsg>,
}

/// Bytes of a pose or a twist with covariance, without padding.
const POSE_BYTES: usize = 8 * (7 + 36);
const TWIST_BYTES: usize = 8 * (6 + 36);
/// Least bytes of an object: two empty sequences, four flags, a shape's type and size beside pose and twist.
pub(super) const OBJECT_MIN_BYTES: usize = 4 + 4 + POSE_BYTES + 2 + TWIST_BYTES + 2 + 1 + 4 + 24;
/// Least bytes of a classification: the last one of a message has no padding behind its label's.
const CLASSIFICATION_MIN_BYTES: usize = 5;
const POINT32_BYTES: usize = 12;

impl<'a> DetectedObjectsMsg<'a> {
    /// Decodes one message.
    ///
    /// # Errors
    /// Any [`CdrError`] of its fields.
    pub fn decode(message: &'a [u8]) -> Result<Self, CdrError> {
        let reader = &mut CdrReader::new(message)?;
        let header = HeaderMsg::read(reader)?;
        let count = reader.sequence_len(OBJECT_MIN_BYTES)?;
        let mut objects = Vec::with_capacity(count);
        for _ in 0..count {
            objects.push(DetectedObjectMsg::read(reader)?);
        }
        Ok(Self { header, objects })
    }

    /// Encodes the message, little-endian.
    ///
    /// # Errors
    /// [`CdrError::TooLong`].
    pub fn encode(&self) -> Result<Vec<u8>, CdrError> {
        let room = self.header.frame_id.len() + 32 + self.objects.len() * (OBJECT_MIN_BYTES + 32);
        let mut writer = CdrWriter::with_capacity(room);
        self.header.write(&mut writer)?;
        writer.len_prefix(self.objects.len())?;
        for object in &self.objects {
            object.write(&mut writer)?;
        }
        Ok(writer.finish())
    }
}

impl DetectedObjectMsg {
    pub(super) fn read(reader: &mut CdrReader<'_>) -> Result<Self, CdrError> {
        let existence_probability = reader.f32()?;
        let classes = reader.sequence_len(CLASSIFICATION_MIN_BYTES)?;
        let mut classification = Vec::with_capacity(classes);
        for _ in 0..classes {
            classification.push(ObjectClassificationMsg {
                label: reader.u8()?,
                probability: reader.f32()?,
            });
        }
        let kinematics = DetectedObjectKinematicsMsg {
            pose_with_covariance: PoseWithCovarianceMsg::read(reader)?,
            has_position_covariance: reader.bool()?,
            orientation_availability: reader.u8()?,
            twist_with_covariance: TwistWithCovarianceMsg::read(reader)?,
            has_twist: reader.bool()?,
            has_twist_covariance: reader.bool()?,
        };
        let shape_type = reader.u8()?;
        let corners = reader.sequence_len(POINT32_BYTES)?;
        let mut footprint = Vec::with_capacity(corners);
        for _ in 0..corners {
            footprint.push([reader.f32()?, reader.f32()?, reader.f32()?]);
        }
        Ok(Self {
            existence_probability,
            classification,
            kinematics,
            shape: ShapeMsg {
                shape_type,
                footprint,
                dimensions: Vector3Msg::read(reader)?,
            },
        })
    }

    pub(super) fn write(&self, writer: &mut CdrWriter) -> Result<(), CdrError> {
        writer.f32(self.existence_probability);
        writer.len_prefix(self.classification.len())?;
        for class in &self.classification {
            writer.u8(class.label);
            writer.f32(class.probability);
        }
        let kinematics = &self.kinematics;
        kinematics.pose_with_covariance.write(writer);
        writer.bool(kinematics.has_position_covariance);
        writer.u8(kinematics.orientation_availability);
        kinematics.twist_with_covariance.write(writer);
        writer.bool(kinematics.has_twist);
        writer.bool(kinematics.has_twist_covariance);
        writer.u8(self.shape.shape_type);
        writer.len_prefix(self.shape.footprint.len())?;
        for corner in &self.shape.footprint {
            corner.iter().for_each(|&value| writer.f32(value));
        }
        self.shape.dimensions.write(writer);
        Ok(())
    }
}

/// Places of variances in a covariance over x, y, z and rotations about x, y, z.
const VARIANCE: [usize; 6] = [0, 7, 14, 21, 28, 35];

impl From<&DetectedObject> for DetectedObjectMsg {
    /// The message of Autoware's LiDAR detectors: one class of probability 1, a bounding box, the score as probability
    /// of existence.
    ///
    /// Variances that a network does not say are 0 in the covariances, and the flags tell whether to read them at all.
    fn from(object: &DetectedObject) -> Self {
        let vector = |[x, y, z]: [f64; 3]| Vector3Msg { x, y, z };
        let mut kinematics = DetectedObjectKinematicsMsg {
            has_position_covariance: object.pose_variance.is_some(),
            orientation_availability: object.orientation as u8,
            has_twist: object.twist.is_some(),
            has_twist_covariance: object.twist_variance.is_some(),
            ..DetectedObjectKinematicsMsg::default()
        };
        let pose = &mut kinematics.pose_with_covariance;
        pose.pose.position = vector(object.position_m);
        pose.pose.orientation = QuaternionMsg {
            z: (object.yaw_rad / 2.0).sin(),
            w: (object.yaw_rad / 2.0).cos(),
            ..QuaternionMsg::default()
        };
        if let Some(variance) = &object.pose_variance {
            let [x, y, z] = variance.position_m2;
            for (at, value) in [(0, x), (1, y), (2, z), (5, variance.yaw_rad2)] {
                pose.covariance[VARIANCE[at]] = value;
            }
        }
        let twist = &mut kinematics.twist_with_covariance;
        if let Some(of) = &object.twist {
            twist.twist.linear = vector([of.linear_x_mps, of.linear_y_mps, 0.0]);
            twist.twist.angular = vector([0.0, 0.0, of.angular_z_radps]);
        }
        if let Some([x, y]) = object.twist_variance {
            twist.covariance[VARIANCE[0]] = x;
            twist.covariance[VARIANCE[1]] = y;
        }
        Self {
            existence_probability: object.score,
            classification: vec![ObjectClassificationMsg {
                label: object.label as u8,
                probability: 1.0,
            }],
            kinematics,
            shape: ShapeMsg {
                shape_type: shape_type::BOUNDING_BOX,
                footprint: Vec::new(),
                dimensions: vector(object.size_m),
            },
        }
    }
}

impl DetectedObjectMsg {
    /// The class of the highest probability, the first of equals; unknown for an object without one and for labels
    /// beyond [`ObjectLabel`].
    #[must_use]
    pub fn label(&self) -> ObjectLabel {
        let best = self.classification.iter().reduce(|best, class| {
            if class.probability > best.probability {
                class
            } else {
                best
            }
        });
        match best.map_or(0, |class| class.label) {
            1 => ObjectLabel::Car,
            2 => ObjectLabel::Truck,
            3 => ObjectLabel::Bus,
            4 => ObjectLabel::Trailer,
            5 => ObjectLabel::Motorcycle,
            6 => ObjectLabel::Bicycle,
            7 => ObjectLabel::Pedestrian,
            _ => ObjectLabel::Unknown,
        }
    }
}
