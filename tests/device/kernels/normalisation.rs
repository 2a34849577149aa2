//! Layer normalisation and reductions, against f64.

use sensorium::device::cpu::kernels::{Isa, prepare};
use sensorium::device::{DeviceError, LayerNormDesc, OpDesc, ReduceDesc, ReduceKind, Scalar};
use sensorium::tensor::{DType, View};

use crate::kernels::harness::{
    Random, dense, element, positions, random, run_everywhere, tensor, values, zeros,
};

#[test]
fn layer_norm_normalises_the_last_axes() {
    let mut r = Random(71);
    for round in 0..60 {
        let dims: &[usize] = [&[7, 33][..], &[2, 5, 128], &[3, 4, 6, 5], &[1, 300]][r.range(0, 3)];
        let axes = r.range(1, dims.len() - 1);
        let types = [DType::F32, DType::Bf16];
        let (from, to) = (r.pick(&types), r.pick(&types));
        let count: usize = dims.iter().product();
        let last = &dims[dims.len() - axes..];
        let len: usize = last.iter().product();
        // Every other time rows have a gap behind them.
        let gap = round % 2 * 3;
        let mut src = dense(from, dims);
        let rows = count / len;
        for (axis, step) in src.view.strides[..dims.len() - axes].iter_mut().enumerate() {
            let inner: usize = dims[axis + 1..dims.len() - axes].iter().product();
            *step = (inner * (len + gap)) as isize;
        }
        let dst = dense(to, dims);
        let residual = (r.range(0, 1) == 0).then(|| dense(r.pick(&types), dims));
        let gamma = (r.range(0, 1) == 0).then(|| dense(r.pick(&types), last));
        let beta = (r.range(0, 1) == 0).then(|| dense(DType::F32, last));
        let epsilon = r.pick(&[1e-5, 1e-12, 0.1]);
        let desc = LayerNormDesc {
            src,
            dst,
            residual,
            gamma,
            beta,
            axes,
            epsilon: Scalar::new(epsilon),
        };
        let mut inputs = vec![random(&mut r, from, rows * (len + gap), 3.0)];
        for operand in [&residual, &gamma, &beta].into_iter().flatten() {
            inputs.push(random(&mut r, operand.dtype, operand.view.shape.elements(), 2.0));
        }
        let found = run_everywhere(&OpDesc::LayerNorm(desc.clone()), 1, |_| {
            let mut buffers = inputs.clone();
            buffers.insert(1, zeros(to, count));
            buffers
        });
        let mut given = inputs.iter().map(values);
        let source = given.next().unwrap();
        let [other, scales, shifts] =
            [residual, gamma, beta].map(|present| present.and_then(|_| given.next()));
        let found = values(&found);
        for (row, at) in positions(&dims[..dims.len() - axes]).iter().enumerate() {
            let line: Vec<f64> = positions(last)
                .iter()
                .enumerate()
                .map(|(i, tail)| {
                    let x = source[element(&src.view, &[at.as_slice(), tail].concat())];
                    x + other.as_ref().map_or(0.0, |other| other[row * len + i])
                })
                .collect();
            let mean = line.iter().sum::<f64>() / len as f64;
            let variance = line.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / len as f64;
            for (i, x) in line.iter().enumerate() {
                let normal = (x - mean) / (variance + f64::from(epsilon)).sqrt();
                let exact = normal * scales.as_ref().map_or(1.0, |scales| scales[i])
                    + shifts.as_ref().map_or(0.0, |shifts| shifts[i]);
                let y = found[row * len + i];
                let storage = if to == DType::Bf16 {
                    exact.abs() / 256.0
                } else {
                    0.0
                };
                assert!(
                    (y - exact).abs() <= 1e-5 + storage,
                    "{y} is not {exact} in {desc:?}"
                );
            }
        }
    }
}

#[test]
fn layer_norm_may_write_onto_its_source_and_survives_equal_values() {
    let dims = [3, 40];
    let desc = LayerNormDesc {
        src: dense(DType::F32, &dims),
        dst: dense(DType::F32, &dims),
        residual: None,
        gamma: None,
        beta: None,
        axes: 1,
        epsilon: Scalar::new(1e-5),
    };
    let mut buffer = tensor(DType::F32, &[7.25; 120]);
    crate::kernels::harness::run_in_place(&OpDesc::LayerNorm(desc), Isa::detect(), 2, &mut buffer, 2);
    assert!(values(&buffer).iter().all(|&y| y == 0.0));
}

