//! Camera networks on several frames at a time: one replay, and an input and an output for each frame.
//!
//! Where the network's file leaves the number of images open, the frames are joined on the device and the network runs once
//! on all of them. Where it fixes one image, the network runs frame after frame in the same replay: that saves the hand-over
//! between host and device, and nothing of the work. Either way a frame gets the bits that it gets alone.

use std::sync::Arc;

use super::graph::{PixelInput, floats_of, scale_by};
use crate::device::{BufferClass, Cq, Device};
use crate::models::{InputFormat, LoadedGraph, LowerOptions, LoweredGraph, lower};
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::{DType, TensorSpec};
use crate::weights::{Dim, OnnxModel, WeightFormat};

/// A network on so many frames.
#[derive(Debug, Clone)]
pub(super) struct Batch {
    /// Frames.
    pub(super) frames: usize,
    /// The network on all of them; `None`: frame after frame.
    joined: Option<LoweredGraph>,
}

/// A batch with its constants on a device.
#[derive(Debug)]
pub(super) enum LoadedBatch {
    Joined(Arc<LoadedGraph>),
    OneByOne(Arc<LoadedGraph>),
}

/// The sizes of a network's input for so many images; `None` where its file says them all.
pub(super) fn open_shape(model: &OnnxModel, images: usize) -> Option<Vec<usize>> {
    let dims = model.inputs().first()?.dims.as_ref()?;
    let fixed = |dim: &Dim| match dim {
        Dim::Fixed(size) => Some(*size),
        _ => None,
    };
    match dims.split_first()? {
        (Dim::Fixed(_), _) => None,
        (_, rest) => {
            let rest = rest.iter().map(fixed);
            [Some(images)].into_iter().chain(rest).collect()
        }
    }
}

impl Batch {
    /// A network on so many frames, lowered as the `single` one was.
    pub(super) fn lower(
        model: &OnnxModel,
        single: &LoweredGraph,
        options: &LowerOptions,
        frames: usize,
    ) -> Self {
        let shape = open_shape(model, frames);
        let joined = shape.and_then(|shape| {
            let name = model.inputs().first()?.name.clone();
            let options = LowerOptions {
                shapes: [(name, shape)].into(),
                ..options.clone()
            };
            match lower(model, &options) {
                Ok(graph) if takes_apart(&graph, single, frames) => Some(graph),
                Ok(_) => {
                    tracing::debug!(
                        model = model.name(),
                        frames,
                        "the output has another form for several frames"
                    );
                    None
                }
                Err(error) => {
                    tracing::debug!(model = model.name(), frames, %error, "no network for several frames");
                    None
                }
            }
        });
        Self { frames, joined }
    }

    /// Name of the variant.
    pub(super) fn name(&self) -> String {
        match self.joined {
            Some(_) => format!("{}_frames", self.frames),
            None => format!("{}_frames_one_by_one", self.frames),
        }
    }

    /// Whether the network takes the frames together.
    pub(super) const fn is_joined(&self) -> bool {
        self.joined.is_some()
    }

    /// Brings the constants onto a device that the `single` network does not have there already.
    pub(super) fn load(
        &self,
        device: &mut dyn Device,
        single: &Arc<LoadedGraph>,
    ) -> Result<LoadedBatch, Box<dyn std::error::Error + Send + Sync>> {
        Ok(match &self.joined {
            None => LoadedBatch::OneByOne(Arc::clone(single)),
            Some(graph) => LoadedBatch::Joined(Arc::new(LoadedGraph::prepare(
                graph.clone(),
                device,
                Cq::COMPUTE,
            )?)),
        })
    }
}

/// Whether the output of several frames is that of each, one behind the other.
fn takes_apart(joined: &LoweredGraph, single: &LoweredGraph, frames: usize) -> bool {
    let dims = |graph: &LoweredGraph| graph.outputs.first().map(|output| output.spec.shape.to_vec());
    let (Some(all), Some(one)) = (dims(joined), dims(single)) else {
        return false;
    };
    one.first() == Some(&1) && all.first() == Some(&frames) && one[1..] == all[1..]
}

