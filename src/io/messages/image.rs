//! `sensor_msgs/Image` and `sensor_msgs/CompressedImage`.

use super::HeaderMsg;
use crate::io::cdr::{CdrError, CdrReader, CdrWriter};

/// `sensor_msgs/Image`: raw pixels.
///
/// The fields are what the message says; whether `step`, `height` and `data` agree is for the reader of the
/// pixels to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageMsg<'a> {
    /// Stamp and frame.
    pub header: HeaderMsg<'a>,
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
    /// Pixel format as ROS names it, such as `rgb8` or `8UC3`.
    pub encoding: &'a str,
    /// Non-zero where samples wider than a byte are big-endian.
    pub is_bigendian: u8,
    /// Bytes from one row to the next.
    pub step: u32,
    /// `step * height` bytes.
    pub data: &'a [u8],
}

impl<'a> ImageMsg<'a> {
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
            encoding: reader.string()?,
            is_bigendian: reader.u8()?,
            step: reader.u32()?,
            data: reader.bytes()?,
        })
    }

    /// Encodes the message, little-endian.
    ///
    /// # Errors
    /// [`CdrError::TooLong`].
    pub fn encode(&self) -> Result<Vec<u8>, CdrError> {
        let texts = self.header.frame_id.len() + self.encoding.len();
        let mut writer = CdrWriter::with_capacity(self.data.len() + texts + 64);
        self.header.write(&mut writer)?;
        writer.u32(self.height);
        writer.u32(self.width);
        writer.string(self.encoding)?;
        writer.u8(self.is_bigendian);
        writer.u32(self.step);
        writer.bytes(self.data)?;
        Ok(writer.finish())
    }
}

/// `sensor_msgs/CompressedImage`: the bytes of a JPEG, PNG or other image file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompressedImageMsg<'a> {
    /// Stamp and frame.
    pub header: HeaderMsg<'a>,
    /// What the bytes are, as the publisher put it; see [`CompressedFormat::parse`].
    pub format: &'a str,
    /// The image file.
    pub data: &'a [u8],
}

impl<'a> CompressedImageMsg<'a> {
    /// Decodes one message.
    ///
    /// # Errors
    /// Any [`CdrError`] of its fields.
    pub fn decode(message: &'a [u8]) -> Result<Self, CdrError> {
        let reader = &mut CdrReader::new(message)?;
        Ok(Self {
            header: HeaderMsg::read(reader)?,
            format: reader.string()?,
            data: reader.bytes()?,
        })
    }

    /// Encodes the message, little-endian.
    ///
    /// # Errors
    /// [`CdrError::TooLong`].
    pub fn encode(&self) -> Result<Vec<u8>, CdrError> {
        let texts = self.header.frame_id.len() + self.format.len();
        let mut writer = CdrWriter::with_capacity(self.data.len() + texts + 64);
        self.header.write(&mut writer)?;
        writer.string(self.format)?;
        writer.bytes(self.data)?;
        Ok(writer.finish())
    }
}

/// File format of a compressed image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageCodec {
    /// JPEG.
    Jpeg,
    /// PNG.
    Png,
}

impl ImageCodec {
    /// Recognises a file by its first bytes.
    #[must_use]
    pub fn of_bytes(file: &[u8]) -> Option<Self> {
        if file.starts_with(&[0xff, 0xd8, 0xff]) {
            Some(Self::Jpeg)
        } else if file.starts_with(b"\x89PNG\r\n\x1a\n") {
            Some(Self::Png)
        } else {
            None
        }
    }

    /// The word that ROS uses for it in `CompressedImage.format`.
    #[must_use]
    pub fn ros_name(self) -> &'static str {
        match self {
            Self::Jpeg => "jpeg",
            Self::Png => "png",
        }
    }
}

