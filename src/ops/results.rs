//! Tensors that an operation makes: there before it is launched, and gone if it is refused.

use super::{DeviceTensor, OpContext, OpRefusal};
use crate::device::BufferClass;
use crate::tensor::{DType, Shape, TensorSpec};

impl DeviceTensor {
    /// A tensor `[N, H, W, C]`, or one of other dimensions that can be seen so, as a feature map `[N, C, H, W]`. `None`
    /// where the elements do not lie so.
    #[must_use]
    pub fn as_feature_map(&self, [n, h, w, c]: [usize; 4]) -> Option<Self> {
        let shape = Shape::new(&[n, h, w, c]).ok()?;
        let view = self.view.reshape(shape)?.transpose(&[0, 3, 1, 2]).ok()?;
        Some(Self { view, ..*self })
    }

    /// The same elements under other dimensions; `None` where they do not lie so.
    #[must_use]
    pub(super) fn reshape(&self, dims: &[usize]) -> Option<Self> {
        let view = self.view.reshape(Shape::new(dims).ok()?)?;
        Some(Self { view, ..*self })
    }

    /// `[.., R, C]` as `[R, C]`; `None` where the rows do not lie at equal distances.
    #[must_use]
    pub(super) fn as_rows(&self) -> Option<Self> {
        let (&columns, front) = self.view.shape.split_last()?;
        self.reshape(&[front.iter().product(), columns])
    }
}

impl OpContext<'_> {
    /// A dense intermediate tensor that `launch` writes; freed if it fails.
    pub(super) fn make(
        &mut self,
        op: &'static str,
        dims: &[usize],
        dtype: DType,
        launch: impl FnOnce(&mut Self, &DeviceTensor) -> Result<(), OpRefusal>,
    ) -> Result<DeviceTensor, OpRefusal> {
        let spec = TensorSpec::new(dims, dtype).map_err(OpRefusal::tensor(op))?;
        let made = self
            .alloc(&spec, BufferClass::Intermediate)
            .map_err(OpRefusal::device(op))?;
        match launch(self, &made) {
            Ok(()) => Ok(made),
            Err(error) => {
                self.discard(&[made]);
                Err(error)
            }
        }
    }

    /// As [`OpContext::make`], for a feature map `[N, C, H, W]`, stored `[N, H, W, C]`.
    pub(super) fn make_map(
        &mut self,
        op: &'static str,
        [n, c, h, w]: [usize; 4],
        dtype: DType,
        launch: impl FnOnce(&mut Self, &DeviceTensor) -> Result<(), OpRefusal>,
    ) -> Result<DeviceTensor, OpRefusal> {
        let mut map = None;
        self.make(op, &[n, h, w, c], dtype, |ops, stored| {
            let seen = stored.as_feature_map([n, h, w, c]);
            let seen = seen.ok_or_else(|| OpRefusal::shape(op, "the result", stored.view.shape, "a map"))?;
            map = Some(seen);
            launch(ops, &seen)
        })
        .map(|stored| map.unwrap_or(stored))
    }

    /// Frees tensors of an operation that is given up; a device that cannot take one back says so on the next call.
    pub(super) fn discard(&mut self, tensors: &[DeviceTensor]) {
        for tensor in tensors {
            if let Err(error) = self.free(tensor) {
                tracing::debug!(%error, "a buffer could not be returned");
            }
        }
    }
}
