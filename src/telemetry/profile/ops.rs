//! The launches of a trace: how long each takes, what it costs, and the gaps between them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::device::LaunchTime;
use crate::device::cpu::MachinePeak;

/// How much of the machine's best speed a launch reaches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PeakShare {
    /// Of its arithmetic, 0 to 1; above 1 with instructions that do more than a multiply-add of fp32.
    pub flop: f64,
    /// Of its memory traffic, 0 to 1; above 1 where the data are in a cache, which the measured copy avoids.
    pub bytes: f64,
}

impl PeakShare {
    /// The larger of both: what the launch is bound by, if it is bound by either.
    #[must_use]
    pub const fn larger(&self) -> f64 {
        self.flop.max(self.bytes)
    }
}

/// One launch of a trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LaunchRow {
    /// Its place in the trace, from 0.
    pub index: usize,
    /// What the launch is called in the model, where that is known.
    pub name: Option<String>,
    /// Name of the operation.
    pub op: &'static str,
    /// The operation with its shapes.
    pub summary: String,
    /// Median of its times, in microseconds.
    pub time_us: f64,
    /// Share of the time of all launches.
    pub share: f64,
    /// Arithmetic operations.
    pub flop: u64,
    /// Bytes that it reads and writes at least.
    pub bytes: u64,
    /// Share of the machine's peak, where that was measured.
    pub peak: Option<PeakShare>,
}

/// All launches of one operation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OpKindRow {
    /// Name of the operation.
    pub op: &'static str,
    /// Launches.
    pub launches: usize,
    /// Sum of their medians, in microseconds.
    pub time_us: f64,
    /// Share of the time of all launches.
    pub share: f64,
    /// Arithmetic operations.
    pub flop: u64,
    /// Bytes read and written at least.
    pub bytes: u64,
    /// Share of the machine's peak, where that was measured.
    pub peak: Option<PeakShare>,
}

/// Time between two launches, in which the queue prepares the next one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LaunchGap {
    /// The launch after the gap.
    pub before: usize,
    /// Median, in microseconds.
    pub gap_us: f64,
}

/// The launches of a trace over several replays.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OpsProfile {
    /// Replays that were timed.
    pub replays: usize,
    /// Median of the time from the first launch's beginning to the last one's end, in microseconds.
    pub span_us: f64,
    /// Sum of the launches' medians, in microseconds.
    pub launches_us: f64,
    /// Sum of the gaps' medians, in microseconds.
    pub gaps_us: f64,
    /// What the machine can do at best.
    pub peak: Option<MachinePeak>,
    /// Every launch, in order.
    pub launches: Vec<LaunchRow>,
    /// By operation, the longest first.
    pub by_op: Vec<OpKindRow>,
    /// The longest gaps first.
    pub top_gaps: Vec<LaunchGap>,
}

impl OpsProfile {
    /// The profile of a trace's replays, each as [`Device::profile`](crate::device::Device::profile) tells it, with the
    /// `top_gaps` longest gaps. `None` without replays, or where they differ in their launches: then they are not of one
    /// trace.
    #[must_use]
    pub fn of(replays: &[Vec<LaunchTime>], peak: Option<MachinePeak>, top_gaps: usize) -> Option<Self> {
        let first = replays.first()?;
        let same = |replay: &Vec<LaunchTime>| {
            replay.len() == first.len() && replay.iter().zip(first).all(|(a, b)| a.op == b.op)
        };
        if !replays.iter().all(same) {
            return None;
        }
        let times =
            |of: &dyn Fn(&[LaunchTime]) -> u64| median_us(replays.iter().map(|replay| of(replay)).collect());
        let each = |index: usize| times(&|replay| replay[index].end_ns - replay[index].start_ns);
        let launch_times: Vec<f64> = (0..first.len()).map(each).collect();
        let launches_us: f64 = launch_times.iter().sum();
        let share = |time_us: f64| {
            if launches_us > 0.0 {
                time_us / launches_us
            } else {
                0.0
            }
        };
        let launches: Vec<LaunchRow> = first
            .iter()
            .zip(&launch_times)
            .enumerate()
            .map(|(index, (LaunchTime { op, .. }, &time_us))| {
                let cost = op.cost();
                LaunchRow {
                    index,
                    name: None,
                    op: op.name(),
                    summary: op.summary(),
                    time_us,
                    share: share(time_us),
                    flop: cost.flop,
                    bytes: cost.bytes(),
                    peak: peak
                        .as_ref()
                        .map(|peak| peak_share(peak, cost.flop, cost.bytes(), time_us)),
                }
            })
            .collect();
        let mut gaps: Vec<LaunchGap> = (1..first.len())
            .map(|before| LaunchGap {
                before,
                gap_us: times(&|replay| replay[before].start_ns.saturating_sub(replay[before - 1].end_ns)),
            })
            .collect();
        let gaps_us = gaps.iter().map(|gap| gap.gap_us).sum();
        // Stable, so equal gaps stay in the order of the trace.
        gaps.sort_by(|a, b| b.gap_us.total_cmp(&a.gap_us));
        gaps.truncate(top_gaps);
        Some(Self {
            replays: replays.len(),
            span_us: times(&|replay| replay.last().map_or(0, |last| last.end_ns)),
            launches_us,
            gaps_us,
            peak,
            by_op: by_op(&launches, peak.as_ref()),
            launches,
            top_gaps: gaps,
        })
    }

    /// The longest launches first.
    #[must_use]
    pub fn longest(&self, count: usize) -> Vec<&LaunchRow> {
        let mut rows: Vec<&LaunchRow> = self.launches.iter().collect();
        rows.sort_by(|a, b| b.time_us.total_cmp(&a.time_us));
        rows.truncate(count);
        rows
    }

