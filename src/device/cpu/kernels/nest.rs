//! Loops over strided views, and their division among threads.

use std::cmp::Reverse;
use std::ops::Range;

use crate::device::cpu::pool::ComputePool;
use crate::tensor::View;

/// Elements in one visit at most.
pub(super) const BLOCK: usize = 1024;

/// Work (roughly: fp32 vector operations) below which handing a task to another thread does not pay.
const TASK_WORK: usize = 2048;

/// Tasks a thread gets on average: enough to even out threads that are slowed by others.
const TASKS_PER_THREAD: usize = 4;

/// Divides `units` into ranges of neighbours and runs them on the pool. `work` estimates one unit in vector
/// operations; launches too small to share run on the caller.
pub(super) fn share(
    pool: &ComputePool,
    units: usize,
    work: usize,
    run: &(dyn Fn(Range<usize>, &mut [u8]) + Sync),
) {
    let most = match pool.threads() {
        1 => 1,
        threads => threads * TASKS_PER_THREAD,
    };
    let tasks = (units.saturating_mul(work) / TASK_WORK).clamp(1, most).min(units);
    // Multiplying before dividing spreads the remainder; `units` is far below `usize::MAX / most`.
    let bound = |task: usize| (units as u128 * task as u128 / tasks as u128) as usize;
    pool.run(tasks, &|task, scratch| run(bound(task)..bound(task + 1), scratch));
}

/// A loop nest over the elements of `K` views of one shape; the last view is the destination.
///
/// Axes of size 1 are dropped, axes that run on into each other merged, and the rest ordered so that the
/// innermost has the destination's smallest step (or, where that axis is very short, its neighbour).
#[derive(Debug, Clone)]
pub(super) struct Nest<const K: usize> {
    outer: Vec<(usize, [isize; K])>,
    inner: (usize, [isize; K]),
    offsets: [isize; K],
    blocks: usize,
}

impl<const K: usize> Nest<K> {
    /// Innermost loops shorter than this change places with the next longer one.
    const SHORT: usize = 16;

    /// A nest over views of one shape.
    pub(super) fn new(views: [&View; K]) -> Self {
        Self::over(&(0..views[0].rank()).collect::<Vec<_>>(), views)
    }

    /// A nest over some of the axes.
    pub(super) fn over(axes: &[usize], views: [&View; K]) -> Self {
        let empty = axes.iter().any(|&axis| views[0].shape[axis] == 0);
        let mut axes: Vec<(usize, [isize; K])> = axes
            .iter()
            .map(|&axis| (views[0].shape[axis], views.map(|v| v.strides[axis])))
            .filter(|&(dim, _)| dim != 1)
            .collect();
        axes.sort_by_key(|(_, steps)| Reverse(steps[K - 1].unsigned_abs()));
        let mut merged: Vec<(usize, [isize; K])> = Vec::with_capacity(axes.len());
        for (dim, steps) in axes {
            match merged.last_mut() {
                Some((outer, outer_steps))
                    if (0..K).all(|k| outer_steps[k] == steps[k].wrapping_mul(dim as isize)) =>
                {
                    (*outer, *outer_steps) = (*outer * dim, steps);
                }
                _ => merged.push((dim, steps)),
            }
        }
        if let [.., next, last] = merged.as_mut_slice()
            && last.0 < Self::SHORT
            && next.0 > last.0
        {
            std::mem::swap(next, last);
        }
        let inner = match merged.pop() {
            _ if empty => (0, [0; K]),
            Some(inner) => inner,
            None => (1, [0; K]),
        };
        Self {
            outer: merged,
            blocks: inner.0.div_ceil(BLOCK),
            inner,
            offsets: views.map(|v| v.offset as isize),
        }
    }

    /// Number of visits.
    pub(super) fn units(&self) -> usize {
        self.blocks * self.outer.iter().map(|&(dim, _)| dim).product::<usize>()
    }

    /// Elements of one visit at most.
    pub(super) fn unit_len(&self) -> usize {
        self.inner.0.min(BLOCK)
    }

    /// Steps of each view inside a visit.
    pub(super) const fn steps(&self) -> [isize; K] {
        self.inner.1
    }

    /// Calls `visit(element offsets, count)` for some of the visits.
    pub(super) fn visit(&self, units: Range<usize>, mut visit: impl FnMut([isize; K], usize)) {
        for unit in units {
            let begin = unit % self.blocks * BLOCK;
            let mut rest = unit / self.blocks;
            let mut offsets = self.offsets;
            for &(dim, steps) in self.outer.iter().rev() {
                let index = (rest % dim) as isize;
                rest /= dim;
                for (offset, step) in offsets.iter_mut().zip(steps) {
                    *offset += index * step;
                }
            }
            for (offset, step) in offsets.iter_mut().zip(self.inner.1) {
                *offset += begin as isize * step;
            }
            visit(offsets, BLOCK.min(self.inner.0 - begin));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::tensor::Shape;

    #[test]
    fn a_nest_visits_every_pair_of_elements_once() {
        let dense = View::contiguous(Shape::new(&[3, 2, 1, 5]).unwrap());
        let turned = View::contiguous(Shape::new(&[5, 3, 2, 1]).unwrap())
            .transpose(&[1, 2, 3, 0])
            .unwrap();
        let nest = Nest::new([&turned, &dense]);
        let mut pairs = Vec::new();
        nest.visit(0..nest.units(), |[a, b], count| {
            let [step_a, step_b] = nest.steps();
            pairs.extend((0..count as isize).map(|i| (a + i * step_a, b + i * step_b)));
        });
        pairs.sort_unstable();
        let mut expected: Vec<_> = (0..6)
            .flat_map(|i| (0..5).map(move |j| (j * 6 + i, i * 5 + j)))
            .collect();
        expected.sort_unstable();
        assert_eq!(pairs, expected);
    }

    #[test]
    fn dense_views_become_one_loop() {
        let view = View::contiguous(Shape::new(&[4, 5, 600]).unwrap());
        let nest = Nest::new([&view, &view]);
        assert_eq!((nest.units(), nest.unit_len(), nest.steps()), (12, BLOCK, [1, 1]));
    }
}
