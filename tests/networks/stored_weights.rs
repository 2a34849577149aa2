//! Weights kept in shorter formats: what is left of them, and what a network makes of it.

use crate::interpreter;
use crate::support;
use std::path::Path;
use std::time::Duration;

use prost::Message;
use sensorium::device::{BufferClass, CpuConfig, CpuDevice, Cq, Device};
use sensorium::models::{LoadedGraph, LowerOptions, LoweredGraph, WeightPlan, lower};
use sensorium::numeric::Fp8Format;
use sensorium::ops::OpContext;
use sensorium::tensor::HostTensor;
use sensorium::weights::proto::{
    AttributeProto, DimensionProto, DimensionValue, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use sensorium::weights::{OnnxModel, StoreError, StoredWeights, WeightFormat};

/// Whole numbers without a pattern, of magnitudes below `limit`.
fn noise(count: usize, limit: u64, mut state: u64) -> Vec<i64> {
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    (0..count)
        .map(|_| (next() % (2 * limit - 1)) as i64 - (limit as i64 - 1))
        .collect()
}

/// Weights of 14 bits: no shorter format holds all of them.
fn weights(count: usize, seed: u64) -> Vec<f32> {
    noise(count, 1 << 13, seed)
        .iter()
        .map(|&k| k as f32 / 4096.0)
        .collect()
}

fn packed(format: WeightFormat, weights: &[f32], row_len: usize) -> StoredWeights {
    StoredWeights::pack(format, weights, row_len).unwrap()
}

#[test]
fn names_of_formats_are_read_back_and_others_refused() {
    let names = [
        "fp32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "fp8_e3m4", "bfp8", "bfp4",
    ];
    assert_eq!(WeightFormat::ALL.map(|format| format.to_string()), names);
    for (name, format) in names.into_iter().zip(WeightFormat::ALL) {
        assert_eq!(name.parse(), Ok(format));
    }
    assert_eq!(WeightFormat::default(), WeightFormat::Fp32);
    assert_eq!(
        "BFP8".parse::<WeightFormat>().unwrap_err().to_string(),
        "no weight format is called \"BFP8\"; the choices are fp32, bf16, fp16, fp8_e4m3, fp8_e5m2, fp8_e3m4, \
         bfp8, bfp4"
    );
}

#[test]
fn stored_weights_take_the_bytes_of_their_format() {
    let weights = weights(1024, 1);
    let bytes = |format| packed(format, &weights, 32).stored_bytes();
    let expected = [4096, 2048, 2048, 1024, 1024, 1024, 1088, 576];
    assert_eq!(WeightFormat::ALL.map(bytes), expected);
    // Blocks start anew with each row: 9 weights of a depthwise channel take 16 places.
    assert_eq!(
        packed(WeightFormat::Bfp8, &weights[..18], 9).stored_bytes(),
        2 * 17
    );
    assert_eq!(
        packed(WeightFormat::Bfp4, &weights[..18], 9).stored_bytes(),
        2 * 9
    );
    assert_eq!(
        packed(WeightFormat::Bfp8, &weights[..51], 17).stored_bytes(),
        3 * 2 * 17
    );
}

#[test]
fn fp32_keeps_every_bit_and_the_others_keep_what_they_have_kept_once() {
    let mut weights = weights(600, 2);
    weights.extend([0.0, -0.0, 1e-30, -3e-42, f32::MAX, f32::MIN]);
    for format in WeightFormat::ALL {
        if matches!(format, WeightFormat::Bf16 | WeightFormat::Fp16) {
            // The largest fp32 values are infinite in these.
            weights.truncate(604);
        }
        let once = packed(format, &weights, 2);
        assert_eq!((once.format(), once.len()), (format, weights.len()));
        let widened = once.widen();
        if format == WeightFormat::Fp32 {
            assert!(
                widened
                    .iter()
                    .zip(&weights)
                    .all(|(a, b)| a.to_bits() == b.to_bits())
            );
        } else {
            assert!(widened.iter().all(|w| w.is_finite()));
            assert_ne!(widened.as_ref(), weights);
            let twice = packed(format, &widened, 2);
            assert_eq!(twice.widen(), widened, "{format}");
        }
    }
}

#[test]
fn the_blocks_of_a_channel_do_not_depend_on_its_neighbour() {
    // Rows of 9: in blocks that ran on, the small weights would share an exponent with large ones.
    let (small, large) = (
        weights(9, 3),
        weights(9, 4).iter().map(|w| w * 4096.0).collect::<Vec<_>>(),
    );
    for format in [WeightFormat::Bfp8, WeightFormat::Bfp4] {
        let both = packed(format, &[small.clone(), large.clone()].concat(), 9);
        assert_eq!(both.widen()[..9], packed(format, &small, 9).widen()[..]);
        assert_eq!(both.widen()[9..], packed(format, &large, 9).widen()[..]);
        let as_one_row = packed(format, &[small.clone(), large.clone()].concat(), 18);
        assert_eq!(as_one_row.widen()[..9], [0.0; 9], "{format}");
    }
}

#[test]
fn weights_that_a_format_cannot_hold_are_refused_or_held_at_its_largest_value() {
    let pack = |format, weight: f32| StoredWeights::pack(format, &[1.0, 0.5, weight, 2.0], 2);
    for format in WeightFormat::ALL {
        for weight in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let stored = pack(format, weight);
            if format == WeightFormat::Fp32 {
                assert_eq!(stored.unwrap().widen()[2].to_bits(), weight.to_bits());
            } else {
                let refused = stored.unwrap_err();
                assert!(
                    matches!(refused, StoreError::NotFinite { index: 2, .. }),
                    "{refused:?}"
                );
            }
        }
    }
    assert_eq!(
        pack(WeightFormat::Bfp8, f32::NAN).unwrap_err().to_string(),
        "weight 2 is NaN, which cannot be stored as bfp8; fp32 keeps it"
    );
    assert_eq!(
        pack(WeightFormat::Fp16, -65520.0).unwrap_err().to_string(),
        "weight 2 is -65520, beyond the range of fp16; fp32 and the block formats keep it, the 8-bit floats hold it \
         at their largest value"
    );
    assert!(pack(WeightFormat::Fp16, 65519.0).is_ok() && pack(WeightFormat::Bf16, f32::MAX).is_err());
    for (format, largest) in [
        (Fp8Format::E4M3, 448.0),
        (Fp8Format::E5M2, 57344.0),
        (Fp8Format::E3M4, 15.5),
    ] {
        assert_eq!(
            pack(WeightFormat::Fp8(format), -1e30).unwrap().widen()[2],
            -largest
        );
    }
    assert_eq!(
        StoredWeights::pack(WeightFormat::Bfp8, &[1.0; 10], 4)
            .unwrap_err()
            .to_string(),
        "10 weights cannot be divided into rows of 4"
    );
    assert!(StoredWeights::pack(WeightFormat::Fp32, &[1.0], 0).is_err());
}

