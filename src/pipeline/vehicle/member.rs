//! One pipeline of a vehicle: its file, with what the vehicle changes in it.

use std::path::{Path, PathBuf};

use super::raw::RawMember;
use super::sensor::VehicleSensor;
use crate::pipeline::connect::one_or_many;
use crate::pipeline::load::{read, written};
use crate::pipeline::nearest::{alternatives, suggestion};
use crate::pipeline::problem::{Problem, told};
use crate::pipeline::set;
use crate::pipeline::settings::SimulateSettings;
use crate::pipeline::source::{Span, source};
use crate::pipeline::substitute::Environment;
use crate::pipeline::tree::{Entry, Node, Value};

/// What the sources of all pipelines play.
#[derive(Debug, Clone)]
pub(super) enum Feed {
    /// Live messages.
    Live(Span),
    /// A bag; where it was named.
    Bag(String, Span),
    /// A drive.
    Drive(SimulateSettings, Span),
}

/// A pipeline of the vehicle that is about to be checked.
pub(super) struct Member {
    /// The name that goes before those of its nodes and models.
    pub(super) name: String,
    /// Its file.
    pub(super) path: PathBuf,
    /// Where the vehicle file names it.
    pub(super) at: Span,
    /// What the file says, changed by the vehicle.
    pub(super) tree: Node,
    /// Nodes of sources, and positions of the sensors that they play, in the order of the vehicle file.
    pub(super) sources: Vec<(String, Span, Vec<usize>)>,
    /// Device time of a frame in milliseconds, by detector.
    pub(super) expected_ms: Vec<(String, f64)>,
}

/// What members are made with.
pub(super) struct Workshop<'a> {
    pub(super) folder: &'a Path,
    pub(super) sensors: &'a [VehicleSensor],
    /// Whether a sensor is played.
    pub(super) is_played: &'a dyn Fn(&str) -> bool,
    pub(super) feed: Option<&'a Feed>,
    pub(super) environment: Environment<'a>,
    /// Changes by the command line, as dotted path and value, the name of the pipeline before the path.
    pub(super) set: &'a [(String, String)],
}

