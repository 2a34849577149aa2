//! The runner itself: what it keeps, and how it lets go of it.

use super::describe::TraceTimings;
use super::ids::RunnerKey;
use super::phase::Phases;
use super::protocol::{Fence, Protocol, ProtocolStep};
use super::tables::Tables;
use super::variant::{EagerFn, Variant};
use super::{Phase, Taps, TraceError, TraceOptions};
use crate::device::{Cq, Device, DeviceError, MissPolicy};
use crate::tensor::TensorSpec;

/// Warm-up, capture and replay of one model's traces. See the [module](super).
pub struct TraceRunner {
    pub(super) name: String,
    pub(super) key: RunnerKey,
    pub(super) options: TraceOptions,
    pub(super) tables: Tables,
    pub(super) variants: Vec<Variant>,
    /// Eager work that has not run yet, by name.
    pub(super) eager: Vec<(String, EagerFn)>,
    /// The first warm-up ran the eager work.
    pub(super) eager_done: bool,
    pub(super) phases: Phases,
    /// Warm-up runs wrote the states.
    pub(super) states_dirty: bool,
    /// How often all states started again.
    pub(super) restarts: u64,
    /// Captures so far.
    pub(super) captures: u64,
    /// Accepted replays and eager runs so far.
    pub(super) runs: u64,
    /// Reads so far.
    pub(super) reads: u64,
    /// Number of the last read that queue 0 has waited for.
    pub(super) reads_awaited: u64,
    pub(super) protocol: Protocol,
    /// Uploads are on the device.
    pub(super) uploaded: Fence,
    /// Staging copies were consumed.
    pub(super) staging_free: Fence,
    /// The last replay is done.
    pub(super) replayed: Fence,
    /// The last read is done.
    pub(super) read_done: Fence,
    pub(super) timings: TraceTimings,
    /// Who looks at values inside the variants' functions.
    pub(super) taps: Option<Box<dyn Taps>>,
    released: bool,
}

impl std::fmt::Debug for TraceRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceRunner")
            .field("name", &self.name)
            .field("options", &self.options)
            .field("tables", &self.tables)
            .field("variants", &self.variants)
            .field("phases", &self.phases)
            .finish_non_exhaustive()
    }
}

impl TraceRunner {
    /// A runner without tensors. `name` appears in errors and reports.
    ///
    /// # Errors
    /// [`TraceError::Options`].
    pub fn new(name: &str, options: TraceOptions) -> Result<Self, TraceError> {
        if let Some(reason) = options.problem() {
            return Err(TraceError::Options {
                runner: name.into(),
                reason,
            });
        }
        let transfer = match options.queues {
            2 => Cq::IO,
            _ => Cq::COMPUTE,
        };
        Ok(Self {
            name: name.into(),
            key: RunnerKey::next(),
            tables: Tables::default(),
            variants: Vec::new(),
            eager: Vec::new(),
            eager_done: false,
            phases: Phases::new(options.output_phases),
            states_dirty: false,
            restarts: 0,
            captures: 0,
            runs: 0,
            reads: 0,
            reads_awaited: 0,
            protocol: Protocol::new(options.omit),
            uploaded: Fence::new(transfer, ProtocolStep::UploadRecorded),
            staging_free: Fence::new(Cq::COMPUTE, ProtocolStep::StagingRecorded),
            replayed: Fence::new(Cq::COMPUTE, ProtocolStep::ReplayRecorded),
            read_done: Fence::new(transfer, ProtocolStep::ReadRecorded),
            timings: TraceTimings::default(),
            taps: None,
            released: false,
            options,
        })
    }

    /// Lets somebody look at values inside the variants' functions, in eager runs, or nobody. Returns who looked before.
    pub fn set_taps(&mut self, taps: Option<Box<dyn Taps>>) -> Option<Box<dyn Taps>> {
        std::mem::replace(&mut self.taps, taps)
    }

