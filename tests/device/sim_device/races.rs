//! What is a race and what is none, and what becomes of one.

use std::time::Duration;

use sensorium::device::sim::SimCommand;
use sensorium::device::{
    BufferClass, BufferId, Cq, Device, DeviceError, EventId, HostSlot, OpDesc, Operand, Race, SimDevice,
};
use sensorium::tensor::{DType, Shape, View};

use super::harness::*;
use super::protocols::Bench;

#[test]
fn a_race_says_who_when_where_and_which_wait_is_missing() {
    let mut bench = Bench::new(1, Some(0));
    let (x, y) = (
        bench.buffer(BufferClass::Input),
        bench.buffer(BufferClass::Output),
    );
    bench.write(Cq::IO, y);
    bench.write(Cq::IO, x);
    bench.order(Cq::IO, Cq::COMPUTE);
    bench.copy(Cq::COMPUTE, y, y);
    let races = bench.device.races();
    assert_eq!(
        races[0].to_string(),
        "race for bytes 0x10000100..0x10000200: CQ1 upload (command 1) writes buffer 2 (Output); CQ0 copy (command 1) \
         reads buffer 2 (Output), with nothing to order them: CQ0 must wait for an event recorded on CQ1 after \
         upload (its command 1)"
    );
    assert_eq!(
        races.len(),
        1,
        "one race for one missing wait, however much the two share"
    );
    let Race { first, second, bytes } = &races[0];
    assert_eq!(
        (first.cq, first.command, first.sequence),
        (Cq::IO, SimCommand::Upload, 1)
    );
    assert_eq!(
        (second.cq, second.command, second.sequence),
        (Cq::COMPUTE, SimCommand::Copy, 1)
    );
    assert_eq!(*bytes, 0x1000_0100..0x1000_0200);

    bench.device.free(x).unwrap();
    let again = bench.buffer(BufferClass::State);
    bench.copy(Cq::COMPUTE, again, y);
    let race = bench.device.races().pop().unwrap().to_string();
    assert!(
        race.contains("writes buffer 1 (Input)") && race.contains("reads buffer 3 (State)"),
        "{race}"
    );
    assert!(
        race.contains("(the first object's memory was used again)"),
        "{race}"
    );
}

#[test]
fn by_default_a_race_fails_the_next_host_wait_once() {
    type Wait = fn(&mut SimDevice, EventId) -> Result<(), DeviceError>;
    let waits: [Wait; 3] = [
        |device, event| sync(device, event),
        |device, event| device.poll_event(event).map(drop),
        |device, _| device.drain(Duration::from_secs(1)),
    ];
    for wait in waits {
        let mut device = open(2, 1);
        let a = buffer(&mut device, BufferClass::Input);
        write(&mut device, Cq::IO, a, &[1.0; N]);
        write(&mut device, Cq::COMPUTE, a, &[2.0; N]);
        let event = device.record_event(Cq::COMPUTE).unwrap();
        let races = device.races();
        assert_eq!(races.len(), 1);
        let executed = device.virtual_now_ns();
        assert_eq!(
            wait(&mut device, event),
            Err(DeviceError::Race(Box::new(races[0].clone())))
        );
        assert_eq!(device.virtual_now_ns(), executed, "a refused wait does not wait");
        wait(&mut device, event).unwrap();
        assert_eq!(device.races(), races);
    }
    let mut bench = Bench::new(1, None);
    let a = bench.buffer(BufferClass::Input);
    bench.write(Cq::IO, a);
    bench.write(Cq::COMPUTE, a);
    bench.device.drain(Duration::from_secs(1)).unwrap();
    assert_eq!(bench.device.races().len(), 1);
}

#[test]
fn parts_of_one_buffer_that_do_not_touch_never_race() {
    // Two parts of a concatenation along the first axis, written from two queues, then read as a whole.
    let part = |offset: usize| Operand {
        dtype: DType::F32,
        view: View {
            offset,
            ..View::contiguous(Shape::new(&[N / 2]).unwrap())
        },
    };
    let fill = |offset| OpDesc::Fill {
        dst: part(offset),
        value: sensorium::device::Scalar::new(offset as f32),
    };
    for (second, expected) in [(N / 2, 0), (N / 2 - 1, 1)] {
        for seed in 0..10 {
            let mut bench = Bench::new(seed, None);
            let whole = bench.buffer(BufferClass::Output);
            launch(&mut bench.device, Cq::COMPUTE, &fill(0), &[whole]);
            launch(&mut bench.device, Cq::IO, &fill(second), &[whole]);
            assert_eq!(bench.device.races().len(), expected);
            if expected == 0 {
                bench.order(Cq::COMPUTE, Cq::IO);
                let slot = bench.read(Cq::IO, whole);
                bench.device.drain(Duration::from_secs(1)).unwrap();
                let values: &[f32] = bytemuck::cast_slice(slot.bytes().unwrap());
                assert_eq!(values[..N / 2], [0.0; N / 2]);
                assert_eq!(values[N / 2..], [(N / 2) as f32; N / 2]);
                assert_eq!(bench.device.races(), []);
            }
        }
    }
}

