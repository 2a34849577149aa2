//! The grid of pillars over the ground.

/// Most cells of a grid; each costs a few bytes of workspace.
const MAX_CELLS: usize = 1 << 24;

/// In which order cells get their pillar numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CellOrder {
    /// `(grid_x - 1 - ix) * grid_y + iy`: the front of the vehicle first. Autoware's `lidar_centerpoint`.
    FlippedX,
    /// `iy * grid_x + ix`. Autoware's PointPainting.
    Raster,
}

/// Place of a pillar in the grid; its z index is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct PillarCell {
    /// Cell along y, from the lower end of the range.
    pub iy: u16,
    /// Cell along x, from the lower end of the range.
    pub ix: u16,
}

/// Range, cells and limits of pillars. All arithmetic on it is float32.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PillarGridSpec {
    range_min_m: [f32; 3],
    range_max_m: [f32; 3],
    voxel_size_m: [f32; 3],
    grid: [u16; 2],
    max_points_per_pillar: u8,
    max_pillars: usize,
    cloud_capacity: usize,
    order: CellOrder,
}

/// A grid that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GridError {
    /// An empty or unbounded range.
    #[error("the range along {axis} goes from {min} to {max} m; give finite bounds, the lower one first")]
    Range {
        /// x, y or z.
        axis: char,
        /// Lower bound.
        min: f32,
        /// Upper bound.
        max: f32,
    },
    /// No size of a cell.
    #[error("a cell measures {size} m along {axis}; give a finite size above 0")]
    VoxelSize {
        /// x, y or z.
        axis: char,
        /// As given.
        size: f32,
    },
    /// No cell, or too many.
    #[error(
        "range and cell size make {grid_x} x {grid_y} cells; give sizes that make at least 1 and at most 65535 along \
         each axis, at most {MAX_CELLS} in all"
    )]
    Cells {
        /// Cells along x.
        grid_x: usize,
        /// Cells along y.
        grid_y: usize,
    },
    /// A limit that leaves nothing, or that counters cannot hold.
    #[error("{name} is {value}; give 1 to {most}")]
    Limit {
        /// Which limit.
        name: &'static str,
        /// As given.
        value: usize,
        /// The largest that is taken.
        most: usize,
    },
}

fn limit(name: &'static str, value: usize, most: usize) -> Result<usize, GridError> {
    if (1..=most).contains(&value) {
        Ok(value)
    } else {
        Err(GridError::Limit { name, value, most })
    }
}

impl PillarGridSpec {
    /// A grid over a range in metres. The values are rounded to float32 first; the number of cells along an axis is
    /// the whole part of the float32 `(max - min) / voxel`, as in `centerpoint_config.hpp`.
    ///
    /// It takes 32 points a pillar, 40,000 pillars and 2,000,000 points a frame, in the order
    /// [`CellOrder::FlippedX`], until the `with_` methods say otherwise.
    ///
    /// # Errors
    /// [`GridError`] for values that make no grid.
    pub fn new(
        range_min_m: [f64; 3],
        range_max_m: [f64; 3],
        voxel_size_m: [f64; 3],
    ) -> Result<Self, GridError> {
        let [min, max, voxel] = [range_min_m, range_max_m, voxel_size_m].map(|v| v.map(|v| v as f32));
        for (i, axis) in ['x', 'y', 'z'].into_iter().enumerate() {
            let (min, max, size) = (min[i], max[i], voxel[i]);
            if !(min.is_finite() && max.is_finite() && min < max) {
                return Err(GridError::Range { axis, min, max });
            }
            if !(size.is_finite() && size > 0.0) {
                return Err(GridError::VoxelSize { axis, size });
            }
        }
        let [grid_x, grid_y] = [0, 1].map(|i| ((max[i] - min[i]) / voxel[i]) as usize);
        match [grid_x, grid_y].map(u16::try_from) {
            [Ok(x @ 1..), Ok(y @ 1..)] if grid_x * grid_y <= MAX_CELLS => Ok(Self {
                range_min_m: min,
                range_max_m: max,
                voxel_size_m: voxel,
                grid: [x, y],
                max_points_per_pillar: 32,
                max_pillars: 40_000,
                cloud_capacity: 2_000_000,
                order: CellOrder::FlippedX,
            }),
            _ => Err(GridError::Cells { grid_x, grid_y }),
        }
    }

