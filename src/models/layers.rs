//! The layers that blocks are made of: a convolution or transposed convolution with folded weights, and a dense layer.
//!
//! A feature map is a [`DeviceTensor`] of logical shape `[N, C, H, W]` whose channels lie next to each other. Rows are a
//! tensor `[.., R, C]` with the same property.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use ndarray::{ArrayView2, ArrayView4, s};

use super::block_error::BlockError;
use super::transposed::{self, Axis, Phase};
use crate::device::{
    Activation, BufferClass, BufferId, Conv2dDesc, Device, Geometry2d, OpDesc, ResidualOrder, WeightDesc,
};
use crate::ops::{DeviceTensor, OpContext};
use crate::precision::Math;
use crate::tensor::{DType, Shape, TensorSpec, View};

/// Whether a layer shrinks or enlarges its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConvKind {
    /// A convolution; weights `[Cout, Cin, K, K]`.
    Conv,
    /// A transposed convolution; weights `[Cin, Cout, K, K]`.
    ConvTranspose,
}

/// One layer with batch normalisation folded into its weights.
#[derive(Debug, Clone)]
pub struct ConvSpec {
    /// Row-major weights.
    weight: Vec<f32>,
    dims: [usize; 4],
    bias: Vec<f32>,
    stride: usize,
    padding: Option<usize>,
    relu: bool,
    kind: ConvKind,
}

impl ConvSpec {
    /// A convolution with weights `[Cout, Cin, K, K]`, one bias per output channel, stride 1, padding `K / 2`, and a ReLU.
    #[must_use]
    pub fn conv(weight: ArrayView4<'_, f32>, bias: &[f32]) -> Self {
        let (a, b, c, d) = weight.dim();
        Self {
            weight: weight.iter().copied().collect(),
            dims: [a, b, c, d],
            bias: bias.to_vec(),
            stride: 1,
            padding: None,
            relu: true,
            kind: ConvKind::Conv,
        }
    }

    /// A transposed convolution with weights `[Cin, Cout, K, K]`, one bias per output channel, no padding, and a ReLU.
    #[must_use]
    pub fn conv_transpose(weight: ArrayView4<'_, f32>, bias: &[f32], stride: usize) -> Self {
        Self {
            stride,
            padding: Some(0),
            kind: ConvKind::ConvTranspose,
            ..Self::conv(weight, bias)
        }
    }

    /// With another stride.
    #[must_use]
    pub fn stride(self, stride: usize) -> Self {
        Self { stride, ..self }
    }

    /// With another padding; a transposed convolution cuts as much off its output.
    #[must_use]
    pub fn padding(self, padding: usize) -> Self {
        Self {
            padding: Some(padding),
            ..self
        }
    }

    /// Without the ReLU.
    #[must_use]
    pub fn linear(self) -> Self {
        Self { relu: false, ..self }
    }

    /// Input channels.
    #[must_use]
    pub const fn inputs(&self) -> usize {
        match self.kind {
            ConvKind::Conv => self.dims[1],
            ConvKind::ConvTranspose => self.dims[0],
        }
    }

    /// Output channels.
    #[must_use]
    pub const fn outputs(&self) -> usize {
        match self.kind {
            ConvKind::Conv => self.dims[0],
            ConvKind::ConvTranspose => self.dims[1],
        }
    }

    /// Kernel size.
    #[must_use]
    pub const fn kernel(&self) -> usize {
        self.dims[2]
    }

    /// The convolution of some input channels alone: without the ReLU, and with the bias only where the first channel
    /// is among them.
    pub(super) fn part(&self, inputs: Range<usize>) -> Self {
        let part = self.weight().slice_move(s![.., inputs.clone(), .., ..]);
        let (a, b, c, d) = part.dim();
        Self {
            weight: part.iter().copied().collect(),
            dims: [a, b, c, d],
            bias: match inputs.start {
                0 => self.bias.clone(),
                _ => vec![0.0; self.bias.len()],
            },
            relu: false,
            ..self.clone()
        }
    }

    pub(super) const fn has_relu(&self) -> bool {
        self.relu
    }

    pub(super) const fn kind(&self) -> ConvKind {
        self.kind
    }

