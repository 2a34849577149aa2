//! What the parts of a run tell of themselves, in one place.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use kameo::actor::{ActorRef, WeakActorRef};
use serde_json::{Map, Value};
use tokio::sync::watch;

use super::params::LiveParams;
use super::pulse::Pulse;
use super::status::{DeviceStatus, PipelineStatus, QueueStatus, RunPhase, StageStatus, StreamStatus};
use super::streams::{Places, StreamFlow, StreamSwitch};
use crate::perception::HostModel;
use crate::pipeline::Pipeline;
use crate::runtime::channel::Gauge;
use crate::runtime::health::{Health, HealthReport, Lateness, Punctuality, Reason, ReasonKind};
use crate::runtime::owner::DeviceOwner;
use crate::runtime::shutdown::Shutdown;
use crate::runtime::sink_desk::SinkDesk;
use crate::runtime::source::{OutletLink, TopicDesk};
use crate::telemetry::{Ledger, MonotonicClock, StreamId};

/// A run, as those see it who tell of it and change it.
#[derive(Debug, Clone)]
pub(crate) struct RunLink {
    /// Name of the pipeline.
    pub pipeline: String,
    /// Clock of the run.
    pub clock: MonotonicClock,
    /// Accounts of streams.
    pub ledger: Arc<Ledger>,
    /// End of the run.
    pub shutdown: Shutdown,
    /// Nothing may be dropped, so nothing may be changed.
    pub lossless: bool,
}

/// A source that streams can be added to.
#[derive(Debug, Clone)]
pub(crate) struct SourceLink {
    /// Name of the node.
    pub node: Arc<str>,
    /// Decides which topics it plays.
    pub desk: Arc<dyn TopicDesk>,
    /// The detectors behind it.
    pub outlets: Vec<OutletLink>,
}

/// A detector, as those see it who set its parameters and end its streams.
#[derive(Debug, Clone)]
pub(crate) struct DetectorLink {
    /// Name of the node.
    pub node: Arc<str>,
    /// Parameters that may be set.
    pub params: Arc<LiveParams>,
    /// Places of its model.
    pub places: Arc<Places>,
    /// What keeps earlier frames of streams on the host.
    pub model: Arc<dyn HostModel>,
}

/// A channel whose filling is told.
#[derive(Debug)]
struct Queue {
    from: String,
    to: String,
    gauge: Gauge,
}

/// Told by the parts of a run, read by [`super::Control`].
#[derive(Debug)]
pub(crate) struct Board {
    /// A run has this board, and no other one gets it.
    claimed: OnceLock<()>,
    run: OnceLock<RunLink>,
    over: OnceLock<()>,
    device: OnceLock<String>,
    health: Mutex<Health>,
    told: watch::Sender<HealthReport>,
    /// The pipeline as it runs, with the changes that were taken over.
    current: tokio::sync::Mutex<Option<Pipeline>>,
    lateness: Mutex<Lateness>,
    parts: Mutex<Parts>,
}

#[derive(Debug, Default)]
struct Parts {
    pulses: Vec<Arc<Pulse>>,
    streams: Vec<Arc<StreamSwitch>>,
    queues: Vec<Queue>,
    detectors: Vec<DetectorLink>,
    owner: Option<WeakActorRef<DeviceOwner>>,
    sources: Vec<SourceLink>,
    sinks: Weak<SinkDesk>,
}

impl Default for Board {
    fn default() -> Self {
        let health = Health::default();
        let (told, _) = watch::channel(health.report());
        Self {
            claimed: OnceLock::new(),
            run: OnceLock::new(),
            over: OnceLock::new(),
            device: OnceLock::new(),
            health: Mutex::new(health),
            told,
            current: tokio::sync::Mutex::default(),
            lateness: Mutex::default(),
            parts: Mutex::default(),
        }
    }
}

impl Board {
    /// Takes the board for a run that is about to begin. `false` if another run has it, or had it.
    pub(crate) fn claim(&self) -> bool {
        self.claimed.set(()).is_ok()
    }

