//! Camera frames and their pre-processing, held against OpenCV.

use crate::support;
use std::fmt::Write as _;
use std::path::PathBuf;

use proptest::prelude::*;
use sensorium::image::{
    ImageError, ImageRef, Kernels, LetterboxPlan, PAD_VALUE, PixelFormat, Preset, ResizePlan, Workspace,
};

/// Pixels without any structure, the same for the same seed.
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

fn format_of(channels: usize) -> PixelFormat {
    match channels {
        1 => PixelFormat::Mono8,
        3 => PixelFormat::Bgr8,
        4 => PixelFormat::Bgra8,
        n => panic!("no format of {n} channels"),
    }
}

fn resize(pixels: &[u8], size: [usize; 2], channels: usize, target: [usize; 2], kernels: Kernels) -> Vec<u8> {
    let [w, h] = size;
    let image = ImageRef::new(pixels, w, h, w * channels, format_of(channels)).unwrap();
    let plan = ResizePlan::new(size, target).unwrap().with_kernels(kernels);
    let mut out = vec![0; target[0] * target[1] * channels];
    plan.apply(&image, &mut out, &mut Workspace::default()).unwrap();
    out
}

fn letterbox(image: &ImageRef<'_>, target: [usize; 2], kernels: Kernels) -> Vec<u8> {
    let plan = LetterboxPlan::new(image.width(), image.height(), target[0], target[1])
        .unwrap()
        .with_kernels(kernels);
    // Dirty memory: every byte has to be written.
    let mut out = vec![0xA5; plan.output_bytes()];
    plan.apply(image, &mut out, &mut Workspace::default()).unwrap();
    out
}

/// Every photo and road frame of the test data.
fn camera_files() -> Option<Vec<PathBuf>> {
    let root = support::data("camera")?;
    let mut files: Vec<PathBuf> = [".", "photos", "nuscenes_n015"]
        .iter()
        .flat_map(|folder| root.join(folder).read_dir().unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "jpg"))
        .collect();
    files.sort();
    assert!(
        files.len() >= 14,
        "only {} images in {}",
        files.len(),
        root.display()
    );
    Some(files)
}

#[test]
fn resize_equals_opencv_bit_for_bit() {
    let Some(mut oracle) = support::oracle("resize.py") else {
        return;
    };
    let mut geometries: Vec<([usize; 2], [usize; 2])> = vec![
        ([1, 1], [1, 1]),
        ([1, 1], [17, 9]),
        ([1, 37], [5, 12]),
        ([41, 1], [12, 3]),
        ([2, 2], [1, 1]),
        ([2, 2], [3, 3]),
        ([7, 5], [7, 5]),
        ([64, 48], [32, 24]),
        ([64, 48], [32, 23]),
        ([64, 48], [16, 12]),
        ([32, 24], [64, 48]),
        ([33, 25], [99, 50]),
        ([300, 200], [1, 1]),
        ([640, 480], [416, 312]),
        ([1920, 1080], [416, 234]),
        ([1600, 900], [640, 360]),
        ([416, 416], [832, 832]),
    ];
    // Sides that are odd and even, larger and smaller; every tenth an exact half.
    let mut sides = noise(4 * 2 * 80, 7).into_iter().map(usize::from);
    for i in 0..80 {
        let mut side = || sides.next().unwrap() % 220 + 1;
        let target = [side(), side()];
        let source = if i % 10 == 0 {
            target.map(|s| 2 * s)
        } else {
            [side(), side()]
        };
        geometries.push((source, target));
    }

    let folder = tempfile::tempdir().unwrap();
    let mut list = String::new();
    let mut cases = Vec::new();
    for (i, &(source, target)) in geometries.iter().enumerate() {
        for channels in [1, 3, 4] {
            let name = format!("{i}_{channels}");
            let pixels = noise(source[0] * source[1] * channels, i as u64 + 1);
            std::fs::write(folder.path().join(format!("{name}.src")), &pixels).unwrap();
            let [[w, h], [tw, th]] = [source, target];
            writeln!(list, "{name} {w} {h} {channels} {tw} {th}").unwrap();
            cases.push((name, source, target, channels, pixels));
        }
    }
    std::fs::write(folder.path().join("cases.txt"), list).unwrap();
    support::run(oracle.arg(folder.path()));

    for (name, source, target, channels, pixels) in &cases {
        let expected = std::fs::read(folder.path().join(format!("{name}.dst"))).unwrap();
        for kernels in [Kernels::scalar(), Kernels::detect()] {
            let ours = resize(pixels, *source, *channels, *target, kernels);
            let wrong = ours.iter().zip(&expected).filter(|(a, b)| a != b).count();
            assert_eq!(ours.len(), expected.len());
            assert_eq!(
                wrong,
                0,
                "{source:?} -> {target:?}, {channels} channels, {}: {wrong} bytes differ",
                kernels.name()
            );
        }
    }
}

