//! `resizeAndExtractRoi_kernel` of Autoware's `camera_streampetr` and `bevfusion`.

use sensorium::image::{
    ChannelOrder, Contraction, ImageError, Kernels, PlanCache, Preset, PresetOptions, TriangleGeometry,
    Workspace,
};

use crate::image_kernels::frames::{Frame, Noise, assert_same_bits, bits, format, preset_bytes, sixty};

/// What the kernel is launched with: sizes in pixels, width first.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Launch {
    resized: [i32; 2],
    crop: [i32; 2],
    start: [i32; 2],
}

/// `calculate_image_processing_params`.
fn streampetr_launch(source: [usize; 2], crop: [usize; 2]) -> Launch {
    let [width, height] = source.map(|side| side as i32);
    let [crop_width, crop_height] = crop.map(|side| side as i32);
    let scale = f32::max(
        crop_height as f32 / height as f32,
        crop_width as f32 / width as f32,
    );
    launch([width, height], [crop_width, crop_height], [scale; 2])
}

fn launch([width, height]: [i32; 2], [crop_width, crop_height]: [i32; 2], scale: [f32; 2]) -> Launch {
    let resized = [
        (width as f32 * scale[0]) as i32,
        (height as f32 * scale[1]) as i32,
    ];
    let crop_h = resized[1] - crop_height;
    let crop_w = ((resized[0] - crop_width) / 2).max(0);
    Launch {
        resized,
        crop: [crop_width, crop_height],
        start: [crop_w.max(0), crop_h.max(0)],
    }
}

/// The three weighted means of one target pixel, as its thread computes them.
fn means(frame: &Frame, launch: Launch, [out_x, out_y]: [i32; 2], fused: bool) -> [f32; 3] {
    let multiply_add = |a: f32, b: f32, c: f32| {
        if fused { a.mul_add(b, c) } else { a * b + c }
    };
    let [in_w, in_h] = frame.size_px.map(|side| side as i32);
    let scale_x = in_w as f32 / launch.resized[0] as f32;
    let scale_y = in_h as f32 / launch.resized[1] as f32;
    let resized_x = (out_x + launch.start[0]) as f32;
    let resized_y = (out_y + launch.start[1]) as f32;
    let center_x = multiply_add(resized_x + 0.5, scale_x, -0.5);
    let center_y = multiply_add(resized_y + 0.5, scale_y, -0.5);
    let support_x = if scale_x > 1.0 { scale_x } else { 1.0 };
    let support_y = if scale_y > 1.0 { scale_y } else { 1.0 };
    let x_min = ((center_x - support_x).ceil() as i32).max(0);
    let x_max = ((center_x + support_x).floor() as i32).min(in_w - 1);
    let y_min = ((center_y - support_y).ceil() as i32).max(0);
    let y_max = ((center_y + support_y).floor() as i32).min(in_h - 1);
    let mut sums = [0.0; 3];
    let mut sum_weight = 0.0;
    for y in y_min..=y_max {
        let weight_y = f32::max(0.0, 1.0 - (center_y - y as f32).abs() / support_y);
        for x in x_min..=x_max {
            let weight_x = f32::max(0.0, 1.0 - (center_x - x as f32).abs() / support_x);
            let weight = weight_x * weight_y;
            if weight > 0.0 {
                for (channel, sum) in sums.iter_mut().enumerate() {
                    let pixel = f32::from(frame.bgr(x as usize, y as usize, channel));
                    *sum = multiply_add(pixel, weight, *sum);
                }
                sum_weight += weight;
            }
        }
    }
    if sum_weight > 0.0 {
        sums = sums.map(|sum| sum / sum_weight);
    }
    sums
}

/// A value for every channel and pixel of the target, in planes.
fn planes<T: Clone>(
    frame: &Frame,
    launch: Launch,
    fused: bool,
    zero: T,
    finish: impl Fn(f32, usize) -> T,
) -> Vec<T> {
    let [width, height] = launch.crop;
    let area = (width * height) as usize;
    let mut out = vec![zero; 3 * area];
    for y in 0..height {
        for x in 0..width {
            for (channel, mean) in means(frame, launch, [x, y], fused).into_iter().enumerate() {
                out[channel * area + (y * width + x) as usize] = finish(mean, channel);
            }
        }
    }
    out
}

fn streampetr(frame: &Frame, target: [usize; 2], fused: bool) -> Vec<f32> {
    planes(
        frame,
        streampetr_launch(frame.size_px, target),
        fused,
        0.0,
        normalized,
    )
}

fn normalized(mean: f32, channel: usize) -> f32 {
    (mean - [103.530, 116.280, 123.675][channel]) / [57.375, 57.120, 58.395][channel]
}

