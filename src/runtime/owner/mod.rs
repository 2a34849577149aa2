//! The device owner: the only one that touches the device.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kameo::actor::{ActorRef, WeakActorRef};
use kameo::mailbox::{MailboxReceiver, Signal};
use kameo::message::{Context, Message as Handler};
use tokio::sync::{Notify, oneshot};

use super::RuntimeError;
use super::channel::{Receiver, Sender};
use super::frame::{FrameMeta, Inferred, Message, Prepared, Sample};
use super::shutdown::Shutdown;
use super::slots::{PooledSlot, SlotPool};
use crate::device::{Device, DeviceChoice, DeviceHealth, EventId, OpenedDevice};
use crate::image::BackMap;
use crate::perception::DetectorTrace;
use crate::telemetry::{DropReason, Ledger, MonotonicClock, Stage};
use crate::trace::{Pending, TraceError};

/// Frames between upload and read at a time: one replays while the next one uploads.
pub(crate) const FRAMES_UNDER_WAY: usize = 2;

/// Name in accounts, logs and errors.
const NAME: &str = "device";

/// Longest time a frame may spend on the device before the device counts as hung.
const FRAME_DEADLINE: Duration = Duration::from_secs(30);

/// Opens the device and builds the traces of all detectors, on the owner's thread.
pub(crate) type OpenDevice =
    Box<dyn FnOnce() -> Result<(OpenedDevice, Vec<DetectorTrace>), RuntimeError> + Send>;

/// What the owner needs to start.
pub(crate) struct OwnerArgs {
    /// Opens the device.
    pub open: OpenDevice,
    /// Prepared frames of all detectors.
    pub input: Receiver<Sample<Prepared>>,
    /// For each detector: where results go, and how many output slots there are.
    pub outputs: Vec<(Sender<Sample<Inferred>>, usize)>,
    /// Told once the device is open: an input pool for each detector.
    pub ready: oneshot::Sender<Result<OwnerReady, RuntimeError>>,
    /// Input slots of each detector.
    pub input_slots: usize,
    /// Accounts.
    pub ledger: Arc<Ledger>,
    /// Clock of the run.
    pub clock: MonotonicClock,
    /// End of the run.
    pub shutdown: Shutdown,
}

/// What the owner tells when it is ready.
#[derive(Debug)]
pub(crate) struct OwnerReady {
    /// Input slots, one pool a detector.
    pub input_pools: Vec<SlotPool>,
    /// Backend and description of the device.
    pub device: String,
    /// The device in numbers.
    pub device_details: serde_json::Value,
}

/// One detector on the device.
#[derive(Debug)]
struct Lane {
    trace: DetectorTrace,
    results: Sender<Sample<Inferred>>,
    output_slots: SlotPool,
}

/// A frame on the device.
#[derive(Debug)]
struct Flight {
    lane: usize,
    meta: FrameMeta,
    message: Arc<Message>,
    placement: BackMap,
    /// Held until the upload is done.
    input: Option<PooledSlot>,
    uploaded_ns: u64,
    output: PooledSlot,
    uploaded: EventId,
    pending: Pending,
    /// Set once the read is enqueued.
    read: Option<EventId>,
    submitted: Instant,
}

/// The actor. Runs on a thread of its own and never waits while work is ready: uploads, replays and reads
/// complete by events, and an event's completion wakes it.
pub(crate) struct DeviceOwner {
    device: Box<dyn Device>,
    choice: DeviceChoice,
    lanes: Vec<Lane>,
    input: Receiver<Sample<Prepared>>,
    /// Taken from the channel, but its detector has no output slot free yet.
    held: Option<Sample<Prepared>>,
    flights: VecDeque<Flight>,
    /// End of the last replay; the next one started no earlier.
    last_replay_ns: u64,
    /// Frames under way at a time: on one queue nothing overlaps.
    depth: usize,
    exhausted: bool,
    completed: Arc<Notify>,
    ledger: Arc<Ledger>,
    clock: MonotonicClock,
    shutdown: Shutdown,
}

/// Asks the owner what it runs; answered as JSON text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DescribeDevice;

impl kameo::Actor for DeviceOwner {
    type Args = OwnerArgs;
    type Error = RuntimeError;

    async fn on_start(args: OwnerArgs, _: ActorRef<Self>) -> Result<Self, RuntimeError> {
        let OwnerArgs {
            open,
            input,
            outputs,
            ready,
            input_slots,
            ledger,
            clock,
            shutdown,
        } = args;
        match Self::open(open, input, outputs, input_slots, ledger, clock, shutdown) {
            Ok((owner, told)) => {
                // Nobody listens only if the run was given up meanwhile.
                let _ = ready.send(Ok(told));
                Ok(owner)
            }
            Err(error) => {
                let told = RuntimeError::Device(error.to_string());
                let _ = ready.send(Err(error));
                Err(told)
            }
        }
    }

