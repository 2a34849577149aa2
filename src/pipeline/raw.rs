//! A pipeline file as it is written. The JSON Schema is generated from these types, and files are checked
//! against that schema, so the documentation, the editor's completion and the parser are one definition.
//!
//! Doc comments here are user documentation: they become the descriptions of the schema and the advice in
//! error messages. Every key that may be left out says what that means.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::bundle::RawBundle;
use super::camera::{ChannelOrder, Contraction, Preprocess, Upload, UploadLayout};
use super::compute::RawCompute;
use super::faults::RawFaults;
use super::patterns::{NAME, STREAM_TOPIC};
use super::ros2::{RawRos2, Subscribe};
use super::scheduling::{BatchSettings, OnLate};
use super::settings::{
    Clock, DEFAULT_FRAME_DEADLINE_MS, OnFull, OnStreamsFull, Precision, RestartSettings, SimulateSettings,
    Transport, WeightFormat, ZenohMode,
};
use super::supervision::SupervisionSettings;
use super::sync::{RawConcat, RawSync};
use super::temporal::RawTemporal;
use crate::device::{
    ARENA_MIB, Backends, Bf16Sums, DeviceConfig, QUEUES, SPIN_US, THREADS, TRACE_REGION_MIB,
};

/// Largest capacity of a channel, in samples.
pub(super) const MAX_CAPACITY: u32 = 65_536;

/// A pipeline: sensor streams, the models that they run through, and where the results go.
///
/// A text value may hold ${VAR} or ${VAR:-default}, which the environment replaces; $${ stands for a plain ${.
/// Paths are relative to the folder of the file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Pipeline")]
pub(super) struct RawPipeline {
    /// Name of the pipeline, part of the keys that results are published under.
    #[schemars(regex(pattern = NAME))]
    pub(super) pipeline: String,
    /// The device that runs the models. Left out: the CPU device with its defaults.
    #[serde(default)]
    pub(super) device: RawDevice,
    /// The node that the pipeline is in the ROS 2 graph, where a source or a publisher takes part in it.
    #[serde(default)]
    pub(super) ros2: RawRos2,
    /// Models by name.
    #[serde(default)]
    #[schemars(extend("propertyNames" = { "pattern": NAME }))]
    pub(super) models: BTreeMap<String, RawModel>,
    /// Nodes by name: sources, detectors and sinks, joined by their `input`.
    #[schemars(extend("propertyNames" = { "pattern": NAME }))]
    pub(super) nodes: BTreeMap<String, RawNode>,
    /// Sizes and policies of the channels between nodes. Left out: the defaults of `channels.default`.
    #[serde(default)]
    pub(super) channels: RawChannels,
    /// What becomes of actors that fail, and when the pipeline counts as degraded.
    #[serde(default)]
    pub(super) supervision: SupervisionSettings,
}

/// The device that runs the models.
///
/// The environment variable SENSORIUM_DEVICE_ and a key in capitals takes the place of what a file says.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Device")]
pub(super) struct RawDevice {
    /// Which device.
    #[schemars(schema_with = "backends")]
    pub(super) backend: String,
    /// Threads that compute: a number, or `auto` for one per processor.
    pub(super) threads: RawThreads,
    /// Command queues: 2 lets an upload overlap the work of the frame before.
    #[schemars(range(min = *QUEUES.start(), max = *QUEUES.end()))]
    pub(super) queues: u8,
    /// Device memory in MiB.
    #[schemars(range(min = *ARENA_MIB.start(), max = *ARENA_MIB.end()))]
    pub(super) arena_mib: u32,
    /// Memory that all traces together may take in MiB.
    #[schemars(range(min = *TRACE_REGION_MIB.start(), max = *TRACE_REGION_MIB.end()))]
    pub(super) trace_region_mib: u32,
    /// How long an idle queue spins before it sleeps in microseconds: a faster hand-over for CPU time.
    #[schemars(range(min = *SPIN_US.start(), max = *SPIN_US.end()))]
    pub(super) spin_us: u32,
    /// Whether the CPU device may take the place of a device that cannot be opened.
    pub(super) allow_fallback: bool,
    /// Which sums convolutions of bf16 have: `auto`, those of the fastest instruction of the processor, or `off`, those of
    /// fp32, the same on every processor.
    pub(super) bf16_dot: RawBf16Sums,
    /// Longest time that a frame may spend on the device, in milliseconds. After that the device counts as lost.
    #[schemars(range(min = 10, max = 3_600_000))]
    pub(super) frame_deadline_ms: u32,
    /// How often a device that was lost is opened again.
    pub(super) restart: RestartSettings,
    /// Faults to inject, for tests.
    pub(super) fault: RawFaults,
}

