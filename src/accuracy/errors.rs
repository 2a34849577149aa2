//! Errors of the detections that found their object.

use std::f64::consts::{FRAC_PI_2, PI, TAU};

use serde::Serialize;

use super::matching::SeenObject;

/// Errors of headings, whatever the detections say of their trust in them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HeadingErrors {
    /// Detections compared.
    pub compared: usize,
    /// Median of the absolute error in radians, 0 to π.
    pub median_rad: f64,
    /// Share with an error above π/2: front and back mistaken.
    pub flipped: f64,
}

/// Errors of speeds: length of the difference of the two vectors.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct VelocityErrors {
    /// Detections compared: where both sides say a speed.
    pub compared: usize,
    /// Mean in m/s (nuScenes' mAVE is a mean over recall; this is one over hits).
    pub mean_mps: f64,
    /// Median in m/s.
    pub median_mps: f64,
}

/// Errors of the headings of pairs (detection, truth); `None` without any.
pub(super) fn heading_errors(pairs: &[(&SeenObject, &SeenObject)]) -> Option<HeadingErrors> {
    let mut errors: Vec<f64> = pairs
        .iter()
        .map(|(detection, truth)| {
            let turned = (detection.object.yaw_rad - truth.object.yaw_rad).rem_euclid(TAU);
            if turned > PI { TAU - turned } else { turned }
        })
        .collect();
    let flipped = errors.iter().filter(|error| **error > FRAC_PI_2).count();
    median(&mut errors).map(|median_rad| HeadingErrors {
        compared: errors.len(),
        median_rad,
        flipped: flipped as f64 / errors.len() as f64,
    })
}

/// Errors of the speeds of pairs (detection, truth); `None` without any.
pub(super) fn velocity_errors(pairs: &[(&SeenObject, &SeenObject)]) -> Option<VelocityErrors> {
    let mut errors: Vec<f64> = pairs
        .iter()
        .filter_map(|(detection, truth)| {
            let ([x, y], [true_x, true_y]) = (detection.velocity_mps?, truth.velocity_mps?);
            Some((x - true_x).hypot(y - true_y))
        })
        .collect();
    let sum: f64 = errors.iter().sum();
    median(&mut errors).map(|median_mps| VelocityErrors {
        compared: errors.len(),
        mean_mps: sum / errors.len() as f64,
        median_mps,
    })
}

/// Of an even number the mean of the two in the middle.
fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some(0.5 * (values[middle - 1] + values[middle])),
    }
}
