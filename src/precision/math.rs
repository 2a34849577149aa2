//! The arithmetic that an operation asks for.

use std::fmt;

use super::{Fidelity, OperandFormat, Precision};

/// How sums of products are computed. Whoever describes an operation says it; there is no default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Math {
    /// As the device does it best. On the CPU device: fp32 products and sums of the stored values, weights rounded to
    /// the input's type; where the processor has an instruction for sums of bf16 and `bf16_dot` allows it, convolutions of
    /// bf16 have the sums of that instruction.
    Native,
    /// As a matrix engine does it, emulated where the device is none.
    Matrix(MatrixMath),
}

/// What of a [`Precision`] changes the bits of a sum of products.
///
/// `approx` is not among it, since nothing but activations are approximated and these are exact here either way; nor
/// is `dst_full_sync`, which is about time and room alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MatrixMath {
    /// Passes over the operands' bits.
    pub fidelity: Fidelity,
    /// Whether the engine's sums are fp32; bf16 otherwise, rounded after every 16 products.
    pub fp32_acc: bool,
    /// Whether the partial sums of long products are kept in the engine's type; in the output's type otherwise.
    pub packer_l1_acc: bool,
    /// How weights are stored.
    pub weights: OperandFormat,
}

impl From<Precision> for Math {
    fn from(precision: Precision) -> Self {
        Self::Matrix(MatrixMath {
            fidelity: precision.fidelity,
            fp32_acc: precision.fp32_acc,
            packer_l1_acc: precision.packer_l1_acc,
            weights: precision.weights,
        })
    }
}

impl fmt::Display for MatrixMath {
    /// As the [`Precision`] that asks for no more is written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Precision::new(self.fidelity, self.fp32_acc)
            .with_packer_l1_acc(self.packer_l1_acc)
            .with_weights(self.weights)
            .fmt(f)
    }
}

impl fmt::Display for Math {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Native => f.write_str("native"),
            Self::Matrix(math) => math.fmt(f),
        }
    }
}
