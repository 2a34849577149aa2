//! The kernels once more, in NumPy.

use std::fmt::Write as _;

use sensorium::image::{Kernels, PixelFormat, Preset, PresetOptions, SampleType};

use crate::image_kernels::frames::{Frame, assert_same_bits, preset_bytes};
use crate::support;

/// The result of a kernel as bytes.
fn ours(kernel: &str, frame: &Frame, target: [usize; 2]) -> Vec<u8> {
    let (preset, options) = match kernel {
        "autoware_letterbox" => (
            Preset::YoloxAutoware,
            PresetOptions {
                target_px: Some(target),
                ..PresetOptions::DEPLOYED
            },
        ),
        "streampetr" => (
            Preset::Streampetr,
            PresetOptions {
                target_px: Some(target),
                ..PresetOptions::DEPLOYED
            },
        ),
        _ => (
            Preset::Bevdet,
            PresetOptions {
                samples: Some(SampleType::U8),
                ..PresetOptions::DEPLOYED
            },
        ),
    };
    preset_bytes(preset, frame, &options, Kernels::detect())
}

#[test]
fn whole_frames_equal_numpy_bit_for_bit() {
    let Some(mut oracle) = support::oracle("gpu_kernels.py") else {
        return;
    };
    let cases = [
        ("autoware_letterbox", [1920, 1080], [960, 960]),
        ("autoware_letterbox", [1440, 1080], [416, 416]),
        ("autoware_letterbox", [727, 414], [960, 960]),
        ("streampetr", [1920, 1080], [640, 480]),
        ("streampetr", [2880, 1860], [640, 480]),
        ("streampetr", [333, 250], [640, 480]),
        ("bevdet_crop", [1600, 900], [704, 256]),
    ];
    let folder = tempfile::tempdir().unwrap();
    let mut list = String::new();
    let frames: Vec<Frame> = cases
        .iter()
        .enumerate()
        .map(|(i, (kernel, source, target))| {
            let frame = Frame::noise(*source, PixelFormat::Bgr8, i as u64);
            std::fs::write(folder.path().join(format!("{i}.src")), frame.dense()).unwrap();
            let ([width, height], [target_width, target_height]) = (source, target);
            writeln!(
                list,
                "{i} {kernel} {width} {height} {target_width} {target_height}"
            )
            .unwrap();
            frame
        })
        .collect();
    std::fs::write(folder.path().join("cases.txt"), list).unwrap();
    support::run(oracle.arg(folder.path()));
    for (i, ((kernel, source, target), frame)) in cases.iter().zip(&frames).enumerate() {
        let expected = std::fs::read(folder.path().join(format!("{i}.dst"))).unwrap();
        let what = format!("{kernel} {source:?} -> {target:?}");
        assert_same_bits(&ours(kernel, frame, *target), &expected, &what);
    }
}
