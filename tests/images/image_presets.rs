//! Presets: the network inputs that deployed nodes make, in every layout and type, on any number of threads.

use crate::support;
use std::fmt::Write as _;

use half::bf16;
use sensorium::image::{
    ChannelOrder, Image, ImageError, Kernels, Layout, PixelFormat, PlanCache, Preset, PresetOptions,
    PresetPlan, SampleType, Workspace, decode_image, scale_intrinsics,
};

/// Repeatable noise.
fn noise(seed: u64, n: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..n)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect()
}

fn frame(seed: u64, [width, height]: [usize; 2]) -> Image {
    Image::new(noise(seed, width * height * 3), width, height, PixelFormat::Bgr8).unwrap()
}

/// The options under which a preset takes any frame.
fn options(preset: Preset) -> PresetOptions {
    PresetOptions {
        target_px: match preset {
            _ if preset.deployed_px().is_some() => None,
            Preset::OpencvLinearF32 => Some([128, 72]),
            _ => Some([96, 64]),
        },
        ..PresetOptions::DEPLOYED
    }
}

/// A frame size that every preset takes.
const ANY_PX: [usize; 2] = [800, 450];

fn frame_px(preset: Preset) -> [usize; 2] {
    match preset {
        Preset::OpencvLinearF32 => [160, 90],
        _ => ANY_PX,
    }
}

/// The input as bytes, in memory that suits floats.
fn apply(plan: &PresetPlan, image: &Image, threads: usize) -> Vec<u8> {
    let mut out = vec![f64::NAN; plan.form().bytes().div_ceil(8)];
    let out = &mut bytemuck::cast_slice_mut(&mut out)[..plan.form().bytes()];
    let mut workspaces = vec![Workspace::default(); threads];
    plan.apply(&image.view(), out, &mut workspaces).unwrap();
    out.to_vec()
}

/// As floats, in the order of planes, whatever the form.
fn planes(plan: &PresetPlan, bytes: &[u8]) -> Vec<f32> {
    let form = plan.form();
    let values: Vec<f32> = match form.samples {
        SampleType::U8 => bytes.iter().map(|&byte| f32::from(byte)).collect(),
        SampleType::Bf16 => bytes
            .as_chunks()
            .0
            .iter()
            .map(|&pair| bf16::from_ne_bytes(pair).to_f32())
            .collect(),
        SampleType::F32 => bytes
            .as_chunks()
            .0
            .iter()
            .map(|&four| f32::from_ne_bytes(four))
            .collect(),
    };
    match form.layout {
        Layout::Chw => values,
        Layout::Hwc => (0..3)
            .flat_map(|channel| values.iter().skip(channel).step_by(3).copied())
            .collect(),
    }
}

#[test]
fn opencv_presets_equal_opencv_bit_for_bit() {
    let sizes = |preset: Preset| -> Vec<[usize; 2]> {
        match preset {
            // Others than the first are brought to it before.
            Preset::Bevformer => vec![
                [1600, 900],
                [800, 450],
                [1920, 1080],
                [3200, 1800],
                [135, 95],
                [1, 1],
            ],
            Preset::Meteor => vec![
                [1920, 1080],
                [768, 432],
                [2880, 1860],
                [1536, 864],
                [769, 1001],
                [2304, 432],
            ],
            _ => vec![
                [1920, 1080],
                [640, 320],
                [1280, 640],
                [1000, 727],
                [414, 303],
                [2, 1],
                [1, 1],
                [639, 321],
            ],
        }
    };
    let mut cases = Vec::new();
    let opencv = [
        Preset::SceneSeg,
        Preset::Bevformer,
        Preset::Meteor,
        Preset::YoloxOpencv,
        Preset::FastestDetOpencv,
        Preset::OpencvArea,
        Preset::OpencvNearest,
        Preset::OpencvLinear,
    ];
    for preset in opencv {
        for (i, size) in sizes(preset).into_iter().enumerate() {
            cases.push((preset, frame(i as u64 + 1, size)));
        }
        if let Some(folder) = support::data("camera/nuscenes_n015") {
            let mut photos: Vec<_> = folder
                .read_dir()
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .collect();
            photos.retain(|path| path.extension().is_some_and(|e| e == "jpg"));
            assert_eq!(photos.len(), 6);
            for photo in photos {
                let rgb = decode_image(&std::fs::read(photo).unwrap()).unwrap();
                let bgr = rgb
                    .data()
                    .as_chunks::<3>()
                    .0
                    .iter()
                    .flat_map(|&[r, g, b]| [b, g, r])
                    .collect();
                let image = Image::new(bgr, rgb.width(), rgb.height(), PixelFormat::Bgr8).unwrap();
                cases.push((preset, image));
            }
        }
    }
    for oracle in [
        support::oracle("presets.py"),
        support::oracle_opencv48("presets.py"),
    ] {
        let Some(mut oracle) = oracle else { continue };
        let folder = tempfile::tempdir().unwrap();
        let mut list = String::new();
        for (i, (preset, image)) in cases.iter().enumerate() {
            std::fs::write(folder.path().join(format!("{i}.src")), image.data()).unwrap();
            writeln!(list, "{i} {} {} {}", preset.name(), image.width(), image.height()).unwrap();
        }
        std::fs::write(folder.path().join("cases.txt"), list).unwrap();
        support::run(oracle.arg(folder.path()));
        for (i, (preset, image)) in cases.iter().enumerate() {
            let expected = std::fs::read(folder.path().join(format!("{i}.dst"))).unwrap();
            let plan = PresetPlan::new(*preset, [image.width(), image.height()], &options(*preset)).unwrap();
            let ours = apply(&plan, image, 1);
            assert_eq!(ours.len(), expected.len());
            let wrong = ours.iter().zip(&expected).filter(|(a, b)| a != b).count();
            assert_eq!(
                wrong,
                0,
                "{} of {image:?}: {wrong} of {} bytes differ",
                preset.name(),
                ours.len()
            );
        }
    }
}

