//! Bilinear resize of floats, equal to OpenCV 4.x `resize(..., INTER_LINEAR)` on `CV_32F`.
//!
//! OpenCV has two arithmetics for it. Its x86 packages from PyPI carry Intel's IPP, which takes images of one, three
//! and four channels and computes `fma(right - left, weight, left)`; builds without IPP (Linux distributions, Arm)
//! compute `left * (1 - weight) + right * weight`. Both go over the columns first. OpenCV 5.0 has a third one.

use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use super::area;
use super::frame::check_size;
use super::row_pair::RowPair;
use super::simd::Kernels;
use super::sink::PlanarSink;
use super::{Contraction, ImageError, MAX_CHANNELS, Raster};

/// Source and target sides in whose proportion results of IPP are known to the bit.
const IPP_RATIOS: [[usize; 2]; 4] = [[1, 1], [5, 4], [7, 4], [3, 1]];

/// Samples that the vector kernels may read past the end of a row.
pub(super) const ROW_PADDING: usize = 32;

/// Left and right sample of every output position, and the weight of the right one. The last of the right samples is the
/// largest of all.
#[derive(Clone, PartialEq)]
pub(super) struct LinearTaps {
    pub(super) left: Vec<u32>,
    pub(super) right: Vec<u32>,
    pub(super) weight: Vec<f32>,
}

/// A resize of floats from one size to another.
#[derive(Debug, Clone)]
pub struct LinearF32Plan {
    source_px: [usize; 2],
    columns: LinearTaps,
    /// The columns of interleaved samples, by number of channels less one.
    interleaved: [OnceLock<LinearTaps>; MAX_CHANNELS],
    rows: LinearTaps,
    contraction: Contraction,
    kernels: Kernels,
}

/// Rows of one plane each: the source row, and the two latest rows of blended columns.
#[derive(Debug, Clone, Default)]
pub(super) struct PlanarScratch {
    source: [Vec<f32>; 3],
    blended: RowPair<[Vec<f32>; 3]>,
}

impl LinearTaps {
    /// Taps along x. Positions outside take the border sample alone.
    fn columns(source: usize, target: usize) -> Self {
        Self::new(source, target, |weight, inside| if inside { weight } else { 0.0 })
    }

    /// Taps along y. Positions outside blend the border sample with itself.
    fn rows(source: usize, target: usize) -> Self {
        Self::new(source, target, |weight, _| weight)
    }

    fn new(source: usize, target: usize, keep: impl Fn(f32, bool) -> f32) -> Self {
        let scale = area::scale(source, target);
        let last = source as i64 - 1;
        let mut taps = Self {
            left: Vec::with_capacity(target),
            right: Vec::with_capacity(target),
            weight: Vec::with_capacity(target),
        };
        for i in 0..target {
            let position = ((i as f64 + 0.5) * scale - 0.5) as f32;
            let floor = position.floor();
            let index = floor as i64;
            taps.left.push(index.clamp(0, last) as u32);
            taps.right.push((index + 1).clamp(0, last) as u32);
            taps.weight
                .push(keep(position - floor, (0..last).contains(&index)));
        }
        taps
    }

    /// The two samples of a position.
    fn pair(&self, i: usize) -> [usize; 2] {
        [self.left[i], self.right[i]].map(|index| index as usize)
    }

    /// The taps of the samples of pixels with several channels.
    fn interleaved(&self, channels: usize) -> Self {
        let samples = |taps: &[u32]| {
            let each = |&tap: &u32| (0..channels as u32).map(move |channel| tap * channels as u32 + channel);
            taps.iter().flat_map(each).collect()
        };
        Self {
            left: samples(&self.left),
            right: samples(&self.right),
            weight: self
                .weight
                .iter()
                .flat_map(|&weight| std::iter::repeat_n(weight, channels))
                .collect(),
        }
    }
}

impl fmt::Debug for LinearTaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} taps", self.left.len())
    }
}

impl LinearF32Plan {
    /// A plan from `source_px` to `target_px`, each width and height in pixels.
    ///
    /// # Errors
    /// [`ImageError::BadSize`], and [`ImageError::UnverifiedScale`] where OpenCV's own result is not known to the
    /// bit: an exact halving of both sides, and with [`Contraction::Fused`] every scale but 1, 4/5, 4/7 and 1/3. Of others
    /// IPP computes the weights, or the last columns, in another way.
    pub fn new(
        source_px: [usize; 2],
        target_px: [usize; 2],
        contraction: Contraction,
    ) -> Result<Self, ImageError> {
        for [width, height] in [source_px, target_px] {
            check_size(width, height)?;
        }
        let columns = LinearTaps::columns(source_px[0], target_px[0]);
        let rows = LinearTaps::rows(source_px[1], target_px[1]);
        let halves = source_px == target_px.map(|side| 2 * side);
        let known = contraction == Contraction::Separate
            || IPP_RATIOS.iter().any(|[from, to]| {
                [0, 1].map(|side| source_px[side] * to == target_px[side] * from) == [true; 2]
            });
        if halves || !known {
            return Err(ImageError::UnverifiedScale { source_px, target_px });
        }
        Ok(Self {
            source_px,
            columns,
            interleaved: Default::default(),
            rows,
            contraction,
            kernels: Kernels::detect(),
        })
    }

