//! Selections that depend on the data.

use std::collections::BTreeSet;

use super::error::same_shape;
use super::{MetricError, Values};

/// Share of the first `k` indices of the reference (all of them for `None`) that are among the first `k` of the result,
/// in any order. Indices on one side are expected to differ; one that is there twice counts once.
///
/// # Errors
/// [`MetricError`] if a side has fewer than `k` indices, or `k` is 0.
pub fn topk_overlap(test: &[i64], reference: &[i64], k: Option<usize>) -> Result<f64, MetricError> {
    const METRIC: &str = "topk_overlap";
    let k = k.unwrap_or(reference.len());
    check_k(METRIC, k, test.len().min(reference.len()))?;
    let chosen = |indices: &[i64]| indices[..k].iter().copied().collect::<BTreeSet<_>>();
    Ok(overlap(&chosen(test), &chosen(reference)))
}

/// Share of the `k` elements with the largest scores of the reference that are among those of the result. Of equal scores
/// the lower index is chosen; NaN is chosen last.
///
/// # Errors
/// [`MetricError`] for scores of different shape, fewer than `k` of them, or `k` of 0.
pub fn topk_set_overlap(test: &Values, reference: &Values, k: usize) -> Result<f64, MetricError> {
    const METRIC: &str = "topk_set_overlap";
    same_shape(METRIC, [test.shape(), reference.shape()])?;
    check_k(METRIC, k, test.len())?;
    let chosen = |scores: &Values| {
        let scores: Vec<f64> = scores.iter().copied().collect();
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| {
            let nan_last = scores[a].is_nan().cmp(&scores[b].is_nan());
            // 0 and -0 are equal.
            let falling = scores[b].partial_cmp(&scores[a]);
            nan_last.then(falling.unwrap_or(std::cmp::Ordering::Equal))
        });
        order.truncate(k);
        order.into_iter().collect::<BTreeSet<_>>()
    };
    Ok(overlap(&chosen(test), &chosen(reference)))
}

fn check_k(metric: &'static str, k: usize, most: usize) -> Result<(), MetricError> {
    if (1..=most).contains(&k) {
        return Ok(());
    }
    Err(MetricError::Value {
        metric,
        what: "k",
        value: k.to_string(),
        expected: match most {
            0 => "given with at least one index on both sides".into(),
            most => format!("from 1 to {most}, the number on the shorter side"),
        },
    })
}

fn overlap<T: Ord>(test: &BTreeSet<T>, reference: &BTreeSet<T>) -> f64 {
    test.intersection(reference).count() as f64 / reference.len() as f64
}
