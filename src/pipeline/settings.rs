//! A validated pipeline: plain data that the runtime can trust.

mod models;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compute::ComputeSettings;
use super::foxglove::FoxglovePublisherSettings;
use super::problem::Problem;
use super::ros2::{RawRos2, Ros2PublisherSettings, Ros2Settings, Subscribe};
use super::scheduling::OnLate;
use super::supervision::SupervisionSettings;
use super::sync::{ConcatSettings, SyncSettings};
use super::vehicle::Mount;
use super::words::words;
use crate::device::{DeviceConfig, DeviceLayer, FaultPlan};

pub use models::{
    CenterPointSettings, Family, Labels, ModelSettings, OnStreamsFull, Precision, WeightFormat,
};

/// A pipeline whose names, connections and values are all valid.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Pipeline {
    /// The file, as it was named.
    pub file: PathBuf,
    /// Name of the pipeline.
    pub name: String,
    /// The device.
    pub device: DeviceSettings,
    /// The node that it is in the ROS 2 graph, where a source or a publisher takes part in it.
    pub ros2: Ros2Settings,
    /// Models by name.
    pub models: BTreeMap<String, ModelSettings>,
    /// Nodes, each after all that feed it.
    pub nodes: Vec<Node>,
    /// Connections, in the order of the receiving node.
    pub edges: Vec<Edge>,
    /// What becomes of actors that fail.
    pub supervision: SupervisionSettings,
    /// Names of the recorders and JSON-lines sinks that are off because they have no path.
    pub inactive: Vec<String>,
    /// Fixed transforms of the vehicle, where one runs the pipeline.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// Things that work, but hardly as meant.
    #[serde(skip)]
    pub warnings: Vec<Problem>,
    /// Files that are still to be given on the command line.
    #[serde(skip)]
    pub missing: Vec<Problem>,
}

impl Pipeline {
    /// A pipeline without a node.
    pub(super) fn empty(file: &std::path::Path, name: &str) -> Self {
        Self {
            file: file.to_owned(),
            name: name.to_owned(),
            device: DeviceSettings::default(),
            ros2: RawRos2::default().settings(name, &[]),
            models: BTreeMap::new(),
            nodes: Vec::new(),
            edges: Vec::new(),
            supervision: SupervisionSettings::default(),
            inactive: Vec::new(),
            mounts: Vec::new(),
            warnings: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// Whether what comes out of a node goes into another.
    pub(crate) fn feeds(&self, from: &str, to: &str) -> bool {
        let mut edges = self.edges.iter();
        edges.any(|edge| edge.from == from && edge.to == to)
    }

    /// What the model of a detector is.
    pub(crate) fn family_of(&self, detector: &DetectorSettings) -> &Family {
        // A pipeline whose detectors name other models is refused when it is read.
        &self.models[&detector.model].family
    }
}

/// The device that runs the models. What the environment says comes between file and command line, see
/// [`DeviceSettings::config`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceSettings {
    /// What the file says.
    pub file: DeviceLayer,
    /// What options of the command say.
    pub command_line: DeviceLayer,
    /// Longest time that a frame may spend on the device, in milliseconds.
    pub frame_deadline_ms: u32,
    /// How often a lost device is opened again.
    pub restart: RestartSettings,
    /// Faults to inject into the device.
    #[serde(skip)]
    pub faults: FaultPlan,
}

/// Longest time that a frame may spend on the device unless the file says otherwise, in milliseconds.
pub(super) const DEFAULT_FRAME_DEADLINE_MS: u32 = 30_000;

impl Default for DeviceSettings {
    fn default() -> Self {
        Self {
            file: DeviceLayer::default(),
            command_line: DeviceLayer::default(),
            frame_deadline_ms: DEFAULT_FRAME_DEADLINE_MS,
            restart: RestartSettings::default(),
            faults: FaultPlan::default(),
        }
    }
}

/// How often a device that was lost is opened again before the run is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Restart")]
pub struct RestartSettings {
    /// Most losses within `within_s`, and most attempts to open it after one loss. 0: a lost device ends the run.
    #[schemars(range(min = 0, max = 1_000))]
    pub limit: u32,
    /// Seconds after which a loss is forgotten.
    #[schemars(range(min = 1, max = 86_400))]
    pub within_s: u32,
    /// Pause before the first attempt in milliseconds; it doubles with every attempt until a frame comes back, up
    /// to 30 s.
    #[schemars(range(min = 0, max = 30_000))]
    pub backoff_ms: u32,
}

impl Default for RestartSettings {
    fn default() -> Self {
        Self {
            limit: 3,
            within_s: 60,
            backoff_ms: 200,
        }
    }
}

impl DeviceSettings {
    /// The defaults, changed by the file, then by the environment, then by the command line.
    #[must_use]
    pub fn config(&self, environment: &DeviceLayer) -> DeviceConfig {
        DeviceConfig::from_layers([&self.file, environment, &self.command_line])
    }
}

/// A node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Node {
    /// Name, unique in the pipeline.
    pub name: String,
    /// What it does.
    #[serde(flatten)]
    pub kind: NodeKind,
}

