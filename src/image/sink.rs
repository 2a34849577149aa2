//! Where the rows of a resize go.

/// Takes finished rows, each `width * channels` interleaved values of type `T`.
pub(super) trait RowSink<T> {
    /// Has row `y` filled in. The memory that `fill` gets may hold anything; all of it has to be written.
    fn row(&mut self, y: usize, fill: impl FnOnce(&mut [T]));
}

/// Rows one below the other in memory, `step` values apart, from row `first` on.
#[derive(Debug)]
pub(super) struct RowsInMemory<'a, T> {
    /// From the first value of row `first` on.
    pub(super) values: &'a mut [T],
    /// Values from one row to the next.
    pub(super) step: usize,
    /// Values of a row.
    pub(super) row_len: usize,
    /// Number of the row that comes first.
    pub(super) first: usize,
}

impl<T> RowSink<T> for RowsInMemory<'_, T> {
    fn row(&mut self, y: usize, fill: impl FnOnce(&mut [T])) {
        fill(&mut self.values[(y - self.first) * self.step..][..self.row_len]);
    }
}

/// Takes finished rows of floats, plane by plane.
pub(super) trait PlanarSink {
    /// Has the three planes of row `y` filled in. The memory may hold anything; all of it has to be written.
    fn planes(&mut self, y: usize, fill: impl FnOnce([&mut [f32]; 3]));
}
