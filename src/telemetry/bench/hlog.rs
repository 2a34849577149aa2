//! Histograms as HdrHistogram's interval logs, which its tools plot and add up.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, IntervalLogWriterError, Tag};

use super::Collected;
use crate::telemetry::{LatencyHistogram, Part, Stage};

/// Values are nanoseconds; the largest of an interval is shown in milliseconds.
const MAX_DIVISOR: f64 = 1e6;
/// Most intervals of the total; longer runs have longer intervals.
const MOST_INTERVALS: u64 = 600;

/// A log that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum HlogError {
    /// The file.
    #[error("the log {path} cannot be written")]
    Write {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A histogram has no compressed form.
    #[error("a histogram cannot be written: {0}")]
    Histogram(String),
}

/// Writes the histograms of a benchmark: the total as it went on, interval by interval, without a tag; then the whole run
/// for each stage (`stage:NAME:wait`, `stage:NAME:service`) and each stream (`stream:NAME`). Values are nanoseconds.
///
/// # Errors
/// [`HlogError`].
pub fn write_hlog(path: &Path, collected: &Collected, started: SystemTime) -> Result<(), HlogError> {
    let failed = |source: io::Error| HlogError::Write {
        path: path.to_owned(),
        source,
    };
    let mut out = BufWriter::new(File::create(path).map_err(failed)?);
    write_all(&mut out, collected, started).map_err(|error| match error {
        IntervalLogWriterError::IoError(error) => failed(error),
        other => HlogError::Histogram(format!("{other:?}")),
    })?;
    out.flush().map_err(failed)
}

type LogError = IntervalLogWriterError<hdrhistogram::serialization::V2DeflateSerializeError>;

fn write_all(out: &mut impl Write, collected: &Collected, started: SystemTime) -> Result<(), LogError> {
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder
        .with_start_time(started)
        .with_max_value_divisor(MAX_DIVISOR);
    builder.add_comment("latency in nanoseconds, from when a query was due until its result was published");
    let mut log = builder.begin_log_with(out, &mut serializer)?;
    let first_ns = collected
        .samples
        .iter()
        .map(|sample| sample.due_ns)
        .min()
        .unwrap_or(0);
    let last_ns = collected
        .samples
        .iter()
        .map(|sample| sample.due_ns)
        .max()
        .unwrap_or(0);
    let whole = Duration::from_nanos(last_ns - first_ns);
    let step_ns = ((last_ns - first_ns) / MOST_INTERVALS).max(1_000_000_000);
    let mut intervals: Vec<LatencyHistogram> = Vec::new();
    for sample in &collected.samples {
        let interval = ((sample.due_ns - first_ns) / step_ns) as usize;
        if intervals.len() <= interval {
            intervals.resize_with(interval + 1, LatencyHistogram::new);
        }
        intervals[interval].record(sample.latency_ns());
    }
    for (number, histogram) in (0..).zip(&intervals) {
        let start = Duration::from_nanos(number * step_ns);
        log.write_histogram(histogram.buckets(), start, Duration::from_nanos(step_ns), None)?;
    }
    for stage in Stage::ALL {
        for part in [Part::Wait, Part::Service] {
            let histogram = collected.recorder.stage_histogram(stage, part);
            if histogram.count() > 0 {
                let name = format!("stage:{stage}:{part}");
                log.write_histogram(histogram.buckets(), Duration::ZERO, whole, Tag::new(&name))?;
            }
        }
    }
    for (number, name) in collected.streams.iter().enumerate() {
        let Some(histogram) = collected.recorder.stream_histogram(number) else {
            continue;
        };
        if histogram.count() > 0 {
            // A tag ends at these.
            let name = format!("stream:{name}").replace([',', ' ', '\n', '\r'], "_");
            log.write_histogram(histogram.buckets(), Duration::ZERO, whole, Tag::new(&name))?;
        }
    }
    Ok(())
}
