//! The windows of source pixels and their weights, per axis.

use super::super::Contraction;

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

/// Windows of columns, one tap after another, so that neighbouring positions lie side by side.
#[derive(Debug, Clone)]
pub(super) struct ColumnTaps {
    /// Positions per tap: the width, rounded up to whole blocks. Those beyond the width weigh nothing.
    pub(super) stride: usize,
    /// Source column of every tap and position.
    pub(super) columns: Vec<u32>,
    /// Its weight; zero where the window is narrower, which leaves the sums as they are.
    pub(super) weights: Vec<f32>,
}

impl ColumnTaps {
    pub(super) fn new(windows: &[Window], source: usize, block: usize) -> Self {
        let stride = windows.len().next_multiple_of(block);
        let taps = windows
            .iter()
            .map(|window| window.weights.len())
            .max()
            .unwrap_or(0);
        let (mut columns, mut weights) = (vec![0; taps * stride], vec![0.0; taps * stride]);
        for (x, window) in windows.iter().enumerate() {
            for tap in 0..taps {
                let at = tap * stride + x;
                columns[at] = (window.first + tap).min(source - 1) as u32;
                weights[at] = window.weights.get(tap).copied().unwrap_or(0.0);
            }
        }
        Self {
            stride,
            columns,
            weights,
        }
    }
}
