//! Descriptors written out byte by byte, and the refusals.

use super::*;
use crate::numeric::{IsaDtype, Scalar, ScalarType, WrapperError};

/// FP32 in HBM at 0x0000_0012_3456_7890, 2 x 3 elements in eight sizes, every reserved byte its own offset.
#[rustfmt::skip]
const IN_HBM: [u8; 48] = [
    2, 0, 10,                   3, 4, 5, 6, 7,
    2, 0, 3, 0, 0, 0, 0, 0,     0, 0, 0, 0, 0, 0, 0, 0,
    0x90, 0x78, 0x56, 0x34, 0x12, 0, 0, 0,
    6, 0, 0, 0,                 36, 37, 38, 39,
    40, 41, 42, 43, 44, 45, 46, 47,
];

/// INT8 in SBUF at 0x0001_0203, 70000 elements in four sizes, 128 partitions, 547 elements a block.
#[rustfmt::skip]
const IN_SBUF: [u8; 48] = [
    1, 2, 2,                    3, 4, 5, 6, 7,
    0x70, 0x11, 1, 0, 1, 0, 0, 0,     1, 0, 0, 0, 1, 0, 0, 0,
    3, 2, 1, 0,                 0x70, 0x11, 1, 0,
    128,                        33, 34, 35,
    0x23, 2, 0, 0,
    40, 41, 42, 43, 44, 45, 46, 47,
];

fn with(bytes: [u8; 48], changes: &[(usize, u8)]) -> [u8; 48] {
    let mut bytes = bytes;
    for &(offset, value) in changes {
        bytes[offset] = value;
    }
    bytes
}

