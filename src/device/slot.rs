//! Host memory that the host and a device hand to each other.

use std::cell::UnsafeCell;
use std::collections::TryReserveError;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::sync::atomic::{AtomicU32, Ordering};

/// A slot that the device has not given back yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the host slot still belongs to the device: wait for the event recorded after its transfer")]
pub struct SlotError;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Set in the state while the device writes the slot; the other bits count transfers that read it.
const DEVICE_WRITES: u32 = 1 << 31;

/// Number of the next slot. Unlike addresses, numbers are never used twice.
static NEXT_SLOT: AtomicU64 = AtomicU64::new(1);

struct Inner {
    id: u64,
    bytes: usize,
    memory: Box<[UnsafeCell<Line>]>,
    state: AtomicU32,
}

// SAFETY: the memory is reached only through `HostSlot::{bytes, bytes_mut}`, which check `state`, and
// through leases, which set it first. The state's acquire/release pairs order the accesses.
unsafe impl Sync for Inner {}
// SAFETY: `Inner` owns its memory; nothing in it is tied to a thread.
unsafe impl Send for Inner {}

impl Inner {
    /// Start of the memory, without a reference to it.
    fn as_ptr(&self) -> *mut u8 {
        self.memory.as_ptr().cast_mut().cast()
    }
}

/// Aligned host memory for transfers. One owner; the device borrows it from the moment a transfer is
/// enqueued until the transfer is done, and access in between is refused.
///
/// It is plain memory of the host, tied to no device: it outlives the one that it was made for, and another one
/// takes it as well.
pub struct HostSlot {
    inner: Arc<Inner>,
}

impl HostSlot {
    /// A zeroed slot of `bytes` bytes on a 64-byte boundary.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self::of(bytes, zeroed(Vec::with_capacity(bytes.div_ceil(64))))
    }

    /// As [`HostSlot::new`], for a size that may be more than there is.
    ///
    /// # Errors
    /// The system does not have the memory.
    pub fn try_new(bytes: usize) -> Result<Self, TryReserveError> {
        let mut lines = Vec::new();
        lines.try_reserve_exact(bytes.div_ceil(64))?;
        Ok(Self::of(bytes, zeroed(lines)))
    }

    fn of(bytes: usize, memory: Box<[UnsafeCell<Line>]>) -> Self {
        Self {
            inner: Arc::new(Inner {
                id: NEXT_SLOT.fetch_add(1, Ordering::Relaxed),
                bytes,
                memory,
                state: AtomicU32::new(0),
            }),
        }
    }

    /// Size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.bytes
    }

    /// Whether the slot holds no bytes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.bytes == 0
    }

    /// Whether a transfer is pending.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.inner.state.load(Ordering::Acquire) != 0
    }

    /// The contents.
    ///
    /// # Errors
    /// [`SlotError`] while the device may still write them.
    pub fn bytes(&self) -> Result<&[u8], SlotError> {
        if self.inner.state.load(Ordering::Acquire) & DEVICE_WRITES != 0 {
            return Err(SlotError);
        }
        // SAFETY: no device write is pending, and a new one needs `&mut self` to be enqueued, which cannot
        // happen while the returned borrow lives.
        Ok(unsafe { std::slice::from_raw_parts(self.inner.as_ptr(), self.inner.bytes) })
    }

    /// The contents, to be written.
    ///
    /// # Errors
    /// [`SlotError`] while the device uses the slot in any way.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8], SlotError> {
        if self.is_busy() {
            return Err(SlotError);
        }
        // SAFETY: no lease exists, and `&mut self` keeps new ones from being made while the borrow lives.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.inner.as_ptr(), self.inner.bytes) })
    }

    /// Lends the slot to the device as the source of a transfer.
    pub(super) fn lend_source(&self) -> Result<SlotLease, SlotError> {
        let previous = self.inner.state.fetch_add(1, Ordering::AcqRel);
        if previous & DEVICE_WRITES != 0 {
            self.inner.state.fetch_sub(1, Ordering::Release);
            return Err(SlotError);
        }
        Ok(SlotLease {
            inner: Arc::clone(&self.inner),
            undo: 1,
        })
    }

    /// Lends the slot to the device as the destination of a transfer.
    pub(super) fn lend_destination(&mut self) -> Result<SlotLease, SlotError> {
        self.inner
            .state
            .compare_exchange(0, DEVICE_WRITES, Ordering::AcqRel, Ordering::Acquire)
            .map_err(|_| SlotError)?;
        Ok(SlotLease {
            inner: Arc::clone(&self.inner),
            undo: DEVICE_WRITES,
        })
    }
}

/// As many zeroed lines as room was made for.
fn zeroed(mut lines: Vec<UnsafeCell<Line>>) -> Box<[UnsafeCell<Line>]> {
    let room = lines.capacity();
    lines.extend((0..room).map(|_| UnsafeCell::new(Line([0; 64]))));
    lines.into_boxed_slice()
}

impl fmt::Debug for HostSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "HostSlot({} bytes{})",
            self.len(),
            if self.is_busy() { ", on loan" } else { "" }
        )
    }
}

/// The device's side of a loan; ends when dropped.
pub(super) struct SlotLease {
    inner: Arc<Inner>,
    undo: u32,
}

impl SlotLease {
    /// Number of the slot in this process.
    pub(super) fn slot_id(&self) -> u64 {
        self.inner.id
    }

    /// Start of the slot's memory.
    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.inner.as_ptr()
    }
}

impl Drop for SlotLease {
    fn drop(&mut self) {
        self.inner.state.fetch_sub(self.undo, Ordering::Release);
    }
}

impl fmt::Debug for SlotLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlotLease({} bytes)", self.inner.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_on_loan_refuses_what_would_race() {
        let mut slot = HostSlot::new(100);
        slot.bytes_mut().unwrap().fill(7);
        let upload = slot.lend_source().unwrap();
        assert_eq!(slot.bytes().unwrap()[99], 7);
        assert!(slot.bytes_mut().is_err());
        assert!(slot.lend_destination().is_err());
        drop(upload);
        let download = slot.lend_destination().unwrap();
        assert!(slot.bytes().is_err() && slot.lend_source().is_err() && slot.is_busy());
        drop(download);
        assert!(slot.bytes_mut().is_ok() && !slot.is_busy());
    }
}
