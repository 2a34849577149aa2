//! The sources of a run: bags are opened, streams get their places, and the playing starts.

use std::sync::Arc;

use futures_util::stream::FuturesUnordered;

use super::RuntimeError;
use super::bag_feed::BagFeed;
use super::control::{OutletStreams, Places, SourceLink};
use super::detectors::StartedDetectors;
use super::drive::{DriveDesk, DriveFeed, TruthLog, drive_topics};
use super::ending::Ending;
use super::load::{Load, LoadDesk};
use super::outlets::Audiences;
use super::ros::{self, LiveDesk, LiveFeed, RosGraph, type_of};
use super::run::{RunOptions, Shared};
use super::sets::{self, StartedSets};
use super::source::{Feed, Outlet, OutletLink, Place, Source, SourceArgs, TopicDesk};
use super::supervision::{RunsIn, WhenGivenUp, supervise};
use super::topics::{PlayedTopic, choose_topics, transform_topics};
use crate::io::bag::Bag;
use crate::perception::Sensor;
use crate::pipeline::{Family, Node, NodeKind, Pipeline, Rate, SourceSettings, SyncMember, Topics};

/// A source that is ready to play.
pub(super) struct OpenSource {
    /// Name of the node.
    pub(super) node: String,
    /// Its settings.
    pub(super) settings: SourceSettings,
    feed: Box<dyn Feed>,
    desk: Arc<dyn TopicDesk>,
    /// Topics of the streams.
    pub(super) topics: Vec<PlayedTopic>,
    /// Frames that will be played.
    pub(super) frames: u64,
}

/// Opens the bag of every source, sets its drive up, or names what it subscribes to in `graph`.
pub(super) fn open_sources(
    pipeline: &Pipeline,
    truth: &TruthLog,
    graph: Option<&Arc<RosGraph>>,
    load: Option<&Load>,
) -> Result<Vec<OpenSource>, RuntimeError> {
    let mut sources = Vec::new();
    for node in &pipeline.nodes {
        let NodeKind::Source(settings) = &node.kind else {
            continue;
        };
        if let (Some(_), Some(graph)) = (settings.subscribe, graph) {
            sources.push(open_live(pipeline, node, settings, graph)?);
            continue;
        }
        sources.push(match settings.simulate {
            Some(drive) => {
                let sensors = sensors_behind(pipeline, node);
                let wanted = renamed(pipeline, &settings.topics)?;
                let members = sets::members_of(pipeline, &node.name)?;
                let topics = match members.is_empty() {
                    true => drive_topics(&node.name, &drive, &wanted, &sensors)?,
                    false => {
                        let mut topics = drive_topics(&node.name, &drive, &wanted, &[])?;
                        topics.retain(|topic| {
                            let mut members = members.iter();
                            sensors.contains(&topic.sensor)
                                || members.any(|member| *member.topic == *topic.name)
                        });
                        topics
                    }
                };
                let feed = DriveFeed::new(&drive, &topics, truth.clone());
                OpenSource {
                    node: node.name.clone(),
                    settings: settings.clone(),
                    topics,
                    frames: feed.messages(),
                    feed: Box::new(feed),
                    desk: Arc::new(DriveDesk),
                }
            }
            None => open_bag(pipeline, node, settings)?,
        });
    }
    match load {
        Some(load) => offered(pipeline, sources, load),
        None => Ok(sources),
    }
}

/// The one source with a load in place of what it would play.
fn offered(
    pipeline: &Pipeline,
    sources: Vec<OpenSource>,
    load: &Load,
) -> Result<Vec<OpenSource>, RuntimeError> {
    // Without sources there may be timers, which take only the time from a load.
    if sources.is_empty() {
        return Ok(sources);
    }
    let count = sources.len();
    let Ok([source]) = <[OpenSource; 1]>::try_from(sources) else {
        return Err(RuntimeError::Incomplete(format!(
            "a load takes the place of one source, and this pipeline has {count}: put the topics into one bag"
        )));
    };
    if source.settings.subscribe.is_some() {
        return Err(RuntimeError::Source {
            node: source.node,
            reason: "live messages come when they come and cannot be offered at a rate: give it a bag".into(),
        });
    }
    let results = sets::results_of_messages(pipeline)?;
    let takers = |stream: &PlayedTopic| {
        let of_node = |node: &Node| match &node.kind {
            NodeKind::Detector(detector) => u64::from(pipeline.family_of(detector).sensor() == stream.sensor),
            NodeKind::Sync(_) => results(&node.name, &stream.name),
            _ => 1,
        };
        let fed = pipeline
            .nodes
            .iter()
            .filter(|node| pipeline.feeds(&source.node, &node.name));
        fed.map(of_node).sum()
    };
    let (feed, topics) = load.over(&source.node, source.feed, &source.topics, takers)?;
    Ok(vec![OpenSource {
        frames: feed.queries(),
        feed: Box::new(feed),
        desk: Arc::new(LoadDesk),
        topics,
        node: source.node,
        settings: source.settings,
    }])
}

