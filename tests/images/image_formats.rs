//! Every pixel format of a camera, held against OpenCV's `cvtColor`.

use crate::support;
use std::fmt::Write as _;

use proptest::prelude::*;
use sensorium::image::{
    Image, ImageError, ImageRef, Kernels, LetterboxPlan, PixelFormat, Preset, PresetOptions, PresetPlan,
    ResizePlan, Workspace, decode_image, encode_jpeg, encode_png,
};

const BAYER: [PixelFormat; 4] = [
    PixelFormat::BayerRggb8,
    PixelFormat::BayerBggr8,
    PixelFormat::BayerGbrg8,
    PixelFormat::BayerGrbg8,
];
const YUV_422: [PixelFormat; 2] = [PixelFormat::Yuv422, PixelFormat::Yuv422Yuy2];
const YUV_420: [PixelFormat; 2] = [PixelFormat::Nv12, PixelFormat::Nv21];
const MONO_16: [PixelFormat; 2] = [PixelFormat::Mono16, PixelFormat::Mono16Be];
const INTERLEAVED: [PixelFormat; 5] = [
    PixelFormat::Rgb8,
    PixelFormat::Bgr8,
    PixelFormat::Rgba8,
    PixelFormat::Bgra8,
    PixelFormat::Mono8,
];

/// The formats that have to be converted.
fn converted() -> Vec<PixelFormat> {
    [&BAYER[..], &YUV_422, &YUV_420, &MONO_16].concat()
}

/// Bytes without any structure, the same for the same seed.
fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// Data of a message: noise in every pixel and in the padding.
fn message(format: PixelFormat, [w, h]: [usize; 2], padding: usize, seed: u64) -> (Vec<u8>, usize) {
    let step = format.row_bytes(w) + padding;
    (noise(step * format.data_rows(h), seed), step)
}

fn interleave(image: &ImageRef<'_>, kernels: Kernels) -> Vec<u8> {
    // Dirty memory: every byte has to be written.
    let mut out = vec![0xA5; image.width() * image.height() * image.format().channels()];
    image.interleave_into(&mut out, kernels).unwrap();
    out
}

/// A frame for OpenCV.
struct Case {
    format: PixelFormat,
    size: [usize; 2],
    step: usize,
    data: Vec<u8>,
}

/// OpenCV's pixels of each frame.
fn opencv(cases: &[Case]) -> Option<Vec<Vec<u8>>> {
    let mut oracle = support::oracle("convert_color.py")?;
    let folder = tempfile::tempdir().unwrap();
    let mut list = String::new();
    for (i, case) in cases.iter().enumerate() {
        let order = if case.format == PixelFormat::Mono16Be {
            "be"
        } else {
            ""
        };
        let ([w, h], step) = (case.size, case.step);
        writeln!(list, "{i} {}{order} {w} {h} {step}", case.format).unwrap();
        std::fs::write(folder.path().join(format!("{i}.src")), &case.data).unwrap();
    }
    std::fs::write(folder.path().join("cases.txt"), list).unwrap();
    support::run(oracle.arg(folder.path()));
    let read = |i| std::fs::read(folder.path().join(format!("{i}.dst"))).unwrap();
    Some((0..cases.len()).map(read).collect())
}

fn assert_equal_to_opencv(cases: &[Case]) {
    let Some(expected) = opencv(cases) else {
        return;
    };
    for (case, expected) in cases.iter().zip(expected) {
        let [w, h] = case.size;
        let image = ImageRef::new(&case.data, w, h, case.step, case.format).unwrap();
        for kernels in Kernels::available() {
            let ours = interleave(&image, kernels);
            assert_eq!(ours.len(), expected.len());
            let wrong = ours.iter().zip(&expected).position(|(a, b)| a != b);
            assert_eq!(
                wrong,
                None,
                "first wrong byte, {} {w} x {h}, {}",
                case.format,
                kernels.name()
            );
        }
    }
}

