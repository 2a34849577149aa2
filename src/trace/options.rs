//! How a runner and its states work.

use std::time::Duration;

use super::ProtocolStep;

/// How a [`super::TraceRunner`] works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceOptions {
    /// Command queues: with 2, transfers run on queue 1 while queue 0 replays.
    pub queues: u8,
    /// Eager runs of each variant and phase before its capture, at least 1.
    pub warmup_runs: usize,
    /// Inputs are uploaded into staging copies, so that upload n+1 overlaps replay n. Needs 2 queues.
    pub stage_inputs: bool,
    /// Sets of persistent outputs, 1 or 2: with 2, replay n+1 may write its outputs while outputs n are
    /// still being read. Every variant is captured once a set.
    pub output_phases: usize,
    /// Longest wait for the device.
    pub deadline: Duration,
    /// A switch for tests: this step of the order between the queues is left out, so that a test can show that it
    /// would be missed. `None` wherever results matter.
    #[doc(hidden)]
    pub omit: Option<ProtocolStep>,
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self {
            queues: 1,
            warmup_runs: 1,
            stage_inputs: false,
            output_phases: 1,
            deadline: Duration::from_secs(10),
            omit: None,
        }
    }
}

impl TraceOptions {
    /// Two queues, staged inputs, two sets of outputs: everything overlaps.
    #[must_use]
    pub fn two_queues() -> Self {
        Self {
            queues: 2,
            stage_inputs: true,
            output_phases: 2,
            ..Self::default()
        }
    }

    /// What makes no sense in them.
    pub(super) fn problem(&self) -> Option<String> {
        match self {
            o if !(1..=2).contains(&o.queues) => Some(format!("queues must be 1 or 2, not {}", o.queues)),
            o if o.stage_inputs && o.queues < 2 => Some("staged inputs need two command queues".into()),
            o if !(1..=2).contains(&o.output_phases) => {
                Some(format!("output phases must be 1 or 2, not {}", o.output_phases))
            }
            o if o.warmup_runs == 0 => Some("at least one warm-up run is needed before a capture".into()),
            _ => None,
        }
    }
}

/// How a state is kept. The default is in place and without banks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct StateOptions {
    /// Two buffers that change places after every replay that writes them. In place, a state is one buffer: read what
    /// you need of it before you write it.
    pub pingpong: bool,
    /// Copies of the state on the device, one for each stream that takes turns.
    pub banks: usize,
}