    async fn next(
        &mut self,
        _: WeakActorRef<Self>,
        mailbox: &mut MailboxReceiver<Self>,
    ) -> Result<Option<Signal<Self>>, RuntimeError> {
        loop {
            self.advance();
            if self.exhausted && self.flights.is_empty() && self.held.is_none() {
                return Ok(Some(Signal::Stop));
            }
            let room = self.flights.len() < self.depth;
            let slots = self
                .held
                .as_ref()
                .map(|held| self.lanes[held.payload.detector].output_slots.clone());
            let overdue = self
                .flights
                .front()
                .map(|flight| flight.submitted + FRAME_DEADLINE);
            tokio::select! {
                biased;
                signal = mailbox.recv() => return Ok(signal),
                () = self.completed.notified() => {}
                slot = take_slot(slots.as_ref()), if room && slots.is_some() => {
                    if let (Some(sample), Some(slot)) = (self.held.take(), slot) {
                        self.submit(sample, slot);
                    }
                }
                sample = self.input.recv(), if room && self.held.is_none() && !self.exhausted => {
                    match sample {
                        Some(sample) => self.take_up(sample),
                        None => self.exhausted = true,
                    }
                }
                () = sleep_until(overdue), if overdue.is_some() => {
                    self.fail(format!("a frame did not come back within {FRAME_DEADLINE:?}"));
                }
            }
        }
    }

    async fn on_stop(
        &mut self,
        _: WeakActorRef<Self>,
        _: kameo::error::ActorStopReason,
    ) -> Result<(), RuntimeError> {
        // Empty after a normal end; whatever else stopped this actor, no frame goes unaccounted.
        let flying = std::mem::take(&mut self.flights)
            .into_iter()
            .map(|flight| flight.meta.id);
        let waiting = self
            .held
            .take()
            .into_iter()
            .chain(std::iter::from_fn(|| self.input.try_recv()));
        for id in flying.chain(waiting.map(|sample| sample.meta.id)) {
            self.ledger.frame_dropped(id, NAME, DropReason::ShuttingDown);
        }
        let device = self.device.as_mut();
        for lane in &mut self.lanes {
            if let Err(error) = lane.trace.release(device) {
                tracing::warn!(%error, "releasing a trace failed");
            }
        }
        device.close();
        Ok(())
    }
}

impl Handler<DescribeDevice> for DeviceOwner {
    type Reply = String;

    async fn handle(&mut self, _: DescribeDevice, _: &mut Context<Self, Self::Reply>) -> String {
        serde_json::json!({
            "device": self.choice.describe(self.device.as_ref()),
            "traces": self.lanes.iter().map(|lane| lane.trace.describe()).collect::<Vec<_>>(),
        })
        .to_string()
    }
}

impl DeviceOwner {
    fn open(
        open: OpenDevice,
        input: Receiver<Sample<Prepared>>,
        outputs: Vec<(Sender<Sample<Inferred>>, usize)>,
        input_slots: usize,
        ledger: Arc<Ledger>,
        clock: MonotonicClock,
        shutdown: Shutdown,
    ) -> Result<(Self, OwnerReady), RuntimeError> {
        let (opened, traces) = open()?;
        let OpenedDevice { mut device, choice } = opened;
        let completed = Arc::new(Notify::new());
        let hook = Arc::clone(&completed);
        device.set_completion_hook(Arc::new(move || hook.notify_one()));
        let mut pool = |count: usize, bytes: usize| -> Result<SlotPool, RuntimeError> {
            let slots: Result<Vec<_>, _> = (0..count).map(|_| device.host_slot(bytes)).collect();
            Ok(SlotPool::new(
                slots.map_err(|e| RuntimeError::Device(e.to_string()))?,
            ))
        };
        let mut input_pools = Vec::with_capacity(traces.len());
        let mut lanes = Vec::with_capacity(traces.len());
        for (trace, (results, output_slots)) in traces.into_iter().zip(outputs) {
            input_pools.push(pool(input_slots, trace.input_bytes())?);
            let output_slots = pool(output_slots, trace.output_bytes())?;
            lanes.push(Lane {
                trace,
                results,
                output_slots,
            });
        }
        let caps = device.caps();
        let told = OwnerReady {
            input_pools,
            device: format!("{choice}: {}", caps.description),
            device_details: choice.describe(device.as_ref()),
        };
        let depth = if caps.queues == 1 { 1 } else { FRAMES_UNDER_WAY };
        let owner = Self {
            device,
            choice,
            lanes,
            input,
            held: None,
            flights: VecDeque::with_capacity(FRAMES_UNDER_WAY),
            last_replay_ns: 0,
            depth,
            exhausted: false,
            completed,
            ledger,
            clock,
            shutdown,
        };
        Ok((owner, told))
    }

