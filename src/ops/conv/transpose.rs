//! Transposed convolutions whose kernel is their stride: every output pixel comes from one input pixel.

use ndarray::{Array2, ArrayView4};

use super::maps::{lent, made, new_map};
use super::prepared::{HostWeights, Prepared};
use super::{LayerError, PreparedInput};
use crate::device::{Activation, Conv2dDesc, Device, Geometry2d, ResidualOrder};
use crate::ops::{DeviceTensor, OpContext};
use crate::precision::Math;
use crate::tensor::{DType, Shape};

/// How a transposed convolution is computed. The bits are the same unless weights are block floats, which share exponents
/// among other channels in each form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransposeMethod {
    /// [`TransposeMethod::Direct`] for kernels of up to 2, else [`TransposeMethod::Linear`].
    Auto,
    /// One product for each position in the enlarged pixel, which writes its pixels in place.
    Direct,
    /// One product for all positions, then depth to space, which moves every pixel once.
    Linear,
}

/// A transposed convolution: weights, arithmetic, and what follows the sum.
#[derive(Debug, Clone)]
pub struct ConvTranspose2dSpec {
    dims: [usize; 4],
    weight: Vec<f32>,
    bias: Option<Vec<f32>>,
    math: Math,
    stride: usize,
    activation: Activation,
    output: Option<DType>,
    method: TransposeMethod,
}

impl ConvTranspose2dSpec {
    /// Weights `[Cin, Cout, K, K]`, one bias per output channel (zeros if absent), and how they are multiplied and summed.
    /// Stride `K`, no padding, no activation, output of the input's type, method [`TransposeMethod::Auto`].
    #[must_use]
    pub fn new(weight: ArrayView4<'_, f32>, bias: Option<&[f32]>, math: impl Into<Math>) -> Self {
        let (a, b, c, d) = weight.dim();
        Self {
            dims: [a, b, c, d],
            weight: weight.iter().copied().collect(),
            bias: bias.map(<[f32]>::to_vec),
            math: math.into(),
            stride: c,
            activation: Activation::Identity,
            output: None,
            method: TransposeMethod::Auto,
        }
    }

    /// With a stride; anything but the kernel size is refused when the layer is built.
    #[must_use]
    pub fn stride(self, stride: usize) -> Self {
        Self { stride, ..self }
    }

    /// With an activation behind the sum.
    #[must_use]
    pub fn activation(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }

    /// With an output of this type, fp32 or the input's, whatever the input's.
    #[must_use]
    pub fn output(self, dtype: DType) -> Self {
        Self {
            output: Some(dtype),
            ..self
        }
    }

    /// Computed in one way.
    #[must_use]
    pub fn method(self, method: TransposeMethod) -> Self {
        Self { method, ..self }
    }

    fn check(&self, layer: &str) -> Result<(), LayerError> {
        let [_, outputs, rows, columns] = self.dims;
        let count = self.bias.as_ref().map_or(outputs, Vec::len);
        let reason = if self.dims.contains(&0) {
            format!("weights {:?}: no dimension may be 0", self.dims)
        } else if rows != columns || rows != self.stride {
            let reason = format!(
                "a kernel of {rows} x {columns} at stride {}: only kernels as large as the stride, without padding, have this form",
                self.stride
            );
            return Err(LayerError::refused(layer, reason));
        } else if count != outputs {
            format!("{count} biases for {outputs} output channels")
        } else {
            return Ok(());
        };
        Err(LayerError::weights(layer, reason))
    }

    /// Weights of the position `(i, j)` in the enlarged pixel, `[Cout, Cin]`.
    fn position(&self, i: usize, j: usize) -> impl Iterator<Item = f32> + '_ {
        let [inputs, outputs, k, _] = self.dims;
        (0..outputs)
            .flat_map(move |o| (0..inputs).map(move |c| self.weight[((c * outputs + o) * k + i) * k + j]))
    }

    /// Positions in the enlarged pixel, rows outside.
    fn positions(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let k = self.dims[2];
        (0..k * k).map(move |at| (at / k, at % k))
    }
}

