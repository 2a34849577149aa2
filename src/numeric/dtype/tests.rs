//! The table against the published numbers, written down once more, and the rules over all codes.

use super::*;

/// ISA code, name, bytes (0: none or below a byte), container number, torch ordinal.
type PublishedRow = (u8, &'static str, usize, Option<u8>, Option<u8>);

#[rustfmt::skip]
const PUBLISHED: &[PublishedRow] = &[
    (0, "INVALID", 0, None, None), (1, "UINT64", 8, Some(11), None), (2, "INT8", 1, Some(12), Some(1)),
    (3, "UINT8", 1, Some(8), Some(0)), (4, "INT16", 2, Some(13), Some(2)), (5, "UINT16", 2, Some(9), None),
    (6, "BFLOAT16", 2, Some(7), Some(15)), (7, "FP16", 2, Some(4), Some(5)), (8, "INT32", 4, Some(14), Some(3)),
    (9, "UINT32", 4, Some(10), None), (10, "FP32", 4, Some(5), Some(6)), (11, "FP32R", 4, Some(6), None),
    (12, "INT64", 8, Some(15), Some(4)), (13, "FP8_EXP3", 1, Some(1), None), (14, "FP8_EXP4", 1, Some(2), None),
    (15, "FP8_EXP5", 1, Some(3), None), (16, "FP4_EXP2", 0, None, None), (17, "FP8_EXP2", 1, None, None),
    (18, "INT4", 0, None, None), (19, "SFP8_E8", 1, None, None), (20, "SFP8_E7", 1, None, None),
    (21, "SFP8_E6", 1, None, None), (22, "SFP8_E5", 1, None, None), (25, "CPTC1", 0, None, None),
    (26, "CPTC2", 0, None, None), (27, "CPTC3", 0, None, None), (28, "CPTC4", 0, None, None),
    (29, "CPTC5", 0, None, None), (30, "CPTC6", 0, None, None), (31, "CPTC7", 0, None, None),
];

/// Container numbers 1 to 15 as instruction-word codes, in order.
const CONTAINER_TO_ISA: [u8; 15] = [13, 14, 15, 7, 10, 11, 6, 3, 5, 9, 1, 2, 4, 8, 12];

fn published(code: u8) -> Option<&'static PublishedRow> {
    PUBLISHED.iter().find(|row| row.0 == code)
}

#[test]
fn every_code_is_what_is_published_or_an_error_that_names_it() {
    for code in 0..=u8::MAX {
        let Some(&(_, name, bytes, container, torch)) = published(code) else {
            let refusal = IsaDtype::try_from(code).unwrap_err();
            assert!(
                refusal.to_string().contains(&format!("{code} ({code:#04x})")),
                "{refusal}"
            );
            continue;
        };
        let dtype = IsaDtype::try_from(code).unwrap();
        assert_eq!((dtype.code(), dtype.name()), (code, name));
        assert_eq!(dtype.size_bytes().unwrap_or(0), bytes, "{name}");
        assert_eq!(
            ContainerDtype::try_from(dtype).ok().map(ContainerDtype::code),
            container,
            "{name}"
        );
        assert_eq!(
            SeedNrtDtype::try_from(dtype).ok().map(SeedNrtDtype::code),
            container,
            "{name}"
        );
        // AWS's header, DMA descriptors and the nibble-sized twin keep the instruction words' numbers.
        let kept = container.map(|_| code);
        assert_eq!(NrtDtype::try_from(dtype).ok().map(NrtDtype::code), kept, "{name}");
        assert_eq!(
            SdmaDtype::try_from(dtype).ok().map(SdmaDtype::code),
            kept,
            "{name}"
        );
        assert_eq!(
            BasicDtype::try_from(dtype).ok().map(BasicDtype::code),
            kept,
            "{name}"
        );
        let mapped = isa_to_torch(code).ok();
        assert_eq!(mapped.and_then(|t| t.ordinal(TorchList::Older)), torch, "{name}");
        assert_eq!(
            mapped.and_then(|t| t.ordinal(TorchList::Current)),
            torch,
            "{name}"
        );
    }
}

