//! Arrays of a run beside their goldens.

use std::collections::BTreeMap;

use ndarray::ArrayD;
use serde_json::Value;

use super::{CompareReport, Gates};
use crate::accuracy::gates::GateError;
use crate::accuracy::metrics::{Metric, values_of};
use crate::tensor::HostTensor;

/// Named arrays, of which each is made when it is asked for.
pub trait Arrays {
    /// Their names.
    fn names(&self) -> Vec<String>;

    /// The array of a name as float64, or `None` if there is none.
    fn array(&self, name: &str) -> Option<ArrayD<f64>>;
}

impl Arrays for BTreeMap<String, HostTensor> {
    fn names(&self) -> Vec<String> {
        self.keys().cloned().collect()
    }

    fn array(&self, name: &str) -> Option<ArrayD<f64>> {
        self.get(name).map(values_of)
    }
}

impl Arrays for BTreeMap<String, ArrayD<f64>> {
    fn names(&self) -> Vec<String> {
        self.keys().cloned().collect()
    }

    fn array(&self, name: &str) -> Option<ArrayD<f64>> {
        self.get(name).cloned()
    }
}

/// How arrays are compared.
#[derive(Debug, Clone)]
pub struct CompareOptions<'a> {
    /// Metric of arrays whose gate does not say it.
    pub metric: Metric,
    /// Which arrays; `None` stands for those that both sides have, and those with a gate.
    pub names: Option<&'a [&'a str]>,
    /// Title of the report.
    pub title: &'a str,
    /// What is known of the goldens.
    pub meta: Value,
}

impl Default for CompareOptions<'_> {
    /// By correlation.
    fn default() -> Self {
        Self {
            metric: Metric::Pcc,
            names: None,
            title: "",
            meta: Value::Null,
        }
    }
}

/// Compares the arrays of a run with their goldens. One that a side does not have has no value, and passes no gate. Gates
/// of other things than two arrays (`recall`, say) are left to whoever measures those.
///
/// # Errors
/// [`GateError`] of a registry that cannot freeze.
pub fn compare_taps(
    test: &dyn Arrays,
    golden: &dyn Arrays,
    gates: &mut Gates<'_>,
    options: &CompareOptions<'_>,
) -> Result<CompareReport, GateError> {
    let names: Vec<String> = match options.names {
        Some(names) => names.iter().map(|&name| name.to_owned()).collect(),
        None => {
            let there = test.names();
            let both = golden.names().into_iter().filter(|name| there.contains(name));
            let gated = gates.all().into_iter();
            let gated = gated.filter(|(_, gate)| Metric::of_name(gate.metric()).is_some());
            let mut names: Vec<String> = both.chain(gated.map(|(name, _)| name)).collect();
            names.sort();
            names.dedup();
            names
        }
    };
    let mut report = CompareReport::new(options.title, options.meta.clone());
    for name in names {
        let problem = match (test.array(&name), golden.array(&name)) {
            (Some(test), Some(golden)) => {
                report.add(&name, &test, &golden, options.metric, gates)?;
                continue;
            }
            (None, Some(_)) => "the run has no such array",
            (Some(_), None) => "the goldens have no such array",
            (None, None) => "neither the run nor the goldens have such an array",
        };
        let metric = match gates.get(&name) {
            Some(gate) => gate.metric().to_owned(),
            None => options.metric.name().to_owned(),
        };
        report.add_missing(&name, &metric, problem, gates)?;
    }
    Ok(report)
}
