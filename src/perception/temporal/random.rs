//! Weights out of a seed.

use ndarray::{Array2, Array4};

/// Numbers that are the same on every machine: splitmix64 (Steele, Lea and Flood 2014), started from a seed and the name
/// of what is drawn, so that layers do not depend on each other's sizes. A number in -1 to 1 is the upper 24 bits of a
/// draw over 2^23, minus 1, which float32 holds exactly.
#[derive(Debug, Clone)]
pub struct SeededWeights {
    state: u64,
}

impl SeededWeights {
    /// The numbers of `name` under `seed`.
    #[must_use]
    pub fn new(seed: u64, name: &str) -> Self {
        let mut drawn = Self { state: seed };
        for byte in name.bytes() {
            drawn.state = drawn.bits() ^ u64::from(byte);
        }
        drawn
    }

    fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from -1 to below 1.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// Numbers from `-scale` to below `scale`.
    pub fn numbers(&mut self, count: usize, scale: f32) -> Vec<f32> {
        (0..count).map(|_| self.unit() * scale).collect()
    }

    /// Weights `[outputs, inputs, kernel, kernel]` of a convolution with a ReLU behind it: uniform within
    /// `sqrt(6 / (inputs kernel^2))`, which keeps the size of activations.
    pub fn conv(&mut self, outputs: usize, inputs: usize, kernel: usize) -> Array4<f32> {
        let scale = (6.0 / (inputs * kernel * kernel) as f32).sqrt();
        Array4::from_shape_simple_fn((outputs, inputs, kernel, kernel), || self.unit() * scale)
    }

    /// Weights `[inputs, outputs]` of a dense layer: uniform within `gain sqrt(3 / inputs)`.
    pub fn dense(&mut self, inputs: usize, outputs: usize, gain: f32) -> Array2<f32> {
        let scale = gain * (3.0 / inputs as f32).sqrt();
        Array2::from_shape_simple_fn((inputs, outputs), || self.unit() * scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_every_machine_and_names_have_their_own() {
        // splitmix64 from seed 0.
        let mut drawn = SeededWeights::new(0, "");
        assert_eq!(drawn.bits(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(drawn.bits(), 0x6e78_9e6a_a1b9_65f4);
        let mut numbers = SeededWeights::new(7, "stem");
        let first = numbers.numbers(1000, 1.0);
        assert!(first.iter().all(|x| (-1.0..1.0).contains(x)));
        let mean = first.iter().sum::<f32>() / 1000.0;
        assert!(mean.abs() < 0.1, "{mean}");
        assert_eq!(SeededWeights::new(7, "stem").numbers(1000, 1.0), first);
        assert_ne!(SeededWeights::new(8, "stem").numbers(1000, 1.0), first);
        assert_ne!(SeededWeights::new(7, "body").numbers(1000, 1.0), first);
    }
}
