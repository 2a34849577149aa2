//! What is being recorded, and what was recorded.

use std::sync::Arc;

use super::queue::BoundLaunch;
use crate::device::{BufferId, Cq};

/// A capture in progress.
#[derive(Debug)]
pub(super) struct Capture {
    pub(super) cq: Cq,
    pub(super) launches: Vec<BoundLaunch>,
    /// Buffers allocated since the capture began and not freed yet.
    pub(super) allocated: Vec<BufferId>,
}

impl Capture {
    /// Bytes that the recorded launches take in the trace region.
    pub(super) fn trace_bytes(&self) -> usize {
        self.launches.iter().map(BoundLaunch::trace_bytes).sum()
    }
}

/// A finished trace.
#[derive(Debug)]
pub(super) struct Trace {
    pub(super) launches: Arc<[BoundLaunch]>,
    /// Bytes of the trace region.
    pub(super) bytes: usize,
    /// Buffers with a higher number were allocated after this capture.
    pub(super) last_buffer: u64,
    /// Programs from this one on were compiled after this capture.
    pub(super) programs: usize,
}
