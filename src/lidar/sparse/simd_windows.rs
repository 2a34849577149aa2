//! Maps of sets that fit masks, column by column.
//!
//! The slabs of the input that an x of the output sees are laid out by y, so that every column finds what its taps
//! reach without a search. Then a voxel's taps along z are neighbouring bits of a mask, and their ranks follow from the
//! number of bits below. One loop serves all processors; where they can count bits, it is compiled to do so.

use super::columns::{Column, Columns, bits};
use super::maps::NO_NEIGHBOR;
use super::window::SparseWindow;
use crate::numeric::Isa;

/// Two sets and how they are connected.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job<'a> {
    pub(super) input: &'a Columns,
    /// Row of each rank, then [`NO_NEIGHBOR`]; empty where they are the same.
    pub(super) input_rows: &'a [u32],
    pub(super) output: &'a Columns,
    /// As `input_rows`, without use of the last entry.
    pub(super) output_rows: &'a [u32],
    pub(super) window: &'a SparseWindow,
}

/// Most entries of all lines together.
const MAX_LINES: usize = 1 << 20;

/// Writes every entry of a map `(outputs, taps)`; false, with nothing written, where a set does not fit masks and lines.
pub(super) fn fill_windows(isa: Isa, job: &Job<'_>, index: &mut [u32]) -> bool {
    let (Some(from), Some(to)) = (job.input.z0, job.output.z0) else {
        return false;
    };
    let Some(lines) = Lines::new(job) else {
        return false;
    };
    let heights = [from, to];
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::Avx512
            if isa.is_available()
                && is_x86_feature_detected!("popcnt")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2") =>
        {
            // SAFETY: the processor was just asked for each of these.
            unsafe { fill_counting(job, heights, lines, index) }
        }
        _ => fill(job, heights, lines, index),
    }
    true
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt,bmi1,bmi2")]
fn fill_counting(job: &Job<'_>, heights: [i32; 2], lines: Lines, index: &mut [u32]) {
    fill(job, heights, lines, index);
}

#[inline(always)]
fn fill(job: &Job<'_>, heights: [i32; 2], lines: Lines, index: &mut [u32]) {
    match (
        job.window.kernel()[2],
        job.window.dilation()[2],
        job.input_rows.is_empty(),
    ) {
        (1, _, true) => fill_rows(job, heights, lines, index, neighbours::<1, true>),
        (1, _, false) => fill_rows(job, heights, lines, index, neighbours::<1, false>),
        (3, 1, true) => fill_rows(job, heights, lines, index, neighbours::<3, true>),
        (3, 1, false) => fill_rows(job, heights, lines, index, neighbours::<3, false>),
        _ => fill_rows(job, heights, lines, index, taps_apart),
    }
}

/// What a place of the ground holds.
#[derive(Debug, Clone, Copy, Default)]
struct Reached {
    mask: u64,
    first: u32,
}

/// Slabs of the input by y: one line for each tap along x.
struct Lines {
    /// y of the first entry of a line.
    y0: i64,
    length: usize,
    entries: Vec<Reached>,
    /// The slab that each line holds.
    held: Vec<Option<i64>>,
}

impl Lines {
    fn new(job: &Job<'_>) -> Option<Self> {
        let all = job.input.slabs();
        // Columns of a slab are in the order of y.
        let ends = all.filter_map(|(_, slab)| Some([slab.first()?.y, slab.last()?.y]));
        let (low, high) = ends.fold((i32::MAX, i32::MIN), |(low, high), [first, last]| {
            (low.min(first), high.max(last))
        });
        let length = usize::try_from(i64::from(high) - i64::from(low) + 1).unwrap_or(0);
        let count = job.window.kernel()[0];
        let entries = length
            .checked_mul(count)
            .filter(|&entries| entries <= MAX_LINES)?;
        Some(Self {
            y0: low.into(),
            length,
            entries: vec![Reached::default(); entries],
            held: vec![None; count],
        })
    }

    /// Writes the columns of a slab to a line, or clears them.
    #[inline(always)]
    fn lay(&mut self, line: usize, slab: &[Column], clear: bool) {
        let (y0, length) = (self.y0, self.length);
        let entries = &mut self.entries[line * length..][..length];
        for column in slab {
            // Fits: the line reaches from the lowest y to the highest.
            entries[(i64::from(column.y) - y0) as usize] = match clear {
                true => Reached::default(),
                false => Reached {
                    mask: column.mask,
                    first: column.first,
                },
            };
        }
    }

    /// Lays out the slabs at `wanted` and tells the line of each. Slabs that are held already stay where they are.
    #[inline(always)]
    fn place(&mut self, input: &Columns, wanted: &[i64], lines: &mut [usize]) {
        for (line, &x) in lines.iter_mut().zip(wanted) {
            if let Some(at) = self.held.iter().position(|&held| held == Some(x)) {
                *line = at;
                continue;
            }
            // There are as many lines as slabs are wanted, so one of them holds none of these.
            let free = |held: &Option<i64>| held.is_none_or(|held| !wanted.contains(&held));
            let at = self.held.iter().position(free).unwrap_or(0);
            if let Some(old) = self.held[at].replace(x) {
                self.lay(at, input.slab(old), true);
            }
            self.lay(at, input.slab(x), false);
            *line = at;
        }
    }

    #[inline(always)]
    fn at(&self, line: usize, y: i64) -> Reached {
        let entries = &self.entries[line * self.length..][..self.length];
        // A y below the first becomes a number above every length.
        let place = y.wrapping_sub(self.y0) as usize;
        entries.get(place).copied().unwrap_or_default()
    }
}

