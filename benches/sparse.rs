//! BEVFusion's sparse encoder on a frame of 98,334 voxels of 0.075 m: the eight gather maps of its rulebook, and replays
//! of its 21 layers. The frame is ten sweeps of nuScenes where `SENSORIUM_TEST_DATA` is set, else made up.
//! `benches/peers/sparse.py` runs NumPy and ONNX Runtime beside it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "benches")]

use std::collections::HashSet;
use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, criterion_group, criterion_main};
use ndarray::{Array2, Array5};
use sensorium::device::{CpuConfig, CpuDevice, HostSlot, WeightForm};
use sensorium::lidar::sparse::{
    NeighborMap, SparseLevel, SparseWindow, SubmRule, gather_index, pairs_count, strided_neighbor_map_into,
    subm_neighbor_map_into,
};
use sensorium::models::sparse_encoder::{SparseConvSpec, SparseEncoder, TableForm, pack_table};
use sensorium::ops::DeviceTensor;
use sensorium::tensor::HostTensor;
use sensorium::trace::{TraceOptions, TraceRunner};

const VOXELS: usize = 98_334;
const GRID: [usize; 3] = [1440, 1440, 41];
const INDICES: [&str; 8] = [
    "subm1", "down1", "subm2", "down2", "subm3", "down3", "subm4", "conv_out",
];

/// Points (x, y, z) in metres of `nuscenes_10sweep`: five float16 values each.
fn nuscenes(data: &Path) -> Vec<[f32; 3]> {
    let file = "lidar/nuscenes_10sweep/ff9eff4389a740848f9a56ad749a4ae8.bin";
    let bytes = std::fs::read(data.join(file)).unwrap();
    let points = bytes.as_chunks::<10>().0.iter();
    let value =
        |point: &[u8; 10], i: usize| half::f16::from_le_bytes([point[2 * i], point[2 * i + 1]]).to_f32();
    points.map(|point| [0, 1, 2].map(|i| value(point, i))).collect()
}

/// 64 lasers that turn ten times while the vehicle moves; walls at 20 to 60 m.
fn made_up() -> Vec<[f32; 3]> {
    let ring = |i: usize| {
        let (turn, laser) = ((i / 64) as f32 * std::f32::consts::TAU / 1562.5, (i % 64) as f32);
        let down = 0.03 - laser * 0.007;
        let wall = 40.0 + 20.0 * (turn * 9.03).sin();
        let range = if down < 0.0 { wall.min(-1.8 / down) } else { wall };
        let moved = (i / 100_000) as f32 * 0.7;
        [range * turn.cos() + moved, range * turn.sin(), range * down]
    };
    (0..1_000_000).map(ring).collect()
}

/// The first voxels in the order of the points.
fn frame() -> Vec<[i32; 3]> {
    let points =
        std::env::var_os("SENSORIUM_TEST_DATA").map_or_else(made_up, |data| nuscenes(Path::new(&data)));
    let mut seen = HashSet::new();
    let mut voxels = Vec::with_capacity(VOXELS);
    for [x, y, z] in points {
        let place = [(x + 54.0) / 0.075, (y + 54.0) / 0.075, (z + 5.0) / 0.2];
        let inside = (0..3).all(|axis| place[axis] >= 0.0 && place[axis] < GRID[axis].min(1440) as f32);
        let voxel = place.map(|v| v as i32);
        if inside && voxels.len() < VOXELS && seen.insert(voxel) {
            voxels.push(voxel);
        }
    }
    assert_eq!(voxels.len(), VOXELS);
    voxels
}

struct Rulebook {
    levels: Vec<SparseLevel>,
    windows: [SparseWindow; 4],
    /// In the order of [`INDICES`].
    maps: Vec<NeighborMap>,
}

impl Rulebook {
    fn new() -> Self {
        let window = |kernel, stride, padding| SparseWindow::new(kernel, stride, padding, [1; 3]).unwrap();
        Self {
            levels: vec![SparseLevel::empty(GRID).unwrap(); 5],
            windows: [
                window([3; 3], [2; 3], [1; 3]),
                window([3; 3], [2; 3], [1; 3]),
                window([3; 3], [2; 3], [1, 1, 0]),
                window([1, 1, 3], [1, 1, 2], [0; 3]),
            ],
            maps: vec![NeighborMap::default(); 8],
        }
    }

    fn fill(&mut self, voxels: &[[i32; 3]]) {
        self.levels[0].set(voxels).unwrap();
        for (at, (window, maps)) in self.windows.iter().zip(self.maps.chunks_exact_mut(2)).enumerate() {
            let (levels, next) = self.levels.split_at_mut(at + 1);
            let [subm, down] = maps else { unreachable!() };
            subm_neighbor_map_into(&levels[at], [3; 3], [1; 3], SubmRule::Spconv, subm).unwrap();
            strided_neighbor_map_into(&levels[at], window, &mut next[0], down).unwrap();
        }
    }
}

/// Repeatable small numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

fn layer(
    r: &mut Numbers,
    name: &str,
    [cin, cout]: [usize; 2],
    kernel: [usize; 3],
    index: &str,
) -> SparseConvSpec {
    let [a, b, c] = kernel;
    let scale = 3.0 / ((cin * a * b * c) as f32).sqrt();
    let weight = Array5::from_shape_simple_fn((cout, a, b, c, cin), || r.next() * scale);
    SparseConvSpec::new(name, weight.view(), &vec![0.01; cout], index)
}

