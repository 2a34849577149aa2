//! What changes between two pipelines, and what each change asks of a run.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

use super::settings::{
    Family, ModelSettings, Node, NodeKind, Pipeline, PublisherSettings, SourceSettings, Topics,
};

/// One change, in a form that a run can carry out.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "step", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReloadStep {
    /// A parameter of a detector's model: from the next frame on, nothing is interrupted.
    SetParameter {
        /// The detector.
        detector: String,
        /// The parameter.
        name: String,
        /// Its value.
        value: Value,
    },
    /// A sink that is there no more: it writes what it has and is closed; nothing else is interrupted.
    CloseSink {
        /// The sink.
        node: String,
    },
    /// A new sink: nothing is interrupted.
    OpenSink {
        /// The sink.
        node: String,
    },
    /// A sink that writes elsewhere or otherwise: it is closed and opened again, and results in between do not reach it.
    ReopenSink {
        /// The sink.
        node: String,
    },
    /// A topic that is played no more: its frames under way come out.
    RemoveStream {
        /// The source.
        source: String,
        /// The topic.
        topic: String,
    },
    /// One more topic: the streams that there are go on.
    AddStream {
        /// The source.
        source: String,
        /// The topic.
        topic: String,
    },
    /// Something that only a new run can change.
    NewRun {
        /// What changes, as a place of the pipeline file.
        what: String,
        /// Why a run cannot change it.
        why: String,
    },
}

impl ReloadStep {
    /// Whether a run can carry it out.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        !matches!(self, Self::NewRun { .. })
    }
}

impl fmt::Display for ReloadStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetParameter {
                detector,
                name,
                value,
            } => {
                write!(f, "set {name} of {detector} to {value} (nothing is interrupted)")
            }
            Self::CloseSink { node } => write!(f, "close the sink {node} (nothing else is interrupted)"),
            Self::OpenSink { node } => write!(f, "open the sink {node} (nothing is interrupted)"),
            Self::ReopenSink { node } => {
                write!(
                    f,
                    "close the sink {node} and open it again (results in between do not reach it)"
                )
            }
            Self::RemoveStream { source, topic } => {
                write!(
                    f,
                    "play {topic} of {source} no more (its frames under way come out)"
                )
            }
            Self::AddStream { source, topic } => {
                write!(f, "play {topic} of {source} too (other streams go on)")
            }
            Self::NewRun { what, why } => write!(f, "{what} changes: this takes a new run, for {why}"),
        }
    }
}

/// What changes between two pipelines, in an order in which it can be carried out.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ReloadDiff {
    /// The changes.
    pub steps: Vec<ReloadStep>,
}

impl ReloadDiff {
    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether a run can carry all of it out.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.steps.iter().all(ReloadStep::is_live)
    }

    fn new_run(&mut self, what: impl Into<String>, why: &str) {
        self.steps.push(ReloadStep::NewRun {
            what: what.into(),
            why: why.to_owned(),
        });
    }
}

impl fmt::Display for ReloadDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() {
            return f.write_str("nothing changes");
        }
        for (number, step) in self.steps.iter().enumerate() {
            let comma = if number == 0 { "" } else { "\n" };
            write!(f, "{comma}{step}")?;
        }
        Ok(())
    }
}

impl Pipeline {
    /// What changes from this pipeline to `new`. Where nothing in a file but its comments and its order is another, that
    /// is nothing.
    #[must_use]
    pub fn diff(&self, new: &Self) -> ReloadDiff {
        let mut diff = ReloadDiff::default();
        let whole = [
            (
                "pipeline",
                self.name != new.name,
                "keys and reports carry the name",
            ),
            (
                "device",
                self.device != new.device,
                "the device is opened once, with the memory that it has",
            ),
            ("ros2", self.ros2 != new.ros2, "the node joins the graph once"),
            (
                "supervision",
                self.supervision != new.supervision,
                "actors are started under it",
            ),
            (
                "mounts",
                self.mounts != new.mounts,
                "where sensors are is read once",
            ),
        ];
        for (what, changed, why) in whole {
            if changed {
                diff.new_run(what, why);
            }
        }
        self.diff_detectors(new, &mut diff);
        self.diff_between(new, &mut diff);
        self.diff_sinks(new, &mut diff);
        self.diff_sources(new, &mut diff);
        diff
    }

