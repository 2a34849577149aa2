//! The part of the library's `device` room that queues and slots need.

pub mod cpu;
pub mod sync;

#[path = "../../../../src/device/ids.rs"]
#[allow(dead_code, unreachable_pub, reason = "only queues are named here")]
mod ids;
#[path = "../../../../src/device/slot.rs"]
#[allow(dead_code, reason = "transfers are stand-ins here")]
pub mod slot;

use std::time::Duration;

pub use ids::Cq;

/// What queues answer; the library has more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceError {
    /// The queue took no further command in time.
    QueueFull {
        /// The queue.
        cq: Cq,
        /// Commands that it holds.
        depth: usize,
        /// How long the caller waited.
        waited: Duration,
    },
}

/// A slot's loan, for models.
#[derive(Debug)]
pub struct Lease(slot::SlotLease);

/// Lends a slot as the source of a transfer.
///
/// # Errors
/// It is being filled.
pub fn lend_source(slot: &slot::HostSlot) -> Result<Lease, slot::SlotError> {
    slot.lend_source().map(Lease)
}

/// Lends a slot as the destination of a transfer.
///
/// # Errors
/// It is on loan.
pub fn lend_destination(slot: &mut slot::HostSlot) -> Result<Lease, slot::SlotError> {
    slot.lend_destination().map(Lease)
}
