//! Numbers as sums of bf16 ones.

use half::bf16;

/// `[hi, lo]` with `hi = bf16(x)` and `lo = bf16(x - hi)`, to nearest even: about 16 significant bits of each value.
/// What is not finite is all in the first.
#[must_use]
pub fn bf16_terms(values: &[f32]) -> [Vec<f32>; 2] {
    let round = |x: f32| bf16::from_f32(x).to_f32();
    let hi: Vec<f32> = values.iter().map(|&x| round(x)).collect();
    let rest = |(&x, &hi): (&f32, &f32)| if hi.is_finite() { round(x - hi) } else { 0.0 };
    let lo = values.iter().zip(&hi).map(rest).collect();
    [hi, lo]
}
