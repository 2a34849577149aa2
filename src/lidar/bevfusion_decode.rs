//! Boxes from the proposals of a BEVFusion head, as Autoware's `autoware_bevfusion` decodes them.

use super::boxes::{Box3d, DecodeCounts};
use super::decode_config::{DecodeConfigError, Gates};
use super::heads::HeadsError;
use super::rounded::{atan2, exp};
use super::transfusion_decode::expect;

/// Rows of the box output: x, y, z, the logarithms of length, width, height, sine, cosine, speed x, speed y.
const BOX_ROWS: usize = 10;

/// What a [`BevFusionDecode`] is made of.
#[derive(Debug, Clone, Copy)]
pub struct BevFusionParams {
    /// Size of a voxel in x and y in metres.
    pub voxel_size_m: [f64; 2],
    /// Lower corner of the range in x and y in metres.
    pub range_min_m: [f64; 2],
    /// Voxels a cell of the head's map, along one side: 8.
    pub out_size_factor: usize,
    /// Proposals of a frame.
    pub proposals: usize,
}

/// Decoder of a BEVFusion head.
///
/// Of each proposal, in float32 and in this order: dropped unless `sqrt(sin*sin + cos*cos)` reaches the threshold of its
/// class; `x = (x' * factor) * voxel + range_min`; bin = the first whose squared limit is above `x*x + y*y`, beyond the
/// last one dropped; dropped unless the score is above 0 and reaches the threshold of bin and class. Sizes are
/// exponentials (length first, unlike the other heads), yaw = `atan2(sin, cos)`. Proposals with NaN, infinity or a class
/// that is not there are dropped and counted.
#[derive(Debug, Clone, PartialEq)]
pub struct BevFusionDecode {
    gates: Gates,
    /// Squared in float32.
    bin_limits_m2: Vec<f32>,
    voxel_m: [f32; 2],
    range_min_m: [f32; 2],
    factor: f32,
    proposals: usize,
}

impl BevFusionDecode {
    /// A decoder.
    ///
    /// # Errors
    /// [`DecodeConfigError::Grid`] without proposals.
    pub fn new(params: &BevFusionParams, gates: Gates) -> Result<Self, DecodeConfigError> {
        if params.proposals == 0 || u32::try_from(params.proposals).is_err() {
            return Err(DecodeConfigError::Grid {
                x: params.proposals,
                y: 1,
            });
        }
        Ok(Self {
            bin_limits_m2: gates.bin_limits_m().iter().map(|limit| limit * limit).collect(),
            gates,
            voxel_m: params.voxel_size_m.map(|v| v as f32),
            range_min_m: params.range_min_m.map(|v| v as f32),
            factor: params.out_size_factor as f32,
            proposals: params.proposals,
        })
    }

    /// Appends the boxes of a frame to `out`, in the order of proposals. `labels` and `scores` have one value a proposal,
    /// `boxes` is `[10, proposals]`.
    ///
    /// # Errors
    /// [`HeadsError::Length`].
    pub fn decode(
        &self,
        labels: &[i64],
        scores: &[f32],
        boxes: &[f32],
        out: &mut Vec<Box3d>,
    ) -> Result<DecodeCounts, HeadsError> {
        let n = self.proposals;
        if labels.len() != n {
            return Err(HeadsError::Length {
                head: "label_pred",
                got: labels.len(),
                expected: n,
                channels: 1,
                cells: n,
            });
        }
        expect("score", scores, 1, n)?;
        expect("bbox_pred", boxes, BOX_ROWS, n)?;
        let mut counts = DecodeCounts {
            seen: n,
            ..DecodeCounts::default()
        };
        for (i, (&label, &score)) in labels.iter().zip(scores).enumerate() {
            let row = |r: usize| boxes[r * n + i];
            let Some(label) = usize::try_from(label).ok().filter(|&l| l < self.gates.classes()) else {
                counts.bad_label += 1;
                continue;
            };
            let (sin, cos) = (row(6), row(7));
            let yaw_norm = (sin * sin + cos * cos).sqrt();
            let x = row(0) * self.factor * self.voxel_m[0] + self.range_min_m[0];
            let y = row(1) * self.factor * self.voxel_m[1] + self.range_min_m[1];
            if ![yaw_norm, score, x, y].iter().all(|v| v.is_finite()) {
                counts.non_finite += 1;
                continue;
            }
            if yaw_norm < self.gates.yaw_norm_thresholds()[label] {
                counts.weak_heading += 1;
                continue;
            }
            let squared = x * x + y * y;
            let Some(bin) = self.bin_limits_m2.iter().position(|&limit| squared < limit) else {
                counts.out_of_range += 1;
                continue;
            };
            if score <= 0.0 || score < self.gates.score_threshold(bin, label) {
                counts.below_score += 1;
                continue;
            }
            let decoded = Box3d {
                label: label as u32,
                score,
                position_m: [x, y, row(2)],
                size_m: [exp(row(3)), exp(row(4)), exp(row(5))],
                yaw_rad: atan2(sin, cos),
                velocity_mps: [row(8), row(9)],
                cell: i as u32,
                ..Box3d::default()
            };
            if (0..BOX_ROWS).all(|r| row(r).is_finite()) && decoded.is_finite() {
                counts.kept += 1;
                out.push(decoded);
            } else {
                counts.non_finite += 1;
            }
        }
        Ok(counts)
    }
}
