//! The latency of a run, stage by stage and stream by stream.

use metrics::Histogram;

use super::regularity::{DeadlineStreak, Jitter};
use super::{
    CurvePoint, FrameId, FrameTimes, JitterStats, LatencyHistogram, LatencyStats, Part, Stage, StreamId,
};

/// What the latencies of a run are held against.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatencyOptions {
    /// Longest permitted time from the intended release to the end of publishing that a report names, in nanoseconds. What
    /// a frame has to keep is told with it.
    pub deadline_ns: Option<u64>,
    /// Sensor time over wall time: 1 for a live stream, the speed of a paced replay. `None` where results come
    /// out as fast as they can, which has no rhythm to keep and hence no jitter.
    pub rate: Option<f64>,
}

/// A frame that came out.
#[derive(Debug, Clone, Copy)]
pub struct Observation<'a> {
    /// The frame.
    pub frame: FrameId,
    /// Sensor stamp in nanoseconds since the epoch of the sensor's clock.
    pub stamp_ns: i64,
    /// When it passed the stages.
    pub times: &'a FrameTimes,
    /// Longest permitted time from its intended release to the end of publishing, in nanoseconds; `None` where any time is
    /// good enough.
    pub deadline_ns: Option<u64>,
    /// Wall time of publishing in nanoseconds since the epoch; only for live streams, whose stamps are wall
    /// times too.
    pub published_wall_ns: Option<i64>,
}

/// Histograms of all that is measured. One recorder per thread and [`LatencyRecorder::merge`] at the end, or
/// one behind a lock; all frames of a stream should go through the same one, in order.
#[derive(Debug)]
pub struct LatencyRecorder {
    options: LatencyOptions,
    stages: [StageLatency; Stage::COUNT],
    total: LatencyHistogram,
    age: LatencyHistogram,
    stamped_in_future: u64,
    unpublished: u64,
    first_released_ns: u64,
    last_published_ns: u64,
    streams: Vec<StreamLatency>,
}

#[derive(Debug)]
struct StageLatency {
    wait: LatencyHistogram,
    service: LatencyHistogram,
    wait_metric: Histogram,
    service_metric: Histogram,
}

impl StageLatency {
    fn new(stage: Stage) -> Self {
        let metric = |part: Part| metrics::histogram!("sensorium_stage_seconds", "stage" => stage.name(), "part" => part.name());
        Self {
            wait: LatencyHistogram::new(),
            service: LatencyHistogram::new(),
            wait_metric: metric(Part::Wait),
            service_metric: metric(Part::Service),
        }
    }
}

#[derive(Debug, Default)]
struct StreamLatency {
    total: LatencyHistogram,
    deadline: DeadlineStreak,
    jitter: Jitter,
}

impl LatencyRecorder {
    /// An empty recorder. A `metrics` recorder, if any, must be installed before.
    #[must_use]
    pub fn new(options: LatencyOptions) -> Self {
        Self {
            options,
            stages: Stage::ALL.map(StageLatency::new),
            total: LatencyHistogram::new(),
            age: LatencyHistogram::new(),
            stamped_in_future: 0,
            unpublished: 0,
            first_released_ns: u64::MAX,
            last_published_ns: 0,
            streams: Vec::new(),
        }
    }

    /// What the latencies are held against.
    #[must_use]
    pub const fn options(&self) -> LatencyOptions {
        self.options
    }

    /// Counts a frame that came out. Allocates only for the first frame of a stream.
    pub fn record(&mut self, observation: &Observation<'_>) {
        let times = observation.times;
        for (stage, span) in times.spans() {
            let latency = &mut self.stages[stage.index()];
            latency.wait.record(span.wait_ns());
            latency.service.record(span.service_ns());
            latency.wait_metric.record(span.wait_ns() as f64 * 1e-9);
            latency.service_metric.record(span.service_ns() as f64 * 1e-9);
        }
        let (Some(published_ns), Some(total_ns)) = (times.published_ns(), times.total_ns()) else {
            self.unpublished += 1;
            return;
        };
        self.total.record(total_ns);
        self.first_released_ns = self.first_released_ns.min(times.released_ns());
        self.last_published_ns = self.last_published_ns.max(published_ns);
        if let Some(wall_ns) = observation.published_wall_ns {
            match u64::try_from(i128::from(wall_ns) - i128::from(observation.stamp_ns)) {
                Ok(age_ns) => self.age.record(age_ns),
                Err(_) => self.stamped_in_future += 1,
            }
        }

        let rate = self.options.rate;
        let stream = self.stream_mut(observation.frame.stream);
        stream.total.record(total_ns);
        if let Some(deadline_ns) = observation.deadline_ns {
            stream.deadline.record(total_ns > deadline_ns);
        }
        if let Some(rate) = rate {
            stream.jitter.record(published_ns, observation.stamp_ns, rate);
        }
    }