    /// The run that claimed the board begins.
    pub(crate) fn begin(&self, run: RunLink) {
        // A board is claimed once, and its run begins once.
        let _ = self.run.set(run);
    }

    /// The run, once it has begun.
    pub(crate) fn run(&self) -> Option<&RunLink> {
        self.run.get()
    }

    /// The run, while it lasts.
    pub(crate) fn lasting(&self) -> Option<&RunLink> {
        self.run.get().filter(|_| self.over.get().is_none())
    }

    /// The pipeline as it runs. Held while it is changed.
    pub(crate) const fn current(&self) -> &tokio::sync::Mutex<Option<Pipeline>> {
        &self.current
    }

    /// Nanoseconds of the run's clock; 0 before the run.
    pub(crate) fn now_ns(&self) -> u64 {
        self.run.get().map_or(0, |run| run.clock.now_ns())
    }

    /// Everything has been started.
    pub(crate) fn started(&self) {
        self.change(|health, now_ns| health.started(now_ns));
    }

    /// A reason holds from now on.
    pub(crate) fn raise(&self, reason: Reason) {
        let text = reason.to_string();
        let (kind, subject) = reason.about();
        let subject = subject.to_owned();
        if self.change(|health, now_ns| health.raise(reason, now_ns)) {
            tracing::warn!(reason = ?kind, subject, "degraded: {text}");
        }
    }

    /// A reason holds no more.
    pub(crate) fn clear(&self, kind: ReasonKind, subject: &str) {
        if self.change(|health, now_ns| health.clear(kind, subject, now_ns)) {
            tracing::info!(reason = ?kind, subject, "no longer degraded by this");
        }
    }

    /// The run ends because of an error.
    pub(crate) fn fail(&self, error: &dyn std::error::Error) {
        self.change(|health, now_ns| health.fail(error.to_string(), now_ns));
    }

    /// Whether the run is over, also one that never began.
    pub(crate) fn is_over(&self) -> bool {
        self.over.get().is_some()
    }

    /// The run is over.
    pub(crate) fn end(&self) {
        // A second end tells nothing new.
        let _ = self.over.set(());
        let report = self.health().report();
        self.told.send_replace(report);
        let mut parts = self.parts();
        *parts = Parts {
            streams: std::mem::take(&mut parts.streams),
            pulses: std::mem::take(&mut parts.pulses),
            ..Parts::default()
        };
    }

    /// Told of every change of the state.
    pub(crate) fn subscribe(&self) -> watch::Receiver<HealthReport> {
        self.told.subscribe()
    }

    /// The device is open.
    pub(crate) fn device_opened(&self, name: &str) {
        // It is the same device after a restart.
        let _ = self.device.set(name.to_owned());
    }

    /// Takes note of an actor.
    pub(crate) fn add_pulse(&self, pulse: &Arc<Pulse>) {
        self.parts().pulses.push(Arc::clone(pulse));
    }

    /// Forgets an actor that is not there any more.
    pub(crate) fn remove_pulse(&self, actor: &str) {
        self.parts().pulses.retain(|pulse| **pulse.actor() != *actor);
    }

    /// Takes note of a channel.
    pub(crate) fn add_queue(&self, from: &str, to: &str, gauge: Gauge) {
        self.parts().queues.push(Queue {
            from: from.to_owned(),
            to: to.to_owned(),
            gauge,
        });
    }

    /// Forgets the channels into an actor that is not there any more.
    pub(crate) fn remove_queues_into(&self, actor: &str) {
        self.parts().queues.retain(|queue| queue.to != actor);
    }

    /// Takes note of a stream.
    pub(crate) fn add_stream(&self, stream: &Arc<StreamSwitch>) {
        self.parts().streams.push(Arc::clone(stream));
    }

    /// Forgets a stream that was drained, and what was told of it.
    pub(crate) fn remove_stream(&self, stream: &StreamSwitch) {
        // Its last results are still being measured.
        self.lateness().forget(stream.id);
        self.parts().streams.retain(|known| known.id != stream.id);
        for kind in [
            ReasonKind::SourceSilent,
            ReasonKind::DeadlineMisses,
            ReasonKind::StreamRejected,
            ReasonKind::ClockJump,
        ] {
            self.clear(kind, &stream.name);
        }
    }

