//! The report of a comparison, as a table and as JSON.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;
use serde_json::Value;

use crate::accuracy::files::write_whole;
use crate::accuracy::gates::{Gate, GateError, GateRegistry};
use crate::accuracy::metrics::{ErrorStats, Metric, MetricError, Values, error_stats};

/// Where the gates of a comparison come from.
#[derive(Debug)]
pub enum Gates<'a> {
    /// There are none: values are only told.
    None,
    /// As they are given.
    Fixed(&'a BTreeMap<String, Gate>),
    /// Those of a registry, which freezes what passes.
    Frozen(&'a mut GateRegistry),
}

impl Gates<'_> {
    /// The gate of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Gate> {
        match self {
            Self::None => None,
            Self::Fixed(gates) => gates.get(name),
            Self::Frozen(registry) => registry.gate(name),
        }
    }

    /// The gates by name.
    pub(super) fn all(&self) -> Vec<(String, Gate)> {
        let of = |name: &str| Some((name.to_owned(), self.get(name)?.clone()));
        match self {
            Self::None => Vec::new(),
            Self::Fixed(gates) => gates.keys().filter_map(|name| of(name)).collect(),
            Self::Frozen(registry) => registry.names().filter_map(of).collect(),
        }
    }

    /// What the gate of a name says of a value, if there is one.
    fn check(&mut self, name: &str, value: f64) -> Result<Option<(Gate, bool)>, GateError> {
        match self {
            Self::Frozen(registry) if registry.gate(name).is_some() => {
                let result = registry.check(name, value)?;
                Ok(Some((result.gate, result.passed)))
            }
            gates => Ok(gates.get(name).map(|gate| (gate.clone(), gate.passes(value)))),
        }
    }
}

/// One row of a report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TapComparison {
    /// What was compared.
    pub name: String,
    /// How.
    pub metric: String,
    /// The metric's value; NaN (`null` in JSON) where it has none.
    pub value: f64,
    /// What it must be.
    pub gate: Option<Gate>,
    /// Whether it is that; `None` without a gate.
    pub passed: Option<bool>,
    /// Errors of the whole arrays, where arrays were compared.
    pub stats: Option<ErrorStats>,
    /// Why there is no value.
    pub problem: Option<String>,
}

/// Values of a run beside those that it should have.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct CompareReport {
    /// What was compared.
    pub title: String,
    /// What is known of the reference.
    pub meta: Value,
    rows: Vec<TapComparison>,
}

impl CompareReport {
    /// A report without rows.
    #[must_use]
    pub fn new(title: &str, meta: Value) -> Self {
        Self {
            title: title.to_owned(),
            meta,
            rows: Vec::new(),
        }
    }

    /// Compares two arrays. The metric is that of the gate where one is given for this name. Arrays that cannot be compared
    /// have no value, and pass no gate.
    ///
    /// # Errors
    /// [`GateError`] of a registry that cannot freeze.
    pub fn add(
        &mut self,
        name: &str,
        test: &Values,
        reference: &Values,
        metric: Metric,
        gates: &mut Gates<'_>,
    ) -> Result<&TapComparison, GateError> {
        let metric = match gates.get(name) {
            None => Ok(metric),
            Some(gate) => Metric::of_name(gate.metric()).ok_or_else(|| gate.metric().to_owned()),
        };
        let stats = error_stats(test, reference);
        let (metric, value) = match metric {
            Ok(metric) => {
                let value = metric.evaluate(test, reference, None);
                (metric.name().to_owned(), value.map_err(|error| error.to_string()))
            }
            Err(other) => {
                let problem = format!("{other} is no metric of two arrays");
                (other, Err(problem))
            }
        };
        self.push(name, &metric, value, stats.ok(), gates)
    }

    /// Adds a value that was measured elsewhere.
    ///
    /// # Errors
    /// As [`CompareReport::add`].
    pub fn add_value(
        &mut self,
        name: &str,
        metric: &str,
        value: Result<f64, MetricError>,
        gates: &mut Gates<'_>,
    ) -> Result<&TapComparison, GateError> {
        let value = value.map_err(|error| error.to_string());
        self.push(name, metric, value, None, gates)
    }

