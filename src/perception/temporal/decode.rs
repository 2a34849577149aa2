//! From the networks' outputs to objects.

use std::sync::{Arc, Mutex, PoisonError};

use super::{BEV_CELLS, BEV_RANGE_M, BEV_SIDE, MAX_SCORE_THRESHOLD, TemporalError, TemporalOptions};
use crate::lidar::{
    Box3d, CenterHeadDecode, CenterHeadParams, CenterHeads, Gates, HeadChannels, NmsWorkspace, ObjectRules,
    YawRule, circle_nms, sort_by_score, to_detected_objects,
};
use crate::outputs::{DetectedObjects, Detections};
use crate::perception::{CallParam, CallParamKind, CallParams, CallValue, HeadError};

/// Names of the classes, in the order of the heads.
pub const CLASSES: [&str; 3] = ["CAR", "TRUCK", "PEDESTRIAN"];

/// Values of a query in the output: class logits, x, y, z in metres, logarithms of length, width and height, sine and
/// cosine of the heading, speed in x and y.
pub const QUERY_COLUMNS: usize = CLASSES.len() + 10;

/// Metres within which only the best object of a frame stays.
const CIRCLE_M: f32 = 1.0;

/// The one parameter that a caller may set for a frame.
const SCORE_THRESHOLD: &str = "score_threshold";

/// What both models do with boxes.
#[derive(Debug)]
pub(super) struct Decoder {
    name: Arc<str>,
    score_threshold: f32,
    rules: ObjectRules,
    spare: Mutex<Vec<(Vec<Box3d>, NmsWorkspace)>>,
}

impl Decoder {
    pub(super) fn new(options: &TemporalOptions) -> Self {
        Self {
            name: Arc::clone(&options.name),
            score_threshold: options.score_threshold,
            rules: ObjectRules::new(&CLASSES, YawRule::CenterPoint, true),
            spare: Mutex::default(),
        }
    }

    pub(super) const fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn call_params(&self) -> Vec<CallParam> {
        vec![CallParam {
            name: SCORE_THRESHOLD,
            kind: CallParamKind::Float {
                min: Some(0.0),
                max: Some(f64::from(MAX_SCORE_THRESHOLD)),
            },
            default: Some(CallValue::Float(f64::from(self.score_threshold))),
            about: "lowest score of every class",
        }]
    }

    pub(super) fn threshold(&self, params: &CallParams) -> f32 {
        let given = params.number(SCORE_THRESHOLD);
        given.map_or(self.score_threshold, |value| value as f32)
    }

    /// The objects of the boxes that `decode` appends.
    pub(super) fn objects(
        &self,
        frame_id: &Arc<str>,
        decode: impl FnOnce(&mut Vec<Box3d>) -> Result<(), HeadError>,
    ) -> Result<Detections, HeadError> {
        let spare = || self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut boxes, mut nms) = spare().pop().unwrap_or_default();
        boxes.clear();
        let decoded = decode(&mut boxes);
        let mut objects = Vec::new();
        if decoded.is_ok() {
            sort_by_score(&mut boxes);
            circle_nms(&mut boxes, CIRCLE_M, &mut nms);
            to_detected_objects(&boxes, &self.rules, &mut objects);
        }
        spare().push((boxes, nms));
        decoded.map(|()| {
            Detections::Objects(DetectedObjects {
                objects,
                model: Arc::clone(&self.name),
                frame_id: Arc::clone(frame_id),
            })
        })
    }
}

/// The decoder of the ring's centre head.
pub(super) fn centre_decoder(options: &TemporalOptions) -> Result<CenterHeadDecode, TemporalError> {
    let fail = |error: &dyn std::fmt::Display| TemporalError::new(&options.name, error);
    let threshold = f64::from(options.score_threshold);
    let gates = Gates::new(
        CLASSES.len(),
        &[f64::from(BEV_RANGE_M) * 2.0],
        &[threshold; CLASSES.len()],
        &[0.0; CLASSES.len()],
    )
    .map_err(|error| fail(&error))?;
    let cell_m = 2.0 * f64::from(BEV_RANGE_M) / BEV_SIDE as f64;
    let params = CenterHeadParams {
        voxel_size_m: [cell_m; 2],
        range_min_m: [-f64::from(BEV_RANGE_M); 2],
        downsample_factor: BEV_SIDE / BEV_CELLS,
        grid: [BEV_CELLS; 2],
        has_variance: false,
        has_twist: true,
    };
    CenterHeadDecode::new(&params, gates).map_err(|error| fail(&error))
}

/// Appends the boxes of a centre head's rows.
pub(super) fn decode_cells(
    decoder: &CenterHeadDecode,
    output: &[f32],
    boxes: &mut Vec<Box3d>,
) -> Result<(), HeadError> {
    let channels = HeadChannels::centerpoint(CLASSES.len(), false);
    let cells = BEV_CELLS * BEV_CELLS;
    let length = |_| HeadError::Length {
        expected: cells * channels.columns(),
        found: output.len(),
    };
    let heads = CenterHeads::packed_rows(output, channels.columns(), channels, cells).map_err(length)?;
    decoder.decode(&heads, boxes).map_err(length)?;
    Ok(())
}

/// Appends the boxes of queries, rows of [`QUERY_COLUMNS`]: score `1 / (1 + exp(-logit))` of the best class (the first of
/// equals), sizes by `exp`, yaw by `atan2`. Queries below the threshold or with a value that is no number are left out.
pub(super) fn decode_queries(
    output: &[f32],
    queries: usize,
    threshold: f32,
    boxes: &mut Vec<Box3d>,
) -> Result<(), HeadError> {
    if output.len() != queries * QUERY_COLUMNS {
        return Err(HeadError::Length {
            expected: queries * QUERY_COLUMNS,
            found: output.len(),
        });
    }
    for (query, row) in output.chunks_exact(QUERY_COLUMNS).enumerate() {
        let (logits, rest) = row.split_at(CLASSES.len());
        let mut label = 0;
        for (class, logit) in logits.iter().enumerate() {
            if *logit > logits[label] {
                label = class;
            }
        }
        let score = (1.0 / (1.0 + (-f64::from(logits[label])).exp())) as f32;
        let &[x, y, z, length, width, height, sin, cos, vx, vy] = rest else {
            continue;
        };
        let size_m = [length, width, height].map(|log| f64::from(log).exp() as f32);
        let all = row.iter().chain(&size_m);
        if !(score >= threshold && score > 0.0) || !all.into_iter().all(|value| value.is_finite()) {
            continue;
        }
        boxes.push(Box3d {
            label: label as u32,
            score,
            position_m: [x, y, z],
            size_m,
            yaw_rad: f64::from(sin).atan2(f64::from(cos)) as f32,
            velocity_mps: [vx, vy],
            cell: query as u32,
            ..Box3d::default()
        });
    }
    Ok(())
}
