//! The device contract and the devices that keep it.
//!
//! A device is owned by one thread. It has command queues that run in order and independently of each
//! other, events that order them, buffers with addresses, compiled programs, and traces: lists of launches
//! recorded once and replayed without further decisions. [`CpuDevice`] is the embedded default and the
//! reference for other backends. [`SimDevice`] runs the same kernels in virtual time and finds the waits that
//! a protocol lacks. [`FaultDevice`] injects faults into any of them.
//!
//! May be called by every room below it; calls `numeric`, `tensor` and `precision`.

mod backends;
mod config;
pub mod conformance;
mod contract;
mod cost;
pub mod cpu;
mod error;
pub mod fault;
mod faulty;
mod ids;
mod op;
mod op_matrix;
mod op_query;
mod random;
pub mod sim;
mod slot;
mod sync;

pub use backends::{
    Backend, BackendKind, Backends, DeviceChoice, OpenError, OpenedDevice, UnknownBackend, describe,
};
pub use config::{
    ARENA_MIB, Bf16Sums, ConfigError, DeviceConfig, DeviceLayer, ENVIRONMENT_PREFIX, QUEUES, SPIN_US,
    THREADS, TRACE_REGION_MIB, Threads,
};
pub(crate) use contract::moment_after;
pub use contract::{
    BufferClass, CaptureKind, Device, DeviceCaps, DeviceHealth, DeviceMemory, LaunchTime, MissPolicy,
    UnsafeLive,
};
pub use cost::OpCost;
pub use cpu::{CpuConfig, CpuDevice};
pub use error::DeviceError;
pub use fault::{Fault, FaultAt, FaultCall, FaultKind, FaultPlan};
pub use faulty::{FaultDevice, InjectedFaults};
pub use ids::{BufferId, Cq, EventId, ProgramId, TraceId};
pub use op::{
    Activation, BinaryKind, Conv2dDesc, DenseLayer, GatherConvDesc, Geometry2d, OpDesc, Operand, PillarsDesc,
    Pool2dDesc, PoolKind, ResidualOrder, Scalar, TapTable, WeightDesc, WeightForm,
};
pub use op_matrix::{LayerNormDesc, MatMulDesc, ReduceDesc, ReduceKind, SdpaDesc};
pub use op_query::{
    GridSampleDesc, LocalMaxDesc, OutsidePixels, SampleWeights, Sampling, SegmentOp, SegmentReduceDesc,
    SplitIndexDesc, TopKDesc, TopKOrder, Unpooled,
};
pub use sim::{OnRace, Race, SimConfig, SimCosts, SimDevice};
pub use slot::{HostSlot, SlotError};
