//! Intermediate tensors of a network's function: freed together when it is through, whatever came of it.

use crate::device::{Activation, BinaryKind, BufferClass, DeviceError, OpDesc, Operand, Scalar};
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::{DType, Shape, TensorError, TensorSpec};
use crate::trace::WorkError;

/// Operations whose results live until this is dropped.
pub(super) struct Scratch<'c, 'd> {
    ops: &'c mut OpContext<'d>,
    made: Vec<DeviceTensor>,
}

impl<'c, 'd> Scratch<'c, 'd> {
    pub(super) const fn new(ops: &'c mut OpContext<'d>) -> Self {
        Self {
            ops,
            made: Vec::new(),
        }
    }

    /// A dense tensor with undefined contents.
    pub(super) fn tensor(&mut self, dims: &[usize], dtype: DType) -> Result<DeviceTensor, DeviceError> {
        let spec = TensorSpec::new(dims, dtype)?;
        let made = self.ops.alloc(&spec, BufferClass::Intermediate)?;
        self.made.push(made);
        Ok(made)
    }

    /// What an operation makes is freed with the rest.
    pub(super) fn made<E>(
        &mut self,
        operation: impl FnOnce(&mut OpContext<'d>) -> Result<DeviceTensor, E>,
    ) -> Result<DeviceTensor, E> {
        let made = operation(self.ops)?;
        self.made.push(made);
        Ok(made)
    }

    pub(super) const fn ops(&mut self) -> &mut OpContext<'d> {
        self.ops
    }

    /// `src` in another type, or itself.
    pub(super) fn cast(&mut self, src: &DeviceTensor, dtype: DType) -> Result<DeviceTensor, DeviceError> {
        if src.dtype == dtype {
            return Ok(*src);
        }
        let cast = self.tensor(&src.view.shape, dtype)?;
        self.ops.copy(src, &cast)?;
        Ok(cast)
    }

    pub(super) fn fill(&mut self, dst: &DeviceTensor, value: f32) -> Result<(), DeviceError> {
        let op = OpDesc::Fill {
            dst: dst.operand(),
            value: Scalar::new(value),
        };
        self.ops.run(&op, &[dst.buffer])
    }

    pub(super) fn copy(&mut self, src: &DeviceTensor, dst: &DeviceTensor) -> Result<(), DeviceError> {
        self.ops.copy(src, dst)
    }

    /// `dst = lhs (kind) rhs`, both broadcast to `dst`.
    pub(super) fn binary_into(
        &mut self,
        kind: BinaryKind,
        lhs: &DeviceTensor,
        rhs: &DeviceTensor,
        dst: &DeviceTensor,
    ) -> Result<(), DeviceError> {
        let stretched = |tensor: &DeviceTensor| -> Result<Operand, TensorError> {
            let view = tensor.view.broadcast_to(dst.view.shape)?;
            Ok(DeviceTensor { view, ..*tensor }.operand())
        };
        let op = OpDesc::Binary {
            lhs: stretched(lhs)?,
            rhs: stretched(rhs)?,
            dst: dst.operand(),
            kind,
        };
        self.ops.run(&op, &[lhs.buffer, rhs.buffer, dst.buffer])
    }

    /// `lhs (kind) rhs` of the longer one's shape.
    pub(super) fn binary(
        &mut self,
        kind: BinaryKind,
        lhs: &DeviceTensor,
        rhs: &DeviceTensor,
    ) -> Result<DeviceTensor, DeviceError> {
        let larger = match lhs.view.shape.elements() >= rhs.view.shape.elements() {
            true => lhs,
            false => rhs,
        };
        let dst = self.tensor(&larger.view.shape, lhs.dtype)?;
        self.binary_into(kind, lhs, rhs, &dst)?;
        Ok(dst)
    }

    pub(super) fn add(&mut self, a: &DeviceTensor, b: &DeviceTensor) -> Result<DeviceTensor, DeviceError> {
        self.binary(BinaryKind::Add, a, b)
    }

    pub(super) fn sub(&mut self, a: &DeviceTensor, b: &DeviceTensor) -> Result<DeviceTensor, DeviceError> {
        self.binary(BinaryKind::Sub, a, b)
    }

    pub(super) fn mul(&mut self, a: &DeviceTensor, b: &DeviceTensor) -> Result<DeviceTensor, DeviceError> {
        self.binary(BinaryKind::Mul, a, b)
    }

    pub(super) fn tanh(&mut self, src: &DeviceTensor) -> Result<DeviceTensor, DeviceError> {
        let dst = self.tensor(&src.view.shape, src.dtype)?;
        let op = OpDesc::Unary {
            src: src.operand(),
            dst: dst.operand(),
            activation: Activation::Tanh,
        };
        self.ops.run(&op, &[src.buffer, dst.buffer])?;
        Ok(dst)
    }

    /// Rows one behind the other: `[a + b, C]`.
    pub(super) fn stacked(&mut self, a: &DeviceTensor, b: &DeviceTensor) -> Result<DeviceTensor, WorkError> {
        let [rows, more, columns] = [a.view.shape[0], b.view.shape[0], a.view.shape[1]];
        let both = self.tensor(&[rows + more, columns], a.dtype)?;
        self.copy(a, &part(&both, 0, 0, rows)?)?;
        self.copy(b, &part(&both, 0, rows, more)?)?;
        Ok(both)
    }
}

impl Drop for Scratch<'_, '_> {
    fn drop(&mut self) {
        for tensor in &self.made {
            // A device that cannot take one back says so on the next call.
            if let Err(error) = self.ops.free(tensor) {
                tracing::debug!(%error, "a buffer could not be returned");
            }
        }
    }
}

/// `count` positions of an axis.
pub(super) fn part(
    tensor: &DeviceTensor,
    axis: usize,
    first: usize,
    count: usize,
) -> Result<DeviceTensor, TensorError> {
    let view = tensor.view.slice(axis, first, count, 1)?;
    Ok(DeviceTensor { view, ..*tensor })
}

/// The elements of a dense tensor under other dimensions.
pub(super) fn seen_as(tensor: &DeviceTensor, dims: &[usize]) -> Result<DeviceTensor, TensorError> {
    let shape = Shape::new(dims)?;
    let view = tensor.view.reshape(shape).ok_or(TensorError::ShapeMismatch {
        expected: shape,
        found: tensor.view.shape,
    })?;
    Ok(DeviceTensor { view, ..*tensor })
}

/// One row as many.
pub(super) fn repeated(row: &DeviceTensor, rows: usize) -> Result<DeviceTensor, TensorError> {
    let shape = Shape::new(&[rows, row.view.shape[1]])?;
    let view = row.view.broadcast_to(shape)?;
    Ok(DeviceTensor { view, ..*row })
}
