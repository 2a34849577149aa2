//! What is being recorded, and what was recorded.

use std::sync::Arc;

use super::queue::BoundLaunch;
use crate::device::{BufferId, Cq};

/// A capture in progress.
#[derive(Debug)]
pub(in crate::device) struct Capture {
    pub(in crate::device) cq: Cq,
    pub(in crate::device) launches: Vec<BoundLaunch>,
    /// Buffers allocated since the capture began and not freed yet.
    pub(in crate::device) allocated: Vec<BufferId>,
}

impl Capture {
    /// Bytes that the recorded launches take in the trace region.
    pub(in crate::device) fn trace_bytes(&self) -> usize {
        self.launches.iter().map(BoundLaunch::trace_bytes).sum()
    }
}

/// A finished trace.
#[derive(Debug)]
pub(in crate::device) struct Trace {
    pub(in crate::device) launches: Arc<[BoundLaunch]>,
    /// Bytes of the trace region.
    pub(in crate::device) bytes: usize,
    /// Buffers with a higher number were allocated after this capture.
    pub(in crate::device) last_buffer: u64,
    /// Programs from this one on were compiled after this capture.
    pub(in crate::device) programs: usize,
}
