//! Points grouped into pillars.
//!
//! Autoware leaves to chance which points of a full pillar stay, in which order, and how pillars are numbered. Here all
//! of it is a rule; see [`assign_pillars`].

use super::grid::{PillarCell, PillarGridSpec};
use super::hygiene::seeded_permutation;
use super::points::{MAX_POINT_FEATURES, PointColumns};
use super::simd_cells;
use crate::numeric::Isa;

/// The pillars of a frame. Reused for the next frame, it allocates nothing more once it has seen the largest.
#[derive(Debug, Clone)]
pub struct PillarSet {
    grid: PillarGridSpec,
    coords: Vec<PillarCell>,
    /// Pillar p owns the rows `starts[p]..starts[p + 1]`; one entry more than pillars, or none at all.
    starts: Vec<u32>,
    /// Points in the order of their pillars, `features` values each.
    rows: Vec<f32>,
    features: usize,
    stats: PillarStats,
    workspace: Workspace,
}

/// What became of the points of a frame: `points` is the sum of the other points.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PillarStats {
    /// Points given.
    pub points: usize,
    /// Points beyond the capacity of the grid: the last of the input.
    pub over_capacity: usize,
    /// Points of which some value is NaN or infinite.
    pub not_finite: usize,
    /// Points outside the range.
    pub out_of_range: usize,
    /// Points of full pillars.
    pub over_slots: usize,
    /// Points that would have made more pillars than are allowed, beside those of `over_slots`.
    pub over_pillars: usize,
    /// Points in pillars.
    pub kept: usize,
    /// Cells with points.
    pub pillars_total: usize,
    /// Cells with points that got no pillar.
    pub pillars_dropped: usize,
}

#[derive(Debug, Clone, Default)]
struct Workspace {
    /// Rank of each point's cell in the order of pillar numbers; [`simd_cells`] says what stands for no cell.
    cells: Vec<u32>,
    /// Slot of each point in its pillar; the number of slots where there is none left.
    slots: Vec<u8>,
    /// Points of each cell, up to the number of slots.
    counts: Vec<u8>,
    /// First row of each cell with a pillar.
    first_rows: Vec<u32>,
    permutation: Vec<u32>,
}

impl PillarSet {
    /// No pillars, on this grid.
    #[must_use]
    pub fn new(grid: PillarGridSpec) -> Self {
        Self {
            grid,
            coords: Vec::new(),
            starts: Vec::new(),
            rows: Vec::new(),
            features: 0,
            stats: PillarStats::default(),
            workspace: Workspace::default(),
        }
    }

    /// The grid that the pillars stand on.
    #[must_use]
    pub const fn grid(&self) -> &PillarGridSpec {
        &self.grid
    }

    /// Number of pillars.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.coords.len()
    }

    /// Whether there is no pillar.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.coords.is_empty()
    }

    /// Place of every pillar.
    #[must_use]
    pub fn coords(&self) -> &[PillarCell] {
        &self.coords
    }

    /// Values of a point.
    #[must_use]
    pub const fn point_features(&self) -> usize {
        self.features
    }

    /// Number of points in a pillar; 0 for a pillar that is not there.
    #[must_use]
    pub fn num_points(&self, pillar: usize) -> usize {
        match self.starts.get(pillar..pillar + 2) {
            Some(&[start, end]) => (end - start) as usize,
            _ => 0,
        }
    }

    /// The points of a pillar, one after the other, [`Self::point_features`] values each; empty for a pillar that is
    /// not there.
    #[must_use]
    pub fn points(&self, pillar: usize) -> &[f32] {
        match self.starts.get(pillar..pillar + 2) {
            Some(&[start, end]) => &self.rows[start as usize * self.features..end as usize * self.features],
            _ => &[],
        }
    }

    /// What became of the points.
    #[must_use]
    pub const fn stats(&self) -> PillarStats {
        self.stats
    }

    /// All points as rows of `N` values, and where each pillar's begin and end. `None` unless a point has `N` values.
    pub(super) fn rows<const N: usize>(&self) -> Option<(&[[f32; N]], &[u32])> {
        (self.features == N).then(|| (self.rows.as_chunks().0, &*self.starts))
    }
}

