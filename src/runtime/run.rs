//! Putting a pipeline together, running it, and settling up.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use futures_util::stream::FuturesUnordered;
use kameo::actor::Spawn;
use tokio::sync::oneshot;

use super::channel::{self, Receiver, Sender};
use super::drive::{TruthFrame, TruthLog};
use super::ending::{Ending, await_end, ending};
use super::error::RuntimeError;
use super::finish::{Finish, SinkItem, SinkOutlet};
use super::frame::{Inferred, Prepared, Sample};
use super::inputs::{open_sources, start_sources};
use super::meter::Meter;
use super::models::{self, DetectorParts};
use super::owner::{DescribeDevice, DeviceOwner, FRAMES_UNDER_WAY, OwnerArgs, OwnerReady};
use super::poses::Poses;
use super::prepare::Prepare;
use super::shutdown::Shutdown;
use super::sinks::{JsonLinesSink, PublisherSink, RecorderSink, Sink, SinkActor, check_outputs};
use super::stage::Stage;
use crate::device::{DeviceConfig, DeviceLayer};
use crate::io::zenoh::ZenohPublisher;
use crate::pipeline::{
    Clock, DetectorSettings, Node, NodeKind, OnFull, Pipeline, Plan, Rate, RestartSettings,
};
use crate::telemetry::report::ReportPictures;
use crate::telemetry::{
    ClockKind, LatencyOptions, Ledger, MonotonicClock, RunInfo, RunSummary, Streams, Timeline,
};

/// Told how a run gets on.
pub trait Progress: Send + Sync {
    /// The run starts; so many messages will be played.
    fn started(&self, messages: u64);
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
}

impl fmt::Debug for RunOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunOptions")
            .field("gallery", &self.gallery)
            .field("with_latency", &self.with_latency)
            .field("device_environment", &self.device_environment)
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
    /// What went wrong, oldest first. The results are there all the same.
    pub faults: Vec<RuntimeError>,
}

/// What the parts of a run share.
pub(super) struct Shared {
    pub(super) ledger: Arc<Ledger>,
    sink_ledger: Arc<Ledger>,
    pub(super) clock: MonotonicClock,
    pub(super) shutdown: Shutdown,
    meter: Arc<Meter>,
    plan: Plan,
    /// Nothing may be dropped.
    pub(super) lossless: bool,
}

impl Shared {
    /// The channels into an actor: a sender for each actor that feeds it, by name.
    fn channel_into<T>(&self, to: &str) -> (BTreeMap<String, Sender<T>>, Receiver<T>) {
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

    fn capacity(&self, from: &str, to: &str) -> usize {
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
    let sources = open_sources(pipeline, sensor_of, &truth)?;
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
            watched,
        )),
        plan: pipeline.plan(),
        lossless,
    };

    // An output that cannot be written is told before anything is computed, and no file is touched for a run
    // that cannot start.
    check_outputs(pipeline)?;
    let detectors = models::load_all(pipeline)?;
    let mut sinks = plan_sinks(pipeline, &shared);
    let mut endings: FuturesUnordered<Ending> = FuturesUnordered::new();
    let config = pipeline.device.config(&options.device_environment);
    let started_detectors =
        start_detectors(pipeline, config, detectors, &shared, &mut sinks, &mut endings).await?;
    start_sinks(sinks, &shared, &options, &mut endings).await?;

    options
        .progress
        .started(sources.iter().map(|source| source.frames).sum());
    let (device, device_details) = started_detectors.device.clone();
    start_sources(
        sources,
        pipeline,
        started_detectors,
        &shared,
        &options,
        &mut endings,
    );

    await_end(&mut endings, &shared.shutdown).await;
    options.progress.ended();

    let info = RunInfo {
        pipeline: pipeline.name.clone(),
        model: model_names(pipeline),
        device,
        device_details,
        clock: if lossless {
            ClockKind::Deterministic
        } else {
            ClockKind::Bag
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
    if shared.shutdown.is_draining() {
        summary.mark_incomplete("stopped before the end");
    }
    let gallery = shared.meter.gallery();
    Ok(RunOutput {
        summary,
        timeline: shared.meter.timeline(),
        gallery,
        truth: truth.take(),
        faults,
    })
}

/// A sink with its channels, before anything is opened.
struct PlannedSink<'a> {
    node: &'a Node,
    /// The way into it from each detector, by the name of the finish actor.
    outlets: BTreeMap<String, SinkOutlet>,
    input: Receiver<SinkItem>,
}

