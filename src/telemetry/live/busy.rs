//! How much of the time the device's queues work.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// The share is taken over so long a time.
const WINDOW_NS: u64 = 10_000_000_000;
/// Looks at the gauge that are remembered.
const LOOKS: usize = 64;

/// Time in which a device's queues were busy. The owner of the device tells, anyone reads.
#[derive(Debug, Default)]
pub struct DeviceGauge {
    replay: BusyTime,
    transfer: BusyTime,
    frames: AtomicU64,
    looks: Mutex<VecDeque<Look>>,
}

/// Sum of the intervals in which one queue was busy, which may be told with overlaps but not out of order.
#[derive(Debug, Default)]
struct BusyTime {
    sum_ns: AtomicU64,
    until_ns: AtomicU64,
}

/// What was read at one time.
#[derive(Debug, Clone, Copy, Default)]
struct Look {
    at_ns: u64,
    replay_ns: u64,
    transfer_ns: u64,
}

/// The device's queues at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceReading {
    /// Seconds in which a trace was replayed so far.
    pub replay_busy_s: f64,
    /// Seconds in which a frame was uploaded or read so far.
    pub transfer_busy_s: f64,
    /// Share of the last ten seconds in which a trace was replayed, 0 to 1.
    pub replay_utilisation: f64,
    /// Share of the last ten seconds in which a frame was uploaded or read, 0 to 1.
    pub transfer_utilisation: f64,
    /// Frames that came back.
    pub frames: u64,
}

impl BusyTime {
    fn add(&self, start_ns: u64, end_ns: u64) {
        let until_ns = self.until_ns.fetch_max(end_ns, Ordering::Relaxed);
        let busy_ns = end_ns.saturating_sub(start_ns.max(until_ns));
        self.sum_ns.fetch_add(busy_ns, Ordering::Relaxed);
    }

    fn sum_ns(&self) -> u64 {
        self.sum_ns.load(Ordering::Relaxed)
    }
}

impl DeviceGauge {
    /// A trace was replayed from `start_ns` to `end_ns` of the run's clock.
    pub fn replayed(&self, start_ns: u64, end_ns: u64) {
        self.replay.add(start_ns, end_ns);
        self.frames.fetch_add(1, Ordering::Relaxed);
    }

    /// Something was uploaded or read from `start_ns` to `end_ns` of the run's clock.
    pub fn transferred(&self, start_ns: u64, end_ns: u64) {
        self.transfer.add(start_ns, end_ns);
    }

    /// The queues as they are at `now_ns` of the run's clock.
    #[must_use]
    pub fn read(&self, now_ns: u64) -> DeviceReading {
        let now = Look {
            at_ns: now_ns,
            replay_ns: self.replay.sum_ns(),
            transfer_ns: self.transfer.sum_ns(),
        };
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        // The last one that is older than the window stays, so that the share is of no shorter time.
        while looks.get(1).is_some_and(|next| next.at_ns + WINDOW_NS < now_ns) || looks.len() >= LOOKS {
            looks.pop_front();
        }
        let since = looks.front().copied().unwrap_or_default();
        looks.push_back(now);
        drop(looks);
        let span_ns = now_ns.saturating_sub(since.at_ns).max(1) as f64;
        let share = |now_ns: u64, then_ns: u64| (now_ns.saturating_sub(then_ns) as f64 / span_ns).min(1.0);
        DeviceReading {
            replay_busy_s: now.replay_ns as f64 * 1e-9,
            transfer_busy_s: now.transfer_ns as f64 * 1e-9,
            replay_utilisation: share(now.replay_ns, since.replay_ns),
            transfer_utilisation: share(now.transfer_ns, since.transfer_ns),
            frames: self.frames.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn overlapping_transfers_count_once() {
        let gauge = DeviceGauge::default();
        gauge.transferred(0, 2 * S);
        gauge.transferred(S, 3 * S);
        gauge.transferred(S, 2 * S);
        gauge.transferred(5 * S, 6 * S);
        let reading = gauge.read(8 * S);
        assert_eq!(reading.transfer_busy_s, 4.0);
        assert_eq!(reading.transfer_utilisation, 0.5);
        assert_eq!(reading.replay_utilisation, 0.0);
    }

    #[test]
    fn the_share_is_of_the_last_ten_seconds() {
        let gauge = DeviceGauge::default();
        gauge.replayed(0, 10 * S);
        assert_eq!(gauge.read(10 * S).replay_utilisation, 1.0);
        gauge.replayed(15 * S, 20 * S);
        assert_eq!(gauge.read(20 * S).replay_utilisation, 0.5, "from 10 to 20 s");
        let _ = gauge.read(21 * S);
        // From 20 s: the look at 10 s is older than the window, and so is not needed any more.
        assert_eq!(gauge.read(31 * S).replay_utilisation, 0.0);
        assert_eq!(gauge.read(31 * S).frames, 2);
    }

    #[test]
    fn many_looks_are_not_all_kept() {
        let gauge = DeviceGauge::default();
        for look in 0..1_000 {
            let _ = gauge.read(look);
        }
        assert_eq!(gauge.looks.lock().unwrap().len(), LOOKS);
    }
}
