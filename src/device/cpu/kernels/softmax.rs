//! Softmax along one axis.

use std::fmt;
use std::sync::Arc;

use super::check::{MAX_CHANNELS, ensure, required_bytes, same_shape, storage, writes_each_place_once};
use super::elementwise::{load_run, store_run};
use super::nest::{Nest, share};
use super::ops::Ops;
use super::{BufferRef, Kernel};
use crate::device::cpu::pool::ComputePool;
use crate::device::{Activation, DeviceError, Operand};
use crate::tensor::DType;

const OP: &str = "softmax";

/// `exp(x - max) / sum`, the sum in index order.
struct Softmax {
    /// The other axes.
    nest: Nest<2>,
    len: usize,
    steps: [isize; 2],
    dtype: DType,
    required: [usize; 2],
    ops: &'static Ops,
}

/// Prepares a softmax.
pub(super) fn prepare(
    src: &Operand,
    dst: &Operand,
    axis: usize,
    ops: &'static Ops,
) -> Result<Arc<dyn Kernel>, DeviceError> {
    let dtype = storage(OP, &[("source", src), ("destination", dst)])?;
    same_shape(OP, ("source", &src.view), ("destination", &dst.view))?;
    let rank = src.view.rank();
    ensure(axis < rank, OP, || {
        format!("axis {axis} of shape {}", src.view.shape)
    })?;
    let len = src.view.shape[axis];
    ensure(len <= MAX_CHANNELS, OP, || {
        format!("axis {axis} has {len} elements, above the supported {MAX_CHANNELS}")
    })?;
    let required = [
        required_bytes(OP, "source", src)?,
        required_bytes(OP, "destination", dst)?,
    ];
    writes_each_place_once(OP, "destination", dst)?;
    let others: Vec<usize> = (0..rank).filter(|&a| a != axis).collect();
    Ok(Arc::new(Softmax {
        nest: Nest::over(&others, [&src.view, &dst.view]),
        len,
        steps: [src.view.strides[axis], dst.view.strides[axis]],
        dtype,
        required,
        ops,
    }))
}

impl Kernel for Softmax {
    fn scratch_bytes(&self) -> usize {
        self.len * size_of::<f32>()
    }

    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        if self.len == 0 {
            return;
        }
        let [src_step, dst_step] = self.nest.steps();
        let work = self.nest.unit_len() * self.len;
        share(pool, self.nest.units(), work, &|units, scratch| {
            let values: &mut [f32] = &mut bytemuck::cast_slice_mut(scratch)[..self.len];
            self.nest.visit(units, |[src, dst], count| {
                for i in 0..count as isize {
                    let (src, dst) = (src + i * src_step, dst + i * dst_step);
                    // SAFETY: nest and axis together stay inside the checked views.
                    unsafe {
                        load_run(self.ops, self.dtype, buffers[0], (src, self.steps[0]), values);
                        let max = values.iter().fold(f32::NEG_INFINITY, |max, &x| {
                            if x > max || x.is_nan() { x } else { max }
                        });
                        values.iter_mut().for_each(|x| *x -= max);
                        (self.ops.activate)(Activation::Exp, values);
                        let sum: f32 = values.iter().fold(0.0, |sum, &x| sum + x);
                        values.iter_mut().for_each(|x| *x /= sum);
                        store_run(self.ops, self.dtype, buffers[1], (dst, self.steps[1]), values);
                    }
                }
            });
        });
    }
}

impl fmt::Debug for Softmax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Softmax({}, {} elements, {:?})",
            self.dtype, self.len, self.nest
        )
    }
}
