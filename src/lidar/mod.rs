//! LiDAR on the host: sweeps in one frame, pillars and their features, decoding of heads, suppression.
//!
//! Plain functions on plain data. What decides a cell or a threshold is computed in float32 in the order of Autoware's
//! deployed kernels; what is left to chance there (point shuffle, slot and pillar order, unstable sorts) is a fixed,
//! documented rule here.

mod cloud;

pub use cloud::{Columns, PointCloud};
