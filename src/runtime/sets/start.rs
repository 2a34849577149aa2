//! The nodes that make sets and clouds, as actors.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use futures_util::stream::FuturesUnordered;

use super::actor::{SetCounters, SetOutlet, Synchroniser};
use super::concat::Concat;
use super::matcher::{MatchSettings, Matcher};
use super::waiting::Waiting;
use crate::perception::Sensor;
use crate::pipeline::{MatchRule, MemberSensor, Node, NodeKind, Pipeline, Rate, SyncMember, SyncSettings};
use crate::runtime::RuntimeError;
use crate::runtime::channel::Sender;
use crate::runtime::control::StreamSwitch;
use crate::runtime::detectors::{StartedDetectors, start_stage};
use crate::runtime::ending::Ending;
use crate::runtime::frame::Sample;
use crate::runtime::inputs::OpenSource;
use crate::runtime::outlets::Audiences;
use crate::runtime::ros;
use crate::runtime::run::Shared;
use crate::runtime::stage::Stage;
use crate::runtime::supervision::{RunsIn, WhenGivenUp, supervise};
use crate::runtime::topics::PlayedTopic;
use crate::runtime::turns::Turn;

/// The members that a source plays for the nodes behind it, each topic once, with names as the ROS 2 node has them.
///
/// # Errors
/// [`RuntimeError::Ros2`] for names that ROS 2 does not allow.
pub(in crate::runtime) fn members_of(
    pipeline: &Pipeline,
    source: &str,
) -> Result<Vec<SyncMember>, RuntimeError> {
    let mut members: Vec<SyncMember> = Vec::new();
    for (name, settings) in syncs(pipeline) {
        if pipeline.feeds(source, name) {
            for member in resolved(pipeline, settings)? {
                if !members.iter().any(|known| known.topic == member.topic) {
                    members.push(member);
                }
            }
        }
    }
    Ok(members)
}

/// How many results come of a message of a member, by the names of the node and of the topic: a set has one at each detector
/// behind it, which counts with the message that leads it.
///
/// # Errors
/// [`RuntimeError::Ros2`] for names that ROS 2 does not allow.
pub(in crate::runtime) fn results_of_messages(
    pipeline: &Pipeline,
) -> Result<impl Fn(&str, &str) -> u64, RuntimeError> {
    let mut leads: Vec<(String, String, u64)> = Vec::new();
    for (name, settings) in syncs(pipeline) {
        let lead = match settings.policy {
            MatchRule::Latest { reference, .. } => reference,
            MatchRule::Within { .. } => 0,
        };
        let fed_by = |from: &str| {
            let nodes = pipeline.nodes.iter();
            nodes
                .filter(|node| pipeline.feeds(from, &node.name))
                .collect::<Vec<_>>()
        };
        let behind = fed_by(name).into_iter().map(|node| match node.kind {
            NodeKind::Concat(_) => fed_by(&node.name).len(),
            _ => 1,
        });
        let results = behind.sum::<usize>() as u64;
        if let Some(member) = resolved(pipeline, settings)?.into_iter().nth(lead) {
            leads.push((name.to_owned(), member.topic, results));
        }
    }
    Ok(move |node: &str, topic: &str| {
        let led = leads.iter().find(|(name, lead, _)| name == node && lead == topic);
        led.map_or(0, |(.., results)| *results)
    })
}

/// The frame in which vehicles move, for a node that needs transforms.
pub(in crate::runtime) fn world_frame(pipeline: &Pipeline) -> Option<&str> {
    let mut concats = pipeline.nodes.iter().filter_map(|node| match &node.kind {
        NodeKind::Concat(settings) => Some(settings),
        _ => None,
    });
    let first = concats.next()?;
    Some(
        first
            .world_frame
            .as_deref()
            .unwrap_or(crate::io::drive_bag::MAP_FRAME),
    )
}

/// Streams of sets and clouds by the node that makes them, as sinks know them.
pub(in crate::runtime) fn streams(pipeline: &Pipeline) -> Vec<(String, Vec<PlayedTopic>)> {
    let stream = |node: &Node| match &node.kind {
        NodeKind::Sync(settings) => Some((settings.stream.clone(), Sensor::Set)),
        NodeKind::Concat(settings) => Some((settings.stream.clone(), Sensor::Lidar)),
        _ => None,
    };
    let nodes = pipeline.nodes.iter();
    nodes
        .filter_map(|node| {
            let (stream, sensor) = stream(node)?;
            Some((node.name.clone(), vec![PlayedTopic::new(&stream, sensor)]))
        })
        .collect()
}

fn syncs(pipeline: &Pipeline) -> impl Iterator<Item = (&str, &SyncSettings)> {
    pipeline.nodes.iter().filter_map(|node| match &node.kind {
        NodeKind::Sync(settings) => Some((node.name.as_str(), settings)),
        _ => None,
    })
}