#[test]
fn neither_threads_nor_kernels_change_a_bit() {
    for preset in Preset::ALL {
        let source_px = frame_px(preset);
        let image = frame(7, source_px);
        for layout in Layout::ALL {
            for samples in SampleType::ALL {
                let options = PresetOptions {
                    layout: Some(layout),
                    samples: Some(samples),
                    ..options(preset)
                };
                let Ok(plan) = PresetPlan::new(preset, source_px, &options) else {
                    assert!(samples == SampleType::U8 && preset.computes_in_float());
                    continue;
                };
                let expected = apply(&plan.clone().with_kernels(Kernels::scalar()), &image, 1);
                for kernels in Kernels::available() {
                    for threads in [1, 2, 3, 7] {
                        let ours = apply(&plan.clone().with_kernels(kernels), &image, threads);
                        assert!(
                            ours == expected,
                            "{} {layout:?} {samples:?} on {threads} threads with {}",
                            preset.name(),
                            kernels.name()
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn every_layout_type_and_order_holds_the_same_values() {
    for preset in Preset::ALL {
        let source_px = frame_px(preset);
        let image = frame(9, source_px);
        let with = |layout, samples, order| {
            let options = PresetOptions {
                layout: Some(layout),
                samples: Some(samples),
                order: Some(order),
                ..options(preset)
            };
            PresetPlan::new(preset, source_px, &options).map(|plan| planes(&plan, &apply(&plan, &image, 1)))
        };
        let floats = with(Layout::Chw, SampleType::F32, ChannelOrder::Bgr).unwrap();
        assert_eq!(
            with(Layout::Hwc, SampleType::F32, ChannelOrder::Bgr).unwrap(),
            floats
        );
        let rounded: Vec<f32> = floats
            .iter()
            .map(|&value| bf16::from_f32(value).to_f32())
            .collect();
        for layout in Layout::ALL {
            assert_eq!(
                with(layout, SampleType::Bf16, ChannelOrder::Bgr).unwrap(),
                rounded,
                "{}",
                preset.name()
            );
        }
        if let Ok(bytes) = with(Layout::Hwc, SampleType::U8, ChannelOrder::Bgr) {
            assert_eq!(
                with(Layout::Chw, SampleType::U8, ChannelOrder::Bgr).unwrap(),
                bytes
            );
        }
        // The statistics go with their channels, so reversed channels are reversed planes.
        let plane = floats.len() / 3;
        let reversed: Vec<f32> = floats.chunks_exact(plane).rev().flatten().copied().collect();
        assert_eq!(
            with(Layout::Chw, SampleType::F32, ChannelOrder::Rgb).unwrap(),
            reversed,
            "{}",
            preset.name()
        );
    }
}

#[test]
fn channel_orders_of_frames_do_not_matter() {
    let [width, height] = ANY_PX;
    let bgr = frame(3, ANY_PX);
    let pixels = || bgr.data().as_chunks::<3>().0.iter();
    let frames = [
        (
            PixelFormat::Rgb8,
            pixels().flat_map(|&[b, g, r]| [r, g, b]).collect::<Vec<u8>>(),
        ),
        (
            PixelFormat::Rgba8,
            pixels().flat_map(|&[b, g, r]| [r, g, b, 77]).collect(),
        ),
        (
            PixelFormat::Bgra8,
            pixels().flat_map(|&[b, g, r]| [b, g, r, 77]).collect(),
        ),
    ];
    for preset in Preset::ALL {
        if preset == Preset::OpencvLinearF32 {
            continue;
        }
        let plan = PresetPlan::new(preset, ANY_PX, &options(preset)).unwrap();
        let expected = apply(&plan, &bgr, 1);
        for (format, data) in &frames {
            let image = Image::new(data.clone(), width, height, *format).unwrap();
            assert!(
                apply(&plan, &image, 1) == expected,
                "{} of {format}",
                preset.name()
            );
        }
    }
}

#[test]
fn options_that_a_preset_does_not_have_are_refused() {
    let refused = |preset: Preset, options: PresetOptions, word: &str| {
        let error = PresetPlan::new(preset, ANY_PX, &options).unwrap_err().to_string();
        assert!(error.contains(preset.name()) && error.contains(word), "{error}");
    };
    let none = PresetOptions::DEPLOYED;
    refused(Preset::YoloxOpencv, none, "has to be given");
    let bytes = PresetOptions {
        samples: Some(SampleType::U8),
        ..none
    };
    refused(Preset::Bevformer, bytes, "uint8");
    let sized = PresetOptions {
        target_px: Some([640, 384]),
        ..none
    };
    refused(Preset::Bevformer, sized, "fixed");
    let fused = PresetOptions {
        contraction: Some(sensorium::image::Contraction::Fused),
        ..none
    };
    refused(Preset::SceneSeg, fused, "contraction");
    let error = PresetPlan::new(Preset::Meteor, [640, 432], &none)
        .unwrap_err()
        .to_string();
    assert!(error.contains("shrinking"), "{error}");
    let odd = PresetOptions {
        target_px: Some([640, 384]),
        ..none
    };
    let error = PresetPlan::new(Preset::OpencvLinearF32, ANY_PX, &odd).unwrap_err();
    assert!(matches!(error, ImageError::UnverifiedScale { .. }), "{error}");
    let error = Preset::from_name("yolox").unwrap_err().to_string();
    assert!(error.contains("yolox_opencv"), "{error}");
}

#[test]
fn memory_that_does_not_fit_is_refused() {
    let plan = PresetPlan::new(Preset::SceneSeg, ANY_PX, &PresetOptions::DEPLOYED).unwrap();
    let image = frame(1, ANY_PX);
    let mut floats = vec![0_f32; plan.form().bytes() / 4 + 1];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut floats);
    let mut workspace = [Workspace::default()];
    let error = plan.apply(&image.view(), bytes, &mut workspace).unwrap_err();
    assert!(matches!(error, ImageError::OutputLength { .. }), "{error}");
    let error = plan
        .apply(
            &image.view(),
            &mut bytes[1..][..plan.form().bytes()],
            &mut workspace,
        )
        .unwrap_err();
    assert_eq!(error, ImageError::Misaligned { alignment: 4 });
    let other = frame(1, [800, 451]);
    let error = plan
        .apply(&other.view(), &mut bytes[..plan.form().bytes()], &mut workspace)
        .unwrap_err();
    assert!(matches!(error, ImageError::SizeMismatch { .. }), "{error}");
}

#[test]
fn a_stream_that_changes_its_size_gets_another_plan_and_the_same_result_as_without_plans() {
    let cache = PlanCache::new(Preset::SceneSeg, PresetOptions::DEPLOYED, 2).unwrap();
    let sizes = [[800, 450], [640, 480], [800, 450], [100, 100], [640, 480]];
    for (i, size) in sizes.into_iter().enumerate() {
        let image = frame(i as u64, size);
        let (plan, _) = cache.get(size).unwrap();
        let fresh = PresetPlan::new(Preset::SceneSeg, size, &PresetOptions::DEPLOYED).unwrap();
        assert!(apply(&plan, &image, 1) == apply(&fresh, &image, 2));
    }
    let counts = cache.counts();
    assert_eq!((counts.hits, counts.misses), (1, 4));
}

#[test]
fn the_cameras_of_a_moment_lie_one_after_another() {
    let cache = PlanCache::new(Preset::SceneSeg, PresetOptions::DEPLOYED, 4).unwrap();
    let cameras = [frame(1, [800, 450]), frame(2, [640, 480]), frame(3, [800, 450])];
    let views = cameras.each_ref().map(Image::view);
    let one = 3 * 320 * 640 * 4;
    let mut floats = vec![0_f32; 3 * one / 4];
    let (mut geometries, mut workspaces) = (Vec::new(), vec![Workspace::default(); 2]);
    let mut all = |out: &mut [u8]| cache.apply_all(&views, out, &mut geometries, &mut workspaces);
    all(bytemuck::cast_slice_mut(&mut floats)).unwrap();
    for (camera, input) in cameras
        .iter()
        .zip(bytemuck::cast_slice::<_, u8>(&floats).chunks_exact(one))
    {
        let size_px = [camera.width(), camera.height()];
        let plan = PresetPlan::new(Preset::SceneSeg, size_px, &PresetOptions::DEPLOYED).unwrap();
        assert!(apply(&plan, camera, 1) == input);
    }
    for wrong in [3 * one - 4, 3 * one + 4] {
        let mut floats = vec![0_f32; wrong / 4];
        let error = all(bytemuck::cast_slice_mut(&mut floats)).unwrap_err();
        assert!(matches!(error, ImageError::OutputLength { .. }), "{error}");
    }
    assert_eq!(geometries[1].source_px, [640, 480]);
}

/// A point of the input, by the way back and by the camera matrix, is the same place of the frame.
#[test]
fn boxes_and_camera_matrices_agree_for_every_preset() {
    for preset in Preset::ALL {
        let source_px = match preset {
            Preset::OpencvLinearF32 => [160, 90],
            _ => [1920, 1080],
        };
        let plan = PresetPlan::new(preset, source_px, &options(preset)).unwrap();
        let geometry = plan.geometry();
        let matrix = [900.0, 0.0, 955.5, 0.0, 910.0, 540.25, 0.0, 0.0, 1.0];
        let [fx, _, cx, _, fy, cy, ..] = scale_intrinsics(&matrix, &geometry);
        let [width, height] = geometry.content_px.map(|side| side as f32);
        let corners = [0.0, 0.0, width, height];
        let frame = geometry.back.to_source(corners);
        for (i, at) in corners.into_iter().enumerate() {
            let (focal, centre, scaled_focal, scaled_centre) = match i % 2 {
                0 => (matrix[0], matrix[2], fx, cx),
                _ => (matrix[4], matrix[5], fy, cy),
            };
            let ray = (f64::from(frame[i]) - centre) / focal;
            let scaled_ray = (f64::from(at) - scaled_centre) / scaled_focal;
            // Sides are cut to whole pixels, which moves the far edge by up to one of them.
            assert!(
                (ray - scaled_ray).abs() * scaled_focal < 1.01,
                "{} corner {i}",
                preset.name()
            );
        }
    }
}

#[test]
fn a_box_comes_back_through_stage_crop_and_a_fraction() {
    let back = |preset, source_px| {
        let plan = PresetPlan::new(preset, source_px, &options(preset)).unwrap();
        plan.geometry().back
    };
    // BEVDet: a frame of half the size is doubled, taken at 0.44, and loses 140 rows.
    let bevdet = back(Preset::Bevdet, [800, 450]);
    let [x, y, ..] = bevdet.to_source([440.0, 80.0, 0.0, 0.0]);
    assert!((x - 500.0).abs() < 1e-3 && (y - 250.0).abs() < 1e-3, "{x} {y}");
    // BEVFormer: 0.8, then nothing but padding.
    let [x, y, ..] = back(Preset::Bevformer, [1600, 900]).to_source([80.0, 40.0, 0.0, 0.0]);
    assert!((x - 100.0).abs() < 1e-3 && (y - 50.0).abs() < 1e-3, "{x} {y}");
    // StreamPETR: 1920 x 1080 at 4/9 is 853 x 480, of which 106 columns go on the left.
    let [x, y, ..] = back(Preset::Streampetr, [1920, 1080]).to_source([14.0, 40.0, 0.0, 0.0]);
    assert!((x - 270.0).abs() < 1e-2 && (y - 90.0).abs() < 1e-2, "{x} {y}");
    // An eighth of 900 rows are 113, one of which is half empty.
    let eighth = back(Preset::OpencvLinear, [200, 113]).from_decoded([200, 113], [1600, 900]);
    let whole = back(Preset::OpencvLinear, [200, 113]);
    let [.., y] = whole.to_source([0.0, 0.0, 0.0, 50.0]);
    let [.., y_whole] = eighth.to_source([0.0, 0.0, 0.0, 50.0]);
    assert!((y_whole - 8.0 * y).abs() < 1e-2, "{y_whole} {y}");
    assert_eq!(eighth.size_px(), [1600, 900]);
}

#[test]
fn what_is_cut_off_and_what_is_empty_is_told() {
    let plan = PresetPlan::new(Preset::Bevfusion, [800, 450], &PresetOptions::DEPLOYED).unwrap();
    let geometry = plan.geometry();
    assert_eq!(
        (geometry.resized_px, geometry.content_px),
        ([320, 180], [320, 180])
    );
    assert_eq!(geometry.target_px, [576, 384]);
}
