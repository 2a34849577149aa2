//! Where values are written: in the places that were decided for them, else in new buffers.

use super::{Located, Lowerer};
use crate::device::BufferClass;
use crate::models::error::{NodeError, form, invalid};
use crate::models::place::{Place, as_rows, own_layout};
use crate::models::plan::Slot;
use crate::tensor::{DType, MAX_RANK, Shape, TensorSpec, View};

impl Lowerer<'_> {
    /// A new buffer for `[N, C, H, W]` or `[N, C, L]` with the channels next to each other.
    pub(in crate::models) fn fresh_channels_last(
        &mut self,
        value: &str,
        shape: Shape,
    ) -> Result<Located, NodeError> {
        let [n, c, length] = shape[..] else {
            return self.fresh(value, shape);
        };
        let stored = Shape::new(&[n, length, c])?;
        self.reserve(value, stored, View::contiguous(stored).transpose(&[0, 2, 1])?)
    }

    /// Where to write a value by rows: its place if that has such rows, or a new row-major buffer.
    pub(in crate::models) fn destination_rows(
        &mut self,
        value: &str,
        shape: Shape,
    ) -> Result<Located, NodeError> {
        let place = self.place(value);
        match place.filter(|place| place.view.shape == shape && as_rows(&place.view).is_some()) {
            Some(place) => Ok(place),
            None => self.reserve(value, shape, View::contiguous(shape)),
        }
    }

    /// A new buffer in the layout of its rank.
    pub(in crate::models) fn fresh(&mut self, name: &str, shape: Shape) -> Result<Located, NodeError> {
        self.fresh_as(name, shape, self.storage)
    }

    /// As [`Self::fresh`], in another type.
    pub(in crate::models) fn fresh_as(
        &mut self,
        name: &str,
        shape: Shape,
        dtype: DType,
    ) -> Result<Located, NodeError> {
        let (storage_shape, view) = own_layout(shape)?;
        self.reserve_as(name, storage_shape, view, dtype)
    }

    /// A new buffer of the given size, seen through a view.
    pub(in crate::models) fn reserve(
        &mut self,
        name: &str,
        storage_shape: Shape,
        view: View,
    ) -> Result<Located, NodeError> {
        self.reserve_as(name, storage_shape, view, self.storage)
    }

    /// As [`Self::reserve`], in another type.
    pub(in crate::models) fn reserve_as(
        &mut self,
        name: &str,
        storage_shape: Shape,
        view: View,
        dtype: DType,
    ) -> Result<Located, NodeError> {
        if storage_shape.elements() == 0 {
            return form(format!("an empty tensor `{name}`"));
        }
        let spec = TensorSpec::new(&storage_shape, dtype)?;
        Ok(Located {
            slot: Slot::Buffer(self.places.reserve(name, spec, BufferClass::Intermediate)),
            dtype,
            view,
        })
    }

    /// The place where a value was decided to be.
    pub(in crate::models) fn place(&self, value: &str) -> Option<Located> {
        let Place { buffer, view } = self.places.get(value)?;
        Some(Located {
            slot: Slot::Buffer(buffer),
            dtype: self.storage,
            view,
        })
    }

    /// Where to write a value: its place, or a new buffer.
    pub(in crate::models) fn destination(&mut self, value: &str, shape: Shape) -> Result<Located, NodeError> {
        self.destination_as(value, shape, self.dtype_of(value))
    }

    /// As [`Self::destination`], in another type. Places are in the storage type.
    pub(in crate::models) fn destination_as(
        &mut self,
        value: &str,
        shape: Shape,
        dtype: DType,
    ) -> Result<Located, NodeError> {
        match self.place(value) {
            Some(place) if place.view.shape == shape && place.dtype == dtype => Ok(place),
            Some(place) => invalid(format!(
                "a result of shape {shape} where {} was expected",
                place.view.shape
            )),
            None => self.fresh_as(value, shape, dtype),
        }
    }

    /// Where to write a value that is made element by element from `source`: its place, or a new buffer in
    /// the source's order, so that both are walked along memory.
    pub(in crate::models) fn destination_like(
        &mut self,
        value: &str,
        shape: Shape,
        source: &Located,
    ) -> Result<Located, NodeError> {
        match self.place(value) {
            Some(_) => self.destination_as(value, shape, source.dtype),
            None => self.fresh_like(value, shape, source),
        }
    }

    /// A new buffer in the order and type of a value that is read with it.
    pub(in crate::models) fn fresh_like(
        &mut self,
        name: &str,
        shape: Shape,
        source: &Located,
    ) -> Result<Located, NodeError> {
        let dense = matches!(source.slot, Slot::Buffer(_))
            && source.view.shape == shape
            && (0..shape.rank()).all(|a| shape[a] == 1 || source.view.strides[a] > 0);
        if !dense {
            return self.fresh_as(name, shape, source.dtype);
        }
        let mut order: Vec<usize> = (0..shape.rank()).collect();
        // Axes of one element have no step that means anything; they go first.
        order.sort_by_key(|&a| (shape[a] != 1, std::cmp::Reverse(source.view.strides[a])));
        let mut view = View::contiguous(shape);
        view.strides = [0; MAX_RANK];
        let mut step = 1;
        for &axis in order.iter().rev() {
            view.strides[axis] = step;
            step *= shape[axis] as isize;
        }
        let dims: Vec<usize> = order.iter().map(|&a| shape[a]).collect();
        self.reserve_as(name, Shape::new(&dims)?, view, source.dtype)
    }

    /// Ends the making of a value by rows: in its place, or in a buffer of its own from which it moves there.
    pub(in crate::models) fn finish_at(&mut self, value: &str, made: Located) {
        match self.place(value) {
            Some(place) if place.slot == made.slot && place.view == made.view => self.set(value, place),
            _ => self.finish(value, made),
        }
    }

    /// Ends the making of a value that was made in `made`: it moves to its place if it has one.
    pub(in crate::models) fn finish(&mut self, value: &str, made: Located) {
        match self.place(value) {
            Some(place) => {
                self.copy(value, made, place);
                self.set(value, place);
            }
            None => self.set(value, made),
        }
    }
}