/// The members with their topics as the ROS 2 node has them.
fn resolved(pipeline: &Pipeline, settings: &SyncSettings) -> Result<Vec<SyncMember>, RuntimeError> {
    let (name, remaps) = ros::names(&pipeline.ros2)?;
    let is_live = pipeline
        .nodes
        .iter()
        .any(|node| matches!(&node.kind, NodeKind::Source(source) if source.subscribe.is_some()));
    let members = settings.members.iter().map(|member| {
        let mut member = member.clone();
        // What a bag has that ROS 2 would not name so is left as it is.
        match remaps.apply(&name, &member.topic) {
            Ok(topic) if is_live || member.topic.starts_with('~') || !remaps.is_empty() => {
                member.topic = topic;
            }
            Err(error) if is_live => return Err(error.into()),
            _ => {}
        }
        Ok(member)
    });
    members.collect()
}

/// Where the members of one node go.
pub(in crate::runtime) struct SetOutlets {
    /// Name of the node.
    pub(in crate::runtime) node: String,
    /// Topics of its members.
    pub(in crate::runtime) topics: Vec<Arc<str>>,
    /// Its sets go to a node that brings clouds to one frame.
    pub(in crate::runtime) to_concat: bool,
    /// Channel into it from each source, by the name of its node.
    pub(in crate::runtime) inlets: BTreeMap<String, Sender<Sample<()>>>,
}

/// Nodes that wait for members.
#[derive(Default)]
pub(in crate::runtime) struct StartedSets {
    /// Where sources send.
    pub(in crate::runtime) outlets: Vec<SetOutlets>,
}

/// Starts the nodes between sources and detectors.
///
/// # Errors
/// [`RuntimeError::Source`] for members that no source plays, or that are not what they should be.
pub(in crate::runtime) fn start_sets(
    pipeline: &Pipeline,
    sources: &[OpenSource],
    detectors: &mut StartedDetectors,
    audiences: &Audiences,
    shared: &Shared,
    endings: &mut FuturesUnordered<Ending>,
) -> Result<StartedSets, RuntimeError> {
    let mut started = StartedSets::default();
    let mut concat_inlets: HashMap<(String, String), Sender<Sample<()>>> = HashMap::new();
    for node in &pipeline.nodes {
        let NodeKind::Concat(settings) = &node.kind else {
            continue;
        };
        let (senders, input) = shared.channel_into::<Sample<()>>(&node.name);
        concat_inlets.extend(
            senders
                .into_iter()
                .map(|(from, sender)| ((from, node.name.clone()), sender)),
        );
        let Some(poses) = detectors.poses.clone() else {
            continue;
        };
        let concat = Concat {
            name: node.name.clone(),
            stream: settings.stream.as_str().into(),
            settings: settings.clone(),
            poses,
            outlets: Outlets {
                pipeline,
                detectors,
                audiences,
                shared,
            }
            .of(&node.name, &settings.stream, &mut HashMap::new()),
            ledger: Arc::clone(&shared.ledger),
            clock: shared.clock,
            turns: shared.turns.clone(),
            clouds: Mutex::new(Vec::new()),
            explained: Mutex::new(HashSet::new()),
        };
        let stage = Stage::new(
            concat,
            input,
            1,
            Arc::clone(&shared.ledger),
            shared.shutdown.clone(),
        );
        endings.push(start_stage(&node.name, stage, shared));
    }
    for (position, (name, settings)) in syncs(pipeline).enumerate() {
        let members = resolved(pipeline, settings)?;
        check_members(pipeline, name, &members, sources)?;
        let topics: Vec<Arc<str>> = members
            .iter()
            .map(|member| member.topic.as_str().into())
            .collect();
        let (inlets, input) = shared.channel_into::<Sample<()>>(name);
        let node: Arc<str> = name.into();
        let watch = shared.watch(name);
        let synchroniser = Synchroniser {
            counts: SetCounters::new(&node, &topics),
            name: node,
            members: topics.clone(),
            reference: match settings.policy {
                MatchRule::Latest { reference, .. } => Some(reference),
                MatchRule::Within { .. } => None,
            },
            matcher: Matcher::new(MatchSettings::from(settings)),
            input,
            in_turn: VecDeque::new(),
            stream: settings.stream.as_str().into(),
            outlets: Outlets {
                pipeline,
                detectors,
                audiences,
                shared,
            }
            .of(name, &settings.stream, &mut concat_inlets),
            ledger: Arc::clone(&shared.ledger),
            clock: shared.clock,
            shutdown: shared.shutdown.clone(),
            pace: pace(pipeline, name, sources, shared.lossless),
            last: None,
            turns: shared.turns.clone(),
            turn: (Turn::default(), 0),
            last_turn: shared.turns.as_ref().map(|turns| turns.after_all(position)),
            transforms: None,
            waiting: Waiting::new(&shared.ledger),
            watch: watch.clone(),
            held: None,
            outcomes: VecDeque::new(),
            exhausted: false,
        };
        endings.push(supervise(
            &watch,
            synchroniser,
            RunsIn::Task,
            WhenGivenUp::End,
            shared,
        ));
        started.outlets.push(SetOutlets {
            node: name.to_owned(),
            topics,
            to_concat: concat_behind(pipeline, name).is_some(),
            inlets,
        });
    }
    Ok(started)
}

