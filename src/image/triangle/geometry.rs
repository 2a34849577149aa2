//! Where a crop lies in the resized image.

use super::super::ImageError;
use super::super::frame::check_size;

/// Largest scale: that of a frame of one pixel and an input of the largest size.
const MOST_SCALE: u32 = 1 << 14;

/// A crop of a resized image. The resized image is never made; only its size counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TriangleGeometry {
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

impl TriangleGeometry {
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
    /// As [`Self::covering`], and [`ImageError::BadScale`].
    pub fn scaled(source_px: [usize; 2], crop_px: [usize; 2], scale: [f32; 2]) -> Result<Self, ImageError> {
        for [width, height] in [source_px, crop_px] {
            check_size(width, height)?;
        }
        if !scale
            .iter()
            .all(|&scale| scale > 0.0 && scale <= MOST_SCALE as f32)
        {
            return Err(ImageError::BadScale {
                scale: scale.map(|scale| scale.to_string()),
                most: MOST_SCALE,
            });
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
