//! The stem and the blocks of residual networks.

use super::super::block_error::BlockError;
use super::super::layers::free;
use super::layer::{ConvFactory, ConvProvider, MapLayer};
use super::names::BlockNames;
use crate::device::{Activation, Device};
use crate::ops::pool::MaxPool;
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::Shape;

/// Layers one behind the other, the input (or its projection) added to what the last of them makes, and a ReLU.
#[derive(Debug)]
struct Residual {
    block: String,
    layers: Vec<Box<dyn MapLayer>>,
    downsample: Option<Box<dyn MapLayer>>,
}

impl Residual {
    fn new(
        provider: &dyn ConvProvider,
        names: &BlockNames,
        count: usize,
        has_downsample: bool,
        factory: &dyn ConvFactory,
    ) -> Result<Self, BlockError> {
        let modules = names.convs[..count].iter().enumerate();
        let layers = modules.map(|(index, module)| {
            // The ReLU of the last one comes behind the sum.
            factory.layer(module, provider.conv(module)?, index + 1 < count)
        });
        let downsample = has_downsample.then(|| {
            let module = &names.downsample;
            factory.layer(module, provider.conv(module)?, false)
        });
        Ok(Self {
            block: names.block.clone(),
            layers: layers.collect::<Result<_, _>>()?,
            downsample: downsample.transpose()?,
        })
    }

    fn out_shape(&self, input: &Shape) -> Result<[usize; 4], BlockError> {
        let mut last = *input;
        for layer in &self.layers {
            last = Shape::new(&layer.out_shape(&last)?).map_err(BlockError::tensor(&self.block))?;
        }
        let beside = match &self.downsample {
            Some(layer) => layer.out_shape(input)?,
            None => <[usize; 4]>::try_from(&input[..]).unwrap_or_default(),
        };
        if last[..] != beside {
            let reason = format!("the block's layers give {last}, its other branch {beside:?}");
            return Err(BlockError::weights(&self.block, reason));
        }
        Ok(beside)
    }

    fn forward(&self, ops: &mut OpContext<'_>, input: &DeviceTensor) -> Result<DeviceTensor, BlockError> {
        self.out_shape(&input.view.shape)?;
        let Some((last, front)) = self.layers.split_last() else {
            return Err(BlockError::weights(&self.block, "the block has no layers"));
        };
        let mut map = *input;
        for layer in front {
            let next = layer.forward(ops, &map);
            free_unless(ops, &map, input);
            map = next?;
        }
        let beside = match &self.downsample {
            Some(layer) => match layer.forward(ops, input) {
                Ok(beside) => beside,
                Err(error) => {
                    free_unless(ops, &map, input);
                    return Err(error);
                }
            },
            None => *input,
        };
        let sum = last.forward_add(ops, &map, &beside, Activation::Relu);
        free_unless(ops, &map, input);
        free_unless(ops, &beside, input);
        sum
    }

    fn release(&self, device: &mut dyn Device) {
        for layer in self.layers.iter().chain(&self.downsample) {
            layer.release(device);
        }
    }
}

/// Frees a map of a block that is not the block's input.
fn free_unless(ops: &mut OpContext<'_>, map: &DeviceTensor, input: &DeviceTensor) {
    if map.buffer != input.buffer {
        free(ops, &[*map]);
    }
}

macro_rules! blocks {
    ($($(#[$doc:meta])* $name:ident: $count:literal;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub struct $name(Residual);

            impl $name {
                /// A block of the modules of these names, with a projection of its input or without.
                ///
                /// # Errors
                /// [`BlockError`] of the provider and the factory.
                pub fn new(
                    provider: &dyn ConvProvider,
                    names: &BlockNames,
                    has_downsample: bool,
                    factory: &dyn ConvFactory,
                ) -> Result<Self, BlockError> {
                    Ok(Self(Residual::new(provider, names, $count, has_downsample, factory)?))
                }

                /// Shape of the output, `[N, C, H, W]`.
                ///
                /// # Errors
                /// [`BlockError::Shape`]; [`BlockError::Weights`] where the two branches differ.
                pub fn out_shape(&self, input: &Shape) -> Result<[usize; 4], BlockError> {
                    self.0.out_shape(input)
                }

                /// Runs into a new map, which the caller frees; the input stays.
                ///
                /// # Errors
                /// [`BlockError`]; nothing stays allocated but weights.
                pub fn forward(
                    &self,
                    ops: &mut OpContext<'_>,
                    input: &DeviceTensor,
                ) -> Result<DeviceTensor, BlockError> {
                    self.0.forward(ops, input)
                }

                /// Returns the weights' memory. The block may run again.
                pub fn release(&self, device: &mut dyn Device) {
                    self.0.release(device);
                }
            }
        )*
    };
}

blocks! {
    /// `relu(conv3(relu(conv2(relu(conv1(x))))) + x')` where `x'` is the input or its projection. The stride is where the
    /// provider's parameters have it: on the second convolution in PyTorch's networks.
    Bottleneck: 3;
    /// `relu(conv2(relu(conv1(x))) + x')` where `x'` is the input or its projection, which may be any convolution.
    BasicBlock: 2;
}

/// The first layer: `relu(conv1(x))`, and a maximum over windows of 3 x 3 in steps of 2 behind it unless told otherwise.
#[derive(Debug)]
pub struct ResNetStem {
    layer: Box<dyn MapLayer>,
    pool: Option<MaxPool>,
}

impl ResNetStem {
    /// A stem of one convolution (7 x 7 in steps of 2, as published) and a pooling.
    ///
    /// # Errors
    /// [`BlockError`] of the provider and the factory.
    pub fn new(
        provider: &dyn ConvProvider,
        module: &str,
        factory: &dyn ConvFactory,
        pool: Option<MaxPool>,
    ) -> Result<Self, BlockError> {
        Ok(Self {
            layer: factory.layer(module, provider.conv(module)?, true)?,
            pool,
        })
    }

    /// Runs into a new map, which the caller frees; the input stays.
    ///
    /// # Errors
    /// [`BlockError`]; nothing stays allocated but weights.
    pub fn forward(&self, ops: &mut OpContext<'_>, input: &DeviceTensor) -> Result<DeviceTensor, BlockError> {
        let map = self.layer.forward(ops, input)?;
        let Some(pool) = &self.pool else {
            return Ok(map);
        };
        let pooled = pool.forward(ops, &map);
        free(ops, &[map]);
        Ok(pooled?)
    }

    /// Returns the weights' memory. The stem may run again.
    pub fn release(&self, device: &mut dyn Device) {
        self.layer.release(device);
    }
}
