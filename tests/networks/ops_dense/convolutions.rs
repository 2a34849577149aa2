//! Convolutions of every geometry, in slices, with weights of two terms, split along their inputs, and transposed.

use half::bf16;
use ndarray::{Array4, Axis, concatenate, s};
use sensorium::device::{Activation, Scalar};
use sensorium::ops::conv::{
    Conv2d, Conv2dSpec, ConvTranspose2d, ConvTranspose2dSpec, KSplitConv, KSplitSpec, LayerError, Padding,
    PreparedInput, Slicing, TransposeMethod, WeightTerms, activation_named, bf16_terms,
};
use sensorium::precision::{Math, Precision};
use sensorium::tensor::{DType, Shape};

use crate::ops_dense::reference::{
    Random, Window, activate, array4, bits, convolve, correlation, run, stored, vector, worst,
};

const RELU6: Activation = Activation::Clip {
    low: Scalar::new(0.0),
    high: Scalar::new(6.0),
};

fn spec(weight: &Array4<f32>, bias: &[f32], math: impl Into<Math>) -> Conv2dSpec {
    Conv2dSpec::new(weight.view(), Some(bias), math)
}

/// A convolution of an image; the result comes back.
fn forward(spec: Conv2dSpec, x: &Array4<f32>, dtype: DType) -> Array4<f32> {
    let layer = Conv2d::new("conv", spec).unwrap();
    let results = run(x, dtype, |ops, x| {
        let y = layer.forward(ops, x)?;
        layer.release(ops.device);
        Ok(vec![y])
    });
    results.unwrap().remove(0)
}

/// `[input channels, output channels, kernel, stride, dilation, groups, rows, columns]`
const SHAPES: [[usize; 8]; 12] = [
    [16, 24, 1, 1, 1, 1, 12, 9],
    [3, 32, 3, 2, 1, 1, 17, 20],
    [16, 16, 3, 1, 1, 1, 11, 13],
    [12, 20, 3, 1, 2, 4, 14, 12],
    [16, 16, 3, 2, 1, 16, 10, 10],
    [8, 8, 5, 1, 1, 8, 9, 12],
    [6, 7, 5, 2, 1, 1, 15, 11],
    [4, 6, 7, 2, 1, 2, 21, 16],
    [2, 8, 9, 1, 1, 1, 10, 11],
    [8, 9, 1, 2, 1, 1, 9, 8],
    [5, 4, 2, 1, 1, 1, 8, 9],
    [48, 40, 3, 1, 1, 1, 6, 7],
];

#[test]
fn every_geometry_is_the_definition() {
    let mut r = Random(1);
    let activations = [
        Activation::Identity,
        Activation::Relu,
        RELU6,
        Activation::Silu,
        Activation::HardSwish,
    ];
    for (index, [cin, cout, k, stride, dilation, groups, h, w]) in SHAPES.into_iter().enumerate() {
        let x = array4(&mut r, [2, cin, h, w], 2.0);
        let scale = 2.0 / ((cin / groups * k * k) as f32).sqrt();
        let weight = array4(&mut r, [cout, cin / groups, k, k], scale);
        let bias = vector(&mut r, cout);
        let activation = activations[index % activations.len()];
        for dtype in [DType::F32, DType::Bf16] {
            let window = Window {
                stride: [stride; 2],
                dilation: [dilation; 2],
                pads: [[dilation * (k / 2); 2]; 2],
                groups,
            };
            let exact = convolve(&stored(&x, dtype), &stored(&weight, dtype), Some(&bias), window)
                .mapv(|x| activate(activation, x));
            let top = exact.iter().fold(1.0_f64, |top, x| top.max(x.abs()));
            for output in [DType::F32, DType::Bf16] {
                let spec = spec(&weight, &bias, Math::Native)
                    .stride([stride; 2])
                    .dilation([dilation; 2])
                    .groups(groups)
                    .activation(activation)
                    .output(output);
                let found = forward(spec, &x, dtype);
                let what = format!("{:?}, {dtype} to {output}", SHAPES[index]);
                assert!(
                    correlation(&found, &exact) >= 0.999_99,
                    "{what}: {}",
                    correlation(&found, &exact)
                );
                let limit = if output == DType::F32 { 4e-6 } else { 0.004 };
                assert!(
                    worst(&found, &exact) <= limit * top,
                    "{what}: {} of {top}",
                    worst(&found, &exact)
                );
            }
        }
    }
}

