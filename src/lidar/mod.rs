//! LiDAR on the host: sweeps in one frame, pillars and their features, decoding of heads, suppression.
//!
//! Plain functions on plain data. What decides a cell or a threshold is computed in float32 in the order of Autoware's
//! deployed kernels; what is left to chance there (point shuffle, slot and pillar order, unstable sorts) is a fixed,
//! documented rule here.

mod bevfusion_decode;
mod boxes;
mod cloud;
mod decode;
mod decode_config;
mod heads;
mod neighbours;
mod nms;
mod nms_pcdet;
mod objects;
mod peaks;
mod remap;
mod rotated;
mod rounded;
mod transfusion_decode;

pub use bevfusion_decode::{BevFusionDecode, BevFusionParams};
pub use boxes::{Box3d, Box3dVariance, DecodeCounts, sort_by_score};
pub use cloud::{Columns, PointCloud};
pub use decode::{CenterHeadDecode, CenterHeadParams, DecodedCell};
pub use decode_config::{DecodeConfigError, Gates};
pub use heads::{CenterHeads, HeadChannels, HeadPlanes, HeadValues, HeadView, HeadsError, head_values_at};
pub use nms::{IouBevNmsParams, NmsParamsError, NmsWorkspace, bev_box, circle_nms, iou_bev_nms};
pub use nms_pcdet::{PcdetBox, PcdetNmsParams, pcdet_iou_bev, pcdet_nms};
pub use objects::{ObjectRules, YawRule, is_car_like, semantic_label, to_detected_objects};
pub use peaks::{Peak, PeakParams, heatmap_peaks};
pub use remap::{ClassRemapper, RemapError, RemapParams};
pub use rotated::{BevBox, ConvexPolygon, Point2, bev_box_corners, clip_convex, iou_bev, polygon_area};
pub use transfusion_decode::{TransFusionDecode, TransFusionParams};
