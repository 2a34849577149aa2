//! A model file that cannot be imported.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(unreachable_pub, reason = "included by several test targets")]

use std::path::PathBuf;

use sensorium::weights::proto::{
    DimensionProto, DimensionValue, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorShapeProto,
    TensorTypeProto, TypeProto, ValueInfoProto,
};

/// A network `[1, 4] -> [1, 4]` of one operation that nobody knows, and the folder that it lies in.
pub fn unknown_operation() -> (tempfile::TempDir, PathBuf) {
    let value = |name: &str| ValueInfoProto {
        name: name.into(),
        r#type: Some(TypeProto {
            tensor_type: Some(TensorTypeProto {
                elem_type: 1,
                shape: Some(TensorShapeProto {
                    dim: [1, 4]
                        .map(|size| DimensionProto {
                            value: Some(DimensionValue::Size(size)),
                        })
                        .into(),
                }),
            }),
        }),
    };
    let model = ModelProto {
        ir_version: 8,
        opset_import: vec![OperatorSetIdProto {
            version: 17,
            ..OperatorSetIdProto::default()
        }],
        graph: Some(GraphProto {
            node: vec![NodeProto {
                name: "odd".into(),
                op_type: "Frobnicate".into(),
                input: vec!["x".into()],
                output: vec!["y".into()],
                ..NodeProto::default()
            }],
            input: vec![value("x")],
            output: vec![value("y")],
            ..GraphProto::default()
        }),
        ..ModelProto::default()
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.onnx");
    std::fs::write(&path, prost::Message::encode_to_vec(&model)).unwrap();
    (folder, path)
}