#[test]
fn explicit_padding_may_differ_on_every_side() {
    let mut r = Random(2);
    let (x, weight) = (
        array4(&mut r, [1, 4, 9, 10], 1.0),
        array4(&mut r, [6, 4, 3, 5], 0.3),
    );
    let padding = Padding::Explicit {
        top: 2,
        left: 0,
        bottom: 1,
        right: 4,
    };
    let layer = Conv2dSpec::new(weight.view(), None, Math::Native)
        .padding(padding)
        .stride([2, 1]);
    let window = Window {
        stride: [2, 1],
        pads: [[2, 1], [0, 4]],
        ..Window::plain(0)
    };
    let found = forward(layer.clone(), &x, DType::F32);
    assert!(worst(&found, &convolve(&x, &weight, None, window)) < 1e-5);
    let layer = Conv2d::new("conv", layer).unwrap();
    assert_eq!(layer.out_hw([9, 10]), Some([5, 10]));
    assert_eq!(layer.out_hw([9, usize::MAX]), None);
    let none = Conv2d::new(
        "conv",
        Conv2dSpec::new(weight.view(), None, Math::Native).padding(Padding::NONE),
    )
    .unwrap();
    assert_eq!(none.out_hw([2, 10]), None, "the kernel does not fit");
}

#[test]
fn slices_have_the_bits_of_the_whole() {
    let mut r = Random(3);
    let precise: Precision = "HiFi3+l1acc:w=bfp8".parse().unwrap();
    for [cin, cout, k, stride, dilation, groups, h, w] in SHAPES {
        let x = array4(&mut r, [2, cin, h, w], 2.0);
        let weight = array4(&mut r, [cout, cin / groups, k, k], 0.5);
        let bias = vector(&mut r, cout);
        for (math, dtype) in [
            (Math::Native, DType::F32),
            (Math::Native, DType::Bf16),
            (precise.into(), DType::Bf16),
        ] {
            let make = |slicing| {
                let spec = spec(&weight, &bias, math)
                    .stride([stride; 2])
                    .dilation([dilation; 2]);
                let spec = spec.groups(groups).activation(Activation::Relu).slicing(slicing);
                forward(spec, &x, dtype)
            };
            let whole = make(Slicing::Whole);
            for parts in [1, 2, 3, whole.dim().2] {
                assert_eq!(
                    bits(&whole),
                    bits(&make(Slicing::Height(parts))),
                    "{k} x {k}, {parts} slices"
                );
            }
        }
    }
    let weight = array4(&mut r, [2, 2, 3, 3], 1.0);
    let layer = Conv2d::new(
        "conv",
        spec(&weight, &[0.0; 2], Math::Native).slicing(Slicing::Height(9)),
    )
    .unwrap();
    let error = run(&array4(&mut r, [1, 2, 8, 8], 1.0), DType::F32, |ops, x| {
        Ok(vec![layer.forward(ops, x)?])
    });
    assert!(error.unwrap_err().to_string().contains("9 slices of 8 rows"));
}

#[test]
fn two_terms_are_almost_fp32_weights() {
    let mut r = Random(4);
    let (cin, cout) = (48, 40);
    let x = stored(&array4(&mut r, [1, cin, 10, 10], 1.0), DType::Bf16);
    let weight = array4(&mut r, [cout, cin, 3, 3], 0.1);
    let bias = vector(&mut r, cout);
    let exact = convolve(&x, &weight, Some(&bias), Window::plain(1)).mapv(|x| x.max(0.0));
    let rms = |found: &Array4<f32>| {
        let squares = found.iter().zip(&exact).map(|(&f, e)| (f64::from(f) - e).powi(2));
        (squares.sum::<f64>() / exact.len() as f64).sqrt()
    };
    for math in [Math::Native, Precision::CONVOLUTION.into()] {
        let make = |terms, output| {
            let spec = spec(&weight, &bias, math).activation(Activation::Relu);
            forward(spec.weight_terms(terms).output(output), &x, DType::Bf16)
        };
        let (one, two) = (
            make(WeightTerms::One, DType::F32),
            make(WeightTerms::Two, DType::F32),
        );
        println!(
            "{math}: rms {:.2e} with one term, {:.2e} with two",
            rms(&one),
            rms(&two)
        );
        assert!(rms(&one) > 50.0 * rms(&two), "{} {}", rms(&one), rms(&two));
        // A bf16 output is the rounding of the fp32 one.
        let narrow = make(WeightTerms::Two, DType::Bf16);
        assert_eq!(bits(&narrow), bits(&stored(&two, DType::Bf16)));
        let floor = exact.mapv(|x| bf16::from_f64(x).to_f32());
        assert!(
            rms(&narrow) < 1.05 * rms(&floor),
            "{} {}",
            rms(&narrow),
            rms(&floor)
        );
    }
}

