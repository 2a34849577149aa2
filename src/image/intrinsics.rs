//! Camera matrices of frames that were resized.

use super::Geometry;

/// The camera matrix (row by row: fx, skew, cx, 0, fy, cy, 0, 0, 1) of a network's input.
///
/// The first row is multiplied by target width over source width, the second likewise, as METEOR's ground truth is
/// made, and what a crop took away at the left and the top is taken off the principal point. A scale that differs from
/// side to side keeps two focal lengths.
#[must_use]
pub fn scale_intrinsics(matrix: &[f64; 9], geometry: &Geometry) -> [f64; 9] {
    let scale = geometry.scale();
    let offset = geometry.offset_px();
    let mut scaled = *matrix;
    for side in [0, 1] {
        for value in &mut scaled[3 * side..3 * side + 3] {
            *value *= scale[side];
        }
        scaled[3 * side + 2] -= offset[side];
    }
    scaled
}
