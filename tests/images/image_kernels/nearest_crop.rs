//! The `Preprocess` plugin of `bevdet_vendor`.

use sensorium::image::{
    ImageError, ImageRef, NearestCropPlan, PixelFormat, Preset, PresetOptions, PresetPlan, Workspace,
};

use crate::image_kernels::frames::{Frame, assert_same_bits, format, interleaved, sixty};

/// The whole result, planes of blue, green and red, or `None` where the plugin leaves a pixel unwritten.
fn transcription(frame: &Frame, target: [usize; 2], crop: [usize; 2]) -> Option<Vec<u8>> {
    let [width, height] = target;
    let factor = width as f32 / frame.size_px[0] as f32;
    let nearest = |i: usize, crop: usize| (i as f32 / factor + crop as f32 / factor).round() as usize;
    let mut out = vec![0; 3 * width * height];
    for y in 0..height {
        for x in 0..width {
            let (row, column) = (nearest(y, crop[1]), nearest(x, crop[0]));
            if column >= frame.size_px[0] || row >= frame.size_px[1] {
                return None;
            }
            for channel in 0..3 {
                out[(channel * height + y) * width + x] = frame.bgr(column, row, channel);
            }
        }
    }
    Some(out)
}

#[test]
fn nearest_crop_equals_the_plugin_bit_for_bit() {
    let mut inside = 0;
    let mut workspace = Workspace::default();
    for (i, [source, target]) in sixty(&[[[1, 1], [1, 1]], [[2, 1], [1, 1]], [[1, 2], [1, 1]]], 1)
        .into_iter()
        .enumerate()
    {
        for crop in [[0, 0], [0, target[1] / 3], [1, 1]] {
            // As the plugin sizes its result, a little more or a little less.
            let rows = (source[1] * target[0] / source[0]).saturating_sub(crop[1]) + i % 3;
            let target = [target[0], rows.saturating_sub(1).max(1)];
            let frame = Frame::noise(source, format(i), i as u64);
            let what = format!("{source:?} {} -> {target:?} from {crop:?}", frame.format);
            match (
                NearestCropPlan::new(source, target, crop),
                transcription(&frame, target, crop),
            ) {
                (Ok(plan), Some(expected)) => {
                    let mut out = vec![0xA5; expected.len()];
                    plan.apply(&frame.view(), &mut out, &mut workspace).unwrap();
                    assert_same_bits(&out, &interleaved(&expected), &what);
                    inside += 1;
                }
                (Err(ImageError::CropOutside { .. }), None) => {}
                (plan, expected) => panic!("{what}: {plan:?}, {}", expected.is_some()),
            }
        }
    }
    assert!(inside >= 60, "only {inside} crops lie inside their image");
}

#[test]
fn the_deployed_crop_takes_the_known_rows_and_columns() {
    let plan = NearestCropPlan::new([1600, 900], [704, 256], [0, 140]).unwrap();
    let (columns, rows) = (plan.columns(), plan.rows_taken());
    assert_eq!((&columns[..3], columns[703]), (&[0, 2, 5][..], 1598));
    assert_eq!((&rows[..3], rows[255]), (&[318, 320, 323][..], 898));
}

#[test]
fn bevdet_takes_the_means_of_red_green_blue_off_blue_green_red() {
    for bgr in [[0, 124, 1], [255, 116, 104]] {
        let pixels = bgr.repeat(1600 * 900);
        let image = ImageRef::new(&pixels, 1600, 900, 1600 * 3, PixelFormat::Bgr8).unwrap();
        let plan = PresetPlan::new(Preset::Bevdet, [1600, 900], &PresetOptions::DEPLOYED).unwrap();
        let mut out = vec![f32::NAN; plan.form().bytes() / 4];
        plan.apply(
            &image,
            bytemuck::cast_slice_mut(&mut out),
            &mut [Workspace::default()],
        )
        .unwrap();
        let [blue, green, red] = bgr.map(f32::from);
        let expected = [
            (blue - 123.675) / 58.395,
            (green - 116.28) / 57.12,
            (red - 103.53) / 57.375,
        ];
        for (plane, expected) in out.chunks_exact(704 * 256).zip(expected) {
            assert!(
                plane
                    .iter()
                    .all(|value| value.to_bits() == f32::to_bits(expected))
            );
        }
    }
}
