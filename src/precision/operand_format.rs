//! The forms in which a matrix engine takes weights.

use std::fmt;
use std::str::FromStr;

use crate::numeric::blockfloat::BlockFormat;

/// How weights are stored for a matrix engine, and so rounded once before anything is computed. (How a host keeps them
/// until then is another matter.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OperandFormat {
    /// fp32, of which a matrix engine sees the TF32 part.
    F32,
    /// bf16, to nearest even.
    Bf16,
    /// Block floats of 8 bits: 7 magnitude bits, the exponent shared by 16 weights.
    Bfp8,
    /// Block floats of 4 bits: 3 magnitude bits, the exponent shared by 16 weights.
    Bfp4,
}

/// A format that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "weights are not stored as `{0}`: expected fp32 (float32), bf16 (bfloat16), bfp8 (bfloat8_b) or bfp4 (bfloat4_b)"
)]
pub struct UnknownOperandFormat(
    /// What was written.
    pub String,
);

impl OperandFormat {
    /// Every format, widest first.
    pub const ALL: [Self; 4] = [Self::F32, Self::Bf16, Self::Bfp8, Self::Bfp4];

    /// Its short name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "fp32",
            Self::Bf16 => "bf16",
            Self::Bfp8 => "bfp8",
            Self::Bfp4 => "bfp4",
        }
    }

    /// Its name among tensor types.
    #[must_use]
    pub const fn long_name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::Bf16 => "bfloat16",
            Self::Bfp8 => "bfloat8_b",
            Self::Bfp4 => "bfloat4_b",
        }
    }

    /// The block format, where it is one.
    #[must_use]
    pub const fn block(self) -> Option<BlockFormat> {
        match self {
            Self::F32 | Self::Bf16 => None,
            Self::Bfp8 => Some(BlockFormat::Bfp8),
            Self::Bfp4 => Some(BlockFormat::Bfp4),
        }
    }
}

impl fmt::Display for OperandFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for OperandFormat {
    type Err = UnknownOperandFormat;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|format| [format.name(), format.long_name()].contains(&text))
            .or((text == "f32").then_some(Self::F32))
            .ok_or_else(|| UnknownOperandFormat(text.into()))
    }
}
