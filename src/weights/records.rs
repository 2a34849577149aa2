//! What layers of a graph hold, as plain records.

use std::fmt;
use std::sync::Arc;

use super::Array;

/// How a convolution is padded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AutoPad {
    /// As `pads` says.
    #[default]
    NotSet,
    /// So that the output has `ceil(input / stride)` values along each dimension; an odd one goes to the end. `pads`
    /// is to be derived from the size of the input.
    SameUpper,
    /// As [`Self::SameUpper`]; an odd one goes to the begin.
    SameLower,
    /// Not at all.
    Valid,
}

impl AutoPad {
    /// The setting of ONNX's spelling, `None` for another text.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "NOTSET" => Self::NotSet,
            "SAME_UPPER" => Self::SameUpper,
            "SAME_LOWER" => Self::SameLower,
            "VALID" => Self::Valid,
            _ => return None,
        })
    }
}

impl fmt::Display for AutoPad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::NotSet => "NOTSET",
            Self::SameUpper => "SAME_UPPER",
            Self::SameLower => "SAME_LOWER",
            Self::Valid => "VALID",
        })
    }
}

/// A convolution (`Conv`) or transposed convolution (`ConvTranspose`) over one or more dimensions of space.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvParams {
    /// Whether it is transposed.
    pub transposed: bool,
    /// `[Cout, Cin / group, k...]`, transposed `[Cin, Cout / group, k...]`.
    pub weight: Arc<Array>,
    /// One value per output channel; `None`: zeros.
    pub bias: Option<Arc<Array>>,
    /// Step per dimension of space.
    pub strides: Vec<usize>,
    /// The explicit attribute: elements added at the begin of each dimension, then at the end of each. Zeros where
    /// [`Self::auto_pad`] decides.
    pub pads: Vec<usize>,
    /// Distance between elements of the kernel per dimension.
    pub dilations: Vec<usize>,
    /// Number of groups.
    pub group: usize,
    /// Size of the kernel per dimension.
    pub kernel_shape: Vec<usize>,
    /// Elements added at the end of a transposed convolution's output per dimension; zeros for a convolution.
    pub output_padding: Vec<usize>,
    /// Who decides about the padding.
    pub auto_pad: AutoPad,
    /// Size of a transposed convolution's output per dimension, where the file fixes it; it then decides about the
    /// padding.
    pub output_shape: Option<Vec<usize>>,
}

impl ConvParams {
    /// Number of output channels.
    #[must_use]
    pub fn output_channels(&self) -> usize {
        match self.transposed {
            false => self.weight.shape()[0],
            true => self.weight.shape()[1] * self.group,
        }
    }
}

/// A general matrix product, `y = alpha * op(a) * op(weight) + beta * bias`.
#[derive(Debug, Clone, PartialEq)]
pub struct GemmParams {
    /// The second factor as it is stored: `[Cin, Cout]`, with [`Self::trans_b`] `[Cout, Cin]`.
    pub weight: Arc<Array>,
    /// What is added, `None`: nothing.
    pub bias: Option<Arc<Array>>,
    /// Whether the first factor is transposed.
    pub trans_a: bool,
    /// Whether the second factor is transposed.
    pub trans_b: bool,
    /// Factor on the product.
    pub alpha: f32,
    /// Factor on the bias.
    pub beta: f32,
}