impl Workshop<'_> {
    /// The member that an entry of `pipelines` describes. `None` if none of its sensors is played, or it cannot be read.
    pub(super) fn member(
        &self,
        entry: &Entry,
        raw: &RawMember,
        problems: &mut Vec<Problem>,
    ) -> Option<Member> {
        let at = entry
            .value
            .get("file")
            .map_or(&entry.key_span, |file| &file.span)
            .clone();
        let path = self.folder.join(&raw.file);
        let text = match read(&path) {
            Ok(text) => text,
            Err(error) => {
                problems.push(Problem::error(told(&error), &at, "named here"));
                return None;
            }
        };
        let mut tree = written(
            &source(&path.display().to_string(), text),
            self.environment,
            problems,
        )?;
        let sources = self.sources(entry, &mut tree, problems);
        if sources.iter().all(|(_, _, sensors)| sensors.is_empty()) {
            return None;
        }
        for (node, span, _) in sources.iter().filter(|(_, _, sensors)| sensors.is_empty()) {
            problems.push(Problem::error(
                format!("the source `{node}` of `{}` has no sensor to play", entry.key),
                span,
                "all of its sensors are left out, and others of the pipeline are not",
            ));
        }
        for change in entry.value.get("set").map_or(&[][..], Node::entries) {
            let put = set::put_value(&mut tree, &change.key, &change.key_span, change.value.clone());
            problems.extend(put.err().map(|problem| *problem));
        }
        for (dotted, value) in self.set {
            let Some(path) = dotted.strip_prefix(&format!("{}.", entry.key)) else {
                continue;
            };
            problems.extend(set::apply(&mut tree, path, value).err().map(|problem| *problem));
        }
        Some(Member {
            name: entry.key.clone(),
            path,
            at,
            tree,
            sources,
            expected_ms: raw
                .expected_ms
                .iter()
                .map(|(node, ms)| (node.clone(), *ms))
                .collect(),
        })
    }

    /// Gives each source of a pipeline its topics and its feed.
    fn sources(
        &self,
        entry: &Entry,
        tree: &mut Node,
        problems: &mut Vec<Problem>,
    ) -> Vec<(String, Span, Vec<usize>)> {
        let said = entry.value.get("sources").map_or(&[][..], Node::entries);
        let is_source = |node: &Entry| node.value.get("kind").and_then(Node::text) == Some("source");
        let mut sources = Vec::new();
        let nodes = tree.get("nodes").map_or(&[][..], Node::entries);
        let known: Vec<&str> = nodes
            .iter()
            .filter(|node| is_source(node))
            .map(|node| node.key.as_str())
            .collect();
        for source in said.iter().filter(|source| !known.contains(&source.key.as_str())) {
            problems.push(
                Problem::error(
                    format!("the pipeline `{}` has no source `{}`", entry.key, source.key),
                    &source.key_span,
                    suggestion(&source.key, known.iter().copied()),
                )
                .help(format!("its sources are {}", alternatives(known.iter().copied()))),
            );
        }
        for name in known
            .iter()
            .filter(|name| !said.iter().any(|it| it.key == **name))
        {
            let at = entry
                .value
                .entry("sources")
                .map_or(&entry.key_span, |it| &it.key_span);
            problems.push(Problem::error(
                format!(
                    "the source `{name}` of the pipeline `{}` has no sensors",
                    entry.key
                ),
                at,
                format!("expected `{name}:` with a list of sensors"),
            ));
        }
        let Some(Value::Map(nodes)) = value_mut(tree, "nodes") else {
            return sources;
        };
        let mut renamed = Vec::new();
        for node in nodes.iter_mut().filter(|node| is_source(node)) {
            let Some(said) = said.iter().find(|it| it.key == node.key) else {
                continue;
            };
            renamed.extend(self.topics_of_members(node, said));
            let sensors = self.sensors_of(said, problems);
            let topics = sensors.iter().map(|&sensor| {
                let (topic, span) = (&self.sensors[sensor].topic, &self.sensors[sensor].topic_span);
                (Value::Text(topic.clone()), span.clone())
            });
            let topics: Vec<Node> = topics.map(|(value, span)| Node { value, span }).collect();
            sources.push((node.key.clone(), said.key_span.clone(), sensors));
            if let Value::Map(keys) = &mut node.value.value {
                put(keys, "topics", Value::List(topics), &said.key_span);
                if let Some(feed) = self.feed {
                    feed.put(keys);
                }
            }
        }
        for node in nodes.iter_mut() {
            rename_members(node, &renamed);
        }
        sources
    }

    /// What becomes of each topic that a source lists, where the vehicle names as many sensors for it: the topic of the
    /// sensor in the same place, or none where it is left out.
    fn topics_of_members(&self, source: &Entry, said: &Entry) -> Vec<Renamed> {
        let listed = source.value.get("topics").map_or(&[][..], Node::items);
        let named = said.value.items();
        if listed.len() != named.len() {
            return Vec::new();
        }
        let pairs = listed.iter().zip(named);
        let renamed = pairs.filter_map(|(topic, sensor)| {
            let name = sensor.text()?;
            let found = self.sensors.iter().find(|it| it.name == name)?;
            Some(Renamed {
                source: source.key.clone(),
                from: topic.text()?.to_owned(),
                to: (self.is_played)(name).then(|| found.topic.clone()),
            })
        });
        renamed.collect()
    }

    /// Positions of the sensors that a source is to play.
    fn sensors_of(&self, said: &Entry, problems: &mut Vec<Problem>) -> Vec<usize> {
        let known = || self.sensors.iter().map(|sensor| sensor.name.as_str());
        let mut found = Vec::new();
        for item in said.value.items() {
            let Some(name) = item.text() else { continue };
            match known().position(|it| it == name) {
                Some(position) if found.contains(&position) => {
                    let message = format!("`{name}` feeds `{}` twice", said.key);
                    problems.push(Problem::error(message, &item.span, "already in the list"));
                }
                Some(position) if (self.is_played)(name) => found.push(position),
                Some(_) => {}
                None => problems.push(
                    Problem::error(
                        format!("there is no sensor `{name}`"),
                        &item.span,
                        suggestion(name, known()),
                    )
                    .help(format!("the sensors are {}", alternatives(known()))),
                ),
            }
        }
        found
    }
}

