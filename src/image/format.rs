//! How the bytes of a pixel are to be read.

use std::fmt;

use super::ImageError;

/// What [`PixelFormat::from_ros_encoding`] accepts, for error messages.
pub(super) const ACCEPTED_ENCODINGS: &str = "rgb8, bgr8, rgba8, bgra8, mono8, 8UC1, 8UC3";

/// Order of the 8-bit channels of a pixel, interleaved.
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
}

impl PixelFormat {
    /// The format that a `sensor_msgs/Image.encoding` names.
    ///
    /// The two OpenCV type names among the encodings carry no colour order: `8UC1` is read as grey, and
    /// `8UC3` as blue, green, red, the order in which OpenCV (and with it `cv_bridge`) keeps colour.
    ///
    /// # Errors
    /// [`ImageError::UnsupportedEncoding`] for everything else (Bayer, YUV, 16-bit and float images among
    /// them): such data has to be converted before it comes here, never guessed at.
    pub fn from_ros_encoding(encoding: &str) -> Result<Self, ImageError> {
        match encoding {
            "rgb8" => Ok(Self::Rgb8),
            "bgr8" | "8UC3" => Ok(Self::Bgr8),
            "rgba8" => Ok(Self::Rgba8),
            "bgra8" => Ok(Self::Bgra8),
            "mono8" | "8UC1" => Ok(Self::Mono8),
            _ => Err(ImageError::UnsupportedEncoding {
                encoding: encoding.to_owned(),
            }),
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
        }
    }

    /// Bytes of one pixel.
    #[must_use]
    pub const fn channels(self) -> usize {
        match self {
            Self::Rgb8 | Self::Bgr8 => 3,
            Self::Rgba8 | Self::Bgra8 => 4,
            Self::Mono8 => 1,
        }
    }

    /// Byte of a pixel that holds blue, green and red.
    #[must_use]
    pub(super) const fn bgr_bytes(self) -> [usize; 3] {
        match self {
            Self::Rgb8 | Self::Rgba8 => [2, 1, 0],
            Self::Bgr8 | Self::Bgra8 => [0, 1, 2],
            Self::Mono8 => [0, 0, 0],
        }
    }
}

impl fmt::Display for PixelFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.ros_encoding())
    }
}
