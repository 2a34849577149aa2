//! Parameters that may be set for one frame: those that may change while a model runs, as single numbers.

use super::CenterPointParams;
use crate::perception::param_file::ParamError;
use crate::perception::{CallParam, CallParamKind, CallParams, CallValue};

/// Name, least and greatest value, the numbers that hold now, and what it does.
type Declared = (
    &'static str,
    f64,
    Option<f64>,
    fn(&CenterPointParams) -> Vec<f64>,
    &'static str,
);

/// Names are those of [`CenterPointParams::set`].
const DECLARED: [Declared; 5] = [
    (
        "score_threshold",
        0.0,
        // Below 1, as in the files.
        Some(1.0 - f64::EPSILON),
        |params| params.score_thresholds.concat(),
        "lowest score of every class at every distance",
    ),
    (
        "yaw_norm_thresholds",
        0.0,
        Some(1.0 - f64::EPSILON),
        |params| params.yaw_norm_thresholds.clone(),
        "shortest direction vector of every class",
    ),
    (
        "circle_nms_dist_threshold",
        // The files take anything above 0.
        0.001,
        None,
        |params| vec![params.circle_nms_dist_threshold_m],
        "metres within which only the best object stays",
    ),
    (
        "iou_nms_search_distance_2d",
        0.0,
        None,
        |params| vec![params.iou_nms_search_distance_m],
        "metres within which objects are compared",
    ),
    (
        "iou_nms_threshold",
        0.0,
        Some(1.0),
        |params| vec![params.iou_nms_threshold],
        "largest overlap of two objects",
    ),
];

/// What a caller may set. A default is told where it is one number.
pub(in crate::perception::centerpoint) fn declared(params: &CenterPointParams) -> Vec<CallParam> {
    let declared = DECLARED.iter().map(|&(name, min, max, now, about)| {
        let now = now(params);
        let one = now
            .first()
            .filter(|first| now.iter().all(|value| value == *first));
        CallParam {
            name,
            kind: CallParamKind::Float { min: Some(min), max },
            default: one.map(|&value| CallValue::Float(value)),
            about,
        }
    });
    declared.collect()
}

/// The parameters with those of a call.
///
/// # Errors
/// As [`CenterPointParams::set`].
pub(in crate::perception::centerpoint) fn changed(
    params: &CenterPointParams,
    call: &CallParams,
) -> Result<CenterPointParams, ParamError> {
    let mut changed = params.clone();
    for (name, _) in call.iter() {
        if let Some(value) = call.number(name) {
            changed.set(name, value)?;
        }
    }
    Ok(changed)
}
