//! Matrix products and layer normalisation on device tensors.

use super::{DeviceTensor, OpContext};
use crate::device::{
    Activation, BufferClass, BufferId, DeviceError, LayerNormDesc, MatMulDesc, OpDesc, Operand, Scalar,
};
use crate::tensor::{DType, Shape, TensorError, TensorSpec};

/// What a matrix product does beside multiplying.
#[derive(Debug, Clone, Copy)]
pub struct MatMulOptions<'a> {
    /// Factor of the sums.
    pub scale: f32,
    /// Added behind the scale, broadcast to the output.
    pub bias: Option<&'a DeviceTensor>,
    /// Applied last.
    pub activation: Activation,
    /// Type of the output, fp32 or bf16.
    pub output: DType,
}

impl MatMulOptions<'_> {
    /// The product alone, stored as `output`.
    #[must_use]
    pub const fn to(output: DType) -> Self {
        Self {
            scale: 1.0,
            bias: None,
            activation: Activation::Identity,
            output,
        }
    }
}

/// What a layer normalisation does beside normalising. The epsilon has no default: models differ in it.
#[derive(Debug, Clone, Copy)]
pub struct LayerNormOptions<'a> {
    /// Added to the variance; positive.
    pub epsilon: f32,
    /// How many of the last axes are normalised together.
    pub axes: usize,
    /// Added to the input first.
    pub residual: Option<&'a DeviceTensor>,
    /// Factors; shape of the normalised axes.
    pub gamma: Option<&'a DeviceTensor>,
    /// Summands; shape of the normalised axes.
    pub beta: Option<&'a DeviceTensor>,
}

impl LayerNormOptions<'_> {
    /// Over the last axis, without factors and summands.
    #[must_use]
    pub const fn new(epsilon: f32) -> Self {
        Self {
            epsilon,
            axes: 1,
            residual: None,
            gamma: None,
            beta: None,
        }
    }
}

/// The shape that both broadcast to (aligned at their last axes, 1 stretching).
fn broadcast(a: &[usize], b: &[usize]) -> Result<Vec<usize>, TensorError> {
    let rank = a.len().max(b.len());
    let at = |dims: &[usize], axis: usize| (axis + dims.len()).checked_sub(rank).map_or(1, |axis| dims[axis]);
    (0..rank)
        .map(|axis| match (at(a, axis), at(b, axis)) {
            (a, b) if a == b || b == 1 => Ok(a),
            (1, b) => Ok(b),
            _ => Err(TensorError::ShapeMismatch {
                expected: Shape::new(a)?,
                found: Shape::new(b)?,
            }),
        })
        .collect()
}

impl OpContext<'_> {
    /// `act(scale * (lhs x rhs) + bias)`: `[.., M, K]` and `[.., K, N]` to a new dense `[.., M, N]` of class
    /// [`BufferClass::Intermediate`], which the caller frees. Axes before the last two are broadcast.
    ///
    /// # Errors
    /// [`DeviceError::Tensor`] for axes that cannot be broadcast; [`DeviceError::InvalidOp`] for matrices that do not fit
    /// and types other than fp32 and bf16; as [`OpContext::alloc`] and [`OpContext::run`]. Nothing stays allocated.
    pub fn matmul(
        &mut self,
        lhs: &DeviceTensor,
        rhs: &DeviceTensor,
        options: &MatMulOptions<'_>,
    ) -> Result<DeviceTensor, DeviceError> {
        let (left, right) = (lhs.view.shape, rhs.view.shape);
        let ([left_front @ .., m, k], [right_front @ .., _, n]) = (&left[..], &right[..]) else {
            return Err(DeviceError::InvalidOp {
                op: "matmul",
                reason: format!("left has shape {left}, right {right}; both need at least two axes"),
            });
        };
        let front = broadcast(left_front, right_front)?;
        let dims = |last: [usize; 2]| Shape::new(&[front.as_slice(), &last].concat());
        let stretch = |tensor: &DeviceTensor, shape: Shape| -> Result<Operand, DeviceError> {
            let view = tensor.view.broadcast_to(shape)?;
            Ok(DeviceTensor { view, ..*tensor }.operand())
        };
        let spec = TensorSpec::new(&dims([*m, *n])?, options.output)?;
        let (lhs_operand, rhs_operand) = (
            stretch(lhs, dims([*m, *k])?)?,
            stretch(rhs, dims([right[right.rank() - 2], *n])?)?,
        );
        let bias = options.bias.map(|bias| stretch(bias, spec.shape)).transpose()?;
        let output = self.alloc(&spec, BufferClass::Intermediate)?;
        let op = OpDesc::MatMul(MatMulDesc {
            lhs: lhs_operand,
            rhs: rhs_operand,
            output: output.operand(),
            bias,
            scale: Scalar::new(options.scale),
            activation: options.activation,
        });
        let mut buffers = vec![lhs.buffer, rhs.buffer, output.buffer];
        buffers.extend(options.bias.map(|bias| bias.buffer));
        self.run_into(&op, &buffers, output)
    }

    /// `(x - mean) / sqrt(variance + epsilon) * gamma + beta` over the last axes, with `x` the input plus the residual: a
    /// new dense tensor of the input's shape and type, which the caller frees.
    ///
    /// # Errors
    /// [`DeviceError::InvalidOp`] for an epsilon that is not positive and for shapes that do not fit; as
    /// [`OpContext::alloc`] and [`OpContext::run`]. Nothing stays allocated.
    pub fn layer_norm(
        &mut self,
        x: &DeviceTensor,
        options: &LayerNormOptions<'_>,
    ) -> Result<DeviceTensor, DeviceError> {
        let spec = TensorSpec::new(&x.view.shape, x.dtype)?;
        let output = self.alloc(&spec, BufferClass::Intermediate)?;
        let op = OpDesc::LayerNorm(LayerNormDesc {
            src: x.operand(),
            dst: output.operand(),
            residual: options.residual.map(DeviceTensor::operand),
            gamma: options.gamma.map(DeviceTensor::operand),
            beta: options.beta.map(DeviceTensor::operand),
            axes: options.axes,
            epsilon: Scalar::new(options.epsilon),
        });
        let mut buffers = vec![x.buffer, output.buffer];
        let others = [options.residual, options.gamma, options.beta];
        buffers.extend(others.into_iter().flatten().map(|tensor| tensor.buffer));
        self.run_into(&op, &buffers, output)
    }

    /// Runs an operation whose output is new; the output is freed where the operation is refused.
    pub(crate) fn run_into(
        &mut self,
        op: &OpDesc,
        buffers: &[BufferId],
        output: DeviceTensor,
    ) -> Result<DeviceTensor, DeviceError> {
        match self.run(op, buffers) {
            Ok(()) => Ok(output),
            Err(error) => {
                self.free(&output)?;
                Err(error)
            }
        }
    }
}