#[test]
fn terms_hold_sixteen_bits() {
    let mut r = Random(5);
    let values: Vec<f32> = (0..4000)
        .map(|i| crate::ops_dense::reference::unit(&mut r) * 2_f32.powi(i % 60 - 30))
        .collect();
    let [hi, lo] = bf16_terms(&values);
    for ((x, hi), lo) in values.iter().zip(hi).zip(lo) {
        for term in [hi, lo] {
            assert_eq!(bf16::from_f32(term).to_f32(), term);
        }
        let (x, sum) = (f64::from(*x), f64::from(hi) + f64::from(lo));
        assert!((x - sum).abs() <= x.abs() * 2_f64.powi(-16), "{x} {sum}");
    }
    assert_eq!(
        bf16_terms(&[f32::INFINITY, 3.4e38]),
        [vec![f32::INFINITY; 2], vec![0.0; 2]]
    );
}

#[test]
fn a_split_convolution_is_that_of_the_concatenation() {
    let mut r = Random(6);
    let parts = [8, 16, 4];
    let xs: Vec<_> = parts
        .iter()
        .map(|&c| stored(&array4(&mut r, [1, c, 9, 7], 1.0), DType::Bf16))
        .collect();
    let views: Vec<_> = xs.iter().map(|x| x.view()).collect();
    let joined = concatenate(Axis(1), &views).unwrap();
    let weight = array4(&mut r, [12, 28, 3, 3], 0.2);
    let bias = vector(&mut r, 12);
    for dtype in [DType::F32, DType::Bf16] {
        let exact =
            convolve(&joined, &stored(&weight, dtype), Some(&bias), Window::plain(1)).mapv(|x| x.max(0.0));
        for (accumulate, output, limit) in [
            (DType::F32, DType::F32, 1e-5),
            (DType::Bf16, DType::Bf16, 0.06),
            (DType::F32, DType::Bf16, 0.02),
        ] {
            if ![DType::F32, dtype].contains(&accumulate) {
                continue;
            }
            let whole = spec(&weight, &bias, Math::Native)
                .activation(Activation::Relu)
                .output(output);
            let layer = KSplitConv::new("head", KSplitSpec::new(whole, &parts, accumulate)).unwrap();
            let found = run(&joined, dtype, |ops, x| {
                let inputs = sensorium::ops::conv::split_channels(x, &parts)?;
                let y = layer.forward(ops, &inputs)?;
                layer.release(ops.device);
                Ok(vec![y])
            });
            let found = found.unwrap().remove(0);
            assert!(correlation(&found, &exact) >= 0.999_99);
            assert!(
                worst(&found, &exact) < limit,
                "{dtype}, {accumulate}: {}",
                worst(&found, &exact)
            );
        }
    }
    let whole = spec(&weight, &bias, Math::Native);
    let make = |whole: Conv2dSpec, parts: &[usize]| {
        KSplitConv::new("head", KSplitSpec::new(whole, parts, DType::F32))
            .unwrap_err()
            .to_string()
    };
    assert!(make(whole.clone(), &[8, 16]).contains("do not divide 28 input channels"));
    assert!(make(whole.clone(), &[28, 0]).contains("do not divide"));
    assert!(make(whole.clone().weight_terms(WeightTerms::Two), &parts).contains("has no two-term weights"));
    assert!(make(whole.clone().slicing(Slicing::Height(2)), &parts).contains("has no slices"));
    let layer = KSplitConv::new("head", KSplitSpec::new(whole, &parts, DType::F32)).unwrap();
    let few = run(&joined, DType::F32, |ops, x| Ok(vec![layer.forward(ops, &[*x])?]));
    assert!(matches!(
        few,
        Err(LayerError::Count {
            found: 1,
            expected: 3,
            ..
        })
    ));
}

