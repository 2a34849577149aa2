//! The query head against the literal one: position embeddings of the queries' own positions, attention with heads that
//! are not padded, each output by its own layers, all in f64; every replay has the bits of an eager run.

use crate::traced;
use std::collections::BTreeMap;
use std::sync::Arc;

use ndarray::{Array1, Array2, Axis, array, s};
use sensorium::device::{BufferClass, Cq};
use sensorium::models::BlockError;
use sensorium::models::transfusion_head::{
    FfnWeights, Linear, MhaWeights, NormWeights, PosEmbedMlp, PredictionHead, QueryHeadWeights, RawOutputs,
    TransFusionQueryHead, assemble_transfusion,
};
use sensorium::ops::{DeviceTensor, OpContext};
use sensorium::tensor::{DType, HostTensor};

use traced::{Random, Work, correlation, cpu, distance, numbers, replayed, stored};

fn linear(r: &mut Random, inputs: usize, outputs: usize) -> Linear {
    let scale = 1.7 / (inputs as f32).sqrt();
    Linear::new(
        Array2::from_shape_simple_fn((inputs, outputs), || r.unit() * scale),
        Array1::from_shape_simple_fn(outputs, || r.unit() * 0.2),
    )
}

/// How cells are numbered: x first, `k + 0.5`, as TransFusion does, or (row, column), as BEVFusion does.
#[derive(Clone, Copy)]
enum Grid {
    XFirst,
    RowFirst,
}

struct Size {
    height: usize,
    width: usize,
    classes: usize,
    queries: usize,
    channels: usize,
    heads: usize,
}

fn weights(r: &mut Random, size: &Size, grid: Grid) -> QueryHeadWeights {
    let e = size.channels;
    let mha = |r: &mut Random| MhaWeights {
        input: linear(r, e, 3 * e),
        output: linear(r, e, e),
        heads: size.heads,
    };
    // Positions reach 200: the first layer of a trained embedding is small.
    let embed = |r: &mut Random| {
        let mut hidden = linear(r, 2, e);
        hidden.weight *= 0.02;
        PosEmbedMlp {
            hidden,
            output: linear(r, e, e),
        }
    };
    let norm = |r: &mut Random| NormWeights {
        gamma: Array1::from_shape_simple_fn(e, || 1.0 + 0.3 * r.unit()),
        beta: Array1::from_shape_simple_fn(e, || 0.3 * r.unit()),
        epsilon: 1e-5,
    };
    let outputs = [
        ("center", 2),
        ("height", 1),
        ("dim", 3),
        ("rot", 2),
        ("vel", 2),
        ("heatmap", size.classes),
    ];
    QueryHeadWeights {
        height: size.height,
        width: size.width,
        num_classes: size.classes,
        num_proposals: size.queries,
        class_table: Array2::from_shape_simple_fn((size.classes, e), || r.unit() * 0.5),
        bev_pos: Array2::from_shape_fn((size.height * size.width, 2), |(cell, axis)| {
            let (row, column) = (cell / size.width, cell % size.width);
            let which = match (grid, axis) {
                (Grid::XFirst, 0) | (Grid::RowFirst, 1) => column,
                _ => row,
            };
            which as f32 + 0.5
        }),
        self_posembed: embed(r),
        cross_posembed: embed(r),
        self_attn: mha(r),
        cross_attn: mha(r),
        norms: [norm(r), norm(r), norm(r)],
        ffn: FfnWeights {
            hidden: linear(r, e, 2 * e),
            output: linear(r, 2 * e, e),
        },
        heads: outputs
            .into_iter()
            .map(|(name, channels)| PredictionHead {
                name: name.into(),
                hidden: linear(r, e, 64),
                output: linear(r, 64, channels),
            })
            .collect(),
    }
}

/// What a frame brings.
struct Frame {
    features: HostTensor,
    heat: HostTensor,
    indices: Vec<u32>,
    positions: Vec<u32>,
    classes: Vec<u32>,
}

