//! Sensorium: a runtime for streaming perception on vehicles.
//!
//! One process owns the accelerator; camera and LiDAR streams share it. Sensor data is prepared on the
//! host, runs through captured device traces, is decoded, and leaves as detections. Every hop is a bounded
//! channel, every drop is counted, every frame's latency is known stage by stage.
//!
//! # Layout
//!
//! A room (module) may import only the rooms listed before it; `tests/pipelines/architecture.rs` enforces it.
//!
//! - [`numeric`]: number formats and their exact conversions
//! - [`tensor`]: data types, shapes, strided views, host tensors
//! - [`outputs`]: plain result types such as [`outputs::Detections2D`]
//! - [`precision`]: fidelity and storage of matrix arithmetic, policies by module, knobs
//! - [`device`]: the [`device::Device`] contract, the CPU device that keeps it, and a simulator that finds missing waits
//! - [`ops`]: checked builders that turn tensor operations into device programs
//! - [`trace`]: [`trace::TraceRunner`]: warm-up, capture and replay on one or two command queues
//! - [`weights`]: model files read as data (ONNX), folding
//! - [`models`]: the importer that lowers an ONNX graph to device operations
//! - [`image`]: camera pre-processing presets, bit-exact
//! - [`lidar`]: sweeps, pillars, head decoding, suppression, as Autoware's kernels compute them
//! - [`perception`]: detectors: prepare, forward, finish
//! - [`accuracy`]: detections matched with the truth, metrics, goldens, frozen gates
//! - [`pipeline`]: pipeline files: schema, validation, the plan of actors and channels
//! - [`telemetry`]: latency histograms, drop accounting, run reports, profiles of models
//! - [`io`]: bags, ROS messages (CDR), recordings, zenoh, the driving simulator
//! - [`runtime`]: actors, bounded channels, clock, shutdown
//! - [`server`]: `/predict` over HTTP, the client that checks a service, and what a run tells whoever watches it
//! - [`cli`]: the `sensorium` command, one file per subcommand

pub mod accuracy;
pub mod cli;
pub mod device;
pub mod image;
pub mod io;
pub mod lidar;
pub mod models;
pub mod numeric;
pub mod ops;
pub mod outputs;
pub mod perception;
pub mod pipeline;
pub mod precision;
pub mod runtime;
pub mod server;
pub mod telemetry;
pub mod tensor;
pub mod trace;
pub mod weights;
