//! Whole networks under a policy of precisions.

use crate::graphs;
use crate::support;
use std::time::Duration;

use graphs::Random;
use prost::Message;
use sensorium::device::{BufferClass, CpuConfig, CpuDevice, Cq, OpDesc};
use sensorium::models::{LoadedGraph, LowerOptions, LoweredGraph, Step, WeightPlan, lower};
use sensorium::ops::OpContext;
use sensorium::precision::{Fidelity, Math, PrecisionPolicy};
use sensorium::tensor::{DType, HostTensor};
use sensorium::weights::OnnxModel;
use sensorium::weights::proto::{
    AttributeProto, DimensionProto, DimensionValue, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};

/// Runs a network on the CPU device.
fn run(graph: LoweredGraph, input: &[f32]) -> Vec<f32> {
    let config = CpuConfig {
        threads: 2,
        ..CpuConfig::default()
    };
    let mut device = CpuDevice::open(&config).unwrap();
    let loaded = LoadedGraph::prepare(graph, &mut device, Cq(0)).unwrap();
    let mut ops = OpContext::new(&mut device, Cq(0));
    let values = HostTensor::from_slice(&loaded.inputs()[0].spec.shape, input).unwrap();
    let x = ops.upload(&values, BufferClass::Input).unwrap();
    let outputs = loaded.forward(&mut ops, &[x]).unwrap();
    let host = ops.download(&outputs[0], Duration::from_secs(300)).unwrap();
    host.as_slice().unwrap().to_vec()
}

fn noise(count: usize, scale: f32) -> Vec<f32> {
    let mut r = Random(71);
    (0..count)
        .map(|_| ((r.next() >> 40) as f32 / (1 << 24) as f32) * scale)
        .collect()
}

fn correlation(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let mean = |x: &[f32]| x.iter().map(|&x| f64::from(x)).sum::<f64>() / x.len() as f64;
    let (ma, mb) = (mean(a), mean(b));
    let sum = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
        let pairs = a.iter().zip(b);
        pairs
            .map(|(&x, &y)| f(f64::from(x) - ma, f64::from(y) - mb))
            .sum()
    };
    sum(&|x, y| x * y) / (sum(&|x, _| x * x) * sum(&|_, y| y * y)).sqrt()
}

fn value(name: &str, dims: &[i64]) -> ValueInfoProto {
    let dim = |&size: &i64| DimensionProto {
        value: Some(DimensionValue::Size(size)),
    };
    let shape = TensorShapeProto {
        dim: dims.iter().map(dim).collect(),
    };
    ValueInfoProto {
        name: name.to_owned(),
        r#type: Some(TypeProto {
            tensor_type: Some(TensorTypeProto {
                elem_type: 1,
                shape: Some(shape),
            }),
        }),
    }
}

/// `x -> backbone.conv -> relu -> head.reg` of 3 x 3 kernels.
fn small() -> OnnxModel {
    let mut r = Random(72);
    let mut weights = |name: &str, dims: [i64; 4]| {
        let count = dims.iter().product::<i64>() as usize;
        let scale = 2.0 / ((count / dims[0] as usize) as f32).sqrt();
        TensorProto {
            name: name.to_owned(),
            dims: dims.to_vec(),
            data_type: 1,
            float_data: (0..count)
                .map(|_| ((r.next() >> 40) as f32 / (1 << 23) as f32 - 1.0) * scale)
                .collect(),
            ..TensorProto::default()
        }
    };
    let pads = AttributeProto {
        name: "pads".into(),
        r#type: 7,
        ints: vec![1; 4],
        ..AttributeProto::default()
    };
    let node =
        |name: &str, op: &str, inputs: &[&str], output: &str, attribute: Vec<AttributeProto>| NodeProto {
            name: name.into(),
            op_type: op.into(),
            input: inputs.iter().map(ToString::to_string).collect(),
            output: vec![output.into()],
            attribute,
            ..NodeProto::default()
        };
    let proto = ModelProto {
        ir_version: 8,
        graph: Some(GraphProto {
            node: vec![
                node("backbone.conv", "Conv", &["x", "w0"], "a", vec![pads.clone()]),
                node("backbone.relu", "Relu", &["a"], "b", vec![]),
                node("head.reg", "Conv", &["b", "w1"], "y", vec![pads]),
            ],
            input: vec![value("x", &[1, 8, 12, 12])],
            output: vec![value("y", &[])],
            initializer: vec![weights("w0", [24, 8, 3, 3]), weights("w1", [6, 24, 3, 3])],
            ..GraphProto::default()
        }),
        opset_import: vec![OperatorSetIdProto {
            domain: String::new(),
            version: 13,
        }],
        ..ModelProto::default()
    };
    OnnxModel::from_bytes(&proto.encode_to_vec(), "small.onnx", None).unwrap()
}