#[test]
fn every_field_is_read_from_its_offset_and_written_there() {
    let hbm = ArgTensor {
        dtype: IsaDtype::Fp32,
        reserved0: [3, 4, 5, 6, 7],
        shape: FrameworkShape::Inline8d([2, 3, 0, 0, 0, 0, 0, 0]),
        storage: TensorStorage::Hbm(HbmStorage {
            address: 0x12_3456_7890,
            elements: 6,
            reserved: 0x2726_2524,
        }),
        reserved1: [40, 41, 42, 43, 44, 45, 46, 47],
    };
    assert_eq!(ArgTensor::parse(&IN_HBM), Ok(hbm));
    assert_eq!(hbm.to_bytes(), IN_HBM);
    let sbuf = ArgTensor {
        dtype: IsaDtype::Int8,
        shape: FrameworkShape::Inline4d([70_000, 1, 1, 1]),
        storage: TensorStorage::Sbuf(SbufStorage {
            address: 0x0001_0203,
            elements: 70_000,
            partitions: 128,
            reserved: [33, 34, 35],
            elements_per_block: 547,
        }),
        ..hbm
    };
    assert_eq!(ArgTensor::parse(&IN_SBUF), Ok(sbuf));
    assert_eq!(sbuf.to_bytes(), IN_SBUF);
    let neither = with(IN_HBM, &[(0, 0), (1, 1), (2, 31)]);
    let parsed = ArgTensor::parse(&neither).unwrap();
    assert_eq!(parsed.dtype, IsaDtype::Cptc7);
    assert_eq!(
        parsed.shape,
        FrameworkShape::OutOfLine([2, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    );
    assert_eq!(
        parsed.storage,
        TensorStorage::Invalid([0x90, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 6, 0, 0, 0, 36, 37, 38, 39])
    );
    assert_eq!(parsed.to_bytes(), neither);
}

#[test]
fn codes_that_are_no_member_are_refused_with_offset_and_code() {
    let members = |offset: usize| {
        (0..=u8::MAX)
            .filter(|&code| ArgTensor::parse(&with(IN_HBM, &[(offset, code)])).is_ok())
            .collect::<Vec<_>>()
    };
    assert_eq!(members(0), [0, 1, 2]);
    assert_eq!(members(1), [0, 1, 2]);
    assert_eq!(members(2), (0..23).chain(25..32).collect::<Vec<_>>());
    let refusal = |changes: &[(usize, u8)]| ArgTensor::parse(&with(IN_HBM, changes)).unwrap_err().to_string();
    assert_eq!(
        refusal(&[(0, 3), (1, 9), (2, 24)]),
        "byte 0: location 3 (0x03) is none of INVALID 0, SBUF 1, HBM 2"
    );
    assert_eq!(
        refusal(&[(1, 9), (2, 24)]),
        "byte 1: shape type 9 (0x09) is none of INLINE_SHAPE8D 0, OUT_OF_LINE_SHAPE 1, INLINE_SHAPE4D 2"
    );
    assert_eq!(
        refusal(&[(2, 24)]),
        "byte 2: instruction-word (ISA) data type code 24 (0x18) is not assigned in any source"
    );
    assert_eq!(
        ArgTensor::parse(&IN_HBM[..47]).unwrap_err().to_string(),
        "a tensor descriptor has 48 bytes, not 47"
    );
    assert_eq!(
        ArgTensor::parse(&[0; 49]),
        Err(ArgTensorError::Length {
            what: "a tensor descriptor",
            expected: 48,
            actual: 49
        })
    );
}

#[test]
fn a_tensor_has_the_type_sizes_and_place_of_its_descriptor() {
    assert_eq!(
        ArgTensor::parse(&IN_HBM).unwrap().materialise(2),
        Ok(TensorView {
            scalar_type: ScalarType::Float,
            sizes: vec![2, 3],
            elements: 6,
            bytes: 24,
            location: ArgLocation::Hbm,
            address: 0x12_3456_7890,
        })
    );
    let sbuf = ArgTensor::parse(&IN_SBUF).unwrap();
    for rank in 1..=4 {
        let view = sbuf.materialise(rank).unwrap();
        assert_eq!(view.sizes, [70_000, 1, 1, 1][..rank]);
        assert_eq!(
            (view.scalar_type, view.bytes, view.location, view.address),
            (ScalarType::Char, 70_000, ArgLocation::Sbuf, 0x0001_0203)
        );
    }
    let none = ArgTensor::parse(&with(IN_HBM, &[(8, 0), (32, 0)])).unwrap();
    assert_eq!(none.materialise(2).unwrap().bytes, 0);
}

#[test]
fn no_tensor_is_made_where_the_wrapper_refuses() {
    let refusal = |changes: &[(usize, u8)], rank| {
        ArgTensor::parse(&with(IN_HBM, changes))
            .unwrap()
            .materialise(rank)
            .unwrap_err()
    };
    // Each refusal comes before those below it.
    assert_eq!(
        refusal(&[(0, 0), (1, 1), (2, 13)], 0),
        MaterialiseError::OutOfLine
    );
    for rank in [0, 9, usize::MAX] {
        assert_eq!(
            refusal(&[(0, 0), (2, 13)], rank),
            MaterialiseError::Rank {
                rank,
                shape_type: ShapeType::Inline8d,
                limit: 8
            }
        );
    }
    assert_eq!(
        refusal(&[(1, 2)], 5).to_string(),
        "rank 5: a tensor described by INLINE_SHAPE4D has 1 to 4 dimensions"
    );
    let refused: Vec<u8> = (0..23)
        .chain(25..32)
        .filter(|&code| {
            let result = ArgTensor::parse(&with(IN_HBM, &[(2, code)]))
                .unwrap()
                .materialise(2);
            match result {
                Err(MaterialiseError::Wrapper(WrapperError::Unsupported { code: named })) => {
                    assert_eq!(named, code);
                    true
                }
                other => {
                    assert!(other.is_ok(), "{code}: {other:?}");
                    false
                }
            }
        })
        .collect();
    // INVALID, UINT64, UINT16, UINT32, FP32R, and all from FP8_EXP3 on.
    assert_eq!(
        refused,
        [0, 1, 5, 9, 11]
            .into_iter()
            .chain(13..23)
            .chain(25..32)
            .collect::<Vec<_>>()
    );
    assert_eq!(
        refusal(&[(0, 0), (2, 13)], 2),
        MaterialiseError::Wrapper(WrapperError::Unsupported { code: 13 })
    );
    assert_eq!(refusal(&[(0, 0)], 2), MaterialiseError::NoLocation);
    assert_eq!(
        refusal(&[], 1).to_string(),
        "the sizes [2] make 2 elements, but the storage has 6"
    );
    assert_eq!(
        refusal(&[], 3),
        MaterialiseError::ElementCount {
            sizes: vec![2, 3, 0],
            product: 0,
            stored: 6
        }
    );
}

#[test]
fn elements_end_where_64_bits_end() {
    let hbm = |address: u64| {
        let mut bytes = IN_HBM;
        bytes[24..32].copy_from_slice(&address.to_le_bytes());
        ArgTensor::parse(&bytes).unwrap().materialise(2)
    };
    assert_eq!(hbm(u64::MAX - 24).unwrap().address, u64::MAX - 24);
    assert_eq!(
        hbm(u64::MAX - 23),
        Err(MaterialiseError::AddressRange {
            address: u64::MAX - 23,
            bytes: 24
        })
    );
    let built = |address| ArgTensor::in_hbm(IsaDtype::Fp32, InlineForm::Shape8d, &[2, 3], address);
    assert!(built(u64::MAX - 24).is_ok());
    assert_eq!(
        built(u64::MAX - 23),
        Err(BuildError::AddressRange {
            address: u64::MAX - 23,
            bytes: 24
        })
    );
    // The largest sizes of both forms multiply without wrapping.
    let huge = ArgTensor::parse(&with(IN_HBM, &[(1, 2)])).unwrap();
    for shape in [
        FrameworkShape::Inline8d([u16::MAX; 8]),
        FrameworkShape::Inline4d([u32::MAX; 4]),
    ] {
        let rank = shape.dims().unwrap().len();
        assert!(matches!(
            ArgTensor { shape, ..huge }.materialise(rank),
            Err(MaterialiseError::ElementCount { product, .. }) if product > u128::MAX / 2
        ));
    }
}

#[test]
fn a_built_descriptor_is_the_one_written_by_hand() {
    let built = ArgTensor::in_hbm(IsaDtype::Fp32, InlineForm::Shape8d, &[2, 3], 0x12_3456_7890).unwrap();
    let zeroed: Vec<_> = (3..8).chain(36..48).map(|offset| (offset, 0)).collect();
    assert_eq!(built.to_bytes(), with(IN_HBM, &zeroed));
    let built = ArgTensor::in_sbuf(
        IsaDtype::Int8,
        InlineForm::Shape4d,
        &[70_000, 1, 1, 1],
        0x0001_0203,
        128,
        547,
    )
    .unwrap();
    let zeroed: Vec<_> = (3..8)
        .chain(33..36)
        .chain(40..48)
        .map(|offset| (offset, 0))
        .collect();
    assert_eq!(built.to_bytes(), with(IN_SBUF, &zeroed));
}

#[test]
fn sizes_that_do_not_fit_are_not_built() {
    let built = |dtype, form, sizes: &[u32]| ArgTensor::in_hbm(dtype, form, sizes, 0);
    let refusal = |form, sizes: &[u32]| built(IsaDtype::Int8, form, sizes).unwrap_err().to_string();
    assert_eq!(
        refusal(InlineForm::Shape8d, &[1; 9]),
        "INLINE_SHAPE8D holds 1 to 8 sizes, not 9"
    );
    assert_eq!(
        refusal(InlineForm::Shape4d, &[]),
        "INLINE_SHAPE4D holds 1 to 4 sizes, not 0"
    );
    assert_eq!(
        refusal(InlineForm::Shape8d, &[1, 65_536]),
        "size 65536 of dimension 1 is above 65535, the largest that INLINE_SHAPE8D holds"
    );
    assert_eq!(
        refusal(InlineForm::Shape4d, &[65_536, 65_536]),
        "4294967296 elements are more than the 4294967295 that a descriptor can count"
    );
    assert!(built(IsaDtype::Int64, InlineForm::Shape4d, &[u32::MAX]).is_ok());
    assert!(matches!(
        built(IsaDtype::Invalid, InlineForm::Shape4d, &[1]),
        Err(BuildError::Dtype(_))
    ));
    // Three 4-bit elements take two bytes.
    let packed = |address| ArgTensor::in_hbm(IsaDtype::Fp4Exp2, InlineForm::Shape4d, &[3], address);
    assert!(packed(u64::MAX - 2).is_ok() && packed(u64::MAX - 1).is_err());
}

#[test]
fn the_wrapper_puts_eight_bytes_before_the_descriptor() {
    let mut bytes = [0; 56];
    bytes[..8].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    bytes[8..].copy_from_slice(&IN_SBUF);
    let object = UTensor::parse(&bytes).unwrap();
    assert_eq!(object.header, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(object.tensor.to_bytes(), IN_SBUF);
    assert_eq!(object.to_bytes(), bytes);
    // Shape type and data type are bytes 9 and 10 of the object.
    bytes[9] = 0;
    bytes[10] = 12;
    let object = UTensor::parse(&bytes).unwrap();
    assert_eq!(object.tensor.shape.shape_type(), ShapeType::Inline8d);
    assert_eq!((object.dtype_code(), object.to_bytes()[10]), (12, 12));
    for (offset, code) in [(8, 3), (9, 7), (10, 32)] {
        let mut wrong = bytes;
        wrong[offset] = code;
        let refusal = UTensor::parse(&wrong).unwrap_err().to_string();
        assert!(refusal.starts_with(&format!("byte {offset}: ")), "{refusal}");
    }
    for length in [0, 7, 8, 48, 55] {
        assert_eq!(
            UTensor::parse(&bytes[..length]),
            Err(ArgTensorError::Length {
                what: "a wrapped tensor (UTensor)",
                expected: 56,
                actual: length
            })
        );
    }
}

#[test]
fn binding_asks_for_storage_then_for_the_type() {
    let bound = |header: [u8; 8], dtype, declared| {
        let tensor = ArgTensor::parse(&with(IN_HBM, &[(2, dtype)])).unwrap();
        UTensor { header, tensor }.bind(declared)
    };
    assert_eq!(bound([0, 0, 0, 0, 0, 0, 0, 1], 10, ScalarType::Float), Ok(()));
    assert_eq!(bound([1, 0, 0, 0, 0, 0, 0, 0], 6, ScalarType::BFloat16), Ok(()));
    assert_eq!(bound([0; 8], 14, ScalarType::Float), Err(WrapperError::NoStorage));
    assert_eq!(
        bound([1; 8], 14, ScalarType::Float8E4m3fn),
        Err(WrapperError::Unsupported { code: 14 })
    );
    assert_eq!(
        bound([1; 8], 10, ScalarType::Half),
        Err(WrapperError::Mismatch {
            declared: ScalarType::Half,
            expected: ScalarType::Float,
            code: 10
        })
    );
}

#[test]
fn a_scalar_needs_storage_of_one_element() {
    let scalar = |changes: &[(usize, u8)], element: &[u8]| {
        let tensor = ArgTensor::parse(&with(IN_HBM, changes)).unwrap();
        UTensor {
            header: [1; 8],
            tensor,
        }
        .scalar(element)
    };
    assert_eq!(scalar(&[(32, 1)], &1.5_f32.to_le_bytes()), Ok(Scalar::Float(1.5)));
    assert_eq!(scalar(&[(32, 1), (2, 2)], &[0xFE]), Ok(Scalar::Integral(-2)));
    assert_eq!(
        scalar(&[], &1.5_f32.to_le_bytes()),
        Err(MaterialiseError::Wrapper(WrapperError::NotOneElement {
            elements: 6
        }))
    );
    assert_eq!(
        scalar(&[(32, 1)], &[0; 3]),
        Err(MaterialiseError::Wrapper(WrapperError::ElementBytes {
            code: 10,
            expected: 4,
            actual: 3
        }))
    );
    assert_eq!(
        scalar(&[(0, 0), (32, 1)], &[0; 4]),
        Err(MaterialiseError::NoLocation)
    );
    // SBUF counts its elements at byte 28.
    assert_eq!(
        scalar(&[(0, 1), (28, 1), (29, 0), (30, 0), (31, 0)], &[0; 4]),
        Ok(Scalar::Float(0.0))
    );
}

#[test]
fn a_call_has_at_most_ten_arguments() {
    let stream = |count| IN_SBUF.repeat(count);
    assert_eq!(parse_arguments(&[]), Ok(vec![]));
    let ten = parse_arguments(&stream(10)).unwrap();
    assert_eq!(ten, [ArgTensor::parse(&IN_SBUF).unwrap(); 10]);
    assert_eq!(
        parse_arguments(&stream(11)).unwrap_err().to_string(),
        "11 arguments; a custom operation takes at most 10"
    );
    assert_eq!(
        parse_arguments(&stream(2)[..70]).unwrap_err().to_string(),
        "70 bytes of arguments are no whole number of descriptors of 48 bytes: the last one has 22"
    );
    let mut third = stream(3);
    third[2 * 48 + 1] = 4;
    assert_eq!(
        parse_arguments(&third),
        Err(ArgTensorError::ShapeType { offset: 97, code: 4 })
    );
}
