//! A lowered graph as plain data.

use std::collections::BTreeMap;

use super::passes::Passes;
use crate::device::{BufferClass, Conv2dDesc, OpDesc, PillarsDesc};
use crate::tensor::{DType, HostTensor, Shape, TensorSpec};
use crate::weights::{StoredWeights, WeightFormat};

/// How a caller supplies an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum InputFormat {
    /// The ONNX tensor, row-major; f32 where the model declares a float type, int32 where it declares int64, uint8
    /// where it declares bool, else as declared.
    #[default]
    Tensor,
    /// The ONNX tensor, row-major, in the storage type.
    Storage,
    /// For an input `[N, C, H, W]`: pixels `[N, H, W, C]` of type uint8, row-major. The values are used as
    /// they are, 0 to 255.
    U8ChannelsLast,
    /// For an input `[N, C, H, W]`: pixels `[N, H, W, C]` of type f32, row-major.
    F32ChannelsLast,
}

/// Choices that a lowering needs. Names that the model does not have are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LowerOptions {
    /// Type of weights and intermediates on the device: [`DType::F32`] or [`DType::Bf16`].
    pub storage: DType,
    /// How the weights of convolutions and dense layers (but those of a feature net of pillars, which stay fp32) are stored until they are brought onto the device, after batch
    /// normalisation is folded into them. Biases and other constants stay as they are.
    pub weights: WeightFormat,
    /// Formats by input name; inputs not named here come as [`InputFormat::Tensor`].
    pub formats: BTreeMap<String, InputFormat>,
    /// Sizes of symbolic dimensions, for example `batch`.
    pub symbols: BTreeMap<String, usize>,
    /// Whole shapes by input name, for inputs with open dimensions.
    pub shapes: BTreeMap<String, Vec<usize>>,
    /// What is made simpler on the way.
    pub passes: Passes,
}

impl Default for LowerOptions {
    fn default() -> Self {
        Self {
            storage: DType::F32,
            weights: WeightFormat::default(),
            formats: BTreeMap::new(),
            symbols: BTreeMap::new(),
            shapes: BTreeMap::new(),
            passes: Passes::ALL,
        }
    }
}

/// A buffer that a launch is bound to, by position in the [`LoweredGraph`]'s lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Slot {
    /// An input.
    Input(usize),
    /// A constant.
    Weight(usize),
    /// A planned buffer.
    Buffer(usize),
}

/// An input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputPlan {
    /// Name in the model.
    pub name: String,
    /// How it is supplied.
    pub format: InputFormat,
    /// Row-major buffer that the caller fills.
    pub spec: TensorSpec,
    /// Shape in the model.
    pub shape: Shape,
}

/// An output: the whole of a row-major f32 buffer of class [`BufferClass::Output`]. Whole numbers and truth values (0
/// and 1) come as f32 too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputPlan {
    /// Name in the model.
    pub name: String,
    /// Row-major buffer with the model's shape.
    pub spec: TensorSpec,
    /// Position among the buffers.
    pub buffer: usize,
}

/// A buffer that lives during a forward pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferPlan {
    /// The value that it was planned for.
    pub name: String,
    /// Size and type; views decide how it is seen.
    pub spec: TensorSpec,
    /// [`BufferClass::Intermediate`] or [`BufferClass::Output`].
    pub class: BufferClass,
}

/// A constant.
#[derive(Debug, Clone)]
pub enum WeightPlan {
    /// Weights of a convolution, row-major `[Cout, Cin / groups, KH, KW]`, and a bias per output channel.
    Conv2d {
        /// Name of the weights in the model.
        name: String,
        /// The convolution that uses them.
        desc: Box<Conv2dDesc>,
        /// Weights; a row is what one output channel reads.
        weight: StoredWeights,
        /// Bias.
        bias: Option<Vec<f32>>,
    },
    /// The layers of a feature net of pillars, fp32.
    Pillars {
        /// Name of the first layer's weights in the model.
        name: String,
        /// The net that uses them.
        desc: Box<PillarsDesc>,
        /// First layer.
        first: DensePlan,
        /// Second layer, where there is one.
        second: Option<DensePlan>,
    },
    /// A row-major operand in the storage type.
    Constant {
        /// Name in the model.
        name: String,
        /// Values.
        values: HostTensor,
    },
}

/// Constants of `y = x W + b`.
#[derive(Debug, Clone, PartialEq)]
pub struct DensePlan {
    /// `[inputs, outputs]`, row-major.
    pub weight: Vec<f32>,
    /// One value per output.
    pub bias: Vec<f32>,
}

/// One launch.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    /// Node or nodes that it stands for.
    pub name: String,
    /// What is computed.
    pub op: OpDesc,
    /// Bound buffers in the order that [`OpDesc`] states.
    pub slots: Vec<Slot>,
}

/// One step of a forward pass.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Reserve a buffer.
    Alloc(usize),
    /// Launch an operation.
    Launch(Box<Launch>),
    /// Return a buffer's memory.
    Free(usize),
}

/// What a lowering did, in numbers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LowerStats {
    /// Floating-point constants of the model, element by element.
    pub parameters: u64,
    /// Two for each multiplication of convolutions and matrix products, in billions.
    pub gflop: f64,
    /// Nodes of each operation in the model.
    pub nodes: BTreeMap<String, usize>,
    /// Launches of each device operation.
    pub launches: BTreeMap<&'static str, usize>,
    /// Nodes that became part of a convolution or dense layer, by kind (`norm`, `bias`, `activation`, `residual`), and
    /// feature nets of pillars that became one launch (`pillars`).
    pub fused: BTreeMap<&'static str, usize>,
    /// Element-wise launches that write where they read.
    pub in_place: usize,
    /// Bytes of the buffers that those launches make unnecessary, added up.
    pub in_place_bytes: usize,
    /// Bytes of intermediates and outputs that are needed at once at most.
    pub peak_bytes: usize,
}

/// A graph lowered to device operations: plain data, independent of any device.
#[derive(Debug, Clone)]
pub struct LoweredGraph {
    /// Name of the model.
    pub model: String,
    /// Inputs in the model's order.
    pub inputs: Vec<InputPlan>,
    /// Outputs in the model's order.
    pub outputs: Vec<OutputPlan>,
    /// Buffers of a forward pass.
    pub buffers: Vec<BufferPlan>,
    /// Constants.
    pub weights: Vec<WeightPlan>,
    /// What to do, in order.
    pub steps: Vec<Step>,
    /// Numbers.
    pub stats: LowerStats,
}
