//! Float32 functions with one answer on every machine: the value in float64, rounded once.
//!
//! Deployed kernels call `expf` and `atan2f`, whose last bit differs between CUDA, glibc and NumPy. Going through
//! float64 gives the float32 nearest to the true value but for about one argument in 10⁸.

/// e^x.
pub(super) fn exp(x: f32) -> f32 {
    f64::from(x).exp() as f32
}

/// Natural logarithm.
pub(super) fn ln(x: f32) -> f32 {
    f64::from(x).ln() as f32
}

/// Angle of (x, y) in radians, -π to π.
pub(super) fn atan2(y: f32, x: f32) -> f32 {
    f64::from(y).atan2(f64::from(x)) as f32
}

/// Sine and cosine.
pub(super) fn sin_cos(x: f32) -> (f32, f32) {
    let (sin, cos) = f64::from(x).sin_cos();
    (sin as f32, cos as f32)
}

/// 1 / (1 + e^-x), every step in float32.
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The smallest x with `sigmoid(x) >= threshold` and `sigmoid(x) > 0`, for a threshold of 0 to below 1.
///
/// `sigmoid` never falls from one float32 to the next: where two neighbours' exponentials round to different float32
/// values, the true values lie at least 2⁻⁴⁹ apart relatively, far beyond the error of the float64 exponential. So
/// `x < logit_floor(t)` says exactly what `sigmoid(x) < t` says, without an exponential.
pub(super) fn logit_floor(threshold: f32) -> f32 {
    let passes = |x: f32| {
        let score = sigmoid(x);
        score >= threshold && score > 0.0
    };
    // Floats as integers in their order: below zero the larger pattern is the smaller number.
    let value = |key: i32| f32::from_bits((if key < 0 { key ^ i32::MAX } else { key }) as u32);
    let key = |x: f32| {
        let bits = x.to_bits() as i32;
        if bits < 0 { bits ^ i32::MAX } else { bits }
    };
    let (mut below, mut above) = (key(f32::NEG_INFINITY), key(f32::INFINITY));
    while above.wrapping_sub(below) != 1 {
        let middle = ((i64::from(below) + i64::from(above)) / 2) as i32;
        if passes(value(middle)) {
            above = middle;
        } else {
            below = middle;
        }
    }
    value(above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logit_below_the_floor_is_exactly_a_score_below_the_threshold() {
        let mut thresholds: Vec<f32> = (0..1000).map(|i| i as f32 / 1000.0).collect();
        thresholds.extend([f32::MIN_POSITIVE, 1e-45, 1e-30, 0.35, 0.999_999_94]);
        for threshold in thresholds {
            let floor = logit_floor(threshold);
            let agrees = |x: f32| {
                let score = sigmoid(x);
                assert_eq!(
                    x < floor,
                    score < threshold || score == 0.0,
                    "threshold {threshold}, logit {x}"
                );
            };
            let (mut up, mut down) = (floor, floor);
            for _ in 0..2000 {
                agrees(up);
                agrees(down);
                (up, down) = (up.next_up(), down.next_down());
            }
            for step in -2200..=2200 {
                agrees(step as f32 * 0.05);
            }
            for x in [f32::NEG_INFINITY, f32::MIN, -0.0, 0.0, f32::MAX, f32::INFINITY] {
                agrees(x);
            }
        }
    }
}
