//! Plain result types that every sink understands. No room-specific knowledge, no I/O.

mod detections;

pub use detections::{Detection2D, Detections2D, label_name};
