//! Operation descriptions: what a program computes, with every shape, stride and constant fixed. Equal
//! descriptions share one compiled program.

use std::fmt;
use std::sync::Arc;

use super::op_matrix::{LayerNormDesc, MatMulDesc, ReduceDesc, SdpaDesc};
use super::op_query::{GridSampleDesc, LocalMaxDesc, SegmentReduceDesc, SplitIndexDesc, TopKDesc};
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

/// A 2-D convolution over logical `[N, C, H, W]` operands whose channel stride is 1 (channels-last), with
/// bias, activation and an optional residual that is added after the activation:
/// `out = act(conv(input, weight) + bias) (+ residual)`. Output and residual have one type, fp32 or the input's. Bound buffers: input, prepared weights, output and,
/// if present, residual. Accumulation is fp32 in the order of taps (rows, columns), then input channels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Conv2dDesc {
    /// Input, `[N, Cin, H, W]`.
    pub input: Operand,
    /// Output, `[N, Cout, OH, OW]`.
    pub output: Operand,
    /// Added to the activated result, same shape as the output.
    pub residual: Option<Operand>,
    /// Window geometry.
    pub geometry: Geometry2d,
    /// Channel groups; `Cin` groups of one channel are a depth-wise convolution.
    pub groups: usize,
    /// Applied to the sum before the residual.
    pub activation: Activation,
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
    /// destination.
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
    /// Matrix product. Buffers: left, right, output, bias if present.
    MatMul(MatMulDesc),
    /// Normalisation over the last axes. Buffers: source, destination, then residual, gamma, beta if present.
    LayerNorm(LayerNormDesc),
    /// Reduction over axes. Buffers: source, destination.
    Reduce(ReduceDesc),
    /// Attention. Buffers: query, key, value, output, mask if present.
    Sdpa(SdpaDesc),
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
            Self::MatMul(_) => "matmul",
            Self::LayerNorm(_) => "layer_norm",
            Self::Reduce(_) => "reduce",
            Self::Sdpa(_) => "sdpa",
            Self::TopK(_) => "topk",
            Self::SplitIndex(_) => "split_index",
            Self::LocalMax(_) => "local_max",
            Self::GridSample(_) => "grid_sample",
            Self::SegmentReduce(_) => "segment_reduce",
        }
    }
}

/// Constant operands that a device stores in a form of its own.
#[derive(Debug, Clone)]
pub enum WeightDesc<'a> {
    /// Weights `[Cout, Cin / groups, KH, KW]` (row-major) and bias `[Cout]` of a convolution. Where the
    /// description stores bf16, weights are rounded to bf16 once (nearest even); the bias stays fp32.
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
}

/// Constants of `y = x W + b`.
#[derive(Debug, Clone, Copy)]
pub struct DenseLayer<'a> {
    /// `[inputs, outputs]`, row-major.
    pub weight: &'a [f32],
    /// One value per output.
    pub bias: &'a [f32],
}
