//! How the bytes of a frame are to be read.

use std::fmt;

use super::ImageError;

/// What [`PixelFormat::from_ros_encoding`] accepts, for error messages.
pub(super) const ACCEPTED_ENCODINGS: &str = "rgb8, bgr8, rgba8, bgra8, mono8, mono16, 8UC1, 8UC3, 8UC4, \
     yuv422, uyvy, yuv422_yuy2, yuyv, nv12, nv21, bayer_rggb8, bayer_bggr8, bayer_gbrg8, bayer_grbg8";

/// Layout of the pixels of a frame.
///
/// The first five are *interleaved*: bytes of a pixel side by side, which is what every resize reads. The
/// others are converted to [`PixelFormat::interleaved`] row by row, only the rows that are needed; the pixels
/// are those of OpenCV's `cvtColor`, bit for bit (`tests/images/image_formats.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PixelFormat {
    /// Red, green, blue.
    Rgb8,
    /// Blue, green, red.
    Bgr8,
    /// Red, green, blue, alpha.
    Rgba8,
    /// Blue, green, red, alpha.
    Bgra8,
    /// One grey channel.
    Mono8,
    /// One grey channel of 16 bits, low byte first. Becomes 8 bits by `round(value * 255 / 65535)`, as
    /// `cv_bridge` does it.
    Mono16,
    /// [`PixelFormat::Mono16`], high byte first.
    Mono16Be,
    /// Pairs of pixels as U, Y, V, Y (`UYVY`), BT.601 with Y from 16 to 235.
    Yuv422,
    /// Pairs of pixels as Y, U, Y, V (`YUYV`, `YUY2`), BT.601 with Y from 16 to 235.
    Yuv422Yuy2,
    /// `height` rows of Y, below them `height / 2` rows of U, V pairs, one pair for 2 x 2 pixels; all rows
    /// are `step` apart. BT.601 with Y from 16 to 235.
    Nv12,
    /// [`PixelFormat::Nv12`] with V before U.
    Nv21,
    /// A colour mosaic whose top left 2 x 2 pixels are red, green; green, blue. Becomes colour by bilinear
    /// interpolation; the outermost pixels repeat their inner neighbours. OpenCV calls this one `BayerBG`.
    BayerRggb8,
    /// A colour mosaic that starts with blue, green; green, red. OpenCV calls it `BayerRG`.
    BayerBggr8,
    /// A colour mosaic that starts with green, blue; red, green. OpenCV calls it `BayerGR`.
    BayerGbrg8,
    /// A colour mosaic that starts with green, red; blue, green. OpenCV calls it `BayerGB`.
    BayerGrbg8,
}

impl PixelFormat {
    /// The format that a `sensor_msgs/Image.encoding` names; 16-bit samples low byte first, see
    /// [`PixelFormat::in_byte_order`].
    ///
    /// The OpenCV type names among the encodings carry no colour order: `8UC1` is read as grey, `8UC3` and
    /// `8UC4` as blue, green, red (, alpha), the order in which OpenCV (and with it `cv_bridge`) keeps colour.
    ///
    /// # Errors
    /// [`ImageError::UnsupportedEncoding`] for everything else. `16UC1` and `32FC1` are among that: they
    /// carry depth or counts, not grey levels; a camera that means grey says `mono16`.
    pub fn from_ros_encoding(encoding: &str) -> Result<Self, ImageError> {
        Ok(match encoding {
            "rgb8" => Self::Rgb8,
            "bgr8" | "8UC3" => Self::Bgr8,
            "rgba8" => Self::Rgba8,
            "bgra8" | "8UC4" => Self::Bgra8,
            "mono8" | "8UC1" => Self::Mono8,
            "mono16" => Self::Mono16,
            "yuv422" | "uyvy" => Self::Yuv422,
            "yuv422_yuy2" | "yuyv" => Self::Yuv422Yuy2,
            "nv12" => Self::Nv12,
            "nv21" => Self::Nv21,
            "bayer_rggb8" => Self::BayerRggb8,
            "bayer_bggr8" => Self::BayerBggr8,
            "bayer_gbrg8" => Self::BayerGbrg8,
            "bayer_grbg8" => Self::BayerGrbg8,
            _ => {
                return Err(ImageError::UnsupportedEncoding {
                    encoding: encoding.to_owned(),
                });
            }
        })
    }

    /// The format with samples wider than a byte in this order: `sensor_msgs/Image.is_bigendian`. Formats of
    /// single bytes stay what they are.
    #[must_use]
    pub const fn in_byte_order(self, big_endian: bool) -> Self {
        match (self, big_endian) {
            (Self::Mono16 | Self::Mono16Be, true) => Self::Mono16Be,
            (Self::Mono16 | Self::Mono16Be, false) => Self::Mono16,
            (other, _) => other,
        }
    }

