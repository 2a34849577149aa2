//! Sparse encoders against the gather form in f64 on tables of the same rounding; every replay has the bits of an eager
//! run.

use crate::graphs;
use std::collections::{BTreeMap, BTreeSet};

use half::bf16;
use ndarray::{Array2, Array5};
use sensorium::device::{BufferClass, CpuConfig, CpuDevice, Cq, Device, SimConfig, SimDevice, WeightForm};
use sensorium::lidar::sparse::{
    NeighborMap, SparseLevel, SparseWindow, SubmRule, dense_gather_index, gather_index, im2col, im2col_index,
    strided_neighbor_map, subm_neighbor_map,
};
use sensorium::models::BlockError;
use sensorium::models::sparse_encoder::{
    SparseConvSpec, SparseEncoder, TableError, TableForm, dense_gather, im2col_weight, pack_table,
    pack_table_into,
};
use sensorium::ops::{DeviceTensor, OpContext};
use sensorium::tensor::{DType, HostTensor, TensorSpec};
use sensorium::trace::{TraceOptions, TraceRunner};

use graphs::Random;

fn unit(r: &mut Random) -> f32 {
    (r.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// One layer as the definition takes it.
#[derive(Clone)]
struct Layer {
    name: String,
    weight: Array5<f32>,
    bias: Vec<f32>,
    index: &'static str,
    residual: Option<String>,
    relu: bool,
    forms: [TableForm; 2],
}

impl Layer {
    fn random(
        r: &mut Random,
        name: &str,
        [cin, cout]: [usize; 2],
        kernel: [usize; 3],
        index: &'static str,
    ) -> Self {
        let [a, b, c] = kernel;
        // About a third of the taps see a voxel.
        let scale = 3.0 / ((cin * a * b * c) as f32).sqrt();
        Self {
            name: name.into(),
            weight: Array5::from_shape_simple_fn((cout, a, b, c, cin), || unit(r) * scale),
            bias: (0..cout).map(|_| unit(r) * 0.2).collect(),
            index,
            residual: None,
            relu: true,
            forms: [TableForm::Float32; 2],
        }
    }

    fn spec(&self) -> SparseConvSpec {
        let spec = SparseConvSpec::new(&self.name, self.weight.view(), &self.bias, self.index);
        let spec = spec.reads(self.forms[0]).writes(self.forms[1]);
        let spec = match &self.residual {
            Some(name) => spec.residual(name),
            None => spec,
        };
        if self.relu { spec } else { spec.linear() }
    }

    /// `[rows, Cout]` in f64 for the values that the input's table holds.
    fn run(
        &self,
        x: &Array2<f64>,
        map: &NeighborMap,
        weights: WeightForm,
        identity: Option<&Array2<f64>>,
    ) -> Array2<f64> {
        let (cout, cin) = (self.weight.dim().0, self.weight.dim().4);
        let weight = |value: f32| match weights {
            WeightForm::Float32 => f64::from(value),
            WeightForm::Bfloat16 => stored(TableForm::Bfloat16, value.into()),
            WeightForm::TwoTerms => stored(TableForm::TwoTerms, value.into()),
        };
        let weight: Vec<f64> = self.weight.iter().map(|&w| weight(w)).collect();
        let mut y = Array2::zeros((map.rows(), cout));
        for (row, entries) in map.index().chunks_exact(map.taps()).enumerate() {
            let mut sums: Vec<f64> = self.bias.iter().map(|&b| b.into()).collect();
            for (k, &entry) in entries
                .iter()
                .enumerate()
                .filter(|(_, entry)| **entry != u32::MAX)
            {
                let x = x.row(entry as usize);
                let x = x.as_slice().unwrap();
                for (o, sum) in sums.iter_mut().enumerate() {
                    let w = &weight[(o * map.taps() + k) * cin..][..cin];
                    *sum += x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>();
                }
            }
            for (o, sum) in sums.into_iter().enumerate() {
                let sum = sum + identity.map_or(0.0, |identity| identity[[row, o]]);
                y[[row, o]] = if self.relu { sum.max(0.0) } else { sum };
            }
        }
        y
    }
}

/// What a table keeps of a value.
fn stored(form: TableForm, value: f64) -> f64 {
    let value = value as f32;
    let high = bf16::from_f32(value).to_f32();
    match form {
        TableForm::Float32 => value.into(),
        TableForm::Bfloat16 => high.into(),
        TableForm::TwoTerms => f64::from(high) + f64::from(bf16::from_f32(value - high).to_f32()),
    }
}

/// Every layer's output.
fn run_chain(
    layers: &[Layer],
    x: &Array2<f64>,
    maps: &BTreeMap<&str, NeighborMap>,
    weights: WeightForm,
) -> Vec<Array2<f64>> {
    let mut outputs: Vec<Array2<f64>> = Vec::new();
    for layer in layers {
        let input = outputs
            .last()
            .unwrap_or(x)
            .mapv(|value| stored(layer.forms[0], value));
        let identity = layer.residual.as_ref().map(|name| {
            let source = layers.iter().position(|other| other.name == *name).unwrap();
            &outputs[source]
        });
        outputs.push(layer.run(&input, &maps[layer.index], weights, identity));
    }
    outputs
}

/// Voxels, maps and capacities of one frame.
struct Frame {
    levels: Vec<SparseLevel>,
    maps: BTreeMap<&'static str, NeighborMap>,
}

/// The strided layers: their names, and those of the level's own map.
type Downs = [(&'static str, &'static str, SparseWindow)];

fn frame(voxels: &[[i32; 3]], shape: [usize; 3], downs: &Downs) -> Frame {
    let mut levels = vec![SparseLevel::new(voxels, shape).unwrap()];
    let mut maps = BTreeMap::new();
    for &(subm, down, window) in downs {
        let level = levels.last().unwrap();
        maps.insert(
            subm,
            subm_neighbor_map(level, [3; 3], [1; 3], SubmRule::Spconv).unwrap(),
        );
        let (next, map) = strided_neighbor_map(level, &window).unwrap();
        maps.insert(down, map);
        levels.push(next);
    }
    Frame { levels, maps }
}

fn window(kernel: [usize; 3], stride: [usize; 3], padding: [usize; 3]) -> SparseWindow {
    SparseWindow::new(kernel, stride, padding, [1; 3]).unwrap()
}

/// A patch of ground and some things on it.
fn voxels(r: &mut Random, count: usize, low: [i32; 2], span: usize, height: usize) -> Vec<[i32; 3]> {
    let mut seen = BTreeSet::new();
    let mut voxels = Vec::new();
    while voxels.len() < count {
        let (x, y) = (r.below(span), r.below(span));
        let ground = (x + y) / 16 % 4;
        let z = if (x / 8 + y / 8) % 3 == 0 {
            ground + r.below(height - 4)
        } else {
            ground
        };
        let voxel = [low[0] + x as i32, low[1] + y as i32, z as i32];
        if seen.insert(voxel) {
            voxels.push(voxel);
        }
    }
    voxels
}

fn pcc(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (ma, mb) = (mean(a), mean(b));
    let dot = |x: &[f64], mx: f64, y: &[f64], my: f64| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - mx) * (y - my)).sum()
    };
    dot(a, ma, b, mb) / (dot(a, ma, a, ma) * dot(b, mb, b, mb)).sqrt()
}

