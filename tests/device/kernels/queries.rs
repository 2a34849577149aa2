//! Selections, local maxima, samplings and segments through views of every kind.

use std::sync::Arc;

use sensorium::device::cpu::kernels::{Isa, prepare};
use sensorium::device::{
    DeviceError, GridSampleDesc, LocalMaxDesc, OpDesc, Operand, OutsidePixels, SampleWeights, Sampling,
    Scalar, SegmentOp, SegmentReduceDesc, SplitIndexDesc, TopKDesc, TopKOrder, Unpooled,
};
use sensorium::tensor::{DType, HostTensor};

use crate::kernels::harness::{
    Random, dense, element, image, positions, random, run_everywhere, tensor, values, zeros,
};

/// An operand whose axes lie in any order with gaps between them, and the elements its buffer needs.
fn spread(r: &mut Random, dtype: DType, dims: &[usize]) -> (Operand, usize) {
    let mut order: Vec<usize> = (0..dims.len()).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, r.range(0, i));
    }
    let mut operand = dense(dtype, dims);
    operand.view.offset = r.pick(&[0, 3]);
    let mut step = r.pick(&[1, 1, 2]);
    for &axis in &order {
        operand.view.strides[axis] = step as isize;
        step *= dims[axis] + r.pick(&[0, 0, 2]);
    }
    (operand, operand.view.offset + step.max(1))
}

#[test]
fn selections_are_sorted_along_any_axis_of_any_view() {
    let mut r = Random(51);
    for round in 0..30 {
        let dims = [r.range(1, 6), r.range(1, 70), r.range(1, 6)];
        let axis = r.range(0, 2);
        let mut to = dims;
        to[axis] = r.range(1, dims[axis]);
        let dtype = r.pick(&[DType::F32, DType::Bf16]);
        let (src, len) = spread(&mut r, dtype, &dims);
        let (results, values_len) = spread(&mut r, dtype, &to);
        let (indices, indices_len) = spread(&mut r, DType::U32, &to);
        let order = r.pick(&[TopKOrder::Largest, TopKOrder::Smallest]);
        // Few values, so that most are ties.
        let numbers: Vec<f32> = (0..len).map(|_| r.range(0, 9) as f32 / 4.0 - 1.0).collect();
        let x = tensor(dtype, &numbers);
        let op = OpDesc::TopK(TopKDesc {
            src,
            values: results,
            indices,
            axis,
            order,
        });
        let marks = HostTensor::from_slice(&[indices_len], &vec![77_u32; indices_len]).unwrap();
        let before = tensor(dtype, &vec![-9.0; values_len]);
        let bound = |_| vec![x.clone(), before.clone(), marks.clone()];
        let (found, places) = (run_everywhere(&op, 1, bound), run_everywhere(&op, 2, bound));
        let (found, places) = (values(&found), places.as_slice::<u32>().unwrap());
        let given = values(&x);
        let mut expected = (vec![-9.0; values_len], vec![77; indices_len]);
        let lines = positions(&dims).into_iter().filter(|at| at[axis] == 0);
        for mut at in lines {
            let mut line: Vec<(f64, u32)> = (0..dims[axis])
                .map(|i| {
                    at[axis] = i;
                    (given[element(&src.view, &at)], i as u32)
                })
                .collect();
            line.sort_by(|a, b| match order {
                TopKOrder::Largest => b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)),
                TopKOrder::Smallest => a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)),
            });
            for (rank, &(value, index)) in line[..to[axis]].iter().enumerate() {
                at[axis] = rank;
                expected.0[element(&results.view, &at)] = value;
                expected.1[element(&indices.view, &at)] = index;
            }
        }
        assert_eq!(
            (&found, places),
            (&expected.0, &expected.1[..]),
            "round {round}: {op:?}"
        );
    }
}

#[test]
fn positions_of_every_width_are_written() {
    let x = tensor(DType::F32, &[1.0, 5.0, 3.0, 5.0]);
    for dtype in [DType::I32, DType::I64] {
        let op = OpDesc::TopK(TopKDesc {
            src: dense(DType::F32, &[4]),
            values: dense(DType::F32, &[3]),
            indices: dense(dtype, &[3]),
            axis: 0,
            order: TopKOrder::Largest,
        });
        let found = run_everywhere(&op, 2, |_| vec![x.clone(), zeros(DType::F32, 3), zeros(dtype, 3)]);
        match dtype {
            DType::I32 => assert_eq!(found.as_slice::<i32>().unwrap(), [1, 3, 2]),
            _ => assert_eq!(found.as_slice::<i64>().unwrap(), [1, 3, 2]),
        }
    }
}

