//! Index forms of maps, capacities and to-dense gathers.

use super::error::SparseError;
use super::level::SparseLevel;
use super::maps::{NO_NEIGHBOR, NeighborMap};

/// Size of a rulebook.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NeighborStats {
    /// Output rows.
    pub rows: usize,
    /// Pairs of an input and an output row; a layer costs `2 * Cin * Cout * pairs` floating point operations.
    pub pairs: usize,
    /// Pairs of a row on average; 0 where there are no rows.
    pub mean_taps: f64,
    /// Pairs of the row that has most.
    pub max_taps: usize,
}

/// Pairs of a map.
#[must_use]
pub fn pairs_count(map: &NeighborMap) -> usize {
    map.index().iter().filter(|&&entry| entry != NO_NEIGHBOR).count()
}

/// Rows and pairs of a map.
#[must_use]
pub fn neighbor_stats(map: &NeighborMap) -> NeighborStats {
    let taps_of = |row: &[u32]| row.iter().filter(|&&entry| entry != NO_NEIGHBOR).count();
    let counts = map.index().chunks_exact(map.taps().max(1)).map(taps_of);
    let (pairs, max_taps) = counts.fold((0, 0), |(pairs, most), count| (pairs + count, most.max(count)));
    let rows = map.rows();
    NeighborStats {
        rows,
        pairs,
        mean_taps: if rows == 0 {
            0.0
        } else {
            pairs as f64 / rows as f64
        },
        max_taps,
    }
}

fn check_sentinel(sentinel: u32, rows: usize) -> Result<(), SparseError> {
    if (sentinel as usize) < rows {
        return Err(SparseError::Sentinel { sentinel, rows });
    }
    Ok(())
}

fn check_length(what: &'static str, found: usize, expected: Option<usize>) -> Result<(), SparseError> {
    if expected == Some(found) {
        return Ok(());
    }
    Err(SparseError::Length {
        what,
        found,
        expected: expected.unwrap_or(usize::MAX),
    })
}

/// Rows of an index for `map`, which is `length / taps`.
fn capacity(map: &NeighborMap, length: usize) -> Result<usize, SparseError> {
    let rows = length.checked_div(map.taps()).unwrap_or(0);
    check_length("the index", length, rows.checked_mul(map.taps()))?;
    if rows < map.rows() {
        return Err(SparseError::Capacity {
            capacity: rows,
            rows: map.rows(),
        });
    }
    Ok(rows)
}

/// Writes the index `(rows, taps)` that a device gathers by: taps without a voxel, and all taps of the rows past those
/// of the map, are the sentinel. `index` has `rows * taps` entries.
///
/// # Errors
/// [`SparseError::Sentinel`] where a row of the input has that number, [`SparseError::Length`],
/// [`SparseError::Capacity`]; the index is unchanged then.
pub fn gather_index(map: &NeighborMap, sentinel: u32, index: &mut [u32]) -> Result<(), SparseError> {
    check_sentinel(sentinel, map.inputs())?;
    capacity(map, index.len())?;
    let (head, tail) = index.split_at_mut(map.index().len());
    for (to, &from) in head.iter_mut().zip(map.index()) {
        *to = if from == NO_NEIGHBOR { sentinel } else { from };
    }
    tail.fill(sentinel);
    Ok(())
}

/// Writes the index `(rows / block, taps * block)` in the order of tiles of `block` rows:
/// `index[b, k * block + v] = gather[b * block + v, k]`. Gathered rows of a multiple of `block` columns are then, tile
/// by tile in memory, the matrix of [`im2col`].
///
/// # Errors
/// As [`gather_index`]; [`SparseError::Block`].
pub fn im2col_index(
    map: &NeighborMap,
    sentinel: u32,
    block: usize,
    index: &mut [u32],
) -> Result<(), SparseError> {
    check_sentinel(sentinel, map.inputs())?;
    let rows = capacity(map, index.len())?;
    if block == 0 || rows % block != 0 {
        return Err(SparseError::Block { rows, block });
    }
    index.fill(sentinel);
    let taps = map.taps();
    for (row, entries) in map.index().chunks_exact(taps.max(1)).enumerate() {
        let begin = row / block * taps * block + row % block;
        for (tap, &from) in entries.iter().enumerate() {
            if from != NO_NEIGHBOR {
                index[begin + tap * block] = from;
            }
        }
    }
    Ok(())
}

