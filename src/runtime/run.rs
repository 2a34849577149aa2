//! Putting a pipeline together, running it, and settling up.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use futures_util::stream::FuturesUnordered;

use super::channel::{self, Receiver, Sender};
use super::compute::start_compute;
use super::control::{Board, Control, Pulse, RunLink};
use super::detectors::start_detectors;
use super::drive::{TruthFrame, TruthImage, TruthLog};
use super::ending::{Crew, Ending, await_end};
use super::error::RuntimeError;
use super::health::PipelineState;
use super::inputs::{OpenSource, open_sources, start_sources};
use super::load::Load;
use super::meter::Meter;
use super::models;
use super::outlets::{GraphSinks, plan_sinks, start_sinks};
use super::poses::Poses;
use super::ros::{self, RosGraph};
use super::sets::{self, start_sets};
use super::shutdown::Shutdown;
use super::sink_desk::SinkDesk;
use super::sinks::{BegunFiles, check_outputs};
use super::supervision::{ActorWatch, SourcesOver, watch_over};
use super::turns::Turns;
use crate::device::DeviceLayer;
use crate::io::ros::RosNode;
use crate::pipeline::{Clock, OnFull, Pipeline, Plan, Rate, SupervisionSettings};
use crate::telemetry::graph::GraphKpis;
use crate::telemetry::live::{Live, LiveState};
use crate::telemetry::report::ReportPictures;
use crate::telemetry::{
    ClockKind, FrameId, FrameTimes, LatencyOptions, Ledger, MonotonicClock, RunInfo, RunSummary, Streams,
    Timeline,
};

/// Told how a run gets on.
pub trait Progress: Send + Sync {
    /// The run starts; so many messages will be played.
    fn started(&self, messages: u64);
    /// A source listens to these topics from now on.
    fn subscribes(&self, source: &str, topics: &[Arc<str>]) {
        let _ = (source, topics);
    }
    /// A publisher waits for clients at this URL from now on.
    fn listens(&self, publisher: &str, url: &str) {
        let _ = (publisher, url);
    }
    /// One more message was played.
    fn message(&self);
    /// A result came out so long after its frame was due; so many objects are in it, and so many frames were dropped so
    /// far.
    fn result(&self, objects: usize, latency: Duration, dropped: u64) {
        let _ = (objects, latency, dropped);
    }
    /// A frame of the stream `name` came out; these are the times at which it passed the stages.
    fn frame(&self, name: &Arc<str>, frame: FrameId, stamp_ns: i64, times: &FrameTimes) {
        let _ = (name, frame, stamp_ns, times);
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
    /// What the run is watched and changed with: keep a clone. It is for this run alone.
    pub control: Control,
    /// Told what happens while it happens.
    pub live: Live,
    /// Offered in place of what the only source would play.
    pub load: Option<Load>,
}

impl fmt::Debug for RunOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunOptions")
            .field("gallery", &self.gallery)
            .field("with_latency", &self.with_latency)
            .field("device_environment", &self.device_environment)
            .field("ros_node", &self.ros_node)
            .field("build_only", &self.build_only)
            .field("live", &self.live)
            .field("load", &self.load)
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
    /// What compute nodes came to; absent without any.
    pub graph: Option<GraphKpis>,
    /// What went wrong, oldest first. The results are there all the same.
    pub faults: Vec<RuntimeError>,
}

/// What the parts of a run share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) ledger: Arc<Ledger>,
    pub(super) sink_ledger: Arc<Ledger>,
    pub(super) clock: MonotonicClock,
    pub(super) shutdown: Shutdown,
    pub(super) meter: Arc<Meter>,
    pub(super) live: Live,
    pub(super) progress: Arc<dyn Progress>,
    /// Where transforms go, once the detectors are there and one of them asks for poses.
    pub(super) poses: Arc<OnceLock<Arc<Poses>>>,
    plan: Arc<Plan>,
    /// Nothing may be dropped.
    pub(super) lossless: bool,
    /// The order of everything, where nothing may be dropped.
    pub(super) turns: Option<Arc<Turns>>,
    /// Where the parts tell of themselves.
    pub(super) board: Arc<Board>,
    /// What becomes of actors that fail.
    pub(super) supervision: SupervisionSettings,
    /// Sources that have played everything.
    pub(super) sources_over: Arc<SourcesOver>,
    /// What sinks have written.
    pub(super) begun_files: Arc<BegunFiles>,
}

