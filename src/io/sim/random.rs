//! Seeded random numbers: SplitMix64, the same on every machine.

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub(super) struct Random {
    state: u64,
}

/// Scrambles 64 bits (the finaliser of SplitMix64).
pub(super) const fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

impl Random {
    /// The `stream`-th stream of a seed; streams have nothing to do with each other.
    pub(super) const fn new(seed: u64, stream: u64) -> Self {
        let state =
            mix(seed ^ 0x5eed_5eed_5eed_5eed).wrapping_add(mix(stream.wrapping_add(0x9e37_79b9_7f4a_7c15)));
        Self { state }
    }

    pub(super) const fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// 0 up to, not including, 1.
    pub(super) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// 0 to `count` - 1.
    pub(super) fn below(&mut self, count: usize) -> usize {
        (self.unit() * count as f64) as usize
    }
}

/// The largest whole number that is not above `x`. The standard library's is a call on machines without SSE 4.1.
pub(super) fn floor(x: f32) -> i32 {
    let cut = x as i32;
    cut - i32::from(cut as f32 > x)
}

/// `x` less the largest whole number that is not above it.
pub(super) fn fraction(x: f32) -> f32 {
    x - floor(x) as f32
}
