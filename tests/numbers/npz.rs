//! NumPy archives against NumPy, and what damaged ones are told.

use crate::support;
use std::path::Path;

use proptest::prelude::*;
use sensorium::tensor::Shape;
use sensorium::weights::{
    Array, DEFAULT_NPZ_BYTES, ElementType, Npz, NpzCompression, NpzError, NpzFault, Values,
};
use serde_json::{Value, json};

fn array(dims: &[usize], element: ElementType, values: Values) -> Array {
    Array::new(Shape::new(dims).unwrap(), element, values).unwrap()
}

fn read(bytes: &[u8]) -> Result<Npz, NpzError> {
    Npz::from_bytes(bytes, "test.npz", DEFAULT_NPZ_BYTES)
}

/// One array of every type that can be written.
fn all_types() -> Npz {
    let ints = |range: std::ops::Range<i64>| Values::I64(range.collect());
    let mut npz = Npz::default();
    let floats = Values::F32(vec![0.5, -1.25, 3.0, 0.0, 1024.0, -0.0]);
    for element in [ElementType::F32, ElementType::F16, ElementType::Bf16] {
        npz.insert(element.to_string(), array(&[2, 3], element, floats.clone()));
    }
    let doubles = Values::F64(vec![1.0 / 3.0, f64::MAX]);
    npz.insert("float64", array(&[2], ElementType::F64, doubles));
    npz.insert("bool", array(&[2], ElementType::Bool, ints(0..2)));
    for element in [
        ElementType::I8,
        ElementType::I16,
        ElementType::I32,
        ElementType::I64,
    ] {
        npz.insert(element.to_string(), array(&[3, 1, 2], element, ints(-3..3)));
    }
    for element in [
        ElementType::U8,
        ElementType::U16,
        ElementType::U32,
        ElementType::U64,
    ] {
        npz.insert(element.to_string(), array(&[5], element, ints(100..105)));
    }
    npz.insert("scalar", array(&[], ElementType::F32, Values::F32(vec![7.0])));
    npz.insert("empty", array(&[0, 4], ElementType::I32, Values::I64(vec![])));
    npz.insert(
        "layer.0/weight",
        array(&[1], ElementType::F32, Values::F32(vec![1.0])),
    );
    npz.set_meta(json!({"model": "größe 🚗", "gates": [0.5, 1]}));
    npz
}

/// Holds an array against NumPy's line about it.
fn assert_said(found: &Array, said: &Value) {
    let name = &said["name"];
    let dims: Vec<u64> = found.shape().iter().map(|&d| d as u64).collect();
    assert_eq!(json!(dims), said["shape"], "{name}");
    let dtype = said["dtype"].as_str().unwrap().trim_start_matches(['<', '>']);
    let dtype = match dtype {
        "i2" => "int16",
        "i4" => "int32",
        "i8" => "int64",
        "u2" => "uint16",
        "u4" => "uint32",
        "f2" => "float16",
        "f4" => "float32",
        "f8" => "float64",
        plain => plain,
    };
    assert_eq!(found.element().to_string(), dtype, "{name}");
    let expected = said["values"].as_array().unwrap();
    assert_eq!(found.values().len(), expected.len(), "{name}");
    for (i, expected) in expected.iter().enumerate() {
        let same = match found.values() {
            Values::F32(v) => f64::from(v[i]).to_bits() == expected.as_u64().unwrap(),
            Values::F64(v) => v[i].to_bits() == expected.as_u64().unwrap(),
            Values::I64(v) => v[i] == expected.as_i64().unwrap(),
        };
        assert!(same, "{name}[{i}]: {:?}, NumPy has {expected}", found.values());
    }
}

