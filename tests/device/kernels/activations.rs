//! Activations and binary functions against f64, special values included.

use sensorium::device::{Activation, BinaryKind, OpDesc, Scalar};
use sensorium::tensor::DType;

use crate::kernels::convolution::{ACTIVATIONS, activate};
use crate::kernels::harness::{
    Random, dense, isas, random, run_everywhere, run_in_place, tensor, ulps, values, zeros,
};

/// Applies an activation to fp32 values, on every instruction set.
fn apply(activation: Activation, inputs: &[f32]) -> Vec<f32> {
    let operand = dense(DType::F32, &[inputs.len()]);
    let op = OpDesc::Unary {
        src: operand,
        dst: operand,
        activation,
    };
    let result = run_everywhere(&op, 1, |_| {
        vec![tensor(DType::F32, inputs), zeros(DType::F32, inputs.len())]
    });
    result.as_slice::<f32>().unwrap().to_vec()
}

/// A sweep over every exponent and sign, and densely over -100..100.
fn sweep() -> Vec<f32> {
    let mut r = Random(11);
    let wide = (0..20_000).map(|i| {
        let exponent = (i % 255) as u32;
        f32::from_bits((r.bits() as u32 & 0x807f_ffff) | exponent << 23)
    });
    let wide: Vec<f32> = wide.collect();
    let close = (-100_000..=100_000).map(|i| i as f32 * 1e-3);
    wide.into_iter().chain(close).collect()
}

/// Largest error in ulp where the exact result is a normal number, and the largest absolute error elsewhere.
fn errors(activation: Activation, inputs: &[f32]) -> (f64, f64) {
    let outputs = apply(activation, inputs);
    let mut worst = (0.0_f64, 0.0_f64);
    for (&x, &y) in inputs.iter().zip(&outputs) {
        let exact = activate(activation, x.into());
        if exact.is_nan() {
            assert!(y.is_nan(), "{activation:?}({x}) = {y}");
        } else if exact.abs() > f32::MAX.into() {
            assert_eq!(
                f64::from(y),
                exact.signum() * f64::INFINITY,
                "{activation:?}({x})"
            );
        } else if exact.abs() >= 1e-34 {
            worst.0 = worst.0.max(ulps(y, exact));
        } else {
            worst.1 = worst.1.max((f64::from(y) - exact).abs());
        }
    }
    worst
}

#[test]
fn transcendental_functions_stay_within_the_stated_errors() {
    let inputs = sweep();
    let stated = [
        (Activation::Exp, 2.0, 1.2e-38),
        (Activation::Sigmoid, 4.0, 5e-38),
        (Activation::Silu, 5.0, 4e-36),
        (Activation::Tanh, 3.0, 1e-40),
        (Activation::Erf, 3.0, 1e-40),
        (Activation::Gelu, 6.0, 2e-37),
        (Activation::Log, 2.0, 1e-40),
        (Activation::Softplus, 4.0, 1.2e-38),
        (Activation::Mish, 6.0, 2e-36),
        (
            Activation::Elu {
                alpha: Scalar::new(0.7),
            },
            4.0,
            1e-40,
        ),
        (Activation::Sqrt, 0.5, 0.0),
        (Activation::Rsqrt, 1.5, 0.0),
        (Activation::Reciprocal, 0.500001, 1e-38),
    ];
    for (activation, ulp, absolute) in stated {
        let (worst_ulp, worst_absolute) = errors(activation, &inputs);
        println!("{activation:?}: {worst_ulp:.2} ulp, {worst_absolute:e} absolute");
        assert!(
            worst_ulp <= ulp && worst_absolute <= absolute,
            "{activation:?}: {worst_ulp}, {worst_absolute}"
        );
    }
}