fn numbers(tensor: &HostTensor) -> Vec<f64> {
    match tensor.dtype() {
        DType::F32 => tensor
            .as_slice::<f32>()
            .unwrap()
            .iter()
            .map(|&v| v.into())
            .collect(),
        _ => tensor
            .as_slice::<bf16>()
            .unwrap()
            .iter()
            .map(|v| v.to_f64())
            .collect(),
    }
}

fn cpu(threads: usize) -> CpuDevice {
    CpuDevice::open(&CpuConfig {
        threads,
        ..CpuConfig::default()
    })
    .unwrap()
}

fn simulator() -> SimDevice {
    SimDevice::open(&SimConfig {
        arena_bytes: 256 << 20,
        seed: 5,
        ..SimConfig::default()
    })
    .unwrap()
}

/// Index and sizes of the capacities: rows that a layer's index has.
fn capacity(rows: usize) -> usize {
    (rows + 37).next_multiple_of(32)
}

/// The inputs of a trace: the first table, the indices in order, and the dense index of the last level.
fn inputs(
    encoder: &SparseEncoder,
    frame: &Frame,
    features: &Array2<f32>,
    sizes: &BTreeMap<&str, [usize; 2]>,
) -> Vec<(String, HostTensor)> {
    let first = sizes[encoder.index_names()[0].as_str()][0];
    let table = pack_table(features.view(), first, encoder.input_form(), None).unwrap();
    let mut inputs = vec![("table".to_owned(), table)];
    for name in encoder.index_names() {
        let map = &frame.maps[name.as_str()];
        let [rows, sentinel] = sizes[name.as_str()];
        let mut index = vec![0; rows * map.taps()];
        gather_index(map, sentinel as u32, &mut index).unwrap();
        inputs.push((
            name.clone(),
            HostTensor::from_slice(&[rows, map.taps()], &index).unwrap(),
        ));
    }
    let last = frame.levels.last().unwrap();
    let [x, y, z] = last.spatial_shape();
    let mut dense = vec![0; x * y * z];
    dense_gather_index(last, u32::MAX, 2, &mut dense).unwrap();
    inputs.push((
        "dense".to_owned(),
        HostTensor::from_slice(&[z, x, y], &dense).unwrap(),
    ));
    inputs
}

