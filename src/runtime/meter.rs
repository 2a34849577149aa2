//! Measures frames that came out and keeps what the report shows of them.

use std::sync::{Arc, Mutex, PoisonError};

use super::frame::{Detected, Sample};
use super::prepare::thumbnail;
use crate::outputs::Detections;
use crate::telemetry::report::ReportFrame;
use crate::telemetry::{
    LatencyOptions, LatencyRecorder, MonotonicClock, Observation, Stage, Streams, Timeline,
};

/// Frames in the report's gallery.
const GALLERY: usize = 8;

/// Width and height of the gallery's pictures in pixels, at most.
const GALLERY_SIDE_PX: usize = 960;

/// One meter measures all frames of a run.
#[derive(Debug)]
pub(crate) struct Meter {
    clock: MonotonicClock,
    latency: Mutex<LatencyRecorder>,
    timeline: Mutex<Timeline>,
    gallery: Option<Mutex<Gallery>>,
}

/// A spread of frames over a run of unknown length: every `stride`-th frame, and when there are too many, every
/// other one of them goes and the stride doubles.
#[derive(Debug, Default)]
struct Gallery {
    frames: Vec<(u64, Arc<Sample<Detected>>)>,
    seen: u64,
    stride: u64,
}

impl Gallery {
    fn offer(&mut self, sample: &Arc<Sample<Detected>>) {
        let position = self.seen;
        self.seen += 1;
        self.stride = self.stride.max(1);
        if !position.is_multiple_of(self.stride) {
            return;
        }
        if self.frames.len() == GALLERY {
            self.stride *= 2;
            let stride = self.stride;
            self.frames
                .retain(|(position, _)| position.is_multiple_of(stride));
            if !position.is_multiple_of(stride) {
                return;
            }
        }
        self.frames.push((position, Arc::clone(sample)));
    }
}

impl Meter {
    /// A meter; with `gallery` it keeps some frames for the report.
    #[must_use]
    pub(crate) fn new(
        clock: MonotonicClock,
        streams: Streams,
        options: LatencyOptions,
        gallery: bool,
    ) -> Self {
        Self {
            clock,
            latency: Mutex::new(LatencyRecorder::new(options)),
            timeline: Mutex::new(Timeline::new(streams, Timeline::DEFAULT_FRAMES)),
            gallery: gallery.then(|| Mutex::new(Gallery::default())),
        }
    }

    /// Counts a frame that has just been published.
    pub(crate) fn published(&self, sample: &Arc<Sample<Detected>>) {
        let meta = &sample.meta;
        let mut times = meta.times;
        times.end(Stage::Publish, self.clock.now_ns());
        // Bags are replayed long after their stamps, so there is no age to tell.
        let observation = Observation {
            frame: meta.id,
            stamp_ns: meta.stamp_ns,
            times: &times,
            published_wall_ns: None,
        };
        self.latency
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .record(&observation);
        self.timeline
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .offer(meta.id, &times);
        if let Some(gallery) = &self.gallery {
            gallery
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .offer(sample);
        }
    }

    /// Shows the latencies so far.
    pub(crate) fn with_latency<T>(&self, read: impl FnOnce(&LatencyRecorder) -> T) -> T {
        read(&self.latency.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The timeline so far.
    #[must_use]
    pub(crate) fn timeline(&self) -> Timeline {
        self.timeline
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The gallery's pictures, in the order of the frames.
    #[must_use]
    pub(crate) fn gallery(&self) -> Vec<ReportFrame> {
        let Some(gallery) = &self.gallery else {
            return Vec::new();
        };
        let gallery = gallery.lock().unwrap_or_else(PoisonError::into_inner);
        let frames = gallery.frames.iter().filter_map(|(_, sample)| {
            let Detections::Image(detections) = &sample.payload.detections else {
                return None;
            };
            let (jpeg, [width_px, height_px]) = thumbnail(&sample.message, GALLERY_SIDE_PX)?;
            Some(ReportFrame {
                stream: sample.meta.stream.to_string(),
                seq: sample.meta.id.seq,
                stamp_ns: sample.meta.stamp_ns,
                width_px,
                height_px,
                jpeg,
                detections: detections.clone(),
            })
        });
        frames.collect()
    }
}