    /// The same plan on other kernels.
    #[must_use]
    pub fn with_kernels(mut self, kernels: Kernels) -> Self {
        self.kernels = kernels;
        self
    }

    /// Width and height of the source in pixels.
    #[must_use]
    pub const fn source_px(&self) -> [usize; 2] {
        self.source_px
    }

    /// Width and height of the result in pixels.
    #[must_use]
    pub const fn target_px(&self) -> [usize; 2] {
        [self.columns.left.len(), self.rows.left.len()]
    }

    /// Resizes `raster` into `out`, `[height, width, channels]` without padding.
    ///
    /// # Errors
    /// [`ImageError::SizeMismatch`] or [`ImageError::OutputLength`].
    pub fn apply(&self, raster: Raster<'_, f32>, out: &mut [f32]) -> Result<(), ImageError> {
        let (expected, found) = (self.source_px, raster.size_px());
        if expected != found {
            return Err(ImageError::SizeMismatch { expected, found });
        }
        let [width, height] = self.target_px();
        let channels = raster.channels();
        let (expected, found) = (width * height * channels, out.len());
        if expected != found {
            return Err(ImageError::OutputLength { expected, found });
        }
        let columns = self.interleaved[channels - 1].get_or_init(|| self.columns.interleaved(channels));
        let row_len = width * channels;
        let mut blended = RowPair::<Vec<f32>>::default();
        blended.start(|row| row.resize(row_len, 0.0));
        for (y, out) in out.chunks_exact_mut(row_len).enumerate() {
            let [upper, lower] = blended.get(self.rows.pair(y), |row, blended| {
                self.kernels
                    .blend_columns_f32(raster.row(row), columns, self.contraction, blended);
            });
            self.kernels
                .blend_rows_f32(upper, lower, self.rows.weight[y], self.contraction, out);
        }
        Ok(())
    }

    /// Writes the rows `out_rows` of the result, three planes of it. `fill` gets a source row and where its samples go,
    /// plane by plane.
    pub(super) fn planes(
        &self,
        mut fill: impl FnMut(usize, [&mut [f32]; 3]),
        out_rows: Range<usize>,
        scratch: &mut PlanarScratch,
        sink: &mut impl PlanarSink,
    ) {
        let [source_width, width] = [self.source_px[0], self.columns.left.len()];
        let PlanarScratch { source, blended } = scratch;
        for row in source.iter_mut() {
            row.resize(source_width + ROW_PADDING, 0.0);
        }
        blended.start(|planes| planes.iter_mut().for_each(|row| row.resize(width, 0.0)));
        for y in out_rows {
            let [upper, lower] = blended.get(self.rows.pair(y), |row, blended| {
                fill(row, source.each_mut().map(|plane| &mut plane[..source_width]));
                for (plane, out) in source.iter().zip(blended) {
                    self.kernels
                        .blend_columns_f32(plane, &self.columns, self.contraction, out);
                }
            });
            let weight = self.rows.weight[y];
            sink.planes(y, |out| {
                for ((out, upper), lower) in out.into_iter().zip(upper).zip(lower) {
                    self.kernels
                        .blend_rows_f32(upper, lower, weight, self.contraction, out);
                }
            });
        }
    }
}

/// `left` and `right`, `weight` of the way from one to the other.
pub(super) fn blend(left: f32, right: f32, weight: f32, contraction: Contraction) -> f32 {
    match contraction {
        Contraction::Fused => (right - left).mul_add(weight, left),
        Contraction::Separate => left * (1.0 - weight) + right * weight,
    }
}

/// Columns of one row of one plane, from output column `done` on.
pub(super) fn blend_columns(
    row: &[f32],
    taps: &LinearTaps,
    contraction: Contraction,
    done: usize,
    out: &mut [f32],
) {
    let taps = taps.left.iter().zip(&taps.right).zip(&taps.weight);
    for (value, ((&left, &right), &weight)) in out.iter_mut().zip(taps).skip(done) {
        *value = blend(row[left as usize], row[right as usize], weight, contraction);
    }
}

/// Blends two rows of columns, from column `done` on.
pub(super) fn blend_rows(
    upper: &[f32],
    lower: &[f32],
    weight: f32,
    contraction: Contraction,
    done: usize,
    out: &mut [f32],
) {
    for ((value, &upper), &lower) in out.iter_mut().zip(upper).zip(lower).skip(done) {
        *value = blend(upper, lower, weight, contraction);
    }
}
