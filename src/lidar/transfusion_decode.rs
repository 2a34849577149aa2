//! Boxes from the proposals of a TransFusion head, as Autoware's `lidar_transfusion` decodes them.

use super::boxes::{Box3d, DecodeCounts};
use super::decode_config::{DecodeConfigError, coerced};
use super::heads::HeadsError;
use super::rounded::{atan2, exp};

/// Rows of the box output that are needed: x, y, z and the logarithms of width, length, height.
const BOX_ROWS: usize = 6;

/// Rows of the box output with the speed in x and y.
const BOX_ROWS_WITH_SPEED: usize = 8;

/// What a [`TransFusionDecode`] is made of.
#[derive(Debug, Clone, Copy)]
pub struct TransFusionParams<'a> {
    /// Size of a voxel in x and y in metres.
    pub voxel_size_m: [f64; 2],
    /// Lower corner of the range in x and y in metres.
    pub range_min_m: [f64; 2],
    /// Voxels a cell of the head's map, along one side: 4.
    pub out_size_factor: usize,
    /// Proposals of a frame.
    pub proposals: usize,
    /// Scores have to be above this; 0.2 where it is not above 0, as Autoware has it.
    pub score_threshold: f64,
    /// Shortest heading vector of each class, 0 outside 0 to below 1.
    pub yaw_norm_thresholds: &'a [f64],
}

/// Decoder of a TransFusion head.
///
/// Label and score are the first class with the largest value (probabilities already, no sigmoid). A proposal is kept if
/// `sqrt(sin*sin + cos*cos)` reaches the threshold of its class and the score is above its own.
/// `x = (x' * factor) * voxel + range_min`, sizes are exponentials, yaw = `atan2(sin, cos)`; float32 throughout. Proposals
/// with NaN or infinity are dropped and counted.
#[derive(Debug, Clone, PartialEq)]
pub struct TransFusionDecode {
    voxel_m: [f32; 2],
    range_min_m: [f32; 2],
    factor: f32,
    proposals: usize,
    score_threshold: f32,
    yaw_norm: Vec<f32>,
}

impl TransFusionDecode {
    /// A decoder for as many classes as there are yaw thresholds.
    ///
    /// # Errors
    /// [`DecodeConfigError::NoClasses`], [`DecodeConfigError::Grid`] without proposals.
    pub fn new(params: &TransFusionParams<'_>) -> Result<Self, DecodeConfigError> {
        if params.yaw_norm_thresholds.is_empty() {
            return Err(DecodeConfigError::NoClasses);
        }
        if params.proposals == 0 || u32::try_from(params.proposals).is_err() {
            return Err(DecodeConfigError::Grid {
                x: params.proposals,
                y: 1,
            });
        }
        let score_threshold = params.score_threshold as f32;
        Ok(Self {
            voxel_m: params.voxel_size_m.map(|v| v as f32),
            range_min_m: params.range_min_m.map(|v| v as f32),
            factor: params.out_size_factor as f32,
            proposals: params.proposals,
            score_threshold: if score_threshold > 0.0 {
                score_threshold
            } else {
                0.2
            },
            yaw_norm: params.yaw_norm_thresholds.iter().map(|&v| coerced(v)).collect(),
        })
    }

    /// Appends the boxes of a frame to `out`, in the order of proposals. `scores` is `[classes, proposals]`, `boxes`
    /// `[6 or 8, proposals]` (x, y, z, width, length, height, speed x, speed y), `rotations` `[2, proposals]` (sine,
    /// cosine).
    ///
    /// # Errors
    /// [`HeadsError::Length`].
    pub fn decode(
        &self,
        scores: &[f32],
        boxes: &[f32],
        rotations: &[f32],
        out: &mut Vec<Box3d>,
    ) -> Result<DecodeCounts, HeadsError> {
        let n = self.proposals;
        let classes = self.yaw_norm.len();
        let with_speed = boxes.len() == BOX_ROWS_WITH_SPEED.saturating_mul(n);
        let box_rows = if with_speed { BOX_ROWS_WITH_SPEED } else { BOX_ROWS };
        for (head, values, channels) in [
            ("cls_score", scores, classes),
            ("bbox_pred", boxes, box_rows),
            ("dir_cls_pred", rotations, 2),
        ] {
            expect(head, values, channels, n)?;
        }
        let mut counts = DecodeCounts {
            seen: n,
            ..DecodeCounts::default()
        };
        for i in 0..n {
            let mut label = 0;
            let mut finite = true;
            for class in 0..classes {
                let score = scores[class * n + i];
                finite &= score.is_finite();
                if score > scores[label * n + i] {
                    label = class;
                }
            }
            let score = scores[label * n + i];
            let (sin, cos) = (rotations[i], rotations[n + i]);
            let yaw_norm = (sin * sin + cos * cos).sqrt();
            if !(finite && yaw_norm.is_finite()) {
                counts.non_finite += 1;
            } else if yaw_norm < self.yaw_norm[label] {
                counts.weak_heading += 1;
            } else if score <= self.score_threshold {
                counts.below_score += 1;
            } else {
                let row = |r: usize| boxes[r * n + i];
                let decoded = Box3d {
                    label: label as u32,
                    score,
                    position_m: [
                        row(0) * self.factor * self.voxel_m[0] + self.range_min_m[0],
                        row(1) * self.factor * self.voxel_m[1] + self.range_min_m[1],
                        row(2),
                    ],
                    size_m: [exp(row(4)), exp(row(3)), exp(row(5))],
                    yaw_rad: atan2(sin, cos),
                    velocity_mps: if with_speed { [row(6), row(7)] } else { [0.0; 2] },
                    cell: i as u32,
                    ..Box3d::default()
                };
                if (0..box_rows).all(|r| row(r).is_finite()) && decoded.is_finite() {
                    counts.kept += 1;
                    out.push(decoded);
                } else {
                    counts.non_finite += 1;
                }
            }
        }
        Ok(counts)
    }
}

/// That an output has its `[channels, proposals]` values.
pub(super) fn expect(
    head: &'static str,
    values: &[f32],
    channels: usize,
    proposals: usize,
) -> Result<(), HeadsError> {
    let expected = channels.saturating_mul(proposals);
    if values.len() == expected {
        return Ok(());
    }
    Err(HeadsError::Length {
        head,
        got: values.len(),
        expected,
        channels,
        cells: proposals,
    })
}