impl Default for RawDevice {
    fn default() -> Self {
        let config = DeviceConfig::default();
        let mib = |bytes: usize| (bytes >> 20) as u32;
        Self {
            backend: config.backend.to_string(),
            threads: RawThreads::Auto(Auto::Auto),
            queues: config.queues,
            arena_mib: mib(config.arena_bytes),
            trace_region_mib: mib(config.trace_region_bytes),
            spin_us: config.spin.as_micros() as u32,
            allow_fallback: config.allow_fallback,
            bf16_dot: match config.bf16_dot {
                Bf16Sums::Auto => RawBf16Sums::Auto,
                Bf16Sums::Off => RawBf16Sums::Off,
            },
            frame_deadline_ms: DEFAULT_FRAME_DEADLINE_MS,
            restart: RestartSettings::default(),
            fault: RawFaults::default(),
        }
    }
}

/// The backends of this program that a run can use, as the words of any other setting are described.
fn backends(_: &mut SchemaGenerator) -> Schema {
    let words: Vec<_> = Backends::builtin()
        .iter()
        .filter(|backend| backend.runs_alone)
        .map(
            |backend| json_schema!({ "const": backend.name, "description": backend.about, "type": "string" }),
        )
        .collect();
    json_schema!({ "oneOf": words })
}

/// A number of threads, or `auto`.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema, Serialize)]
#[serde(untagged)]
#[schemars(rename = "Threads")]
pub(super) enum RawThreads {
    /// One per processor.
    Auto(Auto),
    /// So many.
    Count(#[schemars(range(min = *THREADS.start(), max = *THREADS.end()))] u16),
}

/// Which sums convolutions of bf16 have.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Bf16Sums")]
pub(super) enum RawBf16Sums {
    /// Those of the fastest instruction of the processor.
    Auto,
    /// Those of fp32, the same on every processor.
    Off,
}

/// The word `auto`.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Auto {
    Auto,
}

/// A model and how its inputs and outputs are treated. `type` is the family of the network.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schemars(rename = "Model")]
pub(super) enum RawModel {
    Yolox(RawCameraModel),
    FastestDet(RawCameraModel),
    CenterPoint(RawCenterPoint),
    #[serde(rename = "bev_ring")]
    BevRing(RawTemporal),
    #[serde(rename = "stream_queries")]
    StreamQueries(RawTemporal),
    Bundle(RawBundle),
}

