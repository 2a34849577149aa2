//! `preprocess.cu` of Autoware's `tensorrt_yolox`.

use sensorium::image::{
    AutowareLetterboxPlan, ImageError, Kernels, Layout, Preset, PresetOptions, SampleType,
};

use crate::image_kernels::frames::{Frame, assert_same_bits, bits, format, interleaved, preset_bytes, sixty};

/// The whole result, planes of blue, green and red, as the kernel computes it: one thread per target pixel.
fn transcription(frame: &Frame, target: [usize; 2]) -> Vec<f32> {
    let [source_width, source_height] = frame.size_px.map(|side| side as i64);
    let [width, height] = target;
    let scale = f32::min(
        width as f32 / source_width as f32,
        height as f32 / source_height as f32,
    );
    let bottom = (scale * source_height as f32) as usize;
    let right = (scale * source_width as f32) as usize;
    let inverse = (1.0 / f64::from(scale)) as f32;

    let lround = |value: f32| value.round() as i64;
    let lerp = |a: i64, b: i64, w: f32| {
        let (a, b) = (a as f32, b as f32);
        w.mul_add(b, (-w).mul_add(a, a))
    };
    let mut out = vec![0.0; 3 * width * height];
    for y in 0..height {
        for x in 0..width {
            let center_y = inverse * (y as f64 + 0.5) as f32;
            let center_x = inverse * (x as f64 + 0.5) as f32;
            let row = (lround(center_y) - 1).max(0).min(source_height - 2);
            let column = (lround(center_x) - 1).max(0).min(source_width - 2);
            let weight_x = ((1 + lround(center_x)) as f32 - center_x) / 2.0;
            let weight_y = ((1 + lround(center_y)) as f32 - center_y) / 2.0;
            for channel in 0..3 {
                let at = |dx: i64, dy: i64| {
                    let (x, y) = ((column + dx) as usize, (row + dy) as usize);
                    i64::from(frame.bgr(x, y, channel))
                };
                // Arguments of the second blend are integers: what the first ones leave is cut.
                let upper = lerp(at(0, 0), at(1, 0), weight_x) as i64;
                let lower = lerp(at(0, 1), at(1, 1), weight_x) as i64;
                let value = lround(lerp(upper, lower, weight_y)) as f32;
                let inside = x < right && y < bottom;
                out[channel * width * height + y * width + x] = if inside { value } else { 114.0 };
            }
        }
    }
    out
}

fn bytes(planes: &[f32]) -> Vec<u8> {
    planes.iter().map(|&v| v as u8).collect()
}

const GIVEN: [[[usize; 2]; 2]; 12] = [
    [[2, 2], [1, 1]],
    [[2, 2], [7, 7]],
    [[2, 31], [40, 90]],
    [[33, 2], [60, 20]],
    [[3, 3], [3, 3]],
    [[64, 48], [32, 32]],
    [[64, 48], [32, 24]],
    [[32, 24], [64, 64]],
    [[161, 91], [96, 96]],
    [[16, 9], [96, 96]],
    [[200, 113], [41, 23]],
    [[97, 101], [97, 101]],
];

/// The preset's result.
fn preset(
    frame: &Frame,
    target: [usize; 2],
    layout: Layout,
    samples: SampleType,
    kernels: Kernels,
) -> Vec<u8> {
    let options = PresetOptions {
        target_px: Some(target),
        layout: Some(layout),
        samples: Some(samples),
        ..PresetOptions::DEPLOYED
    };
    preset_bytes(Preset::YoloxAutoware, frame, &options, kernels)
}

#[test]
fn autoware_letterbox_equals_the_kernel_bit_for_bit() {
    let mut checked = 0;
    for (i, [source, target]) in sixty(&GIVEN, 2).into_iter().enumerate() {
        match AutowareLetterboxPlan::new(source, target) {
            Ok(_) => {}
            Err(ImageError::ShrinksToNothing { .. }) => continue,
            Err(error) => panic!("{source:?} -> {target:?}: {error}"),
        }
        for variant in 0..2 {
            let frame = Frame::noise(source, format(i + variant), i as u64);
            let expected = transcription(&frame, target);
            for kernels in Kernels::available() {
                let what = format!("{source:?} {} -> {target:?}, {}", frame.format, kernels.name());
                let floats = preset(&frame, target, Layout::Chw, SampleType::F32, kernels);
                let floats: Vec<f32> = bytemuck::allocation::pod_collect_to_vec(&floats);
                assert_same_bits(&bits(&floats), &bits(&expected), &what);
                let planes = preset(&frame, target, Layout::Chw, SampleType::U8, kernels);
                assert_same_bits(&planes, &bytes(&expected), &what);
                let rows = preset(&frame, target, Layout::Hwc, SampleType::U8, kernels);
                assert_same_bits(&rows, &interleaved(&planes), &what);
            }
        }
        checked += 1;
    }
    assert!(checked >= 50, "only {checked} geometries leave an image");
}

#[test]
fn autoware_letterbox_equals_the_kernel_on_the_deployed_sizes() {
    for (source, target) in [
        ([1920, 1080], [960, 960]),
        ([2880, 1860], [960, 960]),
        ([1440, 1080], [416, 416]),
    ] {
        let frame = Frame::noise(source, format(0), 3);
        let expected = bytes(&transcription(&frame, target));
        for kernels in Kernels::available() {
            let planes = preset(&frame, target, Layout::Chw, SampleType::U8, kernels);
            assert_same_bits(&planes, &expected, kernels.name());
        }
    }
}

#[test]
fn autoware_letterbox_geometry_is_computed_in_single_precision() {
    let plan = AutowareLetterboxPlan::new([1920, 1080], [960, 960]).unwrap();
    assert_eq!((plan.scale(), plan.content_px()), (0.5, [960, 540]));
    let plan = AutowareLetterboxPlan::new([2880, 1860], [960, 960]).unwrap();
    assert_eq!(plan.content_px(), [960, 620]);
    // 43 * (960 / 43) is 959.99994 in single precision: a column of the target stays padding.
    let plan = AutowareLetterboxPlan::new([43, 43], [960, 960]).unwrap();
    assert_eq!(plan.content_px(), [959, 959]);
}

#[test]
fn a_flat_image_stays_flat_in_the_autoware_letterbox() {
    // Each blend rounds once more than it needs to, but never away from a value that both samples share.
    for value in 0..=255 {
        let frame = Frame::constant([161, 91], value);
        let plan = AutowareLetterboxPlan::new(frame.size_px, [96, 96]).unwrap();
        let out = preset(&frame, [96, 96], Layout::Hwc, SampleType::U8, Kernels::detect());
        let [width, height] = plan.content_px();
        for row in out.chunks_exact(3 * 96).take(height) {
            assert!(row[..3 * width].iter().all(|&v| v == value), "{value}");
        }
    }
}

#[test]
fn autoware_letterbox_refuses_frames_of_one_pixel_and_frames_that_vanish() {
    assert!(matches!(
        AutowareLetterboxPlan::new([1, 40], [96, 96]),
        Err(ImageError::SourceTooSmall { .. })
    ));
    assert!(matches!(
        AutowareLetterboxPlan::new([2, 4000], [96, 96]),
        Err(ImageError::ShrinksToNothing { .. })
    ));
}
