//! A run beside what it should be: one row a value, with its gate.

mod arrays;
mod detections;
mod report;

pub use arrays::{Arrays, CompareOptions, compare_taps};
pub use detections::{DetectionLines, MatchLimits, compare_detections, detection_metric};
pub use report::{CompareReport, Gates, TapComparison};
