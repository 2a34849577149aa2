//! Convolution of bf16 with instructions that multiply bf16. What they sum is held to the same arithmetic in plain code,
//! bit for bit where the processor has them (elsewhere both sides are plain), and to the formula.

use sensorium::device::cpu::kernels::{Bf16Dot, Isa, KernelSet, pack_weights};
use sensorium::device::{Activation, Conv2dDesc, Geometry2d, OpDesc, ResidualOrder, WeightDesc};
use sensorium::precision::Math;
use sensorium::tensor::{DType, HostTensor};

use crate::kernels::convolution::{Limits, random_case_of};
use crate::kernels::harness::{Random, image, run_on, values, zeros};

/// The kernel sets of one arithmetic; plain code first.
fn sets(bf16_dot: Bf16Dot) -> Vec<KernelSet> {
    [Isa::Scalar, Isa::Avx2, Isa::Avx512]
        .into_iter()
        .filter(|isa| isa.is_available())
        .map(|isa| KernelSet { isa, bf16_dot })
        .collect()
}

const DOTS: [Bf16Dot; 2] = [Bf16Dot::Pairs, Bf16Dot::Tiles];

#[test]
fn dense_convolutions_of_bf16_follow_the_formula_with_the_bits_of_plain_code() {
    for (seed, dot) in (20..).zip(DOTS) {
        let mut r = Random(seed);
        for channels in [5, 20, 40, 40, 70].into_iter().cycle().take(120) {
            let limits = Limits {
                channels,
                depthwise: false,
            };
            let case = random_case_of(&mut r, &limits, DType::Bf16, 1);
            let op = OpDesc::Conv2d(case.desc.clone());
            case.check_sums(&run_on(&sets(dot), &op, 2, |set| case.buffers(set)), false);
        }
    }
}

#[test]
fn grouped_and_depthwise_convolutions_stay_one_chain_of_fp32() {
    let mut r = Random(30);
    for depthwise in [false, true] {
        for _ in 0..20 {
            let limits = Limits {
                channels: 40,
                depthwise,
            };
            let groups = if depthwise { r.range(2, 40) } else { r.range(2, 3) };
            let case = random_case_of(&mut r, &limits, DType::Bf16, groups);
            let op = OpDesc::Conv2d(case.desc.clone());
            case.check(&run_on(&sets(Bf16Dot::Tiles), &op, 2, |set| case.buffers(set)));
        }
    }
}

/// A pointwise convolution without an activation: its outputs are the sums.
fn sums(cin: usize, cout: usize, pixels: usize, out: DType) -> Conv2dDesc {
    Conv2dDesc {
        input: image(DType::Bf16, [1, cin, 1, pixels], cin, 0).0,
        output: image(out, [1, cout, 1, pixels], cout, 0).0,
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
    }
}

fn buffers(
    desc: &Conv2dDesc,
    input: &HostTensor,
    weight: &[f32],
    bias: &[f32],
    set: KernelSet,
) -> Vec<HostTensor> {
    let weights = WeightDesc::Conv2d {
        desc,
        weight,
        bias: Some(bias),
    };
    let packed = pack_weights(&weights, set).unwrap();
    let outputs = desc.output.view.shape.elements();
    vec![input.clone(), packed, zeros(DType::F32, outputs)]
}