#[test]
fn segments_of_any_view_are_reduced_and_nothing_else_is_written() {
    let mut r = Random(52);
    for round in 0..40 {
        let (rows, columns, segments) = (r.range(0, 60), r.range(1, 40), r.range(0, 20));
        let dtypes = [
            r.pick(&[DType::F32, DType::Bf16]),
            r.pick(&[DType::F32, DType::Bf16]),
        ];
        let (input, len) = spread(&mut r, dtypes[0], &[rows, columns]);
        let (output, out_len) = spread(&mut r, dtypes[1], &[segments, columns]);
        let mut offsets: Vec<u32> = (0..=segments).map(|_| r.range(0, rows + 2) as u32).collect();
        if round % 4 > 0 {
            offsets.sort_unstable();
        }
        let kind = r.pick(&[SegmentOp::Max, SegmentOp::Min]);
        let op = OpDesc::SegmentReduce(SegmentReduceDesc {
            rows: input,
            offsets: dense(DType::U32, &[segments + 1]),
            output,
            kind,
            empty: Scalar::new(-3.0),
        });
        let x = random(&mut r, dtypes[0], len, 2.0);
        let before = random(&mut r, dtypes[1], out_len, 1.0);
        let table = HostTensor::from_slice(&[segments + 1], &offsets).unwrap();
        let found = values(&run_everywhere(&op, 2, |_| {
            vec![x.clone(), table.clone(), before.clone()]
        }));
        let given = values(&x);
        let mut expected = values(&before);
        for (segment, column) in (0..segments).flat_map(|s| (0..columns).map(move |c| (s, c))) {
            let ends = [segment, segment + 1].map(|at| (offsets[at] as usize).min(rows));
            let run = (ends[0]..ends[1]).map(|row| given[element(&input.view, &[row, column])]);
            let best = match kind {
                SegmentOp::Max => run.reduce(f64::max),
                _ => run.reduce(f64::min),
            };
            let best = best.unwrap_or(-3.0);
            expected[element(&output.view, &[segment, column])] = match dtypes[1] {
                DType::F32 => best,
                _ => half::bf16::from_f32(best as f32).to_f64(),
            };
        }
        assert_eq!(found, expected, "round {round}: {op:?}");
    }
}

#[test]
fn local_maxima_are_those_of_their_windows_whatever_lies_between_the_pixels() {
    let mut r = Random(53);
    for _ in 0..40 {
        let [n, c, h, w] = [r.range(1, 2), r.range(1, 12), r.range(1, 12), r.range(1, 14)];
        let kernel = r.pick(&[1, 3, 3, 5]);
        let dtype = r.pick(&[DType::F32, DType::Bf16]);
        let pitches = [0, 1].map(|_| c + r.pick(&[0, 0, 3]));
        let (input, len) = image(dtype, [n, c, h, w], pitches[0], pitches[0] - c);
        let (output, out_len) = image(dtype, [n, c, h, w], pitches[1], 0);
        let pooled: Arc<[bool]> = (0..c).map(|_| r.range(0, 2) > 0).collect();
        let fates = [Unpooled::Drop, Unpooled::Pass];
        let (border, others) = (r.pick(&fates), r.pick(&fates));
        let op = OpDesc::LocalMax(LocalMaxDesc {
            input,
            output,
            kernel,
            pooled: Arc::clone(&pooled),
            border,
            others,
        });
        let numbers: Vec<f32> = (0..len).map(|_| r.range(0, 5) as f32).collect();
        let (x, before) = (tensor(dtype, &numbers), random(&mut r, dtype, out_len, 1.0));
        let found = values(&run_everywhere(&op, 1, |_| vec![x.clone(), before.clone()]));
        let (given, mut expected) = (values(&x), values(&before));
        let p = kernel / 2;
        for at in positions(&[n, c, h, w]) {
            let value = given[element(&input.view, &at)];
            let whole = at[2] >= p && at[2] + p < h && at[3] >= p && at[3] + p < w;
            let kept = match (pooled[at[1]], whole) {
                (false, _) => others == Unpooled::Pass,
                (true, false) => border == Unpooled::Pass,
                (true, true) => positions(&[kernel, kernel]).iter().all(|d| {
                    let near = [at[0], at[1], at[2] + d[0] - p, at[3] + d[1] - p];
                    given[element(&input.view, &near)] <= value
                }),
            };
            expected[element(&output.view, &at)] = if kept { value } else { 0.0 };
        }
        assert_eq!(found, expected, "{op:?}");
    }
}

