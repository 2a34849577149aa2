//! Suppression on the heatmap itself: only local maxima count, as in METEOR's box head.

use super::heads::HeadsError;
use super::rounded::sigmoid;

/// A local maximum of a heatmap.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Peak {
    /// Class.
    pub label: u32,
    /// Row and column of the cell.
    pub cell: [u32; 2],
    /// Sigmoid of the logit.
    pub score: f32,
}

/// What decides in [`heatmap_peaks`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PeakParams {
    /// Cells a side of the neighbourhood, odd: 3 in METEOR's deployed decoder, 5 in its later training code.
    pub kernel: usize,
    /// Scores have to be above this.
    pub score_threshold: f32,
    /// Only so many of the best are kept.
    pub most: usize,
}

impl Default for PeakParams {
    /// Those of METEOR's deployed decoder: 3, 0.3, 64.
    fn default() -> Self {
        Self {
            kernel: 3,
            score_threshold: 0.3,
            most: 64,
        }
    }
}

/// Writes the peaks of `logits` `[classes, rows, columns]` to `out`, best first, equal scores by class and cell.
///
/// A cell is a peak if no cell of its class around it has a larger logit; equal neighbours are all peaks, cells outside
/// the map never win. Logits are compared, as METEOR's deployed decoder does: its Python forms compare scores, where two
/// logits above about 17 have become equal. NaN is no peak and suppresses none; an infinite logit is no peak.
///
/// # Errors
/// [`HeadsError::Length`] unless there are `classes * rows * columns` logits.
pub fn heatmap_peaks(
    logits: &[f32],
    [classes, rows, columns]: [usize; 3],
    params: &PeakParams,
    out: &mut Vec<Peak>,
) -> Result<(), HeadsError> {
    out.clear();
    let cells = rows.saturating_mul(columns);
    if logits.len() != cells.saturating_mul(classes) {
        return Err(HeadsError::Length {
            head: "heatmap",
            got: logits.len(),
            expected: cells.saturating_mul(classes),
            channels: classes,
            cells,
        });
    }
    if cells == 0 {
        return Ok(());
    }
    let reach = params.kernel / 2;
    // A first look without exponentials; the score itself decides.
    let floor = super::rounded::logit_floor(params.score_threshold.clamp(0.0, 0.999_999));
    for (label, plane) in logits.chunks_exact(cells).enumerate() {
        for (cell, &logit) in plane.iter().enumerate() {
            if !(logit >= floor && logit < f32::INFINITY) {
                continue;
            }
            let score = sigmoid(logit);
            if score <= params.score_threshold {
                continue;
            }
            let (row, column) = (cell / columns, cell % columns);
            let mut around = (row.saturating_sub(reach)..=(row + reach).min(rows - 1)).flat_map(|r| {
                &plane[r * columns..][column.saturating_sub(reach)..=(column + reach).min(columns - 1)]
            });
            if around.all(|&other| other.is_nan() || other <= logit) {
                out.push(Peak {
                    label: label as u32,
                    cell: [row as u32, column as u32],
                    score,
                });
            }
        }
    }
    out.sort_unstable_by(|a, b| {
        b.score
            .total_cmp(&a.score)
            .then(a.label.cmp(&b.label))
            .then(a.cell.cmp(&b.cell))
    });
    out.truncate(params.most);
    Ok(())
}
