//! Decisions that two arrays have in common.

use ndarray::ArrayView1;

use super::error::same_shape;
use super::values::{axis_of, broadcast_mask};
use super::{Mask, MetricError, Values};

/// Share of the positions whose largest element along `axis` (negative axes count from the last) has the same index on
/// both sides; of equal elements the one with the lowest index is the largest. A NaN on either side is no agreement. The
/// mask says which positions count: it has the shape without `axis`, or repeats to it.
///
/// # Errors
/// [`MetricError`] for shapes that do not fit, an axis that does not exist or has no elements, and a mask that holds
/// nowhere.
pub fn argmax_agreement(
    test: &Values,
    reference: &Values,
    axis: isize,
    mask: Option<&Mask>,
) -> Result<f64, MetricError> {
    const METRIC: &str = "argmax_agreement";
    same_shape(METRIC, [test.shape(), reference.shape()])?;
    let axis = axis_of(METRIC, axis, test.shape())?;
    if test.len_of(axis) == 0 {
        return Err(MetricError::Nothing {
            metric: METRIC,
            reason: "the axis has no elements",
        });
    }
    let positions: Vec<usize> = (0..test.ndim())
        .filter(|&dim| dim != axis.0)
        .map(|dim| test.len_of(ndarray::Axis(dim)))
        .collect();
    let lanes = test.lanes(axis).into_iter().zip(reference.lanes(axis));
    let agree = lanes.map(|(t, r)| {
        let index = argmax(t);
        index.is_some() && index == argmax(r)
    });
    share(METRIC, agree, mask, &positions)
}

/// Share of the elements that are equal on both sides. NaN equals nothing.
///
/// # Errors
/// [`MetricError`] for shapes that do not fit, no elements, and a mask that holds nowhere.
pub fn label_agreement(test: &Values, reference: &Values, mask: Option<&Mask>) -> Result<f64, MetricError> {
    const METRIC: &str = "label_agreement";
    same_shape(METRIC, [test.shape(), reference.shape()])?;
    let agree = test.iter().zip(reference).map(|(t, r)| t == r);
    share(METRIC, agree, mask, test.shape())
}

/// Index of the largest element, the first of equal ones; `None` if there is a NaN.
fn argmax(lane: ArrayView1<'_, f64>) -> Option<usize> {
    let mut best = (0, f64::NEG_INFINITY);
    for (index, &value) in lane.iter().enumerate() {
        if value.is_nan() {
            return None;
        }
        if value > best.1 {
            best = (index, value);
        }
    }
    Some(best.0)
}

/// Share of the positions that agree, of those where the mask holds.
fn share(
    metric: &'static str,
    agree: impl Iterator<Item = bool>,
    mask: Option<&Mask>,
    shape: &[usize],
) -> Result<f64, MetricError> {
    let (mut agreed, mut counted) = (0_usize, 0_usize);
    let mut count = |agree: bool| {
        agreed += usize::from(agree);
        counted += 1;
    };
    match mask {
        None => agree.for_each(&mut count),
        Some(mask) => {
            let mask = broadcast_mask(metric, mask, shape)?;
            let kept = agree.zip(&mask).filter(|(_, kept)| **kept);
            kept.for_each(|(agree, _)| count(agree));
        }
    }
    if counted == 0 {
        return Err(MetricError::Nothing {
            metric,
            reason: "no position is left",
        });
    }
    Ok(agreed as f64 / counted as f64)
}
