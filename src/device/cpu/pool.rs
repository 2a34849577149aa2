//! The threads that share a kernel's work.

/// Threads that share one kernel's work.
#[derive(Debug)]
pub struct ComputePool;
