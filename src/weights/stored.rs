//! Weights as they are kept until a device takes them: in full, or in a shorter format.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use xxhash_rust::xxh3::xxh3_128;

use super::{WeightCache, WeightCacheError};
use crate::numeric::blockfloat::{BLOCK_VALUES, BlockFloatError, BlockFormat, decode_into, encode_into};
use crate::numeric::{Fp8Format, Fp8Policy};
use crate::tensor::{DType, HostTensor, TensorError, TensorSpec};

/// How weights are stored.
///
/// Whatever the format, weights are widened to fp32 before a device takes them: a format decides how much
/// memory they take until then and what precision is left of them. There is no scale beside the numbers, so
/// what a format cannot tell apart is lost: E4M3 has nothing between 0 and 2^-9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WeightFormat {
    /// IEEE single precision: as they are.
    #[default]
    Fp32,
    /// bfloat16, rounded to nearest even.
    Bf16,
    /// IEEE half precision, rounded to nearest even.
    Fp16,
    /// An 8-bit float, rounded to nearest even. Finite values beyond the largest one (E3M4 15.5, E4M3 448,
    /// E5M2 57344) become the largest one: [`Fp8Policy::OCP`].
    Fp8(Fp8Format),
    /// Block floats of 8 bits: 17 bytes for 16 weights.
    Bfp8,
    /// Block floats of 4 bits: 9 bytes for 16 weights.
    Bfp4,
}

impl WeightFormat {
    /// Every format.
    pub const ALL: [Self; 8] = [
        Self::Fp32,
        Self::Bf16,
        Self::Fp16,
        Self::Fp8(Fp8Format::E4M3),
        Self::Fp8(Fp8Format::E5M2),
        Self::Fp8(Fp8Format::E3M4),
        Self::Bfp8,
        Self::Bfp4,
    ];

    /// The name that pipeline files use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Fp8(Fp8Format::E4M3) => "fp8_e4m3",
            Self::Fp8(Fp8Format::E5M2) => "fp8_e5m2",
            Self::Fp8(Fp8Format::E3M4) => "fp8_e3m4",
            Self::Bfp8 => "bfp8",
            Self::Bfp4 => "bfp4",
        }
    }
}

impl fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no weight format has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no weight format is called {0:?}; the choices are {choices}", choices = choices())]
pub struct UnknownWeightFormat(String);

fn choices() -> String {
    WeightFormat::ALL.map(WeightFormat::name).join(", ")
}

impl FromStr for WeightFormat {
    type Err = UnknownWeightFormat;

    fn from_str(name: &str) -> Result<Self, UnknownWeightFormat> {
        Self::ALL
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| UnknownWeightFormat(name.to_owned()))
    }
}

/// Weights that cannot be stored.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// An infinity or NaN where the format is to keep numbers only.
    #[error("weight {index} is {value}, which cannot be stored as {format}; fp32 keeps it")]
    NotFinite {
        /// Place of the first such weight.
        index: usize,
        /// The weight.
        value: f32,
        /// The format.
        format: WeightFormat,
    },
    /// A finite weight that the format rounds to infinity.
    #[error(
        "weight {index} is {value}, beyond the range of {format}; fp32 and the block formats keep it, the 8-bit \
         floats hold it at their largest value"
    )]
    BeyondRange {
        /// Place of the first such weight.
        index: usize,
        /// The weight.
        value: f32,
        /// The format.
        format: WeightFormat,
    },
    /// Rows that do not divide the weights.
    #[error("{weights} weights cannot be divided into rows of {row_len}")]
    Rows {
        /// Number of weights.
        weights: usize,
        /// Weights of a row.
        row_len: usize,
    },
    /// A size that is refused.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// Weights in one of the formats.
///
/// Weights come in rows, each what one output channel of a convolution reads: `[Cout, Cin / groups, KH, KW]` is
/// `Cout` rows of `Cin / groups * KH * KW`. The blocks of [`WeightFormat::Bfp8`] and [`WeightFormat::Bfp4`] run
/// along a row and start anew with each, the last one of a row filled up with zeros. So no channel's exponent
/// depends on its neighbour, and short rows pay for it: the 9 weights of a depthwise 3 x 3 take a whole block.
#[derive(Debug, Clone)]
pub struct StoredWeights {
    format: WeightFormat,
    stored: Stored,
}

