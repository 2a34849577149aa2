//! Dense layers of nearly fp32 accuracy from bf16 products.
//!
//! An fp32 number is the sum of two bf16 numbers but for its last bits: `hi = bf16(x)` and `lo = bf16(x - hi)`, which
//! together hold 16 bits of the significand. With weights split the same way,
//! `x W = hi W_hi + hi W_lo + lo W_hi` but for the product of the two small terms, so a matrix unit that multiplies bf16 and
//! sums in fp32 computes with an error of about 2^-16 instead of 2^-8.

use half::bf16;
use ndarray::{Array2, ArrayView2};

use super::block_error::BlockError;
use super::layers::{RowLinear, free};
use crate::device::{Activation, BinaryKind, BufferClass, Device, OpDesc};
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::{DType, TensorSpec};

const OP: &str = "split_terms";

/// Both terms of each number: `hi = bf16(x)`, `lo = bf16(x - hi)`, rounded to nearest even. The small term of a number
/// that is not finite is 0.
#[must_use]
pub fn split_terms_host(values: &[f32]) -> [Vec<bf16>; 2] {
    let high: Vec<bf16> = values.iter().map(|&x| bf16::from_f32(x)).collect();
    let low = |(&x, high): (&f32, &bf16)| match high.to_f32() {
        rounded if rounded.is_finite() => bf16::from_f32(x - rounded),
        _ => bf16::ZERO,
    };
    let low = values.iter().zip(&high).map(low).collect();
    [high, low]
}

/// Both terms of an fp32 tensor as bf16 tensors, which the caller frees. For finite numbers, as [`split_terms_host`].
///
/// # Errors
/// [`BlockError`]; nothing stays allocated.
pub fn split_terms(ops: &mut OpContext<'_>, tensor: &DeviceTensor) -> Result<[DeviceTensor; 2], BlockError> {
    if tensor.dtype != DType::F32 {
        return Err(BlockError::DType {
            block: OP.into(),
            tensor: "the tensor".into(),
            found: tensor.dtype,
            expected: DType::F32,
        });
    }
    let device = BlockError::device(OP);
    let high = ops.to_bf16(tensor).map_err(&device)?;
    let low = ops.to_f32(&high).and_then(|rounded| {
        let rest = OpDesc::Binary {
            lhs: tensor.operand(),
            rhs: rounded.operand(),
            dst: rounded.operand(),
            kind: BinaryKind::Sub,
        };
        let low = ops
            .run(&rest, &[tensor.buffer, rounded.buffer, rounded.buffer])
            .and_then(|()| ops.to_bf16(&rounded));
        free(ops, &[rounded]);
        low
    });
    match low {
        Ok(low) => Ok([high, low]),
        Err(error) => {
            free(ops, &[high]);
            Err(device(error))
        }
    }
}

/// A dense layer `[.., R, K]` to `[.., R, N]` whose inputs and weights are two bf16 terms each. The bias is fp32 and added
/// exactly once; results are fp32. Weights are brought to the device in the first run.
#[derive(Debug)]
pub struct TwoTermLinear {
    name: String,
    /// The large term of the weights, with the bias.
    high: RowLinear,
    /// The large term of the weights alone, for the small term of the input.
    bare: RowLinear,
    /// The small term of the weights.
    low: RowLinear,
    outputs: usize,
    relu: bool,
}

impl TwoTermLinear {
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
        let high = weight.mapv(|w| bf16::from_f32(w).to_f32());
        let low: Array2<f32> = &weight - &high;
        Ok(Self {
            name: name.to_owned(),
            high: RowLinear::new(name, high.view(), bias, false)?,
            bare: RowLinear::new(name, high.view(), None, false)?,
            low: RowLinear::new(name, low.view(), None, false)?,
            outputs: weight.ncols(),
            relu,
        })
    }

    /// Applies the layer to both terms of its input, or to an input that is exact in one. The caller frees the result.
    ///
    /// # Errors
    /// [`BlockError`]; nothing stays allocated but the weights.
    pub fn forward(
        &self,
        ops: &mut OpContext<'_>,
        high: &DeviceTensor,
        low: Option<&DeviceTensor>,
    ) -> Result<DeviceTensor, BlockError> {
        for term in [Some(high), low].into_iter().flatten() {
            if term.dtype != DType::Bf16 {
                return Err(BlockError::DType {
                    block: self.name.clone(),
                    tensor: "a term".into(),
                    found: term.dtype,
                    expected: DType::Bf16,
                });
            }
        }
        let mut dims = high.view.shape.to_vec();
        if let Some(last) = dims.last_mut() {
            *last = self.outputs;
        }
        let spec = TensorSpec::new(&dims, DType::F32).map_err(BlockError::tensor(&self.name))?;
        let products = [
            Some((&self.high, high)),
            Some((&self.low, high)),
            low.map(|low| (&self.bare, low)),
        ];
        let mut sum: Option<DeviceTensor> = None;
        for (weights, term) in products.into_iter().flatten() {
            let next = self.add(ops, &spec, (weights, term), sum.as_ref());
            if let Some(before) = sum {
                free(ops, &[before]);
            }
            sum = Some(next?);
        }
        // There are at least two products.
        let sum = sum.ok_or_else(|| BlockError::weights(&self.name, "the layer has no products"))?;
        if !self.relu {
            return Ok(sum);
        }
        let relu = OpDesc::Unary {
            src: sum.operand(),
            dst: sum.operand(),
            activation: Activation::Relu,
        };
        match ops
            .run(&relu, &[sum.buffer; 2])
            .map_err(BlockError::device(&self.name))
        {
            Ok(()) => Ok(sum),
            Err(error) => {
                free(ops, &[sum]);
                Err(error)
            }
        }
    }

    /// One product and what was summed before it.
    fn add(
        &self,
        ops: &mut OpContext<'_>,
        spec: &TensorSpec,
        (weights, term): (&RowLinear, &DeviceTensor),
        before: Option<&DeviceTensor>,
    ) -> Result<DeviceTensor, BlockError> {
        let sum = ops
            .alloc(spec, BufferClass::Intermediate)
            .map_err(BlockError::device(&self.name))?;
        match weights.forward_add_into(ops, term, &sum, before) {
            Ok(()) => Ok(sum),
            Err(error) => {
                free(ops, &[sum]);
                Err(error)
            }
        }
    }

    /// Returns the weights' memory. The layer may run again.
    pub fn release(&self, device: &mut dyn Device) {
        self.high.release(device);
        self.bare.release(device);
        self.low.release(device);
    }
}
