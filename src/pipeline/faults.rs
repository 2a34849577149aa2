//! Faults to inject into the device, as a pipeline file writes them: a switch for tests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::problem::Problem;
use super::tree;
use crate::device::{Cq, Fault, FaultAt, FaultCall, FaultKind, FaultPlan, QUEUES};

/// Largest number of calls that a fault can wait for.
const MAX_CALLS: u32 = 1_000_000_000;

/// Faults to inject into the device. A switch for tests: every run with it logs a warning.
#[derive(Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Faults")]
pub(super) struct RawFaults {
    /// Where faults that come by chance draw from.
    #[schemars(range(min = 0, max = u32::MAX))]
    seed: u32,
    /// The faults, independent of each other.
    faults: Vec<RawFault>,
}

/// One thing that goes wrong.
#[derive(Debug, Deserialize, JsonSchema, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[schemars(rename = "Fault")]
enum RawFault {
    /// A call is refused as if its queue were full, and nothing is enqueued.
    Refuse(RawCallFault),
    /// An event never completes, and a queue that waits for it stands still.
    LoseEvent(RawPlainFault),
    /// An event completes with the one before it, or at once, instead of with the commands since then.
    EarlyEvent(RawPlainFault),
    /// A queue does not wait for an event though it was told to.
    IgnoreWait(RawPlainFault),
    /// A command takes longer.
    Slow(RawSlowFault),
    /// A capture does not fit into the trace region.
    PartialCapture(RawCaptureFault),
    /// The device is lost.
    LoseDevice(RawCallFault),
}

/// A fault of any call that enqueues something.
#[derive(Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
struct RawCallFault {
    /// Which calls count.
    #[serde(default)]
    call: RawCall,
    /// When it happens.
    at: RawAt,
    /// The queue whose calls count. Left out: every queue.
    #[schemars(range(min = 0, max = *QUEUES.end() - 1))]
    queue: Option<u8>,
}

/// A fault of one sort of call: recorded events, waits.
#[derive(Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
struct RawPlainFault {
    /// When it happens.
    at: RawAt,
    /// The queue whose calls count. Left out: every queue.
    #[schemars(range(min = 0, max = *QUEUES.end() - 1))]
    queue: Option<u8>,
}

/// A command that takes longer.
#[derive(Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
struct RawSlowFault {
    /// How many times as long it takes.
    #[schemars(range(min = 2, max = 1_000_000))]
    factor: u32,
    /// When it happens: every call that enqueues something counts.
    at: RawAt,
    /// The queue whose calls count. Left out: every queue.
    #[schemars(range(min = 0, max = *QUEUES.end() - 1))]
    queue: Option<u8>,
}

/// A capture that does not fit.
#[derive(Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
struct RawCaptureFault {
    /// Launches that fit.
    #[schemars(range(min = 0, max = MAX_CALLS))]
    launches: u32,
    /// When it happens: captures count.
    at: RawAt,
    /// The queue whose captures count. Left out: every queue.
    #[schemars(range(min = 0, max = *QUEUES.end() - 1))]
    queue: Option<u8>,
}

/// When a fault happens: one of these keys.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "FaultAt")]
struct RawAt {
    /// At this call alone, counted from 1.
    #[schemars(range(min = 1, max = MAX_CALLS))]
    nth: Option<u32>,
    /// At this call and all after it, counted from 1.
    #[schemars(range(min = 1, max = MAX_CALLS))]
    from: Option<u32>,
    /// At each call with this chance, in millionths.
    #[schemars(range(min = 1, max = 1_000_000))]
    chance_per_million: Option<u32>,
}

/// The calls that put something on a queue.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "FaultCall")]
enum RawCall {
    /// Every one of those below.
    #[default]
    Any,
    /// An upload.
    Write,
    /// A download.
    Read,
    /// A copy from buffer to buffer.
    Copy,
    /// A launch, recorded launches included.
    Launch,
    /// A replay of a trace.
    Replay,
    /// The recording of an event.
    RecordEvent,
    /// A wait for an event.
    WaitEvent,
}

impl RawFaults {
    /// The plan that `section`, the `device` of a file, describes.
    pub(super) fn plan(&self, section: Option<&tree::Node>, problems: &mut Vec<Problem>) -> FaultPlan {
        let items = section
            .and_then(|device| device.get("fault")?.get("faults"))
            .map_or(&[][..], tree::Node::items);
        let faults = self.faults.iter().enumerate().filter_map(|(index, raw)| {
            let (kind, at, queue) = raw.parts();
            let Some(at) = at.decide() else {
                // One key that was dropped because its value is wrong has been told.
                let place = items.get(index).and_then(|item| item.entry("at"));
                if let Some(place) = place.filter(|at| at.value.entries().len() != 1) {
                    problems.push(Problem::error(
                        format!("`device.fault.faults.{index}.at` takes exactly one key"),
                        &place.key_span,
                        "expected one of `nth`, `from` and `chance_per_million`",
                    ));
                }
                return None;
            };
            Some(Fault {
                at,
                cq: queue.map(Cq),
                kind,
            })
        });
        FaultPlan {
            seed: self.seed.into(),
            faults: faults.collect(),
        }
    }
}

impl RawFault {
    fn parts(&self) -> (FaultKind, RawAt, Option<u8>) {
        match self {
            Self::Refuse(raw) => (FaultKind::Refuse(raw.call.into()), raw.at, raw.queue),
            Self::LoseEvent(raw) => (FaultKind::LoseEvent, raw.at, raw.queue),
            Self::EarlyEvent(raw) => (FaultKind::EarlyEvent, raw.at, raw.queue),
            Self::IgnoreWait(raw) => (FaultKind::IgnoreWait, raw.at, raw.queue),
            Self::Slow(raw) => {
                let factor = raw.factor.into();
                (FaultKind::Slow { factor }, raw.at, raw.queue)
            }
            Self::PartialCapture(raw) => {
                let launches = raw.launches as usize;
                (FaultKind::PartialCapture { launches }, raw.at, raw.queue)
            }
            Self::LoseDevice(raw) => (FaultKind::LoseDevice(raw.call.into()), raw.at, raw.queue),
        }
    }
}

impl RawAt {
    /// The only key that is there.
    fn decide(self) -> Option<FaultAt> {
        match (self.nth, self.from, self.chance_per_million) {
            (Some(nth), None, None) => Some(FaultAt::Nth(nth.into())),
            (None, Some(first), None) => Some(FaultAt::From(first.into())),
            (None, None, Some(per_million)) => Some(FaultAt::Chance { per_million }),
            _ => None,
        }
    }
}

impl From<RawCall> for FaultCall {
    fn from(raw: RawCall) -> Self {
        match raw {
            RawCall::Any => Self::Any,
            RawCall::Write => Self::Write,
            RawCall::Read => Self::Read,
            RawCall::Copy => Self::Copy,
            RawCall::Launch => Self::Launch,
            RawCall::Replay => Self::Replay,
            RawCall::RecordEvent => Self::RecordEvent,
            RawCall::WaitEvent => Self::WaitEvent,
        }
    }
}
