//! Looks at all actors and streams from time to time: who is at one frame for too long, what is silent.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::pipeline::SupervisionSettings;
use crate::runtime::control::{Board, StreamFlow};
use crate::runtime::health::{Reason, ReasonKind};

/// Longest time between two looks.
const LONGEST_PERIOD: Duration = Duration::from_millis(250);

/// Shortest time between two looks.
const SHORTEST_PERIOD: Duration = Duration::from_millis(5);

/// Looks at a run until it is dropped.
pub(crate) async fn watch_over(
    board: Arc<Board>,
    settings: SupervisionSettings,
    sources_over: Arc<SourcesOver>,
) {
    let limits_ms = [settings.watchdog_ms, settings.silence_ms];
    let Some(least_ms) = limits_ms.into_iter().filter(|&ms| ms > 0).min() else {
        return;
    };
    let period = Duration::from_millis(u64::from(least_ms) / 8).clamp(SHORTEST_PERIOD, LONGEST_PERIOD);
    loop {
        tokio::time::sleep(period).await;
        if settings.watchdog_ms > 0 {
            look_at_actors(&board, u64::from(settings.watchdog_ms) * 1_000_000);
        }
        let draining = board.run().is_some_and(|run| run.shutdown.is_draining());
        if settings.silence_ms > 0 {
            let limit_ns = u64::from(settings.silence_ms) * 1_000_000;
            look_at_streams(&board, limit_ns, |source| {
                draining || sources_over.contains(source)
            });
        }
    }
}

/// The sources that have played everything: their streams are not silent but over.
#[derive(Debug, Default)]
pub(crate) struct SourcesOver(std::sync::Mutex<HashSet<Arc<str>>>);

impl SourcesOver {
    /// A source has played everything.
    pub(crate) fn add(&self, source: &Arc<str>) {
        let mut over = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        over.insert(Arc::clone(source));
    }

    fn contains(&self, source: &str) -> bool {
        let over = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        over.contains(source)
    }
}

fn look_at_actors(board: &Board, limit_ns: u64) {
    for pulse in board.pulses() {
        if pulse.holding_ns().is_some_and(|holding_ns| holding_ns > limit_ns) {
            let actor = pulse.actor().to_string();
            board.raise(Reason::Stalled { actor });
            // It may have been closed since it was judged, and what was told of it taken back already.
            if !board.has_pulse(&pulse) {
                board.clear(ReasonKind::Stalled, pulse.actor());
            }
            pulse.alarm.notify_one();
        } else {
            board.clear(ReasonKind::Stalled, pulse.actor());
        }
    }
}

fn look_at_streams(board: &Board, limit_ns: u64, over: impl Fn(&str) -> bool) {
    for (stream, silent) in board.silent_streams(limit_ns, over) {
        if silent {
            let name = stream.name.to_string();
            board.raise(Reason::SourceSilent { stream: name });
            // It may have been paused or drained since it was judged, and what was told of it taken back already.
            if stream.flow() != StreamFlow::Flowing {
                board.clear(ReasonKind::SourceSilent, &stream.name);
            }
        } else {
            board.clear(ReasonKind::SourceSilent, &stream.name);
        }
    }
}
