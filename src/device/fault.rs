//! Faults to inject into a device, as plain data.
//!
//! A [`FaultPlan`] says which calls go wrong and how. The simulator takes one in its configuration.
//!
//! ```
//! use sensorium::device::{Cq, Fault, FaultAt, FaultCall, FaultKind, FaultPlan};
//!
//! let plan = FaultPlan {
//!     seed: 7,
//!     faults: vec![
//!         // The third replay is refused.
//!         Fault::new(FaultAt::Nth(3), FaultKind::Refuse(FaultCall::Replay)),
//!         // One event in a hundred on queue 1 is lost.
//!         Fault::new(FaultAt::Chance { per_million: 10_000 }, FaultKind::LoseEvent).on(Cq::IO),
//!     ],
//! };
//! assert_eq!(plan.faults[1].cq, Some(Cq::IO));
//! ```

use super::Cq;
use super::random::SplitMix64;

/// The calls that put something on a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultCall {
    /// Every one of those below.
    Any,
    /// [`super::Device::write`].
    Write,
    /// [`super::Device::read`].
    Read,
    /// [`super::Device::copy`].
    Copy,
    /// [`super::Device::launch`], recorded launches included.
    Launch,
    /// [`super::Device::replay`].
    Replay,
    /// [`super::Device::record_event`].
    RecordEvent,
    /// [`super::Device::wait_event`].
    WaitEvent,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// The call is answered with [`super::DeviceError::QueueFull`] and nothing is enqueued. Counts the calls
    /// given.
    Refuse(FaultCall),
    /// The event never completes: queues that wait for it stand still, a host that waits gets
    /// [`super::DeviceError::Timeout`]. Counts [`super::Device::record_event`].
    LoseEvent,
    /// The event completes with the event before it on its queue, or at once, instead of with the commands since
    /// then: what a recording in the wrong place does. Counts [`super::Device::record_event`].
    EarlyEvent,
    /// The queue does not wait, though the call succeeds: what a forgotten wait does. Counts
    /// [`super::Device::wait_event`].
    IgnoreWait,
    /// The command takes `factor` times as long; with [`FaultAt::From`] the whole queue is slow. Counts every
    /// call that enqueues.
    Slow {
        /// The factor.
        factor: u64,
    },
    /// The trace region has room for the first `launches` launches only: a longer capture ends with
    /// [`super::DeviceError::TraceRegionFull`] and is given up. Counts [`super::Device::end_capture`].
    PartialCapture {
        /// Launches that fit.
        launches: usize,
    },
    /// The device is lost at this call: it, and all calls after it, are answered with
    /// [`super::DeviceError::Lost`]. Counts the calls given.
    LoseDevice(FaultCall),
}

impl FaultKind {
    /// Whether calls of this sort count for this fault.
    fn counts(self, call: FaultCall) -> bool {
        match self {
            Self::Refuse(counted) | Self::LoseDevice(counted) => counted == FaultCall::Any || counted == call,
            Self::LoseEvent | Self::EarlyEvent => call == FaultCall::RecordEvent,
            Self::IgnoreWait => call == FaultCall::WaitEvent,
            Self::Slow { .. } => true,
            Self::PartialCapture { .. } => false,
        }
    }
}

/// Which of the calls that a fault counts are hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultAt {
    /// This one alone, counted from 1.
    Nth(u64),
    /// This one and all after it, counted from 1.
    From(u64),
    /// Each with this probability, drawn from the plan's seed.
    Chance {
        /// Probability in millionths.
        per_million: u32,
    },
}

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fault {
    /// When.
    pub at: FaultAt,
    /// Calls on other queues neither count nor are hit; `None` takes every queue.
    pub cq: Option<Cq>,
    /// What.
    pub kind: FaultKind,
}

impl Fault {
    /// A fault on any queue.
    #[must_use]
    pub const fn new(at: FaultAt, kind: FaultKind) -> Self {
        Self { at, cq: None, kind }
    }

    /// The same fault on one queue.
    #[must_use]
    pub const fn on(self, cq: Cq) -> Self {
        Self { cq: Some(cq), ..self }
    }
}

/// All that goes wrong. Counted are calls whose arguments the device finds good.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FaultPlan {
    /// Where [`FaultAt::Chance`] draws from.
    pub seed: u64,
    /// The faults, independent of each other.
    pub faults: Vec<Fault>,
}

/// When the event of a recording completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum EventFate {
    /// With the commands before it.
    #[default]
    Regular,
    /// With the event before it.
    Early,
    /// Never.
    Lost,
}

/// What hits one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hits {
    pub(super) refuse: bool,
    pub(super) event: EventFate,
    pub(super) ignore_wait: bool,
    pub(super) lose_device: bool,
    /// Product of all factors.
    pub(super) slow: u64,
}

/// A plan under way: how often each fault's calls have come.
#[derive(Debug)]
pub(super) struct FaultScript {
    random: SplitMix64,
    faults: Vec<(Fault, u64)>,
}

impl FaultScript {
    pub(super) fn new(plan: &FaultPlan) -> Self {
        Self {
            random: SplitMix64::new(plan.seed),
            faults: plan.faults.iter().map(|&fault| (fault, 0)).collect(),
        }
    }

