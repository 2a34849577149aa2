//! Pooling and softmax.

use sensorium::device::{Geometry2d, OpDesc, Pool2dDesc, PoolKind};
use sensorium::tensor::DType;

use crate::kernels::harness::{
    Random, dense, element, image, positions, random, run_everywhere, tensor, values, zeros,
};

#[test]
fn pooling_reduces_the_elements_inside_the_image() {
    let mut r = Random(21);
    for _ in 0..60 {
        let dtype = r.pick(&[DType::F32, DType::Bf16]);
        let kind = r.pick(&[
            PoolKind::Max,
            PoolKind::AverageIncludingPad,
            PoolKind::AverageExcludingPad,
            PoolKind::Sum,
        ]);
        let kernel = r.pick(&[[2, 2], [3, 3], [5, 5], [13, 13], [3, 1]]);
        let pad_begin = [r.range(0, kernel[0] / 2), r.range(0, kernel[1] / 2)];
        let stride = [r.range(1, 2), r.range(1, 2)];
        let [h, w] = [
            r.range(kernel[0], 15).max(kernel[0]),
            r.range(kernel[1], 15).max(kernel[1]),
        ];
        let (n, c) = (r.range(1, 2), r.range(1, 150));
        let out = [
            (h + 2 * pad_begin[0] - kernel[0]) / stride[0] + 1,
            (w + 2 * pad_begin[1] - kernel[1]) / stride[1] + 1,
        ];
        let (input, input_len) = image(dtype, [n, c, h, w], c + 2, 1);
        let (output, output_len) = image(dtype, [n, c, out[0], out[1]], c + 3, 2);
        let geometry = Geometry2d {
            kernel,
            stride,
            dilation: [1, 1],
            pad_begin,
        };
        let op = OpDesc::Pool2d(Pool2dDesc {
            input,
            output,
            geometry,
            kind,
        });
        let source = random(&mut r, dtype, input_len, 3.0);
        let found = run_everywhere(&op, 1, |_| vec![source.clone(), zeros(dtype, output_len)]);
        let (source, found) = (values(&source), values(&found));
        for at in positions(&output.view.shape) {
            let mut inside = Vec::new();
            for ky in 0..kernel[0] {
                for kx in 0..kernel[1] {
                    let y = (at[2] * stride[0] + ky).wrapping_sub(pad_begin[0]);
                    let x = (at[3] * stride[1] + kx).wrapping_sub(pad_begin[1]);
                    if y < h && x < w {
                        inside.push(source[element(&input.view, &[at[0], at[1], y, x])]);
                    }
                }
            }
            let y = found[element(&output.view, &at)];
            let sum: f64 = inside.iter().sum();
            let (exact, allowed) = match kind {
                PoolKind::Max => (inside.iter().copied().fold(f64::MIN, f64::max), 0.0),
                PoolKind::AverageIncludingPad => (sum / (kernel[0] * kernel[1]) as f64, 3e-5),
                PoolKind::AverageExcludingPad => (sum / inside.len() as f64, 3e-5),
                PoolKind::Sum => (sum, 3e-5 * inside.len() as f64),
            };
            let storage = if dtype == DType::Bf16 {
                exact.abs() / 256.0
            } else {
                0.0
            };
            let allowed = if kind == PoolKind::Max {
                allowed
            } else {
                allowed + storage
            };
            assert!(
                (y - exact).abs() <= allowed,
                "{y} is not {exact} at {at:?} of {op:?}"
            );
        }
    }
}

#[test]
fn a_nan_in_the_window_makes_the_maximum_nan_wherever_it_stands() {
    for place in 0..9 {
        for channels in [1, 16, 64, 70] {
            let mut numbers = vec![1.0_f32; 9 * channels];
            numbers[place * channels + channels - 1] = f32::NAN;
            let (input, _) = image(DType::F32, [1, channels, 3, 3], channels, 0);
            let (output, _) = image(DType::F32, [1, channels, 1, 1], channels, 0);
            let geometry = Geometry2d {
                kernel: [3, 3],
                stride: [1, 1],
                dilation: [1, 1],
                pad_begin: [0, 0],
            };
            let op = OpDesc::Pool2d(Pool2dDesc {
                input,
                output,
                geometry,
                kind: PoolKind::Max,
            });
            let found = run_everywhere(&op, 1, |_| {
                vec![tensor(DType::F32, &numbers), zeros(DType::F32, channels)]
            });
            let found = values(&found);
            assert!(found[channels - 1].is_nan() && found[..channels - 1].iter().all(|&y| y == 1.0));
        }
    }
}

#[test]
fn softmax_sums_to_one_along_any_axis() {
    let mut r = Random(22);
    for dtype in [DType::F32, DType::Bf16] {
        for axis in 0..3 {
            let dims = [5, 37, 11];
            let mut src = dense(dtype, &[11, 5, 37]);
            src.view = src.view.transpose(&[1, 2, 0]).unwrap();
            let dst = dense(dtype, &dims);
            let source = random(&mut r, dtype, 5 * 37 * 11, 90.0);
            let op = OpDesc::Softmax { src, dst, axis };
            let found = run_everywhere(&op, 1, |_| vec![source.clone(), zeros(dtype, 5 * 37 * 11)]);
            let (source, found) = (values(&source), values(&found));
            for at in positions(&dims) {
                let line: Vec<f64> = (0..dims[axis])
                    .map(|i| {
                        let mut other = at.clone();
                        other[axis] = i;
                        source[element(&src.view, &other)]
                    })
                    .collect();
                let max = line.iter().copied().fold(f64::MIN, f64::max);
                let sum: f64 = line.iter().map(|x| (x - max).exp()).sum();
                let exact = (source[element(&src.view, &at)] - max).exp() / sum;
                let y = found[element(&dst.view, &at)];
                // The difference to the maximum is itself rounded once.
                let rounded = (source[element(&src.view, &at)] - max).abs() * f64::from(f32::EPSILON);
                let relative = if dtype == DType::Bf16 {
                    1.0 / 256.0
                } else {
                    1e-6 + rounded
                };
                assert!(
                    (y - exact).abs() <= relative * exact + 1e-37,
                    "{y} is not {exact}"
                );
            }
        }
    }
}
