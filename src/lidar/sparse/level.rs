//! A set of active voxels.

use std::fmt;

use super::columns::Columns;
use super::error::SparseError;
use super::maps::NO_NEIGHBOR;
use super::window::check_shape;

/// Active voxels (x, y, z) of a grid, in the order of the feature rows.
///
/// Voxels may lie outside the grid, wherever 32-bit coordinates reach; two rows for one voxel are refused. Memory is
/// kept from one frame to the next by [`SparseLevel::set`].
#[derive(Clone)]
pub struct SparseLevel {
    shape: [usize; 3],
    coords: Vec<[i32; 3]>,
    pub(super) columns: Columns,
    /// Row of each rank, then [`NO_NEIGHBOR`]; empty where rows are in the order of ranks.
    rows: Vec<u32>,
    outside: usize,
    keys: Vec<u64>,
    wide_keys: Vec<u128>,
}

impl SparseLevel {
    /// An active set `coords` (N, 3) in a grid of `spatial_shape` cells (x, y, z).
    ///
    /// # Errors
    /// [`SparseError::Shape`], [`SparseError::TooManyVoxels`], [`SparseError::Duplicate`].
    pub fn new(coords: &[[i32; 3]], spatial_shape: [usize; 3]) -> Result<Self, SparseError> {
        let mut level = Self::empty(spatial_shape)?;
        level.set(coords)?;
        Ok(level)
    }

    /// A grid without active voxels.
    ///
    /// # Errors
    /// [`SparseError::Shape`].
    pub fn empty(spatial_shape: [usize; 3]) -> Result<Self, SparseError> {
        let mut level = Self {
            shape: check_shape(spatial_shape)?,
            coords: Vec::new(),
            columns: Columns::default(),
            rows: Vec::new(),
            outside: 0,
            keys: Vec::new(),
            wide_keys: Vec::new(),
        };
        level.columns.fill(std::iter::empty());
        Ok(level)
    }

    /// Takes the next frame's voxels into the memory of the last frame's.
    ///
    /// # Errors
    /// [`SparseError::TooManyVoxels`], [`SparseError::Duplicate`]; the level is empty then.
    pub fn set(&mut self, coords: &[[i32; 3]]) -> Result<(), SparseError> {
        self.coords.clear();
        self.rows.clear();
        self.outside = 0;
        if coords.len() >= u32::MAX as usize {
            self.columns.fill(std::iter::empty());
            return Err(SparseError::TooManyVoxels { count: coords.len() });
        }
        self.coords.extend_from_slice(coords);
        let sorted = coords.windows(2).all(|pair| pair[0] < pair[1]);
        if !sorted {
            self.sort();
        }
        if let Some([first, second]) = self.duplicate() {
            let voxel = coords[first];
            self.coords.clear();
            self.rows.clear();
            self.columns.fill(std::iter::empty());
            return Err(SparseError::Duplicate { first, second, voxel });
        }
        match sorted {
            true => self.columns.fill(self.coords.iter().copied()),
            false => self
                .columns
                .fill(self.rows.iter().map(|&row| self.coords[row as usize])),
        }
        if !sorted {
            self.rows.push(NO_NEIGHBOR);
        }
        self.outside = self
            .coords
            .iter()
            .filter(|&&voxel| !inside(voxel, self.shape))
            .count();
        Ok(())
    }

    /// Becomes the set of sorted voxels that the columns hold.
    pub(super) fn set_from_columns(&mut self, shape: [usize; 3]) {
        self.shape = shape;
        self.rows.clear();
        self.outside = 0;
        self.coords.clear();
        let Self { coords, columns, .. } = self;
        for (x, slab) in columns.slabs() {
            for column in slab {
                let height = column.mask.count_ones() as usize;
                let first = column.first as usize;
                coords.extend(columns.z[first..first + height].iter().map(|&z| [x, column.y, z]));
            }
        }
    }

