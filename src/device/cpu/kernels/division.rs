//! How a convolution that multiplies bf16 divides the values that a pixel of its output reads.

use super::conv::Problem;
use super::dot::DOT_DEPTH;

/// How the values that a pixel reads are divided. It follows from the window and the channels alone, since sums depend on
/// it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Division {
    /// Values of a pixel, the zeros behind its channels included.
    pub(super) pixel: usize,
    /// Whether the taps of a kernel row are one run.
    pub(super) merged: bool,
    /// Runs of a window.
    pub(super) runs: usize,
    /// Chunks of a run.
    pub(super) chunks: usize,
    /// Values of a chunk: even, at most [`DOT_DEPTH`].
    pub(super) chunk: usize,
}

impl Division {
    /// Few channels are taken together with those of the neighbouring taps, so that chunks are long.
    pub(super) fn new(problem: &Problem) -> Self {
        let Problem { window, group_in, .. } = problem;
        let [rows, columns] = window.kernel;
        let merged = *group_in < DOT_DEPTH && columns > 1 && window.dilation[1] == 1;
        if merged {
            let pixel = group_in.next_multiple_of(2);
            let run = columns * pixel;
            // At the latest a chunk for each pixel divides them evenly.
            let fits = |&chunks: &usize| run.is_multiple_of(2 * chunks) && run / chunks <= DOT_DEPTH;
            let chunks = (1..=columns).find(fits).unwrap_or(columns);
            return Self {
                pixel,
                merged,
                runs: rows,
                chunks,
                chunk: run / chunks,
            };
        }
        let chunks = group_in.div_ceil(DOT_DEPTH);
        let chunk = group_in.div_ceil(chunks).next_multiple_of(2);
        Self {
            pixel: chunks * chunk,
            merged,
            runs: rows * columns,
            chunks,
            chunk,
        }
    }

    /// Values of a run.
    pub(super) const fn run(&self) -> usize {
        self.chunks * self.chunk
    }

    /// Tap and input channel of a value, by its place among those that a pixel of the output reads. Zeros have a channel
    /// past the last one.
    pub(super) const fn tap_and_channel(&self, index: usize) -> (usize, usize) {
        (index / self.pixel, index % self.pixel)
    }

    /// Pairs of values that a pixel of the output reads.
    pub(super) const fn pairs(&self) -> Option<usize> {
        match self.run().checked_mul(self.runs) {
            Some(values) => Some(values / 2),
            None => None,
        }
    }
}