#[test]
fn letterbox_equals_the_public_yolox_preprocessing_on_every_photo() {
    let (Some(files), Some(_)) = (camera_files(), support::oracle("letterbox.py")) else {
        return;
    };
    for target in [[416, 416], [640, 384]] {
        let folder = tempfile::tempdir().unwrap();
        let mut oracle = support::oracle("letterbox.py").unwrap();
        oracle
            .arg(folder.path())
            .args(target.map(|t: usize| t.to_string()))
            .args(&files);
        support::run(&mut oracle);
        for (i, file) in files.iter().enumerate() {
            let read = |ending: &str| std::fs::read(folder.path().join(format!("{i}.{ending}"))).unwrap();
            let facts = String::from_utf8(read("txt")).unwrap();
            let facts: Vec<f64> = facts.split(' ').map(|f| f.parse().unwrap()).collect();
            let (width, height) = (facts[0] as usize, facts[1] as usize);
            let pixels = read("src");
            let image = ImageRef::new(&pixels, width, height, width * 3, PixelFormat::Bgr8).unwrap();
            let plan = LetterboxPlan::new(width, height, target[0], target[1]).unwrap();
            assert_eq!(plan.ratio(), [facts[2] as f32; 2], "{}", file.display());
            assert_eq!(
                plan.content_px(),
                [facts[3] as usize, facts[4] as usize],
                "{}",
                file.display()
            );
            let expected = read("dst");
            for kernels in [Kernels::scalar(), Kernels::detect()] {
                let ours = letterbox(&image, target, kernels);
                assert!(
                    ours == expected,
                    "{} at {target:?} differs ({})",
                    file.display(),
                    kernels.name()
                );
            }
        }
    }
}

/// The same picture in every format gives the same detector input.
#[test]
fn every_pixel_format_obeys_its_channel_order() {
    let (w, h) = (61, 47);
    let bgr = noise(w * h * 3, 5);
    let repack = |pick: &dyn Fn(&[u8; 3]) -> Vec<u8>| -> Vec<u8> {
        bgr.as_chunks::<3>().0.iter().flat_map(pick).collect()
    };
    let others = [
        (PixelFormat::Rgb8, repack(&|&[b, g, r]| vec![r, g, b])),
        (PixelFormat::Rgba8, repack(&|&[b, g, r]| vec![r, g, b, 7])),
        (PixelFormat::Bgra8, repack(&|&[b, g, r]| vec![b, g, r, 9])),
    ];
    for target in [[40, 64], [122, 94], [30, 23]] {
        for kernels in [Kernels::scalar(), Kernels::detect()] {
            let image = ImageRef::new(&bgr, w, h, w * 3, PixelFormat::Bgr8).unwrap();
            let expected = letterbox(&image, target, kernels);
            for (format, pixels) in &others {
                let image = ImageRef::new(pixels, w, h, w * format.channels(), *format).unwrap();
                assert!(
                    letterbox(&image, target, kernels) == expected,
                    "{format} {target:?}"
                );
            }
            let swapped = ImageRef::new(&bgr, w, h, w * 3, PixelFormat::Rgb8).unwrap();
            assert!(
                letterbox(&swapped, target, kernels) != expected,
                "rgb8 read as bgr8"
            );
        }
    }
}

#[test]
fn a_grey_image_becomes_three_equal_channels() {
    let (w, h) = (50, 33);
    let grey = noise(w * h, 3);
    let tripled: Vec<u8> = grey.iter().flat_map(|&v| [v; 3]).collect();
    let grey = ImageRef::new(&grey, w, h, w, PixelFormat::Mono8).unwrap();
    let tripled = ImageRef::new(&tripled, w, h, w * 3, PixelFormat::Rgb8).unwrap();
    for target in [[25, 17], [31, 31], [100, 66]] {
        for kernels in [Kernels::scalar(), Kernels::detect()] {
            assert!(letterbox(&grey, target, kernels) == letterbox(&tripled, target, kernels));
        }
    }
}

#[test]
fn a_step_longer_than_a_row_gives_the_same_letterbox() {
    let (w, h, step) = (640, 480, 2048);
    let dense = noise(w * h * 3, 11);
    let mut padded = vec![0xEE; step * h];
    for (to, from) in padded.chunks_exact_mut(step).zip(dense.chunks_exact(w * 3)) {
        to[..w * 3].copy_from_slice(from);
    }
    let expected = letterbox(
        &ImageRef::new(&dense, w, h, w * 3, PixelFormat::Bgr8).unwrap(),
        [416, 416],
        Kernels::detect(),
    );
    // Whole rows, and without the padding of the last one.
    for length in [step * h, step * (h - 1) + w * 3] {
        let image = ImageRef::new(&padded[..length], w, h, step, PixelFormat::Bgr8).unwrap();
        for kernels in [Kernels::scalar(), Kernels::detect()] {
            assert!(letterbox(&image, [416, 416], kernels) == expected);
        }
    }
}

