//! In the steady state a frame of any format reaches the network's input without an allocation.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "support/allocations.rs"]
mod allocations;

use std::sync::atomic::Ordering;

use allocations::{ALLOCATIONS, ARMED};
use sensorium::image::{
    ImageRef, LetterboxPlan, PixelFormat, Preset, PresetOptions, PresetPlan, SampleType, Workspace,
};

#[test]
fn frames_of_every_format_and_for_every_preset_allocate_nothing_after_the_first() {
    let formats = [
        PixelFormat::Rgb8,
        PixelFormat::Mono16,
        PixelFormat::Yuv422,
        PixelFormat::Nv12,
        PixelFormat::BayerRggb8,
        PixelFormat::Bgra8,
    ];
    let (width, height) = (320, 240);
    let data = vec![77; 4 * width * height];
    let mut workspace = Workspace::default();
    // The second target is exactly half of the frame, which takes another way.
    for target in [[200, 160], [160, 120]] {
        let plan = LetterboxPlan::new(width, height, target[0], target[1]).unwrap();
        let mut input = vec![0; plan.output_bytes()];
        for counted in [false, true] {
            ARMED.store(counted, Ordering::SeqCst);
            for format in formats {
                let step = format.row_bytes(width);
                let data = &data[..step * format.data_rows(height)];
                let image = ImageRef::new(data, width, height, step, format).unwrap();
                plan.apply(&image, &mut input, &mut workspace).unwrap();
            }
            ARMED.store(false, Ordering::SeqCst);
        }
    }
    every_preset_allocates_nothing_after_the_first_frame();
    assert_eq!(ALLOCATIONS.load(Ordering::SeqCst), 0);
}

/// Part of the only test here: another one would be counted as well.
fn every_preset_allocates_nothing_after_the_first_frame() {
    let (width, height) = (800, 450);
    let data = vec![99; width * height * 3 / 2];
    let image = ImageRef::new(&data, width, height, width, PixelFormat::Nv12).unwrap();
    for preset in Preset::ALL {
        for samples in [SampleType::Bf16, SampleType::F32] {
            let options = PresetOptions {
                target_px: preset.deployed_px().is_none().then_some([640, 360]),
                samples: Some(samples),
                ..PresetOptions::DEPLOYED
            };
            let plan = PresetPlan::new(preset, [width, height], &options).unwrap();
            let mut input = vec![0_f32; plan.form().bytes().div_ceil(4)];
            let input = &mut bytemuck::cast_slice_mut(&mut input)[..plan.form().bytes()];
            let mut workspaces = [Workspace::default()];
            for counted in [false, true] {
                ARMED.store(counted, Ordering::SeqCst);
                plan.apply(&image, input, &mut workspaces).unwrap();
                ARMED.store(false, Ordering::SeqCst);
            }
        }
    }
}