/// What a node does.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum NodeKind {
    /// Plays the streams of a bag or of a simulated drive.
    Source(SourceSettings),
    /// Runs a model on images or sweeps.
    Detector(DetectorSettings),
    /// Publishes detections.
    Publisher(PublisherSettings),
    /// Writes an MCAP recording.
    Recorder(RecorderSettings),
    /// Writes JSON lines.
    #[serde(rename = "jsonl")]
    JsonLines(JsonLinesSettings),
    /// Does busy work of a stated cost.
    Compute(ComputeSettings),
    /// Puts together what several sensors saw at one time.
    Sync(SyncSettings),
    /// Makes one cloud of those in a set.
    Concat(ConcatSettings),
}

impl NodeKind {
    /// The `kind` as a pipeline file spells it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Source(_) => "source",
            Self::Detector(_) => "detector",
            Self::Publisher(_) => "publisher",
            Self::Recorder(_) => "recorder",
            Self::JsonLines(_) => "jsonl",
            Self::Compute(_) => "compute",
            Self::Sync(_) => "sync",
            Self::Concat(_) => "concat",
        }
    }
}

/// Settings of a source.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SourceSettings {
    /// The bag; `None` if it is still to be given, or a drive is simulated.
    pub bag: Option<PathBuf>,
    /// The drive that is simulated in place of a bag.
    pub simulate: Option<SimulateSettings>,
    /// Where live messages come from in place of a bag.
    pub subscribe: Option<Subscribe>,
    /// Which topics are played.
    pub topics: Topics,
    /// What decides when a sample is released.
    pub clock: Clock,
    /// Speed of the replay.
    pub rate: Rate,
    /// Time from release to result after which a frame counts as late, in milliseconds.
    pub deadline_ms: Option<u32>,
}

/// A drive that is simulated while it plays.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Simulate")]
pub struct SimulateSettings {
    /// Length of the drive in seconds.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 86_400))]
    pub seconds: f64,
    /// Two drives with one seed are the same.
    #[serde(default)]
    #[schemars(range(min = 0, max = 4_294_967_295_u64))]
    pub seed: u64,
    /// Which cameras the car has beside its LiDAR.
    #[serde(default)]
    pub cameras: SimulatedCameras,
    /// Images of each camera a second: 10, 5, 2 or 1.
    #[serde(default = "default_camera_hz")]
    #[schemars(range(min = 1, max = SWEEPS_A_SECOND))]
    pub camera_hz: u32,
}

/// Sweeps that the LiDAR of a simulated drive takes in a second; a camera takes as many images or a whole part of it.
pub(super) const SWEEPS_A_SECOND: u32 = 10;

const fn default_camera_hz() -> u32 {
    SWEEPS_A_SECOND
}

/// Cameras of a simulated drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SimulatedCameras {
    /// None.
    #[default]
    None,
    /// One that looks ahead.
    Front,
    /// One that looks ahead, and one to each side of it.
    Three,
}

/// Topics of a bag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Topics {
    /// Every topic that the detectors behind the source take.
    Auto,
    /// These, at least one.
    Listed(Vec<String>),
}

/// Speed of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rate {
    /// Multiple of the recorded speed, above 0.
    Times(f64),
    /// As fast as the pipeline takes it.
    Max,
}

/// A replay speed that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a number above 0 and at most 1000, or `max`")]
pub struct RateError;

impl std::str::FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        if text == "max" {
            return Ok(Self::Max);
        }
        text.parse()
            .ok()
            .filter(|&times: &f64| times > 0.0 && times <= 1_000.0)
            .map(Self::Times)
            .ok_or(RateError)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Times(times) => write!(f, "{times}x"),
            Self::Max => f.write_str("max"),
        }
    }
}

