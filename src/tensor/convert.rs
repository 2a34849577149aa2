//! Host tensors made of fp32 values, and read as such.

use super::{DType, Element, HostTensor, TensorError, TensorSpec};
use crate::numeric::{
    Fp8Format, Fp8Policy, LengthError, bf16_decode_into, bf16_encode_into, f16_decode_into, f16_encode_into,
    fp8_decode_into, fp8_encode_into,
};

impl HostTensor {
    /// A tensor of `dtype` with the nearest representable values, ties to even. Integers saturate and hold 0
    /// for NaN, as after a copy on a device; what an 8-bit float makes of a value beyond its range is a matter
    /// of the policy.
    ///
    /// # Errors
    /// A shape that is refused, or whose element count differs from `values.len()`.
    pub fn from_f32(
        dims: &[usize],
        values: &[f32],
        dtype: DType,
        policy: &Fp8Policy,
    ) -> Result<Self, TensorError> {
        let mut tensor = Self::zeros(TensorSpec::new(dims, dtype)?);
        if values.len() != tensor.shape().elements() {
            return Err(TensorError::ValueCount {
                shape: *tensor.shape(),
                found: values.len(),
            });
        }
        let bytes = tensor.bytes_mut();
        match dtype {
            // `as` saturates, and makes NaN 0.
            DType::U8 => round(values, bytes, |x| x as u8),
            DType::I8 => round(values, bytes, |x| x as i8),
            DType::U16 => round(values, bytes, |x| x as u16),
            DType::I16 => round(values, bytes, |x| x as i16),
            DType::I32 => round(values, bytes, |x| x as i32),
            DType::U32 => round(values, bytes, |x| x as u32),
            DType::I64 => round(values, bytes, |x| x as i64),
            DType::U64 => round(values, bytes, |x| x as u64),
            DType::F8E3M4 => encode_fp8(Fp8Format::E3M4, policy, values, bytes),
            DType::F8E4M3 => encode_fp8(Fp8Format::E4M3, policy, values, bytes),
            DType::F8E5M2 => encode_fp8(Fp8Format::E5M2, policy, values, bytes),
            DType::F16 => fits(f16_encode_into(values, bytemuck::cast_slice_mut(bytes))),
            DType::Bf16 => fits(bf16_encode_into(values, bytemuck::cast_slice_mut(bytes))),
            DType::F32 => bytes.copy_from_slice(bytemuck::cast_slice(values)),
        }
        Ok(tensor)
    }

    /// The elements as fp32: exact for every float (NaN may become quiet) and for integers of up to 24 bits, the
    /// nearest value for others. The policy says what the codes of an 8-bit float mean.
    #[must_use]
    pub fn to_f32(&self, policy: &Fp8Policy) -> Vec<f32> {
        let bytes = self.bytes();
        match self.dtype() {
            DType::U8 => widen(bytes, |x: u8| f32::from(x)),
            DType::I8 => widen(bytes, |x: i8| f32::from(x)),
            DType::U16 => widen(bytes, |x: u16| f32::from(x)),
            DType::I16 => widen(bytes, |x: i16| f32::from(x)),
            DType::I32 => widen(bytes, |x: i32| x as f32),
            DType::U32 => widen(bytes, |x: u32| x as f32),
            DType::I64 => widen(bytes, |x: i64| x as f32),
            DType::U64 => widen(bytes, |x: u64| x as f32),
            DType::F8E3M4 => decode_fp8(Fp8Format::E3M4, policy, bytes),
            DType::F8E4M3 => decode_fp8(Fp8Format::E4M3, policy, bytes),
            DType::F8E5M2 => decode_fp8(Fp8Format::E5M2, policy, bytes),
            DType::F16 => decode(bytes, f16_decode_into),
            DType::Bf16 => decode(bytes, bf16_decode_into),
            DType::F32 => widen(bytes, |x: f32| x),
        }
    }
}

fn round<T: Element>(values: &[f32], bytes: &mut [u8], narrow: impl Fn(f32) -> T) {
    let places = bytemuck::cast_slice_mut::<u8, T>(bytes);
    for (place, &value) in places.iter_mut().zip(values) {
        *place = narrow(value.round_ties_even());
    }
}

fn widen<T: Element>(bytes: &[u8], widen: impl Fn(T) -> f32) -> Vec<f32> {
    bytemuck::cast_slice::<u8, T>(bytes)
        .iter()
        .map(|&x| widen(x))
        .collect()
}

fn encode_fp8(format: Fp8Format, policy: &Fp8Policy, values: &[f32], codes: &mut [u8]) {
    fits(fp8_encode_into(format, policy, values, codes));
}

fn decode_fp8(format: Fp8Format, policy: &Fp8Policy, codes: &[u8]) -> Vec<f32> {
    let mut values = vec![0.0; codes.len()];
    fits(fp8_decode_into(format, policy, codes, &mut values));
    values
}

fn decode(bytes: &[u8], into: fn(&[u16], &mut [f32]) -> Result<(), LengthError>) -> Vec<f32> {
    let codes = bytemuck::cast_slice(bytes);
    let mut values = vec![0.0; codes.len()];
    fits(into(codes, &mut values));
    values
}

/// Takes the only refusal of a slice conversion, lengths that differ, for impossible.
#[expect(clippy::expect_used, reason = "a tensor has one place for each of its values")]
fn fits(converted: Result<(), LengthError>) {
    converted.expect("as many codes as values");
}
