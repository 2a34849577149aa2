//! What `/metrics` shows, in the text format of Prometheus
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).
//!
//! Counters and histograms go through the `metrics` facade as they happen, so that a program that embeds this library can
//! have its own recorder. Readings of the present are taken when they are asked for, here.

use std::fmt::Write;

use super::{Live, LiveState, LiveStatus};

/// Upper bounds of the buckets of a histogram of stages, in seconds.
const STAGE_BOUNDS_S: [f64; 15] = [
    20e-6, 50e-6, 100e-6, 250e-6, 500e-6, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
];
/// Upper bounds of the buckets of a histogram of whole frames, in seconds.
const FRAME_BOUNDS_S: [f64; 14] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 1.0, 5.0,
];

/// Every histogram of the `metrics` facade, with the upper bounds of its buckets.
pub const HISTOGRAMS: [(&str, &[f64]); 2] = [
    ("sensorium_stage_seconds", &STAGE_BOUNDS_S),
    ("sensorium_frame_seconds", &FRAME_BOUNDS_S),
];

/// Tells the `metrics` recorder what its counters and histograms mean. To be called once one is installed.
pub fn describe_metrics() {
    use metrics::{describe_counter, describe_histogram};
    describe_counter!(
        "sensorium_frames_total",
        "Frames that came in (edge=\"in\") and out (edge=\"out\"), by stream."
    );
    describe_counter!(
        "sensorium_drops_total",
        "Frames that did not come out, by stream, place and reason."
    );
    describe_counter!(
        "sensorium_deadline_misses_total",
        "Frames that came out after their deadline, by stream."
    );
    describe_counter!(
        "sensorium_device_restarts_total",
        "How often a lost device was opened again."
    );
    describe_counter!(
        "sensorium_actor_restarts_total",
        "How often an actor was started again, by actor."
    );
    describe_counter!(
        "sensorium_preprocess_plans_total",
        "Images for whose size the tables of pre-processing were at hand (result=\"hit\") or had to be made (\"miss\")."
    );
    describe_histogram!(
        "sensorium_stage_seconds",
        "Time of the frames that came out at each stage: waiting for it (part=\"wait\") and in it (part=\"service\")."
    );
    describe_histogram!(
        "sensorium_frame_seconds",
        "From the release of a frame to the end of publishing its result, by stream."
    );
}

impl Live {
    /// The readings of the present, in the text format of Prometheus. Their names are no names of the `metrics` facade, so
    /// that both texts can follow one another.
    #[must_use]
    pub fn exposition(&self) -> String {
        Exposition::default().of(&self.status())
    }
}

#[derive(Default)]
struct Exposition {
    text: String,
}

impl Exposition {
    fn of(mut self, status: &LiveStatus) -> String {
        self.family(
            "sensorium_pipeline_state",
            "gauge",
            "Whether the pipeline is in this state (1) or not (0).",
            LiveState::ALL.map(|state| {
                let is_in = if state == status.state { 1.0 } else { 0.0 };
                (vec![("state", state.name())], is_in)
            }),
        );
        self.single(
            "sensorium_uptime_seconds",
            "gauge",
            "Time since the run began.",
            status.uptime_s,
        );
        self.family(
            "sensorium_frames_under_way",
            "gauge",
            "Frames that came in and are neither out nor dropped, by stream.",
            status
                .streams
                .iter()
                .map(|s| (vec![("stream", s.name.as_str())], s.under_way as f64)),
        );
        self.queues(status);
        self.device(status);
        self.sinks(status);
        self.process(status);
        self.text
    }

    fn queues(&mut self, status: &LiveStatus) {
        let of = |value: fn(&super::QueueReading) -> f64| {
            let labels = |q: &super::QueueReading| vec![("from", q.from.clone()), ("to", q.to.clone())];
            status.queues.iter().map(move |q| (labels(q), value(q)))
        };
        self.family(
            "sensorium_queue_length",
            "gauge",
            "Items that wait in the channel between two actors.",
            of(|q| q.len as f64),
        );
        self.family(
            "sensorium_queue_capacity",
            "gauge",
            "Places in the channel between two actors.",
            of(|q| q.capacity as f64),
        );
        self.family(
            "sensorium_queue_oldest_age_seconds",
            "gauge",
            "How long the oldest item that waits has waited; 0 where nothing waits.",
            of(|q| q.oldest_age_s),
        );
        self.family(
            "sensorium_queue_taken_age_seconds",
            "gauge",
            "How long the item that was received last had waited.",
            of(|q| q.taken_age_s),
        );
        self.family(
            "sensorium_queue_items_total",
            "counter",
            "Items that were put into the channel.",
            of(|q| q.sent as f64),
        );
        self.family(
            "sensorium_queue_drops_total",
            "counter",
            "Items that were taken out of a full channel, or found no room in it.",
            of(|q| q.dropped as f64),
        );
    }

