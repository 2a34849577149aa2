//! Functions that exporters spell out in several nodes.

use super::fuse::{Fuser, Pattern, activation};
use crate::device::Activation;

impl Fuser<'_> {
    /// `x * Sigmoid(x)`, `x * HardSigmoid(x)`, and the forms of `x * Clip(x + 3, 0, 6) / 6` and of
    /// `x / 2 * (1 + Erf(x / sqrt(2)))`.
    pub(super) fn spelled_pattern(&self, value: &str) -> Option<Pattern> {
        self.readers(value).into_iter().find_map(|first| {
            let gate = self.result(first)?;
            let next = self.only_reader(gate)?;
            let gated = |activation: Activation| -> Option<Pattern> {
                (self.is(next, "Mul") && self.other(next, gate) == Some(value)).then(|| Pattern {
                    activation,
                    nodes: vec![first, next],
                    readers: vec![first, next],
                })
            };
            match activation(self.node(first), self.facts) {
                Some(Activation::Sigmoid) => return gated(Activation::Silu),
                Some(Activation::HardSigmoid { alpha, beta })
                    if near(alpha.get(), 1.0 / 6.0) && beta.get() == 0.5 =>
                {
                    return gated(Activation::HardSwish);
                }
                _ => {}
            }
            if self.is(next, "Erf") {
                return self.gelu(value, first, next);
            }
            if self.is(first, "Add") && self.constant(self.other(first, value)?) == Some(3.0) {
                self.hard_swish(value, first, next)
            } else {
                None
            }
        })
    }

    /// What follows `x + 3` in a spelled-out HardSwish: a Clip to 0..6, then a product with `x` and a
    /// division by 6 in either order.
    fn hard_swish(&self, value: &str, add: usize, clip: usize) -> Option<Pattern> {
        match activation(self.node(clip), self.facts)? {
            Activation::Clip { low, high } if low.get() == 0.0 && high.get() == 6.0 => {}
            _ => return None,
        }
        let clipped = self.result(clip)?;
        let third = self.only_reader(clipped)?;
        let product = self.result(third)?;
        let fourth = self.only_reader(product)?;
        let times_x = |at: usize, gate: &str| self.is(at, "Mul") && self.other(at, gate) == Some(value);
        let product_first = times_x(third, clipped) && self.divides_by_6(fourth, product);
        let division_first = self.divides_by_6(third, clipped) && times_x(fourth, product);
        let product_node = if product_first { third } else { fourth };
        let mut readers = vec![add, product_node];
        readers.sort_unstable();
        (product_first || division_first).then(|| Pattern {
            activation: Activation::HardSwish,
            nodes: vec![add, clip, third, fourth],
            readers,
        })
    }

    fn divides_by_6(&self, index: usize, value: &str) -> bool {
        let node = self.node(index);
        let by = |constant: Option<f32>, wanted: f32| constant.is_some_and(|c| near(c, wanted));
        let divisor = node.input(1).and_then(|d| self.constant(d));
        (self.is(index, "Div") && node.input(0) == Some(value) && by(divisor, 6.0))
            || (self.is(index, "Mul")
                && by(self.other(index, value).and_then(|o| self.constant(o)), 1.0 / 6.0))
    }

    /// What follows `Erf(x / sqrt(2))` in a spelled-out GELU: 1 is added, and that multiplied by `x` and by a half, in any
    /// order.
    fn gelu(&self, value: &str, scaled: usize, erf: usize) -> Option<Pattern> {
        let root = std::f32::consts::SQRT_2;
        let factor = self.other(scaled, value).and_then(|other| self.constant(other))?;
        let by_root = match self.is(scaled, "Div") && self.node(scaled).input(0) == Some(value) {
            true => near(factor, root),
            false => self.is(scaled, "Mul") && near(factor, 1.0 / root),
        };
        let add = self.only_reader(self.result(erf)?)?;
        let one = self
            .other(add, self.result(erf)?)
            .and_then(|other| self.constant(other));
        if !by_root || !self.is(add, "Add") || one != Some(1.0) {
            return None;
        }
        let sum = self.result(add)?;
        let third = self.only_reader(sum)?;
        let halves = |index: usize, of: &str| -> bool {
            let factor = self.other(index, of).and_then(|other| self.constant(other));
            self.is(index, "Mul") && factor == Some(0.5)
        };
        let pattern = |mut readers: Vec<usize>, nodes: Vec<usize>| {
            readers.sort_unstable();
            let activation = Activation::Gelu;
            Some(Pattern {
                activation,
                nodes,
                readers,
            })
        };
        // The half of x, made beside.
        let beside = self
            .readers(value)
            .into_iter()
            .find(|&reader| halves(reader, value));
        if let Some(half) = beside
            && self.is(third, "Mul")
            && self.other(third, sum) == self.result(half)
            && self.only_reader(self.result(half)?) == Some(third)
        {
            return pattern(vec![scaled, half], vec![scaled, half, erf, add, third]);
        }
        let product = self.result(third)?;
        let fourth = self.only_reader(product)?;
        let times_x = |index: usize, of: &str| self.is(index, "Mul") && self.other(index, of) == Some(value);
        if times_x(third, sum) && halves(fourth, product) {
            return pattern(vec![scaled, third], vec![scaled, erf, add, third, fourth]);
        }
        if halves(third, sum) && times_x(fourth, product) {
            return pattern(vec![scaled, fourth], vec![scaled, erf, add, third, fourth]);
        }
        None
    }
}

fn near(a: f32, b: f32) -> bool {
    (a - b).abs() <= 1e-6 * b.abs()
}
