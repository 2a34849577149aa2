//! The camera branch of BEVFusion: the means, cut to bytes.

use std::ops::Range;

use super::super::columns::Sampler;
use super::super::planes::{PlanarRows, check_length};
use super::super::resize::ResizeScratch;
use super::super::sink::RowSink;
use super::super::source_rows::{ByteRows, SourceRows};
use super::super::{Contraction, ImageError, ImageRef, Kernels, Workspace};
use super::TriangleGeometry;
use super::resize::TriangleResize;

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
    red_first: bool,
}

impl BevfusionCameraPlan {
    /// A plan for frames of `source_px` and a result of `target_px` (the node's `roi_width`, `roi_height`), each
    /// width and height in pixels, with the node's `img_aug_scale_x` and `img_aug_scale_y`. Channels are blue,
    /// green, red.
    ///
    /// # Errors
    /// As [`TriangleGeometry::scaled`].
    pub fn new(source_px: [usize; 2], target_px: [usize; 2], scale: [f32; 2]) -> Result<Self, ImageError> {
        let geometry = TriangleGeometry::scaled(source_px, target_px, scale)?;
        Ok(Self {
            resize: TriangleResize::new(geometry, Contraction::default()),
            red_first: false,
        })
    }

    /// The same plan with channels red, green, blue: what the node makes of `bgr8` messages with
    /// `flip_image_channels`.
    #[must_use]
    pub fn with_red_first(mut self) -> Self {
        self.red_first = true;
        self
    }

    /// The same plan on other kernels.
    #[must_use]
    pub fn with_kernels(mut self, kernels: Kernels) -> Self {
        self.resize = self.resize.with_kernels(kernels);
        self
    }

    /// The same plan for a kernel that was built otherwise.
    #[must_use]
    pub fn with_contraction(mut self, contraction: Contraction) -> Self {
        self.resize = self.resize.with_contraction(contraction);
        self
    }

    /// Where the result lies in the resized frame.
    #[must_use]
    pub const fn geometry(&self) -> &TriangleGeometry {
        &self.resize.geometry
    }

    /// Bytes of the result: `3 * target_height * target_width`.
    #[must_use]
    pub const fn output_len(&self) -> usize {
        let [width, height] = self.resize.geometry.crop_px;
        CHANNELS * width * height
    }

    /// Writes the network input for `image`, channel, height, width.
    ///
    /// # Errors
    /// [`ImageError::SizeMismatch`] if the frame has another size than the plan, and
    /// [`ImageError::OutputLength`] if `out` is not [`Self::output_len`] long.
    pub fn apply(
        &self,
        image: &ImageRef<'_>,
        out: &mut [u8],
        workspace: &mut Workspace,
    ) -> Result<(), ImageError> {
        check_length(out, self.output_len())?;
        let mut source = SourceRows::new(*image, self.resize.kernels, &mut workspace.converted);
        self.resize.check_source(&source)?;
        let mut sampler = Sampler::bgr(source.format());
        if self.red_first {
            sampler.lane_byte.swap(0, 2);
        }
        let mut row = std::mem::take(&mut workspace.resize.bytes);
        let crop_px = self.resize.geometry.crop_px;
        let mut sink = PlanarRows::new(out, crop_px, &mut row, |byte: u8| byte);
        self.rows(
            &mut source,
            &sampler,
            0..crop_px[1],
            &mut workspace.resize,
            &mut sink,
        );
        workspace.resize.bytes = row;
        Ok(())
    }

    /// Writes the rows `out_rows` of the result, the three channels that `sampler` picks, interleaved.
    pub(in crate::image) fn rows(
        &self,
        source: &mut impl ByteRows,
        sampler: &Sampler<4>,
        out_rows: Range<usize>,
        scratch: &mut ResizeScratch,
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