/// `CompressedImage.format`, taken apart.
///
/// Publishers write a bare codec (`jpeg`, `jpg`, `png`), or as `image_transport` does the encoding of the raw
/// image, the codec and the encoding inside the file: `rgb8; jpeg compressed bgr8`. Depth images say
/// `16UC1; compressedDepth png`, whose bytes start with a header of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompressedFormat<'a> {
    /// The codec, where one is named that is known.
    pub codec: Option<ImageCodec>,
    /// Encoding of the image before compression, such as `rgb8`; `None` where it is not said.
    pub source_encoding: Option<&'a str>,
    /// Encoding of the pixels inside the file, such as `bgr8`; `None` where it is not said.
    pub stored_encoding: Option<&'a str>,
    /// The bytes are a `compressedDepth` image, not a plain image file.
    pub depth: bool,
}

impl<'a> CompressedFormat<'a> {
    /// Takes a format text apart. Every text has an answer: what is not recognised stays `None`.
    #[must_use]
    pub fn parse(format: &'a str) -> Self {
        let (source, rest) = match format.split_once(';') {
            Some((source, rest)) => (Some(source.trim()).filter(|s| !s.is_empty()), rest),
            None => (None, format),
        };
        let mut parsed = Self {
            codec: None,
            source_encoding: source,
            stored_encoding: None,
            depth: false,
        };
        for word in rest.split_whitespace() {
            if word.eq_ignore_ascii_case("jpeg") || word.eq_ignore_ascii_case("jpg") {
                parsed.codec = Some(ImageCodec::Jpeg);
            } else if word.eq_ignore_ascii_case("png") {
                parsed.codec = Some(ImageCodec::Png);
            } else if word.eq_ignore_ascii_case("compressedDepth") {
                parsed.depth = true;
            } else if !word.eq_ignore_ascii_case("compressed") && source.is_some() {
                parsed.stored_encoding = Some(word);
            }
        }
        parsed
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn image<'a>(frame_id: &'a str, data: &'a [u8]) -> ImageMsg<'a> {
        ImageMsg {
            header: HeaderMsg::new(1_700_000_000_123_456_789, frame_id).unwrap(),
            height: 2,
            width: 3,
            encoding: "bgr8",
            is_bigendian: 0,
            step: 9,
            data,
        }
    }

    #[test]
    fn an_image_survives_encoding_and_decoding_at_every_alignment() {
        let data: Vec<u8> = (0..18).collect();
        for frame_id in ["", "c", "ca", "cam", "came", "camer"] {
            let message = image(frame_id, &data);
            assert_eq!(ImageMsg::decode(&message.encode().unwrap()), Ok(message));
        }
    }

    #[test]
    fn every_truncation_of_an_image_is_a_typed_error() {
        let data = [5; 18];
        let bytes = image("camera", &data).encode().unwrap();
        for len in 0..bytes.len() {
            let error = ImageMsg::decode(&bytes[..len]).unwrap_err();
            assert!(
                matches!(error, CdrError::TooShort { .. } | CdrError::NoHeader { .. }),
                "{len}: {error}"
            );
        }
    }

    #[test]
    fn compressed_formats_of_the_field_are_taken_apart() {
        let of = CompressedFormat::parse;
        assert_eq!(of("jpeg").codec, Some(ImageCodec::Jpeg));
        assert_eq!(of("JPG").codec, Some(ImageCodec::Jpeg));
        assert_eq!(of("png").codec, Some(ImageCodec::Png));
        let transport = of("rgb8; jpeg compressed bgr8");
        assert_eq!(transport.source_encoding, Some("rgb8"));
        assert_eq!(
            (transport.codec, transport.stored_encoding),
            (Some(ImageCodec::Jpeg), Some("bgr8"))
        );
        assert_eq!(of("mono8; png compressed ").stored_encoding, None);
        let depth = of("16UC1; compressedDepth png");
        assert!(depth.depth && depth.codec == Some(ImageCodec::Png) && depth.stored_encoding.is_none());
        assert_eq!(of("h264").codec, None);
        assert_eq!(of("").codec, None);
    }
}
