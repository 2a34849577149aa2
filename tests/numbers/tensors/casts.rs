//! Host tensors of one element type made from another.

use std::borrow::Cow;

use half::{bf16, f16};
use proptest::prelude::*;
use sensorium::tensor::{CastError, DType, Element, HostTensor, TensorSpec};

#[test]
fn element_types_go_by_their_long_and_short_names() {
    for (dtype, names) in [
        (DType::Bf16, &["bfloat16", "bf16"][..]),
        (DType::F32, &["float32", "fp32", "f32"]),
        (DType::F16, &["float16", "fp16"]),
        (DType::U32, &["uint32", "u32"]),
        (DType::I32, &["int32"]),
        (DType::I64, &["int64"]),
        (DType::U8, &["uint8"]),
        (DType::I8, &["int8"]),
    ] {
        assert!(
            names.iter().all(|name| DType::named(name) == Ok(dtype)),
            "{dtype}"
        );
        assert_eq!(DType::named(&dtype.to_string()), Ok(dtype));
    }
    let error = DType::named("bfp8").unwrap_err().to_string();
    assert!(
        error.starts_with(
            "no element type is called \"bfp8\"; there are float32 (fp32, f32), bfloat16 (bf16)"
        ),
        "{error}"
    );
    assert!(DType::named("BF16").is_err() && DType::named("").is_err());
}

fn cast<S: Element, D: Element>(values: &[S]) -> Result<Vec<D>, CastError> {
    let tensor = HostTensor::from_slice(&[values.len()], values).unwrap();
    let cast = tensor.cast(D::DTYPE)?;
    assert_eq!((cast.shape(), cast.dtype()), (tensor.shape(), D::DTYPE));
    Ok(cast.as_slice::<D>().unwrap().to_vec())
}

/// bf16 of an fp32 by its bits: the upper half, plus one where the lower half is above its middle, or on it and the
/// upper half is odd.
fn bf16_bits(value: f32) -> Option<u16> {
    let bits = value.to_bits();
    let (upper, lower) = ((bits >> 16) as u16, bits & 0xFFFF);
    let up = lower > 0x8000 || (lower == 0x8000 && upper % 2 == 1);
    (!value.is_nan()).then(|| upper + u16::from(up))
}

#[test]
fn fp32_becomes_bf16_by_rounding_to_even_in_every_binade() {
    let mut inputs = Vec::new();
    for upper in 0..=u16::MAX {
        for lower in [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF] {
            inputs.push(f32::from_bits((u32::from(upper) << 16) | lower));
        }
    }
    let rounded: Vec<bf16> = cast(&inputs).unwrap();
    for (input, output) in inputs.iter().zip(&rounded) {
        match bf16_bits(*input) {
            Some(bits) => assert_eq!(output.to_bits(), bits, "{input:e}"),
            None => assert!(output.is_nan()),
        }
    }
    assert_eq!(cast::<f32, bf16>(&[f32::MAX]).unwrap(), [bf16::INFINITY]);
}

/// The nearest fp16 of an exact value by search over all finite ones.
fn nearest_f16(exact: f64) -> u16 {
    let magnitude = exact.abs();
    let value = |bits: u16| match bits {
        // The value that would follow the largest finite one: from the middle on, the result is infinite.
        0x7C00 => 65536.0,
        bits => f64::from(f16::from_bits(bits)),
    };
    let codes: Vec<u16> = (0..=0x7C00).collect();
    let above = codes
        .partition_point(|&bits| value(bits) < magnitude)
        .clamp(1, 0x7C00);
    let (low, high) = (codes[above - 1], codes[above]);
    let (down, up) = (magnitude - value(low), value(high) - magnitude);
    let bits = if down < up || (down == up && low % 2 == 0) {
        low
    } else {
        high
    };
    bits | if exact.is_sign_negative() { 0x8000 } else { 0 }
}

