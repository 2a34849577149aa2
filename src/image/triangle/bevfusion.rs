//! The camera branch of BEVFusion: the means, cut to bytes.

use std::ops::Range;

use super::super::columns::Sampler;
use super::super::sink::RowSink;
use super::super::source_rows::ByteRows;
use super::super::{Contraction, ImageError, Kernels};
use super::TriangleGeometry;
use super::resize::{TriangleResize, TriangleScratch};

/// Channels of the result.
const CHANNELS: usize = 3;

/// Turns frames of one size into the camera input of Autoware's `bevfusion` node: resized with a triangle
/// filter by fixed factors, cropped at the top and on both sides, each mean cut (not rounded) to a byte.
/// Nothing is normalised: the deployed network takes bytes and does that itself.
///
/// The cut shows: a mean of equal pixels can come out just below them, so flat images lose one in places.
#[derive(Debug, Clone)]
pub struct BevfusionCameraPlan {
    resize: TriangleResize,
}

impl BevfusionCameraPlan {
    /// A plan for frames of `source_px` and a result of `target_px` (the node's `roi_width`, `roi_height`), each
    /// width and height in pixels, with the node's `img_aug_scale_x` and `img_aug_scale_y`.
    ///
    /// # Errors
    /// As [`TriangleGeometry::scaled`].
    pub fn new(
        source_px: [usize; 2],
        target_px: [usize; 2],
        scale: [f32; 2],
        contraction: Contraction,
    ) -> Result<Self, ImageError> {
        let geometry = TriangleGeometry::scaled(source_px, target_px, scale)?;
        Ok(Self {
            resize: TriangleResize::new(geometry, contraction),
        })
    }

    /// The same plan on other kernels.
    #[must_use]
    pub fn with_kernels(mut self, kernels: Kernels) -> Self {
        self.resize = self.resize.with_kernels(kernels);
        self
    }

    /// Where the result lies in the resized frame.
    #[must_use]
    pub const fn geometry(&self) -> &TriangleGeometry {
        &self.resize.geometry
    }

    /// Writes the rows `out_rows` of the result, the three channels that `sampler` picks, interleaved.
    pub(in crate::image) fn rows(
        &self,
        source: &mut impl ByteRows,
        sampler: &Sampler<4>,
        out_rows: Range<usize>,
        scratch: &mut TriangleScratch,
        sink: &mut impl RowSink<u8>,
    ) {
        self.resize
            .means(source, sampler, out_rows, scratch, |y, [first, second, third]| {
                sink.row(y, |row| {
                    let planes = first.iter().zip(second).zip(third);
                    for (pixel, ((&a, &b), &c)) in row.as_chunks_mut::<CHANNELS>().0.iter_mut().zip(planes) {
                        *pixel = [a as u8, b as u8, c as u8];
                    }
                });
            });
    }
}
