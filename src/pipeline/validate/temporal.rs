//! Models whose weights come out of a seed.

use super::super::problem::Problem;
use super::super::settings::{Family, ModelSettings};
use super::super::temporal::{RawTemporal, TemporalSettings};
use super::super::tree::Entry;
use super::{Validator, option_span, value_span};

impl Validator<'_> {
    pub(super) fn seeded(
        &mut self,
        entry: &Entry,
        raw: &RawTemporal,
        family: fn(TemporalSettings) -> Family,
    ) -> ModelSettings {
        if let Some(file) = &self.overrides.model {
            self.problems.push(
                Problem::error(
                    format!(
                        "the model `{}` takes no weights: they come out of its seed",
                        entry.key
                    ),
                    &option_span("--model", file),
                    "not with this model",
                )
                .related(value_span(entry, "type"), "because of this type"),
            );
        }
        ModelSettings {
            weights: None,
            precision: raw.precision,
            max_streams: raw.max_streams,
            on_full: raw.on_full,
            max_in_flight: raw.max_in_flight,
            batch: raw.batch.clone(),
            bundle: None,
            family: family(raw.settings()),
        }
    }
}