fn lines(output: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(output).unwrap();
    text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

#[test]
fn archives_of_numpy_are_read_and_those_of_no_numbers_refused() {
    let Some(mut oracle) = support::oracle("npz.py") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let said = lines(&support::run(oracle.arg("write").arg(folder.path())));
    assert_eq!(said.len(), 70);
    for file in ["stored.npz", "deflated.npz"] {
        let npz = Npz::open(folder.path().join(file)).unwrap();
        assert_eq!(npz.arrays().len(), said.len());
        for said in &said {
            assert_said(npz.array(said["name"].as_str().unwrap()).unwrap(), said);
        }
        assert_eq!(npz.meta().unwrap()["model"], "ünïcode 🚗");
    }
    let fault = |file: &str| match Npz::open(folder.path().join(file)) {
        Err(NpzError::Array { fault, .. }) => *fault,
        other => panic!("{file}: {other:?}"),
    };
    assert!(matches!(fault("complex.npz"), NpzFault::Type { found } if found.contains("c8")));
    assert!(matches!(fault("objects.npz"), NpzFault::Type { .. }));
    assert!(matches!(
        fault("record.npz"),
        NpzFault::Header(_) | NpzFault::Type { .. }
    ));
    assert!(matches!(fault("text.npz"), NpzFault::Text));
    assert!(
        matches!(fault("wide.npz"), NpzFault::ValueRange { value, .. } if value.starts_with("9223372036854775808"))
    );
    assert!(matches!(fault("deep.npz"), NpzFault::Shape(_)));
    assert!(matches!(fault("other.npz"), NpzFault::NoArray));
    let meta = Npz::open(folder.path().join("meta.npz"));
    assert!(matches!(meta, Err(NpzError::Meta { .. })), "{meta:?}");

    // 64 MiB in some 65 KB.
    let bomb = folder.path().join("bomb.npz");
    assert!(std::fs::metadata(&bomb).unwrap().len() < 100_000);
    let found = Npz::open_within(&bomb, 1 << 20).unwrap_err();
    assert_eq!(
        found.to_string(),
        "bomb.npz: the arrays unpack to 67108992 bytes, 1048576 are allowed"
    );
    assert!(Npz::open(&bomb).is_ok());
}

#[test]
fn what_is_written_opens_in_numpy() {
    let Some(_) = support::oracle("npz.py") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let npz = all_types();
    for compression in [NpzCompression::Stored, NpzCompression::Deflated] {
        let path = folder.path().join("ours.npz");
        npz.save(&path, compression).unwrap();
        let mut oracle = support::oracle("npz.py").unwrap();
        let said = lines(&support::run(oracle.arg("check").arg(&path)));
        assert_eq!(said.len(), npz.arrays().len() + 1);
        for said in &said {
            match said.get("meta") {
                Some(meta) => assert_eq!(Some(meta), npz.meta()),
                None => assert_said(npz.array(said["name"].as_str().unwrap()).unwrap(), said),
            }
        }
    }
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(files.len(), 1, "no temporary file is left");
}

#[test]
fn what_is_written_is_read_and_equal_archives_have_equal_bytes() {
    let npz = all_types();
    for compression in [NpzCompression::Stored, NpzCompression::Deflated] {
        let bytes = npz.to_bytes("test.npz", compression).unwrap();
        assert_eq!(read(&bytes).unwrap(), npz);
        assert_eq!(bytes, npz.to_bytes("test.npz", compression).unwrap());
    }
    // Elements begin at a multiple of 64 bytes of their member, as NumPy has it.
    let mut one = Npz::default();
    one.insert("a", array(&[1], ElementType::F32, Values::F32(vec![1.5])));
    let bytes = one.to_bytes("one.npz", NpzCompression::Stored).unwrap();
    let start = bytes.windows(6).position(|w| w == b"\x93NUMPY").unwrap();
    let value = bytes.windows(4).position(|w| w == 1.5_f32.to_le_bytes()).unwrap();
    assert_eq!((value - start) % 64, 0);
}

#[test]
fn names_and_types_that_cannot_be_written_are_refused() {
    let one = || array(&[1], ElementType::F32, Values::F32(vec![1.0]));
    for name in ["", "__meta__", "/root", "../up", "a/../../b", "line\n"] {
        let mut npz = Npz::default();
        npz.insert(name, one());
        let found = npz.to_bytes("t.npz", NpzCompression::Stored);
        let Err(NpzError::Array { fault, .. }) = found else {
            panic!("{name:?}: {found:?}");
        };
        assert_eq!(*fault, NpzFault::Name);
    }
    let mut npz = Npz::default();
    npz.insert("eight", array(&[1], ElementType::F8E5M2, Values::F32(vec![1.0])));
    assert_eq!(
        npz.to_bytes("t.npz", NpzCompression::Stored)
            .unwrap_err()
            .to_string(),
        "t.npz: array `eight`: NumPy has no type for float8_e5m2; widen it to float32 first"
    );
    let missing = Npz::open(Path::new("no/such.npz")).unwrap_err();
    assert!(matches!(missing, NpzError::Read { .. }));
}

/// Bytes of an archive with one stored member.
fn member(name: &str, content: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    archive.start_file(name, stored).unwrap();
    archive.write_all(content).unwrap();
    archive.finish().unwrap().into_inner()
}

#[test]
fn shapes_and_headers_that_claim_too_much_are_refused_before_memory_is_reserved() {
    let header = |text: &str| {
        let mut bytes = b"\x93NUMPY\x01\0".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes
    };
    let fault = |content: &[u8]| match read(&member("a.npy", content)) {
        Err(NpzError::Array { fault, .. }) => *fault,
        other => panic!("{other:?}"),
    };
    // Bytes that would be eight times as long as values.
    let mut bytes = header("{'descr': '|u1', 'fortran_order': False, 'shape': (4096,), }\n");
    bytes.extend([7; 4096]);
    match Npz::from_bytes(&member("a.npy", &bytes), "test.npz", 16_384) {
        Err(NpzError::Array { fault, .. }) => assert_eq!(
            *fault,
            NpzFault::Room {
                needed: 32_768,
                left: 16_384
            }
        ),
        other => panic!("{other:?}"),
    }
    let large = header("{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }\n");
    assert_eq!(
        fault(&large),
        NpzFault::Length {
            needed: 4 << 40,
            found: 0
        }
    );
    let endless =
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296, 9), }\n");
    assert!(matches!(
        fault(&endless),
        NpzFault::Shape(_) | NpzFault::Length { .. }
    ));
    let nested = header(&format!(
        "{{'descr': '<f4', 'shape': {}1{}}}\n",
        "(".repeat(900),
        ")".repeat(900)
    ));
    assert!(matches!(fault(&nested), NpzFault::Header(_)));
    let text = header("{'descr': '<U99999999999', 'fortran_order': False, 'shape': (), }\n");
    assert!(matches!(fault(&text), NpzFault::Length { .. }));
    assert!(matches!(
        fault(b"\x93NUMPY\x09\0aaaaaaa"),
        NpzFault::Version { found: 9 }
    ));
    assert!(matches!(
        fault(b"\x93NUMPY\x02\0\xff\xff\xff\x7f"),
        NpzFault::HeaderLength { found: 0x7fff_ffff }
    ));
    assert!(matches!(fault(b"\x93NUMPY"), NpzFault::Unpack(_)));
    let short = header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n");
    assert_eq!(
        fault(&[&short[..], &[0; 7]].concat()),
        NpzFault::Length { needed: 8, found: 7 }
    );
    let numbers = read(&member("__meta__.npy", &[&short[..], &[0; 8]].concat())).unwrap_err();
    assert!(
        numbers.to_string().contains("`__meta__` is one text"),
        "{numbers}"
    );
}

