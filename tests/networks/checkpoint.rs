//! A published PyTorch checkpoint of PointPillars: read as data, its layers folded, run through the blocks on the CPU
//! device, and compared with the same network in float64.

use crate::support;
use std::collections::HashMap;
use std::time::Duration;

use ndarray::{ArrayView2, ArrayView4};
use sensorium::device::{BufferClass, CpuConfig, CpuDevice, Cq};
use sensorium::models::pillars::{PfnPlan, PillarFeatureNet};
use sensorium::models::second::{Second, SecondFpn};
use sensorium::models::{ConvSpec, RowLinear};
use sensorium::numeric::Fp8Policy;
use sensorium::ops::OpContext;
use sensorium::ops::gather::{check_index, scatter_rows};
use sensorium::tensor::{DType, HostTensor, Shape};
use sensorium::weights::{
    LinearLayout, StateDict, fold_bn_conv, fold_bn_conv_transpose, fold_bn_linear, load_state_dict,
};

const CHECKPOINT: &str = "models/lidar_full/pointpillars_kitti_toy_epoch10.pth";
const SWEEP: &str = "lidar/kitti_mmdet3d/000008.bin";

/// PyTorch's default, which state dicts do not hold.
const EPSILON: f64 = 1e-5;

/// Cells of 0.16 m over x 0 to 70.4 m and y -40 to 40 m, as the checkpoint was trained.
const HEIGHT: usize = 500;
const WIDTH: usize = 440;
const POINTS: usize = 32;
const FEATURES: usize = 9;

/// Marks a cell without a pillar.
const EMPTY: u32 = u32::MAX;

/// Features `[pillars, points, 9]` and the cell of each pillar: x, y, z, reflectance, the distance to the mean of the
/// pillar's points and to the middle of its cell; rows past the points are zeros.
fn pillars(sweep: &[f32]) -> (Vec<f32>, Vec<i32>) {
    type Cell = (usize, usize);
    let mut places: HashMap<Cell, usize> = HashMap::new();
    let mut kept: Vec<(Cell, Vec<[f32; 4]>)> = Vec::new();
    for &[x, y, z, r] in sweep.as_chunks::<4>().0 {
        if !((0.0..70.4).contains(&x) && (-40.0..40.0).contains(&y) && (-3.0..1.0).contains(&z)) {
            continue;
        }
        let cell = (((y + 40.0) / 0.16) as usize, (x / 0.16) as usize);
        if cell.0 >= HEIGHT || cell.1 >= WIDTH {
            continue;
        }
        let place = *places.entry(cell).or_insert_with(|| {
            kept.push((cell, Vec::new()));
            kept.len() - 1
        });
        if kept[place].1.len() < POINTS {
            kept[place].1.push([x, y, z, r]);
        }
    }
    let mut features = vec![0.0; kept.len() * POINTS * FEATURES];
    for (rows, ((row, column), points)) in features.chunks_exact_mut(POINTS * FEATURES).zip(&kept) {
        let mean = |axis: usize| points.iter().map(|p| p[axis]).sum::<f32>() / points.len() as f32;
        let mean = [mean(0), mean(1), mean(2)];
        let middle = [0.16 * (*column as f32 + 0.5), 0.16 * (*row as f32 + 0.5) - 40.0];
        for (out, p) in rows.chunks_exact_mut(FEATURES).zip(points) {
            out[..4].copy_from_slice(p);
            for axis in 0..3 {
                out[4 + axis] = p[axis] - mean[axis];
            }
            out[7] = p[0] - middle[0];
            out[8] = p[1] - middle[1];
        }
    }
    let cells = kept
        .iter()
        .map(|((row, column), _)| (row * WIDTH + column) as i32);
    (features, cells.collect())
}

/// A convolution and the normalisation behind it, folded.
fn conv(dict: &StateDict, name: &str, norm: &str) -> ConvSpec {
    let weight = dict.get(&format!("{name}.weight")).unwrap();
    let norm = dict.bn(norm, EPSILON).unwrap();
    let bias = dict.floats(&format!("{name}.bias")).unwrap();
    let (folded, bias) = fold_bn_conv(&weight.to_f32().unwrap(), Some(&bias), &norm).unwrap();
    let dims: [usize; 4] = weight.shape()[..].try_into().unwrap();
    ConvSpec::conv(ArrayView4::from_shape(dims, &folded).unwrap(), &bias)
}

