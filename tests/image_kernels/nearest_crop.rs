//! The `Preprocess` plugin of `bevdet_vendor`.

use sensorium::image::{ImageError, NearestCropPlan, Workspace, bevdet_normalize};

use crate::frames::{Frame, assert_same_bits, bits, format, sixty};

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
                    let mut out = vec![0xA5; plan.output_len()];
                    plan.apply(&frame.view(), &mut out, &mut workspace).unwrap();
                    assert_same_bits(&out, &expected, &what);
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
    let planes = [0, 255, 124, 116, 1, 104];
    let mut out = [f32::NAN; 6];
    bevdet_normalize(&planes, &mut out).unwrap();
    let expected = [
        (0.0 - 123.675_f32) / 58.395,
        (255.0 - 123.675_f32) / 58.395,
        (124.0 - 116.28_f32) / 57.12,
        (116.0 - 116.28_f32) / 57.12,
        (1.0 - 103.53_f32) / 57.375,
        (104.0 - 103.53_f32) / 57.375,
    ];
    assert_same_bits(&bits(&out), &bits(&expected), "normalized");
    assert!(bevdet_normalize(&planes, &mut out[..5]).is_err());
    assert!(bevdet_normalize(&planes[..5], &mut out[..5]).is_err());
}