    pub(super) fn weight(&self) -> ArrayView4<'_, f32> {
        let [a, b, c, d] = self.dims;
        // The values came out of an array of these dimensions.
        ArrayView4::from_shape((a, b, c, d), &self.weight).unwrap_or_else(|_| unreachable!())
    }

    pub(super) fn bias(&self) -> &[f32] {
        &self.bias
    }

    const fn pad(&self) -> usize {
        match self.padding {
            Some(pad) => pad,
            None => self.kernel() / 2,
        }
    }

    fn check(&self, name: &str) -> Result<(), BlockError> {
        let [.., rows, columns] = self.dims;
        let reason = if self.dims.contains(&0) || self.stride == 0 {
            format!(
                "weights {:?} and stride {}: none may be 0",
                self.dims, self.stride
            )
        } else if rows != columns {
            format!("a kernel of {rows} x {columns}: square ones are expected")
        } else if self.bias.len() != self.outputs() {
            format!(
                "{} biases for {} output channels",
                self.bias.len(),
                self.outputs()
            )
        } else {
            return Ok(());
        };
        Err(BlockError::weights(name, reason))
    }

    /// Size of an output axis; `None` where the kernel does not fit.
    fn output_size(&self, input: usize) -> Option<usize> {
        let (kernel, pad) = (self.kernel(), self.pad());
        match self.kind {
            ConvKind::Conv => Some((input + 2 * pad).checked_sub(kernel)? / self.stride + 1),
            ConvKind::ConvTranspose => (input.checked_sub(1)? * self.stride + kernel).checked_sub(2 * pad),
        }
        .filter(|&size| size > 0)
    }
}

/// One launch of a layer.
struct Part {
    desc: Conv2dDesc,
    /// Which taps of a transposed convolution it takes.
    phase: Option<Phase>,
}

/// A layer whose weights are brought to the device when it first runs, once for every form in which it runs. They stay
/// there until [`ConvLayer::release`].
pub(super) struct ConvLayer {
    name: String,
    spec: ConvSpec,
    prepared: Mutex<HashMap<(usize, Conv2dDesc), BufferId>>,
}

impl std::fmt::Debug for ConvLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {:?} {:?}", self.name, self.spec.kind, self.spec.dims)
    }
}

