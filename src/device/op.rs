//! Operation descriptions: what a program computes, with every shape, stride and constant fixed. Equal
//! descriptions share one compiled program.

use std::fmt;
use std::sync::Arc;

use super::op_matrix::{LayerNormDesc, MatMulDesc, ReduceDesc, SdpaDesc};
use super::op_query::{GridSampleDesc, LocalMaxDesc, SegmentReduceDesc, SplitIndexDesc, TopKDesc};
use crate::precision::Math;
use crate::tensor::{DType, View};

/// A constant inside an [`OpDesc`], compared and hashed by its bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scalar(u32);

impl Scalar {
    /// Wraps a value.
    #[must_use]
    pub const fn new(value: f32) -> Self {
        Self(value.to_bits())
    }

    /// The value.
    #[must_use]
    pub const fn get(self) -> f32 {
        f32::from_bits(self.0)
    }
}

impl fmt::Debug for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// How a program sees one bound buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Operand {
    /// Element type of the buffer.
    pub dtype: DType,
    /// Window onto the buffer.
    pub view: View,
}

/// Element-wise functions, alone or fused behind a convolution. Formulas are those of ONNX.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Activation {
    /// `x`
    #[default]
    Identity,
    /// `max(x, 0)`
    Relu,
    /// `min(max(x, low), high)`; ReLU6 is `Clip(0, 6)`.
    Clip {
        /// Lower bound.
        low: Scalar,
        /// Upper bound.
        high: Scalar,
    },
    /// `x < 0 ? slope * x : x`
    LeakyRelu {
        /// Slope below zero.
        slope: Scalar,
    },
    /// `1 / (1 + exp(-x))`
    Sigmoid,
    /// `x / (1 + exp(-x))`
    Silu,
    /// `min(max(alpha * x + beta, 0), 1)`
    HardSigmoid {
        /// Slope.
        alpha: Scalar,
        /// Value at zero.
        beta: Scalar,
    },
    /// `x * min(max(x / 6 + 0.5, 0), 1)`
    HardSwish,
    /// `tanh(x)`
    Tanh,
    /// `exp(x)`
    Exp,
    /// The error function.
    Erf,
    /// `x / 2 * (1 + erf(x / sqrt(2)))`
    Gelu,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))`
    GeluTanh,
    /// Square root.
    Sqrt,
    /// `1 / sqrt(x)`
    Rsqrt,
    /// Magnitude.
    Abs,
    /// `-x`
    Neg,
    /// Natural logarithm.
    Log,
    /// `log(1 + exp(x))`
    Softplus,
    /// `x < 0 ? alpha * (exp(x) - 1) : x`
    Elu {
        /// Minus the limit of large negative numbers.
        alpha: Scalar,
    },
    /// `1 / x`
    Reciprocal,
    /// The next integer at or below.
    Floor,
    /// The next integer at or above.
    Ceil,
    /// The nearest integer; of two, the even one.
    Round,
    /// `x * tanh(log(1 + exp(x)))`
    Mish,
}

/// Element-wise functions of two tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BinaryKind {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`
    Div,
    /// `max(a, b)`
    Max,
    /// `min(a, b)`
    Min,
    /// `a == b ? 1 : 0`; 0 where either is NaN.
    Equal,
    /// `a < b ? 1 : 0`; 0 where either is NaN.
    Less,
    /// `a <= b ? 1 : 0`; 0 where either is NaN.
    LessOrEqual,
    /// `a / b` cut to a whole number; exact for whole `a` and `b` below 2^24 in magnitude.
    Quotient,
    /// `a - b * floor(a / b)`, which has the sign of `b`; exact for whole `a` and `b` below 2^24 in magnitude.
    Remainder,
    /// `a < 0 ? a * b : a`, ONNX's PRelu.
    LeakyRelu,
}

/// Where the elements of one output row or column of a resize come from: `taps` weighted positions each.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TapTable {
    /// Positions that one output element reads, at least one.
    pub taps: usize,
    /// Source positions, `taps` for each output element.
    pub positions: Arc<[u32]>,
    /// Weights, one for each position.
    pub weights: Arc<[Scalar]>,
}