#[test]
fn layer_norm_refuses_a_missing_epsilon_and_what_does_not_fit() {
    let base = LayerNormDesc {
        src: dense(DType::F32, &[4, 6, 5]),
        dst: dense(DType::F32, &[4, 6, 5]),
        residual: None,
        gamma: None,
        beta: None,
        axes: 2,
        epsilon: Scalar::new(1e-5),
    };
    type Spoil = fn(&mut LayerNormDesc);
    let cases: [(&str, Spoil); 8] = [
        ("epsilon is 0", |d| d.epsilon = Scalar::new(0.0)),
        ("epsilon is NaN", |d| d.epsilon = Scalar::new(f32::NAN)),
        ("axes of shape", |d| d.axes = 0),
        ("axes of shape", |d| d.axes = 4),
        ("gamma has shape", |d| d.gamma = Some(dense(DType::F32, &[5]))),
        ("residual has shape", |d| {
            d.residual = Some(dense(DType::F32, &[4, 6, 4]))
        }),
        ("only float32 and bfloat16", |d| d.src.dtype = DType::I32),
        ("do not lie at equal distances", |d| {
            d.src.view = dense(DType::F32, &[4, 5, 6]).view.transpose(&[0, 2, 1]).unwrap();
        }),
    ];
    for (reason, spoil) in cases {
        let mut desc = base.clone();
        spoil(&mut desc);
        match prepare(&OpDesc::LayerNorm(desc), Isa::detect()) {
            Err(DeviceError::InvalidOp { reason: found, .. }) => {
                assert!(found.contains(reason), "expected {reason:?}, found {found:?}");
            }
            other => panic!("{reason}: {other:?}"),
        }
    }
}

const KINDS: [ReduceKind; 8] = [
    ReduceKind::Sum,
    ReduceKind::Mean,
    ReduceKind::Max,
    ReduceKind::Min,
    ReduceKind::Prod,
    ReduceKind::L1,
    ReduceKind::L2,
    ReduceKind::SumSquare,
];

fn reduced(kind: ReduceKind, values: &[f64]) -> f64 {
    let sum = |f: fn(f64) -> f64| values.iter().map(|&x| f(x)).sum::<f64>();
    match kind {
        ReduceKind::Sum => sum(|x| x),
        ReduceKind::Mean => sum(|x| x) / values.len() as f64,
        ReduceKind::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        ReduceKind::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
        ReduceKind::Prod => values.iter().product(),
        ReduceKind::L1 => sum(f64::abs),
        ReduceKind::L2 => sum(|x| x * x).sqrt(),
        ReduceKind::SumSquare => sum(|x| x * x),
        other => panic!("no formula for {other:?}"),
    }
}

/// Source and destination over a dense source of `stored`, turned by `order`, reduced in the axes of `mask`.
fn views(stored: &[usize], order: &[usize], mask: usize) -> (View, View) {
    let src = dense(DType::F32, stored).view.transpose(order).unwrap();
    let kept: Vec<usize> = src
        .shape
        .iter()
        .enumerate()
        .map(|(axis, &dim)| if mask >> axis & 1 == 1 { 1 } else { dim })
        .collect();
    (src, dense(DType::F32, &kept).view)
}

