//! Whole networks on the CPU device against ONNX Runtime: generated ones and those of the test data.

use std::path::Path;

use sensorium::models::{LowerOptions, lower};
use sensorium::tensor::DType;
use sensorium::weights::OnnxModel;

use crate::importer::wide::{cases, data, name};
use crate::importer::{correlation, device, largest_difference, noise, support};

#[test]
fn networks_of_blocks_equal_onnx_runtime() {
    let Some((_folder, cases)) = cases("make_nets.py") else {
        return;
    };
    assert_eq!(cases.len(), 3);
    for case in &cases {
        let model = OnnxModel::open(case).unwrap();
        let graph = lower(&model, &LowerOptions::default()).unwrap();
        let (inputs, expected) = data(case, graph.inputs.iter().map(|i| i.spec.shape.elements()));
        let found = device::run(&graph, &inputs).concat();
        let (error, top) = (
            largest_difference(&found, &expected),
            expected.iter().fold(0.0_f32, |t, x| t.max(x.abs())),
        );
        println!(
            "{}: largest difference {error:e} of {top}, {:?}",
            name(case),
            graph.stats
        );
        assert!(error <= 1e-5 * top.max(1.0), "{}: {error} of {top}", name(case));
        if name(case) == "residual" {
            // Sums and the functions of them ride on the convolutions behind which they stand.
            let launches: Vec<_> = graph.stats.launches.keys().copied().collect();
            assert!(
                !launches.contains(&"unary") && !launches.contains(&"binary"),
                "{launches:?}"
            );
        }
        // Positions and labels of the decoder are near ties in bf16; the others have none.
        if name(case) != "decoder" {
            let options = LowerOptions {
                storage: DType::Bf16,
                ..LowerOptions::default()
            };
            let graph = lower(&model, &options).unwrap();
            let pcc = correlation(&device::run(&graph, &inputs).concat(), &expected);
            assert!(pcc >= 0.999, "{}: {pcc}", name(case));
        }
    }
}

/// Every model of the test data, run on the device on noise.
fn runs(file: &str, scale: f32, tolerance: f32) {
    let Some(path) = support::data(file) else {
        return;
    };
    let model = OnnxModel::open(&path).unwrap();
    let graph = lower(&model, &LowerOptions::default()).unwrap();
    let inputs: Vec<Vec<f32>> = graph
        .inputs
        .iter()
        .map(|plan| {
            noise(plan.spec.shape.elements())
                .iter()
                .map(|v| (v + 1.0) * scale)
                .collect()
        })
        .collect();
    let Some(expected) = all_outputs(&path, &inputs) else {
        return;
    };
    let found = device::run(&graph, &inputs).concat();
    let error = largest_difference(&found, &expected);
    let top = expected.iter().fold(0.0_f32, |t, x| t.max(x.abs()));
    println!("{file}: largest difference {error:e} of {top}");
    assert!(error <= tolerance * top.max(1.0), "{file}: {error} of {top}");
}

/// What ONNX Runtime makes of a model.
fn all_outputs(model: &Path, inputs: &[Vec<f32>]) -> Option<Vec<f32>> {
    let mut command = support::oracle("run_onnx.py")?;
    command.arg(model);
    let folder = tempfile::tempdir().unwrap();
    for (position, values) in inputs.iter().enumerate() {
        let path = folder.path().join(position.to_string());
        std::fs::write(&path, bytemuck::cast_slice(values)).unwrap();
        command.arg(path);
    }
    Some(support::floats(&support::run(&mut command)))
}

#[test]
fn nanodet_equals_onnx_runtime() {
    runs("models/nanodet_m_416.onnx", 1.0 / 64.0, 1e-4);
}

#[test]
fn detectors_run_on_the_device() {
    runs("models/yolox_nano_416.onnx", 1.0, 1e-4);
    runs("models/yolox_nano_416_3class.onnx", 1.0, 1e-4);
    runs("models/FastestDet_352.onnx", 1.0 / 255.0, 1e-4);
}

#[test]
fn pillar_encoders_run_on_the_device() {
    for file in [
        "centerpoint_nuscenes_pfe_sim_UNSORTED",
        "centerpoint_nuscenes_pfe",
        "pointpillars_int8repo_pfe",
        "pointpillars_kitti_pfn",
    ] {
        runs(&format!("models/lidar_pfe/{file}.onnx"), 1.0 / 64.0, 1e-5);
    }
}
