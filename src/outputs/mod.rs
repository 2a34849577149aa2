//! Plain result types that every sink understands. No room-specific knowledge, no I/O.

mod boxes;
mod detections;
mod objects;
mod segmentation;
mod trajectory;

pub use boxes::{Detection3D, Detections2DWithMasks, Detections3D};
pub use detections::{Detection2D, Detections, Detections2D, label_name};
pub use objects::{
    DetectedObject, DetectedObjects, ObjectLabel, OrientationAvailability, PoseVariance, Twist2D,
};
pub use segmentation::{Mask2D, Segmentation3D, class_counts};
pub use trajectory::Trajectory;
