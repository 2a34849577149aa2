//! ONNX files as data: what is read, and what is refused with which words.

use crate::support;
use std::collections::HashSet;
use std::path::Path;

use proptest::prelude::*;
use prost::Message;
use sensorium::weights::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto,
    TensorProto, ValueInfoProto,
};
use sensorium::weights::{Array, ElementType, OnnxError, OnnxModel, Values};

fn named(name: &str) -> ValueInfoProto {
    ValueInfoProto {
        name: name.to_owned(),
        r#type: None,
    }
}

fn node(op_type: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        op_type: op_type.to_owned(),
        input: inputs.iter().map(ToString::to_string).collect(),
        output: outputs.iter().map(ToString::to_string).collect(),
        ..NodeProto::default()
    }
}

fn model(graph: GraphProto) -> Vec<u8> {
    let model = ModelProto {
        ir_version: 8,
        graph: Some(graph),
        opset_import: vec![OperatorSetIdProto {
            domain: String::new(),
            version: 13,
        }],
        ..ModelProto::default()
    };
    model.encode_to_vec()
}

fn open(bytes: &[u8], folder: Option<&Path>) -> Result<OnnxModel, OnnxError> {
    OnnxModel::from_bytes(bytes, "net.onnx", folder)
}

fn with_tensor(tensor: TensorProto, folder: Option<&Path>) -> Result<Array, OnnxError> {
    let graph = GraphProto {
        initializer: vec![TensorProto {
            name: "w".to_owned(),
            ..tensor
        }],
        ..GraphProto::default()
    };
    open(&model(graph), folder).map(|m| m.array("w").unwrap().as_ref().clone())
}

