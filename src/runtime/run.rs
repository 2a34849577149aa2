//! Putting a pipeline together, running it, and settling up.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::stream::FuturesUnordered;

use super::channel::{self, Receiver, Sender};
use super::detectors::start_detectors;
use super::drive::{TruthFrame, TruthImage, TruthLog};
use super::ending::{Ending, await_end};
use super::error::RuntimeError;
use super::inputs::{OpenSource, open_sources, start_sources};
use super::meter::Meter;
use super::models;
use super::outlets::{GraphSinks, plan_sinks, start_sinks};
use super::ros::{self, RosGraph};
use super::sets::{self, start_sets};
use super::shutdown::Shutdown;
use super::sinks::check_outputs;
use crate::device::DeviceLayer;
use crate::io::ros::RosNode;
use crate::pipeline::{Clock, OnFull, Pipeline, Plan, Rate};
use crate::telemetry::report::ReportPictures;
use crate::telemetry::{
    ClockKind, LatencyOptions, Ledger, MonotonicClock, RunInfo, RunSummary, Streams, Timeline,
};

/// Told how a run gets on.
pub trait Progress: Send + Sync {
    /// The run starts; so many messages will be played.
    fn started(&self, messages: u64);
    /// A source listens to these topics from now on.
    fn subscribes(&self, source: &str, topics: &[Arc<str>]) {
        let _ = (source, topics);
    }
    /// One more message was played.
    fn message(&self);
    /// A result came out so long after its frame was due; so many objects are in it, and so many frames were dropped so
    /// far.
    fn result(&self, objects: usize, latency: Duration, dropped: u64) {
        let _ = (objects, latency, dropped);
    }
    /// Everything that was under way has come out.
    fn ended(&self);
}

/// What a run leaves behind besides the pipeline's own sinks.
pub struct RunOptions {
    /// Keep pictures for a report.
    pub gallery: bool,
    /// Write latencies into JSON lines and published results.
    pub with_latency: bool,
    /// What the environment says about the device: it comes between the pipeline file and the options of the
    /// command.
    pub device_environment: DeviceLayer,
    /// Told how the run gets on.
    pub progress: Arc<dyn Progress>,
    /// The node to be in the ROS 2 graph, in place of one that the run makes itself.
    pub ros_node: Option<Arc<dyn RosNode>>,
    /// End as soon as the models are on the device, captured and warm, without a single frame.
    pub build_only: bool,
}

impl fmt::Debug for RunOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunOptions")
            .field("gallery", &self.gallery)
            .field("with_latency", &self.with_latency)
            .field("device_environment", &self.device_environment)
            .field("ros_node", &self.ros_node)
            .field("build_only", &self.build_only)
            .finish_non_exhaustive()
    }
}

/// A run that has ended.
#[derive(Debug)]
pub struct RunOutput {
    /// The run in numbers.
    pub summary: RunSummary,
    /// When frames passed the stages.
    pub timeline: Timeline,
    /// Pictures for a report; empty unless asked for.
    pub gallery: ReportPictures,
    /// What was really there in each frame of simulated drives, oldest first.
    pub truth: Vec<TruthFrame>,
    /// What was really there on each image of simulated drives, oldest first.
    pub image_truth: Vec<TruthImage>,
    /// What went wrong, oldest first. The results are there all the same.
    pub faults: Vec<RuntimeError>,
}

/// What the parts of a run share.
pub(super) struct Shared {
    pub(super) ledger: Arc<Ledger>,
    pub(super) sink_ledger: Arc<Ledger>,
    pub(super) clock: MonotonicClock,
    pub(super) shutdown: Shutdown,
    pub(super) meter: Arc<Meter>,
    plan: Plan,
    /// Nothing may be dropped.
    pub(super) lossless: bool,
}

