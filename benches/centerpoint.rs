//! A CenterPoint of a size for two cores: replays of the whole, and of its parts. `benches/peers/centerpoint.py` runs the
//! same graph in ONNX Runtime beside it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "benches")]

use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use ndarray::{Array2, Array4};
use sensorium::device::{CpuConfig, CpuDevice, HostSlot};
use sensorium::models::centerhead::{CenterHead, HeadSpec};
use sensorium::ops::gather::scatter_rows;
use sensorium::models::pillars::{PfnPlan, PillarFeatureNet};
use sensorium::models::second::{Second, SecondFpn};
use sensorium::models::{ConvSpec, as_feature_map};
use sensorium::ops::DeviceTensor;
use sensorium::tensor::{DType, TensorSpec};
use sensorium::trace::{TraceContext, TraceOptions, TraceRunner, WorkError};

const PILLARS: usize = 12_000;
const POINTS: usize = 32;
const FEATURES: usize = 9;
const SIDE: usize = 320;
const CHANNELS: [usize; 3] = [32, 48, 64];
const LAYERS: [usize; 3] = [2, 3, 3];
const HEADS: [(&str, usize); 6] = [
    ("heatmap", 5),
    ("reg", 2),
    ("height", 1),
    ("dim", 3),
    ("rot", 2),
    ("vel", 2),
];

/// Repeatable small numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn conv(&mut self, [cin, cout, kernel]: [usize; 3], stride: usize) -> ConvSpec {
        let scale = 1.7 / ((cin * kernel * kernel) as f32).sqrt();
        let weight = Array4::from_shape_simple_fn((cout, cin, kernel, kernel), || self.next() * scale);
        ConvSpec::conv(weight.view(), &vec![0.01; cout]).stride(stride)
    }

    fn upsample(&mut self, [cin, cout]: [usize; 2], stride: usize) -> ConvSpec {
        let scale = 1.7 / (cin as f32).sqrt();
        let weight = Array4::from_shape_simple_fn((cin, cout, stride, stride), || self.next() * scale);
        ConvSpec::conv_transpose(weight.view(), &vec![0.01; cout], stride)
    }

    fn dense(&mut self, inputs: usize, outputs: usize) -> Array2<f32> {
        let scale = 1.7 / (inputs as f32).sqrt();
        Array2::from_shape_simple_fn((inputs, outputs), || self.next() * scale)
    }
}

struct Network {
    pfn: PillarFeatureNet,
    backbone: Second,
    neck: SecondFpn,
    head: CenterHead,
}

impl Network {
    fn new() -> Arc<Self> {
        let mut r = Numbers(0x9e37_79b9_7f4a_7c15);
        let (w0, w1) = (r.dense(FEATURES, 16), r.dense(32, 32));
        let plan = PfnPlan::from_weights(w0.view(), &[0.01; 16], w1.view(), &[0.01; 32]).unwrap();
        let (mut blocks, mut ups, mut channels) = (Vec::new(), Vec::new(), 32);
        for (block, (&cout, &count)) in CHANNELS.iter().zip(&LAYERS).enumerate() {
            let layers = (0..count).map(|layer| {
                let cin = std::mem::replace(&mut channels, cout);
                r.conv([cin, cout, 3], if layer == 0 { 2 } else { 1 })
            });
            blocks.push(layers.collect());
            ups.push(r.upsample([cout, 32], 1 << block));
        }
        let heads = HEADS.map(|(name, outputs)| HeadSpec {
            name: name.to_owned(),
            hidden: r.conv([32, 32, 1], 1),
            output: r.conv([32, outputs, 1], 1).linear(),
        });
        let shared = r.conv([96, 32, 3], 1);
        Arc::new(Self {
            pfn: PillarFeatureNet::new(plan),
            backbone: Second::new(blocks).unwrap(),
            neck: SecondFpn::new(ups).unwrap(),
            head: CenterHead::new(shared, &[32; 3], &heads, false).unwrap(),
        })
    }
}