/// Rows and sentinel of every index: the capacities of both frames.
fn sizes(frames: [&Frame; 2], downs: &Downs) -> BTreeMap<&'static str, [usize; 2]> {
    let rows = |level: usize| capacity(frames.iter().map(|f| f.levels[level].num_active()).max().unwrap());
    let mut sizes = BTreeMap::new();
    for (level, &(subm, down, _)) in downs.iter().enumerate() {
        sizes.insert(subm, [rows(level), rows(level)]);
        sizes.insert(down, [rows(level + 1), rows(level)]);
    }
    sizes
}

type Named = Vec<(String, HostTensor)>;

/// Captures the encoder on every device, replays two frames, and compares with eager runs, all bit for bit. Returns the
/// outputs of both frames: every layer, then `output`, `table` and `dense`.
fn everywhere(
    devices: Vec<(Box<dyn Device>, TraceOptions)>,
    encoder: impl Fn() -> SparseEncoder,
    given: [&[(String, HostTensor)]; 2],
) -> [Named; 2] {
    let mut first: Option<[Named; 2]> = None;
    for (mut device, options) in devices {
        let device = device.as_mut();
        let mut runner = TraceRunner::new("sparse", options).unwrap();
        let mut ids = Vec::new();
        for (name, tensor) in given[0] {
            ids.push(runner.add_input(device, name, *tensor.spec(), None).unwrap());
        }
        let encoder = encoder();
        let variant = runner.add_variant(
            device,
            "default",
            Box::new(move |context| {
                let table = context.input("table")?;
                let names = encoder.index_names().iter();
                let indices: Vec<DeviceTensor> =
                    names.map(|name| context.input(name)).collect::<Result<_, _>>()?;
                let cells = context.input("dense")?;
                let ops = context.ops();
                let mut taps = Vec::new();
                let made = encoder.forward(ops, &table, &indices, Some(&mut taps))?;
                let alone = encoder.forward(ops, &table, &indices, None)?;
                let dense = dense_gather(ops, &alone.table, &cells)?;
                if made.table != made.output {
                    ops.free(&made.table)?;
                }
                taps.push(("output".into(), alone.output));
                if alone.table != alone.output {
                    taps.push(("table".into(), alone.table));
                }
                taps.push(("dense".into(), dense));
                Ok(taps)
            }),
        );
        let variant = variant.unwrap();
        runner.capture(device).unwrap();
        let calls = given.map(|tensors| {
            let tensors = tensors.iter().map(|(_, tensor)| tensor);
            ids.iter().copied().zip(tensors).collect::<Vec<_>>()
        });
        let replayed = [0, 1].map(|frame| runner.call(device, variant, &calls[frame]).unwrap());
        for frame in [0, 1] {
            let again = runner.call(device, variant, &calls[frame]).unwrap();
            let eager = runner.run_eager(device, variant, &calls[frame]).unwrap();
            for (at, (name, output)) in replayed[frame].iter().enumerate() {
                assert_eq!(
                    output.bytes(),
                    again[at].1.bytes(),
                    "{name}: a second replay differs"
                );
                assert_eq!(output.bytes(), eager[at].1.bytes(), "{name}: eager differs");
                if let Some(first) = &first {
                    assert_eq!(
                        output.bytes(),
                        first[frame][at].1.bytes(),
                        "{name}: devices differ"
                    );
                }
            }
        }
        runner.release(device).unwrap();
        first = first.or(Some(replayed));
    }
    first.unwrap()
}