/// The sinks of a pipeline; files last, so that they are opened when nothing else can fail any more.
fn plan_sinks<'a>(pipeline: &'a Pipeline, shared: &Shared) -> Vec<PlannedSink<'a>> {
    let plan = |node: &'a Node| {
        let (senders, input) = shared.channel_into(&node.name);
        let account = shared.sink_ledger.streams().register(&node.name);
        let outlet = |channel| SinkOutlet {
            channel,
            account,
            node: node.name.clone(),
        };
        let outlets = senders.into_iter().map(|(from, channel)| (from, outlet(channel)));
        PlannedSink {
            node,
            outlets: outlets.collect(),
            input,
        }
    };
    let (mut publishers, mut files) = (Vec::new(), Vec::new());
    for node in &pipeline.nodes {
        match &node.kind {
            NodeKind::Publisher(_) => publishers.push(plan(node)),
            NodeKind::Recorder(_) | NodeKind::JsonLines(_) => files.push(plan(node)),
            NodeKind::Source(_) | NodeKind::Detector(_) => {}
        }
    }
    publishers.append(&mut files);
    publishers
}

/// Opens and starts the sinks.
async fn start_sinks(
    sinks: Vec<PlannedSink<'_>>,
    shared: &Shared,
    options: &RunOptions,
    endings: &mut FuturesUnordered<Ending>,
) -> Result<(), RuntimeError> {
    let mut meter = Some(Arc::clone(&shared.meter));
    for PlannedSink { node, input, .. } in sinks {
        let name = &node.name;
        match &node.kind {
            NodeKind::Publisher(settings) => {
                let publisher = ZenohPublisher::open(settings)
                    .await
                    .map_err(|e| RuntimeError::Sink {
                        node: name.clone(),
                        reason: e.to_string(),
                    })?;
                // The first publisher of the file measures when frames are published.
                let sink =
                    PublisherSink::new(publisher, settings.clone(), meter.take(), options.with_latency);
                let actor = sink_actor(name, sink, input, shared);
                endings.push(ending(name.clone(), SinkActor::spawn(actor)));
            }
            // A file may take its time, and other actors must not wait for it: these get threads of their own.
            NodeKind::Recorder(settings) => {
                let sink = RecorderSink::create(&settings.path, settings.include_images)?;
                let actor = sink_actor(name, sink, input, shared);
                endings.push(ending(name.clone(), SinkActor::spawn_in_thread(actor)));
            }
            NodeKind::JsonLines(settings) => {
                let with_latency = options.with_latency && !shared.lossless;
                let sink = JsonLinesSink::create(&settings.path, with_latency)?;
                let actor = sink_actor(name, sink, input, shared);
                endings.push(ending(name.clone(), SinkActor::spawn_in_thread(actor)));
            }
            NodeKind::Source(_) | NodeKind::Detector(_) => {}
        }
    }
    Ok(())
}

fn sink_actor<S: Sink>(node: &str, sink: S, input: Receiver<SinkItem>, shared: &Shared) -> SinkActor<S> {
    SinkActor::new(
        node,
        sink,
        input,
        Arc::clone(&shared.sink_ledger),
        shared.shutdown.clone(),
    )
}

/// Detectors that are ready for frames.
pub(super) struct StartedDetectors {
    /// The device in words and in numbers.
    device: (String, serde_json::Value),
    /// Channel into each detector from each source, by node names.
    pub(super) inlets: HashMap<(String, String), Sender<Sample<()>>>,
    /// Where transforms go; `None` where no detector asks for poses.
    pub(super) poses: Option<Arc<Poses>>,
}