impl Shared {
    /// The channels into an actor: a sender for each actor that feeds it, by name.
    pub(super) fn channel_into<T: Send + 'static>(
        &self,
        to: &str,
    ) -> (BTreeMap<String, Sender<T>>, Receiver<T>) {
        self.channel_into_of(&self.plan, to)
    }

    /// The channels into an actor as another plan has them.
    pub(super) fn channel_into_of<T: Send + 'static>(
        &self,
        plan: &Plan,
        to: &str,
    ) -> (BTreeMap<String, Sender<T>>, Receiver<T>) {
        let planned = plan.channels.iter().filter(|c| c.to == to);
        let (senders, receivers): (BTreeMap<_, _>, Vec<_>) = planned
            .map(|c| {
                let on_full = if self.lossless { OnFull::Block } else { c.on_full };
                let (sender, receiver) = self.channel(&c.from, &c.to, c.capacity as usize, on_full);
                ((c.from.clone(), sender), receiver)
            })
            .unzip();
        (senders, Receiver::merge(receivers))
    }

    /// A channel between two actors that can be watched.
    pub(super) fn channel<T: Send + 'static>(
        &self,
        from: &str,
        to: &str,
        capacity: usize,
        on_full: OnFull,
    ) -> (Sender<T>, Receiver<T>) {
        let gauge = self.live.queue(from, to, capacity, self.clock);
        let (sender, receiver) = channel::gauged(capacity, on_full, gauge);
        self.board.add_queue(from, to, sender.gauge());
        (sender, receiver)
    }

    /// Takes note of an actor that is about to be started.
    pub(super) fn watch(&self, actor: &str) -> ActorWatch {
        let pulse = Pulse::new(actor, self.clock);
        self.board.add_pulse(&pulse);
        ActorWatch::new(&self.board, pulse, &self.supervision)
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
    let board = Arc::clone(options.control.board());
    if !board.claim() {
        return Err(RuntimeError::Incomplete(
            "a control is for one run, and this one has its run already; make another one".into(),
        ));
    }
    shutdown.report_to(&board);
    let outcome = run_to_the_end(pipeline, options, shutdown).await;
    if let Err(error) = &outcome {
        board.fail(error);
    }
    board.end();
    outcome
}