/// Writes the entries of all output voxels; `write` is given the bit of the masks that is a voxel's first tap along z.
#[inline(always)]
fn fill_rows(
    job: &Job<'_>,
    [from, to]: [i32; 2],
    mut lines: Lines,
    index: &mut [u32],
    write: impl Fn(&Job<'_>, &[Reached], i64, &mut [u32]),
) {
    let [x_taps, y_taps, z_taps] = job.window.kernel();
    let taps = x_taps * y_taps * z_taps;
    let mut reached = vec![Reached::default(); x_taps * y_taps];
    let mut wanted = vec![0; x_taps];
    let mut held = vec![0; x_taps];
    for (x, columns) in job.output.slabs() {
        for (tap, wanted) in wanted.iter_mut().enumerate() {
            *wanted = job.window.input(0, x.into(), tap);
        }
        lines.place(job.input, &wanted, &mut held);
        for column in columns {
            for (reached, &line) in reached.chunks_exact_mut(y_taps).zip(&held) {
                for (tap, reached) in reached.iter_mut().enumerate() {
                    *reached = lines.at(line, job.window.input(1, column.y.into(), tap));
                }
            }
            for (rank, bit) in (column.first as usize..).zip(bits(column.mask)) {
                let z = i64::from(to) + i64::from(bit);
                let start = job.window.input(2, z, 0) - i64::from(from);
                let row = job.output_rows.get(rank).map_or(rank, |&row| row as usize);
                write(job, &reached, start, &mut index[row * taps..][..taps]);
            }
        }
    }
}

/// Taps that are neighbours along z.
#[inline(always)]
fn neighbours<const TAPS: usize, const SAME: bool>(
    job: &Job<'_>,
    reached: &[Reached],
    start: i64,
    row: &mut [u32],
) {
    if start <= -(TAPS as i64) || start >= 64 {
        row.fill(NO_NEIGHBOR);
        return;
    }
    // One of the shifts is 0.
    let (down, up) = (start.max(0) as u32, (-start).max(0) as u32);
    let below = (1_u64 << down) - 1;
    let (entries, _) = row.as_chunks_mut::<TAPS>();
    for (entries, reached) in entries.iter_mut().zip(reached) {
        let window = reached.mask >> down << up;
        let mut rank = reached.first + (reached.mask & below).count_ones();
        for (tap, entry) in entries.iter_mut().enumerate() {
            let hit = window >> tap & 1 != 0;
            *entry = row_of::<SAME>(job, hit, rank);
            rank += u32::from(hit);
        }
    }
}

/// Taps at any distance along z.
#[inline(always)]
fn taps_apart(job: &Job<'_>, reached: &[Reached], start: i64, row: &mut [u32]) {
    let (taps, step) = (job.window.kernel()[2], job.window.dilation()[2] as i64);
    for (entries, reached) in row.chunks_exact_mut(taps).zip(reached) {
        for (tap, entry) in entries.iter_mut().enumerate() {
            let bit = start + tap as i64 * step;
            let inside = (0..64).contains(&bit);
            let bit = if inside { bit as u32 } else { 0 };
            let hit = inside && reached.mask >> bit & 1 != 0;
            let rank = reached.first + (reached.mask & ((1 << bit) - 1)).count_ones();
            *entry = match job.input_rows.is_empty() {
                true => row_of::<true>(job, hit, rank),
                false => row_of::<false>(job, hit, rank),
            };
        }
    }
}

/// The entry for a rank. `SAME` says that rows are ranks.
#[inline(always)]
fn row_of<const SAME: bool>(job: &Job<'_>, hit: bool, rank: u32) -> u32 {
    if SAME {
        return if hit { rank } else { NO_NEIGHBOR };
    }
    // The last entry is for no voxel; the table has one for every rank before it.
    let last = job.input_rows.len() - 1;
    job.input_rows[if hit { rank as usize } else { last }.min(last)]
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::lidar::sparse::level::SparseLevel;
    use crate::lidar::sparse::maps::fill_by_lookup;

    #[test]
    fn every_processor_finds_what_a_search_finds() {
        let mut state = 7_u64;
        let mut next = |most: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % most) as i32
        };
        let mut voxels: Vec<[i32; 3]> = (0..900).map(|_| [next(20) - 3, next(17) - 4, next(40)]).collect();
        voxels.sort_unstable();
        voxels.dedup();
        let sorted = SparseLevel::new(&voxels, [20, 20, 40]).unwrap();
        voxels.reverse();
        let reversed = SparseLevel::new(&voxels, [20, 20, 40]).unwrap();
        for (kernel, dilation) in [([3; 3], [1; 3]), ([3, 1, 5], [1, 1, 2]), ([2, 3, 1], [2, 1, 1])] {
            let window = SparseWindow::submanifold(kernel, dilation).unwrap();
            for (input, output) in [(&sorted, &sorted), (&reversed, &sorted), (&reversed, &reversed)] {
                let job = Job {
                    input: &input.columns,
                    input_rows: input.rows(),
                    output: &output.columns,
                    output_rows: output.rows(),
                    window: &window,
                };
                let mut expected = vec![0; output.num_active() * window.taps()];
                fill_by_lookup(input, output, &window, &mut expected);
                for isa in [Isa::Scalar, Isa::detect()] {
                    let mut found = vec![1; expected.len()];
                    assert!(fill_windows(isa, &job, &mut found));
                    assert_eq!(found, expected, "{isa}");
                }
            }
        }
    }
}