async fn start_detectors(
    pipeline: &Pipeline,
    config: DeviceConfig,
    parts: Vec<DetectorParts>,
    shared: &Shared,
    sinks: &mut [PlannedSink<'_>],
    endings: &mut FuturesUnordered<Ending>,
) -> Result<StartedDetectors, RuntimeError> {
    let nodes: Vec<(&str, &DetectorSettings)> = pipeline
        .nodes
        .iter()
        .filter_map(|node| match &node.kind {
            NodeKind::Detector(settings) => Some((node.name.as_str(), settings)),
            _ => None,
        })
        .collect();
    let workers = |settings: &DetectorSettings| {
        let stateful = pipeline.models[&settings.model].family.is_stateful();
        if stateful {
            1
        } else {
            settings.prepare_workers as usize
        }
    };
    let to_device: usize = nodes
        .iter()
        .map(|(name, _)| shared.capacity(&prepare_name(name), "device"))
        .sum();
    let (device_tx, device_rx) = channel::bounded::<Sample<Prepared>>(to_device, OnFull::Block);
    let mut outputs = Vec::new();
    let mut results: Vec<Receiver<Sample<Inferred>>> = Vec::new();
    for (name, _) in &nodes {
        let capacity = shared.capacity("device", &finish_name(name));
        let (tx, rx) = channel::bounded(capacity, OnFull::Block);
        // As many output slots as places in the channel: results always find room there.
        outputs.push((tx, capacity));
        results.push(rx);
    }
    let (hosts, builders): (Vec<_>, Vec<_>) = parts.into_iter().map(|part| (part.host, part.device)).unzip();
    let input_slots = nodes
        .iter()
        .map(|(name, settings)| shared.capacity(&prepare_name(name), "device") + workers(settings))
        .max()
        .unwrap_or(0)
        + FRAMES_UNDER_WAY;
    let device_settings = &pipeline.device;
    if !device_settings.faults.faults.is_empty() {
        let faults = device_settings.faults.faults.len();
        tracing::warn!(
            faults,
            "faults are injected into the device: this is a switch for tests"
        );
    }
    let restart = RestartSettings {
        // What was on a lost device is missing, and a deterministic run promises that nothing is.
        limit: if shared.lossless {
            0
        } else {
            device_settings.restart.limit
        },
        ..device_settings.restart
    };
    let (ready_tx, ready_rx) = oneshot::channel();
    let args = OwnerArgs {
        open: models::open_device(config, device_settings, restart.limit > 0, builders),
        input: device_rx,
        outputs,
        ready: ready_tx,
        input_slots,
        frame_deadline: Duration::from_millis(device_settings.frame_deadline_ms.into()),
        restart,
        ledger: Arc::clone(&shared.ledger),
        clock: shared.clock,
        shutdown: shared.shutdown.clone(),
    };
    let owner = DeviceOwner::spawn_in_thread(args);
    let OwnerReady {
        input_pools,
        device,
        device_details,
    } = ready_rx
        .await
        .map_err(|_| RuntimeError::Device("the device owner stopped while opening the device".into()))??;
    if let Ok(description) = owner.ask(DescribeDevice).await {
        tracing::info!(%description, "device ready");
    }
    endings.push(ending("device".into(), owner));

    let world = hosts.iter().find_map(|host| host.world_frame.as_deref());
    let poses = world.map(|world| Arc::new(Poses::new(world)));
    let mut inlets = HashMap::new();
    // The first publisher measures what it publishes; other detectors are measured when their results are out.
    let publisher = pipeline
        .nodes
        .iter()
        .find(|node| matches!(node.kind, NodeKind::Publisher(_)));
    let measured_by_publisher = |detector: &str| {
        publisher.is_some_and(|publisher| {
            let fed_by = |edge: &crate::pipeline::Edge| edge.to == publisher.name && edge.from == detector;
            pipeline.edges.iter().any(fed_by)
        })
    };
    for (index, (((name, settings), host), (pools, rx))) in nodes
        .iter()
        .zip(hosts)
        .zip(input_pools.into_iter().zip(results))
        .enumerate()
    {
        let (senders, input) = shared.channel_into::<Sample<()>>(&prepare_name(name));
        for (source, inlet) in senders {
            inlets.insert((source, (*name).to_owned()), inlet);
        }
        let prepare = Prepare {
            name: prepare_name(name),
            index,
            model: Arc::clone(&host.model),
            slots: pools,
            output: device_tx.clone(),
            ledger: Arc::clone(&shared.ledger),
            clock: shared.clock,
            poses: poses.clone().filter(|_| host.world_frame.is_some()),
            clouds: Mutex::new(Vec::new()),
            explained: Mutex::new(HashSet::new()),
        };
        let stage = Stage::new(
            prepare,
            input,
            workers(settings),
            Arc::clone(&shared.ledger),
            shared.shutdown.clone(),
        );
        endings.push(ending(prepare_name(name), Stage::spawn(stage)));

        let finish = Finish {
            name: finish_name(name),
            model: host.model,
            output_len: host.output_len,
            sinks: sinks
                .iter_mut()
                .filter_map(|sink| sink.outlets.remove(&finish_name(name)))
                .collect(),
            ledger: Arc::clone(&shared.ledger),
            sink_ledger: Arc::clone(&shared.sink_ledger),
            meter: (!measured_by_publisher(name)).then(|| Arc::clone(&shared.meter)),
            clock: shared.clock,
        };
        let stage = Stage::new(
            finish,
            rx,
            settings.finish_workers as usize,
            Arc::clone(&shared.ledger),
            shared.shutdown.clone(),
        );
        endings.push(ending(finish_name(name), Stage::spawn(stage)));
    }
    Ok(StartedDetectors {
        device: (device, device_details),
        inlets,
        poses,
    })
}

fn prepare_name(node: &str) -> String {
    format!("{node}/prepare")
}

fn finish_name(node: &str) -> String {
    format!("{node}/finish")
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
