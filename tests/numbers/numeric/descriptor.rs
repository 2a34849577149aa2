//! Tensor descriptors and FP8 policies: against C's layout of them, and any bytes there and back.

use proptest::prelude::*;
use sensorium::numeric::{
    ARG_TENSOR_BYTES, ArgTensor, ArgTensorError, FP8_CONV_CONFIG_BYTES, Fp8ConvConfig, FrameworkShape,
    HbmStorage, IsaDtype, MaterialiseError, SbufStorage, TensorStorage, UTENSOR_BYTES, UTensor,
    parse_arguments,
};
use serde_json::Value;

use crate::support;

fn number<T: TryFrom<u64, Error: std::fmt::Debug>>(value: &Value) -> T {
    T::try_from(value.as_u64().unwrap()).unwrap()
}

fn numbers<T: TryFrom<u64, Error: std::fmt::Debug>, const N: usize>(value: &Value) -> [T; N] {
    let list: Vec<T> = value.as_array().unwrap().iter().map(number).collect();
    list.try_into()
        .unwrap_or_else(|_| panic!("not {N} numbers: {value}"))
}

fn tensor_of(case: &Value) -> ArgTensor {
    ArgTensor {
        dtype: IsaDtype::try_from(number::<u8>(&case["dtype"])).unwrap(),
        reserved0: numbers(&case["reserved0"]),
        shape: match case["shape_type"].as_u64().unwrap() {
            0 => FrameworkShape::Inline8d(numbers(&case["shape"])),
            2 => FrameworkShape::Inline4d(numbers(&case["shape"])),
            _ => FrameworkShape::OutOfLine(numbers(&case["shape"])),
        },
        storage: match case["location"].as_u64().unwrap() {
            1 => TensorStorage::Sbuf(SbufStorage {
                address: number(&case["address"]),
                elements: number(&case["elements"]),
                partitions: number(&case["partitions"]),
                reserved: numbers(&case["gap"]),
                elements_per_block: number(&case["per_block"]),
            }),
            2 => TensorStorage::Hbm(HbmStorage {
                address: number(&case["address"]),
                elements: number(&case["elements"]),
                reserved: number(&case["reserved"]),
            }),
            _ => TensorStorage::Invalid(numbers(&case["storage"])),
        },
        reserved1: numbers(&case["reserved1"]),
    }
}

fn policy_of(case: &Value) -> Fp8ConvConfig {
    let flag = |name: &str| case[name].as_bool().unwrap();
    Fp8ConvConfig {
        fp8_range_extension: flag("range_extension"),
        emax_fp8_e4m3: number(&case["emax_e4m3"]),
        emax_fp8_e5m2: number(&case["emax_e5m2"]),
        ocp_sat: flag("ocp_sat"),
        sis: flag("sis"),
        sns: flag("sns"),
        padding: [0; 4],
    }
}

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2)
        .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

#[test]
fn fields_lie_where_c_lays_them_out() {
    let Some(mut oracle) = support::oracle("descriptor.py") else {
        return;
    };
    let output = support::run(oracle.args(["400", "11"]));
    let mut seen = [0; 3];
    for line in std::str::from_utf8(&output).unwrap().lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let bytes = bytes_of(case["hex"].as_str().unwrap());
        match case["kind"].as_str().unwrap() {
            "tensor" => {
                let tensor = tensor_of(&case);
                assert_eq!(ArgTensor::parse(&bytes).as_ref(), Ok(&tensor), "{line}");
                assert_eq!(tensor.to_bytes(), *bytes, "{line}");
                seen[0] += 1;
            }
            "utensor" => {
                let object = UTensor {
                    header: numbers(&case["header"]),
                    tensor: tensor_of(&case),
                };
                assert_eq!(UTensor::parse(&bytes).as_ref(), Ok(&object), "{line}");
                assert_eq!(object.to_bytes(), *bytes, "{line}");
                assert_eq!(object.dtype_code(), bytes[10], "{line}");
                seen[1] += 1;
            }
            _ => {
                let policy = policy_of(&case);
                assert_eq!(Fp8ConvConfig::parse(&bytes).as_ref(), Ok(&policy), "{line}");
                assert_eq!(policy.to_bytes(), *bytes, "{line}");
                seen[2] += 1;
            }
        }
    }
    assert_eq!(seen, [400; 3]);
}

fn any_shape() -> impl Strategy<Value = FrameworkShape> {
    prop_oneof![
        any::<[u16; 8]>().prop_map(FrameworkShape::Inline8d),
        any::<[u32; 4]>().prop_map(FrameworkShape::Inline4d),
        any::<[u8; 16]>().prop_map(FrameworkShape::OutOfLine),
    ]
}

fn any_storage() -> impl Strategy<Value = TensorStorage> {
    prop_oneof![
        any::<[u8; 16]>().prop_map(TensorStorage::Invalid),
        any::<(u32, u32, u8, [u8; 3], u32)>().prop_map(
            |(address, elements, partitions, reserved, elements_per_block)| {
                TensorStorage::Sbuf(SbufStorage {
                    address,
                    elements,
                    partitions,
                    reserved,
                    elements_per_block,
                })
            }
        ),
        any::<(u64, u32, u32)>().prop_map(|(address, elements, reserved)| {
            TensorStorage::Hbm(HbmStorage {
                address,
                elements,
                reserved,
            })
        }),
    ]
}

fn any_tensor() -> impl Strategy<Value = ArgTensor> {
    (
        proptest::sample::select(IsaDtype::ALL),
        any::<[u8; 5]>(),
        any_shape(),
        any_storage(),
        any::<[u8; 8]>(),
    )
        .prop_map(|(dtype, reserved0, shape, storage, reserved1)| ArgTensor {
            dtype,
            reserved0,
            shape,
            storage,
            reserved1,
        })
}

