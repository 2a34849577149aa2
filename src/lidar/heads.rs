//! The outputs of a centre head, however they lie in memory.

/// Why outputs are not those of the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadsError {
    /// Too few or too many values.
    #[error(
        "the {head} head has {got} values, {channels} channels of {cells} cells need {expected}; pass the network's whole output"
    )]
    Length {
        /// The head.
        head: &'static str,
        /// Values given.
        got: usize,
        /// Values needed.
        expected: usize,
        /// Channels.
        channels: usize,
        /// Cells.
        cells: usize,
    },
    /// Rows that cannot hold the columns.
    #[error("rows of {row} values cannot hold the head's {columns} columns; pack all six heads into one row")]
    Row {
        /// Values a row.
        row: usize,
        /// Columns needed.
        columns: usize,
    },
    /// The head lacks what the decoder was told to read.
    #[error(
        "the {head} head has {got} channels, the decoder reads {expected}; check has_variance and has_twist of the parameters"
    )]
    Channels {
        /// The head.
        head: &'static str,
        /// Channels given.
        got: usize,
        /// Channels needed.
        expected: usize,
    },
    /// Another number of cells than the grid's.
    #[error(
        "the heads have {got} cells, the grid of the parameters has {expected}; check point_cloud_range, voxel_size and downsample_factor"
    )]
    Cells {
        /// Cells given.
        got: usize,
        /// Cells of the grid.
        expected: usize,
    },
    /// A cell that is not there.
    #[error("cell {cell} is outside a head of {cells} cells")]
    Cell {
        /// The cell.
        cell: u32,
        /// Cells of the head.
        cells: usize,
    },
}

/// Channels of one head over all cells.
#[derive(Debug, Clone, Copy)]
pub struct HeadView<'a> {
    data: &'a [f32],
    channels: usize,
    channel_stride: usize,
    cell_stride: usize,
}

impl<'a> HeadView<'a> {
    fn plane(head: &'static str, data: &'a [f32], channels: usize, cells: usize) -> Result<Self, HeadsError> {
        let expected = channels.saturating_mul(cells);
        if data.len() != expected {
            return Err(HeadsError::Length {
                head,
                got: data.len(),
                expected,
                channels,
                cells,
            });
        }
        Ok(Self {
            data,
            channels,
            channel_stride: cells,
            cell_stride: 1,
        })
    }

    /// Number of channels.
    #[must_use]
    pub const fn channels(&self) -> usize {
        self.channels
    }

    /// One value.
    pub(super) fn at(&self, channel: usize, cell: usize) -> f32 {
        self.data[channel * self.channel_stride + cell * self.cell_stride]
    }

    /// Whether the cells of a channel lie side by side; else the channels of a cell do.
    pub(super) const fn is_planar(&self) -> bool {
        self.cell_stride == 1
    }

    /// A run of cells of one channel of planes.
    pub(super) fn run(&self, channel: usize, start: usize, length: usize) -> &'a [f32] {
        &self.data[channel * self.channel_stride + start..][..length]
    }

    /// All channels of one cell of rows.
    pub(super) fn row(&self, cell: usize) -> &'a [f32] {
        &self.data[cell * self.cell_stride..][..self.channels]
    }
}

/// Number of channels of each head, in the order in which they are packed into rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadChannels {
    /// Class logits.
    pub heatmap: usize,
    /// Offsets x, y (and their variances).
    pub offset: usize,
    /// Height of the middle (and its variance).
    pub z: usize,
    /// Logarithms of width, length, height (and their variances).
    pub dim: usize,
    /// Sine and cosine of the angle (and their log variances).
    pub rot: usize,
    /// Speed in x, y (and their variances); 0 where the network has no such head.
    pub vel: usize,
}

impl HeadChannels {
    /// Those of Autoware's CenterPoint.
    #[must_use]
    pub const fn centerpoint(classes: usize, has_variance: bool) -> Self {
        let twice = if has_variance { 2 } else { 1 };
        Self {
            heatmap: classes,
            offset: 2 * twice,
            z: twice,
            dim: 3 * twice,
            rot: 2 * twice,
            vel: 2 * twice,
        }
    }

    /// Columns of a packed row.
    #[must_use]
    pub const fn columns(&self) -> usize {
        self.heatmap + self.offset + self.z + self.dim + self.rot + self.vel
    }
}

/// The six outputs of a centre head over one grid of cells.
#[derive(Debug, Clone, Copy)]
pub struct CenterHeads<'a> {
    pub(super) heatmap: HeadView<'a>,
    pub(super) offset: HeadView<'a>,
    pub(super) z: HeadView<'a>,
    pub(super) dim: HeadView<'a>,
    pub(super) rot: HeadView<'a>,
    pub(super) vel: HeadView<'a>,
    pub(super) cells: usize,
}

