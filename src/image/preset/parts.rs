//! What each preset is made of, for frames of one size.

use super::super::byte_map::ByteMap;
use super::super::{
    AutowareLetterboxPlan, BackMap, BevfusionCameraPlan, ChannelOrder, ImageError, LetterboxPlan,
    LinearF32Plan, NearestCropPlan, NearestPlan, PAD_VALUE, PresetOption, ResizePlan, StreampetrPlan,
    TriangleGeometry,
};
use super::{Preset, PresetOptions};

/// Means of BEVFormer's channels, blue first.
const BEVFORMER_MEAN_BGR: [f32; 3] = [103.53, 116.28, 123.675];
/// BEVFormer's scale. In single precision, as its node computes sizes.
const BEVFORMER_SCALE: f32 = 0.8;
/// BEVFormer's sides are multiples of this.
const BEVFORMER_DIVISOR: usize = 32;
/// Left and top of BEVDet's crop in the resized frame, in pixels.
const BEVDET_CROP_PX: [usize; 2] = [0, 140];
/// `img_aug_scale_x` and `img_aug_scale_y` of BEVFusion's camera model in Autoware.
const BEVFUSION_SCALE: f32 = 0.4;
/// Means of SceneSeg's channels, blue first.
const SCENESEG_MEAN_BGR: [f32; 3] = [0.406, 0.456, 0.485];
/// Deviations of SceneSeg's channels, blue first, in the precision in which OpenCV divides by them.
const SCENESEG_DEVIATION_BGR: [f64; 3] = [0.225, 0.224, 0.229];

/// What brings the pixels to their places.
#[derive(Debug, Clone)]
pub(super) enum Resizer {
    Bytes(ResizePlan),
    Nearest(NearestPlan),
    Floats(Box<LinearF32Plan>),
    AutowareLetterbox(AutowareLetterboxPlan),
    NearestCrop(NearestCropPlan),
    Bevfusion(BevfusionCameraPlan),
    Streampetr(StreampetrPlan),
}

/// A preset without the form of its result.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) resizer: Resizer,
    pub(super) target_px: [usize; 2],
    /// Width and height of what the resizer writes, from the top left.
    pub(super) written_px: [usize; 2],
    /// Width and height of the part of it that shows the frame.
    pub(super) content_px: [usize; 2],
    pub(super) resized_px: [usize; 2],
    pub(super) cropped_px: [usize; 2],
    pub(super) back: BackMap,
    pub(super) map: ByteMap,
    pub(super) padding: (u8, f32),
}

impl Parts {
    /// The parts of `preset` for frames of `source_px`, channels in `order`.
    pub(super) fn new(
        preset: Preset,
        source_px: [usize; 2],
        order: ChannelOrder,
        options: &PresetOptions,
    ) -> Result<Self, ImageError> {
        let target_px = options.target_px.or(preset.deployed_px()).unwrap_or(source_px);
        let contraction = options.contraction.unwrap_or_default();
        let bytes = |plan| Self::stretched(Resizer::Bytes(plan), source_px, target_px);
        match preset {
            Preset::YoloxOpencv => Self::letterbox(source_px, target_px),
            Preset::YoloxAutoware => Self::autoware_letterbox(source_px, target_px),
            Preset::OpencvLinear => ResizePlan::new(source_px, target_px).map(bytes),
            Preset::OpencvArea => ResizePlan::area(source_px, target_px).map(bytes),
            Preset::OpencvNearest => {
                let plan = NearestPlan::new(source_px, target_px)?;
                Ok(Self::stretched(Resizer::Nearest(plan), source_px, target_px))
            }
            Preset::OpencvLinearF32 => {
                let plan = LinearF32Plan::new(source_px, target_px, contraction)?;
                Ok(Self::stretched(
                    Resizer::Floats(Box::new(plan)),
                    source_px,
                    target_px,
                ))
            }
            Preset::FastestDetOpencv => Ok(Self {
                map: ByteMap::new(|_, byte| f32::from(byte) / 255.0),
                ..bytes(ResizePlan::new(source_px, target_px)?)
            }),
            Preset::SceneSeg => Ok(Self {
                map: ByteMap::new(|channel, byte| sceneseg(in_bgr(order, channel), byte)),
                ..bytes(ResizePlan::new(source_px, target_px)?)
            }),
            Preset::Meteor => {
                if source_px[0] < target_px[0] || source_px[1] < target_px[1] {
                    return Err(ImageError::PresetOption {
                        preset: preset.name(),
                        option: PresetOption::Target,
                        reason: format!(
                            "a frame of {} x {} px would have to grow to {} x {} px; only shrinking is defined",
                            source_px[0], source_px[1], target_px[0], target_px[1]
                        ),
                    });
                }
                ResizePlan::area(source_px, target_px).map(bytes)
            }
            Preset::Bevformer => {
                let content_px = source_px.map(|side| (side as f32 * BEVFORMER_SCALE) as usize);
                let plan = LinearF32Plan::new(source_px, content_px, contraction)?;
                Ok(Self {
                    target_px: content_px.map(|side| side.next_multiple_of(BEVFORMER_DIVISOR)),
                    map: ByteMap::new(|channel, byte| {
                        f32::from(byte) - BEVFORMER_MEAN_BGR[in_bgr(order, channel)]
                    }),
                    ..Self::stretched(Resizer::Floats(Box::new(plan)), source_px, content_px)
                })
            }
            Preset::Bevdet => {
                let plan = NearestCropPlan::new(source_px, target_px, BEVDET_CROP_PX)?;
                let factor = target_px[0] as f32 / source_px[0] as f32;
                Ok(Self {
                    resized_px: source_px.map(|side| (side as f32 * factor).round() as usize),
                    cropped_px: BEVDET_CROP_PX,
                    back: BackMap::with_crop(source_px, [factor; 2], BEVDET_CROP_PX),
                    map: ByteMap::new(|channel, byte| {
                        NearestCropPlan::normalised(in_bgr(order, channel), byte)
                    }),
                    ..Self::stretched(Resizer::NearestCrop(plan), source_px, target_px)
                })
            }
            Preset::Bevfusion => {
                let scale = options.scale.unwrap_or([BEVFUSION_SCALE; 2]);
                let plan = BevfusionCameraPlan::new(source_px, target_px, scale, contraction)?;
                let geometry = *plan.geometry();
                Ok(Self::cropped(Resizer::Bevfusion(plan), &geometry))
            }
            Preset::Streampetr => {
                let plan = StreampetrPlan::new(source_px, target_px, contraction)?;
                let geometry = *plan.geometry();
                Ok(Self::cropped(Resizer::Streampetr(plan), &geometry))
            }
        }
    }

