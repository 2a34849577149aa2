//! Kernel, stride, padding and dilation of a sparse convolution, each along x, y and z.

use super::error::SparseError;

/// Most cells along an axis, and the largest kernel, stride, padding and dilation: sums of products of two of them are
/// exact in 64 bits.
pub(super) const MAX_AXIS: usize = (1 << 30) - 1;

/// Most taps of a kernel.
pub(super) const MAX_TAPS: usize = 1 << 12;

/// Geometry of one layer, `[x, y, z]` each. Output `o` sees input `o * stride - padding + tap * dilation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SparseWindow {
    kernel: [usize; 3],
    stride: [usize; 3],
    padding: [usize; 3],
    dilation: [usize; 3],
}

impl SparseWindow {
    /// Checks a geometry.
    ///
    /// # Errors
    /// [`SparseError::Window`], [`SparseError::Padding`], [`SparseError::KernelVolume`].
    pub fn new(
        kernel: [usize; 3],
        stride: [usize; 3],
        padding: [usize; 3],
        dilation: [usize; 3],
    ) -> Result<Self, SparseError> {
        for (what, found) in [("kernel", kernel), ("stride", stride), ("dilation", dilation)] {
            if found.iter().any(|v| !(1..=MAX_AXIS).contains(v)) {
                return Err(SparseError::Window { what, found });
            }
        }
        if padding.iter().any(|&v| v > MAX_AXIS) {
            return Err(SparseError::Padding { found: padding });
        }
        let volume = kernel
            .iter()
            .try_fold(1_usize, |volume, &k| volume.checked_mul(k));
        if volume.is_none_or(|volume| volume > MAX_TAPS) {
            return Err(SparseError::KernelVolume { kernel });
        }
        Ok(Self {
            kernel,
            stride,
            padding,
            dilation,
        })
    }

    /// The geometry of a sub-manifold layer: stride 1, padding `kernel / 2 * dilation`.
    ///
    /// # Errors
    /// As [`SparseWindow::new`].
    pub fn submanifold(kernel: [usize; 3], dilation: [usize; 3]) -> Result<Self, SparseError> {
        let checked = Self::new(kernel, [1; 3], [0; 3], dilation)?;
        let padding = [0, 1, 2].map(|axis| kernel[axis] / 2 * dilation[axis]);
        Self::new(checked.kernel, checked.stride, padding, dilation)
    }

    /// Kernel size.
    #[must_use]
    pub const fn kernel(&self) -> [usize; 3] {
        self.kernel
    }

    /// Step from one output to the next.
    #[must_use]
    pub const fn stride(&self) -> [usize; 3] {
        self.stride
    }

    /// Cells before the first and behind the last of the grid.
    #[must_use]
    pub const fn padding(&self) -> [usize; 3] {
        self.padding
    }

    /// Step from one tap to the next.
    #[must_use]
    pub const fn dilation(&self) -> [usize; 3] {
        self.dilation
    }

    /// Taps of the kernel.
    #[must_use]
    pub const fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1] * self.kernel[2]
    }

    /// The input coordinate that output coordinate `output` sees through tap `tap` of an axis.
    pub(super) const fn input(&self, axis: usize, output: i64, tap: usize) -> i64 {
        output * self.stride[axis] as i64 - self.padding[axis] as i64
            + tap as i64 * self.dilation[axis] as i64
    }

    /// The output coordinate that sees input coordinate `input` through tap `tap` of an axis of `cells` outputs.
    #[inline(always)]
    pub(super) const fn output(&self, axis: usize, input: i64, tap: usize, cells: usize) -> Option<i64> {
        let shifted = input + self.padding[axis] as i64 - tap as i64 * self.dilation[axis] as i64;
        let stride = self.stride[axis] as i64;
        let (output, rest) = if self.stride[axis].is_power_of_two() {
            (
                shifted >> self.stride[axis].trailing_zeros(),
                shifted & (stride - 1),
            )
        } else {
            (shifted.div_euclid(stride), shifted.rem_euclid(stride))
        };
        if rest == 0 && 0 <= output && output < cells as i64 {
            Some(output)
        } else {
            None
        }
    }
}

/// Checks the cells of a grid: linear numbers of cells are exact in signed 64 bits.
pub(super) fn check_shape(shape: [usize; 3]) -> Result<[usize; 3], SparseError> {
    let axes = shape.iter().all(|cells| (1..=MAX_AXIS).contains(cells));
    let cells = shape
        .iter()
        .try_fold(1_i64, |all, &cells| all.checked_mul(cells as i64));
    if axes && cells.is_some() {
        Ok(shape)
    } else {
        Err(SparseError::Shape { shape })
    }
}

/// Cells of the output grid: `(in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1` along each axis.
///
/// # Errors
/// [`SparseError::NoOutput`] where the kernel does not fit, [`SparseError::Shape`] for a grid that cannot be.
pub fn conv_out_shape(shape: [usize; 3], window: &SparseWindow) -> Result<[usize; 3], SparseError> {
    check_shape(shape)?;
    let mut out = [0; 3];
    for axis in 0..3 {
        let (kernel, dilation) = (window.kernel[axis], window.dilation[axis]);
        let padded = shape[axis] + 2 * window.padding[axis];
        let Some(room) = padded.checked_sub(dilation * (kernel - 1) + 1) else {
            return Err(SparseError::NoOutput {
                axis,
                cells: shape[axis],
                kernel,
                padding: window.padding[axis],
                dilation,
            });
        };
        out[axis] = room / window.stride[axis] + 1;
    }
    check_shape(out)
}

/// Taps of a kernel in the order of their numbers: z fastest.
pub fn iter_taps(kernel: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    let [x, y, z] = kernel;
    (0..x).flat_map(move |a| (0..y).flat_map(move |b| (0..z).map(move |c| [a, b, c])))
}

/// Offsets from the middle of a kernel, `(tap - kernel / 2) * dilation`, in the order of taps.
///
/// # Errors
/// As [`SparseWindow::new`].
pub fn kernel_offsets(kernel: [usize; 3], dilation: [usize; 3]) -> Result<Vec<[i32; 3]>, SparseError> {
    let window = SparseWindow::submanifold(kernel, dilation)?;
    // Fits: kernel and dilation were checked, and so was their product as a padding, which is the farthest offset.
    let offset = |tap: [usize; 3]| [0, 1, 2].map(|axis| window.input(axis, 0, tap[axis]) as i32);
    Ok(iter_taps(kernel).map(offset).collect())
}