/// Checks the outputs of one frame against the definition: layer by layer, each on what the device made of the layers
/// before it, and the chain from the features on, in which roundings add up.
fn check(
    layers: &[Layer],
    frame: &Frame,
    features: &Array2<f32>,
    weights: WeightForm,
    found: &[(String, HostTensor)],
    least: f64,
) {
    let x = features.mapv(f64::from);
    let chain = run_chain(layers, &x, &frame.maps, weights);
    let outputs: Vec<Array2<f64>> = layers
        .iter()
        .zip(found.iter().zip(&chain))
        .map(|(layer, ((name, output), exact))| {
            assert_eq!(name, &layer.name);
            // Rows past the voxels are there, and nobody looks at them.
            let values = numbers(output)[..exact.len()].to_vec();
            assert!(values.iter().all(|v| v.is_finite()));
            Array2::from_shape_vec(exact.dim(), values).unwrap()
        })
        .collect();
    for (at, layer) in layers.iter().enumerate() {
        let input = if at == 0 { &x } else { &outputs[at - 1] };
        let input = input.mapv(|value| stored(layer.forms[0], value));
        let source = |name: &String| layers.iter().position(|other| other.name == *name).unwrap();
        let identity = layer.residual.as_ref().map(|name| &outputs[source(name)]);
        let exact = layer.run(&input, &frame.maps[layer.index], weights, identity);
        let top = exact.iter().fold(0.0_f64, |top, v| top.max(v.abs()));
        let worst = (outputs[at].iter().zip(&exact)).fold(0.0_f64, |worst, (a, b)| worst.max((a - b).abs()));
        let of = |exact: &Array2<f64>| pcc(outputs[at].as_slice().unwrap(), exact.as_slice().unwrap());
        let (alone, chained) = (of(&exact), of(&chain[at]));
        println!(
            "{}: correlation {alone:.9}, {chained:.9} chained, off by {worst:.1e} of {top:.2}",
            layer.name
        );
        assert!(
            alone >= 0.999_999_99 && chained >= least,
            "{}: {alone}, {chained}",
            layer.name
        );
        assert!(worst <= 2e-6 * top, "{}: off by {worst} of {top}", layer.name);
    }
    let by_name = |wanted: &str| {
        found
            .iter()
            .rev()
            .find(|(name, _)| name == wanted)
            .map(|(_, tensor)| tensor)
    };
    let (output, last) = (by_name("output").unwrap(), &found[layers.len() - 1].1);
    assert_eq!(output.bytes(), last.bytes(), "with and without taps");
    let form = layers.last().unwrap().forms[1];
    let table = by_name("table").unwrap_or(output);
    let (values, channels) = (numbers(output), output.shape()[1]);
    let (stored_values, width) = (numbers(table), table.shape()[1]);
    assert_eq!((table.dtype(), width), (form.dtype(), form.terms() * channels));
    for (row, channel) in (0..output.shape()[0]).flat_map(|row| (0..channels).map(move |c| (row, c))) {
        let terms = (0..form.terms()).map(|term| stored_values[row * width + term * channels + channel]);
        assert_eq!(terms.sum::<f64>(), stored(form, values[row * channels + channel]));
    }
    let level = frame.levels.last().unwrap();
    let [x_cells, y_cells, z_cells] = level.spatial_shape();
    let dense = numbers(by_name("dense").unwrap());
    let mut filled = 0;
    for (cell, row) in dense.chunks_exact(z_cells * width).enumerate() {
        for (z, columns) in row.chunks_exact(width).enumerate() {
            let voxel = [cell / y_cells, cell % y_cells, z].map(|v| v as i32);
            match level.lookup(voxel) {
                Some(at) => assert_eq!(columns, &stored_values[at as usize * width..][..width]),
                None => assert!(columns.iter().all(|&value| value == 0.0)),
            }
            filled += usize::from(level.lookup(voxel).is_some());
        }
    }
    assert_eq!(
        (filled, dense.len()),
        (level.num_active(), x_cells * y_cells * z_cells * width)
    );
}

