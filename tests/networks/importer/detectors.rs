//! Public detectors and encoders, whole, against ONNX Runtime.

use std::collections::BTreeMap;

use sensorium::device::{BufferClass, OpDesc};
use sensorium::models::{InputFormat, LowerOptions, Slot, Step, lower};
use sensorium::tensor::DType;
use sensorium::weights::OnnxModel;

use crate::importer::{
    correlation, floats, interpreter, largest_difference, launches, noise, options, reference, support,
};

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