fn stretch(dict: &StateDict, name: &str, norm: &str, stride: usize) -> ConvSpec {
    let weight = dict.get(&format!("{name}.weight")).unwrap();
    let norm = dict.bn(norm, EPSILON).unwrap();
    let bias = dict.floats(&format!("{name}.bias")).unwrap();
    let values = weight.to_f32().unwrap();
    let (folded, bias) = fold_bn_conv_transpose(&values, weight.shape(), Some(&bias), &norm, 1).unwrap();
    let dims: [usize; 4] = weight.shape()[..].try_into().unwrap();
    ConvSpec::conv_transpose(ArrayView4::from_shape(dims, &folded).unwrap(), &bias, stride)
}

fn feature_net(dict: &StateDict) -> PillarFeatureNet {
    let weight = dict.floats("mlp.0.weight").unwrap();
    let norm = dict.bn("mlp.1", EPSILON).unwrap();
    let bias = dict.floats("mlp.0.bias").unwrap();
    let outputs = norm.channels();
    let folded = fold_bn_linear(
        &weight,
        [outputs, FEATURES],
        Some(&bias),
        &norm,
        LinearLayout::OutIn,
    );
    let (weight, bias) = folded.unwrap();
    let weight = ArrayView2::from_shape((outputs, FEATURES), &weight).unwrap();
    PillarFeatureNet::new(PfnPlan::one_layer(weight.t(), &bias).unwrap())
}

/// The three heads as one layer over the map's pixels: 6 + 14 + 4 outputs.
fn head(dict: &StateDict) -> RowLinear {
    let heads = ["class_head", "box_head", "dir_head"];
    let joined = |part: &str| -> Vec<f32> {
        let parts = heads
            .iter()
            .map(|head| dict.floats(&format!("{head}.{part}")).unwrap());
        parts.flatten().collect()
    };
    let (weight, bias) = (joined("weight"), joined("bias"));
    let weight = ArrayView2::from_shape((bias.len(), 256), &weight).unwrap();
    RowLinear::new("head", weight.t(), Some(&bias), false).unwrap()
}

/// The network's outputs `[HEIGHT / 2 * WIDTH / 2, 24]`.
fn run(dict: &StateDict, features: &[f32], cells: &[i32], storage: DType) -> Vec<f32> {
    let mut device = CpuDevice::open(&CpuConfig {
        threads: 2,
        arena_bytes: 1 << 30,
        ..CpuConfig::default()
    })
    .unwrap();
    let backbone = dict.sub("backbone").unwrap();
    let net = feature_net(&dict.sub("pillar_encoder").unwrap());
    let block = |name: &str| {
        let layer = |conv_at: u8, norm_at: u8| {
            conv(
                &backbone,
                &format!("{name}.{conv_at}"),
                &format!("{name}.{norm_at}"),
            )
        };
        vec![layer(0, 1).stride(2), layer(3, 4)]
    };
    let second = Second::new(vec![block("block_one"), block("block_two")]).unwrap();
    let neck = SecondFpn::new(vec![
        stretch(&backbone, "stretch_one.0", "stretch_one.1", 1),
        stretch(&backbone, "stretch_two.0", "stretch_two.1", 2),
    ])
    .unwrap();
    let head = head(&dict.sub("detection_head").unwrap());

    let mut index = vec![EMPTY; HEIGHT * WIDTH];
    for (row, &cell) in cells.iter().enumerate() {
        index[cell as usize] = row as u32;
    }
    check_index(&index, cells.len(), Some(EMPTY)).unwrap();
    let mut ops = OpContext::new(&mut device, Cq::COMPUTE);
    let dims = [cells.len(), POINTS, FEATURES];
    let points = HostTensor::from_f32(&dims, features, storage, &Fp8Policy::OCP).unwrap();
    let points = ops.upload(&points, BufferClass::Input).unwrap();
    let index = HostTensor::from_slice(&[HEIGHT * WIDTH], &index).unwrap();
    let index = ops.upload(&index, BufferClass::Input).unwrap();

    let rows = net.forward(&mut ops, &points).unwrap();
    let canvas = scatter_rows(&mut ops, &rows, &index, [HEIGHT, WIDTH]).unwrap();
    let blocks = second.forward(&mut ops, &canvas).unwrap();
    let mut maps = neck.forward(&mut ops, &blocks).unwrap().joined;
    assert_eq!(maps.view.shape[..], [1, 256, HEIGHT / 2, WIDTH / 2]);
    let pixels = maps.view.transpose(&[0, 2, 3, 1]).unwrap();
    let flat = Shape::new(&[HEIGHT / 2 * WIDTH / 2, 256]).unwrap();
    maps.view = pixels.reshape(flat).unwrap();
    let output = head.forward(&mut ops, &maps).unwrap();
    let host = ops.download(&output, Duration::from_secs(300)).unwrap();
    host.to_f32(&Fp8Policy::OCP)
}