fn open_bag(pipeline: &Pipeline, node: &Node, settings: &SourceSettings) -> Result<OpenSource, RuntimeError> {
    let refuse = |reason: String| RuntimeError::Source {
        node: node.name.clone(),
        reason,
    };
    let path = settings.bag.as_ref().ok_or_else(|| {
        RuntimeError::Incomplete(format!("source {} has no bag: name one with --bag", node.name))
    })?;
    let bag = Bag::open(path).map_err(|e| refuse(e.to_string()))?;
    for warning in bag.warnings() {
        tracing::warn!(source = node.name, "{warning}");
    }
    let sensors = sensors_behind(pipeline, node);
    let wanted = renamed(pipeline, &settings.topics)?;
    let members = sets::members_of(pipeline, &node.name)?;
    let topics = match members.is_empty() {
        true => choose_topics(&node.name, &bag, &wanted, &sensors)?,
        false => with_members(&node.name, &bag, &wanted, &sensors, &members)?,
    };
    let played = |name: &str| topics.iter().any(|topic| *topic.name == *name);
    let frames = bag.topics().iter().filter(|topic| played(&topic.name));
    let frames = frames.map(|topic| topic.messages).sum();
    let mut all: Vec<Arc<str>> = topics.iter().map(|topic| Arc::clone(&topic.name)).collect();
    if asks_for_poses(pipeline, node, &members) {
        all.extend(transform_topics(&bag));
    }
    let feed = BagFeed::new(&node.name, bag, all);
    Ok(OpenSource {
        node: node.name.clone(),
        settings: settings.clone(),
        desk: feed.desk(),
        feed: Box::new(feed),
        topics,
        frames,
    })
}

/// The topics that a source names, under the names that a bag or a drive has them: those that a node would subscribe to.
fn renamed(pipeline: &Pipeline, topics: &Topics) -> Result<Topics, RuntimeError> {
    let Topics::Listed(topics) = topics else {
        return Ok(Topics::Auto);
    };
    let (name, remaps) = ros::names(&pipeline.ros2)?;
    let named = topics.iter().map(|topic| match remaps.apply(&name, topic) {
        Ok(resolved) if topic.starts_with('~') || !remaps.is_empty() => resolved,
        _ => topic.clone(),
    });
    Ok(Topics::Listed(named.collect()))
}

/// The topics of a bag that are played where sets are made of some of them.
fn with_members(
    node: &str,
    bag: &Bag,
    wanted: &Topics,
    sensors: &[Sensor],
    members: &[SyncMember],
) -> Result<Vec<PlayedTopic>, RuntimeError> {
    const ANY: &[Sensor] = &[Sensor::Camera, Sensor::Lidar];
    let mut topics = match wanted {
        Topics::Listed(_) => return choose_topics(node, bag, wanted, ANY),
        Topics::Auto if sensors.is_empty() => Vec::new(),
        Topics::Auto => choose_topics(node, bag, wanted, sensors)?,
    };
    for member in members {
        let is_there = bag.topics().iter().any(|topic| *topic.name == *member.topic);
        // Another source may have it; that one of them does is checked when all are open.
        if is_there && !topics.iter().any(|topic| *topic.name == *member.topic) {
            let listed = Topics::Listed(vec![member.topic.clone()]);
            topics.extend(choose_topics(node, bag, &listed, ANY)?);
        }
    }
    Ok(topics)
}

