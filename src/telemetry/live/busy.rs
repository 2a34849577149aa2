//! How much of the time the device's queues work.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// The share is taken over so long a time.
const WINDOW_NS: u64 = 10_000_000_000;
/// Intervals that are remembered: more than those of the frames on the device at a time.
const SPANS: usize = 64;
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

/// Sum of the intervals in which one queue was busy. They may overlap, and come in any order: with several frames on the
/// device, the read of one ends before the upload of the next is told of.
#[derive(Debug, Default)]
struct BusyTime {
    sum_ns: AtomicU64,
    told: Mutex<Told>,
}

/// What was counted.
#[derive(Debug, Default)]
struct Told {
    /// The last intervals, from start to end in nanoseconds: apart from each other, in their order.
    spans: VecDeque<(u64, u64)>,
    /// What is before this was counted, as far as it was told.
    before_ns: u64,
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
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut start_ns, mut end_ns) = (start_ns.max(told.before_ns), end_ns);
        if start_ns >= end_ns {
            return;
        }
        // The intervals that it touches become one with it.
        let from = told.spans.partition_point(|&(_, end)| end < start_ns);
        let to = told.spans.partition_point(|&(start, _)| start <= end_ns);
        let mut counted_ns = 0;
        for (start, end) in told.spans.drain(from..to) {
            counted_ns += end - start;
            start_ns = start_ns.min(start);
            end_ns = end_ns.max(end);
        }
        told.spans.insert(from, (start_ns, end_ns));
        if told.spans.len() > SPANS
            && let Some((_, end)) = told.spans.pop_front()
        {
            told.before_ns = end;
        }
        drop(told);
        self.sum_ns
            .fetch_add(end_ns - start_ns - counted_ns, Ordering::Relaxed);
    }

    fn sum_ns(&self) -> u64 {
        self.sum_ns.load(Ordering::Relaxed)
    }
}

impl DeviceGauge {
    /// A trace was replayed from `start_ns` to `end_ns` of the run's clock.
    pub fn replayed(&self, start_ns: u64, end_ns: u64) {
        self.replay.add(start_ns, end_ns);
    }

    /// So many frames came back, of one replay.
    pub fn came_back(&self, frames: u64) {
        self.frames.fetch_add(frames, Ordering::Relaxed);
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
    #![allow(clippy::unwrap_used, reason = "tests")]

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
    }

    /// Two frames on the device at a time: the second is uploaded while the first replays, and is told of when it is back.
    #[test]
    fn transfers_of_two_flights_count_although_they_are_told_out_of_order() {
        let gauge = DeviceGauge::default();
        for (start, end) in [(0, 1), (5, 6), (1, 3), (9, 10)] {
            gauge.transferred(start * S, end * S);
        }
        assert_eq!(gauge.read(10 * S).transfer_busy_s, 5.0);
        // Over a gap, over a part, and within what was told.
        gauge.transferred(2 * S, 6 * S);
        gauge.transferred(4 * S, 7 * S);
        gauge.transferred(6 * S, 7 * S);
        assert_eq!(gauge.read(10 * S).transfer_busy_s, 8.0);
    }

    #[test]
    fn what_is_remembered_of_intervals_does_not_grow() {
        let gauge = DeviceGauge::default();
        for second in 0..1_000 {
            gauge.replayed(2 * second * S, (2 * second + 1) * S);
        }
        assert_eq!(gauge.replay.sum_ns(), 1_000 * S);
        assert_eq!(gauge.replay.told.lock().unwrap().spans.len(), SPANS);
    }

    #[test]
    fn the_frames_of_a_batch_all_count() {
        let gauge = DeviceGauge::default();
        gauge.replayed(0, S);
        gauge.came_back(4);
        gauge.came_back(1);
        assert_eq!(gauge.read(S).frames, 5);
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
