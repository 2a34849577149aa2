//! Tiles of 32 x 32 elements: the order in which tile-based accelerators keep a tensor.
//!
//! The last two dimensions of a tensor are a plane of rows and columns; dimensions before them count planes, and a
//! tensor of fewer dimensions is one row. Each plane is padded to whole tiles, for itself. Tiles follow each other
//! plane by plane, then by rows of tiles, then along the row. A tile is four faces of 16 x 16 elements, one after
//! another: top left, top right, bottom left, bottom right; a face is row-major. With `w` columns of tiles and `h`
//! rows of tiles in a plane, element `(p, r, c)` lies at
//!
//! ```text
//! 1024 * ((p * h + r / 32) * w + c / 32) + 512 * (r % 32 / 16) + 256 * (c % 32 / 16) + 16 * (r % 16) + c % 16
//! ```
//!
//! No device here takes tiles yet: a device that does not refuses a [`TensorSpec`] of [`Layout::Tile`].

use std::borrow::Cow;

use ndarray::{ArrayViewMutD, Axis, Slice};

use super::{DType, Element, HostTensor, Layout, MAX_RANK, Shape, TensorError, TensorSpec};

/// Rows and columns of a tile.
pub const TILE: usize = 32;

/// Rows and columns of a face.
pub const FACE: usize = 16;

/// `n` rounded up to a multiple; `None` if there is none (the multiple is 0, or the result does not fit).
#[must_use]
pub const fn round_up(n: usize, multiple: usize) -> Option<usize> {
    n.checked_next_multiple_of(multiple)
}

/// A shape with its last two dimensions padded to whole tiles. It has at least two dimensions: what has fewer is one
/// row.
///
/// # Errors
/// [`TensorError::TooLarge`] if the padded shape does not fit.
pub fn tile_padded_shape(shape: &Shape) -> Result<Shape, TensorError> {
    let mut dims = [1; MAX_RANK];
    let rank = shape.rank().max(2);
    dims[rank - shape.rank()..rank].copy_from_slice(shape);
    for dim in &mut dims[rank - 2..rank] {
        *dim = round_up(*dim, TILE).ok_or_else(|| TensorError::TooLarge {
            dims: shape.to_vec(),
            dtype_bytes: 1,
        })?;
    }
    Shape::new(&dims[..rank])
}

/// The shape with dimensions of 1 before it, four in all.
///
/// # Errors
/// [`TensorError::BadAxis`] for more than four dimensions.
pub fn as_4d(shape: &Shape) -> Result<Shape, TensorError> {
    let lead = 4_usize
        .checked_sub(shape.rank())
        .ok_or_else(|| TensorError::BadAxis {
            what: "a form of four dimensions".into(),
            shape: *shape,
        })?;
    let mut dims = [1; 4];
    dims[lead..].copy_from_slice(shape);
    Shape::new(&dims)
}

/// A tensor whose last two dimensions are padded to whole tiles with a value, row-major as before. The tensor itself
/// where nothing is missing.
///
/// # Errors
/// [`TensorError::DTypeMismatch`] if the value has another type than the tensor, [`TensorError::TooLarge`].
pub fn pad_to_tile<T: Element>(tensor: &HostTensor, value: T) -> Result<Cow<'_, HostTensor>, TensorError> {
    let padded = tile_padded_shape(tensor.shape())?;
    if padded == *tensor.shape() {
        tensor.as_slice::<T>()?;
        return Ok(Cow::Borrowed(tensor));
    }
    resized(tensor, padded, value).map(Cow::Owned)
}

/// A tensor of another shape, which may have more dimensions before: the tensor's elements at the low end of every axis,
/// as far as they fit, and a value everywhere else.
pub(super) fn resized<T: Element>(
    tensor: &HostTensor,
    shape: Shape,
    value: T,
) -> Result<HostTensor, TensorError> {
    let mut source = tensor.array::<T>()?;
    while source.ndim() < shape.rank() {
        source.insert_axis_inplace(Axis(0));
    }
    source.slice_each_axis_inplace(|axis| Slice::from(..axis.len.min(shape[axis.axis.index()])));
    let mut out = HostTensor::zeros(TensorSpec::new(&shape, T::DTYPE)?);
    let places = out.as_mut_slice::<T>()?;
    places.fill(value);
    let mut target =
        ArrayViewMutD::from_shape(&shape[..], places).map_err(|_| TensorError::ShapeMismatch {
            expected: shape,
            found: *tensor.shape(),
        })?;
    target
        .slice_each_axis_mut(|axis| Slice::from(..source.len_of(axis.axis)))
        .assign(&source);
    Ok(out)
}

/// A tensor in host memory in [`Layout::Tile`]. Padding is zero.
#[derive(Debug, Clone)]
pub struct TiledTensor {
    spec: TensorSpec,
    /// Row-major `[tile rows of all planes, tile columns, 2, 2, 16, 16]`.
    storage: HostTensor,
}

