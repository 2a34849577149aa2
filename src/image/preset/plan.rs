//! A preset for frames of one size: everything computed that does not depend on the pixels.

use super::super::byte_map::ByteMap;
use super::super::columns::Sampler;
use super::super::frame::check_size;
use super::super::source_rows::{ByteRows, SourceRows};
use super::super::staged_rows::StagedRows;
use super::super::tensor_rows::{TensorRows, TensorWriter};
use super::super::workspace::ResizerScratch;
use super::super::{
    BackMap, ChannelOrder, ImageError, ImageRef, Kernels, PixelFormat, ResizePlan, TensorForm, Workspace,
};
use super::parts::{Parts, Resizer, in_bgr};
use super::{Preset, PresetOptions};

/// Where a frame lies in a network's input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Geometry {
    /// Width and height of the frame in pixels.
    pub source_px: [usize; 2],
    /// Width and height of the input in pixels.
    pub target_px: [usize; 2],
    /// Width and height, from the top left, of the part of the input that shows the frame.
    pub content_px: [usize; 2],
    /// Width and height of the whole frame after the resize, before anything is cut off, in pixels.
    pub resized_px: [usize; 2],
    /// Pixels of the resized frame that were cut off at the left and at the top.
    pub cropped_px: [usize; 2],
    /// From pixels of the input to pixels of the frame.
    pub back: BackMap,
}

impl Geometry {
    /// Pixels of the input for each of the frame, along x and y.
    #[must_use]
    pub fn scale(&self) -> [f64; 2] {
        [0, 1].map(|side| self.resized_px[side] as f64 / self.source_px[side] as f64)
    }

    /// Pixels of the resized frame that were cut off at the left and at the top.
    #[must_use]
    pub fn offset_px(&self) -> [f64; 2] {
        self.cropped_px.map(|px| px as f64)
    }
}

/// A preset for frames of one size.
///
/// ```
/// use sensorium::image::{ImageRef, PixelFormat, Preset, PresetOptions, PresetPlan, Workspace};
///
/// let pixels = vec![200; 1600 * 900 * 3];
/// let frame = ImageRef::new(&pixels, 1600, 900, 1600 * 3, PixelFormat::Bgr8)?;
/// let plan = PresetPlan::new(Preset::Bevformer, [1600, 900], &PresetOptions::DEPLOYED)?;
/// assert_eq!(plan.form().dims(), [3, 736, 1280]);
/// let mut input = vec![0_f32; plan.form().bytes() / 4];
/// plan.apply(&frame, bytemuck::cast_slice_mut(&mut input), &mut [Workspace::default()])?;
/// assert_eq!(input[0], 200.0 - 103.53);
/// # Ok::<(), sensorium::image::ImageError>(())
/// ```
#[derive(Debug, Clone)]
pub struct PresetPlan {
    preset: Preset,
    form: TensorForm,
    geometry: Geometry,
    /// Width and height of what the resizer writes.
    written_px: [usize; 2],
    /// The resize before everything else.
    stage: Option<ResizePlan>,
    resizer: Resizer,
    /// What becomes of a byte after the resize; of floats, before it.
    map: ByteMap,
    padding: (u8, f32),
    kernels: Kernels,
}

impl PresetPlan {
    /// The plan of a preset for frames of `source_px` (width, height).
    ///
    /// # Errors
    /// [`ImageError`]: sizes out of range, options that the preset does not have, a float scale that is not verified.
    pub fn new(preset: Preset, source_px: [usize; 2], options: &PresetOptions) -> Result<Self, ImageError> {
        options.check(preset)?;
        check_size(source_px[0], source_px[1])?;
        let frame_px = source_px;
        let stage_px = preset.stage_px().filter(|&stage_px| stage_px != frame_px);
        let stage = stage_px
            .map(|stage_px| ResizePlan::new(frame_px, stage_px))
            .transpose()?;
        // From here on, the frame is what the first resize makes of it.
        let source_px = stage_px.unwrap_or(frame_px);
        let (layout, samples) = preset.deployed_form();
        let order = options.order.unwrap_or(preset.deployed_order());
        let parts = Parts::new(preset, source_px, order, options)?;
        Ok(Self {
            preset,
            form: TensorForm {
                size_px: parts.target_px,
                layout: options.layout.unwrap_or(layout),
                samples: options.samples.unwrap_or(samples),
                order,
            },
            geometry: Geometry {
                source_px: frame_px,
                target_px: parts.target_px,
                content_px: parts.content_px,
                resized_px: parts.resized_px,
                cropped_px: parts.cropped_px,
                back: parts.back.through_stage(source_px, frame_px),
            },
            written_px: parts.written_px,
            stage,
            resizer: parts.resizer,
            map: parts.map,
            padding: parts.padding,
            kernels: Kernels::detect(),
        })
    }

    /// The same plan on other kernels.
    #[must_use]
    pub fn with_kernels(mut self, kernels: Kernels) -> Self {
        self.kernels = kernels;
        self.stage = self.stage.map(|plan| plan.with_kernels(kernels));
        self.resizer = match self.resizer {
            Resizer::Bytes(plan) => Resizer::Bytes(plan.with_kernels(kernels)),
            Resizer::Nearest(plan) => Resizer::Nearest(plan),
            Resizer::Floats(plan) => Resizer::Floats(Box::new(plan.with_kernels(kernels))),
            Resizer::AutowareLetterbox(plan) => Resizer::AutowareLetterbox(plan.with_kernels(kernels)),
            Resizer::NearestCrop(plan) => Resizer::NearestCrop(plan),
            Resizer::Bevfusion(plan) => Resizer::Bevfusion(plan.with_kernels(kernels)),
            Resizer::Streampetr(plan) => Resizer::Streampetr(plan.with_kernels(kernels)),
        };
        self
    }

