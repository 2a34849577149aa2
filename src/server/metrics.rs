//! Counters and times of the service, in Prometheus' text form.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

/// Bounds of the histograms in seconds.
const BUCKETS_S: [f64; 14] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0,
];

/// How often what has been measured is put into its buckets: until then it takes memory.
pub(super) const UPKEEP: Duration = Duration::from_secs(5);

static METADATA: Metadata<'static> =
    Metadata::new("sensorium::server", Level::INFO, Some("sensorium::server"));

/// What the service counts. Every instance has its own numbers.
pub(super) struct ServiceMetrics {
    recorder: Mutex<PrometheusRecorder>,
    handle: PrometheusHandle,
    /// Requests whose client went away before the answer.
    pub(super) abandoned: Counter,
    /// Requests under way.
    pub(super) in_flight: Gauge,
    /// Open connections.
    pub(super) connections: Gauge,
    /// Time from a body's end to the answer.
    pub(super) total: Histogram,
    /// Time until a place was free.
    pub(super) waited: Histogram,
}

impl ServiceMetrics {
    pub(super) fn new() -> Result<Self, BuildError> {
        let builder = PrometheusBuilder::new();
        let builder = builder.set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS_S)?;
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        let key = |name: &'static str| Key::from_name(name);
        recorder.describe_counter(
            "sensorium_http_requests_total".into(),
            None,
            "Requests by route and status.".into(),
        );
        recorder.describe_histogram(
            "sensorium_predict_seconds".into(),
            None,
            "Time of a prediction by its part.".into(),
        );
        let part = |part: &'static str| {
            let key = Key::from_parts("sensorium_predict_seconds", vec![Label::new("part", part)]);
            recorder.register_histogram(&key, &METADATA)
        };
        Ok(Self {
            abandoned: recorder.register_counter(&key("sensorium_http_abandoned_total"), &METADATA),
            in_flight: recorder.register_gauge(&key("sensorium_http_in_flight"), &METADATA),
            connections: recorder.register_gauge(&key("sensorium_http_connections"), &METADATA),
            total: part("total"),
            waited: part("waited"),
            handle,
            recorder: Mutex::new(recorder),
        })
    }

    /// Counts an answer.
    pub(super) fn answered(&self, route: &'static str, status: u16) {
        let labels = vec![
            Label::new("route", route),
            Label::new("status", status.to_string()),
        ];
        let key = Key::from_parts("sensorium_http_requests_total", labels);
        let recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        recorder.register_counter(&key, &METADATA).increment(1);
    }

    /// Records how long a part of a prediction took.
    pub(super) fn part(&self, part: &'static str, time: Duration) {
        let key = Key::from_parts("sensorium_predict_seconds", vec![Label::new("part", part)]);
        let recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        recorder
            .register_histogram(&key, &METADATA)
            .record(time.as_secs_f64());
    }

    /// Puts what was measured into its buckets.
    pub(super) fn upkeep(&self) {
        self.handle.run_upkeep();
    }

    /// Everything, as Prometheus reads it.
    pub(super) fn render(&self) -> String {
        self.upkeep();
        self.handle.render()
    }
}

impl fmt::Debug for ServiceMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceMetrics").finish_non_exhaustive()
    }
}
