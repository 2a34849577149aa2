//! Strided windows onto a buffer.

use super::{MAX_RANK, Shape, TensorError};

/// How a buffer is seen as a tensor: `element(i, j, ...) = offset + i * strides[0] + j * strides[1] + ...`,
/// all counted in elements. Transposing, slicing, selecting and many reshapes only change the view, so a
/// graph's data movement becomes real work only where a kernel needs another order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct View {
    /// Logical dimensions.
    pub shape: Shape,
    /// Step of each dimension in elements; 0 repeats (broadcast), negative runs backwards.
    pub strides: [isize; MAX_RANK],
    /// Element index of `(0, 0, ...)`.
    pub offset: usize,
}

impl View {
    /// The whole of a row-major buffer.
    #[must_use]
    pub fn contiguous(shape: Shape) -> Self {
        Self {
            shape,
            strides: shape.row_major_strides(),
            offset: 0,
        }
    }

    /// A logical `[N, C, H, W]` tensor stored channels-last with `pitch` elements between pixels and the
    /// channels starting at `channel_offset`: the form in which convolutions read and write, and in which a
    /// concatenation along channels is a matter of offsets.
    ///
    /// # Errors
    /// A shape that [`Shape::new`] refuses.
    pub fn channels_last(
        [n, c, h, w]: [usize; 4],
        pitch: usize,
        channel_offset: usize,
    ) -> Result<Self, TensorError> {
        let shape = Shape::new(&[n, c, h, w])?;
        Shape::new(&[n, h, w, pitch])?;
        let mut strides = [0; MAX_RANK];
        strides[..4].copy_from_slice(&[(h * w * pitch) as isize, 1, (w * pitch) as isize, pitch as isize]);
        Ok(Self {
            shape,
            strides,
            offset: channel_offset,
        })
    }

    /// Number of dimensions.
    #[must_use]
    pub const fn rank(&self) -> usize {
        self.shape.rank()
    }

    /// Strides of the existing dimensions.
    #[must_use]
    pub fn steps(&self) -> &[isize] {
        &self.strides[..self.rank()]
    }

