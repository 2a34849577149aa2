//! StreamPETR: the means, normalised.

use std::ops::Range;

use super::super::columns::Sampler;
use super::super::sink::PlanarSink;
use super::super::source_rows::ByteRows;
use super::super::{Contraction, ImageError, Kernels};
use super::TriangleGeometry;
use super::resize::{TriangleResize, TriangleScratch};

/// Channels of the result: blue, green, red.
const CHANNELS: usize = 3;
/// Means of blue, green and red in the deployed node.
const MEAN_BGR: [f32; CHANNELS] = [103.53, 116.28, 123.675];
/// Standard deviations of blue, green and red in the deployed node.
const STD_BGR: [f32; CHANNELS] = [57.375, 57.12, 58.395];

/// Turns frames of one size into the input of Autoware's `camera_streampetr` node: resized with a triangle
/// filter to cover the target, cropped at the top and on both sides, `(value - mean) / std`; single precision,
/// plane by plane.
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
    pub fn new(
        source_px: [usize; 2],
        target_px: [usize; 2],
        contraction: Contraction,
    ) -> Result<Self, ImageError> {
        let geometry = TriangleGeometry::covering(source_px, target_px)?;
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

    /// Writes the rows `out_rows` of the result, plane by plane, the three channels that `sampler` picks; channel `i`
    /// is normalised as channel `order[i]`, blue first.
    pub(in crate::image) fn rows(
        &self,
        source: &mut impl ByteRows,
        sampler: &Sampler<4>,
        order: [usize; CHANNELS],
        out_rows: Range<usize>,
        scratch: &mut TriangleScratch,
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