/// Window geometry of a convolution or pooling, `[rows, columns]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Geometry2d {
    /// Window size.
    pub kernel: [usize; 2],
    /// Step between windows.
    pub stride: [usize; 2],
    /// Step between the taps of one window.
    pub dilation: [usize; 2],
    /// Padding before the first row and column. Padding behind follows from the output size.
    pub pad_begin: [usize; 2],
}

/// Where a convolution adds its residual.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ResidualOrder {
    /// `act(sum) + residual`, as cross-stage partial networks do.
    #[default]
    AfterActivation,
    /// `act(sum + residual)`, as residual networks do.
    BeforeActivation,
}

/// A 2-D convolution over logical `[N, C, H, W]` operands whose channel stride is 1 (channels-last), with
/// bias, activation and an optional residual that is added behind the activation or before it:
/// `out = act(conv(input, weight) + bias) (+ residual)` or `out = act(conv(input, weight) + bias + residual)`. Output and residual have one type, fp32 or the input's. Bound
/// buffers: input, prepared weights, output and, if present, residual. The order of summing is that of taps (rows,
/// columns), then input channels; under [`Math::Native`] it happens in fp32, or for bf16 as the instruction of the
/// processor has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Conv2dDesc {
    /// Input, `[N, Cin, H, W]`.
    pub input: Operand,
    /// Output, `[N, Cout, OH, OW]`.
    pub output: Operand,
    /// Added to the result, same shape as the output.
    pub residual: Option<Operand>,
    /// Where it is added; without a residual [`ResidualOrder::AfterActivation`].
    pub residual_order: ResidualOrder,
    /// Window geometry.
    pub geometry: Geometry2d,
    /// Channel groups; `Cin` groups of one channel are a depth-wise convolution.
    pub groups: usize,
    /// Applied to the sum, before the residual or behind it.
    pub activation: Activation,
    /// How products are summed.
    pub math: Math,
}

/// How a pooling window is reduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PoolKind {
    /// Largest element; padding never wins.
    Max,
    /// Mean over the whole window, padding counted as zeros.
    AverageIncludingPad,
    /// Mean over the elements inside the image.
    AverageExcludingPad,
    /// Sum over the elements inside the image.
    Sum,
}

/// A 2-D pooling over logical `[N, C, H, W]` operands with channel stride 1. Bound buffers: input, output.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pool2dDesc {
    /// Input, `[N, C, H, W]`.
    pub input: Operand,
    /// Output, `[N, C, OH, OW]`.
    pub output: Operand,
    /// Window geometry.
    pub geometry: Geometry2d,
    /// Reduction.
    pub kind: PoolKind,
}

/// The feature net of pillar detectors: one or two dense layers with a ReLU over the points of each pillar, and the
/// maximum over the points behind each of them. Bound buffers: points, prepared weights, output.
///
/// One layer: `out = max_k relu(x_k W + b)`. Two, the second of which sees each point beside the pillar's maximum:
/// `h_k = relu(x_k W0 + b0)`, `m = max_k h_k`, `out = max_k relu([h_k | m] W1 + b1)`.
///
/// With `W1 = [A; B]` it is computed as `relu(max_k(h_k A) + (m B + b1))`: adding a number, rounding and ReLU never
/// change the order of two numbers, so this is what the formula gives if the sum is rounded in this order. All of it
/// happens in fp32, weights and the values between the layers included, whatever the storage.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PillarsDesc {
    /// Points, `[pillars, points, features]`, feature stride 1.
    pub points: Operand,
    /// Result, `[pillars, outputs]`, output stride 1.
    pub output: Operand,
    /// Outputs of the first layer where there are two.
    pub hidden: Option<usize>,
}

