//! Kernels that models define.

use std::fmt::Debug;

use super::pool::ComputePool;

/// One bound buffer.
#[derive(Debug, Clone, Copy)]
pub struct BufferRef {
    /// First byte.
    pub ptr: *mut u8,
    /// Size in bytes.
    pub bytes: usize,
}

// SAFETY: models bind no memory.
unsafe impl Send for BufferRef {}
// SAFETY: as above.
unsafe impl Sync for BufferRef {}

/// What a launch does.
pub trait Kernel: Send + Sync + Debug {
    /// Does it.
    ///
    /// # Safety
    /// None needed here; the library's kernels write memory.
    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool);
}