const BOTH: [(Contraction, bool); 2] = [(Contraction::Fused, true), (Contraction::Separate, false)];

const GIVEN: [[[usize; 2]; 2]; 12] = [
    [[1, 1], [1, 1]],
    [[1, 1], [9, 5]],
    [[2, 2], [7, 7]],
    [[1, 40], [6, 6]],
    [[40, 1], [6, 6]],
    [[2, 31], [40, 90]],
    [[33, 2], [17, 20]],
    [[64, 48], [32, 24]],
    [[32, 24], [64, 48]],
    [[48, 48], [48, 48]],
    [[161, 91], [64, 48]],
    [[96, 54], [33, 31]],
];

/// StreamPETR's input as the preset makes it.
fn streampetr_preset(
    frame: &Frame,
    target: [usize; 2],
    contraction: Contraction,
    kernels: Kernels,
) -> Vec<f32> {
    let options = PresetOptions {
        target_px: Some(target),
        contraction: Some(contraction),
        ..PresetOptions::DEPLOYED
    };
    let bytes = preset_bytes(Preset::Streampetr, frame, &options, kernels);
    bytemuck::allocation::pod_collect_to_vec(&bytes)
}

/// The options of BEVFusion's preset.
fn bevfusion(target: [usize; 2], scale: [f32; 2], contraction: Contraction) -> PresetOptions {
    PresetOptions {
        target_px: Some(target),
        scale: Some(scale),
        contraction: Some(contraction),
        ..PresetOptions::DEPLOYED
    }
}

#[test]
fn streampetr_equals_the_kernel_bit_for_bit() {
    let mut checked = 0;
    for (i, [source, target]) in sixty(&GIVEN, 1).into_iter().enumerate() {
        match TriangleGeometry::covering(source, target) {
            Ok(_) => {}
            Err(ImageError::ShrinksToNothing { .. }) => continue,
            Err(error) => panic!("{source:?} -> {target:?}: {error}"),
        }
        let frame = Frame::noise(source, format(i), i as u64);
        for (contraction, fused) in BOTH {
            let expected = streampetr(&frame, target, fused);
            for kernels in Kernels::available() {
                let what = format!(
                    "{source:?} {} -> {target:?}, {contraction:?}, {}",
                    frame.format,
                    kernels.name()
                );
                let ours = streampetr_preset(&frame, target, contraction, kernels);
                assert_same_bits(&bits(&ours), &bits(&expected), &what);
            }
        }
        checked += 1;
    }
    assert!(checked >= 58, "only {checked} geometries leave an image");
}

#[test]
fn streampetr_equals_the_kernel_on_the_deployed_size() {
    let (source, target) = ([1920, 1080], [640, 480]);
    let frame = Frame::noise(source, format(0), 3);
    let launch = streampetr_launch(source, target);
    for (contraction, fused) in BOTH {
        let mut noise = Noise::new(9);
        let mut pixels: Vec<[i32; 2]> = (0..3000)
            .map(|_| [noise.within(0..=639) as i32, noise.within(0..=479) as i32])
            .collect();
        pixels.extend([[0, 0], [639, 0], [0, 479], [639, 479]]);
        for kernels in Kernels::available() {
            let out = streampetr_preset(&frame, target, contraction, kernels);
            for &[x, y] in &pixels {
                let expected = means(&frame, launch, [x, y], fused);
                for channel in 0..3 {
                    let ours = out[(channel * 480 + y as usize) * 640 + x as usize];
                    let expected = normalized(expected[channel], channel);
                    assert_eq!(
                        ours.to_bits(),
                        expected.to_bits(),
                        "{x}, {y}, {channel}, {}",
                        kernels.name()
                    );
                }
            }
        }
    }
}

#[test]
fn windows_of_thousands_of_pixels_give_the_same_bits() {
    let (source, target) = ([4000, 600], [3, 2]);
    let frame = Frame::noise(source, format(0), 4);
    let expected = streampetr(&frame, target, true);
    for kernels in Kernels::available() {
        let out = streampetr_preset(&frame, target, Contraction::Fused, kernels);
        assert_same_bits(&bits(&out), &bits(&expected), kernels.name());
    }
}

#[test]
fn streampetr_geometry_is_computed_in_single_precision() {
    for [source, target] in sixty(&GIVEN, 1).into_iter().chain([
        [[1920, 1080], [640, 480]],
        [[2880, 1860], [640, 480]],
        [[1440, 1080], [640, 480]],
    ]) {
        let Ok(geometry) = TriangleGeometry::covering(source, target) else {
            continue;
        };
        let expected = streampetr_launch(source, target);
        let ours = [geometry.resized_px, geometry.crop_px, geometry.start_px].map(|v| v.map(|v| v as i32));
        assert_eq!(
            ours,
            [expected.resized, expected.crop, expected.start],
            "{source:?} -> {target:?}"
        );
    }
    let geometry = TriangleGeometry::covering([1920, 1080], [640, 480]).unwrap();
    assert_eq!((geometry.resized_px, geometry.start_px), ([853, 480], [106, 0]));
    // 1064 * (640 / 1064) is 639.99994 in single precision.
    let geometry = TriangleGeometry::covering([1064, 300], [640, 100]).unwrap();
    assert_eq!((geometry.resized_px, geometry.start_px), ([639, 180], [0, 80]));
}

