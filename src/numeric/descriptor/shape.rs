//! The shape of a descriptor: sizes in place, or the address of sizes elsewhere.

use std::fmt;

use super::materialise::MaterialiseError;

/// In which form the sizes are there (`NEURON_ISA_TPB_CUSTOM_OP_TENSOR_SHAPE_TYPE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ShapeType {
    /// Eight sizes of 16 bits.
    Inline8d = 0,
    /// The sizes lie elsewhere.
    OutOfLine = 1,
    /// Four sizes of 32 bits.
    Inline4d = 2,
}

impl ShapeType {
    /// Every member, in the order of the codes.
    pub const ALL: &[Self] = &[Self::Inline8d, Self::OutOfLine, Self::Inline4d];

    /// The code in the descriptor.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The member of a code, if there is one.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|member| member.code() == code)
    }

    /// The name in the header.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inline8d => "INLINE_SHAPE8D",
            Self::OutOfLine => "OUT_OF_LINE_SHAPE",
            Self::Inline4d => "INLINE_SHAPE4D",
        }
    }
}

impl fmt::Display for ShapeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The 16 bytes of the shape union, read by their [`ShapeType`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrameworkShape {
    /// Eight sizes.
    Inline8d([u16; 8]),
    /// Four sizes.
    Inline4d([u32; 4]),
    /// The address of sizes elsewhere, as it stands: its width is in no source.
    OutOfLine([u8; 16]),
}

impl FrameworkShape {
    /// In which form the sizes are there.
    #[must_use]
    pub const fn shape_type(&self) -> ShapeType {
        match self {
            Self::Inline8d(_) => ShapeType::Inline8d,
            Self::Inline4d(_) => ShapeType::Inline4d,
            Self::OutOfLine(_) => ShapeType::OutOfLine,
        }
    }

    /// All eight or four sizes, those beyond the tensor's rank included: nothing in the bytes tells the rank.
    ///
    /// # Errors
    ///
    /// [`MaterialiseError::OutOfLine`] where the sizes are not in the descriptor.
    pub fn dims(&self) -> Result<Vec<u32>, MaterialiseError> {
        match self {
            Self::Inline8d(dims) => Ok(dims.iter().copied().map(u32::from).collect()),
            Self::Inline4d(dims) => Ok(dims.to_vec()),
            Self::OutOfLine(_) => Err(MaterialiseError::OutOfLine),
        }
    }

    /// The sizes of a tensor of `rank` dimensions.
    ///
    /// What marks the rank is in no source, so the caller says it; that the used sizes come first is our
    /// reading.
    ///
    /// # Errors
    ///
    /// [`MaterialiseError::OutOfLine`] as in [`dims`](Self::dims), [`MaterialiseError::Rank`] for rank 0,
    /// which the wrapper refuses (`num_dim != 0`), and for more dimensions than the form holds.
    pub fn sizes(&self, rank: usize) -> Result<Vec<u32>, MaterialiseError> {
        let mut sizes = self.dims()?;
        if rank == 0 || rank > sizes.len() {
            return Err(MaterialiseError::Rank {
                rank,
                shape_type: self.shape_type(),
                limit: sizes.len(),
            });
        }
        sizes.truncate(rank);
        Ok(sizes)
    }

    pub(super) fn parse(shape_type: ShapeType, bytes: [u8; 16]) -> Self {
        match shape_type {
            ShapeType::Inline8d => Self::Inline8d(std::array::from_fn(|i| {
                u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]])
            })),
            ShapeType::Inline4d => Self::Inline4d(std::array::from_fn(|i| {
                u32::from_le_bytes(std::array::from_fn(|byte| bytes[4 * i + byte]))
            })),
            ShapeType::OutOfLine => Self::OutOfLine(bytes),
        }
    }

    pub(super) fn to_bytes(self) -> [u8; 16] {
        match self {
            Self::Inline8d(dims) => std::array::from_fn(|i| dims[i / 2].to_le_bytes()[i % 2]),
            Self::Inline4d(dims) => std::array::from_fn(|i| dims[i / 4].to_le_bytes()[i % 4]),
            Self::OutOfLine(bytes) => bytes,
        }
    }
}