impl Frame {
    /// Random maps and proposals, with `extra` entries behind the queries'.
    fn new(r: &mut Random, weights: &QueryHeadWeights, dtype: DType, extra: usize) -> Self {
        let (cells, e, classes) = (weights.cells(), weights.channels(), weights.num_classes);
        let indices: Vec<u32> = (0..weights.num_proposals + extra)
            .map(|_| (r.bits() % (cells * classes) as u64) as u32)
            .collect();
        let heat: Vec<f32> = r.numbers(cells * classes, 0.5).iter().map(|x| x + 0.5).collect();
        Self {
            features: stored(dtype, &[cells, e], &r.numbers(cells * e, 1.5)),
            heat: stored(dtype, &[cells, classes], &heat),
            positions: indices.iter().map(|&i| i % cells as u32).collect(),
            classes: indices.iter().map(|&i| i / cells as u32).collect(),
            indices,
        }
    }

    fn inputs(&self) -> Vec<(&'static str, HostTensor)> {
        let index = |values: &[u32]| HostTensor::from_slice(&[1, values.len()], values).unwrap();
        vec![
            ("features", self.features.clone()),
            ("heat", self.heat.clone()),
            ("indices", index(&self.indices)),
        ]
    }
}

/// The literal head in f64.
struct Literal<'a>(&'a QueryHeadWeights);

impl Literal<'_> {
    fn dense(layer: &Linear, x: &Array2<f64>) -> Array2<f64> {
        x.dot(&layer.weight.mapv(f64::from)) + layer.bias.mapv(f64::from)
    }

    fn two(hidden: &Linear, output: &Linear, x: &Array2<f64>) -> Array2<f64> {
        Self::dense(output, &Self::dense(hidden, x).mapv(|x| x.max(0.0)))
    }

    fn norm(norm: &NormWeights, x: &Array2<f64>) -> Array2<f64> {
        let mut y = x.clone();
        for mut row in y.rows_mut() {
            let mean = row.mean().unwrap();
            let variance = row.mapv(|x| (x - mean).powi(2)).mean().unwrap();
            row.mapv_inplace(|x| (x - mean) / (variance + f64::from(norm.epsilon)).sqrt());
        }
        y * norm.gamma.mapv(f64::from) + norm.beta.mapv(f64::from)
    }

    fn attention(mha: &MhaWeights, q: &Array2<f64>, kv: &Array2<f64>) -> Array2<f64> {
        let e = q.ncols();
        let size = e / mha.heads;
        let part = |x: &Array2<f64>, which: usize| {
            let columns = s![.., which * e..(which + 1) * e];
            let bias = mha
                .input
                .bias
                .slice(s![which * e..(which + 1) * e])
                .mapv(f64::from);
            x.dot(&mha.input.weight.slice(columns).mapv(f64::from)) + bias
        };
        let (q, k, v) = (part(q, 0), part(kv, 1), part(kv, 2));
        let mut joined = Array2::zeros(q.dim());
        for head in 0..mha.heads {
            let of = s![.., head * size..(head + 1) * size];
            let mut scores = q.slice(of).dot(&k.slice(of).t()) / (size as f64).sqrt();
            for mut row in scores.rows_mut() {
                let largest = row.iter().copied().fold(f64::MIN, f64::max);
                row.mapv_inplace(|x| (x - largest).exp());
                let total = row.sum();
                row /= total;
            }
            joined.slice_mut(of).assign(&scores.dot(&v.slice(of)));
        }
        Self::dense(&mha.output, &joined)
    }

    /// Queries, what the three parts of the decoder give, and the outputs by name.
    fn run(&self, frame: &Frame) -> ([Array2<f64>; 4], BTreeMap<String, Array2<f64>>) {
        let weights = self.0;
        let (k, e) = (weights.num_proposals, weights.channels());
        let features = Array2::from_shape_vec((weights.cells(), e), numbers(&frame.features)).unwrap();
        let places: Vec<usize> = frame.positions[..k].iter().map(|&p| p as usize).collect();
        let kinds: Vec<usize> = frame.classes[..k].iter().map(|&c| c as usize).collect();
        let class_table = weights.class_table.mapv(f64::from);
        let queries = features.select(Axis(0), &places) + class_table.select(Axis(0), &kinds);
        let positions = weights.bev_pos.mapv(f64::from);
        let embed = |mlp: &PosEmbedMlp, x: &Array2<f64>| Self::two(&mlp.hidden, &mlp.output, x);
        let position = embed(&weights.self_posembed, &positions.select(Axis(0), &places));
        let keys = &features + &embed(&weights.cross_posembed, &positions);
        let x = &queries + &position;
        let first = Self::norm(
            &weights.norms[0],
            &(&queries + &Self::attention(&weights.self_attn, &x, &x)),
        );
        let x = &first + &position;
        let second = Self::norm(
            &weights.norms[1],
            &(&first + &Self::attention(&weights.cross_attn, &x, &keys)),
        );
        let ffn = Self::two(&weights.ffn.hidden, &weights.ffn.output, &second);
        let third = Self::norm(&weights.norms[2], &(&second + &ffn));
        let outputs = weights
            .heads
            .iter()
            .map(|head| {
                (
                    head.name.clone(),
                    Self::two(&head.hidden, &head.output, &third).t().to_owned(),
                )
            })
            .collect();
        ([queries, first, second, third], outputs)
    }
}