    fn device(&mut self, status: &LiveStatus) {
        let device = &status.device_use;
        let queues = |replay: f64, transfer: f64| {
            [
                (vec![("queue", "replay")], replay),
                (vec![("queue", "transfer")], transfer),
            ]
        };
        self.family(
            "sensorium_device_busy_seconds_total",
            "counter",
            "Time in which the device replayed (queue=\"replay\") or uploaded and read (queue=\"transfer\").",
            queues(device.replay_busy_s, device.transfer_busy_s),
        );
        self.family(
            "sensorium_device_utilisation_ratio",
            "gauge",
            "Share of the last ten seconds in which the device's queue was busy.",
            queues(device.replay_utilisation, device.transfer_utilisation),
        );
        self.single(
            "sensorium_device_frames_total",
            "counter",
            "Frames that came back from the device.",
            device.frames as f64,
        );
        let banks = |value: fn(&super::BankReading) -> usize| {
            let banks = status.banks.iter();
            banks.map(move |bank| (vec![("model", bank.model.as_str())], value(bank) as f64))
        };
        self.family(
            "sensorium_banks_used",
            "gauge",
            "State banks of a model that a stream has.",
            banks(|bank| bank.used),
        );
        self.family(
            "sensorium_banks",
            "gauge",
            "State banks of a model.",
            banks(|bank| bank.capacity),
        );
    }

    fn sinks(&mut self, status: &LiveStatus) {
        let of = |value: fn(&super::SinkReading) -> u64| {
            let sinks = status.sinks.iter();
            sinks.map(move |sink| (vec![("sink", sink.name.as_str())], value(sink) as f64))
        };
        self.family(
            "sensorium_sink_written_total",
            "counter",
            "Results that a sink wrote.",
            of(|sink| sink.written),
        );
        self.family(
            "sensorium_sink_dropped_total",
            "counter",
            "Results that a sink had no room for or could not write.",
            of(|sink| sink.dropped),
        );
    }

    fn process(&mut self, status: &LiveStatus) {
        // The names that every exporter uses for them.
        let process = &status.process;
        self.single(
            "process_resident_memory_bytes",
            "gauge",
            "Memory of the process that is resident.",
            process.resident_bytes as f64,
        );
        self.single(
            "process_cpu_seconds_total",
            "counter",
            "Processor time of all threads of the process.",
            process.cpu_s,
        );
        self.single(
            "process_threads",
            "gauge",
            "Threads of the process.",
            process.threads as f64,
        );
        self.single(
            "process_open_fds",
            "gauge",
            "Open file descriptors of the process.",
            process.open_files as f64,
        );
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.family(name, kind, help, [(Vec::<(&str, &str)>::new(), value)]);
    }

    /// One family; none without samples.
    fn family<T: AsRef<str>>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Vec<(&'static str, T)>, f64)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            self.text += name;
            for (i, (label, text)) in labels.iter().enumerate() {
                let before = if i == 0 { '{' } else { ',' };
                let _ = write!(self.text, "{before}{label}=\"{}\"", escaped(text.as_ref()));
            }
            let after = if labels.is_empty() { "" } else { "}" };
            let _ = writeln!(self.text, "{after} {value}");
        }
        self.text.push('\n');
    }
}

/// The text of a label between its quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\")
        .replace('"', "\\\"")
        .replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::MonotonicClock;

    #[test]
    fn families_have_help_type_and_escaped_labels() {
        let live = Live::default();
        let clock = MonotonicClock::start();
        let queue = live.queue("a \"camera\"\\", "line\nbreak", 4, clock);
        queue.sent(clock.now_ns());
        let text = live.exposition();
        let wanted = "# HELP sensorium_queue_length Items that wait in the channel between two actors.\n\
                      # TYPE sensorium_queue_length gauge\n\
                      sensorium_queue_length{from=\"a \\\"camera\\\"\\\\\",to=\"line\\nbreak\"} 1\n";
        assert!(text.contains(wanted), "{text}");
        assert!(
            text.contains("sensorium_pipeline_state{state=\"starting\"} 1\n"),
            "{text}"
        );
        assert!(
            !text.contains("sensorium_banks"),
            "no family without samples: {text}"
        );
    }
}