/// Bytes of a length, the three codes of the descriptor at `start` often members.
fn plausible_bytes(start: usize, length: usize) -> impl Strategy<Value = Vec<u8>> {
    (
        proptest::collection::vec(any::<u8>(), length),
        0_u8..4,
        0_u8..4,
        0_u8..34,
    )
        .prop_map(move |(mut bytes, location, shape_type, dtype)| {
            bytes[start..start + 3].copy_from_slice(&[location, shape_type, dtype]);
            bytes
        })
}

/// Everything that can be asked of bytes, for its panics.
fn ask_everything(bytes: &[u8]) {
    let _ = parse_arguments(bytes);
    let _ = Fp8ConvConfig::parse(bytes);
    if let Ok(tensor) = ArgTensor::parse(bytes) {
        for rank in 0..10 {
            let _ = tensor.materialise(rank);
        }
    }
    if let Ok(object) = UTensor::parse(bytes) {
        let _ = object.scalar(&bytes[..8]);
    }
}

/// The codes that the wrapper makes tensors of, with the bytes of an element.
const WRAPPER_CODES: &[(u8, u64)] = &[(2, 1), (3, 1), (4, 2), (6, 2), (7, 2), (8, 4), (10, 4), (12, 8)];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(tensor in any_tensor(), header in any::<[u8; 8]>()) {
        prop_assert_eq!(ArgTensor::parse(&tensor.to_bytes()), Ok(tensor));
        let object = UTensor { header, tensor };
        let bytes = object.to_bytes();
        prop_assert_eq!(&bytes[8..], &tensor.to_bytes()[..]);
        prop_assert_eq!(UTensor::parse(&bytes), Ok(object));
        prop_assert_eq!(parse_arguments(&tensor.to_bytes().repeat(3)), Ok(vec![tensor; 3]));
    }

    #[test]
    fn what_is_read_is_written(
        descriptor in plausible_bytes(0, ARG_TENSOR_BYTES),
        object in plausible_bytes(8, UTENSOR_BYTES),
        policy in proptest::collection::vec(any::<u8>(), FP8_CONV_CONFIG_BYTES),
        flags in any::<[bool; 4]>(),
    ) {
        match ArgTensor::parse(&descriptor) {
            Ok(tensor) => prop_assert_eq!(&tensor.to_bytes()[..], &descriptor[..]),
            Err(refusal) => {
                let (offset, fits) = match refusal {
                    ArgTensorError::Location { offset, .. } => (offset, descriptor[0] < 3),
                    ArgTensorError::ShapeType { offset, .. } => (offset, descriptor[1] < 3),
                    ArgTensorError::Dtype { offset, .. } => {
                        (offset, descriptor[2] < 32 && !matches!(descriptor[2], 23 | 24))
                    }
                    other => panic!("{other}"),
                };
                prop_assert!(offset < 3 && !fits, "{} {:?}", refusal, &descriptor[..3]);
            }
        }
        if let Ok(read) = UTensor::parse(&object) {
            prop_assert_eq!(&read.to_bytes()[..], &object[..]);
        }
        let mut policy = policy;
        for (offset, flag) in [0, 12, 13, 14].into_iter().zip(flags) {
            policy[offset] = flag.into();
        }
        prop_assert_eq!(&Fp8ConvConfig::parse(&policy).unwrap().to_bytes()[..], &policy[..]);
    }

    #[test]
    fn bytes_of_any_length_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..=128)) {
        ask_everything(&bytes);
    }

    #[test]
    fn bytes_that_look_like_descriptors_never_panic(
        descriptor in plausible_bytes(0, ARG_TENSOR_BYTES),
        object in plausible_bytes(8, UTENSOR_BYTES),
    ) {
        ask_everything(&descriptor);
        ask_everything(&object);
    }

    #[test]
    fn a_tensor_is_made_whenever_sizes_and_storage_agree_and_lies_inside_its_memory(
        tensor in any_tensor(),
        (code, element_bytes) in proptest::sample::select(WRAPPER_CODES),
        sizes in any::<[u8; 4]>(),
        rank in 1_usize..=4,
    ) {
        let elements: u32 = sizes[..rank].iter().map(|&size| u32::from(size)).product();
        let bytes = u64::from(elements) * element_bytes;
        let (storage, address) = match tensor.storage {
            TensorStorage::Hbm(hbm) => (TensorStorage::Hbm(HbmStorage { elements, ..hbm }), Some(hbm.address)),
            TensorStorage::Sbuf(sbuf) => {
                (TensorStorage::Sbuf(SbufStorage { elements, ..sbuf }), Some(sbuf.address.into()))
            }
            nowhere @ TensorStorage::Invalid(_) => (nowhere, None),
        };
        let made = ArgTensor {
            dtype: IsaDtype::try_from(code).unwrap(),
            shape: FrameworkShape::Inline4d(sizes.map(u32::from)),
            storage,
            ..tensor
        }
        .materialise(rank);
        match address {
            None => prop_assert_eq!(made, Err(MaterialiseError::NoLocation)),
            Some(address) if u128::from(address) + u128::from(bytes) > u128::from(u64::MAX) => {
                prop_assert_eq!(made, Err(MaterialiseError::AddressRange { address, bytes }));
            }
            Some(address) => {
                let view = made.unwrap();
                prop_assert_eq!((view.address, view.bytes, view.elements), (address, bytes, elements));
                prop_assert_eq!(view.sizes, sizes[..rank].iter().copied().map(u32::from).collect::<Vec<_>>());
            }
        }
    }
}