fn info(name: &str, dims: &[i64]) -> ValueInfoProto {
    let dim = |&d: &i64| DimensionProto {
        value: Some(DimensionValue::Size(d)),
    };
    let shape = (!dims.is_empty()).then(|| TensorShapeProto {
        dim: dims.iter().map(dim).collect(),
    });
    ValueInfoProto {
        name: name.to_owned(),
        r#type: Some(TypeProto {
            tensor_type: Some(TensorTypeProto { elem_type: 1, shape }),
        }),
    }
}

fn constant(name: &str, dims: &[i64], values: Vec<f32>) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        dims: dims.to_vec(),
        data_type: 1,
        float_data: values,
        ..TensorProto::default()
    }
}

fn node(op_type: &str, inputs: &[&str], output: &str, attributes: Vec<AttributeProto>) -> NodeProto {
    NodeProto {
        op_type: op_type.to_owned(),
        input: inputs.iter().map(ToString::to_string).collect(),
        output: vec![output.to_owned()],
        attribute: attributes,
        ..NodeProto::default()
    }
}

fn model(nodes: Vec<NodeProto>, outputs: &[&str], constants: Vec<TensorProto>) -> Vec<u8> {
    let model = ModelProto {
        ir_version: 8,
        graph: Some(GraphProto {
            name: "convolutions".to_owned(),
            node: nodes,
            input: vec![info("x", &[1, 3, 11, 9])],
            output: outputs.iter().map(|name| info(name, &[])).collect(),
            initializer: constants,
            ..GraphProto::default()
        }),
        opset_import: vec![OperatorSetIdProto {
            domain: String::new(),
            version: 13,
        }],
        ..ModelProto::default()
    };
    model.encode_to_vec()
}

