//! The clock that stamps frames.

use std::time::Instant;

/// Nanoseconds since the clock was made. Copies share the origin, so stamps taken on different threads can be
/// subtracted; the clock never runs backwards and does not follow changes of the wall clock.
#[derive(Debug, Clone, Copy)]
pub struct MonotonicClock {
    origin: Instant,
}

impl MonotonicClock {
    /// A clock that starts at zero now. A run makes one and hands out copies.
    #[must_use]
    pub fn start() -> Self {
        Self {
            origin: Instant::now(),
        }
    }

    /// Nanoseconds since [`MonotonicClock::start`].
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.at_ns(Instant::now())
    }

    /// Nanoseconds from the start of the clock to `instant`; 0 for an instant before the start.
    #[must_use]
    pub fn at_ns(&self, instant: Instant) -> u64 {
        let elapsed = instant.saturating_duration_since(self.origin).as_nanos();
        u64::try_from(elapsed).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use std::time::Duration;

    use super::*;

    #[test]
    fn copies_of_a_clock_agree_and_never_run_backwards() {
        let clock = MonotonicClock::start();
        let copy = clock;
        let first_ns = clock.now_ns();
        let second_ns = std::thread::spawn(move || copy.now_ns()).join().unwrap();
        assert!(second_ns >= first_ns);
        let later = Instant::now() + Duration::from_millis(5);
        assert_eq!(clock.at_ns(later), copy.at_ns(later));
        assert_eq!(clock.at_ns(clock.origin - Duration::from_millis(1)), 0);
        assert_eq!(clock.at_ns(clock.origin + Duration::from_micros(7)), 7_000);
    }
}