impl Shared {
    /// The channels into an actor: a sender for each actor that feeds it, by name.
    pub(super) fn channel_into<T>(&self, to: &str) -> (BTreeMap<String, Sender<T>>, Receiver<T>) {
        let planned = self.plan.channels.iter().filter(|c| c.to == to);
        let (senders, receivers): (BTreeMap<_, _>, Vec<_>) = planned
            .map(|c| {
                let on_full = if self.lossless { OnFull::Block } else { c.on_full };
                let (sender, receiver) = channel::bounded(c.capacity as usize, on_full);
                ((c.from.clone(), sender), receiver)
            })
            .unzip();
        (senders, Receiver::merge(receivers))
    }

    /// Places in the channel between two actors.
    pub(super) fn capacity(&self, from: &str, to: &str) -> usize {
        self.plan
            .channels
            .iter()
            .find(|c| c.from == from && c.to == to)
            .map_or(1, |c| c.capacity as usize)
    }
}

/// Runs a pipeline until its sources are exhausted or `shutdown` says so.
///
/// # Errors
/// Whatever keeps the run from starting: a bag, a model, a device or a sink that cannot be opened. What goes
/// wrong later is in [`RunOutput::faults`].
pub async fn run(
    pipeline: &Pipeline,
    options: RunOptions,
    shutdown: Shutdown,
) -> Result<RunOutput, RuntimeError> {
    let started = Instant::now();
    let truth = TruthLog::default();
    let sensor_of = |model: &str| {
        pipeline
            .models
            .get(model)
            .map(|model| models::sensor_of(&model.family))
    };
    // An output that cannot be written is told before anything is computed, and no file is touched for a run
    // that cannot start.
    let load = || {
        check_outputs(pipeline)?;
        models::load_all(pipeline)
    };
    // What is wrong with files is told before a router is waited for.
    let loaded = ros::is_used(pipeline).then(load).transpose()?;
    let graph = join_graph(pipeline, &options, &shutdown).await?;
    let sources = if options.build_only {
        Vec::new()
    } else {
        open_sources(pipeline, sensor_of, &truth, graph.as_ref())?
    };
    let live = sources.iter().any(|source| source.settings.subscribe.is_some());
    let first = sources.first().map(|source| &source.settings);
    let clock_kind = first.map_or(Clock::Bag, |settings| settings.clock);
    let lossless = clock_kind == Clock::Deterministic;
    if lossless && sources.len() > 1 {
        return Err(RuntimeError::Incomplete(format!(
            "the deterministic clock plays one source in one order, and this pipeline has {}: put the topics \
             into one bag",
            sources.len()
        )));
    }
    let rate = first.map_or(
        Rate::Max,
        |settings| if lossless { Rate::Max } else { settings.rate },
    );
    let streams = Streams::default();
    let clock = MonotonicClock::start();
    let latency_options = LatencyOptions {
        deadline_ns: first
            .and_then(|s| s.deadline_ms)
            .map(|ms| u64::from(ms) * 1_000_000),
        rate: match rate {
            Rate::Times(speed) => Some(speed),
            Rate::Max => None,
        },
    };
    let ledger = Arc::new(Ledger::new(streams.clone()));
    let watched = (Arc::clone(&options.progress), Arc::clone(&ledger));
    let shared = Shared {
        ledger,
        sink_ledger: Arc::new(Ledger::new(Streams::default())),
        clock,
        shutdown: shutdown.clone(),
        meter: Arc::new(Meter::new(
            clock,
            streams,
            latency_options,
            options.gallery,
            live,
            watched,
        )),
        plan: pipeline.plan(),
        lossless,
    };

    let detectors = match loaded {
        Some(detectors) => detectors,
        None => load()?,
    };
    let (sinks, outlets) = plan_sinks(pipeline, &shared);
    let mut endings: FuturesUnordered<Ending> = FuturesUnordered::new();
    let config = pipeline.device.config(&options.device_environment);
    let mut started_detectors =
        start_detectors(pipeline, config, detectors, &shared, outlets, &mut endings).await?;
    let (device, device_details) = started_detectors.device.clone();
    if options.build_only {
        // Without sources and sinks the stages find their channels closed, and end.
        drop((sinks, started_detectors));
    } else {
        let streams = |source: &OpenSource| (source.node.clone(), source.topics.clone());
        let graph = graph.as_ref().map(|graph| GraphSinks {
            graph: Arc::clone(graph),
            streams: sources
                .iter()
                .map(streams)
                .chain(sets::streams(pipeline))
                .collect(),
            poses: started_detectors.poses.clone(),
        });
        let audiences = start_sinks(pipeline, sinks, graph, &shared, &options, &mut endings).await?;
        options
            .progress
            .started(sources.iter().map(|source| source.frames).sum());
        for source in sources
            .iter()
            .filter(|source| source.settings.subscribe.is_some())
        {
            let topics: Vec<Arc<str>> = source
                .topics
                .iter()
                .map(|topic| Arc::clone(&topic.name))
                .collect();
            options.progress.subscribes(&source.node, &topics);
        }
        let sets = start_sets(
            pipeline,
            &sources,
            &mut started_detectors,
            &audiences,
            &shared,
            &mut endings,
        )?;
        start_sources(
            sources,
            pipeline,
            started_detectors,
            sets,
            audiences,
            &shared,
            &options,
            &mut endings,
        );
    }

    await_end(&mut endings, &shared.shutdown).await;
    options.progress.ended();
    if let Some(graph) = graph {
        let closed = tokio::task::spawn_blocking(move || graph.close()).await;
        if let Ok(Err(error)) = closed {
            shared.shutdown.note(error.into());
        }
    }

    let info = RunInfo {
        pipeline: pipeline.name.clone(),
        model: model_names(pipeline),
        device,
        device_details,
        clock: match (lossless, live) {
            (true, _) => ClockKind::Deterministic,
            (_, true) => ClockKind::Wall,
            _ => ClockKind::Bag,
        },
        rate: latency_options.rate,
        started_at: (!lossless)
            .then(|| humantime::format_rfc3339_seconds(SystemTime::now() - started.elapsed()).to_string()),
        wall_s: (!lossless).then(|| started.elapsed().as_secs_f64()),
    };
    let mut summary = shared
        .meter
        .with_latency(|latency| RunSummary::new(info, &shared.ledger, latency));
    for account in shared.sink_ledger.accounts() {
        if account.open > 0 || !account.is_balanced() {
            summary.mark_incomplete(format!("sink {} lost {} result(s)", account.name, account.open));
        }
        summary.drops.extend(account.drops);
    }
    let faults = shared.shutdown.take_faults();
    for fault in &faults {
        summary.mark_incomplete(fault.to_string());
    }
    // Live messages have no end of their own.
    if shared.shutdown.is_draining() && !live {
        summary.mark_incomplete("stopped before the end");
    }
    let gallery = shared.meter.gallery();
    let (truth, image_truth) = truth.take();
    Ok(RunOutput {
        summary,
        timeline: shared.meter.timeline(),
        gallery,
        truth,
        image_truth,
        faults,
    })
}

