//! What becomes of actors that fail, as a pipeline file says it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::nearest::suggestion;
use super::plan::{ActorRole, Plan};
use super::problem::Problem;
use super::tree;
use super::words::words;

/// What becomes of actors that fail, and when a pipeline counts as degraded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Supervision")]
pub struct SupervisionSettings {
    /// How often an actor may fail within `within_s`. 0: the first failure is the last.
    #[schemars(range(min = 0, max = 1_000))]
    pub limit: u32,
    /// Seconds after which a failure is forgotten.
    #[schemars(range(min = 1, max = 86_400))]
    pub within_s: u32,
    /// Pause before an actor that failed is started again, and before a sink that cannot write tries again, in
    /// milliseconds; it doubles until a frame gets through, up to 30 s.
    #[schemars(range(min = 0, max = 30_000))]
    pub backoff_ms: u32,
    /// Longest time that an actor may be at one frame, in milliseconds. After that the pipeline counts as degraded, a
    /// frame that a worker holds is lost, and another worker takes its place. 0: no limit.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub watchdog_ms: u32,
    /// Longest time without a message on a live or timed stream, in milliseconds. After that the pipeline counts as
    /// degraded. 0: no limit.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub silence_ms: u32,
    /// What happens when a sink fails more often than `limit` allows.
    pub on_sink_failure: OnSinkFailure,
    /// Faults to inject, for tests.
    pub fault: Vec<ActorFault>,
}

impl Default for SupervisionSettings {
    fn default() -> Self {
        Self {
            limit: 3,
            within_s: 60,
            backoff_ms: 200,
            watchdog_ms: 10_000,
            silence_ms: 5_000,
            on_sink_failure: OnSinkFailure::GoOn,
            fault: Vec::new(),
        }
    }
}

words! {
    /// What happens when a sink fails for good.
    #[derive(Default)]
    OnSinkFailure {
        /// The others go on; its results are dropped and counted.
        #[default]
        GoOn = "go_on",
        /// The run ends.
        End = "end",
    }
}

words! {
    /// What goes wrong in an actor.
    ActorFaultKind {
        /// The actor itself panics.
        Panic = "panic",
        /// Whoever works for the actor panics: a worker of a detector, or the thread that plays a source.
        WorkerPanic = "worker_panic",
        /// Whoever works on the frame stands still for `for_ms`.
        Stall = "stall",
        /// A sink cannot write the frame.
        Fail = "fail",
    }
}

/// A fault to inject into an actor. A switch for tests: every run with it logs a warning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActorFault {
    /// The actor: the name of a source or sink, or `<detector>/prepare` or `<detector>/finish`.
    pub actor: String,
    /// What goes wrong.
    pub kind: ActorFaultKind,
    /// At which frame of the actor it happens, counted from 1.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub nth: u32,
    /// At how many frames in a row.
    #[serde(default = "once")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub times: u32,
    /// How long a stall lasts, in milliseconds.
    #[serde(default)]
    #[schemars(range(min = 0, max = 3_600_000))]
    pub for_ms: u32,
}

const fn once() -> u32 {
    1
}

impl ActorFaultKind {
    /// Whether it can happen to an actor of this role.
    const fn suits(self, role: ActorRole) -> bool {
        match self {
            Self::Panic | Self::Stall => !matches!(role, ActorRole::DeviceOwner),
            Self::WorkerPanic => matches!(role, ActorRole::Source | ActorRole::Prepare | ActorRole::Finish),
            Self::Fail => matches!(role, ActorRole::Sink),
        }
    }
}

/// Faults of actors that do not exist, and faults that their actors cannot have.
pub(super) fn check_faults(
    faults: &[ActorFault],
    plan: &Plan,
    tree: &tree::Node,
    problems: &mut Vec<Problem>,
) {
    let section = tree.get("supervision").and_then(|section| section.get("fault"));
    let items = section.map_or(&[][..], tree::Node::items);
    for (fault, item) in faults.iter().zip(items) {
        let place = |key: &str| item.get(key).map_or(&item.span, |value| &value.span);
        let Some(actor) = plan.actor(&fault.actor) else {
            let suits = |actor: &&super::plan::Actor| fault.kind.suits(actor.role);
            let names: Vec<&str> = plan
                .actors
                .iter()
                .filter(suits)
                .map(|actor| actor.name.as_str())
                .collect();
            let label = format!(
                "{}; actors are {}",
                suggestion(&fault.actor, names.iter().copied()),
                names.join(", ")
            );
            let message = format!("there is no actor `{}`", fault.actor);
            problems.push(Problem::error(message, place("actor"), label));
            continue;
        };
        if !fault.kind.suits(actor.role) {
            let message = format!("`{}` cannot happen to `{}`", fault.kind, fault.actor);
            let label = "`worker_panic` is for sources and detectors, `fail` for sinks; faults of the device are in `device.fault`";
            problems.push(Problem::error(message, place("kind"), label));
        }
    }
}