impl LoadedBatch {
    /// Runs the network on the frames in `pixels`, into one of `heads` each.
    pub(super) fn forward(
        &self,
        ops: &mut OpContext<'_>,
        input: PixelInput,
        factor: DeviceTensor,
        pixels: &[DeviceTensor],
        heads: &[DeviceTensor],
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        match self {
            Self::OneByOne(network) => {
                for (pixels, head) in pixels.iter().zip(heads) {
                    forward_one(network, ops, input, factor, *pixels, *head)?;
                }
                Ok(())
            }
            Self::Joined(network) => {
                let joined = join(ops, input, factor, pixels)?;
                let outputs = network.forward(ops, &[joined]);
                ops.free(&joined)?;
                let outputs = outputs?;
                for all in &outputs {
                    for (place, head) in heads.iter().enumerate() {
                        let part = DeviceTensor {
                            view: all.view.slice(0, place, 1, 1)?,
                            ..*all
                        };
                        ops.copy(&part, head)?;
                    }
                    ops.free(all)?;
                }
                Ok(())
            }
        }
    }

    /// Gives back what the single network does not have.
    pub(super) fn release(&self, device: &mut dyn Device) {
        if let Self::Joined(network) = self {
            network.release(device);
        }
    }
}

/// The network on one frame.
pub(super) fn forward_one(
    network: &LoadedGraph,
    ops: &mut OpContext<'_>,
    input: PixelInput,
    factor: DeviceTensor,
    pixels: DeviceTensor,
    head: DeviceTensor,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    if input.is_direct() {
        network.forward_into(ops, &[pixels], &[head])?;
        return Ok(());
    }
    let floats = floats_of(ops, pixels, input.is_scaled().then_some(factor))?;
    let forward = network.forward_into(ops, &[floats], &[head]);
    ops.free(&floats)?;
    Ok(forward?)
}

/// The frames one behind the other, as the network reads them.
fn join(
    ops: &mut OpContext<'_>,
    input: PixelInput,
    factor: DeviceTensor,
    pixels: &[DeviceTensor],
) -> Result<DeviceTensor, Box<dyn std::error::Error + Send + Sync>> {
    let one = pixels.first().ok_or("a batch has frames")?;
    let dtype = if input.is_direct() { one.dtype } else { DType::F32 };
    let mut dims = one.view.shape.to_vec();
    dims[0] = pixels.len();
    let spec = TensorSpec::new(&dims, dtype)?;
    let joined = ops.alloc(&spec, BufferClass::Intermediate)?;
    for (place, frame) in pixels.iter().enumerate() {
        let part = DeviceTensor {
            view: joined.view.slice(0, place, 1, 1)?,
            ..joined
        };
        ops.copy(frame, &part)?;
    }
    if input.is_scaled() {
        scale_by(ops, joined, factor)?;
    }
    Ok(joined)
}

/// How a network is lowered that reads camera pixels.
pub(super) fn lower_options(
    model: &OnnxModel,
    storage: DType,
    weights: WeightFormat,
    format: InputFormat,
) -> LowerOptions {
    let name = model.inputs().first().map(|input| input.name.clone());
    let shape = open_shape(model, 1);
    LowerOptions {
        storage,
        weights,
        formats: name.clone().map(|name| (name, format)).into_iter().collect(),
        // One image where the file leaves their number open.
        shapes: name.zip(shape).into_iter().collect(),
        ..LowerOptions::default()
    }
}

/// The name of a frame's input or output in the trace: that of a single frame, with the place in the batch after the
/// first.
pub(super) fn name_at(name: &str, place: usize) -> String {
    match place {
        0 => name.to_owned(),
        _ => format!("{name}.{place}"),
    }
}
