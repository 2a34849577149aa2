//! StreamPETR: the means, normalised.

use std::ops::Range;

use super::super::columns::Sampler;
use super::super::planes::check_length;
use super::super::resize::ResizeScratch;
use super::super::sink::PlanarSink;
use super::super::source_rows::{ByteRows, SourceRows};
use super::super::{Contraction, ImageError, ImageRef, Kernels, Workspace};
use super::TriangleGeometry;
use super::resize::TriangleResize;

/// Channels of the result: blue, green, red.
const CHANNELS: usize = 3;
/// Means of blue, green and red in the deployed node.
const MEAN_BGR: [f32; CHANNELS] = [103.53, 116.28, 123.675];
/// Standard deviations of blue, green and red in the deployed node.
const STD_BGR: [f32; CHANNELS] = [57.375, 57.12, 58.395];

/// Turns frames of one size into the input of Autoware's `camera_streampetr` node: resized with a triangle
/// filter to cover the target, cropped at the top and on both sides, `(value - mean) / std`; single precision,
/// planes of blue, green and red.
///
/// The deployed kernel takes the first channel of the message for blue whatever the message says; here the
/// pixel format counts.
#[derive(Debug, Clone)]
pub struct StreampetrPlan {
    resize: TriangleResize,
}

impl StreampetrPlan {
    /// A plan for frames of `source_px` and an input of `target_px` (deployed: 640 x 480), each width and
    /// height in pixels.
    ///
    /// # Errors
    /// As [`TriangleGeometry::covering`].
    pub fn new(source_px: [usize; 2], target_px: [usize; 2]) -> Result<Self, ImageError> {
        let geometry = TriangleGeometry::covering(source_px, target_px)?;
        Ok(Self {
            resize: TriangleResize::new(geometry, Contraction::default()),
        })
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

    /// Values of the result: `3 * target_height * target_width`.
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
        out: &mut [f32],
        workspace: &mut Workspace,
    ) -> Result<(), ImageError> {
        check_length(out, self.output_len())?;
        let mut source = SourceRows::new(*image, self.resize.kernels, &mut workspace.converted);
        self.resize.check_source(&source)?;
        let sampler = Sampler::bgr(source.format());
        let [width, height] = self.resize.geometry.crop_px;
        self.resize.means(
            &mut source,
            &sampler,
            0..height,
            &mut workspace.resize,
            |y, means| {
                for (channel, means) in means.into_iter().enumerate() {
                    let row = &mut out[(channel * height + y) * width..][..width];
                    for (value, &mean) in row.iter_mut().zip(means) {
                        *value = normalize(mean, channel);
                    }
                }
            },
        );
        Ok(())
    }

    /// Writes the rows `out_rows` of the result, plane by plane, the three channels that `sampler` picks; channel `i`
    /// is normalised as channel `order[i]`, blue first.
    pub(in crate::image) fn rows(
        &self,
        source: &mut impl ByteRows,
        sampler: &Sampler<4>,
        order: [usize; CHANNELS],
        out_rows: Range<usize>,
        scratch: &mut ResizeScratch,
        sink: &mut impl PlanarSink,
    ) {
        self.resize.means(source, sampler, out_rows, scratch, |y, means| {
            sink.planes(y, |planes| {
                for ((plane, means), channel) in planes.into_iter().zip(means).zip(order) {
                    for (value, &mean) in plane.iter_mut().zip(means) {
                        *value = normalize(mean, channel);
                    }
                }
            });
        });
    }
}

fn normalize(mean: f32, channel: usize) -> f32 {
    (mean - MEAN_BGR[channel]) / STD_BGR[channel]
}
