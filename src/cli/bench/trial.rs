//! One run of a pipeline under load.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::interrupt::end_on_interrupt;
use crate::cli::run::explain;
use crate::device::DeviceLayer;
use crate::pipeline::{NodeKind, Pipeline};
use crate::runtime::{self, Load, LoadTally, Progress, RunOptions, RuntimeError, Shutdown};
use crate::telemetry::bench::{Collected, Collector, ProcessUse, QuerySummary};
use crate::telemetry::graph::GraphKpis;
use crate::telemetry::live::Live;
use crate::telemetry::{
    DeadlineSummary, FrameId, FrameTimes, Part, RunSummary, Stage, StageSummary, StreamId, StreamSummary,
};

/// A run that has ended.
pub(super) struct Trial {
    pub(super) load: Load,
    pub(super) tally: Arc<LoadTally>,
    pub(super) collected: Collected,
    pub(super) summary: RunSummary,
    pub(super) process: ProcessUse,
    pub(super) graph: Option<GraphKpis>,
    pub(super) faults: Vec<RuntimeError>,
    /// Whether it was stopped from outside.
    pub(super) stopped: bool,
}

/// Runs a pipeline under a load, with a counter of its own in place of the load's.
pub(super) async fn run_trial(
    pipeline: &Pipeline,
    environment: &DeviceLayer,
    mut load: Load,
    shown: bool,
) -> miette::Result<Trial> {
    load.tally = Arc::new(LoadTally::default());
    let deadline_ms = pipeline.nodes.iter().find_map(|node| match &node.kind {
        NodeKind::Source(source) => source.deadline_ms,
        _ => None,
    });
    let watcher = Arc::new(Watcher {
        collector: Collector::new(deadline_ms.map(|ms| u64::from(ms) * 1_000_000)),
        tally: Arc::clone(&load.tally),
        process: OnceLock::new(),
        taken: Mutex::default(),
        bar: bar(shown),
    });
    let shutdown = Shutdown::default();
    let options = RunOptions {
        gallery: false,
        with_latency: false,
        device_environment: *environment,
        progress: Arc::clone(&watcher) as Arc<dyn Progress>,
        ros_node: None,
        build_only: false,
        control: runtime::Control::default(),
        live: Live::default(),
        load: Some(load.clone()),
    };
    let interrupt = end_on_interrupt(shutdown.clone());
    let outcome = runtime::run(pipeline, options, shutdown.clone()).await;
    interrupt.abort();
    let output = outcome.map_err(explain)?;
    let taken = *watcher.taken.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Trial {
        tally: Arc::clone(&load.tally),
        load,
        collected: watcher.collector.take(),
        stopped: shutdown.is_draining(),
        summary: output.summary,
        process: taken,
        graph: output.graph,
        faults: output.faults,
    })
}

fn bar(shown: bool) -> ProgressBar {
    if !shown {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(4));
    let style =
        ProgressStyle::with_template("{bar:40} {pos}/{len} messages  {per_sec}  {elapsed}  eta {eta}");
    style.map_or_else(|_| bar.clone(), |style| bar.clone().with_style(style))
}

type Taken = Box<dyn Fn() -> ProcessUse + Send + Sync>;

/// Watches a run.
struct Watcher {
    collector: Collector,
    tally: Arc<LoadTally>,
    /// What the process takes, from when the models are ready.
    process: OnceLock<Taken>,
    taken: Mutex<ProcessUse>,
    bar: ProgressBar,
}

impl Progress for Watcher {
    fn started(&self, messages: u64) {
        if messages > 0 {
            self.bar.set_length(messages);
        }
        self.process.get_or_init(|| Box::new(ProcessUse::begin()));
    }

    fn message(&self) {
        self.bar.inc(1);
    }

    fn frame(&self, name: &Arc<str>, frame: FrameId, stamp_ns: i64, times: &FrameTimes) {
        let measured_from_ns = self.tally.measured_from_ns();
        self.collector
            .frame(name, frame, stamp_ns, times, measured_from_ns);
    }

