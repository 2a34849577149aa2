//! Lowered graphs against ONNX Runtime, run by plain loops instead of a device.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod device;
#[path = "../support/interpreter.rs"]
mod interpreter;
#[path = "../support/mod.rs"]
mod support;
mod wide;

use std::collections::BTreeMap;
use std::path::Path;

use prost::Message;
use sensorium::device::{BufferClass, OpDesc};
use sensorium::models::{InputFormat, LowerOptions, LoweredGraph, Slot, Step, lower, survey};
use sensorium::tensor::DType;
use sensorium::weights::OnnxModel;
use sensorium::weights::proto::{
    AttributeProto, DimensionProto, DimensionValue, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|&b| f32::from_le_bytes(b))
        .collect()
}

/// What ONNX Runtime makes of a model's only input.
fn reference(model: &Path, input: &[f32]) -> Option<Vec<f32>> {
    let mut command = support::oracle("run_onnx.py")?;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytemuck::cast_slice(input)).unwrap();
    Some(floats(&support::run(command.arg(model).arg(file.path()))))
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    // NaN never compares as the larger one, so it is looked for.
    assert!(a.iter().chain(b).all(|x| x.is_finite()));
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
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

/// Numbers without a pattern, 0 to 255.
fn noise(count: usize) -> Vec<f32> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 56) as f32
    };
    (0..count).map(next).collect()
}

/// A photo fitted into a square, `[3, side, side]`, whole values 0 to 255.
fn photo(side: usize) -> Option<Vec<f32>> {
    let path = support::data("camera/photos/dog.jpg")?;
    let mut command = support::oracle("image_tensor.py")?;
    Some(floats(&support::run(command.arg(path).arg(side.to_string()))))
}

/// `[3, H, W]` as pixels `[H, W, 3]`.
fn pixels(planes: &[f32]) -> Vec<f32> {
    let count = planes.len() / 3;
    (0..planes.len()).map(|i| planes[i % 3 * count + i / 3]).collect()
}

fn options(storage: DType, input: &str, format: InputFormat) -> LowerOptions {
    LowerOptions {
        storage,
        formats: BTreeMap::from([(input.to_owned(), format)]),
        ..LowerOptions::default()
    }
}

/// Runs a detector on noise and on a photo; on the photo also from pixels and in bf16.
fn detector(file: &str, side: usize, scale: f32, dims: &[usize], bf16_correlation: f64) {
    let (Some(path), Some(photo)) = (support::data(file), photo(side)) else {
        return;
    };
    let model = OnnxModel::open(&path).unwrap();
    let input = &model.inputs()[0].name;
    let compare = |storage: DType, format: InputFormat, image: &[f32], given: &[f32]| -> Option<f64> {
        let graph = lower(&model, &options(storage, input, format)).unwrap();
        assert_eq!(&graph.outputs[0].spec.shape[..], dims);
        let found = interpreter::run(&graph, &[given.to_vec()]).remove(0);
        let expected = reference(&path, image)?;
        let (error, pcc) = (
            largest_difference(&found, &expected),
            correlation(&found, &expected),
        );
        let top = expected.iter().fold(0.0_f32, |t, x| t.max(x.abs()));
        println!("{file}: {storage}, {format:?}: largest difference {error:e} of {top}, correlation {pcc}");
        // Both sides round every layer to f32; against float64 ONNX Runtime is off by up to 8e-5 itself.
        assert!(
            storage == DType::Bf16 || error <= 1e-4 * top.max(1.0),
            "{error} of {top}"
        );
        Some(pcc)
    };
    let scaled = |image: &[f32]| -> Vec<f32> { image.iter().map(|v| v * scale).collect() };
    for image in [scaled(&noise(3 * side * side)), scaled(&photo)] {
        let Some(pcc) = compare(DType::F32, InputFormat::Tensor, &image, &image) else {
            return;
        };
        assert!(pcc >= 0.999_999, "{pcc}");
    }
    let pcc = compare(DType::F32, InputFormat::U8ChannelsLast, &photo, &pixels(&photo)).unwrap();
    assert!(pcc >= 0.999_999, "{pcc}");
    let image = scaled(&photo);
    let pcc = compare(DType::Bf16, InputFormat::Tensor, &image, &image).unwrap();
    assert!(pcc >= bf16_correlation, "{pcc}");
}

