//! Selections of query heads and moves of rows: against their definitions, and every replay with the bits of an eager run.

use crate::blocks;
use crate::graphs;
use std::sync::Arc;

use half::bf16;
use sensorium::device::{BufferClass, Cq, TopKOrder};
use sensorium::ops::gather::{IndexError, check_index, gather_rows, scatter_rows, with_zero_rows};
use sensorium::ops::heatmap::{LocalMax, LocalMaxRule, sigmoid_heat};
use sensorium::ops::pool::MaxPool;
use sensorium::ops::topk::{
    MASK_VALUE, SENTINEL, TopKSelect, class_major_host, decode_class_major, decode_class_major_host,
    local_max_margins, padded_k, selection_metrics, topk, topk_host,
};
use sensorium::ops::{OpContext, OpRefusal, PortRule};
use sensorium::tensor::{DType, HostTensor};
use sensorium::trace::TraceContext;

use blocks::{Work, as_rows, cpu, everywhere, numbers, stored, unit};
use graphs::Random;

/// Scores with many ties, zeros of both signs and infinities.
fn scores(r: &mut Random, count: usize) -> Vec<f32> {
    let one = |r: &mut Random| match r.below(12) {
        0 => 0.0,
        1 => -0.0,
        2 if r.one_in(20) => f32::NEG_INFINITY,
        3 if r.one_in(40) => f32::INFINITY,
        4..7 => (r.below(9) as f32 - 4.0) / 8.0,
        _ => bf16::from_f32(unit(r)).to_f32(),
    };
    (0..count).map(|_| one(r)).collect()
}

/// The place of a number among others: how many come before it. Straight from the rule, without sorting.
fn ranks(values: &[f64], order: TopKOrder) -> Vec<usize> {
    let before = |a: f64, b: f64| match (a.is_nan(), b.is_nan(), order) {
        (true, true, _) => false,
        (true, false, order) => order == TopKOrder::Largest,
        (false, true, order) => order == TopKOrder::Smallest,
        (_, _, TopKOrder::Largest) => a > b,
        (_, _, TopKOrder::Smallest) => a < b,
    };
    (0..values.len())
        .map(|i| {
            let is_first =
                |j: usize| before(values[j], values[i]) || (!before(values[i], values[j]) && j < i);
            (0..values.len()).filter(|&j| is_first(j)).count()
        })
        .collect()
}

fn run_topk(values: &HostTensor, axis: usize, k: usize, order: TopKOrder) -> Vec<HostTensor> {
    everywhere(&[("x", values.clone())], || {
        Arc::new(move |context: &mut TraceContext<'_>| {
            let x = context.input("x")?;
            let [values, indices] = topk(context.ops(), &x, axis, k, order)?;
            Ok(vec![
                ("values".to_owned(), values),
                ("indices".to_owned(), indices),
            ])
        })
    })
}

#[test]
fn the_first_of_an_order_are_exact_on_every_axis_with_ties_to_the_lower_position() {
    let mut r = Random(1);
    for (dims, axis, k) in [
        ([3, 40, 5], 1, 16),
        ([7, 2, 90], 2, 90),
        ([130, 1, 3], 0, 1),
        ([2, 300, 1], 1, 299),
        ([2, 3, 4], 1, 3),
    ] {
        for (dtype, order) in [
            (DType::F32, TopKOrder::Largest),
            (DType::Bf16, TopKOrder::Largest),
            (DType::F32, TopKOrder::Smallest),
            (DType::Bf16, TopKOrder::Smallest),
        ] {
            let mut given = scores(&mut r, dims.iter().product());
            if k > 50 {
                given[7] = f32::NAN;
                given[9] = -f32::NAN;
            }
            let x = stored(dtype, &dims, &given);
            let found = run_topk(&x, axis, k, order);
            let exact = numbers(&x);
            let values = numbers(&found[0]);
            let indices = found[1].as_slice::<u32>().unwrap();
            let inner: usize = dims[axis + 1..].iter().product();
            for line in 0..exact.len() / dims[axis] {
                let place = |i: usize, len: usize| (line / inner * len + i) * inner + line % inner;
                let all: Vec<f64> = (0..dims[axis]).map(|i| exact[place(i, dims[axis])]).collect();
                for (i, rank) in ranks(&all, order)
                    .into_iter()
                    .enumerate()
                    .filter(|&(_, rank)| rank < k)
                {
                    assert_eq!(indices[place(rank, k)], i as u32, "{dims:?} {order:?}");
                    let value = values[place(rank, k)];
                    assert_eq!(value.is_nan(), all[i].is_nan());
                    assert!(value.is_nan() || value.to_bits() == all[i].to_bits());
                }
            }
        }
    }
}

