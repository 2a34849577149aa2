//! Lowered graphs against ONNX Runtime: by plain loops instead of a device, and on the CPU device.

mod detectors;
mod device;
mod networks;
mod passes;
mod refusals;
mod small;
mod wide;

use crate::interpreter;
use crate::support;
use std::collections::BTreeMap;
use std::path::Path;

use prost::Message;
use sensorium::device::OpDesc;
use sensorium::models::{InputFormat, LowerOptions, LoweredGraph, Step};
use sensorium::tensor::DType;
use sensorium::weights::OnnxModel;
use sensorium::weights::proto::{
    DimensionProto, DimensionValue, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorShapeProto,
    TensorTypeProto, TypeProto, ValueInfoProto,
};

pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|&b| f32::from_le_bytes(b))
        .collect()
}

/// What ONNX Runtime makes of a model's only input.
pub(crate) fn reference(model: &Path, input: &[f32]) -> Option<Vec<f32>> {
    let mut command = support::oracle("run_onnx.py")?;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytemuck::cast_slice(input)).unwrap();
    Some(floats(&support::run(command.arg(model).arg(file.path()))))
}

pub(crate) fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    // NaN never compares as the larger one, so it is looked for.
    assert!(a.iter().chain(b).all(|x| x.is_finite()));
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

pub(crate) fn correlation(a: &[f32], b: &[f32]) -> f64 {
    let mean = |v: &[f32]| v.iter().map(|&x| f64::from(x)).sum::<f64>() / v.len() as f64;
    let (ma, mb) = (mean(a), mean(b));
    let product = |x: &[f32], mx: f64, y: &[f32], my: f64| -> f64 {
        x.iter()
            .zip(y)
            .map(|(&x, &y)| (f64::from(x) - mx) * (f64::from(y) - my))
            .sum()
    };
    product(a, ma, b, mb) / (product(a, ma, a, ma) * product(b, mb, b, mb)).sqrt()
}

/// Numbers without a pattern, 0 to 255.
pub(crate) fn noise(count: usize) -> Vec<f32> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 56) as f32
    };
    (0..count).map(next).collect()
}

pub(crate) fn options(storage: DType, input: &str, format: InputFormat) -> LowerOptions {
    LowerOptions {
        storage,
        formats: BTreeMap::from([(input.to_owned(), format)]),
        ..LowerOptions::default()
    }
}

pub(crate) fn launches(graph: &LoweredGraph) -> impl Iterator<Item = &OpDesc> {
    graph.steps.iter().filter_map(|step| match step {
        Step::Launch(launch) => Some(&launch.op),
        Step::Alloc(_) | Step::Free(_) => None,
    })
}

pub(crate) fn node(op_type: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        op_type: op_type.to_owned(),
        input: inputs.iter().map(ToString::to_string).collect(),
        output: outputs.iter().map(ToString::to_string).collect(),
        ..NodeProto::default()
    }
}

pub(crate) fn value(name: &str, dims: &[DimensionValue]) -> ValueInfoProto {
    let dim = |d: &DimensionValue| DimensionProto {
        value: Some(d.clone()),
    };
    let shape = TensorShapeProto {
        dim: dims.iter().map(dim).collect(),
    };
    let tensor_type = Some(TensorTypeProto {
        elem_type: 1,
        shape: Some(shape),
    });
    ValueInfoProto {
        name: name.to_owned(),
        r#type: Some(TypeProto { tensor_type }),
    }
}

pub(crate) fn graph(nodes: Vec<NodeProto>, dims: &[DimensionValue], opset: i64) -> OnnxModel {
    let proto = ModelProto {
        ir_version: 8,
        graph: Some(GraphProto {
            node: nodes,
            input: vec![value("x", dims)],
            output: vec![value("y", &[])],
            ..GraphProto::default()
        }),
        opset_import: vec![OperatorSetIdProto {
            domain: String::new(),
            version: opset,
        }],
        ..ModelProto::default()
    };
    OnnxModel::from_bytes(&proto.encode_to_vec(), "net.onnx", None).unwrap()
}

pub(crate) fn sizes(dims: &[i64]) -> Vec<DimensionValue> {
    dims.iter().map(|&d| DimensionValue::Size(d)).collect()
}
