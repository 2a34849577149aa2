//! The sinks of a run: their channels, what they write to, and who would see it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;

use super::channel::Receiver;
use super::detectors::Outlets;
use super::ending::Ending;
use super::error::RuntimeError;
use super::finish::{SinkItem, SinkOutlet};
use super::meter::Meter;
use super::poses::Poses;
use super::ros::{Audience, RosGraph, RosSink, RosSinkParts};
use super::run::{RunOptions, Shared};
use super::sink_desk::SinkDesk;
use super::sinks::{JsonLinesSink, PublisherSink, RecorderSink, Sink, SinkActor, ViewerSink};
use super::supervision::{RunsIn, WhenGivenUp, supervise};
use super::topics::PlayedTopic;
use super::turns::SinkInput;
use crate::io::foxglove_live::FoxgloveServer;
use crate::io::zenoh::ZenohPublisher;
use crate::perception::Sensor;
use crate::pipeline::{Node, NodeKind, OnSinkFailure, Pipeline, PublisherSettings, Ros2PublisherSettings};

/// What the sinks of the ROS 2 graph need.
pub(super) struct GraphSinks {
    /// The node.
    pub(super) graph: Arc<RosGraph>,
    /// Topics of the sources, by the names of their nodes.
    pub(super) streams: HashMap<String, Vec<PlayedTopic>>,
    /// Transforms, where a detector asks for them.
    pub(super) poses: Option<Arc<Poses>>,
}

/// Who would see the results of each detector, by the name of its node; none where something else uses them.
pub(super) type Audiences = BTreeMap<String, Arc<Audience>>;

/// A sink with its channels, before anything is opened.
pub(super) struct PlannedSink<'a> {
    node: &'a Node,
    input: Receiver<SinkItem>,
}

/// The sinks of a pipeline, and the ways into them; files last, so that they are opened when nothing else can fail any
/// more.
pub(super) fn plan_sinks<'a>(pipeline: &'a Pipeline, shared: &Shared) -> (Vec<PlannedSink<'a>>, Outlets) {
    let mut outlets = Outlets::new();
    let mut plan = |node: &'a Node| {
        let (senders, input) = shared.channel_into(&node.name);
        let account = shared.sink_ledger.streams().register(&node.name);
        for (from, channel) in senders {
            outlets.entry(from).or_default().push(SinkOutlet {
                channel,
                account,
                node: node.name.clone(),
            });
        }
        PlannedSink { node, input }
    };
    let (mut publishers, mut files) = (Vec::new(), Vec::new());
    for node in &pipeline.nodes {
        match &node.kind {
            NodeKind::Publisher(_) => publishers.push(plan(node)),
            NodeKind::Recorder(_) | NodeKind::JsonLines(_) => files.push(plan(node)),
            NodeKind::Source(_)
            | NodeKind::Detector(_)
            | NodeKind::Compute(_)
            | NodeKind::Sync(_)
            | NodeKind::Concat(_) => {}
        }
    }
    publishers.append(&mut files);
    (publishers, outlets)
}

/// Opens and starts the sinks.
pub(super) async fn start_sinks(
    pipeline: &Pipeline,
    sinks: Vec<PlannedSink<'_>>,
    graph: Option<GraphSinks>,
    shared: &Shared,
    (options, desk): (&RunOptions, &SinkDesk),
    endings: &mut FuturesUnordered<Ending>,
) -> Result<Audiences, RuntimeError> {
    let mut meter = Some(Arc::clone(&shared.meter));
    let mut audiences: BTreeMap<String, Audience> = BTreeMap::new();
    for PlannedSink { node, input } in sinks {
        let name = &node.name;
        let ending = if let NodeKind::Publisher(PublisherSettings::Ros2(settings)) = &node.kind {
            let Some(graph) = &graph else { continue };
            let parts = RosSinkParts {
                graph: Arc::clone(&graph.graph),
                settings,
                diagnostics: pipeline.ros2.diagnostics,
                scope: (ros_sinks(pipeline).count() > 1).then_some(name.as_str()),
                streams: streams_of(pipeline, name, &graph.streams),
                poses: graph.poses.clone(),
                meter: meter.take(),
                clock: shared.clock,
            };
            let sink = RosSink::open(parts).map_err(|e| RuntimeError::Sink {
                node: name.clone(),
                reason: e.to_string(),
            })?;
            for detector in detectors_of(pipeline, name).filter(|detector| is_skippable(pipeline, detector)) {
                sink.add_to(audiences.entry(detector.to_owned()).or_default());
            }
            // Publishing may wait for the network.
            Some(supervise_sink(name, sink, input, RunsIn::Thread, shared))
        } else {
            // The first publisher of the file measures when frames are published.
            let measures = matches!(&node.kind, NodeKind::Publisher(publisher) if publisher.measures());
            let meter = if measures { meter.take() } else { None };
            start_sink(node, input, meter, options.with_latency, shared).await?
        };
        endings.extend(ending.map(|ending| desk.follow(name, ending)));
    }
    let shared = |(detector, audience)| (detector, Arc::new(audience));
    let audiences = audiences.into_iter().map(shared).collect();
    desk.tell(&audiences);
    Ok(audiences)
}