/// Groups points into the pillars of the set's grid, in place of those that it holds.
///
/// - Of more points than the grid's capacity, the first stay.
/// - A point with a value that is not finite is dropped. So is one outside `min <= v < max` on any axis.
/// - Its cell along an axis is `floor((v - min) / voxel)` in float32, at most the last one: just below the upper bound
///   the division may round up to the number of cells.
/// - A pillar keeps the first points that fall into it, in the order of the input; with a seed, in the order of
///   [`seeded_permutation`] of all points up to the capacity (dropped ones included), which makes them a random choice.
/// - Pillars are numbered in the grid's [`CellOrder`](super::CellOrder); the first `max_pillars` cells with points
///   stay.
pub fn assign_pillars(points: &PointColumns<'_>, shuffle_seed: Option<u64>, set: &mut PillarSet) {
    let spec = &set.grid;
    let length = points.len().min(spec.cloud_capacity());
    let slots = spec.max_points_per_pillar() as u8;
    let work = &mut set.workspace;
    let nowhere = simd_cells::Nowhere::after(spec.num_cells());

    work.cells.resize(length, 0);
    simd_cells::assign_cells(Isa::detect(), points, spec, &mut work.cells);

    // A point without a cell is counted like one of a full pillar, so that the loop has no branch.
    work.counts.clear();
    work.counts.resize(spec.num_cells(), 0);
    work.counts.extend([slots; 2]);
    work.slots.resize(length, 0);
    match shuffle_seed {
        None => {
            for (slot, &cell) in work.slots.iter_mut().zip(&work.cells) {
                *slot = take_slot(&mut work.counts[cell as usize], slots);
            }
        }
        Some(seed) => {
            // Fits: the capacity is below 2³¹.
            seeded_permutation(length as u32, seed, &mut work.permutation);
            for &point in &work.permutation {
                let cell = work.cells[point as usize];
                work.slots[point as usize] = take_slot(&mut work.counts[cell as usize], slots);
            }
        }
    }

    work.first_rows.resize(spec.num_cells() + 2, 0);
    set.coords.clear();
    set.starts.clear();
    let (mut kept, mut over_pillars, mut pillars_total) = (0_u32, 0_usize, 0_usize);
    for (block, counts) in work.counts[..spec.num_cells()].chunks(COUNTS_AT_ONCE).enumerate() {
        if counts.iter().fold(0, |any, count| any | count) == 0 {
            continue;
        }
        for (i, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let cell = block * COUNTS_AT_ONCE + i;
            pillars_total += 1;
            if set.coords.len() == spec.max_pillars() {
                over_pillars += usize::from(count);
                work.first_rows[cell] = NO_ROW;
                continue;
            }
            set.coords.push(spec.place(cell));
            set.starts.push(kept);
            work.first_rows[cell] = kept;
            kept += u32::from(count);
        }
    }
    set.starts.push(kept);

    set.features = points.features();
    // One row more, for points that have none: writing it costs less than deciding.
    set.rows.resize((kept as usize + 1) * set.features, 0.0);
    match set.features {
        3 => write_rows::<3>(points, work, slots, &mut set.rows),
        4 => write_rows::<4>(points, work, slots, &mut set.rows),
        5 => write_rows::<5>(points, work, slots, &mut set.rows),
        6 => write_rows::<6>(points, work, slots, &mut set.rows),
        _ => write_rows::<MAX_POINT_FEATURES>(points, work, slots, &mut set.rows),
    }
    set.rows.truncate(kept as usize * set.features);

    let count = |nowhere: u32| work.cells.iter().filter(|&&cell| cell == nowhere).count();
    let (not_finite, out_of_range) = (count(nowhere.not_finite), count(nowhere.out_of_range));
    let kept = kept as usize;
    set.stats = PillarStats {
        points: points.len(),
        over_capacity: points.len() - length,
        not_finite,
        out_of_range,
        over_slots: length - not_finite - out_of_range - over_pillars - kept,
        over_pillars,
        kept,
        pillars_total,
        pillars_dropped: pillars_total - set.coords.len(),
    };
}

/// Cells looked at in one step while most are empty.
const COUNTS_AT_ONCE: usize = 32;

/// First row of a cell that got no pillar; no number of rows comes near it, nor overflows with a slot added.
const NO_ROW: u32 = u32::MAX - 256;

/// The slot of one more point in a cell; `slots` where none is left.
fn take_slot(count: &mut u8, slots: u8) -> u8 {
    let slot = *count;
    *count += u8::from(slot < slots);
    slot
}

/// Copies every point to its row; the last row of `rows` takes those that have none.
fn write_rows<const N: usize>(points: &PointColumns<'_>, work: &Workspace, slots: u8, rows: &mut [f32]) {
    let length = work.cells.len();
    let mut columns: [&[f32]; N] = [&[]; N];
    for (column, given) in columns.iter_mut().zip(points.xyz.iter().chain(points.extra())) {
        *column = &given[..length];
    }
    let (rows, _) = rows.as_chunks_mut::<N>();
    let none = rows.len() as u32 - 1;
    for (point, (&cell, &slot)) in work.cells.iter().zip(&work.slots).enumerate() {
        let first = work.first_rows[cell as usize];
        let row = if slot < slots {
            first + u32::from(slot)
        } else {
            none
        };
        rows[row.min(none) as usize] = columns.map(|column| column[point]);
    }
}