#[test]
fn integers_are_selected_too_and_long_rows_do_not_lose_late_scores() {
    let mut r = Random(2);
    // Ascending, so that every element displaces another, and a plateau behind it.
    let rising: Vec<u32> = (0..5000).chain(std::iter::repeat_n(4999, 3000)).collect();
    let found = run_topk(
        &HostTensor::from_slice(&[8000], &rising).unwrap(),
        0,
        40,
        TopKOrder::Largest,
    );
    let expected: Vec<u32> = (4999..4999 + 40).collect();
    assert_eq!(found[1].as_slice::<u32>().unwrap(), expected);
    let numbers: Vec<i32> = (0..6000).map(|_| r.next() as i32 >> 22).collect();
    let found = run_topk(
        &HostTensor::from_slice(&[1, 6000], &numbers).unwrap(),
        1,
        1500,
        TopKOrder::Smallest,
    );
    let mut sorted: Vec<(i32, u32)> = numbers.iter().copied().zip(0..).collect();
    sorted.sort_unstable();
    let (values, indices): (Vec<i32>, Vec<u32>) = sorted[..1500].iter().copied().unzip();
    assert_eq!(found[0].as_slice::<i32>().unwrap(), values);
    assert_eq!(found[1].as_slice::<u32>().unwrap(), indices);
}

#[test]
fn selections_that_cannot_be_are_refused() {
    let mut device = cpu(1);
    let mut ops = OpContext::new(&mut device, Cq::COMPUTE);
    let x = ops
        .upload(&stored(DType::F32, &[4, 6], &[0.0; 24]), BufferClass::Input)
        .unwrap();
    let before = ops.device.memory().used_bytes;
    let mut text = |axis, k| {
        topk(&mut ops, &x, axis, k, TopKOrder::Largest)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        text(1, 7),
        "topk: 7 elements of an axis of 6: there must be as many as are selected"
    );
    assert_eq!(text(2, 1), "topk: axis 2 of shape [4, 6]");
    assert_eq!(ops.device.memory().used_bytes, before);
    let text = |cells, classes, k| TopKSelect::new(cells, classes, k).unwrap_err().to_string();
    assert!(text(10, 2, 17).contains("17 proposals, 32 with padding to a multiple of 16, of 20 scores"));
    assert!(text(10, 2, 0).contains("at least one"));
    assert!(text(1 << 31, 2, 5).contains("one to 2^32 - 1 scores"));
    assert!(text(0, 2, 5).contains("one to 2^32 - 1 scores"));
    let select = TopKSelect::new(3, 8, 3).unwrap();
    let error = select.forward(&mut ops, &x).unwrap_err();
    assert!(matches!(error, OpRefusal::Shape { .. }), "{error}");
    assert_eq!(ops.device.memory().used_bytes, before);
}

