//! Element types of tensors, and their names in the numberings of instruction words and of PyTorch.

use std::fmt;

use half::{bf16, f16};

use crate::numeric::{Fp8Format, IsaDtype, Kind, ScalarType};

/// Element type of a tensor on the host or on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DType {
    /// Unsigned byte: camera pixels.
    U8,
    /// Signed byte.
    I8,
    /// Unsigned 16-bit integer.
    U16,
    /// Signed 16-bit integer.
    I16,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 32-bit integer: gather indices.
    U32,
    /// Signed 64-bit integer: ONNX shapes and indices.
    I64,
    /// Unsigned 64-bit integer.
    U64,
    /// 8-bit float with 3 exponent bits. What its codes mean beyond that is a matter of an
    /// [`Fp8Policy`](crate::numeric::Fp8Policy), here and in the two below.
    F8E3M4,
    /// 8-bit float with 4 exponent bits.
    F8E4M3,
    /// 8-bit float with 5 exponent bits.
    F8E5M2,
    /// IEEE half precision.
    F16,
    /// bfloat16: the accelerator's usual storage.
    Bf16,
    /// IEEE single precision.
    F32,
}

/// Every row: type, bytes, name, and the one code of instruction words that means the same.
macro_rules! dtypes {
    ($($dtype:ident = $bytes:literal $name:literal $isa:ident $(torch($torch:ident))?),* $(,)?) => {
        impl DType {
            /// Every type.
            pub const ALL: &[Self] = &[$(Self::$dtype),*];

            /// Bytes of one element.
            #[must_use]
            pub const fn size_bytes(self) -> usize {
                match self {
                    $(Self::$dtype => $bytes,)*
                }
            }

            /// The code of instruction words. Every element type has one.
            #[must_use]
            pub const fn isa(self) -> IsaDtype {
                match self {
                    $(Self::$dtype => IsaDtype::$isa,)*
                }
            }

            /// PyTorch's type, of its current list, or `None`: PyTorch has no E3M4. Its E4M3 is the form
            /// without infinities.
            #[must_use]
            pub const fn scalar_type(self) -> Option<ScalarType> {
                match self {
                    $(Self::$dtype => dtypes!(@option $($torch)?),)*
                }
            }
        }

        impl fmt::Display for DType {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self {
                    $(Self::$dtype => $name,)*
                })
            }
        }
    };
    (@option) => { None };
    (@option $torch:ident) => { Some(ScalarType::$torch) };
}

dtypes! {
    U8 = 1 "uint8" Uint8 torch(Byte),
    I8 = 1 "int8" Int8 torch(Char),
    U16 = 2 "uint16" Uint16 torch(UInt16),
    I16 = 2 "int16" Int16 torch(Short),
    I32 = 4 "int32" Int32 torch(Int),
    U32 = 4 "uint32" Uint32 torch(UInt32),
    I64 = 8 "int64" Int64 torch(Long),
    U64 = 8 "uint64" Uint64 torch(UInt64),
    F8E3M4 = 1 "float8_e3m4" Fp8Exp3,
    F8E4M3 = 1 "float8_e4m3" Fp8Exp4 torch(Float8E4m3fn),
    F8E5M2 = 1 "float8_e5m2" Fp8Exp5 torch(Float8E5m2),
    F16 = 2 "float16" Fp16 torch(Half),
    Bf16 = 2 "bfloat16" Bfloat16 torch(BFloat16),
    F32 = 4 "float32" Fp32 torch(Float),
}

impl DType {
    /// Whether the type holds fractions.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::F32) || self.fp8_format().is_some()
    }

    /// The layout of an 8-bit float; `None` for every other type.
    #[must_use]
    pub const fn fp8_format(self) -> Option<Fp8Format> {
        match self {
            Self::F8E3M4 => Some(Fp8Format::E3M4),
            Self::F8E4M3 => Some(Fp8Format::E4M3),
            Self::F8E5M2 => Some(Fp8Format::E5M2),
            _ => None,
        }
    }
}

impl From<Fp8Format> for DType {
    fn from(format: Fp8Format) -> Self {
        match format {
            Fp8Format::E3M4 => Self::F8E3M4,
            Fp8Format::E4M3 => Self::F8E4M3,
            Fp8Format::E5M2 => Self::F8E5M2,
        }
    }
}

/// A type of another numbering that no tensor on the host can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoElementType {
    /// A code of instruction words.
    #[error("{dtype} (ISA code {:#04x}) is no element type of host tensors: {}", .dtype.code(), why(*.dtype))]
    Isa {
        /// The code.
        dtype: IsaDtype,
    },
    /// A type of PyTorch.
    #[error(
        "torch's {scalar_type} is no element type of host tensors; those that are: {}",
        torch_names()
    )]
    Torch {
        /// The type.
        scalar_type: ScalarType,
    },
}