#[derive(Debug, Clone)]
enum Stored {
    /// One element a weight.
    Elements(HostTensor),
    /// Exponents and mantissas of the blocks of all rows.
    Blocks {
        format: BlockFormat,
        len: usize,
        row_len: usize,
        exponents: Vec<u8>,
        mantissas: Vec<u8>,
    },
}

impl StoredWeights {
    /// Stores weights that come in rows of `row_len`. Only fp32 keeps infinities and NaN.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn pack(format: WeightFormat, weights: &[f32], row_len: usize) -> Result<Self, StoreError> {
        if row_len == 0 || !weights.len().is_multiple_of(row_len) {
            return Err(StoreError::Rows {
                weights: weights.len(),
                row_len,
            });
        }
        if format != WeightFormat::Fp32
            && let Some((index, &value)) = weights.iter().enumerate().find(|(_, w)| !w.is_finite())
        {
            return Err(StoreError::NotFinite { index, value, format });
        }
        let elements = |dtype| -> Result<Stored, StoreError> {
            let tensor = HostTensor::from_f32(&[weights.len()], weights, dtype, &Fp8Policy::OCP)?;
            Ok(Stored::Elements(tensor))
        };
        let stored = match format {
            WeightFormat::Fp32 => elements(DType::F32)?,
            WeightFormat::Bf16 => elements(DType::Bf16)?,
            WeightFormat::Fp16 => elements(DType::F16)?,
            WeightFormat::Fp8(format) => elements(format.into())?,
            WeightFormat::Bfp8 => blocks(BlockFormat::Bfp8, weights, row_len),
            WeightFormat::Bfp4 => blocks(BlockFormat::Bfp4, weights, row_len),
        };
        let stored = Self { format, stored };
        if matches!(format, WeightFormat::Bf16 | WeightFormat::Fp16)
            && let Some(index) = stored.widen().iter().position(|w| w.is_infinite())
        {
            let value = weights[index];
            return Err(StoreError::BeyondRange { index, value, format });
        }
        Ok(stored)
    }

    /// As [`Self::pack`], out of a cache where the same weights were packed before. `name` tells files of the cache apart;
    /// that a file is of these weights, a digest of them decides. fp32 is never kept: there is nothing to do for it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn pack_cached(
        format: WeightFormat,
        weights: &[f32],
        row_len: usize,
        name: &str,
        cache: &WeightCache,
    ) -> Result<Self, StoreError> {
        let layout = match format {
            WeightFormat::Fp32 => None,
            WeightFormat::Bf16 => Some((DType::Bf16, weights.len())),
            WeightFormat::Fp16 => Some((DType::F16, weights.len())),
            WeightFormat::Fp8(format) => Some((format.into(), weights.len())),
            WeightFormat::Bfp8 => block_bytes(BlockFormat::Bfp8, weights.len(), row_len),
            WeightFormat::Bfp4 => block_bytes(BlockFormat::Bfp4, weights.len(), row_len),
        };
        let Some((dtype, elements)) = layout.filter(|_| cache.is_on()) else {
            return Self::pack(format, weights, row_len);
        };
        let spec = TensorSpec::new(&[elements], dtype)?;
        let digest = xxh3_128(bytemuck::cast_slice(weights));
        let key = format!("{name}.{format}.{row_len}.{digest:032x}");
        let made = cache.get(&key, &spec, || {
            Self::pack(format, weights, row_len)?.into_tensor()
        });
        let tensor = match made {
            Ok(tensor) => tensor,
            Err(WeightCacheError::Make(error)) => return Err(error),
            // What a cache does not take is packed without one.
            Err(_) => return Self::pack(format, weights, row_len),
        };
        let stored = match format {
            WeightFormat::Bfp8 => split(BlockFormat::Bfp8, weights.len(), row_len, &tensor),
            WeightFormat::Bfp4 => split(BlockFormat::Bfp4, weights.len(), row_len, &tensor),
            _ => Stored::Elements(tensor),
        };
        Ok(Self { format, stored })
    }

    /// The stored bytes as a tensor: of the elements, or of the exponents and then the mantissas of all blocks.
    fn into_tensor(self) -> Result<HostTensor, StoreError> {
        match self.stored {
            Stored::Elements(tensor) => Ok(tensor),
            Stored::Blocks {
                exponents, mantissas, ..
            } => {
                let bytes = [exponents, mantissas].concat();
                Ok(HostTensor::from_slice(&[bytes.len()], &bytes)?)
            }
        }
    }

    /// The format.
    #[must_use]
    pub const fn format(&self) -> WeightFormat {
        self.format
    }

    /// Number of weights.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.stored {
            Stored::Elements(tensor) => tensor.shape().elements(),
            Stored::Blocks { len, .. } => *len,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the weights take, padding of blocks included.
    #[must_use]
    pub fn stored_bytes(&self) -> usize {
        match &self.stored {
            Stored::Elements(tensor) => tensor.bytes().len(),
            Stored::Blocks {
                exponents, mantissas, ..
            } => exponents.len() + mantissas.len(),
        }
    }

    /// The weights as fp32, in the order in which they came. Exact: what was lost was lost when they were
    /// stored.
    #[must_use]
    pub fn widen(&self) -> Cow<'_, [f32]> {
        match &self.stored {
            Stored::Elements(tensor) => match tensor.as_slice::<f32>() {
                Ok(weights) => Cow::Borrowed(weights),
                Err(_) => Cow::Owned(tensor.to_f32(&Fp8Policy::OCP)),
            },
            Stored::Blocks {
                format,
                len,
                row_len,
                exponents,
                mantissas,
            } => {
                let mut weights = vec![0.0; *len];
                let row_blocks = row_len.div_ceil(BLOCK_VALUES);
                let rows = weights
                    .chunks_exact_mut(*row_len)
                    .zip(exponents.chunks_exact(row_blocks))
                    .zip(mantissas.chunks_exact(row_blocks * format.mantissa_bytes()));
                for ((row, exponents), mantissas) in rows {
                    sized(decode_into(*format, exponents, mantissas, row));
                }
                Cow::Owned(weights)
            }
        }
    }
}

