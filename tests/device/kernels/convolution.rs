//! Convolution over random geometries.

use sensorium::device::cpu::kernels::{Isa, KernelSet, pack_weights};
use sensorium::device::{
    Activation, Conv2dDesc, Geometry2d, OpDesc, Operand, ResidualOrder, Scalar, WeightDesc,
};
use sensorium::precision::Math;
use sensorium::tensor::{DType, HostTensor};

use crate::kernels::harness::{Random, element, image, positions, random, run_everywhere, values};

pub(crate) const ACTIVATIONS: [Activation; 25] = [
    Activation::Identity,
    Activation::Relu,
    Activation::Clip {
        low: Scalar::new(0.0),
        high: Scalar::new(6.0),
    },
    Activation::LeakyRelu {
        slope: Scalar::new(0.1),
    },
    Activation::Sigmoid,
    Activation::Silu,
    Activation::HardSigmoid {
        alpha: Scalar::new(0.2),
        beta: Scalar::new(0.5),
    },
    Activation::HardSwish,
    Activation::Tanh,
    Activation::Exp,
    Activation::Erf,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Sqrt,
    Activation::Rsqrt,
    Activation::Abs,
    Activation::Neg,
    Activation::Log,
    Activation::Softplus,
    Activation::Elu {
        alpha: Scalar::new(0.7),
    },
    Activation::Reciprocal,
    Activation::Floor,
    Activation::Ceil,
    Activation::Round,
    Activation::Mish,
];

/// Activations that are continuous everywhere, so that a sum's rounding stays a rounding behind them.
pub(crate) const SMOOTH: [Activation; 15] = [
    ACTIVATIONS[0],
    ACTIVATIONS[1],
    ACTIVATIONS[2],
    ACTIVATIONS[3],
    ACTIVATIONS[4],
    ACTIVATIONS[5],
    ACTIVATIONS[6],
    ACTIVATIONS[7],
    ACTIVATIONS[8],
    ACTIVATIONS[9],
    ACTIVATIONS[10],
    ACTIVATIONS[11],
    ACTIVATIONS[15],
    ACTIVATIONS[19],
    ACTIVATIONS[24],
];

/// The ONNX formulas in f64.
pub(crate) fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Identity => x,
        Activation::Relu => x.max(0.0),
        Activation::Clip { low, high } => x.max(low.get().into()).min(high.get().into()),
        Activation::LeakyRelu { slope } => {
            if x < 0.0 {
                f64::from(slope.get()) * x
            } else {
                x
            }
        }
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::HardSigmoid { alpha, beta } => {
            (f64::from(alpha.get()) * x + f64::from(beta.get())).clamp(0.0, 1.0)
        }
        Activation::HardSwish => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
        Activation::Tanh => x.tanh(),
        Activation::Exp => x.exp(),
        Activation::Erf => erf(x),
        Activation::Gelu => 0.5 * x * erfc(-x / 2_f64.sqrt()),
        Activation::GeluTanh => {
            // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), which does not cancel.
            let cubic = f64::from(0.044_715_f32) * x * x * x;
            x / (1.0 + (-2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + cubic)).exp())
        }
        Activation::Sqrt => x.sqrt(),
        Activation::Rsqrt => 1.0 / x.sqrt(),
        Activation::Abs => x.abs(),
        Activation::Neg => -x,
        Activation::Log => x.ln(),
        Activation::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        Activation::Elu { alpha } => {
            if x < 0.0 {
                f64::from(alpha.get()) * x.exp_m1()
            } else {
                x
            }
        }
        Activation::Reciprocal => 1.0 / x,
        Activation::Floor => x.floor(),
        Activation::Ceil => x.ceil(),
        Activation::Round => x.round_ties_even(),
        Activation::Mish => {
            // tanh(log(1 + e)) = (e^2 + 2 e) / (e^2 + 2 e + 2), which does not cancel.
            let e = x.min(300.0).exp();
            x * (e * e + 2.0 * e) / (e * e + 2.0 * e + 2.0)
        }
        other => panic!("no formula for {other:?}"),
    }
}

