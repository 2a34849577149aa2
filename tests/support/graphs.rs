//! Small graphs on any device, host slots, and repeatable numbers, for tests of traces.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test target includes this file and uses its own part"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use sensorium::device::{
    Activation, BinaryKind, BufferClass, Device, HostSlot, OpDesc, Operand, SimConfig, SimDevice, SlotError,
};
use sensorium::ops::{DeviceTensor, OpContext};
use sensorium::tensor::{DType, HostTensor, TensorSpec};
use sensorium::trace::WorkError;

/// Elements of a test's vectors.
pub const N: usize = 64;

/// What a variant returns.
pub type Outputs = Vec<(String, DeviceTensor)>;

/// Repeatable pseudo-random numbers (splitmix64).
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// True once in `times`.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// A simulated device with a small arena.
pub fn simulator(queues: u8, seed: u64) -> SimDevice {
    SimDevice::open(&small(queues, seed)).unwrap()
}

/// The configuration of a simulated device with a small arena.
pub fn small(queues: u8, seed: u64) -> SimConfig {
    SimConfig {
        queues,
        seed,
        arena_bytes: 256 << 10,
        ..SimConfig::default()
    }
}

pub fn vector() -> TensorSpec {
    TensorSpec::new(&[N], DType::F32).unwrap()
}

pub fn vector_of(value: impl Fn(usize) -> f32) -> HostTensor {
    let values: Vec<f32> = (0..N).map(value).collect();
    HostTensor::from_slice(&[N], &values).unwrap()
}

pub fn floats(bytes: &[u8]) -> Vec<f32> {
    let values = bytes.chunks_exact(4);
    values
        .map(|value| f32::from_ne_bytes(value.try_into().unwrap()))
        .collect()
}

/// Writes the start of a slot.
pub fn fill(slot: &mut HostSlot, bytes: &[u8]) -> Result<(), SlotError> {
    slot.bytes_mut()?[..bytes.len()].copy_from_slice(bytes);
    Ok(())
}

pub fn slot_of(device: &mut dyn Device, values: &[f32]) -> HostSlot {
    let bytes: &[u8] = bytemuck::cast_slice(values);
    let mut slot = device.host_slot(bytes.len()).unwrap();
    fill(&mut slot, bytes).unwrap();
    slot
}

/// A new tensor of another one's shape.
pub fn like(ops: &mut OpContext<'_>, tensor: &DeviceTensor) -> Result<DeviceTensor, WorkError> {
    let spec = TensorSpec::new(&tensor.view.shape, tensor.dtype)?;
    Ok(ops.alloc(&spec, BufferClass::Intermediate)?)
}

pub fn unary(
    ops: &mut OpContext<'_>,
    activation: Activation,
    src: &DeviceTensor,
    dst: &DeviceTensor,
) -> Result<(), WorkError> {
    let op = OpDesc::Unary {
        src: src.operand(),
        dst: dst.operand(),
        activation,
    };
    Ok(ops.run(&op, &[src.buffer, dst.buffer])?)
}

/// `dst = lhs kind rhs`, the right side broadcast to the shape of the result.
pub fn binary(
    ops: &mut OpContext<'_>,
    kind: BinaryKind,
    lhs: &DeviceTensor,
    rhs: &DeviceTensor,
    dst: &DeviceTensor,
) -> Result<(), WorkError> {
    let rhs_operand = Operand {
        dtype: rhs.dtype,
        view: rhs.view.broadcast_to(dst.view.shape)?,
    };
    let op = OpDesc::Binary {
        lhs: lhs.operand(),
        rhs: rhs_operand,
        dst: dst.operand(),
        kind,
    };
    Ok(ops.run(&op, &[lhs.buffer, rhs.buffer, dst.buffer])?)
}
