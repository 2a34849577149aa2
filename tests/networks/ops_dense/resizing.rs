//! Up-sampling and resizing.

use ndarray::{Array2, Array4};
use sensorium::ops::conv::LayerError;
use sensorium::ops::{
    Interpolation, InterpolationError, Resize2d, Resize2dSpec, interp_matrix, resize_matrices,
    upsample_nearest,
};
use sensorium::precision::{Math, Precision};
use sensorium::tensor::DType;

use crate::ops_dense::reference::{Random, array4, bits, correlation, run, stored, worst};
use crate::support;

const EDGES: Interpolation = Interpolation::Linear { align_corners: false };
const CORNERS: Interpolation = Interpolation::Linear { align_corners: true };

#[test]
fn nearest_repeats_every_pixel() {
    let mut r = Random(31);
    let x = array4(&mut r, [2, 5, 4, 3], 3.0);
    for dtype in [DType::F32, DType::Bf16] {
        for scale in 1..=4 {
            let found = run(&x, dtype, |ops, x| Ok(vec![upsample_nearest(ops, x, scale)?]));
            let kept = stored(&x, dtype);
            let expected = Array4::from_shape_fn((2, 5, 4 * scale, 3 * scale), |(n, c, y, x)| {
                kept[[n, c, y / scale, x / scale]]
            });
            assert_eq!(bits(&found.unwrap()[0]), bits(&expected));
        }
    }
    let refused = |scale| {
        run(&x, DType::F32, |ops, x| {
            Ok(vec![upsample_nearest(ops, x, scale)?])
        })
        .unwrap_err()
    };
    assert!(matches!(refused(0), LayerError::Weights { .. }));
    for large in [usize::MAX, 1 << 40, 1 << 16] {
        assert!(matches!(refused(large), LayerError::Shape { .. }), "{large}");
    }
}

/// The value at a position between elements, from the definition: a tent over each element, the ends drawn out.
fn tent(n_in: usize, at: f64) -> Vec<f64> {
    let at = at.clamp(0.0, (n_in - 1) as f64);
    (0..n_in)
        .map(|k| (1.0 - (at - k as f64).abs()).max(0.0))
        .collect()
}

fn close(matrix: &Array2<f64>, row: usize, expected: &[f64], what: &str) {
    for (k, expected) in expected.iter().enumerate() {
        let found = matrix[[row, k]];
        assert!(
            (found - expected).abs() < 1e-12,
            "{what}, output {row}, input {k}: {found} {expected}"
        );
    }
}

#[test]
fn matrices_are_those_of_the_definition() {
    for n_in in 1..14 {
        for n_out in 1..30 {
            let edges = interp_matrix(n_in, n_out, EDGES, None).unwrap();
            let corners = interp_matrix(n_in, n_out, CORNERS, None).unwrap();
            let nearest = interp_matrix(n_in, n_out, Interpolation::Nearest, None).unwrap();
            for i in 0..n_out {
                let what = format!("{n_in} to {n_out}");
                // Centres of elements at half numbers: (i + 1/2) / n_out = (x + 1/2) / n_in.
                let at = (2 * i + 1) as f64 * n_in as f64 / (2 * n_out) as f64 - 0.5;
                close(&edges, i, &tent(n_in, at), &what);
                let at = if n_out == 1 {
                    0.0
                } else {
                    (i * (n_in - 1)) as f64 / (n_out - 1) as f64
                };
                close(
                    &corners,
                    i,
                    &if n_in == n_out {
                        tent(n_in, i as f64)
                    } else {
                        tent(n_in, at)
                    },
                    &what,
                );
                // Which element is below, but where fp32 decides it.
                let exact = i * n_in / n_out;
                let below = (0..n_in).find(|&k| nearest[[i, k]] == 1.0).unwrap();
                assert!(
                    below == exact || below + 1 == exact && (i * n_in).is_multiple_of(n_out),
                    "{what}: {below}"
                );
                assert_eq!(nearest.row(i).sum(), 1.0);
            }
        }
    }
}

#[test]
fn known_rows() {
    let double = interp_matrix(3, 6, EDGES, None).unwrap();
    close(&double, 0, &[1.0, 0.0, 0.0], "double");
    close(&double, 1, &[0.75, 0.25, 0.0], "double");
    close(&double, 5, &[0.0, 0.0, 1.0], "double");
    // A given scale is used, not 5 / 2: torch's rule without recompute_scale_factor.
    let given = interp_matrix(2, 5, EDGES, Some(2.6)).unwrap();
    close(&given, 2, &tent(2, 2.5 / 2.6 - 0.5), "given");
    assert!((given[[2, 1]] - interp_matrix(2, 5, EDGES, None).unwrap()[[2, 1]]).abs() > 0.01);
    // Sizes that stay are copied, whatever the scale.
    assert_eq!(
        interp_matrix(4, 4, EDGES, Some(1.2)).unwrap(),
        Array2::<f64>::eye(4)
    );
    // 49 * (1 / 49) is below 1 in fp32, where torch computes.
    let nearest = interp_matrix(2, 98, Interpolation::Nearest, None).unwrap();
    assert_eq!(nearest[[49, 0]] == 1.0, (49.0 * (2.0_f32 / 98.0)).floor() == 0.0);
    let [rows, columns] = resize_matrices([4, 6], [8, 3], CORNERS, None).unwrap();
    assert_eq!((rows.dim(), columns.dim()), ((8, 4), (3, 6)));
    assert_eq!(
        interp_matrix(0, 4, EDGES, None),
        Err(InterpolationError::Size { n_in: 0, n_out: 4 })
    );
    assert!(interp_matrix(4, 4097, EDGES, None).is_err());
    for scale in [0.0, -1.0, f64::INFINITY] {
        assert_eq!(
            interp_matrix(4, 8, EDGES, Some(scale)),
            Err(InterpolationError::Scale(scale))
        );
    }
    assert!(matches!(
        interp_matrix(4, 8, EDGES, Some(f64::NAN)),
        Err(InterpolationError::Scale(_))
    ));
}

