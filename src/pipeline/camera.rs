//! What is peculiar to networks on camera images.

use serde::Serialize;

use super::settings::{Labels, WeightFormat};
use super::words::words;
use crate::image::{self, ImageError};

/// What is peculiar to networks on camera images.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CameraSettings {
    /// How weights are stored until they are brought onto the device.
    pub weight_format: WeightFormat,
    /// How an image becomes the network's input.
    pub preprocess: Preprocess,
    /// Type of the values that go to the device; `None`: as deployed.
    pub upload: Option<Upload>,
    /// Order of the axes of what goes to the device; `None`: as deployed.
    pub upload_layout: Option<UploadLayout>,
    /// Order of the channels that the network was trained with; `None`: as deployed.
    pub channel_order: Option<ChannelOrder>,
    /// How products and sums of floats are rounded; `None`: as deployed.
    pub contraction: Option<Contraction>,
    /// Pixels of the resized image for each of the image, where the preset has that as a parameter.
    pub preprocess_scale: Option<f32>,
    /// Whether compressed images may be decoded at a fraction of their size.
    pub decode_to_scale: bool,
    /// Names of the classes.
    pub labels: Labels,
    /// Lowest score reported, 0 to 1.
    pub score_threshold: f32,
    /// Largest overlap (intersection over union) of two boxes of a class, 0 to 1.
    pub nms_threshold: f32,
    /// Most detections of one frame.
    pub max_detections: u32,
}

impl CameraSettings {
    /// The preset, and how it departs from what is deployed.
    ///
    /// # Errors
    /// [`ImageError`] for what the preset cannot do.
    pub fn preset(&self) -> Result<(image::Preset, image::PresetOptions), ImageError> {
        let preset = image::Preset::from_name(self.preprocess.as_str())?;
        let options = image::PresetOptions {
            layout: self.upload_layout.map(|layout| match layout {
                UploadLayout::Hwc => image::Layout::Hwc,
                UploadLayout::Chw => image::Layout::Chw,
            }),
            samples: self.upload.map(|upload| match upload {
                Upload::Uint8 => image::SampleType::U8,
                Upload::Bf16 => image::SampleType::Bf16,
                Upload::Fp32 => image::SampleType::F32,
            }),
            order: self.channel_order.map(|order| match order {
                ChannelOrder::Bgr => image::ChannelOrder::Bgr,
                ChannelOrder::Rgb => image::ChannelOrder::Rgb,
            }),
            contraction: self.contraction.map(|contraction| match contraction {
                Contraction::Fused => image::Contraction::Fused,
                Contraction::Separate => image::Contraction::Separate,
            }),
            scale: self.preprocess_scale.map(|scale| [scale; 2]),
            ..image::PresetOptions::DEPLOYED
        };
        Ok((preset, options))
    }
}

words! {
    /// How a camera image becomes a network's input.
    Preprocess {
        /// Letterbox at the top left, grey 114, BGR 0 to 255, resized as OpenCV does.
        YoloxOpencv = "yolox_opencv",
        /// Autoware's tensorrt_yolox: the letterbox of its GPU kernel, grey 114, BGR 0 to 255.
        YoloxAutoware = "yolox_autoware",
        /// Stretched to the input size, BGR divided by 255, resized as OpenCV does.
        FastestDetOpencv = "fastestdet_opencv",
        /// Autoware's tensorrt_bevdet: nearest pixels at 0.44, the bottom of them, ImageNet normalisation.
        Bevdet = "bevdet_nearest_crop",
        /// Autoware's bevfusion: a triangle filter, cropped, cut to bytes.
        Bevfusion = "bevfusion",
        /// Autoware's camera_streampetr: a triangle filter, cropped, ImageNet normalisation.
        Streampetr = "streampetr",
        /// Autoware's tensorrt_bevformer: less the mean, OpenCV's float linear by 0.8, zeros to multiples of 32.
        Bevformer = "bevformer",
        /// METEOR: OpenCV's area to the input size.
        Meteor = "meteor",
        /// VisionPilot's SceneSeg: squashed by OpenCV's linear, ImageNet normalisation as OpenCV rounds it.
        SceneSeg = "sceneseg",
        /// OpenCV's resize, linear, stretched to the input size.
        OpencvLinear = "opencv_linear",
        /// OpenCV's resize, area, stretched to the input size.
        OpencvArea = "opencv_area",
        /// OpenCV's resize, nearest, stretched to the input size.
        OpencvNearest = "opencv_nearest",
        /// OpenCV's resize of floats, linear, stretched to the input size.
        OpencvLinearF32 = "opencv_linear_f32",
    }
}
words! {
    /// Type of the values that go to the device.
    Upload {
        /// Bytes after the resize; the device makes floats of them.
        Uint8 = "uint8",
        /// Brain floats.
        Bf16 = "bf16",
        /// Floats.
        Fp32 = "fp32",
    }
}
words! {
    /// Order of the axes of what goes to the device.
    UploadLayout {
        /// Pixel after pixel.
        Hwc = "hwc",
        /// Plane after plane.
        Chw = "chw",
    }
}
words! {
    /// Order of the channels that a network was trained with.
    ChannelOrder {
        /// Blue, green, red.
        Bgr = "bgr",
        /// Red, green, blue.
        Rgb = "rgb",
    }
}
words! {
    /// How products and sums of floats are rounded.
    Contraction {
        /// Once, as fused multiply-adds do.
        Fused = "fused",
        /// Each on its own.
        Separate = "separate",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_has_its_word() {
        let words = [
            Preprocess::YoloxOpencv,
            Preprocess::YoloxAutoware,
            Preprocess::FastestDetOpencv,
            Preprocess::Bevdet,
            Preprocess::Bevfusion,
            Preprocess::Streampetr,
            Preprocess::Bevformer,
            Preprocess::Meteor,
            Preprocess::SceneSeg,
            Preprocess::OpencvLinear,
            Preprocess::OpencvArea,
            Preprocess::OpencvNearest,
            Preprocess::OpencvLinearF32,
        ];
        assert_eq!(
            words.map(Preprocess::as_str),
            image::Preset::ALL.map(image::Preset::name)
        );
    }
}