fn features(r: &mut Random, rows: usize, columns: usize) -> Array2<f32> {
    Array2::from_shape_simple_fn((rows, columns), || unit(r) * 2.0)
}

/// Six layers in the manner of BEVFusion, with a residual on each level and one across a strided layer's index.
fn small_chain(forms: [TableForm; 2], r: &mut Random) -> Vec<Layer> {
    let mut layers = vec![
        Layer::random(r, "conv_input", [4, 16], [3; 3], "subm1"),
        Layer::random(r, "l1.conv1", [16, 16], [3; 3], "subm1"),
        Layer::random(r, "l1.conv2", [16, 16], [3; 3], "subm1"),
        Layer::random(r, "down1", [16, 24], [3; 3], "down1"),
        Layer::random(r, "l2.conv1", [24, 24], [3; 3], "subm2"),
        Layer::random(r, "l2.conv2", [24, 24], [3; 3], "subm2"),
        Layer::random(r, "conv_out", [24, 33], [1, 1, 3], "conv_out"),
    ];
    layers[2].residual = Some("conv_input".into());
    layers[5].residual = Some("down1".into());
    layers[6].relu = false;
    for layer in &mut layers {
        layer.forms = [forms[1]; 2];
    }
    layers[0].forms[0] = forms[0];
    layers
}

fn small_downs() -> [(&'static str, &'static str, SparseWindow); 2] {
    [
        ("subm1", "down1", window([3; 3], [2; 3], [1; 3])),
        ("subm2", "conv_out", window([1, 1, 3], [1, 1, 2], [0; 3])),
    ]
}

#[test]
fn small_chains_follow_their_definition_in_every_form() {
    use TableForm::{Bfloat16, Float32, TwoTerms};
    let downs = small_downs();
    let cases = [
        ([Float32, Float32], WeightForm::Float32, 0.999_999_99),
        ([TwoTerms, Bfloat16], WeightForm::Float32, 0.999_99),
        ([TwoTerms, TwoTerms], WeightForm::TwoTerms, 0.999_999_9),
        ([Bfloat16, Float32], WeightForm::TwoTerms, 0.999_999_99),
    ];
    for (case, (forms, weights, least)) in cases.into_iter().enumerate() {
        let mut r = Random(10 + case as u64);
        let layers = small_chain(forms, &mut r);
        let shape = [40, 40, 12];
        let frames = [220, 150].map(|count| frame(&voxels(&mut r, count, [0; 2], 40, 12), shape, &downs));
        let sizes = sizes([&frames[0], &frames[1]], &downs);
        let columns = [0, 1].map(|at| features(&mut r, frames[at].levels[0].num_active(), 4));
        let encoder = || SparseEncoder::new(layers.iter().map(Layer::spec).collect(), weights).unwrap();
        assert_eq!(encoder().index_names(), ["subm1", "down1", "subm2", "conv_out"]);
        assert_eq!(encoder().input_width(), forms[0].terms() * 4);
        let given = [0, 1].map(|at| inputs(&encoder(), &frames[at], &columns[at], &sizes));
        let mut cpus: Vec<(Box<dyn Device>, TraceOptions)> = vec![
            (Box::new(cpu(1)), TraceOptions::default()),
            (Box::new(cpu(2)), TraceOptions::two_queues()),
        ];
        let simulators: Vec<(Box<dyn Device>, TraceOptions)> = vec![
            (Box::new(simulator()), TraceOptions::default()),
            (Box::new(simulator()), TraceOptions::two_queues()),
        ];
        // Where weights are bf16 as well, each kind of device may multiply bf16 in a way of its own.
        let groups = if weights == WeightForm::Float32 {
            cpus.extend(simulators);
            vec![cpus]
        } else {
            vec![cpus, simulators]
        };
        for devices in groups {
            let found = everywhere(devices, encoder, [&given[0], &given[1]]);
            for at in [0, 1] {
                check(&layers, &frames[at], &columns[at], weights, &found[at], least);
            }
        }
    }
}