#[test]
fn the_tanh_form_of_gelu_is_as_exact_as_its_argument() {
    let inputs = sweep();
    for (&x, y) in inputs.iter().zip(apply(Activation::GeluTanh, &inputs)) {
        let wide = f64::from(x);
        let exact = activate(Activation::GeluTanh, wide);
        if exact.abs() < 1e-34 || exact.abs() > f32::MAX.into() {
            continue;
        }
        let argument = 1.6 * (wide + 0.044_715 * wide.powi(3)).abs();
        let allowed = 5.0 * argument.clamp(1.0, 100.0);
        assert!(ulps(y, exact) <= allowed, "gelu({x}) = {y}, not {exact}");
    }
}

#[test]
fn rounding_functions_and_signs_are_exact() {
    let mut inputs = sweep();
    inputs.extend([
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
        0.0,
        -0.0,
        8_388_609.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
    ]);
    type Exact = (Activation, fn(f32) -> f32);
    let exact: [Exact; 5] = [
        (Activation::Floor, f32::floor),
        (Activation::Ceil, f32::ceil),
        (Activation::Round, f32::round_ties_even),
        (Activation::Abs, f32::abs),
        (Activation::Neg, |x| -x),
    ];
    for (activation, formula) in exact {
        for (&x, y) in inputs.iter().zip(apply(activation, &inputs)) {
            assert_eq!(y.to_bits(), formula(x).to_bits(), "{activation:?}({x}) = {y}");
        }
    }
}

#[test]
fn piecewise_functions_are_exact_to_a_rounding_or_two() {
    let inputs = sweep();
    let piecewise = [
        (Activation::Identity, 0.5),
        (Activation::Relu, 0.5),
        (
            Activation::Clip {
                low: Scalar::new(-1.5),
                high: Scalar::new(6.0),
            },
            0.5,
        ),
        (
            Activation::LeakyRelu {
                slope: Scalar::new(0.1),
            },
            0.5,
        ),
    ];
    for (activation, ulp) in piecewise {
        assert!(errors(activation, &inputs).0 <= ulp, "{activation:?}");
    }
    let hard = [
        Activation::HardSigmoid {
            alpha: Scalar::new(0.2),
            beta: Scalar::new(0.5),
        },
        Activation::HardSwish,
    ];
    for activation in hard {
        for (&x, y) in inputs.iter().zip(apply(activation, &inputs)) {
            let exact = activate(activation, x.into());
            // Cancellation near the lower corner leaves an absolute error, scaled by x for the swish.
            assert!(
                (f64::from(y) - exact).abs() <= 1e-6 + 2e-7 * exact.abs(),
                "{activation:?}({x}) = {y}, not {exact}"
            );
        }
    }
}

#[test]
fn infinities_and_nan_go_through_as_in_the_formula() {
    let inputs = [f32::INFINITY, f32::NEG_INFINITY, 0.0, 1e30, -1e30];
    let expected = [
        (Activation::Sigmoid, [1.0, 0.0, 0.5, 1.0, 0.0]),
        (Activation::Silu, [f32::INFINITY, f32::NAN, 0.0, 1e30, 0.0]),
        (Activation::Tanh, [1.0, -1.0, 0.0, 1.0, -1.0]),
        (Activation::Exp, [f32::INFINITY, 0.0, 1.0, f32::INFINITY, 0.0]),
        (Activation::Relu, [f32::INFINITY, 0.0, 0.0, 1e30, 0.0]),
        (Activation::Erf, [1.0, -1.0, 0.0, 1.0, -1.0]),
        (Activation::Gelu, [f32::INFINITY, f32::NAN, 0.0, 1e30, -0.0]),
        (Activation::GeluTanh, [f32::INFINITY, f32::NAN, 0.0, 1e30, -0.0]),
        (Activation::Sqrt, [f32::INFINITY, f32::NAN, 0.0, 1e15, f32::NAN]),
        (
            Activation::Log,
            [f32::INFINITY, f32::NAN, f32::NEG_INFINITY, 69.077_55, f32::NAN],
        ),
        (
            Activation::Softplus,
            [f32::INFINITY, 0.0, std::f32::consts::LN_2, 1e30, 0.0],
        ),
        (Activation::Reciprocal, [0.0, -0.0, f32::INFINITY, 1e-30, -1e-30]),
        (Activation::Mish, [f32::INFINITY, f32::NAN, 0.0, 1e30, -0.0]),
    ];
    for (activation, expected) in expected {
        for (y, e) in apply(activation, &inputs).into_iter().zip(expected) {
            assert!(
                y == e || y.is_nan() && e.is_nan(),
                "{activation:?}: {y} is not {e}"
            );
        }
    }
    // NaN of several payloads: the scale step works on the bits.
    let nans = [
        f32::NAN,
        -f32::NAN,
        f32::from_bits(0x7f80_0001),
        f32::from_bits(0xffff_ffff),
    ];
    for activation in ACTIVATIONS {
        assert!(
            apply(activation, &nans).iter().all(|y| y.is_nan()),
            "{activation:?} lost a NaN"
        );
    }
}

