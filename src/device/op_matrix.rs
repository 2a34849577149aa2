//! Descriptions of matrix products, attention, normalisations and reductions.

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

/// Scaled dot-product attention: `out = softmax(scale * (query x key^T) + mask) x value` for every batch and head. There
/// is no causal form and no default scale: a mask says what may be seen, and the scale of a padded head is not that of
/// its size.
///
/// Keys are taken in blocks of [`Self::key_block`]; the sums of a query are carried from block to block relative to the
/// largest score so far (Milakov and Gimelshein's online softmax). Scores, exponentials and sums are fp32 whatever the
/// storage, the sum of a block's exponentials in the order of [`ReduceDesc`]; so a result depends on the block size, and
/// neither on the number of threads nor on what else is computed. A query that sees no key (all masked with `-inf`)
/// gives zeros.
///
/// Bound buffers: query, key, value, output and, if present, mask.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SdpaDesc {
    /// `[B, H, Sq, D]`
    pub query: Operand,
    /// `[B, Hkv, Sk, D]`; `Hkv` divides `H`, and neighbouring heads share keys and values.
    pub key: Operand,
    /// `[B, Hkv, Sk, Dv]`
    pub value: Operand,
    /// `[B, H, Sq, Dv]`
    pub output: Operand,
    /// Added to the scores, `[B, H, Sq, Sk]` (repeated axes with stride 0).
    pub mask: Option<Operand>,
    /// Factor of the products.
    pub scale: Scalar,
    /// Keys of one step.
    pub key_block: usize,
}
