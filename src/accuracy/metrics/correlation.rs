//! Correlation and errors of whole arrays.

use ndarray::Axis;
use serde::Serialize;

use super::error::same_shape;
use super::values::{axis_of, broadcast_mask};
use super::{Mask, MetricError, Values};

/// Pearson's correlation of all elements, -1 to 1. NaN if any element on either side is not finite. Where a side is
/// constant (its largest element is its smallest) there is no correlation: 1 if both sides are constant and equal
/// (`|t - r| <= 1e-8 + 1e-5 |r|`), else 0.
///
/// # Errors
/// [`MetricError`] for arrays of different shape, or without elements.
pub fn pcc(test: &Values, reference: &Values) -> Result<f64, MetricError> {
    const METRIC: &str = "pcc";
    same_shape(METRIC, [test.shape(), reference.shape()])?;
    correlation(METRIC, test.iter().copied(), reference.iter().copied())
}

/// [`pcc`] of the elements where the mask holds. The mask is repeated along dimensions of size 1 and missing leading ones.
///
/// # Errors
/// [`MetricError`] for shapes that do not fit, or a mask that holds nowhere.
pub fn masked_pcc(test: &Values, reference: &Values, mask: &Mask) -> Result<f64, MetricError> {
    const METRIC: &str = "masked_pcc";
    same_shape(METRIC, [test.shape(), reference.shape()])?;
    let mask = broadcast_mask(METRIC, mask, test.shape())?;
    let kept = |values: &Values| {
        let pairs = values.iter().zip(&mask);
        pairs
            .filter(|(_, kept)| **kept)
            .map(|(value, _)| *value)
            .collect::<Vec<_>>()
    };
    correlation(METRIC, kept(test).into_iter(), kept(reference).into_iter())
}

/// The rows of a padded buffer that hold data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValidRows<'a> {
    /// That many from the start.
    First(usize),
    /// Those with these indices; a row may be named more than once.
    At(&'a [usize]),
}

/// [`pcc`] of the rows, the slices along `axis` (negative axes count from the last), that hold data. The sides may have
/// different numbers of rows, as padded buffers do, but not fewer than are asked for.
///
/// # Errors
/// [`MetricError`] for shapes that differ elsewhere, an axis or row that does not exist, and no rows at all.
pub fn valid_row_pcc(
    test: &Values,
    reference: &Values,
    rows: ValidRows<'_>,
    axis: isize,
) -> Result<f64, MetricError> {
    const METRIC: &str = "valid_row_pcc";
    let axis = axis_of(METRIC, axis, test.shape())?;
    let mut expected = reference.shape().to_vec();
    if let (Some(rows), Some(own)) = (expected.get_mut(axis.0), test.shape().get(axis.0)) {
        *rows = *own;
    }
    same_shape(METRIC, [test.shape(), &expected])?;
    let there = test.len_of(axis).min(reference.len_of(axis));
    let beyond = match rows {
        ValidRows::First(count) => (count > there).then_some(("the number of rows", count, there)),
        ValidRows::At(rows) => {
            let beyond = rows.iter().find(|row| **row >= there);
            beyond.map(|&row| ("a row", row, there.saturating_sub(1)))
        }
    };
    if let Some((what, value, most)) = beyond {
        return Err(MetricError::Value {
            metric: METRIC,
            what,
            value: value.to_string(),
            expected: format!("at most {most}: the shorter side has {there} rows"),
        });
    }
    correlation(
        METRIC,
        elements_of(test, rows, axis).into_iter(),
        elements_of(reference, rows, axis).into_iter(),
    )
}

fn elements_of(values: &Values, rows: ValidRows<'_>, axis: Axis) -> Vec<f64> {
    let first: Vec<usize>;
    let rows = match rows {
        ValidRows::First(count) => {
            first = (0..count).collect();
            &first
        }
        ValidRows::At(rows) => rows,
    };
    rows.iter()
        .flat_map(|&row| values.index_axis(axis, row).into_iter().copied())
        .collect()
}

