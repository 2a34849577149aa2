//! The device owner: the only one that touches the device.
//!
//! - [`schedule`]: which of the frames that are ready goes next
//! - `flights`: frames on the device, from upload to read
//! - `recovery`: what becomes of them when the device is lost, and how it is opened again

mod flights;
mod recovery;
pub mod schedule;

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kameo::actor::{ActorRef, WeakActorRef};
use kameo::mailbox::{MailboxReceiver, Signal};
use kameo::message::{Context, Message as Handler};
use tokio::sync::{Notify, oneshot};

use self::flights::{Flight, Member};
use self::recovery::{Outage, Recovery, close_in_time};
use self::schedule::{LaneRules, Order, Schedule};
use super::RuntimeError;
use super::channel::{Receiver, Sender};
use super::control::Board;
use super::frame::{Inferred, Prepared, Sample};
use super::shutdown::Shutdown;
use super::slots::{PooledSlot, SlotPool};
use crate::device::{Device, DeviceChoice, OpenedDevice};
use crate::perception::ModelTrace;
use crate::pipeline::RestartSettings;
use crate::telemetry::live::Live;
use crate::telemetry::{DropReason, Ledger, MonotonicClock, StreamId};

/// Frames, or batches, between upload and read at a time: one replays while the next one uploads.
pub(crate) const FRAMES_UNDER_WAY: usize = 2;

/// Name in accounts, logs and errors.
const NAME: &str = "device";

/// How often slots are looked at that a refused frame left with the device: no event tells when they are free.
const SLOT_POLL: Duration = Duration::from_millis(1);

/// Opens the device and builds the traces of all detectors, on the owner's thread. Called again when the device
/// was lost.
pub(crate) type OpenDevice = Box<dyn FnMut() -> Result<(OpenedDevice, Vec<ModelTrace>), OpenFailure> + Send>;

/// Why there is no device that is ready for frames.
#[derive(Debug)]
pub(crate) struct OpenFailure {
    /// What went wrong.
    pub reason: String,
    /// The device was there and was lost on the way; everything else would go wrong again.
    pub lost: bool,
}

/// What the owner needs to start.
pub(crate) struct OwnerArgs {
    /// Opens the device.
    pub open: OpenDevice,
    /// Prepared frames of all detectors.
    pub input: Receiver<Sample<Prepared>>,
    /// The detectors.
    pub lanes: Vec<LaneArgs>,
    /// What decides which frame goes next.
    pub order: Order,
    /// Told once the device is open: the input pools of each detector.
    pub ready: oneshot::Sender<Result<OwnerReady, RuntimeError>>,
    /// Longest time that a frame may spend on the device before the device counts as hung.
    pub frame_deadline: Duration,
    /// How often a lost device is opened again.
    pub restart: RestartSettings,
    /// Accounts.
    pub ledger: Arc<Ledger>,
    /// Told what the device's queues do.
    pub live: Live,
    /// Clock of the run.
    pub clock: MonotonicClock,
    /// End of the run.
    pub shutdown: Shutdown,
    /// Told of losses.
    pub board: Arc<Board>,
}

/// One detector.
pub(crate) struct LaneArgs {
    /// Name of the detector.
    pub detector: String,
    /// Where results go.
    pub results: Sender<Sample<Inferred>>,
    /// Output slots, no more than there are places for results.
    pub output_slots: usize,
    /// Slots of each input: every frame that is ready holds one of each, so no more are ever ready.
    pub input_slots: usize,
    /// Longest time that a frame waits for others of its batch.
    pub batch_timeout: Duration,
    /// Whether frames are dropped whose deadline passes before they are on the device.
    pub drop_late: bool,
}

/// What the owner tells when it is ready.
#[derive(Debug)]
pub(crate) struct OwnerReady {
    /// Input slots of each detector, one pool an input.
    pub input_pools: Vec<Vec<SlotPool>>,
    /// Backend and description of the device.
    pub device: String,
    /// The device in numbers.
    pub device_details: serde_json::Value,
}

