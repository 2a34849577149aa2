//! Named arrays in every encoding, also as NumPy reads and writes them.

use crate::support;

use super::form;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use sensorium::io::forms::{
    ArrayEncoding, ArrayForm, InputsForm, decode_array, decode_named_arrays, encode_array, round_f32,
};
use sensorium::perception::{InputArray, InputSchema};
use sensorium::tensor::{DType, HostTensor, Shape};
use sensorium::weights::{Array, ElementType, Values};
use serde_json::{Map, Value, json};

fn arrays(
    value: &Value,
    schema: &InputSchema,
) -> Result<std::collections::BTreeMap<String, HostTensor>, String> {
    decode_named_arrays(&form::<InputsForm>(value), schema, "inputs", 1 << 20)
        .map_err(|error| error.to_string())
}

#[test]
fn named_arrays_are_held_against_the_schema() {
    const SCHEMA: InputSchema = InputSchema(&[
        InputArray {
            name: "ego",
            dims: &[None, Some(2)],
            dtype: DType::F32,
            about: "poses",
        },
        InputArray {
            name: "kind",
            dims: &[Some(3)],
            dtype: DType::U8,
            about: "kinds",
        },
    ]);
    let good = json!({ "arrays": { "ego": [[1, 2.5]], "kind": [0, 255.0, 7] } });
    let decoded = arrays(&good, &SCHEMA).unwrap();
    assert_eq!(decoded["ego"].as_slice::<f32>().unwrap(), [1.0, 2.5]);
    assert_eq!(decoded["kind"].as_slice::<u8>().unwrap(), [0, 255, 7]);
    let with = |name: &str, value: Value| {
        let mut body = good.clone();
        body["arrays"][name] = value;
        arrays(&body, &SCHEMA).unwrap_err()
    };
    let nan = STANDARD.encode(f32::NAN.to_le_bytes().repeat(2));
    for (error, words) in [
        (
            with("goal", json!([1])),
            "inputs.goal: the model takes no such array: it takes ego, kind",
        ),
        (
            with("ego", json!([[1, 2, 3]])),
            "inputs.ego: an array of shape [1, 3]; expected",
        ),
        (
            with("ego", json!([[1], [2, 3]])),
            "inputs.arrays.ego: lists of one level differ",
        ),
        (
            with("ego", json!([[1e300, 0]])),
            "inputs.ego: element 0 is too large",
        ),
        (
            with(
                "ego",
                json!({ "encoding": "raw", "dtype": "float32", "shape": [1, 2], "data": nan }),
            ),
            "inputs.ego: element 0 is not finite",
        ),
        (with("kind", json!([0, 1, 256])), "inputs.kind: element 2 is 256"),
        (with("kind", json!([0, 1, -1])), "inputs.kind: element 2 is -1"),
        (with("kind", json!([0, 1, 0.5])), "inputs.kind: element 2 is 0.5"),
        (
            arrays(&json!({ "arrays": { "ego": [[1, 2]] } }), &SCHEMA).unwrap_err(),
            "inputs.kind: missing",
        ),
    ] {
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn what_an_array_says_of_itself_is_held_against_what_it_is() {
    let decode = |value: &Value| {
        decode_array(&form::<ArrayForm>(value), "a", 1 << 20).map_err(|error| error.to_string())
    };
    let eight = STANDARD.encode([0; 8]);
    for (value, words) in [
        (
            json!({ "encoding": "raw", "data": eight, "dtype": "float32" }),
            "a.shape: missing",
        ),
        (
            json!({ "encoding": "raw", "data": eight, "shape": [2] }),
            "a.dtype: missing",
        ),
        (
            json!({ "encoding": "raw", "data": eight, "shape": [3], "dtype": "float32" }),
            "a.data: 8 bytes; expected 12",
        ),
        (
            json!({ "encoding": "raw", "data": eight, "shape": [4_000_000_000_u64, 4_000_000_000_u64], "dtype": "float32" }),
            "a.shape",
        ),
        (
            json!({ "data": [1, 2], "shape": [3] }),
            "a.shape: [3]; expected [2]",
        ),
        (json!({ "data": 1, "shape": [1] }), "a.shape: [1]; expected []"),
        (
            json!({ "data": [], "shape": [4, 0] }),
            "a.shape: [4, 0]; expected [0]",
        ),
        (
            json!({ "data": [[]], "shape": [1, 0, 9_000_000_000_000_000_000_u64, 9_000_000_000_000_000_000_u64] }),
            "a.data",
        ),
        (json!({ "data": [1, 2.5], "dtype": "int8" }), "element 1 is 2.5"),
        (
            json!({ "data": [1, 70000], "dtype": "float16" }),
            "element 1 is too large",
        ),
        (
            json!({ "data": [1, 2], "order": "F" }),
            "a.order: only raw bytes have it",
        ),
        (json!({ "encoding": "list", "data": eight }), "a.data: text"),
        (json!({ "encoding": "npz", "data": eight }), "a.data"),
        (
            json!({ "encoding": "raw", "data": STANDARD.encode([0xFF; 8]), "shape": [1], "dtype": "uint64" }),
            "18446744073709551615",
        ),
        (json!([[1, 2], [3]]), "a: lists of one level differ"),
        (json!([1, [2]]), "a: lists of one level differ"),
        (json!([[], 1]), "a: lists of one level differ"),
    ] {
        let error = decode(&value).unwrap_err();
        assert!(error.contains(words), "{value}: {error}");
    }
    assert_eq!(&decode(&json!([[], []])).unwrap().shape()[..], [2, 0]);
    assert_eq!(
        &decode(&json!({ "data": [], "shape": [0, 4] })).unwrap().shape()[..],
        [0, 4]
    );
    let single = decode(&json!(2.5)).unwrap();
    assert_eq!(
        (&single.shape()[..], single.to_f32().unwrap()),
        (&[][..], vec![2.5])
    );
    let single = decode(&json!({ "data": -3, "dtype": "int8", "shape": [] })).unwrap();
    assert_eq!(
        (single.element(), single.as_i64().unwrap()),
        (ElementType::I8, &[-3][..])
    );
    assert_eq!(decode(&json!(true)).unwrap().as_i64().unwrap(), [1]);
    assert_eq!(decode(&json!([true, false])).unwrap().as_i64().unwrap(), [1, 0]);
    assert!(
        serde_json::from_value::<ArrayForm>(json!([[[[[[[1]]]]]]])).is_err(),
        "seven levels"
    );
}

const ELEMENTS: [ElementType; 12] = [
    ElementType::Bool,
    ElementType::I8,
    ElementType::U8,
    ElementType::I16,
    ElementType::U16,
    ElementType::I32,
    ElementType::U32,
    ElementType::I64,
    ElementType::U64,
    ElementType::F16,
    ElementType::F32,
    ElementType::F64,
];

fn sample(element: ElementType, dims: &[usize], seed: i64) -> Array {
    let shape = Shape::new(dims).unwrap();
    let number = |at: usize| (at as i64 * 7919 + seed) % 120;
    let all = 0..shape.elements();
    let values = match element {
        ElementType::F16 | ElementType::F32 => Values::F32(all.map(|at| number(at) as f32 / 8.0).collect()),
        ElementType::F64 => Values::F64(all.map(|at| number(at) as f64 / 7.0).collect()),
        ElementType::Bool => Values::I64(all.map(|at| number(at) & 1).collect()),
        _ => Values::I64(all.map(|at| number(at).abs()).collect()),
    };
    Array::new(shape, element, values).unwrap()
}

proptest! {
    #[test]
    fn an_array_comes_back_from_every_encoding(
        element in prop::sample::select(&ELEMENTS[..]),
        dims in prop::collection::vec(0..4_usize, 0..4),
        seed in 0..1000_i64,
    ) {
        let array = sample(element, &dims, seed);
        for encoding in [ArrayEncoding::Npz, ArrayEncoding::NpzCompressed, ArrayEncoding::Raw, ArrayEncoding::List] {
            let encoded = encode_array(&array, encoding, "a").unwrap();
            let decoded = decode_array(&form::<ArrayForm>(&encoded), "a", 1 << 20).unwrap();
            prop_assert_eq!(&decoded, &array, "{}", encoded);
        }
    }
}

#[test]
fn numpy_reads_what_is_written_and_what_numpy_writes_is_read() {
    let Some(mut python) = support::oracle("forms.py") else {
        return;
    };
    let mut ours = Map::new();
    for element in ELEMENTS {
        for encoding in [
            ArrayEncoding::Npz,
            ArrayEncoding::NpzCompressed,
            ArrayEncoding::Raw,
            ArrayEncoding::List,
        ] {
            let name = format!("{element}.{encoding:?}");
            ours.insert(
                name,
                encode_array(&sample(element, &[2, 3, 2], 5), encoding, "a").unwrap(),
            );
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ours.json");
    std::fs::write(&file, Value::Object(ours.clone()).to_string()).unwrap();
    let out = support::run(python.arg(&file));
    let told: Value = serde_json::from_slice(&out).unwrap();
    let numbers = |array: &Array| -> Vec<f64> {
        match array.values() {
            Values::F32(values) => values.iter().map(|&v| v.into()).collect(),
            Values::F64(values) => values.clone(),
            Values::I64(values) => values.iter().map(|&v| v as f64).collect(),
        }
    };
    let floats =
        |bits: &Value| -> Vec<f64> { form::<Vec<u64>>(bits).into_iter().map(f64::from_bits).collect() };
    // What NumPy read of ours.
    assert_eq!(told["read"].as_object().unwrap().len(), ours.len());
    for element in ELEMENTS {
        let expected = numbers(&sample(element, &[2, 3, 2], 5));
        for encoding in ["Npz", "NpzCompressed", "Raw", "List"] {
            let read = floats(&told["read"][format!("{element}.{encoding}")]);
            assert_eq!(read, expected, "{element} {encoding}");
        }
    }
    // What we read of NumPy's: either order of elements, either order of bytes.
    let written = told["written"].as_array().unwrap();
    assert!(written.len() > 80, "{}", written.len());
    for case in written {
        let array = decode_array(&form::<ArrayForm>(&case["form"]), "a", 1 << 20).unwrap();
        let decoded = numbers(&array);
        let values = floats(&case["values"]);
        assert_eq!(decoded.len(), values.len(), "{}", case["form"]);
        // A decimal number is read to within the last bit of a float64; bytes are exact.
        let last_bits = if case["form"]["encoding"] == "list" { 1 } else { 0 };
        let apart = |(a, b): (&f64, &f64)| a.to_bits().abs_diff(b.to_bits()) > last_bits;
        assert!(
            !decoded.iter().zip(&values).any(apart),
            "{}: {decoded:?} {values:?}",
            case["form"]
        );
        assert_eq!(json!(array.shape()[..]), case["shape"], "{}", case["form"]);
    }
    // Rounding to six digits, as `float(f"{x:.6g}")` does it.
    let rounded: Vec<(u32, u64)> = form(&told["rounded"]);
    assert!(rounded.len() > 2000);
    for (bits, expected) in rounded {
        assert_eq!(
            round_f32(f32::from_bits(bits)),
            f64::from_bits(expected),
            "{bits:#x}"
        );
    }
}