fn message(result: Result<Array, OnnxError>) -> String {
    let error = result.unwrap_err();
    match std::error::Error::source(&error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[test]
fn every_carrier_of_every_element_type_is_read() {
    let read = |data_type: i32, proto: TensorProto| {
        let dims = vec![3];
        with_tensor(
            TensorProto {
                data_type,
                dims,
                ..proto
            },
            None,
        )
        .unwrap()
        .values()
        .clone()
    };
    let raw = |data_type: i32, bytes: &[u8]| {
        read(
            data_type,
            TensorProto {
                raw_data: Some(bytes.to_vec()),
                ..TensorProto::default()
            },
        )
    };
    let int32 = |data_type: i32, values: [i32; 3]| {
        read(
            data_type,
            TensorProto {
                int32_data: values.to_vec(),
                ..TensorProto::default()
            },
        )
    };
    let floats = vec![1.5, -2.0, 0.1];
    let as_field = TensorProto {
        float_data: floats.clone(),
        ..TensorProto::default()
    };
    assert_eq!(read(1, as_field), Values::F32(floats.clone()));
    let bytes: Vec<u8> = floats.iter().flat_map(|f| f.to_le_bytes()).collect();
    assert_eq!(raw(1, &bytes), Values::F32(floats));
    assert_eq!(raw(2, &[0, 7, 255]), Values::I64(vec![0, 7, 255]));
    assert_eq!(raw(3, &[0, 127, 255]), Values::I64(vec![0, 127, -1]));
    assert_eq!(int32(2, [0, 7, 255]), Values::I64(vec![0, 7, 255]));
    assert_eq!(int32(3, [0, 127, -128]), Values::I64(vec![0, 127, -128]));
    assert_eq!(int32(9, [0, 1, 1]), Values::I64(vec![0, 1, 1]));
    // 1, -2 and 65504 in half precision; 1, -2 and 3 in bfloat16.
    assert_eq!(
        int32(10, [0x3c00, 0xc000, 0x7bff]),
        Values::F32(vec![1.0, -2.0, 65504.0])
    );
    assert_eq!(
        raw(10, &[0, 0x3c, 0, 0xc0, 0xff, 0x7b]),
        Values::F32(vec![1.0, -2.0, 65504.0])
    );
    assert_eq!(
        int32(16, [0x3f80, 0xc000, 0x4040]),
        Values::F32(vec![1.0, -2.0, 3.0])
    );
    let doubles = TensorProto {
        double_data: vec![0.1, 1e300, -0.0],
        ..TensorProto::default()
    };
    assert_eq!(read(11, doubles), Values::F64(vec![0.1, 1e300, -0.0]));
    let longs = TensorProto {
        int64_data: vec![i64::MIN, 0, i64::MAX],
        ..TensorProto::default()
    };
    assert_eq!(read(7, longs), Values::I64(vec![i64::MIN, 0, i64::MAX]));
    let unsigned = TensorProto {
        uint64_data: vec![0, 1, u64::from(u32::MAX)],
        ..TensorProto::default()
    };
    assert_eq!(read(12, unsigned), Values::I64(vec![0, 1, i64::from(u32::MAX)]));
}

#[test]
fn floats_of_8_and_4_bits_are_read_raw_and_as_fields() {
    let proto = |data_type: i32, dims: &[i64]| TensorProto {
        data_type,
        dims: dims.to_vec(),
        ..TensorProto::default()
    };
    let both = |data_type: i32, dims: &[i64], bytes: &[u8]| {
        let raw = TensorProto {
            raw_data: Some(bytes.to_vec()),
            ..proto(data_type, dims)
        };
        let fields = TensorProto {
            int32_data: bytes.iter().map(|&b| i32::from(b)).collect(),
            ..proto(data_type, dims)
        };
        let [raw, fields] = [raw, fields].map(|p| with_tensor(p, None));
        match (raw, fields) {
            (Ok(raw), Ok(fields)) => {
                assert_eq!(raw, fields);
                Ok(raw)
            }
            (Err(raw), Err(fields)) => Err([raw, fields].map(|e| e.to_string())),
            (raw, fields) => panic!("{raw:?} and {fields:?}"),
        }
    };
    let values =
        |data_type, dims: &[i64], bytes: &[u8]| both(data_type, dims, bytes).unwrap().to_f32().unwrap();
    assert_eq!(values(17, &[3], &[0x38, 0x7e, 0xfe]), [1.0, 448.0, -448.0]);
    assert_eq!(
        values(19, &[3], &[0x3c, 0x7b, 0xfc]),
        [1.0, 57344.0, f32::NEG_INFINITY]
    );
    // The first of two is in the low bits.
    assert_eq!(values(23, &[2, 2], &[0x21, 0xf7]), [0.5, 1.0, 6.0, -6.0]);
    assert_eq!(values(23, &[3], &[0x21, 0x07]), [0.5, 1.0, 6.0]);
    assert_eq!(values(23, &[0], &[]), [0.0; 0]);
    let nan = TensorProto {
        raw_data: Some(vec![0x7f]),
        ..proto(17, &[1])
    };
    assert!(with_tensor(nan, None).unwrap().to_f32().unwrap()[0].is_nan());
    assert_eq!(
        both(23, &[1], &[0x02]).unwrap().element().to_string(),
        "float4_e2m1fn"
    );
    let lengths = both(23, &[2, 2], &[0x21]).unwrap_err();
    assert_eq!(
        lengths,
        [
            "net.onnx: tensor `w` of shape [2, 2] needs 2 bytes, the file holds 1",
            "net.onnx: tensor `w` of shape [2, 2] needs 4 elements, the file holds 2"
        ]
    );
    assert!(both(23, &[2], &[0x21, 0x43]).is_err() && both(17, &[2], &[1]).is_err());
    for wide in [256, -1] {
        let refused = with_tensor(
            TensorProto {
                int32_data: vec![wide],
                ..proto(17, &[1])
            },
            None,
        );
        assert_eq!(
            message(refused),
            format!("net.onnx: tensor `w`: {wide} is no float8_e4m3fn")
        );
    }
    // The forms without a negative zero, 4-bit integers and scales.
    for code in [18, 20, 21, 22, 24] {
        assert_eq!(
            both(code, &[1], &[1]).unwrap_err()[0],
            format!("net.onnx: tensor `w`: element type {code} is not supported")
        );
    }
    let huge = message(with_tensor(proto(23, &[i64::MAX]), None));
    assert!(
        huge.contains("needs 9223372036854775807 elements, the file holds 0"),
        "{huge}"
    );
}

#[test]
fn floats_of_8_and_4_bits_have_the_values_that_the_onnx_package_gives_them() {
    let Some(mut command) = support::oracle("write_narrow_onnx.py") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    support::run(command.arg(folder.path()));
    let net = OnnxModel::open(folder.path().join("narrow.onnx")).unwrap();
    assert_eq!(net.arrays().len(), 8);
    for (name, array) in net.arrays() {
        let bytes = std::fs::read(folder.path().join(format!("{name}.f32"))).unwrap();
        let expected: Vec<f32> = support::floats(&bytes);
        let found = array.to_f32().unwrap();
        assert_eq!(found.len(), expected.len(), "{name}");
        for (i, (a, b)) in found.iter().zip(&expected).enumerate() {
            assert!(
                a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
                "{name} {i}: {a} instead of {b}"
            );
        }
    }
    assert_eq!(net.array("e2m1_odd_raw").unwrap().shape()[..], [3, 5]);
}

#[test]
fn a_shape_of_2_to_the_60_is_refused_before_memory_is_reserved() {
    let huge = |dims: Vec<i64>| {
        message(with_tensor(
            TensorProto {
                dims,
                data_type: 1,
                ..TensorProto::default()
            },
            None,
        ))
    };
    assert_eq!(
        huge(vec![1 << 60]),
        "net.onnx: tensor `w` of shape [1152921504606846976] needs 1152921504606846976 elements, the file holds 0"
    );
    assert_eq!(
        huge(vec![1 << 62]),
        "net.onnx: tensor `w`: shape [4611686018427387904] of 4-byte elements is larger than the address space"
    );
    assert!(huge(vec![1 << 60, 1 << 60]).contains("larger than the address space"));
    // A zero must not hide the overflow of the others.
    assert!(huge(vec![0, 1 << 60, 1 << 60]).contains("larger than the address space"));
    assert!(huge(vec![1; 7]).contains("rank 7 is above the supported 6"));
}

#[test]
fn tensors_that_contradict_themselves_are_refused() {
    let refused = |proto: TensorProto| message(with_tensor(proto, None));
    let dims = vec![2, -3];
    let negative = TensorProto {
        dims,
        data_type: 1,
        ..TensorProto::default()
    };
    assert_eq!(
        refused(negative),
        "net.onnx: tensor `w`: negative dimension in [2, -3]"
    );
    let cut = TensorProto {
        dims: vec![2, 3],
        data_type: 1,
        raw_data: Some(vec![0; 23]),
        ..TensorProto::default()
    };
    assert_eq!(
        refused(cut),
        "net.onnx: tensor `w` of shape [2, 3] needs 24 bytes, the file holds 23"
    );
    let text = TensorProto {
        dims: vec![1],
        data_type: 8,
        ..TensorProto::default()
    };
    assert_eq!(
        refused(text),
        "net.onnx: tensor `w`: element type 8 is not supported"
    );
    let wide = TensorProto {
        dims: vec![1],
        data_type: 2,
        int32_data: vec![300],
        ..TensorProto::default()
    };
    assert_eq!(refused(wide), "net.onnx: tensor `w`: 300 is no uint8");
}

fn external(entries: &[(&str, &str)]) -> TensorProto {
    let entry = |&(key, value): &(&str, &str)| StringStringEntryProto {
        key: key.to_owned(),
        value: value.to_owned(),
    };
    TensorProto {
        dims: vec![2],
        data_type: 1,
        data_location: 1,
        external_data: entries.iter().map(entry).collect(),
        ..TensorProto::default()
    }
}

#[test]
fn external_data_is_read_from_the_models_folder_and_nowhere_else() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("model");
    std::fs::create_dir(&folder).unwrap();
    let bytes: Vec<u8> = [9.0_f32, 1.0, 2.0].iter().flat_map(|f| f.to_le_bytes()).collect();
    std::fs::write(folder.join("w.bin"), &bytes).unwrap();
    std::fs::write(root.path().join("secret.bin"), &bytes).unwrap();
    let inside = external(&[("location", "w.bin"), ("offset", "4"), ("length", "8")]);
    let array = with_tensor(inside.clone(), Some(&folder)).unwrap();
    assert_eq!(array.values(), &Values::F32(vec![1.0, 2.0]));
    assert!(message(with_tensor(inside, None)).contains("not read from a folder"));

    let refused = |entries: &[(&str, &str)]| message(with_tensor(external(entries), Some(&folder)));
    let absolute = root.path().join("secret.bin");
    for outside in [
        "../secret.bin",
        "./../secret.bin",
        "a/../../secret.bin",
        absolute.to_str().unwrap(),
        "",
    ] {
        let text = refused(&[("location", outside)]);
        assert!(text.contains("must be relative and stay inside"), "{text}");
    }
    let long = refused(&[("location", "w.bin"), ("offset", "8")]);
    assert_eq!(
        long,
        "net.onnx: tensor `w`: external data `w.bin`: bytes 8.. + 8 lie outside its 12 bytes"
    );
    assert!(refused(&[("location", "w.bin"), ("offset", "18446744073709551615")]).contains("lie outside"));
    assert!(refused(&[("location", "w.bin"), ("length", "12")]).contains("needs 8 bytes"));
    assert!(refused(&[("location", "w.bin"), ("offset", "-1")]).contains("no byte count"));
    assert!(refused(&[("location", ".")]).contains("not a regular file"));
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&absolute, folder.join("link.bin")).unwrap();
        assert!(refused(&[("location", "link.bin")]).contains("leads out of the model's folder"));
    }
}