/// Where one detector's results go. It outlives the device, and so do its slots: they are plain host memory.
#[derive(Debug)]
struct Lane {
    /// Name of the detector.
    detector: String,
    results: Sender<Sample<Inferred>>,
    output_slots: SlotPool,
}

/// An open device with the traces of all detectors.
struct Bench {
    device: Box<dyn Device>,
    choice: DeviceChoice,
    /// One a lane.
    traces: Vec<ModelTrace>,
    /// Frames under way at a time: on one queue nothing overlaps.
    depth: usize,
}

/// Whether there is a device.
enum State {
    /// It is open.
    Up(Bench),
    /// It was lost and will be opened again.
    Down(Outage),
    /// There will be none any more: frames that still come are dropped.
    Gone,
}

/// The actor. Runs on a thread of its own and never waits while work is ready: uploads, replays and reads
/// complete by events, and an event's completion wakes it.
pub(crate) struct DeviceOwner {
    open: OpenDevice,
    state: State,
    recovery: Recovery,
    lanes: Vec<Lane>,
    input: Receiver<Sample<Prepared>>,
    /// Taken from the channel, not on the device yet.
    ready: Schedule<Sample<Prepared>>,
    /// What goes to the device next; empty in between.
    chosen: Vec<Sample<Prepared>>,
    flights: VecDeque<Flight>,
    /// Memory of flights that ended.
    spare: Vec<Vec<Member>>,
    /// Frames that were in a replay with others.
    frames_together: u64,
    /// Slots of frames that ended on the way. They go back to their pools once the device has let go of them.
    returning: Vec<PooledSlot>,
    /// Streams that had a result from the device as it is open now.
    known: HashSet<StreamId>,
    /// End of the last replay; the next one started no earlier.
    last_replay_ns: u64,
    exhausted: bool,
    /// The device got on, or a result's slot came back.
    woken: Arc<Notify>,
    frame_deadline: Duration,
    ledger: Arc<Ledger>,
    live: Live,
    clock: MonotonicClock,
    shutdown: Shutdown,
    board: Arc<Board>,
}

/// Asks the owner what it runs; answered as JSON text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DescribeDevice;

/// Gives up what the device keeps of a stream that has ended: it has no frame under way.
#[derive(Debug)]
pub(crate) struct ForgetStream {
    /// The detector that it went to.
    pub detector: Arc<str>,
    /// The stream.
    pub stream: StreamId,
}

impl kameo::Actor for DeviceOwner {
    type Args = OwnerArgs;
    type Error = RuntimeError;

