//! Pre-processing by name: what each deployed node does between its camera and its network, to the bit.

mod options;
mod parts;
mod plan;

use super::{ChannelOrder, ImageError, Layout, SampleType};

pub use options::PresetOptions;
pub use plan::{Geometry, PresetPlan};

/// A named way of preparing frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Preset {
    /// The public YOLOX weights: aspect ratio kept, image top left, padded with 114, resized as OpenCV's
    /// `INTER_LINEAR`.
    YoloxOpencv,
    /// YOLOX in Autoware (`tensorrt_yolox`, `preprocess.cu`): the letterbox of its GPU kernel, see
    /// [`AutowareLetterboxPlan`](super::AutowareLetterboxPlan).
    YoloxAutoware,
    /// FastestDet: both sides scaled to the target as OpenCV's `INTER_LINEAR` does, then divided by 255.
    FastestDetOpencv,
    /// BEVDet in Autoware (`bevdet_vendor`, `preprocess_plugin.cu`): nearest pixels of the frame at 0.44 of its size, its
    /// top cut off, then less the mean, over the deviation; see [`NearestCropPlan`](super::NearestCropPlan). Frames of
    /// another size than 1600 x 900 are brought to it first by OpenCV's `INTER_LINEAR`, as the node does.
    Bevdet,
    /// BEVFusion's cameras in Autoware (`bevfusion`, `camera_preprocess_kernel.cu`): a triangle filter by fixed factors,
    /// cropped, cut to bytes; see [`BevfusionCameraPlan`](super::BevfusionCameraPlan).
    Bevfusion,
    /// StreamPETR in Autoware (`camera_streampetr`, `preprocess_kernel.cu`): a triangle filter that covers the input,
    /// cropped, then less the mean, over the deviation; see [`StreampetrPlan`](super::StreampetrPlan).
    Streampetr,
    /// BEVFormer in Autoware (`tensorrt_bevformer`, `normalize_multiview_image.cpp` and the steps after it): the mean of
    /// each channel is subtracted, then OpenCV's float `INTER_LINEAR` by 0.8, then zeros to the next multiple of 32.
    /// Frames of another size than 1600 x 900 are brought to it first by OpenCV's `INTER_LINEAR`, as the node does.
    Bevformer,
    /// METEOR: OpenCV's `INTER_AREA` to 768 x 432.
    Meteor,
    /// SceneSeg in VisionPilot: squashed to 640 x 320 as OpenCV's `INTER_LINEAR` does, then scaled by 1/255, less the
    /// mean, over the deviation, each step rounded as OpenCV rounds it.
    SceneSeg,
    /// OpenCV's `resize` with `INTER_LINEAR` on bytes.
    OpencvLinear,
    /// OpenCV's `resize` with `INTER_AREA` on bytes.
    OpencvArea,
    /// OpenCV's `resize` with `INTER_NEAREST`.
    OpencvNearest,
    /// OpenCV's `resize` with `INTER_LINEAR` on floats.
    OpencvLinearF32,
}

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 13] = [
        Self::YoloxOpencv,
        Self::YoloxAutoware,
        Self::FastestDetOpencv,
        Self::Bevdet,
        Self::Bevfusion,
        Self::Streampetr,
        Self::Bevformer,
        Self::Meteor,
        Self::SceneSeg,
        Self::OpencvLinear,
        Self::OpencvArea,
        Self::OpencvNearest,
        Self::OpencvLinearF32,
    ];

    /// The preset of that name.
    ///
    /// # Errors
    /// [`ImageError::UnknownPreset`], which lists the known names.
    pub fn from_name(name: &str) -> Result<Self, ImageError> {
        Self::ALL
            .into_iter()
            .find(|preset| preset.name() == name)
            .ok_or_else(|| ImageError::UnknownPreset {
                name: name.to_owned(),
                known: Self::ALL.map(Self::name).join(", "),
            })
    }

    /// The name that pipeline files use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::YoloxOpencv => "yolox_opencv",
            Self::YoloxAutoware => "yolox_autoware",
            Self::FastestDetOpencv => "fastestdet_opencv",
            Self::Bevdet => "bevdet_nearest_crop",
            Self::Bevfusion => "bevfusion",
            Self::Streampetr => "streampetr",
            Self::Bevformer => "bevformer",
            Self::Meteor => "meteor",
            Self::SceneSeg => "sceneseg",
            Self::OpencvLinear => "opencv_linear",
            Self::OpencvArea => "opencv_area",
            Self::OpencvNearest => "opencv_nearest",
            Self::OpencvLinearF32 => "opencv_linear_f32",
        }
    }

    /// What it does, in a line.
    #[must_use]
    pub const fn summary(self) -> &'static str {
        match self {
            Self::YoloxOpencv => "YOLOX as its public demos do it: letterbox, OpenCV linear, grey 114",
            Self::YoloxAutoware => "Autoware tensorrt_yolox: letterbox of its GPU kernel, grey 114",
            Self::Bevdet => {
                "Autoware tensorrt_bevdet: nearest at 0.44, bottom 256 rows, ImageNet normalisation"
            }
            Self::Bevfusion => "Autoware bevfusion: triangle filter, cropped, cut to bytes",
            Self::Streampetr => {
                "Autoware camera_streampetr: triangle filter, cropped, ImageNet normalisation"
            }
            Self::FastestDetOpencv => "FastestDet: stretched, OpenCV linear, divided by 255",
            Self::Bevformer => {
                "Autoware tensorrt_bevformer: less the mean, OpenCV float linear by 0.8, zeros to 32"
            }
            Self::Meteor => "METEOR: OpenCV area to 768 x 432",
            Self::SceneSeg => "VisionPilot SceneSeg: OpenCV linear to 640 x 320, ImageNet normalisation",
            Self::OpencvLinear => "OpenCV resize, INTER_LINEAR on bytes",
            Self::OpencvArea => "OpenCV resize, INTER_AREA on bytes",
            Self::OpencvNearest => "OpenCV resize, INTER_NEAREST",
            Self::OpencvLinearF32 => "OpenCV resize, INTER_LINEAR on floats",
        }
    }

    /// Width and height of the deployed network's input in pixels; `None` where the network decides.
    #[must_use]
    pub const fn deployed_px(self) -> Option<[usize; 2]> {
        match self {
            Self::YoloxAutoware => Some([960, 960]),
            Self::Bevdet => Some([704, 256]),
            Self::Bevfusion => Some([576, 384]),
            Self::Streampetr => Some([640, 480]),
            Self::Bevformer => Some([1280, 736]),
            Self::Meteor => Some([768, 432]),
            Self::SceneSeg => Some([640, 320]),
            _ => None,
        }
    }

    /// Whether another size than the deployed one can be chosen.
    #[must_use]
    pub const fn takes_target(self) -> bool {
        !matches!(self, Self::Bevformer | Self::Bevdet)
    }

    /// Width and height to which a node brings its frames before anything else, in pixels.
    #[must_use]
    pub const fn stage_px(self) -> Option<[usize; 2]> {
        match self {
            Self::Bevformer | Self::Bevdet => Some([1600, 900]),
            _ => None,
        }
    }

    /// Layout and type of the deployed network's input.
    #[must_use]
    pub const fn deployed_form(self) -> (Layout, SampleType) {
        match self {
            Self::Bevdet | Self::Streampetr | Self::Bevformer | Self::SceneSeg => {
                (Layout::Chw, SampleType::F32)
            }
            Self::Bevfusion => (Layout::Chw, SampleType::U8),
            Self::OpencvLinearF32 => (Layout::Hwc, SampleType::F32),
            _ => (Layout::Hwc, SampleType::U8),
        }
    }

    /// Order of the channels of the deployed network's input.
    #[must_use]
    pub const fn deployed_order(self) -> ChannelOrder {
        ChannelOrder::Bgr
    }

    /// What the device has to multiply bytes by, so that they become what is deployed; `None` where that is not enough.
    #[must_use]
    pub const fn byte_scale(self) -> Option<f32> {
        match self {
            Self::FastestDetOpencv => Some(1.0 / 255.0),
            Self::SceneSeg | Self::Bevdet => None,
            _ if self.computes_in_float() => None,
            _ => Some(1.0),
        }
    }

    /// Whether the scale is a parameter.
    #[must_use]
    pub const fn takes_scale(self) -> bool {
        matches!(self, Self::Bevfusion)
    }

    /// Whether a smaller image of the same view gives the same input, but for a little blur: not where pixels of the
    /// camera are counted out.
    #[must_use]
    pub const fn allows_decode_to_scale(self) -> bool {
        !matches!(self, Self::Bevdet | Self::Bevfusion | Self::Bevformer)
    }

    /// Whether products and sums of floats can be rounded in more than one way.
    #[must_use]
    pub const fn has_contraction(self) -> bool {
        self.computes_in_float() || matches!(self, Self::Bevfusion)
    }

    /// Whether values are floats before they are stored, so that bytes cannot be asked for.
    #[must_use]
    pub const fn computes_in_float(self) -> bool {
        matches!(self, Self::Streampetr | Self::Bevformer | Self::OpencvLinearF32)
    }
}
