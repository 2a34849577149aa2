//! Whether batches and bounds on frames in flight fit the model and each other.

use super::{Validator, value_span};
use crate::pipeline::problem::Problem;
use crate::pipeline::settings::{ModelSettings, OnStreamsFull};
use crate::pipeline::tree::Entry;

impl Validator<'_> {
    /// Checks the batches of a model.
    pub(super) fn check_batch(&mut self, entry: &Entry, settings: &ModelSettings) {
        let Some(batch) = &settings.batch else { return };
        let (family, max_streams) = (&settings.family, settings.max_streams);
        if !family.can_batch() {
            let message = format!(
                "a {} network takes one frame at a time: it keeps earlier frames of each stream",
                family.name()
            );
            let problem = Problem::error(message, value_span(entry, "batch"), "leave this out");
            self.problems
                .push(problem.related(value_span(entry, "type"), "because of this type"));
            return;
        }
        let sizes = entry.value.get("batch").and_then(|batch| batch.get("sizes"));
        let span = sizes.map_or_else(|| value_span(entry, "batch"), |sizes| &sizes.span);
        if !batch.sizes.is_sorted_by(|smaller, larger| smaller < larger) {
            let message = format!("the batch sizes of `models.{}` are not in order", entry.key);
            self.problems.push(Problem::error(
                message,
                span,
                "expected each size once, the smallest first",
            ));
            return;
        }
        let largest = batch.largest();
        if settings.on_full == OnStreamsFull::Reject && largest > max_streams {
            let message = format!(
                "a batch of {largest} has a frame of {largest} streams, and `models.{}` serves {max_streams}",
                entry.key
            );
            let label = format!("expected sizes up to {max_streams}, or `max_streams: {largest}`");
            self.problems.push(Problem::error(message, span, label));
        }
        if let Some(most) = settings.max_in_flight.filter(|&most| most < u32::from(largest)) {
            let message = format!("a batch of {largest} never fills with {most} frames in flight");
            let label = format!("expected at least {largest}");
            let problem = Problem::error(message, value_span(entry, "max_in_flight"), label);
            self.problems
                .push(problem.related(span, "the largest batch is here"));
        }
    }
}