#[test]
fn proposals_of_a_heat_map_are_those_of_the_class_major_row_and_decode_exactly() {
    let mut r = Random(3);
    for (side, classes, k) in [([12, 20], 5, 100), ([30, 31], 10, 500), ([4, 4], 1, 16)] {
        let cells = side[0] * side[1];
        let mut heat = scores(&mut r, cells * classes);
        heat[3] = MASK_VALUE;
        let x = stored(DType::Bf16, &[1, side[0], side[1], classes], &heat);
        let select = TopKSelect::new(cells, classes, k).unwrap();
        assert_eq!(select.padded_k(), k.div_ceil(16) * 16);
        let found = everywhere(&[("heat", x.clone())], || {
            Arc::new(move |context: &mut TraceContext<'_>| {
                let heat = context.input("heat")?;
                let found = select.forward(context.ops(), &heat)?;
                Ok(vec![
                    ("indices".to_owned(), found.indices),
                    ("cells".to_owned(), found.cells),
                    ("classes".to_owned(), found.classes),
                ])
            })
        });
        let [indices, places, kinds] = [0, 1, 2].map(|i| found[i].as_slice::<u32>().unwrap().to_vec());
        let stored: Vec<f64> = numbers(&x);
        let row: Vec<f64> = (0..classes * cells)
            .map(|i| stored[i % cells * classes + i / cells])
            .collect();
        assert_eq!(class_major_host(&stored, classes), row);
        let mut expected: Vec<usize> = (0..row.len()).collect();
        expected.sort_by(|&a, &b| row[b].partial_cmp(&row[a]).unwrap().then(a.cmp(&b)));
        expected.truncate(padded_k(k));
        let as_floats: Vec<f32> = row.iter().map(|&v| v as f32).collect();
        assert_eq!(topk_host(&as_floats, padded_k(k), TopKOrder::Largest), indices);
        for (i, &index) in expected.iter().enumerate() {
            assert_eq!(
                (indices[i], places[i], kinds[i]),
                (index as u32, (index % cells) as u32, (index / cells) as u32)
            );
            assert_eq!(
                decode_class_major_host(index as u32, cells, classes),
                [places[i], kinds[i]]
            );
        }
    }
}

#[test]
fn every_index_decodes_and_a_sentinel_stays_inside_the_tables() {
    let (cells, classes) = (36_864_u32, 5_u32);
    let mut indices: Vec<u32> = (0..cells * classes).collect();
    indices.extend([cells * classes, SENTINEL, SENTINEL - 1]);
    let decoded = |clamp: bool| {
        let index = HostTensor::from_slice(&[1, indices.len()], &indices).unwrap();
        everywhere(&[("index", index)], || {
            Arc::new(move |context: &mut TraceContext<'_>| {
                let index = context.input("index")?;
                let [places, kinds] =
                    decode_class_major(context.ops(), &index, cells as usize, classes as usize, clamp)?;
                Ok(vec![("cells".to_owned(), places), ("classes".to_owned(), kinds)])
            })
        })
    };
    for clamp in [true, false] {
        let found = decoded(clamp);
        let [places, kinds] = [0, 1].map(|i| found[i].as_slice::<u32>().unwrap().to_vec());
        for (i, &index) in indices.iter().enumerate() {
            let known = index < cells * classes;
            let expected = match (known, clamp) {
                (true, _) => (index % cells, index / cells),
                (false, true) => (cells - 1, classes - 1),
                (false, false) => (index - (classes - 1) * cells, classes - 1),
            };
            assert_eq!((places[i], kinds[i]), expected, "{index}");
            if clamp {
                let host = decode_class_major_host(index, cells as usize, classes as usize);
                assert_eq!(host, [places[i], kinds[i]]);
            }
        }
    }
}

#[test]
fn selections_are_compared_as_sets_and_near_ties_are_told() {
    let reference = [4, 9, 2, 7];
    let scores = [0.9, 0.5, 0.1, 0.05];
    let metrics = selection_metrics(&[7, 9, 1, 4], &reference, Some(&scores), 0.1).unwrap();
    assert_eq!((metrics.shared, metrics.total), (3, 4));
    let strong = metrics.strong.as_ref().unwrap();
    assert_eq!((strong.total, strong.kept, &strong.missed[..]), (3, 2, &[2][..]));
    assert!((strong.overlap() - 2.0 / 3.0).abs() < 1e-12 && (metrics.overlap() - 0.75).abs() < 1e-12);
    let alone = selection_metrics(&[], &[], None, 0.1).unwrap();
    assert_eq!((alone.overlap(), alone.strong), (1.0, None));
    assert!(selection_metrics(&[1], &reference, Some(&scores[1..]), 0.1).is_err());
    // Two classes of 2 x 3.
    let heat = [0.5, 0.4, 0.1, 0.2, 0.3, 0.8, 1.0, 0.0, 0.0, 0.0, 0.0, 0.25];
    let margins = local_max_margins(&[0, 2, 6, 11, 7], &heat, [2, 3], 3).unwrap();
    let expected = [0.2, -7.0, 1.0, 1.0, 0.0];
    for (found, expected) in margins.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-5, "{margins:?}");
    }
    assert_eq!(local_max_margins(&[0], &[0.5], [1, 1], 3).unwrap(), [1.0]);
    assert!(local_max_margins(&[12], &heat, [2, 3], 3).is_err());
    assert!(local_max_margins(&[0], &heat, [5, 3], 3).is_err());
    assert!(local_max_margins(&[0], &heat, [2, 3], 2).is_err());
}