/// The correlation of two sequences of one length.
fn correlation(
    metric: &'static str,
    test: impl ExactSizeIterator<Item = f64> + Clone,
    reference: impl ExactSizeIterator<Item = f64> + Clone,
) -> Result<f64, MetricError> {
    if test.len() == 0 {
        return Err(MetricError::Nothing {
            metric,
            reason: "no element is left",
        });
    }
    if test.clone().chain(reference.clone()).any(|x| !x.is_finite()) {
        return Ok(f64::NAN);
    }
    let (tests, references) = (Side::of(test.clone()), Side::of(reference.clone()));
    if tests.is_constant() || references.is_constant() {
        let close = (tests.low - references.low).abs() <= 1e-8 + 1e-5 * references.low.abs();
        let equal = tests.is_constant() && references.is_constant() && close;
        return Ok(f64::from(u8::from(equal)));
    }
    let (mut both, mut own, mut other) = (0.0, 0.0, 0.0);
    for (t, r) in test.zip(reference) {
        let (t, r) = (tests.deviation(t), references.deviation(r));
        both += t * r;
        own += t * t;
        other += r * r;
    }
    // One root of the product: of equal sides it is their sum itself, and the quotient exactly 1.
    Ok((both / (own * other).sqrt()).clamp(-1.0, 1.0))
}

/// What must be known of one side before its deviations can be summed without overflow or underflow.
struct Side {
    low: f64,
    high: f64,
    /// Mean of the elements divided by `scale`.
    mean: f64,
    /// The largest magnitude.
    scale: f64,
    /// The largest deviation from the mean, of the scaled elements.
    spread: f64,
}

impl Side {
    fn of(values: impl ExactSizeIterator<Item = f64> + Clone) -> Self {
        let count = values.len() as f64;
        let (low, high) = values
            .clone()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| {
                (low.min(x), high.max(x))
            });
        let scale = low.abs().max(high.abs());
        let mean = values.map(|x| x / scale).sum::<f64>() / count;
        let spread = (low / scale - mean).abs().max((high / scale - mean).abs());
        Self {
            low,
            high,
            mean,
            scale,
            spread,
        }
    }

    const fn is_constant(&self) -> bool {
        self.low == self.high
    }

    /// From the mean, as a share of the largest.
    fn deviation(&self, value: f64) -> f64 {
        (value / self.scale - self.mean) / self.spread
    }
}

/// Errors of an array against its reference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ErrorStats {
    /// [`pcc`].
    pub pcc: f64,
    /// Largest `|t - r|`.
    pub max_abs: f64,
    /// Mean of `|t - r|`.
    pub mean_abs: f64,
    /// `||t - r|| / ||r||`, Euclidean; where the reference is all zeros, 0 for an equal result and infinite for another.
    pub rel_l2: f64,
    /// Number of elements.
    pub n: usize,
}

/// Correlation and errors of an array against its reference. With NaN on either side every number is NaN.
///
/// # Errors
/// As [`pcc`].
pub fn error_stats(test: &Values, reference: &Values) -> Result<ErrorStats, MetricError> {
    let pcc = pcc(test, reference)?;
    let differences = || {
        test.iter().zip(reference).map(|(t, r)| {
            // Equal infinities are no difference.
            if t == r { 0.0 } else { (t - r).abs() }
        })
    };
    let n = test.len();
    // `f64::max` would drop a NaN.
    let max_abs = differences().fold(0.0, |most: f64, d| if d > most || d.is_nan() { d } else { most });
    let has_nan = differences().any(f64::is_nan);
    let (difference, size) = (norm(differences()), norm(reference.iter().copied()));
    let rel_l2 = if difference == 0.0 { 0.0 } else { difference / size };
    Ok(ErrorStats {
        pcc,
        max_abs: if has_nan { f64::NAN } else { max_abs },
        mean_abs: differences().sum::<f64>() / n as f64,
        rel_l2,
        n,
    })
}

/// The Euclidean norm, without overflow or underflow of the squares.
fn norm(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let scale = values.clone().fold(0.0, |most: f64, x| {
        if x.is_nan() || most.is_nan() {
            f64::NAN
        } else {
            most.max(x.abs())
        }
    });
    if scale == 0.0 || !scale.is_finite() {
        return scale;
    }
    scale * values.map(|x| (x / scale) * (x / scale)).sum::<f64>().sqrt()
}
