//! Putting a pipeline together, running it, and settling up.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use kameo::actor::{ActorRef, Spawn};
use kameo::error::ActorStopReason;
use tokio::sync::oneshot;

use super::channel::{self, Receiver, Sender};
use super::error::RuntimeError;
use super::finish::{Finish, SinkItem, SinkOutlet};
use super::frame::{Inferred, Prepared, Sample};
use super::meter::Meter;
use super::models::{self, DetectorParts};
use super::owner::{DescribeDevice, DeviceOwner, FRAMES_UNDER_WAY, OwnerArgs, OwnerReady};
use super::prepare::Prepare;
use super::shutdown::Shutdown;
use super::sinks::{JsonLinesSink, PublisherSink, RecorderSink, Sink, SinkActor};
use super::source::{Outlet, Source, SourceArgs, choose_topics};
use super::stage::Stage;
use crate::io::bag::Bag;
use crate::io::zenoh::ZenohPublisher;
use crate::pipeline::{
    Clock, DetectorSettings, Node, NodeKind, OnFull, OnStreamsFull, Pipeline, Plan, Rate, SourceSettings,
};
use crate::telemetry::report::ReportFrame;
use crate::telemetry::{
    ClockKind, LatencyOptions, Ledger, MonotonicClock, RunInfo, RunSummary, StreamId, Streams, Timeline,
};

/// How long actors may take to stop once a run is aborted.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// Told how a run gets on.
pub trait Progress: Send + Sync {
    /// The run starts; so many messages will be played.
    fn started(&self, messages: u64);
    /// One more message was played.
    fn message(&self);
    /// Everything that was under way has come out.
    fn ended(&self);
}

/// What a run leaves behind besides the pipeline's own sinks.
pub struct RunOptions {
    /// Keep pictures for a report.
    pub gallery: bool,
    /// Write latencies into JSON lines and published results.
    pub with_latency: bool,
    /// Told how the run gets on.
    pub progress: Arc<dyn Progress>,
}

impl fmt::Debug for RunOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunOptions")
            .field("gallery", &self.gallery)
            .field("with_latency", &self.with_latency)
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
    pub gallery: Vec<ReportFrame>,
    /// What went wrong, oldest first. The results are there all the same.
    pub faults: Vec<RuntimeError>,
}

/// Waits for one actor; the text says why it stopped if it should not have.
type Ending = Pin<Box<dyn Future<Output = (String, Option<String>)> + Send>>;

/// A source whose bag is open.
struct OpenSource {
    node: String,
    settings: SourceSettings,
    bag: Bag,
    topics: Vec<Arc<str>>,
}

/// What the parts of a run share.
struct Shared {
    ledger: Arc<Ledger>,
    sink_ledger: Arc<Ledger>,
    clock: MonotonicClock,
    shutdown: Shutdown,
    meter: Arc<Meter>,
    plan: Plan,
    /// Nothing may be dropped.
    lossless: bool,
}

impl Shared {
    fn channel<T>(&self, from: &str, to: &str) -> (Sender<T>, Receiver<T>) {
        let planned = self.plan.channels.iter().find(|c| c.from == from && c.to == to);
        let (capacity, on_full) = planned.map_or((1, OnFull::Block), |c| (c.capacity as usize, c.on_full));
        channel::bounded(capacity, if self.lossless { OnFull::Block } else { on_full })
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
    let sources = open_sources(pipeline)?;
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
        deadline_ns: first
            .and_then(|s| s.deadline_ms)
            .map(|ms| u64::from(ms) * 1_000_000),
        rate: match rate {
            Rate::Times(speed) => Some(speed),
            Rate::Max => None,
        },
    };
    let shared = Shared {
        ledger: Arc::new(Ledger::new(streams.clone())),
        sink_ledger: Arc::new(Ledger::new(Streams::default())),
        clock,
        shutdown: shutdown.clone(),
        meter: Arc::new(Meter::new(clock, streams, latency_options, options.gallery)),
        plan: pipeline.plan(),
        lossless,
    };