async fn run_to_the_end(
    pipeline: &Pipeline,
    options: RunOptions,
    shutdown: Shutdown,
) -> Result<RunOutput, RuntimeError> {
    let started = Instant::now();
    let truth = TruthLog::default();
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
        open_sources(pipeline, &truth, graph.as_ref(), options.load.as_ref())?
    };
    let live = sources.iter().any(|source| source.settings.subscribe.is_some());
    let first = sources.first().map(|source| &source.settings);
    let clock_kind = first.map_or(Clock::Bag, |settings| settings.clock);
    let lossless = clock_kind == Clock::Deterministic;
    let rate = first.map_or(
        Rate::Max,
        |settings| if lossless { Rate::Max } else { settings.rate },
    );
    let streams = Streams::default();
    let clock = MonotonicClock::start();
    let latency_options = LatencyOptions {
        deadline_ns: sources
            .iter()
            .find_map(|source| source.settings.deadline_ms)
            .map(|ms| u64::from(ms) * 1_000_000),
        rate: match rate {
            Rate::Times(speed) => Some(speed),
            Rate::Max => None,
        },
    };
    let watching = options.live.clone();
    if let Some(trace) = watching.trace() {
        trace.begin(clock, &streams);
    }
    let ledger = Arc::new(Ledger::new(streams.clone()).with_trace(watching.trace().cloned()));
    let sink_ledger = Arc::new(Ledger::new(Streams::default()));
    watching.begin(&pipeline.name, clock, &ledger, &sink_ledger);
    let turns = lossless.then(|| Turns::new(sources.len(), shutdown.clone()));
    let board = Arc::clone(options.control.board());
    let watched = (
        Arc::clone(&options.progress),
        Arc::clone(&ledger),
        (Arc::clone(&board), watching.clone()),
    );
    board.begin(RunLink {
        pipeline: pipeline.name.clone(),
        clock,
        ledger: Arc::clone(&ledger),
        shutdown: shutdown.clone(),
        lossless,
    });
    *board.current().lock().await = Some(pipeline.clone());
    let mut supervision = pipeline.supervision.clone();
    if lossless {
        // What an actor held when it failed is missing, and how long anything takes depends on the machine.
        supervision = SupervisionSettings {
            limit: 0,
            watchdog_ms: 0,
            silence_ms: 0,
            ..supervision
        };
    }
    if !supervision.fault.is_empty() {
        let faults = supervision.fault.len();
        tracing::warn!(
            faults,
            "faults are injected into actors: this is a switch for tests"
        );
    }
    let shared = Shared {
        ledger,
        sink_ledger,
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
        live: watching,
        progress: Arc::clone(&options.progress),
        poses: Arc::default(),
        plan: Arc::new(pipeline.plan()),
        lossless,
        turns: turns.clone(),
        board,
        supervision,
        sources_over: Arc::default(),
        begun_files: Arc::default(),
    };
    if let Some(turns) = turns {
        shared.ledger.on_drop(move |frame| turns.settle(frame));
    }

    let detectors = match loaded {
        Some(detectors) => detectors,
        None => load()?,
    };
    let (sinks, outlets) = plan_sinks(pipeline, &shared);
    let mut endings: FuturesUnordered<Ending> = FuturesUnordered::new();
    let (crew, joining) = Crew::new();
    let config = pipeline.device.config(&options.device_environment);
    let mut started_detectors =
        start_detectors(pipeline, config, detectors, &shared, outlets, &mut endings).await?;
    let (device, device_details) = started_detectors.device.clone();
    shared.live.name_device(&device);
    if let Some(poses) = &started_detectors.poses {
        // The cell is empty: detectors are started once.
        let _ = shared.poses.set(Arc::clone(poses));
    }
    let sink_lists = std::mem::take(&mut started_detectors.sink_lists);
    let desk = Arc::new(SinkDesk::new(&shared, options.with_latency, crew, sink_lists));
    let mut graph_log = None;
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
        let audiences =
            start_sinks(pipeline, sinks, graph, &shared, (&options, &*desk), &mut endings).await?;
        // Not before the sinks of the file are open: one that is opened meanwhile would not know its audience.
        shared.board.set_sinks(&desk);
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
        graph_log = start_compute(pipeline, &shared, options.load.as_ref(), &mut endings);
        // Before the first frame, so that what happens to it is told as a change.
        shared.board.started();
        start_sources(
            sources,
            pipeline,
            (started_detectors, sets),
            audiences,
            &shared,
            &options,
            &mut endings,
        );
    }

    let telling = tokio::spawn(tell_state(options.control.clone(), shared.live.clone()));
    let watchdog = watch_over(
        Arc::clone(&shared.board),
        shared.supervision.clone(),
        Arc::clone(&shared.sources_over),
    );
    let watchdog = tokio::spawn(watchdog);
    await_end(&mut endings, joining, &shared.shutdown).await;
    watchdog.abort();
    telling.abort();
    shared.live.set_state(LiveState::Ended, Vec::new());
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
    // Live messages have no end of their own, and neither have timers without a load.
    let endless = live || graph_log.is_some() && options.load.is_none();
    if shared.shutdown.is_draining() && !endless {
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
        graph: graph_log.map(|log| log.kpis()),
        faults,
    })
}

/// Tells whoever watches what the pipeline is about, whenever that changes.
async fn tell_state(control: Control, live: Live) {
    let mut told = control.subscribe();
    loop {
        let report = told.borrow_and_update().clone();
        let state = match report.state {
            PipelineState::Starting => LiveState::Starting,
            PipelineState::Ready => LiveState::Ready,
            PipelineState::Degraded => LiveState::Degraded,
            PipelineState::Failed => LiveState::Failed,
        };
        let reasons = report.reasons.iter().map(|active| active.reason.to_string());
        live.set_state(state, reasons.chain(report.error).collect());
        if told.changed().await.is_err() {
            return;
        }
    }
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
