//! Gather maps of sub-manifold and strided layers.

use std::fmt;
use std::str::FromStr;

use super::columns::{Columns, MASK_BITS, bits};
use super::error::SparseError;
use super::level::SparseLevel;
use super::simd_windows::{Job, fill_windows};
use super::window::{SparseWindow, conv_out_shape, iter_taps};
use crate::numeric::Isa;

/// Entry of a map for a tap without a voxel: no table has such a row.
pub const NO_NEIGHBOR: u32 = u32::MAX;

/// Most entries of a map.
pub(super) const MAX_ENTRIES: usize = 1 << 28;

/// Most cells along y for which output columns are collected in a line of the grid.
const MAX_LINE: usize = 1 << 16;

/// Which input row feeds which output row through which tap: `(rows, taps)`, [`NO_NEIGHBOR`] where none does.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct NeighborMap {
    taps: usize,
    inputs: usize,
    index: Vec<u32>,
}

impl NeighborMap {
    /// Output rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.index.len().checked_div(self.taps).unwrap_or(0)
    }

    /// Taps of the kernel.
    #[must_use]
    pub const fn taps(&self) -> usize {
        self.taps
    }

    /// Input rows; entries are below, or [`NO_NEIGHBOR`].
    #[must_use]
    pub const fn inputs(&self) -> usize {
        self.inputs
    }

    /// All entries, row by row.
    #[must_use]
    pub fn index(&self) -> &[u32] {
        &self.index
    }

    /// Takes the size of a layer; entries are what they were.
    fn resize(&mut self, rows: usize, taps: usize, inputs: usize) -> Result<(), SparseError> {
        let entries = rows.checked_mul(taps).filter(|&entries| entries <= MAX_ENTRIES);
        let entries = entries.ok_or(SparseError::TooLarge { rows, taps })?;
        (self.taps, self.inputs) = (taps, inputs);
        self.index.resize(entries, NO_NEIGHBOR);
        Ok(())
    }
}

impl fmt::Debug for NeighborMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "NeighborMap({} rows, {} taps, {} inputs)",
            self.rows(),
            self.taps,
            self.inputs
        )
    }
}

/// What counts as a neighbour in a sub-manifold layer. The two differ only where voxels lie outside the grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SubmRule {
    /// What spconv's construction finds. It looks for the neighbours of the first half of the taps, which must lie
    /// inside the grid, and enters each pair for the opposite tap as well: tap `k < K / 2` needs its neighbour inside
    /// the grid, tap `k > K / 2` the output voxel, and the middle is the voxel itself.
    #[default]
    Spconv,
    /// Every active voxel at the tap's place, inside the grid or not.
    Exact,
}

impl FromStr for SubmRule {
    type Err = SparseError;

    fn from_str(rule: &str) -> Result<Self, SparseError> {
        match rule {
            "spconv" => Ok(Self::Spconv),
            "exact" => Ok(Self::Exact),
            "alias" => Err(SparseError::AliasRule),
            _ => Err(SparseError::UnknownRule { found: rule.into() }),
        }
    }
}

/// Map of a sub-manifold layer, whose outputs are the voxels of its input, row by row: `(N, K)`.
///
/// # Errors
/// As [`SparseWindow::new`] for kernel and dilation; [`SparseError::EvenKernel`] for [`SubmRule::Spconv`];
/// [`SparseError::TooLarge`].
pub fn subm_neighbor_map(
    level: &SparseLevel,
    kernel: [usize; 3],
    dilation: [usize; 3],
    rule: SubmRule,
) -> Result<NeighborMap, SparseError> {
    let mut map = NeighborMap::default();
    subm_neighbor_map_into(level, kernel, dilation, rule, &mut map)?;
    Ok(map)
}

/// As [`subm_neighbor_map`], into the memory of another frame's map.
///
/// # Errors
/// As [`subm_neighbor_map`].
pub fn subm_neighbor_map_into(
    level: &SparseLevel,
    kernel: [usize; 3],
    dilation: [usize; 3],
    rule: SubmRule,
    map: &mut NeighborMap,
) -> Result<(), SparseError> {
    let window = SparseWindow::submanifold(kernel, dilation)?;
    if rule == SubmRule::Spconv && kernel.iter().any(|k| k % 2 == 0) {
        return Err(SparseError::EvenKernel { kernel });
    }
    map.resize(level.num_active(), window.taps(), level.num_active())?;
    fill(level, level, &window, map);
    if rule == SubmRule::Spconv && !level.all_in_grid() {
        keep_pairs_of_the_grid(level, map);
    }
    Ok(())
}

/// Drops what [`SubmRule::Spconv`] does not find.
fn keep_pairs_of_the_grid(level: &SparseLevel, map: &mut NeighborMap) {
    let middle = map.taps / 2;
    for (&voxel, row) in level.coords().iter().zip(map.index.chunks_exact_mut(map.taps)) {
        for entry in row[..middle].iter_mut().filter(|entry| **entry != NO_NEIGHBOR) {
            if !level.in_grid(level.coords()[*entry as usize]) {
                *entry = NO_NEIGHBOR;
            }
        }
        if !level.in_grid(voxel) {
            row[middle + 1..].fill(NO_NEIGHBOR);
        }
    }
}

