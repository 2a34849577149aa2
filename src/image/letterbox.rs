//! A frame of any size fitted into the fixed input of a detector, and boxes fitted back.

use super::columns::Sampler;
use super::frame::check_size;
use super::sink::RowsInMemory;
use super::source_rows::SourceRows;
use super::{ImageError, ImageRef, Kernels, ResizePlan, Workspace};

/// Value of the canvas where the image does not reach, in every channel.
pub const PAD_VALUE: u8 = 114;

/// Channels of the canvas: blue, green, red.
const CANVAS_CHANNELS: usize = 3;

/// Fits frames of one size into a detector input: resized, top left, the rest filled with [`PAD_VALUE`];
/// bytes in height, width, channel order, channels blue, green, red.
///
/// ```
/// use sensorium::image::{ImageRef, LetterboxPlan, PixelFormat, Workspace};
///
/// let pixels = vec![200; 640 * 480 * 3];
/// let frame = ImageRef::new(&pixels, 640, 480, 640 * 3, PixelFormat::Rgb8)?;
/// let plan = LetterboxPlan::new(640, 480, 416, 416)?;
/// let (mut input, mut workspace) = (vec![0; plan.output_bytes()], Workspace::default());
/// plan.apply(&frame, &mut input, &mut workspace)?;
/// assert_eq!(plan.content_px(), [416, 312]);
/// assert_eq!((input[0], input[416 * 416 * 3 - 1]), (200, 114));
/// # Ok::<(), sensorium::image::ImageError>(())
/// ```
#[derive(Debug, Clone)]
pub struct LetterboxPlan {
    resize: ResizePlan,
    target_px: [usize; 2],
    back: BackMap,
}

impl LetterboxPlan {
    /// The pre-processing of the public YOLOX demos: `r = min(target_height / height, target_width / width)`
    /// in double, sides `int(side * r)`, aspect ratio kept.
    ///
    /// # Errors
    /// [`ImageError::BadSize`], or [`ImageError::ShrinksToNothing`] if a side of the image rounds to zero.
    pub fn new(
        source_width: usize,
        source_height: usize,
        target_width: usize,
        target_height: usize,
    ) -> Result<Self, ImageError> {
        check_size(source_width, source_height)?;
        check_size(target_width, target_height)?;
        let (width, height) = (source_width as f64, source_height as f64);
        let ratio = (target_height as f64 / height).min(target_width as f64 / width);
        let content_px = [(width * ratio) as usize, (height * ratio) as usize];
        let (source_px, target_px) = ([source_width, source_height], [target_width, target_height]);
        if content_px.contains(&0) {
            return Err(ImageError::ShrinksToNothing { source_px, target_px });
        }
        Ok(Self {
            resize: ResizePlan::new(source_px, content_px)?,
            target_px,
            back: BackMap::new(source_px, [ratio as f32; 2]),
        })
    }

    /// Fills the whole target, each side scaled on its own; nothing is padded.
    ///
    /// # Errors
    /// [`ImageError::BadSize`].
    pub fn stretch(
        source_width: usize,
        source_height: usize,
        target_width: usize,
        target_height: usize,
    ) -> Result<Self, ImageError> {
        let (source_px, target_px) = ([source_width, source_height], [target_width, target_height]);
        let resize = ResizePlan::new(source_px, target_px)?;
        let ratio = [0, 1].map(|side| (target_px[side] as f64 / source_px[side] as f64) as f32);
        Ok(Self {
            resize,
            target_px,
            back: BackMap::new(source_px, ratio),
        })
    }

    /// The same plan on other kernels.
    #[must_use]
    pub fn with_kernels(mut self, kernels: Kernels) -> Self {
        self.resize = self.resize.with_kernels(kernels);
        self
    }

    /// Width and height of the frames that the plan takes, in pixels.
    #[must_use]
    pub const fn source_px(&self) -> [usize; 2] {
        self.resize.source_px()
    }

    /// Width and height of the detector input in pixels.
    #[must_use]
    pub const fn target_px(&self) -> [usize; 2] {
        self.target_px
    }

    /// Width and height of the part of the target that the image covers, in pixels.
    #[must_use]
    pub const fn content_px(&self) -> [usize; 2] {
        self.resize.target_px()
    }

    /// Bytes of the detector input: `target_height * target_width * 3`.
    #[must_use]
    pub const fn output_bytes(&self) -> usize {
        self.target_px[0] * self.target_px[1] * CANVAS_CHANNELS
    }

    /// The resize alone.
    pub(super) fn into_resize(self) -> ResizePlan {
        self.resize
    }

    /// Target pixels per source pixel, along x and y.
    #[must_use]
    pub const fn ratio(&self) -> [f32; 2] {
        self.back.ratio
    }

    /// The way back from the detector input to the source image.
    #[must_use]
    pub const fn back_map(&self) -> BackMap {
        self.back
    }

    /// See [`BackMap::box_back`].
    #[must_use]
    pub fn map_box_back(&self, box_xyxy: [f32; 4]) -> Option<[f32; 4]> {
        self.back.box_back(box_xyxy)
    }

