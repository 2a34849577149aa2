//! How products and sums of floats are rounded.

/// Whether `a * b + c` is rounded once or twice.
///
/// A deployed kernel does one or the other, depending on how it was built; the bits differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Contraction {
    /// Rounded once. What `nvcc` makes of CUDA kernels by default (found in the machine code of CUDA 12.8 for compute
    /// capability 7.5, 8.6 and 8.9), and IPP of float blends in OpenCV's x86 packages.
    #[default]
    Fused,
    /// Rounded after the product and after the sum: a CUDA build with `-fmad=false`, and OpenCV without IPP.
    Separate,
}

impl Contraction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Fused, Self::Separate];

    /// The name that pipeline files use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fused => "fused",
            Self::Separate => "separate",
        }
    }

    pub(super) fn multiply_add(self, a: f32, b: f32, c: f32) -> f32 {
        match self {
            Self::Fused => a.mul_add(b, c),
            Self::Separate => a * b + c,
        }
    }
}
