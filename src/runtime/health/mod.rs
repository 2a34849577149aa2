//! How a pipeline is: starting, ready, degraded for reasons that are told, or failed.
//!
//! - [`Health`]: the state machine, plain data that is told the time
//! - `lateness`: which share of a stream's results came too late

mod lateness;
mod reason;

use std::collections::VecDeque;
use std::fmt;

use serde::Serialize;

pub(crate) use lateness::{Lateness, Punctuality};
pub use reason::{Reason, ReasonKind};

/// Changes of state that are kept; what happened before is in the log.
const CHANGES_KEPT: usize = 64;

/// State of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PipelineState {
    /// Models are loaded, the device is opened, sinks and sources are not all there yet.
    Starting,
    /// Everything works.
    Ready,
    /// It works, but not as it should: reasons are told.
    Degraded,
    /// It ended because of an error. Final.
    Failed,
}

impl PipelineState {
    /// The state in one word, as reports and metrics spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for PipelineState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A reason that holds now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ActiveReason {
    /// What it is.
    #[serde(flatten)]
    pub reason: Reason,
    /// Since when, in nanoseconds of the run's clock.
    pub since_ns: u64,
}

/// One change of the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StateChange {
    /// When, in nanoseconds of the run's clock.
    pub at_ns: u64,
    /// The state from then on.
    pub state: PipelineState,
    /// What made it so, in words; empty where nothing but the start or the end of a reason did.
    pub because: String,
}

/// The state of a pipeline with what led to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HealthReport {
    /// The state.
    pub state: PipelineState,
    /// What holds now, oldest first.
    pub reasons: Vec<ActiveReason>,
    /// The error of a pipeline that failed.
    pub error: Option<String>,
    /// The last changes of the state, oldest first.
    pub changes: Vec<StateChange>,
}

/// The state machine. Reasons come and go by what they are about: a reason that is raised again while it holds keeps
/// the time at which it began and takes the newest words.
#[derive(Debug)]
pub struct Health {
    state: PipelineState,
    reasons: Vec<ActiveReason>,
    error: Option<String>,
    changes: VecDeque<StateChange>,
}

impl Default for Health {
    fn default() -> Self {
        let start = StateChange {
            at_ns: 0,
            state: PipelineState::Starting,
            because: String::new(),
        };
        Self {
            state: PipelineState::Starting,
            reasons: Vec::new(),
            error: None,
            changes: VecDeque::from([start]),
        }
    }
}

impl Health {
    /// Everything has been started. Whether anything changed.
    pub fn started(&mut self, now_ns: u64) -> bool {
        if self.state != PipelineState::Starting {
            return false;
        }
        let because = self.reasons.first().map(|active| active.reason.to_string());
        self.enter(self.settled(), now_ns, because.unwrap_or_default());
        true
    }

    /// A reason holds from now on. Whether anything changed.
    pub fn raise(&mut self, reason: Reason, now_ns: u64) -> bool {
        if self.state == PipelineState::Failed {
            return false;
        }
        let about = reason.about();
        if let Some(known) = self
            .reasons
            .iter_mut()
            .find(|known| known.reason.about() == about)
        {
            let changed = known.reason != reason;
            known.reason = reason;
            return changed;
        }
        let because = reason.to_string();
        self.reasons.push(ActiveReason {
            reason,
            since_ns: now_ns,
        });
        if self.state == PipelineState::Ready {
            self.enter(PipelineState::Degraded, now_ns, because);
        }
        true
    }

    /// A reason holds no more. Whether anything changed.
    pub fn clear(&mut self, kind: ReasonKind, subject: &str, now_ns: u64) -> bool {
        let before = self.reasons.len();
        self.reasons
            .retain(|active| active.reason.about() != (kind, subject));
        let gone = self.reasons.len() < before && self.state != PipelineState::Failed;
        if gone && self.state == PipelineState::Degraded && self.reasons.is_empty() {
            self.enter(PipelineState::Ready, now_ns, String::new());
        }
        gone
    }

    /// The end, because of an error. Whether anything changed: the first error stays.
    pub fn fail(&mut self, error: String, now_ns: u64) -> bool {
        if self.state == PipelineState::Failed {
            return false;
        }
        self.error = Some(error.clone());
        self.enter(PipelineState::Failed, now_ns, error);
        true
    }

    /// The state.
    #[must_use]
    pub const fn state(&self) -> PipelineState {
        self.state
    }

