//! Several pipelines as one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::VehicleStream;
use super::member::Member;
use super::sensor::VehicleSensor;
use crate::perception::Sensor;
use crate::pipeline::problem::Problem;
use crate::pipeline::settings::{Node, NodeKind, Pipeline, PublisherSettings, SourceSettings, Topics};
use crate::pipeline::source::Span;

/// Node of the one source that stands for several that play the same.
const MERGED_SOURCE: &str = "sensors";

/// Pipelines that have become one.
pub(super) struct Merged {
    pub(super) pipeline: Pipeline,
    pub(super) streams: Vec<VehicleStream>,
}

/// Makes one pipeline of those of the members, which are valid and have the same device and ROS 2 node. Names of nodes and
/// models get the member's in front.
pub(super) fn merge(
    path: &Path,
    name: &str,
    members: &[Member],
    loaded: Vec<Pipeline>,
    sensors: &[VehicleSensor],
    problems: &mut Vec<Problem>,
) -> Merged {
    let mut whole: Option<Pipeline> = None;
    let mut streams = Vec::new();
    let mut published: Vec<(String, &Member)> = Vec::new();
    for (member, mut pipeline) in members.iter().zip(loaded) {
        for node in &pipeline.nodes {
            if let NodeKind::Publisher(PublisherSettings::Ros2(publisher)) = &node.kind {
                match published.iter().find(|(topic, _)| *topic == publisher.topic) {
                    Some((topic, other)) => problems.push(
                        Problem::error(
                            format!(
                                "the pipelines `{}` and `{}` both publish on {topic}",
                                other.name, member.name
                            ),
                            &member.at,
                            format!("expected another `set: nodes.{}.topic`", node.name),
                        )
                        .related(&other.at, "the other one"),
                    ),
                    None => published.push((publisher.topic.clone(), member)),
                }
            }
        }
        streams.extend(streams_of(member, &pipeline, sensors, problems));
        rename(&member.name, &mut pipeline);
        match &mut whole {
            None => whole = Some(pipeline),
            Some(whole) => {
                whole.models.append(&mut pipeline.models);
                whole.nodes.append(&mut pipeline.nodes);
                whole.edges.append(&mut pipeline.edges);
                whole.inactive.append(&mut pipeline.inactive);
                whole.warnings.append(&mut pipeline.warnings);
                whole.missing.append(&mut pipeline.missing);
            }
        }
    }
    let mut pipeline = whole.unwrap_or_else(|| Pipeline::empty(path, name));
    path.clone_into(&mut pipeline.file);
    name.clone_into(&mut pipeline.name);
    join_sinks(&mut pipeline);
    join_sources(&mut pipeline, &mut streams, sensors);
    // Each after all that feed it: what is between sources and sinks has its order already.
    pipeline.nodes.sort_by_key(|node| match node.kind {
        NodeKind::Source(_) => 0,
        NodeKind::Publisher(_) | NodeKind::Recorder(_) | NodeKind::JsonLines(_) => 2,
        _ => 1,
    });
    Merged { pipeline, streams }
}

fn prefixed(member: &str, name: &str) -> String {
    format!("{member}.{name}")
}

fn rename(member: &str, pipeline: &mut Pipeline) {
    let new = |name: &mut String| *name = prefixed(member, name);
    for node in &mut pipeline.nodes {
        new(&mut node.name);
        if let NodeKind::Detector(detector) = &mut node.kind {
            new(&mut detector.model);
        }
    }
    for edge in &mut pipeline.edges {
        new(&mut edge.from);
        new(&mut edge.to);
    }
    pipeline.inactive.iter_mut().for_each(new);
    pipeline.models = std::mem::take(&mut pipeline.models)
        .into_iter()
        .map(|(name, model)| (prefixed(member, &name), model))
        .collect();
}

/// What the detectors of a member are fed with; sensors that they do not take are told.
fn streams_of(
    member: &Member,
    pipeline: &Pipeline,
    sensors: &[VehicleSensor],
    problems: &mut Vec<Problem>,
) -> Vec<VehicleStream> {
    let mut streams = Vec::new();
    for (detector, _) in &member.expected_ms {
        let is_there = |node: &Node| node.name == *detector && matches!(node.kind, NodeKind::Detector(_));
        if !pipeline.nodes.iter().any(is_there) {
            problems.push(Problem::error(
                format!("the pipeline `{}` has no detector `{detector}`", member.name),
                &member.at,
                "`expected_ms` names it",
            ));
        }
    }
    for (source, span, played) in &member.sources {
        let mut taken: Vec<Sensor> = Vec::new();
        let mut put_together = false;
        for (detector, through) in detectors_behind(pipeline, source) {
            let NodeKind::Detector(settings) = &detector.kind else {
                continue;
            };
            let sensor = pipeline.models[&settings.model].family.sensor();
            taken.push(sensor);
            put_together |= through.is_some();
            let expected = member.expected_ms.iter().find(|(name, _)| *name == detector.name);
            // What is put together on the way is checked by the node that does it.
            let fits = |&&position: &&usize| through.is_some() || sensors[position].sensor() == sensor;
            for &position in played.iter().filter(fits) {
                streams.push(VehicleStream {
                    sensor: sensors[position].name.clone(),
                    source: prefixed(&member.name, source),
                    through: through.map(|node| prefixed(&member.name, node)),
                    detector: prefixed(&member.name, &detector.name),
                    expected_ms: expected.map(|(_, ms)| *ms),
                });
            }
        }
        if !put_together {
            check_taken(member, source, span, played, &taken, sensors, problems);
        }
    }
    streams
}

