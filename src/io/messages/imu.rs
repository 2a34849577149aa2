//! `sensor_msgs/Imu`.

use super::{HeaderMsg, QuaternionMsg, Vector3Msg};
use crate::io::cdr::{CdrError, CdrReader, CdrWriter};

/// `sensor_msgs/Imu`: what an inertial measurement unit measures. A covariance is row-major 3 x 3 over x, y, z, all 0
/// where it is not known; one that starts with -1 says that its quantity is not measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ImuMsg<'a> {
    /// Stamp, and the frame of the measurements.
    pub header: HeaderMsg<'a>,
    /// Orientation.
    pub orientation: QuaternionMsg,
    /// Its covariance in square radians.
    pub orientation_covariance: [f64; 9],
    /// Radians a second.
    pub angular_velocity: Vector3Msg,
    /// Its covariance.
    pub angular_velocity_covariance: [f64; 9],
    /// Metres a second squared, gravity included.
    pub linear_acceleration: Vector3Msg,
    /// Its covariance.
    pub linear_acceleration_covariance: [f64; 9],
}

impl<'a> ImuMsg<'a> {
    /// Decodes one message.
    ///
    /// # Errors
    /// Any [`CdrError`] of its fields.
    pub fn decode(message: &'a [u8]) -> Result<Self, CdrError> {
        let reader = &mut CdrReader::new(message)?;
        Ok(Self {
            header: HeaderMsg::read(reader)?,
            orientation: QuaternionMsg::read(reader)?,
            orientation_covariance: reader.f64_array()?,
            angular_velocity: Vector3Msg::read(reader)?,
            angular_velocity_covariance: reader.f64_array()?,
            linear_acceleration: Vector3Msg::read(reader)?,
            linear_acceleration_covariance: reader.f64_array()?,
        })
    }

    /// Encodes the message, little-endian.
    ///
    /// # Errors
    /// [`CdrError::TooLong`].
    pub fn encode(&self) -> Result<Vec<u8>, CdrError> {
        let mut writer = CdrWriter::with_capacity(self.header.frame_id.len() + 320);
        self.header.write(&mut writer)?;
        self.orientation.write(&mut writer);
        writer.f64_array(&self.orientation_covariance);
        self.angular_velocity.write(&mut writer);
        writer.f64_array(&self.angular_velocity_covariance);
        self.linear_acceleration.write(&mut writer);
        writer.f64_array(&self.linear_acceleration_covariance);
        Ok(writer.finish())
    }
}