    // Sinks first: an output that cannot be written is told before anything is computed.
    let mut sinks = open_sinks(pipeline, &shared, &options).await?;
    let detectors = models::load_all(pipeline)?;
    let mut endings: FuturesUnordered<Ending> = FuturesUnordered::new();
    let started_detectors = start_detectors(pipeline, detectors, &shared, &mut sinks, &mut endings).await?;
    for sink in sinks.drain(..) {
        (sink.start)(&mut endings);
    }

    let damage = Arc::new(Mutex::new(Vec::new()));
    options
        .progress
        .started(sources.iter().map(OpenSource::message_count).sum());
    let device = started_detectors.device.clone();
    start_sources(
        sources,
        rate,
        pipeline,
        started_detectors,
        &shared,
        &options,
        &damage,
        &mut endings,
    );

    await_end(&mut endings, &shared.shutdown).await;
    options.progress.ended();

    let info = RunInfo {
        pipeline: pipeline.name.clone(),
        model: model_names(pipeline),
        device,
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
    for reason in damage.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        shared.shutdown.note(RuntimeError::Source {
            node: "bag".into(),
            reason,
        });
    }
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
        faults,
    })
}

impl OpenSource {
    fn message_count(&self) -> u64 {
        let played = |name: &str| self.topics.iter().any(|topic| **topic == *name);
        self.bag
            .topics()
            .iter()
            .filter(|topic| played(&topic.name))
            .map(|topic| topic.messages)
            .sum()
    }
}

fn open_sources(pipeline: &Pipeline) -> Result<Vec<OpenSource>, RuntimeError> {
    let mut sources = Vec::new();
    for node in &pipeline.nodes {
        let NodeKind::Source(settings) = &node.kind else {
            continue;
        };
        let refuse = |reason: String| RuntimeError::Source {
            node: node.name.clone(),
            reason,
        };
        let path = settings.bag.as_ref().ok_or_else(|| {
            RuntimeError::Incomplete(format!("source {} has no bag: name one with --bag", node.name))
        })?;
        let bag = Bag::open(path).map_err(|e| refuse(e.to_string()))?;
        for warning in bag.warnings() {
            tracing::warn!(source = node.name, %warning, "bag");
        }
        let topics = choose_topics(&node.name, &bag, &settings.topics)?;
        sources.push(OpenSource {
            node: node.name.clone(),
            settings: settings.clone(),
            bag,
            topics,
        });
    }
    Ok(sources)
}

/// Starts a sink and adds its ending to the run's.
type StartSink = Box<dyn FnOnce(&mut FuturesUnordered<Ending>) + Send>;

/// A sink that is open but not running yet.
struct OpenSink {
    node: String,
    outlet: Option<SinkOutlet>,
    start: StartSink,
}

async fn open_sinks(
    pipeline: &Pipeline,
    shared: &Shared,
    options: &RunOptions,
) -> Result<Vec<OpenSink>, RuntimeError> {
    let mut sinks = Vec::new();
    let mut meter = Some(Arc::clone(&shared.meter));
    for node in &pipeline.nodes {
        match &node.kind {
            NodeKind::Publisher(settings) => {
                let refuse = |reason| RuntimeError::Sink {
                    node: node.name.clone(),
                    reason,
                };
                let publisher = ZenohPublisher::open(settings)
                    .await
                    .map_err(|e| refuse(e.to_string()))?;
                // The first publisher of the file measures when frames are published.
                let sink =
                    PublisherSink::new(publisher, settings.clone(), meter.take(), options.with_latency);
                sinks.push(open_sink(pipeline, node, sink, shared));
            }
            NodeKind::Recorder(settings) => {
                let sink = RecorderSink::create(&settings.path, settings.include_images)?;
                sinks.push(open_sink(pipeline, node, sink, shared));
            }
            NodeKind::JsonLines(settings) => {
                let with_latency = options.with_latency && !shared.lossless;
                let sink = JsonLinesSink::create(&settings.path, with_latency)?;
                sinks.push(open_sink(pipeline, node, sink, shared));
            }
            NodeKind::Source(_) | NodeKind::Detector(_) => {}
        }
    }
    Ok(sinks)
}

