//! What an actor tells of itself, and the faults that are injected into it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::pipeline::{ActorFault, ActorFaultKind, SupervisionSettings};
use crate::runtime::control::{Board, Holding, Pulse};
use crate::runtime::health::{Reason, ReasonKind};
use crate::telemetry::MonotonicClock;

/// One actor's ties to the supervision of the run. Clones are of the same actor.
#[derive(Debug, Clone)]
pub(crate) struct ActorWatch {
    board: Arc<Board>,
    pulse: Arc<Pulse>,
    /// Longest time that it may be at one frame.
    limit: Option<Duration>,
    faults: Arc<Faults>,
}

#[derive(Debug, Default)]
struct Faults {
    faults: Vec<ActorFault>,
    /// Frames that the actor has met, and its workers.
    actor: AtomicU64,
    workers: AtomicU64,
}

/// Where a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Site {
    Actor,
    Workers,
}

impl ActorWatch {
    /// The ties of an actor of a run.
    pub(crate) fn new(board: &Arc<Board>, pulse: Arc<Pulse>, settings: &SupervisionSettings) -> Self {
        let of_actor = settings
            .fault
            .iter()
            .filter(|fault| *fault.actor == **pulse.actor());
        let faults = Faults {
            faults: of_actor.cloned().collect(),
            ..Faults::default()
        };
        Self {
            board: Arc::clone(board),
            limit: (settings.watchdog_ms > 0).then(|| Duration::from_millis(settings.watchdog_ms.into())),
            faults: Arc::new(faults),
            pulse,
        }
    }

    /// The ties of an actor that nobody watches.
    pub(crate) fn none(actor: &str) -> Self {
        let settings = SupervisionSettings {
            watchdog_ms: 0,
            ..SupervisionSettings::default()
        };
        let pulse = Pulse::new(actor, MonotonicClock::start());
        Self::new(&Arc::default(), pulse, &settings)
    }

    /// Its signs of life.
    pub(crate) const fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }

    /// Work on a frame begins.
    pub(crate) fn begin(&self) -> Holding {
        self.pulse.begin()
    }

    /// Longest time that it may be at one frame.
    pub(crate) const fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// A reason holds from now on.
    pub(crate) fn raise(&self, reason: Reason) {
        self.board.raise(reason);
    }

    /// A reason that is about the actor holds no more.
    pub(crate) fn clear(&self, kind: ReasonKind) {
        self.board.clear(kind, self.pulse.actor());
    }

    /// The actor itself meets its next frame. Panics or waits if the pipeline file says so; `true` if it says that
    /// writing fails.
    pub(crate) async fn actor_meets_frame(&self) -> bool {
        let mut fails = false;
        for fault in self.due(Site::Actor) {
            match fault.kind {
                ActorFaultKind::Stall => tokio::time::sleep(stall_of(fault)).await,
                ActorFaultKind::Fail => fails = true,
                _ => injected(fault),
            }
        }
        fails
    }

    /// A worker of the actor meets its next frame. Panics or stands still if the pipeline file says so.
    pub(crate) fn worker_meets_frame(&self) {
        for fault in self.due(Site::Workers) {
            match fault.kind {
                ActorFaultKind::Stall => std::thread::sleep(stall_of(fault)),
                _ => injected(fault),
            }
        }
    }

    /// The faults that strike at the next frame.
    fn due(&self, site: Site) -> impl Iterator<Item = &ActorFault> {
        let met = match (self.faults.faults.is_empty(), site) {
            (true, _) => 0,
            (false, Site::Actor) => self.faults.actor.fetch_add(1, Ordering::Relaxed) + 1,
            (false, Site::Workers) => self.faults.workers.fetch_add(1, Ordering::Relaxed) + 1,
        };
        self.faults.faults.iter().filter(move |fault| {
            let first = u64::from(fault.nth);
            site_of(fault, self.pulse.actor()) == site
                && (first..first + u64::from(fault.times)).contains(&met)
        })
    }
}

/// A stage stalls in its workers, everything else in itself.
fn site_of(fault: &ActorFault, actor: &str) -> Site {
    match fault.kind {
        ActorFaultKind::WorkerPanic => Site::Workers,
        ActorFaultKind::Stall if actor.contains('/') => Site::Workers,
        _ => Site::Actor,
    }
}

fn stall_of(fault: &ActorFault) -> Duration {
    Duration::from_millis(fault.for_ms.into())
}

#[expect(clippy::panic, reason = "it is asked for")]
fn injected(fault: &ActorFault) {
    panic!("the pipeline file injects a fault into {}", fault.actor);
}
