//! Convolution with a matrix engine's arithmetic, against a transcription of its definition in integers and f64, and what
//! that arithmetic costs.

use half::bf16;
use sensorium::device::cpu::kernels::{Isa, pack_weights};
use sensorium::device::{Activation, Conv2dDesc, DeviceError, Geometry2d, OpDesc, ResidualOrder, WeightDesc};
use sensorium::numeric::blockfloat::{BlockFormat, decode_block, encode_block};
use sensorium::precision::{Fidelity, Math, MatrixMath, MatrixOperand, OperandFormat, Precision};
use sensorium::tensor::{DType, HostTensor};

use crate::kernels::harness::{Random, element, image, random, run_everywhere, values};

/// A number as sign, exponent and integer: `sign * integer * 2^exponent`.
struct Digits {
    sign: f64,
    integer: u32,
    exponent: i32,
}

impl Digits {
    /// Of a normal number or zero, with the leading one at bit 23.
    fn of(x: f32) -> Self {
        let bits = x.to_bits();
        let field = (bits >> 23 & 0xff) as i32;
        assert_ne!(field, 255);
        Self {
            sign: if bits >> 31 == 1 { -1.0 } else { 1.0 },
            integer: if field == 0 { 0 } else { bits & 0x7f_ffff | 1 << 23 },
            exponent: field - 127 - 23,
        }
    }

    /// The bits `high..low` of the significand, counted from the leading one.
    fn cut(&self, from: u32, to: u32) -> f64 {
        let part = (0..24)
            .filter(|bit| (from..to).contains(bit))
            .map(|bit| self.integer & 1 << (23 - bit))
            .sum::<u32>();
        self.sign * f64::from(part) * 2_f64.powi(self.exponent)
    }
}

/// Factors of the passes, `[pass][weight, activation]`, from the table of the engine's documentation.
fn factors(weight: f32, activation: f32) -> [[f64; 2]; 4] {
    let (a, b) = (Digits::of(weight), Digits::of(activation));
    let (a_first, a_next) = (a.cut(0, 5), a.cut(5, 10));
    let (b_first, b_rest) = (b.cut(0, 7), b.cut(7, 11));
    [
        [a_first, b_first],
        [a_next, b_first],
        [a_first, b_rest],
        [a_next, b_rest],
    ]
}

/// fp32 addition. The f64 sum has more than twice the bits, so that rounding it again gives the fp32 sum.
fn add(a: f64, b: f64) -> f64 {
    f64::from((a + b) as f32)
}

fn narrow(wanted: bool, x: f64) -> f64 {
    if wanted {
        bf16::from_f32(x as f32).to_f64()
    } else {
        x
    }
}

/// The sum of a row times a column, in the order of the definition.
fn engine(math: MatrixMath, output: DType, weights: &[f32], activations: &[f32]) -> f64 {
    let passes = match math.fidelity {
        Fidelity::LoFi => 1,
        Fidelity::HiFi2 => 2,
        Fidelity::HiFi3 => 3,
        Fidelity::HiFi4 => 4,
    };
    let all: Vec<_> = weights
        .iter()
        .zip(activations)
        .map(|(&w, &a)| factors(w, a))
        .collect();
    let mut kept = 0.0;
    for tile in all.chunks(32) {
        let mut dst = if math.packer_l1_acc { 0.0 } else { kept };
        for pass in 0..passes {
            for step in tile.chunks(16) {
                let products = step
                    .iter()
                    .fold(0.0, |sum, factors| add(sum, factors[pass][0] * factors[pass][1]));
                dst = narrow(!math.fp32_acc, add(dst, products));
            }
        }
        kept = match math.packer_l1_acc {
            true => narrow(!math.fp32_acc, add(kept, dst)),
            false => narrow(output == DType::Bf16, dst),
        };
    }
    kept
}

struct Case {
    desc: Conv2dDesc,
    math: MatrixMath,
    input: HostTensor,
    weight: Vec<f32>,
    bias: Option<Vec<f32>>,
    output: HostTensor,
    residual: Option<HostTensor>,
}

