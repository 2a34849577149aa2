//! Whole slices, on the instruction set that is asked for. `simd_avx2.rs` and `simd_avx512.rs` compute what
//! the scalar code of `codec.rs` and `fp4.rs` does, bit for bit; the tests at the end compare them.

use super::codec::Plan;
use super::fp4;
use crate::numeric::isa::Isa;
use crate::numeric::simd_chunks::in_chunks;

/// Runs a function on the vectors of `$isa` if the processor has them, else on one lane.
macro_rules! dispatch {
    ($isa:ident, $function:ident($($argument:expr),*), $scalar:expr) => {
        match $isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 if $isa.is_available() => {
                // SAFETY: the processor has the instructions; this was just asked.
                unsafe { super::simd_avx512::$function($($argument),*) }
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 if $isa.is_available() => {
                // SAFETY: as above.
                unsafe { super::simd_avx2::$function($($argument),*) }
            }
            _ => $scalar,
        }
    };
}

/// Encodes as many values as there are codes.
pub(super) fn encode(isa: Isa, plan: &Plan, values: &[f32], codes: &mut [u8]) {
    dispatch!(isa, encode(plan, values, codes), {
        for (code, &value) in codes.iter_mut().zip(values) {
            *code = plan.encode(value);
        }
    });
}

/// Decodes as many codes as there are values. `table` holds the plan's values of all codes: looking them up is
/// as fast as computing them in eight lanes, computing them in sixteen lanes is faster.
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(unused_variables, reason = "only sixteen lanes compute")
)]
pub(super) fn decode(isa: Isa, plan: &Plan, table: &[f32; 256], codes: &[u8], values: &mut [f32]) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 if isa.is_available() => {
            // SAFETY: the processor has the instructions; this was just asked.
            unsafe { super::simd_avx512::decode(plan, codes, values) }
        }
        _ => {
            for (value, &code) in values.iter_mut().zip(codes) {
                *value = table[usize::from(code)];
            }
        }
    }
}

/// Encodes FP4, two values to a byte.
pub(super) fn encode_fp4(isa: Isa, values: &[f32], packed: &mut [u8]) {
    dispatch!(
        isa,
        encode_fp4(values, packed),
        in_chunks(values, packed, fp4::encode_pair)
    );
}

/// Decodes FP4, two values to a byte.
pub(super) fn decode_fp4(isa: Isa, packed: &[u8], values: &mut [f32]) {
    dispatch!(
        isa,
        decode_fp4(packed, values),
        in_chunks(packed, values, fp4::decode_pair)
    );
}

#[cfg(test)]
mod tests {
    use super::super::codec::values_of_codes;
    use super::super::format::Fp8Format;
    use super::super::policy::{Fp8Knobs, Fp8Policy};
    use super::*;

    /// All upper halves of an f32, with lower halves that round down, tie and round up.
    fn patterns() -> Vec<f32> {
        let low = [0, 0x8000, 0x7fff, 0x8001, 1, 0xffff, 0x4321];
        (0..=0xffff_u32)
            .map(|high| f32::from_bits((high << 16) | low[high as usize % 7]))
            .collect()
    }

    /// The named policies and one that ends early.
    fn policies() -> Vec<Fp8Policy> {
        let early = Fp8Knobs {
            emax_e4m3: 2,
            emax_e5m2: 0,
            ..Fp8Policy::IEEE.knobs()
        };
        let named = Fp8Policy::NAMED.map(|(_, policy)| policy);
        named
            .into_iter()
            .chain([Fp8Policy::new(early).unwrap()])
            .collect()
    }

    fn formats() -> impl Iterator<Item = (Fp8Format, Fp8Policy)> {
        let formats = |policy| Fp8Format::ALL.map(|format| (format, policy));
        policies().into_iter().flat_map(formats)
    }

    fn vector_sets() -> impl Iterator<Item = Isa> {
        [Isa::Avx2, Isa::Avx512]
            .into_iter()
            .filter(|isa| isa.is_available())
    }

    /// Parts of `whole` of every length from 0 to 200, at changing offsets.
    fn parts<T>(whole: &[T]) -> impl Iterator<Item = &[T]> {
        (0..=200).map(move |len| &whole[len * 317 % (whole.len() - 200)..][..len])
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|x| x.to_bits()).collect()
    }

    #[test]
    fn vectors_encode_what_one_lane_encodes() {
        let values = patterns();
        for (format, policy) in formats() {
            let plan = Plan::fp8(format, &policy);
            for isa in vector_sets() {
                for part in parts(&values).chain([values.as_slice()]) {
                    // One byte off, so that the codes are not aligned either, and guarded on both sides.
                    let mut codes = vec![0x55; part.len() + 2];
                    let mut expected = codes.clone();
                    encode(isa, &plan, part, &mut codes[1..=part.len()]);
                    encode(Isa::Scalar, &plan, part, &mut expected[1..=part.len()]);
                    assert!(codes == expected, "{isa} {format} {policy}");
                }
            }
        }
    }

    #[test]
    fn vectors_decode_what_one_lane_decodes() {
        let codes: Vec<u8> = (0..1 << 16).map(|i| (i * 7 + (i >> 8)) as u8).collect();
        for (format, policy) in formats() {
            let (plan, table) = (Plan::fp8(format, &policy), values_of_codes(format, &policy));
            for isa in vector_sets().chain([Isa::Scalar]) {
                for part in parts(&codes).chain([codes.as_slice()]) {
                    let mut values = vec![0.0; part.len() + 2];
                    decode(isa, &plan, table, part, &mut values[1..=part.len()]);
                    let alone = part.iter().map(|&code| plan.decode(code));
                    let expected: Vec<f32> = [0.0].into_iter().chain(alone).chain([0.0]).collect();
                    assert!(bits(&values) == bits(&expected), "{isa} {format} {policy}");
                }
            }
        }
    }

    #[test]
    fn vectors_pack_and_unpack_fp4_as_one_lane_does() {
        let values = patterns();
        for isa in vector_sets() {
            for part in parts(&values).chain([values.as_slice()]) {
                let bytes = part.len().div_ceil(2);
                let mut packed = vec![0x55; bytes + 2];
                let mut expected = packed.clone();
                encode_fp4(isa, part, &mut packed[1..=bytes]);
                encode_fp4(Isa::Scalar, part, &mut expected[1..=bytes]);
                assert!(packed == expected, "{isa} {}", part.len());

                let noise: Vec<u8> = (0..bytes).map(|i| (i * 37 + (i >> 8)) as u8).collect();
                let mut decoded = vec![0.0; part.len() + 2];
                let mut expected = decoded.clone();
                decode_fp4(isa, &noise, &mut decoded[1..=part.len()]);
                decode_fp4(Isa::Scalar, &noise, &mut expected[1..=part.len()]);
                assert!(bits(&decoded) == bits(&expected), "{isa} {}", part.len());
            }
        }
    }
}