/// A network that finds boxes in camera images: YOLOX (boxes as offsets to grid cells of three strides, objectness
/// times class score) or FastestDet (one output map, objectness and class score weighted).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CameraModel")]
pub(super) struct RawCameraModel {
    /// The ONNX file. Empty: as a parameter file says, or it must be given on the command line.
    pub(super) weights: String,
    /// Parameter files of Autoware's tensorrt_yolox, the later ones over the earlier, for `yolox`. What is said here
    /// goes before them.
    #[serde(default)]
    pub(super) params: Vec<String>,
    /// Storage of weights and activations; sums are always fp32.
    #[serde(default)]
    pub(super) precision: Precision,
    /// How the weights of convolutions are stored until they are brought onto the device, where `precision` holds.
    #[serde(default)]
    pub(super) weight_format: WeightFormat,
    /// How a camera image becomes the network's input. It must be the one that the weights were trained with.
    pub(super) preprocess: Preprocess,
    /// Type of the values that go to the device. Left out: as the preset is deployed.
    pub(super) upload: Option<Upload>,
    /// Order of the axes of what goes to the device. Left out: as the preset is deployed.
    pub(super) upload_layout: Option<UploadLayout>,
    /// Order of the channels that the weights were trained with. Left out: as the preset is deployed.
    pub(super) channel_order: Option<ChannelOrder>,
    /// How products and sums of floats are rounded, where a preset has any. Left out: as the preset is deployed.
    pub(super) contraction: Option<Contraction>,
    /// Pixels of the resized image for each of the image, for `bevfusion`. Left out: as deployed.
    #[schemars(range(min = 0.0, max = 8.0))]
    pub(super) preprocess_scale: Option<f32>,
    /// Lets compressed images be decoded at 1/2, 1/4 or 1/8 of their size where that is no smaller than the network's
    /// input: faster, and not the same to the bit.
    #[serde(default)]
    pub(super) decode_to_scale: bool,
    /// Names of the classes: `coco80`, or the path of a text file with one name a line. Left out: as a
    /// parameter file says.
    #[schemars(length(min = 1))]
    pub(super) labels: Option<String>,
    /// Detections below this score are not reported. Left out: as a parameter file says.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub(super) score_threshold: Option<f32>,
    /// Of two boxes of one class that overlap more than this (intersection over union), the weaker one goes. Left out: as
    /// a parameter file says.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub(super) nms_threshold: Option<f32>,
    /// Most detections reported for one frame, strongest first.
    #[serde(default = "default_max_detections")]
    #[schemars(range(min = 1, max = 100_000))]
    pub(super) max_detections: u32,
    /// Most streams that the model serves at once.
    #[serde(default = "default_max_streams")]
    #[schemars(range(min = 1, max = 1_024))]
    pub(super) max_streams: u16,
    /// What happens to a stream beyond `max_streams`.
    #[serde(default)]
    pub(super) on_full: OnStreamsFull,
    /// Frames that may be under way between preparation and result in each detector that runs the model, over all its
    /// streams; more wait, and the policy of the channel before it decides which. A bound on latency. It is a bound on
    /// the workers of the detector's preparation as well. Left out: as many as there is memory for.
    #[schemars(range(min = 1, max = 1_024))]
    pub(super) max_in_flight: Option<u32>,
    /// Frames of several streams in one go. Left out: each alone.
    pub(super) batch: Option<BatchSettings>,
}

/// CenterPoint: objects on the road from LiDAR sweeps, as Autoware's lidar_centerpoint finds them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CenterPoint")]
pub(super) struct RawCenterPoint {
    /// A safetensors file of Sensorium, or Autoware's pts_backbone_neck_head ONNX file with `encoder` beside it. Empty:
    /// it must be given on the command line.
    pub(super) weights: String,
    /// Autoware's pts_voxel_encoder ONNX file; left out for a safetensors file.
    #[serde(default)]
    pub(super) encoder: String,
    /// Autoware's parameter files (node, ml_package, common, remapper), the later ones over the earlier. A safetensors
    /// file brings the parameters that it was trained with; what is said here takes their place.
    #[serde(default)]
    pub(super) params: Vec<String>,
    /// Storage of weights and activations; sums are always fp32.
    #[serde(default)]
    pub(super) precision: Precision,
    /// Detections of any class and distance below this score are not reported. Left out: as the parameters say.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub(super) score_threshold: Option<f32>,
    /// Frame in which the vehicle moves; earlier sweeps are brought to the present through it. Left out: as the parameters
    /// say, or `map`.
    #[schemars(length(min = 1))]
    pub(super) world_frame: Option<String>,
    /// Seed of the choice of points where a pillar has more than it holds.
    #[serde(default)]
    #[schemars(range(min = 0, max = 4_294_967_295_u64))]
    pub(super) shuffle_seed: u64,
    /// Most streams that the model serves at once.
    #[serde(default = "default_max_streams")]
    #[schemars(range(min = 1, max = 1_024))]
    pub(super) max_streams: u16,
    /// What happens to a stream beyond `max_streams`.
    #[serde(default)]
    pub(super) on_full: OnStreamsFull,
    /// Frames that may be under way between preparation and result in each detector that runs the model, over all its
    /// streams; more wait, and the policy of the channel before it decides which. A bound on latency. It is a bound on
    /// the workers of the detector's preparation as well. Left out: as many as there is memory for.
    #[schemars(range(min = 1, max = 1_024))]
    pub(super) max_in_flight: Option<u32>,
    /// Not for this model, which keeps earlier sweeps of each stream: refused.
    pub(super) batch: Option<BatchSettings>,
}

const fn default_max_detections() -> u32 {
    300
}

