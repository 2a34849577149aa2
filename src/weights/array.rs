//! Constants of a model in host memory.

use std::fmt;

use crate::tensor::{DType, Shape};

/// Element type that a model file declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ElementType {
    /// IEEE single.
    F32,
    /// Unsigned byte.
    U8,
    /// Signed byte.
    I8,
    /// Unsigned 16-bit integer.
    U16,
    /// Signed 16-bit integer.
    I16,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// Truth value.
    Bool,
    /// IEEE half.
    F16,
    /// IEEE double.
    F64,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 64-bit integer.
    U64,
    /// bfloat16.
    Bf16,
    /// 8-bit float, 4 exponent bits, finite values up to 448 and NaN (the OCP form).
    F8E4M3Fn,
    /// 8-bit float, 5 exponent bits, infinities and NaN as in IEEE 754.
    F8E5M2,
    /// 4-bit float, 2 exponent bits, two elements a byte with the first in the low bits.
    F4E2M1,
}

impl ElementType {
    /// The type of an ONNX `TensorProto.DataType` code, or `None` for codes that are not read (text, complex,
    /// integers and floats below 8 bits but for float4, floats without a negative zero, scales).
    #[must_use]
    pub const fn from_code(code: i32) -> Option<Self> {
        Some(match code {
            1 => Self::F32,
            2 => Self::U8,
            3 => Self::I8,
            4 => Self::U16,
            5 => Self::I16,
            6 => Self::I32,
            7 => Self::I64,
            9 => Self::Bool,
            10 => Self::F16,
            11 => Self::F64,
            12 => Self::U32,
            13 => Self::U64,
            16 => Self::Bf16,
            17 => Self::F8E4M3Fn,
            19 => Self::F8E5M2,
            23 => Self::F4E2M1,
            _ => return None,
        })
    }

    /// Bits of one element.
    #[must_use]
    pub const fn bits(self) -> usize {
        match self {
            Self::F4E2M1 => 4,
            Self::U8 | Self::I8 | Self::Bool | Self::F8E4M3Fn | Self::F8E5M2 => 8,
            Self::U16 | Self::I16 | Self::F16 | Self::Bf16 => 16,
            Self::F32 | Self::I32 | Self::U32 => 32,
            Self::F64 | Self::I64 | Self::U64 => 64,
        }
    }

    /// Bytes of so many elements, the last byte perhaps half full; `None` beyond the address space.
    #[must_use]
    pub fn bytes_of(self, elements: usize) -> Option<usize> {
        let bytes = match self.bits() {
            4 => Some(elements.div_ceil(2)),
            bits => elements.checked_mul(bits / 8),
        };
        bytes.filter(|&bytes| isize::try_from(bytes).is_ok())
    }

    /// The type of a host tensor that holds such elements as they are; `None` for bool, float64 and float4.
    #[must_use]
    pub const fn dtype(self) -> Option<DType> {
        Some(match self {
            Self::U8 => DType::U8,
            Self::I8 => DType::I8,
            Self::U16 => DType::U16,
            Self::I16 => DType::I16,
            Self::U32 => DType::U32,
            Self::I32 => DType::I32,
            Self::U64 => DType::U64,
            Self::I64 => DType::I64,
            Self::F8E4M3Fn => DType::F8E4M3,
            Self::F8E5M2 => DType::F8E5M2,
            Self::F16 => DType::F16,
            Self::Bf16 => DType::Bf16,
            Self::F32 => DType::F32,
            Self::Bool | Self::F64 | Self::F4E2M1 => return None,
        })
    }

    /// Whether the type holds fractions.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::F64 | Self::Bf16) || self.is_storage_only()
    }

    /// Whether the type only stores values, so that nothing is computed in it: the floats of 8 and of 4 bits.
    #[must_use]
    pub const fn is_storage_only(self) -> bool {
        matches!(self, Self::F8E4M3Fn | Self::F8E5M2 | Self::F4E2M1)
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::F32 => "float32",
            Self::U8 => "uint8",
            Self::I8 => "int8",
            Self::U16 => "uint16",
            Self::I16 => "int16",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::Bool => "bool",
            Self::F16 => "float16",
            Self::F64 => "float64",
            Self::U32 => "uint32",
            Self::U64 => "uint64",
            Self::Bf16 => "bfloat16",
            Self::F8E4M3Fn => "float8_e4m3fn",
            Self::F8E5M2 => "float8_e5m2",
            Self::F4E2M1 => "float4_e2m1fn",
        })
    }
}

/// Elements in row-major order, widened without loss: shorter floats to f32, integers and truth values to i64.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// float32 and every shorter float.
    F32(Vec<f32>),
    /// float64.
    F64(Vec<f64>),
    /// Integers and truth values (0 or 1).
    I64(Vec<i64>),
}

impl Values {
    /// Number of elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::F32(v) => v.len(),
            Self::F64(v) => v.len(),
            Self::I64(v) => v.len(),
        }
    }

    /// Whether there are no elements.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A constant: shape, declared element type, values.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    shape: Shape,
    element: ElementType,
    values: Values,
}

impl Array {
    /// A constant, or `None` if the number of values is not that of the shape or the carrier is not that of
    /// the element type.
    #[must_use]
    pub fn new(shape: Shape, element: ElementType, values: Values) -> Option<Self> {
        let carrier_fits = match &values {
            Values::F32(_) => element.is_float() && element != ElementType::F64,
            Values::F64(_) => element == ElementType::F64,
            Values::I64(_) => !element.is_float(),
        };
        (carrier_fits && values.len() == shape.elements()).then_some(Self {
            shape,
            element,
            values,
        })
    }

    /// Dimensions, outermost first.
    #[must_use]
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Type that the file declares.
    #[must_use]
    pub const fn element(&self) -> ElementType {
        self.element
    }

    /// The elements.
    #[must_use]
    pub const fn values(&self) -> &Values {
        &self.values
    }

    /// The elements as f32, or `None` for integers. float64 is rounded to nearest.
    #[must_use]
    pub fn to_f32(&self) -> Option<Vec<f32>> {
        match &self.values {
            Values::F32(v) => Some(v.clone()),
            Values::F64(v) => Some(v.iter().map(|&x| x as f32).collect()),
            Values::I64(_) => None,
        }
    }

    /// The elements as integers, or `None` for floats.
    #[must_use]
    pub fn as_i64(&self) -> Option<&[i64]> {
        match &self.values {
            Values::I64(v) => Some(v),
            Values::F32(_) | Values::F64(_) => None,
        }
    }

    /// The only element as f32 (integers converted), or `None` if there is not exactly one.
    #[must_use]
    pub fn scalar_f32(&self) -> Option<f32> {
        match &self.values {
            Values::F32(v) if v.len() == 1 => Some(v[0]),
            Values::F64(v) if v.len() == 1 => Some(v[0] as f32),
            Values::I64(v) if v.len() == 1 => Some(v[0] as f32),
            _ => None,
        }
    }
}
