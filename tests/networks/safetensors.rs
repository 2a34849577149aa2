//! safetensors files as data: what is read, and what is refused with which words.

use crate::support;
use std::collections::BTreeMap;

use half::{bf16, f16};
use proptest::prelude::*;
use sensorium::numeric::Fp8Policy;
use sensorium::tensor::{DType, F8E4M3};
use sensorium::weights::{ElementType, Safetensors, SafetensorsError, Values};

/// A file with this header and these bytes after it.
fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

fn open(header: &str, data: &[u8]) -> Result<Safetensors, SafetensorsError> {
    Safetensors::from_bytes(file(header, data), "net.safetensors")
}

/// The message of a refusal with its causes.
fn refused(header: &str, data: &[u8]) -> String {
    message(&open(header, data).unwrap_err())
}

fn message(error: &SafetensorsError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

fn tensor(dtype: &str, shape: &str, offsets: &str) -> String {
    format!(r#"{{"w":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
}

#[test]
fn every_type_is_widened_without_loss() {
    let read = |dtype: &str, data: &[u8]| {
        let file = open(&tensor(dtype, "[2]", &format!("[0,{}]", data.len())), data).unwrap();
        let array = file.array("w").unwrap();
        assert_eq!(array.shape()[..], [2]);
        (array.element(), array.values().clone())
    };
    let floats = |a: f32, b: f32| Values::F32(vec![a, b]);
    let ints = |a: i64, b: i64| Values::I64(vec![a, b]);
    assert_eq!(
        read("F8_E4M3", &[0x7e, 0x81]),
        (ElementType::F8E4M3Fn, floats(448.0, -2_f32.powi(-9)))
    );
    assert_eq!(
        read("F8_E5M2", &[0x7b, 0xfc]),
        (ElementType::F8E5M2, floats(57344.0, f32::NEG_INFINITY))
    );
    let halves = [f16::from_f32(-1.5), f16::MAX].map(|x| x.to_le_bytes());
    assert_eq!(read("F16", halves.as_flattened()).1, floats(-1.5, 65504.0));
    let brains = [bf16::from_f32(-1.5), bf16::MAX].map(|x| x.to_le_bytes());
    assert_eq!(
        read("BF16", brains.as_flattened()),
        (ElementType::Bf16, floats(-1.5, 3.389_531_4e38))
    );
    let singles = [0.1_f32, -2.0].map(f32::to_le_bytes);
    assert_eq!(read("F32", singles.as_flattened()).1, floats(0.1, -2.0));
    let doubles = [0.1_f64, 1e300].map(f64::to_le_bytes);
    assert_eq!(
        read("F64", doubles.as_flattened()),
        (ElementType::F64, Values::F64(vec![0.1, 1e300]))
    );
    assert_eq!(read("BOOL", &[0, 1]), (ElementType::Bool, ints(0, 1)));
    assert_eq!(read("U8", &[0, 255]).1, ints(0, 255));
    assert_eq!(read("I8", &[127, 128]).1, ints(127, -128));
    assert_eq!(read("U16", &[0, 0, 255, 255]).1, ints(0, 65535));
    assert_eq!(read("I16", &[1, 0, 255, 255]).1, ints(1, -1));
    assert_eq!(
        read("U32", &[0, 0, 0, 0, 255, 255, 255, 255]).1,
        ints(0, 4_294_967_295)
    );
    assert_eq!(read("I32", &[1, 0, 0, 0, 255, 255, 255, 255]).1, ints(1, -1));
    let longs = [i64::MIN, i64::MAX].map(i64::to_le_bytes);
    assert_eq!(read("I64", longs.as_flattened()).1, ints(i64::MIN, i64::MAX));
    let longs = [0, i64::MAX as u64].map(u64::to_le_bytes);
    assert_eq!(read("U64", longs.as_flattened()).1, ints(0, i64::MAX));
}

#[test]
fn elements_are_to_be_had_as_they_are() {
    let file = open(&tensor("F8_E4M3", "[3]", "[0,3]"), &[0x38, 0x7f, 0x80]).unwrap();
    let raw = file.host_tensor("w").unwrap();
    assert_eq!(raw.spec().to_string(), "float8_e4m3 [3]");
    assert_eq!(raw.as_slice::<F8E4M3>().unwrap(), [0x38, 0x7f, 0x80].map(F8E4M3));
    assert_eq!(raw.to_f32(&Fp8Policy::OCP)[0], 1.0);
    // uint64 beyond int64 can be had in this way only.
    let file = open(&tensor("U64", "[1]", "[0,8]"), &[255; 8]).unwrap();
    assert_eq!(
        file.host_tensor("w").unwrap().as_slice::<u64>().unwrap(),
        [u64::MAX]
    );
    assert_eq!(
        message(&file.array("w").unwrap_err()),
        "net.safetensors: tensor `w`: 18446744073709551615 (above 9223372036854775807) cannot be carried as uint64"
    );
}

#[test]
fn what_a_file_says_about_itself_and_its_tensors_is_told() {
    let header = r#" {"b":{"dtype":"F8_E8M0","shape":[2,2],"data_offsets":[6,10]},
        "__metadata__":{"format":"pt"},"empty":{"dtype":"F32","shape":[0,7],"data_offsets":[6,6]},
        "a":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]}}   "#;
    let file = open(header, &[0; 10]).unwrap();
    assert_eq!(file.name(), "net.safetensors");
    assert_eq!(
        file.metadata(),
        &BTreeMap::from([("format".to_owned(), "pt".to_owned())])
    );
    let names: Vec<&String> = file.entries().keys().collect();
    assert_eq!(names, ["a", "b", "empty"]);
    let entry = &file.entries()["a"];
    assert_eq!(
        (entry.stored_type, entry.element, &entry.shape[..], entry.bytes()),
        ("BF16", Some(ElementType::Bf16), &[3][..], 6)
    );
    assert_eq!(file.array("empty").unwrap().values(), &Values::F32(vec![]));
    // A type that is not read is no reason to refuse the others.
    assert_eq!(file.entries()["b"].element, None);
    assert_eq!(
        message(&file.arrays().unwrap_err()),
        "net.safetensors: tensor `b`: values of type F8_E8M0 cannot be read"
    );
    assert_eq!(
        message(&file.array("c").unwrap_err()),
        "net.safetensors: tensor `c`: there is none of this name"
    );
    let double = open(&tensor("F64", "[1]", "[0,8]"), &[0; 8]).unwrap();
    assert_eq!(
        message(&double.host_tensor("w").unwrap_err()),
        "net.safetensors: tensor `w`: F64 is no element type of host tensors; read it as an array"
    );
    assert!(open("{}", &[]).unwrap().entries().is_empty());
}

