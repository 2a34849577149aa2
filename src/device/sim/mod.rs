//! The simulator: a device in virtual time that catches every missing wait.
//!
//! [`SimDevice`] keeps the same contract as [`crate::device::CpuDevice`] and gives the same bits, for it runs
//! the same kernels (fp32 sums, as a CPU device with `bf16_dot: off`). It differs in when it runs
//! them, and in what it watches:
//!
//! - **Execution.** Everything happens on the caller's thread. A call that enqueues executes nothing; commands
//!   run when the host waits or polls, in a random legal order: each queue in its own order, a wait stands
//!   still until its event is there, and nothing else orders queues. [`SimConfig::seed`] picks the order. A
//!   poll executes a few commands or none, never none twice in a row, so a loop that polls ends. A loop that
//!   only looks at [`crate::device::HostSlot::is_busy`] does not: no call, no progress.
//! - **Races.** Every command is entered with the bytes it reads and writes. Two commands of different queues
//!   that touch the same byte, one of them writing, must be ordered by events or through the host; if they are
//!   not, that is a [`Race`], whether or not the order of execution makes it show. Races go to
//!   [`SimDevice::races`], and by default the next host wait fails with one.
//! - **Memory.** New buffers hold bytes that are NaN in every float format, not zeros. A replay destroys all that
//!   its capture freed, before it runs and after, and the allocator prefers just those addresses, so whatever
//!   wrongly lives there is seen to break. Memory may be freed and given out again while commands that use it
//!   are still enqueued: commands behind them may have it, commands beside them race for it.
//! - **Time.** Commands take the time that [`SimCosts`] says, each queue has a clock, and the host's clock moves
//!   when it waits. [`SimDevice::timeline`] depends on the calls alone, not on the seed.
//! - **Faults.** [`SimConfig::faults`] makes calls fail, events vanish, queues slow, captures stop short, or the
//!   whole device go.
//!
//! ```
//! use sensorium::device::{BufferClass, Cq, Device, OnRace, SimConfig, SimDevice};
//! use sensorium::tensor::{DType, TensorSpec};
//!
//! let mut device = SimDevice::open(&SimConfig {
//!     on_race: OnRace::Report,
//!     ..SimConfig::default()
//! })?;
//! let spec = TensorSpec::new(&[16], DType::F32)?;
//! let staging = device.alloc(&spec, BufferClass::Staging)?;
//! let input = device.alloc(&spec, BufferClass::Input)?;
//! let slot = device.host_slot(spec.bytes())?;
//! device.write(Cq::IO, staging, 0, &slot, spec.bytes())?;
//! device.copy(Cq::COMPUTE, staging, input)?;
//! assert_eq!(
//!     device.races()[0].missing_edge(),
//!     "CQ0 must wait for an event recorded on CQ1 after upload (its command 1)"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Deadlines are read as the time left when the call is made, in whole milliseconds rounded up, and spent in
//! virtual time. A wait for what can never come ends at once.
//!
//! What it does not show: races inside one command; strided windows are taken as the smallest range around
//! them, so two queues that write interleaved columns of one buffer are told to race; a program that was
//! compiled after a capture is refused like anywhere else, but nothing happens to its code.

mod access;
mod clock;
mod commands;
mod costs;
mod detector;
mod device;
mod engine;
mod enqueue;
mod memory;
mod queues;
mod race;
mod ranges;

pub use clock::{SimCommand, TimelineEntry};
pub use costs::SimCosts;
pub use device::{OnRace, SimConfig, SimDevice};
pub use race::{CommandInfo, Race, RaceObject};