fn check(what: &str, found: &[f64], exact: &Array2<f64>, least: f64, within: f64) {
    let exact: Vec<f64> = exact.iter().copied().collect();
    let (of, off) = (correlation(found, &exact), distance(found, &exact));
    println!("{what}: correlation {of:.7}, off by {off:.1e}");
    assert!(
        of >= least && off <= within,
        "{what}: correlation {of}, off by {off}"
    );
}

/// Runs a head on devices part by part (and, where simulated, whole) and compares everything.
fn compare(what: &str, size: &Size, grid: Grid, dtype: DType, least: f64, simulated: bool) {
    let mut r = Random(95);
    let weights = weights(&mut r, size, grid);
    let frame = Frame::new(&mut r, &weights, dtype, 12);
    let head = Arc::new(TransFusionQueryHead::new(weights.clone()).unwrap());
    let found = replayed(&frame.inputs(), simulated, || -> Arc<Work> {
        // Each device gets its own: what a head has prepared belongs to one device.
        let head = TransFusionQueryHead::new(head.weights().clone()).unwrap();
        Arc::new(move |context| {
            let (features, heat) = (context.input("features")?, context.input("heat")?);
            let indices = context.input("indices")?;
            let ops = context.ops();
            let selection = head.select(ops, &heat, Some(&indices))?;
            let queries = head.init_queries(ops, &features, &selection)?;
            let keys = head.keys(ops, &features)?;
            let mut moved = queries;
            moved.content = head.self_attention(ops, &queries)?;
            let second = head.cross_attention(ops, &moved, &keys)?;
            let third = head.feed_forward(ops, &second)?;
            let heads = head.predict(ops, &third)?;
            let query_heat = head.query_heat(ops, &heat, &selection)?;
            for tensor in [queries.position, keys, selection.cells, selection.classes] {
                ops.free(&tensor)?;
            }
            let mut named = vec![
                ("queries", queries.content),
                ("first", moved.content),
                ("second", second),
                ("third", third),
                ("heads", heads),
                ("heat", query_heat),
            ];
            if simulated {
                let whole = head.forward(ops, &features, &heat, Some(&indices))?;
                named.extend([("whole heads", whole.heads), ("whole heat", whole.query_heat)]);
            }
            let named = named.into_iter();
            Ok(named.map(|(name, tensor)| (name.to_owned(), tensor)).collect())
        })
    });
    if simulated {
        assert_eq!(
            found[4].bytes(),
            found[6].bytes(),
            "the whole head differs from its parts"
        );
        assert_eq!(found[5].bytes(), found[7].bytes());
    }
    let (parts, outputs) = Literal(&weights).run(&frame);
    let exact_in_f32 = dtype == DType::F32;
    for (i, name) in ["queries", "first", "second", "third"].into_iter().enumerate() {
        let least = match name {
            _ if exact_in_f32 => 0.999_999,
            "queries" => 0.999_998,
            _ => least.max(0.9996),
        };
        let within = if exact_in_f32 { 1e-4 } else { f64::INFINITY };
        check(
            &format!("{what}, {name}"),
            &numbers(&found[i]),
            &parts[i],
            least,
            within,
        );
    }
    let heads = head.unpack_heads(&found[4]).unwrap();
    assert_eq!(heads.len(), outputs.len());
    for (name, exact) in &outputs {
        let values: Vec<f64> = heads[name].iter().map(|&x| x.into()).collect();
        let within = if exact_in_f32 { 2e-4 } else { f64::INFINITY };
        check(&format!("{what}, head {name}"), &values, exact, least, within);
    }
    let heat = numbers(&frame.heat);
    let rows: Vec<f64> = frame.positions[..size.queries]
        .iter()
        .flat_map(|&p| heat[p as usize * size.classes..][..size.classes].to_vec())
        .collect();
    assert_eq!(numbers(&found[5]), rows, "query heat");
}