#[test]
fn a_header_that_lies_about_its_length_is_refused_before_memory_is_reserved() {
    let short =
        |bytes: &[u8]| message(&Safetensors::from_bytes(bytes.to_vec(), "net.safetensors").unwrap_err());
    assert_eq!(
        short(&[1, 0, 0]),
        "net.safetensors: not a safetensors file: it has 3 bytes, the length of its header alone takes 8"
    );
    for length in [u64::MAX, u64::MAX - 7, 1 << 63, 100_000_001, 3] {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(b"{}");
        assert_eq!(
            short(&bytes),
            format!(
                "net.safetensors: not a safetensors file, or cut short: its header is to be {length} bytes long; 2 follow, and no header has more than 100000000"
            )
        );
    }
    for text in ["", "[]", "{", "nothing", "{}}", "\u{0}"] {
        let text = refused(text, &[]);
        assert!(
            text.starts_with(
                "net.safetensors: not a safetensors file: its header is no JSON map of tensors: "
            ),
            "{text}"
        );
    }
    let mut broken = file("{}", &[]);
    broken[8] = 0xff;
    assert!(short(&broken).contains("no JSON map"));
    let missing = Safetensors::open("no/such/file.safetensors").unwrap_err();
    assert_eq!(missing.to_string(), "cannot read no/such/file.safetensors");
}