    /// Arithmetic operations of all launches.
    #[must_use]
    pub fn flop(&self) -> u64 {
        self.launches.iter().map(|row| row.flop).sum()
    }
}

fn by_op(launches: &[LaunchRow], peak: Option<&MachinePeak>) -> Vec<OpKindRow> {
    let mut kinds: BTreeMap<&'static str, OpKindRow> = BTreeMap::new();
    for row in launches {
        let kind = kinds.entry(row.op).or_insert(OpKindRow {
            op: row.op,
            launches: 0,
            time_us: 0.0,
            share: 0.0,
            flop: 0,
            bytes: 0,
            peak: None,
        });
        kind.launches += 1;
        kind.time_us += row.time_us;
        kind.share += row.share;
        kind.flop += row.flop;
        kind.bytes += row.bytes;
    }
    let mut kinds: Vec<OpKindRow> = kinds.into_values().collect();
    for kind in &mut kinds {
        kind.peak = peak.map(|peak| peak_share(peak, kind.flop, kind.bytes, kind.time_us));
    }
    kinds.sort_by(|a, b| b.time_us.total_cmp(&a.time_us));
    kinds
}

fn peak_share(peak: &MachinePeak, flop: u64, bytes: u64, time_us: f64) -> PeakShare {
    // A launch shorter than the clock's step reaches nothing that could be told.
    let share = |work: u64, best_per_s: f64| {
        if time_us > 0.0 {
            work as f64 / (time_us * 1e-6) / best_per_s
        } else {
            0.0
        }
    };
    PeakShare {
        flop: share(flop, peak.flop_per_s),
        bytes: share(bytes, peak.bytes_per_s),
    }
}

/// The median of some nanoseconds, in microseconds; of an even number the mean of the two in the middle.
fn median_us(mut times_ns: Vec<u64>) -> f64 {
    times_ns.sort_unstable();
    let middle = times_ns.len() / 2;
    match times_ns.len() {
        0 => 0.0,
        n if n % 2 == 1 => times_ns[middle] as f64 / 1e3,
        _ => (times_ns[middle - 1] as f64 + times_ns[middle] as f64) / 2e3,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::device::{OpDesc, Operand, Scalar};
    use crate::tensor::{DType, Shape, View};

    fn operand(elements: usize) -> Operand {
        Operand {
            dtype: DType::F32,
            view: View::contiguous(Shape::new(&[elements]).unwrap()),
        }
    }

    fn copy(elements: usize) -> OpDesc {
        OpDesc::Copy {
            src: operand(elements),
            dst: operand(elements),
        }
    }

    fn fill(elements: usize) -> OpDesc {
        OpDesc::Fill {
            dst: operand(elements),
            value: Scalar::new(0.0),
        }
    }

    fn replay(times: [[u64; 2]; 3]) -> Vec<LaunchTime> {
        let ops = [copy(1000), fill(500), copy(10)];
        let timed = ops.into_iter().zip(times);
        timed
            .map(|(op, [start_ns, end_ns])| LaunchTime { op, start_ns, end_ns })
            .collect()
    }

    #[test]
    fn times_are_medians_and_gaps_lie_between_launches() {
        let replays = [
            replay([[0, 4000], [4100, 5100], [5600, 5700]]),
            replay([[0, 6000], [6300, 9300], [9300, 9500]]),
            replay([[0, 90_000], [90_200, 92_200], [92_900, 93_200]]),
        ];
        let peak = MachinePeak {
            threads: 1,
            flop_per_s: 1e9,
            bytes_per_s: 4e9,
        };
        let profile = OpsProfile::of(&replays, Some(peak), 1).unwrap();
        let times: Vec<f64> = profile.launches.iter().map(|row| row.time_us).collect();
        assert_eq!(times, [6.0, 2.0, 0.2]);
        assert!((profile.launches_us - 8.2).abs() < 1e-12 && (profile.gaps_us - 0.7).abs() < 1e-12);
        assert_eq!((profile.replays, profile.span_us), (3, 9.5));
        assert_eq!(
            profile.top_gaps,
            [LaunchGap {
                before: 2,
                gap_us: 0.5
            }]
        );
        // 8000 bytes in 6 us of 4 GB/s.
        let share = profile.launches[0].peak.unwrap();
        assert!((share.bytes - 1.0 / 3.0).abs() < 1e-12 && share.flop == 0.0);
        assert_eq!(share.larger(), share.bytes);
        let kinds: Vec<_> = profile
            .by_op
            .iter()
            .map(|row| (row.op, row.launches, row.bytes))
            .collect();
        assert_eq!(kinds, [("copy", 2, 8080), ("fill", 1, 2000)]);
        assert!((profile.by_op.iter().map(|row| row.share).sum::<f64>() - 1.0).abs() < 1e-12);
        let longest: Vec<_> = profile.longest(2).iter().map(|row| row.index).collect();
        assert_eq!(longest, [0, 1]);
    }

    #[test]
    fn replays_of_different_traces_have_no_profile() {
        let one = replay([[0, 1], [1, 2], [2, 3]]);
        assert_eq!(OpsProfile::of(&[], None, 3), None);
        assert_eq!(OpsProfile::of(&[one.clone(), one[..2].to_vec()], None, 3), None);
        let mut other = one.clone();
        other[0].op = copy(7);
        assert_eq!(OpsProfile::of(&[one.clone(), other], None, 3), None);
        let profile = OpsProfile::of(&[one.clone(), one], None, 3).unwrap();
        assert_eq!(
            (profile.launches[0].time_us, profile.launches[0].peak),
            (0.001, None)
        );
    }
}
