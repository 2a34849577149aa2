//! Window geometry of convolutions and poolings.

use std::ops::Range;

use super::check::{Image, ensure};
use crate::device::{DeviceError, Geometry2d};

/// Largest window side, stride, dilation and padding.
const MAX_WINDOW: usize = 1 << 12;

/// A checked window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) kernel: [usize; 2],
    pub(super) stride: [isize; 2],
    pub(super) dilation: [isize; 2],
    pub(super) pad: [isize; 2],
}

impl Window {
    /// Checks a geometry against the images it maps between.
    ///
    /// The output may be as long as a padding behind the image of up to one window and one stride (or the
    /// padding in front, if longer) makes it, and not so short that a further window would fit without any.
    pub(super) fn new(
        op: &'static str,
        geometry: &Geometry2d,
        input: &Image,
        output: &Image,
    ) -> Result<Self, DeviceError> {
        let sides = [("rows", 0, input.h, output.h), ("columns", 1, input.w, output.w)];
        for (name, axis, size, out_size) in sides {
            let kernel = geometry.kernel[axis];
            let (stride, dilation) = (geometry.stride[axis], geometry.dilation[axis]);
            let pad = geometry.pad_begin[axis];
            ensure(kernel >= 1 && stride >= 1 && dilation >= 1, op, || {
                format!("{name}: kernel {kernel}, stride {stride}, dilation {dilation} must be at least 1")
            })?;
            ensure(
                [kernel, stride, dilation, pad].iter().all(|&x| x <= MAX_WINDOW),
                op,
                || {
                    format!(
                        "{name}: kernel {kernel}, stride {stride}, dilation {dilation} or padding {pad} is above \
                     the supported {MAX_WINDOW}"
                    )
                },
            )?;
            let reach = (kernel as i128 - 1) * dilation as i128 + 1;
            let fixed = size as i128 + pad as i128 - reach;
            let last = (out_size as i128 - 1) * stride as i128;
            let behind = last - fixed;
            ensure(
                -behind < stride as i128 && behind < (reach + stride as i128).max(pad as i128 + 1),
                op,
                || {
                    format!(
                        "{name}: {out_size} outputs do not follow from {size} inputs, kernel {kernel}, stride \
                         {stride}, dilation {dilation}, padding {pad}"
                    )
                },
            )?;
        }
        let signed = |pair: [usize; 2]| pair.map(|x| x as isize);
        Ok(Self {
            kernel: geometry.kernel,
            stride: signed(geometry.stride),
            dilation: signed(geometry.dilation),
            pad: signed(geometry.pad_begin),
        })
    }

    /// Number of taps.
    pub(super) const fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Whether each output pixel reads just the input pixel of the same index.
    pub(super) const fn is_pointwise(&self) -> bool {
        let [rows, columns] = self.stride;
        self.taps() == 1 && rows == 1 && columns == 1 && self.pad[0] == 0 && self.pad[1] == 0
    }

    /// First input index of output index `out` along an axis; may lie outside the image.
    #[inline]
    pub(super) const fn start(&self, axis: usize, out: usize) -> isize {
        out as isize * self.stride[axis] - self.pad[axis]
    }

    /// Input index of one tap, if inside `0..size`.
    #[inline]
    pub(super) fn tap(&self, axis: usize, out: usize, tap: usize, size: usize) -> Option<usize> {
        let index = self.start(axis, out) + tap as isize * self.dilation[axis];
        usize::try_from(index).ok().filter(|&i| i < size)
    }

    /// Output columns all of whose taps lie inside the image.
    pub(super) fn interior(&self, width: usize, out_width: usize) -> Range<usize> {
        let inside = |x: usize| {
            let first = self.start(1, x);
            first >= 0 && first + (self.kernel[1] as isize - 1) * self.dilation[1] < width as isize
        };
        let begin = (0..out_width).find(|&x| inside(x)).unwrap_or(out_width);
        let end = (begin..out_width).find(|&x| !inside(x)).unwrap_or(out_width);
        begin..end
    }

    /// Input columns between the first and last that `count` neighbouring outputs read, both included.
    pub(super) const fn span(&self, count: usize) -> usize {
        ((count as isize - 1) * self.stride[1] + (self.kernel[1] as isize - 1) * self.dilation[1] + 1)
            as usize
    }
}
