//! The parts of `geometry_msgs` that other messages are made of.

use crate::io::cdr::{CdrError, CdrReader, CdrWriter};

/// `geometry_msgs/Vector3`, and `geometry_msgs/Point`, which is laid out alike.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[expect(missing_docs, reason = "the names say it; the unit is the user's")]
pub struct Vector3Msg {
    pub x: f64,
    pub y: f64,
    pub z: f64,
}

impl Vector3Msg {
    pub(super) fn read(reader: &mut CdrReader<'_>) -> Result<Self, CdrError> {
        let [x, y, z] = reader.f64_array()?;
        Ok(Self { x, y, z })
    }

    pub(super) fn write(&self, writer: &mut CdrWriter) {
        writer.f64_array(&[self.x, self.y, self.z]);
    }
}

/// `geometry_msgs/Quaternion`: a rotation; of length 1 where the publisher is right.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct QuaternionMsg {
    pub x: f64,
    pub y: f64,
    pub z: f64,
    pub w: f64,
}

impl Default for QuaternionMsg {
    /// No rotation, the default of the ROS definition.
    fn default() -> Self {
        Self {
            x: 0.0,
            y: 0.0,
            z: 0.0,
            w: 1.0,
        }
    }
}

impl QuaternionMsg {
    pub(super) fn read(reader: &mut CdrReader<'_>) -> Result<Self, CdrError> {
        let [x, y, z, w] = reader.f64_array()?;
        Ok(Self { x, y, z, w })
    }

    pub(super) fn write(&self, writer: &mut CdrWriter) {
        writer.f64_array(&[self.x, self.y, self.z, self.w]);
    }
}

/// `geometry_msgs/Transform`: takes points of the child frame to the parent frame.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TransformMsg {
    /// Origin of the child in the parent, in metres.
    pub translation: Vector3Msg,
    /// Orientation of the child in the parent.
    pub rotation: QuaternionMsg,
}

impl TransformMsg {
    pub(super) fn read(reader: &mut CdrReader<'_>) -> Result<Self, CdrError> {
        Ok(Self {
            translation: Vector3Msg::read(reader)?,
            rotation: QuaternionMsg::read(reader)?,
        })
    }

    pub(super) fn write(&self, writer: &mut CdrWriter) {
        self.translation.write(writer);
        self.rotation.write(writer);
    }
}

/// `geometry_msgs/Pose`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PoseMsg {
    /// Metres.
    pub position: Vector3Msg,
    /// Orientation.
    pub orientation: QuaternionMsg,
}

impl PoseMsg {
    pub(super) fn read(reader: &mut CdrReader<'_>) -> Result<Self, CdrError> {
        Ok(Self {
            position: Vector3Msg::read(reader)?,
            orientation: QuaternionMsg::read(reader)?,
        })
    }

    pub(super) fn write(&self, writer: &mut CdrWriter) {
        self.position.write(writer);
        self.orientation.write(writer);
    }
}

/// `geometry_msgs/PoseWithCovariance`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PoseWithCovarianceMsg {
    /// The pose.
    pub pose: PoseMsg,
    /// Row-major 6 x 6 over x, y, z in metres and rotations about x, y, z in radians.
    pub covariance: [f64; 36],
}

impl Default for PoseWithCovarianceMsg {
    fn default() -> Self {
        Self {
            pose: PoseMsg::default(),
            covariance: [0.0; 36],
        }
    }
}

impl PoseWithCovarianceMsg {
    pub(super) fn read(reader: &mut CdrReader<'_>) -> Result<Self, CdrError> {
        Ok(Self {
            pose: PoseMsg::read(reader)?,
            covariance: reader.f64_array()?,
        })
    }

    pub(super) fn write(&self, writer: &mut CdrWriter) {
        self.pose.write(writer);
        writer.f64_array(&self.covariance);
    }
}

/// `geometry_msgs/Twist`: velocities.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TwistMsg {
    /// Metres a second.
    pub linear: Vector3Msg,
    /// Radians a second.
    pub angular: Vector3Msg,
}

impl TwistMsg {
    pub(super) fn read(reader: &mut CdrReader<'_>) -> Result<Self, CdrError> {
        Ok(Self {
            linear: Vector3Msg::read(reader)?,
            angular: Vector3Msg::read(reader)?,
        })
    }

    pub(super) fn write(&self, writer: &mut CdrWriter) {
        self.linear.write(writer);
        self.angular.write(writer);
    }
}

/// `geometry_msgs/TwistWithCovariance`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TwistWithCovarianceMsg {
    /// The velocities.
    pub twist: TwistMsg,
    /// Row-major 6 x 6 over linear x, y, z and angular x, y, z.
    pub covariance: [f64; 36],
}

impl Default for TwistWithCovarianceMsg {
    fn default() -> Self {
        Self {
            twist: TwistMsg::default(),
            covariance: [0.0; 36],
        }
    }
}

impl TwistWithCovarianceMsg {
    pub(super) fn read(reader: &mut CdrReader<'_>) -> Result<Self, CdrError> {
        Ok(Self {
            twist: TwistMsg::read(reader)?,
            covariance: reader.f64_array()?,
        })
    }

    pub(super) fn write(&self, writer: &mut CdrWriter) {
        self.twist.write(writer);
        writer.f64_array(&self.covariance);
    }
}