/// What each launch of a convolution and its weights are described with.
fn maths(graph: &LoweredGraph) -> Vec<(String, Math)> {
    let launches = graph.steps.iter().filter_map(|step| match step {
        Step::Launch(launch) => match &launch.op {
            OpDesc::Conv2d(desc) => Some((launch.name.clone(), desc.math)),
            _ => None,
        },
        _ => None,
    });
    let launches: Vec<_> = launches.collect();
    let planned = graph.weights.iter().filter_map(|plan| match plan {
        WeightPlan::Conv2d { desc, .. } => Some(desc.math),
        _ => None,
    });
    assert!(
        launches.iter().map(|(_, math)| *math).eq(planned),
        "weights are prepared for another arithmetic"
    );
    launches
}

#[test]
fn every_node_gets_the_precision_of_its_name() {
    let model = small();
    let graph = lower(&model, &LowerOptions::default()).unwrap();
    assert!(maths(&graph).iter().all(|(_, math)| *math == Math::Native));
    let policy = PrecisionPolicy::parse(&[("head.*", "HiFi4+fp32+l1acc:w=fp32")], "fast").unwrap();
    let graph = graph.with_precision(&policy);
    let maths = maths(&graph);
    assert_eq!(maths.len(), 2);
    for (name, math) in maths {
        let text = if name.starts_with("head") {
            "HiFi4+fp32+l1acc:w=fp32"
        } else {
            "LoFi:w=bfp8"
        };
        assert_eq!(math.to_string(), text, "{name}");
    }
    let told = policy.describe();
    assert!(
        told.contains("head.reg -> HiFi4+fp32+l1acc:w=fp32 (rule head.*)"),
        "{told}"
    );
    assert!(told.contains("-> LoFi:w=bfp8 (the default)"), "{told}");
}

/// Correlation with the device's own fp32 arithmetic, for each fidelity with fp32 sums.
fn correlations(model: &OnnxModel, input: &[f32], storage: DType) -> [f64; 4] {
    let exact = run(lower(model, &LowerOptions::default()).unwrap(), input);
    Fidelity::ALL.map(|fidelity| {
        let options = LowerOptions {
            storage,
            ..LowerOptions::default()
        };
        let policy = PrecisionPolicy::parse(&[], &format!("{fidelity}+fp32+l1acc")).unwrap();
        let found = run(lower(model, &options).unwrap().with_precision(&policy), input);
        correlation(&found, &exact)
    })
}

#[test]
fn a_network_is_the_more_exact_the_more_passes_it_takes() {
    let [lofi, hifi2, hifi3, hifi4] = correlations(&small(), &noise(8 * 144, 1.0), DType::F32);
    println!("small: {lofi:.6} {hifi2:.6} {hifi3:.6} {hifi4:.6}");
    assert!(lofi < hifi2 && hifi2 < hifi3 && hifi4 > 0.999_9 && lofi > 0.98);
}

#[test]
fn a_detector_loses_accuracy_with_each_pass_that_it_does_not_take() {
    let Some(path) = support::data("models/yolox_nano_416.onnx") else {
        return;
    };
    let model = OnnxModel::open(&path).unwrap();
    let [lofi, hifi2, hifi3, hifi4] = correlations(&model, &noise(3 * 416 * 416, 255.0), DType::Bf16);
    println!("YOLOX-nano in bf16: {lofi:.6} {hifi2:.6} {hifi3:.6} {hifi4:.6}");
    assert!(
        lofi < hifi2 && hifi2 <= hifi4 + 0.002 && hifi4 > 0.97,
        "{lofi} {hifi2} {hifi3} {hifi4}"
    );
}