    /// Bytes that fill the whole target, each side scaled on its own.
    fn stretched(resizer: Resizer, source_px: [usize; 2], target_px: [usize; 2]) -> Self {
        let ratio = [0, 1].map(|side| (target_px[side] as f64 / source_px[side] as f64) as f32);
        Self {
            resizer,
            target_px,
            written_px: target_px,
            content_px: target_px,
            resized_px: target_px,
            cropped_px: [0; 2],
            back: BackMap::new(source_px, ratio),
            map: ByteMap::identity(),
            padding: (0, 0.0),
        }
    }

    fn cropped(resizer: Resizer, geometry: &TriangleGeometry) -> Self {
        let content_px = [0, 1].map(|side| {
            let shown = geometry.resized_px[side] - geometry.start_px[side];
            shown.min(geometry.crop_px[side])
        });
        Self {
            content_px,
            resized_px: geometry.resized_px,
            cropped_px: geometry.start_px,
            back: BackMap::with_crop(geometry.source_px, geometry.scale, geometry.start_px),
            ..Self::stretched(resizer, geometry.source_px, geometry.crop_px)
        }
    }

    fn letterbox(source_px: [usize; 2], target_px: [usize; 2]) -> Result<Self, ImageError> {
        let [[width, height], [target_width, target_height]] = [source_px, target_px];
        let letterbox = LetterboxPlan::new(width, height, target_width, target_height)?;
        let (content_px, back) = (letterbox.content_px(), letterbox.back_map());
        let resizer = Resizer::Bytes(letterbox.into_resize());
        Ok(Self {
            target_px,
            back,
            padding: (PAD_VALUE, f32::from(PAD_VALUE)),
            ..Self::stretched(resizer, source_px, content_px)
        })
    }

    fn autoware_letterbox(source_px: [usize; 2], target_px: [usize; 2]) -> Result<Self, ImageError> {
        let plan = AutowareLetterboxPlan::new(source_px, target_px)?;
        let (content_px, back) = (plan.content_px(), plan.back_map());
        Ok(Self {
            target_px,
            back,
            padding: (PAD_VALUE, f32::from(PAD_VALUE)),
            ..Self::stretched(Resizer::AutowareLetterbox(plan), source_px, content_px)
        })
    }
}

/// Channel `channel` of an input, counted blue first.
pub(super) const fn in_bgr(order: ChannelOrder, channel: usize) -> usize {
    match order {
        ChannelOrder::Bgr => channel,
        ChannelOrder::Rgb => 2 - channel,
    }
}

/// SceneSeg's normalisation as OpenCV computes it: a float product, a float difference, and a quotient in double.
fn sceneseg(channel: usize, byte: u8) -> f32 {
    let scaled = f32::from(byte) * (1.0 / 255.0) as f32;
    let centred = scaled - SCENESEG_MEAN_BGR[channel];
    (f64::from(centred) / SCENESEG_DEVIATION_BGR[channel]) as f32
}
