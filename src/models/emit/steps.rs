//! Single launches, out of which operations that the device does not have are put together.

use super::super::error::{NodeError, broadcast, invalid};
use super::super::lower::{Located, Lowerer};
use crate::device::{Activation, BinaryKind, OpDesc, ReduceDesc, ReduceKind};
use crate::tensor::{DType, Shape, View};
use crate::weights::{Array, ElementType, Values};

impl Lowerer<'_> {
    /// A function of every element.
    pub(super) fn apply(
        &mut self,
        name: &str,
        activation: Activation,
        src: Located,
    ) -> Result<Located, NodeError> {
        let dst = self.fresh_like(name, src.view.shape, &src)?;
        self.apply_to(name, activation, src, dst);
        Ok(dst)
    }

    /// As [`Self::apply`], to where the result belongs.
    pub(super) fn apply_to(&mut self, name: &str, activation: Activation, src: Located, dst: Located) {
        let op = OpDesc::Unary {
            src: src.operand(),
            dst: dst.operand(),
            activation,
        };
        self.launch(name, op, &[src.slot, dst.slot]);
    }

    /// A function of two values of one type, broadcast to their common shape.
    pub(super) fn combine(
        &mut self,
        name: &str,
        kind: BinaryKind,
        left: Located,
        right: Located,
    ) -> Result<Located, NodeError> {
        let shape = broadcast(&[left.view.shape, right.view.shape])?;
        let like = if left.view.shape == shape { left } else { right };
        let dst = self.fresh_like(name, shape, &like)?;
        self.combine_to(name, kind, [left, right], dst)?;
        Ok(dst)
    }

    /// As [`Self::combine`], to where the result belongs.
    pub(super) fn combine_to(
        &mut self,
        name: &str,
        kind: BinaryKind,
        [left, right]: [Located; 2],
        dst: Located,
    ) -> Result<(), NodeError> {
        let op = OpDesc::Binary {
            lhs: left.spread(dst.view.shape)?.operand(),
            rhs: right.spread(dst.view.shape)?.operand(),
            dst: dst.operand(),
            kind,
        };
        self.launch(name, op, &[left.slot, right.slot, dst.slot]);
        Ok(())
    }

    /// A reduction; the reduced axes stay with one element.
    pub(super) fn reduced(
        &mut self,
        name: &str,
        kind: ReduceKind,
        src: Located,
        axes: &[usize],
    ) -> Result<Located, NodeError> {
        let dims = src.view.shape.iter().enumerate();
        let dims: Vec<usize> = dims
            .map(|(axis, &dim)| if axes.contains(&axis) { 1 } else { dim })
            .collect();
        let shape = Shape::new(&dims)?;
        let dst = self.reserve_as(name, shape, View::contiguous(shape), src.dtype)?;
        let op = OpDesc::Reduce(ReduceDesc {
            src: src.operand(),
            dst: dst.operand(),
            kind,
        });
        self.launch(name, op, &[src.slot, dst.slot]);
        Ok(dst)
    }

    /// A number that broadcasts to any shape, in a type that operations compute in.
    pub(super) fn number(&mut self, value: f32, dtype: DType) -> Result<Located, NodeError> {
        let (element, values) = match dtype {
            // What is whole stays in float32 whatever the storage.
            DType::F32 if value.fract() == 0.0 => (ElementType::I64, Values::I64(vec![value as i64])),
            _ => (ElementType::F32, Values::F32(vec![value])),
        };
        match Array::new(Shape::new(&[])?, element, values) {
            Some(array) => self.constant(&format!("{value}"), &array),
            None => invalid("a number of another type"),
        }
    }
}

impl Located {
    /// The value, broadcast.
    pub(super) fn spread(self, shape: Shape) -> Result<Self, NodeError> {
        Ok(self.with_view(self.view.broadcast_to(shape)?))
    }
}
