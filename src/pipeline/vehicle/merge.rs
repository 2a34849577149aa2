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
use crate::pipeline::sync::{ConcatSettings, SyncSettings};

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
                // All but the faults is the same in every member.
                whole.supervision.fault.append(&mut pipeline.supervision.fault);
            }
        }
    }
    let mut pipeline = whole.unwrap_or_else(|| Pipeline::empty(path, name));
    check_streams(&pipeline, members, problems);
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
        let name = prefixed(member, &node.name);
        let own = std::mem::replace(&mut node.name, name);
        match &mut node.kind {
            NodeKind::Detector(detector) => new(&mut detector.model),
            // A stream that is called as its node stays so; another name is the user's word.
            NodeKind::Sync(SyncSettings { stream, .. }) | NodeKind::Concat(ConcatSettings { stream, .. })
                if *stream == own =>
            {
                stream.clone_from(&node.name);
            }
            NodeKind::Compute(compute) => {
                compute.latency_from.iter_mut().for_each(new);
                compute.routes = std::mem::take(&mut compute.routes)
                    .into_iter()
                    .map(|(input, outputs)| {
                        let outputs = outputs.iter().map(|output| prefixed(member, output));
                        (prefixed(member, &input), outputs.collect())
                    })
                    .collect();
            }
            _ => {}
        }
    }
    for fault in &mut pipeline.supervision.fault {
        new(&mut fault.actor);
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

/// Streams of sets and of merged clouds that pipelines name alike, so that one could not be told from the other.
fn check_streams(pipeline: &Pipeline, members: &[Member], problems: &mut Vec<Problem>) {
    let mut named: Vec<(&str, &str)> = Vec::new();
    for node in &pipeline.nodes {
        let stream = match &node.kind {
            NodeKind::Sync(settings) => &settings.stream,
            NodeKind::Concat(settings) => &settings.stream,
            _ => continue,
        };
        match named.iter().find(|(known, _)| known == stream) {
            None => named.push((stream, &node.name)),
            Some((_, first)) => {
                let is_its = |member: &&Member| node.name.starts_with(&prefixed(&member.name, ""));
                let Some(member) = members.iter().find(is_its) else {
                    continue;
                };
                problems.push(Problem::error(
                    format!("`{first}` and `{}` name their streams {stream}", node.name),
                    &member.at,
                    "expected another `stream` in one of them",
                ));
            }
        }
    }
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
    let ends = pipeline.edges.iter_mut().map(|edge| &mut edge.to);
    let faulty = pipeline
        .supervision
        .fault
        .iter_mut()
        .map(|fault| &mut fault.actor);
    for name in ends.chain(faulty) {
        if let Some(kept) = gone.get(name) {
            name.clone_from(kept);
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
        .chain(
            pipeline
                .supervision
                .fault
                .iter_mut()
                .map(|fault| &mut fault.actor),
        )
    {
        if names.contains(from) {
            MERGED_SOURCE.clone_into(from);
        }
    }
}