/// The heat that a model's own code leaves: `heat * (heat == local_max)`, where `local_max` is zeros (TransFusion,
/// BEVFusion) or the heat itself (PTv3) with the pooled interior written into it.
fn literal(
    heat: &[f64],
    [h, w]: [usize; 2],
    classes: usize,
    rule: LocalMaxRule,
    pooled: &[usize],
    kernel: usize,
) -> Vec<f64> {
    let p = kernel / 2;
    let at = |y: usize, x: usize, c: usize| heat[(y * w + x) * classes + c];
    let mut local_max = match rule {
        LocalMaxRule::Ptv3 => heat.to_vec(),
        _ => vec![0.0; heat.len()],
    };
    for c in 0..classes {
        if !pooled.contains(&c) {
            (0..h * w).for_each(|cell| local_max[cell * classes + c] = heat[cell * classes + c]);
            continue;
        }
        for (y, x) in (p..h.saturating_sub(p)).flat_map(|y| (p..w.saturating_sub(p)).map(move |x| (y, x))) {
            let window = (0..kernel).flat_map(|dy| (0..kernel).map(move |dx| (dy, dx)));
            local_max[(y * w + x) * classes + c] = window
                .map(|(dy, dx)| at(y + dy - p, x + dx - p, c))
                .fold(f64::NEG_INFINITY, f64::max);
        }
    }
    let keep = heat
        .iter()
        .zip(&local_max)
        .map(|(h, m)| h * f64::from(u8::from(h == m)));
    keep.collect()
}

#[test]
fn local_maxima_are_those_of_each_model_bit_for_bit() {
    let mut r = Random(4);
    let cases = [
        (LocalMaxRule::TransFusion, [17, 23], 5, 3),
        (LocalMaxRule::BevFusion, [16, 19], 10, 3),
        (LocalMaxRule::Ptv3, [21, 9], 7, 3),
        (LocalMaxRule::Ptv3, [12, 30], 3, 5),
        (LocalMaxRule::TransFusion, [2, 40], 4, 3),
        (LocalMaxRule::BevFusion, [9, 1], 6, 3),
        (LocalMaxRule::TransFusion, [6, 7], 2, 1),
    ];
    for (rule, side, classes, kernel) in cases {
        for dtype in [DType::Bf16, DType::F32] {
            // Plateaus everywhere, and bright borders.
            let heat: Vec<f32> = (0..side[0] * side[1] * classes)
                .map(|_| r.below(6) as f32 / 5.0)
                .collect();
            let x = stored(dtype, &[1, 1, side[0] * side[1], classes], &heat);
            let local_max = LocalMax::new(side, classes, rule).kernel(kernel).unwrap();
            let run = local_max.clone();
            let found = everywhere(&[("heat", x.clone())], || {
                let local_max = run.clone();
                Arc::new(move |context: &mut TraceContext<'_>| {
                    let heat = context.input("heat")?;
                    Ok(vec![(
                        "peaks".to_owned(),
                        local_max.forward(context.ops(), &heat)?,
                    )])
                })
            });
            let pooled: Vec<usize> = match rule {
                LocalMaxRule::BevFusion => (0..4).collect(),
                _ => (0..classes).collect(),
            };
            let exact = literal(&numbers(&x), side, classes, rule, &pooled, kernel);
            assert_eq!(numbers(&found[0]), exact, "{rule:?} {side:?}");
            let rounded: Vec<f32> = numbers(&x).iter().map(|&v| v as f32).collect();
            let twin: Vec<f64> = local_max
                .host(&rounded)
                .unwrap()
                .into_iter()
                .map(f64::from)
                .collect();
            assert_eq!(twin, exact);
            let masks = local_max.masks();
            assert!(masks.pass.iter().zip(&masks.compare).all(|(p, c)| p * c == 0.0));
        }
    }
}