#[test]
fn every_format_equals_opencv_bit_for_bit_at_every_width_and_with_padding() {
    let mut cases = Vec::new();
    for format in converted() {
        let wide = [1920, 640, 1282].map(|w| [w, 6]);
        let narrow = (1..=140).flat_map(|w| [[w, 2], [w, 3], [w, 4 + w % 5]]);
        for size in narrow.chain(wide) {
            let padding = [0, 1, 64][size[0] % 3];
            let (data, step) = message(format, size, padding, (size[0] * 31 + size[1]) as u64);
            // Sizes that the format cannot have are the subject of another test.
            if ImageRef::new(&data, size[0], size[1], step, format).is_ok() {
                cases.push(Case {
                    format,
                    size,
                    step,
                    data,
                });
            }
        }
    }
    assert!(cases.len() > 2000, "{}", cases.len());
    assert_equal_to_opencv(&cases);
}

/// Y and U in full, V in steps that include both ends.
#[test]
fn every_yuv_color_equals_opencv() {
    let mut data = Vec::new();
    for u in 0..=255 {
        for v in (0..=255).step_by(5) {
            data.extend((0..=255).step_by(2).flat_map(|y| [u, y, v, y + 1]));
        }
    }
    let size = [256 * 4, data.len() / 2 / (256 * 4)];
    let swapped = |bytes: &[u8; 4]| [bytes[1], bytes[0], bytes[3], bytes[2]];
    let yuy2 = data.as_chunks().0.iter().flat_map(swapped).collect();
    let cases = [(PixelFormat::Yuv422, data), (PixelFormat::Yuv422Yuy2, yuy2)];
    assert_equal_to_opencv(&cases.map(|(format, data)| Case {
        format,
        size,
        step: 2 * size[0],
        data,
    }));
}

#[test]
fn every_sixteen_bit_grey_equals_opencv() {
    let values = || 0..=u16::MAX;
    let cases = [
        (PixelFormat::Mono16, values().flat_map(u16::to_le_bytes).collect()),
        (
            PixelFormat::Mono16Be,
            values().flat_map(u16::to_be_bytes).collect(),
        ),
    ];
    assert_equal_to_opencv(&cases.map(|(format, data)| Case {
        format,
        size: [256, 256],
        step: 512,
        data,
    }));
}

#[test]
fn the_byte_order_of_a_message_is_obeyed_and_means_nothing_to_bytes() {
    let data = [0x12, 0xFF, 0xFF, 0x12];
    let grey = |format| {
        ImageRef::new(&data, 2, 1, 4, format)
            .unwrap()
            .to_image()
            .into_data()
    };
    let mono16 = PixelFormat::from_ros_encoding("mono16").unwrap();
    assert_eq!(grey(mono16.in_byte_order(false)), [0xFE, 0x13]);
    assert_eq!(grey(mono16.in_byte_order(true)), [0x13, 0xFE]);
    assert_eq!(mono16.in_byte_order(true).in_byte_order(false), mono16);
    assert_eq!(mono16.in_byte_order(true).ros_encoding(), "mono16");
    for format in INTERLEAVED.into_iter().chain(BAYER).chain(YUV_422).chain(YUV_420) {
        assert_eq!(format.in_byte_order(true), format);
    }
}

#[test]
fn sizes_that_a_format_cannot_have_are_refused_with_the_reason() {
    let refused = |format: PixelFormat, [w, h]: [usize; 2]| {
        let data = vec![0; 4096];
        let error = ImageRef::new(&data, w, h, format.row_bytes(w), format).unwrap_err();
        assert!(matches!(error, ImageError::SizeOfFormat { .. }), "{error}");
        error.to_string()
    };
    for format in YUV_422 {
        for size in [[1, 1], [33, 4]] {
            assert!(refused(format, size).contains("the width has to be even"));
        }
    }
    for format in YUV_420 {
        for size in [[1, 1], [33, 4], [32, 5], [2, 1]] {
            assert!(refused(format, size).contains("both sides have to be even"));
        }
    }
    for format in BAYER {
        for size in [[1, 1], [2, 2], [2, 9], [9, 2], [1, 9]] {
            assert!(refused(format, size).contains("below 3 x 3 px"));
        }
    }
    assert_eq!(
        refused(PixelFormat::Nv12, [32, 5]),
        "a nv12 image cannot have 32 x 5 px: 2 x 2 pixels share U and V, so both sides have to be even"
    );
    // The size is looked at before the data, also for an owned image.
    assert!(matches!(
        Image::new(vec![], 3, 2, PixelFormat::Yuv422),
        Err(ImageError::SizeOfFormat { .. })
    ));
}