    /// This pipeline with what one step on the way to `new` changes.
    pub(crate) fn after(&self, step: &ReloadStep, new: &Self) -> Self {
        let mut after = self.clone();
        after.carry_out(step, new);
        after
    }

    fn carry_out(&mut self, step: &ReloadStep, new: &Self) {
        match step {
            ReloadStep::SetParameter { detector, name, .. } => {
                let model = new.nodes.iter().find_map(|node| match &node.kind {
                    NodeKind::Detector(settings) if node.name == *detector => Some(&settings.model),
                    _ => None,
                });
                if let Some(name_of_model) = model
                    && let (Some(own), Some(theirs)) =
                        (self.models.get_mut(name_of_model), new.models.get(name_of_model))
                {
                    take_parameter(own, theirs, name);
                }
            }
            ReloadStep::CloseSink { node } => self.remove_node(node),
            ReloadStep::OpenSink { node } | ReloadStep::ReopenSink { node } => {
                self.remove_node(node);
                self.nodes
                    .extend(new.nodes.iter().filter(|known| known.name == *node).cloned());
                self.edges
                    .extend(new.edges.iter().filter(|edge| edge.to == *node).cloned());
            }
            ReloadStep::RemoveStream { source, topic } => {
                if let Some(Topics::Listed(topics)) = self.topics_of(source) {
                    topics.retain(|known| known != topic);
                }
            }
            ReloadStep::AddStream { source, topic } => {
                if let Some(Topics::Listed(topics)) = self.topics_of(source) {
                    topics.push(topic.clone());
                }
            }
            ReloadStep::NewRun { .. } => {}
        }
    }

    fn remove_node(&mut self, node: &str) {
        self.nodes.retain(|known| known.name != *node);
        self.edges.retain(|edge| edge.to != *node);
    }

    fn topics_of(&mut self, source: &str) -> Option<&mut Topics> {
        self.nodes.iter_mut().find_map(|node| match &mut node.kind {
            NodeKind::Source(settings) if node.name == source => Some(&mut settings.topics),
            _ => None,
        })
    }

    fn diff_detectors(&self, new: &Self, diff: &mut ReloadDiff) {
        const WHY: &str = "models are captured on the device before the first frame";
        let pick = |node: &Node| place_of(&node.kind) == Place::Detector;
        for (name, own, theirs) in pairs(self, new, pick) {
            let (Some(NodeKind::Detector(own)), Some(NodeKind::Detector(theirs))) = (own, theirs) else {
                diff.new_run(format!("nodes.{name}"), WHY);
                continue;
            };
            let models = (self.models.get(&own.model), new.models.get(&theirs.model));
            if own != theirs {
                diff.new_run(format!("nodes.{name}"), WHY);
            } else if let (Some(before), Some(after)) = models {
                let (parameters, same) = parameters(before, after);
                if !same {
                    diff.new_run(format!("models.{}", own.model), WHY);
                }
                diff.steps
                    .extend(
                        parameters
                            .into_iter()
                            .map(|(parameter, value)| ReloadStep::SetParameter {
                                detector: name.to_owned(),
                                name: parameter.to_owned(),
                                value,
                            }),
                    );
            }
            self.diff_channels(name, new, diff);
        }
    }

