//! One threshold.

use std::fmt;

use serde::Serialize;

use super::GateError;
use crate::accuracy::metrics::{Direction, direction_of, known_directions};

/// A threshold of a metric. Its parts always agree: the threshold is finite, and the direction is the metric's own where
/// that is known.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gate {
    threshold: f64,
    direction: Direction,
    metric: String,
}

impl Gate {
    /// A gate with a direction.
    ///
    /// # Errors
    /// [`GateError::Contradiction`] for the wrong direction of a known metric, [`GateError::Threshold`].
    pub fn new(threshold: f64, direction: Direction, metric: &str) -> Result<Self, GateError> {
        match direction_of(metric) {
            Some(right) if right != direction => Err(GateError::Contradiction {
                threshold,
                metric: metric.to_owned(),
                direction,
                right,
            }),
            _ if !threshold.is_finite() => Err(GateError::Threshold {
                metric: metric.to_owned(),
                threshold,
            }),
            _ => Ok(Self {
                threshold,
                direction,
                metric: metric.to_owned(),
            }),
        }
    }

    /// A bare number: it takes the direction of its metric.
    ///
    /// # Errors
    /// [`GateError::UnknownDirection`] for a metric whose direction is not known, [`GateError::Threshold`].
    pub fn of(threshold: f64, metric: &str) -> Result<Self, GateError> {
        match direction_of(metric) {
            Some(direction) => Self::new(threshold, direction, metric),
            None => Err(GateError::UnknownDirection {
                threshold,
                metric: metric.to_owned(),
                known: known_directions().join(", "),
            }),
        }
    }

    /// The value at the edge, which passes.
    #[must_use]
    pub const fn threshold(&self) -> f64 {
        self.threshold
    }

    /// Which side is good.
    #[must_use]
    pub const fn direction(&self) -> Direction {
        self.direction
    }

    /// What is measured.
    #[must_use]
    pub fn metric(&self) -> &str {
        &self.metric
    }

    /// Whether a value passes. NaN never does.
    #[must_use]
    pub fn passes(&self, value: f64) -> bool {
        match self.direction {
            Direction::Min => value >= self.threshold,
            Direction::Max => value <= self.threshold,
        }
    }

    /// Whether this gate lets something pass that the other does not: a threshold further to the bad side, or another
    /// direction or metric, which cannot be compared.
    #[must_use]
    pub fn looser_than(&self, other: &Self) -> bool {
        if self.metric != other.metric || self.direction != other.direction {
            return true;
        }
        match self.direction {
            Direction::Min => self.threshold < other.threshold,
            Direction::Max => self.threshold > other.threshold,
        }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.direction {
            Direction::Min => ">=",
            Direction::Max => "<=",
        };
        write!(f, "{} {sign} {}", self.metric, self.threshold)
    }
}