#[test]
fn yolox_nano_equals_onnx_runtime() {
    // In bf16 the boxes of cells without an object, which training left free, carry most of the difference.
    detector("models/yolox_nano_416.onnx", 416, 1.0, &[1, 3549, 85], 0.995);
}

#[test]
fn yolox_nano_with_three_classes_equals_onnx_runtime() {
    detector(
        "models/yolox_nano_416_3class.onnx",
        416,
        1.0,
        &[1, 3549, 8],
        0.999,
    );
}

#[test]
fn fastestdet_equals_onnx_runtime() {
    detector(
        "models/FastestDet_352.onnx",
        352,
        1.0 / 255.0,
        &[1, 85, 22, 22],
        0.998,
    );
}

#[test]
fn an_unsorted_pillar_encoder_equals_onnx_runtime() {
    let Some(path) = support::data("models/lidar_pfe/centerpoint_nuscenes_pfe_sim_UNSORTED.onnx") else {
        return;
    };
    let input: Vec<f32> = noise(10 * 5268 * 20).iter().map(|v| v / 64.0 - 2.0).collect();
    let Some(expected) = reference(&path, &input) else {
        return;
    };
    let graph = lower(&OnnxModel::open(&path).unwrap(), &LowerOptions::default()).unwrap();
    assert_eq!(
        graph.stats.fused,
        BTreeMap::from([("activation", 2), ("norm", 2)])
    );
    let found = interpreter::run(&graph, &[input]).remove(0);
    let error = largest_difference(&found, &expected);
    let top = expected.iter().fold(0.0_f32, |t, x| t.max(x.abs()));
    println!("largest difference {error:e} of {top}");
    assert!(error <= 1e-5 * top.max(1.0), "{error} of {top}");
}

fn launches(graph: &LoweredGraph) -> impl Iterator<Item = &OpDesc> {
    graph.steps.iter().filter_map(|step| match step {
        Step::Launch(launch) => Some(&launch.op),
        Step::Alloc(_) | Step::Free(_) => None,
    })
}

#[test]
fn a_yolox_graph_moves_nothing_but_its_stem() {
    let Some(path) = support::data("models/yolox_nano_416.onnx") else {
        return;
    };
    let model = OnnxModel::open(path).unwrap();
    let graph = lower(
        &model,
        &options(DType::F32, "images", InputFormat::U8ChannelsLast),
    )
    .unwrap();
    let count = |op: &str| graph.stats.launches.get(op).copied().unwrap_or(0);
    // All activations, sums and concatenations ride on the convolutions; one copy gathers the stem's twelve
    // channels.
    assert_eq!(
        (count("conv2d"), count("pool2d"), count("resize_nearest")),
        (113, 3, 2)
    );
    assert_eq!((count("unary"), count("binary"), count("softmax")), (0, 0, 0));
    assert_eq!(
        graph.stats.fused,
        BTreeMap::from([("activation", 110), ("residual", 7)])
    );
    assert_eq!(count("copy"), 1);
    assert_eq!(graph.stats.launches.len(), 4);
    assert!((graph.stats.gflop - 1.045).abs() < 1e-3 && graph.stats.parameters > 900_000);
    let stem = launches(&graph).next().unwrap();
    let OpDesc::Copy { src, dst } = stem else {
        panic!("{stem:?}")
    };
    assert_eq!(
        (src.dtype, dst.dtype, src.view.shape.elements()),
        (DType::U8, DType::F32, 3 * 416 * 416)
    );
    // The heads write into the output itself.
    let output = &graph.buffers[graph.outputs[0].buffer];
    assert_eq!(
        (output.class, output.spec.dtype),
        (BufferClass::Output, DType::F32)
    );
    let writes = |step: &Step| match step {
        Step::Launch(l) => {
            matches!(l.op, OpDesc::Conv2d(_)) && l.slots[2] == Slot::Buffer(graph.outputs[0].buffer)
        }
        Step::Alloc(_) | Step::Free(_) => false,
    };
    assert_eq!(graph.steps.iter().filter(|s| writes(s)).count(), 9);
}

