//! Residual networks against their definition in f64; every replay has the bits of an eager run.

use crate::blocks;
use crate::graphs;
use std::collections::HashMap;
use std::sync::Arc;

use ndarray::{Array4, ArrayView4, s};
use sensorium::device::{Activation, BufferClass, Cq, Device};
use sensorium::models::resnet::{
    BasicBlock, BlockKind, BlockNames, ConvFactory, ConvParams, FoldedConvs, MapLayer, ResNetStages,
    ResNetStem, custom_resnet_names, mmdet_names,
};
use sensorium::models::{BlockError, as_feature_map};
use sensorium::ops::conv::WeightTerms;
use sensorium::ops::pool::MaxPool;
use sensorium::ops::{DeviceTensor, OpContext};
use sensorium::precision::PrecisionPolicy;
use sensorium::tensor::{DType, HostTensor, Shape};
use sensorium::trace::TraceContext;

use blocks::{as_rows, cpu, everywhere, numbers, stored, unit};
use graphs::Random;

type Weights = HashMap<String, ConvParams>;

/// A convolution from `cin` to `cout` with a padding that keeps the size (before the stride).
fn conv(r: &mut Random, [cin, cout, kernel]: [usize; 3], stride: usize) -> ConvParams {
    let scale = 1.7 / ((cin * kernel * kernel) as f32).sqrt();
    let weight = Array4::from_shape_simple_fn((cout, cin, kernel, kernel), || unit(r) * scale);
    ConvParams {
        stride: [stride; 2],
        padding: [kernel / 2; 4],
        ..ConvParams::new(weight, Some((0..cout).map(|_| unit(r) * 0.2).collect()))
    }
}

/// A convolution of `[N, C, H, W]` straight from the definition.
fn run_conv(params: &ConvParams, x: &Array4<f64>) -> Array4<f64> {
    let (n, cin, h, w) = x.dim();
    let (cout, group_in, kh, kw) = params.weight.dim();
    let [top, bottom, left, right] = params.padding;
    let mut padded = Array4::zeros((n, cin, h + top + bottom, w + left + right));
    padded
        .slice_mut(s![.., .., top..top + h, left..left + w])
        .assign(x);
    let size = |axis: usize, len: usize, kernel: usize| {
        (len - (kernel - 1) * params.dilation[axis] - 1) / params.stride[axis] + 1
    };
    let (oh, ow) = (size(0, padded.dim().2, kh), size(1, padded.dim().3, kw));
    let group_out = cout / params.groups;
    let mut y = Array4::zeros((n, cout, oh, ow));
    for ((n, o, oy, ox), sum) in y.indexed_iter_mut() {
        *sum = params.bias.as_ref().map_or(0.0, |bias| f64::from(bias[o]));
        for ((i, ky, kx), &weight) in params.weight.index_axis(ndarray::Axis(0), o).indexed_iter() {
            let channel = o / group_out * group_in + i;
            let row = oy * params.stride[0] + ky * params.dilation[0];
            let column = ox * params.stride[1] + kx * params.dilation[1];
            *sum += padded[[n, channel, row, column]] * f64::from(weight);
        }
    }
    y
}

fn relu(mut x: Array4<f64>) -> Array4<f64> {
    x.mapv_inplace(|v| v.max(0.0));
    x
}

fn run_pool(x: &Array4<f64>) -> Array4<f64> {
    let (n, c, h, w) = x.dim();
    Array4::from_shape_fn((n, c, h.div_ceil(2), w.div_ceil(2)), |(n, c, oy, ox)| {
        let around = |at: usize, len: usize| (2 * at).saturating_sub(1)..(2 * at + 2).min(len);
        let window = x.slice(s![n, c, around(oy, h), around(ox, w)]);
        window.iter().fold(f64::NEG_INFINITY, |top, &v| top.max(v))
    })
}

