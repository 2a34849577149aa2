//! What a node says of itself on `/diagnostics`, with the names, keys and levels of Autoware's detectors.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::RosClock;
use crate::io::messages::{
    DiagnosticArrayMsg, DiagnosticStatusMsg, HeaderMsg, KeyValueMsg, diagnostic_level,
};
use crate::io::ros::RosPublisher;
use crate::pipeline::DiagnosticsSettings;
use crate::runtime::poses::Poses;

/// One status before it is a message.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Status {
    pub(super) level: u8,
    /// What it is about, without the node.
    pub(super) task: String,
    pub(super) message: String,
    pub(super) values: Vec<(&'static str, String)>,
}

/// Publishes statuses of a node.
#[derive(Debug)]
pub(super) struct Diagnostics {
    pub(super) node: String,
    pub(super) clock: RosClock,
    pub(super) publisher: Arc<dyn RosPublisher>,
}

/// How a truth value is written.
fn word(value: bool) -> String {
    if value { "True" } else { "False" }.to_owned()
}

impl Diagnostics {
    pub(super) fn publish(&self, statuses: &[Status]) -> Result<(), String> {
        let stamp = self.clock.stamp();
        let named: Vec<String> = statuses
            .iter()
            .map(|status| format!("{}: {}", self.node, status.task))
            .collect();
        let status = statuses
            .iter()
            .zip(&named)
            .map(|(status, name)| DiagnosticStatusMsg {
                level: status.level,
                name,
                message: &status.message,
                hardware_id: &self.node,
                values: status
                    .values
                    .iter()
                    .map(|(key, value)| KeyValueMsg { key, value })
                    .collect(),
            });
        let message = DiagnosticArrayMsg {
            header: HeaderMsg {
                stamp_sec: stamp.sec,
                stamp_nanosec: stamp.nanosec,
                frame_id: "",
            },
            status: status.collect(),
        };
        let bytes = message.encode().map_err(|error| error.to_string())?;
        self.publisher.publish(bytes).map_err(|error| error.to_string())
    }
}

/// Whether all of a sweep fit into the network's input.
pub(super) fn capacity_status(within: bool) -> Status {
    Status {
        level: if within {
            diagnostic_level::OK
        } else {
            diagnostic_level::WARN
        },
        task: "centerpoint_trt".into(),
        message: if within {
            "OK".into()
        } else {
            "the sweep has more pillars than the model takes; some of it was not seen".into()
        },
        values: vec![("is_num_pillars_within_range", word(within))],
    }
}

/// Judges processing times as Autoware's detectors do.
#[derive(Debug)]
pub(super) struct ProcessingWatch {
    settings: DiagnosticsSettings,
    /// What its status is called.
    task: String,
    last_ms: Option<f64>,
    /// When processing was fast enough last, or when it first was too slow.
    in_time_at: Option<Instant>,
}

impl ProcessingWatch {
    pub(super) const fn new(settings: DiagnosticsSettings, task: String) -> Self {
        Self {
            settings,
            task,
            last_ms: None,
            in_time_at: None,
        }
    }

    /// A frame took so long.
    pub(super) fn took(&mut self, processing_ms: f64) {
        self.last_ms = Some(processing_ms);
    }

    /// The status at this moment.
    pub(super) fn status(&mut self, now: Instant) -> Status {
        let task = self.task.clone();
        let Some(last_ms) = self.last_ms else {
            return Status {
                level: diagnostic_level::OK,
                task,
                message: "waiting for the first frame".into(),
                values: Vec::new(),
            };
        };
        let limit_ms = self.settings.max_allowed_processing_time_ms;
        let in_time = last_ms <= f64::from(limit_ms);
        if in_time {
            self.in_time_at = Some(now);
        }
        let since = *self.in_time_at.get_or_insert(now);
        let delay_ms = now.saturating_duration_since(since).as_secs_f64() * 1e3;
        let delay_limit_ms = self.settings.max_acceptable_consecutive_delay_ms;
        let short = delay_ms <= f64::from(delay_limit_ms);
        let (level, message) = match (in_time, short) {
            (true, true) => (diagnostic_level::OK, "OK".to_owned()),
            (_, true) => (
                diagnostic_level::WARN,
                format!("processing took {last_ms:.1} ms, {limit_ms} ms are allowed"),
            ),
            (_, false) => (
                diagnostic_level::ERROR,
                format!(
                    "processing has been too slow for {delay_ms:.0} ms, {delay_limit_ms} ms are acceptable"
                ),
            ),
        };
        Status {
            level,
            task,
            message,
            values: vec![
                ("is_processing_time_ms_in_expected_range", word(in_time)),
                ("processing_time_ms", format!("{last_ms:.3}")),
                ("is_consecutive_processing_delay_in_range", word(short)),
                ("consecutive_processing_delay_ms", format!("{delay_ms:.3}")),
            ],
        }
    }
}