/// The matrix `(rows, taps * columns)` that a tile-ordered index stands for: row `o` is the table's rows of its taps one
/// after another. Entries that the table `(V, columns)` does not have are the row of zeros if they are the sentinel.
///
/// # Errors
/// [`SparseError::Length`] for lengths that do not fit, [`SparseError::Block`], [`SparseError::Entry`].
pub fn im2col(
    table: &[f32],
    columns: usize,
    index: &[u32],
    (taps, block): (usize, usize),
    sentinel: u32,
) -> Result<Vec<f32>, SparseError> {
    let known = table.len().checked_div(columns).unwrap_or(0);
    check_length("the table", table.len(), known.checked_mul(columns))?;
    let rows = index.len().checked_div(taps).unwrap_or(0);
    check_length("the index", index.len(), rows.checked_mul(taps))?;
    if block == 0 || rows % block != 0 {
        return Err(SparseError::Block { rows, block });
    }
    let wrong = |&entry: &u32| entry != sentinel && entry as usize >= known;
    if let Some(position) = index.iter().position(wrong) {
        return Err(SparseError::Entry {
            position,
            value: index[position],
            rows: known,
        });
    }
    let mut matrix = Vec::with_capacity(index.len() * columns);
    for row in 0..rows {
        for tap in 0..taps {
            let entry = index[row / block * taps * block + tap * block + row % block] as usize;
            match table.get(entry * columns..(entry + 1) * columns) {
                Some(values) => matrix.extend_from_slice(values),
                None => matrix.resize(matrix.len() + columns, 0.0),
            }
        }
    }
    Ok(matrix)
}

/// To-dense as gathers, one for each slice of `split_axis`: `(S, A * B)` row numbers, where A and B are the other two
/// axes in their order, and the sentinel where no voxel is active.
///
/// # Errors
/// [`SparseError::Axis`], [`SparseError::Sentinel`], [`SparseError::OutOfGrid`], [`SparseError::Length`]; the index is
/// unchanged then.
pub fn dense_gather_index(
    level: &SparseLevel,
    sentinel: u32,
    split_axis: usize,
    index: &mut [u32],
) -> Result<(), SparseError> {
    let [a, b] = match split_axis {
        0 => [1, 2],
        1 => [0, 2],
        2 => [0, 1],
        found => return Err(SparseError::Axis { found }),
    };
    check_sentinel(sentinel, level.num_active())?;
    level.require_in_grid("a dense form")?;
    let shape = level.spatial_shape();
    // Cells of a grid are fewer than 2⁶³.
    check_length("the index", index.len(), Some(shape[0] * shape[1] * shape[2]))?;
    index.fill(sentinel);
    for (row, voxel) in level.coords().iter().enumerate() {
        // Not negative inside the grid.
        let [s, a_at, b_at] = [split_axis, a, b].map(|axis| voxel[axis].unsigned_abs() as usize);
        // Fits: row numbers are below the sentinel.
        index[(s * shape[a] + a_at) * shape[b] + b_at] = row as u32;
    }
    Ok(())
}

/// The smallest capacity that holds `count` rows, and whether there is none; then the largest is returned. Capacities
/// are in ascending order.
///
/// # Errors
/// [`SparseError::Buckets`].
pub fn select_capacity(count: usize, buckets: &[usize]) -> Result<(usize, bool), SparseError> {
    match buckets.last() {
        Some(&largest) if buckets.windows(2).all(|pair| pair[0] < pair[1]) => {
            let fits = buckets.iter().find(|&&capacity| capacity >= count);
            Ok((fits.copied().unwrap_or(largest), fits.is_none()))
        }
        _ => Err(SparseError::Buckets {
            found: buckets.to_vec(),
        }),
    }
}