/// One block as the published networks write it.
fn run_block(weights: &Weights, names: &BlockNames, count: usize, x: &Array4<f64>) -> Array4<f64> {
    let mut y = x.clone();
    for (index, module) in names.convs[..count].iter().enumerate() {
        y = run_conv(&weights[module], &y);
        if index + 1 < count {
            y = relu(y);
        }
    }
    match weights.get(&names.downsample) {
        Some(params) => relu(y + run_conv(params, x)),
        None => relu(y + x),
    }
}

fn run_stages(
    weights: &Weights,
    names: &dyn Fn(usize, usize) -> BlockNames,
    layers: &[usize],
    count: usize,
    x: &Array4<f64>,
) -> Vec<Array4<f64>> {
    let mut last = x.clone();
    let mut outputs = Vec::new();
    for (stage, &blocks) in layers.iter().enumerate() {
        for block in 0..blocks {
            last = run_block(weights, &names(stage, block), count, &last);
        }
        outputs.push(last.clone());
    }
    outputs
}

/// Weights of bottleneck stages in PyTorch's style: the stride on the second convolution.
fn bottlenecks(
    r: &mut Random,
    weights: &mut Weights,
    names: &dyn Fn(usize, usize) -> BlockNames,
    layers: &[usize],
    mut cin: usize,
    width: usize,
) {
    for (stage, &blocks) in layers.iter().enumerate() {
        let (width, stride) = (width << stage, if stage == 0 { 1 } else { 2 });
        for block in 0..blocks {
            let stride = if block == 0 { stride } else { 1 };
            let names = names(stage, block);
            let mut add = |name: &str, params| weights.insert(name.to_owned(), params);
            add(&names.convs[0], conv(r, [cin, width, 1], 1));
            add(&names.convs[1], conv(r, [width, width, 3], stride));
            add(&names.convs[2], conv(r, [width, 4 * width, 1], 1));
            if block == 0 {
                add(&names.downsample, conv(r, [cin, 4 * width, 1], stride));
            }
            cin = 4 * width;
        }
    }
}

fn basics(
    r: &mut Random,
    weights: &mut Weights,
    names: &dyn Fn(usize, usize) -> BlockNames,
    layers: &[usize],
    mut cin: usize,
    channels: &[usize],
    projection: usize,
) {
    for (stage, &blocks) in layers.iter().enumerate() {
        let cout = channels[stage];
        for block in 0..blocks {
            let names = names(stage, block);
            let stride = if block == 0 && projection > 0 { 2 } else { 1 };
            let mut add = |name: &str, params| weights.insert(name.to_owned(), params);
            add(&names.convs[0], conv(r, [cin, cout, 3], stride));
            add(&names.convs[1], conv(r, [cout, cout, 3], 1));
            if block == 0 && projection > 0 {
                add(&names.downsample, conv(r, [cin, cout, projection], stride));
            }
            cin = cout;
        }
    }
}

fn random_map(r: &mut Random, dtype: DType, [n, h, w, c]: [usize; 4]) -> HostTensor {
    let values: Vec<f32> = (0..n * h * w * c).map(|_| unit(r)).collect();
    stored(dtype, &[n, h, w, c], &values)
}

/// A stored map `[N, H, W, C]` as `[N, C, H, W]`.
fn planes(tensor: &HostTensor) -> Array4<f64> {
    let shape = tensor.shape();
    let map = Array4::from_shape_vec((shape[0], shape[1], shape[2], shape[3]), numbers(tensor)).unwrap();
    map.permuted_axes([0, 3, 1, 2]).as_standard_layout().into_owned()
}

fn correlation(found: ArrayView4<'_, f64>, exact: ArrayView4<'_, f64>) -> f64 {
    assert_eq!(found.dim(), exact.dim());
    let count = found.len() as f64;
    let (ma, mb) = (found.sum() / count, exact.sum() / count);
    let [mut ab, mut aa, mut bb] = [0.0; 3];
    for (a, b) in found.iter().zip(exact) {
        ab += (a - ma) * (b - mb);
        aa += (a - ma) * (a - ma);
        bb += (b - mb) * (b - mb);
    }
    ab / (aa * bb).sqrt()
}

