//! [`CpuDevice`]: the device contract on host threads.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use smallvec::SmallVec;

use super::arena::{ALIGNMENT, Arena};
use super::capture::{Capture, Trace};
use super::kernels::{Bf16Dot, BufferRef, Isa, Kernel, KernelSet};
use super::pool::ComputePool;
use super::queue::{self, BoundLaunch, Command, Shared};
use crate::device::{
    BufferClass, BufferId, CaptureKind, Cq, Device, DeviceCaps, DeviceError, EventId, HostSlot, MissPolicy,
    OpDesc, ProgramId, TraceId,
};
use crate::tensor::DType;

/// Address of the first byte of the arena. Not zero, so that an address is never mistaken for "none".
pub(in crate::device) const ARENA_BASE: u64 = 0x1000_0000;

/// Commands that a queue holds before the owner has to wait.
const QUEUE_DEPTH: usize = 1024;

/// How long the owner waits for room in a queue.
pub(in crate::device) const ENQUEUE_DEADLINE: Duration = Duration::from_secs(10);

/// How long `prepare_weights` waits for running work. It belongs to setting up, where the first run of a large network may
/// take its time.
pub(in crate::device) const PREPARE_DEADLINE: Duration = Duration::from_secs(120);

/// Events of queue `q` carry `q` in the bits above this.
pub(in crate::device) const EVENT_QUEUE_SHIFT: u32 = 56;

/// Types that operations compute with.
pub(in crate::device) const DTYPES: &[DType] = &[
    DType::U8,
    DType::I8,
    DType::I32,
    DType::U32,
    DType::F16,
    DType::Bf16,
    DType::F32,
];

/// How a [`CpuDevice`] is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuConfig {
    /// Threads that share the work of one kernel on queue 0, the queue's own included; 0 means one per
    /// hardware thread. Results do not depend on it.
    pub threads: usize,
    /// Command queues, 1 or 2.
    pub queues: u8,
    /// Bytes of device memory.
    pub arena_bytes: usize,
    /// Bytes that all traces together may take.
    pub trace_region_bytes: usize,
    /// Refuse replays that could overwrite what was made after the capture. Off only in tests that show what
    /// that prevents: the overwriting is real.
    pub track_allocations: bool,
    /// Instruction set of the kernels; `None` detects the best one. Results do not depend on it.
    pub isa: Option<Isa>,
    /// How convolutions of bf16 sum their products; `None` detects the fastest way, [`Bf16Dot::Off`] gives the same
    /// bits on every processor.
    pub bf16_dot: Option<Bf16Dot>,
    /// How long an idle queue, or a host that waits, spins before it sleeps. It buys a faster hand-over with
    /// CPU time.
    pub spin: Duration,
}

impl Default for CpuConfig {
    fn default() -> Self {
        Self {
            threads: 0,
            queues: 2,
            arena_bytes: 512 << 20,
            trace_region_bytes: 64 << 20,
            track_allocations: true,
            isa: None,
            bf16_dot: None,
            spin: Duration::from_micros(20),
        }
    }
}

#[derive(Debug)]
pub(super) struct Buffer {
    pub(super) offset: usize,
    pub(super) bytes: usize,
    pub(super) class: BufferClass,
    pub(super) acknowledged: bool,
}

#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) kernel: Arc<dyn Kernel>,
}

/// The embedded default device. See the [module](super) for what it promises.
pub struct CpuDevice {
    pub(super) caps: DeviceCaps,
    pub(super) kernels: KernelSet,
    pub(super) shared: Arc<Shared>,
    pub(super) threads: Vec<JoinHandle<()>>,
    pub(super) arena: Arena,
    pub(super) buffers: HashMap<u64, Buffer>,
    pub(super) last_buffer: u64,
    pub(super) programs: Vec<Program>,
    pub(super) program_of: HashMap<OpDesc, ProgramId>,
    pub(super) misses: MissPolicy,
    pub(super) scratch_bytes: usize,
    pub(super) track_allocations: bool,
    pub(super) capture: Option<Capture>,
    pub(super) traces: HashMap<u64, Trace>,
    pub(super) last_trace: u64,
    /// Number of the last recorded event of each queue.
    pub(super) events: SmallVec<[u64; 2]>,
    pub(super) closed: bool,
}

impl CpuDevice {
    /// Opens the device: reserves the arena and starts the queues.
    ///
    /// # Errors
    /// [`DeviceError::Config`] for a configuration that makes no sense, [`DeviceError::OutOfMemory`].
    pub fn open(config: &CpuConfig) -> Result<Self, DeviceError> {
        if !(1..=2).contains(&config.queues) {
            return Err(DeviceError::Config(format!(
                "queues must be 1 or 2, not {}",
                config.queues
            )));
        }
        let hardware = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if config.threads == 0 {
            hardware
        } else {
            config.threads
        };
        if threads > 1024 {
            return Err(DeviceError::Config(format!(
                "threads must be at most 1024, not {threads}"
            )));
        }
        let best = Isa::detect();
        let isa = config.isa.unwrap_or(best);
        if isa > best {
            return Err(DeviceError::Config(format!(
                "this CPU has no {isa:?} (best is {best:?})"
            )));
        }
        let bf16_dot = config.bf16_dot.unwrap_or_else(Bf16Dot::detect);
        let arena = Arena::new(config.arena_bytes)?;
        // Queue 1 moves data; whatever is launched there runs on one thread.
        let pools = (0..config.queues).map(|queue| ComputePool::new(if queue == 0 { threads } else { 1 }));
        let shared = Arc::new(Shared::new(pools, config.spin, QUEUE_DEPTH));
        let mut device = Self {
            caps: DeviceCaps {
                backend: "cpu",
                description: format!("{isa:?} kernels, {threads} thread(s), bf16 {bf16_dot}"),
                queues: config.queues,
                alignment: ALIGNMENT,
                memory_bytes: arena.bytes(),
                trace_region_bytes: config.trace_region_bytes,
                queue_depth: QUEUE_DEPTH,
                capture: CaptureKind::Recorded,
                device_side_wait: true,
                dtypes: DTYPES,
            },
            kernels: KernelSet { isa, bf16_dot },
            shared,
            threads: Vec::new(),
            arena,
            buffers: HashMap::new(),
            last_buffer: 0,
            programs: Vec::new(),
            program_of: HashMap::new(),
            misses: MissPolicy::Allow,
            scratch_bytes: 0,
            track_allocations: config.track_allocations,
            capture: None,
            traces: HashMap::new(),
            last_trace: 0,
            events: SmallVec::from_elem(0, config.queues as usize),
            closed: false,
        };
        for queue in 0..config.queues as usize {
            let shared = Arc::clone(&device.shared);
            let thread = std::thread::Builder::new()
                .name(format!("sensorium-cq{queue}"))
                .spawn(move || queue::run(&shared, queue))
                .map_err(|e| DeviceError::Config(format!("cannot start queue {queue}: {e}")))?;
            device.threads.push(thread);
        }
        Ok(device)
    }