/// Three convolutions of one input, whose rows are 27, 9 and 3 weights long. With whole inputs up to 15 every
/// sum is exact in fp32, whatever its order: 27 products of 14 and 4 bits.
fn convolutions() -> Vec<u8> {
    let group = AttributeProto {
        name: "group".to_owned(),
        i: 3,
        r#type: 2,
        ..AttributeProto::default()
    };
    let bias = |count: usize| {
        weights(count, 5)
            .iter()
            .map(|w| (w * 16.0).round() / 16.0)
            .collect()
    };
    model(
        vec![
            node("Conv", &["x", "dense.w", "dense.b"], "dense", vec![]),
            node("Conv", &["x", "depthwise.w"], "depthwise", vec![group]),
            node("Conv", &["x", "point.w", "point.b"], "point", vec![]),
        ],
        &["dense", "depthwise", "point"],
        vec![
            constant("dense.w", &[5, 3, 3, 3], weights(5 * 27, 6)),
            constant("dense.b", &[5], bias(5)),
            constant("depthwise.w", &[6, 1, 3, 3], weights(6 * 9, 7)),
            constant("point.w", &[4, 3, 1, 1], weights(4 * 3, 8)),
            constant("point.b", &[4], bias(4)),
        ],
    )
}

fn lowered(onnx: &OnnxModel, weights: WeightFormat) -> LoweredGraph {
    let options = LowerOptions {
        weights,
        ..LowerOptions::default()
    };
    lower(onnx, &options).unwrap()
}

/// All outputs of a model in ONNX Runtime, after its weights were rounded by `round_weights.py`.
fn reference(path: &Path, format: WeightFormat, input: &[f32]) -> Option<Vec<f32>> {
    let folder = tempfile::tempdir().unwrap();
    let (rounded, file) = (folder.path().join("rounded.onnx"), folder.path().join("input"));
    let mut round = support::oracle("round_weights.py")?;
    support::run(round.arg(path).arg(format.name()).arg(&rounded));
    std::fs::write(&file, bytemuck::cast_slice(input)).unwrap();
    let output = support::run(support::oracle("run_onnx.py")?.arg(&rounded).arg(&file));
    Some(support::floats(&output))
}

#[test]
fn convolutions_of_stored_weights_equal_onnx_runtime_with_rounded_weights_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("convolutions.onnx");
    std::fs::write(&path, convolutions()).unwrap();
    let onnx = OnnxModel::open(&path).unwrap();
    let input: Vec<f32> = noise(3 * 11 * 9, 16, 9).iter().map(|&k| k as f32).collect();
    let mut results: Vec<Vec<f32>> = Vec::new();
    for format in WeightFormat::ALL {
        let Some(expected) = reference(&path, format, &input) else {
            return;
        };
        let graph = lowered(&onnx, format);
        let found = interpreter::run(&graph, std::slice::from_ref(&input)).concat();
        assert_eq!(found, expected, "{format}");
        assert_eq!(on_the_device(graph, &input), expected, "{format} on the device");
        assert!(!results.contains(&found), "{format} makes no difference");
        results.push(found);
    }
}

/// All outputs of a graph on the CPU device.
fn on_the_device(graph: LoweredGraph, input: &[f32]) -> Vec<f32> {
    let mut device = CpuDevice::open(&CpuConfig {
        threads: 2,
        queues: 1,
        arena_bytes: 128 << 20,
        ..CpuConfig::default()
    })
    .unwrap();
    let loaded = LoadedGraph::prepare(graph, &mut device, Cq::COMPUTE).unwrap();
    let tensor = HostTensor::from_slice(&loaded.inputs()[0].spec.shape, input).unwrap();
    let mut context = OpContext::new(&mut device, Cq::COMPUTE);
    let input = context.upload(&tensor, BufferClass::Input).unwrap();
    let outputs = loaded.forward(&mut context, &[input]).unwrap();
    let mut values = Vec::new();
    for output in outputs {
        let bytes = output.view.shape.elements() * 4;
        let mut slot = device.host_slot(bytes).unwrap();
        device
            .read(Cq::COMPUTE, output.buffer, 0, &mut slot, bytes)
            .unwrap();
        device.drain(Duration::from_secs(300)).unwrap();
        values.extend(support::floats(slot.bytes().unwrap()));
    }
    values
}