fn assert_agree(what: &str, dtype: DType, found: &HostTensor, exact: &Array4<f64>) {
    let found = planes(found);
    let correlation = correlation(found.view(), exact.view());
    let top = exact.iter().fold(0.0_f64, |top, v| top.max(v.abs()));
    let worst = found
        .iter()
        .zip(exact)
        .fold(0.0_f64, |top, (a, b)| top.max((a - b).abs()));
    println!("{what}, {dtype}: correlation {correlation:.8}, off by {worst:.2e} of {top:.2}");
    match dtype {
        DType::F32 => assert!(
            correlation >= 0.9999 && worst <= 2e-5 * top,
            "{what}: {correlation}, {worst}"
        ),
        _ => assert!(correlation >= 0.999, "{what}: {correlation}"),
    }
}

type Forward =
    dyn Fn(&mut OpContext<'_>, &DeviceTensor) -> Result<Vec<DeviceTensor>, BlockError> + Send + Sync;

fn run(x: &HostTensor, build: &dyn Fn() -> Box<Forward>) -> Vec<HostTensor> {
    let dims = <[usize; 4]>::try_from(&x.shape()[..]).unwrap();
    everywhere(&[("x", x.clone())], || {
        let forward = build();
        Arc::new(move |context: &mut TraceContext<'_>| {
            let x = as_feature_map(&context.input("x")?, dims)?;
            let maps = forward(context.ops(), &x)?;
            let named = maps.iter().enumerate();
            Ok(named.map(|(i, map)| (format!("y{i}"), as_rows(map))).collect())
        })
    })
}

#[test]
fn a_stem_and_bottleneck_stages_follow_their_definition() {
    let mut r = Random(1);
    let mut weights = Weights::new();
    weights.insert("img.conv1".into(), conv(&mut r, [3, 16, 7], 2));
    let names = mmdet_names("img");
    let layers = [2, 2, 1];
    bottlenecks(&mut r, &mut weights, &names, &layers, 16, 8);
    assert_eq!(names(1, 0).convs[1], "img.layer2.0.conv2");
    assert_eq!(names(0, 1).downsample, "img.layer1.1.downsample.0");
    for dtype in [DType::F32, DType::Bf16] {
        let x = random_map(&mut r, dtype, [2, 33, 46, 3]);
        let found = run(&x, &|| {
            let provider = |module: &str| weights.get(module).cloned();
            let stem = ResNetStem::new(
                &provider,
                "img.conv1",
                &FoldedConvs::native(),
                Some(MaxPool::STEM),
            )
            .unwrap();
            let names = mmdet_names("img");
            let stages = ResNetStages::new(
                &provider,
                &names,
                &layers,
                BlockKind::Bottleneck,
                &FoldedConvs::native(),
                &[],
            )
            .unwrap();
            assert_eq!(stages.len(), 3);
            assert_eq!(
                stages.out_shapes([2, 16, 9, 12]).unwrap(),
                [[2, 32, 9, 12], [2, 64, 5, 6], [2, 128, 3, 3]]
            );
            Box::new(move |ops, x| {
                let map = stem.forward(ops, x)?;
                stages.forward(ops, &map, &[2, 1], true)
            })
        });
        let stem = run_pool(&relu(run_conv(&weights["img.conv1"], &planes(&x))));
        let exact = run_stages(&weights, &names, &layers, 3, &stem);
        assert_agree("c5", dtype, &found[0], &exact[2]);
        assert_agree("c4", dtype, &found[1], &exact[1]);
    }
}

