//! What a runner holds, for reports.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::runner::TraceRunner;
use super::{OutputInfo, Phase, TraceError, VariantId};
use crate::device::{BufferClass, TraceId};

/// Time spent before the first replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TraceTimings {
    /// Warm-up runs.
    pub warm_up: Duration,
    /// Captures.
    pub capture: Duration,
}

impl TraceRunner {
    /// Whether every variant has its traces.
    #[must_use]
    pub fn captured(&self) -> bool {
        !self.variants.is_empty()
            && self
                .variants
                .iter()
                .all(|variant| variant.captured.len() == self.phases.count())
    }

    /// The outputs of a captured variant; they are the same in every phase.
    ///
    /// # Errors
    /// [`TraceError::NotCaptured`], [`TraceError::ForeignId`], [`TraceError::Released`].
    pub fn outputs(&self, variant: VariantId) -> Result<&[OutputInfo], TraceError> {
        let index = variant.of(self)?;
        match self.variants[index].captured.first() {
            Some(captured) => Ok(&captured.pass.outputs),
            None => Err(self.not_captured(index)),
        }
    }

    /// Every trace with its variant and phase.
    #[must_use]
    pub fn trace_ids(&self) -> Vec<(VariantId, Phase, TraceId)> {
        let variants = self.variants.iter().enumerate();
        variants
            .flat_map(|(index, variant)| {
                let traces = self.phases.all().zip(&variant.captured);
                traces.map(move |(phase, captured)| (VariantId::new(self.key, index), phase, captured.trace))
            })
            .collect()
    }

    /// Time spent before the first replay.
    #[must_use]
    pub const fn timings(&self) -> TraceTimings {
        self.timings
    }

    /// What the runner holds, for reports: tensors with their specs, states with their banks, phases, traces, bytes of
    /// device memory by class, and timings.
    #[must_use]
    pub fn describe(&self) -> Value {
        let [outputs, states] = self.phases.counts();
        let Phase { output, state } = self.phase();
        let tables = &self.tables;
        json!({
            "name": self.name,
            "queues": self.options.queues,
            "stage_inputs": self.options.stage_inputs,
            "captured": self.captured(),
            "released": self.alive().is_err(),
            "phases": { "outputs": outputs, "states": states, "next": { "output": output, "state": state } },
            "inputs": named(tables.inputs.iter().map(|input| (&input.name, json!({
                "spec": input.spec.to_string(),
                "staged": input.staging.is_some(),
                "by_function": input.staging.as_ref().is_some_and(|staging| staging.stage.is_some()),
            })))),
            "params": named(tables.params.iter().map(|param| (&param.name, match &*param.values {
                [value] => json!(value),
                values => json!(values),
            }))),
            "states": named(tables.states.iter().map(|state| (&state.name, json!({
                "spec": state.spec.to_string(),
                "pingpong": state.options.pingpong,
                "banks": state.banks.len(),
                "bytes": state.spec.bytes(),
            })))),
            "outputs": named(tables.outputs.iter().map(|output| {
                (&output.name, output.spec.to_string().into())
            })),
            "variants": self.variants.iter().map(|variant| json!({
                "name": variant.name,
                "traces": self.phases.all().zip(&variant.captured).map(|(phase, captured)| json!({
                    "id": captured.trace.0,
                    "output_phase": phase.output,
                    "state_phase": phase.state,
                    "bytes": captured.bytes,
                })).collect::<Vec<_>>(),
                "writes_pingpong": variant.captured.first().map(|captured| captured.pass.stepping),
                "outputs": named(
                    variant.captured.first().iter().flat_map(|captured| &captured.pass.outputs)
                        .map(|output| (&output.name, output.spec.to_string().into())),
                ),
            })).collect::<Vec<_>>(),
            "bytes": named(
                [
                    ("inputs", BufferClass::Input),
                    ("staging", BufferClass::Staging),
                    ("params", BufferClass::Param),
                    ("states", BufferClass::State),
                    ("banks", BufferClass::Bank),
                    ("outputs", BufferClass::Output),
                ]
                .map(|(name, class)| {
                    let held = tables.held.iter().filter(|held| held.class == class);
                    (name, json!(held.map(|held| held.bytes).sum::<usize>()))
                }),
            ),
            "runs": self.runs,
            "timings_ms": {
                "warm_up": self.timings.warm_up.as_secs_f64() * 1e3,
                "capture": self.timings.capture.as_secs_f64() * 1e3,
            },
        })
    }
}

/// A JSON object in the order given.
fn named(entries: impl IntoIterator<Item = (impl AsRef<str>, Value)>) -> Map<String, Value> {
    let entries = entries.into_iter();
    entries
        .map(|(name, value)| (name.as_ref().to_owned(), value))
        .collect()
}
