//! Small helpers around a device.

use std::time::{Duration, Instant};

use sensorium::device::{
    Activation, BinaryKind, BufferClass, BufferId, Cq, Device, DeviceError, EventId, HostSlot, OpDesc,
    Operand, SimConfig, SimDevice,
};
use sensorium::tensor::{DType, Shape, TensorSpec, View};

/// Elements of the tests' vectors.
pub(crate) const N: usize = 64;

/// A small generator of repeatable pseudo-random numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

pub(crate) fn config(queues: u8, seed: u64) -> SimConfig {
    SimConfig {
        queues,
        seed,
        arena_bytes: 1 << 20,
        ..SimConfig::default()
    }
}

pub(crate) fn open(queues: u8, seed: u64) -> SimDevice {
    SimDevice::open(&config(queues, seed)).unwrap()
}

pub(crate) fn spec() -> TensorSpec {
    TensorSpec::new(&[N], DType::F32).unwrap()
}

pub(crate) fn vector() -> Operand {
    Operand {
        dtype: DType::F32,
        view: View::contiguous(Shape::new(&[N]).unwrap()),
    }
}

/// `b = a + a`, for the buffers `[a, a, b]`.
pub(crate) fn add() -> OpDesc {
    OpDesc::Binary {
        lhs: vector(),
        rhs: vector(),
        dst: vector(),
        kind: BinaryKind::Add,
    }
}

pub(crate) fn relu() -> OpDesc {
    OpDesc::Unary {
        src: vector(),
        dst: vector(),
        activation: Activation::Relu,
    }
}

pub(crate) fn buffer(device: &mut dyn Device, class: BufferClass) -> BufferId {
    device.alloc(&spec(), class).unwrap()
}

pub(crate) fn launch(device: &mut dyn Device, cq: Cq, op: &OpDesc, buffers: &[BufferId]) {
    let program = device.compile(op).unwrap();
    device.launch(cq, program, buffers).unwrap();
}

pub(crate) fn slot_of(values: &[f32]) -> HostSlot {
    let bytes: &[u8] = bytemuck::cast_slice(values);
    let mut slot = HostSlot::new(bytes.len());
    slot.bytes_mut().unwrap().copy_from_slice(bytes);
    slot
}

pub(crate) fn write(device: &mut dyn Device, cq: Cq, dst: BufferId, values: &[f32]) {
    device
        .write(cq, dst, 0, &slot_of(values), values.len() * 4)
        .unwrap();
}

/// Time enough in every test.
pub(crate) fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

pub(crate) fn sync(device: &dyn Device, event: EventId) -> Result<(), DeviceError> {
    device.sync_event(event, later())
}

/// Reads a vector and waits for it.
pub(crate) fn read(device: &mut dyn Device, cq: Cq, src: BufferId) -> Vec<f32> {
    let mut slot = HostSlot::new(N * 4);
    device.read(cq, src, 0, &mut slot, N * 4).unwrap();
    let done = device.record_event(cq).unwrap();
    sync(device, done).unwrap();
    bytemuck::cast_slice(slot.bytes().unwrap()).to_vec()
}

/// Captures launches on queue 0.
pub(crate) fn capture(
    device: &mut SimDevice,
    body: impl FnOnce(&mut SimDevice),
) -> sensorium::device::TraceId {
    device.begin_capture(Cq::COMPUTE).unwrap();
    body(device);
    device.end_capture().unwrap()
}
