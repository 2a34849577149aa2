//! The layers that residual networks are made of, and where they come from.

use std::fmt;

use ndarray::Array4;

use super::super::block_error::BlockError;
use super::super::layers::{free, new_map};
use crate::device::{Activation, BinaryKind, Device, OpDesc};
use crate::ops::conv::{Conv2d, Conv2dSpec, Padding, WeightTerms};
use crate::ops::{DeviceTensor, OpContext};
use crate::precision::{Math, PrecisionPolicy};
use crate::tensor::{DType, Shape};

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

    /// Runs into a new map and adds another one to it: `then(layer(input) + residual)`. A layer that can do so in one
    /// operation does.
    ///
    /// # Errors
    /// As [`MapLayer::forward`]; [`BlockError::Shape`] for a map of another shape.
    fn forward_add(
        &self,
        ops: &mut OpContext<'_>,
        input: &DeviceTensor,
        residual: &DeviceTensor,
        then: Activation,
    ) -> Result<DeviceTensor, BlockError> {
        sum_behind(self, ops, input, residual, then)
    }

    /// Returns the weights' memory. The layer may run again.
    fn release(&self, device: &mut dyn Device);
}

/// A layer's output, and another map added to it behind: of the output's type, or brought to it.
fn sum_behind<L: MapLayer + ?Sized>(
    layer: &L,
    ops: &mut OpContext<'_>,
    input: &DeviceTensor,
    residual: &DeviceTensor,
    then: Activation,
) -> Result<DeviceTensor, BlockError> {
    const SUM: &str = "residual";
    let output = layer.forward(ops, input)?;
    let summed = ops.typecast(residual, output.dtype).and_then(|added| {
        let sum = OpDesc::Binary {
            lhs: output.operand(),
            rhs: added.operand(),
            dst: output.operand(),
            kind: BinaryKind::Add,
        };
        let summed = ops.run(&sum, &[output.buffer, added.buffer, output.buffer]);
        if added.buffer != residual.buffer {
            free(ops, &[added]);
        }
        let then = OpDesc::Unary {
            src: output.operand(),
            dst: output.operand(),
            activation: then,
        };
        summed.and_then(|()| ops.run(&then, &[output.buffer; 2]))
    });
    match summed.map_err(BlockError::device(SUM)) {
        Ok(()) => Ok(output),
        Err(error) => {
            free(ops, &[output]);
            Err(error)
        }
    }
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

/// How the convolutions of a network multiply and sum.
#[derive(Debug, Clone)]
enum Arithmetic {
    Native,
    ByModule(PrecisionPolicy),
}

/// The factory of plain convolutions.
#[derive(Debug, Clone)]
pub struct FoldedConvs {
    arithmetic: Arithmetic,
    terms: WeightTerms,
}

impl FoldedConvs {
    /// Convolutions in the device's own arithmetic, with outputs of the input's type.
    #[must_use]
    pub const fn native() -> Self {
        Self {
            arithmetic: Arithmetic::Native,
            terms: WeightTerms::One,
        }
    }

    /// Convolutions of a precision that a policy decides by the name of the module; the precision's type of activations is
    /// that of the output.
    #[must_use]
    pub const fn with_policy(policy: PrecisionPolicy) -> Self {
        Self {
            arithmetic: Arithmetic::ByModule(policy),
            terms: WeightTerms::One,
        }
    }

    /// With weights of so many bf16 terms.
    #[must_use]
    pub fn weight_terms(self, terms: WeightTerms) -> Self {
        Self { terms, ..self }
    }
}

impl ConvFactory for FoldedConvs {
    fn layer(&self, module: &str, params: ConvParams, relu: bool) -> Result<Box<dyn MapLayer>, BlockError> {
        let [top, bottom, left, right] = params.padding;
        let (math, output) = match &self.arithmetic {
            Arithmetic::Native => (Math::Native, None),
            Arithmetic::ByModule(policy) => {
                let precision = policy.resolve(module);
                (precision.into(), Some(precision.activations))
            }
        };
        let mut spec = Conv2dSpec::new(params.weight.view(), params.bias.as_deref(), math)
            .stride(params.stride)
            .padding(Padding::Explicit {
                top,
                left,
                bottom,
                right,
            })
            .dilation(params.dilation)
            .groups(params.groups)
            .weight_terms(self.terms);
        if relu {
            spec = spec.activation(Activation::Relu);
        }
        if let Some(dtype) = output {
            spec = spec.output(dtype);
        }
        Ok(Box::new(FoldedConv {
            fuses: self.terms == WeightTerms::One && !relu,
            output,
            layer: Conv2d::new(module, spec)?,
        }))
    }
}

/// A plain convolution.
#[derive(Debug)]
struct FoldedConv {
    layer: Conv2d,
    output: Option<DType>,
    /// Whether another map can be added to the sums before they are rounded.
    fuses: bool,
}

impl MapLayer for FoldedConv {
    fn out_shape(&self, input: &Shape) -> Result<[usize; 4], BlockError> {
        let spec = self.layer.spec();
        let sizes = match input[..] {
            [n, c, h, w] if c == spec.inputs() => self.layer.out_hw([h, w]).map(|size| (n, size)),
            _ => None,
        };
        let shape = sizes.map(|(n, [h, w])| [n, spec.outputs(), h, w]);
        shape.ok_or_else(|| {
            let [rows, columns] = spec.kernel();
            let expected = format!(
                "[N, {}, H, W] with room for a kernel of {rows} x {columns}",
                spec.inputs()
            );
            BlockError::shape(self.layer.name(), "the input", *input, expected)
        })
    }

    fn forward(&self, ops: &mut OpContext<'_>, input: &DeviceTensor) -> Result<DeviceTensor, BlockError> {
        Ok(self.layer.forward(ops, input)?)
    }

    fn forward_add(
        &self,
        ops: &mut OpContext<'_>,
        input: &DeviceTensor,
        residual: &DeviceTensor,
        then: Activation,
    ) -> Result<DeviceTensor, BlockError> {
        let dtype = self.output.unwrap_or(input.dtype);
        let stored = [DType::F32, input.dtype].contains(&dtype);
        if !self.fuses || !stored || residual.dtype != dtype {
            return sum_behind(self, ops, input, residual, then);
        }
        let shape = self.out_shape(&input.view.shape)?;
        if residual.view.shape[..] != shape {
            let found = residual.view.shape;
            let expected = format!("{shape:?}");
            return Err(BlockError::shape(
                self.layer.name(),
                "the residual",
                found,
                expected,
            ));
        }
        let output = new_map(ops, self.layer.name(), shape, dtype)?;
        match self.layer.forward_added(ops, input, residual, then, &output) {
            Ok(()) => Ok(output),
            Err(error) => {
                free(ops, &[output]);
                Err(error.into())
            }
        }
    }

    fn release(&self, device: &mut dyn Device) {
        self.layer.release(device);
    }
}