    fn ended(&self) {
        if let Some(process) = self.process.get() {
            *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = process();
        }
        self.bar.finish_and_clear();
    }
}

impl Trial {
    /// Messages a second of one stream; `None` in a closed loop.
    pub(super) fn rate_hz(&self) -> Option<f64> {
        match self.tally.period_ns() {
            0 => None,
            period_ns => Some(1e9 / period_ns as f64),
        }
    }

    /// Seconds from the end of the warm-up to the last message.
    pub(super) fn duration_s(&self) -> f64 {
        if let Some(graph) = &self.graph {
            return graph.seconds;
        }
        let span_ns = self
            .tally
            .ended_ns()
            .saturating_sub(self.tally.measured_from_ns());
        // The last message has a period of its own.
        let last_ns = self.tally.period_ns() / self.tally.streams().max(1);
        (span_ns + last_ns) as f64 / 1e9
    }

    /// Messages offered in a second, all streams together.
    pub(super) fn offered_hz(&self) -> f64 {
        let seconds = self.duration_s();
        if seconds > 0.0 {
            self.tally.queries() as f64 / seconds
        } else {
            0.0
        }
    }

    pub(super) fn queries(&self) -> QuerySummary {
        let (offered, frames) = (self.tally.queries(), self.tally.frames());
        let completed = self.collected.samples.len() as u64;
        let dropped = frames.saturating_sub(completed);
        // A message is as many frames as nodes take it.
        let overrun_frames = match offered {
            0 => 0,
            _ => self.tally.overruns().saturating_mul(frames) / offered,
        };
        let failed = (dropped + overrun_frames).min(frames);
        QuerySummary {
            offered,
            frames,
            completed,
            dropped,
            released_late: self.tally.late(),
            overruns: self.tally.overruns(),
            max_release_delay_us: self.tally.max_late_ns() as f64 / 1e3,
            failed_share: if frames > 0 {
                failed as f64 / frames as f64
            } else {
                0.0
            },
        }
    }

    /// Results a second, from the end of the warm-up to the last result.
    pub(super) fn throughput_hz(&self) -> Option<f64> {
        let last_ns = self
            .collected
            .samples
            .iter()
            .map(|sample| sample.published_ns)
            .max()?;
        let seconds = last_ns.saturating_sub(self.tally.measured_from_ns()) as f64 / 1e9;
        (seconds > 0.0).then(|| self.collected.samples.len() as f64 / seconds)
    }

    /// Results in each whole second since the warm-up.
    pub(super) fn results_per_second(&self) -> Vec<u64> {
        let from_ns = self.tally.measured_from_ns();
        let whole = self.tally.ended_ns().saturating_sub(from_ns) / 1_000_000_000;
        let mut seconds = vec![0; whole as usize];
        for sample in &self.collected.samples {
            let second = sample.published_ns.saturating_sub(from_ns) / 1_000_000_000;
            if let Some(count) = seconds.get_mut(second as usize) {
                *count += 1;
            }
        }
        seconds
    }

    pub(super) fn stages(&self) -> Vec<StageSummary> {
        let recorder = &self.collected.recorder;
        let stages = Stage::ALL.into_iter().filter_map(|stage| {
            Some(StageSummary {
                stage,
                wait: recorder.stage(stage, Part::Wait)?,
                service: recorder.stage(stage, Part::Service)?,
            })
        });
        stages.collect()
    }

    /// A stream of the run with the latencies since the warm-up.
    pub(super) fn stream(
        &self,
        number: usize,
        stream: &StreamSummary,
        deadline_us: Option<f64>,
    ) -> StreamSummary {
        let recorder = &self.collected.recorder;
        let (misses, longest_streak) = recorder.stream_misses(StreamId::of(number));
        StreamSummary {
            name: stream.name.clone(),
            frames: stream.frames,
            total: recorder.stream_total(StreamId::of(number)),
            jitter: None,
            deadline: deadline_us.map(|deadline_us| DeadlineSummary {
                deadline_us,
                misses,
                longest_streak,
            }),
        }
    }
}