pub(super) const fn default_max_streams() -> u16 {
    8
}

/// A node: where samples come from, are worked on, or go to.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[schemars(rename = "Node")]
pub(super) enum RawNode {
    Source(RawSource),
    Detector(RawDetector),
    Publisher(RawPublisher),
    Recorder(RawRecorder),
    Jsonl(RawJsonLines),
    Compute(RawCompute),
    Sync(RawSync),
    Concat(RawConcat),
}

/// Plays the streams of a bag or of a simulated drive, or takes those of sensors as they come.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Source")]
pub(super) struct RawSource {
    /// The bag: a folder, an .mcap file or a .db3 file. Empty: it must be given on the command line.
    #[serde(default)]
    pub(super) bag: String,
    /// A drive that is simulated while it plays, in place of a bag.
    pub(super) simulate: Option<SimulateSettings>,
    /// Live messages, in place of a bag; `topics` lists them. A bag on the command line takes their place.
    pub(super) subscribe: Option<Subscribe>,
    /// `auto` for every topic that the detectors behind it take (images, point clouds), or a list of topics; each topic is
    /// one stream. `~/` in front stands for the node, and the renames of `ros2.remap` apply.
    #[serde(default)]
    pub(super) topics: RawTopics,
    /// What decides when a sample is released.
    #[serde(default)]
    pub(super) clock: Clock,
    /// Speed of the replay: 1.0 as recorded, 2.0 twice as fast, `max` as fast as the pipeline takes it.
    #[serde(default)]
    pub(super) rate: RawRate,
    /// Time from a frame's release to its result, in milliseconds, after which it counts as late. Left out: no
    /// frame counts as late.
    #[schemars(range(min = 1, max = 3_600_000))]
    pub(super) deadline_ms: Option<u32>,
}