#[test]
fn container_numbers_translate_in_the_published_order_and_invalid_does_not() {
    for (index, isa) in CONTAINER_TO_ISA.into_iter().enumerate() {
        let container = ContainerDtype::try_from(index as u8 + 1).unwrap();
        assert_eq!(IsaDtype::try_from(container).unwrap().code(), isa);
        assert_eq!(SdmaDtype::try_from(container).unwrap().code(), isa);
        let seed = SeedNrtDtype::try_from(index as u8 + 1).unwrap();
        assert_eq!(IsaDtype::try_from(seed).unwrap().code(), isa);
    }
    assert_eq!(ContainerDtype::Fp8Exp3.size_bytes().unwrap(), 1);
    assert_eq!(ContainerDtype::Uint64.size_bytes().unwrap(), 8);
    assert!(matches!(
        SdmaDtype::try_from(ContainerDtype::Invalid),
        Err(DtypeError::Invalid { .. })
    ));
    assert!(matches!(
        IsaDtype::try_from(NrtDtype::Invalid),
        Err(DtypeError::Invalid { .. })
    ));
    assert!(matches!(
        ContainerDtype::try_from(16),
        Err(DtypeError::UnknownCode { code: 16, .. })
    ));
    let refusal = ContainerDtype::try_from(IsaDtype::Cptc4).unwrap_err().to_string();
    assert_eq!(
        refusal,
        "CPTC4 (code 0x1c of the instruction-word (ISA) numbering) has no code in the container (KBIN) numbering"
    );
}

#[test]
fn every_conversion_comes_back() {
    for &dtype in IsaDtype::ALL {
        if let Ok(container) = ContainerDtype::try_from(dtype) {
            assert_eq!(IsaDtype::try_from(container).unwrap(), dtype);
            assert_eq!(
                IsaDtype::try_from(NrtDtype::try_from(dtype).unwrap()).unwrap(),
                dtype
            );
            assert_eq!(
                IsaDtype::try_from(SdmaDtype::try_from(dtype).unwrap()).unwrap(),
                dtype
            );
            assert_eq!(
                IsaDtype::try_from(BasicDtype::try_from(dtype).unwrap()).unwrap(),
                dtype
            );
        }
        assert_eq!(dtype.row().isa, dtype);
        let expected = published(dtype.code()).is_some_and(|row| row.1.starts_with("CPTC"));
        assert_eq!(dtype.is_cptc(), expected);
        if dtype.is_cptc() {
            assert_eq!(dtype.row().bits, dtype.code() & 7);
        }
    }
}

#[test]
fn headers_name_8_16_16_24_and_30_codes() {
    let codes = |arch: NeuronArch| arch.dtypes().map(IsaDtype::code).collect::<Vec<_>>();
    assert_eq!(codes(NeuronArch::V1), [0, 3, 5, 6, 7, 8, 10, 12]);
    assert_eq!(codes(NeuronArch::V2), (0..16).collect::<Vec<_>>());
    assert_eq!(codes(NeuronArch::V3), codes(NeuronArch::V2));
    assert_eq!(codes(NeuronArch::V4), (0..17).chain(25..32).collect::<Vec<_>>());
    assert_eq!(codes(NeuronArch::V5), (0..23).chain(25..32).collect::<Vec<_>>());
    assert!(!NeuronArch::V1.names(IsaDtype::Int8) && NeuronArch::V2.names(IsaDtype::Int8));
}

#[test]
fn the_two_torch_lists_agree_up_to_17_and_differ_after() {
    for ordinal in 0..=17 {
        let older = ScalarType::from_ordinal(TorchList::Older, ordinal).unwrap();
        assert_eq!(
            older,
            ScalarType::from_ordinal(TorchList::Current, ordinal).unwrap()
        );
    }
    for (ordinal, name) in [
        (7, "Double"),
        (11, "Bool"),
        (14, "QInt32"),
        (17, "QUInt2x4"),
        (18, "Undefined"),
    ] {
        assert_eq!(
            ScalarType::from_ordinal(TorchList::Older, ordinal)
                .unwrap()
                .name(),
            name
        );
    }
    for (ordinal, name) in [
        (18, "Bits1x8"),
        (22, "Bits16"),
        (23, "Float8_e5m2"),
        (24, "Float8_e4m3fn"),
        (27, "UInt16"),
        (29, "UInt64"),
        (30, "UInt1"),
        (43, "Int7"),
        (44, "Float8_e8m0fnu"),
        (45, "Float4_e2m1fn_x2"),
        (47, "Undefined"),
    ] {
        assert_eq!(
            ScalarType::from_ordinal(TorchList::Current, ordinal)
                .unwrap()
                .name(),
            name
        );
    }
    assert!(ScalarType::from_ordinal(TorchList::Older, 19).is_err());
    assert!(ScalarType::from_ordinal(TorchList::Current, 48).is_err());
    assert_eq!(ScalarType::UInt16.ordinal(TorchList::Older), None);
}

