//! Choices, moves by an index on the device, and resizing by weights, against their definitions.

use std::sync::Arc;

use sensorium::device::{BinaryKind, OpDesc, Operand, Scalar, TapTable};
use sensorium::tensor::{DType, HostTensor};

use crate::kernels::harness::{
    Random, dense, element, image, positions, random, run_everywhere, tensor, values, zeros,
};

/// Whole numbers as an index of a type.
fn index_of(dtype: DType, numbers: &[i64]) -> HostTensor {
    let len = [numbers.len()];
    match dtype {
        DType::U32 => HostTensor::from_slice(&len, &numbers.iter().map(|&n| n as u32).collect::<Vec<_>>()),
        DType::I32 => HostTensor::from_slice(&len, &numbers.iter().map(|&n| n as i32).collect::<Vec<_>>()),
        _ => HostTensor::from_slice(&len, &numbers.iter().map(|&n| n as f32).collect::<Vec<_>>()),
    }
    .unwrap()
}

/// The place that an index names on an axis, by the definition.
fn named(index: i64, len: usize) -> Option<usize> {
    let from_front = if index < 0 { index + len as i64 } else { index };
    usize::try_from(from_front).ok().filter(|&i| i < len)
}

/// Indices of every kind: inside, from the end, and outside.
fn indices(r: &mut Random, dtype: DType, count: usize, len: usize) -> Vec<i64> {
    (0..count)
        .map(|_| match (r.range(0, 5), dtype) {
            (0, DType::U32) => r.pick(&[len as i64, i64::from(u32::MAX)]),
            (0, _) => r.pick(&[len as i64, -(len as i64) - 1, 1 << 20]),
            (1, DType::I32 | DType::F32) => -(r.range(1, len) as i64),
            _ => r.range(0, len - 1) as i64,
        })
        .collect()
}

#[test]
fn a_choice_moves_one_of_two_elements_whatever_the_other_is() {
    let mut r = Random(51);
    let dims = [7, 5, 33];
    let count = 7 * 5 * 33;
    for (flags, dtype) in [
        (DType::F32, DType::F32),
        (DType::Bf16, DType::F32),
        (DType::F32, DType::Bf16),
    ] {
        let mut condition = dense(flags, &[5, 1]);
        condition.view = condition
            .view
            .broadcast_to(dense(flags, &dims).view.shape)
            .unwrap();
        let mut yes = dense(dtype, &[33, 5, 7]);
        yes.view = yes.view.transpose(&[2, 1, 0]).unwrap();
        let (no, dst) = (dense(dtype, &dims), dense(dtype, &dims));
        let given = [1.0, 0.0, -0.0, f32::NAN, -3.0];
        let mut left: Vec<f32> = (0..count).map(|_| r.unit()).collect();
        left[3] = f32::INFINITY;
        left[4] = f32::NAN;
        let (left, right) = (tensor(dtype, &left), random(&mut r, dtype, count, 2.0));
        let op = OpDesc::Select {
            condition,
            yes,
            no,
            dst,
        };
        let buffers = |_| {
            vec![
                tensor(flags, &given),
                left.clone(),
                right.clone(),
                zeros(dtype, count),
            ]
        };
        let found = values(&run_everywhere(&op, 3, buffers));
        let (left, right) = (values(&left), values(&right));
        for at in positions(&dims) {
            let flag = given[at[1]] != 0.0;
            let expected = match flag {
                true => left[element(&yes.view, &at)],
                false => right[element(&no.view, &at)],
            };
            let y = found[element(&dst.view, &at)];
            assert!(y == expected || y.is_nan() && expected.is_nan(), "{at:?}");
        }
    }
}

/// A view of a shape with its axes in another order in memory.
fn turned(dtype: DType, dims: &[usize], order: &[usize]) -> Operand {
    let stored: Vec<usize> = order.iter().map(|&axis| dims[axis]).collect();
    let mut back = vec![0; order.len()];
    for (place, &axis) in order.iter().enumerate() {
        back[axis] = place;
    }
    let mut operand = dense(dtype, &stored);
    operand.view = operand.view.transpose(&back).unwrap();
    operand
}