/// A transposed convolution whose weights are brought to the device when it first runs.
#[derive(Debug)]
pub struct ConvTranspose2d {
    name: String,
    spec: ConvTranspose2dSpec,
    linear: bool,
    /// One for each position in the enlarged pixel, or one for all.
    parts: Vec<HostWeights>,
    prepared: Prepared,
}

const POINTWISE: Geometry2d = Geometry2d {
    kernel: [1; 2],
    stride: [1; 2],
    dilation: [1; 2],
    pad_begin: [0; 2],
};

impl ConvTranspose2d {
    /// A layer; errors and logs name it.
    ///
    /// # Errors
    /// [`LayerError::Weights`]; [`LayerError::Refused`] for a kernel that is not as large as the stride.
    pub fn new(name: &str, spec: ConvTranspose2dSpec) -> Result<Self, LayerError> {
        spec.check(name)?;
        let linear = match spec.method {
            TransposeMethod::Auto => spec.stride > 2,
            TransposeMethod::Direct => false,
            TransposeMethod::Linear => true,
        };
        let parts = if linear {
            let bias = |bias: &Vec<f32>| spec.positions().flat_map(|_| bias.iter().copied()).collect();
            vec![HostWeights {
                weight: spec.positions().flat_map(|(i, j)| spec.position(i, j)).collect(),
                bias: spec.bias.as_ref().map(bias),
            }]
        } else {
            let part = |(i, j)| HostWeights {
                weight: spec.position(i, j).collect(),
                bias: spec.bias.clone(),
            };
            spec.positions().map(part).collect()
        };
        Ok(Self {
            name: name.into(),
            spec,
            linear,
            parts,
            prepared: Prepared::default(),
        })
    }

    /// The matrix `[Cin, K * K * Cout]` of the linear form: column `(i * K + j) * Cout + c` makes channel `c` of the pixel
    /// `(i, j)` in the enlarged one.
    #[must_use]
    pub fn linear_weights(&self) -> Array2<f32> {
        let [inputs, outputs, k, _] = self.spec.dims;
        Array2::from_shape_fn((inputs, k * k * outputs), |(input, column)| {
            let (at, output) = (column / outputs, column % outputs);
            self.spec.weight[(input * outputs + output) * k * k + at]
        })
    }

    /// Shape of the output, `[N, C, H, W]`.
    ///
    /// # Errors
    /// [`LayerError::Shape`].
    pub fn out_shape(&self, input: &DeviceTensor) -> Result<[usize; 4], LayerError> {
        let [inputs, outputs, k, _] = self.spec.dims;
        let grown = |size: usize| size.checked_mul(k);
        let shape = match input.view.shape[..] {
            [n, c, h, w] if c == inputs => grown(h).zip(grown(w)).map(|(h, w)| [n, outputs, h, w]),
            _ => None,
        };
        shape.ok_or_else(|| {
            let expected = format!("[N, {inputs}, H, W]");
            LayerError::shape(&self.name, "the input", input.view.shape, expected)
        })
    }

    /// Runs into a new feature map, which the caller frees.
    ///
    /// # Errors
    /// [`LayerError`]; nothing stays allocated but weights.
    pub fn forward(&self, ops: &mut OpContext<'_>, input: &DeviceTensor) -> Result<DeviceTensor, LayerError> {
        let shape = self.out_shape(input)?;
        let map = new_map(ops, &self.name, shape, self.spec.output.unwrap_or(input.dtype))?;
        made(ops, map, |ops, map| self.forward_into(ops, input, map))
    }

    /// Runs into a feature map that exists, of fp32 or the input's type.
    ///
    /// # Errors
    /// [`LayerError`]; nothing stays allocated but weights.
    pub fn forward_into(
        &self,
        ops: &mut OpContext<'_>,
        input: &DeviceTensor,
        output: &DeviceTensor,
    ) -> Result<(), LayerError> {
        let expected = self.out_shape(input)?;
        if output.view.shape[..] != expected {
            let expected = format!("{expected:?}");
            return Err(LayerError::shape(
                &self.name,
                "the output",
                output.view.shape,
                expected,
            ));
        }
        if self.linear {
            self.run_linear(ops, input, output)?;
        } else {
            self.run_direct(ops, input, output)?;
        }
        self.prepared.ran(input);
        Ok(())
    }