fn open_sink<S: Sink>(pipeline: &Pipeline, node: &Node, sink: S, shared: &Shared) -> OpenSink {
    let (tx, rx) = shared.channel::<SinkItem>(&finish_name(&feeder(pipeline, &node.name)), &node.name);
    let account = shared.sink_ledger.streams().register(&node.name);
    let actor = SinkActor::new(
        &node.name,
        sink,
        rx,
        Arc::clone(&shared.sink_ledger),
        shared.shutdown.clone(),
    );
    let name = node.name.clone();
    OpenSink {
        node: node.name.clone(),
        outlet: Some(SinkOutlet {
            channel: tx,
            account,
            node: node.name.clone(),
        }),
        start: Box::new(move |endings| endings.push(ending(name, SinkActor::spawn(actor)))),
    }
}

/// Detectors that are ready for frames.
struct StartedDetectors {
    device: String,
    /// Channel into each detector from each source, by node names.
    inlets: HashMap<(String, String), Sender<Sample<()>>>,
}

async fn start_detectors(
    pipeline: &Pipeline,
    parts: Vec<DetectorParts>,
    shared: &Shared,
    sinks: &mut [OpenSink],
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
    let workers = |settings: &DetectorSettings| settings.prepare_workers as usize;
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
    let (ready_tx, ready_rx) = oneshot::channel();
    let args = OwnerArgs {
        open: models::open_device(pipeline.device.clone(), builders),
        input: device_rx,
        outputs,
        ready: ready_tx,
        input_slots,
        ledger: Arc::clone(&shared.ledger),
        clock: shared.clock,
        shutdown: shared.shutdown.clone(),
    };
    let owner = DeviceOwner::spawn_in_thread(args);
    let OwnerReady { input_pools, device } = ready_rx
        .await
        .map_err(|_| RuntimeError::Device("the device owner stopped while opening the device".into()))??;
    if let Ok(description) = owner.ask(DescribeDevice).await {
        tracing::info!(%description, "device ready");
    }
    endings.push(ending("device".into(), owner));

    let mut inlets = HashMap::new();
    let has_publisher = pipeline
        .nodes
        .iter()
        .any(|node| matches!(node.kind, NodeKind::Publisher(_)));
    for (index, (((name, settings), host), (pool, rx))) in nodes
        .iter()
        .zip(hosts)
        .zip(input_pools.into_iter().zip(results))
        .enumerate()
    {
        let feeder = feeder(pipeline, name);
        let (inlet, input) = shared.channel::<Sample<()>>(&feeder, &prepare_name(name));
        inlets.insert((feeder, (*name).to_owned()), inlet);
        let prepare = Prepare {
            name: prepare_name(name),
            index,
            detector: Arc::clone(&host.detector),
            slots: pool,
            output: device_tx.clone(),
            ledger: Arc::clone(&shared.ledger),
            clock: shared.clock,
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
            detector: host.detector,
            output_len: host.output_len,
            sinks: sinks
                .iter_mut()
                .filter(|sink| self::feeder(pipeline, &sink.node) == *name)
                .filter_map(|sink| sink.outlet.take())
                .collect(),
            ledger: Arc::clone(&shared.ledger),
            sink_ledger: Arc::clone(&shared.sink_ledger),
            meter: (!has_publisher).then(|| Arc::clone(&shared.meter)),
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
    Ok(StartedDetectors { device, inlets })
}

#[expect(
    clippy::too_many_arguments,
    reason = "called once, with what the other steps made"
)]
fn start_sources(
    sources: Vec<OpenSource>,
    rate: Rate,
    pipeline: &Pipeline,
    mut detectors: StartedDetectors,
    shared: &Shared,
    options: &RunOptions,
    damage: &Arc<Mutex<Vec<String>>>,
    endings: &mut FuturesUnordered<Ending>,
) {
    let single = detectors.inlets.len() == 1;
    for source in sources {
        let mut outlets = Vec::new();
        for node in &pipeline.nodes {
            let NodeKind::Detector(settings) = &node.kind else {
                continue;
            };
            let Some(channel) = detectors.inlets.remove(&(source.node.clone(), node.name.clone())) else {
                continue;
            };
            let model = &pipeline.models[&settings.model];
            let room = match model.on_full {
                OnStreamsFull::Reject => model.max_streams as usize,
                // A detector without state loses nothing when a stream gives up its place.
                _ => usize::MAX,
            };
            let stream_of = |topic: &Arc<str>| -> (Arc<str>, StreamId) {
                let name = if single {
                    topic.to_string()
                } else {
                    format!("{} {topic}", node.name)
                };
                (Arc::clone(topic), shared.ledger.streams().register(&name))
            };
            let rejected: Vec<Arc<str>> = source.topics.iter().skip(room).cloned().collect();
            for topic in &rejected {
                tracing::warn!(
                    detector = node.name,
                    %topic,
                    max_streams = model.max_streams,
                    "more streams than the model has room for; this one is dropped"
                );
            }
            outlets.push(Outlet {
                channel,
                streams: source.topics.iter().map(stream_of).collect(),
                rejected,
                node: node.name.as_str().into(),
            });
        }
        let progress = Arc::clone(&options.progress);
        let args = SourceArgs {
            node: source.node.as_str().into(),
            bag: source.bag,
            topics: source.topics,
            rate,
            outlets,
            ledger: Arc::clone(&shared.ledger),
            clock: shared.clock,
            shutdown: shared.shutdown.clone(),
            damage: Arc::clone(damage),
            progress: Arc::new(move || progress.message()),
        };
        endings.push(ending(source.node, Source::spawn(args)));
    }
}

