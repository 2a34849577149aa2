//! The form of a network's input: size, order of its axes and channels, type of its values.

use super::ImageError;

/// Channels of a network's input.
pub(super) const CHANNELS: usize = 3;

/// Order of the axes of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// `[height, width, 3]`: pixel after pixel.
    Hwc,
    /// `[3, height, width]`: plane after plane.
    Chw,
}

/// Type of the values of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SampleType {
    /// Bytes as they are after the resize, before anything is subtracted or divided: that is left to the device.
    U8,
    /// Brain floats, rounded half to even from what would be float32.
    Bf16,
    /// The values that the deployed node hands to its network.
    F32,
}

/// Order of the channels of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChannelOrder {
    /// Blue, green, red: OpenCV's.
    Bgr,
    /// Red, green, blue.
    Rgb,
}

impl Layout {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Hwc, Self::Chw];

    /// The name that pipeline files use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hwc => "hwc",
            Self::Chw => "chw",
        }
    }
}

impl SampleType {
    /// All three.
    pub const ALL: [Self; 3] = [Self::U8, Self::Bf16, Self::F32];

    /// The name that pipeline files use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "uint8",
            Self::Bf16 => "bf16",
            Self::F32 => "fp32",
        }
    }

    /// Bytes of one value.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::Bf16 => 2,
            Self::F32 => 4,
        }
    }
}

impl ChannelOrder {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Bgr, Self::Rgb];

    /// The name that pipeline files use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bgr => "bgr",
            Self::Rgb => "rgb",
        }
    }
}

/// The input of a network for one image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TensorForm {
    /// Width and height in pixels.
    pub size_px: [usize; 2],
    /// Order of the axes.
    pub layout: Layout,
    /// Type of the values.
    pub samples: SampleType,
    /// Order of the channels.
    pub order: ChannelOrder,
}

impl TensorForm {
    /// Bytes of the whole input.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.size_px[0] * self.size_px[1] * CHANNELS * self.samples.bytes()
    }

    /// Its dimensions.
    #[must_use]
    pub const fn dims(&self) -> [usize; 3] {
        let [width, height] = self.size_px;
        match self.layout {
            Layout::Hwc => [height, width, CHANNELS],
            Layout::Chw => [CHANNELS, height, width],
        }
    }

    /// Refuses memory of another length, or in which floats would lie across their boundaries.
    pub(super) fn check(&self, out: &[u8]) -> Result<(), ImageError> {
        let (expected, found) = (self.bytes(), out.len());
        if expected != found {
            return Err(ImageError::OutputLength { expected, found });
        }
        let alignment = self.samples.bytes();
        if !out.as_ptr().addr().is_multiple_of(alignment) {
            return Err(ImageError::Misaligned { alignment });
        }
        Ok(())
    }
}