    /// Takes note of a detector.
    pub(crate) fn add_detector(&self, detector: DetectorLink) {
        self.parts().detectors.push(detector);
    }

    /// Takes note of who owns the device.
    pub(crate) fn set_owner(&self, owner: &ActorRef<DeviceOwner>) {
        self.parts().owner = Some(owner.downgrade());
    }

    /// Takes note of a source.
    pub(crate) fn add_source(&self, source: SourceLink) {
        self.parts().sources.push(source);
    }

    /// Takes note of who opens and closes sinks.
    pub(crate) fn set_sinks(&self, sinks: &Arc<SinkDesk>) {
        self.parts().sinks = Arc::downgrade(sinks);
    }

    /// The actors.
    pub(crate) fn pulses(&self) -> Vec<Arc<Pulse>> {
        self.parts().pulses.clone()
    }

    /// Whether an actor is still watched.
    pub(crate) fn has_pulse(&self, pulse: &Arc<Pulse>) -> bool {
        self.parts().pulses.iter().any(|known| Arc::ptr_eq(known, pulse))
    }

    /// The streams.
    pub(crate) fn streams(&self) -> Vec<Arc<StreamSwitch>> {
        self.parts().streams.clone()
    }

    /// The detectors.
    pub(crate) fn detectors(&self) -> Vec<DetectorLink> {
        self.parts().detectors.clone()
    }

    /// The detector of this name.
    pub(crate) fn detector(&self, node: &str) -> Option<DetectorLink> {
        let parts = self.parts();
        parts.detectors.iter().find(|known| *known.node == *node).cloned()
    }

    /// Who owns the device, while there is one.
    pub(crate) fn owner(&self) -> Option<ActorRef<DeviceOwner>> {
        self.parts().owner.as_ref()?.upgrade()
    }

    /// The sources.
    pub(crate) fn sources(&self) -> Vec<SourceLink> {
        self.parts().sources.clone()
    }

    /// Who opens and closes sinks, while the run lasts.
    pub(crate) fn sinks(&self) -> Option<Arc<SinkDesk>> {
        self.parts().sinks.upgrade()
    }

    /// The run as it is now.
    pub(crate) fn status(&self) -> PipelineStatus {
        let now_ns = self.now_ns();
        let health = self.health().report();
        let run = self.run.get();
        let parts = self.parts();
        let accounts = run.map_or_else(Vec::new, |run| run.ledger.accounts());
        let streams = parts.streams.iter().map(|stream| {
            let account = accounts.iter().find(|account| account.stream == stream.id);
            StreamStatus {
                name: stream.name.to_string(),
                source: stream.source.to_string(),
                detector: stream.detector.to_string(),
                topic: stream.topic.to_string(),
                flow: stream.flow(),
                rejected: stream.is_rejected(),
                frames_in: account.map_or(0, |account| account.frames_in),
                frames_out: account.map_or(0, |account| account.frames_out),
                dropped: account.map_or(0, |account| account.dropped()),
                under_way: account.map_or(0, |account| account.open),
                silent_ns: stream.last_arrival_ns().map(|at_ns| now_ns.saturating_sub(at_ns)),
            }
        });
        let stages = parts.pulses.iter().map(|pulse| StageStatus {
            actor: pulse.actor().to_string(),
            done: pulse.done(),
            holding_ns: pulse.holding_ns(),
            restarts: pulse.restarts(),
            worker_panics: pulse.panics(),
        });
        let queues = parts.queues.iter().filter_map(|queue| {
            Some(QueueStatus {
                from: queue.from.clone(),
                to: queue.to.clone(),
                len: queue.gauge.len()?,
                capacity: queue.gauge.capacity(),
            })
        });
        let set = parts.detectors.iter().filter_map(|detector| {
            let given = detector.params.given();
            (!given.is_empty()).then(|| (detector.node.to_string(), Value::Object(given)))
        });
        PipelineStatus {
            pipeline: run.map_or_else(String::new, |run| run.pipeline.clone()),
            health,
            phase: self.phase(),
            uptime_ns: now_ns,
            streams: streams.collect(),
            stages: stages.collect(),
            queues: queues.collect(),
            device: self.device.get().map(|name| DeviceStatus {
                name: name.clone(),
                restarts: run.map_or(0, |run| run.ledger.device_restarts()),
            }),
            parameters: Map::from_iter(set),
        }
    }

