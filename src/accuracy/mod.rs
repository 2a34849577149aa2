//! How good results are: detections matched with the truth.
//!
//! [`evaluate`] matches by the distance of centres, as nuScenes does, and gives average precision in nuScenes' form and
//! in the plain one, recall by range, and the errors of heading and speed, for each class. Plain data in, plain data
//! out; [`read_frames`] reads both sides from JSON lines. [`evaluate_boxes`] does the same for boxes in images, matched by
//! overlap.
//!
//! - [`metrics`]: how far arrays and detections are from their reference
//! - [`Goldens`]: the arrays of a reference in a file; [`TapRegistry`] collects those of a run
//! - [`gates`]: thresholds that are frozen beside a test
//! - [`compare`]: the report of a comparison

mod average_precision;
mod boxes;
pub mod compare;
mod errors;
mod evaluate;
mod files;
pub mod gates;
mod goldens;
mod image_lines;
mod lines;
mod matching;
pub mod metrics;
mod taps;

pub use average_precision::{PrecisionRecall, interpolate};
pub use boxes::{BoxAccuracy, ImageBoxes, LabelledBox, evaluate_boxes};
pub use errors::{HeadingErrors, VelocityErrors};
pub use evaluate::{
    ClassAccuracy, DistanceAccuracy, Evaluation, EvaluationParams, EvaluationParamsError, RangeRecall,
    evaluate,
};
pub use goldens::{GoldenError, Goldens, save_goldens};
pub use image_lines::{ReportedImage, read_images};
pub use lines::{LineError, LineProblem, Side, read_frames};
pub use matching::{FrameObjects, SeenObject};
pub use taps::{TapRegistry, TapTwice};