/// Opens and starts one sink; `None` for a node that is none, or one of the ROS 2 graph.
pub(super) async fn start_sink(
    node: &Node,
    input: Receiver<SinkItem>,
    meter: Option<Arc<Meter>>,
    with_latency: bool,
    shared: &Shared,
) -> Result<Option<Ending>, RuntimeError> {
    let name = &node.name;
    Ok(match &node.kind {
        NodeKind::Publisher(PublisherSettings::Zenoh(settings)) => {
            let publisher = ZenohPublisher::open(settings)
                .await
                .map_err(|e| RuntimeError::Sink {
                    node: name.clone(),
                    reason: e.to_string(),
                })?;
            let sink = PublisherSink::new(publisher, settings.clone(), meter, with_latency);
            Some(supervise_sink(name, sink, input, RunsIn::Task, shared))
        }
        NodeKind::Publisher(PublisherSettings::Foxglove(settings)) => {
            let server = FoxgloveServer::start(settings.address, &format!("sensorium {name}")).await;
            let server = server.map_err(|e| RuntimeError::Sink {
                node: name.clone(),
                reason: e.to_string(),
            })?;
            let url = format!("ws://{}", server.address());
            shared.progress.listens(name, &url);
            let sink = ViewerSink::new(server, shared.poses.get().cloned());
            // It makes messages of whole clouds.
            Some(supervise_sink(name, sink, input, RunsIn::Thread, shared))
        }
        // A file may take its time, and other actors must not wait for it: these get threads of their own.
        NodeKind::Recorder(settings) => {
            let path = &settings.path;
            let open = match shared.begun_files.has(path) {
                true => RecorderSink::go_on,
                false => RecorderSink::create,
            };
            let sink = open(path, settings.include_images, shared.lossless)?;
            shared.begun_files.note(path);
            Some(supervise_sink(name, sink, input, RunsIn::Thread, shared))
        }
        NodeKind::JsonLines(settings) => {
            let path = &settings.path;
            let open = match shared.begun_files.has(path) {
                true => JsonLinesSink::go_on,
                false => JsonLinesSink::create,
            };
            let sink = open(path, with_latency && !shared.lossless)?;
            shared.begun_files.note(path);
            Some(supervise_sink(name, sink, input, RunsIn::Thread, shared))
        }
        NodeKind::Publisher(PublisherSettings::Ros2(_))
        | NodeKind::Source(_)
        | NodeKind::Detector(_)
        | NodeKind::Compute(_)
        | NodeKind::Sync(_)
        | NodeKind::Concat(_) => None,
    })
}

fn supervise_sink<S: Sink>(
    node: &str,
    sink: S,
    input: Receiver<SinkItem>,
    runs_in: RunsIn,
    shared: &Shared,
) -> Ending {
    let watch = shared.watch(node);
    let accounts = (Arc::clone(&shared.sink_ledger), shared.shutdown.clone());
    let backoff = Duration::from_millis(shared.supervision.backoff_ms.into());
    let input = SinkInput::new(input, shared.turns.clone());
    let actor = SinkActor::new(
        node,
        sink,
        input,
        accounts,
        (watch.clone(), backoff),
        shared.live.trace().cloned(),
    );
    let when_given_up = match shared.supervision.on_sink_failure {
        OnSinkFailure::End => WhenGivenUp::End,
        _ => WhenGivenUp::GoOn,
    };
    supervise(&watch, actor, runs_in, when_given_up, shared)
}

/// The sinks of a pipeline that publish in the ROS 2 graph.
fn ros_sinks(pipeline: &Pipeline) -> impl Iterator<Item = (&str, &Ros2PublisherSettings)> {
    pipeline.nodes.iter().filter_map(|node| match &node.kind {
        NodeKind::Publisher(PublisherSettings::Ros2(settings)) => Some((node.name.as_str(), settings)),
        _ => None,
    })
}

/// The detectors whose results go to a sink.
pub(super) fn detectors_of<'a>(pipeline: &'a Pipeline, sink: &'a str) -> impl Iterator<Item = &'a str> {
    let edges = pipeline.edges.iter().filter(move |edge| edge.to == sink);
    edges.map(|edge| edge.from.as_str())
}

/// Whether all that uses a detector's results are publishers that can tell whether anybody listens.
fn is_skippable(pipeline: &Pipeline, detector: &str) -> bool {
    let mut sinks = pipeline.edges.iter().filter(|edge| edge.from == detector);
    sinks.all(|edge| {
        ros_sinks(pipeline).any(|(name, settings)| name == edge.to && settings.skip_without_subscribers)
    })
}

/// The streams whose results go to a sink, with what they are of.
fn streams_of(
    pipeline: &Pipeline,
    sink: &str,
    topics: &HashMap<String, Vec<PlayedTopic>>,
) -> Vec<(Arc<str>, Sensor)> {
    let mut streams = Vec::new();
    for detector in detectors_of(pipeline, sink) {
        let node = pipeline.nodes.iter().find(|node| node.name == detector);
        let Some(NodeKind::Detector(settings)) = node.map(|node| &node.kind) else {
            continue;
        };
        let sensor = pipeline.family_of(settings).sensor();
        let sources = pipeline.edges.iter().filter(|edge| edge.to == detector);
        let topics = sources.filter_map(|edge| topics.get(&edge.from)).flatten();
        let taken = topics.filter(|topic| topic.sensor == sensor);
        streams.extend(taken.map(|topic| (Arc::clone(&topic.name), sensor)));
    }
    streams
}