#[test]
fn a_step_or_size_that_lies_is_refused_with_its_numbers() {
    let data = vec![0; 1280 * 720 * 2];
    let error = ImageRef::new(&data, 1280, 720, 1280, PixelFormat::Rgb8).unwrap_err();
    assert_eq!(
        error.to_string(),
        "step of 1280 bytes is shorter than a row of 1280 rgb8 pixels (3840 bytes)"
    );
    let short = ImageRef::new(&data[..1279], 1280, 1, 1280, PixelFormat::Mono8).unwrap_err();
    assert_eq!(
        short.to_string(),
        "image data has 1279 bytes, but 1 rows of step 1280 need 1280"
    );
    let cases = [
        (1280, 720, 1280 * 3, data.len()),
        (10, 10, 30, 299),
        (10, 10, 30, 301),
        (10, 10, 40, 389),
        (10, 10, usize::MAX, 300),
    ];
    for (w, h, step, length) in cases {
        let refused = ImageRef::new(&data[..length], w, h, step, PixelFormat::Rgb8);
        assert!(
            matches!(refused, Err(ImageError::WrongDataLength { found, .. }) if found == length),
            "{w}x{h} step {step} with {length} bytes: {refused:?}"
        );
    }
    for (w, h) in [(0, 4), (4, 0), (16385, 1), (1, usize::MAX)] {
        let refused = ImageRef::new(&data, w, h, 4 * 16385, PixelFormat::Rgb8).unwrap_err();
        assert_eq!(refused, ImageError::BadSize { width: w, height: h });
    }
}

#[test]
fn encodings_are_read_by_name_or_refused_by_name() {
    let accepted = [
        ("rgb8", PixelFormat::Rgb8),
        ("bgr8", PixelFormat::Bgr8),
        ("rgba8", PixelFormat::Rgba8),
        ("bgra8", PixelFormat::Bgra8),
        ("mono8", PixelFormat::Mono8),
        ("8UC1", PixelFormat::Mono8),
        ("8UC3", PixelFormat::Bgr8),
        ("8UC4", PixelFormat::Bgra8),
        ("mono16", PixelFormat::Mono16),
        ("yuv422", PixelFormat::Yuv422),
        ("uyvy", PixelFormat::Yuv422),
        ("yuv422_yuy2", PixelFormat::Yuv422Yuy2),
        ("yuyv", PixelFormat::Yuv422Yuy2),
        ("nv12", PixelFormat::Nv12),
        ("nv21", PixelFormat::Nv21),
        ("bayer_rggb8", PixelFormat::BayerRggb8),
        ("bayer_bggr8", PixelFormat::BayerBggr8),
        ("bayer_gbrg8", PixelFormat::BayerGbrg8),
        ("bayer_grbg8", PixelFormat::BayerGrbg8),
    ];
    for (name, format) in accepted {
        assert_eq!(PixelFormat::from_ros_encoding(name), Ok(format));
    }
    for name in [
        "bayer_rggb16",
        "nv24",
        "rgb16",
        "16UC1",
        "32FC1",
        "8UC2",
        "RGB8",
        "",
    ] {
        let message = PixelFormat::from_ros_encoding(name).unwrap_err().to_string();
        assert!(
            message.contains(&format!("\"{name}\" is not supported")),
            "{message}"
        );
        assert!(
            message.contains("rgb8, bgr8, rgba8, bgra8, mono8, mono16, 8UC1, 8UC3"),
            "{message}"
        );
    }
}

#[test]
fn an_unknown_preset_lists_the_known_ones() {
    assert_eq!(Preset::from_name("yolox_opencv"), Ok(Preset::YoloxOpencv));
    let message = Preset::from_name("yolox").unwrap_err().to_string();
    assert!(
        message.starts_with("unknown pre-processing preset \"yolox\"; known: yolox_opencv, yolox_autoware, "),
        "{message}"
    );
}

#[test]
fn a_plan_refuses_frames_and_outputs_of_another_size() {
    let plan = LetterboxPlan::new(64, 48, 32, 32).unwrap();
    let pixels = vec![0; 48 * 64 * 3];
    let turned = ImageRef::new(&pixels, 48, 64, 48 * 3, PixelFormat::Rgb8).unwrap();
    let mut out = vec![0; plan.output_bytes()];
    assert_eq!(
        plan.apply(&turned, &mut out, &mut Workspace::default()),
        Err(ImageError::SizeMismatch {
            expected: [64, 48],
            found: [48, 64]
        })
    );
    let image = ImageRef::new(&pixels, 64, 48, 64 * 3, PixelFormat::Rgb8).unwrap();
    assert_eq!(
        plan.apply(&image, &mut out[1..], &mut Workspace::default()),
        Err(ImageError::OutputLength {
            expected: 32 * 32 * 3,
            found: 32 * 32 * 3 - 1
        })
    );
}

