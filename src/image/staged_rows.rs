//! Rows of a frame that is resized once before the resize that reads them, made when they are asked for.

use super::columns::Sampler;
use super::resize::{ResizePlan, ResizeScratch};
use super::sink::RowsInMemory;
use super::source_rows::ByteRows;

/// Memory of a first resize.
#[derive(Debug, Clone, Default)]
pub(super) struct StageScratch {
    resize: ResizeScratch,
    row: Vec<u8>,
}

/// A resized frame, three bytes a pixel, of which only the rows that are asked for come into being.
#[derive(Debug)]
pub(super) struct StagedRows<'a, S> {
    source: &'a mut S,
    sampler: Sampler<4>,
    plan: &'a ResizePlan,
    scratch: &'a mut StageScratch,
    held: Option<usize>,
}

impl<'a, S: ByteRows> StagedRows<'a, S> {
    /// The rows of `source` after `plan`, the three channels that `sampler` picks.
    pub(super) fn new(
        source: &'a mut S,
        sampler: Sampler<4>,
        plan: &'a ResizePlan,
        scratch: &'a mut StageScratch,
    ) -> Self {
        scratch.row.resize(plan.target_px()[0] * 3, 0);
        plan.start::<4>(&mut scratch.resize);
        Self {
            source,
            sampler,
            plan,
            scratch,
            held: None,
        }
    }
}

impl<S: ByteRows> ByteRows for StagedRows<'_, S> {
    fn size_px(&self) -> [usize; 2] {
        self.plan.target_px()
    }

    fn row(&mut self, y: usize) -> &[u8] {
        let StageScratch { resize, row } = &mut *self.scratch;
        if self.held != Some(y) {
            let mut sink = RowsInMemory {
                step: row.len(),
                row_len: row.len(),
                values: row,
                first: y,
            };
            self.plan
                .more_rows::<4, 3>(self.source, &self.sampler, y..y + 1, resize, &mut sink);
            self.held = Some(y);
        }
        &self.scratch.row
    }
}
