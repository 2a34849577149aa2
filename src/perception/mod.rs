//! Models: prepare, forward, finish. [`HostModel`] and [`DeviceModel`] are what the runtime asks of one; [`Model`] is one
//! with its device, for programs that have no pipeline.
//!
//! Camera detectors: a network's head becomes [`Candidate`]s (one decoder per
//! head layout), and candidates become [`crate::outputs::Detections2D`] (suppression, mapping back to the
//! camera image, clipping). Slices in, values out; no device, no thread, no clock.

mod batches;
pub mod bundle;
mod call_params;
mod camera;
mod candidate;
pub mod centerpoint;
mod detector;
mod fastestdet_decode;
mod frame_set;
mod graph;
mod head;
mod input_schema;
mod labels;
mod model;
mod nms;
mod owned;
mod param_file;
mod select;
mod submit;
pub mod temporal;
mod trace;
mod yolox_decode;
mod yolox_params;

pub use call_params::{CallParam, CallParamError, CallParamKind, CallParams, CallValue};
pub use camera::{CameraLoadError, CameraSource, LoadedCamera};
pub use candidate::{Candidate, DecodeCounts, HeadError, MAX_COORDINATE_PX};
pub use detector::Detector;
pub use fastestdet_decode::{FastestDetHead, ScoreRule};
pub use frame_set::{FrameSet, MemberData, SetMember};
pub use graph::{DetectorGraph, GraphError, PixelInput};
pub use head::{Head, HeadKind, Thresholds};
pub use input_schema::{InputArray, InputError, InputSchema};
pub use labels::{COCO_80, LabelError, MAX_LABEL_FILE_BYTES, coco_80, parse_labels, read_labels};
pub use model::{
    DeviceModel, DeviceWeights, HostModel, Picture, Placement, PrepareError, PreparedFrame, Sensor,
    SensorData, Sweep,
};
pub use nms::{BoxExtent, NmsCounts, NmsMode, NmsParams, iou, nms};
pub use owned::{Model, ModelError, ModelOptions, ModelParts, Outcome, RunTiming, Taken};
pub use param_file::{MAX_PARAM_FILE_BYTES, ParamError, ParamOrigin};
pub use select::{SelectionCounts, SelectionParams, select};
pub use submit::{BankUse, FrameKey, SubmitError, Submitted};
pub use trace::ModelTrace;
pub use yolox_decode::{YOLOX_STRIDES, YoloxHead};
pub use yolox_params::YoloxParams;