fn why(dtype: IsaDtype) -> &'static str {
    match (dtype, dtype.row().kind) {
        (_, Kind::Nothing) => "it stands for no type",
        (IsaDtype::Fp32r, _) => "how the hardware rounds it is not public; use FP32",
        (_, Kind::Compressed) => "its elements lie in a compressed stream",
        (_, Kind::Scale) => "it only scales blocks of other elements",
        _ if dtype.row().bits == 4 => "two elements share a byte",
        _ => "nothing here converts it",
    }
}

fn torch_names() -> String {
    let names = DType::ALL.iter().filter_map(|dtype| dtype.scalar_type());
    names.map(ScalarType::name).collect::<Vec<_>>().join(", ")
}

impl TryFrom<IsaDtype> for DType {
    type Error = NoElementType;

    fn try_from(dtype: IsaDtype) -> Result<Self, NoElementType> {
        let found = Self::ALL.iter().find(|member| member.isa() == dtype);
        found.copied().ok_or(NoElementType::Isa { dtype })
    }
}

impl TryFrom<ScalarType> for DType {
    type Error = NoElementType;

    fn try_from(scalar_type: ScalarType) -> Result<Self, NoElementType> {
        let found = Self::ALL
            .iter()
            .find(|member| member.scalar_type() == Some(scalar_type));
        found.copied().ok_or(NoElementType::Torch { scalar_type })
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
elements! {
    u8 => U8, i8 => I8, u16 => U16, i16 => I16, i32 => I32, u32 => U32, i64 => I64, u64 => U64,
    F8E3M4 => F8E3M4, F8E4M3 => F8E4M3, F8E5M2 => F8E5M2, f16 => F16, bf16 => Bf16, f32 => F32,
}

macro_rules! fp8_elements {
    ($($name:ident)*) => {
        $(
            #[doc = concat!("One code of [`DType::", stringify!($name), "`].")]
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, bytemuck::Pod, bytemuck::Zeroable)]
            #[repr(transparent)]
            pub struct $name(pub u8);
        )*
    };
}
fp8_elements!(F8E3M4 F8E4M3 F8E5M2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_type_has_the_code_whose_elements_are_as_wide_and_of_its_kind() {
        for &dtype in DType::ALL {
            let row = dtype.isa().row();
            assert_eq!(usize::from(row.bits), 8 * dtype.size_bytes(), "{dtype}");
            assert_eq!(row.kind == Kind::Float, dtype.is_float(), "{dtype}");
            assert_eq!(row.kind == Kind::Signed, dtype.to_string().starts_with("int"));
            assert_eq!(DType::try_from(dtype.isa()), Ok(dtype));
            if let Some(scalar_type) = dtype.scalar_type() {
                assert_eq!(DType::try_from(scalar_type), Ok(dtype));
            }
            // Where the custom-op wrapper gives a torch type, it is this one.
            assert!(
                row.torch.is_none_or(|torch| Some(torch) == dtype.scalar_type()),
                "{dtype}"
            );
            // Containers spell all but the 8-bit floats as tensors here do.
            assert!(dtype.fp8_format().is_some() || row.json == Some(dtype.to_string().as_str()));
        }
        assert_eq!(DType::F8E3M4.scalar_type(), None);
        assert_eq!(DType::ALL.len(), 14);
    }

    #[test]
    fn codes_without_an_element_on_the_host_are_refused_with_the_reason() {
        let refused: Vec<String> = IsaDtype::ALL
            .iter()
            .filter_map(|&dtype| DType::try_from(dtype).err())
            .map(|error| error.to_string())
            .collect();
        assert_eq!(refused.len(), IsaDtype::ALL.len() - DType::ALL.len());
        for text in [
            "INVALID (ISA code 0x00) is no element type of host tensors: it stands for no type",
            "FP32R (ISA code 0x0b) is no element type of host tensors: how the hardware rounds it is not public; use FP32",
            "FP4_EXP2 (ISA code 0x10) is no element type of host tensors: two elements share a byte",
            "FP8_EXP2 (ISA code 0x11) is no element type of host tensors: nothing here converts it",
            "INT4 (ISA code 0x12) is no element type of host tensors: two elements share a byte",
            "SFP8_E8 (ISA code 0x13) is no element type of host tensors: it only scales blocks of other elements",
            "CPTC7 (ISA code 0x1f) is no element type of host tensors: its elements lie in a compressed stream",
        ] {
            assert!(
                refused.iter().any(|found| found == text),
                "{text} in {refused:#?}"
            );
        }
        let double = DType::try_from(ScalarType::Double).unwrap_err().to_string();
        assert!(
            double.starts_with("torch's Double is no element type of host tensors")
                && double.contains("UInt64"),
            "{double}"
        );
        assert!(DType::try_from(ScalarType::Float8E4m3fnuz).is_err());
    }
}
