//! Which points are worth keeping, and in which order chance would take them.

use super::cloud::Columns;
use super::points::{ColumnsError, checked_len};

/// Marks the points whose coordinates are all finite. Returns how many.
///
/// # Errors
/// [`ColumnsError`] for columns of different lengths.
pub fn finite_rows(columns: &Columns<'_>, mask: &mut Vec<bool>) -> Result<usize, ColumnsError> {
    mark(columns, mask, |[x, y, z]| {
        x.is_finite() && y.is_finite() && z.is_finite()
    })
}

/// Marks the points that are not exactly at the origin, where drivers put what did not come back. Returns how many.
///
/// # Errors
/// [`ColumnsError`] for columns of different lengths.
pub fn nonzero_rows(columns: &Columns<'_>, mask: &mut Vec<bool>) -> Result<usize, ColumnsError> {
    mark(columns, mask, |point| point != [0.0; 3])
}

/// Marks the points inside a box in metres: on each axis `min <= v < max`, so never one that is NaN. Returns how many.
///
/// # Errors
/// [`ColumnsError`] for columns of different lengths.
pub fn range_mask(
    columns: &Columns<'_>,
    min_m: [f32; 3],
    max_m: [f32; 3],
    mask: &mut Vec<bool>,
) -> Result<usize, ColumnsError> {
    mark(columns, mask, |point| {
        (0..3).all(|axis| min_m[axis] <= point[axis] && point[axis] < max_m[axis])
    })
}

fn mark(
    columns: &Columns<'_>,
    mask: &mut Vec<bool>,
    keep: impl Fn([f32; 3]) -> bool,
) -> Result<usize, ColumnsError> {
    checked_len(columns)?;
    mask.clear();
    mask.extend(
        columns
            .x
            .iter()
            .zip(columns.y)
            .zip(columns.z)
            .map(|((&x, &y), &z)| keep([x, y, z])),
    );
    Ok(mask.iter().filter(|&&kept| kept).count())
}

/// The numbers 0 to `length - 1` in an order that depends on the seed alone, the same for ever.
///
/// A Fisher-Yates shuffle from the end: for `i = length - 1` down to 1, the entries `i` and
/// `((random >> 32) * (i + 1)) >> 32` change places. `random` is the next number of SplitMix64: a state that starts as
/// the seed and grows by `0x9e3779b97f4a7c15` before each number; the number is the state, mixed by
/// `z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9`, `z = (z ^ (z >> 27)) * 0x94d049bb133111eb`, `z ^ (z >> 31)`, all modulo
/// 2⁶⁴.
///
/// `order` keeps its memory.
pub fn seeded_permutation(length: u32, seed: u64, order: &mut Vec<u32>) {
    order.clear();
    order.extend(0..length);
    let mut state = seed;
    for i in (1..order.len()).rev() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // Below 2³² each, so the product fits and the result is at most i.
        let other = ((z >> 32) * (i as u64 + 1)) >> 32;
        order.swap(i, other as usize);
    }
}