const SMALL: Size = Size {
    height: 24,
    width: 20,
    classes: 5,
    queries: 50,
    channels: 64,
    heads: 4,
};

#[test]
fn a_small_head_equals_the_literal_one_on_every_device() {
    for grid in [Grid::XFirst, Grid::RowFirst] {
        compare("small", &SMALL, grid, DType::F32, 0.999_999, true);
        compare("small, bf16", &SMALL, grid, DType::Bf16, 0.997, true);
    }
}

#[test]
fn the_head_of_transfusion_equals_the_literal_one() {
    let size = Size {
        height: 192,
        width: 192,
        classes: 5,
        queries: 500,
        channels: 128,
        heads: 8,
    };
    compare(
        "TransFusion, bf16",
        &size,
        Grid::XFirst,
        DType::Bf16,
        0.997,
        false,
    );
}

#[test]
fn the_head_of_bevfusion_equals_the_literal_one() {
    let size = Size {
        height: 180,
        width: 180,
        classes: 5,
        queries: 500,
        channels: 128,
        heads: 8,
    };
    compare(
        "BEVFusion, bf16",
        &size,
        Grid::RowFirst,
        DType::Bf16,
        0.9922,
        false,
    );
}

#[test]
fn memory_comes_back_from_a_run_a_refusal_and_a_release() {
    let mut r = Random(96);
    let weights = weights(&mut r, &SMALL, Grid::XFirst);
    let frame = Frame::new(&mut r, &weights, DType::F32, 0);
    let head = TransFusionQueryHead::new(weights).unwrap();
    let mut device = cpu(1);
    let mut ops = OpContext::new(&mut device, Cq(0));
    let given: Vec<DeviceTensor> = frame
        .inputs()
        .iter()
        .map(|(_, tensor)| ops.upload(tensor, BufferClass::Weight).unwrap())
        .collect();
    let before = ops.device.memory().used_bytes;
    head.prepare(&mut ops, DType::F32).unwrap();
    let outputs = head
        .forward(&mut ops, &given[0], &given[1], Some(&given[2]))
        .unwrap();
    ops.free(&outputs.heads).unwrap();
    ops.free(&outputs.query_heat).unwrap();
    let prepared = ops.device.memory().used_bytes;
    assert!(prepared > before);
    let short = DeviceTensor {
        view: given[2].view.slice(1, 0, 49, 1).unwrap(),
        ..given[2]
    };
    let error = head
        .forward(&mut ops, &given[0], &given[1], Some(&short))
        .unwrap_err();
    assert!(error.to_string().contains("at least 50 entries"), "{error}");
    for indices in [None, Some(&given[2])] {
        let error = head.forward(&mut ops, &given[1], &given[1], indices).unwrap_err();
        assert!(error.to_string().contains("the features"), "{error}");
        // With indices, the head runs until the heat map is refused.
        let error = head.forward(&mut ops, &given[0], &given[0], indices).unwrap_err();
        assert!(error.to_string().contains("the heat map"), "{error}");
    }
    let error = head.prepare(&mut ops, DType::U8).unwrap_err();
    assert!(matches!(error, BlockError::DType { .. }), "{error}");
    assert_eq!(ops.device.memory().used_bytes, prepared);
    head.release(ops.device);
    assert_eq!(ops.device.memory().used_bytes, before);
}