    /// Adds what another recorder counted. Streaks and output intervals do not reach from one to the other.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.stages.iter_mut().zip(&other.stages) {
            mine.wait.merge(&theirs.wait);
            mine.service.merge(&theirs.service);
        }
        self.total.merge(&other.total);
        self.age.merge(&other.age);
        self.stamped_in_future += other.stamped_in_future;
        self.unpublished += other.unpublished;
        self.first_released_ns = self.first_released_ns.min(other.first_released_ns);
        self.last_published_ns = self.last_published_ns.max(other.last_published_ns);
        self.streams.resize_with(
            self.streams.len().max(other.streams.len()),
            StreamLatency::default,
        );
        for (mine, theirs) in self.streams.iter_mut().zip(&other.streams) {
            mine.total.merge(&theirs.total);
            mine.deadline.merge(&theirs.deadline);
            mine.jitter.merge(&theirs.jitter);
        }
    }

    /// One part of a stage's latency.
    #[must_use]
    pub fn stage(&self, stage: Stage, part: Part) -> Option<LatencyStats> {
        let latency = &self.stages[stage.index()];
        match part {
            Part::Wait => latency.wait.stats(),
            Part::Service => latency.service.stats(),
        }
    }

    /// The values behind [`Self::stage`].
    #[must_use]
    pub const fn stage_histogram(&self, stage: Stage, part: Part) -> &LatencyHistogram {
        let latency = &self.stages[stage.index()];
        match part {
            Part::Wait => &latency.wait,
            Part::Service => &latency.service,
        }
    }

    /// The values behind [`Self::stream_total`], by the number of the stream.
    #[must_use]
    pub fn stream_histogram(&self, stream: usize) -> Option<&LatencyHistogram> {
        Some(&self.streams.get(stream)?.total)
    }

    /// Intended release to end of publishing, all streams.
    #[must_use]
    pub fn total(&self) -> Option<LatencyStats> {
        self.total.stats()
    }

    /// The distribution of [`LatencyRecorder::total`].
    #[must_use]
    pub fn total_curve(&self) -> Vec<CurvePoint> {
        self.total.curve()
    }

    /// Sensor stamp to publishing, for live streams.
    #[must_use]
    pub fn age(&self) -> Option<LatencyStats> {
        self.age.stats()
    }

    /// Frames whose sensor stamp lay after their publishing: two clocks that disagree. They have no age.
    #[must_use]
    pub const fn stamped_in_future(&self) -> u64 {
        self.stamped_in_future
    }

    /// Frames that were reported as out without an end of publishing; they have no total.
    #[must_use]
    pub const fn unpublished(&self) -> u64 {
        self.unpublished
    }

    /// Frames per second from the first intended release to the last publishing, to three decimals.
    #[must_use]
    pub fn throughput_fps(&self) -> Option<f64> {
        let busy_ns = self.last_published_ns.checked_sub(self.first_released_ns)?;
        (busy_ns > 0).then(|| (self.total.count() as f64 * 1e12 / busy_ns as f64).round() / 1e3)
    }

    /// Total latency of one stream.
    #[must_use]
    pub fn stream_total(&self, stream: StreamId) -> Option<LatencyStats> {
        self.streams.get(stream.index())?.total.stats()
    }

    /// Regularity of one stream's output.
    #[must_use]
    pub fn stream_jitter(&self, stream: StreamId) -> Option<JitterStats> {
        self.streams.get(stream.index())?.jitter.stats()
    }

    /// Deadline misses of one stream and the longest run of them.
    #[must_use]
    pub fn stream_misses(&self, stream: StreamId) -> (u64, u64) {
        self.streams
            .get(stream.index())
            .map_or((0, 0), |s| (s.deadline.misses, s.deadline.longest_streak))
    }

    fn stream_mut(&mut self, stream: StreamId) -> &mut StreamLatency {
        let index = stream.index();
        if self.streams.len() <= index {
            self.streams.resize_with(index + 1, StreamLatency::default);
        }
        &mut self.streams[index]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;
    use crate::telemetry::Streams;

    const MS: u64 = 1_000_000;

    fn options(deadline_ms: Option<u64>) -> LatencyOptions {
        LatencyOptions {
            deadline_ns: deadline_ms.map(|ms| ms * MS),
            rate: Some(1.0),
        }
    }

    fn times(released_ns: u64, started_ns: u64, finished_ns: u64) -> FrameTimes {
        let mut times = FrameTimes::new(released_ns);
        times.begin(Stage::Publish, started_ns);
        times.end(Stage::Publish, finished_ns);
        times
    }

    #[test]
    fn a_stalled_consumer_shows_in_the_latency_of_every_frame_it_held_up() {
        // Frames are due every 10 ms and take 1 ms each, but the consumer stands still for one second at
        // t = 100 ms. A source that is blocked meanwhile starts the held-up frames one after the other.
        let stream = Streams::default().register("cam");
        let mut recorder = LatencyRecorder::new(options(Some(50)));
        let mut free_ns = 0;
        for seq in 0..200 {
            let released_ns = seq * 10 * MS;
            let stall_ns = if seq == 10 { 1000 * MS } else { 0 };
            let started_ns = released_ns.max(free_ns);
            free_ns = started_ns + MS + stall_ns;
            recorder.record(&Observation {
                frame: FrameId { stream, seq },
                stamp_ns: released_ns as i64,
                times: &times(released_ns, started_ns, free_ns),
                deadline_ns: recorder.options().deadline_ns,
                published_wall_ns: None,
            });
        }
        // The stall ends at 1101 ms; the backlog of n frames is worked off at 1 ms against 10 ms each. Frame
        // 10 + k is late by 1001 - 9 k ms, so 106 frames (k = 0..=105) are above 50 ms.
        let service = recorder.stage(Stage::Publish, Part::Service).unwrap();
        assert_eq!(
            service.p99_us.round(),
            1000.0,
            "service time alone hides the stall"
        );
        let total = recorder.total().unwrap();
        assert_eq!(total.max_us, 1_001_000.0);
        // 88 frames take 1 ms, and rank 100 of 200 is the twelfth of the others: k = 100, 1001 - 900 ms.
        assert!((total.p50_us - 101_000.0).abs() <= 101.0, "{total:?}");
        assert_eq!(recorder.stream_misses(stream), (106, 106));
    }

    #[test]
    fn age_counts_from_the_stamp_and_latency_from_the_release() {
        let stream = Streams::default().register("cam");
        let mut recorder = LatencyRecorder::new(options(None));
        let wall_ns = 1_700_000_000_000_000_000_i64;
        for (seq, stamp_lag_ms) in [(0, 80), (1, 90), (2, -5)] {
            recorder.record(&Observation {
                frame: FrameId { stream, seq },
                stamp_ns: wall_ns - stamp_lag_ms * MS as i64,
                times: &times(0, 0, 10 * MS),
                deadline_ns: recorder.options().deadline_ns,
                published_wall_ns: Some(wall_ns),
            });
        }
        let age = recorder.age().unwrap();
        assert_eq!((age.n, age.min_us, age.max_us), (2, 80_000.0, 90_000.0));
        assert_eq!(recorder.stamped_in_future(), 1);
        assert_eq!(recorder.total().unwrap().max_us, 10_000.0);
    }

    #[test]
    fn merged_recorders_equal_one_that_saw_everything() {
        let streams = Streams::default();
        let ids = [streams.register("a"), streams.register("b")];
        let mut whole = LatencyRecorder::new(options(Some(5)));
        let mut parts = [
            LatencyRecorder::new(options(Some(5))),
            LatencyRecorder::new(options(Some(5))),
        ];
        for seq in 0..500_u64 {
            for (i, stream) in ids.into_iter().enumerate() {
                let released_ns = seq * 10 * MS;
                let total_ns = (seq * 7919 + i as u64 * 31) % (8 * MS);
                let times = times(released_ns, released_ns, released_ns + total_ns);
                let observation = Observation {
                    frame: FrameId { stream, seq },
                    stamp_ns: released_ns as i64,
                    times: &times,
                    deadline_ns: Some(5 * MS),
                    published_wall_ns: None,
                };
                whole.record(&observation);
                parts[i].record(&observation);
            }
        }
        let [mut merged, second] = parts;
        merged.merge(&second);
        assert_eq!(merged.total(), whole.total());
        assert_eq!(merged.throughput_fps(), whole.throughput_fps());
        for stream in ids {
            assert_eq!(merged.stream_total(stream), whole.stream_total(stream));
            assert_eq!(merged.stream_misses(stream), whole.stream_misses(stream));
            assert_eq!(merged.stream_jitter(stream), whole.stream_jitter(stream));
        }
    }

    #[test]
    fn a_run_without_frames_has_no_numbers() {
        let stream = Streams::default().register("cam");
        let recorder = LatencyRecorder::new(options(Some(5)));
        assert_eq!(recorder.throughput_fps(), None);
        assert_eq!((recorder.total(), recorder.age()), (None, None));
        assert_eq!(recorder.stream_misses(stream), (0, 0));
    }

    #[test]
    fn throughput_counts_from_the_first_release_to_the_last_publishing() {
        let stream = Streams::default().register("cam");
        let mut recorder = LatencyRecorder::new(options(None));
        for seq in 0..11 {
            recorder.record(&Observation {
                frame: FrameId { stream, seq },
                stamp_ns: 0,
                times: &times(seq * 100 * MS, seq * 100 * MS, seq * 100 * MS + 100 * MS),
                deadline_ns: recorder.options().deadline_ns,
                published_wall_ns: None,
            });
        }
        assert_eq!(recorder.throughput_fps(), Some(10.0));
    }

    #[test]
    fn a_frame_that_takes_exactly_the_deadline_has_met_it() {
        let stream = Streams::default().register("cam");
        let mut recorder = LatencyRecorder::new(options(Some(5)));
        for (seq, total_ns) in [(0, 5 * MS - 1), (1, 5 * MS), (2, 5 * MS + 1)] {
            recorder.record(&Observation {
                frame: FrameId { stream, seq },
                stamp_ns: 0,
                times: &times(0, 0, total_ns),
                deadline_ns: recorder.options().deadline_ns,
                published_wall_ns: None,
            });
        }
        assert_eq!(recorder.stream_misses(stream), (1, 1));
    }

    /// Streams of two sources, of which each has a deadline of its own, and one of a source without any.
    #[test]
    fn every_frame_is_held_against_its_own_deadline() {
        let streams = Streams::default();
        let mut recorder = LatencyRecorder::new(options(Some(5)));
        let deadlines = [Some(5 * MS), Some(20 * MS), None];
        let ids = ["quick", "slow", "any"].map(|name| streams.register(name));
        for (stream, deadline_ns) in ids.into_iter().zip(deadlines) {
            for (seq, total_ns) in [(0, 4 * MS), (1, 10 * MS), (2, 30 * MS)] {
                recorder.record(&Observation {
                    frame: FrameId { stream, seq },
                    stamp_ns: 0,
                    times: &times(0, 0, total_ns),
                    deadline_ns,
                    published_wall_ns: None,
                });
            }
        }
        let misses = ids.map(|stream| recorder.stream_misses(stream));
        assert_eq!(misses, [(2, 2), (1, 1), (0, 0)]);
    }

    #[test]
    fn a_frame_without_an_end_of_publishing_is_not_passed_over() {
        let stream = Streams::default().register("cam");
        let mut recorder = LatencyRecorder::new(options(None));
        let mut times = FrameTimes::new(0);
        times.begin(Stage::Replay, MS);
        times.end(Stage::Replay, 3 * MS);
        recorder.record(&Observation {
            frame: FrameId { stream, seq: 0 },
            stamp_ns: 0,
            times: &times,
            deadline_ns: None,
            published_wall_ns: None,
        });
        assert_eq!(recorder.unpublished(), 1);
        assert_eq!(recorder.total(), None);
        assert_eq!(
            recorder.stage(Stage::Replay, Part::Service).unwrap().max_us,
            2_000.0
        );
    }
}
