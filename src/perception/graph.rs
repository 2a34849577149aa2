//! A camera network read from ONNX.

use std::sync::Arc;

use super::{DeviceModel, DeviceWeights, ModelTrace};
use crate::device::{BinaryKind, BufferClass, Cq, Device, OpDesc, Operand};
use crate::models::{ImportError, InputFormat, LoadedGraph, LowerOptions, LoweredGraph, lower};
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::{DType, TensorError, TensorSpec};
use crate::trace::{TraceOptions, TraceRunner};
use crate::weights::{OnnxModel, WeightFormat};

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

/// A detection network read from ONNX and lowered: one input of camera pixels, one output.
#[derive(Debug, Clone)]
pub struct DetectorGraph {
    name: Arc<str>,
    graph: LoweredGraph,
    /// Camera pixels, `[1, height, width, 3]` uint8.
    pixels: TensorSpec,
    scale: f32,
}

impl DetectorGraph {
    /// Lowers a network whose one input is `[1, 3, height, width]`. The trace takes uint8 pixels
    /// `[1, height, width, 3]` in the channel order of the weights; they are multiplied by `scale` on the
    /// device. `weights` says how the weights are stored until they are brought there.
    ///
    /// # Errors
    /// [`GraphError`] for what cannot be lowered, or is no detector.
    pub fn lower(
        name: Arc<str>,
        model: &OnnxModel,
        storage: DType,
        weights: WeightFormat,
        scale: f32,
    ) -> Result<Self, GraphError> {
        let form = |found: String| GraphError::Form {
            model: model.name().to_owned(),
            found,
        };
        let [input] = model.inputs() else {
            return Err(form(format!("{} inputs", model.inputs().len())));
        };
        if model.outputs().len() != 1 {
            return Err(form(format!("{} outputs", model.outputs().len())));
        }
        let format = if scale == 1.0 {
            InputFormat::U8ChannelsLast
        } else {
            InputFormat::F32ChannelsLast
        };
        let options = LowerOptions {
            storage,
            weights,
            formats: [(input.name.clone(), format)].into(),
            ..LowerOptions::default()
        };
        let graph = lower(model, &options)?;
        let dims = graph.inputs[0].spec.shape;
        if dims[0] != 1 || dims[3] != 3 {
            return Err(form(format!(
                "an input of {} images with {} channels",
                dims[0], dims[3]
            )));
        }
        Ok(Self {
            name,
            graph,
            pixels: TensorSpec::new(&dims, DType::U8)?,
            scale,
        })
    }

    /// Width and height of the input in pixels.
    #[must_use]
    pub fn input_px(&self) -> [usize; 2] {
        [self.pixels.shape[2], self.pixels.shape[1]]
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
        runner.add_param(device, SCALE, self.scale)?;
        runner.add_output(device, OUTPUT, output_spec)?;
        let network = Arc::clone(&loaded);
        let scaled = self.scale != 1.0;
        let variant = runner.add_variant(
            device,
            "default",
            Box::new(move |context| {
                let (pixels, factor, head) = (
                    context.input(INPUT)?,
                    context.param(SCALE)?,
                    context.output(OUTPUT)?,
                );
                if scaled {
                    let floats = scale_pixels(context.ops(), pixels, factor)?;
                    let forward = network.forward_into(context.ops(), &[floats], &[head]);
                    context.ops().free(&floats)?;
                    forward?;
                } else {
                    network.forward_into(context.ops(), &[pixels], &[head])?;
                }
                Ok(vec![(OUTPUT.to_owned(), head)])
            }),
        )?;
        let inputs = [(input, input_spec)];
        Ok(ModelTrace::new(
            device,
            runner,
            &inputs,
            output_spec,
            &[variant],
            Box::new(loaded),
        )?)
    }
}

impl DeviceWeights for Arc<LoadedGraph> {
    fn release(&mut self, device: &mut dyn Device) {
        LoadedGraph::release(self, device);
    }
}

/// `pixels * factor` as a new fp32 tensor of the same shape.
fn scale_pixels(
    ops: &mut OpContext<'_>,
    pixels: DeviceTensor,
    factor: DeviceTensor,
) -> Result<DeviceTensor, Box<dyn std::error::Error + Send + Sync>> {
    let spec = TensorSpec::new(&pixels.view.shape, DType::F32)?;
    let floats = ops.alloc(&spec, BufferClass::Intermediate)?;
    ops.copy(&pixels, &floats)?;
    let factor_view = factor.view.broadcast_to(spec.shape)?;
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
    Ok(floats)
}
