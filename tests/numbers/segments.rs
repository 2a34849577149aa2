//! Reductions over runs of rows: against their definition, the log-step form, and damaged offsets.

use crate::blocks;
use crate::graphs;
use std::sync::Arc;

use half::bf16;
use ndarray::{Array2, ArrayView2};
use sensorium::device::{BufferClass, Cq, SegmentOp};
use sensorium::ops::gather::gather_rows;
use sensorium::ops::segment::{
    SegmentError, SegmentReduce, SegmentReduceSpec, check_offsets, logstep_segment_max,
    logstep_segment_max_host, segment_last_rows, segment_offsets, segment_reduce_host, segment_rounds,
    segment_shift_tables, worker_segments,
};
use sensorium::ops::{OpContext, OpRefusal, PortRule};
use sensorium::tensor::{DType, HostTensor};
use sensorium::trace::TraceContext;

use blocks::{cpu, everywhere, numbers, stored, unit};
use graphs::Random;

/// Sorted segment numbers with empty segments, short and long ones, and padding behind.
fn ids(r: &mut Random, segments: usize, longest: usize, rows: usize) -> Vec<u32> {
    let mut ids = Vec::new();
    for segment in 0..segments as u32 {
        let count = match r.below(5) {
            0 => 0,
            1 => 1,
            _ => 1 + r.below(longest),
        };
        ids.extend(std::iter::repeat_n(segment, count));
    }
    ids.truncate(rows);
    ids.resize(rows, segments as u32);
    ids
}

fn spec(rows: usize, channels: usize, segments: usize, op: SegmentOp) -> SegmentReduceSpec {
    SegmentReduceSpec {
        rows,
        channels,
        segments,
        input: DType::F32,
        output: DType::F32,
        op,
        empty_value: 0.0,
        port_rule: PortRule::Here,
    }
}

fn reduce(spec: SegmentReduceSpec, rows: &HostTensor, offsets: &[u32]) -> HostTensor {
    let inputs = [
        ("rows", rows.clone()),
        (
            "offsets",
            HostTensor::from_slice(&[1, offsets.len()], offsets).unwrap(),
        ),
    ];
    let mut found = everywhere(&inputs, || {
        let reduce = SegmentReduce::new(spec).unwrap();
        Arc::new(move |context: &mut TraceContext<'_>| {
            let (rows, offsets) = (context.input("rows")?, context.input("offsets")?);
            Ok(vec![(
                "y".to_owned(),
                reduce.forward(context.ops(), &rows, &offsets)?,
            )])
        })
    });
    found.remove(0)
}

/// The definition, row by row: every row looks for its segment.
fn literal(
    rows: ArrayView2<'_, f64>,
    ids: &[u32],
    segments: usize,
    op: SegmentOp,
    empty: f64,
) -> Array2<f64> {
    let mut found: Array2<Option<f64>> = Array2::from_elem((segments, rows.ncols()), None);
    let mut counts = vec![0.0; segments];
    for (row, &id) in rows
        .outer_iter()
        .zip(ids)
        .filter(|&(_, &id)| (id as usize) < segments)
    {
        counts[id as usize] += 1.0;
        for (place, &value) in found.row_mut(id as usize).iter_mut().zip(row) {
            *place = Some(match (*place, op) {
                (None, _) => value,
                (Some(before), SegmentOp::Max) => before.max(value),
                (Some(before), SegmentOp::Min) => before.min(value),
                (Some(before), SegmentOp::Sum | SegmentOp::Mean) => before + value,
            });
        }
    }
    Array2::from_shape_fn(found.dim(), |(segment, c)| match (found[[segment, c]], op) {
        (None, _) => empty,
        (Some(sum), SegmentOp::Mean) => sum / counts[segment],
        (Some(value), _) => value,
    })
}

