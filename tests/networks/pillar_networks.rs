//! Networks of pillar detectors on the CPU device against ONNX Runtime: published feature nets, and CenterPoint as its
//! exporters write it.

use crate::support;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use sensorium::device::{BufferClass, CpuConfig, CpuDevice, Cq};
use sensorium::models::{LoadedGraph, LowerOptions, lower};
use sensorium::ops::OpContext;
use sensorium::tensor::{DType, HostTensor};
use sensorium::weights::OnnxModel;

use support::floats;

/// All outputs of a network on the CPU device, one after the other, and the launches that it took.
fn run(
    model: &OnnxModel,
    options: &LowerOptions,
    inputs: &[Vec<f32>],
) -> (Vec<f32>, BTreeMap<&'static str, usize>) {
    let mut device = CpuDevice::open(&CpuConfig {
        threads: 2,
        arena_bytes: 3 << 30,
        ..CpuConfig::default()
    })
    .unwrap();
    let graph = lower(model, options).unwrap();
    let launches = graph.stats.launches.clone();
    let loaded = LoadedGraph::prepare(graph, &mut device, Cq::COMPUTE).unwrap();
    let mut ops = OpContext::new(&mut device, Cq::COMPUTE);
    let tensors: Vec<_> = loaded
        .inputs()
        .iter()
        .zip(inputs)
        .map(|(plan, values)| {
            let values = HostTensor::from_slice(&plan.spec.shape, values).unwrap();
            ops.upload(&values, BufferClass::Input).unwrap()
        })
        .collect();
    assert_eq!(tensors.len(), loaded.inputs().len());
    let outputs = loaded.forward(&mut ops, &tensors).unwrap();
    let deadline = Duration::from_secs(300);
    let mut all = Vec::new();
    for output in &outputs {
        let host = ops.download(output, deadline).unwrap();
        all.extend_from_slice(host.as_slice::<f32>().unwrap());
    }
    (all, launches)
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

/// fp32 within 2e-5 of the largest value, bf16 by correlation.
fn assert_close(what: &str, storage: DType, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    assert!(found.iter().all(|v| v.is_finite()), "{what}");
    let top = expected.iter().fold(0.0_f32, |top, v| top.max(v.abs()));
    let worst = found
        .iter()
        .zip(expected)
        .fold(0.0_f32, |worst, (a, b)| worst.max((a - b).abs()));
    let correlation = correlation(found, expected);
    println!("{what}, {storage}: off by {worst:.2e} of {top:.3}, correlation {correlation:.7}");
    match storage {
        DType::F32 => assert!(worst <= 2e-5 * top.max(1.0), "{what}: off by {worst} of {top}"),
        _ => assert!(correlation >= 0.999, "{what}: {correlation}"),
    }
}

/// Repeatable numbers without a pattern, -2 to 2.
fn noise(seed: u64, count: usize) -> Vec<f32> {
    let mut state = 0x2545_f491_4f6c_dd1d ^ seed;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 22) as f32 - 2.0
    };
    (0..count).map(next).collect()
}

/// Runs a published feature net on random points and compares it with ONNX Runtime.
fn published(file: &str, shape: impl Fn(&str, Vec<f32>) -> Vec<f32>, expected_launches: &[(&str, usize)]) {
    let Some(path) = support::data(&format!("models/lidar_pfe/{file}.onnx")) else {
        return;
    };
    let model = OnnxModel::open(&path).unwrap();
    let options = |storage: DType| LowerOptions {
        storage,
        ..LowerOptions::default()
    };
    let graph = lower(&model, &options(DType::F32)).unwrap();
    let inputs: Vec<Vec<f32>> = graph
        .inputs
        .iter()
        .enumerate()
        .map(|(i, plan)| shape(&plan.name, noise(i as u64, plan.spec.shape.elements())))
        .collect();
    let Some(expected) = reference(&path, &inputs) else {
        return;
    };
    for storage in [DType::F32, DType::Bf16] {
        let (found, launches) = run(&model, &options(storage), &inputs);
        assert_close(file, storage, &found, &expected);
        if storage == DType::F32 {
            let launches: Vec<(&str, usize)> = launches.into_iter().collect();
            assert_eq!(launches, expected_launches, "{file}");
        }
    }
}

