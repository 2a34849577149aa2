//! A device under test.

use std::time::{Duration, Instant};

use super::Open;
use super::verdict::Stop;
use crate::device::{
    Activation, BinaryKind, BufferClass, BufferId, Cq, Device, DeviceCaps, DeviceError, EventId, HostSlot,
    OpDesc, Operand, Scalar, TraceId,
};
use crate::tensor::{DType, Shape, TensorSpec, View};

/// Longest wait for a device that works.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);

/// Elements of the usual buffer.
pub(super) const N: usize = 256;

/// Elements of the buffers that [`Subject::keep_busy`] works on.
const LARGE: usize = 1 << 14;

/// Work that keeps a queue busy for longer than another queue, or the host, needs to overtake it.
pub(super) const A_WHILE: Duration = Duration::from_millis(2);

/// Classes of buffers that outlive what allocates them.
pub(super) const PERSISTENT: [BufferClass; 6] = [
    BufferClass::Input,
    BufferClass::Param,
    BufferClass::Weight,
    BufferClass::Staging,
    BufferClass::State,
    BufferClass::Bank,
];

/// A device under test, with shorthand for float32 vectors. What returns [`DeviceError`] passes on what the
/// device answered.
pub(super) struct Subject {
    pub(super) device: Box<dyn Device>,
    /// What [`Subject::keep_busy`] works on, for each queue.
    busy: Vec<Option<Busy>>,
}

#[derive(Clone, Copy)]
struct Busy {
    buffer: BufferId,
    /// Time that one launch takes.
    launch: Duration,
}

impl Subject {
    pub(super) fn open(open: &mut Open<'_>) -> Result<Self, Stop> {
        let device = open()?;
        let queues = device.caps().queues.into();
        Ok(Self {
            device,
            busy: vec![None; queues],
        })
    }

    pub(super) fn caps(&self) -> &DeviceCaps {
        self.device.caps()
    }

    /// Every queue.
    pub(super) fn queues(&self) -> impl Iterator<Item = Cq> + use<> {
        (0..self.caps().queues).map(Cq)
    }

    pub(super) fn buffer(&mut self, class: BufferClass) -> Result<BufferId, DeviceError> {
        self.device.alloc(&floats(N)?, class)
    }

    /// A buffer with these contents, there when this returns.
    pub(super) fn filled(&mut self, class: BufferClass, values: &[f32]) -> Result<BufferId, DeviceError> {
        let buffer = self.device.alloc(&floats(values.len())?, class)?;
        self.write(Cq::COMPUTE, buffer, values)?;
        self.drain()?;
        Ok(buffer)
    }

    /// A slot that holds these values.
    pub(super) fn slot(&mut self, values: &[f32]) -> Result<HostSlot, DeviceError> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let mut slot = self.device.host_slot(bytes.len())?;
        slot.bytes_mut()?.copy_from_slice(bytes);
        Ok(slot)
    }

    /// Enqueues an upload.
    pub(super) fn write(&mut self, cq: Cq, buffer: BufferId, values: &[f32]) -> Result<(), DeviceError> {
        let slot = self.slot(values)?;
        self.device.write(cq, buffer, 0, &slot, size_of_val(values))
    }

    /// Enqueues a download of `elements` values.
    pub(super) fn start_read(
        &mut self,
        cq: Cq,
        buffer: BufferId,
        elements: usize,
    ) -> Result<HostSlot, DeviceError> {
        let bytes = elements * size_of::<f32>();
        let mut slot = self.device.host_slot(bytes)?;
        self.device.read(cq, buffer, 0, &mut slot, bytes)?;
        Ok(slot)
    }

    /// Downloads a buffer of the usual size, after all that is enqueued before.
    pub(super) fn read(&mut self, cq: Cq, buffer: BufferId) -> Result<Vec<f32>, DeviceError> {
        self.read_some(cq, buffer, N)
    }

    /// As [`Subject::read`], for another size.
    pub(super) fn read_some(
        &mut self,
        cq: Cq,
        buffer: BufferId,
        elements: usize,
    ) -> Result<Vec<f32>, DeviceError> {
        let slot = self.start_read(cq, buffer, elements)?;
        self.finish(cq)?;
        values(&slot)
    }

    /// Waits for all that is enqueued on a queue.
    pub(super) fn finish(&mut self, cq: Cq) -> Result<(), DeviceError> {
        let event = self.device.record_event(cq)?;
        self.sync(event)
    }

    pub(super) fn sync(&self, event: EventId) -> Result<(), DeviceError> {
        self.device.sync_event(event, Instant::now() + DEADLINE)
    }

    pub(super) fn drain(&mut self) -> Result<(), DeviceError> {
        self.device.drain(DEADLINE)
    }

    /// Compiles an operation and launches it.
    pub(super) fn launch(&mut self, cq: Cq, op: &OpDesc, buffers: &[BufferId]) -> Result<(), DeviceError> {
        let program = self.device.compile(op)?;
        self.device.launch(cq, program, buffers)
    }

    /// Makes everything that follows on `from` also follow what is enqueued on `after`.
    pub(super) fn order(&mut self, after: Cq, from: Cq) -> Result<(), DeviceError> {
        let event = self.device.record_event(after)?;
        self.device.wait_event(from, event)
    }

    /// Captures what `work` launches on a queue; gives the capture up if that fails.
    pub(super) fn capture(
        &mut self,
        cq: Cq,
        work: impl FnOnce(&mut Self) -> Result<(), DeviceError>,
    ) -> Result<TraceId, DeviceError> {
        self.device.begin_capture(cq)?;
        match work(self) {
            Ok(()) => self.device.end_capture(),
            Err(error) => {
                self.device.abort_capture()?;
                Err(error)
            }
        }
    }

    /// Reserves what [`Subject::keep_busy`] needs; for checks that count memory or programs, or capture.
    pub(super) fn prepare_busy(&mut self, cq: Cq) -> Result<(), DeviceError> {
        self.busy(cq).map(drop)
    }

    fn busy(&mut self, cq: Cq) -> Result<Busy, DeviceError> {
        if let Some(busy) = self.busy[cq.0 as usize] {
            return Ok(busy);
        }
        let buffer = self.filled(BufferClass::Input, &[0.5; LARGE])?;
        let mut fastest = Duration::MAX;
        for _ in 0..4 {
            let start = Instant::now();
            self.launch(cq, &tanh()?, &[buffer, buffer])?;
            self.finish(cq)?;
            fastest = fastest.min(start.elapsed());
        }
        let busy = Busy {
            buffer,
            launch: fastest.max(Duration::from_micros(1)),
        };
        self.busy[cq.0 as usize] = Some(busy);
        Ok(busy)
    }

    /// Gives a queue work for about this time, as far as a quarter of its depth allows.
    pub(super) fn keep_busy(&mut self, cq: Cq, time: Duration) -> Result<(), DeviceError> {
        let busy = self.busy(cq)?;
        let launches = (time.as_nanos() / busy.launch.as_nanos()) as usize;
        let most = (self.caps().queue_depth / 4).clamp(1, 256);
        for _ in 0..launches.clamp(1, most) {
            self.launch(cq, &tanh()?, &[busy.buffer; 2])?;
        }
        Ok(())
    }
}

