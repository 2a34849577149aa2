//! SECOND and its feature pyramid: the convolutional part of pillar detectors.

use super::block_error::BlockError;
use super::layers::{ConvLayer, ConvSpec, free, new_map};
use crate::device::Device;
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::Shape;

/// A backbone of blocks of convolutions, each block working on the output of the one before it. All outputs are handed
/// out. Weights are brought to the device in the first run.
#[derive(Debug)]
pub struct Second {
    blocks: Vec<Vec<ConvLayer>>,
}

impl Second {
    /// A backbone; the block's stride is that of its first layer.
    ///
    /// # Errors
    /// [`BlockError::Weights`] for an empty block, or layers whose channels do not follow each other.
    pub fn new(blocks: Vec<Vec<ConvSpec>>) -> Result<Self, BlockError> {
        let mut channels = None;
        let mut made = Vec::with_capacity(blocks.len());
        for (block, specs) in blocks.into_iter().enumerate() {
            let name = |layer: usize| format!("backbone.block{block}.conv{layer}");
            if specs.is_empty() {
                return Err(BlockError::weights(&name(0), "the block has no layers"));
            }
            let mut layers = Vec::with_capacity(specs.len());
            for (layer, spec) in specs.into_iter().enumerate() {
                if let Some(before) = channels
                    && before != spec.inputs()
                {
                    let reason = format!("{} input channels behind {before}", spec.inputs());
                    return Err(BlockError::weights(&name(layer), reason));
                }
                channels = Some(spec.outputs());
                layers.push(ConvLayer::new(name(layer), spec)?);
            }
            made.push(layers);
        }
        match made.is_empty() {
            false => Ok(Self { blocks: made }),
            true => Err(BlockError::weights("backbone", "there are no blocks")),
        }
    }

    /// Shapes `[N, C, H, W]` of the outputs.
    ///
    /// # Errors
    /// [`BlockError::Shape`].
    pub fn out_shapes(&self, input: [usize; 4]) -> Result<Vec<[usize; 4]>, BlockError> {
        let mut shape = input;
        let mut shapes = Vec::with_capacity(self.blocks.len());
        for block in &self.blocks {
            for layer in block {
                let known = Shape::new(&shape).map_err(BlockError::tensor(layer.name()))?;
                shape = layer.out_shape(&known)?;
            }
            shapes.push(shape);
        }
        Ok(shapes)
    }

    /// The output of each block. The caller frees them; the input stays.
    ///
    /// # Errors
    /// [`BlockError`]; nothing stays allocated but weights.
    pub fn forward(
        &self,
        ops: &mut OpContext<'_>,
        input: &DeviceTensor,
    ) -> Result<Vec<DeviceTensor>, BlockError> {
        let mut outputs = Vec::with_capacity(self.blocks.len());
        let mut last = *input;
        for block in &self.blocks {
            match chain(ops, block, &last) {
                Ok(output) => {
                    outputs.push(output);
                    last = output;
                }
                Err(error) => {
                    free(ops, &outputs);
                    return Err(error);
                }
            }
        }
        Ok(outputs)
    }

    /// Returns the weights' memory. The backbone may run again.
    pub fn release(&self, device: &mut dyn Device) {
        for layer in self.blocks.iter().flatten() {
            layer.release(device);
        }
    }
}

/// The output of the last of some layers; those between are freed.
fn chain(
    ops: &mut OpContext<'_>,
    layers: &[ConvLayer],
    input: &DeviceTensor,
) -> Result<DeviceTensor, BlockError> {
    let mut last = *input;
    for (index, layer) in layers.iter().enumerate() {
        let next = layer.run_new(ops, &last);
        if index > 0 {
            free(ops, &[last]);
        }
        last = next?;
    }
    Ok(last)
}

/// The neck's outputs: one for each block, all of them channels of one map.
#[derive(Debug, Clone)]
pub struct NeckMaps {
    /// All channels; the buffer to free.
    pub joined: DeviceTensor,
    /// The outputs, views of [`NeckMaps::joined`].
    pub parts: Vec<DeviceTensor>,
}

/// The feature pyramid of SECOND: one layer for each block of the backbone, all with outputs of one size. Each writes
/// its channels of one map, so that the concatenation costs nothing. Weights are brought to the device in the first run.
///
/// A transposed convolution costs `stride * stride` launches, one for each position in the enlarged pixel.
#[derive(Debug)]
pub struct SecondFpn {
    layers: Vec<ConvLayer>,
}

