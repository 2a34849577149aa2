//! Memory of pre-processing, kept from frame to frame.

use super::linear_f32::PlanarScratch;
use super::resize::ResizeScratch;
use super::row_pair::RowPair;
use super::staged_rows::StageScratch;
use super::tensor_rows::RowScratch;
use super::triangle::TriangleScratch;

/// Reusable memory of one thread: a few rows. Grows to what the largest plan needs and then allocates no more.
#[derive(Debug, Clone, Default)]
pub struct Workspace {
    /// A source row in interleaved pixels.
    pub(super) converted: Vec<u8>,
    /// A row between a resize and the input.
    pub(super) row: RowScratch,
    /// The resize before everything else.
    pub(super) stage: StageScratch,
    pub(super) resizers: ResizerScratch,
}

/// Memory of every way to resize.
#[derive(Debug, Clone, Default)]
pub(super) struct ResizerScratch {
    pub(super) resize: ResizeScratch,
    pub(super) planar: PlanarScratch,
    /// Rows of Autoware's letterbox.
    pub(super) letterbox: RowPair<Vec<f32>>,
    pub(super) triangle: TriangleScratch,
}
