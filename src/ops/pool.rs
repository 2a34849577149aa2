//! Poolings of feature maps.

use super::{DeviceTensor, OpContext, OpRefusal};
use crate::device::{Geometry2d, OpDesc, Pool2dDesc, PoolKind};

const OP: &str = "max_pool";

/// A maximum over windows, `[rows, columns]`. Padding never wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MaxPool {
    /// Window size.
    pub kernel: [usize; 2],
    /// Step between windows.
    pub stride: [usize; 2],
    /// Padding above, below, left and right.
    pub padding: [usize; 4],
}

impl MaxPool {
    /// Behind the first layer of a residual network: 3 x 3 in steps of 2 with a padding of 1.
    pub const STEM: Self = Self::square(3, 2, 1);

    /// The same for rows and columns.
    #[must_use]
    pub const fn square(kernel: usize, stride: usize, padding: usize) -> Self {
        Self {
            kernel: [kernel; 2],
            stride: [stride; 2],
            padding: [padding; 4],
        }
    }

    /// Rows and columns of the output: `(size + padding - kernel) / stride + 1`, rounded down. `None` where no window fits,
    /// or one could hold padding only.
    #[must_use]
    pub fn out_size(&self, size: [usize; 2]) -> Option<[usize; 2]> {
        let [top, bottom, left, right] = self.padding;
        let side = |axis: usize, before: usize, after: usize| {
            let (kernel, stride) = (self.kernel[axis], self.stride[axis]);
            if stride == 0 || before >= kernel || after >= kernel {
                return None;
            }
            let padded = size[axis].checked_add(before)?.checked_add(after)?;
            let room = padded.checked_sub(kernel)?;
            Some(room / stride + 1)
        };
        Some([side(0, top, bottom)?, side(1, left, right)?])
    }

    /// The maxima of a map `[N, C, H, W]`, of its type; freed by the caller.
    ///
    /// # Errors
    /// [`OpRefusal`]; nothing stays allocated.
    pub fn forward(&self, ops: &mut OpContext<'_>, map: &DeviceTensor) -> Result<DeviceTensor, OpRefusal> {
        let shape = map.view.shape;
        let sized = match shape[..] {
            [n, c, h, w] => self.out_size([h, w]).map(|size| (n, c, size)),
            _ => None,
        };
        let Some((n, c, [height, width])) = sized else {
            let expected = format!("[N, C, H, W] with room for {self:?}");
            return Err(OpRefusal::shape(OP, "the map", shape, expected));
        };
        let [top, _, left, _] = self.padding;
        ops.make_map(OP, [n, c, height, width], map.dtype, |ops, output| {
            let desc = Pool2dDesc {
                input: map.operand(),
                output: output.operand(),
                geometry: Geometry2d {
                    kernel: self.kernel,
                    stride: self.stride,
                    dilation: [1; 2],
                    pad_begin: [top, left],
                },
                kind: PoolKind::Max,
            };
            ops.run(&OpDesc::Pool2d(desc), &[map.buffer, output.buffer])
                .map_err(OpRefusal::device(OP))
        })
    }
}