impl SecondFpn {
    /// A neck of one layer per block: 1 x 1 convolutions, transposed ones, or ones with a stride.
    ///
    /// # Errors
    /// [`BlockError::Weights`].
    pub fn new(layers: Vec<ConvSpec>) -> Result<Self, BlockError> {
        if layers.is_empty() {
            return Err(BlockError::weights("neck", "there are no layers"));
        }
        let layers = layers.into_iter().enumerate();
        let layers = layers.map(|(index, spec)| ConvLayer::new(format!("neck.deblock{index}"), spec));
        Ok(Self {
            layers: layers.collect::<Result<_, _>>()?,
        })
    }

    /// Images, rows and columns of all outputs, for inputs `[N, C, H, W]` as [`Second::out_shapes`] tells them.
    ///
    /// # Errors
    /// [`BlockError`] for another number of inputs, or outputs of different sizes.
    pub fn out_size(&self, inputs: &[[usize; 4]]) -> Result<[usize; 3], BlockError> {
        let mut size = None;
        for (layer, dims) in self.layers.iter().zip(inputs) {
            let known = Shape::new(dims).map_err(BlockError::tensor(layer.name()))?;
            let [n, _, h, w] = layer.out_shape(&known)?;
            let first = *size.get_or_insert([n, h, w]);
            if first != [n, h, w] {
                let reason = format!(
                    "the output is {:?} (images, rows, columns), the first layer's {first:?}",
                    [n, h, w]
                );
                return Err(BlockError::weights(layer.name(), reason));
            }
        }
        size.filter(|_| inputs.len() == self.layers.len())
            .ok_or_else(|| BlockError::Count {
                block: "neck".into(),
                found: inputs.len(),
                expected: self.layers.len(),
            })
    }

    /// Channels of each output.
    #[must_use]
    pub fn channels(&self) -> Vec<usize> {
        self.layers.iter().map(|layer| layer.spec().outputs()).collect()
    }

    /// The outputs for the outputs of a backbone. The caller frees [`NeckMaps::joined`]; the inputs stay.
    ///
    /// # Errors
    /// [`BlockError`]; nothing stays allocated but weights.
    pub fn forward(&self, ops: &mut OpContext<'_>, blocks: &[DeviceTensor]) -> Result<NeckMaps, BlockError> {
        if blocks.len() != self.layers.len() {
            return Err(BlockError::Count {
                block: "neck".into(),
                found: blocks.len(),
                expected: self.layers.len(),
            });
        }
        let mut size = None;
        for (layer, input) in self.layers.iter().zip(blocks) {
            let [n, _, h, w] = layer.out_shape(&input.view.shape)?;
            if let Some((first, _)) = size.filter(|&(first, _)| first != [n, h, w]) {
                let reason = format!(
                    "the output is {:?} (images, rows, columns), the first layer's {first:?}",
                    [n, h, w]
                );
                return Err(BlockError::weights(layer.name(), reason));
            }
            if input.dtype != blocks[0].dtype {
                return Err(BlockError::DType {
                    block: layer.name().into(),
                    tensor: "the input".into(),
                    found: input.dtype,
                    expected: blocks[0].dtype,
                });
            }
            size = size.or(Some(([n, h, w], input.dtype)));
        }
        let Some(([n, h, w], dtype)) = size else {
            return Err(BlockError::weights("neck", "there are no layers"));
        };
        let joined = new_map(ops, "neck", [n, self.channels().iter().sum(), h, w], dtype)?;
        let made = self.parts(ops, blocks, &joined);
        if made.is_err() {
            free(ops, &[joined]);
        }
        made.map(|parts| NeckMaps { joined, parts })
    }

    fn parts(
        &self,
        ops: &mut OpContext<'_>,
        blocks: &[DeviceTensor],
        joined: &DeviceTensor,
    ) -> Result<Vec<DeviceTensor>, BlockError> {
        let mut parts = Vec::with_capacity(blocks.len());
        let mut first = 0;
        for (layer, input) in self.layers.iter().zip(blocks) {
            let channels = layer.spec().outputs();
            let view = joined.view.slice(1, first, channels, 1);
            let part = DeviceTensor {
                view: view.map_err(BlockError::tensor(layer.name()))?,
                ..*joined
            };
            layer.run(ops, input, &part, None)?;
            parts.push(part);
            first += channels;
        }
        Ok(parts)
    }

    /// Returns the weights' memory. The neck may run again.
    pub fn release(&self, device: &mut dyn Device) {
        for layer in &self.layers {
            layer.release(device);
        }
    }
}
