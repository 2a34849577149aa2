//! Frames as they come out of a benchmark.

use std::sync::{Arc, Mutex, PoisonError};

use crate::telemetry::{FrameId, FrameTimes, LatencyOptions, LatencyRecorder, Observation};

/// A frame that came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Its stream, by the place among the names.
    pub stream: u32,
    /// When it was due, in nanoseconds on the clock of the run.
    pub due_ns: u64,
    /// When its result was published, on the same clock.
    pub published_ns: u64,
}

impl Sample {
    /// From due to published.
    #[must_use]
    pub const fn latency_ns(&self) -> u64 {
        self.published_ns.saturating_sub(self.due_ns)
    }
}

/// Takes down the frames of a benchmark; those of the warm-up are left out.
#[derive(Debug)]
pub struct Collector {
    inner: Mutex<Collected>,
}

/// What a collector took down.
#[derive(Debug)]
pub struct Collected {
    /// Histograms, stage by stage and stream by stream.
    pub recorder: LatencyRecorder,
    /// Every frame, in the order in which they came out.
    pub samples: Vec<Sample>,
    /// Names of the streams, by number.
    pub streams: Vec<Arc<str>>,
}

impl Collector {
    /// An empty collector.
    #[must_use]
    pub fn new(deadline_ns: Option<u64>) -> Self {
        Self {
            inner: Mutex::new(Collected {
                recorder: LatencyRecorder::new(LatencyOptions {
                    deadline_ns,
                    rate: None,
                }),
                samples: Vec::new(),
                streams: Vec::new(),
            }),
        }
    }

    /// Takes down a frame that was due at `measured_from_ns` or later.
    pub fn frame(
        &self,
        name: &Arc<str>,
        frame: FrameId,
        stamp_ns: i64,
        times: &FrameTimes,
        measured_from_ns: u64,
    ) {
        let due_ns = times.released_ns();
        let Some(published_ns) = times.published_ns().filter(|_| due_ns >= measured_from_ns) else {
            return;
        };
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = frame.stream.index();
        while inner.streams.len() <= stream {
            inner.streams.push(Arc::from(""));
        }
        if inner.streams[stream].is_empty() {
            inner.streams[stream] = Arc::clone(name);
        }
        let deadline_ns = inner.recorder.options().deadline_ns;
        inner.recorder.record(&Observation {
            frame,
            stamp_ns,
            times,
            deadline_ns,
            published_wall_ns: None,
        });
        inner.samples.push(Sample {
            stream: stream as u32,
            due_ns,
            published_ns,
        });
    }

    /// What was taken down so far, leaving nothing.
    #[must_use]
    pub fn take(&self) -> Collected {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let options = inner.recorder.options();
        std::mem::replace(
            &mut *inner,
            Collected {
                recorder: LatencyRecorder::new(options),
                samples: Vec::new(),
                streams: Vec::new(),
            },
        )
    }
}