#[test]
fn elements_are_picked_along_an_axis_and_those_outside_are_zero() {
    let mut r = Random(52);
    for case in 0..80 {
        let dims = [r.range(1, 5), r.range(1, 9), r.range(1, 40)];
        let axis = r.range(0, 2);
        let mut to = dims;
        to[axis] = r.range(1, 12);
        let kind = r.pick(&[DType::U32, DType::I32, DType::F32]);
        let order = r.pick(&[[0, 1, 2], [2, 0, 1], [1, 2, 0]]);
        let (src, dst) = (turned(DType::F32, &dims, &order), dense(DType::F32, &to));
        // Every third time one index for a whole row.
        let rows = case % 3 == 0;
        let mut index = dense(kind, &to);
        if rows {
            let mut line = [1; 3];
            line[axis] = to[axis];
            index = dense(kind, &line);
            index.view = index.view.broadcast_to(dst.view.shape).unwrap();
        }
        let count = if rows { to[axis] } else { to.iter().product() };
        let picks = indices(&mut r, kind, count, dims[axis]);
        let source = random(&mut r, DType::F32, dims.iter().product(), 4.0);
        let op = OpDesc::GatherElements {
            src,
            index,
            dst,
            axis,
        };
        let total = to.iter().product();
        let buffers = |_| {
            vec![
                source.clone(),
                index_of(kind, &picks),
                random(&mut Random(9), DType::F32, total, 1.0),
            ]
        };
        let found = values(&run_everywhere(&op, 2, buffers));
        let source = values(&source);
        for at in positions(&to) {
            let mut from = at.clone();
            let expected = match named(picks[element(&index.view, &at)], dims[axis]) {
                Some(place) => {
                    from[axis] = place;
                    source[element(&src.view, &from)]
                }
                None => 0.0,
            };
            assert_eq!(found[element(&dst.view, &at)], expected, "{op:?} at {at:?}");
        }
    }
}

#[test]
fn updates_go_where_the_index_says_in_order() {
    let mut r = Random(53);
    let kinds = [
        None,
        Some(BinaryKind::Add),
        Some(BinaryKind::Mul),
        Some(BinaryKind::Max),
        Some(BinaryKind::Min),
    ];
    for case in 0..100 {
        let dims = [r.range(1, 5), r.range(1, 9), r.range(1, 40)];
        let (axis, combine) = (r.range(0, 2), kinds[case % kinds.len()]);
        let mut from = dims;
        from[axis] = r.range(1, 12);
        let kind = r.pick(&[DType::U32, DType::I32, DType::F32]);
        let dtype = r.pick(&[DType::F32, DType::Bf16]);
        let order = r.pick(&[[0, 1, 2], [2, 0, 1], [1, 2, 0]]);
        let (dst, updates) = (turned(dtype, &dims, &order), dense(dtype, &from));
        let rows = case % 3 == 0;
        let mut index = dense(kind, &from);
        if rows {
            let mut line = [1; 3];
            line[axis] = from[axis];
            index = dense(kind, &line);
            index.view = index.view.broadcast_to(updates.view.shape).unwrap();
        }
        let count = if rows { from[axis] } else { from.iter().product() };
        let places = indices(&mut r, kind, count, dims[axis]);
        let given = random(&mut r, dtype, from.iter().product(), 4.0);
        let before = random(&mut r, dtype, dims.iter().product(), 4.0);
        let op = OpDesc::ScatterElements {
            updates,
            index,
            dst,
            axis,
            combine,
        };
        let buffers = |_| vec![given.clone(), index_of(kind, &places), before.clone()];
        let found = values(&run_everywhere(&op, 2, buffers));
        let mut expected = values(&before);
        let given = values(&given);
        for at in positions(&from) {
            let Some(place) = named(places[element(&index.view, &at)], dims[axis]) else {
                continue;
            };
            let mut to = at.clone();
            to[axis] = place;
            let (there, new) = (
                &mut expected[element(&dst.view, &to)],
                given[element(&updates.view, &at)],
            );
            let made = match combine {
                None => new,
                Some(BinaryKind::Add) => *there + new,
                Some(BinaryKind::Mul) => *there * new,
                Some(BinaryKind::Max) => there.max(new),
                _ => there.min(new),
            };
            *there = match dtype {
                DType::F32 => f64::from(made as f32),
                _ => half::bf16::from_f32(made as f32).to_f64(),
            };
        }
        assert_eq!(found, expected, "{op:?}");
    }
}

