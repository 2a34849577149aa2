//! Resizing feature maps by any factor, as two products with interpolation matrices.

use ndarray::{Array2, Array4, ArrayView4, Axis};

use super::conv::{HostWeights, LayerError, Prepared, lent, made, new_map};
use super::{DeviceTensor, Interpolation, OpContext, resize_matrices};
use crate::device::{Activation, BufferClass, Conv2dDesc, Device, Geometry2d, ResidualOrder};
use crate::precision::{Math, OperandFormat};
use crate::tensor::{DType, TensorSpec, View};

/// What a resize is made of.
#[derive(Debug, Clone, Copy)]
pub struct Resize2dSpec {
    in_hw: [usize; 2],
    out_hw: [usize; 2],
    mode: Interpolation,
    math: Math,
    scale: Option<[f64; 2]>,
    output: Option<DType>,
}

impl Resize2dSpec {
    /// From so many rows and columns to so many, and how products are summed. Output of the input's type.
    #[must_use]
    pub fn new(in_hw: [usize; 2], out_hw: [usize; 2], mode: Interpolation, math: impl Into<Math>) -> Self {
        Self {
            in_hw,
            out_hw,
            mode,
            math: math.into(),
            scale: None,
            output: None,
        }
    }

    /// With factors along rows and columns that are used as they are, not derived from the sizes.
    #[must_use]
    pub fn scale(self, scale: [f64; 2]) -> Self {
        Self {
            scale: Some(scale),
            ..self
        }
    }

    /// With an output of this type whatever the input's.
    #[must_use]
    pub fn output(self, dtype: DType) -> Self {
        Self {
            output: Some(dtype),
            ..self
        }
    }
}

/// A separable resize: columns first, then rows, each one product with the matrix of [`super::interp_matrix`].
///
/// Operands are fp32, values between the products too: bf16 cannot hold weights such as 511/1023. Every output is a
/// sum over a whole row and column, so an infinity or NaN spreads along both.
#[derive(Debug)]
pub struct Resize2d {
    name: String,
    spec: Resize2dSpec,
    /// `[rows, columns]` in f64.
    matrices: [Array2<f64>; 2],
    weights: [HostWeights; 2],
    prepared: Prepared,
}

impl Resize2d {
    /// A layer; errors and logs name it.
    ///
    /// # Errors
    /// [`LayerError::Weights`] for sizes or scales that cannot be; [`LayerError::Refused`] for an arithmetic whose weights are
    /// not fp32.
    pub fn new(name: &str, spec: Resize2dSpec) -> Result<Self, LayerError> {
        if let Math::Matrix(math) = spec.math
            && math.weights != OperandFormat::F32
        {
            let reason = format!(
                "interpolation weights stored as {}, which cannot hold numbers such as 511/1023: ask for fp32 weights (:w=fp32)",
                math.weights
            );
            return Err(LayerError::refused(name, reason));
        }
        let matrices = resize_matrices(spec.in_hw, spec.out_hw, spec.mode, spec.scale)
            .map_err(|error| LayerError::weights(name, error.to_string()))?;
        let weights = matrices.each_ref().map(|matrix| HostWeights {
            weight: matrix.iter().map(|&x| x as f32).collect(),
            bias: None,
        });
        Ok(Self {
            name: name.into(),
            spec,
            matrices,
            weights,
            prepared: Prepared::default(),
        })
    }

    /// Resizes into a new feature map, which the caller frees.
    ///
    /// # Errors
    /// [`LayerError`]; nothing stays allocated but the matrices.
    pub fn forward(&self, ops: &mut OpContext<'_>, input: &DeviceTensor) -> Result<DeviceTensor, LayerError> {
        let ([h, w], [rows, columns]) = (self.spec.in_hw, self.spec.out_hw);
        let [n, c] = match input.view.shape[..] {
            [n, c, found_h, found_w] if [found_h, found_w] == [h, w] => [n, c],
            _ => {
                let expected = format!("[N, C, {h}, {w}]");
                return Err(LayerError::shape(
                    &self.name,
                    "the input",
                    input.view.shape,
                    expected,
                ));
            }
        };
        let dtype = self.spec.output.unwrap_or(input.dtype);
        let map = new_map(ops, &self.name, [n, c, rows, columns], dtype)?;
        made(ops, map, |ops, map| {
            let wide = self.pass(ops, 1, input, [0, 2, 1, 3], [n, h, c, w])?;
            let tall = lent(ops, wide, |ops, wide| {
                self.pass(ops, 0, wide, [0, 3, 2, 1], [n, columns, c, h])
            })?;
            lent(ops, tall, |ops, tall| {
                let view = tall.view.transpose(&[0, 2, 3, 1]);
                let turned = DeviceTensor {
                    view: view.map_err(LayerError::tensor(&self.name))?,
                    ..*tall
                };
                ops.copy(&turned, map).map_err(LayerError::device(&self.name))
            })
        })
    }

