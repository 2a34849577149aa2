//! A camera network read from ONNX.

use std::sync::Arc;

use super::batches::{Batch, LoadedBatch, forward_one, lower_options, name_at};
use super::{DeviceModel, DeviceWeights, ModelTrace};
use crate::device::{BinaryKind, BufferClass, Cq, Device, OpDesc, Operand};
use crate::image::{Layout, SampleType};
use crate::models::{ImportError, InputFormat, LoadedGraph, LowerOptions, LoweredGraph, lower_cached};
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::{DType, TensorError, TensorSpec};
use crate::trace::{TraceContext, TraceOptions, TraceRunner};
use crate::weights::{OnnxModel, WeightCache, WeightFormat};

/// Name of the network's input in the trace.
const INPUT: &str = "pixels";
/// Name of the network's output in the trace.
const OUTPUT: &str = "head";

/// Name of the factor on pixels.
const SCALE: &str = "scale";

/// Why a network is not taken as a detector.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The importer refused it.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// Not one image in and one tensor out.
    #[error(
        "{model}: a detector has one input [1, 3, height, width] and one output, this network has {found}"
    )]
    Form {
        /// The model.
        model: String,
        /// What it has instead.
        found: String,
    },
    /// A size that is refused.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// How camera pixels come to a network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PixelInput {
    /// Type of the values that are uploaded. The device makes floats of them.
    pub samples: SampleType,
    /// Order of the axes of what is uploaded.
    pub layout: Layout,
    /// Factor that the device applies.
    pub scale: f32,
}

impl PixelInput {
    /// Bytes, pixel after pixel, used as they are.
    pub const BYTES: Self = Self {
        samples: SampleType::U8,
        layout: Layout::Hwc,
        scale: 1.0,
    };

    /// Bytes, pixel after pixel, that the device multiplies by `scale`.
    #[must_use]
    pub const fn scaled_bytes(scale: f32) -> Self {
        Self { scale, ..Self::BYTES }
    }

    /// What the lowered network reads: bytes straight away where it can, else the floats that are made of the upload.
    fn format(self) -> InputFormat {
        match self.layout {
            Layout::Hwc if self == Self::BYTES => InputFormat::U8ChannelsLast,
            Layout::Hwc => InputFormat::F32ChannelsLast,
            Layout::Chw => InputFormat::Tensor,
        }
    }

    /// Whether the device applies a factor.
    pub(super) fn is_scaled(self) -> bool {
        self.scale != 1.0
    }

    const fn dtype(self) -> DType {
        match self.samples {
            SampleType::U8 => DType::U8,
            SampleType::Bf16 => DType::Bf16,
            SampleType::F32 => DType::F32,
        }
    }

    /// Whether the network reads what is uploaded.
    pub(super) fn is_direct(self) -> bool {
        self == Self::BYTES || (self.samples == SampleType::F32 && self.scale == 1.0)
    }
}

/// A detection network read from ONNX and lowered: one input of camera pixels, one output.
#[derive(Debug, Clone)]
pub struct DetectorGraph {
    name: Arc<str>,
    graph: LoweredGraph,
    /// What is uploaded.
    pixels: TensorSpec,
    input_px: [usize; 2],
    input: PixelInput,
    options: LowerOptions,
    /// Ascending by their frames.
    batches: Vec<Batch>,
}

impl DetectorGraph {
    /// Lowers a network whose one input is `[1, 3, height, width]`. The trace takes pixels as `input` says, in the
    /// channel order of the weights. `weights` says how the weights are stored until they are brought there.
    ///
    /// # Errors
    /// [`GraphError`] for what cannot be lowered, or is no detector.
    pub fn lower(
        name: Arc<str>,
        model: &OnnxModel,
        storage: DType,
        weights: WeightFormat,
        input: PixelInput,
    ) -> Result<Self, GraphError> {
        Self::lower_cached(name, model, storage, weights, input, &WeightCache::off())
    }

    /// As [`Self::lower`], with stored weights out of a cache where they were stored before.
    ///
    /// # Errors
    /// As [`Self::lower`].
    pub fn lower_cached(
        name: Arc<str>,
        model: &OnnxModel,
        storage: DType,
        weights: WeightFormat,
        input: PixelInput,
        cache: &WeightCache,
    ) -> Result<Self, GraphError> {
        let form = |found: String| GraphError::Form {
            model: model.name().to_owned(),
            found,
        };
        if model.inputs().len() != 1 {
            return Err(form(format!("{} inputs", model.inputs().len())));
        }
        if model.outputs().len() != 1 {
            return Err(form(format!("{} outputs", model.outputs().len())));
        }
        let options = lower_options(model, storage, weights, input.format());
        let graph = lower_cached(model, &options, cache)?;
        let dims = graph.inputs[0].spec.shape;
        let (channels, input_px) = match input.layout {
            Layout::Hwc => (dims[3], [dims[2], dims[1]]),
            Layout::Chw => (dims[1], [dims[3], dims[2]]),
        };
        if dims[0] != 1 || channels != 3 {
            return Err(form(format!(
                "an input of {} images with {channels} channels",
                dims[0]
            )));
        }
        Ok(Self {
            name,
            graph,
            pixels: TensorSpec::new(&dims, input.dtype())?,
            input_px,
            input,
            options,
            batches: Vec::new(),
        })
    }