/// `output[o, y * K + i, x * K + j] = sum over c of input[c, y, x] * weight[c, o, i, j]`
fn transposed(x: &Array4<f32>, weight: &Array4<f32>, bias: &[f32]) -> Array4<f64> {
    let ((n, cin, h, w), (_, cout, k, _)) = (x.dim(), weight.dim());
    let mut out = Array4::from_shape_fn((n, cout, h * k, w * k), |(_, o, _, _)| f64::from(bias[o]));
    for i in 0..n {
        for (c, y, column) in (0..cin).flat_map(|c| (0..h).flat_map(move |y| (0..w).map(move |x| (c, y, x))))
        {
            let value = f64::from(x[[i, c, y, column]]);
            for ((o, ky, kx), &weight) in weight.slice(s![c, .., .., ..]).indexed_iter() {
                out[[i, o, y * k + ky, column * k + kx]] += value * f64::from(weight);
            }
        }
    }
    out
}

#[test]
fn transposed_convolutions_agree_whatever_the_method() {
    let mut r = Random(7);
    for (k, cin, cout) in [(1, 5, 6), (2, 16, 24), (3, 8, 5), (4, 12, 16)] {
        let x = array4(&mut r, [2, cin, 5, 6], 1.0);
        let weight = array4(&mut r, [cin, cout, k, k], 0.5);
        let bias = vector(&mut r, cout);
        for (dtype, output) in [
            (DType::F32, DType::F32),
            (DType::Bf16, DType::Bf16),
            (DType::Bf16, DType::F32),
        ] {
            let exact = transposed(&stored(&x, dtype), &stored(&weight, dtype), &bias).mapv(|x| x.max(0.0));
            let make = |method| {
                let spec = ConvTranspose2dSpec::new(weight.view(), Some(&bias), Math::Native);
                let spec = spec.activation(Activation::Relu).output(output).method(method);
                let layer = ConvTranspose2d::new("up", spec).unwrap();
                let found = run(&x, dtype, |ops, x| {
                    let y = layer.forward(ops, x)?;
                    layer.release(ops.device);
                    Ok(vec![y])
                });
                found.unwrap().remove(0)
            };
            let direct = make(TransposeMethod::Direct);
            assert_eq!(bits(&direct), bits(&make(TransposeMethod::Linear)));
            assert_eq!(bits(&direct), bits(&make(TransposeMethod::Auto)));
            assert!(correlation(&direct, &exact) >= 0.999_99);
            if output == DType::F32 {
                assert!(worst(&direct, &exact) < 1e-5, "{k}: {}", worst(&direct, &exact));
            }
        }
        // Row by row of the linear form: depth to space of x times the matrix.
        let layer = ConvTranspose2d::new(
            "up",
            ConvTranspose2dSpec::new(weight.view(), Some(&bias), Math::Native),
        )
        .unwrap();
        let matrix = layer.linear_weights();
        for ((c, o, i, j), &value) in weight.indexed_iter() {
            assert_eq!(matrix[[c, (i * k + j) * cout + o]], value);
        }
        assert!(
            layer.describe().contains(if k > 2 { "linear" } else { "direct" }),
            "{}",
            layer.describe()
        );
    }
    let weight = array4(&mut r, [3, 4, 3, 3], 1.0);
    let spec = ConvTranspose2dSpec::new(weight.view(), None, Math::Native);
    let error = ConvTranspose2d::new("up", spec.clone().stride(2)).unwrap_err();
    assert!(
        matches!(error, LayerError::Refused { .. }) && error.to_string().contains("as large as the stride")
    );
    let layer = ConvTranspose2d::new("up", spec).unwrap();
    let wrong = run(&array4(&mut r, [1, 4, 2, 2], 1.0), DType::F32, |ops, x| {
        Ok(vec![layer.forward(ops, x)?])
    });
    assert!(matches!(wrong, Err(LayerError::Shape { .. })));
}

