//! The CPU device: queues are threads, buffers have addresses in an arena, and a replay runs a fixed list
//! of prepared kernels without allocating or deciding anything.
//!
//! It keeps the device contract literally, hazards included: memory that a capture frees is reused by later
//! captures and allocations, and two queues that touch one buffer without an event between them race. Such
//! a race yields wrong numbers, never anything worse: the arena holds plain bytes of which every pattern is
//! a value, kernels never read a length from it, an index read from it is compared with the table's rows before
//! it is used, and buffers are checked against a kernel's needs when they are bound.

mod arena;
mod capture;
mod commands;
mod device;
pub mod kernels;
mod peak;
pub mod pool;
mod queue;
#[cfg(test)]
mod queue_tests;

// What the simulator runs its commands with.
pub(in crate::device) use arena::{ALIGNMENT, Arena};
pub(in crate::device) use capture::{Capture, Trace};
pub(in crate::device) use device::{
    ARENA_BASE, DTYPES, ENQUEUE_DEADLINE, EVENT_QUEUE_SHIFT, PREPARE_DEADLINE,
};
pub use device::{CpuConfig, CpuDevice};
pub use peak::{MachinePeak, measure_peak};
pub(in crate::device) use queue::{BoundLaunch, Command, execute};