    /// The same network, captured for these numbers of frames as well (2 and more, ascending). `model` is the file that it
    /// was lowered from.
    #[must_use]
    pub fn with_batches(mut self, model: &OnnxModel, sizes: &[usize]) -> Self {
        let batch = |&frames: &usize| Batch::lower(model, &self.graph, &self.options, frames);
        self.batches = sizes.iter().map(batch).collect();
        self
    }

    /// For each number of frames beside the single one, whether the network takes them together; otherwise it runs on one
    /// after the other in the same replay.
    #[must_use]
    pub fn batches(&self) -> Vec<(usize, bool)> {
        let told = self.batches.iter().map(|batch| (batch.frames, batch.is_joined()));
        told.collect()
    }

    /// Width and height of the input in pixels.
    #[must_use]
    pub const fn input_px(&self) -> [usize; 2] {
        self.input_px
    }

    /// Dimensions of the output.
    #[must_use]
    pub fn output_dims(&self) -> &[usize] {
        &self.graph.outputs[0].spec.shape
    }
}

impl DeviceModel for DetectorGraph {
    fn build(
        &self,
        device: &mut dyn Device,
        options: TraceOptions,
    ) -> Result<ModelTrace, Box<dyn std::error::Error + Send + Sync>> {
        let input_spec = self.pixels;
        let output_spec = self.graph.outputs[0].spec;
        let loaded = Arc::new(LoadedGraph::prepare(self.graph.clone(), device, Cq::COMPUTE)?);
        let mut runner = TraceRunner::new(&self.name, options)?;
        let input = runner.add_input(device, INPUT, input_spec, None)?;
        runner.add_param(device, SCALE, self.input.scale)?;
        runner.add_output(device, OUTPUT, output_spec)?;
        let most = self.batches.last().map_or(1, |batch| batch.frames);
        let mut places = vec![[input]];
        for place in 1..most {
            places.push([runner.add_input(device, &name_at(INPUT, place), input_spec, None)?]);
            runner.add_output(device, &name_at(OUTPUT, place), output_spec)?;
        }
        let network = Arc::clone(&loaded);
        let form = self.input;
        let variant = runner.add_variant(
            device,
            "default",
            Box::new(move |context| {
                let (pixels, factor, head) = (
                    context.input(INPUT)?,
                    context.param(SCALE)?,
                    context.output(OUTPUT)?,
                );
                forward_one(&network, context.ops(), form, factor, pixels, head)?;
                Ok(vec![(OUTPUT.to_owned(), head)])
            }),
        )?;
        let mut batches = Vec::with_capacity(self.batches.len());
        let mut weights = CameraWeights {
            single: Arc::clone(&loaded),
            batches: Vec::new(),
        };
        for batch in &self.batches {
            let frames = batch.frames;
            let network = Arc::new(batch.load(device, &loaded)?);
            weights.batches.push(Arc::clone(&network));
            let forward = move |context: &mut TraceContext<'_>| {
                let factor = context.param(SCALE)?;
                let pixels: Result<Vec<_>, _> = (0..frames)
                    .map(|place| context.input(&name_at(INPUT, place)))
                    .collect();
                let heads: Result<Vec<_>, _> = (0..frames)
                    .map(|place| context.output(&name_at(OUTPUT, place)))
                    .collect();
                let (pixels, heads) = (pixels?, heads?);
                network.forward(context.ops(), form, factor, &pixels, &heads)?;
                let named = heads.into_iter().enumerate();
                Ok(named
                    .map(|(place, head)| (name_at(OUTPUT, place), head))
                    .collect())
            };
            batches.push((
                frames,
                runner.add_variant(device, &batch.name(), Box::new(forward))?,
            ));
        }
        let inputs = [(input, input_spec)];
        let trace = ModelTrace::new(
            device,
            runner,
            &inputs,
            output_spec,
            &[variant],
            Box::new(weights),
        )?;
        Ok(trace.with_batches(&places, &batches))
    }
}

/// What the variants of a camera network have on a device.
#[derive(Debug)]
struct CameraWeights {
    single: Arc<LoadedGraph>,
    batches: Vec<Arc<LoadedBatch>>,
}

impl DeviceWeights for CameraWeights {
    fn release(&mut self, device: &mut dyn Device) {
        self.single.release(device);
        for batch in &self.batches {
            batch.release(device);
        }
    }
}

/// `pixels * factor` as a new fp32 tensor of the same shape.
pub(super) fn floats_of(
    ops: &mut OpContext<'_>,
    pixels: DeviceTensor,
    factor: Option<DeviceTensor>,
) -> Result<DeviceTensor, Box<dyn std::error::Error + Send + Sync>> {
    let spec = TensorSpec::new(&pixels.view.shape, DType::F32)?;
    let floats = ops.alloc(&spec, BufferClass::Intermediate)?;
    ops.copy(&pixels, &floats)?;
    if let Some(factor) = factor {
        scale_by(ops, floats, factor)?;
    }
    Ok(floats)
}

/// Multiplies fp32 values by a factor, where they are.
pub(super) fn scale_by(
    ops: &mut OpContext<'_>,
    floats: DeviceTensor,
    factor: DeviceTensor,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let factor_view = factor.view.broadcast_to(floats.view.shape)?;
    let op = OpDesc::Binary {
        lhs: floats.operand(),
        rhs: Operand {
            dtype: factor.dtype,
            view: factor_view,
        },
        dst: floats.operand(),
        kind: BinaryKind::Mul,
    };
    ops.run(&op, &[floats.buffer, factor.buffer, floats.buffer])?;
    Ok(())
}
