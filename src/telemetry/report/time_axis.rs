//! The time axis of the timeline.

use crate::telemetry::TimelineFrame;

/// Room for one frame along the time axis.
const FRAME_WIDTH: f64 = 62.0;
/// Longest drawing in lines.
const MAX_LINES: f64 = 5.0;
/// An idle stretch of more than twice this is cut to it.
const IDLE_WIDTH: f64 = 30.0;

/// Piecewise linear time: stretches in which frames were under way, with idle ones cut short between them.
pub(super) struct TimeAxis {
    /// In order, none empty of frames.
    pub(super) stretches: Vec<Stretch>,
    /// Scale inside a stretch.
    pub(super) px_per_ns: f64,
}

pub(super) struct Stretch {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) x0: f64,
}

impl TimeAxis {
    pub(super) fn new(frames: &[TimelineFrame], line_width: f64) -> Self {
        let mut busy: Vec<(u64, u64)> = frames
            .iter()
            .map(|f| (f.times.released_ns(), last_end_ns(f)))
            .collect();
        busy.sort_unstable();
        let mut stretches: Vec<Stretch> = Vec::new();
        for (start_ns, end_ns) in busy {
            match stretches.last_mut() {
                Some(last) if start_ns <= last.end_ns => last.end_ns = last.end_ns.max(end_ns),
                _ => stretches.push(Stretch {
                    start_ns,
                    end_ns,
                    x0: 0.0,
                }),
            }
        }
        let busy_ns: u64 = stretches.iter().map(|s| s.end_ns - s.start_ns).sum();
        let busy_px = (frames.len() as f64 * FRAME_WIDTH).clamp(line_width, line_width * MAX_LINES);
        let px_per_ns = busy_px / busy_ns.max(1) as f64;
        let mut x = 0.0;
        let mut previous_end_ns = stretches.first().map_or(0, |s| s.start_ns);
        for stretch in &mut stretches {
            let idle_px = (stretch.start_ns - previous_end_ns) as f64 * px_per_ns;
            x += if idle_px > 2.0 * IDLE_WIDTH {
                IDLE_WIDTH
            } else {
                idle_px
            };
            stretch.x0 = x;
            x += (stretch.end_ns - stretch.start_ns) as f64 * px_per_ns;
            previous_end_ns = stretch.end_ns;
        }
        Self { stretches, px_per_ns }
    }

    /// Position of a time that lies in a stretch.
    pub(super) fn x(&self, at_ns: u64) -> f64 {
        let index = self.stretches.partition_point(|s| s.start_ns <= at_ns);
        let stretch = &self.stretches[index.saturating_sub(1)];
        stretch.x0 + (at_ns.min(stretch.end_ns).saturating_sub(stretch.start_ns)) as f64 * self.px_per_ns
    }

    pub(super) fn width(&self) -> f64 {
        self.stretches
            .last()
            .map_or(0.0, |s| s.x0 + (s.end_ns - s.start_ns) as f64 * self.px_per_ns)
    }

    pub(super) fn start_ns(&self) -> u64 {
        self.stretches.first().map_or(0, |s| s.start_ns)
    }
}

/// End of the last stage of a frame; its release if it has none.
pub(super) fn last_end_ns(shown: &TimelineFrame) -> u64 {
    let released_ns = shown.times.released_ns();
    let ends = shown.times.spans().map(|(_, span)| span.finished_ns);
    ends.max().unwrap_or(released_ns).max(released_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{FrameId, FrameTimes, Stage, Streams};

    #[test]
    fn idle_time_is_cut_and_busy_time_keeps_its_scale() {
        let stream = Streams::default().register("cam");
        let frames = [(0, 0, 100), (50, 100, 200), (1_000_000, 1_000_000, 1_000_300)].map(
            |(released_us, start_us, end_us)| {
                let mut times = FrameTimes::new(released_us * 1000);
                times.begin(Stage::Replay, start_us * 1000);
                times.end(Stage::Replay, end_us * 1000);
                TimelineFrame {
                    frame: FrameId { stream, seq: 0 },
                    times,
                }
            },
        );
        let axis = TimeAxis::new(&frames, 900.0);
        let x = |us: u64| axis.x(us * 1000);
        assert_eq!(axis.stretches.len(), 2);
        let per_100_us = x(100) - x(0);
        assert!((x(200) - x(100) - per_100_us).abs() < 1e-6);
        assert!((x(1_000_300) - x(1_000_000) - 3.0 * per_100_us).abs() < 1e-6);
        assert!((x(1_000_000) - x(200) - IDLE_WIDTH).abs() < 1e-6);
        assert!((axis.width() - x(1_000_300)).abs() < 1e-6);
    }
}