/// Topics of a bag, or `auto`.
#[derive(Debug, Deserialize, JsonSchema, Serialize)]
#[serde(untagged)]
#[schemars(rename = "Topics")]
pub(super) enum RawTopics {
    /// Every topic that the detectors take.
    Auto(Auto),
    /// These topics.
    Listed(#[schemars(length(min = 1))] Vec<String>),
}

impl Default for RawTopics {
    fn default() -> Self {
        Self::Auto(Auto::Auto)
    }
}

/// A speed, or `max`.
#[derive(Debug, Deserialize, JsonSchema, Serialize)]
#[serde(untagged)]
#[schemars(rename = "Rate")]
pub(super) enum RawRate {
    /// Multiple of the recorded speed.
    Times(#[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1_000))] f64),
    /// No pauses.
    Max(Max),
}

impl Default for RawRate {
    fn default() -> Self {
        Self::Times(1.0)
    }
}

/// The word `max`.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Max {
    Max,
}

/// One name, or a list of names.
#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "names are read from the tree, where their places are")]
#[serde(untagged)]
#[schemars(rename = "Input")]
pub(super) enum RawInput {
    /// The one node that feeds this one.
    One(String),
    /// The nodes that feed this one.
    Many(#[schemars(length(min = 1))] Vec<String>),
}

/// Runs a model on every image, sweep or set of its input.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Detector")]
pub(super) struct RawDetector {
    /// Name of the model, one of `models`.
    pub(super) model: String,
    /// The source or sources, or the nodes of kind `sync` or `concat`.
    #[expect(dead_code, reason = "names are read from the tree, where their places are")]
    pub(super) input: RawInput,
    /// Workers that prepare the network's input. The order within a stream is kept. A model that keeps earlier sweeps has
    /// one, whatever is said here.
    #[serde(default = "default_workers")]
    #[schemars(range(min = 1, max = 64))]
    pub(super) prepare_workers: u16,
    /// Workers that turn network outputs into detections. The order within a stream is kept.
    #[serde(default = "default_workers")]
    #[schemars(range(min = 1, max = 64))]
    pub(super) finish_workers: u16,
    /// Longest time that a sweep waits for a transform that comes later than it, in milliseconds.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1_000))]
    pub(super) pose_wait_ms: u32,
    /// What happens to a frame that waits for the device when its deadline (`deadline_ms` of its source) passes.
    #[serde(default)]
    pub(super) on_late: OnLate,
}

const fn default_workers() -> u16 {
    1
}

/// Publishes detections to other processes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Publisher")]
pub(super) struct RawPublisher {
    /// How results travel.
    pub(super) transport: Transport,
    /// The detector or detectors whose results are published.
    #[expect(dead_code, reason = "names are read from the tree, where their places are")]
    pub(super) input: RawInput,
    /// zenoh: key of the results; {pipeline}, {node} and {stream} are filled in. Left out:
    /// sensorium/{pipeline}/{node}/{stream}/detections.
    #[schemars(length(min = 1))]
    pub(super) key: Option<String>,
    /// zenoh: how this process joins the network. Left out: as a peer.
    pub(super) mode: Option<ZenohMode>,
    /// zenoh: endpoints to connect to, such as tcp/192.168.0.10:7447. Left out: those that are discovered.
    pub(super) connect: Option<Vec<String>>,
    /// zenoh: endpoints to listen on, such as tcp/0.0.0.0:7447. Left out: any free port.
    pub(super) listen: Option<Vec<String>>,
    /// ros2: topic of the results; {stream} is filled in. Left out: ~/output/objects.
    #[schemars(regex(pattern = STREAM_TOPIC))]
    pub(super) topic: Option<String>,
    /// ros2: whether frames are skipped while nobody subscribes to the results, as Autoware's detectors do. Left out:
    /// they are.
    pub(super) skip_without_subscribers: Option<bool>,
    /// ros2: whether processing times, diagnostics and times of publication are published too, as Autoware's detectors
    /// do. Left out: they are.
    pub(super) debug: Option<bool>,
    /// foxglove: ADDRESS:PORT to listen on. Left out: 127.0.0.1:8765, which only this machine reaches.
    pub(super) address: Option<String>,
}

/// Key of results that names none.
pub(super) const DEFAULT_KEY: &str = "sensorium/{pipeline}/{node}/{stream}/detections";
/// Topic of results that names none.
pub(super) const DEFAULT_TOPIC: &str = "~/output/objects";

/// Writes an MCAP recording: images and point clouds as they came, and what was found in them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Recorder")]
pub(super) struct RawRecorder {
    /// The detector or detectors whose results are recorded.
    #[expect(dead_code, reason = "names are read from the tree, where their places are")]
    pub(super) input: RawInput,
    /// The .mcap file. Empty: the recorder is off unless a path is given on the command line.
    #[serde(default)]
    pub(super) path: String,
    /// Whether images and point clouds are recorded beside what was found in them.
    #[serde(default = "default_include_images")]
    pub(super) include_images: bool,
}

const fn default_include_images() -> bool {
    true
}

/// Writes one JSON object a frame and line.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "JsonLines")]
pub(super) struct RawJsonLines {
    /// The detector or detectors whose results are written.
    #[expect(dead_code, reason = "names are read from the tree, where their places are")]
    pub(super) input: RawInput,
    /// The file. Empty: the sink is off unless a path is given on the command line.
    #[serde(default)]
    pub(super) path: String,
}

/// Sizes and policies of channels.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Channels")]
pub(super) struct RawChannels {
    /// The channel of every connection that `edges` does not list.
    pub(super) default: RawChannel,
    /// Connections with a channel of their own.
    pub(super) edges: Vec<RawEdge>,
}

/// A bounded channel.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Channel")]
pub(super) struct RawChannel {
    /// Samples that the channel holds; every hop is bounded, and a sample needs a place.
    #[schemars(range(min = 1, max = MAX_CAPACITY))]
    pub(super) capacity: u32,
    /// What happens when the channel is full.
    pub(super) on_full: OnFull,
}

impl Default for RawChannel {
    fn default() -> Self {
        Self {
            capacity: 4,
            on_full: OnFull::Block,
        }
    }
}

/// The channel of one connection.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Edge")]
pub(super) struct RawEdge {
    /// The node that sends.
    pub(super) from: String,
    /// The node that receives.
    pub(super) to: String,
    /// Samples that the channel holds; every hop is bounded, and a sample needs a place. Left out: as
    /// `channels.default`.
    #[schemars(range(min = 1, max = MAX_CAPACITY))]
    pub(super) capacity: Option<u32>,
    /// What happens when the channel is full. Left out: as `channels.default`.
    pub(super) on_full: Option<OnFull>,
}
