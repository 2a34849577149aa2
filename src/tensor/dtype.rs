//! Element types of tensors.

use std::fmt;

use half::{bf16, f16};

/// Element type of a tensor on the host or on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DType {
    /// Unsigned byte: camera pixels.
    U8,
    /// Signed byte.
    I8,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 32-bit integer: gather indices.
    U32,
    /// Signed 64-bit integer: ONNX shapes and indices.
    I64,
    /// IEEE half precision.
    F16,
    /// bfloat16: the accelerator's usual storage.
    Bf16,
    /// IEEE single precision.
    F32,
}

impl DType {
    /// Bytes of one element.
    #[must_use]
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 => 8,
        }
    }

    /// Whether the type holds fractions.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::F32)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::U8 => "uint8",
            Self::I8 => "int8",
            Self::I32 => "int32",
            Self::U32 => "uint32",
            Self::I64 => "int64",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
            Self::F32 => "float32",
        })
    }
}

/// A Rust type that is the in-memory form of a [`DType`].
pub trait Element: bytemuck::Pod {
    /// The matching data type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {
        $(impl Element for $rust { const DTYPE: DType = DType::$dtype; })*
    };
}
elements!(u8 => U8, i8 => I8, i32 => I32, u32 => U32, i64 => I64, f16 => F16, bf16 => Bf16, f32 => F32);