/// Data of the six heads, each `[channels, cells]`.
#[derive(Debug, Clone, Copy, Default)]
#[expect(missing_docs, reason = "the heads of HeadChannels")]
pub struct HeadPlanes<'a> {
    pub heatmap: &'a [f32],
    pub offset: &'a [f32],
    pub z: &'a [f32],
    pub dim: &'a [f32],
    pub rot: &'a [f32],
    pub vel: &'a [f32],
}

impl<'a> CenterHeads<'a> {
    /// Heads that lie one after the other, each channel a plane of cells (CHW), as an ONNX network says them.
    ///
    /// # Errors
    /// [`HeadsError::Length`].
    pub fn planes(planes: HeadPlanes<'a>, channels: HeadChannels, cells: usize) -> Result<Self, HeadsError> {
        let view = |head, data, channels| HeadView::plane(head, data, channels, cells);
        Ok(Self {
            heatmap: view("heatmap", planes.heatmap, channels.heatmap)?,
            offset: view("offset", planes.offset, channels.offset)?,
            z: view("z", planes.z, channels.z)?,
            dim: view("dim", planes.dim, channels.dim)?,
            rot: view("rot", planes.rot, channels.rot)?,
            vel: view("vel", planes.vel, channels.vel)?,
            cells,
        })
    }

    /// Heads in one tensor `[cells, row]`: the first columns of a row are heatmap, offset, z, dim, rot and vel of one
    /// cell, the rest is padding.
    ///
    /// # Errors
    /// [`HeadsError::Row`] and [`HeadsError::Length`].
    pub fn packed_rows(
        data: &'a [f32],
        row: usize,
        channels: HeadChannels,
        cells: usize,
    ) -> Result<Self, HeadsError> {
        let columns = channels.columns();
        if row < columns {
            return Err(HeadsError::Row { row, columns });
        }
        let expected = row.saturating_mul(cells);
        if data.len() != expected {
            return Err(HeadsError::Length {
                head: "packed",
                got: data.len(),
                expected,
                channels: row,
                cells,
            });
        }
        let mut first = 0;
        let mut view = |channels| {
            let view = HeadView {
                // An empty head has no columns, and perhaps no data behind its start.
                data: data.get(first..).unwrap_or_default(),
                channels,
                channel_stride: 1,
                cell_stride: row,
            };
            first += channels;
            view
        };
        Ok(Self {
            heatmap: view(channels.heatmap),
            offset: view(channels.offset),
            z: view(channels.z),
            dim: view(channels.dim),
            rot: view(channels.rot),
            vel: view(channels.vel),
            cells,
        })
    }

    /// Number of cells.
    #[must_use]
    pub const fn cells(&self) -> usize {
        self.cells
    }

    /// Number of channels of each head.
    #[must_use]
    pub const fn channels(&self) -> HeadChannels {
        HeadChannels {
            heatmap: self.heatmap.channels,
            offset: self.offset.channels,
            z: self.z.channels,
            dim: self.dim.channels,
            rot: self.rot.channels,
            vel: self.vel.channels,
        }
    }

    fn views(&self) -> [HeadView<'a>; 6] {
        [self.heatmap, self.offset, self.z, self.dim, self.rot, self.vel]
    }
}

/// The heads at chosen cells: small enough to keep beside a test or to compare two devices with.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadValues {
    rows: Vec<f32>,
    channels: HeadChannels,
    cells: usize,
}

impl HeadValues {
    /// The values as heads of as many cells as were chosen.
    ///
    /// # Errors
    /// None for values of [`head_values_at`].
    pub fn heads(&self) -> Result<CenterHeads<'_>, HeadsError> {
        CenterHeads::packed_rows(&self.rows, self.channels.columns(), self.channels, self.cells)
    }
}

/// Values of all heads at `cells`.
///
/// # Errors
/// [`HeadsError::Cell`].
pub fn head_values_at(heads: &CenterHeads<'_>, cells: &[u32]) -> Result<HeadValues, HeadsError> {
    let channels = heads.channels();
    let mut rows = Vec::with_capacity(cells.len() * channels.columns());
    for &cell in cells {
        if cell as usize >= heads.cells {
            return Err(HeadsError::Cell {
                cell,
                cells: heads.cells,
            });
        }
        for view in heads.views() {
            rows.extend((0..view.channels).map(|channel| view.at(channel, cell as usize)));
        }
    }
    Ok(HeadValues {
        rows,
        channels,
        cells: cells.len(),
    })
}
