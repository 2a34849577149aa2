//! What cannot be made a rulebook of.

use super::maps::MAX_ENTRIES;
use super::window::{MAX_AXIS, MAX_TAPS};

/// Why there is no level, map or index. Axes are 0 = x, 1 = y, 2 = z.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SparseError {
    /// A grid without cells, or one whose coordinates are too large.
    #[error(
        "the spatial shape is {shape:?} (x, y, z); give 1 to {MAX_AXIS} cells along each axis, fewer than 2^63 in all"
    )]
    Shape {
        /// As given.
        shape: [usize; 3],
    },
    /// More voxels than row numbers.
    #[error("{count} voxels; at most {} can be numbered", u32::MAX - 1)]
    TooManyVoxels {
        /// As given.
        count: usize,
    },
    /// Two rows for one place.
    #[error("rows {first} and {second} are both the voxel {voxel:?}; give each active voxel once")]
    Duplicate {
        /// The lower row.
        first: usize,
        /// The other row.
        second: usize,
        /// The place (x, y, z).
        voxel: [i32; 3],
    },
    /// A voxel where only voxels of the grid can be.
    #[error(
        "row {row} is the voxel {voxel:?}, outside its grid of {shape:?} cells; {needed} needs all voxels inside"
    )]
    OutOfGrid {
        /// Which row.
        row: usize,
        /// The place (x, y, z).
        voxel: [i32; 3],
        /// The grid.
        shape: [usize; 3],
        /// What was asked for.
        needed: &'static str,
    },
    /// A kernel size, stride or dilation of 0, or one that is too large.
    #[error("{what} is {found:?} (x, y, z); give 1 to {MAX_AXIS} along each axis")]
    Window {
        /// `kernel`, `stride` or `dilation`.
        what: &'static str,
        /// As given.
        found: [usize; 3],
    },
    /// Padding that no coordinate can hold.
    #[error("padding is {found:?} (x, y, z); give 0 to {MAX_AXIS} along each axis")]
    Padding {
        /// As given.
        found: [usize; 3],
    },
    /// A kernel of more taps than a map has columns for.
    #[error("a kernel of {kernel:?} has more than {MAX_TAPS} taps; give a smaller one")]
    KernelVolume {
        /// As given.
        kernel: [usize; 3],
    },
    /// The kernel does not fit the padded grid.
    #[error(
        "a kernel of {kernel} with dilation {dilation} and padding {padding} does not fit {cells} cells along axis {axis}"
    )]
    NoOutput {
        /// Which axis.
        axis: usize,
        /// Cells of the input.
        cells: usize,
        /// Kernel size.
        kernel: usize,
        /// Padding on each side.
        padding: usize,
        /// Dilation.
        dilation: usize,
    },
    /// A rule that pairs taps `k` and `K - 1 - k`, with a kernel that has no middle.
    #[error(
        "the rule \"spconv\" pairs opposite taps, which a kernel of {kernel:?} does not have; give odd sizes, or the rule \"exact\""
    )]
    EvenKernel {
        /// As given.
        kernel: [usize; 3],
    },
    /// The rule of linear keys that wrap around.
    #[error(
        "the rule \"alias\" (neighbours by linear keys that wrap around at the edges of the grid) is not supported; \
         give \"spconv\" or \"exact\""
    )]
    AliasRule,
    /// A rule that nobody has heard of.
    #[error("there is no rule {found:?} of neighbours; give \"spconv\" or \"exact\"")]
    UnknownRule {
        /// As given.
        found: String,
    },
    /// A map of too many entries.
    #[error("a map of {rows} rows and {taps} taps has more than {MAX_ENTRIES} entries")]
    TooLarge {
        /// Output voxels.
        rows: usize,
        /// Taps of the kernel.
        taps: usize,
    },
    /// The sentinel is the number of a row that exists.
    #[error(
        "the sentinel {sentinel} is also one of {rows} rows; give the number of a row that does not exist"
    )]
    Sentinel {
        /// As given.
        sentinel: u32,
        /// Rows of the table.
        rows: usize,
    },
    /// Fewer rows than the map has.
    #[error("{capacity} rows cannot hold the {rows} rows of the map")]
    Capacity {
        /// As given.
        capacity: usize,
        /// Rows of the map.
        rows: usize,
    },
    /// Rows that do not make whole blocks.
    #[error("{rows} rows do not make blocks of {block}; give a multiple, and blocks of 1 row or more")]
    Block {
        /// Rows of the index.
        rows: usize,
        /// Rows of a block.
        block: usize,
    },
    /// A slice of another length.
    #[error("{what} has {found} values, but {expected} are needed")]
    Length {
        /// Which slice.
        what: &'static str,
        /// Length that was given.
        found: usize,
        /// Length that is needed.
        expected: usize,
    },
    /// An index that leads nowhere.
    #[error("entry {position} of the index is {value}, but the table has {rows} rows")]
    Entry {
        /// Which entry.
        position: usize,
        /// Its value.
        value: u32,
        /// Rows of the table.
        rows: usize,
    },
    /// An axis that there is not.
    #[error("there is no axis {found}; give 0 (x), 1 (y) or 2 (z)")]
    Axis {
        /// As given.
        found: usize,
    },
    /// Capacities that cannot be chosen from.
    #[error("the capacities {found:?} are no choice; give at least one, each larger than the one before it")]
    Buckets {
        /// As given.
        found: Vec<usize>,
    },
}
