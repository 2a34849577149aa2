//! What a description must satisfy before a kernel is prepared for it. Descriptions are not trusted: every
//! sum and product is checked.

use crate::device::{DeviceError, Operand};
use crate::tensor::{DType, View};

/// Largest channel count, and longest softmax: far above any network, low enough for the zeros and rows that
/// kernels keep of that length.
pub(super) const MAX_CHANNELS: usize = 1 << 20;

/// Most scratch memory that one thread may be asked for, in bytes.
pub(super) const MAX_SCRATCH: usize = 1 << 28;

/// A refusal.
pub(super) fn invalid(op: &'static str, reason: impl Into<String>) -> DeviceError {
    DeviceError::InvalidOp {
        op,
        reason: reason.into(),
    }
}

/// Refuses unless `holds`.
pub(super) fn ensure(
    holds: bool,
    op: &'static str,
    reason: impl FnOnce() -> String,
) -> Result<(), DeviceError> {
    if holds { Ok(()) } else { Err(invalid(op, reason())) }
}

/// Bytes from the start of the buffer to the last element that the operand touches (0 for an empty view).
pub(super) fn required_bytes(op: &'static str, name: &str, operand: &Operand) -> Result<usize, DeviceError> {
    let view = &operand.view;
    if view.shape.elements() == 0 {
        return Ok(0);
    }
    let mut low = view.offset as i128;
    let mut high = low;
    for (&dim, &step) in view.shape.iter().zip(view.steps()) {
        let reach = (dim as i128 - 1) * step as i128;
        low += reach.min(0);
        high += reach.max(0);
    }
    ensure(low >= 0, op, || {
        format!("{name} reaches element {low}, before its buffer")
    })?;
    let bytes = (high + 1) * operand.dtype.size_bytes() as i128;
    usize::try_from(bytes)
        .ok()
        .filter(|&b| isize::try_from(b).is_ok())
        .ok_or_else(|| invalid(op, format!("{name} reaches beyond the address space")))
}

/// Refuses a destination in which two logical elements may share one place: threads would race for it. The
/// test is sufficient and holds for every view made by slicing and permuting a dense buffer.
pub(super) fn writes_each_place_once(
    op: &'static str,
    name: &str,
    operand: &Operand,
) -> Result<(), DeviceError> {
    let view = &operand.view;
    if view.shape.elements() == 0 {
        return Ok(());
    }
    let mut axes: Vec<(u128, u128)> = view
        .shape
        .iter()
        .zip(view.steps())
        .filter(|&(&dim, _)| dim > 1)
        .map(|(&dim, &step)| (step.unsigned_abs() as u128, dim as u128))
        .collect();
    axes.sort_unstable();
    let mut span = 0;
    for (step, dim) in axes {
        ensure(step > span, op, || {
            format!("{name} may write one place twice (strides {:?})", view.steps())
        })?;
        span += step * (dim - 1);
    }
    Ok(())
}

/// Both views must have one shape.
pub(super) fn same_shape(
    op: &'static str,
    (name, view): (&str, &View),
    (other_name, other): (&str, &View),
) -> Result<(), DeviceError> {
    ensure(view.shape == other.shape, op, || {
        format!("{name} has shape {}, {other_name} {}", view.shape, other.shape)
    })
}

/// All operands must hold one of the two storage types, the same one.
pub(super) fn storage(op: &'static str, operands: &[(&str, &Operand)]) -> Result<DType, DeviceError> {
    let (_, first) = operands[0];
    for (name, operand) in operands {
        ensure(matches!(operand.dtype, DType::F32 | DType::Bf16), op, || {
            format!(
                "{name} holds {}; only float32 and bfloat16 are computed with",
                operand.dtype
            )
        })?;
        ensure(operand.dtype == first.dtype, op, || {
            format!(
                "{name} holds {}, {} holds {}: convert with a copy first",
                operand.dtype, operands[0].0, first.dtype
            )
        })?;
    }
    Ok(first.dtype)
}

/// A `[N, C, H, W]` view whose channels lie next to each other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Image {
    pub(super) n: usize,
    pub(super) c: usize,
    pub(super) h: usize,
    pub(super) w: usize,
    /// Elements from one image to the next.
    pub(super) image_step: isize,
    /// Elements from one row to the next.
    pub(super) row_step: isize,
    /// Elements from one pixel to the next.
    pub(super) pixel_step: isize,
    /// Element of the first pixel's first channel.
    pub(super) offset: isize,
}

impl Image {
    /// Reads an operand as an image. No dimension may be zero.
    pub(super) fn new(op: &'static str, name: &str, operand: &Operand) -> Result<Self, DeviceError> {
        let view = &operand.view;
        ensure(view.rank() == 4, op, || {
            format!("{name} has shape {}, expected [N, C, H, W]", view.shape)
        })?;
        ensure(view.shape.elements() > 0, op, || {
            format!("{name} is empty: {}", view.shape)
        })?;
        let [n, c, h, w] = [0, 1, 2, 3].map(|axis| view.shape[axis]);
        ensure(c <= MAX_CHANNELS, op, || {
            format!("{name} has {c} channels, above the supported {MAX_CHANNELS}")
        })?;
        ensure(c == 1 || view.strides[1] == 1, op, || {
            format!(
                "{name} has channel stride {}; channels must lie next to each other (channels-last)",
                view.strides[1]
            )
        })?;
        required_bytes(op, name, operand)?;
        Ok(Self {
            n,
            c,
            h,
            w,
            image_step: view.strides[0],
            row_step: view.strides[2],
            pixel_step: view.strides[3],
            offset: view.offset as isize,
        })
    }

    /// Element of pixel `(0, 0)` of row `row`, counted over all images (`row = image * h + y`).
    #[inline]
    pub(super) const fn row(&self, row: usize) -> isize {
        let (image, y) = (row / self.h, row % self.h);
        self.offset + image as isize * self.image_step + y as isize * self.row_step
    }

    /// Whether all pixels of all images lie at equal distances, as one long row.
    pub(super) const fn is_one_row(&self) -> bool {
        let rows = self.h == 1 || self.row_step == self.w as isize * self.pixel_step;
        let images = self.n == 1 || self.image_step == (self.h * self.w) as isize * self.pixel_step;
        rows && images
    }

    /// The same pixels as one row. Only where [`Self::is_one_row`].
    pub(super) const fn as_one_row(self) -> Self {
        Self {
            n: 1,
            h: 1,
            w: self.n * self.h * self.w,
            ..self
        }
    }
}