/// Settings of a detector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DetectorSettings {
    /// Name of the model, a key of [`Pipeline::models`].
    pub model: String,
    /// Workers that decode and resize images, at least 1.
    pub prepare_workers: u16,
    /// Workers that decode network outputs, at least 1.
    pub finish_workers: u16,
    /// Longest wait for a transform that comes later than its sweep, in milliseconds.
    pub pose_wait_ms: u32,
    /// What happens to a frame that waits for the device when its deadline passes.
    pub on_late: OnLate,
}

/// Settings of a publisher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "transport", rename_all = "lowercase")]
pub enum PublisherSettings {
    /// JSON on keys of zenoh.
    Zenoh(ZenohPublisherSettings),
    /// Messages on topics of ROS 2.
    Ros2(Ros2PublisherSettings),
    /// A server that Foxglove connects to.
    Foxglove(FoxglovePublisherSettings),
}

impl PublisherSettings {
    /// How results travel.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        match self {
            Self::Zenoh(_) => Transport::Zenoh,
            Self::Ros2(_) => Transport::Ros2,
            Self::Foxglove(_) => Transport::Foxglove,
        }
    }

    /// Whether a frame counts as published when this publisher has it. People who watch are not waited for.
    #[must_use]
    pub const fn measures(&self) -> bool {
        !matches!(self, Self::Foxglove(_))
    }
}

/// Settings of a publisher of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ZenohPublisherSettings {
    /// Key of the results, with `{stream}` still to be filled in; see [`Self::key_of`].
    pub key: String,
    /// How this process joins the network.
    pub mode: ZenohMode,
    /// Endpoints to connect to.
    pub connect: Vec<String>,
    /// Endpoints to listen on.
    pub listen: Vec<String>,
}

impl ZenohPublisherSettings {
    /// The key of one stream. A stream named after a topic keeps its inner slashes; characters that have a
    /// meaning in key expressions become `_`, and so does a stream without a name.
    #[must_use]
    pub fn key_of(&self, stream: &str) -> String {
        let chunks: Vec<String> = stream
            .split('/')
            .filter(|chunk| !chunk.is_empty())
            .map(|chunk| chunk.replace(KEY_SPECIAL, "_"))
            .collect();
        let stream = if chunks.is_empty() {
            "_".to_owned()
        } else {
            chunks.join("/")
        };
        self.key.replace("{stream}", &stream)
    }
}

/// Characters that zenoh gives a meaning in key expressions.
pub(super) const KEY_SPECIAL: [char; 4] = ['*', '$', '?', '#'];

/// Settings of a recorder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecorderSettings {
    /// The .mcap file to write.
    pub path: PathBuf,
    /// Whether images are recorded beside the detections.
    pub include_images: bool,
}

/// Settings of a JSON-lines sink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JsonLinesSettings {
    /// The file to write.
    pub path: PathBuf,
}

/// A connection of two nodes: one bounded channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Edge {
    /// The node that sends.
    pub from: String,
    /// The node that receives.
    pub to: String,
    /// Samples that the channel holds, at least 1.
    pub capacity: u32,
    /// What happens when the channel is full.
    pub on_full: OnFull,
}

words! {
    /// What happens to a sample when its channel is full.
    #[derive(Default)]
    OnFull {
        /// The sender waits.
        #[default]
        Block = "block",
        /// The oldest sample in the channel is dropped and counted.
        DropOldest = "drop_oldest",
        /// The new sample is dropped and counted.
        DropNewest = "drop_newest",
    }
}
words! {
    /// What decides when a sample is released.
    #[derive(Default)]
    Clock {
        /// The stamps in the bag, at the source's rate.
        #[default]
        Bag = "bag",
        /// One fixed order, nothing dropped: the same results run after run.
        Deterministic = "deterministic",
    }
}
words! {
    /// How results travel.
    Transport {
        /// zenoh, as JSON.
        Zenoh = "zenoh",
        /// Topics of ROS 2, as Autoware's detectors publish them.
        Ros2 = "ros2",
        /// A server that the Foxglove viewer connects to: images and point clouds with what was found in them.
        Foxglove = "foxglove",
    }
}
words! {
    /// How a process joins the zenoh network.
    #[derive(Default)]
    ZenohMode {
        /// Connects to every other peer.
        #[default]
        Peer = "peer",
        /// Connects to one router or peer only.
        Client = "client",
    }
}