    /// The state with what led to it.
    #[must_use]
    pub fn report(&self) -> HealthReport {
        HealthReport {
            state: self.state,
            reasons: self.reasons.clone(),
            error: self.error.clone(),
            changes: self.changes.iter().cloned().collect(),
        }
    }

    fn settled(&self) -> PipelineState {
        match self.reasons.is_empty() {
            true => PipelineState::Ready,
            false => PipelineState::Degraded,
        }
    }

    fn enter(&mut self, state: PipelineState, at_ns: u64, because: String) {
        self.state = state;
        if self.changes.len() == CHANGES_KEPT {
            self.changes.pop_front();
        }
        self.changes.push_back(StateChange {
            at_ns,
            state,
            because,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn down(cause: &str) -> Reason {
        Reason::DeviceDown { cause: cause.into() }
    }

    fn silent(stream: &str) -> Reason {
        Reason::SourceSilent {
            stream: stream.into(),
        }
    }

    fn states(health: &Health) -> Vec<PipelineState> {
        health.changes.iter().map(|change| change.state).collect()
    }

    #[test]
    fn a_pipeline_is_ready_again_when_the_last_reason_is_gone() {
        use PipelineState::{Degraded, Ready, Starting};
        let mut health = Health::default();
        assert_eq!(health.state(), Starting);
        assert!(health.started(10));
        assert!(health.raise(down("it is cold"), 20));
        assert!(health.raise(silent("/front"), 30));
        assert!(health.clear(ReasonKind::DeviceDown, "device", 40));
        assert_eq!(health.state(), Degraded);
        assert!(!health.clear(ReasonKind::SourceSilent, "/rear", 45));
        assert!(health.clear(ReasonKind::SourceSilent, "/front", 50));
        assert_eq!(states(&health), [Starting, Ready, Degraded, Ready]);
        let changes = health.report().changes;
        let told: Vec<(u64, &str)> = changes.iter().map(|c| (c.at_ns, c.because.as_str())).collect();
        let cold = "the device is down: it is cold";
        assert_eq!(told, [(0, ""), (10, ""), (20, cold), (50, "")]);
    }

    #[test]
    fn a_reason_before_the_start_is_over_degrades_the_pipeline_once_it_is() {
        use PipelineState::{Degraded, Starting};
        let mut health = Health::default();
        health.raise(silent("/front"), 5);
        assert_eq!(health.state(), Starting);
        health.started(10);
        assert_eq!(states(&health), [Starting, Degraded]);
        assert!(!health.started(11));
    }

    #[test]
    fn a_reason_that_is_told_again_keeps_its_beginning_and_takes_the_newest_words() {
        let mut health = Health::default();
        health.started(1);
        assert!(health.raise(down("first"), 2));
        assert!(!health.raise(down("first"), 3));
        assert!(health.raise(down("second"), 4));
        let report = health.report();
        let expected = ActiveReason {
            reason: down("second"),
            since_ns: 2,
        };
        assert_eq!(report.reasons, [expected]);
        assert_eq!(report.changes.len(), 3);
    }

    #[test]
    fn a_failure_is_final_and_the_first_error_stays() {
        let mut health = Health::default();
        health.started(1);
        assert!(health.fail("the device is gone".into(), 2));
        assert!(!health.fail("and more".into(), 3));
        assert!(!health.raise(down("late"), 4));
        assert!(!health.started(5));
        let report = health.report();
        assert_eq!(report.state, PipelineState::Failed);
        assert_eq!(report.error.as_deref(), Some("the device is gone"));
    }

    #[test]
    fn only_the_last_changes_are_kept() {
        let mut health = Health::default();
        health.started(0);
        for at_ns in 0..1_000 {
            health.raise(down("again"), at_ns);
            health.clear(ReasonKind::DeviceDown, "device", at_ns);
        }
        assert_eq!(health.report().changes.len(), CHANGES_KEPT);
    }

    #[test]
    fn a_report_reads_like_a_sentence_to_programs() {
        let mut health = Health::default();
        health.started(1);
        health.raise(silent("/front"), 7);
        let json = serde_json::to_value(health.report()).unwrap_or_default();
        assert_eq!(json["state"], "degraded");
        let reason = serde_json::json!({ "kind": "source_silent", "stream": "/front", "since_ns": 7 });
        assert_eq!(json["reasons"][0], reason);
    }
}