#[test]
fn fp32_becomes_fp16_by_rounding_to_even() {
    let mut inputs = vec![
        65504.0, 65519.99, 65520.0, 65536.0, -1e9, 2e-8, 2.98e-8, -0.0, 5.96e-8,
    ];
    for bits in (0..0x7BFF).step_by(37) {
        let [low, high] = [bits, bits + 1].map(|b| f16::from_bits(b).to_f32());
        let middle = (low + high) / 2.0;
        inputs.extend([
            middle,
            -middle,
            f32::from_bits(middle.to_bits() + 1),
            f32::from_bits(middle.to_bits() - 1),
        ]);
    }
    let rounded: Vec<f16> = cast(&inputs).unwrap();
    for (&input, output) in inputs.iter().zip(&rounded) {
        assert_eq!(output.to_bits(), nearest_f16(input.into()), "{input:e}");
    }
    assert!(cast::<f32, f16>(&[f32::NAN]).unwrap()[0].is_nan());
    // Between the short formats by way of their exact fp32 value.
    let wide: Vec<bf16> = cast(&[f16::from_f32(1.0 / 3.0), f16::MAX]).unwrap();
    assert_eq!(
        Some(wide[0].to_bits()),
        bf16_bits(f16::from_f32(1.0 / 3.0).to_f32())
    );
    assert_eq!(wide[1].to_f32(), 65536.0);
    assert_eq!(
        cast::<bf16, f16>(&[bf16::from_f32(1e6)]).unwrap(),
        [f16::INFINITY]
    );
    assert_eq!(
        cast::<bf16, f32>(&[bf16::from_f32(0.1)]).unwrap(),
        [bf16::from_f32(0.1).to_f32()]
    );
}

#[test]
fn integers_never_go_through_a_float() {
    let edges = [
        (1_i64 << 24) + 1,
        (1 << 53) + 1,
        i64::MAX,
        i64::MIN,
        i64::from(u32::MAX),
        i64::from(i32::MIN),
        -1,
        0,
    ];
    assert_eq!(cast::<i64, i64>(&edges).unwrap(), edges);
    let words: Vec<u32> = cast(&[i64::from(u32::MAX), (1 << 24) + 1, (1 << 31) + 1, 0]).unwrap();
    assert_eq!(words, [u32::MAX, (1 << 24) + 1, (1 << 31) + 1, 0]);
    assert_eq!(cast::<u32, i64>(&[u32::MAX]).unwrap(), [i64::from(u32::MAX)]);
    assert_eq!(
        cast::<i32, u32>(&[(1 << 24) + 1, i32::MAX]).unwrap(),
        [(1 << 24) + 1, i32::MAX as u32]
    );
    assert_eq!(cast::<u32, i32>(&[16_777_217]).unwrap(), [16_777_217]);
    assert_eq!(cast::<i64, u8>(&[0, 255]).unwrap(), [0, 255]);
    assert_eq!(cast::<u8, i8>(&[127]).unwrap(), [127]);
    assert_eq!(cast::<i8, i64>(&[-128]).unwrap(), [-128]);
}

#[test]
fn a_number_that_the_type_does_not_have_is_told_with_its_place() {
    assert_eq!(
        cast::<i64, i8>(&[1, 2, 128]).unwrap_err().to_string(),
        "element 2 is 128 (int64), which int8 cannot hold: clamp the values first or choose a wider type"
    );
    let refused = |outcome: Result<(), CastError>| match outcome {
        Err(CastError::OutOfRange { index, value, .. }) => (index, value),
        other => panic!("{other:?}"),
    };
    let at = |index: usize, value: &str| (index, value.to_owned());
    assert_eq!(
        refused(cast::<i64, u32>(&[0, 1 << 32]).map(drop::<Vec<_>>)),
        at(1, "4294967296")
    );
    let beyond_f64 = (1 << 53) + 1;
    assert_eq!(
        refused(cast::<i64, u32>(&[beyond_f64]).map(drop::<Vec<_>>)),
        at(0, "9007199254740993")
    );
    assert_eq!(
        refused(cast::<i64, i32>(&[-(1 << 31) - 1]).map(drop::<Vec<_>>)),
        at(0, "-2147483649")
    );
    assert_eq!(refused(cast::<i32, u32>(&[-1]).map(drop::<Vec<_>>)), at(0, "-1"));
    assert_eq!(
        refused(cast::<u32, i32>(&[1 << 31]).map(drop::<Vec<_>>)),
        at(0, "2147483648")
    );
    assert_eq!(refused(cast::<u8, i8>(&[128]).map(drop::<Vec<_>>)), at(0, "128"));
    assert_eq!(
        refused(cast::<f32, u8>(&[255.4, 255.5]).map(drop::<Vec<_>>)),
        at(1, "255.5")
    );
    assert_eq!(
        refused(cast::<f32, i64>(&[0.0, f32::NAN]).map(drop::<Vec<_>>)),
        at(1, "NaN")
    );
    assert_eq!(
        refused(cast::<bf16, i64>(&[bf16::INFINITY]).map(drop::<Vec<_>>)),
        at(0, "inf")
    );
    // 2^63 is the first fp32 above the range, -2^63 the last one inside.
    assert_eq!(
        refused(cast::<f32, i64>(&[9.223_372e18]).map(drop::<Vec<_>>)),
        at(0, "9223372000000000000")
    );
    assert_eq!(cast::<f32, i64>(&[-9.223_372e18]).unwrap(), [i64::MIN]);
}