    async fn on_start(args: OwnerArgs, _: ActorRef<Self>) -> Result<Self, RuntimeError> {
        match Self::start(args).await {
            Ok((owner, ready, told)) => {
                // Nobody listens only if the run was given up meanwhile.
                let _ = ready.send(Ok(told));
                Ok(owner)
            }
            Err((error, ready)) => {
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
            self.fill();
            if self.exhausted && self.flights.is_empty() && self.ready.is_empty() {
                return Ok(Some(Signal::Stop));
            }
            let wants_frames = !self.exhausted && !self.ready.is_full();
            match &self.state {
                State::Up(_) => {
                    let (overdue, batch_due) = (self.overdue(), self.batch_due());
                    tokio::select! {
                        biased;
                        signal = mailbox.recv() => return Ok(signal),
                        () = self.woken.notified() => {}
                        // What is ready is dropped then.
                        () = self.shutdown.aborting(), if !self.ready.is_empty() => {}
                        sample = self.input.recv(), if wants_frames => match sample {
                            Some(sample) => self.take_up(sample),
                            None => self.exhausted = true,
                        },
                        () = tokio::time::sleep(SLOT_POLL), if !self.returning.is_empty() => {}
                        () = sleep_until(batch_due), if batch_due.is_some() => {}
                        () = sleep_until(overdue), if overdue.is_some() => {}
                    }
                }
                State::Down(outage) => {
                    let reopen_at = outage.reopen_at;
                    tokio::select! {
                        biased;
                        signal = mailbox.recv() => return Ok(signal),
                        () = self.shutdown.draining() => self.stand_down(),
                        sample = self.input.recv(), if wants_frames => match sample {
                            Some(sample) => self.take_up(sample),
                            None => self.exhausted = true,
                        },
                        () = sleep_until(Some(reopen_at)) => self.reopen(),
                    }
                }
                State::Gone => tokio::select! {
                    biased;
                    signal = mailbox.recv() => return Ok(signal),
                    sample = self.input.recv(), if !self.exhausted => match sample {
                        Some(sample) => self.turn_away(&sample),
                        None => self.exhausted = true,
                    },
                },
            }
        }
    }

    async fn on_stop(
        &mut self,
        _: WeakActorRef<Self>,
        _: kameo::error::ActorStopReason,
    ) -> Result<(), RuntimeError> {
        if self.frames_together > 0 {
            tracing::info!(
                frames_together = self.frames_together,
                "frames that shared a replay"
            );
        }
        // Empty after a normal end; whatever else stopped this actor, no frame goes unaccounted.
        for flight in std::mem::take(&mut self.flights) {
            self.abandon(flight, DropReason::ShuttingDown);
        }
        let ready = std::iter::from_fn(|| self.ready.take_any());
        for sample in ready.chain(std::iter::from_fn(|| self.input.try_recv())) {
            self.ledger
                .frame_dropped(sample.meta.id, NAME, DropReason::ShuttingDown);
        }
        if let State::Up(mut bench) = std::mem::replace(&mut self.state, State::Gone) {
            for trace in &mut bench.traces {
                if let Err(error) = trace.release(bench.device.as_mut()) {
                    tracing::warn!(%error, "releasing a trace failed");
                }
            }
            if !close_in_time(bench.device) {
                tracing::warn!("the device did not close");
            }
        }
        Ok(())
    }
}

impl Handler<DescribeDevice> for DeviceOwner {
    type Reply = String;

    async fn handle(&mut self, _: DescribeDevice, _: &mut Context<Self, Self::Reply>) -> String {
        let (device, traces) = match &self.state {
            State::Up(bench) => (
                bench.choice.describe(bench.device.as_ref()),
                bench.traces.iter().map(ModelTrace::describe).collect(),
            ),
            State::Down(_) | State::Gone => (serde_json::Value::Null, Vec::new()),
        };
        serde_json::json!({
            "device": device,
            "traces": traces,
            "restarts": self.ledger.device_restarts(),
        })
        .to_string()
    }
}

impl Handler<ForgetStream> for DeviceOwner {
    type Reply = ();

    async fn handle(&mut self, forget: ForgetStream, _: &mut Context<Self, Self::Reply>) {
        let ForgetStream { detector, stream } = forget;
        self.known.remove(&stream);
        // A device that is opened again has no states of anybody.
        let State::Up(bench) = &mut self.state else { return };
        let mut lanes = self.lanes.iter().zip(&mut bench.traces);
        if let Some((lane, trace)) = lanes.find(|(lane, _)| *lane.detector == *detector) {
            trace.forget_stream(&self.ledger.streams().name(stream));
            tell_banks(&self.live, lane, trace);
        }
    }
}

/// Who waits for the owner to be ready.
type Waiting = oneshot::Sender<Result<OwnerReady, RuntimeError>>;

impl DeviceOwner {
    async fn start(args: OwnerArgs) -> Result<(Self, Waiting, OwnerReady), (RuntimeError, Waiting)> {
        let OwnerArgs {
            mut open,
            input,
            lanes,
            order,
            ready,
            frame_deadline,
            restart,
            ledger,
            live,
            clock,
            shutdown,
            board,
        } = args;
        let mut recovery = Recovery::new(restart);
        let opened = recovery.open_first(&mut open, &ledger, &shutdown).await;
        let (mut opened, traces) = match opened {
            Ok(opened) => opened,
            Err(error) => return Err((error, ready)),
        };
        let rules: Vec<LaneRules> = lanes
            .iter()
            .zip(&traces)
            .map(|(lane, trace)| lane.rules(trace))
            .collect();
        let woken = Arc::new(Notify::new());
        let (lanes, input_pools) = match pools(opened.device.as_mut(), &traces, lanes, &woken) {
            Ok(pools) => pools,
            Err(error) => return Err((error, ready)),
        };
        let told = OwnerReady {
            input_pools,
            device: format!("{}: {}", opened.choice, opened.device.caps().description),
            device_details: opened.describe(),
        };
        let mut owner = Self {
            open,
            state: State::Gone,
            recovery,
            lanes,
            input,
            ready: Schedule::new(order, &rules),
            chosen: Vec::new(),
            flights: VecDeque::with_capacity(FRAMES_UNDER_WAY),
            spare: Vec::new(),
            frames_together: 0,
            returning: Vec::new(),
            known: HashSet::new(),
            last_replay_ns: 0,
            exhausted: false,
            woken,
            frame_deadline,
            ledger,
            live,
            clock,
            shutdown,
            board,
        };
        owner.put_up(opened, traces);
        Ok((owner, ready, told))
    }

