//! Frames and image files: whatever bytes claim to be, no conversion, resize or decoder panics, and the kernels agree.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sensorium_fuzz::image::{
    DecodeOptions, ImageRef, Kernels, LetterboxPlan, PixelFormat, Workspace, decode_image, decode_into,
};

const FORMATS: [PixelFormat; 15] = [
    PixelFormat::Rgb8,
    PixelFormat::Bgr8,
    PixelFormat::Rgba8,
    PixelFormat::Bgra8,
    PixelFormat::Mono8,
    PixelFormat::Mono16,
    PixelFormat::Mono16Be,
    PixelFormat::Yuv422,
    PixelFormat::Yuv422Yuy2,
    PixelFormat::Nv12,
    PixelFormat::Nv21,
    PixelFormat::BayerRggb8,
    PixelFormat::BayerBggr8,
    PixelFormat::BayerGbrg8,
    PixelFormat::BayerGrbg8,
];

fuzz_target!(|bytes: &[u8]| {
    // A file: cut to a fraction it has the size of the whole.
    if let Ok(whole) = decode_image(bytes) {
        let size_px = [whole.width(), whole.height()];
        let options = DecodeOptions {
            at_least_px: Some(size_px.map(|side| side / 3)),
        };
        let mut pixels = Vec::new();
        let reduced = decode_into(bytes, options, &mut pixels).expect("it decodes in full");
        assert_eq!(reduced.full_size_px, size_px);
    }
    // A frame: its claims, then its data.
    let Some((&[format, width, height, padding], data)) = bytes.split_first_chunk() else {
        return;
    };
    let format = FORMATS[usize::from(format) % FORMATS.len()];
    let [width, height, padding] = [width, height, padding].map(usize::from);
    let step = format.row_bytes(width) + padding;
    let exact = step * format.data_rows(height);
    let Ok(image) = ImageRef::new(&data[..data.len().min(exact)], width, height, step, format) else {
        return;
    };
    let mut scalar = vec![0; width * height * format.channels()];
    image
        .interleave_into(&mut scalar, Kernels::scalar())
        .expect("the output fits");
    assert_eq!(image.to_image().data(), scalar);
    if let Ok(plan) = LetterboxPlan::new(width, height, 32, 24) {
        let mut out = vec![0; plan.output_bytes()];
        plan.apply(&image, &mut out, &mut Workspace::default())
            .expect("the plan is for this size");
    }
});