    /// Nodes that make sets or clouds, or do work of their own.
    fn diff_between(&self, new: &Self, diff: &mut ReloadDiff) {
        for (name, own, theirs) in pairs(self, new, |node| place_of(&node.kind) == Place::Between) {
            if own != theirs {
                diff.new_run(
                    format!("nodes.{name}"),
                    "it is started with the nodes that it is connected with",
                );
            }
            self.diff_channels(name, new, diff);
        }
    }

    fn diff_channels(&self, node: &str, new: &Self, diff: &mut ReloadDiff) {
        if self.inputs_of(node) != new.inputs_of(node) {
            diff.new_run(
                format!("the channels into nodes.{node}"),
                "frames that wait in them would be lost",
            );
        }
    }

    fn diff_sinks(&self, new: &Self, diff: &mut ReloadDiff) {
        let pick = |node: &Node| place_of(&node.kind) == Place::Sink;
        // Which publisher measures when frames are published is decided with the run.
        let measures = |pipeline: &Self, name: &str| {
            let mut publishers = pipeline.nodes.iter();
            publishers
                .find(|node| matches!(&node.kind, NodeKind::Publisher(publisher) if publisher.measures()))
                .is_some_and(|node| node.name == name)
        };
        let in_graph =
            |kind: Option<&NodeKind>| matches!(kind, Some(NodeKind::Publisher(PublisherSettings::Ros2(_))));
        let mut steps = Vec::new();
        for (name, own, theirs) in pairs(self, new, pick) {
            if own == theirs && self.inputs_of(name) == new.inputs_of(name) {
                continue;
            }
            let node = name.to_owned();
            if in_graph(own) || in_graph(theirs) {
                diff.new_run(format!("nodes.{name}"), "the node joins the ROS 2 graph once");
            } else if measures(self, name) || measures(new, name) {
                diff.new_run(
                    format!("nodes.{name}"),
                    "the first publisher measures when frames are published",
                );
            } else {
                steps.push(match (own, theirs) {
                    (Some(_), None) => ReloadStep::CloseSink { node },
                    (None, Some(_)) => ReloadStep::OpenSink { node },
                    _ => ReloadStep::ReopenSink { node },
                });
            }
        }
        // First those that give a file or an address up, which another one may take.
        steps.sort_by_key(|step| match step {
            ReloadStep::CloseSink { .. } => 0,
            ReloadStep::ReopenSink { .. } => 1,
            _ => 2,
        });
        diff.steps.append(&mut steps);
    }

    fn diff_sources(&self, new: &Self, diff: &mut ReloadDiff) {
        let pick = |node: &Node| place_of(&node.kind) == Place::Source;
        for (name, own, theirs) in pairs(self, new, pick) {
            let (Some(NodeKind::Source(own)), Some(NodeKind::Source(theirs))) = (own, theirs) else {
                diff.new_run(
                    format!("nodes.{name}"),
                    "channels lead from it into the detectors",
                );
                continue;
            };
            let with_topics = |topics: &Topics| SourceSettings {
                topics: topics.clone(),
                ..own.clone()
            };
            let (Topics::Listed(before), Topics::Listed(after)) = (&own.topics, &theirs.topics) else {
                if own != theirs {
                    diff.new_run(format!("nodes.{name}"), "it is opened once");
                }
                continue;
            };
            if with_topics(&theirs.topics) != *theirs {
                diff.new_run(format!("nodes.{name}"), "it is opened once");
                continue;
            }
            let step = |topic: &String| (name.to_owned(), topic.clone());
            let gone = before.iter().filter(|topic| !after.contains(topic)).map(step);
            diff.steps
                .extend(gone.map(|(source, topic)| ReloadStep::RemoveStream { source, topic }));
            let come = after.iter().filter(|topic| !before.contains(topic)).map(step);
            diff.steps
                .extend(come.map(|(source, topic)| ReloadStep::AddStream { source, topic }));
        }
    }