impl Case {
    fn random(r: &mut Random) -> Self {
        let math = MatrixMath {
            fidelity: r.pick(&Fidelity::ALL),
            fp32_acc: r.pick(&[true, false]),
            packer_l1_acc: r.pick(&[true, false]),
            weights: r.pick(&OperandFormat::ALL),
        };
        let dtype = r.pick(&[DType::F32, DType::Bf16]);
        let out_dtype = r.pick(&[dtype, DType::F32]);
        let groups = r.pick(&[1, 1, 2, 3]);
        let (cin, cout) = (groups * r.range(1, 19), groups * r.range(1, 21));
        let kernel = r.pick(&[[1, 1], [3, 3], [2, 3]]);
        let (stride, dilation) = ([r.range(1, 2), r.range(1, 2)], [r.range(1, 2), 1]);
        let reach = [0, 1].map(|a| (kernel[a] - 1) * dilation[a] + 1);
        let pad_begin = reach.map(|reach| r.range(0, reach - 1));
        let size = [reach[0] + r.range(0, 3), reach[1] + r.range(0, 12)];
        let out = [0, 1].map(|a| (size[a] + pad_begin[a] - reach[a]) / stride[a] + 1);
        let n = r.range(1, 2);
        let pitch = |r: &mut Random, c: usize| (c + r.pick(&[0, 3]), r.pick(&[0, 0]));
        let (step, first) = pitch(r, cin);
        let (input, input_len) = image(dtype, [n, cin, size[0], size[1]], step, first);
        let (step, first) = pitch(r, cout);
        let (output, output_len) = image(out_dtype, [n, cout, out[0], out[1]], step, first);
        let residual = r.pick(&[true, false]).then_some(output);
        Self {
            desc: Conv2dDesc {
                input,
                output,
                residual,
                residual_order: match residual {
                    Some(_) => r.pick(&[ResidualOrder::AfterActivation, ResidualOrder::BeforeActivation]),
                    None => ResidualOrder::AfterActivation,
                },
                geometry: Geometry2d {
                    kernel,
                    stride,
                    dilation,
                    pad_begin,
                },
                groups,
                activation: r.pick(&[Activation::Identity, Activation::Relu]),
                math: Math::Matrix(math),
            },
            math,
            input: random(r, dtype, input_len, 2.0),
            weight: (0..cout * cin / groups * kernel[0] * kernel[1])
                .map(|_| r.unit())
                .collect(),
            bias: r
                .pick(&[true, false])
                .then(|| (0..cout).map(|_| r.unit()).collect()),
            residual: residual.map(|_| random(r, out_dtype, output_len, 1.0)),
            output: random(r, out_dtype, output_len, 9.0),
        }
    }

    fn buffers(&self, isa: Isa) -> Vec<HostTensor> {
        let weights = WeightDesc::Conv2d {
            desc: &self.desc,
            weight: &self.weight,
            bias: self.bias.as_deref(),
        };
        let packed = pack_weights(&weights, isa).unwrap();
        let mut buffers = vec![self.input.clone(), packed, self.output.clone()];
        buffers.extend(self.residual.clone());
        buffers
    }

    /// A weight as its format holds it: block floats share an exponent among 16 output channels of a group.
    fn stored(&self, channel: usize, rest: usize) -> f32 {
        let group_out = self.desc.output.view.shape[1] / self.desc.groups;
        let fan = self.weight.len() / self.desc.output.view.shape[1];
        let at = |channel: usize| self.weight[channel * fan + rest];
        let block = |format: BlockFormat| {
            let group = channel / group_out * group_out;
            let first = group + (channel - group) / 16 * 16;
            let mut values = [0.0; 16];
            for (lane, value) in values.iter_mut().enumerate() {
                if first + lane < group + group_out {
                    *value = at(first + lane);
                }
            }
            decode_block(format, &encode_block(format, &values))[channel - first]
        };
        match self.math.weights {
            OperandFormat::F32 => at(channel),
            OperandFormat::Bf16 => bf16::from_f32(at(channel)).to_f32(),
            OperandFormat::Bfp8 => block(BlockFormat::Bfp8),
            OperandFormat::Bfp4 => block(BlockFormat::Bfp4),
        }
    }