/// The models of the detectors behind a source.
fn families_behind<'a>(pipeline: &'a Pipeline, source: &Node) -> impl Iterator<Item = &'a Family> {
    let fed = pipeline
        .nodes
        .iter()
        .filter(|node| pipeline.feeds(&source.name, &node.name));
    fed.filter_map(|node| match &node.kind {
        NodeKind::Detector(detector) => Some(pipeline.family_of(detector)),
        _ => None,
    })
}

/// What the detectors behind a source take.
fn sensors_behind(pipeline: &Pipeline, source: &Node) -> Vec<Sensor> {
    let mut sensors: Vec<Sensor> = Vec::new();
    for family in families_behind(pipeline, source) {
        if !sensors.contains(&family.sensor()) {
            sensors.push(family.sensor());
        }
    }
    sensors
}

/// Whether the transforms of a source are to be played: for models that ask where a sensor was, and for nodes behind sets
/// of these members.
fn asks_for_poses(pipeline: &Pipeline, source: &Node, members: &[SyncMember]) -> bool {
    // Sweeps are shown where they were seen, whether their model asks or not.
    !members.is_empty()
        || families_behind(pipeline, source)
            .any(|family| family.sensor() == Sensor::Lidar || family.asks_for_poses())
}

/// Names what a source subscribes to.
fn open_live(
    pipeline: &Pipeline,
    node: &Node,
    settings: &SourceSettings,
    graph: &Arc<RosGraph>,
) -> Result<OpenSource, RuntimeError> {
    let refuse = |reason: String| RuntimeError::Source {
        node: node.name.clone(),
        reason,
    };
    let sensors = sensors_behind(pipeline, node);
    let members = sets::members_of(pipeline, &node.name)?;
    let sensor_of = |topic: &str| {
        let member = members.iter().find(|member| member.topic == topic);
        match (member.and_then(|member| member.sensor), member, &sensors[..]) {
            (Some(sensor), ..) => Ok(sensor.sensor()),
            (None, _, &[sensor]) => Ok(sensor),
            (None, Some(_), _) => Err(refuse(format!(
                "what the member {topic} sends is not known before it comes: say `sensor: camera` or `sensor: lidar`"
            ))),
            (None, None, []) => Err(refuse(format!("nothing takes the topic {topic}"))),
            (None, None, _) => Err(refuse(
                "the detectors behind it take images and point clouds: use a source for each".into(),
            )),
        }
    };
    let Topics::Listed(names) = &settings.topics else {
        return Err(refuse("no topics to subscribe to".into()));
    };
    let mut topics: Vec<(Arc<str>, &'static str)> = Vec::new();
    let mut played: Vec<PlayedTopic> = Vec::new();
    for name in names {
        let topic = graph.topic(name).map_err(|error| refuse(error.to_string()))?;
        if topics.iter().any(|(known, _)| **known == *topic) {
            return Err(refuse(format!("the topic {topic} is named twice")));
        }
        let sensor = sensor_of(&topic)?;
        let type_name = type_of(sensor, &topic);
        played.push(PlayedTopic::new(&topic, sensor));
        topics.push((topic.into(), type_name));
    }
    // Topics that are added later are of the sensor of the first.
    let sensor = played.first().map_or(Sensor::Lidar, |topic| topic.sensor);
    let desk = LiveDesk::new(graph, sensor, &topics);
    Ok(OpenSource {
        node: node.name.clone(),
        settings: settings.clone(),
        feed: Box::new(LiveFeed {
            graph: Arc::clone(graph),
            desk: Arc::clone(&desk),
            transforms: asks_for_poses(pipeline, node, &members),
        }),
        topics: played,
        desk,
        frames: 0,
    })
}

/// Starts the sources, each with a way into every detector that it feeds.
pub(super) fn start_sources(
    sources: Vec<OpenSource>,
    pipeline: &Pipeline,
    (mut detectors, mut sets): (StartedDetectors, StartedSets),
    audiences: Audiences,
    shared: &Shared,
    options: &RunOptions,
    endings: &mut FuturesUnordered<Ending>,
) {
    // Nodes that take what sources play.
    let is_fed = |node: &str| sources.iter().any(|source| pipeline.feeds(&source.node, node));
    let receiver_count = pipeline.nodes.iter().filter(|node| is_fed(&node.name)).count();
    let source_count = sources.len();
    for (position, source) in sources.into_iter().enumerate() {
        let (mut outlets, mut links) = (Vec::new(), Vec::new());
        for node in &pipeline.nodes {
            let NodeKind::Detector(settings) = &node.kind else {
                continue;
            };
            let Some(channel) = detectors.inlets.remove(&(source.node.clone(), node.name.clone())) else {
                continue;
            };
            let model = &pipeline.models[&settings.model];
            // A source of several sensors sends each detector what it takes.
            let sensor = model.family.sensor();
            let taken = source.topics.iter().filter(|topic| topic.sensor == sensor);
            let topics: Vec<Arc<str>> = taken.map(|topic| Arc::clone(&topic.name)).collect();
            // As long as is needed to tell streams apart.
            let mut prefix = String::new();
            if receiver_count > 1 {
                prefix = format!("{} ", node.name);
            }
            if source_count > 1 {
                prefix = format!("{prefix}{} ", source.node);
            }
            let Some(places) = shared.board.detector(&node.name).map(|known| known.places) else {
                continue;
            };
            let link = OutletLink {
                detector: node.name.as_str().into(),
                streams: Arc::default(),
                sensor,
                prefix,
                timed: !shared.lossless
                    && (source.settings.subscribe.is_some()
                        || matches!(source.settings.rate, Rate::Times(_))),
            };
            for topic in &topics {
                let stream = link.stream(&source.node.as_str().into(), topic, &shared.ledger);
                if !places.take(stream.id) {
                    tracing::warn!(
                        detector = node.name,
                        %topic,
                        max_streams = model.max_streams,
                        "more streams than the model has room for; this one is dropped"
                    );
                }
                stream.arrived(shared.clock.now_ns());
                shared.board.add_stream(&stream);
                link.streams.add(stream);
            }
            outlets.push(Outlet {
                channel,
                streams: Arc::clone(&link.streams),
                places,
                node: node.name.as_str().into(),
                audience: audiences.get(&node.name).cloned(),
                keeps_transforms: false,
            });
            links.push(link);
        }
        for set in &mut sets.outlets {
            let Some(channel) = set.inlets.remove(&source.node) else {
                continue;
            };
            let mut prefix = String::new();
            let streams = Arc::<OutletStreams>::default();
            if receiver_count > 1 {
                prefix = format!("{} ", set.node);
            }
            if source_count > 1 {
                prefix = format!("{prefix}{} ", source.node);
            }
            let played = source.topics.iter();
            for topic in played.filter(|topic| set.topics.contains(&topic.name)) {
                let link = OutletLink {
                    detector: set.node.as_str().into(),
                    streams: Arc::clone(&streams),
                    sensor: topic.sensor,
                    prefix: prefix.clone(),
                    timed: !shared.lossless
                        && (source.settings.subscribe.is_some()
                            || matches!(source.settings.rate, Rate::Times(_))),
                };
                let stream = link.stream(&source.node.as_str().into(), &topic.name, &shared.ledger);
                stream.arrived(shared.clock.now_ns());
                shared.board.add_stream(&stream);
                link.streams.add(stream);
            }
            outlets.push(Outlet {
                channel,
                streams,
                places: Arc::new(Places::new(usize::MAX)),
                node: set.node.as_str().into(),
                audience: None,
                keeps_transforms: set.to_concat,
            });
        }
        let name: Arc<str> = source.node.as_str().into();
        shared.board.add_source(SourceLink {
            node: Arc::clone(&name),
            desk: source.desk,
            outlets: links,
        });
        let watch = shared.watch(&name);
        let progress = Arc::clone(&options.progress);
        let args = SourceArgs {
            node: name,
            feed: source.feed,
            rate: if shared.lossless {
                Rate::Max
            } else {
                source.settings.rate
            },
            outlets,
            ledger: Arc::clone(&shared.ledger),
            clock: shared.clock,
            shutdown: shared.shutdown.clone(),
            progress: Arc::new(move || progress.message()),
            poses: detectors.poses.clone(),
            order: shared.turns.clone().map(|turns| Place {
                turns,
                source: position,
            }),
            watch: watch.clone(),
            board: Arc::clone(&shared.board),
            over: Arc::clone(&shared.sources_over),
            deadline_ns: source.settings.deadline_ms.map(|ms| u64::from(ms) * 1_000_000),
        };
        let source = Source::new(args);
        endings.push(supervise(&watch, source, RunsIn::Task, WhenGivenUp::End, shared));
    }
}