    /// The channels into a node.
    fn inputs_of(&self, node: &str) -> Vec<&super::settings::Edge> {
        let mut edges: Vec<_> = self.edges.iter().filter(|edge| edge.to == node).collect();
        edges.sort_by(|a, b| a.from.cmp(&b.from));
        edges
    }
}

/// Where in a pipeline a node is.
#[derive(PartialEq, Eq)]
enum Place {
    Source,
    Between,
    Detector,
    Sink,
}

const fn place_of(kind: &NodeKind) -> Place {
    match kind {
        NodeKind::Source(_) => Place::Source,
        NodeKind::Compute(_) | NodeKind::Sync(_) | NodeKind::Concat(_) => Place::Between,
        NodeKind::Detector(_) => Place::Detector,
        NodeKind::Publisher(_) | NodeKind::Recorder(_) | NodeKind::JsonLines(_) => Place::Sink,
    }
}

/// Nodes of a kind by name, as they are in each of two pipelines.
fn pairs<'a>(
    own: &'a Pipeline,
    new: &'a Pipeline,
    pick: impl Fn(&Node) -> bool,
) -> Vec<(&'a str, Option<&'a NodeKind>, Option<&'a NodeKind>)> {
    let find = |pipeline: &'a Pipeline, name: &str| {
        let found = pipeline.nodes.iter().find(|node| node.name == name && pick(node));
        found.map(|node| &node.kind)
    };
    let all = own.nodes.iter().chain(&new.nodes).filter(|node| pick(node));
    let names: BTreeSet<&str> = all.map(|node| node.name.as_str()).collect();
    names
        .into_iter()
        .map(|name| (name, find(own, name), find(new, name)))
        .collect()
}

/// A number as a file says it: 0.3 and not the nearest number in single precision.
fn as_written(value: f32) -> Value {
    json!(value.to_string().parse::<f64>().unwrap_or_else(|_| value.into()))
}

/// Parameters that differ, and whether nothing else does.
fn parameters(own: &ModelSettings, new: &ModelSettings) -> (Vec<(&'static str, Value)>, bool) {
    let mut changed = Vec::new();
    let mut level = own.clone();
    match (&own.family, &new.family, &mut level.family) {
        (Family::Yolox(a), Family::Yolox(b), Family::Yolox(level))
        | (Family::FastestDet(a), Family::FastestDet(b), Family::FastestDet(level)) => {
            if a.score_threshold != b.score_threshold {
                changed.push(("score_threshold", as_written(b.score_threshold)));
            }
            if a.nms_threshold != b.nms_threshold {
                changed.push(("nms_threshold", as_written(b.nms_threshold)));
            }
            if a.max_detections != b.max_detections {
                changed.push(("max_detections", json!(b.max_detections)));
            }
            level.score_threshold = b.score_threshold;
            level.nms_threshold = b.nms_threshold;
            level.max_detections = b.max_detections;
        }
        (Family::CenterPoint(a), Family::CenterPoint(b), Family::CenterPoint(level)) => {
            // What holds where the file says nothing is known to the model alone.
            if let Some(score) = b
                .score_threshold
                .filter(|_| a.score_threshold != b.score_threshold)
            {
                changed.push(("score_threshold", as_written(score)));
                level.score_threshold = b.score_threshold;
            }
        }
        _ => {}
    }
    (changed, level == *new)
}

/// Takes one parameter over.
fn take_parameter(own: &mut ModelSettings, new: &ModelSettings, name: &str) {
    match (&mut own.family, &new.family) {
        (Family::Yolox(own), Family::Yolox(new)) | (Family::FastestDet(own), Family::FastestDet(new)) => {
            match name {
                "score_threshold" => own.score_threshold = new.score_threshold,
                "nms_threshold" => own.nms_threshold = new.nms_threshold,
                "max_detections" => own.max_detections = new.max_detections,
                _ => {}
            }
        }
        (Family::CenterPoint(own), Family::CenterPoint(new)) => own.score_threshold = new.score_threshold,
        _ => {}
    }
}