/// The 21 layers of BEVFusion's sparse encoder.
fn bevfusion(r: &mut Random, form: TableForm) -> Vec<Layer> {
    let mut layers = vec![Layer::random(r, "conv_input", [5, 16], [3; 3], "subm1")];
    let names = [
        ("subm1", "down1"),
        ("subm2", "down2"),
        ("subm3", "down3"),
        ("subm4", "conv_out"),
    ];
    let mut channels = 16;
    for (level, (subm, down)) in names.into_iter().enumerate() {
        for block in 1..=2 {
            let identity = layers.last().unwrap().name.clone();
            for conv in 1..=2 {
                let name = format!("l{}.b{block}.conv{conv}", level + 1);
                let mut layer = Layer::random(r, &name, [channels; 2], [3; 3], subm);
                layer.residual = (conv == 2).then(|| identity.clone());
                layers.push(layer);
            }
        }
        let (cout, kernel) = if level == 3 {
            (128, [1, 1, 3])
        } else {
            (channels * 2, [3; 3])
        };
        layers.push(Layer::random(r, down, [channels, cout], kernel, down));
        channels = cout;
    }
    assert_eq!((layers.len(), channels), (21, 128));
    for layer in &mut layers {
        layer.forms = [form; 2];
    }
    layers
}

fn bevfusion_downs() -> [(&'static str, &'static str, SparseWindow); 4] {
    [
        ("subm1", "down1", window([3; 3], [2; 3], [1; 3])),
        ("subm2", "down2", window([3; 3], [2; 3], [1; 3])),
        ("subm3", "down3", window([3; 3], [2; 3], [1, 1, 0])),
        ("subm4", "conv_out", window([1, 1, 3], [1, 1, 2], [0; 3])),
    ]
}

#[test]
fn the_21_layers_of_bevfusion_follow_their_definition() {
    let downs = bevfusion_downs();
    for (form, weights, least) in [
        (TableForm::Float32, WeightForm::Float32, 0.999_999_99),
        (TableForm::Bfloat16, WeightForm::TwoTerms, 0.999_95),
    ] {
        let mut r = Random(77);
        let mut layers = bevfusion(&mut r, form);
        if form == TableForm::Bfloat16 {
            layers[0].forms[0] = TableForm::TwoTerms;
        }
        let frames = [1300, 900].map(|count| {
            frame(
                &voxels(&mut r, count, [700, 650], 50, 24),
                [1440, 1440, 41],
                &downs,
            )
        });
        assert_eq!(frames[0].levels[4].spatial_shape(), [180, 180, 2]);
        let sizes = sizes([&frames[0], &frames[1]], &downs);
        let columns = [0, 1].map(|at| features(&mut r, frames[at].levels[0].num_active(), 5));
        let encoder = || SparseEncoder::new(layers.iter().map(Layer::spec).collect(), weights).unwrap();
        let given = [0, 1].map(|at| inputs(&encoder(), &frames[at], &columns[at], &sizes));
        let devices: Vec<(Box<dyn Device>, TraceOptions)> = vec![
            (Box::new(cpu(1)), TraceOptions::two_queues()),
            (Box::new(cpu(2)), TraceOptions::default()),
        ];
        let found = everywhere(devices, encoder, [&given[0], &given[1]]);
        for at in [0, 1] {
            check(&layers, &frames[at], &columns[at], weights, &found[at], least);
        }
    }
}