#[test]
fn chosen_classes_compete_and_rules_say_what_they_refuse() {
    let mut r = Random(5);
    let heat: Vec<f32> = (0..8 * 9 * 4).map(|_| r.below(4) as f32).collect();
    let exact = |rule, pooled: &[usize]| {
        let values: Vec<f64> = heat.iter().map(|&v| v.into()).collect();
        literal(&values, [8, 9], 4, rule, pooled, 3)
    };
    for rule in [LocalMaxRule::BevFusion, LocalMaxRule::Ptv3] {
        let chosen = LocalMax::new([8, 9], 4, rule).pooled_classes(&[3, 1]).unwrap();
        let found: Vec<f64> = chosen.host(&heat).unwrap().into_iter().map(f64::from).collect();
        assert_eq!(found, exact(rule, &[1, 3]));
    }
    let refused = LocalMax::new([8, 9], 4, LocalMaxRule::TransFusion).pooled_classes(&[0]);
    assert!(refused.unwrap_err().to_string().contains("all classes compete"));
    let refused = LocalMax::new([8, 9], 4, LocalMaxRule::Ptv3).pooled_classes(&[4]);
    assert_eq!(refused.unwrap_err().to_string(), "local_max: class 4 of 4");
    assert!(LocalMax::new([8, 9], 4, LocalMaxRule::Ptv3).kernel(4).is_err());
    assert!("centerpoint".parse::<LocalMaxRule>().is_err());
    assert_eq!("ptv3".parse(), Ok(LocalMaxRule::Ptv3));
    let mut device = cpu(1);
    let mut ops = OpContext::new(&mut device, Cq::COMPUTE);
    let x = ops
        .upload(&stored(DType::F32, &[72, 4], &heat), BufferClass::Input)
        .unwrap();
    let portable = LocalMax::new([8, 9], 4, LocalMaxRule::Ptv3).port_rule(PortRule::Accelerator);
    let error = portable.forward(&mut ops, &x).unwrap_err();
    assert!(matches!(error, OpRefusal::Unportable { .. }), "{error}");
    let other = LocalMax::new([9, 9], 4, LocalMaxRule::Ptv3);
    assert!(matches!(
        other.forward(&mut ops, &x),
        Err(OpRefusal::Shape { .. })
    ));
}

#[test]
fn a_damaged_heat_leaves_no_peak_beside_the_damage() {
    let mut heat = vec![1.0_f32; 5 * 5];
    heat[12] = f32::NAN;
    let x = HostTensor::from_slice(&[25, 1], &heat).unwrap();
    let local_max = LocalMax::new([5, 5], 1, LocalMaxRule::TransFusion);
    let run = local_max.clone();
    let found = everywhere(&[("heat", x)], || {
        let local_max = run.clone();
        Arc::new(move |context: &mut TraceContext<'_>| {
            let heat = context.input("heat")?;
            Ok(vec![(
                "peaks".to_owned(),
                local_max.forward(context.ops(), &heat)?,
            )])
        })
    });
    for found in [
        found[0].as_slice::<f32>().unwrap(),
        &local_max.host(&heat).unwrap(),
    ] {
        assert!(found[12].is_nan());
        assert!(found.iter().enumerate().all(|(i, &v)| i == 12 || v == 0.0));
    }
}

#[test]
fn sigmoid_heat_is_the_sigmoid_rounded_once() {
    let mut r = Random(6);
    let logits: Vec<f32> = (0..999).map(|_| unit(&mut r) * 9.0).collect();
    let x = HostTensor::from_slice(&[1, 999], &logits).unwrap();
    let found = everywhere(&[("x", x)], || {
        Arc::new(move |context: &mut TraceContext<'_>| {
            let x = context.input("x")?;
            let found = sigmoid_heat(context.ops(), &x, DType::Bf16)?;
            Ok(vec![
                ("heat".to_owned(), found.heat),
                ("sigmoid".to_owned(), found.sigmoid),
            ])
        })
    });
    let (heat, sigmoid) = (
        found[0].as_slice::<bf16>().unwrap(),
        found[1].as_slice::<f32>().unwrap(),
    );
    for ((&x, &heat), &sigmoid) in logits.iter().zip(heat).zip(sigmoid) {
        let exact = 1.0 / (1.0 + (-f64::from(x)).exp());
        assert!((f64::from(sigmoid) - exact).abs() <= 3e-7 * exact);
        assert_eq!(heat, bf16::from_f32(sigmoid));
    }
    let mut device = cpu(1);
    let mut ops = OpContext::new(&mut device, Cq::COMPUTE);
    let x = ops
        .upload(
            &HostTensor::from_slice(&[999], &logits).unwrap(),
            BufferClass::Input,
        )
        .unwrap();
    let before = ops.device.memory().used_bytes;
    for dtype in [DType::F32, DType::Bf16] {
        let found = sigmoid_heat(&mut ops, &x, dtype).unwrap();
        assert_eq!(found.heat.buffer == found.sigmoid.buffer, dtype == DType::F32);
        found.free(&mut ops);
        assert_eq!(ops.device.memory().used_bytes, before);
    }
}