#[test]
fn normalisation_is_folded_into_weights_before_they_are_stored() {
    let weight = weights(2 * 27, 10);
    let bytes = model(
        vec![
            node("Conv", &["x", "w"], "c", vec![]),
            node(
                "BatchNormalization",
                &["c", "scale", "shift", "mean", "variance"],
                "y",
                vec![AttributeProto {
                    name: "epsilon".to_owned(),
                    f: 0.0,
                    r#type: 1,
                    ..AttributeProto::default()
                }],
            ),
        ],
        &["y"],
        vec![
            constant("w", &[2, 3, 3, 3], weight.clone()),
            constant("scale", &[2], vec![3.0, -5.0]),
            constant("shift", &[2], vec![0.3, 0.7]),
            constant("mean", &[2], vec![0.0, 0.0]),
            constant("variance", &[2], vec![1.0, 4.0]),
        ],
    );
    let onnx = OnnxModel::from_bytes(&bytes, "net.onnx", None).unwrap();
    let folded: Vec<f32> = weight
        .iter()
        .enumerate()
        .map(|(i, w)| if i < 27 { w * 3.0 } else { w * -2.5 })
        .collect();
    for format in WeightFormat::ALL {
        let graph = lowered(&onnx, format);
        let [WeightPlan::Conv2d { weight, bias, .. }] = &graph.weights[..] else {
            panic!("{:?}", graph.weights)
        };
        assert_eq!(weight.format(), format);
        assert_eq!(weight.widen(), packed(format, &folded, 27).widen(), "{format}");
        // Biases stay as they are.
        assert_eq!(bias.as_deref(), Some(&[0.3_f32, 0.7][..]));
    }
}

#[test]
fn a_weight_that_cannot_be_stored_is_named_with_its_node() {
    let mut weight = weights(27, 11);
    weight[4] = f32::INFINITY;
    let bytes = model(
        vec![node("Conv", &["x", "w"], "y", vec![])],
        &["y"],
        vec![constant("w", &[1, 3, 3, 3], weight)],
    );
    let onnx = OnnxModel::from_bytes(&bytes, "net.onnx", None).unwrap();
    let options = LowerOptions {
        weights: WeightFormat::Bfp8,
        ..LowerOptions::default()
    };
    assert_eq!(
        lower(&onnx, &options).unwrap_err().to_string(),
        "net.onnx: node `Conv_0`: Conv: weight 4 is inf, which cannot be stored as bfp8; fp32 keeps it"
    );
    assert!(lower(&onnx, &LowerOptions::default()).is_ok());
}

fn correlation(a: &[f32], b: &[f32]) -> f64 {
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

#[test]
fn yolox_with_stored_weights_equals_onnx_runtime_with_rounded_weights() {
    let (Some(path), Some(photo)) = (
        support::data("models/yolox_nano_416.onnx"),
        support::data("camera/photos/dog.jpg"),
    ) else {
        return;
    };
    let Some(mut command) = support::oracle("image_tensor.py") else {
        return;
    };
    let image: Vec<f32> = support::floats(&support::run(command.arg(photo).arg("416")));
    let onnx = OnnxModel::open(&path).unwrap();
    let full = reference(&path, WeightFormat::Fp32, &image).unwrap();
    let top = full.iter().fold(0.0_f32, |t, x| t.max(x.abs()));
    let mut bytes_in_full = 0;
    for format in WeightFormat::ALL {
        let expected = reference(&path, format, &image).unwrap();
        let graph = lowered(&onnx, format);
        let stored: Vec<&StoredWeights> = graph
            .weights
            .iter()
            .filter_map(|plan| match plan {
                WeightPlan::Conv2d { weight, .. } => Some(weight),
                WeightPlan::Constant { .. } | WeightPlan::Pillars { .. } => None,
            })
            .collect();
        let bytes: usize = stored.iter().map(|weight| weight.stored_bytes()).sum();
        if format == WeightFormat::Fp32 {
            bytes_in_full = bytes;
        }
        let found = on_the_device(graph, &image);
        let error = found.iter().zip(&expected).map(|(a, b)| (a - b).abs());
        let error = error.fold(0.0_f32, f32::max);
        let (to_full, theirs) = (correlation(&found, &full), correlation(&expected, &full));
        println!(
            "{format}: {bytes} of {bytes_in_full} bytes, largest difference {error:e} of {top}, \
             correlation to fp32 {to_full} (ONNX Runtime {theirs})"
        );
        assert!(found.iter().all(|x| x.is_finite()));
        // As without rounding: both sides add some thousand products in another order.
        assert!(error <= 1e-4 * top, "{format}: {error} of {top}");
        assert!(
            (to_full - theirs).abs() < 1e-6,
            "{format}: {to_full} and {theirs}"
        );
    }
}
