//! Intersection over union of masks, label maps and boxes.

use ndarray::{Array2, Ix2};

use super::error::same_shape;
use super::{MetricError, Values};

/// Intersection over union of two masks: what is not 0 belongs to one. 1 for two empty masks.
///
/// # Errors
/// [`MetricError::Shapes`].
pub fn mask_iou(a: &Values, b: &Values) -> Result<f64, MetricError> {
    same_shape("mask_iou", [a.shape(), b.shape()])?;
    let (mut both, mut either) = (0_usize, 0_usize);
    for (&a, &b) in a.iter().zip(b) {
        both += usize::from(a != 0.0 && b != 0.0);
        either += usize::from(a != 0.0 || b != 0.0);
    }
    Ok(if either == 0 {
        1.0
    } else {
        both as f64 / either as f64
    })
}

/// What [`mean_iou`] found.
#[derive(Debug, Clone, PartialEq)]
pub struct MeanIou {
    /// Mean over the classes that either side has; NaN if there are none.
    pub mean: f64,
    /// By class; `None` where neither side has it.
    pub per_class: Vec<Option<f64>>,
}

/// Intersection over union of label maps, class by class. Elements whose reference is `ignore_index` count nowhere.
///
/// # Errors
/// [`MetricError`] for maps of different shape, no classes, and a label that counts but is not a whole number below
/// `num_classes`.
pub fn mean_iou(
    test: &Values,
    reference: &Values,
    num_classes: usize,
    ignore_index: Option<i64>,
) -> Result<MeanIou, MetricError> {
    const METRIC: &str = "mean_iou";
    same_shape(METRIC, [test.shape(), reference.shape()])?;
    if num_classes == 0 {
        return Err(MetricError::Value {
            metric: METRIC,
            what: "the number of classes",
            value: "0".into(),
            expected: "at least 1".into(),
        });
    }
    let class_of = |what, label: f64| {
        let is_class = label >= 0.0 && label < num_classes as f64 && label.fract() == 0.0;
        is_class
            .then_some(label as usize)
            .ok_or_else(|| MetricError::Value {
                metric: METRIC,
                what,
                value: label.to_string(),
                expected: format!("a whole number from 0 to {}", num_classes - 1),
            })
    };
    let mut counts: Vec<[usize; 2]> = Vec::new();
    counts.resize(num_classes, [0; 2]);
    for (&t, &r) in test.iter().zip(reference) {
        if ignore_index.is_some_and(|ignored| r == ignored as f64) {
            continue;
        }
        let (t, r) = (
            class_of("a label of the result", t)?,
            class_of("a label of the reference", r)?,
        );
        if t == r {
            counts[t][0] += 1;
            counts[t][1] += 1;
        } else {
            counts[t][1] += 1;
            counts[r][1] += 1;
        }
    }
    let per_class: Vec<Option<f64>> = counts
        .into_iter()
        .map(|[both, either]| (either > 0).then(|| both as f64 / either as f64))
        .collect();
    let present = per_class.iter().flatten();
    let mean = present.clone().sum::<f64>() / present.count() as f64;
    Ok(MeanIou { mean, per_class })
}

/// Intersection over union of every box of `a` with every box of `b`, each `[n, 4]`: left, top, right, bottom. A box
/// turned inside out is empty; the overlap of two empty boxes is 0. The result is `[boxes of a, boxes of b]`.
///
/// # Errors
/// [`MetricError::Form`] for arrays that are not `[n, 4]`.
pub fn box_iou_xyxy(a: &Values, b: &Values) -> Result<Array2<f64>, MetricError> {
    let boxes = |what, values: &'_ Values| {
        let view = values.view();
        let found = view.shape().to_vec();
        match view.into_dimensionality::<Ix2>() {
            Ok(boxes) if boxes.ncols() == 4 => Ok(boxes.to_owned()),
            _ => Err(MetricError::Form {
                metric: "box_iou_xyxy",
                what,
                found,
                expected: "[n, 4]: left, top, right, bottom",
            }),
        }
    };
    let (a, b) = (boxes("the first array", a)?, boxes("the second array", b)?);
    let sides = |boxes: &Array2<f64>, row: usize| [0, 1, 2, 3].map(|side| boxes[[row, side]]);
    Ok(Array2::from_shape_fn((a.nrows(), b.nrows()), |(i, j)| {
        overlap(sides(&a, i), sides(&b, j))
    }))
}

/// Intersection over union of two boxes (left, top, right, bottom), 0 for two empty ones.
pub(crate) fn overlap(a: [f64; 4], b: [f64; 4]) -> f64 {
    let side = |low: f64, high: f64| (high - low).max(0.0);
    let area = |[left, top, right, bottom]: [f64; 4]| side(left, right) * side(top, bottom);
    let both = side(a[0].max(b[0]), a[2].min(b[2])) * side(a[1].max(b[1]), a[3].min(b[3]));
    let either = area(a) + area(b) - both;
    if either > 0.0 { both / either } else { 0.0 }
}
