//! Plain result types that every sink understands. No room-specific knowledge, no I/O.

mod detections;
mod objects;

pub use detections::{Detection2D, Detections, Detections2D, label_name};
pub use objects::{
    DetectedObject, DetectedObjects, ObjectLabel, OrientationAvailability, PoseVariance, Twist2D,
};
