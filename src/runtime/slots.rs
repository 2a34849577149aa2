//! Pools of host slots: the memory in which frames travel to and from a device.

use std::ops::{Deref, DerefMut};

use crate::device::HostSlot;

/// A fixed number of equal host slots. Taking one waits until one is back, which bounds the frames under way.
#[derive(Debug, Clone)]
pub struct SlotPool {
    free: flume::Receiver<HostSlot>,
    back: flume::Sender<HostSlot>,
}

impl SlotPool {
    /// A pool of these slots.
    #[must_use]
    pub fn new(slots: Vec<HostSlot>) -> Self {
        let (back, free) = flume::bounded(slots.len().max(1));
        for slot in slots {
            // The channel was made for exactly this many.
            let _ = back.try_send(slot);
        }
        Self { free, back }
    }

    /// A free slot, as soon as there is one.
    pub async fn take(&self) -> Option<PooledSlot> {
        let slot = self.free.recv_async().await.ok()?;
        Some(PooledSlot {
            slot: Some(slot),
            back: self.back.clone(),
        })
    }

    /// A free slot if there is one now.
    #[must_use]
    pub fn try_take(&self) -> Option<PooledSlot> {
        let slot = self.free.try_recv().ok()?;
        Some(PooledSlot {
            slot: Some(slot),
            back: self.back.clone(),
        })
    }
}

/// A slot that goes back to its pool when dropped, also while a panic unwinds.
#[derive(Debug)]
pub struct PooledSlot {
    /// Taken out only by `drop`.
    slot: Option<HostSlot>,
    back: flume::Sender<HostSlot>,
}

impl Deref for PooledSlot {
    type Target = HostSlot;

    fn deref(&self) -> &HostSlot {
        #[expect(clippy::expect_used, reason = "the slot leaves only in drop")]
        self.slot.as_ref().expect("present until dropped")
    }
}

impl DerefMut for PooledSlot {
    fn deref_mut(&mut self) -> &mut HostSlot {
        #[expect(clippy::expect_used, reason = "the slot leaves only in drop")]
        self.slot.as_mut().expect("present until dropped")
    }
}

impl Drop for PooledSlot {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            // Fails only when the pool is gone, and the slot with it.
            let _ = self.back.try_send(slot);
        }
    }
}
