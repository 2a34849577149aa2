//! LiDAR on the host: sweeps in one frame, pillars and their features, decoding of heads, suppression.
//!
//! Plain functions on plain data. What decides a cell or a threshold is computed in float32 in the order of Autoware's
//! deployed kernels; what is left to chance there (point shuffle, slot and pillar order, unstable sorts) is a fixed,
//! documented rule here.

mod affine;
mod bevfusion_decode;
mod boxes;
mod canvas;
mod cloud;
mod decode;
mod decode_config;
mod densify;
mod features;
mod geometry;
mod grid;
mod heads;
mod hygiene;
mod neighbours;
mod nms;
mod nms_pcdet;
mod objects;
mod peaks;
mod pillars;
mod points;
mod remap;
mod rotated;
mod rounded;
mod simd_cells;
pub mod sparse;
mod streams;
mod transfusion_decode;

pub use affine::Affine3f;
pub use bevfusion_decode::{BevFusionDecode, BevFusionParams};
pub use boxes::{Box3d, Box3dVariance, DecodeCounts, sort_by_score};
pub use canvas::{CanvasError, canvas_gather_index, scatter_canvas};
pub use cloud::{Columns, PointCloud};
pub use decode::{CenterHeadDecode, CenterHeadParams, DecodedCell};
pub use decode_config::{DecodeConfigError, Gates};
pub use densify::{
    DensifierState, DensifyConfig, DensifyError, DensifyInfo, Enqueued, PastSweep, PointLayout,
    SweepDensifier, SweepPoints, densify_sweeps,
};
pub use features::{EncoderInput, FeatureError, FeatureRows, SlotFill, SlotHistory, decorate};
pub use geometry::{
    RigidTransform, TransformError, mmdet_yaw_to_ros, quaternion_xyzw_from_yaw, ros_yaw_to_mmdet, wrap_angle,
    yaw_from_quaternion_xyzw,
};
pub use grid::{CellOrder, GridError, PillarCell, PillarGridSpec};
pub use heads::{CenterHeads, HeadChannels, HeadPlanes, HeadValues, HeadView, HeadsError, head_values_at};
pub use hygiene::{finite_rows, nonzero_rows, range_mask, seeded_permutation};
pub use nms::{IouBevNmsParams, NmsParamsError, NmsWorkspace, bev_box, circle_nms, iou_bev_nms};
pub use nms_pcdet::{PcdetBox, PcdetNmsParams, pcdet_iou_bev, pcdet_nms};
pub use objects::{ObjectRules, YawRule, is_car_like, semantic_label, to_detected_objects};
pub use peaks::{Peak, PeakParams, heatmap_peaks};
pub use pillars::{PillarSet, PillarStats, assign_pillars};
pub use points::{ColumnsError, MAX_POINT_FEATURES, PointColumns};
pub use remap::{ClassRemapper, RemapError, RemapParams};
pub use rotated::{BevBox, ConvexPolygon, Point2, bev_box_corners, clip_convex, iou_bev, polygon_area};
pub use streams::StreamDensifiers;
pub use transfusion_decode::{TransFusionDecode, TransFusionParams};
