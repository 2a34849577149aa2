//! The sinks of a run: their channels, what they write to, and who would see it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures_util::stream::FuturesUnordered;
use kameo::actor::Spawn;

use super::channel::Receiver;
use super::detectors::Outlets;
use super::ending::{Ending, ending};
use super::error::RuntimeError;
use super::finish::{SinkItem, SinkOutlet};
use super::models;
use super::poses::Poses;
use super::ros::{Audience, RosGraph, RosSink, RosSinkParts};
use super::run::{RunOptions, Shared};
use super::sinks::{JsonLinesSink, PublisherSink, RecorderSink, Sink, SinkActor};
use super::topics::PlayedTopic;
use crate::io::zenoh::ZenohPublisher;
use crate::perception::Sensor;
use crate::pipeline::{Node, NodeKind, Pipeline, PublisherSettings, Ros2PublisherSettings};

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
            NodeKind::Source(_) | NodeKind::Detector(_) | NodeKind::Sync(_) | NodeKind::Concat(_) => {}
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
    options: &RunOptions,
    endings: &mut FuturesUnordered<Ending>,
) -> Result<Audiences, RuntimeError> {
    let mut meter = Some(Arc::clone(&shared.meter));
    let mut audiences: BTreeMap<String, Audience> = BTreeMap::new();
    for PlannedSink { node, input } in sinks {
        let name = &node.name;
        match &node.kind {
            NodeKind::Publisher(PublisherSettings::Zenoh(settings)) => {
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
            NodeKind::Publisher(PublisherSettings::Ros2(settings)) => {
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
                for detector in
                    detectors_of(pipeline, name).filter(|detector| is_skippable(pipeline, detector))
                {
                    sink.add_to(audiences.entry(detector.to_owned()).or_default());
                }
                // Publishing may wait for the network.
                let actor = sink_actor(name, sink, input, shared);
                endings.push(ending(name.clone(), SinkActor::spawn_in_thread(actor)));
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
            NodeKind::Source(_) | NodeKind::Detector(_) | NodeKind::Sync(_) | NodeKind::Concat(_) => {}
        }
    }
    let shared = |(detector, audience)| (detector, Arc::new(audience));
    Ok(audiences.into_iter().map(shared).collect())
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

/// The sinks of a pipeline that publish in the ROS 2 graph.
fn ros_sinks(pipeline: &Pipeline) -> impl Iterator<Item = (&str, &Ros2PublisherSettings)> {
    pipeline.nodes.iter().filter_map(|node| match &node.kind {
        NodeKind::Publisher(PublisherSettings::Ros2(settings)) => Some((node.name.as_str(), settings)),
        _ => None,
    })
}

/// The detectors whose results go to a sink.
fn detectors_of<'a>(pipeline: &'a Pipeline, sink: &'a str) -> impl Iterator<Item = &'a str> {
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
        let sensor = models::sensor_of(&pipeline.models[&settings.model].family);
        let sources = pipeline.edges.iter().filter(|edge| edge.to == detector);
        let topics = sources.filter_map(|edge| topics.get(&edge.from)).flatten();
        let taken = topics.filter(|topic| topic.sensor == sensor);
        streams.extend(taken.map(|topic| (Arc::clone(&topic.name), sensor)));
    }
    streams
}
