//! What is made simpler between a graph and its launches, each step with a switch, so that its effect can be shown.
//!
//! - [`Passes::constants`]: nodes of constants are evaluated once on the host (`fold`)
//! - [`Passes::norms`]: batch normalisation goes into the weights before it (`fuse`, `emit::conv`)
//! - [`Passes::biases`]: constants that are added behind a convolution or product become its bias (`fuse`)
//! - [`Passes::followers`]: activation and residual of a convolution or product ride on its launch (`fuse`)
//! - [`Passes::patterns`]: functions spelled out in several nodes become one (`fuse`, `patterns`)
//! - [`Passes::transposes`]: transposes become other strides (`movement`)
//! - [`Passes::in_place`]: element-wise launches write where they read ([`in_place`])

mod in_place;

pub(super) use in_place::{Reused, in_place, peak_bytes};

/// Which simplifications a lowering makes; all of them unless told otherwise. None changes what is computed; where a
/// field says so, not even its bits in float32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passes {
    /// Sums, differences, products, quotients, roots, extremes and comparisons of float constants are computed on the
    /// host, rounded once. The device rounds them the same way, so the bits are the same. (Whole numbers, moves and
    /// functions that the device does not have are evaluated in any case.)
    pub constants: bool,
    /// Batch normalisation behind a convolution or product is multiplied into its weights in float64 and rounded once.
    /// A folded weight is off by half a unit in the last place, so bits differ from the product, normalised afterwards,
    /// unless the factors are powers of two and the sums exact.
    pub norms: bool,
    /// A constant that is added per channel behind a convolution or product becomes its bias, which the sum starts from
    /// instead of ending with; bits differ.
    pub biases: bool,
    /// Activation and residual of a convolution or product are part of its launch. In float32 the bits are the same; in
    /// bfloat16 the sum is rounded once, behind them.
    pub followers: bool,
    /// Functions spelled out in several nodes (SiLU, HardSwish, GELU), and feature nets of pillars, become one, which is
    /// at least as exact as the nodes one by one; bits differ.
    pub patterns: bool,
    /// A transpose is another view of the same elements instead of a copy. The bits are the same.
    pub transposes: bool,
    /// An element-wise launch whose operand nobody needs afterwards writes its result there. The bits are the same,
    /// and less memory is needed at once.
    pub in_place: bool,
}

impl Passes {
    /// All of them.
    pub const ALL: Self = Self {
        constants: true,
        norms: true,
        biases: true,
        followers: true,
        patterns: true,
        transposes: true,
        in_place: true,
    };

    /// None of them.
    pub const NONE: Self = Self {
        constants: false,
        norms: false,
        biases: false,
        followers: false,
        patterns: false,
        transposes: false,
        in_place: false,
    };
}

impl Default for Passes {
    fn default() -> Self {
        Self::ALL
    }
}