impl TiledTensor {
    /// A tensor of zeros of a logical shape.
    ///
    /// # Errors
    /// [`TensorError::TooLarge`] if the padded shape does not fit.
    pub fn zeros(shape: Shape, dtype: DType) -> Result<Self, TensorError> {
        let spec = TensorSpec::new(&shape, dtype)?.with_layout(Layout::Tile)?;
        let (planes, [rows, columns]) = planes(&tile_padded_shape(&shape)?);
        let faces = TILE / FACE;
        let dims = [planes * rows / TILE, columns / TILE, faces, faces, FACE, FACE];
        Ok(Self {
            spec,
            storage: HostTensor::zeros(TensorSpec::new(&dims, dtype)?),
        })
    }

    /// Logical shape, type and layout.
    #[must_use]
    pub const fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    /// The storage, `[tile rows of all planes, tile columns, face rows, face columns, row, column]`.
    #[must_use]
    pub const fn storage(&self) -> &HostTensor {
        &self.storage
    }

    /// The storage as bytes, to be written with what was read from a device.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.storage.bytes_mut()
    }

    /// The tensor in a layout; itself where that is the one it has.
    ///
    /// # Errors
    /// A shape that is refused; none that a tensor already has.
    pub fn to_layout(&self, layout: Layout) -> Result<LaidOut<'_>, TensorError> {
        match layout {
            Layout::Tile => Ok(LaidOut::Tile(Cow::Borrowed(self))),
            Layout::RowMajor => {
                let mut tensor = HostTensor::zeros(TensorSpec::new(&self.spec.shape, self.spec.dtype)?);
                let bytes = tensor.bytes_mut();
                each_run(&self.spec, |dense, tiled, len| {
                    bytes[dense..dense + len].copy_from_slice(&self.storage.bytes()[tiled..tiled + len]);
                });
                Ok(LaidOut::RowMajor(Cow::Owned(tensor)))
            }
        }
    }
}

impl HostTensor {
    /// The tensor in a layout; itself where that is row-major, which it is already.
    ///
    /// # Errors
    /// [`TensorError::TooLarge`] if the padded shape does not fit.
    pub fn to_layout(&self, layout: Layout) -> Result<LaidOut<'_>, TensorError> {
        match layout {
            Layout::RowMajor => Ok(LaidOut::RowMajor(Cow::Borrowed(self))),
            Layout::Tile => {
                let mut tensor = TiledTensor::zeros(*self.shape(), self.dtype())?;
                let bytes = tensor.storage.bytes_mut();
                each_run(self.spec(), |dense, tiled, len| {
                    bytes[tiled..tiled + len].copy_from_slice(&self.bytes()[dense..dense + len]);
                });
                Ok(LaidOut::Tile(Cow::Owned(tensor)))
            }
        }
    }
}

/// A tensor in the layout that was asked for.
#[derive(Debug, Clone)]
pub enum LaidOut<'a> {
    /// Row-major.
    RowMajor(Cow<'a, HostTensor>),
    /// In tiles.
    Tile(Cow<'a, TiledTensor>),
}

impl LaidOut<'_> {
    /// Shape, type and layout: what a device allocates for the tensor.
    #[must_use]
    pub fn spec(&self) -> &TensorSpec {
        match self {
            Self::RowMajor(tensor) => tensor.spec(),
            Self::Tile(tensor) => tensor.spec(),
        }
    }

    /// The storage as bytes: what is uploaded.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::RowMajor(tensor) => tensor.bytes(),
            Self::Tile(tensor) => tensor.storage.bytes(),
        }
    }
}

/// Number of planes, and the rows and columns of each.
fn planes(shape: &Shape) -> (usize, [usize; 2]) {
    match shape[..] {
        [] => (1, [1, 1]),
        [columns] => (1, [1, columns]),
        [ref outer @ .., rows, columns] => (outer.iter().product(), [rows, columns]),
    }
}

/// Calls `run(row-major byte, tiled byte, bytes)` for every run that both layouts keep together: the part of a row that
/// lies in one face.
fn each_run(spec: &TensorSpec, mut run: impl FnMut(usize, usize, usize)) {
    let size = spec.dtype.size_bytes();
    let (planes, [rows, columns]) = planes(&spec.shape);
    let (tile_rows, tile_columns) = (rows.div_ceil(TILE), columns.div_ceil(TILE));
    for plane in 0..planes {
        for row in 0..rows {
            for column in (0..columns).step_by(FACE) {
                let dense = (plane * rows + row) * columns + column;
                let tile = (plane * tile_rows + row / TILE) * tile_columns + column / TILE;
                let face = 2 * (row % TILE / FACE) + column % TILE / FACE;
                let tiled = tile * TILE * TILE + face * FACE * FACE + row % FACE * FACE;
                run(dense * size, tiled * size, FACE.min(columns - column) * size);
            }
        }
    }
}