    /// Adds what could not be compared: it passes no gate.
    ///
    /// # Errors
    /// As [`CompareReport::add`].
    pub fn add_missing(
        &mut self,
        name: &str,
        metric: &str,
        problem: &str,
        gates: &mut Gates<'_>,
    ) -> Result<&TapComparison, GateError> {
        self.push(name, metric, Err(problem.to_owned()), None, gates)
    }

    fn push(
        &mut self,
        name: &str,
        metric: &str,
        value: Result<f64, String>,
        stats: Option<ErrorStats>,
        gates: &mut Gates<'_>,
    ) -> Result<&TapComparison, GateError> {
        let (mut value, mut problem) = match value {
            Ok(value) => (value, None),
            Err(problem) => (f64::NAN, Some(problem)),
        };
        // A gate on something else says nothing of this value.
        if let Some(gate) = gates.get(name)
            && gate.metric() != metric
        {
            problem.get_or_insert(format!("its gate is one of {}", gate.metric()));
            value = f64::NAN;
        }
        let (gate, passed) = gates.check(name, value)?.unzip();
        self.rows.push(TapComparison {
            name: name.to_owned(),
            metric: metric.to_owned(),
            value,
            gate,
            passed,
            stats,
            problem,
        });
        Ok(&self.rows[self.rows.len() - 1])
    }

    /// The rows, in the order in which they were added.
    #[must_use]
    pub fn rows(&self) -> &[TapComparison] {
        &self.rows
    }

    /// Whether every gate passed. Rows without a gate do not count.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.rows.iter().all(|row| row.passed != Some(false))
    }

    /// The report as text: its title, a row a value, and what went wrong.
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_preset(UTF8_BORDERS_ONLY);
        table.set_header(["name", "metric", "value", "gate", "max abs", "rel L2", "verdict"]);
        let number = |value: f64| match value {
            value if value.is_nan() => "-".to_owned(),
            value if value == 0.0 || (1e-3..1e6).contains(&value.abs()) => {
                let text = format!("{value:.6}");
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            }
            value => format!("{value:.3e}"),
        };
        for row in &self.rows {
            let gate = row
                .gate
                .as_ref()
                .map_or_else(String::new, |gate| gate.to_string());
            let of_stats = |of: fn(&ErrorStats) -> f64| row.stats.as_ref().map_or(f64::NAN, of);
            let verdict = match row.passed {
                Some(true) => "ok",
                Some(false) => "FAILED",
                None => "",
            };
            table.add_row([
                row.name.clone(),
                row.metric.clone(),
                number(row.value),
                gate,
                number(of_stats(|stats| stats.max_abs)),
                number(of_stats(|stats| stats.rel_l2)),
                verdict.to_owned(),
            ]);
        }
        for column in [2, 4, 5] {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let mut lines = Vec::new();
        if !self.title.is_empty() {
            lines.push(self.title.clone());
        }
        lines.push(table.to_string());
        let problems = self.rows.iter().filter_map(|row| {
            let problem = row.problem.as_ref()?;
            Some(format!("{}: {problem}", row.name))
        });
        lines.extend(problems);
        let gated = self.rows.iter().filter(|row| row.passed.is_some()).count();
        let failed = self.rows.iter().filter(|row| row.passed == Some(false)).count();
        lines.push(match (gated, failed) {
            (0, _) => "no gates".to_owned(),
            (gated, 0) => format!("all {gated} gates passed"),
            (gated, failed) => format!("{failed} of {gated} gates FAILED"),
        });
        lines.join("\n")
    }

    /// The report as JSON: its fields, and `passed`.
    ///
    /// # Errors
    /// None in practice: every part of a report has a JSON form.
    pub fn to_json(&self) -> serde_json::Result<Value> {
        let mut document = serde_json::to_value(self)?;
        document["passed"] = self.passed().into();
        Ok(document)
    }

    /// Writes the report as JSON, whole or not at all.
    ///
    /// # Errors
    /// What the system says.
    pub fn save_json(&self, file: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(&self.to_json()?)?;
        text.push(b'\n');
        write_whole(file, &text)
    }
}