    fn run_direct(
        &self,
        ops: &mut OpContext<'_>,
        input: &DeviceTensor,
        output: &DeviceTensor,
    ) -> Result<(), LayerError> {
        let (step, [_, _, h, w]) = (self.spec.stride, [0, 1, 2, 3].map(|axis| input.view.shape[axis]));
        for (part, (i, j)) in self.spec.positions().enumerate() {
            let rows = output.view.slice(2, i, h, step as isize);
            let view = rows.and_then(|rows| rows.slice(3, j, w, step as isize));
            let to = DeviceTensor {
                view: view.map_err(LayerError::tensor(&self.name))?,
                ..*output
            };
            self.launch(ops, part, input, &to)?;
        }
        Ok(())
    }

    fn run_linear(
        &self,
        ops: &mut OpContext<'_>,
        input: &DeviceTensor,
        output: &DeviceTensor,
    ) -> Result<(), LayerError> {
        let [n, _, h, w] = [0, 1, 2, 3].map(|axis| input.view.shape[axis]);
        let [_, c, k, _] = self.spec.dims;
        let deep = new_map(ops, &self.name, [n, k * k * c, h, w], output.dtype)?;
        lent(ops, deep, |ops, deep| {
            self.launch(ops, 0, input, deep)?;
            // [N, H, W, K * K * C] and [N, H * K, W * K, C], both as [N, H, K, W, K, C].
            let from = self.six(deep, [n, h, w, k, k, c], [0, 1, 3, 2, 4, 5])?;
            let to = self.six(output, [n, h, k, w, k, c], [0, 1, 2, 3, 4, 5])?;
            ops.copy(&from, &to).map_err(LayerError::device(&self.name))
        })
    }

    /// A map, channels last, with its axes divided into six and then reordered.
    fn six(
        &self,
        map: &DeviceTensor,
        dims: [usize; 6],
        order: [usize; 6],
    ) -> Result<DeviceTensor, LayerError> {
        let refused = LayerError::tensor(&self.name);
        let last = map.view.transpose(&[0, 2, 3, 1]).map_err(&refused)?;
        let shape = Shape::new(&dims).map_err(&refused)?;
        // Only one axis is divided at a time, so strides always allow it.
        let divided = last.reshape(shape).ok_or_else(|| {
            LayerError::shape(
                &self.name,
                "a map",
                map.view.shape,
                format!("one that can be seen as {shape}"),
            )
        })?;
        let view = divided.transpose(&order).map_err(&refused)?;
        Ok(DeviceTensor { view, ..*map })
    }

    fn launch(
        &self,
        ops: &mut OpContext<'_>,
        part: usize,
        input: &DeviceTensor,
        output: &DeviceTensor,
    ) -> Result<(), LayerError> {
        let desc = Conv2dDesc {
            input: input.operand(),
            output: output.operand(),
            residual: None,
            residual_order: ResidualOrder::AfterActivation,
            geometry: POINTWISE,
            groups: 1,
            activation: self.spec.activation,
            math: self.spec.math,
        };
        let weights = (part, &self.parts[part]);
        self.prepared
            .run(ops, &self.name, weights, desc, [input, output], None)
    }

    /// The inputs for which weights are ready, in the order in which they came.
    #[must_use]
    pub fn prepared_inputs(&self) -> Vec<PreparedInput> {
        self.prepared.inputs()
    }

    /// Returns the weights' memory. The layer may run again.
    pub fn release(&self, device: &mut dyn Device) {
        self.prepared.release(device);
    }

    /// One line for logs.
    #[must_use]
    pub fn describe(&self) -> String {
        let [inputs, outputs, k, _] = self.spec.dims;
        let method = if self.linear {
            "linear and depth to space"
        } else {
            "direct"
        };
        format!(
            "{}: transposed {k} x {k}, {inputs} -> {outputs}, {}, {method}",
            self.name, self.spec.math
        )
    }
}
