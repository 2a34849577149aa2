//! Lowered networks with the arithmetic of a matrix engine.

use super::plan::{LoweredGraph, Slot, Step, WeightPlan};
use crate::device::OpDesc;
use crate::precision::{Math, PrecisionPolicy};

impl LoweredGraph {
    /// The network with the precision that a policy gives each convolution and each product with a constant matrix, by
    /// the name of its node (as [`super::Launch::name`] has it). Everything else computes as before: so do feature nets of
    /// pillars, which are fp32 throughout. A network is lowered with the device's own arithmetic; what storage it has
    /// is said there too, so of the precision's storage only the weights' counts.
    ///
    /// Afterwards [`PrecisionPolicy::describe`] tells what each node got.
    #[must_use]
    pub fn with_precision(mut self, policy: &PrecisionPolicy) -> Self {
        for step in &mut self.steps {
            let Step::Launch(launch) = step else {
                continue;
            };
            let OpDesc::Conv2d(desc) = &mut launch.op else {
                continue;
            };
            desc.math = Math::from(policy.resolve(&launch.name));
            // Weights are prepared for the operation that uses them, and every one has its own, bound behind the input.
            let own = match launch.slots.get(1) {
                Some(Slot::Weight(index)) => self.weights.get_mut(*index),
                _ => None,
            };
            if let Some(WeightPlan::Conv2d { desc: planned, .. }) = own {
                planned.math = desc.math;
            }
        }
        self
    }
}
