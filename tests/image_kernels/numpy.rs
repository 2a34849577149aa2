//! The kernels once more, in NumPy.

use std::fmt::Write as _;

use sensorium::image::{
    AutowareLetterboxPlan, ImageError, NearestCropPlan, PixelFormat, StreampetrPlan, Workspace,
};

use crate::frames::{Frame, assert_same_bits};
use crate::support;

/// The result of a kernel as bytes.
fn ours(kernel: &str, frame: &Frame, target: [usize; 2]) -> Result<Vec<u8>, ImageError> {
    let mut workspace = Workspace::default();
    match kernel {
        "autoware_letterbox" => {
            let plan = AutowareLetterboxPlan::new(frame.size_px, target)?;
            let mut out = vec![0xA5; plan.output_len()];
            plan.apply(&frame.view(), &mut out, &mut workspace)?;
            Ok(out)
        }
        "streampetr" => {
            let plan = StreampetrPlan::new(frame.size_px, target)?;
            let mut out = vec![f32::NAN; plan.output_len()];
            plan.apply(&frame.view(), &mut out, &mut workspace)?;
            Ok(bytemuck::cast_slice(&out).to_vec())
        }
        _ => {
            let plan = NearestCropPlan::new(frame.size_px, target, [0, 140])?;
            let mut out = vec![0xA5; plan.output_len()];
            plan.apply(&frame.view(), &mut out, &mut workspace)?;
            Ok(out)
        }
    }
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
        assert_same_bits(&ours(kernel, frame, *target).unwrap(), &expected, &what);
    }
}