    /// Takes a device into use.
    fn put_up(&mut self, opened: OpenedDevice, traces: Vec<ModelTrace>) {
        let OpenedDevice { mut device, choice } = opened;
        let hook = Arc::clone(&self.woken);
        device.set_completion_hook(Arc::new(move || hook.notify_one()));
        let depth = if device.caps().queues == 1 {
            1
        } else {
            FRAMES_UNDER_WAY
        };
        for (lane, trace) in self.lanes.iter().zip(&traces) {
            tell_banks(&self.live, lane, trace);
        }
        self.state = State::Up(Bench {
            device,
            choice,
            traces,
            depth,
        });
    }

    /// Drops a frame that there is no device for.
    fn turn_away(&self, sample: &Sample<Prepared>) {
        self.ledger
            .frame_dropped(sample.meta.id, NAME, DropReason::ShuttingDown);
    }
}

/// Says how many of a model's state banks are taken, where it has any.
fn tell_banks(live: &Live, lane: &Lane, trace: &ModelTrace) {
    if let Some(banks) = trace.banks() {
        live.banks(&lane.detector, banks.used, banks.max);
    }
}

impl LaneArgs {
    fn rules(&self, trace: &ModelTrace) -> LaneRules {
        LaneRules {
            places: self.input_slots,
            largest_batch: trace.largest_batch(),
            timeout_ns: u64::try_from(self.batch_timeout.as_nanos()).unwrap_or(u64::MAX),
            drop_late: self.drop_late,
        }
    }
}

/// Output slots with each lane, and pools of input slots for each.
fn pools(
    device: &mut dyn Device,
    traces: &[ModelTrace],
    args: Vec<LaneArgs>,
    woken: &Arc<Notify>,
) -> Result<(Vec<Lane>, Vec<Vec<SlotPool>>), RuntimeError> {
    let mut pool = |count: usize, bytes: usize| -> Result<SlotPool, RuntimeError> {
        let slots: Result<Vec<_>, _> = (0..count).map(|_| device.host_slot(bytes)).collect();
        Ok(SlotPool::new(
            slots.map_err(|e| RuntimeError::Device(e.to_string()))?,
        ))
    };
    let mut lanes = Vec::with_capacity(traces.len());
    let mut input_pools = Vec::with_capacity(traces.len());
    for (trace, args) in traces.iter().zip(args) {
        let specs = trace.input_specs().iter();
        let inputs: Result<_, _> = specs.map(|spec| pool(args.input_slots, spec.bytes())).collect();
        input_pools.push(inputs?);
        lanes.push(Lane {
            detector: args.detector,
            results: args.results,
            output_slots: pool(args.output_slots, trace.output_bytes())?.waking(Arc::clone(woken)),
        });
    }
    Ok((lanes, input_pools))
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
            .field("detectors", &self.lanes.len())
            .finish_non_exhaustive()
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    if let Some(deadline) = deadline {
        tokio::time::sleep_until(deadline.into()).await;
    }
}