    fn take_up(&mut self, sample: Sample<Prepared>) {
        if self.shutdown.is_aborting() {
            self.ledger
                .frame_dropped(sample.meta.id, NAME, DropReason::ShuttingDown);
            return;
        }
        match self.lanes[sample.payload.detector].output_slots.try_take() {
            Some(slot) => self.submit(sample, slot),
            None => self.held = Some(sample),
        }
    }

    /// Enqueues upload and replay of a frame.
    fn submit(&mut self, sample: Sample<Prepared>, output: PooledSlot) {
        let (
            Sample {
                mut meta, message, ..
            },
            Prepared {
                detector: lane,
                input,
                placement,
            },
        ) = sample.replace(());
        meta.times.begin(Stage::Upload, self.clock.now_ns());
        let enqueued = self.lanes[lane].trace.submit(self.device.as_mut(), &input);
        match enqueued {
            Ok((uploaded, pending)) => self.flights.push_back(Flight {
                lane,
                meta,
                message,
                placement,
                input: Some(input),
                uploaded_ns: 0,
                output,
                uploaded,
                pending,
                read: None,
                submitted: Instant::now(),
            }),
            Err(error) => {
                self.ledger.frame_dropped(meta.id, NAME, DropReason::DeviceError);
                self.refused(&error);
            }
        }
    }

    /// Looks at every frame on the device, oldest first, and does what has become possible.
    fn advance(&mut self) {
        let mut index = 0;
        while index < self.flights.len() {
            match self.advance_flight(index) {
                // Only the oldest may leave, so that frames keep their order.
                Ok(true) if index == 0 => {
                    if let Some(flight) = self.flights.pop_front() {
                        self.deliver(flight);
                    }
                }
                Ok(_) => index += 1,
                Err(error) => {
                    if let Some(flight) = self.flights.remove(index) {
                        self.ledger
                            .frame_dropped(flight.meta.id, NAME, DropReason::DeviceError);
                    }
                    self.refused(&error);
                }
            }
        }
    }

    /// Whether the frame's output has arrived on the host.
    fn advance_flight(&mut self, index: usize) -> Result<bool, TraceError> {
        let device = self.device.as_mut();
        let flight = &mut self.flights[index];
        let trace = &mut self.lanes[flight.lane].trace;
        if flight.input.is_some() && trace.completed(device, flight.uploaded)? {
            flight.uploaded_ns = self.clock.now_ns();
            flight.meta.times.end(Stage::Upload, flight.uploaded_ns);
            flight.input = None;
        }
        if flight.read.is_none() && trace.completed(device, flight.pending.done)? {
            let now_ns = self.clock.now_ns();
            // Replays run one after another: this one began when its data was there and the last one over.
            flight
                .meta
                .times
                .begin(Stage::Replay, flight.uploaded_ns.max(self.last_replay_ns));
            flight.meta.times.end(Stage::Replay, now_ns);
            self.last_replay_ns = now_ns;
            flight.meta.times.begin(Stage::Readback, now_ns);
            flight.read = Some(trace.read(device, flight.pending, &mut flight.output)?);
        }
        let Some(read) = flight.read else { return Ok(false) };
        if !trace.completed(device, read)? {
            return Ok(false);
        }
        flight.meta.times.end(Stage::Readback, self.clock.now_ns());
        Ok(true)
    }

    fn deliver(&self, flight: Flight) {
        let Flight {
            lane,
            meta,
            message,
            placement,
            output,
            ..
        } = flight;
        let id = meta.id;
        let sample = Sample {
            meta,
            message,
            payload: Inferred { output, placement },
        };
        // There are no more output slots than places in the channel, so it is full only if it is closed.
        if self.lanes[lane].results.try_send(sample).is_err() {
            self.ledger.frame_dropped(id, NAME, DropReason::ShuttingDown);
        }
    }

    /// After an error of the device: ends the run if the device is gone.
    fn refused(&mut self, error: &TraceError) {
        tracing::error!(%error, "the device refused a frame");
        if self.device.health() != DeviceHealth::Healthy {
            self.fail(error.to_string());
        }
    }

    fn fail(&mut self, reason: String) {
        for flight in std::mem::take(&mut self.flights) {
            self.ledger
                .frame_dropped(flight.meta.id, NAME, DropReason::DeviceError);
        }
        self.shutdown.fail(RuntimeError::Device(reason));
    }
}

impl fmt::Debug for DeviceOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceOwner")
            .field("lanes", &self.lanes.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for OwnerArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnerArgs")
            .field("detectors", &self.outputs.len())
            .finish_non_exhaustive()
    }
}

async fn take_slot(pool: Option<&SlotPool>) -> Option<PooledSlot> {
    match pool {
        Some(pool) => pool.take().await,
        None => None,
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    if let Some(deadline) = deadline {
        tokio::time::sleep_until(deadline.into()).await;
    }
}