#[test]
fn a_batch_holds_every_camera_at_its_own_size() {
    let sizes = [[64, 48], [97, 31], [20, 20]];
    let frames: Vec<Frame> = (0..3)
        .map(|i| Frame::noise(sizes[i], format(i), i as u64))
        .collect();
    let views: Vec<_> = frames.iter().map(Frame::view).collect();
    let options = PresetOptions {
        target_px: Some([32, 24]),
        ..PresetOptions::DEPLOYED
    };
    let cache = PlanCache::new(Preset::Streampetr, options, 3).unwrap();
    let mut out = vec![f32::NAN; 3 * 3 * 32 * 24];
    let (mut geometries, mut workspaces) = (Vec::new(), [Workspace::default()]);
    cache
        .apply_all(
            &views,
            bytemuck::cast_slice_mut(&mut out),
            &mut geometries,
            &mut workspaces,
        )
        .unwrap();
    let expected: Vec<f32> = frames
        .iter()
        .flat_map(|f| streampetr(f, [32, 24], true))
        .collect();
    assert_same_bits(&bits(&out), &bits(&expected), "batch");
}

#[test]
fn a_flat_image_comes_close_to_flat() {
    // Sums of pixels and of weights are rounded apart, so their quotient may miss the value that all pixels
    // share: by a few units in the last place before it is cut, by one after.
    let mut darkened = 0;
    for value in 0..=255 {
        let frame = Frame::constant([161, 91], value);
        let out = streampetr_preset(&frame, [64, 48], Contraction::Fused, Kernels::detect());
        for (i, &v) in out.iter().enumerate() {
            let flat = normalized(f32::from(value), i / (64 * 48));
            assert!((v - flat).abs() < 2e-6, "{value}: {v}, not {flat}");
        }
        let options = bevfusion([64, 36], [0.4; 2], Contraction::Fused);
        let out = preset_bytes(Preset::Bevfusion, &frame, &options, Kernels::detect());
        assert!(out.iter().all(|&v| v == value || v + 1 == value), "{value}");
        darkened += usize::from(out.iter().any(|&v| v != value));
    }
    assert!(darkened > 100, "{darkened} values were darkened");
}

#[test]
fn bevfusion_equals_the_kernel_bit_for_bit() {
    let mut noise = Noise::new(6);
    let mut checked = 0;
    for (i, [source, target]) in sixty(&GIVEN, 1).into_iter().enumerate() {
        // Some results reach over the resized image on purpose.
        let scale = [0, 1].map(|axis| {
            let fits = target[axis] as f32 / source[axis] as f32;
            fits * (0.9 + noise.within(0..=100) as f32 / 100.0)
        });
        if TriangleGeometry::scaled(source, target, scale).is_err() {
            continue;
        }
        let frame = Frame::noise(source, format(i), i as u64);
        let launch = launch(source.map(|s| s as i32), target.map(|s| s as i32), scale);
        for (contraction, fused) in BOTH {
            let expected = planes(&frame, launch, fused, 0, |mean, _| mean as u8);
            let (bgr, area) = (&expected, target[0] * target[1]);
            let rgb: Vec<u8> = [2, 1, 0]
                .iter()
                .flat_map(|c| bgr[c * area..][..area].to_vec())
                .collect();
            for kernels in Kernels::available() {
                let what = format!(
                    "{source:?} -> {target:?} by {scale:?}, {contraction:?}, {}",
                    kernels.name()
                );
                let options = bevfusion(target, scale, contraction);
                let out = preset_bytes(Preset::Bevfusion, &frame, &options, kernels);
                assert_same_bits(&out, bgr, &what);
                let options = PresetOptions {
                    order: Some(ChannelOrder::Rgb),
                    ..options
                };
                let out = preset_bytes(Preset::Bevfusion, &frame, &options, kernels);
                assert_same_bits(&out, &rgb, &what);
            }
        }
        checked += 1;
    }
    assert!(checked >= 55, "only {checked} geometries leave an image");
    let geometry = TriangleGeometry::scaled([1440, 1080], [576, 384], [0.4; 2]).unwrap();
    assert_eq!((geometry.resized_px, geometry.start_px), ([576, 432], [0, 48]));
}