    fn phase(&self) -> RunPhase {
        match self.run.get() {
            _ if self.is_over() => RunPhase::Over,
            None => RunPhase::Waiting,
            Some(run) if run.shutdown.is_aborting() => RunPhase::Aborting,
            Some(run) if run.shutdown.is_draining() => RunPhase::Draining,
            Some(_) => RunPhase::Running,
        }
    }

    /// Changes the state and tells of it; whether anything changed.
    fn change(&self, change: impl FnOnce(&mut Health, u64) -> bool) -> bool {
        let mut health = self.health();
        let changed = change(&mut health, self.now_ns());
        if changed {
            // Under the lock, so that changes are told in their order.
            self.told.send_replace(health.report());
        }
        changed
    }

    fn lateness(&self) -> MutexGuard<'_, Lateness> {
        self.lateness.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Board {
    /// Notes whether a result of a stream was late; says when its results begin to be late, and when they no longer are.
    pub(crate) fn judge(&self, (stream, name): (StreamId, &str), late: bool) {
        // Under the lock, so that nothing is told of a stream any more once it is forgotten.
        let mut lateness = self.lateness();
        match lateness.note(stream, late) {
            Some(Punctuality::Late(percent)) => self.raise(Reason::DeadlineMisses {
                stream: name.to_owned(),
                percent,
            }),
            Some(Punctuality::Punctual) => self.clear(ReasonKind::DeadlineMisses, name),
            None => {}
        }
    }

    /// Whether a stream has a place at the model that it goes to; says so when that changes.
    pub(crate) fn has_place(&self, places: &Places, stream: &StreamSwitch) -> bool {
        let placed = places.take(stream.id);
        if stream.set_rejected(!placed) {
            if placed {
                self.clear(ReasonKind::StreamRejected, &stream.name);
            } else {
                let stream = stream.name.to_string();
                self.raise(Reason::StreamRejected { stream });
            }
        }
        placed
    }

    /// Streams that flow and are silent for longer than `limit_ns`, and those that are not.
    pub(crate) fn silent_streams(
        &self,
        limit_ns: u64,
        over: impl Fn(&str) -> bool,
    ) -> Vec<(Arc<StreamSwitch>, bool)> {
        let now_ns = self.now_ns();
        let watched = self.streams().into_iter().filter(|stream| stream.timed);
        let judged = watched.map(|stream| {
            let since_ns = now_ns.saturating_sub(stream.last_arrival_ns().unwrap_or(0));
            let silent = stream.flow() == StreamFlow::Flowing && since_ns > limit_ns && !over(&stream.source);
            (stream, silent)
        });
        judged.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Streams;

    #[test]
    fn results_that_are_measured_after_their_stream_was_drained_make_nothing_late() {
        let board = Board::default();
        let id = Streams::default().register("front");
        let name: Arc<str> = "front".into();
        let stream = || {
            let ends = ["camera", "detector", "front"].map(Arc::from);
            StreamSwitch::new((id, Arc::clone(&name)), ends, false)
        };
        let late = |count: u32| (0..count).for_each(|_| board.judge((id, &name), true));
        let reasons = || board.status().health.reasons.len();
        late(127);
        board.remove_stream(&stream());
        late(1);
        assert_eq!(reasons(), 0);
        late(127);
        assert_eq!(reasons(), 1, "what comes back is judged by its own results");
        board.remove_stream(&stream());
        assert_eq!(reasons(), 0);
    }
}