    /// Counts a call that enqueues and tells what hits it.
    pub(super) fn call(&mut self, call: FaultCall, cq: Cq) -> Hits {
        let mut hits = Hits {
            refuse: false,
            event: EventFate::Regular,
            ignore_wait: false,
            lose_device: false,
            slow: 1,
        };
        for (fault, count) in &mut self.faults {
            if !fault.kind.counts(call) || !on_queue(fault, cq) || !strikes(fault.at, count, &mut self.random)
            {
                continue;
            }
            match fault.kind {
                FaultKind::Refuse(_) => hits.refuse = true,
                FaultKind::LoseEvent => hits.event = EventFate::Lost,
                FaultKind::EarlyEvent => hits.event = EventFate::Early,
                FaultKind::IgnoreWait => hits.ignore_wait = true,
                FaultKind::LoseDevice(_) => hits.lose_device = true,
                FaultKind::Slow { factor } => hits.slow = hits.slow.saturating_mul(factor),
                FaultKind::PartialCapture { .. } => {}
            }
        }
        hits
    }

    /// Counts the end of a capture and tells how many launches fit, if that is limited.
    pub(super) fn end_capture(&mut self, cq: Cq) -> Option<usize> {
        let mut fitting = None;
        for (fault, count) in &mut self.faults {
            if let FaultKind::PartialCapture { launches } = fault.kind
                && on_queue(fault, cq)
                && strikes(fault.at, count, &mut self.random)
            {
                fitting = Some(fitting.map_or(launches, |fewest: usize| fewest.min(launches)));
            }
        }
        fitting
    }
}

fn on_queue(fault: &Fault, cq: Cq) -> bool {
    fault.cq.is_none_or(|only| only == cq)
}

/// Counts one call and decides whether it is hit.
fn strikes(at: FaultAt, count: &mut u64, random: &mut SplitMix64) -> bool {
    *count += 1;
    match at {
        FaultAt::Nth(n) => *count == n,
        FaultAt::From(n) => *count >= n,
        FaultAt::Chance { per_million } => random.below(1_000_000) < u64::from(per_million),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(plan: &FaultPlan, calls: &[(FaultCall, Cq)]) -> Vec<Hits> {
        let mut script = FaultScript::new(plan);
        calls.iter().map(|&(call, cq)| script.call(call, cq)).collect()
    }

    #[test]
    fn each_fault_counts_its_own_calls_on_its_own_queue() {
        let plan = FaultPlan {
            seed: 0,
            faults: vec![
                Fault::new(FaultAt::Nth(2), FaultKind::Refuse(FaultCall::Write)).on(Cq::IO),
                Fault::new(FaultAt::From(3), FaultKind::Slow { factor: 4 }),
                Fault::new(FaultAt::Nth(5), FaultKind::LoseDevice(FaultCall::Any)),
                Fault::new(FaultAt::Nth(1), FaultKind::LoseEvent),
            ],
        };
        let seen = hits(
            &plan,
            &[
                (FaultCall::Write, Cq::IO),
                (FaultCall::Write, Cq::COMPUTE),
                (FaultCall::RecordEvent, Cq::IO),
                (FaultCall::Write, Cq::IO),
                (FaultCall::RecordEvent, Cq::COMPUTE),
            ],
        );
        assert_eq!(
            seen.iter().map(|h| h.refuse).collect::<Vec<_>>(),
            [false, false, false, true, false]
        );
        assert_eq!(seen.iter().map(|h| h.slow).collect::<Vec<_>>(), [1, 1, 4, 4, 4]);
        assert_eq!(
            seen.iter()
                .map(|h| h.event == EventFate::Lost)
                .collect::<Vec<_>>(),
            [false, false, true, false, false]
        );
        assert_eq!(seen.iter().position(|h| h.lose_device), Some(4));
    }

    #[test]
    fn chances_follow_the_seed_and_their_probability() {
        let plan = |seed| FaultPlan {
            seed,
            faults: vec![Fault::new(
                FaultAt::Chance { per_million: 250_000 },
                FaultKind::Refuse(FaultCall::Any),
            )],
        };
        let calls = [(FaultCall::Copy, Cq::COMPUTE); 4000];
        let first = hits(&plan(1), &calls);
        assert_eq!(first, hits(&plan(1), &calls));
        assert_ne!(first, hits(&plan(2), &calls));
        let refused = first.iter().filter(|h| h.refuse).count();
        // 1000 expected, standard deviation 27.
        assert!((850..1150).contains(&refused), "{refused}");
    }

    #[test]
    fn the_fewest_launches_of_several_limits_count() {
        let limit = |at, launches| Fault::new(at, FaultKind::PartialCapture { launches });
        let plan = FaultPlan {
            seed: 0,
            faults: vec![limit(FaultAt::Nth(2), 3), limit(FaultAt::From(2), 5)],
        };
        let mut script = FaultScript::new(&plan);
        let limits: Vec<_> = (0..3).map(|_| script.end_capture(Cq::COMPUTE)).collect();
        assert_eq!(limits, [None, Some(3), Some(5)]);
    }
}
