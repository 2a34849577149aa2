//! [`SimDevice`]: opening it, and what it tells beyond the contract.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::access::{Access, Footprint, Use};
use super::clock::{TimelineEntry, VirtualClock};
use super::costs::SimCosts;
use super::detector::{Detector, MAX_QUEUES};
use super::engine::{Engine, Scribble};
use super::memory::Memory;
use super::queues::Queues;
use super::race::Race;
use crate::device::cpu::kernels::{BufferRef, Isa, Kernel};
use crate::device::cpu::{ALIGNMENT, Capture, DTYPES, EVENT_QUEUE_SHIFT, Trace};
use crate::device::fault::FaultScript;
use crate::device::{
    BufferClass, BufferId, CaptureKind, Cq, DeviceCaps, DeviceError, EventId, FaultPlan, HostSlot,
    MissPolicy, OpDesc, ProgramId, TraceId,
};

/// What a race leads to. It is listed in [`SimDevice::races`] in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnRace {
    /// Nothing more.
    Report,
    /// The next host wait (sync, poll or drain) is refused with [`DeviceError::Race`], one wait for each race.
    #[default]
    Fail,
}

/// How a [`SimDevice`] is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimConfig {
    /// Command queues, 1 or 2.
    pub queues: u8,
    /// Bytes of device memory.
    pub arena_bytes: usize,
    /// Bytes that all traces together may take.
    pub trace_region_bytes: usize,
    /// Commands that a queue holds; a further one makes the host wait until the first is done.
    pub queue_depth: usize,
    /// Picks the order of execution.
    pub seed: u64,
    /// Refuse replays that could overwrite what was made after the capture. Off only in tests that show what
    /// that prevents.
    pub track_allocations: bool,
    /// Instruction set of the kernels; `None` detects the best one. Results do not depend on it.
    pub isa: Option<Isa>,
    /// What a race leads to.
    pub on_race: OnRace,
    /// What commands cost.
    pub costs: SimCosts,
    /// What goes wrong.
    pub faults: FaultPlan,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            queues: 2,
            arena_bytes: 64 << 20,
            trace_region_bytes: 64 << 20,
            queue_depth: 1024,
            seed: 0,
            track_allocations: true,
            isa: None,
            on_race: OnRace::default(),
            costs: SimCosts::default(),
            faults: FaultPlan::default(),
        }
    }
}

#[derive(Debug, Clone, Copy)]
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
    pub(super) uses: Vec<Use>,
    /// Virtual time that the operation takes on the device.
    pub(super) work_ns: u64,
}

/// A capture in progress, with what its replays will touch.
#[derive(Debug)]
pub(super) struct SimCapture {
    pub(super) base: Capture,
    pub(super) footprint: Footprint,
    /// Memory of the buffers freed since the capture began.
    pub(super) freed: Vec<Range<usize>>,
    pub(super) work_ns: u64,
}

/// A trace, with what a replay touches.
#[derive(Debug)]
pub(super) struct SimTrace {
    pub(super) base: Trace,
    pub(super) accesses: Arc<[Access]>,
    pub(super) scribble: Arc<Scribble>,
    pub(super) work_ns: u64,
}

/// A device in virtual time. See the [module](super).
pub struct SimDevice {
    pub(super) caps: DeviceCaps,
    pub(super) isa: Isa,
    pub(super) costs: SimCosts,
    pub(super) track_allocations: bool,
    on_race: OnRace,
    pub(super) faults: FaultScript,
    pub(super) queues: RefCell<Queues>,
    pub(super) buffers: HashMap<u64, Buffer>,
    pub(super) last_buffer: u64,
    pub(super) programs: Vec<Program>,
    pub(super) program_of: HashMap<OpDesc, ProgramId>,
    pub(super) misses: MissPolicy,
    pub(super) capture: Option<SimCapture>,
    pub(super) traces: BTreeMap<u64, SimTrace>,
    pub(super) last_trace: u64,
    /// Number of the last recorded event of each queue.
    pub(super) events: [u64; MAX_QUEUES],
    pub(super) lost: Option<String>,
    pub(super) closed: bool,
    /// Behind everything that holds addresses in it.
    pub(super) memory: Memory,
}