#[test]
fn every_kind_of_number_is_summed_as_plain_code_does() {
    // Exponents of all kinds: anything at all; near the smallest numbers, so that products, sums and inputs are subnormal;
    // some infinities and NaNs.
    let kinds: [&dyn Fn(&mut Random) -> u32; 4] = [
        &|r| r.range(0, 254) as u32,
        &|r| r.range(0, 3) as u32,
        &|r| r.range(58, 66) as u32,
        &|r| {
            if r.range(0, 60) == 0 {
                255
            } else {
                r.range(100, 150) as u32
            }
        },
    ];
    let mut r = Random(31);
    for round in 0..40 {
        let kind = kinds[round % kinds.len()];
        let mut number = |exponent: &dyn Fn(&mut Random) -> u32| {
            let bits = r.bits() as u32 & 0x807f_ffff;
            f32::from_bits(bits | exponent(&mut r) << 23)
        };
        let desc = sums(70, 33, 29, DType::F32);
        let short: Vec<half::bf16> = (0..70 * 29).map(|_| half::bf16::from_f32(number(kind))).collect();
        let input = HostTensor::from_slice(&[short.len()], &short).unwrap();
        let weight: Vec<f32> = (0..70 * 33).map(|_| number(kind)).collect();
        let small = round % 2 == 0;
        let bias: Vec<f32> = (0..33)
            .map(|_| if small { number(kinds[1]) } else { number(kind) })
            .collect();
        for dot in DOTS {
            let op = OpDesc::Conv2d(desc.clone());
            let found = run_on(&sets(dot), &op, 2, |set| {
                buffers(&desc, &input, &weight, &bias, set)
            });
            assert!(values(&found).iter().any(|&x| x != 0.0) || round % kinds.len() == 1);
        }
    }
}

#[test]
fn the_arithmetic_is_what_is_documented() {
    let one = |x: f32, w: f32, bias: f32, dot: Bf16Dot| -> f32 {
        // Two products, of even and odd index: `x * w` and `1 * 2^-24`.
        let desc = sums(2, 1, 1, DType::F32);
        let input = [x, 1.0].map(half::bf16::from_f32);
        let input = HostTensor::from_slice(&[2], &input).unwrap();
        let set = KernelSet {
            isa: Isa::Scalar,
            bf16_dot: dot,
        };
        let mut bound = buffers(&desc, &input, &[w, 2.0_f32.powi(-24)], &[bias], set);
        crate::kernels::harness::run(&OpDesc::Conv2d(desc), set, 1, &mut bound);
        bound[2].as_slice::<f32>().unwrap()[0]
    };
    // Half of the last place of 1 is lost when it is added to 1 alone (ties go to even), in pairs and in one chain ...
    let half = 2.0_f32.powi(-24);
    assert_eq!(one(half, 1.0, 1.0, Bf16Dot::Pairs), 1.0);
    assert_eq!(one(half, 1.0, 1.0, Bf16Dot::Off), 1.0);
    // ... but not where a tile adds both halves before it adds them to the bias.
    assert_eq!(one(half, 1.0, 1.0, Bf16Dot::Tiles), 1.0 + f32::EPSILON);
    // Subnormal numbers are zeros to the instructions, not to fp32.
    let tiny = f32::MIN_POSITIVE / 2.0;
    assert_eq!(one(tiny, 1.0e30, 0.0, Bf16Dot::Tiles), half);
    assert_eq!(one(tiny, 1.0e30, 0.0, Bf16Dot::Pairs), half);
    assert!(one(tiny, 1.0e38, 0.0, Bf16Dot::Off) > 0.5);
}

#[test]
fn weights_are_packed_for_the_arithmetic() {
    let desc = sums(64, 32, 8, DType::F32);
    let weight = vec![0.5; 64 * 32];
    let weights = WeightDesc::Conv2d {
        desc: &desc,
        weight: &weight,
        bias: None,
    };
    let packed = |isa: Isa, bf16_dot: Bf16Dot| pack_weights(&weights, KernelSet { isa, bf16_dot }).unwrap();
    let wide = packed(Isa::Scalar, Bf16Dot::Off).bytes().len();
    let tiles = packed(Isa::Scalar, Bf16Dot::Tiles);
    assert_eq!((wide, tiles.bytes().len()), (4 * 32 * 65, 4 * 32 * 33));
    // One form whatever runs it.
    for isa in [Isa::Avx2, Isa::Avx512]
        .into_iter()
        .filter(|isa| isa.is_available())
    {
        assert_eq!(packed(isa, Bf16Dot::Tiles).bytes(), tiles.bytes());
    }
    assert_eq!(packed(Isa::Scalar, Bf16Dot::Pairs).bytes(), tiles.bytes());
}
