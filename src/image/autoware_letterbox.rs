//! The letterbox that Autoware's `tensorrt_yolox` node computes on the GPU, bit for bit.
//!
//! Source: the `resize_bilinear_letterbox_nhwc_to_nchw32` kernels of `preprocess.cu` in `autoware_universe`.
//! They differ from every textbook resize, and detectors are deployed behind them, so the differences stay:
//!
//! - an output position `c = (i + 0.5) / scale` blends the samples left and right of it, `round(c) - 1` and
//!   the next; the weight of the right one is `(1 + round(c) - c) / 2`, between 1/4 and 3/4, and *falls* as
//!   the position moves right;
//! - a blend is `fma(w, b, fma(-w, a, a))`, and the blended columns are cut to integers before rows are
//!   blended; the end result is rounded half away from zero;
//! - positions in the last row or column take the last two samples, so a source has two at least.
//!
//! `nvcc` fuses nothing beyond the `fma`s that the source spells out: the position is rounded before it is
//! subtracted (looked up in the machine code of CUDA 12.8 for compute capability 7.5, 8.6 and 8.9).

use std::ops::Range;

use super::columns::Sampler;
use super::frame::check_size;
use super::row_pair::RowPair;
use super::sink::RowSink;
use super::source_rows::ByteRows;
use super::{BackMap, ImageError, Kernels};

/// Channels of the result: blue, green, red.
const CHANNELS: usize = 3;
/// Values per pixel between the blends of columns and of rows; the fourth is left out in the end.
pub(super) const LANES: usize = 4;

/// Fits frames of one size into a detector input as Autoware's `tensorrt_yolox` does: resized, top left. The rest of the
/// input is [`PAD_VALUE`](super::PAD_VALUE).
#[derive(Debug, Clone)]
pub struct AutowareLetterboxPlan {
    source_px: [usize; 2],
    target_px: [usize; 2],
    content_px: [usize; 2],
    scale: f32,
    columns: PairTaps,
    rows: PairTaps,
    kernels: Kernels,
}

/// For every output position the first of the two samples that it blends, and the weight of the second.
#[derive(Debug, Clone)]
pub(super) struct PairTaps {
    /// Index of the first sample, never falling from one position to the next.
    pub(super) first: Vec<u32>,
    /// Weight of the second sample.
    pub(super) weight: Vec<f32>,
}

impl PairTaps {
    /// Taps of `target` positions over `source` samples, at least two; `step` is samples per position.
    fn new(source: usize, target: usize, step: f32) -> Self {
        let (first, weight) = (0..target)
            .map(|i| {
                let position = step * (i as f32 + 0.5);
                let nearest = position.round();
                let first = (nearest as i64 - 1).clamp(0, source as i64 - 2) as u32;
                (first, (1.0 + nearest - position) / 2.0)
            })
            .unzip();
        Self { first, weight }
    }
}

impl AutowareLetterboxPlan {
    /// A plan for frames of `source_px` and an input of `target_px`, each width and height in pixels.
    ///
    /// The scale is `min(target_width / width, target_height / height)` in single precision, and the sides of
    /// the content are `int(scale * side)`: a side that should fill the target can be a pixel short.
    ///
    /// # Errors
    /// [`ImageError::BadSize`]; [`ImageError::SourceTooSmall`] for a side of one pixel, where the kernel
    /// reads outside the image; [`ImageError::ShrinksToNothing`] if a side of the content is zero.
    pub fn new(source_px: [usize; 2], target_px: [usize; 2]) -> Result<Self, ImageError> {
        for [width, height] in [source_px, target_px] {
            check_size(width, height)?;
        }
        if source_px.iter().any(|&side| side < 2) {
            return Err(ImageError::SourceTooSmall {
                source_px,
                least_px: [2, 2],
            });
        }
        let [width_ratio, height_ratio] = [0, 1].map(|i| target_px[i] as f32 / source_px[i] as f32);
        let scale = width_ratio.min(height_ratio);
        let content_px = [0, 1].map(|i| ((scale * source_px[i] as f32) as usize).min(target_px[i]));
        if content_px.contains(&0) {
            return Err(ImageError::ShrinksToNothing { source_px, target_px });
        }
        // The kernel is launched with a quotient in double, handed over as float.
        let step = (1.0 / f64::from(scale)) as f32;
        Ok(Self {
            source_px,
            target_px,
            content_px,
            scale,
            columns: PairTaps::new(source_px[0], content_px[0], step),
            rows: PairTaps::new(source_px[1], content_px[1], step),
            kernels: Kernels::detect(),
        })
    }