#[test]
fn every_reduction_follows_its_definition_in_both_types() {
    let mut r = Random(1);
    let sizes = [
        (64, 32, 6, 20),
        (2048, 128, 300, 12),
        (500, 7, 40, 60),
        (96, 33, 1, 90),
        (32, 32, 70, 3),
    ];
    for (rows, channels, segments, longest) in sizes {
        let ids = ids(&mut r, segments, longest, rows);
        let offsets = segment_offsets(&ids, segments).unwrap();
        let offsets = check_offsets(&offsets, segments, rows, Some(segments + 9)).unwrap();
        let values: Vec<f32> = (0..rows * channels).map(|_| unit(&mut r) * 3.0).collect();
        for op in [SegmentOp::Max, SegmentOp::Min, SegmentOp::Sum, SegmentOp::Mean] {
            for (input, output) in [
                (DType::F32, DType::F32),
                (DType::F32, DType::Bf16),
                (DType::Bf16, DType::F32),
                (DType::Bf16, DType::Bf16),
            ] {
                let x = stored(input, &[1, 1, rows, channels], &values);
                let spec = SegmentReduceSpec {
                    input,
                    output,
                    empty_value: -2.5,
                    ..spec(rows, channels, segments, op)
                };
                let found = numbers(&reduce(spec, &x, &offsets));
                let exact = Array2::from_shape_vec((rows, channels), numbers(&x)).unwrap();
                let exact = literal(exact.view(), &ids, segments, op, -2.5);
                let given: Vec<f32> = numbers(&x).iter().map(|&v| v as f32).collect();
                let given = Array2::from_shape_vec((rows, channels), given).unwrap();
                let twin = segment_reduce_host(given.view(), &offsets[..=segments], op, -2.5);
                for ((&found, &exact), &twin) in found.iter().zip(&exact).zip(&twin) {
                    assert!((f64::from(twin) - exact).abs() <= 1e-6 * exact.abs().max(1.0));
                    let rounded = match output {
                        DType::F32 => f64::from(exact as f32),
                        _ => bf16::from_f32(exact as f32).to_f64(),
                    };
                    match op {
                        SegmentOp::Max | SegmentOp::Min => assert_eq!(found, rounded),
                        _ if output == DType::F32 => {
                            assert!(
                                (found - exact).abs() <= 2e-5 * exact.abs().max(1.0),
                                "{found} {exact}"
                            );
                        }
                        _ => assert!(
                            (found - exact).abs() <= exact.abs() / 200.0 + 1e-3,
                            "{found} {exact}"
                        ),
                    }
                }
            }
        }
    }
}

#[test]
fn the_log_step_form_has_the_same_bits() {
    let mut r = Random(2);
    for (rows, channels, segments, longest) in [(512, 32, 60, 16), (300, 5, 9, 70), (40, 32, 50, 1)] {
        let ids = ids(&mut r, segments, longest, rows);
        let offsets = segment_offsets(&ids, segments).unwrap();
        let most = offsets.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap();
        let rounds = segment_rounds(most as usize);
        assert!(1_usize << rounds >= most as usize && (rounds == 0 || 1 << (rounds - 1) < most));
        let tables = segment_shift_tables(&ids, rounds);
        let last = segment_last_rows(&offsets, rows as u32);
        for dtype in [DType::Bf16, DType::F32] {
            let values: Vec<f32> = (0..rows * channels).map(|_| unit(&mut r) - 0.2).collect();
            let x = stored(dtype, &[rows, channels], &values);
            let spec = SegmentReduceSpec {
                input: dtype,
                output: dtype,
                ..spec(rows, channels, segments, SegmentOp::Max)
            };
            let direct = reduce(spec, &x, &offsets);
            let mut inputs = vec![
                ("rows".to_owned(), x.clone()),
                (
                    "last".to_owned(),
                    HostTensor::from_slice(&[segments], &last).unwrap(),
                ),
            ];
            for (round, table) in tables.iter().enumerate() {
                inputs.push((
                    format!("shift{round}"),
                    HostTensor::from_slice(&[rows], table).unwrap(),
                ));
            }
            let inputs: Vec<_> = inputs
                .iter()
                .map(|(name, tensor)| (&**name, tensor.clone()))
                .collect();
            let stepped = everywhere(&inputs, || {
                Arc::new(move |context: &mut TraceContext<'_>| {
                    let (rows, last) = (context.input("rows")?, context.input("last")?);
                    let tables: Result<Vec<_>, _> = (0..rounds)
                        .map(|round| context.input(&format!("shift{round}")))
                        .collect();
                    let y = logstep_segment_max(context.ops(), &rows, &tables?, &last)?;
                    Ok(vec![("y".to_owned(), y)])
                })
            });
            assert_eq!(stepped[0].bytes(), direct.bytes());
            let given: Vec<f32> = numbers(&x).iter().map(|&v| v as f32).collect();
            let given = Array2::from_shape_vec((rows, channels), given).unwrap();
            let host = logstep_segment_max_host(given.view(), &tables, &last);
            let host: Vec<f64> = host.iter().map(|&v| v.into()).collect();
            assert_eq!(numbers(&direct), host);
        }
    }
    assert_eq!([0, 1, 2, 3, 4, 5, 500].map(segment_rounds), [0, 0, 1, 2, 2, 3, 9]);
}