    /// The preset.
    #[must_use]
    pub const fn preset(&self) -> Preset {
        self.preset
    }

    /// Form of the input that [`Self::apply`] writes.
    #[must_use]
    pub const fn form(&self) -> TensorForm {
        self.form
    }

    /// Where the frame lies in the input.
    #[must_use]
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Writes the input for `image` into `out`, every byte of it, on as many threads as there are workspaces. The bits
    /// do not depend on their number.
    ///
    /// # Errors
    /// [`ImageError::SizeMismatch`] if the frame has another size than the plan, [`ImageError::OutputLength`] or
    /// [`ImageError::Misaligned`] if `out` is not [`TensorForm::bytes`] long or begins where its floats cannot.
    ///
    /// # Panics
    /// If there is no workspace.
    pub fn apply(
        &self,
        image: &ImageRef<'_>,
        out: &mut [u8],
        workspaces: &mut [Workspace],
    ) -> Result<(), ImageError> {
        let (expected, found) = (self.geometry.source_px, [image.width(), image.height()]);
        if expected != found {
            return Err(ImageError::SizeMismatch { expected, found });
        }
        self.form.check(out)?;
        self.split(image, TensorRows::new(self.form, out), workspaces);
        Ok(())
    }

    /// Halves the work until every thread has its part.
    fn split(&self, image: &ImageRef<'_>, rows: TensorRows<'_>, workspaces: &mut [Workspace]) {
        if let [workspace] = workspaces {
            return self.write(image, rows, workspace);
        }
        let count = workspaces.len();
        let (left, right) = workspaces.split_at_mut(count / 2);
        let share = rows.range().len() * left.len() / count;
        let (upper, lower) = rows.split_at(share);
        rayon::join(
            || self.split(image, upper, left),
            || self.split(image, lower, right),
        );
    }

    fn write(&self, image: &ImageRef<'_>, rows: TensorRows<'_>, workspace: &mut Workspace) {
        let Workspace {
            converted,
            row,
            stage,
            resizers,
        } = workspace;
        let mut source = SourceRows::new(*image, self.kernels, converted);
        let bgr = Sampler::bgr(source.format());
        let writer = TensorWriter {
            rows,
            content_width: self.written_px[0],
            map: &self.map,
            padding: self.padding,
            kernels: self.kernels,
            scratch: row,
        };
        match &self.stage {
            None => self.write_rows(&mut source, bgr, writer, resizers),
            Some(plan) => {
                let mut staged = StagedRows::new(&mut source, bgr, plan, stage);
                self.write_rows(&mut staged, Sampler::bgr(PixelFormat::Bgr8), writer, resizers);
            }
        }
    }

    fn write_rows(
        &self,
        source: &mut impl ByteRows,
        bgr: Sampler<4>,
        mut writer: TensorWriter<'_, '_>,
        memory: &mut ResizerScratch,
    ) {
        let sampler = self.in_order(bgr);
        let range = writer.rows.range();
        let content = range.start..range.end.min(self.written_px[1]).max(range.start);
        let below = content.end..range.end;
        match &self.resizer {
            Resizer::Bytes(plan) => {
                plan.rows::<4, 3>(source, &sampler, content, &mut memory.resize, &mut writer);
            }
            Resizer::Nearest(plan) => plan.write_rows(source, &sampler, content, &mut writer),
            Resizer::AutowareLetterbox(plan) => {
                plan.rows(source, &sampler, content, &mut memory.letterbox, &mut writer);
            }
            Resizer::NearestCrop(plan) => plan.rows(source, &sampler, content, &mut writer),
            Resizer::Bevfusion(plan) => {
                plan.rows(source, &sampler, content, &mut memory.triangle, &mut writer);
            }
            Resizer::Streampetr(plan) => {
                let order = [0, 1, 2].map(|channel| in_bgr(self.form.order, channel));
                plan.rows(
                    source,
                    &sampler,
                    order,
                    content,
                    &mut memory.triangle,
                    &mut writer,
                );
            }
            Resizer::Floats(plan) => {
                let [a, b, c, _] = sampler.lane_byte;
                let fill = |y: usize, planes: [&mut [f32]; 3]| {
                    self.kernels.split_floats(
                        source.row(y),
                        sampler.pixel_bytes,
                        [a, b, c],
                        &self.map,
                        planes,
                    );
                };
                plan.planes(fill, content, &mut memory.planar, &mut writer);
            }
        }
        for y in below {
            writer.pad(y, 0);
        }
    }

    /// The channels of a source pixel in the order of the input.
    const fn in_order(&self, bgr: Sampler<4>) -> Sampler<4> {
        match self.form.order {
            ChannelOrder::Bgr => bgr,
            ChannelOrder::Rgb => {
                let [blue, green, red, _] = bgr.lane_byte;
                Sampler {
                    lane_byte: [red, green, blue, blue],
                    ..bgr
                }
            }
        }
    }
}