#[test]
fn a_layer_knows_what_it_is_and_what_it_has_ready() {
    let mut r = Random(8);
    let weight = array4(&mut r, [8, 4, 1, 1], 1.0);
    let layer = Conv2d::new("stem", spec(&weight, &[0.0; 8], Precision::CONVOLUTION)).unwrap();
    assert!(layer.is_matmul());
    assert_eq!(layer.describe(), "stem: 1 x 1, 4 -> 8, HiFi4+fp32+l1acc");
    let strided = spec(&weight, &[0.0; 8], Math::Native)
        .stride([2, 2])
        .activation(Activation::Relu)
        .slicing(Slicing::Height(2))
        .weight_terms(WeightTerms::Two)
        .output(DType::F32);
    let strided = Conv2d::new("down", strided).unwrap();
    assert!(!strided.is_matmul());
    assert_eq!(
        strided.describe(),
        "down: 1 x 1, 4 -> 8, native, stride [2, 2], Relu, two-term weights, output float32, 2 slices of rows"
    );
    let results = run(&array4(&mut r, [1, 4, 3, 5], 1.0), DType::Bf16, |ops, x| {
        let used = ops.device.memory().used_bytes;
        let first = layer.forward(ops, x)?;
        let second = layer.forward(ops, x)?;
        let prepared = PreparedInput {
            shape: Shape::new(&[1, 4, 3, 5]).unwrap(),
            dtype: DType::Bf16,
        };
        assert_eq!(layer.prepared_inputs(), [prepared]);
        layer.release(ops.device);
        assert_eq!(layer.prepared_inputs(), []);
        ops.free(&first).unwrap();
        ops.free(&second).unwrap();
        assert_eq!(ops.device.memory().used_bytes, used, "nothing is left");
        Ok(vec![])
    });
    assert_eq!(results.unwrap().len(), 0);
}

#[test]
fn layers_that_do_not_hold_together_are_refused() {
    let mut r = Random(9);
    let weight = array4(&mut r, [6, 4, 3, 3], 1.0);
    let sound = || Conv2dSpec::new(weight.view(), None, Math::Native);
    let refusal = |spec| Conv2d::new("conv", spec).unwrap_err();
    for (spec, expected) in [
        (sound().stride([0, 1]), "at least 1"),
        (sound().dilation([1, 0]), "at least 1"),
        (sound().groups(0), "0 groups do not divide"),
        (sound().groups(4), "4 groups do not divide 6 output channels"),
        (sound().slicing(Slicing::Height(0)), "0 slices"),
        (sound().stride([5000, 1]), "above the supported 4096"),
        (sound().dilation([1, usize::MAX]), "above the supported 4096"),
        (
            sound().padding(Padding::all(usize::MAX)),
            "above the supported 4096",
        ),
        (
            Conv2dSpec::new(weight.view(), Some(&[0.0; 5]), Math::Native),
            "5 biases for 6 output channels",
        ),
        (
            Conv2dSpec::new(Array4::zeros((0, 4, 3, 3)).view(), None, Math::Native),
            "no dimension may be 0",
        ),
    ] {
        let error = refusal(spec);
        assert!(matches!(error, LayerError::Weights { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let error = refusal(sound().padding(Padding::all(3)));
    assert!(
        matches!(error, LayerError::Refused { .. }) && error.to_string().contains("zeros alone"),
        "{error}"
    );
    let precision: Precision = "HiFi4:w=bfp8".parse().unwrap();
    let error = refusal(Conv2dSpec::new(weight.view(), None, precision).weight_terms(WeightTerms::Two));
    assert!(
        error.to_string().contains("weights are stored as bfp8"),
        "{error}"
    );
    let x = array4(&mut r, [1, 4, 5, 5], 1.0);
    let run_with = |layer: &Conv2d, x: &Array4<f32>, dtype| {
        let before = std::cell::Cell::new(0);
        let error = run(x, dtype, |ops, x| {
            before.set(ops.device.memory().used_bytes);
            let error = layer.forward(ops, x).unwrap_err();
            assert_eq!(
                ops.device.memory().used_bytes,
                before.get(),
                "nothing stays allocated"
            );
            Err(error)
        });
        error.unwrap_err().to_string()
    };
    let layer = Conv2d::new("conv", sound().weight_terms(WeightTerms::Two)).unwrap();
    assert!(run_with(&layer, &x, DType::F32).contains("more exact than two terms"));
    let layer = Conv2d::new("conv", sound()).unwrap();
    let other = array4(&mut r, [1, 3, 5, 5], 1.0);
    assert_eq!(
        run_with(&layer, &other, DType::F32),
        "conv: the input has shape [1, 3, 5, 5], expected [N, 4, H, W] with room for a kernel of 3 x 3"
    );
    assert!(
        run_with(&layer, &x, DType::U8).contains("uint8"),
        "the device says what it computes with"
    );
    assert_eq!(activation_named("conv", "ReLU6").unwrap(), RELU6);
    assert_eq!(
        activation_named("conv", "hardswish").unwrap(),
        Activation::HardSwish
    );
    assert!(
        activation_named("conv", "swish2")
            .unwrap_err()
            .to_string()
            .contains("expected one of identity, relu, relu6")
    );
}
