//! Host tensors of one element type made from another.
//!
//! | from | to | result |
//! |---|---|---|
//! | any | the same | the tensor itself |
//! | integer | integer | the same number, never by way of a float; one that the type does not have is an error |
//! | integer | float | the nearest value, ties to even, rounded once; exact up to 2^24 (fp32), 2^11 (fp16), 2^8 (bf16) |
//! | float | float | the nearest value, ties to even; beyond the range infinite; NaN stays NaN |
//! | float | integer | the nearest integer, ties to even; one that the type does not have, and NaN, is an error |
//!
//! A copy on a device saturates where a cast here is an error: the host knows the value and its place, so it can say
//! what is wrong instead of changing numbers in silence.

use std::borrow::Cow;

use half::{bf16, f16};

use super::{DType, Element, HostTensor, TensorError, TensorSpec};

/// What cannot be cast.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CastError {
    /// A number that the type does not have.
    #[error(
        "element {index} is {value} ({from}), which {to} cannot hold: clamp the values first or choose a wider type"
    )]
    OutOfRange {
        /// Position in row-major order.
        index: usize,
        /// The number.
        value: String,
        /// Type of the tensor.
        from: DType,
        /// Type asked for.
        to: DType,
    },
    /// Another number of values than places.
    #[error("{found} values were given for {expected} places")]
    Length {
        /// Places.
        expected: usize,
        /// Values.
        found: usize,
    },
    /// A type whose values depend on a policy that a cast does not have.
    #[error("what {dtype} holds depends on a policy: convert with from_f32 and to_f32, which take one")]
    NeedsPolicy {
        /// The type.
        dtype: DType,
    },
    /// A shape that does not fit with elements of the type.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// Runs an expression with `$T` as the Rust type of an element type. The one list of element types in this file.
macro_rules! with_type {
    ($dtype:expr, $T:ident => $run:expr) => {
        match $dtype {
            DType::U8 => {
                type $T = u8;
                $run
            }
            DType::I8 => {
                type $T = i8;
                $run
            }
            DType::U16 => {
                type $T = u16;
                $run
            }
            DType::I16 => {
                type $T = i16;
                $run
            }
            DType::I32 => {
                type $T = i32;
                $run
            }
            DType::U32 => {
                type $T = u32;
                $run
            }
            DType::I64 => {
                type $T = i64;
                $run
            }
            DType::U64 => {
                type $T = u64;
                $run
            }
            DType::F16 => {
                type $T = f16;
                $run
            }
            DType::Bf16 => {
                type $T = bf16;
                $run
            }
            DType::F32 => {
                type $T = f32;
                $run
            }
            dtype @ (DType::F8E3M4 | DType::F8E4M3 | DType::F8E5M2) => Err(CastError::NeedsPolicy { dtype }),
        }
    };
}

impl HostTensor {
    /// The tensor with elements of another type, or itself where that is the type it has. See the table of
    /// `tensor/cast.rs`: integers stay what they are, floats are rounded to nearest even.
    ///
    /// # Errors
    /// [`CastError::OutOfRange`] with the first number that the type does not have; a shape that is too large.
    pub fn cast(&self, dtype: DType) -> Result<Cow<'_, Self>, CastError> {
        if dtype == self.dtype() {
            return Ok(Cow::Borrowed(self));
        }
        let mut tensor = Self::zeros(TensorSpec::new(self.shape(), dtype)?);
        with_type!(self.dtype(), T => cast_into(self.as_slice::<T>()?, dtype, tensor.bytes_mut()))?;
        Ok(Cow::Owned(tensor))
    }
}

/// Writes values as elements of a type into memory that is aligned for it. A refusal leaves the memory as it was.
///
/// # Errors
/// [`CastError::Length`], [`CastError::OutOfRange`].
pub(crate) fn cast_into<S: Element>(values: &[S], dtype: DType, places: &mut [u8]) -> Result<(), CastError> {
    if values.len() * dtype.size_bytes() != places.len() {
        return Err(CastError::Length {
            expected: places.len() / dtype.size_bytes(),
            found: values.len(),
        });
    }
    let values: &[u8] = bytemuck::cast_slice(values);
    if S::DTYPE == dtype {
        places.copy_from_slice(values);
        return Ok(());
    }
    with_type!(S::DTYPE, From => {
        let values = bytemuck::cast_slice::<u8, From>(values);
        with_type!(dtype, To => convert::<From, To>(values, bytemuck::cast_slice_mut(places)))
    })
}

fn convert<S: Number, D: Number>(values: &[S], places: &mut [D]) -> Result<(), CastError> {
    // Integers alone can refuse, so they are tried before the first place is written.
    if !D::DTYPE.is_float()
        && let Some(index) = values.iter().position(|value| D::of(value.value()).is_none())
    {
        return Err(CastError::OutOfRange {
            index,
            value: values[index].value().to_string(),
            from: S::DTYPE,
            to: D::DTYPE,
        });
    }
    for (place, value) in places.iter_mut().zip(values) {
        if let Some(number) = D::of(value.value()) {
            *place = number;
        }
    }
    Ok(())
}

/// The number that an element stands for.
#[derive(Clone, Copy)]
enum Value {
    Integer(i128),
    Float(f32),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
        }
    }
}

/// An element that takes part in casts.
trait Number: Element {
    /// The number.
    fn value(self) -> Value;
    /// The element of a number, rounded if the type is a float; `None` if the type has none.
    fn of(value: Value) -> Option<Self>;
}

macro_rules! integers {
    ($($type:ty)*) => {
        $(
            impl Number for $type {
                #[inline(always)]
                fn value(self) -> Value {
                    Value::Integer(i128::from(self))
                }

                #[inline(always)]
                fn of(value: Value) -> Option<Self> {
                    match value {
                        Value::Integer(value) => Self::try_from(value).ok(),
                        Value::Float(value) if value.is_nan() => None,
                        // `as` saturates far outside every type here.
                        Value::Float(value) => Self::try_from(value.round_ties_even() as i128).ok(),
                    }
                }
            }
        )*
    };
}
integers!(u8 i8 u16 i16 i32 u32 i64 u64);

impl Number for f32 {
    #[inline(always)]
    fn value(self) -> Value {
        Value::Float(self)
    }

    #[inline(always)]
    fn of(value: Value) -> Option<Self> {
        Some(match value {
            // `as` rounds to nearest even.
            Value::Integer(value) => value as Self,
            Value::Float(value) => value,
        })
    }
}

macro_rules! short_floats {
    ($($type:ty)*) => {
        $(
            impl Number for $type {
                #[inline(always)]
                fn value(self) -> Value {
                    Value::Float(self.to_f32())
                }

                #[inline(always)]
                fn of(value: Value) -> Option<Self> {
                    Some(Self::from_f32(match value {
                        Value::Integer(value) => to_odd(value),
                        Value::Float(value) => value,
                    }))
                }
            }
        )*
    };
}
short_floats!(f16 bf16);

/// The fp32 value next to an integer towards zero, with its last bit set unless it is exact: rounding that once more
/// gives the nearest value of a shorter format.
fn to_odd(value: i128) -> f32 {
    let nearest = value as f32;
    let difference = (nearest as i128).unsigned_abs().cmp(&value.unsigned_abs());
    let toward_zero = match difference {
        std::cmp::Ordering::Equal => return nearest,
        std::cmp::Ordering::Greater => nearest.to_bits() - 1,
        std::cmp::Ordering::Less => nearest.to_bits(),
    };
    f32::from_bits(toward_zero | 1)
}