    /// The same plan on other kernels.
    #[must_use]
    pub fn with_kernels(mut self, kernels: Kernels) -> Self {
        self.kernels = kernels;
        self
    }

    /// Width and height of the frames that the plan takes, in pixels.
    #[must_use]
    pub const fn source_px(&self) -> [usize; 2] {
        self.source_px
    }

    /// Width and height of the detector input in pixels.
    #[must_use]
    pub const fn target_px(&self) -> [usize; 2] {
        self.target_px
    }

    /// Width and height of the part of the target that the image covers, in pixels. Autoware cuts its
    /// segmentation masks to the same part.
    #[must_use]
    pub const fn content_px(&self) -> [usize; 2] {
        self.content_px
    }

    /// Target pixels per source pixel, which the deployed decoder divides boxes by.
    #[must_use]
    pub const fn scale(&self) -> f32 {
        self.scale
    }

    /// The way back from the detector input to the source image.
    #[must_use]
    pub fn back_map(&self) -> BackMap {
        BackMap::new(self.source_px, [self.scale; 2])
    }

    /// Writes the rows `out_rows` of the content, the three channels that `sampler` picks.
    pub(super) fn rows(
        &self,
        source: &mut impl ByteRows,
        sampler: &Sampler<LANES>,
        out_rows: Range<usize>,
        scratch: &mut RowPair<Vec<f32>>,
        sink: &mut impl RowSink<u8>,
    ) {
        let values = self.content_px[0] * LANES;
        scratch.start(|row| row.resize(values, 0.0));
        for y in out_rows {
            let (first, weight) = (self.rows.first[y] as usize, self.rows.weight[y]);
            let blended = scratch.get([first, first + 1], |y, out| {
                self.kernels
                    .blend_pairs_across(source.row(y), sampler, &self.columns, out);
            });
            let blended = blended.map(Vec::as_slice);
            sink.row(y, |row| self.kernels.blend_pairs_down(blended, weight, row));
        }
    }
}

/// `out[x][lane] = trunc(fma(w, b, fma(-w, a, a)))` over neighbouring pixels `a` and `b`, from pixel `from` on.
pub(super) fn blend_pairs_across(
    row: &[u8],
    sampler: &Sampler<LANES>,
    taps: &PairTaps,
    from: usize,
    out: &mut [f32],
) {
    let pixels = out.as_chunks_mut::<LANES>().0;
    for ((pixel, &first), &weight) in pixels.iter_mut().zip(&taps.first).zip(&taps.weight).skip(from) {
        let at = first as usize * sampler.pixel_bytes;
        for (value, &byte) in pixel.iter_mut().zip(&sampler.lane_byte) {
            let (a, b) = (row[at + byte], row[at + sampler.pixel_bytes + byte]);
            *value = blend(f32::from(a), f32::from(b), weight).trunc();
        }
    }
}

/// `out = round(fma(w, lower, fma(-w, upper, upper)))`, three of four lanes a pixel, from pixel `from` on.
pub(super) fn blend_pairs_down([upper, lower]: [&[f32]; 2], weight: f32, from: usize, out: &mut [u8]) {
    let (upper, lower) = (upper.as_chunks::<LANES>().0, lower.as_chunks::<LANES>().0);
    let pixels = out.as_chunks_mut::<CHANNELS>().0;
    for ((pixel, upper), lower) in pixels.iter_mut().zip(upper).zip(lower).skip(from) {
        for ((value, &a), &b) in pixel.iter_mut().zip(upper).zip(lower) {
            *value = blend(a, b, weight).round() as u8;
        }
    }
}

fn blend(a: f32, b: f32, weight: f32) -> f32 {
    weight.mul_add(b, (-weight).mul_add(a, a))
}