#[test]
fn samples_are_the_same_on_every_instruction_set_whatever_lies_between_the_pixels() {
    let mut r = Random(54);
    for _ in 0..20 {
        let [n, c, h, w] = [r.range(1, 2), r.range(1, 40), r.range(1, 9), r.range(1, 9)];
        let [oh, ow] = [r.range(1, 6), r.range(1, 6)];
        let dtype = r.pick(&[DType::F32, DType::Bf16]);
        let (input, len) = image(dtype, [n, c, h, w], c + r.pick(&[0, 5]), 0);
        let (output, out_len) = image(dtype, [n, c, oh, ow], c + r.pick(&[0, 2]), 0);
        let (grid, grid_len) = spread(&mut r, DType::F32, &[n, oh, ow, 2]);
        let op = OpDesc::GridSample(GridSampleDesc {
            input,
            grid,
            output,
            sampling: Sampling::Bilinear,
            outside: OutsidePixels::Zeros,
            align_corners: false,
            weights: SampleWeights::Exact,
        });
        let x = random(&mut r, dtype, len, 1.0);
        let places = random(&mut r, DType::F32, grid_len, 1.3);
        let before = random(&mut r, dtype, out_len, 1.0);
        let found = values(&run_everywhere(&op, 2, |_| {
            vec![x.clone(), places.clone(), before.clone()]
        }));
        let (given, places) = (values(&x), values(&places));
        let mut expected = values(&before);
        for at in positions(&[n, c, oh, ow]) {
            let pixel = |axis: usize, size: usize| {
                let place = places[element(&grid.view, &[at[0], at[2], at[3], axis])];
                ((place + 1.0) * size as f64 - 1.0) / 2.0
            };
            let (px, py) = (pixel(0, w), pixel(1, h));
            let near = |i: usize, p: f64| (1.0 - (i as f64 - p).abs()).max(0.0);
            expected[element(&output.view, &at)] = positions(&[h, w])
                .iter()
                .map(|i| {
                    near(i[0], py) * near(i[1], px) * given[element(&input.view, &[at[0], at[1], i[0], i[1]])]
                })
                .sum();
        }
        let tolerance = if dtype == DType::F32 { 3e-6 } else { 5e-3 };
        for (found, expected) in found.iter().zip(expected) {
            assert!(
                (found - expected).abs() <= tolerance,
                "{found} {expected}: {op:?}"
            );
        }
    }
}

fn refusal(op: OpDesc) -> String {
    match prepare(&op, Isa::detect()) {
        Err(DeviceError::InvalidOp { op: name, reason }) => {
            assert_eq!(name, op.name());
            reason
        }
        other => panic!("{op:?} gave {other:?}"),
    }
}