#[test]
fn every_operand_of_every_operation_is_watched() {
    use sensorium::device::{
        Activation, BinaryKind, Conv2dDesc, DenseLayer, Geometry2d, GridSampleDesc, LocalMaxDesc,
        OutsidePixels, PillarsDesc, Pool2dDesc, PoolKind, ResidualOrder, SampleWeights, Sampling, Scalar,
        SegmentOp, SegmentReduceDesc, SplitIndexDesc, TopKDesc, TopKOrder, Unpooled, WeightDesc,
    };
    use sensorium::precision::Math;
    let image = Operand {
        dtype: DType::F32,
        view: View::channels_last([1, 1, N, 1], 1, 0).unwrap(),
    };
    let geometry = Geometry2d {
        kernel: [1, 1],
        stride: [1, 1],
        dilation: [1, 1],
        pad_begin: [0, 0],
    };
    let conv = Conv2dDesc {
        input: image,
        output: image,
        residual: Some(image),
        residual_order: ResidualOrder::AfterActivation,
        geometry,
        groups: 1,
        activation: Activation::Identity,
        math: Math::Native,
    };
    let (src, dst) = (vector(), vector());
    let shaped = |dims: &[usize]| Operand {
        dtype: DType::F32,
        view: View::contiguous(Shape::new(dims).unwrap()),
    };
    let pillars = PillarsDesc {
        points: shaped(&[N, 1, 1]),
        output: shaped(&[N, 1]),
        hidden: None,
    };
    let indices: std::sync::Arc<[u32]> = (0..N as u32).collect();
    let index = Operand {
        dtype: DType::U32,
        ..src
    };
    // Operations with their operands: weights, or something that is read or written.
    let operations: Vec<(OpDesc, &str)> = vec![
        (OpDesc::Copy { src, dst }, "rw"),
        (
            OpDesc::Fill {
                dst,
                value: Scalar::new(1.0),
            },
            "w",
        ),
        (OpDesc::Conv2d(conv.clone()), "r#wr"),
        (
            OpDesc::Pool2d(Pool2dDesc {
                input: image,
                output: image,
                geometry,
                kind: PoolKind::Max,
            }),
            "rw",
        ),
        (
            OpDesc::ResizeNearest {
                src: image,
                dst: image,
                rows: indices.clone(),
                columns: [0].into(),
            },
            "rw",
        ),
        (
            OpDesc::Unary {
                src,
                dst,
                activation: Activation::Tanh,
            },
            "rw",
        ),
        (
            OpDesc::Binary {
                lhs: src,
                rhs: src,
                dst,
                kind: BinaryKind::Min,
            },
            "rrw",
        ),
        (OpDesc::Softmax { src, dst, axis: 0 }, "rw"),
        (
            OpDesc::Gather {
                src,
                dst,
                axis: 0,
                indices,
            },
            "rw",
        ),
        (
            OpDesc::GatherRows {
                table: shaped(&[N, 1]),
                index,
                dst: shaped(&[N, 1]),
            },
            "rrw",
        ),
        (OpDesc::Pillars(pillars.clone()), "r#w"),
        (
            OpDesc::TopK(TopKDesc {
                src,
                values: dst,
                indices: index,
                axis: 0,
                order: TopKOrder::Largest,
            }),
            "rww",
        ),
        (
            OpDesc::SplitIndex(SplitIndexDesc {
                index,
                major: index,
                minor: index,
                major_len: 2,
                minor_len: 3,
                clamp: true,
            }),
            "rww",
        ),
        (
            OpDesc::LocalMax(LocalMaxDesc {
                input: image,
                output: image,
                kernel: 1,
                pooled: [true].into(),
                border: Unpooled::Drop,
                others: Unpooled::Drop,
            }),
            "rw",
        ),
        (
            OpDesc::GridSample(GridSampleDesc {
                input: image,
                grid: shaped(&[1, N / 2, 1, 2]),
                output: shaped(&[1, 1, N / 2, 1]),
                sampling: Sampling::Bilinear,
                outside: OutsidePixels::Zeros,
                align_corners: false,
                weights: SampleWeights::Exact,
            }),
            "rrw",
        ),
        (
            OpDesc::SegmentReduce(SegmentReduceDesc {
                rows: shaped(&[N, 1]),
                offsets: index,
                output: shaped(&[N - 1, 1]),
                kind: SegmentOp::Max,
                empty: Scalar::new(0.0),
            }),
            "rrw",
        ),
    ];
    for (op, operands) in operations {
        for replayed in [false, true] {
            let mut bench = Bench::new(1, None);
            let weights = match op {
                OpDesc::Pillars(_) => WeightDesc::Pillars {
                    desc: &pillars,
                    first: DenseLayer {
                        weight: &[1.0],
                        bias: &[0.0],
                    },
                    second: None,
                },
                _ => WeightDesc::Conv2d {
                    desc: &conv,
                    weight: &[1.0],
                    bias: None,
                },
            };
            let weights = bench.device.prepare_weights(&weights).unwrap();
            let buffers: Vec<BufferId> = operands
                .chars()
                .map(|operand| match operand {
                    '#' => weights,
                    _ => bench.buffer(BufferClass::State),
                })
                .collect();
            let program = bench.device.compile(&op).unwrap();
            let mut slots = Vec::new();
            if replayed {
                let trace = capture(&mut bench.device, |device| {
                    device.launch(Cq::COMPUTE, program, &buffers).unwrap();
                });
                bench.device.replay(Cq::COMPUTE, trace).unwrap();
            } else {
                bench.device.launch(Cq::COMPUTE, program, &buffers).unwrap();
            }
            // Reading beside a read is fine, writing is not; both conflict with a write.
            for (operand, &id) in operands.chars().zip(&buffers) {
                let before = bench.device.races().len();
                let mut slot = HostSlot::new(4);
                bench.device.read(Cq::IO, id, 0, &mut slot, 4).unwrap();
                slots.push(slot);
                let read = bench.device.races().len() - before;
                assert_eq!(read, usize::from(operand == 'w'), "{op:?}, operand {id}");
                let slot = slot_of(&[1.0]);
                bench.device.write(Cq::IO, id, 0, &slot, 4).unwrap();
                assert_eq!(
                    bench.device.races().len() - before - read,
                    1,
                    "{op:?}, operand {id}"
                );
            }
        }
    }
}
