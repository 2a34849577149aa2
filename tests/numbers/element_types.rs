//! Host tensors of every element type, made of floats and read as floats.

use crate::support;
use half::{bf16, f16};
use sensorium::numeric::Fp8Policy;
use sensorium::tensor::{DType, Element, F8E3M4, F8E4M3, F8E5M2, HostTensor, Shape, TensorError, TensorSpec};

fn is_held<T: Element + PartialEq + std::fmt::Debug>(values: [T; 6]) {
    let mut tensor = HostTensor::from_slice(&[2, 3], &values).unwrap();
    assert_eq!(tensor.dtype(), T::DTYPE);
    assert_eq!(tensor.bytes().len(), 6 * T::DTYPE.size_bytes());
    assert_eq!(tensor.as_slice::<T>().unwrap(), values);
    assert_eq!(tensor.array::<T>().unwrap()[[1, 0]], values[3]);
    tensor.as_mut_slice::<T>().unwrap()[5] = values[0];
    assert_eq!(tensor.as_slice::<T>().unwrap()[5], values[0]);
    let zeros = HostTensor::zeros(TensorSpec::new(&[7], T::DTYPE).unwrap());
    assert!(zeros.as_slice::<T>().unwrap().len() == 7 && zeros.bytes().iter().all(|&b| b == 0));
}

#[test]
fn every_element_type_is_held_as_it_is() {
    is_held::<u8>([1, 2, 3, 4, 5, u8::MAX]);
    is_held::<i8>([1, 2, 3, 4, i8::MIN, i8::MAX]);
    is_held::<u16>([1, 2, 3, 4, 0x1234, u16::MAX]);
    is_held::<i16>([1, 2, 3, -4, i16::MIN, i16::MAX]);
    is_held::<u32>([1, 2, 3, 4, 5, u32::MAX]);
    is_held::<i32>([1, 2, 3, -4, i32::MIN, i32::MAX]);
    is_held::<u64>([1, 2, 3, 4, 1 << 40, u64::MAX]);
    is_held::<i64>([1, 2, 3, -4, i64::MIN, i64::MAX]);
    is_held::<f16>([1.0, 2.0, 3.0, -4.0, 0.5, 65504.0].map(f16::from_f32));
    is_held::<bf16>([1.0, 2.0, 3.0, -4.0, 0.5, 1e30].map(bf16::from_f32));
    is_held::<f32>([1.0, 2.0, 3.0, -4.0, 0.5, 1e30]);
    is_held::<F8E3M4>([1, 2, 3, 4, 5, 255].map(F8E3M4));
    is_held::<F8E4M3>([1, 2, 3, 4, 5, 255].map(F8E4M3));
    is_held::<F8E5M2>([1, 2, 3, 4, 5, 255].map(F8E5M2));
}

#[test]
fn one_byte_types_are_not_taken_for_each_other() {
    let codes = HostTensor::from_slice(&[2], &[F8E4M3(0x38), F8E4M3(0x7e)]).unwrap();
    let error = codes.as_slice::<F8E5M2>().unwrap_err();
    assert_eq!(
        error,
        TensorError::DTypeMismatch {
            expected: DType::F8E5M2,
            found: DType::F8E4M3
        }
    );
    assert_eq!(
        error.to_string(),
        "expected float8_e5m2 elements, found float8_e4m3"
    );
    assert!(codes.as_slice::<u8>().is_err());
    assert_eq!(codes.spec().to_string(), "float8_e4m3 [2]");
}

#[test]
fn small_whole_numbers_survive_every_element_type() {
    // E5M2 has three significant bits.
    let values: Vec<f32> = (0..16).map(|i| (i % 9) as f32).collect();
    for &dtype in DType::ALL {
        let tensor = HostTensor::from_f32(&[4, 4], &values, dtype, &Fp8Policy::OCP).unwrap();
        assert_eq!(tensor.dtype(), dtype);
        assert_eq!(tensor.to_f32(&Fp8Policy::OCP), values, "{dtype}");
    }
}

#[test]
fn what_lies_beyond_the_range_is_the_policys_affair() {
    let values = [448.0, 464.0, 465.0, -1e9, f32::INFINITY, f32::NAN];
    let read = |policy: &Fp8Policy| {
        HostTensor::from_f32(&[6], &values, DType::F8E4M3, policy)
            .unwrap()
            .to_f32(policy)
    };
    let ocp = read(&Fp8Policy::OCP);
    assert_eq!(ocp[..5], [448.0, 448.0, 448.0, -448.0, 448.0]);
    let nonsat = read(&Fp8Policy::OCP_NONSAT);
    assert_eq!(nonsat[..2], [448.0, 448.0]);
    assert!(nonsat[2..].iter().all(|v| v.is_nan()));
    let ieee = read(&Fp8Policy::IEEE);
    assert_eq!(
        ieee[..5],
        [
            f32::INFINITY,
            f32::INFINITY,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::INFINITY
        ]
    );
    assert!(ocp[5].is_nan() && ieee[5].is_nan());
    // One code, two meanings.
    let code = HostTensor::from_slice(&[1], &[F8E4M3(0x78)]).unwrap();
    assert_eq!(code.to_f32(&Fp8Policy::OCP), [256.0]);
    assert_eq!(code.to_f32(&Fp8Policy::IEEE), [f32::INFINITY]);
}