/// Values of a slot that the device has given back.
pub(super) fn values(slot: &HostSlot) -> Result<Vec<f32>, DeviceError> {
    let numbers = slot.bytes()?.as_chunks().0;
    Ok(numbers.iter().map(|&bytes| f32::from_ne_bytes(bytes)).collect())
}

/// A float32 vector.
pub(super) fn floats(elements: usize) -> Result<TensorSpec, DeviceError> {
    Ok(TensorSpec::new(&[elements], DType::F32)?)
}

fn vector(elements: usize) -> Result<Operand, DeviceError> {
    Ok(Operand {
        dtype: DType::F32,
        view: View::contiguous(Shape::new(&[elements])?),
    })
}

/// `c = a + b` on buffers of the usual size. Buffers: a, b, c.
pub(super) fn add() -> Result<OpDesc, DeviceError> {
    binary(BinaryKind::Add)
}

/// `c = a * b` on buffers of the usual size. Buffers: a, b, c.
pub(super) fn multiply() -> Result<OpDesc, DeviceError> {
    binary(BinaryKind::Mul)
}

fn binary(kind: BinaryKind) -> Result<OpDesc, DeviceError> {
    Ok(OpDesc::Binary {
        lhs: vector(N)?,
        rhs: vector(N)?,
        dst: vector(N)?,
        kind,
    })
}

/// `b = max(a, 0)` on buffers of the usual size. Buffers: a, b.
pub(super) fn relu() -> Result<OpDesc, DeviceError> {
    unary(N, Activation::Relu)
}

fn tanh() -> Result<OpDesc, DeviceError> {
    unary(LARGE, Activation::Tanh)
}

fn unary(elements: usize, activation: Activation) -> Result<OpDesc, DeviceError> {
    Ok(OpDesc::Unary {
        src: vector(elements)?,
        dst: vector(elements)?,
        activation,
    })
}

/// Writes a value into a buffer of the usual size. Buffers: a.
pub(super) fn fill(value: f32) -> Result<OpDesc, DeviceError> {
    Ok(OpDesc::Fill {
        dst: vector(N)?,
        value: Scalar::new(value),
    })
}

/// Repeatable numbers.
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize
    }

    /// A whole number from -8 to 8.
    pub(super) fn whole(&mut self) -> f32 {
        (self.next() % 17) as f32 - 8.0
    }

    pub(super) fn wholes(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.whole()).collect()
    }

    /// Fractions from -4 to 4.
    pub(super) fn fractions(&mut self, count: usize) -> Vec<f32> {
        (0..count)
            .map(|_| (self.next() % 8_000_003) as f32 / 1e6 - 4.0)
            .collect()
    }
}