impl ConvLayer {
    pub(super) fn new(name: String, spec: ConvSpec) -> Result<Self, BlockError> {
        spec.check(&name)?;
        Ok(Self {
            name,
            spec,
            prepared: Mutex::default(),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) const fn spec(&self) -> &ConvSpec {
        &self.spec
    }

    /// Shape of the output, `[N, C, H, W]`.
    pub(super) fn out_shape(&self, input: &Shape) -> Result<[usize; 4], BlockError> {
        let sizes = match input[..] {
            [n, c, h, w] if c == self.spec.inputs() => (self.spec.output_size(h))
                .zip(self.spec.output_size(w))
                .map(|(h, w)| [n, self.spec.outputs(), h, w]),
            _ => None,
        };
        sizes.ok_or_else(|| {
            let expected = format!(
                "[N, {}, H, W] with room for a kernel of {}",
                self.spec.inputs(),
                self.spec.kernel()
            );
            BlockError::shape(&self.name, "the input", *input, expected)
        })
    }

    /// Runs into an output that exists: of the input's type or fp32. Only a convolution takes a residual.
    pub(super) fn run(
        &self,
        ops: &mut OpContext<'_>,
        input: &DeviceTensor,
        output: &DeviceTensor,
        residual: Option<&DeviceTensor>,
    ) -> Result<(), BlockError> {
        let expected = self.out_shape(&input.view.shape)?;
        if output.view.shape[..] != expected {
            let expected = format!("{expected:?}");
            return Err(BlockError::shape(
                &self.name,
                "the output",
                output.view.shape,
                expected,
            ));
        }
        for (index, part) in self.parts(input, output, residual)?.into_iter().enumerate() {
            let weights = self.weights(ops.device, index, &part)?;
            let mut buffers = vec![input.buffer, weights, output.buffer];
            buffers.extend(residual.map(|r| r.buffer));
            ops.run(&OpDesc::Conv2d(part.desc), &buffers)
                .map_err(BlockError::device(&self.name))?;
        }
        Ok(())
    }

    /// Runs into a new feature map.
    pub(super) fn run_new(
        &self,
        ops: &mut OpContext<'_>,
        input: &DeviceTensor,
    ) -> Result<DeviceTensor, BlockError> {
        let shape = self.out_shape(&input.view.shape)?;
        let output = new_map(ops, &self.name, shape, input.dtype)?;
        match self.run(ops, input, &output, None) {
            Ok(()) => Ok(output),
            Err(error) => {
                free(ops, &[output]);
                Err(error)
            }
        }
    }

    /// Returns the weights' memory. The layer may run again.
    pub(super) fn release(&self, device: &mut dyn Device) {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, buffer) in prepared.drain() {
            free_buffer(device, buffer);
        }
    }

    fn parts(
        &self,
        input: &DeviceTensor,
        output: &DeviceTensor,
        residual: Option<&DeviceTensor>,
    ) -> Result<Vec<Part>, BlockError> {
        let spec = &self.spec;
        let activation = if spec.relu {
            Activation::Relu
        } else {
            Activation::Identity
        };
        let desc = |input: &DeviceTensor, output: &DeviceTensor, geometry: Geometry2d| Conv2dDesc {
            input: input.operand(),
            output: output.operand(),
            residual: residual.map(DeviceTensor::operand),
            residual_order: ResidualOrder::AfterActivation,
            geometry,
            groups: 1,
            activation,
            math: Math::Native,
        };
        if spec.kind == ConvKind::Conv {
            let geometry = Geometry2d {
                kernel: [spec.kernel(); 2],
                stride: [spec.stride; 2],
                dilation: [1; 2],
                pad_begin: [spec.pad(); 2],
            };
            return Ok(vec![Part {
                desc: desc(input, output, geometry),
                phase: None,
            }]);
        }
        let axis = |axis: usize| Axis {
            kernel: spec.kernel(),
            stride: spec.stride,
            pad: spec.pad(),
            input: input.view.shape[axis],
            output: output.view.shape[axis],
        };
        let phases = transposed::phases([axis(2), axis(3)])
            .map_err(|reason| BlockError::weights(&self.name, format!("{reason} is not supported")))?;
        let parts = phases.into_iter().map(|phase| {
            let views = transposed::phase_views(&phase, [spec.stride; 2], &input.view, &output.view);
            let [from, to] = views.map_err(BlockError::tensor(&self.name))?;
            let from = DeviceTensor { view: from, ..*input };
            let to = DeviceTensor { view: to, ..*output };
            Ok(Part {
                desc: desc(&from, &to, phase.geometry),
                phase: Some(phase),
            })
        });
        parts.collect()
    }

    fn weights(&self, device: &mut dyn Device, index: usize, part: &Part) -> Result<BufferId, BlockError> {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (index, part.desc.clone());
        if let Some(&buffer) = prepared.get(&key) {
            return Ok(buffer);
        }
        let phase = part.phase.as_ref().map(|phase| {
            let whole = transposed::by_output(&self.spec.weight, self.spec.dims, 1);
            transposed::phase_weights(phase, &whole, [self.spec.kernel(); 2])
        });
        let weights = WeightDesc::Conv2d {
            desc: &part.desc,
            weight: phase.as_deref().unwrap_or(&self.spec.weight),
            bias: Some(&self.spec.bias),
        };
        let buffer = device
            .prepare_weights(&weights)
            .map_err(BlockError::device(&self.name))?;
        prepared.insert(key, buffer);
        Ok(buffer)
    }
}

/// A dense layer over rows, which is a convolution of one tap: `[.., R, K] -> [.., R, N]`. Weights are brought to the
/// device when it first runs.
#[derive(Debug)]
pub struct RowLinear {
    layer: ConvLayer,
}

impl RowLinear {
    /// A layer with weights `[K, N]` and one bias per output (zeros if absent).
    ///
    /// # Errors
    /// [`BlockError::Weights`].
    pub fn new(
        name: &str,
        weight: ArrayView2<'_, f32>,
        bias: Option<&[f32]>,
        relu: bool,
    ) -> Result<Self, BlockError> {
        let (inputs, outputs) = weight.dim();
        let zeros = vec![0.0; outputs];
        let bias = bias.unwrap_or(&zeros);
        let turned = weight.t();
        let spec = ConvSpec {
            weight: turned.iter().copied().collect(),
            dims: [outputs, inputs, 1, 1],
            bias: bias.to_vec(),
            stride: 1,
            padding: Some(0),
            relu,
            kind: ConvKind::Conv,
        };
        Ok(Self {
            layer: ConvLayer::new(name.to_owned(), spec)?,
        })
    }