/// A sparse convolution in gather form: `out[o] = act(bias + sum_k table[index[o, k]] W[k] (+ residual[o]))`. An entry of
/// the index that the table does not have, such as a sentinel, contributes nothing, and nothing outside the table is
/// read, whatever the buffer holds.
///
/// All arithmetic is fp32, whatever the storage: one chain of fused multiply-adds an output, which starts at the bias and
/// takes the taps that are there in order, then input channels; then residual and activation. Only where both table and
/// weights are bf16 and the device multiplies bf16 are the products of a tap summed from zero in the device's way (in
/// order of channels, first those of all first terms of the weights, then those of the second), and that sum is added to
/// the output's sum so far.
///
/// Bound buffers: table, index, prepared weights, residual if present, output if present, then the terms.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GatherConvDesc {
    /// Rows of the input, `[V, Cin]`, fp32 or bf16, channel stride 1.
    pub table: Operand,
    /// Row of each tap, `[rows, K]`, uint32.
    pub index: Operand,
    /// Added before the activation, `[rows, Cout]`, fp32 or bf16, channel stride 1.
    pub residual: Option<Operand>,
    /// The result, `[rows, Cout]`, fp32, channel stride 1.
    pub output: Option<Operand>,
    /// The result as the sum of at most two bf16 values, `[rows, Cout]` each, channel stride 1: the result rounded, and
    /// what the rounding left, rounded. There is an output, a term, or both.
    pub terms: Vec<Operand>,
    /// How the weights are rounded.
    pub weights: WeightForm,
    /// Applied last.
    pub activation: Activation,
}

impl GatherConvDesc {
    /// The output, if present, then the terms.
    pub(crate) fn results(&self) -> impl Iterator<Item = &Operand> {
        self.output.iter().chain(&self.terms)
    }
}

/// How weights are rounded before they are used, to nearest even.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WeightForm {
    /// Not at all.
    #[default]
    Float32,
    /// To bf16.
    Bfloat16,
    /// To the sum of two bf16 values, 16 bits: the weight rounded, and what the rounding left, rounded.
    TwoTerms,
}

impl WeightForm {
    /// Terms of bf16 that hold a weight; none where it stays fp32.
    #[must_use]
    pub const fn terms(self) -> usize {
        match self {
            Self::Float32 => 0,
            Self::Bfloat16 => 1,
            Self::TwoTerms => 2,
        }
    }

    /// Both terms of a weight; their sum is exact in fp32.
    #[must_use]
    pub fn split(self, weight: f32) -> [f32; 2] {
        let round = |value: f32| half::bf16::from_f32(value).to_f32();
        match self {
            Self::Float32 => [weight, 0.0],
            Self::Bfloat16 => [round(weight), 0.0],
            Self::TwoTerms => [round(weight), round(weight - round(weight))],
        }
    }
}