fn reference(model: &Path, inputs: &[Vec<f32>]) -> Option<Vec<f32>> {
    let mut command = support::oracle("run_onnx.py")?;
    command.arg(model);
    let folder = tempfile::tempdir().unwrap();
    for (i, values) in inputs.iter().enumerate() {
        let file = folder.path().join(i.to_string());
        std::fs::write(&file, bytemuck::cast_slice(values)).unwrap();
        command.arg(file);
    }
    Some(floats(&support::run(&mut command)))
}

fn as_it_is(_: &str, values: Vec<f32>) -> Vec<f32> {
    values
}

#[test]
fn a_feature_net_of_two_layers_equals_onnx_runtime_in_one_launch() {
    published("centerpoint_nuscenes_pfe", as_it_is, &[("pillars", 1)]);
}

#[test]
fn a_feature_net_of_one_layer_equals_onnx_runtime_in_one_launch() {
    published("pointpillars_int8repo_pfe", as_it_is, &[("pillars", 1)]);
}

#[test]
fn a_feature_net_whose_nodes_are_out_of_order_equals_onnx_runtime() {
    published(
        "centerpoint_nuscenes_pfe_sim_UNSORTED",
        as_it_is,
        &[("conv2d", 2), ("copy", 3), ("pool2d", 2)],
    );
}

#[test]
fn a_feature_net_with_a_mask_over_a_line_equals_onnx_runtime() {
    let mask = |name: &str, values: Vec<f32>| match name {
        "pillar_mask" => values.into_iter().map(|v| f32::from(v > -1.0)).collect(),
        _ => values,
    };
    published(
        "pointpillars_kitti_pfn",
        mask,
        &[("binary", 1), ("conv2d", 1), ("copy", 2), ("reduce", 1)],
    );
}

#[test]
fn a_feature_net_that_centres_its_points_equals_onnx_runtime() {
    let inputs = |name: &str, values: Vec<f32>| match name {
        "num_points_per_pillar" => values.into_iter().map(|v| (50.0 + 20.0 * v).floor()).collect(),
        "mask" => values.into_iter().map(|v| f32::from(v > 0.0)).collect(),
        _ => values,
    };
    published(
        "smallmunich_pfe",
        inputs,
        &[("binary", 5), ("conv2d", 2), ("copy", 8), ("reduce", 1)],
    );
}

#[test]
fn centerpoint_as_it_is_exported_equals_onnx_runtime() {
    let Some(mut command) = support::oracle("centerpoint_onnx.py") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    support::run(command.arg(folder.path()));
    let cases = [
        ("pts_voxel_encoder_centerpoint", "input_features", vec![70, 32, 9]),
        (
            "pts_backbone_neck_head_centerpoint",
            "spatial_features",
            vec![1, 32, 24, 32],
        ),
    ];
    for (name, input, dims) in cases {
        let file = |extension: &str| folder.path().join(format!("{name}.{extension}"));
        let read = |extension: &str| floats(&std::fs::read(file(extension)).unwrap());
        let model = OnnxModel::open(file("onnx")).unwrap();
        let open = lower(&model, &LowerOptions::default()).unwrap_err().to_string();
        assert!(open.contains("has the open shape"), "{open}");
        for storage in [DType::F32, DType::Bf16] {
            let options = LowerOptions {
                storage,
                shapes: BTreeMap::from([(input.to_owned(), dims.clone())]),
                ..LowerOptions::default()
            };
            let (found, launches) = run(&model, &options, &[read("in")]);
            assert_close(name, storage, &found, &read("out"));
            if name.contains("encoder") {
                assert_eq!(launches["pillars"], 1);
            } else {
                // Seven layers of the backbone, 1 + 4 + 16 of the neck, one shared, two for each head.
                assert_eq!(launches["conv2d"], 7 + 21 + 1 + 12);
                let names: Vec<String> = lower(&model, &options)
                    .unwrap()
                    .outputs
                    .into_iter()
                    .map(|o| o.name)
                    .collect();
                assert_eq!(names, ["heatmap", "reg", "height", "dim", "rot", "vel"]);
            }
        }
    }
}