#[test]
fn matrices_are_those_of_onnx_runtime() {
    let Some(mut oracle) = support::oracle("interpolation.py") else {
        return;
    };
    let sizes = [(5, 10), (7, 16), (16, 7), (44, 176), (9, 30), (30, 9), (3, 2)];
    let modes = [
        (EDGES, "half_pixel"),
        (CORNERS, "align_corners"),
        (Interpolation::Nearest, "asymmetric"),
    ];
    for (n_in, n_out) in sizes {
        for (_, word) in modes {
            oracle.args([&n_in.to_string(), &n_out.to_string(), word]);
        }
    }
    let output = support::floats(&support::run(&mut oracle));
    let mut expected = output.into_iter();
    for (n_in, n_out) in sizes {
        for (mode, word) in modes {
            for found in interp_matrix(n_in, n_out, mode, None).unwrap() {
                let expected = f64::from(expected.next().unwrap());
                assert!((found - expected).abs() < 2e-6, "{n_in} to {n_out}, {word}");
            }
        }
    }
    assert_eq!(expected.next(), None);
}

const SIZES: [[usize; 4]; 4] = [[4, 11, 16, 44], [5, 7, 12, 9], [12, 9, 5, 7], [6, 6, 6, 13]];

#[test]
fn a_resize_is_two_products() {
    let mut r = Random(32);
    for [h, w, rows, columns] in SIZES {
        let x = array4(&mut r, [2, 6, h, w], 2.0);
        for mode in [EDGES, CORNERS, Interpolation::Nearest] {
            for dtype in [DType::F32, DType::Bf16] {
                resized(&x, dtype, [rows, columns], mode);
            }
        }
    }
}

/// Compares a resize, to outputs of both types, with its definition.
fn resized(x: &Array4<f32>, dtype: DType, [rows, columns]: [usize; 2], mode: Interpolation) {
    let (n, c, h, w) = x.dim();
    let kept = stored(x, dtype).mapv(f64::from);
    let [of_rows, of_columns] = resize_matrices([h, w], [rows, columns], mode, None).unwrap();
    let exact = Array4::from_shape_fn((n, c, rows, columns), |(n, c, y, column)| {
        let mut sum = 0.0;
        for iy in (0..h).filter(|&iy| of_rows[[y, iy]] != 0.0) {
            for ix in 0..w {
                sum += of_rows[[y, iy]] * of_columns[[column, ix]] * kept[[n, c, iy, ix]];
            }
        }
        sum
    });
    for output in [DType::F32, DType::Bf16] {
        let spec = Resize2dSpec::new([h, w], [rows, columns], mode, Math::Native).output(output);
        let layer = Resize2d::new("resize", spec).unwrap();
        let found = run(x, dtype, |ops, x| {
            let used = ops.device.memory().used_bytes;
            let y = layer.forward(ops, x)?;
            layer.release(ops.device);
            ops.free(&y).unwrap();
            assert_eq!(ops.device.memory().used_bytes, used, "only the result stays");
            Ok(vec![layer.forward(ops, x)?])
        });
        let found = found.unwrap().remove(0);
        let reference = layer.reference(kept.view()).unwrap();
        assert!((&reference - &exact).iter().all(|x| x.abs() < 1e-12));
        if output == DType::F32 {
            assert!(worst(&found, &exact) < 2e-6, "{}", worst(&found, &exact));
            assert!(correlation(&found, &exact) >= 0.999_999_8);
        } else {
            assert!(correlation(&found, &exact) >= 0.999_99);
        }
    }
}

#[test]
fn interpolation_weights_are_fp32() {
    let new = |text: &str| {
        let math: Precision = text.parse().unwrap();
        Resize2d::new("resize", Resize2dSpec::new([16, 44], [64, 176], CORNERS, math))
    };
    let error = new("accurate").unwrap_err();
    assert!(
        matches!(error, LayerError::Refused { .. }) && error.to_string().contains(":w=fp32"),
        "{error}"
    );
    let layer = new("HiFi4+fp32+l1acc:w=f32").unwrap();
    let mut r = Random(33);
    let x = array4(&mut r, [1, 8, 16, 44], 1.0);
    let found = run(&x, DType::F32, |ops, x| Ok(vec![layer.forward(ops, x)?]))
        .unwrap()
        .remove(0);
    let exact = layer.reference(x.mapv(f64::from).view()).unwrap();
    println!(
        "TF32: {:.2e} at most, {:.8}",
        worst(&found, &exact),
        correlation(&found, &exact)
    );
    assert!(correlation(&found, &exact) >= 0.999_999_7);
    let wrong = run(&array4(&mut r, [1, 8, 15, 44], 1.0), DType::F32, |ops, x| {
        Ok(vec![layer.forward(ops, x)?])
    });
    assert_eq!(
        wrong.unwrap_err().to_string(),
        "resize: the input has shape [1, 8, 15, 44], expected [N, C, 16, 44]"
    );
    assert!(layer.reference(Array4::zeros((1, 1, 2, 2)).view()).is_err());
    let bad = Resize2dSpec::new([0, 4], [4, 4], EDGES, Math::Native);
    assert!(matches!(
        Resize2d::new("resize", bad),
        Err(LayerError::Weights { .. })
    ));
    let bad = Resize2dSpec::new([2, 4], [4, 8], EDGES, Math::Native).scale([2.0, 0.0]);
    assert!(matches!(
        Resize2d::new("resize", bad),
        Err(LayerError::Weights { .. })
    ));
}
