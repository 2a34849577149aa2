//! Descriptions of selections and samplings: top-k, local maxima, grid sampling, segments.

use std::sync::Arc;

use super::op::{Operand, Scalar};

/// Which end of an order is selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TopKOrder {
    /// The largest elements, descending.
    Largest,
    /// The smallest elements, ascending.
    Smallest,
}

/// The first `k` elements of every line along one axis in the order asked for, where `k` is the length of that axis in
/// the results. The result is exact and unique: elements come sorted, equal ones (`-0` equals `+0`) by ascending index. A
/// NaN counts as larger than every number, so the largest elements of damaged scores show the damage. Bound buffers:
/// source, values, indices.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TopKDesc {
    /// fp32, bf16, int32 or uint32.
    pub src: Operand,
    /// The elements, of the source's type and, but for the axis, shape.
    pub values: Operand,
    /// Their positions on the axis: uint32, int32 or int64, of the values' shape.
    pub indices: Operand,
    /// The axis.
    pub axis: usize,
    /// Which end.
    pub order: TopKOrder,
}

/// Takes positions in a `[major, minor]` array, counted row by row, apart: `major = index / minor_len`,
/// `minor = index % minor_len`, in integers. Positions past the array (a selection's sentinel, say) become its last
/// element where `clamp` is set, so that they cannot be used as an index outside of a table; without it they get the
/// last row and what is left of the position. Bound buffers: index, major, minor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SplitIndexDesc {
    /// Positions, uint32 `[n]`.
    pub index: Operand,
    /// Rows, uint32 `[n]`.
    pub major: Operand,
    /// Places in the row, uint32 `[n]`.
    pub minor: Operand,
    /// Rows of the array.
    pub major_len: u32,
    /// Places of a row.
    pub minor_len: u32,
    /// Whether positions past the array become its last element.
    pub clamp: bool,
}

/// What becomes of an element that does not take part in the comparison of a [`LocalMaxDesc`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unpooled {
    /// It is multiplied by 0.
    Drop,
    /// It stays.
    Pass,
}

/// Keeps the elements of maps `[N, C, H, W]` that are the largest of their `kernel x kernel` window, those that share the
/// maximum included, and multiplies the others by 0. Elements nearer to the border than `kernel / 2`, whose window is not
/// whole, and channels that are not pooled are not compared. A NaN in a window leaves nothing of it. Bound buffers: input,
/// output.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LocalMaxDesc {
    /// Maps, fp32 or bf16, channel stride 1.
    pub input: Operand,
    /// Result, of the input's type and shape, channel stride 1.
    pub output: Operand,
    /// Side of the window, odd.
    pub kernel: usize,
    /// For each channel whether it is compared.
    pub pooled: Arc<[bool]>,
    /// What becomes of the border of compared channels.
    pub border: Unpooled,
    /// What becomes of the other channels.
    pub others: Unpooled,
}

/// How a sampling takes values between pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sampling {
    /// From the four neighbours, by distance.
    Bilinear,
    /// The nearest pixel, ties to even coordinates.
    Nearest,
}

/// What a sampling reads outside the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutsidePixels {
    /// Zeros.
    Zeros,
    /// The nearest pixel of the border.
    Border,
    /// The image mirrored at its border: at the pixels' centres with aligned corners, else at their outer edges.
    Reflection,
}

/// How exact the four weights of a bilinear sampling are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SampleWeights {
    /// fp32.
    Exact,
    /// Cut to bf16 (towards zero), as accelerators that keep them in 16 bits do.
    TruncatedBf16,
}

/// Samples maps at given places, as ONNX's `GridSample` does. A place is `(x, y)`, each from -1 to 1 over the image; the
/// pixel is `((g + 1) size - 1) / 2`, computed as `g * (size / 2) + (size - 1) / 2` in fp32, or `(g + 1) / 2 (size - 1)`
/// with aligned corners.
///
/// Bilinear: `out = ((nw v_nw + ne v_ne) + sw v_sw) + se v_se` in fp32, each step rounded, neighbours outside or of weight 0
/// left out;
/// the weights are products of the fractions of `x` and `y`. A place that is NaN gives zeros, and so does an infinite one
/// unless the border lies outside. Bound buffers: input, grid, output.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GridSampleDesc {
    /// Maps `[N, C, H, W]`, fp32 or bf16, channel stride 1.
    pub input: Operand,
    /// Places `[N, OH, OW, 2]`, fp32.
    pub grid: Operand,
    /// Result `[N, C, OH, OW]` of the input's type, channel stride 1.
    pub output: Operand,
    /// Between pixels.
    pub sampling: Sampling,
    /// Outside the image.
    pub outside: OutsidePixels,
    /// Whether -1 and 1 are the centres of the outer pixels rather than their outer edges.
    pub align_corners: bool,
    /// The weights of a bilinear sampling.
    pub weights: SampleWeights,
}

/// How a segment is reduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SegmentOp {
    /// Largest element. Exact: numbers are compared as bit patterns, `-0` below `+0`, and a NaN lies beyond the infinity
    /// of its sign.
    Max,
    /// Smallest element, in the order of [`SegmentOp::Max`].
    Min,
    /// Sum in fp32, in the order of the rows.
    Sum,
    /// [`SegmentOp::Sum`] divided by the number of rows.
    Mean,
}

/// Reduces runs of rows: segment `s` is the rows from `offsets[s]` to before `offsets[s + 1]`, and has one row of the
/// result. Offsets lie on the device and are not trusted: both ends are cut to the number of rows, and an end before its
/// begin makes the segment empty. Bound buffers: rows, offsets, result.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SegmentReduceDesc {
    /// Rows `[rows, columns]`, fp32 or bf16.
    pub rows: Operand,
    /// Offsets, uint32 `[segments + 1]`.
    pub offsets: Operand,
    /// Result `[segments, columns]`, fp32 or bf16, rounded to nearest even.
    pub output: Operand,
    /// The reduction.
    pub kind: SegmentOp,
    /// What a segment without rows gets.
    pub empty: Scalar,
}