#[test]
fn the_checkpoint_is_read_as_it_was_saved() {
    let Some(path) = support::data(CHECKPOINT) else {
        return;
    };
    let dict = load_state_dict(path).unwrap();
    assert_eq!(dict.tensors().len(), 55);
    let parameters: usize = dict
        .tensors()
        .iter()
        .filter(|(name, _)| name.ends_with("weight") || name.ends_with("bias"))
        .map(|(_, tensor)| tensor.values().len())
        .sum();
    println!("{parameters} parameters");
    assert_eq!(
        &dict.get("backbone.block_two.0.weight").unwrap().shape()[..],
        [128, 64, 3, 3]
    );
    let steps = dict.get("pillar_encoder.mlp.1.num_batches_tracked").unwrap();
    assert!(
        steps
            .as_i64()
            .is_some_and(|steps| steps.len() == 1 && steps[0] > 0)
    );
}

/// fp32 within 2e-5 of the largest value of each head, bf16 by correlation.
#[test]
fn the_network_of_a_checkpoint_computes_what_it_does_in_float64() {
    let (Some(path), Some(sweep)) = (support::data(CHECKPOINT), support::data(SWEEP)) else {
        return;
    };
    let Some(mut oracle) = support::oracle("pointpillars.py") else {
        return;
    };
    let (features, cells) = pillars(&support::floats(&std::fs::read(sweep).unwrap()));
    assert!(cells.len() > 2000, "{} pillars", cells.len());
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    std::fs::write(place("features"), bytemuck::cast_slice(&features)).unwrap();
    std::fs::write(place("index"), bytemuck::cast_slice(&cells)).unwrap();
    oracle.args([&path, &place("features"), &place("index")]);
    oracle
        .args([HEIGHT.to_string(), WIDTH.to_string()])
        .arg(place("out"));
    support::run(&mut oracle);
    let expected = support::floats(&std::fs::read(place("out")).unwrap());

    let dict = load_state_dict(&path).unwrap();
    for storage in [DType::F32, DType::Bf16] {
        let found = run(&dict, &features, &cells, storage);
        assert_eq!(found.len(), expected.len());
        for (name, channels) in [("class", 0..6), ("box", 6..20), ("direction", 20..24)] {
            let part = |values: &[f32]| -> Vec<f64> {
                let rows = values.chunks_exact(24);
                rows.flat_map(|row| row[channels.clone()].iter().map(|&v| f64::from(v)))
                    .collect()
            };
            let (found, expected) = (part(&found), part(&expected));
            let top = expected.iter().fold(0.0_f64, |top, v| top.max(v.abs()));
            let pairs = || found.iter().zip(&expected);
            let worst = pairs().fold(0.0_f64, |worst, (a, b)| worst.max((a - b).abs()));
            let correlation = correlation(&found, &expected);
            println!("{name}, {storage}: off by {worst:.2e} of {top:.3}, correlation {correlation:.7}");
            assert!(top > 0.1 && found.iter().all(|v| v.is_finite()));
            match storage {
                DType::F32 => assert!(worst <= 2e-5 * top, "{name}: off by {worst} of {top}"),
                _ => assert!(correlation >= 0.999, "{name}: {correlation}"),
            }
        }
    }
}

fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (ma, mb) = (mean(a), mean(b));
    let product = |x: &[f64], mx: f64, y: &[f64], my: f64| -> f64 {
        x.iter().zip(y).map(|(&x, &y)| (x - mx) * (y - my)).sum()
    };
    product(a, ma, b, mb) / (product(a, ma, a, ma) * product(b, mb, b, mb)).sqrt()
}