/// The error function by its Taylor series, or by [`erfc`] where that would cancel.
fn erf(x: f64) -> f64 {
    if x.abs() >= 2.0 {
        return x.signum() * (1.0 - erfc(x.abs()));
    }
    let mut term = x;
    let mut sum = x;
    for n in 1..80 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

/// The complementary error function; from 2 on by its continued fraction.
fn erfc(x: f64) -> f64 {
    if x < 2.0 {
        return if x > -2.0 { 1.0 - erf(x) } else { 2.0 - erfc(-x) };
    }
    let tail = (1..400)
        .rev()
        .fold(0.0, |tail, k| f64::from(k) / 2.0 / (x + tail));
    (-x * x).exp() / std::f64::consts::PI.sqrt() / (x + tail)
}

pub(crate) struct Case {
    pub(crate) desc: Conv2dDesc,
    input: HostTensor,
    weight: Vec<f32>,
    bias: Option<Vec<f32>>,
    output: HostTensor,
    residual: Option<HostTensor>,
}

/// Sizes of a random case.
pub(crate) struct Limits {
    pub(crate) channels: usize,
    pub(crate) depthwise: bool,
}

fn random_case(r: &mut Random, limits: &Limits) -> Case {
    let dtype = r.pick(&[DType::F32, DType::F32, DType::Bf16]);
    let groups = if limits.depthwise {
        r.range(2, limits.channels)
    } else {
        r.pick(&[1, 1, 1, 2, 3])
    };
    random_case_of(r, limits, dtype, groups)
}

/// A random convolution of a type and a number of groups.
pub(crate) fn random_case_of(r: &mut Random, limits: &Limits, dtype: DType, groups: usize) -> Case {
    let (group_in, group_out) = if limits.depthwise {
        (1, 1)
    } else {
        (
            r.range(1, limits.channels / groups),
            r.range(1, limits.channels / groups),
        )
    };
    let (cin, cout) = (group_in * groups, group_out * groups);
    let kernel = r.pick(&[[1, 1], [1, 1], [3, 3], [3, 3], [1, 3], [5, 2]]);
    let stride = [r.range(1, 3), r.range(1, 3)];
    let dilation = [r.pick(&[1, 1, 2]), r.pick(&[1, 1, 2])];
    let reach = [0, 1].map(|a| (kernel[a] - 1) * dilation[a] + 1);
    let pad_begin = [r.range(0, reach[0] - 1), r.range(0, reach[1] - 1)];
    let pad_end = [r.range(0, reach[0] - 1), r.range(0, reach[1] - 1)];
    let size = [
        r.range(reach[0], 9).max(reach[0]),
        r.range(reach[1], 37).max(reach[1]),
    ];
    let out = [0, 1].map(|a| (size[a] + pad_begin[a] + pad_end[a] - reach[a]) / stride[a] + 1);
    let n = r.range(1, 2);
    let pitched = |r: &mut Random, c: usize| {
        let channel = r.pick(&[0, 0, 3]);
        (c + channel + r.pick(&[0, 0, 5]), channel)
    };
    let (pitch, channel) = pitched(r, cin);
    let (input_operand, input_len) = image(dtype, [n, cin, size[0], size[1]], pitch, channel);
    let (pitch, channel) = pitched(r, cout);
    let out_dtype = r.pick(&[dtype, DType::F32]);
    let (output_operand, output_len) = image(out_dtype, [n, cout, out[0], out[1]], pitch, channel);
    let (pitch, channel) = pitched(r, cout);
    let (residual_operand, residual_len) = image(out_dtype, [n, cout, out[0], out[1]], pitch, channel);
    let has_residual = r.range(0, 2) == 0;
    let taps = kernel[0] * kernel[1];
    Case {
        desc: Conv2dDesc {
            input: input_operand,
            output: output_operand,
            residual: has_residual.then_some(residual_operand),
            residual_order: match has_residual && r.range(0, 2) == 0 {
                true => ResidualOrder::BeforeActivation,
                false => ResidualOrder::AfterActivation,
            },
            geometry: Geometry2d {
                kernel,
                stride,
                dilation,
                pad_begin,
            },
            groups,
            activation: r.pick(&SMOOTH),
            math: Math::Native,
        },
        input: random(r, dtype, input_len, 2.0),
        weight: (0..cout * group_in * taps)
            .map(|_| r.unit() / (group_in * taps) as f32)
            .collect(),
        bias: (r.range(0, 3) > 0).then(|| (0..cout).map(|_| r.unit()).collect()),
        output: random(r, out_dtype, output_len, 9.0),
        residual: has_residual.then(|| random(r, out_dtype, residual_len, 1.0)),
    }
}

impl Case {
    pub(crate) fn buffers(&self, set: impl Into<KernelSet>) -> Vec<HostTensor> {
        let weights = WeightDesc::Conv2d {
            desc: &self.desc,
            weight: &self.weight,
            bias: self.bias.as_deref(),
        };
        let packed = pack_weights(&weights, set).unwrap();
        let mut buffers = vec![self.input.clone(), packed, self.output.clone()];
        buffers.extend(self.residual.clone());
        buffers
    }

    /// Checks every element of the output buffer, those between the pixels included. Without an activation a sum must
    /// be the bits of one chain of fused multiply-adds.
    pub(crate) fn check(&self, found: &HostTensor) {
        self.check_sums(found, true);
    }

    /// As [`Self::check`]; sums that are no chain may be added up in another order.
    pub(crate) fn check_sums(&self, found: &HostTensor, is_chain: bool) {
        let d = &self.desc;
        let bf16_storage = d.output.dtype == DType::Bf16;
        let rounded = |dtype: DType, x: f32| match dtype {
            DType::Bf16 => half::bf16::from_f32(x).to_f32(),
            _ => x,
        };
        let input = values(&self.input);
        let residual = self.residual.as_ref().map(values);
        let found = values(found);
        let mut untouched: Vec<bool> = vec![true; found.len()];
        let (shape, in_shape) = (d.output.view.shape, d.input.view.shape);
        let (group_in, group_out) = (in_shape[1] / d.groups, shape[1] / d.groups);
        let g = &d.geometry;
        for at in positions(&shape) {
            let [n, co, y, x] = at[..] else { unreachable!() };
            let bias = self.bias.as_ref().map_or(0.0, |b| b[co]);
            let mut chain = bias;
            let mut sum = f64::from(bias);
            let mut magnitude = sum.abs();
            for ky in 0..g.kernel[0] {
                for kx in 0..g.kernel[1] {
                    for ci in 0..group_in {
                        let iy = (y * g.stride[0] + ky * g.dilation[0]).wrapping_sub(g.pad_begin[0]);
                        let ix = (x * g.stride[1] + kx * g.dilation[1]).wrapping_sub(g.pad_begin[1]);
                        if iy >= in_shape[2] || ix >= in_shape[3] {
                            continue;
                        }
                        let channel = co / group_out * group_in + ci;
                        let value = input[element(&d.input.view, &[n, channel, iy, ix])];
                        let weight =
                            self.weight[((co * group_in + ci) * g.kernel[0] + ky) * g.kernel[1] + kx];
                        let weight = rounded(d.input.dtype, weight);
                        chain = (value as f32).mul_add(weight, chain);
                        sum += value * f64::from(weight);
                        magnitude += (value * f64::from(weight)).abs();
                    }
                }
            }
            let place = element(&d.output.view, &at);
            untouched[place] = false;
            let added = match (&residual, &d.residual) {
                (Some(values), Some(operand)) => Some(values[element(&operand.view, &at)]),
                _ => None,
            };
            if is_chain && d.activation == Activation::Identity {
                let exact = added.map_or(chain, |r| chain + r as f32);
                assert_eq!(
                    found[place] as f32,
                    rounded(d.output.dtype, exact),
                    "not one fused chain at {at:?} of {d:?}"
                );
            }
            let exact = match (added, d.residual_order) {
                (None, _) => activate(d.activation, sum),
                (Some(added), ResidualOrder::AfterActivation) => activate(d.activation, sum) + added,
                (Some(added), ResidualOrder::BeforeActivation) => activate(d.activation, sum + added),
            };
            let steepest = if d.activation == Activation::Exp {
                exact.abs().max(1.0)
            } else {
                1.2
            };
            let terms = (group_in * g.kernel[0] * g.kernel[1] + 4) as f64;
            let storage = if bf16_storage { exact.abs() / 256.0 } else { 0.0 };
            let allowed =
                storage + f64::from(f32::EPSILON) * (steepest * magnitude * terms + 4.0 * exact.abs() + 4.0);
            assert!(
                (found[place] - exact).abs() <= allowed,
                "{} is not {exact} +- {allowed} at {at:?} of {d:?}",
                found[place]
            );
        }
        let before = values(&self.output);
        for (place, _) in untouched.iter().enumerate().filter(|(_, untouched)| **untouched) {
            assert_eq!(
                found[place], before[place],
                "wrote between the pixels, at {place} of {d:?}"
            );
        }
    }
}

fn check_random_cases(seed: u64, count: usize, limits: &Limits) {
    let mut r = Random(seed);
    for _ in 0..count {
        let case = random_case(&mut r, limits);
        let op = OpDesc::Conv2d(case.desc.clone());
        case.check(&run_everywhere(&op, 2, |isa| case.buffers(isa)));
    }
}

#[test]
fn dense_and_grouped_convolutions_follow_the_formula_on_every_instruction_set() {
    check_random_cases(
        1,
        150,
        &Limits {
            channels: 40,
            depthwise: false,
        },
    );
}

#[test]
fn wide_convolutions_follow_the_formula() {
    check_random_cases(
        2,
        25,
        &Limits {
            channels: 70,
            depthwise: false,
        },
    );
}

#[test]
fn depthwise_convolutions_follow_the_formula_on_every_instruction_set() {
    check_random_cases(
        3,
        150,
        &Limits {
            channels: 70,
            depthwise: true,
        },
    );
}

#[test]
fn a_sliced_input_is_convolved_in_place() {
    // Every second column and row of a larger image, as a space-to-depth front end reads it.
    let mut r = Random(4);
    let (whole, len) = image(DType::F32, [1, 5, 10, 14], 5, 0);
    let view = whole.view.slice(2, 1, 5, 2).unwrap().slice(3, 0, 7, 2).unwrap();
    let (output, output_len) = image(DType::F32, [1, 20, 5, 7], 20, 0);
    let case = Case {
        desc: Conv2dDesc {
            input: Operand {
                dtype: DType::F32,
                view,
            },
            output,
            residual: None,
            residual_order: ResidualOrder::AfterActivation,
            geometry: Geometry2d {
                kernel: [1, 1],
                stride: [1, 1],
                dilation: [1, 1],
                pad_begin: [0, 0],
            },
            groups: 1,
            activation: Activation::Identity,
            math: Math::Native,
        },
        input: random(&mut r, DType::F32, len, 1.0),
        weight: (0..100).map(|_| r.unit()).collect(),
        bias: None,
        output: random(&mut r, DType::F32, output_len, 1.0),
        residual: None,
    };
    let op = OpDesc::Conv2d(case.desc.clone());
    case.check(&run_everywhere(&op, 2, |isa| case.buffers(isa)));
}

#[test]
fn weights_beyond_the_near_caches_give_the_same_sums() {
    // 1.6 MB of weights: each panel is then used for several tiles, at the border and inside, before the next one.
    let mut r = Random(6);
    let (input, input_len) = image(DType::F32, [1, 280, 3, 30], 280, 0);
    let (output, output_len) = image(DType::F32, [1, 160, 3, 30], 160, 0);
    let case = Case {
        desc: Conv2dDesc {
            input,
            output,
            residual: None,
            residual_order: ResidualOrder::AfterActivation,
            geometry: Geometry2d {
                kernel: [3, 3],
                stride: [1, 1],
                dilation: [1, 1],
                pad_begin: [1, 1],
            },
            groups: 1,
            activation: Activation::Identity,
            math: Math::Native,
        },
        input: random(&mut r, DType::F32, input_len, 1.0),
        weight: (0..160 * 280 * 9).map(|_| r.unit() / 50.0).collect(),
        bias: Some((0..160).map(|_| r.unit()).collect()),
        output: random(&mut r, DType::F32, output_len, 1.0),
        residual: None,
    };
    let op = OpDesc::Conv2d(case.desc.clone());
    case.check(&run_everywhere(&op, 2, |isa| case.buffers(isa)));
}

#[test]
fn packed_weights_are_the_same_every_time_and_refuse_wrong_lengths() {
    let mut r = Random(5);
    let case = random_case(
        &mut r,
        &Limits {
            channels: 40,
            depthwise: false,
        },
    );
    let pack = |weight: &[f32], bias: Option<&[f32]>| {
        pack_weights(
            &WeightDesc::Conv2d {
                desc: &case.desc,
                weight,
                bias,
            },
            Isa::detect(),
        )
    };
    let twice = [(); 2].map(|()| pack(&case.weight, None).unwrap());
    assert_eq!(twice[0].bytes(), twice[1].bytes());
    assert!(pack(&case.weight[1..], None).is_err());
    assert!(pack(&case.weight, Some(&[0.0; 1000])).is_err());
}