#[test]
fn proposals_selected_on_the_device_are_the_best_of_the_heat() {
    let mut r = Random(99);
    let weights = weights(&mut r, &SMALL, Grid::XFirst);
    let frame = Frame::new(&mut r, &weights, DType::F32, 0);
    let (cells, classes) = (weights.cells(), weights.num_classes);
    let heat = numbers(&frame.heat);
    let mut best: Vec<usize> = (0..cells * classes).collect();
    let score = |index: usize| heat[index % cells * classes + index / cells];
    best.sort_by(|&a, &b| score(b).total_cmp(&score(a)).then(a.cmp(&b)));
    let best: Vec<u32> = best[..64].iter().map(|&index| index as u32).collect();
    let run = |inputs: &[(&'static str, HostTensor)], given: bool| {
        replayed(inputs, true, || -> Arc<Work> {
            let head = TransFusionQueryHead::new(weights.clone()).unwrap();
            Arc::new(move |context| {
                let (features, heat) = (context.input("features")?, context.input("heat")?);
                let indices = if given {
                    Some(context.input("indices")?)
                } else {
                    None
                };
                let outputs = head.forward(context.ops(), &features, &heat, indices.as_ref())?;
                let mut named = vec![
                    ("heads".into(), outputs.heads),
                    ("heat".into(), outputs.query_heat),
                ];
                if !given {
                    named.push(("indices".into(), outputs.indices));
                }
                Ok(named)
            })
        })
    };
    let mut inputs = frame.inputs();
    let selected = run(&inputs[..2], false);
    assert_eq!(selected[2].as_slice::<u32>().unwrap(), best);
    inputs[2].1 = HostTensor::from_slice(&[1, 64], &best).unwrap();
    let given = run(&inputs, true);
    for (a, b) in given.iter().zip(&selected) {
        assert_eq!(a.bytes(), b.bytes());
    }
}

#[test]
fn weights_that_do_not_fit_are_refused_by_name() {
    let good = weights(&mut Random(97), &SMALL, Grid::XFirst);
    good.validate().unwrap();
    type Spoil = fn(&mut QueryHeadWeights);
    let cases: [(&str, Spoil); 14] = [
        ("a map of 0 x 20 cells", |w| w.height = 0),
        ("bev_pos is", |w| w.height = 23),
        ("proposals of", |w| w.num_proposals = 0),
        ("proposals of", |w| w.num_proposals = 2401),
        ("the class table is", |w| w.num_classes = 6),
        ("self_posembed.output", |w| {
            w.self_posembed.output.bias = Array1::zeros(3)
        }),
        ("cross_posembed.hidden", |w| {
            w.cross_posembed.hidden.weight = Array2::zeros((3, 64))
        }),
        ("self_attn: 64 channels among 5 heads", |w| w.self_attn.heads = 5),
        ("cross_attn.input", |w| {
            w.cross_attn.input = linear(&mut Random(1), 64, 64)
        }),
        ("norm 1 has", |w| w.norms[1].beta = Array1::zeros(63)),
        ("norm 2 has epsilon 0", |w| w.norms[2].epsilon = 0.0),
        ("ffn.output", |w| w.ffn.output = linear(&mut Random(1), 64, 64)),
        ("two heads are called \"rot\"", |w| w.heads[0].name = "rot".into()),
        ("there are no heads", |w| w.heads.clear()),
    ];
    for (reason, spoil) in cases {
        let mut weights = good.clone();
        spoil(&mut weights);
        let error = TransFusionQueryHead::new(weights).unwrap_err().to_string();
        assert!(error.contains(reason), "expected {reason:?}, found {error:?}");
    }
}

#[test]
fn tables_are_the_embeddings_of_every_cell() {
    let weights = weights(&mut Random(98), &SMALL, Grid::RowFirst);
    let positions = weights.bev_pos.mapv(f64::from);
    for (table, mlp) in [
        (weights.query_pos_table(), &weights.self_posembed),
        (weights.key_pos_table(), &weights.cross_posembed),
    ] {
        let exact = Literal::two(&mlp.hidden, &mlp.output, &positions).mapv(|x| x as f32);
        assert_eq!(table, exact);
    }
    let merged = weights.merged_heads().unwrap();
    assert_eq!(merged.hidden_weight.dim(), (64, 6 * 64));
    assert_eq!(merged.output_weight.dim(), (6 * 64, 32));
    assert_eq!(merged.slices[5], ("heatmap".to_owned(), 10..15));
}

#[test]
fn outputs_are_assembled_as_the_deployed_model_does() {
    let (classes, cells, queries) = (2, 6, 3);
    let bev_pos = Array2::from_shape_fn((cells, 2), |(cell, axis)| (cell * 10 + axis) as f32);
    let indices = [4, 6 + 1, 5, 99];
    let mut heads = BTreeMap::new();
    heads.insert("center".to_owned(), array![[0.5, 1.0, -1.0], [0.0, 2.0, 0.25]]);
    heads.insert("height".to_owned(), array![[1.0, 2.0, 3.0]]);
    heads.insert("dim".to_owned(), Array2::from_elem((3, queries), 0.5));
    heads.insert("rot".to_owned(), array![[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]);
    heads.insert("vel".to_owned(), array![[7.0, 8.0, 9.0], [10.0, 11.0, 12.0]]);
    heads.insert(
        "heatmap".to_owned(),
        array![[0.0, 0.0, 0.0], [0.0, 100.0, -100.0]],
    );
    let heat = array![
        [0.5, 0.25, 9.0],
        [0.125, 1.0, 9.0],
        [1.0, 0.75, 9.0],
        [9.0, 9.0, 9.0]
    ];
    let raw = RawOutputs {
        heads: &heads,
        query_heat: heat.view(),
        indices: &indices,
    };
    let out = assemble_transfusion(&raw, bev_pos.view(), [classes, queries]).unwrap();
    assert_eq!(out.cls_score, array![[0.25, 0.0625, 0.5], [0.125, 1.0, 0.0]]);
    assert_eq!(out.bbox_pred.row(0).to_vec(), [40.5, 11.0, 49.0]);
    assert_eq!(out.bbox_pred.row(1).to_vec(), [41.0, 13.0, 51.25]);
    assert_eq!(out.bbox_pred.row(2).to_vec(), [1.0, 2.0, 3.0]);
    assert_eq!(out.bbox_pred.row(7).to_vec(), [10.0, 11.0, 12.0]);
    assert_eq!(
        (out.bbox_pred.nrows(), out.dir_cls_pred),
        (8, heads["rot"].clone())
    );

    let error = assemble_transfusion(&raw, bev_pos.view(), [classes, 4]).unwrap_err();
    assert!(error.to_string().contains("head \"center\""), "{error}");
    let outside = RawOutputs {
        indices: &[0, 12, 0],
        ..raw
    };
    let error = assemble_transfusion(&outside, bev_pos.view(), [classes, queries]).unwrap_err();
    assert!(error.to_string().contains("query 1 is position 12"), "{error}");
    let few = RawOutputs {
        indices: &[0, 1],
        ..raw
    };
    assert!(assemble_transfusion(&few, bev_pos.view(), [classes, queries]).is_err());
    assert!(assemble_transfusion(&raw, bev_pos.slice(s![.., ..1]), [classes, queries]).is_err());
    let mut lacking = heads.clone();
    lacking.remove("vel");
    let lacking = RawOutputs {
        heads: &lacking,
        ..raw
    };
    let error = assemble_transfusion(&lacking, bev_pos.view(), [classes, queries]).unwrap_err();
    assert!(error.to_string().contains("there is no head \"vel\""), "{error}");
}
