//! Memory of pre-processing, kept from frame to frame.

use super::linear_f32::PlanarScratch;
use super::resize::ResizeScratch;
use super::staged_rows::StageScratch;
use super::tensor_rows::RowScratch;

/// Reusable memory of one thread: a few rows. Grows to what the largest plan needs and then allocates no more.
#[derive(Debug, Clone, Default)]
pub struct Workspace {
    /// A source row in interleaved pixels.
    pub(super) converted: Vec<u8>,
    pub(super) resize: ResizeScratch,
    pub(super) planar: PlanarScratch,
    pub(super) row: RowScratch,
    pub(super) stage: StageScratch,
}
