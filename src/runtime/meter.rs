//! Measures frames that came out and keeps what the report shows of them.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::control::Board;
use super::frame::{Detected, Sample};
use super::gallery::Gallery;
use super::prepare::{read_cloud, thumbnail};
use super::run::Progress;
use crate::lidar::PointCloud;
use crate::outputs::{DetectedObjects, Detections, Detections2D};
use crate::telemetry::live::Live;
use crate::telemetry::report::{ReportFrame, ReportPictures, SweepFrame, birds_eye_png};
use crate::telemetry::{
    FrameTimes, LatencyOptions, LatencyRecorder, Ledger, MonotonicClock, Observation, Stage, StreamId,
    Streams, Timeline,
};

/// Width and height of the gallery's pictures in pixels, at most.
const GALLERY_SIDE_PX: usize = 960;

/// Metres from the sensor to the edges of the gallery's pictures of sweeps.
const GALLERY_EXTENT_M: f32 = 55.0;

/// Who is told of the frames that a meter measures, and the accounts that it tells of.
type Watchers = (Arc<dyn Progress>, Arc<Ledger>, (Arc<Board>, Live));

/// One meter measures all frames of a run.
pub(crate) struct Meter {
    clock: MonotonicClock,
    latency: Mutex<LatencyRecorder>,
    timeline: Mutex<Timeline>,
    gallery: Option<Mutex<Gallery<Arc<Sample<Detected>>>>>,
    /// Stamps are of the present, so that the age of a result can be told.
    live: bool,
    progress: Arc<dyn Progress>,
    ledger: Arc<Ledger>,
    board: Arc<Board>,
    watch: Live,
    metrics: Mutex<HashMap<StreamId, StreamMetrics>>,
}

/// What the `metrics` recorder is told of one stream.
struct StreamMetrics {
    total: metrics::Histogram,
    deadline_misses: metrics::Counter,
}

impl StreamMetrics {
    fn new(name: &Arc<str>) -> Self {
        Self {
            total: metrics::histogram!("sensorium_frame_seconds", "stream" => Arc::clone(name)),
            deadline_misses: metrics::counter!("sensorium_deadline_misses_total", "stream" => Arc::clone(name)),
        }
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter")
            .field("latency", &self.latency)
            .finish_non_exhaustive()
    }
}

impl Meter {
    /// A meter; with `gallery` it keeps some frames for the report, `live` says that stamps are of the present.
    #[must_use]
    pub(crate) fn new(
        clock: MonotonicClock,
        streams: Streams,
        options: LatencyOptions,
        gallery: bool,
        live: bool,
        (progress, ledger, (board, watch)): Watchers,
    ) -> Self {
        Self {
            clock,
            latency: Mutex::new(LatencyRecorder::new(options)),
            timeline: Mutex::new(Timeline::new(streams, Timeline::DEFAULT_FRAMES)),
            gallery: gallery.then(|| Mutex::new(Gallery::default())),
            live,
            progress,
            ledger,
            board,
            watch,
            metrics: Mutex::new(HashMap::new()),
        }
    }

    /// Counts a frame that has just been published.
    pub(crate) fn published(&self, sample: &Arc<Sample<Detected>>) {
        let meta = &sample.meta;
        let mut times = meta.times;
        times.end(Stage::Publish, self.clock.now_ns());
        // Bags are replayed long after their stamps, so there is no age to tell.
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let published_wall_ns = self
            .live
            .then(|| i64::try_from(now().as_nanos()).unwrap_or(i64::MAX));
        let due_ns = meta
            .deadline_ns
            .map(|due_ns| due_ns.saturating_sub(times.released_ns()));
        let observation = Observation {
            frame: meta.id,
            stamp_ns: meta.stamp_ns,
            times: &times,
            deadline_ns: due_ns,
            published_wall_ns,
        };
        self.latency
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .record(&observation);
        self.timeline
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .offer(meta.id, &times);
        let name = self.ledger.streams().name(meta.id.stream);
        self.progress.frame(&name, meta.id, meta.stamp_ns, &times);
        let latency_ns = self.clock.now_ns().saturating_sub(times.released_ns());
        let late = due_ns
            .zip(times.total_ns())
            .map(|(due_ns, total_ns)| total_ns > due_ns);
        if let Some(late) = late {
            self.board.judge((meta.id.stream, &name), late);
        }
        self.tell_metrics(meta.id.stream, late == Some(true), &times);
        let latency = Duration::from_nanos(latency_ns);
        self.progress
            .result(sample.payload.detections.len(), latency, self.ledger.dropped());
        if let Some(gallery) = &self.gallery {
            gallery
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .offer(&meta.stream, meta.stamp_ns, sample);
        }
    }

    fn tell_metrics(&self, stream: StreamId, late: bool, times: &FrameTimes) {
        self.watch.came_out(stream, times);
        let Some(total_ns) = times.total_ns() else { return };
        let mut metrics = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        let metrics = metrics
            .entry(stream)
            .or_insert_with(|| StreamMetrics::new(&self.ledger.streams().name(stream)));
        metrics.total.record(total_ns as f64 * 1e-9);
        if late {
            metrics.deadline_misses.increment(1);
            self.watch.missed_deadline(stream);
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
    pub(crate) fn gallery(&self) -> ReportPictures {
        let mut pictures = ReportPictures::default();
        let Some(gallery) = &self.gallery else {
            return pictures;
        };
        let gallery = gallery.lock().unwrap_or_else(PoisonError::into_inner);
        for sample in gallery.frames() {
            match &sample.payload.detections {
                Detections::Image(found) => pictures.frames.extend(photo(sample, found)),
                Detections::Objects(found) => pictures.sweeps.extend(from_above(sample, found)),
            }
        }
        pictures
    }
}

fn photo(sample: &Sample<Detected>, found: &Detections2D) -> Option<ReportFrame> {
    let (jpeg, [width_px, height_px]) = thumbnail(&sample.message, GALLERY_SIDE_PX)?;
    Some(ReportFrame {
        stream: sample.meta.stream.to_string(),
        seq: sample.meta.id.seq,
        stamp_ns: sample.meta.stamp_ns,
        width_px,
        height_px,
        jpeg,
        detections: found.clone(),
        truth: Vec::new(),
    })
}

fn from_above(sample: &Sample<Detected>, found: &DetectedObjects) -> Option<SweepFrame> {
    let mut cloud = PointCloud::default();
    read_cloud(&sample.message, &mut cloud).ok()?;
    Some(SweepFrame {
        stream: sample.meta.stream.to_string(),
        seq: sample.meta.id.seq,
        stamp_ns: sample.meta.stamp_ns,
        png: birds_eye_png(cloud.columns(), GALLERY_EXTENT_M).ok()?,
        extent_m: GALLERY_EXTENT_M,
        objects: found.objects.clone(),
        truth: Vec::new(),
    })
}
