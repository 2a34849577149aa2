//! The layers that residual networks are made of, and where they come from.

use std::fmt;

use ndarray::Array4;

use super::super::block_error::BlockError;
use super::super::layers::{ConvLayer, ConvSpec, free, new_map};
use crate::device::{BinaryKind, Device, OpDesc};
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::Shape;

/// One convolution with batch normalisation folded into it.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvParams {
    /// `[Cout, Cin / groups, KH, KW]`
    pub weight: Array4<f32>,
    /// One value per output channel; absent means zeros.
    pub bias: Option<Vec<f32>>,
    /// Step of rows and columns.
    pub stride: [usize; 2],
    /// Padding above, below, left and right.
    pub padding: [usize; 4],
    /// Step between the taps of rows and columns.
    pub dilation: [usize; 2],
    /// Groups of channels.
    pub groups: usize,
}

impl ConvParams {
    /// A convolution with stride 1 and without padding, dilation and groups.
    #[must_use]
    pub const fn new(weight: Array4<f32>, bias: Option<Vec<f32>>) -> Self {
        Self {
            weight,
            bias,
            stride: [1; 2],
            padding: [0; 4],
            dilation: [1; 2],
            groups: 1,
        }
    }
}

/// Hands out the convolutions of a network by the names of their modules: a function `module -> ConvParams`.
pub trait ConvProvider {
    /// The convolution of a module.
    ///
    /// # Errors
    /// [`BlockError::Weights`] for a module that there is not.
    fn conv(&self, module: &str) -> Result<ConvParams, BlockError>;
}

impl<F: Fn(&str) -> Option<ConvParams>> ConvProvider for F {
    fn conv(&self, module: &str) -> Result<ConvParams, BlockError> {
        self(module).ok_or_else(|| BlockError::weights(module, "there are no weights of this module"))
    }
}

/// A layer from a feature map to a feature map.
pub trait MapLayer: Send + Sync + fmt::Debug {
    /// Shape of the output, `[N, C, H, W]`.
    ///
    /// # Errors
    /// [`BlockError::Shape`] for an input that the layer does not take.
    fn out_shape(&self, input: &Shape) -> Result<[usize; 4], BlockError>;

    /// Runs into a new map of the input's type, which the caller frees.
    ///
    /// # Errors
    /// [`BlockError`]; nothing stays allocated but weights.
    fn forward(&self, ops: &mut OpContext<'_>, input: &DeviceTensor) -> Result<DeviceTensor, BlockError>;

    /// Runs into a new map and adds another one to it. A layer that can do so in one operation does.
    ///
    /// # Errors
    /// As [`MapLayer::forward`]; [`BlockError::Shape`] for a map of another shape.
    fn forward_add(
        &self,
        ops: &mut OpContext<'_>,
        input: &DeviceTensor,
        residual: &DeviceTensor,
    ) -> Result<DeviceTensor, BlockError> {
        let output = self.forward(ops, input)?;
        let sum = OpDesc::Binary {
            lhs: output.operand(),
            rhs: residual.operand(),
            dst: output.operand(),
            kind: BinaryKind::Add,
        };
        let buffers = [output.buffer, residual.buffer, output.buffer];
        match ops.run(&sum, &buffers).map_err(BlockError::device("residual")) {
            Ok(()) => Ok(output),
            Err(error) => {
                free(ops, &[output]);
                Err(error)
            }
        }
    }

    /// Returns the weights' memory. The layer may run again.
    fn release(&self, device: &mut dyn Device);
}

/// Makes the layers of a network: a function `(module, convolution, with a ReLU) -> layer`.
pub trait ConvFactory {
    /// The layer of a module.
    ///
    /// # Errors
    /// [`BlockError`] for a convolution that the layer does not have.
    fn layer(&self, module: &str, params: ConvParams, relu: bool) -> Result<Box<dyn MapLayer>, BlockError>;
}

impl<F> ConvFactory for F
where
    F: Fn(&str, ConvParams, bool) -> Result<Box<dyn MapLayer>, BlockError>,
{
    fn layer(&self, module: &str, params: ConvParams, relu: bool) -> Result<Box<dyn MapLayer>, BlockError> {
        self(module, params, relu)
    }
}

/// The factory of plain convolutions.
///
/// # Errors
/// [`BlockError::Weights`] for weights, bias and groups that do not fit each other.
pub fn folded_convs(module: &str, params: ConvParams, relu: bool) -> Result<Box<dyn MapLayer>, BlockError> {
    let ConvParams {
        weight,
        bias,
        stride,
        padding,
        dilation,
        groups,
    } = params;
    let bias = bias.unwrap_or_else(|| vec![0.0; weight.dim().0]);
    let spec = ConvSpec::window(weight.view(), &bias, (stride, dilation), padding, groups).with_relu(relu);
    Ok(Box::new(FoldedConv(ConvLayer::new(module.to_owned(), spec)?)))
}

/// A plain convolution.
#[derive(Debug)]
struct FoldedConv(ConvLayer);

impl MapLayer for FoldedConv {
    fn out_shape(&self, input: &Shape) -> Result<[usize; 4], BlockError> {
        self.0.out_shape(input)
    }

    fn forward(&self, ops: &mut OpContext<'_>, input: &DeviceTensor) -> Result<DeviceTensor, BlockError> {
        self.0.run_new(ops, input)
    }

    fn forward_add(
        &self,
        ops: &mut OpContext<'_>,
        input: &DeviceTensor,
        residual: &DeviceTensor,
    ) -> Result<DeviceTensor, BlockError> {
        let shape = self.0.out_shape(&input.view.shape)?;
        if residual.view.shape[..] != shape {
            let found = residual.view.shape;
            let expected = format!("{shape:?}");
            return Err(BlockError::shape(self.0.name(), "the residual", found, expected));
        }
        let output = new_map(ops, self.0.name(), shape, input.dtype)?;
        match self.0.run(ops, input, &output, Some(residual)) {
            Ok(()) => Ok(output),
            Err(error) => {
                free(ops, &[output]);
                Err(error)
            }
        }
    }

    fn release(&self, device: &mut dyn Device) {
        self.0.release(device);
    }
}