/// Type and number of the bytes of blocks; `None` for rows that do not divide the weights, which packing tells.
fn block_bytes(format: BlockFormat, len: usize, row_len: usize) -> Option<(DType, usize)> {
    let rows = len.checked_div(row_len).filter(|rows| rows * row_len == len)?;
    let blocks = rows * row_len.div_ceil(BLOCK_VALUES);
    Some((DType::U8, blocks * (1 + format.mantissa_bytes())))
}

/// Blocks out of a tensor of [`block_bytes`].
fn split(format: BlockFormat, len: usize, row_len: usize, tensor: &HostTensor) -> Stored {
    let bytes = tensor.bytes();
    let (exponents, mantissas) = bytes.split_at(bytes.len() / (1 + format.mantissa_bytes()));
    Stored::Blocks {
        format,
        len,
        row_len,
        exponents: exponents.to_vec(),
        mantissas: mantissas.to_vec(),
    }
}

/// Encodes finite weights row by row.
fn blocks(format: BlockFormat, weights: &[f32], row_len: usize) -> Stored {
    let row_blocks = row_len.div_ceil(BLOCK_VALUES);
    let rows = weights.len() / row_len;
    let mut exponents = vec![0; rows * row_blocks];
    let mut mantissas = vec![0; exponents.len() * format.mantissa_bytes()];
    let places = exponents
        .chunks_exact_mut(row_blocks)
        .zip(mantissas.chunks_exact_mut(row_blocks * format.mantissa_bytes()));
    for (row, (exponents, mantissas)) in weights.chunks_exact(row_len).zip(places) {
        sized(encode_into(format, row, exponents, mantissas));
    }
    Stored::Blocks {
        format,
        len: weights.len(),
        row_len,
        exponents,
        mantissas,
    }
}

/// Takes the only refusal of a slice conversion, buffers of a wrong length, for impossible.
#[expect(clippy::expect_used, reason = "buffers are made for the blocks of a row")]
fn sized(converted: Result<(), BlockFloatError>) {
    converted.expect("buffers of one row");
}