    /// Fills `rows` with the rows in ascending order of (x, y, z).
    fn sort(&mut self) {
        let low = [0, 1, 2].map(|axis| self.coords.iter().map(|v| v[axis]).min().unwrap_or(0));
        let high = [0, 1, 2].map(|axis| self.coords.iter().map(|v| v[axis]).max().unwrap_or(0));
        let bits = |most: u64| u64::BITS - most.leading_zeros();
        let [_, y_bits, z_bits] = [0, 1, 2].map(|axis| bits(high[axis].abs_diff(low[axis]).into()));
        let x_bits = bits(high[0].abs_diff(low[0]).into());
        let row_bits = bits(self.coords.len() as u64);
        let place = |voxel: &[i32; 3]| {
            let [x, y, z] = [0, 1, 2].map(|axis| u128::from(voxel[axis].abs_diff(low[axis])));
            (x << (y_bits + z_bits)) | (y << z_bits) | z
        };
        let keyed = self.coords.iter().enumerate();
        let keyed = keyed.map(|(row, voxel)| (place(voxel) << row_bits) | row as u128);
        let mask = (1_u128 << row_bits) - 1;
        // Fit: a row number was put into the low bits, and rows are fewer than 2³².
        if x_bits + y_bits + z_bits + row_bits <= u64::BITS {
            self.keys.clear();
            self.keys.extend(keyed.map(|key| key as u64));
            self.keys.sort_unstable();
            self.rows
                .extend(self.keys.iter().map(|&key| (key & mask as u64) as u32));
        } else {
            self.wide_keys.clear();
            self.wide_keys.extend(keyed);
            self.wide_keys.sort_unstable();
            self.rows
                .extend(self.wide_keys.iter().map(|&key| (key & mask) as u32));
        }
    }

    /// Two rows of one voxel, once `rows` is in order.
    fn duplicate(&self) -> Option<[usize; 2]> {
        let pair = self
            .rows
            .windows(2)
            .find(|pair| self.coords[pair[0] as usize] == self.coords[pair[1] as usize])?;
        // Equal voxels are in the order of their rows.
        Some([pair[0] as usize, pair[1] as usize])
    }

    /// Cells of the grid along x, y and z.
    #[must_use]
    pub const fn spatial_shape(&self) -> [usize; 3] {
        self.shape
    }

    /// The voxels, one for each feature row.
    #[must_use]
    pub fn coords(&self) -> &[[i32; 3]] {
        &self.coords
    }

    /// Number of voxels.
    #[must_use]
    pub fn num_active(&self) -> usize {
        self.coords.len()
    }

    /// Row of a voxel, by bisection; `None` where it is not active.
    #[must_use]
    pub fn lookup(&self, voxel: [i32; 3]) -> Option<u32> {
        self.find(voxel.map(i64::from))
    }

    /// As [`SparseLevel::lookup`], for coordinates that no voxel may have.
    pub(super) fn find(&self, voxel: [i64; 3]) -> Option<u32> {
        self.columns.find(voxel).map(|rank| self.row(rank))
    }

    /// Whether a place lies inside the grid, active or not.
    #[must_use]
    pub fn in_grid(&self, voxel: [i32; 3]) -> bool {
        inside(voxel, self.shape)
    }

    /// Whether all voxels lie inside the grid.
    #[must_use]
    pub const fn all_in_grid(&self) -> bool {
        self.outside == 0
    }

    /// `(x * Y + y) * Z + z` of each voxel.
    ///
    /// # Errors
    /// [`SparseError::OutOfGrid`]: outside the grid the number would be that of another cell.
    pub fn linear_index(&self) -> Result<Vec<u64>, SparseError> {
        self.require_in_grid("a linear index")?;
        let [_, y_cells, z_cells] = self.shape.map(|cells| cells as u64);
        // Not negative inside the grid, which has fewer than 2⁶³ cells.
        let index = |v: &[i32; 3]| {
            let [x, y, z] = v.map(|v| u64::from(v.unsigned_abs()));
            (x * y_cells + y) * z_cells + z
        };
        Ok(self.coords.iter().map(index).collect())
    }

    pub(super) fn require_in_grid(&self, needed: &'static str) -> Result<(), SparseError> {
        if self.outside == 0 {
            return Ok(());
        }
        let mut rows = self.coords.iter().enumerate();
        match rows.find(|&(_, &voxel)| !inside(voxel, self.shape)) {
            Some((row, &voxel)) => Err(SparseError::OutOfGrid {
                row,
                voxel,
                shape: self.shape,
                needed,
            }),
            None => Ok(()),
        }
    }

    /// Row of a rank.
    pub(super) fn row(&self, rank: u32) -> u32 {
        self.rows.get(rank as usize).copied().unwrap_or(rank)
    }

    /// Rows by rank, with one more entry for no voxel; empty where rows and ranks are the same.
    pub(super) fn rows(&self) -> &[u32] {
        &self.rows
    }
}

fn inside(voxel: [i32; 3], shape: [usize; 3]) -> bool {
    // A negative coordinate becomes a number above every grid's.
    (0..3).all(|axis| (voxel[axis] as u32 as usize) < shape[axis])
}

/// Says how many voxels there are, of how many cells, and how many lie outside.
impl fmt::Display for SparseLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.shape;
        write!(f, "{} active voxels in {x} x {y} x {z} cells", self.num_active())?;
        match self.outside {
            0 => Ok(()),
            outside => write!(f, ", {outside} outside"),
        }
    }
}

impl fmt::Debug for SparseLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SparseLevel({self})")
    }
}