/// Waits for every actor. One that dies ends the run; after an abort, waiting is limited.
async fn await_end(endings: &mut FuturesUnordered<Ending>, shutdown: &Shutdown) {
    let mut aborted_at: Option<Instant> = None;
    while !endings.is_empty() {
        tokio::select! {
            Some((actor, trouble)) = endings.next() => {
                if let Some(reason) = trouble {
                    shutdown.fail(RuntimeError::ActorDied { actor, reason });
                }
            }
            () = tokio::time::sleep(Duration::from_millis(20)), if shutdown.is_draining() => {
                if shutdown.is_aborting() {
                    let since = *aborted_at.get_or_insert_with(Instant::now);
                    if since.elapsed() > STOP_DEADLINE {
                        let reason = format!("{} actor(s) did not stop in time", endings.len());
                        shutdown.note(RuntimeError::ActorDied { actor: "pipeline".into(), reason });
                        return;
                    }
                }
            }
            () = shutdown.draining(), if !shutdown.is_draining() => {}
        }
    }
}

fn ending<A: kameo::Actor<Error: fmt::Debug>>(name: String, actor: ActorRef<A>) -> Ending {
    Box::pin(async move {
        let trouble = actor
            .wait_for_shutdown_with_result(|outcome| match outcome {
                Ok(ActorStopReason::Normal | ActorStopReason::SupervisorRestart) => None,
                Ok(reason) => Some(format!("{reason:?}")),
                Err(error) => Some(format!("{error:?}")),
            })
            .await;
        (name, trouble)
    })
}

fn feeder(pipeline: &Pipeline, node: &str) -> String {
    pipeline
        .edges
        .iter()
        .find(|edge| edge.to == node)
        .map_or_else(String::new, |edge| edge.from.clone())
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
            Some(path) => format!("{name} ({}, {})", path.display(), model.precision),
            None => name.clone(),
        })
        .collect();
    names.join(", ")
}
