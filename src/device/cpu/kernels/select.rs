//! Choice between two tensors by a third, element by element.

use std::fmt;
use std::sync::Arc;

use super::check::{required_bytes, same_shape, storage, writes_each_place_once};
use super::elementwise::{blocks, load_run, store_run};
use super::nest::{BLOCK, Nest, share};
use super::ops::Ops;
use super::{BufferRef, Kernel};
use crate::device::cpu::pool::ComputePool;
use crate::device::{DeviceError, Operand};
use crate::tensor::DType;

const OP: &str = "select";

struct Select {
    nest: Nest<4>,
    /// Of the condition and of the values.
    types: [DType; 2],
    required: [usize; 4],
    ops: &'static Ops,
}

/// Prepares a choice: condition, yes, no, destination.
pub(super) fn prepare(
    [condition, yes, no, dst]: [&Operand; 4],
    ops: &'static Ops,
) -> Result<Arc<dyn Kernel>, DeviceError> {
    let of_condition = storage(OP, &[("condition", condition)])?;
    let dtype = storage(OP, &[("yes", yes), ("no", no), ("destination", dst)])?;
    for (name, operand) in [("condition", condition), ("yes", yes), ("no", no)] {
        same_shape(OP, (name, &operand.view), ("destination", &dst.view))?;
    }
    let required = [
        required_bytes(OP, "condition", condition)?,
        required_bytes(OP, "yes", yes)?,
        required_bytes(OP, "no", no)?,
        required_bytes(OP, "destination", dst)?,
    ];
    writes_each_place_once(OP, "destination", dst)?;
    Ok(Arc::new(Select {
        nest: Nest::new([&condition.view, &yes.view, &no.view, &dst.view]),
        types: [of_condition, dtype],
        required,
        ops,
    }))
}

impl Kernel for Select {
    fn scratch_bytes(&self) -> usize {
        3 * BLOCK * size_of::<f32>()
    }

    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        let [of_condition, of_yes, of_no, of_dst] = self.nest.steps();
        let [condition_type, dtype] = self.types;
        let (units, work) = (self.nest.units(), self.nest.unit_len());
        share(pool, units, work, &|units, scratch| {
            let [flags, yes, no] = blocks(scratch);
            self.nest.visit(units, |[c, y, n, dst], count| {
                let (flags, yes, no) = (&mut flags[..count], &mut yes[..count], &mut no[..count]);
                // SAFETY: the nest stays inside the checked views; a block is read before it is written.
                unsafe {
                    load_run(self.ops, condition_type, buffers[0], (c, of_condition), flags);
                    load_run(self.ops, dtype, buffers[1], (y, of_yes), yes);
                    load_run(self.ops, dtype, buffers[2], (n, of_no), no);
                    for ((no, &yes), &flag) in no.iter_mut().zip(yes.iter()).zip(flags.iter()) {
                        *no = if flag == 0.0 { *no } else { yes };
                    }
                    store_run(self.ops, dtype, buffers[3], (dst, of_dst), no);
                }
            });
        });
    }
}

impl fmt::Debug for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Select({}, {:?})", self.types[1], self.nest)
    }
}