#[test]
fn comparisons_and_whole_numbers_are_exact() {
    let mut r = Random(54);
    let limit = (1 << 24) - 1;
    let mut left: Vec<f32> = (0..5000)
        .map(|_| r.range(0, 2 * limit) as f32 - limit as f32)
        .collect();
    let mut right: Vec<f32> = (0..5000)
        .map(|i| (r.range(1, if i % 2 == 0 { 50 } else { limit }) as f32) * r.pick(&[1.0, -1.0]))
        .collect();
    // Just below, at and above a multiple.
    for (i, (a, b)) in left.iter_mut().zip(&mut right).enumerate().take(3000) {
        let factor = (limit as f32 / b.abs()).floor().min(4000.0);
        *a = (factor * *b + (i % 3) as f32 - 1.0).clamp(-(limit as f32), limit as f32);
    }
    type Exact = (BinaryKind, fn(f32, f32) -> f32);
    let exact: [Exact; 6] = [
        (BinaryKind::Equal, |a, b| f32::from(u8::from(a == b))),
        (BinaryKind::Less, |a, b| f32::from(u8::from(a < b))),
        (BinaryKind::LessOrEqual, |a, b| f32::from(u8::from(a <= b))),
        (BinaryKind::Quotient, |a, b| (a as i64 / b as i64) as f32),
        (BinaryKind::Remainder, |a, b| {
            let (a, b) = (a as i64, b as i64);
            (a - b * (a as f64 / b as f64).floor() as i64) as f32
        }),
        (BinaryKind::LeakyRelu, |a, b| if a < 0.0 { a * b } else { a }),
    ];
    let operand = dense(DType::F32, &[left.len()]);
    let run = |kind: BinaryKind, left: &[f32], right: &[f32]| {
        let operand = dense(DType::F32, &[left.len()]);
        let op = OpDesc::Binary {
            lhs: operand,
            rhs: operand,
            dst: operand,
            kind,
        };
        let buffers = |_| {
            vec![
                tensor(DType::F32, left),
                tensor(DType::F32, right),
                zeros(DType::F32, left.len()),
            ]
        };
        run_everywhere(&op, 2, buffers)
            .as_slice::<f32>()
            .unwrap()
            .to_vec()
    };
    assert_eq!(operand.view.shape.elements(), right.len());
    for (kind, formula) in exact {
        let found = run(kind, &left, &right);
        for ((&a, &b), y) in left.iter().zip(&right).zip(found) {
            assert_eq!(y, formula(a, b), "{kind:?}({a}, {b})");
        }
    }
    let (nan, one) = ([f32::NAN, 1.0, f32::NAN], [1.0, f32::NAN, f32::NAN]);
    for kind in [BinaryKind::Equal, BinaryKind::Less, BinaryKind::LessOrEqual] {
        assert_eq!(run(kind, &nan, &one), [0.0; 3], "{kind:?}");
    }
}

#[test]
fn resized_pixels_are_the_weighted_sums_of_their_taps() {
    let mut r = Random(55);
    for _ in 0..30 {
        let (n, c) = (r.range(1, 2), r.range(1, 37));
        let [h, w, oh, ow] = [(); 4].map(|()| r.range(1, 9));
        let dtype = r.pick(&[DType::F32, DType::Bf16]);
        let (src, from) = image(dtype, [n, c, h, w], c + r.pick(&[0, 3]), 0);
        let (dst, to) = image(dtype, [n, c, oh, ow], c + r.pick(&[0, 2]), 0);
        let mut table = |len: usize, outputs: usize| {
            let taps = r.range(1, 4);
            let positions: Arc<[u32]> = (0..outputs * taps).map(|_| r.range(0, len - 1) as u32).collect();
            let weights: Arc<[Scalar]> = (0..outputs * taps).map(|_| Scalar::new(r.unit())).collect();
            TapTable {
                taps,
                positions,
                weights,
            }
        };
        let (rows, columns) = (table(h, oh), table(w, ow));
        let source = random(&mut r, dtype, from, 2.0);
        let op = OpDesc::ResizeTaps {
            src,
            dst,
            rows: rows.clone(),
            columns: columns.clone(),
        };
        let found = values(&run_everywhere(&op, 1, |_| {
            vec![source.clone(), zeros(dtype, to)]
        }));
        let source = values(&source);
        let taps = |table: &TapTable, output: usize| -> Vec<(usize, f64)> {
            let range = output * table.taps..(output + 1) * table.taps;
            let pairs = table.positions[range.clone()].iter().zip(&table.weights[range]);
            pairs.map(|(&p, w)| (p as usize, f64::from(w.get()))).collect()
        };
        for at in positions(&[n, c, oh, ow]) {
            let (mut sum, mut size) = (0.0, 0.0);
            for (y, of_row) in taps(&rows, at[2]) {
                for (x, of_column) in taps(&columns, at[3]) {
                    let product = source[element(&src.view, &[at[0], at[1], y, x])] * of_row * of_column;
                    sum += product;
                    size += product.abs();
                }
            }
            let bound = match dtype {
                DType::F32 => size * 1e-6 + 1e-30,
                _ => size * 1e-6 + sum.abs() / 256.0 + 1e-30,
            };
            let y = found[element(&dst.view, &at)];
            assert!((y - sum).abs() <= bound, "{y} is not {sum}");
        }
    }
}
