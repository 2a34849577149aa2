//! The rules by which the custom-op wrapper crosses from instruction-word codes to torch.
//!
//! The wrapper translates in one direction only, from the code to the torch type; the other direction is
//! checked by translating forth and comparing. Where it aborts, these functions return an error.

use half::{bf16, f16};

use super::table::IsaDtype;
use super::torch::ScalarType;

/// Why the wrapper would abort.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WrapperError {
    /// The code has no torch type here: it is unsigned above 8 bits, internal to the device, or no code at
    /// all.
    #[error("data type code {code} ({code:#04x}{}) has no torch type; the wrapper takes {}", name_of(*.code), supported())]
    Unsupported {
        /// The code.
        code: u8,
    },
    /// The tensor that is bound back has no storage.
    #[error("the tensor has no storage pointer")]
    NoStorage,
    /// The torch type disagrees with the code.
    #[error("the tensor is declared {declared}, but data type code {code} ({code:#04x}) is {expected}")]
    Mismatch {
        /// What the tensor says.
        declared: ScalarType,
        /// What the code translates to.
        expected: ScalarType,
        /// The code.
        code: u8,
    },
    /// A scalar was asked of a tensor that does not have exactly one element.
    #[error("a scalar needs a tensor of one element; this one has {elements}")]
    NotOneElement {
        /// How many it has.
        elements: u64,
    },
    /// The element's bytes have the wrong length.
    #[error("one element of data type code {code} ({code:#04x}) has {expected} byte(s), not {actual}")]
    ElementBytes {
        /// The code.
        code: u8,
        /// Bytes of one element.
        expected: usize,
        /// Bytes given.
        actual: usize,
    },
}

fn name_of(code: u8) -> String {
    IsaDtype::try_from(code).map_or_else(|_| String::new(), |dtype| format!(", {dtype}"))
}

fn supported() -> String {
    IsaDtype::ALL
        .iter()
        .filter(|dtype| dtype.row().torch.is_some())
        .map(|dtype| dtype.name())
        .collect::<Vec<_>>()
        .join(", ")
}

/// The torch type of a code: defined for eight codes (INT8, UINT8, INT16, BFLOAT16, FP16, INT32, FP32,
/// INT64).
///
/// The v1 header does not name INT8 and INT16, but that is a fact about the header; the wrapper takes them.
///
/// # Errors
///
/// [`WrapperError::Unsupported`] for every other code.
pub fn isa_to_torch(code: u8) -> Result<ScalarType, WrapperError> {
    IsaDtype::try_from(code)
        .ok()
        .and_then(|dtype| dtype.row().torch)
        .ok_or(WrapperError::Unsupported { code })
}

/// Bytes of one element, for the codes that the wrapper takes.
///
/// # Errors
///
/// [`WrapperError::Unsupported`] for every other code, those with a known width included.
pub fn element_size(code: u8) -> Result<usize, WrapperError> {
    IsaDtype::try_from(code)
        .ok()
        .filter(|dtype| dtype.row().torch.is_some())
        .and_then(|dtype| dtype.size_bytes().ok())
        .ok_or(WrapperError::Unsupported { code })
}

/// Whether a torch tensor may be bound back to a descriptor: first its storage must exist, then its declared
/// type must be what the descriptor's code translates to.
///
/// # Errors
///
/// [`WrapperError::NoStorage`], [`WrapperError::Unsupported`] or [`WrapperError::Mismatch`], in that order.
pub fn match_gate(has_storage: bool, declared: ScalarType, code: u8) -> Result<(), WrapperError> {
    if !has_storage {
        return Err(WrapperError::NoStorage);
    }
    let expected = isa_to_torch(code)?;
    if declared != expected {
        return Err(WrapperError::Mismatch {
            declared,
            expected,
            code,
        });
    }
    Ok(())
}

/// A boxed number, as coarse as torch's `c10::Scalar`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar {
    /// Any of the float types.
    Float(f64),
    /// Any of the integer types.
    Integral(i64),
}

/// The scalar that a tensor of one element stands for. Half types are widened in software, exactly.
///
/// `element` holds the little-endian bytes of the element.
///
/// # Errors
///
/// [`WrapperError::NotOneElement`], [`WrapperError::Unsupported`] or [`WrapperError::ElementBytes`], in that
/// order.
pub fn scalar(code: u8, elements: u64, element: &[u8]) -> Result<Scalar, WrapperError> {
    if elements != 1 {
        return Err(WrapperError::NotOneElement { elements });
    }
    let expected = element_size(code)?;
    let wrong_length = || WrapperError::ElementBytes {
        code,
        expected,
        actual: element.len(),
    };
    macro_rules! read {
        ($type:ty) => {
            <$type>::from_le_bytes(element.try_into().map_err(|_| wrong_length())?)
        };
    }
    Ok(match isa_to_torch(code)? {
        ScalarType::Byte => Scalar::Integral(read!(u8).into()),
        ScalarType::Char => Scalar::Integral(read!(i8).into()),
        ScalarType::Short => Scalar::Integral(read!(i16).into()),
        ScalarType::Int => Scalar::Integral(read!(i32).into()),
        ScalarType::Long => Scalar::Integral(read!(i64)),
        ScalarType::BFloat16 => Scalar::Float(read!(bf16).into()),
        ScalarType::Half => Scalar::Float(read!(f16).into()),
        ScalarType::Float => Scalar::Float(read!(f32).into()),
        _ => return Err(WrapperError::Unsupported { code }),
    })
}
