//! Pools of host slots: the memory in which frames travel to and from a device.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use tokio::sync::Notify;

use super::owner::FRAMES_UNDER_WAY;
use crate::device::HostSlot;
use crate::pipeline::{DetectorSettings, ModelSettings};

/// Host slots of one detector: of each input of its model, and of its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotCounts {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
}

impl SlotCounts {
    /// Those of a detector between these channels: so many places into the device and out of it, and so many workers that
    /// prepare.
    pub(super) fn of(model: &ModelSettings, to_device: usize, from_device: usize, workers: usize) -> Self {
        let batch = model.batch.as_ref().map_or(1, |batch| batch.largest().into());
        let inputs = to_device + workers + FRAMES_UNDER_WAY * batch;
        let most = model.max_in_flight.map_or(usize::MAX, |most| most as usize);
        Self {
            inputs: inputs.min(most),
            // One more, so that a worker that stands still and the one in its place do not take them all.
            outputs: from_device + 1,
        }
    }
}

/// Workers that prepare frames for a detector.
pub(super) fn prepare_workers(settings: &DetectorSettings, model: &ModelSettings) -> usize {
    let wanted = match model.family.is_stateful() {
        true => 1,
        false => settings.prepare_workers as usize,
    };
    // A worker that waits for its frame's turn must not be what the others wait for.
    model
        .max_in_flight
        .map_or(wanted, |most| wanted.min(most as usize))
}

/// A fixed number of equal host slots. Taking one waits until one is back, which bounds the frames under way.
#[derive(Debug, Clone)]
pub struct SlotPool {
    free: flume::Receiver<HostSlot>,
    back: flume::Sender<HostSlot>,
    returned: Option<Arc<Notify>>,
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
        Self {
            free,
            back,
            returned: None,
        }
    }

    /// The same pool; whenever a slot comes back, it wakes who waits for `returned`.
    #[must_use]
    pub fn waking(mut self, returned: Arc<Notify>) -> Self {
        self.returned = Some(returned);
        self
    }

    /// Slots that are free now.
    #[must_use]
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// A free slot, as soon as there is one.
    pub async fn take(&self) -> Option<PooledSlot> {
        let slot = self.free.recv_async().await.ok()?;
        Some(self.lend(slot))
    }

    /// A free slot if there is one now.
    #[must_use]
    pub fn try_take(&self) -> Option<PooledSlot> {
        let slot = self.free.try_recv().ok()?;
        Some(self.lend(slot))
    }

    fn lend(&self, slot: HostSlot) -> PooledSlot {
        PooledSlot {
            slot: Some(slot),
            back: self.back.clone(),
            returned: self.returned.clone(),
        }
    }
}

/// A slot that goes back to its pool when dropped, also while a panic unwinds.
#[derive(Debug)]
pub struct PooledSlot {
    /// Taken out only by `drop`.
    slot: Option<HostSlot>,
    back: flume::Sender<HostSlot>,
    returned: Option<Arc<Notify>>,
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
            if let Some(returned) = &self.returned {
                returned.notify_one();
            }
        }
    }
}