/// By the ROS definition `height` is that of the picture; the chroma lies below, `step` apart as the rest.
#[test]
fn nv12_data_has_half_as_many_rows_again_as_the_image() {
    let (step, [w, h]) = (40, [32, 8]);
    let data = vec![128; step * h * 3 / 2];
    let whole = ImageRef::new(&data, w, h, step, PixelFormat::Nv12).unwrap();
    assert_eq!((whole.width(), whole.height()), (w, h));
    // The padding after the last row may be left out, nothing else.
    let of = |length| ImageRef::new(&data[..length], w, h, step, PixelFormat::Nv12);
    assert!(of(data.len() - 8).is_ok());
    for length in [data.len() - 9, step * h, 0] {
        let error = of(length).unwrap_err();
        assert_eq!(
            error,
            ImageError::WrongDataLength {
                found: length,
                expected: 480,
                step: 40,
                rows: 12
            }
        );
    }
}

/// Resizes read converted rows, so they equal a conversion of the whole frame followed by the resize.
#[test]
fn resizing_any_format_equals_converting_first() {
    let mut workspace = Workspace::default();
    for (i, format) in converted().into_iter().enumerate() {
        for (size, target) in [
            ([96, 64], [41, 23]),
            ([96, 64], [48, 32]),
            ([96, 64], [200, 150]),
            ([34, 66], [34, 66]),
            ([1920, 1080], [416, 416]),
        ] {
            let (data, step) = message(format, size, 5, i as u64);
            let image = ImageRef::new(&data, size[0], size[1], step, format).unwrap();
            let whole = image.to_image();
            assert_eq!(whole.format(), format.interleaved());
            for kernels in Kernels::available() {
                let plan = ResizePlan::new(size, target).unwrap().with_kernels(kernels);
                let mut resized = |image| {
                    let mut out = vec![0xA5; target[0] * target[1] * format.channels()];
                    plan.apply(image, &mut out, &mut workspace).unwrap();
                    out
                };
                assert!(resized(&image) == resized(&whole.view()), "{format} {target:?}");
                let plan = LetterboxPlan::new(size[0], size[1], target[0], target[1]).unwrap();
                let mut boxed = |image| {
                    let mut out = vec![0xA5; plan.output_bytes()];
                    plan.apply(image, &mut out, &mut workspace).unwrap();
                    out
                };
                assert!(boxed(&image) == boxed(&whole.view()), "{format} {target:?}");
            }
        }
    }
}

/// Every preset reads rows through the conversion, also on several threads and after a first resize.
#[test]
fn every_preset_takes_any_format_as_its_converted_frame() {
    let mut planned = 0;
    for (size, threads) in [([1600, 900], 1), ([1920, 1080], 3)] {
        let smaller = PresetOptions {
            target_px: Some(size.map(|side| side * 4 / 5)),
            ..PresetOptions::DEPLOYED
        };
        let plan = |preset| {
            PresetPlan::new(preset, size, &PresetOptions::DEPLOYED)
                .or_else(|_| PresetPlan::new(preset, size, &smaller))
        };
        let plans: Vec<PresetPlan> = Preset::ALL.into_iter().flat_map(plan).collect();
        planned += plans.len();
        for format in [PixelFormat::Nv12, PixelFormat::BayerGrbg8, PixelFormat::Mono16Be] {
            let (data, step) = message(format, size, 5, 3);
            let image = ImageRef::new(&data, size[0], size[1], step, format).unwrap();
            let whole = image.to_image();
            let mut workspaces = vec![Workspace::default(); threads];
            for plan in &plans {
                let mut prepared = |image| {
                    let mut out = vec![0xA5_u8; plan.form().bytes()];
                    plan.apply(image, &mut out, &mut workspaces).unwrap();
                    out
                };
                assert!(prepared(&image) == prepared(&whole.view()), "{format} {plan:?}");
            }
        }
    }
    assert_eq!(planned, 2 * Preset::ALL.len());
}

