//! The tables of a bilinear resize: which two samples every output position blends, and how much of each.
//!
//! The arithmetic is that of OpenCV 4.x `resize` with `INTER_LINEAR` on 8-bit images, found in its public
//! source and confirmed bit for bit by `tests/images/image.rs`: positions in double, rounded to float; fractions in
//! float; weights in 11-bit fixed point, rounded half to even.

/// Fixed-point one: weights of a sample pair add up to about this.
pub(super) const WEIGHT_ONE: i16 = 1 << 11;

/// Left neighbour and weights of every output column. The right neighbour is the next pixel; where there is
/// none the left one is the last pixel and the right weight is 0.
#[derive(Debug, Clone)]
pub(super) struct ColumnTaps {
    /// Index of the left source pixel, never falling from one column to the next.
    pub(super) left: Vec<u32>,
    /// Weights of the left and the right pixel.
    pub(super) weights: Vec<[i16; 2]>,
}

/// The two source rows and their weights for every output row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowTap {
    /// Upper and lower source row; both are the same at the border.
    pub(super) rows: [usize; 2],
    /// Weights of the upper and the lower row.
    pub(super) weights: [i16; 2],
}

/// Where an output position lies between the source samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alignment {
    /// Pixel centres fall on each other: `INTER_LINEAR`.
    Centres,
    /// Output cells that lie within a source cell take its sample: `INTER_AREA` where a side grows.
    Cells,
}

impl ColumnTaps {
    /// Taps from `source` to `target` columns, both at least 1.
    pub(super) fn new(source: usize, target: usize, alignment: Alignment) -> Self {
        let last = source as i64 - 1;
        let (left, weights) = positions(source, target, alignment)
            .map(|(index, fraction)| {
                if (0..last).contains(&index) {
                    (index as u32, weights(fraction))
                } else {
                    (index.clamp(0, last) as u32, [WEIGHT_ONE, 0])
                }
            })
            .unzip();
        Self { left, weights }
    }
}

/// Row taps from `source` to `target` rows, both at least 1. Unlike columns, rows outside the image keep
/// their fraction and blend the border row with itself, which can round differently from taking it whole.
pub(super) fn row_taps(source: usize, target: usize, alignment: Alignment) -> Vec<RowTap> {
    let last = source as i64 - 1;
    positions(source, target, alignment)
        .map(|(index, fraction)| RowTap {
            rows: [index, index + 1].map(|row| row.clamp(0, last) as usize),
            weights: weights(fraction),
        })
        .collect()
}

/// Sample index and fraction of every output position.
fn positions(source: usize, target: usize, alignment: Alignment) -> impl Iterator<Item = (i64, f32)> {
    // The scale is the inverse of an inverse on purpose: source / target may differ in the last bit.
    let inverse = target as f64 / source as f64;
    let scale = 1.0 / inverse;
    (0..target).map(move |i| match alignment {
        Alignment::Centres => {
            let position = ((i as f64 + 0.5) * scale - 0.5) as f32;
            let floor = position.floor();
            (floor as i64, position - floor)
        }
        Alignment::Cells => {
            let index = (i as f64 * scale).floor();
            let fraction = ((i + 1) as f64 - (index + 1.0) * inverse) as f32;
            let fraction = if fraction <= 0.0 {
                0.0
            } else {
                fraction - fraction.floor()
            };
            (index as i64, fraction)
        }
    })
}

fn weights(fraction: f32) -> [i16; 2] {
    [1.0 - fraction, fraction].map(|part| (part * f32::from(WEIGHT_ONE)).round_ties_even() as i16)
}
