//! The device half of a detector: the network as a captured trace.

use std::sync::Arc;

use crate::device::{BinaryKind, BufferClass, Cq, Device, EventId, HostSlot, OpDesc, Operand};
use crate::models::{ImportError, InputFormat, LoadedGraph, LowerOptions, LoweredGraph, lower};
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::{DType, TensorError, TensorSpec};
use crate::trace::{InputId, Pending, TraceError, TraceOptions, TraceRunner, VariantId};
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

/// A network on a device, ready to be captured and replayed.
#[derive(Debug)]
pub struct DetectorTrace {
    network: Arc<LoadedGraph>,
    runner: TraceRunner,
    variant: VariantId,
    input: InputId,
    input_spec: TensorSpec,
    output_spec: TensorSpec,
}

impl DetectorTrace {
    /// Puts weights and persistent tensors on the device and warms the network up. To be done for every
    /// detector before the first [`DetectorTrace::capture`].
    ///
    /// # Errors
    /// Device errors, or an operation that the device cannot do.
    pub fn build(
        device: &mut dyn Device,
        graph: &DetectorGraph,
        options: TraceOptions,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let input_spec = graph.pixels;
        let output_spec = graph.graph.outputs[0].spec;
        let loaded = Arc::new(LoadedGraph::prepare(graph.graph.clone(), device, Cq::COMPUTE)?);
        let mut runner = TraceRunner::new(&graph.name, options)?;
        let input = runner.add_input(device, INPUT, input_spec, None)?;
        runner.add_param(device, SCALE, graph.scale)?;
        runner.add_output(device, OUTPUT, output_spec)?;
        let network = Arc::clone(&loaded);
        let scaled = graph.scale != 1.0;
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
        runner.warm_up(device)?;
        Ok(Self {
            network: loaded,
            runner,
            variant,
            input,
            input_spec,
            output_spec,
        })
    }

    /// Captures the network.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn capture(&mut self, device: &mut dyn Device) -> Result<(), TraceError> {
        self.runner.capture(device)
    }

    /// Camera pixels: `[1, height, width, 3]` uint8.
    #[must_use]
    pub const fn input_spec(&self) -> &TensorSpec {
        &self.input_spec
    }

    /// Bytes of one input.
    #[must_use]
    pub fn input_bytes(&self) -> usize {
        self.input_spec.bytes()
    }

    /// Bytes of one output.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.output_spec.bytes()
    }

    /// Enqueues upload and replay. The event completes when the slot is free again.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn submit(
        &mut self,
        device: &mut dyn Device,
        input: &HostSlot,
    ) -> Result<(EventId, Pending), TraceError> {
        let uploaded = self.runner.upload(device, &[(self.input, input)])?;
        let pending = self.runner.replay(device, self.variant)?;
        Ok((uploaded, pending))
    }

    /// Whether an event has completed.
    ///
    /// # Errors
    /// [`TraceError`] if the device is lost.
    pub fn completed(&self, device: &dyn Device, event: EventId) -> Result<bool, TraceError> {
        self.runner.completed(device, event)
    }

    /// Enqueues the read of a replay's output.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn read(
        &mut self,
        device: &mut dyn Device,
        pending: Pending,
        output: &mut HostSlot,
    ) -> Result<EventId, TraceError> {
        self.runner.read(device, pending, 0, output)
    }

    /// The trace runner, for tests and benches.
    pub fn runner(&mut self) -> (&mut TraceRunner, VariantId, InputId) {
        (&mut self.runner, self.variant, self.input)
    }

    /// What the trace holds, for reports.
    #[must_use]
    pub fn describe(&self) -> serde_json::Value {
        self.runner.describe()
    }

    /// Releases the trace and the weights.
    ///
    /// # Errors
    /// The first device error; everything is tried.
    pub fn release(&mut self, device: &mut dyn Device) -> Result<(), TraceError> {
        let released = self.runner.release(device);
        self.network.release(device);
        released
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
