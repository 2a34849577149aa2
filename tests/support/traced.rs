//! Work that is captured and replayed on several devices, for tests of operations and blocks.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test target includes this file and uses its own part"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use half::bf16;
use sensorium::device::cpu::kernels::Bf16Dot;
use sensorium::device::{CpuConfig, CpuDevice, Device, SimConfig, SimDevice};
use sensorium::ops::DeviceTensor;
use sensorium::tensor::{DType, HostTensor};
use sensorium::trace::{TraceContext, TraceOptions, TraceRunner, WorkError};

/// What a variant does.
pub type Work = dyn Fn(&mut TraceContext<'_>) -> Result<Vec<(String, DeviceTensor)>, WorkError> + Send + Sync;

/// Repeatable pseudo-random numbers (splitmix64).
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in -1..1.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// Numbers in `-scale..scale`.
    pub fn numbers(&mut self, count: usize, scale: f32) -> Vec<f32> {
        (0..count).map(|_| self.unit() * scale).collect()
    }
}

/// A CPU device.
pub fn cpu(threads: usize) -> CpuDevice {
    summing(threads, None)
}

/// A device that sums bf16 in one way.
fn summing(threads: usize, bf16_dot: Option<Bf16Dot>) -> CpuDevice {
    CpuDevice::open(&CpuConfig {
        threads,
        bf16_dot,
        ..CpuConfig::default()
    })
    .unwrap()
}

/// A simulated device.
pub fn simulator() -> SimDevice {
    SimDevice::open(&SimConfig {
        arena_bytes: 64 << 20,
        seed: 5,
        ..SimConfig::default()
    })
    .unwrap()
}

/// Values as a device stores them.
pub fn stored(dtype: DType, dims: &[usize], values: &[f32]) -> HostTensor {
    match dtype {
        DType::F32 => HostTensor::from_slice(dims, values).unwrap(),
        _ => {
            let rounded: Vec<bf16> = values.iter().map(|&v| bf16::from_f32(v)).collect();
            HostTensor::from_slice(dims, &rounded).unwrap()
        }
    }
}

/// What is stored, as numbers.
pub fn numbers(tensor: &HostTensor) -> Vec<f64> {
    match tensor.dtype() {
        DType::F32 => tensor
            .as_slice::<f32>()
            .unwrap()
            .iter()
            .map(|&v| v.into())
            .collect(),
        DType::Bf16 => tensor
            .as_slice::<bf16>()
            .unwrap()
            .iter()
            .map(|v| v.to_f64())
            .collect(),
        other => panic!("no numbers of {other}"),
    }
}

/// Captures work and replays it on CPU devices of one and two threads, and where `simulated` on simulated ones. All that sum
/// bf16 in one way, and eager runs, give the same bits, also of other inputs. The outputs of the fast ones come back; those
/// of plain sums are the same or apart by rounding.
pub fn replayed(
    inputs: &[(&str, HostTensor)],
    simulated: bool,
    work: impl Fn() -> Arc<Work>,
) -> Vec<HostTensor> {
    // Fast sums of bf16 have bits of their own, the same for any number of threads.
    let mut first: [Option<Vec<HostTensor>>; 2] = [None, None];
    // Large networks on a busy machine take their time.
    let deadline = Duration::from_secs(300);
    let one_queue = TraceOptions {
        deadline,
        ..TraceOptions::default()
    };
    let two_queues = TraceOptions {
        deadline,
        ..TraceOptions::two_queues()
    };
    let mut devices: Vec<(usize, Box<dyn Device>, TraceOptions)> = vec![
        (0, Box::new(cpu(1)), one_queue.clone()),
        (0, Box::new(cpu(2)), two_queues.clone()),
    ];
    if simulated {
        let plain = |threads| Box::new(summing(threads, Some(Bf16Dot::Off)));
        devices.push((1, plain(1), two_queues.clone()));
        devices.push((1, plain(2), one_queue.clone()));
        devices.push((1, Box::new(simulator()), one_queue));
        devices.push((1, Box::new(simulator()), two_queues));
    }
    for (sums, mut device, options) in devices {
        let device = device.as_mut();
        let mut runner = TraceRunner::new("traced", options).unwrap();
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
        let replayed_other = runner.call(device, variant, &other).unwrap();
        let again = runner.call(device, variant, &given).unwrap();
        let eager = runner.run_eager(device, variant, &given).unwrap();
        if simulated {
            let eager = runner.run_eager(device, variant, &other).unwrap();
            let same =
                |((_, a), (_, b)): (&(String, HostTensor), &(String, HostTensor))| a.bytes() == b.bytes();
            assert!(
                replayed_other.iter().zip(&eager).all(same),
                "eager differs of other inputs"
            );
        }
        let outputs: Vec<HostTensor> = replayed.into_iter().map(|(_, tensor)| tensor).collect();
        for (index, output) in outputs.iter().enumerate() {
            assert!(
                output.bytes() == again[index].1.bytes(),
                "a second replay differs"
            );
            assert!(output.bytes() == eager[index].1.bytes(), "eager differs");
            if let Some(first) = &first[sums] {
                assert!(output.bytes() == first[index].bytes(), "devices differ");
            }
        }
        runner.release(device).unwrap();
        first[sums].get_or_insert(outputs);
    }
    let [fast, plain] = first;
    let fast = fast.unwrap();
    let plain = plain.unwrap_or_default();
    let differ = fast
        .iter()
        .zip(&plain)
        .filter(|(fast, plain)| fast.bytes() != plain.bytes());
    let differ: Vec<_> = differ.map(|(a, b)| (numbers(a), numbers(b))).collect();
    // Of all outputs: what one of them is left with behind the rounding of another is small.
    let top = differ.iter().flat_map(|(fast, _)| fast);
    let top = top.fold(0.0_f64, |top, x| top.max(x.abs()));
    for (fast, plain) in &differ {
        let apart = distance(fast, plain);
        assert!(
            apart <= 0.03 * top,
            "fast and plain sums are {apart} apart of {top}"
        );
    }
    fast
}

/// Pearson's correlation.
pub fn correlation(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (ma, mb) = (mean(a), mean(b));
    let dot = |x: &[f64], mx: f64, y: &[f64], my: f64| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - mx) * (y - my)).sum()
    };
    dot(a, ma, b, mb) / (dot(a, ma, a, ma) * dot(b, mb, b, mb)).sqrt()
}

/// The largest difference.
pub fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .fold(0.0, |worst, (a, b)| worst.max((a - b).abs()))
}
