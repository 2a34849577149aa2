//! Gates as people write them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Gate, GateError};
use crate::accuracy::metrics::Direction;

/// A gate as it is written in a file: a bare number, a list `[threshold, direction, metric]`, or an object with these names.
/// Direction and metric may be left out where they are known: the metric is the caller's (`pcc` for arrays), the direction
/// that of the metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum GateSpec {
    /// The threshold alone.
    Threshold(f64),
    /// Threshold and direction.
    Directed(f64, Direction),
    /// Everything.
    Full(f64, Direction, String),
    /// Everything by name.
    Named(NamedGate),
}

/// A gate by the names of its parts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedGate {
    /// The value at the edge.
    threshold: f64,
    /// Which side is good.
    direction: Option<Direction>,
    /// What is measured.
    metric: Option<String>,
}

impl GateSpec {
    /// The gate; `metric` is what it measures where the spec does not say.
    ///
    /// # Errors
    /// As [`Gate::of`] and [`Gate::new`].
    pub fn gate(&self, metric: &str) -> Result<Gate, GateError> {
        let (threshold, direction, metric) = match self {
            Self::Threshold(threshold) => (*threshold, None, metric),
            Self::Directed(threshold, direction) => (*threshold, Some(*direction), metric),
            Self::Full(threshold, direction, metric) => (*threshold, Some(*direction), metric.as_str()),
            Self::Named(named) => (
                named.threshold,
                named.direction,
                named.metric.as_deref().unwrap_or(metric),
            ),
        };
        match direction {
            None => Gate::of(threshold, metric),
            Some(direction) => Gate::new(threshold, direction, metric),
        }
    }
}

/// Gates by name, as JSON or YAML: a map of names to [`GateSpec`]s.
///
/// # Errors
/// What is wrong, with its place where that is known.
pub fn parse_gates(text: &str) -> Result<BTreeMap<String, GateSpec>, String> {
    // One reader for both: JSON is YAML, and this one reads a number as the float64 next to it.
    serde_saphyr::from_str(text).map_err(|error| error.to_string())
}

/// Named gates of specs; `metric` says, of a name, what a gate measures that does not say it.
///
/// # Errors
/// The name of the first one that is refused, and as [`GateSpec::gate`].
pub fn gates_of(
    specs: &BTreeMap<String, GateSpec>,
    metric: impl Fn(&str) -> String,
) -> Result<BTreeMap<String, Gate>, (String, GateError)> {
    let mut gates = BTreeMap::new();
    for (name, spec) in specs {
        let gate = spec.gate(&metric(name)).map_err(|error| (name.clone(), error))?;
        gates.insert(name.clone(), gate);
    }
    Ok(gates)
}
