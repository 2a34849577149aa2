//! The windows of source pixels and their weights, per axis.

use super::super::Contraction;

/// Positions that are computed together; rows in memory are whole blocks long.
pub(in crate::image) const BLOCK: usize = 16;

/// The source samples that one output position looks at.
#[derive(Debug, Clone)]
pub(super) struct Window {
    /// Index of the first sample.
    pub(super) first: usize,
    /// Weight of every sample from the first on; none where the position lies outside the image.
    pub(super) weights: Vec<f32>,
}

/// Windows of `count` positions from `start` on in a side of `source` samples resized to `resized`.
///
/// `centre = (position + 0.5) * scale - 0.5` with `scale = source / resized`, support `max(scale, 1)`; samples
/// from `ceil(centre - support)` to `floor(centre + support)` that lie in the image; weight
/// `max(0, 1 - |centre - sample| / support)`. All in single precision.
pub(super) fn windows(
    source: usize,
    resized: usize,
    start: usize,
    count: usize,
    contraction: Contraction,
) -> impl Iterator<Item = Window> {
    let scale = source as f32 / resized as f32;
    let support = scale.max(1.0);
    (start..start + count).map(move |position| {
        let centre = contraction.multiply_add(position as f32 + 0.5, scale, -0.5);
        let first = ((centre - support).ceil() as i64).max(0);
        let last = ((centre + support).floor() as i64).min(source as i64 - 1);
        let weights = (first..=last)
            .map(|sample| (1.0 - (centre - sample as f32).abs() / support).max(0.0))
            .collect();
        Window {
            first: first as usize,
            weights,
        }
    })
}

impl Window {
    /// Whether `sample` is the last one.
    pub(super) fn is_last(&self, sample: usize) -> bool {
        sample + 1 == self.first + self.weights.len()
    }
}

/// Windows of columns, one tap after another, so that neighbouring positions lie side by side.
#[derive(Debug, Clone)]
pub(in crate::image) struct ColumnTaps {
    /// Positions per tap: the width, rounded up to whole blocks. Those beyond the width weigh nothing.
    pub(in crate::image) stride: usize,
    /// Source column of every tap and position.
    pub(in crate::image) columns: Vec<u32>,
    /// Its weight; zero where the window is narrower, which leaves the sums as they are.
    pub(in crate::image) weights: Vec<f32>,
    /// Most columns that a block of positions spans, all taps together.
    pub(in crate::image) block_span: usize,
}

impl ColumnTaps {
    pub(super) fn new(windows: &[Window], source: usize) -> Self {
        let stride = windows.len().next_multiple_of(BLOCK);
        let taps = windows
            .iter()
            .map(|window| window.weights.len())
            .max()
            .unwrap_or(0);
        let (mut columns, mut weights) = (vec![0; taps * stride], vec![0.0; taps * stride]);
        for x in 0..stride {
            let window = &windows[x.min(windows.len() - 1)];
            for tap in 0..taps {
                let at = tap * stride + x;
                columns[at] = (window.first + tap).min(source - 1) as u32;
                if x < windows.len() {
                    weights[at] = window.weights.get(tap).copied().unwrap_or(0.0);
                }
            }
        }
        // Columns rise from position to position and from tap to tap.
        let spans = (0..stride).step_by(BLOCK).map(|x| {
            let last = columns.get((taps.max(1) - 1) * stride + x + BLOCK - 1);
            let first = columns.get(x);
            first
                .zip(last)
                .map_or(0, |(&first, &last)| (last - first) as usize + 1)
        });
        let block_span = spans.max().unwrap_or(0);
        Self {
            stride,
            columns,
            weights,
            block_span,
        }
    }
}