/// Sensor time over wall time of what feeds a node; `None` where it comes as fast as it is taken.
fn pace(pipeline: &Pipeline, node: &str, sources: &[OpenSource], lossless: bool) -> Option<f64> {
    let mut feeding = sources
        .iter()
        .filter(|source| pipeline.feeds(&source.node, node) && !lossless);
    let first = feeding.next()?;
    match (first.settings.subscribe, first.settings.rate) {
        (Some(_), _) => Some(1.0),
        (None, Rate::Times(times)) => Some(times),
        (None, Rate::Max) => None,
    }
}

/// A node that makes one cloud of the sets of another.
fn concat_behind<'a>(pipeline: &'a Pipeline, sync: &str) -> Option<&'a Node> {
    let mut nodes = pipeline.nodes.iter();
    nodes.find(|node| matches!(node.kind, NodeKind::Concat(_)) && pipeline.feeds(sync, &node.name))
}

/// Every member is played by one of the sources, and is of the sensor that it should be of.
fn check_members(
    pipeline: &Pipeline,
    node: &str,
    members: &[SyncMember],
    sources: &[OpenSource],
) -> Result<(), RuntimeError> {
    let feeding = || sources.iter().filter(|source| pipeline.feeds(&source.node, node));
    let refuse = |reason: String| {
        Err(RuntimeError::Source {
            node: node.to_owned(),
            reason,
        })
    };
    let to_concat = concat_behind(pipeline, node);
    for member in members {
        let topic = &member.topic;
        let of_source = |source: &OpenSource| {
            let mut topics = source.topics.iter();
            topics
                .find(|played| *played.name == **topic)
                .map(|played| played.sensor)
        };
        let found: Vec<Sensor> = feeding().filter_map(of_source).collect();
        let sensor = match found[..] {
            [sensor] => sensor,
            [] => {
                let known: Vec<&str> = feeding()
                    .flat_map(|source| source.topics.iter().map(|topic| &*topic.name))
                    .collect();
                let known = match known.is_empty() {
                    true => "they play nothing".to_owned(),
                    false => format!("they play {}", known.join(", ")),
                };
                return refuse(format!("member {topic} comes from none of its sources; {known}"));
            }
            _ => return refuse(format!("member {topic} comes from several of its sources")),
        };
        let wanted = member.sensor.map(MemberSensor::sensor);
        if let Some(wanted) = wanted.filter(|wanted| *wanted != sensor) {
            return refuse(format!("member {topic} should send {wanted}, and sends {sensor}"));
        }
        if let Some(concat) = to_concat.filter(|_| sensor != Sensor::Lidar) {
            return refuse(format!(
                "member {topic} sends {sensor}, and `{}` makes one cloud of point clouds",
                concat.name
            ));
        }
    }
    Ok(())
}

/// Finds the ways out of a node.
struct Outlets<'a> {
    pipeline: &'a Pipeline,
    detectors: &'a mut StartedDetectors,
    audiences: &'a Audiences,
    shared: &'a Shared,
}

impl Outlets<'_> {
    /// One for each node that is fed by `from`.
    fn of(
        self,
        from: &str,
        stream: &str,
        concats: &mut HashMap<(String, String), Sender<Sample<()>>>,
    ) -> Vec<SetOutlet> {
        let fed: Vec<&Node> = self
            .pipeline
            .nodes
            .iter()
            .filter(|node| self.pipeline.feeds(from, &node.name))
            .collect();
        let mut outlets = Vec::new();
        for node in &fed {
            let key = (from.to_owned(), node.name.clone());
            // As long as is needed to tell streams apart.
            let name = match fed.len() {
                1 => stream.to_owned(),
                _ => format!("{} {stream}", node.name),
            };
            let board = &self.shared.board;
            let (channel, places) = match &node.kind {
                NodeKind::Detector(_) => (
                    self.detectors.inlets.remove(&key),
                    board.detector(&node.name).map(|known| known.places),
                ),
                _ => (concats.remove(&key), None),
            };
            let Some(channel) = channel else { continue };
            let account = self.shared.ledger.streams().register(&name);
            // How often sets come depends on their members, whose silence is told.
            let timed = false;
            let stream = StreamSwitch::new(
                (account, name.into()),
                [from.into(), node.name.as_str().into(), stream.into()],
                timed,
            );
            let stream = Arc::new(stream);
            if let Some(places) = &places {
                board.has_place(places, &stream);
            }
            board.add_stream(&stream);
            outlets.push(SetOutlet {
                channel,
                stream,
                places,
                board: Arc::clone(board),
                audience: self.audiences.get(&node.name).cloned(),
            });
        }
        outlets
    }
}
