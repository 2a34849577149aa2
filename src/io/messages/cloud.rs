//! `sensor_msgs/PointCloud2`.

use smallvec::SmallVec;

use super::HeaderMsg;
use crate::io::cdr::{CdrError, CdrReader, CdrWriter};

/// Numbers of `sensor_msgs/PointField.datatype`.
#[expect(missing_docs, reason = "the names say it")]
pub mod field_type {
    pub const INT8: u8 = 1;
    pub const UINT8: u8 = 2;
    pub const INT16: u8 = 3;
    pub const UINT16: u8 = 4;
    pub const INT32: u8 = 5;
    pub const UINT32: u8 = 6;
    pub const FLOAT32: u8 = 7;
    pub const FLOAT64: u8 = 8;
}

/// `sensor_msgs/PointField`: where one property of a point is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointFieldMsg<'a> {
    /// Name, such as `x` or `intensity`.
    pub name: &'a str,
    /// Bytes from the start of a point.
    pub offset: u32,
    /// Element type, one of [`field_type`].
    pub datatype: u8,
    /// Elements of that type; some publishers write 0 for 1.
    pub count: u32,
}

/// Fields of a cloud; as many as any known sensor has stay off the heap.
pub type PointFields<'a> = SmallVec<[PointFieldMsg<'a>; 16]>;

/// `sensor_msgs/PointCloud2`: points as a table of bytes.
///
/// The fields are what the message says; [`read_cloud`](crate::io::cloud::read_cloud) checks that they agree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PointCloud2Msg<'a> {
    /// Stamp and frame.
    pub header: HeaderMsg<'a>,
    /// Rows; 1 for a cloud without order.
    pub height: u32,
    /// Points in a row.
    pub width: u32,
    /// What a point is made of.
    pub fields: PointFields<'a>,
    /// Values in `data` are big-endian.
    pub is_bigendian: bool,
    /// Bytes from one point to the next.
    pub point_step: u32,
    /// Bytes from one row to the next.
    pub row_step: u32,
    /// The points.
    pub data: &'a [u8],
    /// The publisher holds that no coordinate is NaN or infinite.
    pub is_dense: bool,
}

/// Least bytes of a field: two lengths, an offset and a type.
const FIELD_MIN_BYTES: usize = 4 + 4 + 1 + 4;

impl<'a> PointCloud2Msg<'a> {
    /// Least bytes of a cloud: a stamp, three lengths, four sizes, two flags.
    pub(super) const MIN_BYTES: usize = 8 + 3 * 4 + 4 * 4 + 2;

    /// Decodes one message.
    ///
    /// # Errors
    /// Any [`CdrError`] of its fields.
    pub fn decode(message: &'a [u8]) -> Result<Self, CdrError> {
        Self::read(&mut CdrReader::new(message)?)
    }

    /// Encodes the message, little-endian.
    ///
    /// # Errors
    /// [`CdrError::TooLong`].
    pub fn encode(&self) -> Result<Vec<u8>, CdrError> {
        let names: usize = self.fields.iter().map(|field| field.name.len() + 20).sum();
        let texts = self.header.frame_id.len() + names;
        let mut writer = CdrWriter::with_capacity(self.data.len() + texts + 64);
        self.write(&mut writer)?;
        Ok(writer.finish())
    }

    pub(super) fn read(reader: &mut CdrReader<'a>) -> Result<Self, CdrError> {
        let header = HeaderMsg::read(reader)?;
        let height = reader.u32()?;
        let width = reader.u32()?;
        let count = reader.sequence_len(FIELD_MIN_BYTES)?;
        let mut fields = PointFields::with_capacity(count);
        for _ in 0..count {
            fields.push(PointFieldMsg {
                name: reader.string()?,
                offset: reader.u32()?,
                datatype: reader.u8()?,
                count: reader.u32()?,
            });
        }
        Ok(Self {
            header,
            height,
            width,
            fields,
            is_bigendian: reader.bool()?,
            point_step: reader.u32()?,
            row_step: reader.u32()?,
            data: reader.bytes()?,
            is_dense: reader.bool()?,
        })
    }

    pub(super) fn write(&self, writer: &mut CdrWriter) -> Result<(), CdrError> {
        self.header.write(writer)?;
        writer.u32(self.height);
        writer.u32(self.width);
        writer.len_prefix(self.fields.len())?;
        for field in &self.fields {
            writer.string(field.name)?;
            writer.u32(field.offset);
            writer.u8(field.datatype);
            writer.u32(field.count);
        }
        writer.bool(self.is_bigendian);
        writer.u32(self.point_step);
        writer.u32(self.row_step);
        writer.bytes(self.data)?;
        writer.bool(self.is_dense);
        Ok(())
    }
}
