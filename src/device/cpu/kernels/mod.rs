//! The CPU device's kernels: each operation prepared once, then run on raw buffers.

use std::fmt;

use super::pool::ComputePool;
use crate::device::{DeviceError, OpDesc, WeightDesc};

/// One bound buffer.
#[derive(Debug, Clone, Copy)]
pub struct BufferRef {
    /// First byte, aligned to 64.
    pub ptr: *mut u8,
    /// Size in bytes.
    pub bytes: usize,
}

// SAFETY: a `BufferRef` is an address; whoever runs a kernel with it promises that no conflicting access
// is under way (see `Kernel::run`).
unsafe impl Send for BufferRef {}
// SAFETY: as above.
unsafe impl Sync for BufferRef {}

/// A prepared operation: every decision (instruction set, blocking, index tables) is made, running it
/// allocates nothing.
pub trait Kernel: Send + Sync + fmt::Debug {
    /// Bytes of scratch memory that each pool thread must offer.
    fn scratch_bytes(&self) -> usize {
        0
    }

    /// Runs on bound buffers, in the order of [`OpDesc`].
    ///
    /// # Safety
    /// The buffers must be alive, at least as large as the description's views reach, and not written by
    /// anyone else (nor read, where the kernel writes) during the call.
    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool);
}