/// The node of a pipeline that takes part in the ROS 2 graph.
async fn join_graph(
    pipeline: &Pipeline,
    options: &RunOptions,
    shutdown: &Shutdown,
) -> Result<Option<Arc<RosGraph>>, RuntimeError> {
    if options.build_only || !ros::is_used(pipeline) {
        return Ok(None);
    }
    let (settings, given) = (pipeline.ros2.clone(), options.ros_node.clone());
    // It may wait for a router.
    let joining = tokio::task::spawn_blocking(move || RosGraph::open(&settings, given));
    let joined = tokio::select! {
        joined = joining => joined,
        () = shutdown.draining() => {
            return Err(RuntimeError::Incomplete("stopped before the ROS 2 graph was joined".into()));
        }
    };
    let died = |error: tokio::task::JoinError| RuntimeError::ActorDied {
        actor: "ROS 2 node".into(),
        reason: error.to_string(),
    };
    joined.map_err(died)?.map(|graph| Some(Arc::new(graph)))
}

fn model_names(pipeline: &Pipeline) -> String {
    let names: Vec<String> = pipeline
        .models
        .iter()
        .map(|(name, model)| match &model.weights {
            Some(path) => format!("{name} ({}, {})", path.display(), model.numbers()),
            None => name.clone(),
        })
        .collect();
    names.join(", ")
}