#[test]
fn zeros_of_both_signs_and_what_is_no_number_have_their_place_in_the_order() {
    let (plus, minus) = (f32::NAN, -f32::NAN);
    let rows = [
        0.0,
        -0.0,
        -0.0,
        0.0,
        -0.0,
        -0.0,
        f32::INFINITY,
        plus,
        f32::NEG_INFINITY,
        minus,
    ];
    let x = HostTensor::from_slice(&[10, 1], &rows).unwrap();
    let offsets = [0, 2, 4, 6, 8, 10];
    let bits = |op| -> Vec<u32> {
        let found = reduce(spec(10, 1, 5, op), &x, &offsets);
        found
            .as_slice::<f32>()
            .unwrap()
            .iter()
            .map(|v| v.to_bits())
            .collect()
    };
    let expected = [0.0, 0.0, -0.0, plus, f32::NEG_INFINITY].map(f32::to_bits);
    assert_eq!(bits(SegmentOp::Max), expected);
    let expected = [-0.0, -0.0, -0.0, f32::INFINITY, minus].map(f32::to_bits);
    assert_eq!(bits(SegmentOp::Min), expected);
}

#[test]
fn damaged_offsets_stay_inside_the_rows_and_give_one_result() {
    let mut r = Random(3);
    let (rows, channels, segments) = (400, 8, 90);
    let values: Vec<f32> = (0..rows * channels).map(|_| unit(&mut r)).collect();
    let x = stored(DType::F32, &[rows, channels], &values);
    let exact = Array2::from_shape_vec((rows, channels), values).unwrap();
    for round in 0..6 {
        let offsets: Vec<u32> = (0..=segments)
            .map(|_| match r.below(4) {
                0 => u32::MAX - r.below(3) as u32,
                1 => rows as u32 + r.below(1000) as u32,
                _ => r.below(rows + 1) as u32,
            })
            .collect();
        for op in [SegmentOp::Max, SegmentOp::Sum] {
            let found = reduce(spec(rows, channels, segments, op), &x, &offsets);
            let found = found.as_slice::<f32>().unwrap();
            for segment in 0..segments {
                let ends = [segment, segment + 1].map(|at| (offsets[at] as usize).min(rows));
                for c in 0..channels {
                    let values = (ends[0]..ends[1]).map(|row| exact[[row, c]]);
                    let expected = match op {
                        _ if ends[0] >= ends[1] => 0.0,
                        SegmentOp::Max => values.reduce(f32::max).unwrap(),
                        _ => values.reduce(|sum, value| sum + value).unwrap(),
                    };
                    assert_eq!(found[segment * channels + c], expected, "round {round}");
                }
            }
        }
    }
}

#[test]
fn rows_of_a_frame_become_a_table_to_gather_from() {
    let mut r = Random(4);
    let (rows, segments) = (96, 20);
    let ids = ids(&mut r, segments, 6, rows);
    let offsets = segment_offsets(&ids, segments).unwrap();
    let values: Vec<f32> = (0..rows * 32).map(|_| unit(&mut r)).collect();
    let inputs = [
        (
            "rows",
            HostTensor::from_slice(&[1, 1, rows, 32], &values).unwrap(),
        ),
        (
            "offsets",
            HostTensor::from_slice(&[1, segments + 1], &offsets).unwrap(),
        ),
        ("ids", HostTensor::from_slice(&[1, rows], &ids).unwrap()),
    ];
    let spec = SegmentReduceSpec {
        port_rule: PortRule::Accelerator,
        ..spec(rows, 32, segments, SegmentOp::Max)
    };
    let found = everywhere(&inputs, || {
        let reduce = SegmentReduce::new(spec).unwrap();
        Arc::new(move |context: &mut TraceContext<'_>| {
            let [rows, offsets, ids] = [
                context.input("rows")?,
                context.input("offsets")?,
                context.input("ids")?,
            ];
            let table = reduce.forward(context.ops(), &rows, &offsets)?;
            let back = gather_rows(context.ops(), &table, &ids)?;
            context.ops().free(&table)?;
            Ok(vec![("y".to_owned(), back)])
        })
    });
    for (row, found) in found[0].as_slice::<f32>().unwrap().chunks_exact(32).enumerate() {
        for (c, &found) in found.iter().enumerate() {
            let same = (0..rows).filter(|&other| ids[other] == ids[row]);
            let best = same.map(|other| values[other * 32 + c]).reduce(f32::max).unwrap();
            assert_eq!(found, if ids[row] as usize == segments { 0.0 } else { best });
        }
    }
}