    fn expected(&self, [n, channel, y, x]: [usize; 4]) -> f64 {
        let (from, geometry) = (&self.desc.input.view, &self.desc.geometry);
        let (cin, cout) = (from.shape[1] / self.desc.groups, self.desc.output.view.shape[1]);
        let group = channel / (cout / self.desc.groups);
        let input = values(&self.input);
        let (mut weights, mut activations) = (Vec::new(), Vec::new());
        for ky in 0..geometry.kernel[0] {
            for kx in 0..geometry.kernel[1] {
                let iy =
                    (y * geometry.stride[0] + ky * geometry.dilation[0]).wrapping_sub(geometry.pad_begin[0]);
                let ix =
                    (x * geometry.stride[1] + kx * geometry.dilation[1]).wrapping_sub(geometry.pad_begin[1]);
                for c in 0..cin {
                    let rest = (c * geometry.kernel[0] + ky) * geometry.kernel[1] + kx;
                    weights.push(self.stored(channel, rest));
                    activations.push(if iy < from.shape[2] && ix < from.shape[3] {
                        input[element(from, &[n, group * cin + c, iy, ix])] as f32
                    } else {
                        0.0
                    });
                }
            }
        }
        let out = self.desc.output.dtype;
        let bias = self.bias.as_ref().map_or(0.0, |bias| match self.math.weights {
            OperandFormat::F32 => bias[channel].into(),
            _ => bf16::from_f32(bias[channel]).to_f64(),
        });
        let mut sum = add(engine(self.math, out, &weights, &activations), bias);
        let relu = self.desc.activation == Activation::Relu;
        let is_first = self.desc.residual_order == ResidualOrder::AfterActivation;
        if relu && is_first {
            sum = sum.max(0.0);
        }
        if let Some(residual) = &self.residual {
            let place = element(&self.desc.output.view, &[n, channel, y, x]);
            sum = add(sum, values(residual)[place]);
        }
        if relu && !is_first {
            sum = sum.max(0.0);
        }
        narrow(out == DType::Bf16, sum)
    }
}

#[test]
fn every_arithmetic_has_the_bits_of_its_definition() {
    let mut r = Random(61);
    let mut fidelities = [0; 4];
    for _ in 0..80 {
        let case = Case::random(&mut r);
        fidelities[case.math.fidelity as usize] += 1;
        let output = run_everywhere(&OpDesc::Conv2d(case.desc.clone()), 2, |isa| case.buffers(isa));
        let found = values(&output);
        let [n, c, h, w] = [0, 1, 2, 3].map(|axis| case.desc.output.view.shape[axis]);
        for position in 0..n * c * h * w {
            let at = [
                position / (c * h * w),
                position / (h * w) % c,
                position / w % h,
                position % w,
            ];
            let found = found[element(&case.desc.output.view, &at)];
            assert_eq!(found, case.expected(at), "{at:?} of {:?}", case.desc);
        }
    }
    assert!(fidelities.iter().all(|&count| count > 5), "{fidelities:?}");
}

#[test]
fn parts_are_the_documented_bits() {
    let mut r = Random(62);
    for _ in 0..20_000 {
        let x = f32::from_bits(r.bits() as u32);
        if !x.is_finite() {
            continue;
        }
        let [[a_high, b_high], [a_low, _], [_, b_low], _] = factors(x, x);
        let parts = |operand: MatrixOperand| operand.parts(x).map(f64::from);
        assert_eq!(parts(MatrixOperand::Weight), [a_high, a_low], "{x:e}");
        assert_eq!(parts(MatrixOperand::Activation), [b_high, b_low], "{x:e}");
        let y = bf16::from_f32(x).to_f32();
        if y.is_normal() {
            for operand in [MatrixOperand::Weight, MatrixOperand::Activation] {
                let [high, low] = operand.parts(y);
                assert_eq!(high + low, y, "a bf16 value is all there");
            }
        }
    }
    assert_eq!(MatrixOperand::Weight.parts(f32::INFINITY), [f32::INFINITY, 0.0]);
    assert!(MatrixOperand::Weight.parts(f32::NAN)[0].is_nan());
    assert_eq!(MatrixOperand::Weight.parts(-1.968_75), [-1.937_5, -0.031_25]);
    assert_eq!(
        MatrixOperand::Activation.parts(1.992_187_5),
        [1.984_375, 0.007_812_5]
    );
}

