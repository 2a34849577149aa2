//! A whole network: upload, replay and read of YOLOX-nano and FastestDet on the CPU device.
//!
//! Needs `SENSORIUM_TEST_DATA`, the folder with `models/`; without it there is nothing to measure.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "benches")]

use std::path::PathBuf;

use criterion::{Criterion, criterion_group, criterion_main};
use sensorium::device::{CpuConfig, CpuDevice};
use sensorium::perception::{DetectorGraph, DeviceModel, PixelInput};
use sensorium::tensor::{DType, HostTensor};
use sensorium::trace::TraceOptions;
use sensorium::weights::{OnnxModel, WeightFormat};

fn networks(c: &mut Criterion) {
    let Some(data) = std::env::var_os("SENSORIUM_TEST_DATA").map(PathBuf::from) else {
        println!("skipped: set SENSORIUM_TEST_DATA to the data folder");
        return;
    };
    let mut group = c.benchmark_group("network");
    group.sample_size(30);
    for (name, file, scale) in [
        ("yolox_nano", "yolox_nano_416.onnx", 1.0),
        ("fastestdet", "FastestDet_352.onnx", 1.0 / 255.0),
    ] {
        let model = OnnxModel::open(data.join("models").join(file)).unwrap();
        for (precision, storage) in [("fp32", DType::F32), ("bf16", DType::Bf16)] {
            let graph = DetectorGraph::lower(
                name.into(),
                &model,
                storage,
                WeightFormat::Fp32,
                PixelInput::scaled_bytes(scale),
            )
            .unwrap();
            for threads in [1, 2] {
                let config = CpuConfig {
                    threads,
                    ..CpuConfig::default()
                };
                let mut device = CpuDevice::open(&config).unwrap();
                let mut trace = graph.build(&mut device, TraceOptions::two_queues()).unwrap();
                trace.capture(&mut device).unwrap();
                let mut pixels = HostTensor::zeros(trace.input_specs()[0]);
                for (i, byte) in pixels.bytes_mut().iter_mut().enumerate() {
                    *byte = (i * 7 % 251) as u8;
                }
                let (runner, variants, inputs) = trace.runner();
                let (variant, input) = (variants[0], inputs[0]);
                let mut slot = sensorium::device::HostSlot::new(pixels.bytes().len());
                slot.bytes_mut().unwrap().copy_from_slice(pixels.bytes());
                let bytes = runner.outputs(variant).unwrap()[0].spec.bytes();
                let mut output = sensorium::device::HostSlot::new(bytes);
                group.bench_function(format!("{name}/{precision}/{threads}"), |b| {
                    b.iter(|| {
                        let pending = runner.run(&mut device, variant, &[(input, &slot)]).unwrap();
                        let read = runner.read(&mut device, pending, 0, &mut output).unwrap();
                        runner.wait(&mut device, read).unwrap();
                    });
                });
            }
        }
    }
    group.finish();
}

criterion_group!(benches, networks);
criterion_main!(benches);