type Work = fn(&Network, &mut TraceContext<'_>) -> Result<DeviceTensor, WorkError>;

/// A part of the network: the inputs it takes and what it does.
struct Part {
    name: &'static str,
    inputs: &'static [(&'static str, &'static [usize])],
    work: Work,
}

/// `[1, H, W, C]` as the blocks see it.
fn map(context: &TraceContext<'_>, name: &str) -> Result<DeviceTensor, WorkError> {
    let tensor = context.input(name)?;
    let dims = [0, 1, 2, 3].map(|axis| tensor.view.shape[axis]);
    Ok(as_feature_map(&tensor, dims)?)
}

/// A map as it is stored, so that it can be an output.
fn stored(map: &DeviceTensor) -> Result<DeviceTensor, WorkError> {
    let view = map.view.transpose(&[0, 2, 3, 1])?;
    Ok(DeviceTensor { view, ..*map })
}

const POINTS_IN: (&str, &[usize]) = ("features", &[PILLARS, POINTS, FEATURES]);
const INDEX_IN: (&str, &[usize]) = ("canvas_index", &[SIDE * SIDE]);

const PARTS: [Part; 6] = [
    Part {
        name: "whole",
        inputs: &[POINTS_IN, INDEX_IN],
        work: |network, context| {
            let (points, index) = (context.input("features")?, context.input("canvas_index")?);
            let ops = context.ops();
            let rows = network.pfn.forward(ops, &points)?;
            let canvas = scatter_rows(ops, &rows, &index, [SIDE, SIDE])?;
            ops.free(&rows)?;
            let blocks = network.backbone.forward(ops, &canvas)?;
            ops.free(&canvas)?;
            let maps = network.neck.forward(ops, &blocks)?;
            for block in &blocks {
                ops.free(block)?;
            }
            let out = network.head.forward(ops, &[maps.joined])?;
            ops.free(&maps.joined)?;
            Ok(out)
        },
    },
    Part {
        name: "feature net",
        inputs: &[POINTS_IN],
        work: |network, context| {
            let points = context.input("features")?;
            Ok(network.pfn.forward(context.ops(), &points)?)
        },
    },
    Part {
        name: "scatter",
        inputs: &[("rows", &[PILLARS, 32]), INDEX_IN],
        work: |_, context| {
            let (rows, index) = (context.input("rows")?, context.input("canvas_index")?);
            stored(&scatter_rows(context.ops(), &rows, &index, [SIDE, SIDE])?)
        },
    },
    Part {
        name: "backbone",
        inputs: &[("canvas", &[1, SIDE, SIDE, 32])],
        work: |network, context| {
            let canvas = map(context, "canvas")?;
            stored(&network.backbone.forward(context.ops(), &canvas)?[2])
        },
    },
    Part {
        name: "neck",
        inputs: &[
            ("a", &[1, SIDE / 2, SIDE / 2, CHANNELS[0]]),
            ("b", &[1, SIDE / 4, SIDE / 4, CHANNELS[1]]),
            ("c", &[1, SIDE / 8, SIDE / 8, CHANNELS[2]]),
        ],
        work: |network, context| {
            let maps = [map(context, "a")?, map(context, "b")?, map(context, "c")?];
            stored(&network.neck.forward(context.ops(), &maps)?.joined)
        },
    },
    Part {
        name: "head",
        inputs: &[("maps", &[1, SIDE / 2, SIDE / 2, 96])],
        work: |network, context| {
            let maps = map(context, "maps")?;
            Ok(network.head.forward(context.ops(), &[maps])?)
        },
    },
];

/// An input's contents: small numbers, or pillars spread over the canvas.
fn contents(name: &str, spec: &TensorSpec) -> Vec<u8> {
    let count = spec.shape.elements();
    let mut r = Numbers(7);
    if name == "canvas_index" {
        let mut index = vec![PILLARS as u32; count];
        // A step that meets every cell once before it comes round.
        (0..PILLARS).for_each(|pillar| index[pillar * 7919 % count] = pillar as u32);
        return bytemuck::cast_slice(&index).to_vec();
    }
    let values: Vec<f32> = (0..count).map(|_| r.next()).collect();
    match spec.dtype {
        DType::F32 => bytemuck::cast_slice(&values).to_vec(),
        _ => {
            let rounded: Vec<half::bf16> = values.iter().map(|&v| half::bf16::from_f32(v)).collect();
            bytemuck::cast_slice(&rounded).to_vec()
        }
    }
}

fn networks(c: &mut Criterion) {
    let mut group = c.benchmark_group("centerpoint");
    group.sample_size(30);
    for (precision, dtype) in [("fp32", DType::F32), ("bf16", DType::Bf16)] {
        for threads in [1, 2] {
            for part in &PARTS {
                let config = CpuConfig {
                    threads,
                    ..CpuConfig::default()
                };
                let mut device = CpuDevice::open(&config).unwrap();
                let mut runner = TraceRunner::new("centerpoint", TraceOptions::default()).unwrap();
                let mut inputs = Vec::new();
                for &(name, dims) in part.inputs {
                    let dtype = if name == "canvas_index" { DType::U32 } else { dtype };
                    let spec = TensorSpec::new(dims, dtype).unwrap();
                    let input = runner.add_input(&mut device, name, spec, None).unwrap();
                    let mut slot = HostSlot::new(spec.bytes());
                    slot.bytes_mut().unwrap().copy_from_slice(&contents(name, &spec));
                    inputs.push((input, slot));
                }
                let (network, work) = (Network::new(), part.work);
                let variant = runner
                    .add_variant(
                        &mut device,
                        "default",
                        Box::new(move |context| Ok(vec![("y".to_owned(), work(&network, context)?)])),
                    )
                    .unwrap();
                runner.capture(&mut device).unwrap();
                let bound: Vec<_> = inputs.iter().map(|(input, slot)| (*input, slot)).collect();
                runner.run(&mut device, variant, &bound).unwrap();
                group.bench_function(format!("{}/{precision}/{threads}", part.name), |b| {
                    b.iter(|| {
                        let pending = runner.replay(&mut device, variant).unwrap();
                        runner.wait(&mut device, pending.done).unwrap();
                    });
                });
                if part.name == "whole" {
                    group.bench_function(format!("with upload/{precision}/{threads}"), |b| {
                        b.iter(|| {
                            let pending = runner.run(&mut device, variant, &bound).unwrap();
                            runner.wait(&mut device, pending.done).unwrap();
                        });
                    });
                }
                runner.release(&mut device).unwrap();
            }
        }
    }
    group.finish();
}

criterion_group!(benches, networks);
criterion_main!(benches);