/// The detectors that a source feeds, each with the first node on the way, if there is one.
fn detectors_behind<'p>(pipeline: &'p Pipeline, source: &str) -> Vec<(&'p Node, Option<&'p str>)> {
    let mut found = Vec::new();
    let mut walk: Vec<(&str, Option<&'p str>)> = vec![(source, None)];
    // The nodes are in no circle, so the walk ends.
    while let Some((from, through)) = walk.pop() {
        for edge in pipeline.edges.iter().filter(|edge| edge.from == from) {
            match pipeline.nodes.iter().find(|node| node.name == edge.to) {
                Some(node) if matches!(node.kind, NodeKind::Detector(_)) => found.push((node, through)),
                Some(node) => walk.push((&node.name, through.or(Some(&node.name)))),
                None => {}
            }
        }
    }
    found
}

fn check_taken(
    member: &Member,
    source: &str,
    span: &Span,
    played: &[usize],
    taken: &[Sensor],
    sensors: &[VehicleSensor],
    problems: &mut Vec<Problem>,
) {
    for sensor in played.iter().map(|&position| &sensors[position]) {
        if !taken.contains(&sensor.sensor()) {
            let wanted: Vec<String> = taken.iter().map(ToString::to_string).collect();
            problems.push(Problem::error(
                format!(
                    "the sensor `{}` sends {}, and nothing behind the source `{source}` of `{}` takes them",
                    sensor.name,
                    sensor.sensor(),
                    member.name
                ),
                span,
                format!("its detectors take {}", wanted.join(" and ")),
            ));
        }
    }
}

/// Sinks that write one file are one sink.
fn join_sinks(pipeline: &mut Pipeline) {
    let mut first: BTreeMap<(&'static str, PathBuf), String> = BTreeMap::new();
    let mut gone: BTreeMap<String, String> = BTreeMap::new();
    pipeline.nodes.retain(|node| {
        let path = match &node.kind {
            NodeKind::Recorder(recorder) => &recorder.path,
            NodeKind::JsonLines(lines) => &lines.path,
            _ => return true,
        };
        let key = (node.kind.name(), path.clone());
        match first.get(&key) {
            Some(kept) => {
                gone.insert(node.name.clone(), kept.clone());
                false
            }
            None => {
                first.insert(key, node.name.clone());
                true
            }
        }
    });
    for edge in &mut pipeline.edges {
        if let Some(kept) = gone.get(&edge.to) {
            edge.to.clone_from(kept);
        }
    }
}

/// Sources that replay the same become one, so that it is read or made once and its streams stay in step: where each
/// detector would still be fed with the same topics.
fn join_sources(pipeline: &mut Pipeline, streams: &mut [VehicleStream], sensors: &[VehicleSensor]) {
    let sources: Vec<(&str, &SourceSettings)> = pipeline
        .nodes
        .iter()
        .filter_map(|node| match &node.kind {
            NodeKind::Source(settings) => Some((node.name.as_str(), settings)),
            _ => None,
        })
        .collect();
    let [(_, first), rest @ ..] = sources.as_slice() else {
        return;
    };
    let listed = |settings: &SourceSettings| match &settings.topics {
        Topics::Listed(topics) => topics.clone(),
        Topics::Auto => Vec::new(),
    };
    let kinds = |settings: &SourceSettings| -> Vec<Sensor> {
        let topics = listed(settings);
        let played = sensors.iter().filter(|sensor| topics.contains(&sensor.topic));
        played.map(VehicleSensor::sensor).collect()
    };
    let same_feed = |other: &SourceSettings| {
        let plain = |settings: &SourceSettings| SourceSettings {
            topics: Topics::Auto,
            ..settings.clone()
        };
        plain(other) == plain(first)
    };
    // What is fed by one stays fed by it alone if no other has topics of its kind of sensor.
    let apart = |one: &SourceSettings, other: &SourceSettings| {
        one.topics == other.topics || !kinds(one).iter().any(|kind| kinds(other).contains(kind))
    };
    let all: Vec<&SourceSettings> = sources.iter().map(|(_, settings)| *settings).collect();
    let pairs_apart = (0..all.len()).all(|i| (0..i).all(|j| apart(all[i], all[j])));
    let replays = first.subscribe.is_none() && (first.bag.is_some() || first.simulate.is_some());
    if rest.is_empty() || !replays || !all.iter().all(|other| same_feed(other)) || !pairs_apart {
        return;
    }
    let mut topics: Vec<String> = Vec::new();
    for topic in all.iter().flat_map(|settings| listed(settings)) {
        if !topics.contains(&topic) {
            topics.push(topic);
        }
    }
    let merged = SourceSettings {
        topics: Topics::Listed(topics),
        ..(*first).clone()
    };
    let names: Vec<String> = sources.iter().map(|(name, _)| (*name).to_owned()).collect();
    pipeline.nodes.retain(|node| !names.contains(&node.name));
    pipeline.nodes.insert(
        0,
        Node {
            name: MERGED_SOURCE.to_owned(),
            kind: NodeKind::Source(merged),
        },
    );
    for from in pipeline
        .edges
        .iter_mut()
        .map(|edge| &mut edge.from)
        .chain(streams.iter_mut().map(|stream| &mut stream.source))
    {
        if names.contains(from) {
            MERGED_SOURCE.clone_into(from);
        }
    }
}
