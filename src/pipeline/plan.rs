//! The actors and channels that a pipeline becomes.

use serde::Serialize;

use super::scheduling::BatchSettings;
use super::settings::{NodeKind, OnFull, Pipeline};

/// Name of the actor that owns the device.
const DEVICE_ACTOR: &str = "device";

/// Every actor and channel of a running pipeline, as plain data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Actors, each after all that feed it.
    pub actors: Vec<Actor>,
    /// Channels, in the order of their senders; samples flow through nothing else.
    pub channels: Vec<Channel>,
}

/// One actor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Actor {
    /// Unique name: that of the node, `<node>/prepare` and `<node>/finish` for the two sides of a detector, and
    /// `device` for the one owner of the device. No node can be called by the others' names, for they hold a
    /// slash; `device` is kept free by the checks.
    pub name: String,
    /// The node that it belongs to; `None` for the device owner, which serves all detectors.
    pub node: Option<String>,
    /// What it does.
    pub role: ActorRole,
    /// Where it runs.
    pub runs_on: RunsOn,
}

/// What an actor does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorRole {
    /// Reads samples and releases them in time.
    Source,
    /// Puts together what several sensors saw at one time.
    Sync,
    /// Makes one cloud of several.
    Concat,
    /// Decodes and resizes images.
    Prepare,
    /// Owns the device and all traces.
    DeviceOwner,
    /// Turns network outputs into detections.
    Finish,
    /// Publishes, records or writes results.
    Sink,
    /// Does busy work of a stated cost.
    Compute,
}

/// Where an actor runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunsOn {
    /// A task of the asynchronous runtime.
    Task,
    /// Worker threads that keep the order within a stream.
    Workers(u16),
    /// A thread of its own.
    Thread,
}

/// One bounded channel between two actors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Channel {
    /// Name of the sending actor.
    pub from: String,
    /// Name of the receiving actor.
    pub to: String,
    /// The detector whose samples pass, on the channels to and from the device owner.
    pub detector: Option<String>,
    /// Samples that the channel holds, at least 1.
    pub capacity: u32,
    /// What happens when the channel is full.
    pub on_full: OnFull,
}

impl Plan {
    /// The actor of that name.
    #[must_use]
    pub fn actor(&self, name: &str) -> Option<&Actor> {
        self.actors.iter().find(|actor| actor.name == name)
    }
}

impl Pipeline {
    /// The actors and channels of this pipeline.
    ///
    /// A detector becomes a prepare and a finish actor, joined by the device owner. The two channels in between
    /// always block and hold two samples for each worker behind or before them, or two batches: what is to be dropped is
    /// dropped on the detector's input, where the pipeline file says so, and nowhere else.
    #[must_use]
    pub fn plan(&self) -> Plan {
        let mut actors: Vec<Actor> = Vec::new();
        let mut finishes = Vec::new();
        let mut channels = Vec::new();
        for node in &self.nodes {
            let actor = |suffix: &str, role, runs_on| Actor {
                name: format!("{}{suffix}", node.name),
                node: Some(node.name.clone()),
                role,
                runs_on,
            };
            match &node.kind {
                NodeKind::Source(_) => actors.push(actor("", ActorRole::Source, RunsOn::Thread)),
                NodeKind::Sync(_) => actors.push(actor("", ActorRole::Sync, RunsOn::Task)),
                NodeKind::Concat(_) => actors.push(actor("", ActorRole::Concat, RunsOn::Workers(1))),
                NodeKind::Detector(detector) => {
                    let prepare = actor(
                        "/prepare",
                        ActorRole::Prepare,
                        RunsOn::Workers(detector.prepare_workers),
                    );
                    let finish = actor(
                        "/finish",
                        ActorRole::Finish,
                        RunsOn::Workers(detector.finish_workers),
                    );
                    let model = self.models.get(&detector.model);
                    let batch = model.and_then(|model| model.batch.as_ref());
                    let batch = batch.map_or(1, BatchSettings::largest);
                    let inner = |from: &str, to: &str, workers: u16| Channel {
                        from: from.to_owned(),
                        to: to.to_owned(),
                        detector: Some(node.name.clone()),
                        capacity: 2 * u32::from(workers.max(batch)),
                        on_full: OnFull::Block,
                    };
                    channels.push(inner(&prepare.name, DEVICE_ACTOR, detector.prepare_workers));
                    channels.push(inner(DEVICE_ACTOR, &finish.name, detector.finish_workers));
                    actors.push(prepare);
                    finishes.push(finish);
                }
                NodeKind::Compute(_) => actors.push(actor("", ActorRole::Compute, RunsOn::Task)),
                NodeKind::Publisher(_) => finishes.push(actor("", ActorRole::Sink, RunsOn::Task)),
                NodeKind::Recorder(_) | NodeKind::JsonLines(_) => {
                    finishes.push(actor("", ActorRole::Sink, RunsOn::Thread));
                }
            }
        }
        if !channels.is_empty() {
            actors.push(Actor {
                name: DEVICE_ACTOR.to_owned(),
                node: None,
                role: ActorRole::DeviceOwner,
                runs_on: RunsOn::Thread,
            });
        }
        actors.append(&mut finishes);
        channels.extend(self.edges.iter().map(|edge| Channel {
            from: self.sender(&edge.from),
            to: self.receiver(&edge.to),
            detector: None,
            capacity: edge.capacity,
            on_full: edge.on_full,
        }));
        channels.sort_by_key(|channel| actors.iter().position(|actor| actor.name == channel.from));
        Plan { actors, channels }
    }

    /// The actor that sends a node's results.
    fn sender(&self, node: &str) -> String {
        if self.is_detector(node) {
            format!("{node}/finish")
        } else {
            node.to_owned()
        }
    }

    /// The actor that receives a node's input.
    fn receiver(&self, node: &str) -> String {
        if self.is_detector(node) {
            format!("{node}/prepare")
        } else {
            node.to_owned()
        }
    }

    fn is_detector(&self, name: &str) -> bool {
        self.nodes
            .iter()
            .any(|node| node.name == name && matches!(node.kind, NodeKind::Detector(_)))
    }
}
