//! A run while it runs: how full its queues are, what the device does, how late the last frames were, what was dropped.
//!
//! A [`Live`] is made before the run and handed to it; the parts of the run register with it and tell it what happens.
//! Whoever watches (the metrics, the status page, `sensorium top`) reads it at any time. Telling is cheap and never waits;
//! nothing grows with the length of a run.

mod busy;
mod exposition;
mod process;
mod queue;
mod recent;
mod status;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};

pub use busy::{DeviceGauge, DeviceReading};
pub use exposition::{HISTOGRAMS, describe_metrics};
pub use process::ProcessReading;
pub use queue::{QueueGauge, QueueReading};
pub use recent::{Quantiles, StageReading};
pub use status::{BankReading, LiveStatus, SinkReading, StreamDrops, StreamReading};

use super::trace_file::TraceFile;
use super::{FrameTimes, Ledger, MonotonicClock, StreamId};
use recent::Recent;

/// What a pipeline is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LiveState {
    /// Models are loaded and captured, sources and sinks are opened.
    #[default]
    Starting,
    /// Frames are worked on.
    Ready,
    /// It works, but not as it should.
    Degraded,
    /// It does not work any more.
    Failed,
    /// It came to its end.
    Ended,
}

impl LiveState {
    /// All states.
    pub const ALL: [Self; 5] = [
        Self::Starting,
        Self::Ready,
        Self::Degraded,
        Self::Failed,
        Self::Ended,
    ];

    /// Stable snake-case name, as in metrics and status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
            Self::Ended => "ended",
        }
    }
}

/// What is known of a run while it runs. Clones share it.
#[derive(Clone, Default)]
pub struct Live {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    run: Mutex<Option<RunParts>>,
    queues: Mutex<Vec<Arc<QueueGauge>>>,
    device: DeviceGauge,
    device_name: Mutex<String>,
    banks: Mutex<BTreeMap<String, BankReading>>,
    restarts: Mutex<BTreeMap<String, u64>>,
    state: Mutex<(LiveState, Vec<String>)>,
    recent: Mutex<Recent>,
    misses: Mutex<BTreeMap<StreamId, u64>>,
    trace: OnceLock<Arc<TraceFile>>,
}

/// What a run is made of, once it has begun.
#[derive(Clone)]
struct RunParts {
    pipeline: Arc<str>,
    clock: MonotonicClock,
    frames: Arc<Ledger>,
    results: Arc<Ledger>,
}

impl Live {
    /// One that also has the frames' ways written to a trace.
    #[must_use]
    pub fn traced(trace: Arc<TraceFile>) -> Self {
        let live = Self::default();
        // The cell is empty: it was made in the line before.
        let _ = live.inner.trace.set(trace);
        live
    }

    /// The trace that frames' ways are written to, if any.
    #[must_use]
    pub fn trace(&self) -> Option<&Arc<TraceFile>> {
        self.inner.trace.get()
    }

    /// A run begins: its name, its clock, and its accounts of frames and of results at the sinks. What was told of an
    /// earlier run is forgotten.
    pub fn begin(&self, pipeline: &str, clock: MonotonicClock, frames: &Arc<Ledger>, results: &Arc<Ledger>) {
        lock(&self.inner.queues).clear();
        *lock(&self.inner.recent) = Recent::default();
        lock(&self.inner.misses).clear();
        lock(&self.inner.restarts).clear();
        lock(&self.inner.banks).clear();
        *lock(&self.inner.state) = (LiveState::Starting, Vec::new());
        *lock(&self.inner.run) = Some(RunParts {
            pipeline: pipeline.into(),
            clock,
            frames: Arc::clone(frames),
            results: Arc::clone(results),
        });
    }

    /// Registers a channel between two actors, which tells of itself through the gauge.
    #[must_use]
    pub fn queue(&self, from: &str, to: &str, capacity: usize, clock: MonotonicClock) -> Arc<QueueGauge> {
        let gauge = QueueGauge::new(from, to, capacity, clock, self.trace().cloned());
        let gauge = Arc::new(gauge);
        lock(&self.inner.queues).push(Arc::clone(&gauge));
        gauge
    }

    /// Forgets the channels that lead into an actor or out of it.
    pub fn forget_queues_of(&self, actor: &str) {
        lock(&self.inner.queues).retain(|queue| !queue.joins(actor));
    }

    /// All channels as they are now, in the order in which they were registered.
    #[must_use]
    pub fn queues(&self) -> Vec<QueueReading> {
        lock(&self.inner.queues)
            .iter()
            .map(|queue| queue.read())
            .collect()
    }

    /// Where the device's owner tells what its queues do.
    #[must_use]
    pub fn device(&self) -> &DeviceGauge {
        &self.inner.device
    }

    /// Says in words what the device is.
    pub fn name_device(&self, name: &str) {
        name.clone_into(&mut lock(&self.inner.device_name));
    }

    /// Says how many of a model's state banks are taken.
    pub fn banks(&self, model: &str, used: usize, capacity: usize) {
        let reading = BankReading {
            model: model.to_owned(),
            used,
            capacity,
        };
        lock(&self.inner.banks).insert(model.to_owned(), reading);
    }

    /// An actor was started again.
    pub fn restarted(&self, actor: &str) {
        metrics::counter!("sensorium_actor_restarts_total", "actor" => actor.to_owned()).increment(1);
        *lock(&self.inner.restarts).entry(actor.to_owned()).or_default() += 1;
    }

    /// Says what the pipeline is about, and why.
    pub fn set_state(&self, state: LiveState, reasons: Vec<String>) {
        *lock(&self.inner.state) = (state, reasons);
    }

    /// What the pipeline is about.
    #[must_use]
    pub fn state(&self) -> LiveState {
        lock(&self.inner.state).0
    }

    /// A frame came out.
    pub fn came_out(&self, stream: StreamId, times: &FrameTimes) {
        lock(&self.inner.recent).record(stream.index(), times);
    }

    /// A frame came out after its deadline.
    pub fn missed_deadline(&self, stream: StreamId) {
        *lock(&self.inner.misses).entry(stream).or_default() += 1;
    }

    fn run(&self) -> Option<RunParts> {
        lock(&self.inner.run).clone()
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live")
            .field("state", &self.state())
            .field("queues", &lock(&self.inner.queues).len())
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
