//! How many passes a matrix engine makes over the bits of its operands.

use std::fmt;
use std::str::FromStr;

/// Passes of a matrix engine whose multipliers take 5 bits of one operand's significand and 7 of the other's. Each pass
/// multiplies one part of each operand and adds the products to the sum of the passes before it.
///
/// The order is that of exactness: more passes, more exact products.
///
/// There is no default: an engine's own configuration without a fidelity computes in the coarsest one, and nobody should
/// get that without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fidelity {
    /// One pass: high part times high part.
    LoFi,
    /// Two passes: the low part of the 5-bit operand as well. Exact for weights of up to 10 significant bits times
    /// activations of up to 7.
    HiFi2,
    /// Three passes: the low part of the 7-bit operand too, but not low times low.
    HiFi3,
    /// Four passes: all parts. Exact for bf16 operands.
    HiFi4,
}

/// A fidelity that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no fidelity is called `{0}`: expected LoFi, HiFi2, HiFi3 or HiFi4")]
pub struct UnknownFidelity(
    /// What was written.
    pub String,
);

impl Fidelity {
    /// Every fidelity, coarsest first.
    pub const ALL: [Self; 4] = [Self::LoFi, Self::HiFi2, Self::HiFi3, Self::HiFi4];

    /// Number of passes over the operands.
    #[must_use]
    pub const fn passes(self) -> usize {
        self as usize + 1
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LoFi => "LoFi",
            Self::HiFi2 => "HiFi2",
            Self::HiFi3 => "HiFi3",
            Self::HiFi4 => "HiFi4",
        }
    }
}

impl fmt::Display for Fidelity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Fidelity {
    type Err = UnknownFidelity;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|fidelity| fidelity.name() == text)
            .ok_or_else(|| UnknownFidelity(text.into()))
    }
}