    /// Brings one axis to the end and multiplies it with its matrix: `from`, its axes in another order, has the shape `dims`,
    /// and so has the result but for the last axis.
    fn pass(
        &self,
        ops: &mut OpContext<'_>,
        axis: usize,
        from: &DeviceTensor,
        order: [usize; 4],
        dims: [usize; 4],
    ) -> Result<DeviceTensor, LayerError> {
        let [a, b, c, size] = dims;
        let new_size = self.spec.out_hw[axis];
        let rows = a * b * c;
        let view = from
            .view
            .transpose(&order)
            .map_err(LayerError::tensor(&self.name))?;
        let last = self.dense(ops, dims)?;
        lent(ops, last, |ops, last| {
            ops.copy(&DeviceTensor { view, ..*from }, last)
                .map_err(LayerError::device(&self.name))?;
            let resized = self.dense(ops, [a, b, c, new_size])?;
            made(ops, resized, |ops, resized| {
                let line = |tensor: &DeviceTensor, size: usize| {
                    let view = View::channels_last([1, size, 1, rows], size, 0);
                    let view = view.map_err(LayerError::tensor(&self.name))?;
                    Ok::<_, LayerError>(DeviceTensor { view, ..*tensor })
                };
                let (input, output) = (line(last, size)?, line(resized, new_size)?);
                let desc = Conv2dDesc {
                    input: input.operand(),
                    output: output.operand(),
                    residual: None,
                    residual_order: ResidualOrder::AfterActivation,
                    geometry: Geometry2d {
                        kernel: [1; 2],
                        stride: [1; 2],
                        dilation: [1; 2],
                        pad_begin: [0; 2],
                    },
                    groups: 1,
                    activation: Activation::Identity,
                    math: self.spec.math,
                };
                let weights = (axis, &self.weights[axis]);
                self.prepared
                    .run(ops, &self.name, weights, desc, [&input, &output], None)
            })
        })
    }

    fn dense(&self, ops: &mut OpContext<'_>, dims: [usize; 4]) -> Result<DeviceTensor, LayerError> {
        let spec = TensorSpec::new(&dims, DType::F32).map_err(LayerError::tensor(&self.name))?;
        ops.alloc(&spec, BufferClass::Intermediate)
            .map_err(LayerError::device(&self.name))
    }

    /// The same of an image `[N, C, H, W]` on the host, in f64.
    ///
    /// # Errors
    /// [`LayerError::Weights`] for an image of another size.
    pub fn reference(&self, image: ArrayView4<'_, f64>) -> Result<Array4<f64>, LayerError> {
        let (n, c, h, w) = image.dim();
        if [h, w] != self.spec.in_hw {
            let reason = format!("an image of {h} x {w}, expected {:?}", self.spec.in_hw);
            return Err(LayerError::weights(&self.name, reason));
        }
        let [rows, columns] = &self.matrices;
        let mut resized = Array4::zeros((n, c, rows.nrows(), columns.nrows()));
        for (image, mut resized) in image.axis_iter(Axis(0)).zip(resized.axis_iter_mut(Axis(0))) {
            for (plane, mut resized) in image.axis_iter(Axis(0)).zip(resized.axis_iter_mut(Axis(0))) {
                resized.assign(&rows.dot(&plane.dot(&columns.t())));
            }
        }
        Ok(resized)
    }

    /// Returns the matrices' memory. The layer may run again.
    pub fn release(&self, device: &mut dyn Device) {
        self.prepared.release(device);
    }

    /// One line for logs.
    #[must_use]
    pub fn describe(&self) -> String {
        let ([h, w], [rows, columns]) = (self.spec.in_hw, self.spec.out_hw);
        format!(
            "{}: resize {h} x {w} -> {rows} x {columns}, {:?}, {}",
            self.name, self.spec.mode, self.spec.math
        )
    }
}