    /// Whether the elements lie one after another in row-major order.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        let dense = self.shape.row_major_strides();
        (0..self.rank()).all(|axis| self.shape[axis] <= 1 || self.strides[axis] == dense[axis])
    }

    /// Smallest and largest element index touched, or `None` for an empty view.
    #[must_use]
    pub fn bounds(&self) -> Option<(isize, isize)> {
        if self.shape.elements() == 0 {
            return None;
        }
        let mut low = self.offset as isize;
        let mut high = low;
        for (&dim, &step) in self.shape.iter().zip(self.steps()) {
            let reach = (dim as isize - 1) * step;
            low += reach.min(0);
            high += reach.max(0);
        }
        Some((low, high))
    }

    /// Reorders the dimensions: `out[i] = in[perm[i]]`.
    ///
    /// # Errors
    /// [`TensorError::BadAxis`] if `perm` is no permutation of the axes.
    pub fn transpose(&self, perm: &[usize]) -> Result<Self, TensorError> {
        let mut seen = [false; MAX_RANK];
        let fits = perm.len() == self.rank()
            && perm
                .iter()
                .all(|&p| p < self.rank() && !std::mem::replace(&mut seen[p], true));
        if !fits {
            return Err(self.bad(format!("permutation {perm:?}")));
        }
        let mut dims = [0; MAX_RANK];
        let mut strides = [0; MAX_RANK];
        for (axis, &from) in perm.iter().enumerate() {
            dims[axis] = self.shape[from];
            strides[axis] = self.strides[from];
        }
        Ok(Self {
            shape: Shape::new(&dims[..perm.len()])?,
            strides,
            offset: self.offset,
        })
    }

    /// Keeps `count` elements of one axis: `start, start + step, ...`.
    ///
    /// # Errors
    /// [`TensorError::BadAxis`] if any kept index lies outside the axis.
    pub fn slice(&self, axis: usize, start: usize, count: usize, step: isize) -> Result<Self, TensorError> {
        let last = start as isize + (count as isize - 1) * step;
        let inside = axis < self.rank()
            && (count == 0 || (start < self.shape[axis] && (0..self.shape[axis] as isize).contains(&last)));
        if !inside {
            return Err(self.bad(format!(
                "slice {start}, step {step}, {count} elements, of axis {axis}"
            )));
        }
        let mut view = self.with_dim(axis, count)?;
        if count > 0 {
            view.offset = (self.offset as isize + start as isize * self.strides[axis]) as usize;
        }
        view.strides[axis] = self.strides[axis] * step;
        Ok(view)
    }

    /// Fixes one axis at `index` and removes it.
    ///
    /// # Errors
    /// [`TensorError::BadAxis`] for an axis or index outside the view.
    pub fn select(&self, axis: usize, index: usize) -> Result<Self, TensorError> {
        let one = self.slice(axis, index, 1, 1)?;
        let keep: Vec<usize> = (0..self.rank()).filter(|&a| a != axis).collect();
        let mut strides = [0; MAX_RANK];
        for (to, &from) in keep.iter().enumerate() {
            strides[to] = one.strides[from];
        }
        let dims: Vec<usize> = keep.iter().map(|&a| self.shape[a]).collect();
        Ok(Self {
            shape: Shape::new(&dims)?,
            strides,
            offset: one.offset,
        })
    }

    /// The same elements under other dimensions without moving them, or `None` where the strides do not
    /// allow it (or the element counts differ).
    #[must_use]
    pub fn reshape(&self, shape: Shape) -> Option<Self> {
        if shape.elements() != self.shape.elements() {
            return None;
        }
        if shape.elements() == 0 {
            return Some(Self {
                strides: shape.row_major_strides(),
                shape,
                offset: self.offset,
            });
        }
        // Pair the smallest groups of old and new axes of equal product; inside an old group the strides
        // must be those of one dense run (numpy's no-copy rule).
        let old: Vec<(usize, isize)> = self
            .shape
            .iter()
            .copied()
            .zip(self.steps().iter().copied())
            .filter(|&(dim, _)| dim != 1)
            .collect();
        let mut strides = [0; MAX_RANK];
        let (mut from, mut to) = (0, 0);
        while from < old.len() {
            let (mut old_end, mut new_end) = (from + 1, to + 1);
            let (mut old_product, mut new_product) = (old[from].0, shape[to]);
            while old_product != new_product {
                if old_product < new_product {
                    old_product *= old[old_end].0;
                    old_end += 1;
                } else {
                    new_product *= shape[new_end];
                    new_end += 1;
                }
            }
            let dense = (from..old_end - 1).all(|a| old[a].1 == old[a + 1].1 * old[a + 1].0 as isize);
            if !dense {
                return None;
            }
            let mut step = old[old_end - 1].1;
            for axis in (to..new_end).rev() {
                strides[axis] = step;
                step *= shape[axis] as isize;
            }
            (from, to) = (old_end, new_end);
        }
        Some(Self {
            shape,
            strides,
            offset: self.offset,
        })
    }

    /// Stretches dimensions of size 1 (and missing leading ones) to `shape` by repeating.
    ///
    /// # Errors
    /// [`TensorError::ShapeMismatch`] if the shapes are not broadcastable.
    pub fn broadcast_to(&self, shape: Shape) -> Result<Self, TensorError> {
        let mismatch = || TensorError::ShapeMismatch {
            expected: shape,
            found: self.shape,
        };
        let lead = shape.rank().checked_sub(self.rank()).ok_or_else(mismatch)?;
        let mut strides = [0; MAX_RANK];
        for axis in 0..self.rank() {
            strides[lead + axis] = match self.shape[axis] {
                dim if dim == shape[lead + axis] => self.strides[axis],
                1 => 0,
                _ => return Err(mismatch()),
            };
        }
        Ok(Self {
            shape,
            strides,
            offset: self.offset,
        })
    }

    fn with_dim(&self, axis: usize, dim: usize) -> Result<Self, TensorError> {
        let mut dims = [0; MAX_RANK];
        dims[..self.rank()].copy_from_slice(&self.shape);
        dims[axis] = dim;
        Ok(Self {
            shape: Shape::new(&dims[..self.rank()])?,
            ..*self
        })
    }

    fn bad(&self, what: String) -> TensorError {
        TensorError::BadAxis {
            what,
            shape: self.shape,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indices(view: &View) -> Vec<isize> {
        let mut out = vec![view.offset as isize];
        for (&dim, &step) in view.shape.iter().zip(view.steps()) {
            out = out
                .iter()
                .flat_map(|&base| (0..dim as isize).map(move |i| base + i * step))
                .collect();
        }
        out
    }

    fn view(dims: &[usize]) -> View {
        View::contiguous(Shape::new(dims).unwrap())
    }

    #[test]
    fn a_channel_shuffle_of_a_channels_last_tensor_moves_nothing() {
        let x = View::channels_last([1, 8, 3, 3], 8, 0).unwrap();
        let pairs = x.reshape(Shape::new(&[4, 2, 9]).unwrap()).unwrap();
        let halves = pairs.transpose(&[1, 0, 2]).unwrap();
        assert_eq!(halves.steps(), &[1, 2, 8]);
        let split = halves.reshape(Shape::new(&[2, 1, 4, 3, 3]).unwrap()).unwrap();
        let odd = split.select(0, 1).unwrap();
        assert_eq!((odd.offset, odd.steps()[1]), (1, 2));
    }

    #[test]
    fn a_reshape_across_a_transpose_needs_a_copy() {
        let t = view(&[2, 3]).transpose(&[1, 0]).unwrap();
        assert_eq!(t.reshape(Shape::new(&[6]).unwrap()), None);
    }

    #[test]
    fn slices_run_backwards_and_refuse_what_lies_outside() {
        let x = view(&[5]);
        assert_eq!(indices(&x.slice(0, 4, 3, -2).unwrap()), [4, 2, 0]);
        assert!(x.slice(0, 4, 3, 1).is_err());
        assert!(x.slice(1, 0, 1, 1).is_err());
        assert_eq!(x.slice(0, 1, 2, 2).unwrap().bounds(), Some((1, 3)));
    }

    #[test]
    fn broadcasting_repeats_with_stride_zero() {
        let x = view(&[3, 1])
            .broadcast_to(Shape::new(&[2, 3, 2]).unwrap())
            .unwrap();
        assert_eq!(indices(&x), [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2]);
        assert!(view(&[3]).broadcast_to(Shape::new(&[2]).unwrap()).is_err());
    }
}