/// `int(1440 * (416 / 1440))` is 415 in Python: the product lies just below the whole number.
#[test]
fn content_sizes_are_cut_as_python_cuts_them() {
    for (source, content) in [
        ([1440, 1080], [415, 311]),
        ([2880, 1860], [415, 268]),
        ([1333, 800], [416, 249]),
        ([727, 3], [416, 1]),
    ] {
        let plan = LetterboxPlan::new(source[0], source[1], 416, 416).unwrap();
        assert_eq!(plan.content_px(), content, "{source:?}");
    }
    let pixels = vec![200; 1440 * 1080];
    let image = ImageRef::new(&pixels, 1440, 1080, 1440, PixelFormat::Mono8).unwrap();
    let out = letterbox(&image, [416, 416], Kernels::detect());
    assert_eq!(
        out[414 * 3..416 * 3],
        [200, 200, 200, PAD_VALUE, PAD_VALUE, PAD_VALUE]
    );
    assert_eq!(out[311 * 416 * 3], PAD_VALUE);
}

#[test]
fn an_image_too_thin_for_the_target_is_an_error() {
    assert!(matches!(
        LetterboxPlan::new(16384, 1, 416, 416),
        Err(ImageError::ShrinksToNothing { .. })
    ));
    assert!(LetterboxPlan::stretch(16384, 1, 416, 416).is_ok());
}

#[test]
fn boxes_come_back_clipped_and_touching_the_border_is_no_reason_to_drop() {
    let plan = LetterboxPlan::new(1920, 1080, 416, 416).unwrap();
    let ratio = plan.ratio()[0];
    assert_eq!(
        plan.map_box_back([0.0, 0.0, 416.0, 234.0]),
        Some([0.0, 0.0, 1920.0, 1080.0])
    );
    assert_eq!(
        plan.map_box_back([-5.0, -1.0, 10.0, 20.0]),
        Some([0.0, 0.0, 10.0 / ratio, 20.0 / ratio])
    );
    assert_eq!(
        plan.map_box_back([400.0, 200.0, 500.0, 300.0]),
        Some([400.0 / ratio, 200.0 / ratio, 1920.0, 1080.0])
    );
    // Wholly in the padding, no width, turned round, not a number.
    for nothing in [
        [10.0, 300.0, 20.0, 400.0],
        [10.0, 10.0, 10.0, 40.0],
        [30.0, 10.0, 10.0, 40.0],
        [f32::NAN, 10.0, 20.0, 40.0],
    ] {
        assert_eq!(plan.map_box_back(nothing), None, "{nothing:?}");
    }
    let stretched = LetterboxPlan::stretch(1000, 500, 100, 100).unwrap();
    assert_eq!(
        stretched.map_box_back([10.0, 10.0, 50.0, 50.0]),
        Some([100.0, 50.0, 500.0, 250.0])
    );
}

#[test]
fn one_workspace_serves_plans_of_many_sizes() {
    let mut shared = Workspace::default();
    for (i, size) in [[90, 70], [33, 20], [200, 150], [33, 20]].into_iter().enumerate() {
        let pixels = noise(size[0] * size[1] * 3, i as u64 + 1);
        let image = ImageRef::new(&pixels, size[0], size[1], size[0] * 3, PixelFormat::Rgb8).unwrap();
        let plan = LetterboxPlan::new(size[0], size[1], 64, 64).unwrap();
        let mut out = vec![0; plan.output_bytes()];
        plan.apply(&image, &mut out, &mut shared).unwrap();
        assert!(out == letterbox(&image, [64, 64], Kernels::detect()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// The vector kernels give the scalar kernels' bits, and write nothing outside the target.
    #[test]
    fn vector_kernels_equal_scalar_kernels(
        source in [1_usize..120, 1_usize..60],
        target in [1_usize..120, 1_usize..60],
        channels in prop::sample::select(vec![1_usize, 3, 4]),
        padding in 0_usize..9,
        seed in 1_u64..1_000_000,
    ) {
        let step = source[0] * channels + padding;
        let pixels = noise(step * source[1], seed);
        let image = ImageRef::new(&pixels, source[0], source[1], step, format_of(channels)).unwrap();
        let plan = ResizePlan::new(source, target).unwrap();
        let mut results = [Kernels::scalar(), Kernels::detect()].map(|kernels| {
            let mut out = vec![0; target[0] * target[1] * channels];
            plan.clone().with_kernels(kernels).apply(&image, &mut out, &mut Workspace::default()).unwrap();
            out
        });
        let [scalar, vector] = &mut results;
        prop_assert_eq!(scalar, vector);
    }
}