#[test]
fn tables_hold_one_or_two_terms_and_zeros_behind_them() {
    let mut r = Random(3);
    let x = features(&mut r, 5, 4);
    for form in [TableForm::Float32, TableForm::Bfloat16, TableForm::TwoTerms] {
        let mut table = pack_table(x.view(), 8, form, Some(10)).unwrap();
        let dirty = pack_table(features(&mut r, 8, 5).view(), 8, form, Some(10)).unwrap();
        assert_ne!(dirty.bytes(), table.bytes());
        let packed = table.clone();
        table.bytes_mut().copy_from_slice(dirty.bytes());
        pack_table_into(x.view(), form, &mut table).unwrap();
        assert_eq!(packed.bytes(), table.bytes(), "what was there before is gone");
        for (at, &value) in numbers(&table).iter().enumerate() {
            let (row, column) = (at / 10, at % 10);
            let expected = match (row < 5, column / 4) {
                (true, 0) if form == TableForm::Float32 => f64::from(x[[row, column]]),
                (true, 0) => bf16::from_f32(x[[row, column]]).to_f64(),
                (true, 1) if form == TableForm::TwoTerms => {
                    let x = x[[row, column - 4]];
                    bf16::from_f32(x - bf16::from_f32(x).to_f32()).to_f64()
                }
                _ => 0.0,
            };
            assert_eq!(value, expected, "{form:?} row {row} column {column}");
        }
    }
    let wrong = |rows: usize, capacity: usize, width: usize| {
        pack_table(
            features(&mut Random(1), rows, 4).view(),
            capacity,
            TableForm::TwoTerms,
            Some(width),
        )
        .unwrap_err()
    };
    assert_eq!(wrong(9, 8, 8), TableError::Rows { rows: 9, capacity: 8 });
    assert_eq!(
        wrong(8, 8, 7),
        TableError::Width {
            channels: 4,
            terms: 2,
            width: 7
        }
    );
    let mut other = HostTensor::zeros(TensorSpec::new(&[8, 8], DType::F32).unwrap());
    let error = pack_table_into(x.view(), TableForm::Bfloat16, &mut other).unwrap_err();
    assert!(
        error.to_string().contains("must be [rows, columns] of bfloat16"),
        "{error}"
    );
}

#[test]
fn the_im2col_product_is_the_layer() {
    let mut r = Random(8);
    let level = SparseLevel::new(&voxels(&mut r, 60, [0; 2], 8, 8), [8; 3]).unwrap();
    let map = subm_neighbor_map(&level, [3; 3], [1; 3], SubmRule::Spconv).unwrap();
    let layer = Layer {
        relu: false,
        ..Layer::random(&mut r, "layer", [6, 5], [3; 3], "subm")
    };
    let x = features(&mut r, level.num_active(), 6);
    let exact = layer.run(&x.mapv(f64::from), &map, WeightForm::Float32, None);
    let forms = [TableForm::TwoTerms, TableForm::TwoTerms];
    let weight = layer.weight.to_shape((5, 27, 6)).unwrap();
    let matrix = im2col_weight(weight.view(), [32, 32], forms).unwrap();
    let table: Vec<f32> = numbers(&pack_table(x.view(), 64, forms[0], Some(32)).unwrap())
        .iter()
        .map(|&v| v as f32)
        .collect();
    let mut index = vec![0; 64 * 27];
    im2col_index(&map, 64, 32, &mut index).unwrap();
    let gathered = im2col(&table, 32, &index, (27, 32), 64).unwrap();
    let gathered = Array2::from_shape_vec((64, 27 * 32), gathered).unwrap();
    let product = gathered.mapv(f64::from).dot(&matrix.mapv(f64::from));
    for (row, o) in (0..level.num_active()).flat_map(|row| (0..10).map(move |o| (row, o))) {
        let sum = product[[row, o]] + f64::from(layer.bias[o % 5]);
        assert!(
            (sum - exact[[row, o % 5]]).abs() < 1e-4,
            "{sum} {}",
            exact[[row, o % 5]]
        );
    }
    assert!(
        product.iter().skip(10).step_by(32).all(|&value| value == 0.0),
        "columns past the terms"
    );
    let error = im2col_weight(weight.view(), [11, 32], forms).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("2 terms of 6 input channels do not fit 11"),
        "{error}"
    );
}