#[test]
fn small_graphs_equal_onnx_runtime() {
    let Some(mut command) = support::oracle("make_ops.py") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    support::run(command.arg(folder.path()));
    let mut cases: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    cases.retain(|p| p.extension().is_some_and(|e| e == "onnx"));
    cases.sort();
    assert!(cases.len() > 150, "{} cases", cases.len());
    let mut failures = Vec::new();
    for case in &cases {
        let name = case.file_stem().unwrap().to_string_lossy().into_owned();
        let read = |extension: &str| floats(&std::fs::read(case.with_extension(extension)).unwrap());
        let graph = match lower(&OnnxModel::open(case).unwrap(), &LowerOptions::default()) {
            Ok(graph) => graph,
            Err(error) => {
                failures.push(format!("{name}: {error}"));
                continue;
            }
        };
        let mut rest = read("in");
        let inputs: Vec<Vec<f32>> = graph
            .inputs
            .iter()
            .map(|i| rest.drain(..i.spec.shape.elements()).collect())
            .collect();
        let (found, expected) = (interpreter::run(&graph, &inputs).concat(), read("out"));
        if found.len() != expected.len() {
            failures.push(format!(
                "{name}: {} elements instead of {}",
                found.len(),
                expected.len()
            ));
            continue;
        }
        // A NaN is close to nothing.
        let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * b.abs().max(1.0);
        let count = found.iter().zip(&expected).filter(|&pair| !close(pair)).count();
        if count > 0 {
            failures.push(format!("{name}: {count} of {} elements differ", expected.len()));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {}:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}

fn node(op_type: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        op_type: op_type.to_owned(),
        input: inputs.iter().map(ToString::to_string).collect(),
        output: outputs.iter().map(ToString::to_string).collect(),
        ..NodeProto::default()
    }
}

fn value(name: &str, dims: &[DimensionValue]) -> ValueInfoProto {
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

fn graph(nodes: Vec<NodeProto>, dims: &[DimensionValue], opset: i64) -> OnnxModel {
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

fn sizes(dims: &[i64]) -> Vec<DimensionValue> {
    dims.iter().map(|&d| DimensionValue::Size(d)).collect()
}

#[test]
fn an_unsupported_operation_is_named_with_its_node_and_model() {
    let refused = |nodes: Vec<NodeProto>| {
        lower(&graph(nodes, &sizes(&[1, 2, 4, 4]), 13), &LowerOptions::default())
            .unwrap_err()
            .to_string()
    };
    let unknown = refused(vec![node("Relu", &["x"], &["r"]), node("Det", &["r"], &["y"])]);
    assert_eq!(unknown, "net.onnx: node `Det_1`: operation Det is not supported");
    let foreign = NodeProto {
        domain: "com.acme".to_owned(),
        ..node("Relu", &["x"], &["y"])
    };
    assert_eq!(
        refused(vec![foreign]),
        "net.onnx: node `Relu_0`: operation Relu is not supported"
    );
    let mode = AttributeProto {
        name: "mode".to_owned(),
        s: b"reflect".to_vec(),
        r#type: 3,
        ..Default::default()
    };
    let pads = node("Constant", &[], &["p"]);
    let ints = AttributeProto {
        name: "value_ints".to_owned(),
        ints: vec![0, 0, 1, 1, 0, 0, 1, 1],
        r#type: 7,
        ..Default::default()
    };
    let pads = NodeProto {
        attribute: vec![ints],
        ..pads
    };
    let pad = NodeProto {
        attribute: vec![mode],
        ..node("Pad", &["x", "p"], &["y"])
    };
    assert_eq!(
        refused(vec![pads, pad]),
        "net.onnx: node `Pad_1`: Pad: mode `reflect` is not supported"
    );
    // What the outputs do not depend on may be anything.
    let unused = vec![node("Det", &["x"], &["d"]), node("Relu", &["x"], &["y"])];
    assert!(lower(&graph(unused, &sizes(&[1, 2]), 13), &LowerOptions::default()).is_ok());
}

#[test]
fn feature_nets_of_pillars_become_one_launch_and_dense_layers_take_what_follows() {
    let Some(mut command) = support::oracle("make_ops.py") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    support::run(command.arg(folder.path()));
    let launches = |case: &str| {
        let model = OnnxModel::open(folder.path().join(format!("{case}.onnx"))).unwrap();
        let stats = lower(&model, &LowerOptions::default()).unwrap().stats;
        let launches: Vec<(&str, usize)> = stats.launches.into_iter().collect();
        (launches, stats.fused)
    };
    for case in [
        "pillars_one",
        "pillars_squeezed",
        "pillars_two",
        "pillars_expanded",
    ] {
        assert_eq!(launches(case).0, [("pillars", 1)], "{case}");
        assert_eq!(launches(case).1["pillars"], 1);
    }
    assert_eq!(launches("pillars_followed").0, [("pillars", 1), ("unary", 1)]);
    // A first layer that is seen from outside, or is none, stays a layer; what follows it is a net of one layer.
    for case in ["pillars_seen", "pillars_sigmoid", "pillars_swapped"] {
        let (launches, fused) = launches(case);
        assert!(
            launches.contains(&("conv2d", 1)) && launches.contains(&("pillars", 1)),
            "{case}: {launches:?}"
        );
        assert_eq!(fused["pillars"], 1, "{case}");
    }
    assert!(!launches("pillars_other_axis").1.contains_key("pillars"));
    assert_eq!(launches("matmul_norm").0, [("conv2d", 1)]);
    assert_eq!(
        launches("matmul_norm").1,
        BTreeMap::from([("activation", 1), ("norm", 1)])
    );
    assert_eq!(
        launches("matmul_bias").1,
        BTreeMap::from([("activation", 1), ("bias", 1)])
    );
    assert_eq!(
        launches("conv_transpose_doubling").0,
        [("conv2d", 4), ("copy", 2)]
    );
}

#[test]
fn nothing_is_computed_in_floats_that_only_store() {
    let to = |code: i64| AttributeProto {
        name: "to".to_owned(),
        i: code,
        r#type: 2,
        ..AttributeProto::default()
    };
    let refused = |code: i64| {
        let cast = NodeProto {
            attribute: vec![to(code)],
            ..node("Cast", &["x"], &["y"])
        };
        lower(&graph(vec![cast], &sizes(&[1, 2]), 19), &LowerOptions::default())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refused(17),
        "net.onnx: node `Cast_0`: Cast: a cast to float8_e4m3fn is not supported"
    );
    assert!(refused(19).contains("a cast to float8_e5m2") && refused(23).contains("float4_e2m1fn"));
    assert!(refused(6).contains("a cast to whole numbers"));
    let typed = |code: i32| {
        let mut input = value("x", &sizes(&[1, 2]));
        let kind = input.r#type.as_mut().unwrap().tensor_type.as_mut().unwrap();
        kind.elem_type = code;
        let proto = ModelProto {
            ir_version: 10,
            graph: Some(GraphProto {
                node: vec![node("Relu", &["x"], &["y"])],
                input: vec![input],
                output: vec![value("y", &[])],
                ..GraphProto::default()
            }),
            opset_import: vec![OperatorSetIdProto {
                domain: String::new(),
                version: 19,
            }],
            ..ModelProto::default()
        };
        let model = OnnxModel::from_bytes(&proto.encode_to_vec(), "net.onnx", None).unwrap();
        lower(&model, &LowerOptions::default()).unwrap_err().to_string()
    };
    assert_eq!(
        typed(17),
        "net.onnx: input `x`: type float8_e4m3fn is not supported"
    );
}

#[test]
fn open_dimensions_need_sizes_and_wrong_options_are_refused() {
    let dims = [
        DimensionValue::Symbol("batch".to_owned()),
        DimensionValue::Size(3),
        DimensionValue::Size(-1),
    ];
    let model = graph(vec![node("Relu", &["x"], &["y"])], &dims, 13);
    let text = |options: LowerOptions| lower(&model, &options).unwrap_err().to_string();
    let open = "net.onnx: input `x` has the open shape [batch, 3, ?]: give sizes for it";
    assert_eq!(text(LowerOptions::default()), open);
    let symbols = BTreeMap::from([("batch".to_owned(), 2)]);
    assert_eq!(
        text(LowerOptions {
            symbols,
            ..LowerOptions::default()
        }),
        open
    );
    let shapes = |dims: &[usize]| LowerOptions {
        shapes: BTreeMap::from([("x".to_owned(), dims.to_vec())]),
        ..LowerOptions::default()
    };
    assert_eq!(
        lower(&model, &shapes(&[2, 3, 5])).unwrap().outputs[0].spec.shape[..],
        [2, 3, 5]
    );
    assert!(text(shapes(&[2, 4, 5])).contains("has 3 elements along axis 1"));
    assert!(text(shapes(&[2, 3])).contains("has rank 3"));
    assert!(text(shapes(&[2, 3, 0])).contains("a tensor of shape [2, 3, 0]"));
    let formats = BTreeMap::from([("image".to_owned(), InputFormat::Storage)]);
    assert!(
        text(LowerOptions {
            formats,
            ..LowerOptions::default()
        })
        .contains("`image`, which is no input")
    );
    let symbols = BTreeMap::from([("width".to_owned(), 2)]);
    assert!(
        text(LowerOptions {
            symbols,
            ..LowerOptions::default()
        })
        .contains("`width`, which no input has")
    );
    assert!(
        text(LowerOptions {
            storage: DType::I8,
            ..LowerOptions::default()
        })
        .contains("storage int8")
    );
    let pixels = options(DType::F32, "x", InputFormat::U8ChannelsLast);
    assert!(
        text(LowerOptions {
            shapes: shapes(&[2, 3, 5]).shapes,
            ..pixels
        })
        .contains("pixels need [N, C, H, W]")
    );
}

#[test]
fn every_model_of_the_test_data_can_be_surveyed() {
    let Some(root) = support::data("models") else {
        return;
    };
    let obstacles = |file: &str| survey(&OnnxModel::open(root.join(file)).unwrap()).not_importable;
    assert!(obstacles("yolox_nano_416.onnx").is_empty());
    assert!(obstacles("yolox_nano_416_3class.onnx").is_empty());
    assert!(obstacles("FastestDet_352.onnx").is_empty());
    assert!(obstacles("lidar_pfe/centerpoint_nuscenes_pfe_sim_UNSORTED.onnx").is_empty());
    assert!(obstacles("nanodet_m_416.onnx")[0].contains("Resize: mode `linear` is not supported"));
    for file in [
        "centerpoint_nuscenes_pfe",
        "pointpillars_int8repo_pfe",
        "pointpillars_kitti_pfn",
        "smallmunich_pfe",
    ] {
        let survey = survey(&OnnxModel::open(root.join(format!("lidar_pfe/{file}.onnx"))).unwrap());
        assert_eq!(survey.not_importable, Vec::<String>::new(), "{file}");
        assert!(survey.gflop.is_some(), "{file}");
    }
}

#[test]
fn damaged_graphs_are_refused_or_lowered_but_never_panic() {
    let Some(mut command) = support::oracle("make_ops.py") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    support::run(command.arg(folder.path()));
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % below
    };
    let (mut read, mut refused) = (0, 0);
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "onnx") {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        for _ in 0..40 {
            let mut damaged = bytes.clone();
            for _ in 0..=random(3) {
                let at = random(damaged.len());
                damaged[at] = if random(2) == 0 {
                    random(256) as u8
                } else {
                    damaged[at] ^ (1 << random(8))
                };
            }
            if let Ok(model) = OnnxModel::from_bytes(&damaged, "damaged.onnx", None) {
                read += 1;
                refused += usize::from(!survey(&model).not_importable.is_empty());
            }
        }
    }
    assert!(
        read > 1000 && refused > 100,
        "{read} read, {refused} refused: the damage tests nothing"
    );
}