    /// Writes the detector input for `image` into `out`, every byte of it.
    ///
    /// # Errors
    /// [`ImageError::SizeMismatch`] if the frame has another size than the plan, and
    /// [`ImageError::OutputLength`] if `out` is not [`Self::output_bytes`] long.
    pub fn apply(
        &self,
        image: &ImageRef<'_>,
        out: &mut [u8],
        workspace: &mut Workspace,
    ) -> Result<(), ImageError> {
        if out.len() != self.output_bytes() {
            return Err(ImageError::OutputLength {
                expected: self.output_bytes(),
                found: out.len(),
            });
        }
        let out_step = self.target_px[0] * CANVAS_CHANNELS;
        let Workspace {
            converted, resizers, ..
        } = workspace;
        let mut source = SourceRows::new(*image, self.resize.kernels(), converted);
        self.resize.check_source(source.size_px())?;
        let [width, height] = self.content_px();
        let (content, below) = out.split_at_mut(height * out_step);
        let mut sink = RowsInMemory {
            values: &mut *content,
            step: out_step,
            row_len: width * CANVAS_CHANNELS,
            first: 0,
        };
        let sampler = Sampler::bgr(source.format());
        self.resize.rows::<4, CANVAS_CHANNELS>(
            &mut source,
            &sampler,
            0..height,
            &mut resizers.resize,
            &mut sink,
        );
        for row in content.chunks_exact_mut(out_step) {
            row[width * CANVAS_CHANNELS..].fill(PAD_VALUE);
        }
        below.fill(PAD_VALUE);
        Ok(())
    }
}

/// Takes boxes from the pixels of a detector input to those of the source image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BackMap {
    ratio: [f32; 2],
    /// Pixels of the resized image that were cut off at the left and at the top.
    cropped_px: [f32; 2],
    size_px: [u32; 2],
}

impl BackMap {
    pub(super) fn new(source_px: [usize; 2], ratio: [f32; 2]) -> Self {
        Self::with_crop(source_px, ratio, [0; 2])
    }

    /// As [`Self::new`], for an image of which `cropped_px` were cut off at the left and at the top.
    pub(super) fn with_crop(source_px: [usize; 2], ratio: [f32; 2], cropped_px: [usize; 2]) -> Self {
        Self {
            ratio,
            cropped_px: cropped_px.map(|px| px as f32),
            size_px: source_px.map(|side| side as u32),
        }
    }

    /// The way on to an image of `full_px` (width, height) that was decoded at `decoded_px`.
    ///
    /// A decoder makes whole eighths of an image and rounds its sides up, so where both sides agree the ratio is that of
    /// the eighths, not that of the sides.
    #[must_use]
    pub fn from_decoded(self, decoded_px: [usize; 2], full_px: [usize; 2]) -> Self {
        if decoded_px == full_px {
            return self;
        }
        let eighths = (1..8).find(|eighths| full_px.map(|side| (side * eighths).div_ceil(8)) == decoded_px);
        match eighths {
            Some(eighths) => Self {
                ratio: self.ratio.map(|ratio| ratio * eighths as f32 / 8.0),
                size_px: full_px.map(|side| side as u32),
                ..self
            },
            None => self.through_stage(decoded_px, full_px),
        }
    }

    /// The way on to the frame that was resized from `frame_px` to `stage_px` before anything else.
    pub(super) fn through_stage(self, stage_px: [usize; 2], frame_px: [usize; 2]) -> Self {
        if stage_px == frame_px {
            return self;
        }
        let stage = [0, 1].map(|side| (stage_px[side] as f64 / frame_px[side] as f64) as f32);
        Self {
            ratio: [0, 1].map(|side| self.ratio[side] * stage[side]),
            size_px: frame_px.map(|side| side as u32),
            ..self
        }
    }

    /// Width and height of the source image in pixels.
    #[must_use]
    pub const fn size_px(&self) -> [u32; 2] {
        self.size_px
    }

    /// Left, top, right, bottom in the source image, not clipped: `(coordinate + what was cut off) / ratio` in single
    /// precision.
    #[must_use]
    pub fn to_source(&self, [x1, y1, x2, y2]: [f32; 4]) -> [f32; 4] {
        let ([rx, ry], [cx, cy]) = (self.ratio, self.cropped_px);
        [(x1 + cx) / rx, (y1 + cy) / ry, (x2 + cx) / rx, (y2 + cy) / ry]
    }

    /// The part of a box (in source pixels) that lies in the image; `None` if that has no area or a
    /// coordinate is not a number. A box that reaches over the border is cut, not dropped.
    #[must_use]
    pub fn clip(&self, box_xyxy: [f32; 4]) -> Option<[f32; 4]> {
        if box_xyxy.iter().any(|v| v.is_nan()) {
            return None;
        }
        let [width, height] = self.size_px.map(|side| side as f32);
        let [x1, y1, x2, y2] = box_xyxy;
        let cut = [
            x1.clamp(0.0, width),
            y1.clamp(0.0, height),
            x2.clamp(0.0, width),
            y2.clamp(0.0, height),
        ];
        (cut[2] > cut[0] && cut[3] > cut[1]).then_some(cut)
    }

    /// [`Self::to_source`], then [`Self::clip`].
    #[must_use]
    pub fn box_back(&self, box_xyxy: [f32; 4]) -> Option<[f32; 4]> {
        self.clip(self.to_source(box_xyxy))
    }
}
