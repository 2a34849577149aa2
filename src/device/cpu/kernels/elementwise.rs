//! Element-wise functions of one or two tensors, in blocks of fp32 values.

use std::fmt;
use std::sync::Arc;

use super::check::{required_bytes, same_shape, storage, writes_each_place_once};
use super::nest::{BLOCK, Nest, share};
use super::ops::Ops;
use super::{BufferRef, Kernel};
use crate::device::cpu::pool::ComputePool;
use crate::device::{Activation, BinaryKind, DeviceError, Operand};
use crate::tensor::DType;

/// Loads a strided run of stored values into fp32.
///
/// # Safety
/// The `to.len()` elements from `offset` on, `step` apart, are readable; `dtype` is a storage type.
pub(super) unsafe fn load_run(
    ops: &Ops,
    dtype: DType,
    buffer: BufferRef,
    (offset, step): (isize, isize),
    to: &mut [f32],
) {
    // SAFETY: the caller's contract.
    unsafe {
        match (dtype, step) {
            (_, 1) => {
                let from = buffer.at::<u8>(offset * dtype.size_bytes() as isize);
                (ops.of(dtype).widen)(from, to.as_mut_ptr(), to.len());
            }
            (DType::Bf16, _) => {
                let from = buffer.at::<half::bf16>(offset);
                for (i, value) in to.iter_mut().enumerate() {
                    *value = from.offset(i as isize * step).read().to_f32();
                }
            }
            _ => {
                let from = buffer.at::<f32>(offset);
                for (i, value) in to.iter_mut().enumerate() {
                    *value = from.offset(i as isize * step).read();
                }
            }
        }
    }
}

/// Stores fp32 values as a strided run.
///
/// # Safety
/// The `from.len()` elements from `offset` on, `step` apart, are writable; `dtype` is a storage type.
pub(super) unsafe fn store_run(
    ops: &Ops,
    dtype: DType,
    buffer: BufferRef,
    (offset, step): (isize, isize),
    from: &[f32],
) {
    // SAFETY: the caller's contract.
    unsafe {
        match (dtype, step) {
            (_, 1) => {
                let to = buffer.at::<u8>(offset * dtype.size_bytes() as isize);
                (ops.of(dtype).narrow)(from.as_ptr(), to, from.len());
            }
            (DType::Bf16, _) => {
                let to = buffer.at::<half::bf16>(offset);
                for (i, &value) in from.iter().enumerate() {
                    to.offset(i as isize * step).write(half::bf16::from_f32(value));
                }
            }
            _ => {
                let to = buffer.at::<f32>(offset);
                for (i, &value) in from.iter().enumerate() {
                    to.offset(i as isize * step).write(value);
                }
            }
        }
    }
}

/// The scratch of `K` blocks, as fp32.
pub(super) fn blocks<const K: usize>(scratch: &mut [u8]) -> [&mut [f32]; K] {
    let mut rest: &mut [f32] = bytemuck::cast_slice_mut(scratch);
    std::array::from_fn(|_| {
        let (block, tail) = std::mem::take(&mut rest).split_at_mut(BLOCK);
        rest = tail;
        block
    })
}

struct Unary {
    nest: Nest<2>,
    activation: Activation,
    dtype: DType,
    required: [usize; 2],
    ops: &'static Ops,
}

/// Prepares an activation.
pub(super) fn prepare_unary(
    src: &Operand,
    dst: &Operand,
    activation: Activation,
    ops: &'static Ops,
) -> Result<Arc<dyn Kernel>, DeviceError> {
    const OP: &str = "unary";
    let dtype = storage(OP, &[("source", src), ("destination", dst)])?;
    same_shape(OP, ("source", &src.view), ("destination", &dst.view))?;
    let required = [
        required_bytes(OP, "source", src)?,
        required_bytes(OP, "destination", dst)?,
    ];
    writes_each_place_once(OP, "destination", dst)?;
    Ok(Arc::new(Unary {
        nest: Nest::new([&src.view, &dst.view]),
        activation,
        dtype,
        required,
        ops,
    }))
}

impl Kernel for Unary {
    fn scratch_bytes(&self) -> usize {
        BLOCK * size_of::<f32>()
    }

    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        let [src_step, dst_step] = self.nest.steps();
        share(
            pool,
            self.nest.units(),
            self.nest.unit_len(),
            &|units, scratch| {
                let [block] = blocks(scratch);
                self.nest.visit(units, |[src, dst], count| {
                    let values = &mut block[..count];
                    // SAFETY: the nest stays inside the checked views; a block is read before it is written.
                    unsafe {
                        load_run(self.ops, self.dtype, buffers[0], (src, src_step), values);
                        (self.ops.activate)(self.activation, values);
                        store_run(self.ops, self.dtype, buffers[1], (dst, dst_step), values);
                    }
                });
            },
        );
    }
}

impl fmt::Debug for Unary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unary({:?}, {}, {:?})", self.activation, self.dtype, self.nest)
    }
}

struct Binary {
    nest: Nest<3>,
    kind: BinaryKind,
    dtype: DType,
    required: [usize; 3],
    ops: &'static Ops,
}

/// Prepares a function of two tensors.
pub(super) fn prepare_binary(
    lhs: &Operand,
    rhs: &Operand,
    dst: &Operand,
    kind: BinaryKind,
    ops: &'static Ops,
) -> Result<Arc<dyn Kernel>, DeviceError> {
    const OP: &str = "binary";
    let dtype = storage(OP, &[("left", lhs), ("right", rhs), ("destination", dst)])?;
    same_shape(OP, ("left", &lhs.view), ("destination", &dst.view))?;
    same_shape(OP, ("right", &rhs.view), ("destination", &dst.view))?;
    let required = [
        required_bytes(OP, "left", lhs)?,
        required_bytes(OP, "right", rhs)?,
        required_bytes(OP, "destination", dst)?,
    ];
    writes_each_place_once(OP, "destination", dst)?;
    Ok(Arc::new(Binary {
        nest: Nest::new([&lhs.view, &rhs.view, &dst.view]),
        kind,
        dtype,
        required,
        ops,
    }))
}

impl Kernel for Binary {
    fn scratch_bytes(&self) -> usize {
        2 * BLOCK * size_of::<f32>()
    }

    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        let [lhs_step, rhs_step, dst_step] = self.nest.steps();
        share(
            pool,
            self.nest.units(),
            self.nest.unit_len(),
            &|units, scratch| {
                let [left, right] = blocks(scratch);
                self.nest.visit(units, |[lhs, rhs, dst], count| {
                    let (left, right) = (&mut left[..count], &mut right[..count]);
                    // SAFETY: the nest stays inside the checked views; a block is read before it is written.
                    unsafe {
                        load_run(self.ops, self.dtype, buffers[0], (lhs, lhs_step), left);
                        load_run(self.ops, self.dtype, buffers[1], (rhs, rhs_step), right);
                        (self.ops.combine)(self.kind, left, right);
                        store_run(self.ops, self.dtype, buffers[2], (dst, dst_step), left);
                    }
                });
            },
        );
    }
}

impl fmt::Debug for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Binary({:?}, {}, {:?})", self.kind, self.dtype, self.nest)
    }
}
