//! LiDAR on the host: sweeps in one frame, pillars and their features, decoding of heads, suppression.
//!
//! Plain functions on plain data. What decides a cell or a threshold is computed in float32 in the order of Autoware's
//! deployed kernels; what is left to chance there (point shuffle, slot and pillar order, unstable sorts) is a fixed,
//! documented rule here.

mod affine;
mod canvas;
mod cloud;
mod densify;
mod features;
mod geometry;
mod grid;
mod hygiene;
mod pillars;
mod points;
mod simd_cells;
mod streams;

pub use affine::Affine3f;
pub use canvas::{CanvasError, canvas_gather_index, scatter_canvas};
pub use cloud::{Columns, PointCloud};
pub use densify::{
    DensifierState, DensifyConfig, DensifyError, DensifyInfo, Enqueued, PastSweep, PointLayout,
    SweepDensifier, SweepPoints, densify_sweeps,
};
pub use features::{EncoderInput, FeatureError, FeatureRows, SlotHistory, decorate};
pub use geometry::{
    RigidTransform, TransformError, mmdet_yaw_to_ros, quaternion_xyzw_from_yaw, ros_yaw_to_mmdet, wrap_angle,
    yaw_from_quaternion_xyzw,
};
pub use grid::{CellOrder, GridError, PillarCell, PillarGridSpec};
pub use hygiene::{finite_rows, nonzero_rows, range_mask, seeded_permutation};
pub use pillars::{PillarSet, PillarStats, assign_pillars};
pub use points::{ColumnsError, MAX_POINT_FEATURES, PointColumns};
pub use streams::StreamDensifiers;