/// The 21 layers, from tables of one form to tables of the same.
fn layers(form: TableForm) -> Vec<SparseConvSpec> {
    let mut r = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut layers = vec![layer(&mut r, "conv_input", [5, 16], [3; 3], "subm1")];
    let mut channels = 16;
    for (level, names) in INDICES.chunks_exact(2).enumerate() {
        for block in 0..2 {
            let identity = layers.last().map(|layer| layer.name().to_owned()).unwrap();
            for conv in 0..2 {
                let name = format!("l{level}.b{block}.conv{conv}");
                let made = layer(&mut r, &name, [channels; 2], [3; 3], names[0]);
                layers.push(if conv == 1 { made.residual(&identity) } else { made });
            }
        }
        let (cout, kernel) = if level == 3 {
            (128, [1, 1, 3])
        } else {
            (channels * 2, [3; 3])
        };
        layers.push(layer(&mut r, names[1], [channels, cout], kernel, names[1]));
        channels = cout;
    }
    layers
        .into_iter()
        .map(|layer| layer.reads(form).writes(form))
        .collect()
}

/// Floating point operations of one run, for the pairs that there are.
fn operations(layers: &[SparseConvSpec], pairs: &[usize]) -> f64 {
    let index_of = |layer: &SparseConvSpec| INDICES.iter().position(|&name| name == layer.index()).unwrap();
    let of = |layer: &SparseConvSpec| 2 * layer.inputs() * layer.outputs() * pairs[index_of(layer)];
    layers.iter().map(of).sum::<usize>() as f64
}

fn rulebooks(c: &mut Criterion) {
    let voxels = frame();
    let mut rulebook = Rulebook::new();
    rulebook.fill(&voxels);
    for (name, map) in INDICES.iter().zip(&rulebook.maps) {
        println!("{name}: {} rows, {} pairs", map.rows(), pairs_count(map));
    }
    let mut group = c.benchmark_group("sparse");
    group.sample_size(30);
    group.bench_function("rulebook", |b| b.iter(|| rulebook.fill(black_box(&voxels))));
    group.finish();
}

fn encoders(c: &mut Criterion) {
    let mut rulebook = Rulebook::new();
    rulebook.fill(&frame());
    let pairs: Vec<usize> = rulebook.maps.iter().map(pairs_count).collect();
    let mut group = c.benchmark_group("sparse");
    group.sample_size(10);
    for (precision, form, weights) in [
        ("fp32", TableForm::Float32, WeightForm::Float32),
        ("bf16", TableForm::Bfloat16, WeightForm::TwoTerms),
    ] {
        for threads in [1, 2] {
            let config = CpuConfig {
                threads,
                ..CpuConfig::default()
            };
            let mut device = CpuDevice::open(&config).unwrap();
            let mut runner = TraceRunner::new("sparse", TraceOptions::default()).unwrap();
            let layers = layers(form);
            println!(
                "{precision}: {:.1} GFLOP in {} layers",
                operations(&layers, &pairs) / 1e9,
                layers.len()
            );
            let encoder = SparseEncoder::new(layers, weights).unwrap();
            let mut r = Numbers(7);
            let features = Array2::from_shape_simple_fn((VOXELS, 5), || r.next());
            let mut given = vec![(
                "table".to_owned(),
                pack_table(features.view(), VOXELS, form, None).unwrap(),
            )];
            for (name, map) in INDICES.iter().zip(&rulebook.maps) {
                let mut index = vec![0; map.rows() * map.taps()];
                gather_index(map, map.inputs() as u32, &mut index).unwrap();
                let index = HostTensor::from_slice(&[map.rows(), map.taps()], &index).unwrap();
                given.push(((*name).to_owned(), index));
            }
            let mut inputs = Vec::new();
            for (name, tensor) in &given {
                let input = runner.add_input(&mut device, name, *tensor.spec(), None).unwrap();
                let mut slot = HostSlot::new(tensor.bytes().len());
                slot.bytes_mut().unwrap().copy_from_slice(tensor.bytes());
                inputs.push((input, slot));
            }
            let variant = runner
                .add_variant(
                    &mut device,
                    "default",
                    Box::new(move |context| {
                        let table = context.input("table")?;
                        let names = encoder.index_names().iter();
                        let indices: Vec<DeviceTensor> =
                            names.map(|name| context.input(name)).collect::<Result<_, _>>()?;
                        let made = encoder.forward(context.ops(), &table, &indices, None)?;
                        if made.table != made.output {
                            context.ops().free(&made.table)?;
                        }
                        Ok(vec![("y".to_owned(), made.output)])
                    }),
                )
                .unwrap();
            runner.capture(&mut device).unwrap();
            let bound: Vec<_> = inputs.iter().map(|(input, slot)| (*input, slot)).collect();
            runner.run(&mut device, variant, &bound).unwrap();
            group.bench_function(format!("encoder/{precision}/{threads}"), |b| {
                b.iter(|| {
                    let pending = runner.replay(&mut device, variant).unwrap();
                    runner.wait(&mut device, pending.done).unwrap();
                });
            });
            runner.release(&mut device).unwrap();
        }
    }
    group.finish();
}

criterion_group!(benches, rulebooks, encoders);
criterion_main!(benches);
