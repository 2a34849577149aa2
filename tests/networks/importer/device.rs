//! Lowered graphs on the CPU device: run as they are, and captured and replayed.

use std::time::Duration;

use half::bf16;
use sensorium::device::{BufferClass, CpuConfig, CpuDevice, Cq, Device};
use sensorium::models::{ForwardError, LoadedGraph, LoweredGraph};
use sensorium::ops::{DeviceTensor, OpContext};
use sensorium::tensor::{DType, HostTensor, TensorSpec};

use crate::support;

/// A host tensor of the given type with these numbers.
fn tensor(spec: &TensorSpec, values: &[f32]) -> HostTensor {
    let dims = &spec.shape;
    match spec.dtype {
        DType::F32 => HostTensor::from_slice(dims, values),
        DType::Bf16 => {
            let short: Vec<bf16> = values.iter().map(|&v| bf16::from_f32(v)).collect();
            HostTensor::from_slice(dims, &short)
        }
        DType::I32 => HostTensor::from_slice(dims, &values.iter().map(|&v| v as i32).collect::<Vec<_>>()),
        DType::U8 => HostTensor::from_slice(dims, &values.iter().map(|&v| v as u8).collect::<Vec<_>>()),
        other => panic!("no inputs of {other} are expected"),
    }
    .unwrap()
}

fn open(threads: usize, arena_bytes: usize) -> CpuDevice {
    let config = CpuConfig {
        threads,
        queues: 1,
        arena_bytes,
        ..CpuConfig::default()
    };
    CpuDevice::open(&config).unwrap()
}

fn upload(device: &mut CpuDevice, loaded: &LoadedGraph, inputs: &[Vec<f32>]) -> Vec<DeviceTensor> {
    let mut context = OpContext::new(device, Cq::COMPUTE);
    let pairs = loaded.inputs().iter().zip(inputs);
    let bound = pairs.map(|(plan, values)| {
        context
            .upload(&tensor(&plan.spec, values), BufferClass::Input)
            .unwrap()
    });
    bound.collect()
}

fn read(device: &mut CpuDevice, outputs: &[DeviceTensor]) -> Vec<Vec<f32>> {
    let mut values = Vec::new();
    for output in outputs {
        let bytes = output.view.shape.elements() * 4;
        let mut slot = device.host_slot(bytes).unwrap();
        device
            .read(Cq::COMPUTE, output.buffer, 0, &mut slot, bytes)
            .unwrap();
        device.drain(Duration::from_secs(300)).unwrap();
        values.push(support::floats(&slot.bytes().unwrap()[..bytes]));
    }
    values
}

/// Runs a graph on inputs given element by element in the order of their buffers: eagerly and as a replayed capture, each
/// with one thread and with three. All must leave the same bits. The outputs come back row-major.
pub(crate) fn run(graph: &LoweredGraph, inputs: &[Vec<f32>]) -> Vec<Vec<f32>> {
    try_run(graph, inputs).unwrap()
}

/// As [`run`], with what the device refused.
pub(crate) fn try_run(graph: &LoweredGraph, inputs: &[Vec<f32>]) -> Result<Vec<Vec<f32>>, ForwardError> {
    let one = on_threads(graph, inputs, 1)?;
    let three = on_threads(graph, inputs, 3)?;
    assert!(
        same_bits(&one, &three),
        "{}: threads change the bits",
        graph.model
    );
    Ok(one)
}

/// As [`run`], eagerly and on one thread alone.
pub(crate) fn eager(graph: &LoweredGraph, inputs: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let mut device = open(1, 32 << 20);
    let loaded = LoadedGraph::prepare(graph.clone(), &mut device, Cq::COMPUTE).unwrap();
    let bound = upload(&mut device, &loaded, inputs);
    let mut context = OpContext::new(&mut device, Cq::COMPUTE);
    let outputs = loaded.forward(&mut context, &bound).unwrap();
    read(&mut device, &outputs)
}

fn on_threads(
    graph: &LoweredGraph,
    inputs: &[Vec<f32>],
    threads: usize,
) -> Result<Vec<Vec<f32>>, ForwardError> {
    let of_inputs: usize = graph.inputs.iter().map(|plan| plan.spec.bytes()).sum();
    let arena = (graph.stats.peak_bytes * 3 / 2 + of_inputs + (64 << 20)).next_multiple_of(1 << 20);
    let mut device = open(threads, arena);
    let loaded = LoadedGraph::prepare(graph.clone(), &mut device, Cq::COMPUTE)?;
    let bound = upload(&mut device, &loaded, inputs);
    let mut context = OpContext::new(&mut device, Cq::COMPUTE);
    let outputs = loaded.forward(&mut context, &bound)?;
    let eager = read(&mut device, &outputs);
    for output in outputs {
        device.free(output.buffer).unwrap();
    }
    device.begin_capture(Cq::COMPUTE).unwrap();
    let mut context = OpContext::new(&mut device, Cq::COMPUTE);
    let outputs = loaded.forward(&mut context, &bound)?;
    let trace = device.end_capture().unwrap();
    // Where the replay writes, nothing is left of the eager run.
    for output in &outputs {
        let nothing = vec![f32::NAN; output.view.shape.elements()];
        let bytes: &[u8] = bytemuck::cast_slice(&nothing);
        let mut slot = device.host_slot(bytes.len()).unwrap();
        slot.bytes_mut().unwrap()[..bytes.len()].copy_from_slice(bytes);
        device
            .write(Cq::COMPUTE, output.buffer, 0, &slot, bytes.len())
            .unwrap();
    }
    for _ in 0..2 {
        device.replay(Cq::COMPUTE, trace).unwrap();
        device.drain(Duration::from_secs(300)).unwrap();
        let replayed = read(&mut device, &outputs);
        assert!(
            same_bits(&eager, &replayed),
            "{}: replay differs from eager",
            graph.model
        );
    }
    device.close();
    Ok(eager)
}

/// Bitwise equality, all NaN being one.
pub(crate) fn same_bits(a: &[Vec<f32>], b: &[Vec<f32>]) -> bool {
    let same = |(x, y): (&f32, &f32)| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a.len() == b.len() && a.iter().zip(b).all(same))
}
