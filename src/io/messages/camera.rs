//! `sensor_msgs/CameraInfo`.

use super::HeaderMsg;
use crate::io::cdr::{CdrError, CdrReader, CdrWriter};

/// `sensor_msgs/RegionOfInterest`: a window of an image, in pixels of the full image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RegionOfInterestMsg {
    /// Leftmost column.
    pub x_offset: u32,
    /// Topmost row.
    pub y_offset: u32,
    /// Rows; in a [`CameraInfoMsg`] 0 for all.
    pub height: u32,
    /// Columns; in a [`CameraInfoMsg`] 0 for all.
    pub width: u32,
    /// A window other than the full image is to be rectified for its own sake.
    pub do_rectify: bool,
}

impl RegionOfInterestMsg {
    /// Bytes of a window without padding.
    pub(super) const BYTES: usize = 4 * 4 + 1;

    pub(super) fn read(reader: &mut CdrReader<'_>) -> Result<Self, CdrError> {
        Ok(Self {
            x_offset: reader.u32()?,
            y_offset: reader.u32()?,
            height: reader.u32()?,
            width: reader.u32()?,
            do_rectify: reader.bool()?,
        })
    }

    pub(super) fn write(&self, writer: &mut CdrWriter) {
        for value in [self.x_offset, self.y_offset, self.height, self.width] {
            writer.u32(value);
        }
        writer.bool(self.do_rectify);
    }
}

/// `sensor_msgs/CameraInfo`: how a camera maps directions to pixels.
#[derive(Debug, Clone, PartialEq)]
pub struct CameraInfoMsg<'a> {
    /// Stamp of the image, frame of the camera (z forwards, x to the right).
    pub header: HeaderMsg<'a>,
    /// Rows of the calibrated image.
    pub height: u32,
    /// Columns of the calibrated image.
    pub width: u32,
    /// Such as `plumb_bob`, which has 5 parameters, or `equidistant`.
    pub distortion_model: &'a str,
    /// Parameters of the distortion.
    pub d: Vec<f64>,
    /// Camera matrix of the raw image, row-major 3 x 3, in pixels; its first element is 0 for a camera that is not
    /// calibrated.
    pub k: [f64; 9],
    /// Rotation that rectifies, row-major 3 x 3.
    pub r: [f64; 9],
    /// Projection matrix of the rectified image, row-major 3 x 4, in pixels.
    pub p: [f64; 12],
    /// Columns that make one; 0 and 1 say that none were joined.
    pub binning_x: u32,
    /// Rows that make one; 0 and 1 say that none were joined.
    pub binning_y: u32,
    /// The window that was recorded, before columns and rows were joined.
    pub roi: RegionOfInterestMsg,
}

impl<'a> CameraInfoMsg<'a> {
    /// Decodes one message.
    ///
    /// # Errors
    /// Any [`CdrError`] of its fields.
    pub fn decode(message: &'a [u8]) -> Result<Self, CdrError> {
        let reader = &mut CdrReader::new(message)?;
        Ok(Self {
            header: HeaderMsg::read(reader)?,
            height: reader.u32()?,
            width: reader.u32()?,
            distortion_model: reader.string()?,
            d: {
                let count = reader.sequence_len(size_of::<f64>())?;
                let mut parameters = Vec::with_capacity(count);
                for _ in 0..count {
                    parameters.push(reader.f64()?);
                }
                parameters
            },
            k: reader.f64_array()?,
            r: reader.f64_array()?,
            p: reader.f64_array()?,
            binning_x: reader.u32()?,
            binning_y: reader.u32()?,
            roi: RegionOfInterestMsg::read(reader)?,
        })
    }

    /// Encodes the message, little-endian.
    ///
    /// # Errors
    /// [`CdrError::TooLong`].
    pub fn encode(&self) -> Result<Vec<u8>, CdrError> {
        let texts = self.header.frame_id.len() + self.distortion_model.len();
        let mut writer = CdrWriter::with_capacity(texts + 8 * self.d.len() + 340);
        self.header.write(&mut writer)?;
        writer.u32(self.height);
        writer.u32(self.width);
        writer.string(self.distortion_model)?;
        writer.len_prefix(self.d.len())?;
        self.d.iter().for_each(|&parameter| writer.f64(parameter));
        writer.f64_array(&self.k);
        writer.f64_array(&self.r);
        writer.f64_array(&self.p);
        writer.u32(self.binning_x);
        writer.u32(self.binning_y);
        self.roi.write(&mut writer);
        Ok(writer.finish())
    }
}