    /// Phase of the next replay.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.phases.next()
    }

    /// How often a step of the order between the queues was due: for tests that leave one out.
    #[doc(hidden)]
    #[must_use]
    pub const fn protocol_step_count(&self, step: ProtocolStep) -> u64 {
        self.protocol.reached(step)
    }

    /// Waits until the device is idle, then releases traces, then persistent tensors, banks among them. Idempotent.
    /// Every later call but this one and the reports answers [`TraceError::Released`].
    ///
    /// # Errors
    /// The first device error; everything is tried.
    pub fn release(&mut self, device: &mut dyn Device) -> Result<(), TraceError> {
        if self.released {
            return Ok(());
        }
        self.released = true;
        // Memory must not be handed out again while commands that use it are queued.
        let mut outcome = self.drain(device);
        outcome = outcome.and(self.release_traces(device));
        for held in std::mem::take(&mut self.tables.held) {
            outcome = outcome.and(device.free(held.buffer).map_err(|e| self.device_error(e)));
        }
        outcome
    }

    /// Frees the buffers that were registered after the first `keep`, for a registration that failed.
    pub(super) fn give_back(&mut self, device: &mut dyn Device, keep: usize) {
        // The error that led here is the better report. A transfer into the buffers may still be queued.
        let _ = self.drain(device);
        for held in self.tables.held.drain(keep..) {
            let _ = device.free(held.buffer);
        }
    }

    pub(super) fn release_traces(&mut self, device: &mut dyn Device) -> Result<(), TraceError> {
        if self.variants.iter().all(|variant| variant.captured.is_empty()) {
            return Ok(());
        }
        let mut outcome = self.drain(device);
        for index in 0..self.variants.len() {
            outcome = outcome.and(self.release_variant(device, index));
        }
        outcome
    }

    /// Releases the traces of one variant.
    pub(super) fn release_variant(
        &mut self,
        device: &mut dyn Device,
        index: usize,
    ) -> Result<(), TraceError> {
        let mut outcome = Ok(());
        self.variants[index].last = None;
        for captured in std::mem::take(&mut self.variants[index].captured) {
            let released = device
                .release_trace(captured.trace)
                .map_err(|e| self.device_error(e));
            let freed = self.free_owned(device, &captured.pass.outputs);
            outcome = outcome.and(released).and(freed);
        }
        outcome
    }

    pub(super) fn drain(&self, device: &mut dyn Device) -> Result<(), TraceError> {
        device
            .drain(self.options.deadline)
            .map_err(|e| self.device_error(e))
    }

    /// Nothing may be compiled while traces exist, whatever another user of the device allowed meanwhile.
    pub(super) fn forbid_compiling(&self, device: &mut dyn Device) {
        if self.variants.iter().any(|variant| !variant.captured.is_empty()) {
            device.set_misses(MissPolicy::Forbid);
        }
    }

    pub(super) fn device_error(&self, source: DeviceError) -> TraceError {
        TraceError::Device {
            runner: self.name.clone(),
            tensor: None,
            source: Box::new(source),
        }
    }

    /// Whether the device has the queues that the runner uses: otherwise the first transfer would tell, long after.
    pub(super) fn check_queues(&self, device: &dyn Device) -> Result<(), TraceError> {
        let there = device.caps().queues;
        if self.options.queues <= there {
            return Ok(());
        }
        Err(TraceError::Options {
            runner: self.name.clone(),
            reason: format!(
                "it works with {} command queues, the device has {there}",
                self.options.queues
            ),
        })
    }

    pub(super) fn alive(&self) -> Result<(), TraceError> {
        if self.released {
            Err(TraceError::Released {
                runner: self.name.clone(),
            })
        } else {
            Ok(())
        }
    }
}

/// A tensor's type, shape and size for error texts.
pub(super) fn spec_text(spec: &TensorSpec) -> String {
    format!("{spec} ({} bytes)", spec.bytes())
}
