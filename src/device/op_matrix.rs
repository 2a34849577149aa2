//! Descriptions of matrix products, normalisations and reductions.

use super::op::{Activation, Operand, Scalar};

/// `out = act(scale * (lhs x rhs) + bias)`, a product of matrices in the last two axes for every index of the axes
/// before them. All operands are seen through views, so a transposed matrix is one with its last two axes exchanged,
/// and a repeated one has stride 0; batch axes are already broadcast to one shape. Each operand is stored as fp32 or
/// bf16, independently of the others. Bound buffers: left, right, output and, if present, bias.
///
/// Every element is one chain of fp32 fused multiply-adds over `K` in index order, so it depends neither on how the
/// product is divided nor on what else is computed. `scale * sum + bias` is rounded once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MatMulDesc {
    /// `[.., M, K]`
    pub lhs: Operand,
    /// `[.., K, N]`
    pub rhs: Operand,
    /// `[.., M, N]`
    pub output: Operand,
    /// Added behind the scale; a view of the output's shape (a row repeats with stride 0).
    pub bias: Option<Operand>,
    /// Factor of the sums.
    pub scale: Scalar,
    /// Applied last.
    pub activation: Activation,
}

/// Layer normalisation over the last axes:
/// `out = (x - mean) / sqrt(variance + epsilon) * gamma + beta` with `x = src (+ residual)`, mean and (biased) variance
/// over the normalised axes, in fp32 whatever the storage. There is no default epsilon: models differ in it, and a wrong
/// one does not show.
///
/// Bound buffers: source, destination, then residual, gamma and beta, each where it is present.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LayerNormDesc {
    /// What is normalised.
    pub src: Operand,
    /// Result, same shape.
    pub dst: Operand,
    /// Added to the source first, same shape.
    pub residual: Option<Operand>,
    /// Factors; shape of the normalised axes.
    pub gamma: Option<Operand>,
    /// Summands; shape of the normalised axes.
    pub beta: Option<Operand>,
    /// How many of the last axes are normalised together.
    pub axes: usize,
    /// Added to the variance; positive.
    pub epsilon: Scalar,
}

/// How elements are reduced to one. A NaN among them gives NaN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReduceKind {
    /// Sum; 0 of nothing.
    Sum,
    /// Sum over count; NaN of nothing.
    Mean,
    /// Largest; -infinity of nothing.
    Max,
    /// Smallest; infinity of nothing.
    Min,
    /// Product; 1 of nothing.
    Prod,
    /// Sum of magnitudes.
    L1,
    /// Square root of the sum of squares.
    L2,
    /// Sum of squares.
    SumSquare,
}

/// Reduction over the axes in which the destination has one element and the source any number.
///
/// Element `i` of those that are reduced (row-major over the reduced axes) goes to the partial result `i mod 64`; the
/// partial results are then combined by halves (`0` with `32`, `1` with `33`, and so on). So it is on every instruction
/// set, for every layout and any number of threads. Bound buffers: source, destination.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReduceDesc {
    /// What is reduced.
    pub src: Operand,
    /// Result: the source's shape with 1 in the reduced axes.
    pub dst: Operand,
    /// The reduction.
    pub kind: ReduceKind,
}