/// Level behind a strided layer and the map to it. An output voxel `o` is active where any active input voxel is
/// `o * stride - padding + tap * dilation` for a tap; outputs are in ascending order of their linear keys.
///
/// # Errors
/// [`SparseError::OutOfGrid`] for an input voxel outside its grid; as [`conv_out_shape`]; [`SparseError::TooLarge`].
pub fn strided_neighbor_map(
    level: &SparseLevel,
    window: &SparseWindow,
) -> Result<(SparseLevel, NeighborMap), SparseError> {
    let mut out = SparseLevel::empty([1; 3])?;
    let mut map = NeighborMap::default();
    strided_neighbor_map_into(level, window, &mut out, &mut map)?;
    Ok((out, map))
}

/// As [`strided_neighbor_map`], into the memory of another frame's level and map.
///
/// # Errors
/// As [`strided_neighbor_map`].
pub fn strided_neighbor_map_into(
    level: &SparseLevel,
    window: &SparseWindow,
    out: &mut SparseLevel,
    map: &mut NeighborMap,
) -> Result<(), SparseError> {
    level.require_in_grid("a strided layer")?;
    let shape = conv_out_shape(level.spatial_shape(), window)?;
    let (rows, taps) = (level.num_active(), window.taps());
    if rows
        .checked_mul(taps)
        .is_none_or(|candidates| candidates > MAX_ENTRIES)
    {
        return Err(SparseError::TooLarge { rows, taps });
    }
    match level.columns.z0 {
        Some(z0) if shape[1] <= MAX_LINE && shape[2] <= MASK_BITS => {
            collect_columns(&level.columns, z0, window, shape, &mut out.columns);
            out.set_from_columns(shape);
        }
        _ => collect_voxels(level, window, shape, out)?,
    }
    map.resize(out.num_active(), taps, rows)?;
    fill(level, out, window, map);
    Ok(())
}

/// Output voxels of sets that fit masks: for each output x, the columns that reach it are united in a line of the grid.
fn collect_columns(
    input: &Columns,
    z0: i32,
    window: &SparseWindow,
    [x_cells, y_cells, z_cells]: [usize; 3],
    out: &mut Columns,
) {
    let [x_taps, y_taps, z_taps] = window.kernel();
    // Outputs along z of each height.
    let mut above = [0_u64; MASK_BITS];
    for (bit, above) in above.iter_mut().enumerate() {
        let outputs =
            (0..z_taps).filter_map(|tap| window.output(2, i64::from(z0) + bit as i64, tap, z_cells));
        *above = outputs.fold(0, |mask, output| mask | 1 << output);
    }
    let mut xs: Vec<i64> = (input.slabs())
        .flat_map(|(x, _)| (0..x_taps).filter_map(move |tap| window.output(0, x.into(), tap, x_cells)))
        .collect();
    xs.sort_unstable();
    xs.dedup();
    let mut line = vec![0_u64; y_cells];
    out.clear(Some(0));
    for x in xs {
        let (mut low, mut high) = (y_cells, 0);
        for tap in 0..x_taps {
            for column in input.slab(window.input(0, x, tap)) {
                let mask = bits(column.mask).fold(0, |mask, bit| mask | above[bit as usize]);
                if mask == 0 {
                    continue;
                }
                for y in (0..y_taps).filter_map(|tap| window.output(1, column.y.into(), tap, y_cells)) {
                    // Fits: an output lies inside its grid.
                    let y = y as usize;
                    line[y] |= mask;
                    (low, high) = (low.min(y), high.max(y + 1));
                }
            }
        }
        // Fit: cells of a grid.
        out.open_slab(x as i32);
        for (y, mask) in (low..high).zip(&mut line[low.min(high)..high]) {
            if *mask != 0 {
                out.push_column(y as i32, std::mem::take(mask));
            }
        }
    }
    out.close();
}

/// Output voxels of any sets, by sorting what every input voxel reaches.
fn collect_voxels(
    level: &SparseLevel,
    window: &SparseWindow,
    shape: [usize; 3],
    out: &mut SparseLevel,
) -> Result<(), SparseError> {
    let mut reached: Vec<[i32; 3]> = Vec::new();
    for voxel in level.coords() {
        for tap in iter_taps(window.kernel()) {
            let place = |axis: usize| window.output(axis, voxel[axis].into(), tap[axis], shape[axis]);
            if let (Some(x), Some(y), Some(z)) = (place(0), place(1), place(2)) {
                // Fit: cells of a grid.
                reached.push([x, y, z].map(|v| v as i32));
            }
        }
    }
    reached.sort_unstable();
    reached.dedup();
    let mut next = SparseLevel::empty(shape)?;
    next.set(&reached)?;
    *out = next;
    Ok(())
}

/// Fills the map between two levels.
fn fill(input: &SparseLevel, output: &SparseLevel, window: &SparseWindow, map: &mut NeighborMap) {
    let job = Job {
        input: &input.columns,
        input_rows: input.rows(),
        output: &output.columns,
        output_rows: output.rows(),
        window,
    };
    if !fill_windows(Isa::detect(), &job, &mut map.index) {
        fill_by_lookup(input, output, window, &mut map.index);
    }
}

/// The map of any sets, straight from its definition.
pub(super) fn fill_by_lookup(
    input: &SparseLevel,
    output: &SparseLevel,
    window: &SparseWindow,
    index: &mut [u32],
) {
    let taps: Vec<[usize; 3]> = iter_taps(window.kernel()).collect();
    for (voxel, row) in output.coords().iter().zip(index.chunks_exact_mut(taps.len())) {
        for (entry, tap) in row.iter_mut().zip(&taps) {
            let place = [0, 1, 2].map(|axis| window.input(axis, voxel[axis].into(), tap[axis]));
            *entry = input.find(place).unwrap_or(NO_NEIGHBOR);
        }
    }
}
