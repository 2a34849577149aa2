//! Positions taken apart into row and place.

use std::fmt;
use std::sync::Arc;

use super::check::{ensure, required_bytes, same_shape, writes_each_place_once};
use super::nest::{Nest, share};
use super::{BufferRef, Kernel};
use crate::device::cpu::pool::ComputePool;
use crate::device::{DeviceError, SplitIndexDesc};
use crate::tensor::DType;

const OP: &str = "split_index";

struct SplitIndex {
    nest: Nest<3>,
    major_len: u32,
    minor_len: u32,
    clamp: bool,
    required: [usize; 3],
}

/// Prepares the operation.
pub(super) fn prepare(desc: &SplitIndexDesc) -> Result<Arc<dyn Kernel>, DeviceError> {
    let operands = [
        ("index", &desc.index),
        ("major", &desc.major),
        ("minor", &desc.minor),
    ];
    let mut required = [0; 3];
    for ((name, operand), bytes) in operands.into_iter().zip(&mut required) {
        ensure(operand.dtype == DType::U32, OP, || {
            format!("{name} holds {}, expected {}", operand.dtype, DType::U32)
        })?;
        same_shape(OP, (name, &operand.view), ("index", &desc.index.view))?;
        *bytes = required_bytes(OP, name, operand)?;
    }
    let cells = u64::from(desc.major_len) * u64::from(desc.minor_len);
    ensure(cells > 0 && cells <= u64::from(u32::MAX), OP, || {
        format!(
            "an array of {} rows of {}: positions are uint32, and there must be one",
            desc.major_len, desc.minor_len
        )
    })?;
    writes_each_place_once(OP, "major", &desc.major)?;
    writes_each_place_once(OP, "minor", &desc.minor)?;
    Ok(Arc::new(SplitIndex {
        nest: Nest::new([&desc.index.view, &desc.major.view, &desc.minor.view]),
        major_len: desc.major_len,
        minor_len: desc.minor_len,
        clamp: desc.clamp,
        required,
    }))
}

impl SplitIndex {
    const fn split(&self, index: u32) -> [u32; 2] {
        // The array has at most `u32::MAX` elements, and at least one.
        let last = self.major_len * self.minor_len - 1;
        let index = if self.clamp && index > last { last } else { index };
        let row = index / self.minor_len;
        let major = if row < self.major_len {
            row
        } else {
            self.major_len - 1
        };
        [major, index - major * self.minor_len]
    }
}

impl Kernel for SplitIndex {
    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        let steps = self.nest.steps();
        share(pool, self.nest.units(), self.nest.unit_len(), &|units, _| {
            self.nest.visit(units, |offsets, count| {
                let at = |operand: usize, i: isize| {
                    buffers[operand].at::<u32>(offsets[operand] + i * steps[operand])
                };
                for i in 0..count as isize {
                    // SAFETY: the nest stays inside the checked views.
                    unsafe {
                        let [major, minor] = self.split(at(0, i).read());
                        at(1, i).write(major);
                        at(2, i).write(minor);
                    }
                }
            });
        });
    }
}

impl fmt::Debug for SplitIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SplitIndex([{}, {}], clamp {})",
            self.major_len, self.minor_len, self.clamp
        )
    }
}
