//! Shapes and tensor specifications.

use std::fmt;
use std::ops::Deref;

use super::tile::tile_padded_shape;
use super::{DType, TensorError};

/// Largest number of dimensions a tensor may have.
pub const MAX_RANK: usize = 6;

/// Dimensions of a tensor, outermost first. At most [`MAX_RANK`] of them; the element count is known to fit
/// `isize`, so products of dimensions cannot overflow later.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: [usize; MAX_RANK],
    rank: u8,
}

impl Shape {
    /// A shape from its dimensions.
    ///
    /// # Errors
    /// [`TensorError::RankTooHigh`] or [`TensorError::TooLarge`].
    pub fn new(dims: &[usize]) -> Result<Self, TensorError> {
        if dims.len() > MAX_RANK {
            return Err(TensorError::RankTooHigh { rank: dims.len() });
        }
        // Zero-sized dimensions must not hide an overflow in the others.
        dims.iter()
            .try_fold(1_usize, |product, &d| product.checked_mul(d.max(1)))
            .filter(|&product| isize::try_from(product).is_ok())
            .ok_or_else(|| TensorError::TooLarge {
                dims: dims.to_vec(),
                dtype_bytes: 1,
            })?;
        let mut padded = [1; MAX_RANK];
        padded[..dims.len()].copy_from_slice(dims);
        Ok(Self {
            dims: padded,
            rank: dims.len() as u8,
        })
    }

    /// Number of dimensions.
    #[must_use]
    pub const fn rank(&self) -> usize {
        self.rank as usize
    }

    /// Number of elements (1 for a scalar).
    #[must_use]
    pub fn elements(&self) -> usize {
        self.iter().product()
    }

    /// Row-major strides in elements, one per dimension; entries past the rank are 0.
    #[must_use]
    pub fn row_major_strides(&self) -> [isize; MAX_RANK] {
        let mut strides = [0; MAX_RANK];
        let mut step = 1_isize;
        for axis in (0..self.rank()).rev() {
            strides[axis] = step;
            step *= self.dims[axis].max(1) as isize;
        }
        strides
    }
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.dims[..self.rank()]
    }
}

impl TryFrom<&[usize]> for Shape {
    type Error = TensorError;

    fn try_from(dims: &[usize]) -> Result<Self, TensorError> {
        Self::new(dims)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, d) in self.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{d}")?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How the elements of a tensor lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Layout {
    /// Last dimension contiguous, no padding.
    #[default]
    RowMajor,
    /// The last two dimensions padded to whole tiles of 32 x 32 elements, one tile after another; see
    /// [`super::tile`]. On the host such a tensor is a [`super::TiledTensor`]: a [`super::HostTensor`] is row-major.
    Tile,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::RowMajor => "row-major",
            Self::Tile => "tile",
        })
    }
}

/// Shape, element type and layout: all that is needed to allocate a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TensorSpec {
    /// Dimensions, outermost first.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
    /// Memory layout.
    pub layout: Layout,
}

impl TensorSpec {
    /// A row-major specification.
    ///
    /// # Errors
    /// [`TensorError::RankTooHigh`], or [`TensorError::TooLarge`] if the byte count does not fit.
    pub fn new(dims: &[usize], dtype: DType) -> Result<Self, TensorError> {
        let shape = Shape::new(dims)?;
        shape
            .elements()
            .checked_mul(dtype.size_bytes())
            .filter(|&bytes| isize::try_from(bytes).is_ok())
            .ok_or_else(|| TensorError::TooLarge {
                dims: dims.to_vec(),
                dtype_bytes: dtype.size_bytes(),
            })?;
        Ok(Self {
            shape,
            dtype,
            layout: Layout::RowMajor,
        })
    }

    /// The same shape and type in another layout.
    ///
    /// # Errors
    /// [`TensorError::TooLarge`] if the byte count, padding included, does not fit.
    pub fn with_layout(self, layout: Layout) -> Result<Self, TensorError> {
        if layout == Layout::Tile {
            Self::new(&tile_padded_shape(&self.shape)?, self.dtype)?;
        }
        Ok(Self { layout, ..self })
    }

    /// Bytes of storage, padding included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let elements = match self.layout {
            Layout::RowMajor => self.shape.elements(),
            // A shape that cannot be padded, which `with_layout` refuses, fits no memory either.
            Layout::Tile => tile_padded_shape(&self.shape).map_or(usize::MAX, |padded| padded.elements()),
        };
        elements.saturating_mul(self.dtype.size_bytes())
    }
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.dtype, self.shape)?;
        match self.layout {
            Layout::RowMajor => Ok(()),
            layout => write!(f, " in {layout} layout"),
        }
    }
}
