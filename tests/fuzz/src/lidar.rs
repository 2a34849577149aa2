//! Columns of points alone, which is what the readers of clouds need of the room.

#[path = "../../../src/lidar/cloud.rs"]
mod cloud;

pub use cloud::{Columns, PointCloud};
