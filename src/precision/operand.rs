//! The parts of an operand that a matrix engine multiplies in its passes.

/// Significant bits of the multipliers' two inputs, and of what is left of TF32 behind them.
const HIGH_BITS: [u32; 2] = [5, 7];
/// Of the 11 significant bits of TF32 the 5-bit input never sees the last one.
const ALL_BITS: [u32; 2] = [10, 11];

/// Which input of the multipliers an operand goes to.
///
/// The engine computes `Dst += SrcB x SrcA`. A product of matrices puts its right factor into SrcA and its left one into
/// SrcB, so that weights are read through the narrow input and activations through the wide one. With the factors in
/// the other order the roles change, and with them the result of every fidelity below [`super::Fidelity::HiFi4`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatrixOperand {
    /// SrcA, 5 bits at a time: weights.
    Weight = 0,
    /// SrcB, 7 bits at a time: activations.
    Activation = 1,
}

impl MatrixOperand {
    /// A value as this input takes it: `[high, low]`, the leading bits of its significand and the ones after them, both
    /// with the value's sign. Bits past the last that is ever read are cut off: fp32 enters as TF32 (10 fraction bits, not
    /// rounded), and the weights' input ignores the last of those. bf16 values lose nothing.
    ///
    /// Subnormals are zero, as the engine has it. An infinity or NaN is all in the high part; what a sum then becomes
    /// follows IEEE 754 here, which the engine does not.
    ///
    /// | | high | low |
    /// |---|---|---|
    /// | weight | leading one and 4 bits | next 5 bits (bf16: the remaining 3) |
    /// | activation | leading one and 6 bits | next 4 bits (bf16: the remaining 1) |
    ///
    /// Source: the fidelity phases of `SrcA` and `SrcB` in Tenstorrent's Tensix instruction set documentation
    /// (`WormholeB0/TensixTile/TensixCoprocessor/SrcASrcB.md`); tt-metal's `tech_reports/matrix_engine` says that
    /// Blackhole has the same.
    #[must_use]
    pub fn parts(self, value: f32) -> [f32; 2] {
        /// fp32's significant bits, the leading one among them.
        const SIGNIFICANT: u32 = 24;
        let bits = value.to_bits();
        match bits >> 23 & 0xff {
            0 => return [f32::from_bits(bits & 1 << 31); 2],
            0xff => return [value, 0.0],
            _ => {}
        }
        let first = |count: u32| f32::from_bits(bits & u32::MAX << (SIGNIFICANT - count));
        let high = first(HIGH_BITS[self as usize]);
        // Both have the same exponent, so the difference is exact.
        [high, first(ALL_BITS[self as usize]) - high]
    }
}