    /// The ROS name of the format.
    #[must_use]
    pub const fn ros_encoding(self) -> &'static str {
        match self {
            Self::Rgb8 => "rgb8",
            Self::Bgr8 => "bgr8",
            Self::Rgba8 => "rgba8",
            Self::Bgra8 => "bgra8",
            Self::Mono8 => "mono8",
            Self::Mono16 | Self::Mono16Be => "mono16",
            Self::Yuv422 => "yuv422",
            Self::Yuv422Yuy2 => "yuv422_yuy2",
            Self::Nv12 => "nv12",
            Self::Nv21 => "nv21",
            Self::BayerRggb8 => "bayer_rggb8",
            Self::BayerBggr8 => "bayer_bggr8",
            Self::BayerGbrg8 => "bayer_gbrg8",
            Self::BayerGrbg8 => "bayer_grbg8",
        }
    }

    /// The format of the pixels once they are interleaved; the format itself where they are.
    #[must_use]
    pub const fn interleaved(self) -> Self {
        match self {
            Self::Rgb8 | Self::Bgr8 | Self::Rgba8 | Self::Bgra8 | Self::Mono8 => self,
            Self::Mono16 | Self::Mono16Be => Self::Mono8,
            Self::Yuv422
            | Self::Yuv422Yuy2
            | Self::Nv12
            | Self::Nv21
            | Self::BayerRggb8
            | Self::BayerBggr8
            | Self::BayerGbrg8
            | Self::BayerGrbg8 => Self::Bgr8,
        }
    }

    /// Whether the bytes of a pixel lie side by side already.
    #[must_use]
    pub(super) const fn is_interleaved(self) -> bool {
        matches!(
            self,
            Self::Rgb8 | Self::Bgr8 | Self::Rgba8 | Self::Bgra8 | Self::Mono8
        )
    }

    /// Channels of a pixel, and bytes of it once interleaved.
    #[must_use]
    pub const fn channels(self) -> usize {
        match self.interleaved() {
            Self::Rgba8 | Self::Bgra8 => 4,
            Self::Mono8 => 1,
            _ => 3,
        }
    }

    /// Bytes of a row of the data, without padding.
    #[must_use]
    pub const fn row_bytes(self, width: usize) -> usize {
        match self {
            Self::Rgb8 | Self::Bgr8 => width.saturating_mul(3),
            Self::Rgba8 | Self::Bgra8 => width.saturating_mul(4),
            Self::Mono16 | Self::Mono16Be | Self::Yuv422 | Self::Yuv422Yuy2 => width.saturating_mul(2),
            Self::Mono8
            | Self::Nv12
            | Self::Nv21
            | Self::BayerRggb8
            | Self::BayerBggr8
            | Self::BayerGbrg8
            | Self::BayerGrbg8 => width,
        }
    }

    /// Rows of the data: more than the image has where the chroma lies below.
    #[must_use]
    pub const fn data_rows(self, height: usize) -> usize {
        match self {
            Self::Nv12 | Self::Nv21 => height + height / 2,
            _ => height,
        }
    }

    /// Refuses sizes at which the format has no meaning.
    pub(super) const fn check_size(self, width: usize, height: usize) -> Result<(), ImageError> {
        let (fits, needs) = match self {
            Self::Yuv422 | Self::Yuv422Yuy2 => (
                width.is_multiple_of(2),
                "two pixels share U and V, so the width has to be even",
            ),
            Self::Nv12 | Self::Nv21 => (
                width.is_multiple_of(2) && height.is_multiple_of(2),
                "2 x 2 pixels share U and V, so both sides have to be even",
            ),
            Self::BayerRggb8 | Self::BayerBggr8 | Self::BayerGbrg8 | Self::BayerGrbg8 => (
                width >= 3 && height >= 3,
                "a colour mosaic below 3 x 3 px has no pixel with all of its neighbours",
            ),
            _ => return Ok(()),
        };
        if fits {
            return Ok(());
        }
        Err(ImageError::SizeOfFormat {
            format: self,
            width,
            height,
            needs,
        })
    }

    /// Byte of an interleaved pixel that holds blue, green and red.
    #[must_use]
    pub(super) const fn bgr_bytes(self) -> [usize; 3] {
        match self.interleaved() {
            Self::Rgb8 | Self::Rgba8 => [2, 1, 0],
            Self::Mono8 => [0, 0, 0],
            _ => [0, 1, 2],
        }
    }
}

impl fmt::Display for PixelFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.ros_encoding())
    }
}