impl SimDevice {
    /// Opens the device.
    ///
    /// # Errors
    /// [`DeviceError::Config`] for a configuration that makes no sense, [`DeviceError::OutOfMemory`].
    pub fn open(config: &SimConfig) -> Result<Self, DeviceError> {
        if !(1..=MAX_QUEUES).contains(&usize::from(config.queues)) {
            return Err(DeviceError::Config(format!(
                "queues must be 1 or 2, not {}",
                config.queues
            )));
        }
        if config.queue_depth == 0 {
            return Err(DeviceError::Config("a queue must hold at least 1 command".into()));
        }
        let isa = config.isa.unwrap_or_else(Isa::detect);
        if !isa.is_available() {
            return Err(DeviceError::Config(format!("this CPU has no {isa} instructions")));
        }
        let memory = Memory::new(config.arena_bytes)?;
        let count = usize::from(config.queues);
        Ok(Self {
            caps: DeviceCaps {
                backend: "sim",
                description: format!("{isa} kernels in virtual time, seed {}", config.seed),
                queues: config.queues,
                alignment: ALIGNMENT,
                memory_bytes: memory.bytes(),
                trace_region_bytes: config.trace_region_bytes,
                queue_depth: config.queue_depth,
                capture: CaptureKind::Recorded,
                device_side_wait: true,
                dtypes: DTYPES,
            },
            isa,
            costs: config.costs.clone(),
            track_allocations: config.track_allocations,
            on_race: config.on_race,
            faults: FaultScript::new(&config.faults),
            queues: RefCell::new(Queues {
                engine: Engine::new(count, memory.whole(), config.seed),
                clock: VirtualClock::new(count, config.queue_depth),
                detector: Detector::new(),
                depth: config.queue_depth,
            }),
            buffers: HashMap::new(),
            last_buffer: 0,
            programs: Vec::new(),
            program_of: HashMap::new(),
            misses: MissPolicy::Allow,
            capture: None,
            traces: BTreeMap::new(),
            last_trace: 0,
            events: [0; MAX_QUEUES],
            lost: None,
            closed: false,
            memory,
        })
    }

    /// All races so far, in the order of their second commands.
    #[must_use]
    pub fn races(&self) -> Vec<Race> {
        self.queues.borrow().detector.races().to_vec()
    }

    /// The host's virtual time, in nanoseconds since the device was opened.
    #[must_use]
    pub fn virtual_now_ns(&self) -> u64 {
        self.queues.borrow().clock.host_ns
    }

    /// Lets virtual time pass on the host, as if it did something else; commands start no earlier than they
    /// are enqueued.
    pub fn advance_host(&mut self, time: Duration) {
        self.queues.get_mut().clock.advance_host(time);
    }

    /// Start and end of every command so far, in the order of enqueueing. Commands that can never start, behind
    /// a lost event, are left out.
    #[must_use]
    pub fn timeline(&self) -> Vec<TimelineEntry> {
        self.queues.borrow().clock.timeline().to_vec()
    }

    pub(super) fn usable(&self) -> Result<(), DeviceError> {
        if self.closed {
            return Err(DeviceError::Closed);
        }
        match &self.lost {
            Some(reason) => Err(DeviceError::Lost {
                reason: reason.clone(),
            }),
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

    /// Refuses a host wait for a race that no call has answered yet.
    pub(super) fn answer_race(&self) -> Result<(), DeviceError> {
        if self.on_race == OnRace::Report {
            return Ok(());
        }
        match self.queues.borrow_mut().detector.next_unreported() {
            Some(race) => Err(DeviceError::Race(Box::new(race))),
            None => Ok(()),
        }
    }

    pub(super) fn known_queue(&self, cq: Cq) -> Result<(), DeviceError> {
        if cq.0 < self.caps.queues {
            Ok(())
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

    pub(super) fn trace(&self, id: TraceId) -> Result<&SimTrace, DeviceError> {
        let unknown = || self.missing(DeviceError::UnknownTrace(id));
        self.traces.get(&id.0).ok_or_else(unknown)
    }

    /// Some bytes of a buffer, and the access to them.
    pub(super) fn range(
        &self,
        id: BufferId,
        offset: usize,
        len: usize,
        writes: bool,
    ) -> Result<(BufferRef, Access), DeviceError> {
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
        let start = buffer.offset + offset;
        // An empty range may lie behind the last byte; its address is never used.
        let memory = self
            .memory
            .range(if len == 0 { buffer.offset } else { start }, len);
        let access = Access::buffer(id, buffer.class, start..start + len, writes);
        Ok((memory, access))
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

    pub(super) fn check_slot(slot: &HostSlot, len: usize) -> Result<(), DeviceError> {
        if len > slot.len() {
            return Err(DeviceError::OutOfRange {
                what: "host slot".into(),
                start: 0,
                end: len,
                size: slot.len(),
            });
        }
        Ok(())
    }

    /// Memory that captures freed, what was freed last first.
    pub(super) fn freed_in_traces(&self) -> impl Iterator<Item = Range<usize>> {
        let capture = self.capture.iter().flat_map(|capture| capture.freed.iter().rev());
        let traces = self.traces.values().rev();
        capture
            .chain(traces.flat_map(|trace| trace.scribble.before.iter().rev()))
            .cloned()
    }

    /// The device fails: nothing that is enqueued is done any more.
    pub(super) fn lose(&mut self, reason: &str) -> DeviceError {
        self.queues.get_mut().engine.clear();
        self.lost = Some(reason.into());
        DeviceError::Lost {
            reason: reason.into(),
        }
    }
}

impl Drop for SimDevice {
    fn drop(&mut self) {
        crate::device::Device::close(self);
    }
}

impl std::fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimDevice")
            .field("caps", &self.caps)
            .field("buffers", &self.buffers.len())
            .field("programs", &self.programs.len())
            .field("traces", &self.traces.len())
            .finish_non_exhaustive()
    }
}