#[test]
fn a_flipped_bit_is_found_by_the_checksum() {
    let mut one = Npz::default();
    one.insert("a", array(&[1], ElementType::F32, Values::F32(vec![1.5])));
    let mut bytes = one.to_bytes("one.npz", NpzCompression::Stored).unwrap();
    let value = bytes.windows(4).position(|w| w == 1.5_f32.to_le_bytes()).unwrap();
    bytes[value] ^= 1;
    let found = read(&bytes).unwrap_err().to_string();
    assert!(found.contains("cannot be unpacked"), "{found}");
}

#[test]
fn no_damage_to_an_archive_makes_a_panic() {
    let mut few = Npz::default();
    few.insert(
        "a",
        array(&[2, 1], ElementType::Bf16, Values::F32(vec![1.5, 2.0])),
    );
    few.insert("b", array(&[], ElementType::I64, Values::I64(vec![-1])));
    few.set_meta(json!({"a": 1}));
    for compression in [NpzCompression::Stored, NpzCompression::Deflated] {
        let whole = few.to_bytes("test.npz", compression).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= [0xff, 0x01, 0x80, 0x20][at % 4];
            // What is still read is no longer than what was there.
            if let Ok(npz) = Npz::from_bytes(&bytes, "flipped", 1 << 20) {
                assert!(npz.arrays().values().all(|a| a.values().len() <= 2));
            }
            if at % 7 == 0 {
                assert!(read(&whole[..at]).is_err());
            }
        }
    }
}

proptest! {
    #[test]
    fn bytes_after_the_magic_never_panic(noise in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&member("a.npy", &[b"\x93NUMPY\x01\0", &noise[..]].concat()));
        let _ = read(&noise);
    }
}