    /// Applies the layer; the result has the rows' type and is freed by the caller.
    ///
    /// # Errors
    /// [`BlockError`]; nothing stays allocated but the weights.
    pub fn forward(&self, ops: &mut OpContext<'_>, rows: &DeviceTensor) -> Result<DeviceTensor, BlockError> {
        let name = self.layer.name();
        let mut dims = rows.view.shape.to_vec();
        if let Some(last) = dims.last_mut() {
            *last = self.layer.spec().outputs();
        }
        let spec = TensorSpec::new(&dims, rows.dtype).map_err(BlockError::tensor(name))?;
        let output = ops
            .alloc(&spec, BufferClass::Intermediate)
            .map_err(BlockError::device(name))?;
        match self.forward_into(ops, rows, &output) {
            Ok(()) => Ok(output),
            Err(error) => {
                free(ops, &[output]);
                Err(error)
            }
        }
    }

    /// Applies the layer into rows that exist, of the input's type or fp32.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn forward_into(
        &self,
        ops: &mut OpContext<'_>,
        rows: &DeviceTensor,
        output: &DeviceTensor,
    ) -> Result<(), BlockError> {
        self.forward_add_into(ops, rows, output, None)
    }

    /// As [`RowLinear::forward_into`]; rows of the output's type may be added behind the layer.
    pub(super) fn forward_add_into(
        &self,
        ops: &mut OpContext<'_>,
        rows: &DeviceTensor,
        output: &DeviceTensor,
        residual: Option<&DeviceTensor>,
    ) -> Result<(), BlockError> {
        let (input, output) = (
            self.as_map(rows, "the input")?,
            self.as_map(output, "the output")?,
        );
        let residual = residual
            .map(|rows| self.as_map(rows, "the residual"))
            .transpose()?;
        self.layer.run(ops, &input, &output, residual.as_ref())
    }

    /// Returns the weights' memory. The layer may run again.
    pub fn release(&self, device: &mut dyn Device) {
        self.layer.release(device);
    }

    /// Rows as an image of one line.
    fn as_map(&self, rows: &DeviceTensor, what: &str) -> Result<DeviceTensor, BlockError> {
        let shape = rows.view.shape;
        let flat = shape.split_last().and_then(|(&width, front)| {
            let dims = Shape::new(&[front.iter().product(), width]).ok()?;
            rows.view.reshape(dims)
        });
        let flat = flat.ok_or_else(|| {
            BlockError::shape(
                self.layer.name(),
                what,
                shape,
                "rows at equal distances, [.., R, K]",
            )
        })?;
        Ok(rows_as_map(rows, &flat))
    }
}

/// `[R, C]` as `[1, C, 1, R]`.
fn rows_as_map(rows: &DeviceTensor, flat: &View) -> DeviceTensor {
    let mut view = *flat;
    // Two dimensions become four of the same element count, so this shape exists.
    if let Ok(shape) = Shape::new(&[1, flat.shape[1], 1, flat.shape[0]]) {
        view.shape = shape;
    }
    view.strides[..4].copy_from_slice(&[0, flat.strides[1], 0, flat.strides[0]]);
    DeviceTensor { view, ..*rows }
}

/// A tensor `[N, H, W, C]` (or, with the sizes given, rows `[H * W, C]`) as a feature map `[N, C, H, W]`.
///
/// # Errors
/// [`BlockError::Shape`] if the elements cannot be seen so.
pub fn as_feature_map(tensor: &DeviceTensor, [n, h, w, c]: [usize; 4]) -> Result<DeviceTensor, BlockError> {
    tensor.as_feature_map([n, h, w, c]).ok_or_else(|| {
        let expected = format!("one that can be seen as [{n}, {h}, {w}, {c}]");
        BlockError::shape("a feature map", "the tensor", tensor.view.shape, expected)
    })
}

/// A new feature map `[N, C, H, W]`, stored `[N, H, W, C]`.
pub(super) fn new_map(
    ops: &mut OpContext<'_>,
    block: &str,
    [n, c, h, w]: [usize; 4],
    dtype: DType,
) -> Result<DeviceTensor, BlockError> {
    let spec = TensorSpec::new(&[n, h, w, c], dtype).map_err(BlockError::tensor(block))?;
    let tensor = ops
        .alloc(&spec, BufferClass::Intermediate)
        .map_err(BlockError::device(block))?;
    as_feature_map(&tensor, [n, h, w, c])
}

/// Frees tensors of a block that failed; a device that cannot take one back says so on the next call.
pub(super) fn free(ops: &mut OpContext<'_>, tensors: &[DeviceTensor]) {
    for tensor in tensors {
        free_buffer(ops.device, tensor.buffer);
    }
}

pub(super) fn free_buffer(device: &mut dyn Device, buffer: BufferId) {
    if let Err(error) = device.free(buffer) {
        tracing::debug!(%error, "a buffer could not be returned");
    }
}