#[test]
fn floats_become_integers_by_rounding_to_even() {
    let halves = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 254.5, 1e-30];
    assert_eq!(cast::<f32, i64>(&halves).unwrap(), [0, 2, 2, 0, -2, -2, 254, 0]);
    assert_eq!(cast::<f16, u8>(&[f16::from_f32(7.5)]).unwrap(), [8]);
    assert_eq!(cast::<f32, i32>(&[-2_147_483_648.0]).unwrap(), [i32::MIN]);
}

#[test]
fn a_cast_to_the_same_type_is_the_tensor_itself() {
    let tensor = HostTensor::from_slice(&[2], &[f32::NAN, 1.0]).unwrap();
    assert!(matches!(tensor.cast(DType::F32).unwrap(), Cow::Borrowed(same) if std::ptr::eq(same, &tensor)));
    assert!(matches!(tensor.cast(DType::Bf16).unwrap(), Cow::Owned(_)));
    let large = HostTensor::zeros(TensorSpec::new(&[0, 1 << 60], DType::U8).unwrap());
    assert!(
        large.cast(DType::I64).is_ok(),
        "no elements are no bytes in any type"
    );
}

/// The nearest value of a short float to an integer that has none of its own, in integers: both neighbours of a
/// number of that size are integers.
fn nearest_integer(value: i64, fraction_bits: u32) -> i128 {
    let magnitude = i128::from(value).unsigned_abs();
    let length = 128 - magnitude.leading_zeros();
    let Some(lost) = length.checked_sub(fraction_bits + 1) else {
        return value.into();
    };
    let unit = 1_u128 << lost;
    let (below, rest) = (magnitude / unit, magnitude % unit);
    let up = 2 * rest > unit || (2 * rest == unit && below % 2 == 1);
    let rounded = ((below + u128::from(up)) * unit) as i128;
    if value < 0 { -rounded } else { rounded }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn integers_become_the_nearest_float_rounded_once(value in any::<i64>(), shift in 0_u32..63, ones in any::<bool>()) {
        // Runs of ones and single bits below the fraction are where a second rounding would show.
        let mut value = value >> shift;
        if ones {
            value |= 1;
        }
        for value in [value, value | 0x7F_FFFF, value & !0x7F_FFFF] {
            let as_f32 = cast::<i64, f32>(&[value]).unwrap()[0];
            prop_assert_eq!(as_f32 as i128, nearest_integer(value, 23));
            let as_bf16 = cast::<i64, bf16>(&[value]).unwrap()[0];
            prop_assert_eq!(as_bf16.to_f32() as i128, nearest_integer(value, 7));
            let as_f16 = cast::<i64, f16>(&[value]).unwrap()[0];
            let expected = nearest_integer(value, 10);
            if expected.unsigned_abs() < 65536 {
                prop_assert_eq!(as_f16.to_f32() as i128, expected);
            } else {
                prop_assert_eq!(as_f16.to_f32(), if value < 0 { f32::NEG_INFINITY } else { f32::INFINITY });
            }
        }
        // One step beyond what fp32 holds, on top of what bf16 breaks a tie by.
        let tie = (1_i64 << 40) + (1 << 32);
        prop_assert_eq!(cast::<i64, bf16>(&[tie, tie + 1]).unwrap().map_to_f32(), [1_099_511_627_776.0, 1_108_101_562_368.0]);
    }
}

trait MapToF32 {
    fn map_to_f32(&self) -> Vec<f32>;
}

impl MapToF32 for Vec<bf16> {
    fn map_to_f32(&self) -> Vec<f32> {
        self.iter().map(|x| x.to_f32()).collect()
    }
}