#[test]
fn integers_are_rounded_to_even_saturate_and_take_nan_for_zero() {
    let values = [0.5, 1.5, -2.5, 1e30, -1e30, f32::NAN];
    let made = |dtype| HostTensor::from_f32(&[6], &values, dtype, &Fp8Policy::OCP).unwrap();
    assert_eq!(
        made(DType::I16).as_slice::<i16>().unwrap(),
        [0, 2, -2, i16::MAX, i16::MIN, 0]
    );
    assert_eq!(
        made(DType::U16).as_slice::<u16>().unwrap(),
        [0, 2, 0, u16::MAX, 0, 0]
    );
    assert_eq!(
        made(DType::U64).as_slice::<u64>().unwrap(),
        [0, 2, 0, u64::MAX, 0, 0]
    );
    assert_eq!(
        made(DType::I64).as_slice::<i64>().unwrap(),
        [0, 2, -2, i64::MAX, i64::MIN, 0]
    );
}

#[test]
fn another_number_of_values_than_the_shape_has_is_refused() {
    for &dtype in DType::ALL {
        let refused = HostTensor::from_f32(&[2, 2], &[1.0; 3], dtype, &Fp8Policy::OCP).unwrap_err();
        assert_eq!(
            refused,
            TensorError::ValueCount {
                shape: Shape::new(&[2, 2]).unwrap(),
                found: 3
            }
        );
        assert_eq!(
            refused.to_string(),
            "shape [2, 2] has 4 elements, 3 values were given"
        );
    }
    let huge = HostTensor::from_f32(&[usize::MAX, 2], &[1.0], DType::F8E4M3, &Fp8Policy::OCP);
    assert!(matches!(huge, Err(TensorError::TooLarge { .. })));
}

/// What numpy and ml_dtypes make of these bytes.
fn theirs(way: &str, dtype: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut command = support::oracle("elements.py")?;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    Some(support::run(command.args([way, dtype]).arg(file.path())))
}

/// Our type and policy, and their name of the same thing.
const PEERS: [(DType, Fp8Policy, &str); 13] = [
    (DType::F8E3M4, Fp8Policy::IEEE, "float8_e3m4"),
    (DType::F8E4M3, Fp8Policy::IEEE, "float8_e4m3"),
    (DType::F8E4M3, Fp8Policy::OCP_NONSAT, "float8_e4m3fn"),
    (DType::F8E5M2, Fp8Policy::OCP_NONSAT, "float8_e5m2"),
    (DType::F16, Fp8Policy::OCP, "float16"),
    (DType::Bf16, Fp8Policy::OCP, "bfloat16"),
    (DType::F32, Fp8Policy::OCP, "float32"),
    (DType::U8, Fp8Policy::OCP, "uint8"),
    (DType::I8, Fp8Policy::OCP, "int8"),
    (DType::U16, Fp8Policy::OCP, "uint16"),
    (DType::I16, Fp8Policy::OCP, "int16"),
    (DType::I32, Fp8Policy::OCP, "int32"),
    (DType::I64, Fp8Policy::OCP, "int64"),
];

#[test]
fn floats_become_the_elements_that_ml_dtypes_makes_of_them() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut bits = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    // Every sign, exponents around those of the short formats, and any 23 bits of fraction.
    let floats: Vec<f32> = (0..40_000)
        .map(|_| {
            let bits = bits();
            let exponent = 127 - 30 + (bits >> 40) % 60;
            f32::from_bits((bits & 0x807f_ffff) as u32 | (exponent as u32) << 23)
        })
        .chain([0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, 1e-40, f32::MAX])
        .collect();
    for (dtype, policy, name) in PEERS {
        // Beyond the range of an integer numpy promises nothing.
        let limit = match dtype {
            DType::U8 | DType::I8 => 127.0,
            DType::U16 | DType::I16 => 32767.0,
            _ if !dtype.is_float() => 1e9,
            _ => f32::INFINITY,
        };
        let unsigned = matches!(dtype, DType::U8 | DType::U16);
        let values: Vec<f32> = floats
            .iter()
            .map(|&x| if unsigned { x.abs() } else { x })
            .filter(|x| x.abs() <= limit)
            .collect();
        let Some(expected) = theirs("narrow", name, bytemuck::cast_slice(&values)) else {
            return;
        };
        let found = HostTensor::from_f32(&[values.len()], &values, dtype, &policy).unwrap();
        let size = dtype.size_bytes();
        let pairs = found.bytes().chunks(size).zip(expected.chunks(size));
        for ((found, expected), value) in pairs.zip(&values) {
            assert_eq!(found, expected, "{name} of {value:e}");
        }
        assert_eq!(expected.len(), values.len() * size);
        assert!(values.len() > 5_000, "{name}: {} values", values.len());
    }
}

#[test]
fn all_codes_have_the_values_that_ml_dtypes_gives_them() {
    for (dtype, policy, name) in PEERS {
        let codes: Vec<u8> = match dtype.size_bytes() {
            1 => (0..=255).collect(),
            2 => (0..=u16::MAX).flat_map(u16::to_le_bytes).collect(),
            size => (0..1000_u64)
                .flat_map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[..size].to_vec())
                .collect(),
        };
        let Some(expected) = theirs("widen", name, &codes) else {
            return;
        };
        let spec = TensorSpec::new(&[codes.len() / dtype.size_bytes()], dtype).unwrap();
        let mut tensor = HostTensor::zeros(spec);
        tensor.bytes_mut().copy_from_slice(&codes);
        let found = tensor.to_f32(&policy);
        let expected: Vec<f32> = support::floats(&expected);
        assert_eq!(found.len(), expected.len());
        for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert!(
                found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(),
                "{name} code {i}: {found} instead of {expected}"
            );
        }
    }
}