/// A topic that a source lists, and the one that the vehicle puts in its place.
struct Renamed {
    source: String,
    from: String,
    to: Option<String>,
}

/// Gives the members of a node of kind `sync` the topics that its sources now play. Members whose sensors are left out go
/// with them, for a set would wait for them.
fn rename_members(node: &mut Entry, renamed: &[Renamed]) {
    if node.value.get("kind").and_then(Node::text) != Some("sync") {
        return;
    }
    let Some(input) = node.value.get("input") else {
        return;
    };
    let feeds: Vec<String> = one_or_many(input)
        .iter()
        .filter_map(Node::text)
        .map(str::to_owned)
        .collect();
    let of = |topic: &Node| {
        let topic = topic.text()?;
        renamed
            .iter()
            .find(|it| it.from == topic && feeds.contains(&it.source))
    };
    let Value::Map(keys) = &mut node.value.value else {
        return;
    };
    keys.retain(|key| key.key != "reference" || of(&key.value).is_none_or(|it| it.to.is_some()));
    for key in keys {
        match (key.key.as_str(), &mut key.value.value) {
            ("members", Value::List(members)) => {
                members.retain(|member| member.get("topic").and_then(of).is_none_or(|it| it.to.is_some()));
                for member in members {
                    if let Value::Map(keys) = &mut member.value {
                        for key in keys.iter_mut().filter(|key| key.key == "topic") {
                            if let Some(to) = of(&key.value).and_then(|it| it.to.clone()) {
                                key.value.value = Value::Text(to);
                            }
                        }
                    }
                }
            }
            ("reference", _) => {
                if let Some(to) = of(&key.value).and_then(|it| it.to.clone()) {
                    key.value.value = Value::Text(to);
                }
            }
            _ => {}
        }
    }
}

impl Feed {
    /// Makes it the feed of a source.
    fn put(&self, keys: &mut Vec<Entry>) {
        keys.retain(|key| !["bag", "simulate", "subscribe"].contains(&key.key.as_str()));
        match self {
            Self::Live(at) => {
                // Live messages come when they come.
                keys.retain(|key| !["rate", "clock"].contains(&key.key.as_str()));
                put(keys, "subscribe", Value::Text("ros2".to_owned()), at);
            }
            Self::Bag(path, at) => put(keys, "bag", Value::Text(path.clone()), at),
            Self::Drive(drive, at) => {
                let node = |value| Node {
                    value,
                    span: at.clone(),
                };
                let cameras = serde_json::to_value(drive.cameras).ok();
                let cameras = cameras
                    .and_then(|word| word.as_str().map(str::to_owned))
                    .unwrap_or_default();
                let entry = |key: &str, value| Entry {
                    key: key.to_owned(),
                    key_span: at.clone(),
                    value: node(value),
                };
                let drive = vec![
                    entry("seconds", Value::Float(drive.seconds)),
                    entry("seed", Value::Int(drive.seed.into())),
                    entry("cameras", Value::Text(cameras)),
                    entry("camera_hz", Value::Int(drive.camera_hz.into())),
                ];
                put(keys, "simulate", Value::Map(drive), at);
            }
        }
    }
}

/// Puts a value under a key, in place of what was there.
pub(super) fn put(keys: &mut Vec<Entry>, key: &str, value: Value, at: &Span) {
    keys.retain(|entry| entry.key != key);
    keys.push(Entry {
        key: key.to_owned(),
        key_span: at.clone(),
        value: Node {
            value,
            span: at.clone(),
        },
    });
}

/// The value of a key, to be changed.
pub(super) fn value_mut<'t>(tree: &'t mut Node, key: &str) -> Option<&'t mut Value> {
    let Value::Map(entries) = &mut tree.value else {
        return None;
    };
    let entry = entries.iter_mut().find(|entry| entry.key == key)?;
    Some(&mut entry.value.value)
}
