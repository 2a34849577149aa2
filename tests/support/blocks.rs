//! Work of blocks and operations on every device: captured, replayed and eager, all with the same bits.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test target includes this file and uses its own part"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::sync::Arc;

use half::bf16;
use sensorium::device::cpu::kernels::Bf16Dot;
use sensorium::device::{CpuConfig, CpuDevice, Device, SimConfig, SimDevice};
use sensorium::ops::DeviceTensor;
use sensorium::tensor::{DType, HostTensor};
use sensorium::trace::{TraceContext, TraceOptions, TraceRunner, WorkError};

use crate::graphs::Random;

pub fn unit(r: &mut Random) -> f32 {
    (r.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
}

pub fn numbers(tensor: &HostTensor) -> Vec<f64> {
    match tensor.dtype() {
        DType::F32 => {
            let values = tensor.as_slice::<f32>().unwrap();
            values.iter().map(|&v| v.into()).collect()
        }
        DType::Bf16 => {
            let values = tensor.as_slice::<bf16>().unwrap();
            values.iter().map(|v| v.to_f64()).collect()
        }
        other => panic!("no numbers of {other}"),
    }
}

pub fn stored(dtype: DType, dims: &[usize], values: &[f32]) -> HostTensor {
    match dtype {
        DType::F32 => HostTensor::from_slice(dims, values).unwrap(),
        _ => {
            let rounded: Vec<bf16> = values.iter().map(|&v| bf16::from_f32(v)).collect();
            HostTensor::from_slice(dims, &rounded).unwrap()
        }
    }
}

/// fp32 within 1e-5 of the largest value, bf16 by correlation.
pub fn assert_close<'a>(
    what: &str,
    dtype: DType,
    found: impl IntoIterator<Item = &'a f64>,
    exact: impl IntoIterator<Item = &'a f64>,
) {
    let (a, b): (Vec<f64>, Vec<f64>) = (
        found.into_iter().copied().collect(),
        exact.into_iter().copied().collect(),
    );
    assert_eq!(a.len(), b.len(), "{what}");
    assert!(a.iter().all(|v| v.is_finite()), "{what}");
    let top = b.iter().fold(0.0_f64, |top, v| top.max(v.abs()));
    let worst = a
        .iter()
        .zip(&b)
        .fold(0.0_f64, |worst, (a, b)| worst.max((a - b).abs()));
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (ma, mb) = (mean(&a), mean(&b));
    let dot = |x: &[f64], mx: f64, y: &[f64], my: f64| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - mx) * (y - my)).sum()
    };
    let correlation = dot(&a, ma, &b, mb) / (dot(&a, ma, &a, ma) * dot(&b, mb, &b, mb)).sqrt();
    println!(
        "{what}, {dtype}: off by {:.2e} of {top:.3}, correlation {correlation:.7}",
        worst
    );
    match dtype {
        DType::F32 => assert!(worst <= 1e-5 * top.max(1.0), "{what}: off by {worst} of {top}"),
        _ => assert!(correlation >= 0.999, "{what}: {correlation}"),
    }
}

pub fn cpu(threads: usize) -> CpuDevice {
    CpuDevice::open(&CpuConfig {
        threads,
        ..CpuConfig::default()
    })
    .unwrap()
}

/// A device whose sums of bf16 are those of any other.
fn plain_cpu(threads: usize) -> CpuDevice {
    CpuDevice::open(&CpuConfig {
        threads,
        bf16_dot: Some(Bf16Dot::Off),
        ..CpuConfig::default()
    })
    .unwrap()
}

pub fn simulator() -> SimDevice {
    SimDevice::open(&SimConfig {
        arena_bytes: 64 << 20,
        seed: 5,
        ..SimConfig::default()
    })
    .unwrap()
}

pub type Work = dyn Fn(&mut TraceContext<'_>) -> Result<Vec<(String, DeviceTensor)>, WorkError> + Send + Sync;

/// Captures work and replays it on every device; all that sum bf16 in one way, and eager runs, give the same bits, also
/// after other inputs. The outputs of the fast ones come back.
pub fn everywhere(inputs: &[(&str, HostTensor)], work: impl Fn() -> Arc<Work>) -> Vec<HostTensor> {
    // Fast sums of bf16 have bits of their own, the same for any number of threads.
    let mut first: [Option<Vec<HostTensor>>; 2] = [None, None];
    let devices: [(usize, Box<dyn Device>, TraceOptions); 6] = [
        (0, Box::new(cpu(1)), TraceOptions::default()),
        (0, Box::new(cpu(2)), TraceOptions::two_queues()),
        (1, Box::new(plain_cpu(1)), TraceOptions::two_queues()),
        (1, Box::new(plain_cpu(2)), TraceOptions::default()),
        (1, Box::new(simulator()), TraceOptions::default()),
        (1, Box::new(simulator()), TraceOptions::two_queues()),
    ];
    for (sums, mut device, options) in devices {
        let device = device.as_mut();
        let mut runner = TraceRunner::new("blocks", options).unwrap();
        let mut ids = Vec::new();
        for (name, tensor) in inputs {
            ids.push(runner.add_input(device, name, *tensor.spec(), None).unwrap());
        }
        let run = work();
        let variant = runner
            .add_variant(device, "default", Box::new(move |context| run(context)))
            .unwrap();
        runner.capture(device).unwrap();
        let zeros: Vec<HostTensor> = inputs.iter().map(|(_, t)| HostTensor::zeros(*t.spec())).collect();
        let given: Vec<_> = ids.iter().copied().zip(inputs.iter().map(|(_, t)| t)).collect();
        let other: Vec<_> = ids.iter().copied().zip(&zeros).collect();
        let replayed = runner.call(device, variant, &given).unwrap();
        runner.call(device, variant, &other).unwrap();
        let again = runner.call(device, variant, &given).unwrap();
        let eager = runner.run_eager(device, variant, &given).unwrap();
        let outputs: Vec<HostTensor> = replayed.into_iter().map(|(_, tensor)| tensor).collect();
        for (index, output) in outputs.iter().enumerate() {
            assert_eq!(output.bytes(), again[index].1.bytes(), "a second replay differs");
            assert_eq!(output.bytes(), eager[index].1.bytes(), "eager differs");
            if let Some(first) = &first[sums] {
                assert!(output.bytes() == first[index].bytes(), "devices differ");
            }
        }
        runner.release(device).unwrap();
        first[sums].get_or_insert(outputs);
    }
    first[0].take().unwrap()
}

/// A feature map as it is stored, `[N, H, W, C]`.
pub fn as_rows(map: &DeviceTensor) -> DeviceTensor {
    DeviceTensor {
        view: map.view.transpose(&[0, 2, 3, 1]).unwrap(),
        ..*map
    }
}
