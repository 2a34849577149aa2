//! How often an actor may fail, and how long to pause before it is started again.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::pipeline::SupervisionSettings;

/// Longest pause.
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// Pauses that double until something works again.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    in_a_row: u32,
}

impl Backoff {
    /// Pauses that begin with this one.
    pub(crate) const fn new(first: Duration) -> Self {
        Self { first, in_a_row: 0 }
    }

    /// The next pause.
    pub(crate) fn pause(&mut self) -> Duration {
        let doubled = 1_u32.checked_shl(self.in_a_row).unwrap_or(u32::MAX);
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.first.saturating_mul(doubled).min(LONGEST_BACKOFF)
    }

    /// It works again.
    pub(crate) const fn worked(&mut self) {
        self.in_a_row = 0;
    }
}

/// What has been used up of the failures that an actor may have.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u32,
    within: Duration,
    failures: VecDeque<Instant>,
    backoff: Backoff,
}

impl Budget {
    /// Nothing is used up.
    pub(crate) fn new(settings: &SupervisionSettings) -> Self {
        Self {
            limit: settings.limit,
            within: Duration::from_secs(settings.within_s.into()),
            failures: VecDeque::new(),
            backoff: Backoff::new(Duration::from_millis(settings.backoff_ms.into())),
        }
    }

    /// After a failure: how long to pause; `None` if it was one too many. `worked` tells whether a frame got through
    /// since the one before.
    pub(crate) fn failed(&mut self, now: Instant, worked: bool) -> Option<Duration> {
        if worked {
            self.backoff.worked();
        }
        self.failures.retain(|at| now.duration_since(*at) < self.within);
        self.failures.push_back(now);
        (self.failures.len() <= self.limit as usize).then(|| self.backoff.pause())
    }

    /// Failures that are not forgotten.
    pub(crate) fn failures(&self) -> usize {
        self.failures.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(limit: u32) -> Budget {
        Budget::new(&SupervisionSettings {
            limit,
            ..SupervisionSettings::default()
        })
    }

    fn ms(pause: Option<Duration>) -> Option<u128> {
        pause.map(|pause| pause.as_millis())
    }

    #[test]
    fn failures_are_forgotten_after_the_window_and_pauses_double_until_a_frame_gets_through() {
        let mut budget = budget(2);
        let start = Instant::now();
        let after = |s| start + Duration::from_secs(s);
        assert_eq!(ms(budget.failed(start, false)), Some(200));
        assert_eq!(ms(budget.failed(after(30), false)), Some(400));
        assert_eq!(ms(budget.failed(after(60), true)), Some(200));
        assert_eq!(budget.failed(after(61), true), None);
        assert_eq!(budget.failures(), 3);
    }

    #[test]
    fn without_a_limit_above_nothing_the_first_failure_is_one_too_many() {
        assert_eq!(budget(0).failed(Instant::now(), true), None);
    }

    #[test]
    fn no_pause_is_longer_than_half_a_minute() {
        let mut backoff = Backoff::new(Duration::from_millis(200));
        let pauses: Vec<u128> = (0..200).map(|_| backoff.pause().as_millis()).collect();
        assert_eq!(pauses[..3], [200, 400, 800]);
        assert!(pauses[8..].iter().all(|&pause| pause == 30_000));
    }
}
