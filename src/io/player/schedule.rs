//! When a message is due: its place in the bag against a monotonic clock.

use std::time::{Duration, Instant};

use super::PlayerError;

/// How fast a bag is played.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// So many times as fast as it was recorded, from 0.001 to 1000.
    Times(f64),
    /// As fast as messages are taken.
    Max,
}

impl Rate {
    pub(super) fn check(self) -> Result<Self, PlayerError> {
        match self {
            Self::Times(rate) if !(1e-3..=1e3).contains(&rate) => Err(PlayerError::Rate { rate }),
            _ => Ok(self),
        }
    }
}

/// Every due time is counted from one pair of times that belong together, so waiting too long once delays nothing
/// later.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    rate: Rate,
    /// A place in the bag, in nanoseconds, and when it is reached; `None` while paused.
    position_ns: u64,
    reached: Option<Instant>,
}

impl Schedule {
    pub(super) fn new(rate: Rate, position_ns: u64, now: Instant) -> Self {
        Self {
            rate,
            position_ns,
            reached: Some(now),
        }
    }

    pub(super) fn rate(&self) -> Rate {
        self.rate
    }

    pub(super) fn is_paused(&self) -> bool {
        self.reached.is_none()
    }

    /// The place in the bag that is due now.
    fn position_ns(&self, now: Instant) -> u64 {
        match (self.rate, self.reached) {
            (Rate::Times(rate), Some(reached)) => {
                let passed_ns = now.saturating_duration_since(reached).as_nanos() as f64;
                self.position_ns.saturating_add((passed_ns * rate).round() as u64)
            }
            _ => self.position_ns,
        }
    }

    pub(super) fn pause(&mut self, now: Instant) {
        self.position_ns = self.position_ns(now);
        self.reached = None;
    }

    pub(super) fn resume(&mut self, now: Instant) {
        self.reached = Some(now);
    }

    /// Goes on at another rate from the place that is due now.
    pub(super) fn set_rate(&mut self, rate: Rate, now: Instant) {
        self.position_ns = self.position_ns(now);
        self.reached = self.reached.map(|_| now);
        self.rate = rate;
    }

    /// Moves on to a place that was reached without waiting for it.
    pub(super) fn move_to(&mut self, position_ns: u64, now: Instant) {
        if position_ns > self.position_ns(now) {
            self.position_ns = position_ns;
            self.reached = self.reached.map(|_| now);
        }
    }

    /// When a place of the bag is due; `None` for at once.
    pub(super) fn due(&self, time_ns: u64) -> Option<Instant> {
        let (Rate::Times(rate), Some(reached)) = (self.rate, self.reached) else {
            return None;
        };
        let apart = |ns: u64| Duration::from_nanos((ns as f64 / rate).round() as u64);
        if time_ns >= self.position_ns {
            reached.checked_add(apart(time_ns - self.position_ns))
        } else {
            reached.checked_sub(apart(self.position_ns - time_ns))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn due_times_do_not_drift() {
        let start = Instant::now();
        let schedule = Schedule::new(Rate::Times(3.0), 1_000, start);
        // A third of a microsecond is no whole number of nanoseconds, yet the millionth message is due to the nanosecond.
        for i in [0, 1, 2, 3, 999_999, 3_000_000] {
            let due = schedule.due(1_000 + i * 1_000).unwrap() - start;
            assert_eq!(due.as_nanos(), (u128::from(i) * 1_000 + 1) / 3, "{i}");
        }
    }

    #[test]
    fn a_pause_takes_no_time_of_the_bag_and_a_rate_counts_from_where_it_was_set() {
        let start = Instant::now();
        let mut schedule = Schedule::new(Rate::Times(2.0), 0, start);
        schedule.pause(start + SECOND);
        assert!(schedule.is_paused() && schedule.due(5).is_none());
        schedule.resume(start + 11 * SECOND);
        // Two seconds of the bag had passed.
        assert_eq!(schedule.due(4_000_000_000), Some(start + 12 * SECOND));
        schedule.set_rate(Rate::Times(0.5), start + 12 * SECOND);
        assert_eq!(schedule.due(5_000_000_000), Some(start + 14 * SECOND));
        assert_eq!(schedule.due(4_000_000_000), Some(start + 12 * SECOND));
        schedule.set_rate(Rate::Max, start + 13 * SECOND);
        assert_eq!(schedule.due(u64::MAX), None);
    }

    #[test]
    fn rates_without_sense_are_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-4, 1e4] {
            assert!(Rate::Times(rate).check().is_err(), "{rate}");
        }
        assert!(Rate::Times(1000.0).check().is_ok() && Rate::Max.check().is_ok());
    }
}