#[test]
fn descriptions_that_do_not_hold_together_are_refused() {
    type Spoil<T> = fn(&mut T);
    let topk = TopKDesc {
        src: dense(DType::F32, &[4, 9]),
        values: dense(DType::F32, &[4, 3]),
        indices: dense(DType::U32, &[4, 3]),
        axis: 1,
        order: TopKOrder::Largest,
    };
    let cases: [(&str, Spoil<TopKDesc>); 8] = [
        ("axis 2", |d| d.axis = 2),
        ("do not fit", |d| d.axis = 0),
        ("do not fit", |d| d.indices = dense(DType::U32, &[4, 4])),
        ("as many as are selected", |d| {
            d.values = dense(DType::F32, &[4, 10]);
            d.indices = dense(DType::U32, &[4, 10]);
        }),
        ("values bfloat16", |d| d.values.dtype = DType::Bf16),
        ("indices of float32", |d| d.indices.dtype = DType::F32),
        ("source holds uint8", |d| d.src.dtype = DType::U8),
        ("values may write one place twice", |d| {
            d.values.view.strides[0] = 1
        }),
    ];
    for (reason, spoil) in cases {
        let mut desc = topk.clone();
        spoil(&mut desc);
        let found = refusal(OpDesc::TopK(desc));
        assert!(found.contains(reason), "{found}: {reason}");
    }
    let split = SplitIndexDesc {
        index: dense(DType::U32, &[5]),
        major: dense(DType::U32, &[5]),
        minor: dense(DType::U32, &[5]),
        major_len: 3,
        minor_len: 4,
        clamp: true,
    };
    let cases: [(&str, Spoil<SplitIndexDesc>); 5] = [
        ("major holds int32", |d| d.major.dtype = DType::I32),
        ("minor has shape [6]", |d| d.minor = dense(DType::U32, &[6])),
        ("there must be one", |d| d.minor_len = 0),
        ("positions are uint32", |d| d.major_len = 1 << 31),
        ("twice", |d| d.minor.view.strides[0] = 0),
    ];
    for (reason, spoil) in cases {
        let mut desc = split.clone();
        spoil(&mut desc);
        let found = refusal(OpDesc::SplitIndex(desc));
        assert!(found.contains(reason), "{found}: {reason}");
    }
    let local = LocalMaxDesc {
        input: image(DType::F32, [1, 3, 5, 5], 3, 0).0,
        output: image(DType::F32, [1, 3, 5, 5], 3, 0).0,
        kernel: 3,
        pooled: [true; 3].into(),
        border: Unpooled::Drop,
        others: Unpooled::Pass,
    };
    let cases: [(&str, Spoil<LocalMaxDesc>); 5] = [
        ("sides are odd", |d| d.kernel = 2),
        ("at most 63", |d| d.kernel = 65),
        ("2 flags for 3 channels", |d| d.pooled = [true; 2].into()),
        ("output [1, 3, 5, 4]", |d| {
            d.output = image(DType::F32, [1, 3, 5, 4], 3, 0).0
        }),
        ("only float32 and bfloat16", |d| d.input.dtype = DType::F16),
    ];
    for (reason, spoil) in cases {
        let mut desc = local.clone();
        spoil(&mut desc);
        let found = refusal(OpDesc::LocalMax(desc));
        assert!(found.contains(reason), "{found}: {reason}");
    }
    let sample = GridSampleDesc {
        input: image(DType::F32, [2, 3, 5, 5], 3, 0).0,
        grid: dense(DType::F32, &[2, 4, 6, 2]),
        output: image(DType::F32, [2, 3, 4, 6], 3, 0).0,
        sampling: Sampling::Bilinear,
        outside: OutsidePixels::Zeros,
        align_corners: false,
        weights: SampleWeights::Exact,
    };
    let cases: [(&str, Spoil<GridSampleDesc>); 5] = [
        ("in bfloat16 they are off", |d| d.grid.dtype = DType::Bf16),
        ("expected [N, OH, OW, 2]", |d| {
            d.grid = dense(DType::F32, &[1, 4, 6, 2])
        }),
        ("differ in images or channels", |d| {
            d.input = image(DType::F32, [2, 4, 5, 5], 4, 0).0
        }),
        ("convert with a copy", |d| d.output.dtype = DType::Bf16),
        ("twice", |d| d.output.view.strides[3] = 0),
    ];
    for (reason, spoil) in cases {
        let mut desc = sample.clone();
        spoil(&mut desc);
        let found = refusal(OpDesc::GridSample(desc));
        assert!(found.contains(reason), "{found}: {reason}");
    }
    let segment = SegmentReduceDesc {
        rows: dense(DType::F32, &[9, 4]),
        offsets: dense(DType::U32, &[4]),
        output: dense(DType::F32, &[3, 4]),
        kind: SegmentOp::Max,
        empty: Scalar::new(0.0),
    };
    let cases: [(&str, Spoil<SegmentReduceDesc>); 5] = [
        ("do not fit", |d| d.output = dense(DType::F32, &[4, 4])),
        ("do not fit", |d| d.offsets = dense(DType::U32, &[0])),
        ("offsets of int32", |d| d.offsets.dtype = DType::I32),
        ("only float32 and bfloat16", |d| d.rows.dtype = DType::I32),
        ("twice", |d| d.output.view.strides[0] = 0),
    ];
    for (reason, spoil) in cases {
        let mut desc = segment.clone();
        spoil(&mut desc);
        let found = refusal(OpDesc::SegmentReduce(desc));
        assert!(found.contains(reason), "{found}: {reason}");
    }
}