/// Whether transforms were there when they were asked for.
fn transform_status(poses: &Poses) -> Status {
    let trouble = poses.recent_trouble();
    Status {
        level: if trouble.is_some() {
            diagnostic_level::WARN
        } else {
            diagnostic_level::OK
        },
        task: "transforms".into(),
        message: trouble.unwrap_or_else(|| "OK".into()),
        values: Vec::new(),
    }
}

/// A thread that publishes the node's state at a fixed interval until it is dropped.
#[derive(Debug)]
pub(super) struct Updater {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Updater {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start(
        diagnostics: Arc<Diagnostics>,
        watch: Arc<Mutex<ProcessingWatch>>,
        poses: Option<Arc<Poses>>,
        interval: Duration,
    ) -> std::io::Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = Arc::clone(&stop);
        let update = move || {
            let (stop, told) = &*stopped;
            let mut over = stop.lock().unwrap_or_else(PoisonError::into_inner);
            while !*over {
                let mut statuses = vec![
                    watch
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .status(Instant::now()),
                ];
                statuses.extend(poses.as_deref().map(transform_status));
                if let Err(error) = diagnostics.publish(&statuses) {
                    tracing::debug!(error, "diagnostics cannot be published");
                }
                let woken = told.wait_timeout(over, interval);
                (over, _) = woken.unwrap_or_else(PoisonError::into_inner);
            }
        };
        let thread = std::thread::Builder::new()
            .name("diagnostics".into())
            .spawn(update)?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Updater {
    fn drop(&mut self) {
        let (stop, told) = &*self.stop;
        *stop.lock().unwrap_or_else(PoisonError::into_inner) = true;
        told.notify_all();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has been told of by its panic.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value<'a>(status: &'a Status, key: &str) -> &'a str {
        let found = status.values.iter().find(|(known, _)| *known == key);
        found.map_or("", |(_, value)| value)
    }

    #[test]
    fn slow_frames_are_a_warning_and_being_slow_for_long_an_error() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut watch = ProcessingWatch::new(DiagnosticsSettings::default(), "t".into());
        let waiting = watch.status(at(0));
        assert_eq!((waiting.level, waiting.values.len()), (diagnostic_level::OK, 0));

        watch.took(200.0);
        let fine = watch.status(at(100));
        assert_eq!(fine.level, diagnostic_level::OK);
        assert_eq!(value(&fine, "processing_time_ms"), "200.000");

        watch.took(200.5);
        let slow = watch.status(at(1_100));
        assert_eq!(slow.level, diagnostic_level::WARN);
        assert_eq!(value(&slow, "is_processing_time_ms_in_expected_range"), "False");
        assert_eq!(value(&slow, "is_consecutive_processing_delay_in_range"), "True");
        assert_eq!(value(&slow, "consecutive_processing_delay_ms"), "1000.000");

        let long = watch.status(at(1_101));
        assert_eq!(long.level, diagnostic_level::ERROR);
        assert_eq!(value(&long, "is_consecutive_processing_delay_in_range"), "False");

        watch.took(20.0);
        assert_eq!(watch.status(at(1_200)).level, diagnostic_level::OK);
    }

    #[test]
    fn a_start_that_is_slow_counts_from_the_first_frame() {
        let start = Instant::now();
        let mut watch = ProcessingWatch::new(DiagnosticsSettings::default(), "t".into());
        watch.took(500.0);
        assert_eq!(watch.status(start).level, diagnostic_level::WARN);
        let later = start + Duration::from_millis(1_001);
        assert_eq!(watch.status(later).level, diagnostic_level::ERROR);
    }
}