/// What one program computes. Shapes, strides, types and constants are part of the description; buffers are
/// bound at launch, in the order that each variant states.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OpDesc {
    /// Moves elements between views of one shape, converting the type (to nearest even where it narrows,
    /// saturating to integers). Buffers: source, destination.
    Copy {
        /// Source window.
        src: Operand,
        /// Destination window.
        dst: Operand,
    },
    /// Writes one value everywhere. Buffers: destination.
    Fill {
        /// Destination window.
        dst: Operand,
        /// The value.
        value: Scalar,
    },
    /// Convolution. Buffers: input, weights, output, residual if present.
    Conv2d(Conv2dDesc),
    /// Pooling. Buffers: input, output.
    Pool2d(Pool2dDesc),
    /// Nearest-neighbour resize of `[N, C, H, W]` by index tables: output row `y` is input row `rows[y]`.
    /// Buffers: source, destination.
    ResizeNearest {
        /// Source, channel stride 1.
        src: Operand,
        /// Destination, channel stride 1.
        dst: Operand,
        /// Source row of each output row.
        rows: Arc<[u32]>,
        /// Source column of each output column.
        columns: Arc<[u32]>,
    },
    /// Element-wise function. Buffers: source, destination (may be the same buffer under equal views).
    Unary {
        /// Source window.
        src: Operand,
        /// Destination window, same shape.
        dst: Operand,
        /// The function.
        activation: Activation,
    },
    /// Element-wise function of two tensors, already broadcast to one shape. Buffers: left, right,
    /// destination (may be one of the operands' under its view).
    Binary {
        /// Left operand.
        lhs: Operand,
        /// Right operand.
        rhs: Operand,
        /// Destination.
        dst: Operand,
        /// The function.
        kind: BinaryKind,
    },
    /// `exp(x - max) / sum` along one axis, sums in index order. Buffers: source, destination.
    Softmax {
        /// Source window.
        src: Operand,
        /// Destination window, same shape.
        dst: Operand,
        /// The axis that sums to one.
        axis: usize,
    },
    /// Picks constant positions of one axis: `dst[.., i, ..] = src[.., indices[i], ..]`. Buffers: source,
    /// destination.
    Gather {
        /// Source window.
        src: Operand,
        /// Destination window.
        dst: Operand,
        /// The gathered axis.
        axis: usize,
        /// Positions, already checked against the axis.
        indices: Arc<[u32]>,
    },
    /// Picks rows by an index that lies on the device: `dst[i] = table[index[i]]`. An index that the table does not
    /// have, such as the sentinel of a scatter in gather form, gives a row of zeros; nothing outside the table is read,
    /// whatever the buffer holds. Buffers: table, index, destination.
    GatherRows {
        /// `[rows, columns]`, of any type.
        table: Operand,
        /// `[n]`, uint32.
        index: Operand,
        /// `[n, columns]`, of the table's type.
        dst: Operand,
    },
    /// Feature net of pillars. Buffers: points, weights, output.
    Pillars(PillarsDesc),
    /// Sparse convolution. Buffers: table, index, weights, residual if present, output if present, terms.
    GatherConv(GatherConvDesc),
    /// `condition != 0 ? yes : no`, all broadcast to one shape; NaN counts as true. The chosen element is moved, so
    /// infinities and NaN of the other one do not matter. Buffers: condition, yes, no, destination.
    Select {
        /// float32 or bfloat16.
        condition: Operand,
        /// float32 or bfloat16.
        yes: Operand,
        /// Of `yes`'s type.
        no: Operand,
        /// Of `yes`'s type.
        dst: Operand,
    },
    /// Picks along one axis by an index that lies on the device: `dst[.., i, ..] = src[.., index[.., i, ..], ..]`, with
    /// the index of the destination's shape (stride 0 where it does not depend on an axis, so that whole rows are
    /// picked). A negative index counts from the end; one outside the axis gives zero, and nothing outside the source
    /// is read whatever the buffer holds. Buffers: source, index, destination.
    GatherElements {
        /// Of any type; along other axes at least as long as the destination.
        src: Operand,
        /// uint32, int32 or whole numbers in float32.
        index: Operand,
        /// Of the source's type.
        dst: Operand,
        /// The axis of the source that the index counts along.
        axis: usize,
    },
    /// Writes along one axis by an index that lies on the device: `dst[.., index[.., i, ..], ..] = updates[.., i, ..]`
    /// for rising `i`, so that the last of several updates of one place stays, or combined with what is there. What no
    /// index names stays as it is. A negative index counts from the end; one outside the axis writes nothing.
    /// Buffers: updates, index, destination.
    ScatterElements {
        /// Of the destination's type.
        updates: Operand,
        /// uint32, int32 or whole numbers in float32; of the updates' shape.
        index: Operand,
        /// Any type, float32 or bfloat16 where updates are combined; along other axes at least as long as the updates.
        dst: Operand,
        /// The axis of the destination that the index counts along.
        axis: usize,
        /// `kind(there, update)` instead of the update.
        combine: Option<BinaryKind>,
    },
    /// Resize of `[N, C, H, W]` by weighted sums of rows, then of columns, in fp32 and in the order of the taps.
    /// Buffers: source, destination.
    ResizeTaps {
        /// Source, channel stride 1, float32 or bfloat16.
        src: Operand,
        /// Destination of the same type, channel stride 1.
        dst: Operand,
        /// Source rows of each output row.
        rows: TapTable,
        /// Source columns of each output column.
        columns: TapTable,
    },
    /// Matrix product. Buffers: left, right, output, bias if present.
    MatMul(MatMulDesc),
    /// Normalisation over the last axes. Buffers: source, destination, then residual, gamma, beta if present.
    LayerNorm(LayerNormDesc),
    /// Reduction over axes. Buffers: source, destination.
    Reduce(ReduceDesc),
    /// First elements of an order. Buffers: source, values, indices.
    TopK(TopKDesc),
    /// Positions taken apart into row and place. Buffers: index, major, minor.
    SplitIndex(SplitIndexDesc),
    /// Local maxima of maps. Buffers: input, output.
    LocalMax(LocalMaxDesc),
    /// Maps sampled at given places. Buffers: input, grid, output.
    GridSample(GridSampleDesc),
    /// Runs of rows reduced. Buffers: rows, offsets, result.
    SegmentReduce(SegmentReduceDesc),
    /// Attention. Buffers: query, key, value, output, mask if present.
    Sdpa(SdpaDesc),
}

