//! Whole blocks on the widest vectors of the processor, chosen at run time. Same integers as `block.rs`, so
//! the same bits; `tests/numbers/numeric/blockfloat.rs` compares all forms.

use super::block::{Block, decode_block, encode_block, pack, unpack};
use super::{BLOCK_VALUES, BlockFormat};

/// The kernels that blocks are encoded and decoded on. The choice changes the speed, never the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernels {
    /// Set to a vector form only where the processor was found to have it.
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Kernels {
    /// The fastest kernels that this processor can run.
    #[must_use]
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if has_avx512() {
                return Self { form: Form::Avx512 };
            }
            if has_avx2() {
                return Self { form: Form::Avx2 };
            }
        }
        Self::scalar()
    }

    /// Plain Rust, the reference that the others are held against.
    #[must_use]
    pub const fn scalar() -> Self {
        Self { form: Form::Scalar }
    }

    /// All kernels that this processor can run, the slowest first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        let vectors = [(Form::Avx2, has_avx2()), (Form::Avx512, has_avx512())];
        #[cfg(not(target_arch = "x86_64"))]
        let vectors: [(Form, bool); 0] = [];
        let found = vectors.into_iter().filter_map(|(form, has)| has.then_some(form));
        std::iter::once(Form::Scalar)
            .chain(found)
            .map(|form| Self { form })
            .collect()
    }

    /// Name for reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.form {
            Form::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Form::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Form::Avx512 => "avx512",
        }
    }

    /// [`encode_block`] on every block, packed. One exponent and `format.mantissa_bytes()` a block.
    pub(super) fn encode_blocks(
        self,
        format: BlockFormat,
        values: &[[f32; BLOCK_VALUES]],
        exponents: &mut [u8],
        mantissas: &mut [u8],
    ) {
        match format {
            BlockFormat::Bfp8 => {
                self.encode_packed::<16>(format, values, exponents, mantissas.as_chunks_mut().0);
            }
            BlockFormat::Bfp4 => {
                self.encode_packed::<8>(format, values, exponents, mantissas.as_chunks_mut().0);
            }
        }
    }

    /// [`decode_block`] on every packed block.
    pub(super) fn decode_blocks(
        self,
        format: BlockFormat,
        exponents: &[u8],
        mantissas: &[u8],
        values: &mut [[f32; BLOCK_VALUES]],
    ) {
        match format {
            BlockFormat::Bfp8 => {
                self.decode_packed::<16>(format, exponents, mantissas.as_chunks().0, values);
            }
            BlockFormat::Bfp4 => {
                self.decode_packed::<8>(format, exponents, mantissas.as_chunks().0, values);
            }
        }
    }

    /// `BYTES` is the format's count of mantissa bytes, so that every form is compiled for its format.
    fn encode_packed<const BYTES: usize>(
        self,
        format: BlockFormat,
        values: &[[f32; BLOCK_VALUES]],
        exponents: &mut [u8],
        mantissas: &mut [[u8; BYTES]],
    ) {
        match self.form {
            Form::Scalar => {
                for ((values, exponent), packed) in values.iter().zip(exponents).zip(mantissas) {
                    let block = encode_block(format, values);
                    *exponent = block.exponent;
                    *packed = pack(&block.codes);
                }
            }
            // SAFETY: this form is set only where the processor has AVX2.
            #[cfg(target_arch = "x86_64")]
            Form::Avx2 => unsafe { super::simd_avx2::encode(values, exponents, mantissas) },
            // SAFETY: this form is set only where the processor has AVX-512 F, BW and VL.
            #[cfg(target_arch = "x86_64")]
            Form::Avx512 => unsafe { super::simd_avx512::encode(values, exponents, mantissas) },
        }
    }

    /// See [`Self::encode_packed`].
    fn decode_packed<const BYTES: usize>(
        self,
        format: BlockFormat,
        exponents: &[u8],
        mantissas: &[[u8; BYTES]],
        values: &mut [[f32; BLOCK_VALUES]],
    ) {
        match self.form {
            Form::Scalar => {
                for ((&exponent, packed), values) in exponents.iter().zip(mantissas).zip(values) {
                    let codes = unpack(packed);
                    *values = decode_block(format, &Block { exponent, codes });
                }
            }
            // SAFETY: this form is set only where the processor has AVX2.
            #[cfg(target_arch = "x86_64")]
            Form::Avx2 => unsafe { super::simd_avx2::decode(exponents, mantissas, values) },
            // SAFETY: this form is set only where the processor has AVX-512 F, BW and VL.
            #[cfg(target_arch = "x86_64")]
            Form::Avx512 => unsafe { super::simd_avx512::decode(exponents, mantissas, values) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
}

/// Magnitude bits of codes that take so many bytes a block.
#[cfg(target_arch = "x86_64")]
pub(super) const fn magnitude_bits(bytes: usize) -> u32 {
    (bytes * 8 / BLOCK_VALUES) as u32 - 1
}
