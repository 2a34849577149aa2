//! Runs in this process that can be watched and changed while they last.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test target includes this file and uses its own part"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sensorium::device::DeviceLayer;
use sensorium::pipeline::{Overrides, Pipeline};
use sensorium::runtime::{
    self, Control, HealthReport, PipelineState, PipelineStatus, Progress, RunOptions, RunOutput,
    RuntimeError, Shutdown, StreamStatus,
};
use sensorium::telemetry::live::Live;

use crate::tiny::Lab;

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);

struct Quiet;

impl Progress for Quiet {
    fn started(&self, _: u64) {}
    fn message(&self) {}
    fn ended(&self) {}
}

/// The pipeline of a lab on its bag, with results in `out.jsonl` and these values set.
pub fn pipeline(lab: &Lab, set: &[(&str, &str)]) -> Pipeline {
    let own = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
    let overrides = Overrides {
        set: set.iter().map(own).collect(),
        bag: Some(lab.path("bag.mcap")),
        jsonl: Some(lab.path("out.jsonl")),
        ..Overrides::default()
    };
    Pipeline::load(&lab.path("tiny.yaml"), &overrides).unwrap_or_else(|error| panic!("{error:?}"))
}

/// As [`pipeline`], with more nodes, each as a line of the file; the source plays at this rate.
pub fn with_nodes(lab: &Lab, nodes: &[&str], set: &[(&str, &str)]) -> Pipeline {
    let text = std::fs::read_to_string(lab.path("tiny.yaml")).unwrap();
    let more: String = nodes.iter().map(|node| format!("  {node}\n")).collect();
    let text = text.replace("nodes:\n", &format!("nodes:\n{more}"));
    let own = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
    let jsonl = lab.path("out.jsonl").display().to_string();
    let overrides = Overrides {
        set: set
            .iter()
            .chain(&[("nodes.jsonl.path", &*jsonl)])
            .map(own)
            .collect(),
        bag: Some(lab.path("bag.mcap")),
        ..Overrides::default()
    };
    Pipeline::parse(&lab.path("tiny.yaml"), text, &overrides, &|name| {
        std::env::var(name)
    })
    .unwrap_or_else(|error| panic!("{error:?}"))
}

/// A run under way.
pub struct Running {
    pub control: Control,
    pub live: Live,
    pub shutdown: Shutdown,
    thread: JoinHandle<Result<RunOutput, RuntimeError>>,
}

/// A run that is over.
pub struct Ended {
    pub output: Result<RunOutput, RuntimeError>,
    pub status: PipelineStatus,
}

/// Starts a run.
pub fn start(pipeline: Pipeline) -> Running {
    start_with(pipeline, Control::default())
}

/// As [`start`], in this hand.
pub fn start_with(pipeline: Pipeline, control: Control) -> Running {
    let (live, shutdown) = (Live::default(), Shutdown::default());
    let options = RunOptions {
        gallery: false,
        with_latency: false,
        device_environment: DeviceLayer::default(),
        progress: Arc::new(Quiet),
        ros_node: None,
        build_only: false,
        control: control.clone(),
        live: live.clone(),
        load: None,
    };
    let ends = shutdown.clone();
    let thread = std::thread::spawn(move || {
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let output = tokio.block_on(runtime::run(&pipeline, options, ends));
        // Workers that stand still are left behind.
        tokio.shutdown_background();
        output
    });
    Running {
        control,
        live,
        shutdown,
        thread,
    }
}

impl Running {
    /// Waits until the run is as it should be.
    pub fn until(&self, what: &str, holds: impl Fn(&PipelineStatus) -> bool) -> PipelineStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.control.status();
            if holds(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "never {what}: {status:#?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until so many frames of a stream have come out.
    pub fn until_out(&self, stream: &str, count: u64) {
        self.until(&format!("{count} frames of {stream}"), |status| {
            of(status, stream).is_some_and(|stream| stream.frames_out >= count)
        });
    }

    /// Waits for the end.
    pub fn end(self) -> Ended {
        let deadline = Instant::now() + PATIENCE;
        while !self.thread.is_finished() {
            assert!(
                Instant::now() < deadline,
                "it hangs: {:#?}",
                self.control.status()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        Ended {
            output: self.thread.join().unwrap(),
            status: self.control.status(),
        }
    }
}

/// A stream of a status.
pub fn of<'a>(status: &'a PipelineStatus, stream: &str) -> Option<&'a StreamStatus> {
    status.streams.iter().find(|known| known.name == stream)
}

/// What a control call answers.
pub fn answer<T>(call: impl Future<Output = T>) -> T {
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio.block_on(call)
}

impl Ended {
    /// The output of a run that was started; every frame of it is accounted for.
    pub fn balanced(&self) -> &RunOutput {
        let output = self.output.as_ref().unwrap();
        let frames = &output.summary.frames;
        assert_eq!(frames.lost, 0, "{:?}", output.summary);
        assert_eq!(frames.frames_in, frames.frames_out + frames.dropped);
        output
    }

    /// Drops by place and reason.
    pub fn drops(&self) -> Vec<(String, &'static str, u64)> {
        let drops = self.balanced().summary.drops.iter();
        drops
            .map(|drop| (drop.place.clone(), drop.reason.name(), drop.count))
            .collect()
    }

    /// The states that it went through.
    pub fn states(&self) -> Vec<PipelineState> {
        states(&self.status.health)
    }

    /// Why it was degraded, in order.
    pub fn because(&self) -> Vec<&str> {
        let changes = self.status.health.changes.iter();
        changes
            .filter(|change| change.state == PipelineState::Degraded)
            .map(|change| change.because.as_str())
            .collect()
    }
}

/// The states that a report tells of.
pub fn states(report: &HealthReport) -> Vec<PipelineState> {
    report.changes.iter().map(|change| change.state).collect()
}