impl OpDesc {
    /// Short name for logs, errors and reports.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Copy { .. } => "copy",
            Self::Fill { .. } => "fill",
            Self::Conv2d(_) => "conv2d",
            Self::Pool2d(_) => "pool2d",
            Self::ResizeNearest { .. } => "resize_nearest",
            Self::Unary { .. } => "unary",
            Self::Binary { .. } => "binary",
            Self::Softmax { .. } => "softmax",
            Self::Gather { .. } => "gather",
            Self::GatherRows { .. } => "gather_rows",
            Self::Pillars(_) => "pillars",
            Self::GatherConv(_) => "gather_conv",
            Self::Select { .. } => "select",
            Self::GatherElements { .. } => "gather_elements",
            Self::ScatterElements { .. } => "scatter_elements",
            Self::ResizeTaps { .. } => "resize_taps",
            Self::MatMul(_) => "matmul",
            Self::LayerNorm(_) => "layer_norm",
            Self::Reduce(_) => "reduce",
            Self::TopK(_) => "topk",
            Self::SplitIndex(_) => "split_index",
            Self::LocalMax(_) => "local_max",
            Self::GridSample(_) => "grid_sample",
            Self::SegmentReduce(_) => "segment_reduce",
            Self::Sdpa(_) => "sdpa",
        }
    }
}

/// Constant operands that a device stores in a form of its own.
#[derive(Debug, Clone)]
pub enum WeightDesc<'a> {
    /// Weights `[Cout, Cin / groups, KH, KW]` (row-major) and bias `[Cout]` of a convolution. Under [`Math::Native`],
    /// where the description stores bf16, weights are rounded to bf16 once (nearest even) and the bias stays fp32;
    /// under [`Math::Matrix`] weights are rounded to the format that it names, whatever the storage, and the bias to
    /// bf16 unless that format is fp32.
    Conv2d {
        /// The convolution that will use them.
        desc: &'a Conv2dDesc,
        /// Row-major weights.
        weight: &'a [f32],
        /// One value per output channel; absent means zeros.
        bias: Option<&'a [f32]>,
    },
    /// The layers of a feature net of pillars, fp32 whatever the storage.
    Pillars {
        /// The net that will use them.
        desc: &'a PillarsDesc,
        /// First layer.
        first: DenseLayer<'a>,
        /// Second layer, where there is one; its inputs are the first layer's outputs, then their maxima.
        second: Option<DenseLayer<'a>>,
    },
    /// Weights and bias of a sparse convolution. The bias stays fp32.
    GatherConv {
        /// The convolution that will use them.
        desc: &'a GatherConvDesc,
        /// `[Cout, K, Cin]`, row-major: the filter `[Cout, k0, k1, k2, Cin]` with its taps in order.
        weight: &'a [f32],
        /// One value per output channel; absent means zeros.
        bias: Option<&'a [f32]>,
    },
}

/// Constants of `y = x W + b`.
#[derive(Debug, Clone, Copy)]
pub struct DenseLayer<'a> {
    /// `[inputs, outputs]`, row-major.
    pub weight: &'a [f32],
    /// One value per output.
    pub bias: &'a [f32],
}