#[test]
fn tensors_that_lie_are_refused_with_their_name() {
    let one = |dtype: &str, shape: &str, offsets: &str, data: usize| {
        let text = refused(&tensor(dtype, shape, offsets), &vec![0; data]);
        text.strip_prefix("net.safetensors: tensor `w`: ")
            .unwrap_or_else(|| panic!("{text}"))
            .to_owned()
    };
    assert_eq!(one("F7", "[1]", "[0,1]", 1), "the type `F7` is not known");
    assert_eq!(
        one("F32", "[2,3]", "[0,20]", 20),
        "F32 of shape [2, 3] needs 24 bytes, its offsets give 20"
    );
    assert_eq!(
        one("F32", "[1]", "[0,4]", 3),
        "its bytes 0..4 lie outside the 3 bytes of the tensors"
    );
    assert_eq!(
        one("F32", "[1]", "[4,0]", 4),
        "its bytes 4..0 lie outside the 4 bytes of the tensors"
    );
    assert_eq!(
        one("F32", "[1]", "[18446744073709551608,18446744073709551612]", 4),
        "its bytes 18446744073709551608..18446744073709551612 lie outside the 4 bytes of the tensors"
    );
    // The product of the shape overflows, also behind a zero.
    for shape in ["[4294967296,4294967296]", "[0,9223372036854775807,4]"] {
        assert!(
            one("F32", shape, "[0,4]", 4).contains("larger than the address space"),
            "{shape}"
        );
    }
    // The elements can be counted, their bits cannot.
    assert_eq!(
        one("F64", "[4611686018427387904]", "[0,0]", 0),
        "F64 of shape [4611686018427387904] needs 36893488147419103232 bytes, its offsets give 0"
    );
    // Two elements a byte, and one left over.
    assert_eq!(
        one("F4", "[3]", "[0,2]", 2),
        "F4 of shape [3] needs 2 bytes, its offsets give 2"
    );
    assert_eq!(
        one("F32", "[1,1,1,1,1,1,1]", "[0,4]", 4),
        "rank 7 is above the supported 6"
    );
    for (shape, offsets) in [
        ("[-1]", "[0,4]"),
        ("[1.5]", "[0,4]"),
        ("1", "[0,4]"),
        ("[1]", "[0]"),
    ] {
        let text = one("F32", shape, offsets, 4);
        assert!(text.starts_with("its entry cannot be read: "), "{text}");
    }
    let no_shape = refused(r#"{"w":{"dtype":"F32","data_offsets":[0,4]}}"#, &[0; 4]);
    assert_eq!(
        no_shape,
        "net.safetensors: tensor `w`: its entry cannot be read: missing field `shape`"
    );
}

#[test]
fn tensors_share_the_bytes_without_gaps_and_overlaps() {
    let two = |first: &str, second: &str, data: usize| {
        let header = format!(
            r#"{{"a":{{"dtype":"U8","shape":[4],"data_offsets":{first}}},"b":{{"dtype":"U8","shape":[4],"data_offsets":{second}}}}}"#
        );
        open(&header, &vec![0; data]).map_err(|e| message(&e)).err()
    };
    assert_eq!(two("[0,4]", "[4,8]", 8), None);
    assert_eq!(two("[4,8]", "[0,4]", 8), None);
    let rule = "tensors may neither overlap nor leave gaps";
    assert_eq!(
        two("[0,4]", "[3,7]", 7).unwrap(),
        format!("net.safetensors: tensor `b`: it begins at byte 3, the tensors before it end at 4: {rule}")
    );
    assert_eq!(
        two("[0,4]", "[0,4]", 4).unwrap(),
        format!("net.safetensors: tensor `b`: it begins at byte 0, the tensors before it end at 4: {rule}")
    );
    assert_eq!(
        two("[5,9]", "[0,4]", 9).unwrap(),
        format!("net.safetensors: tensor `a`: it begins at byte 5, the tensors before it end at 4: {rule}")
    );
    assert_eq!(
        two("[0,4]", "[4,8]", 11).unwrap(),
        "net.safetensors: damaged: the tensors cover 8 of 11 bytes"
    );
    let twice = r#"{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}"#;
    assert_eq!(
        refused(twice, &[0]),
        "net.safetensors: tensor `w`: it is there twice"
    );
}

proptest! {
    #[test]
    fn random_and_damaged_files_never_panic(
        noise in proptest::collection::vec(any::<u8>(), 0..300),
        header in "\\{(\"[a-c]\":\\{\"dtype\":\"(U8|F4|F64)\",\"shape\":\\[[0-9]{0,20}\\],\"data_offsets\":\\[[0-9]{1,20},[0-9]{1,20}\\]\\},?){0,3}\\}",
        at in 0_usize..4096,
        bit in 0_u8..8,
    ) {
        let visit = |bytes: Vec<u8>| {
            if let Ok(file) = Safetensors::from_bytes(bytes, "net.safetensors") {
                for name in file.entries().keys() {
                    let _ = (file.array(name), file.host_tensor(name));
                }
            }
        };
        visit(file(&header, &noise));
        visit(noise);
        let mut good = file(
            r#"{"__metadata__":{"a":"b"},"w":{"dtype":"F8_E4M3","shape":[2,3],"data_offsets":[0,6]},"v":{"dtype":"F16","shape":[],"data_offsets":[6,8]}}"#,
            &[1, 2, 3, 4, 5, 6, 7, 8],
        );
        let at = at % good.len();
        good[at] ^= 1 << bit;
        visit(good.clone());
        visit(good[..at].to_vec());
    }
}

#[test]
fn a_file_of_the_python_package_has_the_values_of_ml_dtypes() {
    let Some(mut command) = support::oracle("write_safetensors.py") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    support::run(command.arg(folder.path()));
    let file = Safetensors::open(folder.path().join("all.safetensors")).unwrap();
    assert_eq!(file.metadata()["made by"], "a test");
    assert_eq!(file.entries().len(), 17);
    for (name, entry) in file.entries() {
        let side =
            |extension: &str| std::fs::read(folder.path().join(format!("{name}.{extension}"))).unwrap();
        let (array, expected) = (file.array(name).unwrap(), side("values"));
        let same = match array.values() {
            Values::F32(found) => {
                let expected: Vec<f32> = support::floats(&expected);
                found.len() == expected.len()
                    && found
                        .iter()
                        .zip(&expected)
                        .all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan())
            }
            Values::F64(found) => bytemuck::cast_slice::<f64, u8>(found) == expected,
            Values::I64(found) => bytemuck::cast_slice::<i64, u8>(found) == expected,
        };
        assert!(same, "{name}: {}", entry.stored_type);
        let dtype = entry.element.unwrap().dtype();
        match file.host_tensor(name) {
            Ok(raw) => {
                assert_eq!(Some(raw.dtype()), dtype);
                assert_eq!(raw.bytes(), side("bytes"), "{name}");
            }
            Err(_) => assert_eq!(dtype, None, "{name}"),
        }
    }
    let dims = |name: &str| file.entries()[name].shape.to_vec();
    assert_eq!((dims("e4m3"), dims("scalar")), (vec![2, 8, 16], vec![]));
    assert_eq!(
        file.entries()["e5m2"].element.unwrap().dtype(),
        Some(DType::F8E5M2)
    );
}