#[test]
fn block_floats_refuse_what_they_cannot_hold() {
    let mut case = Case::random(&mut Random(63));
    for (format, bad) in [
        (OperandFormat::Bfp8, f32::NAN),
        (OperandFormat::Bfp4, f32::INFINITY),
    ] {
        case.weight[0] = bad;
        case.desc.math = Math::Matrix(MatrixMath {
            weights: format,
            ..case.math
        });
        let weights = WeightDesc::Conv2d {
            desc: &case.desc,
            weight: &case.weight,
            bias: None,
        };
        let error = pack_weights(&weights, Isa::Scalar).unwrap_err();
        assert!(
            matches!(error, DeviceError::InvalidOp { op: "conv2d", .. }),
            "{error}"
        );
        assert!(error.to_string().contains("infinite weights or NaN"), "{error}");
    }
}

/// Normally distributed numbers.
fn normal(r: &mut Random, len: usize) -> Vec<f32> {
    let mut uniform = || (r.bits() >> 11) as f64 / (1_u64 << 53) as f64;
    (0..len)
        .map(|_| ((-2.0 * (1.0 - uniform()).ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()) as f32)
        .collect()
}

/// Largest and root-mean-square error against f64 of a convolution `side x side x cin -> cout`, of the values as they are
/// stored.
struct Errors {
    largest: f64,
    rms: f64,
}

fn errors(text: &str, dtype: DType, out: DType, [side, kernel, cin, cout]: [usize; 4], scale: f32) -> Errors {
    let mut r = Random(64);
    let precision: Precision = text.parse().unwrap();
    let (input, len) = image(dtype, [1, cin, side, side], cin, 0);
    let (output, out_len) = image(out, [1, cout, side, side], cout, 0);
    let store = |values: Vec<f32>| match dtype {
        DType::Bf16 => values.into_iter().map(|x| bf16::from_f32(x).to_f32()).collect(),
        _ => values,
    };
    let x: Vec<f32> = store(normal(&mut r, len));
    let w: Vec<f32> = store(
        normal(&mut r, cout * cin * kernel * kernel)
            .into_iter()
            .map(|x| x * scale)
            .collect(),
    );
    let case = Case {
        desc: Conv2dDesc {
            input,
            output,
            residual: None,
            residual_order: ResidualOrder::AfterActivation,
            geometry: Geometry2d {
                kernel: [kernel; 2],
                stride: [1; 2],
                dilation: [1; 2],
                pad_begin: [kernel / 2; 2],
            },
            groups: 1,
            activation: Activation::Identity,
            math: precision.into(),
        },
        math: MatrixMath {
            fidelity: precision.fidelity,
            fp32_acc: precision.fp32_acc,
            packer_l1_acc: precision.packer_l1_acc,
            weights: precision.weights,
        },
        input: crate::kernels::harness::tensor(dtype, &x),
        weight: w.clone(),
        bias: None,
        output: crate::kernels::harness::tensor(out, &vec![0.0; out_len]),
        residual: None,
    };
    let mut buffers = case.buffers(Isa::Scalar);
    crate::kernels::harness::run(&OpDesc::Conv2d(case.desc.clone()), Isa::Scalar, 2, &mut buffers);
    let found = values(&buffers[2]);
    let mut errors = Errors {
        largest: 0.0,
        rms: 0.0,
    };
    for y in 0..side {
        for column in 0..side {
            for o in 0..cout {
                let mut sum = 0.0;
                for (ky, kx) in (0..kernel * kernel).map(|tap| (tap / kernel, tap % kernel)) {
                    let (iy, ix) = (
                        (y + ky).wrapping_sub(kernel / 2),
                        (column + kx).wrapping_sub(kernel / 2),
                    );
                    if iy < side && ix < side {
                        for c in 0..cin {
                            let weight = w[((o * cin + c) * kernel + ky) * kernel + kx];
                            sum += f64::from(x[(iy * side + ix) * cin + c]) * f64::from(weight);
                        }
                    }
                }
                let error = (found[(y * side + column) * cout + o] - sum).abs();
                errors.largest = errors.largest.max(error);
                errors.rms += error * error;
            }
        }
    }
    errors.rms = (errors.rms / found.len() as f64).sqrt();
    errors
}

/// A product `64 x 512 x 128` of normally distributed numbers.
const PRODUCT: [usize; 4] = [8, 1, 512, 128];

#[test]
fn more_passes_give_smaller_errors() {
    for dtype in [DType::Bf16, DType::F32] {
        let weights = if dtype == DType::F32 { "f32" } else { "bf16" };
        let of = |fidelity: Fidelity| {
            let text = format!("{fidelity}+fp32+l1acc:w={weights}");
            errors(&text, dtype, DType::F32, PRODUCT, 1.0).rms
        };
        let [lofi, hifi2, hifi3, hifi4] = Fidelity::ALL.map(of);
        println!("{dtype}: rms {lofi:.2e} {hifi2:.2e} {hifi3:.2e} {hifi4:.2e}");
        assert!(
            lofi > 1.5 * hifi2 && hifi2 > 1.5 * hifi3 && hifi3 > hifi4,
            "{lofi} {hifi2} {hifi3} {hifi4}"
        );
    }
}

#[test]
fn errors_are_of_the_size_that_accelerators_show() {
    // Measured on a p150b: HiFi4 + fp32 0.03, LoFi 2.4 at most.
    let exact = errors("HiFi4+fp32", DType::Bf16, DType::F32, PRODUCT, 1.0).largest;
    let tf32 = errors("HiFi4+fp32:w=f32", DType::F32, DType::F32, PRODUCT, 1.0).largest;
    let coarse = errors("LoFi+fp32", DType::Bf16, DType::F32, PRODUCT, 1.0).largest;
    println!("HiFi4 {exact:.2e} (fp32 operands {tf32:.2e}), LoFi {coarse:.2}");
    assert!(exact < 0.03 && tf32 < 0.12, "{exact} {tf32}");
    assert!((1.0..5.0).contains(&coarse), "{coarse}");
}

#[test]
fn partial_sums_in_the_outputs_type_cost_accuracy() {
    // Measured on a p150b for 3 x 3, 256 -> 256 and bf16 output: 0.25 at most, and 0.025 with accumulation in the packer.
    let of = |text: &str| errors(text, DType::Bf16, DType::Bf16, [6, 3, 256, 32], 1.0 / 24.0);
    let (with, without) = (of("HiFi4+fp32+l1acc"), of("HiFi4+fp32"));
    println!(
        "{:.2e} (rms {:.2e}) and {:.2e} (rms {:.2e})",
        with.largest, with.rms, without.largest, without.rms
    );
    assert!(without.rms > 2.5 * with.rms && without.largest > 2.0 * with.largest);
    let narrow = of("HiFi4+l1acc");
    assert!(
        narrow.rms > without.rms,
        "bf16 sums round after every step: {}",
        narrow.rms
    );
}

#[test]
fn narrower_weights_cost_accuracy() {
    let of = |format: &str| {
        errors(
            &format!("HiFi4+fp32+l1acc:w={format}"),
            DType::Bf16,
            DType::F32,
            PRODUCT,
            1.0,
        )
        .rms
    };
    let [bf16, bfp8, bfp4] = ["bf16", "bfp8", "bfp4"].map(of);
    println!("rms: bf16 {bf16:.2e}, bfp8 {bfp8:.2e}, bfp4 {bfp4:.2e}");
    assert!(
        bf16 < 1e-4 && 4.0 * bfp8 < bfp4 && bfp8 > 0.01,
        "{bf16} {bfp8} {bfp4}"
    );
}
