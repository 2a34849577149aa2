//! Errors of predicted paths.

use ndarray::Axis;
use serde::Serialize;

use super::error::same_shape;
use super::{MetricError, Values};

/// Distances of predicted positions from the true ones, in the unit of the positions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DisplacementErrors {
    /// Mean over all steps.
    pub ade: f64,
    /// Mean over the last steps.
    pub fde: f64,
}

/// Average and final displacement error of trajectories `[.., steps, dimensions]`, by the first `dims` dimensions.
///
/// # Errors
/// [`MetricError`] for arrays of different shape or of fewer than two dimensions, no steps, and `dims` that the positions
/// do not have.
pub fn ade_fde(predicted: &Values, truth: &Values, dims: usize) -> Result<DisplacementErrors, MetricError> {
    const METRIC: &str = "ade_fde";
    same_shape(METRIC, [predicted.shape(), truth.shape()])?;
    let &[.., steps, dimensions] = predicted.shape() else {
        return Err(MetricError::Form {
            metric: METRIC,
            what: "the trajectory",
            found: predicted.shape().to_vec(),
            expected: "[.., steps, dimensions]",
        });
    };
    if !(1..=dimensions).contains(&dims) {
        return Err(MetricError::Value {
            metric: METRIC,
            what: "dims",
            value: dims.to_string(),
            expected: format!("from 1 to the {dimensions} dimensions of a position"),
        });
    }
    let last = Axis(predicted.ndim() - 1);
    let distances: Vec<f64> = predicted
        .lanes(last)
        .into_iter()
        .zip(truth.lanes(last))
        .map(|(p, t)| {
            let squares = p.iter().zip(t).take(dims).map(|(p, t)| (p - t) * (p - t));
            squares.sum::<f64>().sqrt()
        })
        .collect();
    if distances.is_empty() {
        return Err(MetricError::Nothing {
            metric: METRIC,
            reason: "there is no step",
        });
    }
    let mean = |distances: &mut dyn Iterator<Item = f64>| {
        let (sum, count) = distances.fold((0.0, 0_usize), |(sum, count), d| (sum + d, count + 1));
        sum / count as f64
    };
    Ok(DisplacementErrors {
        ade: mean(&mut distances.iter().copied()),
        fde: mean(&mut distances.iter().copied().skip(steps - 1).step_by(steps)),
    })
}