#[test]
fn reductions_over_any_axes_equal_their_definition() {
    let mut r = Random(72);
    let orders: [[usize; 3]; 4] = [[0, 1, 2], [2, 0, 1], [1, 2, 0], [0, 2, 1]];
    for round in 0..160 {
        let stored = [r.range(1, 9), r.range(1, 90), r.range(1, 140)];
        let (from, to) = views(&stored, &orders[r.range(0, 3)], round % 8);
        let kind = KINDS[round / 8 % 8];
        let dtype = r.pick(&[DType::F32, DType::F32, DType::Bf16]);
        let (mut src, mut dst) = (dense(dtype, &[1]), dense(DType::F32, &[1]));
        (src.view, dst.view) = (from, to);
        let op = OpDesc::Reduce(ReduceDesc { src, dst, kind });
        let scale = if kind == ReduceKind::Prod { 1.1 } else { 2.0 };
        let source = random(&mut r, dtype, stored.iter().product(), scale);
        let found = run_everywhere(&op, 1, |_| {
            vec![source.clone(), zeros(DType::F32, to.shape.elements())]
        });
        let (source, found) = (values(&source), values(&found));
        let inner: Vec<usize> = (0..3).map(|axis| from.shape[axis] / to.shape[axis]).collect();
        for at in positions(&to.shape) {
            let line: Vec<f64> = positions(&inner)
                .iter()
                .map(|i| source[element(&from, &[at[0] + i[0], at[1] + i[1], at[2] + i[2]])])
                .collect();
            let exact = reduced(kind, &line);
            let size: f64 = match kind {
                ReduceKind::Max | ReduceKind::Min => 0.0,
                ReduceKind::Prod => exact.abs() * line.len() as f64,
                ReduceKind::Mean => line.iter().map(|x| x.abs()).sum::<f64>() / line.len() as f64,
                _ => line.iter().map(|x| x.abs().max(x * x)).sum(),
            };
            let y = found[element(&to, &at)];
            assert!(
                (y - exact).abs() <= 1e-6 * size + 1e-40,
                "{kind:?}: {y} is not {exact} at {at:?}"
            );
        }
    }
}

#[test]
fn a_layout_changes_no_bit_of_a_sum() {
    let mut r = Random(73);
    let (n, c) = (777, 96);
    let rows: Vec<f32> = (0..n * c).map(|_| r.unit()).collect();
    let columns: Vec<f32> = (0..n * c).map(|i| rows[i % n * c + i / n]).collect();
    let sum = |stored: [usize; 2], order: [usize; 2], numbers: &[f32]| {
        let mut src = dense(DType::F32, &stored);
        src.view = src.view.transpose(&order).unwrap();
        let dst = dense(DType::F32, &[1, c]);
        let op = OpDesc::Reduce(ReduceDesc {
            src,
            dst,
            kind: ReduceKind::Sum,
        });
        run_everywhere(&op, 1, |_| {
            vec![tensor(DType::F32, numbers), zeros(DType::F32, c)]
        })
    };
    let (down, along) = (sum([n, c], [0, 1], &rows), sum([c, n], [1, 0], &columns));
    assert_eq!(down.bytes(), along.bytes());
}

#[test]
fn reductions_keep_nan_and_say_what_nothing_gives() {
    for kind in KINDS {
        for place in [0, 63, 64, 99] {
            let mut numbers = [1.0_f32; 100];
            numbers[place] = f32::NAN;
            let op = OpDesc::Reduce(ReduceDesc {
                src: dense(DType::F32, &[100]),
                dst: dense(DType::F32, &[1]),
                kind,
            });
            let found = run_everywhere(&op, 1, |_| {
                vec![tensor(DType::F32, &numbers), zeros(DType::F32, 1)]
            });
            assert!(values(&found)[0].is_nan(), "{kind:?}");
        }
    }
    let nothing = [
        0.0,
        f64::NAN,
        f64::NEG_INFINITY,
        f64::INFINITY,
        1.0,
        0.0,
        0.0,
        0.0,
    ];
    for (kind, expected) in KINDS.into_iter().zip(nothing) {
        let op = OpDesc::Reduce(ReduceDesc {
            src: dense(DType::F32, &[2, 0]),
            dst: dense(DType::F32, &[2, 1]),
            kind,
        });
        let found = run_everywhere(&op, 1, |_| {
            vec![tensor(DType::F32, &[]), tensor(DType::F32, &[5.0; 2])]
        });
        assert!(
            values(&found)
                .iter()
                .all(|y| *y == expected || y.is_nan() && expected.is_nan()),
            "{kind:?}"
        );
    }
}

#[test]
fn reductions_that_do_not_fit_are_refused() {
    let op = OpDesc::Reduce(ReduceDesc {
        src: dense(DType::F32, &[4, 6]),
        dst: dense(DType::F32, &[4, 2]),
        kind: ReduceKind::Sum,
    });
    let Err(DeviceError::InvalidOp { reason, .. }) = prepare(&op, Isa::detect()) else {
        panic!("accepted");
    };
    assert!(reason.contains("with 1 in the reduced axes"), "{reason}");
}