#[test]
fn encoders_of_views_project_with_any_convolution_and_small_networks_not_at_all() {
    let mut r = Random(2);
    let (custom, small) = (custom_resnet_names("bev"), mmdet_names("small"));
    let mut weights = Weights::new();
    basics(&mut r, &mut weights, &custom, &[2, 1, 2], 20, &[24, 32, 40], 3);
    basics(&mut r, &mut weights, &small, &[2], 20, &[20], 0);
    assert_eq!(custom(0, 1).convs[0], "bev.layers.0.1.conv1");
    assert_eq!(custom(2, 0).downsample, "bev.layers.2.0.downsample");
    for dtype in [DType::F32, DType::Bf16] {
        let x = random_map(&mut r, dtype, [1, 32, 24, 20]);
        let found = run(&x, &|| {
            let provider = |module: &str| weights.get(module).cloned();
            let (custom, small) = (custom_resnet_names("bev"), mmdet_names("small"));
            let kind = BlockKind::Basic;
            let bev =
                ResNetStages::new(&provider, &custom, &[2, 1, 2], kind, &FoldedConvs::native(), &[]).unwrap();
            let flat =
                ResNetStages::new(&provider, &small, &[2], kind, &FoldedConvs::native(), &[false]).unwrap();
            Box::new(move |ops, x| {
                let mut maps = bev.forward(ops, x, &[0, 1, 2], false)?;
                maps.extend(flat.forward(ops, x, &[0], false)?);
                Ok(maps)
            })
        });
        let x = planes(&x);
        let mut exact = run_stages(&weights, &custom, &[2, 1, 2], 2, &x);
        exact.extend(run_stages(&weights, &small, &[2], 2, &x));
        for (i, exact) in exact.iter().enumerate() {
            assert_agree(&format!("output {i}"), dtype, &found[i], exact);
        }
    }
}

#[test]
fn convolutions_of_any_window_padding_dilation_and_groups_are_taken() {
    let mut r = Random(3);
    let params = |r: &mut Random, dims: (usize, usize, usize, usize)| {
        let weight = Array4::from_shape_simple_fn(dims, || unit(r));
        ConvParams::new(weight, Some((0..dims.0).map(|_| unit(r)).collect()))
    };
    let cases = [
        ConvParams {
            stride: [2, 1],
            padding: [0, 1, 2, 1],
            ..params(&mut r, (10, 8, 3, 4))
        },
        ConvParams {
            dilation: [2, 3],
            padding: [2, 2, 3, 3],
            ..params(&mut r, (6, 8, 3, 3))
        },
        ConvParams {
            groups: 4,
            padding: [1, 1, 1, 1],
            ..params(&mut r, (12, 2, 3, 3))
        },
        ConvParams {
            groups: 8,
            stride: [2, 2],
            padding: [0, 2, 0, 2],
            ..params(&mut r, (8, 1, 5, 3))
        },
        ConvParams {
            bias: None,
            ..params(&mut r, (4, 8, 1, 5))
        },
    ];
    for case in cases {
        let x = random_map(&mut r, DType::F32, [2, 13, 17, 8]);
        let found = run(&x, &|| {
            let layer = FoldedConvs::native().layer("conv", case.clone(), true).unwrap();
            Box::new(move |ops, x| Ok(vec![layer.forward(ops, x)?]))
        });
        assert_agree(
            &format!("{:?}", case.weight.dim()),
            DType::F32,
            &found[0],
            &relu(run_conv(&case, &planes(&x))),
        );
    }
}

/// A layer of one's own: the module's convolution, twice as large.
#[derive(Debug)]
struct Doubled(Box<dyn MapLayer>);

impl MapLayer for Doubled {
    fn out_shape(&self, input: &Shape) -> Result<[usize; 4], BlockError> {
        self.0.out_shape(input)
    }

    fn forward(&self, ops: &mut OpContext<'_>, input: &DeviceTensor) -> Result<DeviceTensor, BlockError> {
        let once = self.0.forward(ops, input)?;
        let twice = self.0.forward_add(ops, input, &once, Activation::Identity);
        ops.free(&once).unwrap();
        twice
    }

    fn release(&self, device: &mut dyn Device) {
        self.0.release(device);
    }
}