#[test]
fn what_is_no_model_is_told_so() {
    for bytes in [&b""[..], b"not a model at all", &[0xff; 64], &[0x08, 0x07]] {
        let text = open(bytes, None).unwrap_err().to_string();
        assert!(text.starts_with("net.onnx: not an ONNX file"), "{text}");
    }
    let bytes = model(GraphProto {
        node: vec![node("Relu", &["x"], &["y"])],
        ..GraphProto::default()
    });
    assert!(open(&bytes[..bytes.len() - 3], None).is_err());
    let missing = OnnxModel::open("no/such/file.onnx").unwrap_err();
    assert_eq!(missing.to_string(), "cannot read no/such/file.onnx");
}

proptest! {
    #[test]
    fn random_and_damaged_bytes_never_panic(noise in proptest::collection::vec(any::<u8>(), 0..300), at in 0_usize..4096, bit in 0_u8..8) {
        let _ = open(&noise, None);
        let attribute = AttributeProto { name: "axis".to_owned(), i: 1, r#type: 2, ..AttributeProto::default() };
        let mut bytes = model(GraphProto {
            node: vec![NodeProto { attribute: vec![attribute], ..node("Concat", &["x", "w"], &["y"]) }],
            input: vec![named("x")],
            output: vec![named("y")],
            initializer: vec![TensorProto { name: "w".to_owned(), dims: vec![2], data_type: 1, raw_data: Some(vec![0; 8]), ..TensorProto::default() }],
            ..GraphProto::default()
        });
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        let _ = open(&bytes, None);
        let _ = open(&bytes[..at], None);
    }
}

#[test]
fn nodes_are_named_and_sorted_and_cycles_refused() {
    let graph = |nodes: Vec<NodeProto>| {
        model(GraphProto {
            node: nodes,
            input: vec![named("x")],
            output: vec![named("z")],
            ..GraphProto::default()
        })
    };
    let unsorted = graph(vec![node("Exp", &["y"], &["z"]), node("Relu", &["x"], &["y"])]);
    let net = open(&unsorted, None).unwrap();
    let names: Vec<&str> = net.all_nodes().iter().map(|n| n.name.as_str()).collect();
    assert_eq!(names, ["Relu_1", "Exp_0"]);
    assert_eq!(net.producer_of("z").unwrap().op_type, "Exp");
    assert_eq!(net.consumers_of("y"), [1]);
    assert!(net.producer_of("x").is_none());

    let text = |nodes: Vec<NodeProto>| open(&graph(nodes), None).unwrap_err().to_string();
    let cycle = vec![node("Add", &["x", "z"], &["y"]), node("Exp", &["y"], &["z"])];
    assert_eq!(
        text(cycle),
        "net.onnx: the graph has a cycle through node `Add_0`"
    );
    let undefined = vec![node("Exp", &["q"], &["z"])];
    assert_eq!(
        text(undefined),
        "net.onnx: value `q`, used by node `Exp_0`, is defined nowhere"
    );
    let orphan = vec![node("Exp", &["x"], &["y"])];
    assert_eq!(
        text(orphan),
        "net.onnx: value `z`, used by the graph's outputs, is defined nowhere"
    );
    let twice = vec![node("Exp", &["x"], &["z"]), node("Relu", &["x"], &["z"])];
    assert_eq!(text(twice), "net.onnx: value `z` is defined twice");
}

#[test]
fn constants_that_are_listed_as_inputs_are_no_inputs() {
    let Some(path) = support::data("models/nanodet_m_416.onnx") else {
        return;
    };
    let net = OnnxModel::open(path).unwrap();
    let inputs: Vec<&str> = net.inputs().iter().map(|i| i.name.as_str()).collect();
    assert_eq!(inputs, ["input.1"]);
    let outputs: Vec<&str> = net.outputs().iter().map(|i| i.name.as_str()).collect();
    assert_eq!(outputs, ["792", "814", "836", "795", "817", "839"]);
    assert_eq!(net.nodes("Conv").count(), 73);
    assert_eq!((net.opset(), net.producer()), (11, "pytorch 1.7"));
    assert_eq!(
        net.array("fpn.lateral_convs.0.conv.weight").unwrap().element(),
        ElementType::F32
    );
}

#[test]
fn an_unsorted_file_loads_in_an_order_that_runs() {
    let Some(path) = support::data("models/lidar_pfe/centerpoint_nuscenes_pfe_sim_UNSORTED.onnx") else {
        return;
    };
    let net = OnnxModel::open(path).unwrap();
    assert_eq!(net.all_nodes().len(), 10);
    let mut known: HashSet<&str> = net.arrays().keys().map(String::as_str).collect();
    known.extend(net.inputs().iter().map(|i| i.name.as_str()));
    for node in net.all_nodes() {
        assert!(
            node.inputs.iter().all(|i| known.contains(i.as_str())),
            "{} comes too early",
            node.name
        );
        known.extend(node.outputs.iter().map(String::as_str));
    }
}
