//! Numbers that say how far a result is from its reference, all in float64.
//!
//! Arrays come as [`Values`] (any shape, float64; [`values_of`] makes them of a host tensor). A pair of arrays that cannot
//! be compared is a [`MetricError`], never a number. What is compared but cannot be told (a correlation with NaN in it) is
//! NaN, which no gate lets pass.

mod agreement;
mod centres;
mod correlation;
mod error;
mod greedy;
mod named;
mod overlap;
mod topk;
mod trajectory;
mod values;

pub use agreement::{argmax_agreement, label_agreement};
pub use centres::{Centres, DetectionMatch, MatchOptions, match_detections};
pub use correlation::{ErrorStats, ValidRows, error_stats, masked_pcc, pcc, valid_row_pcc};
pub use error::MetricError;
pub(crate) use greedy::greedy;
pub use named::{Direction, METRICS, Metric, direction_of, known_directions};
pub(crate) use overlap::overlap;
pub use overlap::{MeanIou, box_iou_xyxy, mask_iou, mean_iou};
pub use topk::{topk_overlap, topk_set_overlap};
pub use trajectory::{DisplacementErrors, ade_fde};
pub use values::{Mask, Values, values_of};