#[test]
fn a_factory_makes_other_layers_of_the_modules_that_it_names() {
    let mut r = Random(4);
    let mut weights = Weights::new();
    let names = mmdet_names("net");
    bottlenecks(&mut r, &mut weights, &names, &[1, 2], 12, 4);
    let special = [names(1, 0).convs[1].clone(), names(1, 1).convs[2].clone()];
    let factory = |module: &str, params: ConvParams, relu: bool| -> Result<Box<dyn MapLayer>, BlockError> {
        let plain = FoldedConvs::native().layer(module, params, relu)?;
        match special.iter().any(|name| name == module) {
            true => Ok(Box::new(Doubled(plain))),
            false => Ok(plain),
        }
    };
    let x = random_map(&mut r, DType::F32, [1, 12, 10, 12]);
    let found = run(&x, &|| {
        let provider = |module: &str| weights.get(module).cloned();
        let names = mmdet_names("net");
        let stages =
            ResNetStages::new(&provider, &names, &[1, 2], BlockKind::Bottleneck, &factory, &[]).unwrap();
        Box::new(move |ops, x| stages.forward(ops, x, &[0, 1], false))
    });
    // Doubling commutes with the ReLU.
    let mut doubled = weights.clone();
    for module in &special {
        let params = doubled.get_mut(module).unwrap();
        params.weight *= 2.0;
        params.bias.as_mut().unwrap().iter_mut().for_each(|b| *b *= 2.0);
    }
    let exact = run_stages(&doubled, &names, &[1, 2], 3, &planes(&x));
    assert_agree("first", DType::F32, &found[0], &exact[0]);
    assert_agree("second", DType::F32, &found[1], &exact[1]);
}

#[test]
fn a_policy_decides_the_precision_of_each_module_and_two_terms_are_nearer_than_one() {
    let mut r = Random(7);
    let mut weights = Weights::new();
    let names = mmdet_names("net");
    bottlenecks(&mut r, &mut weights, &names, &[1, 1], 12, 8);
    let x = random_map(&mut r, DType::Bf16, [1, 12, 10, 12]);
    let exact = run_stages(&weights, &names, &[1, 1], 3, &planes(&x));
    let policy = |rules: &[(&str, &str)], default: &str| PrecisionPolicy::parse(rules, default).unwrap();
    let fine = "HiFi4+fp32+l1acc";
    let error = |convs: FoldedConvs| {
        let found = run(&x, &|| {
            let provider = |module: &str| weights.get(module).cloned();
            let names = mmdet_names("net");
            let kind = BlockKind::Bottleneck;
            let stages = ResNetStages::new(&provider, &names, &[1, 1], kind, &convs, &[]).unwrap();
            Box::new(move |ops, x| stages.forward(ops, x, &[1], false))
        });
        assert!(correlation(planes(&found[0]).view(), exact[1].view()) >= 0.99);
        let difference = planes(&found[0]) - &exact[1];
        (difference.mapv(|d| d * d).sum().sqrt(), found[0].dtype())
    };
    let one = error(FoldedConvs::native());
    let two = error(FoldedConvs::native().weight_terms(WeightTerms::Two));
    let engine = error(FoldedConvs::with_policy(policy(&[], fine)));
    let coarse = error(FoldedConvs::with_policy(policy(
        &[("net.layer2.0.conv2", "LoFi")],
        fine,
    )));
    let wide = error(FoldedConvs::with_policy(policy(&[], "HiFi4+fp32+l1acc:a=fp32")));
    println!("one term {one:?}, two {two:?}, engine {engine:?}, coarse {coarse:?}, fp32 maps {wide:?}");
    assert!(two.0 < one.0 && coarse.0 > 1.2 * engine.0 && wide.0 < engine.0);
    assert_eq!([one.1, engine.1, wide.1], [DType::Bf16, DType::Bf16, DType::F32]);
}