#[test]
fn chains_that_do_not_fit_are_refused() {
    let chain = || small_chain([TableForm::Float32; 2], &mut Random(4));
    let refusal = |change: &dyn Fn(&mut Vec<Layer>)| {
        let mut layers = chain();
        change(&mut layers);
        let specs = layers.iter().map(Layer::spec).collect();
        SparseEncoder::new(specs, WeightForm::Float32)
            .unwrap_err()
            .to_string()
    };
    let says = |reason: String, part: &str| assert!(reason.contains(part), "{reason}");
    says(refusal(&|l| l.clear()), "there are no layers");
    says(
        refusal(&|l| l[1].name = "conv_input".into()),
        "another layer has that name",
    );
    says(refusal(&|l| drop(l.remove(3))), "24 input channels behind 16");
    says(
        refusal(&|l| l[2].forms[0] = TableForm::Bfloat16),
        "reads a Bfloat16 table behind a Float32 one",
    );
    says(
        refusal(&|l| l[6].index = "subm2"),
        "3 taps, but the index \"subm2\" is read with 27",
    );
    says(
        refusal(&|l| l[2].residual = Some("l2.conv1".into())),
        "is no layer before it",
    );
    says(
        refusal(&|l| l[5].residual = Some("conv_input".into())),
        "has 16 channels, expected an earlier one of 24",
    );
    says(
        refusal(&|l| l[0].bias.truncate(15)),
        "15 biases for 16 output channels",
    );

    let mut device = cpu(1);
    let before = device.memory().used_bytes;
    let mut ops = OpContext::new(&mut device, Cq::COMPUTE);
    let encoder = SparseEncoder::new(chain().iter().map(Layer::spec).collect(), WeightForm::Float32).unwrap();
    let mut alloc = |dims: &[usize], dtype: DType| {
        ops.alloc(&TensorSpec::new(dims, dtype).unwrap(), BufferClass::Input)
            .unwrap()
    };
    let table = alloc(&[64, 4], DType::F32);
    let narrow = alloc(&[64, 4], DType::Bf16);
    let index = |rows: usize, taps: usize| [rows, taps];
    let mut good: Vec<DeviceTensor> = [index(64, 27), index(40, 27), index(40, 27), index(20, 3)]
        .iter()
        .map(|dims| alloc(dims, DType::U32))
        .collect();
    let other = alloc(&[39, 27], DType::U32);
    let float = alloc(&[40, 27], DType::F32);
    let held = ops.device.memory().used_bytes;
    let error = encoder.forward(&mut ops, &table, &good[..3], None).unwrap_err();
    assert!(matches!(
        error,
        BlockError::Count {
            found: 3,
            expected: 4,
            ..
        }
    ));
    let error = encoder.forward(&mut ops, &good[0], &good, None).unwrap_err();
    assert!(matches!(error, BlockError::Shape { .. }), "{error}");
    let error = encoder.forward(&mut ops, &narrow, &good, None).unwrap_err();
    assert!(
        matches!(
            error,
            BlockError::DType {
                found: DType::Bf16,
                ..
            }
        ),
        "{error}"
    );
    let subm2 = std::mem::replace(&mut good[2], float);
    let error = encoder.forward(&mut ops, &table, &good, None).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("l2.conv1: the index holds float32, expected uint32"),
        "{error}"
    );
    good[2] = other;
    let error = encoder.forward(&mut ops, &table, &good, None).unwrap_err();
    assert!(
        error.to_string().contains("l2.conv2: the residual has shape"),
        "{error}"
    );
    good[2] = subm2;
    encoder.release(ops.device);
    assert_eq!(
        ops.device.memory().used_bytes,
        held,
        "refusals leave nothing behind"
    );

    // A whole run leaves its results and nothing else.
    let made = encoder.forward(&mut ops, &table, &good, None).unwrap();
    encoder.release(ops.device);
    made.free(&mut ops).unwrap();
    assert_eq!(ops.device.memory().used_bytes, held);
    assert!(held > before);
}