#[test]
fn an_activation_may_work_in_place_and_in_bf16() {
    let mut r = Random(12);
    let input = random(&mut r, DType::Bf16, 30_001, 8.0);
    let operand = dense(DType::Bf16, &[30_001]);
    let op = OpDesc::Unary {
        src: operand,
        dst: operand,
        activation: Activation::Silu,
    };
    for isa in isas() {
        let mut found = input.clone();
        run_in_place(&op, isa, 2, &mut found, 2);
        for (x, y) in values(&input).into_iter().zip(values(&found)) {
            let exact = activate(Activation::Silu, x);
            assert!(
                (y - exact).abs() <= exact.abs() / 256.0 + 1e-30,
                "silu({x}) = {y} on {isa}"
            );
        }
    }
}

#[test]
fn binary_functions_broadcast_and_keep_nan() {
    let mut r = Random(13);
    type Formula = fn(f32, f32) -> f32;
    let kinds: [(BinaryKind, Formula); 6] = [
        (BinaryKind::Add, |a, b| a + b),
        (BinaryKind::Sub, |a, b| a - b),
        (BinaryKind::Mul, |a, b| a * b),
        (BinaryKind::Div, |a, b| a / b),
        (BinaryKind::Max, |a, b| {
            if a.is_nan() || b.is_nan() {
                f32::NAN
            } else {
                a.max(b)
            }
        }),
        (BinaryKind::Min, |a, b| {
            if a.is_nan() || b.is_nan() {
                f32::NAN
            } else {
                a.min(b)
            }
        }),
    ];
    let dst = dense(DType::F32, &[7, 5, 33]);
    let lhs = {
        let mut turned = dense(DType::F32, &[33, 5, 7]);
        turned.view = turned.view.transpose(&[2, 1, 0]).unwrap();
        turned
    };
    let rhs = {
        let mut row = dense(DType::F32, &[5, 1]);
        row.view = row.view.broadcast_to(dst.view.shape).unwrap();
        row
    };
    let count = 7 * 5 * 33;
    let mut left: Vec<f32> = (0..count).map(|_| r.unit()).collect();
    left[17] = f32::NAN;
    let right = [1.0, -0.5, f32::NAN, 0.25, 3.0];
    for (kind, formula) in kinds {
        let op = OpDesc::Binary { lhs, rhs, dst, kind };
        let found = run_everywhere(&op, 2, |_| {
            vec![
                tensor(DType::F32, &left),
                tensor(DType::F32, &right),
                zeros(DType::F32, count),
            ]
        });
        let found = found.as_slice::<f32>().unwrap();
        for i in 0..7 {
            for j in 0..5 {
                for k in 0..33 {
                    let (a, b) = (left[(k * 5 + j) * 7 + i], right[j]);
                    let (y, e) = (found[(i * 5 + j) * 33 + k], formula(a, b));
                    assert!(y == e || y.is_nan() && e.is_nan(), "{kind:?}({a}, {b}) = {y}");
                }
            }
        }
    }
}
