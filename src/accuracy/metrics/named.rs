//! Metrics by name, and which way of each is good.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Mask, MetricError, Values, argmax_agreement, error_stats, label_agreement, mask_iou, masked_pcc, pcc,
};

/// Which side of a threshold is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The threshold is the least that passes.
    Min,
    /// The threshold is the most that passes.
    Max,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Min => "min",
            Self::Max => "max",
        })
    }
}

/// A metric of two arrays that a report can compute by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Metric {
    /// [`pcc`].
    Pcc,
    /// [`masked_pcc`].
    MaskedPcc,
    /// [`argmax_agreement`] along the last axis.
    ArgmaxAgreement,
    /// [`label_agreement`].
    LabelAgreement,
    /// [`mask_iou`].
    MaskIou,
    /// Largest absolute error of [`error_stats`].
    MaxAbs,
    /// Mean absolute error of [`error_stats`].
    MeanAbs,
    /// Relative Euclidean error of [`error_stats`].
    RelL2,
}

/// Every [`Metric`].
pub const METRICS: [Metric; 8] = [
    Metric::Pcc,
    Metric::MaskedPcc,
    Metric::ArgmaxAgreement,
    Metric::LabelAgreement,
    Metric::MaskIou,
    Metric::MaxAbs,
    Metric::MeanAbs,
    Metric::RelL2,
];

/// Further metrics whose good side is known: a `*` at the end stands for any rest of a name.
const OTHERS: [(&str, Direction); 11] = [
    ("recall", Direction::Min),
    ("precision", Direction::Min),
    ("iou", Direction::Min),
    ("miou", Direction::Min),
    ("agreement", Direction::Min),
    ("topk_overlap", Direction::Min),
    ("ade", Direction::Max),
    ("fde", Direction::Max),
    ("center_err*", Direction::Max),
    ("score_err*", Direction::Max),
    ("max_abs_err", Direction::Max),
];

impl Metric {
    /// The name in gates and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pcc => "pcc",
            Self::MaskedPcc => "masked_pcc",
            Self::ArgmaxAgreement => "argmax_agreement",
            Self::LabelAgreement => "label_agreement",
            Self::MaskIou => "mask_iou",
            Self::MaxAbs => "max_abs",
            Self::MeanAbs => "mean_abs",
            Self::RelL2 => "rel_l2",
        }
    }

    /// The metric of a name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        METRICS.into_iter().find(|metric| metric.name() == name)
    }

    /// Which way is good.
    #[must_use]
    pub const fn direction(self) -> Direction {
        match self {
            Self::MaxAbs | Self::MeanAbs | Self::RelL2 => Direction::Max,
            _ => Direction::Min,
        }
    }

    /// Its value. Agreements take a mask if there is one, [`Metric::MaskedPcc`] needs one, the others have none.
    ///
    /// # Errors
    /// [`MetricError`], among them [`MetricError::Mask`].
    pub fn evaluate(
        self,
        test: &Values,
        reference: &Values,
        mask: Option<&Mask>,
    ) -> Result<f64, MetricError> {
        let refused = |problem| MetricError::Mask {
            metric: self.name(),
            problem,
        };
        match (self, mask) {
            (Self::MaskedPcc, None) => Err(refused("it needs a mask, and none is given")),
            (Self::MaskedPcc, Some(mask)) => masked_pcc(test, reference, mask),
            (Self::ArgmaxAgreement, mask) => argmax_agreement(test, reference, -1, mask),
            (Self::LabelAgreement, mask) => label_agreement(test, reference, mask),
            (_, Some(_)) => Err(refused("it has no mask; use masked_pcc or an agreement")),
            (Self::Pcc, None) => pcc(test, reference),
            (Self::MaskIou, None) => mask_iou(test, reference),
            (Self::MaxAbs, None) => Ok(error_stats(test, reference)?.max_abs),
            (Self::MeanAbs, None) => Ok(error_stats(test, reference)?.mean_abs),
            (Self::RelL2, None) => Ok(error_stats(test, reference)?.rel_l2),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which way of a metric is good, if that is known: of every [`Metric`]; more is good of `recall`, `precision`, `iou`,
/// `miou`, `agreement`, `topk_overlap`, less of `ade`, `fde`, `max_abs_err` and what begins with `center_err` or
/// `score_err`.
#[must_use]
pub fn direction_of(metric: &str) -> Option<Direction> {
    if let Some(metric) = Metric::of_name(metric) {
        return Some(metric.direction());
    }
    let matches = |name: &str| match name.strip_suffix('*') {
        Some(start) => metric.starts_with(start),
        None => metric == name,
    };
    let mut others = OTHERS.into_iter();
    others
        .find(|(name, _)| matches(name))
        .map(|(_, direction)| direction)
}

/// The names that [`direction_of`] knows, for messages; a `*` stands for any rest of a name.
#[must_use]
pub fn known_directions() -> Vec<&'static str> {
    let metrics = METRICS.into_iter().map(Metric::name);
    metrics.chain(OTHERS.into_iter().map(|(name, _)| name)).collect()
}