#[test]
fn a_selection_chain_runs_as_one_trace() {
    let mut r = Random(7);
    let (side, classes, k) = ([24, 24], 5, 50);
    let cells = side[0] * side[1];
    let logits: Vec<f32> = (0..cells * classes).map(|_| unit(&mut r) * 6.0).collect();
    let table: Vec<f32> = (0..cells * 4).map(|i| i as f32).collect();
    let inputs = [
        (
            "logits",
            HostTensor::from_slice(&[cells, classes], &logits).unwrap(),
        ),
        ("table", HostTensor::from_slice(&[cells, 4], &table).unwrap()),
    ];
    let found = everywhere(&inputs, || {
        let local_max = LocalMax::new(side, classes, LocalMaxRule::TransFusion);
        let select = TopKSelect::new(cells, classes, k).unwrap();
        let run: Arc<Work> = Arc::new(move |context: &mut TraceContext<'_>| {
            let (logits, table) = (context.input("logits")?, context.input("table")?);
            let ops = context.ops();
            let heat = sigmoid_heat(ops, &logits, DType::Bf16)?;
            let peaks = local_max.forward(ops, &heat.heat)?;
            heat.free(ops);
            let found = select.forward(ops, &peaks)?;
            ops.free(&peaks)?;
            let rows = gather_rows(ops, &table, &found.cells)?;
            ops.free(&found.cells)?;
            ops.free(&found.classes)?;
            Ok(vec![
                ("rows".to_owned(), rows),
                ("indices".to_owned(), found.indices),
            ])
        });
        run
    });
    let indices = found[1].as_slice::<u32>().unwrap();
    let rows = found[0].as_slice::<f32>().unwrap();
    assert_eq!(indices.len(), 64);
    for (row, &index) in rows.chunks_exact(4).zip(indices) {
        let cell = index as usize % cells;
        assert_eq!(row, &table[cell * 4..][..4]);
    }
    // The best proposal is the largest logit away from the border.
    let interior = |i: &usize| {
        let (y, x) = (i / classes / side[1], i / classes % side[1]);
        (1..side[0] - 1).contains(&y) && (1..side[1] - 1).contains(&x)
    };
    let rounded = |i: usize| bf16::from_f32((1.0 / (1.0 + (-f64::from(logits[i])).exp())) as f32);
    let best = (0..logits.len())
        .filter(interior)
        .map(rounded)
        .reduce(|a, b| if b > a { b } else { a });
    let first = indices[0] as usize;
    let place = first % cells * classes + first / cells;
    assert_eq!(Some(rounded(place)), best);
}

