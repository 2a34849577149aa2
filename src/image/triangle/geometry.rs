//! Where a crop lies in the resized image, and how products are rounded.

use super::super::ImageError;
use super::super::frame::check_size;

/// Whether `a * b + c` is rounded once or twice: in the centre of a window and in the sums of its pixels.
/// Everything else in the kernel is the same in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Contraction {
    /// Rounded once: what `nvcc` makes of the kernel by default. Found in the machine code of CUDA 12.8 for
    /// compute capability 7.5, 8.6 and 8.9, which also shows that the sum of the weights is not fused.
    #[default]
    Fused,
    /// Rounded after the product and after the sum: a build with `-fmad=false`.
    Separate,
}

impl Contraction {
    pub(super) fn multiply_add(self, a: f32, b: f32, c: f32) -> f32 {
        match self {
            Self::Fused => a.mul_add(b, c),
            Self::Separate => a * b + c,
        }
    }
}

/// A crop of a resized image. The resized image is never made; only its size counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Geometry {
    /// Width and height of the frame in pixels.
    pub source_px: [usize; 2],
    /// Width and height of the whole frame when resized, in pixels.
    pub resized_px: [usize; 2],
    /// Width and height of the crop, the result, in pixels.
    pub crop_px: [usize; 2],
    /// Left and top of the crop in the resized image in pixels.
    pub start_px: [usize; 2],
    /// Resized pixels per source pixel along x and y, before the sides are cut to whole pixels.
    pub scale: [f32; 2],
}

impl Geometry {
    /// The smallest resized image that covers the crop, which takes its bottom and the middle of its width:
    /// `calculate_image_processing_params` of `camera_streampetr`, in single precision. A side that should
    /// equal the crop's can be a pixel short.
    ///
    /// # Errors
    /// [`ImageError::BadSize`], or [`ImageError::ShrinksToNothing`] if a resized side is zero.
    pub fn covering(source_px: [usize; 2], crop_px: [usize; 2]) -> Result<Self, ImageError> {
        let [across, down] = [0, 1].map(|i| crop_px[i] as f32 / source_px[i] as f32);
        Self::scaled(source_px, crop_px, [across.max(down); 2])
    }

    /// The image resized by given factors along x and y, cropped in the same way: `ImagePreProcessingParams`
    /// of `bevfusion`.
    ///
    /// # Errors
    /// As [`Self::covering`].
    pub fn scaled(source_px: [usize; 2], crop_px: [usize; 2], scale: [f32; 2]) -> Result<Self, ImageError> {
        for [width, height] in [source_px, crop_px] {
            check_size(width, height)?;
        }
        let resized_px = [0, 1].map(|i| (source_px[i] as f32 * scale[i]) as usize);
        if resized_px.contains(&0) {
            return Err(ImageError::ShrinksToNothing {
                source_px,
                target_px: crop_px,
            });
        }
        let [beside, above] = [0, 1].map(|i| resized_px[i].saturating_sub(crop_px[i]));
        Ok(Self {
            source_px,
            resized_px,
            crop_px,
            start_px: [beside / 2, above],
            scale,
        })
    }
}