#[test]
fn files_written_from_any_format_hold_the_converted_picture() {
    for format in converted() {
        let (data, step) = message(format, [34, 18], 3, 9);
        let image = ImageRef::new(&data, 34, 18, step, format).unwrap();
        let converted = image.to_image();
        let png = encode_png(&image).unwrap();
        assert_eq!(png, encode_png(&converted.view()).unwrap(), "{format}");
        assert_eq!(
            encode_jpeg(&image, 90).unwrap(),
            encode_jpeg(&converted.view(), 90).unwrap(),
            "{format}"
        );
        let back = decode_image(&png).unwrap();
        let channels = format.channels();
        let in_order: Vec<u8> = (converted.data().chunks_exact(channels))
            .flat_map(|pixel| pixel.iter().rev().copied())
            .collect();
        assert!(back.data() == in_order, "{format}");
    }
}

#[test]
fn a_short_target_of_a_conversion_is_refused() {
    let (data, step) = message(PixelFormat::Nv12, [4, 4], 0, 1);
    let image = ImageRef::new(&data, 4, 4, step, PixelFormat::Nv12).unwrap();
    assert_eq!(
        image.interleave_into(&mut [0; 47], Kernels::detect()),
        Err(ImageError::OutputLength {
            expected: 48,
            found: 47
        })
    );
}

fn any_format() -> impl Strategy<Value = PixelFormat> {
    proptest::sample::select([converted(), INTERLEAVED.to_vec()].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Padding is never read, and both kernels agree, whatever the size.
    #[test]
    fn padding_and_kernels_change_nothing(
        format in any_format(), w in 1_usize..150, h in 1_usize..12, padding in 0_usize..70, seed: u64
    ) {
        let (dense, step) = message(format, [w, h], 0, seed);
        let Ok(image) = ImageRef::new(&dense, w, h, step, format) else {
            return Ok(());
        };
        let expected = interleave(&image, Kernels::scalar());
        prop_assert_eq!(&interleave(&image, Kernels::detect()), &expected);
        for fill in [0x00, 0xFF] {
            let mut padded = Vec::new();
            for row in dense.chunks_exact(step) {
                padded.extend_from_slice(row);
                padded.resize(padded.len() + padding, fill);
            }
            let image = ImageRef::new(&padded, w, h, step + padding, format).unwrap();
            prop_assert_eq!(&interleave(&image, Kernels::detect()), &expected);
        }
    }

    /// A grey that is the same everywhere stays so: mosaics keep its value, YUV without colour scales it.
    #[test]
    fn constant_grey_stays_constant_grey(
        format in any_format(), w in 2_usize..80, h in 2_usize..9, grey: u8
    ) {
        let mut data = vec![grey; format.row_bytes(w) * format.data_rows(h)];
        match format {
            PixelFormat::Yuv422 => data.iter_mut().step_by(2).for_each(|u| *u = 128),
            PixelFormat::Yuv422Yuy2 => data.iter_mut().skip(1).step_by(2).for_each(|u| *u = 128),
            PixelFormat::Nv12 | PixelFormat::Nv21 => data[w * h..].fill(128),
            _ => {}
        }
        let Ok(image) = ImageRef::new(&data, w, h, format.row_bytes(w), format) else {
            return Ok(());
        };
        let out = interleave(&image, Kernels::detect());
        prop_assert!(out.iter().all(|&v| v == out[0]));
        if !(YUV_422.contains(&format) || YUV_420.contains(&format)) {
            prop_assert_eq!(out[0], grey);
        }
    }

    /// Whatever a message claims, it is refused or every pixel can be read.
    #[test]
    fn any_claim_about_any_bytes_is_an_error_or_an_image(
        format in any_format(), w in 0_usize..40, h in 0_usize..40, step in 0_usize..200, length in 0_usize..6000
    ) {
        let data = vec![7; length];
        if let Ok(image) = ImageRef::new(&data, w, h, step, format) {
            prop_assert_eq!(image.to_image().data().len(), w * h * format.channels());
        }
    }
}