#[test]
fn every_segment_has_one_worker() {
    let mut r = Random(5);
    for workers in [1, 2, 7, 240] {
        let ids = ids(&mut r, 200, 9, 900);
        let offsets = segment_offsets(&ids, 200).unwrap();
        let parts = worker_segments(&offsets, 900, workers);
        assert_eq!((parts[0].start, parts[workers - 1].end), (0, 200));
        assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
        let steps = 1100_usize.div_ceil(workers);
        for part in parts.iter().filter(|part| !part.is_empty()) {
            // All but the last of a worker's segments fit its share.
            let cost =
                offsets[part.end - 1] as usize + part.end - 1 - offsets[part.start] as usize - part.start;
            assert!(cost <= steps, "{part:?} of {workers}");
        }
    }
}

#[test]
fn offsets_are_checked_before_they_are_used() {
    assert_eq!(
        segment_offsets(&[0, 0, 2, 2, 2, 4, 9], 4).unwrap(),
        [0, 2, 2, 5, 5]
    );
    assert_eq!(segment_offsets(&[], 2).unwrap(), [0, 0, 0]);
    assert_eq!(
        segment_offsets(&[0, 2, 1], 3).unwrap_err().to_string(),
        "row 2 belongs to segment 1, behind a row of segment 2: rows are sorted by segment"
    );
    assert_eq!(check_offsets(&[0, 2, 5], 2, 5, Some(5)).unwrap(), [0, 2, 5, 5, 5]);
    let error = |offsets: &[u32], length| check_offsets(offsets, 2, 5, length).unwrap_err();
    assert_eq!(
        error(&[0, 2], None),
        SegmentError::Count {
            found: 2,
            segments: 2
        }
    );
    assert_eq!(
        error(&[], None),
        SegmentError::Count {
            found: 0,
            segments: 2
        }
    );
    assert_eq!(error(&[1, 2, 3], None), SegmentError::First(1));
    assert_eq!(
        error(&[0, 3, 2], None).to_string(),
        "offset 2 is 2, below the 3 before it: offsets do not decrease"
    );
    assert_eq!(error(&[0, 3, 6], None), SegmentError::Rows { last: 6, rows: 5 });
    assert_eq!(
        error(&[0, 3, 4], Some(2)),
        SegmentError::Length { length: 2, needed: 3 }
    );
}

#[test]
fn reductions_that_cannot_be_are_refused() {
    let good = spec(64, 32, 4, SegmentOp::Max);
    let refused = |spec: SegmentReduceSpec| SegmentReduce::new(spec).unwrap_err();
    let error = refused(SegmentReduceSpec {
        input: DType::U8,
        ..good
    });
    assert!(
        error
            .to_string()
            .contains("rows of uint8: float32 and bfloat16 are reduced"),
        "{error}"
    );
    let port = SegmentReduceSpec {
        port_rule: PortRule::Accelerator,
        ..good
    };
    let error = refused(SegmentReduceSpec {
        op: SegmentOp::Sum,
        ..port
    });
    assert!(matches!(error, OpRefusal::Unportable { .. }), "{error}");
    let error = refused(SegmentReduceSpec { channels: 33, ..port });
    assert!(error.to_string().contains("multiples of 32"), "{error}");
    assert!(SegmentReduce::new(port).is_ok());
    let reduce = SegmentReduce::new(good).unwrap();
    let mut device = cpu(1);
    let mut ops = OpContext::new(&mut device, Cq::COMPUTE);
    let rows = stored(DType::F32, &[64, 32], &[0.0; 64 * 32]);
    let rows = ops.upload(&rows, BufferClass::Input).unwrap();
    let short = ops
        .upload(
            &HostTensor::from_slice(&[4], &[0_u32; 4]).unwrap(),
            BufferClass::Input,
        )
        .unwrap();
    let floats = ops
        .upload(&stored(DType::F32, &[5], &[0.0; 5]), BufferClass::Input)
        .unwrap();
    let before = ops.device.memory().used_bytes;
    let error = reduce.forward(&mut ops, &rows, &short).unwrap_err();
    assert!(error.to_string().contains("at least 5 entries"), "{error}");
    let error = reduce.forward(&mut ops, &rows, &floats).unwrap_err();
    assert!(matches!(error, OpRefusal::DType { .. }), "{error}");
    let error = reduce.forward(&mut ops, &short, &short).unwrap_err();
    assert!(matches!(error, OpRefusal::DType { .. }), "{error}");
    assert_eq!(ops.device.memory().used_bytes, before);
}
