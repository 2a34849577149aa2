//! The CPU device: queues are threads, buffers have addresses in an arena, and a replay runs a fixed list
//! of prepared kernels.

pub mod kernels;
pub mod pool;
