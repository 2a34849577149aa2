//! Detectors: prepare, forward, finish.
//!
//! What is here are the pure parts of finishing: a network's head becomes [`Candidate`]s (one decoder per
//! head layout), and candidates become [`crate::outputs::Detections2D`] (suppression, mapping back to the
//! camera image, clipping). Slices in, values out; no device, no thread, no clock.

mod candidate;
mod detector;
mod fastestdet_decode;
mod head;
mod labels;
mod nms;
mod select;
mod trace;
mod yolox_decode;

pub use candidate::{Candidate, DecodeCounts, HeadError, MAX_COORDINATE_PX};
pub use detector::Detector;
pub use fastestdet_decode::{FastestDetHead, ScoreRule};
pub use head::{Head, HeadKind, Thresholds};
pub use labels::{COCO_80, LabelError, MAX_LABEL_FILE_BYTES, coco_80, parse_labels, read_labels};
pub use nms::{BoxExtent, NmsCounts, NmsMode, NmsParams, iou, nms};
pub use select::{SelectionCounts, SelectionParams, select};
pub use trace::{DetectorGraph, DetectorTrace, GraphError};
pub use yolox_decode::{YOLOX_STRIDES, YoloxHead};