#[test]
fn rows_of_zeros_behind_a_table_and_marks_that_are_no_row() {
    let table: Vec<f32> = (1..=12).map(|v| v as f32).collect();
    let index = [3_u32, 0, 4, 5, 9];
    let inputs = [
        ("table", HostTensor::from_slice(&[1, 4, 3], &table).unwrap()),
        ("index", HostTensor::from_slice(&[5], &index).unwrap()),
        (
            "cells",
            HostTensor::from_slice(&[1, 6], &[4_u32, 1, 4, 4, 3, 2]).unwrap(),
        ),
    ];
    let found = everywhere(&inputs, || {
        Arc::new(|context: &mut TraceContext<'_>| {
            let [table, index, cells] = [
                context.input("table")?,
                context.input("index")?,
                context.input("cells")?,
            ];
            let ops = context.ops();
            let padded = with_zero_rows(ops, &table, 2)?;
            let rows = gather_rows(ops, &padded, &index)?;
            let canvas = scatter_rows(ops, &table, &cells, [2, 3])?;
            Ok(vec![
                ("padded".to_owned(), padded),
                ("rows".to_owned(), rows),
                ("canvas".to_owned(), as_rows(&canvas)),
            ])
        })
    });
    assert_eq!(found[0].shape()[..], [6, 3]);
    assert_eq!(
        found[0].as_slice::<f32>().unwrap(),
        [&table[..], &[0.0; 6]].concat()
    );
    assert_eq!(
        found[1].as_slice::<f32>().unwrap(),
        [10., 11., 12., 1., 2., 3., 0., 0., 0., 0., 0., 0., 0., 0., 0.]
    );
    assert_eq!(found[2].shape()[..], [1, 2, 3, 3]);
    let none = [0.0; 3];
    let cells = [none, [4., 5., 6.], none, none, [10., 11., 12.], [7., 8., 9.]];
    assert_eq!(found[2].as_slice::<f32>().unwrap(), cells.concat());
    let error = check_index(&[0, 1], 5, Some(4)).unwrap_err();
    assert_eq!(error, IndexError::Sentinel { sentinel: 4, rows: 5 });
    assert_eq!(
        error.to_string(),
        "4 cannot mark an empty place: the table has 5 rows, so it is one of them"
    );
}

#[test]
fn a_pooling_of_windows_pads_each_side_as_told() {
    let mut r = Random(8);
    for (pool, [h, w]) in [
        (MaxPool::STEM, [15, 22]),
        (
            MaxPool {
                kernel: [3, 2],
                stride: [2, 1],
                padding: [0, 1, 1, 0],
            },
            [9, 8],
        ),
        (MaxPool::square(2, 2, 0), [7, 6]),
    ] {
        for dtype in [DType::F32, DType::Bf16] {
            let values: Vec<f32> = (0..2 * h * w * 5).map(|_| unit(&mut r) - 2.0).collect();
            let x = stored(dtype, &[2, h, w, 5], &values);
            let found = everywhere(&[("x", x.clone())], || {
                Arc::new(move |context: &mut TraceContext<'_>| {
                    let x = context.input("x")?.as_feature_map([2, h, w, 5]).unwrap();
                    Ok(vec![("y".to_owned(), as_rows(&pool.forward(context.ops(), &x)?))])
                })
            });
            let [oh, ow] = pool.out_size([h, w]).unwrap();
            assert_eq!(found[0].shape()[..], [2, oh, ow, 5]);
            let (exact, y) = (numbers(&x), numbers(&found[0]));
            for (i, &found) in y.iter().enumerate() {
                let (n, oy, ox, c) = (i / (5 * oh * ow), i / (5 * ow) % oh, i / 5 % ow, i % 5);
                let rows = (0..pool.kernel[0])
                    .filter_map(|k| (oy * pool.stride[0] + k).checked_sub(pool.padding[0]));
                let best = rows
                    .filter(|&y| y < h)
                    .flat_map(|y| {
                        let columns = (0..pool.kernel[1])
                            .filter_map(|k| (ox * pool.stride[1] + k).checked_sub(pool.padding[2]));
                        columns.filter(|&x| x < w).map(move |x| (y, x))
                    })
                    .map(|(y, x)| exact[((n * h + y) * w + x) * 5 + c])
                    .fold(f64::NEG_INFINITY, f64::max);
                assert_eq!(found, best);
            }
        }
    }
    let mut device = cpu(1);
    let mut ops = OpContext::new(&mut device, Cq::COMPUTE);
    let x = ops
        .upload(&stored(DType::F32, &[1, 2, 2, 1], &[0.0; 4]), BufferClass::Input)
        .unwrap();
    let map = x.as_feature_map([1, 2, 2, 1]).unwrap();
    assert!(MaxPool::square(3, 1, 0).forward(&mut ops, &map).is_err());
    assert!(MaxPool::square(2, 1, 2).forward(&mut ops, &map).is_err());
    assert!(MaxPool::square(2, 0, 0).forward(&mut ops, &map).is_err());
}
