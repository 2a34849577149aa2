//! Pipeline files: what they say, what is wrong with them, and the plan that they describe.
//!
//! [`Pipeline::load`] turns a YAML file into plain data that needs no further checks, or into every error of
//! the file at once, each with file, line, column, what was expected and the nearest valid spelling. The steps:
//!
//! 1. `tree`: YAML to a tree in which every key and value knows its place; nesting, size and aliases bounded.
//! 2. `substitute`, `set`: `${VAR}` from the environment, `--set` from the command line.
//! 3. `shape`: the tree against the JSON Schema, which is generated from the types in `raw`.
//! 4. `validate`: names, connections, files; the result is a [`Pipeline`].
//! 5. [`Pipeline::diff`]: what changes from one pipeline to another, for a run that takes the changes over.
//! 6. [`Pipeline::plan`]: the actors and channels that the runtime starts; [`Pipeline::mermaid`] draws them.
//!
//! May be called by `telemetry`, `io`, `runtime` and `cli`; calls `device` for what
//! can be set there.

mod bundle;
mod camera;
mod compute;
mod connect;
mod diff;
mod faults;
mod foxglove;
mod graph;
mod load;
mod mermaid;
mod nearest;
mod patterns;
mod plan;
mod problem;
mod raw;
mod reader;
mod ros2;
mod scheduling;
mod schema;
mod set;
mod settings;
mod shape;
mod source;
mod substitute;
mod supervision;
mod sync;
mod temporal;
mod tree;
mod validate;
mod vehicle;
mod words;

pub use camera::{CameraSettings, ChannelOrder, Contraction, Preprocess, Upload, UploadLayout};
pub use compute::{ComputeCost, ComputeRole, ComputeSettings};
pub use diff::{ReloadDiff, ReloadStep};
pub use foxglove::{FOXGLOVE_ADDRESS, FoxglovePublisherSettings};
pub use load::Overrides;
pub use plan::{Actor, ActorRole, Channel, Plan, RunsOn};
pub use problem::{InvalidPipeline, PipelineError, Problem, ProblemRecord};
pub use ros2::{DiagnosticsSettings, Distro, Ros2PublisherSettings, Ros2Settings, RosTransport, Subscribe};
pub use scheduling::{BatchSettings, OnLate};
pub use schema::pipeline_schema;
pub use settings::{
    CenterPointSettings, Clock, DetectorSettings, DeviceSettings, Edge, Family, JsonLinesSettings, Labels,
    ModelSettings, Node, NodeKind, OnFull, OnStreamsFull, Pipeline, Precision, PublisherSettings, Rate,
    RateError, RecorderSettings, RestartSettings, SimulateSettings, SimulatedCameras, SourceSettings, Topics,
    Transport, WeightFormat, ZenohMode, ZenohPublisherSettings,
};
pub use substitute::Environment;
pub use supervision::{ActorFault, ActorFaultKind, OnSinkFailure, SupervisionSettings};
pub use sync::{ConcatSettings, MatchRule, MemberSensor, OnPartial, SyncMember, SyncSettings};
pub use temporal::TemporalSettings;
pub use vehicle::{
    DistortionModel, Encoding, Intrinsics, Mount, Vehicle, VehicleLimits, VehicleOverrides, VehicleSensor,
    VehicleSensorKind, VehicleStream, vehicle_schema,
};