#[test]
fn nothing_stays_allocated_but_outputs_and_weights_whatever_goes_wrong() {
    let mut r = Random(5);
    let mut weights = Weights::new();
    let names = mmdet_names("net");
    bottlenecks(&mut r, &mut weights, &names, &[1, 1], 8, 4);
    let provider = |module: &str| weights.get(module).cloned();
    let stages = ResNetStages::new(
        &provider,
        &names,
        &[1, 1],
        BlockKind::Bottleneck,
        &FoldedConvs::native(),
        &[],
    )
    .unwrap();
    let mut device = cpu(1);
    let mut ops = OpContext::new(&mut device, Cq::COMPUTE);
    let empty = ops.device.memory().used_bytes;
    let upload = |ops: &mut OpContext<'_>, channels: usize| {
        let x = stored(DType::F32, &[1, 6, 6, channels], &vec![0.5; 36 * channels]);
        let x = ops.upload(&x, BufferClass::Intermediate).unwrap();
        as_feature_map(&x, [1, 6, 6, channels]).unwrap()
    };
    let x = upload(&mut ops, 8);
    let outputs = stages.forward(&mut ops, &x, &[1], true).unwrap();
    ops.free(&outputs[0]).unwrap();
    stages.release(ops.device);
    assert_eq!(ops.device.memory().used_bytes, empty);
    for (keep, channels) in [(&[0, 1][..], 9), (&[][..], 8), (&[2], 8), (&[1, 1], 8)] {
        let x = upload(&mut ops, channels);
        let error = stages.forward(&mut ops, &x, keep, true).unwrap_err();
        stages.release(ops.device);
        assert_eq!(ops.device.memory().used_bytes, empty, "{error}");
    }
    let x = upload(&mut ops, 8);
    let outputs = stages.forward(&mut ops, &x, &[0], false).unwrap();
    ops.free(&outputs[0]).unwrap();
    ops.free(&x).unwrap();
    stages.release(ops.device);
    assert_eq!(ops.device.memory().used_bytes, empty);
}

#[test]
fn networks_that_do_not_hold_together_are_refused() {
    let mut r = Random(6);
    let mut weights = Weights::new();
    let names = mmdet_names("net");
    bottlenecks(&mut r, &mut weights, &names, &[1], 8, 4);
    let provider = |module: &str| weights.get(module).cloned();
    let stages = |layers: &[usize], flags: &[bool]| {
        ResNetStages::new(
            &provider,
            &names,
            layers,
            BlockKind::Bottleneck,
            &FoldedConvs::native(),
            flags,
        )
        .map(|_| ())
        .unwrap_err()
        .to_string()
    };
    assert_eq!(
        stages(&[2], &[]),
        "net.layer1.1.conv1: there are no weights of this module"
    );
    assert!(stages(&[], &[]).contains("at least one stage"));
    assert!(stages(&[1, 0], &[]).contains("at least one stage"));
    assert!(stages(&[1], &[true, true]).contains("2 flags for 1 stages"));
    let without = BasicBlock::new(&provider, &names(0, 0), false, &FoldedConvs::native()).unwrap();
    let error = without
        .out_shape(&Shape::new(&[1, 8, 5, 5]).unwrap())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "net.layer1.0: the block's layers give [1, 4, 5, 5], its other branch [1, 8, 5, 5]"
    );
    let bad = |params: ConvParams| {
        FoldedConvs::native()
            .layer("conv", params, true)
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    let good = conv(&mut r, [4, 6, 3], 1);
    assert!(
        bad(ConvParams {
            bias: Some(vec![0.0; 5]),
            ..good.clone()
        })
        .contains("5 biases for 6")
    );
    assert!(
        bad(ConvParams {
            groups: 4,
            ..good.clone()
        })
        .contains("4 groups do not divide 6 output channels")
    );
    assert!(
        bad(ConvParams {
            stride: [1, 0],
            ..good
        })
        .contains("stride [1, 0] and dilation [1, 1] are at least 1")
    );
}