    pub(super) fn usable(&self) -> Result<(), DeviceError> {
        if self.closed {
            return Err(DeviceError::Closed);
        }
        match self.shared.lost_reason() {
            Some(reason) => Err(DeviceError::Lost { reason }),
            None => Ok(()),
        }
    }

    pub(super) fn usable_outside_capture(&self, what: &'static str) -> Result<(), DeviceError> {
        self.usable()?;
        match self.capture {
            Some(_) => Err(DeviceError::DuringCapture { what }),
            None => Ok(()),
        }
    }

    pub(super) fn queue_index(&self, cq: Cq) -> Result<usize, DeviceError> {
        if cq.0 < self.caps.queues {
            Ok(cq.0 as usize)
        } else {
            Err(DeviceError::UnknownQueue(cq, self.caps.queues))
        }
    }

    /// The answer to a call that names something which is not there: on a closed device nothing is.
    pub(super) fn missing(&self, unknown: DeviceError) -> DeviceError {
        if self.closed { DeviceError::Closed } else { unknown }
    }

    pub(super) fn buffer(&self, id: BufferId) -> Result<&Buffer, DeviceError> {
        let unknown = || self.missing(DeviceError::UnknownBuffer(id));
        self.buffers.get(&id.0).ok_or_else(unknown)
    }

    pub(super) fn trace(&self, id: TraceId) -> Result<&Trace, DeviceError> {
        let unknown = || self.missing(DeviceError::UnknownTrace(id));
        self.traces.get(&id.0).ok_or_else(unknown)
    }

    /// Whether a replay could overwrite something.
    pub(super) fn is_unsafe(&self, trace: &Trace) -> bool {
        let later = |(&id, buffer): (&u64, &Buffer)| id > trace.last_buffer && !buffer.acknowledged;
        self.programs.len() > trace.programs || self.buffers.iter().any(later)
    }

    /// The launches of a trace that may run on a queue now.
    pub(super) fn replayable(&self, cq: Cq, trace: TraceId) -> Result<Arc<[BoundLaunch]>, DeviceError> {
        self.usable_outside_capture("replaying a trace")?;
        self.queue_index(cq)?;
        let recorded = self.trace(trace)?;
        if self.track_allocations && self.is_unsafe(recorded) {
            return Err(DeviceError::UnsafeReplay {
                trace,
                live: Box::new(self.unsafe_live(trace)?),
            });
        }
        Ok(Arc::clone(&recorded.launches))
    }

    pub(super) fn range(&self, id: BufferId, offset: usize, len: usize) -> Result<BufferRef, DeviceError> {
        let buffer = self.buffer(id)?;
        let end = offset.saturating_add(len);
        if end > buffer.bytes {
            return Err(DeviceError::OutOfRange {
                what: id.to_string(),
                start: offset,
                end,
                size: buffer.bytes,
            });
        }
        let base = self.arena.ptr(buffer.offset);
        // SAFETY: `offset <= end <= buffer.bytes`, and the buffer lies inside the arena.
        let ptr = unsafe { base.add(offset) };
        Ok(BufferRef { ptr, bytes: len })
    }

    pub(super) fn push(&self, cq: Cq, command: Command) -> Result<(), DeviceError> {
        self.shared.push(cq, command, ENQUEUE_DEADLINE)
    }

    /// Queue and number of an event that was really recorded.
    pub(super) fn locate(&self, event: EventId) -> Result<(usize, u64), DeviceError> {
        let queue = (event.0 >> EVENT_QUEUE_SHIFT) as usize;
        let number = event.0 & ((1 << EVENT_QUEUE_SHIFT) - 1);
        match self.events.get(queue) {
            Some(&last) if (1..=last).contains(&number) => Ok((queue, number)),
            _ => Err(DeviceError::UnknownEvent(event)),
        }
    }

    pub(super) fn check_slot(what: &str, slot: &HostSlot, len: usize) -> Result<(), DeviceError> {
        if len > slot.len() {
            return Err(DeviceError::OutOfRange {
                what: what.into(),
                start: 0,
                end: len,
                size: slot.len(),
            });
        }
        Ok(())
    }
}

impl Drop for CpuDevice {
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for CpuDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuDevice")
            .field("caps", &self.caps)
            .field("buffers", &self.buffers.len())
            .field("programs", &self.programs.len())
            .field("traces", &self.traces.len())
            .finish_non_exhaustive()
    }
}
