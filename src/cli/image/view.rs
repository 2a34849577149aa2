//! Inputs of networks as pictures.

use half::bf16;

use crate::image::{
    ChannelOrder, EncodeError, Image, ImageError, Layout, PixelFormat, SampleType, TensorForm, encode_png,
};

/// An input of a network, to be looked at.
pub(super) struct Picture {
    /// Its pixels.
    pub(super) image: Image,
    /// The least and the largest value, where they were stretched.
    pub(super) range: Option<[f32; 2]>,
}

impl Picture {
    /// Bytes are shown as they are, floats stretched from the least to the largest.
    pub(super) fn of(form: TensorForm, input: &[u8]) -> Result<Self, ImageError> {
        let input = &input[..form.bytes()];
        let (values, range): (Vec<u8>, _) = match form.samples {
            SampleType::U8 => (input.to_vec(), None),
            SampleType::Bf16 => stretch(
                input
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&two| bf16::from_ne_bytes(two).to_f32()),
            ),
            SampleType::F32 => stretch(input.as_chunks().0.iter().map(|&four| f32::from_ne_bytes(four))),
        };
        let [width, height] = form.size_px;
        let pixels = match form.layout {
            Layout::Hwc => values,
            Layout::Chw => {
                let plane = width * height;
                (0..3 * plane).map(|i| values[i % 3 * plane + i / 3]).collect()
            }
        };
        let format = match form.order {
            ChannelOrder::Bgr => PixelFormat::Bgr8,
            ChannelOrder::Rgb => PixelFormat::Rgb8,
        };
        Ok(Self {
            image: Image::new(pixels, width, height, format)?,
            range,
        })
    }

    /// The picture as a PNG file.
    pub(super) fn png(&self) -> Result<Vec<u8>, EncodeError> {
        encode_png(&self.image.view())
    }
}

fn stretch(values: impl Iterator<Item = f32> + Clone) -> (Vec<u8>, Option<[f32; 2]>) {
    let (low, high) = values
        .clone()
        .fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
    let span = if high > low { high - low } else { 1.0 };
    let bytes = values
        .map(|value| ((value - low) / span * 255.0).round() as u8)
        .collect();
    (bytes, Some([low, high]))
}
