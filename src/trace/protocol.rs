//! The order between the two queues: every event that one queue records and the other waits for.
//!
//! Uploads and reads run on queue 1, replays on queue 0. What keeps them apart is in [`ProtocolStep`]; all of
//! it passes through [`Protocol`] and [`Fence`], so that a test can leave out one step at a time and ask
//! whether that is noticed.

use crate::device::{Cq, Device, DeviceError, EventId};

/// One wait or one record of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProtocolStep {
    /// Queue 1 waits for the last replay before it overwrites a trace's input.
    UploadWaitsForReplay,
    /// Queue 1 waits until a staging copy was consumed before it overwrites it.
    UploadWaitsForStaging,
    /// Queue 0 waits for the uploads before it replays.
    ReplayWaitsForUpload,
    /// Queue 0 waits for the uploads before it writes an input itself.
    WriteInputWaitsForUpload,
    /// Queue 0 waits for the reads of the outputs that a replay overwrites.
    ReplayWaitsForRead,
    /// Queue 1 waits for a replay before it reads its outputs.
    ReadWaitsForReplay,
    /// Recorded on queue 1 after an upload.
    UploadRecorded,
    /// Recorded on queue 0 after staging copies moved into the trace's inputs.
    StagingRecorded,
    /// Recorded on queue 0 after it wrote an input itself.
    WriteInputRecorded,
    /// Recorded on queue 0 after a replay.
    ReplayRecorded,
    /// Recorded on queue 1 after a read.
    ReadRecorded,
    /// Recorded on queue 0 after the read of a state, for the host to wait for.
    StateReadRecorded,
}

impl ProtocolStep {
    /// Every step.
    pub const ALL: [Self; 12] = [
        Self::UploadWaitsForReplay,
        Self::UploadWaitsForStaging,
        Self::ReplayWaitsForUpload,
        Self::WriteInputWaitsForUpload,
        Self::ReplayWaitsForRead,
        Self::ReadWaitsForReplay,
        Self::UploadRecorded,
        Self::StagingRecorded,
        Self::WriteInputRecorded,
        Self::ReplayRecorded,
        Self::ReadRecorded,
        Self::StateReadRecorded,
    ];
}

/// Takes the steps and counts them; leaves out at most one.
#[derive(Debug)]
pub(super) struct Protocol {
    omit: Option<ProtocolStep>,
    reached: [u64; ProtocolStep::ALL.len()],
}

impl Protocol {
    pub(super) const fn new(omit: Option<ProtocolStep>) -> Self {
        Self {
            omit,
            reached: [0; ProtocolStep::ALL.len()],
        }
    }

    /// How often a step was due, whether or not it was left out.
    pub(super) const fn reached(&self, step: ProtocolStep) -> u64 {
        self.reached[step as usize]
    }

    /// Makes a queue wait for an event.
    pub(super) fn wait(
        &mut self,
        device: &mut dyn Device,
        step: ProtocolStep,
        waiter: Cq,
        event: EventId,
    ) -> Result<(), DeviceError> {
        self.reached[step as usize] += 1;
        match self.omit {
            Some(omit) if omit == step => Ok(()),
            _ => device.wait_event(waiter, event),
        }
    }
}

/// A point of one queue behind which something is free to be used again.
///
/// Work is enqueued between [`Fence::open`] and [`Fence::close`]. If the device refuses anything in between, the
/// fence stays open, and whoever waits for it records the missing event first: work that was enqueued is never
/// forgotten.
#[derive(Debug)]
pub(super) struct Fence {
    cq: Cq,
    /// The step that closes the fence.
    step: ProtocolStep,
    event: Option<EventId>,
    /// Work was enqueued that no event follows yet.
    open: bool,
    /// Recorded too early, where the step is left out.
    early: Option<EventId>,
}

impl Fence {
    pub(super) const fn new(cq: Cq, step: ProtocolStep) -> Self {
        Self {
            cq,
            step,
            event: None,
            open: false,
            early: None,
        }
    }

    /// Before work is enqueued.
    pub(super) fn open(
        &mut self,
        protocol: &Protocol,
        device: &mut dyn Device,
        step: ProtocolStep,
    ) -> Result<(), DeviceError> {
        if protocol.omit == Some(step) && self.early.is_none() {
            self.early = Some(device.record_event(self.cq)?);
        }
        self.step = step;
        self.open = true;
        Ok(())
    }

    /// Behind the work: the event that completes with it.
    pub(super) fn close(
        &mut self,
        protocol: &mut Protocol,
        device: &mut dyn Device,
    ) -> Result<EventId, DeviceError> {
        protocol.reached[self.step as usize] += 1;
        let event = match self.early.take() {
            Some(early) => early,
            None => device.record_event(self.cq)?,
        };
        self.event = Some(event);
        self.open = false;
        Ok(event)
    }

    /// Makes another queue wait for all work so far. A queue need not wait for itself.
    pub(super) fn wait(
        &mut self,
        protocol: &mut Protocol,
        device: &mut dyn Device,
        step: ProtocolStep,
        waiter: Cq,
    ) -> Result<(), DeviceError> {
        if waiter == self.cq {
            return Ok(());
        }
        if self.open {
            self.close(protocol, device)?;
        }
        match self.event {
            Some(event) => protocol.wait(device, step, waiter, event),
            None => Ok(()),
        }
    }

    /// As [`Fence::wait`]; what was waited for need not be waited for again, for the waiting queue is in order.
    pub(super) fn wait_once(
        &mut self,
        protocol: &mut Protocol,
        device: &mut dyn Device,
        step: ProtocolStep,
        waiter: Cq,
    ) -> Result<(), DeviceError> {
        self.wait(protocol, device, step, waiter)?;
        self.event = None;
        Ok(())
    }

    /// Whether work was enqueued that no event follows yet.
    pub(super) const fn is_open(&self) -> bool {
        self.open
    }

    /// The last event.
    pub(super) const fn event(&self) -> Option<EventId> {
        self.event
    }
}