#[test]
fn the_gates_agree_with_their_diagnostic_twins_over_all_codes_and_flags() {
    let flags = [false, true];
    for code in 0..=u8::MAX {
        for a in flags {
            assert_eq!(
                is_valid_dtype(code, a),
                check_dtype(code, a).is_ok(),
                "{code} {a}"
            );
            for b in flags {
                assert_eq!(
                    is_valid_dtype_inc_fp4(code, a, b),
                    check_dtype_inc_fp4(code, a, b).is_ok(),
                    "{code} {a} {b}"
                );
                for c in flags {
                    assert_eq!(
                        is_valid_dtype_64(code, a, b, c),
                        check_dtype_64(code, a, b, c).is_ok(),
                        "{code} {a} {b} {c}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_gates_admit_the_published_sets() {
    let admitted = |gate: &dyn Fn(u8) -> bool| (0..=u8::MAX).filter(|&code| gate(code)).collect::<Vec<_>>();
    let base = [2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14, 15];
    assert_eq!(admitted(&|code| is_valid_dtype(code, false)), base);
    assert_eq!(
        admitted(&|code| is_valid_dtype(code, true)),
        [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15]
    );
    assert_eq!(
        admitted(&|code| is_valid_dtype_64(code, false, false, false)),
        base
    );
    assert_eq!(
        admitted(&|code| is_valid_dtype_64(code, true, true, true)),
        (1..16).collect::<Vec<_>>()
    );
    assert_eq!(
        admitted(&|code| is_valid_dtype_inc_fp4(code, false, true)),
        [2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14, 15, 16]
    );
    assert_eq!(admitted(&|code| is_valid_dtype_inc_fp4(code, false, false)), base);
}

#[test]
fn the_diagnostic_gate_names_the_stage() {
    for (code, stage) in [
        (0, "dtype_invalid_check"),
        (11, "dtype_fp32r_illegal_check"),
        (1, "dtype_uint64_illegal_check"),
        (12, "dtype_int64_illegal_check"),
        (16, "dtype_enum_check"),
        (31, "dtype_enum_check"),
        (200, "dtype_enum_check"),
    ] {
        assert_eq!(
            check_dtype(code, false).unwrap_err().stage.name(),
            stage,
            "{code}"
        );
    }
    assert_eq!(
        check_dtype(11, false).unwrap_err().to_string(),
        "data type code 11 (0x0b, FP32R) fails 'dtype_fp32r_illegal_check'"
    );
}

#[test]
fn the_wrapper_takes_eight_codes_with_their_sizes() {
    let sizes: Vec<_> = (0..=u8::MAX)
        .filter_map(|code| Some((code, element_size(code).ok()?)))
        .collect();
    assert_eq!(
        sizes,
        [(2, 1), (3, 1), (4, 2), (6, 2), (7, 2), (8, 4), (10, 4), (12, 8)]
    );
    assert_eq!(
        isa_to_torch(13).unwrap_err().to_string(),
        "data type code 13 (0x0d, FP8_EXP3) has no torch type; the wrapper takes INT8, UINT8, INT16, BFLOAT16, FP16, \
         INT32, FP32, INT64"
    );
}

#[test]
fn a_tensor_without_storage_is_refused_before_its_type_is_looked_at() {
    assert_eq!(
        match_gate(false, ScalarType::Float, 10),
        Err(WrapperError::NoStorage)
    );
    assert_eq!(
        match_gate(false, ScalarType::Float, 14),
        Err(WrapperError::NoStorage)
    );
    assert_eq!(
        match_gate(true, ScalarType::Float, 14),
        Err(WrapperError::Unsupported { code: 14 })
    );
    assert_eq!(
        match_gate(true, ScalarType::Half, 10),
        Err(WrapperError::Mismatch {
            declared: ScalarType::Half,
            expected: ScalarType::Float,
            code: 10
        })
    );
    assert_eq!(match_gate(true, ScalarType::Float, 10), Ok(()));
    // The current list has an ordinal for UInt16; the wrapper's build does not.
    assert_eq!(
        match_gate(true, ScalarType::UInt16, 5),
        Err(WrapperError::Unsupported { code: 5 })
    );
}

#[test]
fn one_element_becomes_a_scalar_and_two_do_not() {
    assert_eq!(scalar(2, 1, &[0xFF]), Ok(Scalar::Integral(-1)));
    assert_eq!(scalar(3, 1, &[0xFF]), Ok(Scalar::Integral(255)));
    assert_eq!(scalar(4, 1, &[0, 0x80]), Ok(Scalar::Integral(-32768)));
    assert_eq!(scalar(8, 1, &(-7_i32).to_le_bytes()), Ok(Scalar::Integral(-7)));
    assert_eq!(
        scalar(12, 1, &i64::MIN.to_le_bytes()),
        Ok(Scalar::Integral(i64::MIN))
    );
    assert_eq!(
        scalar(10, 1, &0.1_f32.to_le_bytes()),
        Ok(Scalar::Float(f64::from(0.1_f32)))
    );
    // 0x3FC0 is 1.5 in bfloat16; 0x0001 in half is its smallest subnormal, 2^-24.
    assert_eq!(scalar(6, 1, &0x3FC0_u16.to_le_bytes()), Ok(Scalar::Float(1.5)));
    assert_eq!(
        scalar(7, 1, &0x0001_u16.to_le_bytes()),
        Ok(Scalar::Float(2_f64.powi(-24)))
    );
    for elements in [0, 2, u64::MAX] {
        assert_eq!(
            scalar(10, elements, &[0; 4]),
            Err(WrapperError::NotOneElement { elements })
        );
    }
    assert_eq!(scalar(9, 1, &[0; 4]), Err(WrapperError::Unsupported { code: 9 }));
    assert_eq!(
        scalar(10, 1, &[0; 3]),
        Err(WrapperError::ElementBytes {
            code: 10,
            expected: 4,
            actual: 3
        })
    );
}

#[test]
fn json_texts_are_read_by_two_readers_with_their_own_sets() {
    for (text, number) in [
        ("float8e3", 1),
        ("float8e4", 2),
        ("float8e5", 3),
        ("float16", 4),
        ("float32", 5),
        ("float32r", 6),
        ("bfloat16", 7),
        ("uint8", 8),
        ("uint16", 9),
        ("uint32", 10),
        ("uint64", 11),
        ("int8", 12),
        ("int16", 13),
        ("int32", 14),
        ("int64", 15),
        ("float8_e4m3fn", 2),
        ("float8_e4m3fn_x4", 10),
        ("float8_e5m2_x4", 10),
        ("float4_e2m1fn_x4", 9),
    ] {
        let read = container_dtype_from_json(text).unwrap();
        assert_eq!(
            (read.container.code(), read.packed.is_some()),
            (number, text.ends_with("_x4")),
            "{text}"
        );
        let io = io_dtype_from_json(text).ok().map(NrtDtype::code);
        let classic = !text.contains("float8") && !text.contains("float4") && text != "float32r";
        assert_eq!(
            io,
            classic.then(|| IsaDtype::try_from(read.container).unwrap().code()),
            "{text}"
        );
    }
    let packed = container_dtype_from_json("float4_e2m1fn_x4")
        .unwrap()
        .packed
        .unwrap();
    assert_eq!(packed.element, IsaDtype::Fp4Exp2);
    for text in ["float8_e5m2", "float4_e2m1fn", "Float32", "", "float32 "] {
        let refusal = container_dtype_from_json(text).unwrap_err().to_string();
        assert!(
            refusal.contains(&format!("'{text}'")) && refusal.contains("float8_e5m2_x4"),
            "{refusal}"
        );
    }
    assert!(
        io_dtype_from_json("float8e4")
            .unwrap_err()
            .to_string()
            .contains("bfloat16")
    );
}

#[test]
fn the_page_in_docs_is_the_one_the_table_makes() {
    let file =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/DTYPES.md")).unwrap_or_default();
    assert_eq!(
        file,
        dtype_page(),
        "write it with: sensorium dtype --page > docs/DTYPES.md"
    );
}