    /// Another number of points a pillar, 1 to 255.
    ///
    /// # Errors
    /// [`GridError::Limit`].
    pub fn with_max_points_per_pillar(mut self, points: usize) -> Result<Self, GridError> {
        // Fits: at most 255.
        self.max_points_per_pillar = limit("max_points_per_pillar", points, 255)? as u8;
        Ok(self)
    }

    /// Another number of pillars.
    ///
    /// # Errors
    /// [`GridError::Limit`].
    pub fn with_max_pillars(mut self, pillars: usize) -> Result<Self, GridError> {
        self.max_pillars = limit("max_pillars", pillars, MAX_CELLS)?;
        Ok(self)
    }

    /// Another number of points a frame.
    ///
    /// # Errors
    /// [`GridError::Limit`].
    pub fn with_cloud_capacity(mut self, points: usize) -> Result<Self, GridError> {
        self.cloud_capacity = limit("cloud_capacity", points, 1 << 30)?;
        Ok(self)
    }

    /// Another order of pillar numbers.
    #[must_use]
    pub const fn with_order(mut self, order: CellOrder) -> Self {
        self.order = order;
        self
    }

    /// Lower bounds in metres; a point on one is inside.
    #[must_use]
    pub const fn range_min_m(&self) -> [f32; 3] {
        self.range_min_m
    }

    /// Upper bounds in metres; a point on one is outside.
    #[must_use]
    pub const fn range_max_m(&self) -> [f32; 3] {
        self.range_max_m
    }

    /// Size of a cell in metres.
    #[must_use]
    pub const fn voxel_size_m(&self) -> [f32; 3] {
        self.voxel_size_m
    }

    /// Cells along x: width of the map.
    #[must_use]
    pub const fn grid_x(&self) -> usize {
        self.grid[0] as usize
    }

    /// Cells along y: height of the map.
    #[must_use]
    pub const fn grid_y(&self) -> usize {
        self.grid[1] as usize
    }

    /// Cells of the map.
    #[must_use]
    pub const fn num_cells(&self) -> usize {
        self.grid_x() * self.grid_y()
    }

    /// Points that a pillar holds.
    #[must_use]
    pub const fn max_points_per_pillar(&self) -> usize {
        self.max_points_per_pillar as usize
    }

    /// Pillars that a frame holds.
    #[must_use]
    pub const fn max_pillars(&self) -> usize {
        self.max_pillars
    }

    /// Points that a frame holds.
    #[must_use]
    pub const fn cloud_capacity(&self) -> usize {
        self.cloud_capacity
    }

    /// Order of pillar numbers.
    #[must_use]
    pub const fn order(&self) -> CellOrder {
        self.order
    }

    /// The place of the cell that is `rank`-th in the order of pillar numbers.
    pub(super) const fn place(&self, rank: usize) -> PillarCell {
        let (ix, iy) = match self.order {
            CellOrder::FlippedX => (self.grid_x() - 1 - rank / self.grid_y(), rank % self.grid_y()),
            CellOrder::Raster => (rank % self.grid_x(), rank / self.grid_x()),
        };
        // Fits: below the sizes of the grid, which are u16.
        PillarCell {
            iy: iy as u16,
            ix: ix as u16,
        }
    }

    /// Middle of a pillar in metres: `(voxel / 2 + index * voxel) + min` in float32, z of the only layer.
    #[must_use]
    pub fn centre_m(&self, place: PillarCell) -> [f32; 3] {
        let index = [f32::from(place.ix), f32::from(place.iy), 0.0];
        [0, 1, 2].map(|i| {
            let voxel = self.voxel_size_m[i];
            voxel / 2.0 + index[i] * voxel + self.range_min_m[i]
        })
    }
}
