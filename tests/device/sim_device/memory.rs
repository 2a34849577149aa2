//! What must not be relied on is destroyed where it can be seen.

use std::time::Duration;

use sensorium::device::{BinaryKind, BufferClass, Cq, Device, DeviceError, OpDesc, SimConfig, SimDevice};

use super::harness::*;

/// A trace `b = a + a + a` with an intermediate; returns the trace and the intermediate's address.
fn tripling(device: &mut SimDevice) -> (sensorium::device::TraceId, u64, [sensorium::device::BufferId; 2]) {
    let (a, b) = (
        buffer(device, BufferClass::Input),
        buffer(device, BufferClass::Output),
    );
    write(device, Cq::COMPUTE, a, &[1.0; N]);
    device.compile(&add()).unwrap();
    let mut address = 0;
    let trace = capture(device, |device| {
        let middle = buffer(device, BufferClass::Intermediate);
        address = device.address(middle).unwrap();
        launch(device, Cq::COMPUTE, &add(), &[a, a, middle]);
        launch(device, Cq::COMPUTE, &add(), &[middle, a, b]);
        device.free(middle).unwrap();
    });
    (trace, address, [a, b])
}

#[test]
fn a_buffer_at_an_address_that_a_capture_freed_is_refused_or_destroyed() {
    for track_allocations in [true, false] {
        let mut device = SimDevice::open(&SimConfig {
            track_allocations,
            ..config(1, 1)
        })
        .unwrap();
        // Free memory at a lower address, which a first-fit allocator would take.
        let low = buffer(&mut device, BufferClass::Input);
        let (trace, address, [_, b]) = tripling(&mut device);
        device.free(low).unwrap();
        let late = buffer(&mut device, BufferClass::State);
        assert_eq!(
            device.address(late).unwrap(),
            address,
            "freed in a trace comes first"
        );
        write(&mut device, Cq::COMPUTE, late, &[7.0; N]);
        let replayed = device.replay(Cq::COMPUTE, trace);
        if track_allocations {
            assert!(
                matches!(&replayed, Err(DeviceError::UnsafeReplay { live, .. }) if live.buffers == [late]),
                "{replayed:?}"
            );
            assert_eq!(read(&mut device, Cq::COMPUTE, late), [7.0; N]);
            device.acknowledge(late).unwrap();
            device.replay(Cq::COMPUTE, trace).unwrap();
        } else {
            replayed.unwrap();
        }
        assert!(read(&mut device, Cq::COMPUTE, late).iter().all(|v| v.is_nan()));
        assert_eq!(read(&mut device, Cq::COMPUTE, b), [3.0; N]);
    }
}

#[test]
fn an_output_that_reuses_a_freed_address_in_its_own_capture_survives_the_replay() {
    let mut device = open(1, 1);
    let a = buffer(&mut device, BufferClass::Input);
    write(&mut device, Cq::COMPUTE, a, &[1.0; N]);
    device.compile(&add()).unwrap();
    let mut output = None;
    let trace = capture(&mut device, |device| {
        let first = buffer(device, BufferClass::Intermediate);
        launch(device, Cq::COMPUTE, &add(), &[a, a, first]);
        let second = buffer(device, BufferClass::Intermediate);
        launch(device, Cq::COMPUTE, &add(), &[first, first, second]);
        let address = device.address(first).unwrap();
        device.free(first).unwrap();
        let out = buffer(device, BufferClass::Output);
        assert_eq!(device.address(out).unwrap(), address);
        launch(device, Cq::COMPUTE, &add(), &[second, second, out]);
        device.free(second).unwrap();
        output = Some(out);
    });
    for _ in 0..3 {
        device.replay(Cq::COMPUTE, trace).unwrap();
        assert_eq!(read(&mut device, Cq::COMPUTE, output.unwrap()), [8.0; N]);
    }
}

#[test]
fn a_trace_cannot_use_what_a_former_replay_left_in_its_intermediates() {
    let mut device = open(1, 1);
    let (a, b) = (
        buffer(&mut device, BufferClass::Input),
        buffer(&mut device, BufferClass::Output),
    );
    write(&mut device, Cq::COMPUTE, a, &[1.0; N]);
    device.compile(&add()).unwrap();
    let mut address = 0;
    // Adds to memory that it never sets: the sum of former frames on a device that keeps it.
    let trace = capture(&mut device, |device| {
        let sum = buffer(device, BufferClass::Intermediate);
        launch(device, Cq::COMPUTE, &add(), &[a, sum, sum]);
        launch(device, Cq::COMPUTE, &add(), &[sum, a, b]);
        address = device.address(sum).unwrap();
        device.free(sum).unwrap();
    });
    // Nor what somebody else put there.
    let guest = buffer(&mut device, BufferClass::State);
    assert_eq!(device.address(guest).unwrap(), address);
    device.acknowledge(guest).unwrap();
    for _ in 0..2 {
        write(&mut device, Cq::COMPUTE, guest, &[5.0; N]);
        device.replay(Cq::COMPUTE, trace).unwrap();
        assert!(read(&mut device, Cq::COMPUTE, b).iter().all(|v| v.is_nan()));
    }
}

#[test]
fn new_buffers_hold_nan_and_keep_what_was_written_beside() {
    let mut device = open(2, 3);
    let mut old = buffer(&mut device, BufferClass::Input);
    write(&mut device, Cq::COMPUTE, old, &[4.0; N]);
    assert_eq!(read(&mut device, Cq::COMPUTE, old), [4.0; N]);
    for freed_before_it_is_read in [false, true] {
        let address = device.address(old).unwrap();
        device.free(old).unwrap();
        let new = buffer(&mut device, BufferClass::Input);
        assert_eq!(device.address(new).unwrap(), address);
        let mut slot = device.host_slot(N * 4).unwrap();
        device.read(Cq::COMPUTE, new, 0, &mut slot, N * 4).unwrap();
        if freed_before_it_is_read {
            device.free(new).unwrap();
        }
        device.drain(Duration::from_secs(1)).unwrap();
        let values: &[f32] = bytemuck::cast_slice(slot.bytes().unwrap());
        assert!(values.iter().all(|v| v.is_nan()));
        if !freed_before_it_is_read {
            write(&mut device, Cq::COMPUTE, new, &[4.0; N]);
            old = new;
        }
    }
    // Halves written from two queues, in any order.
    for seed in 0..20 {
        let mut device = open(2, seed);
        let a = buffer(&mut device, BufferClass::Input);
        let half = N * 4 / 2;
        let (low, high) = (slot_of(&[1.0; N / 2]), slot_of(&[2.0; N / 4]));
        device.write(Cq::COMPUTE, a, 0, &low, half).unwrap();
        device.write(Cq::IO, a, half, &high, half / 2).unwrap();
        device.drain(Duration::from_secs(1)).unwrap();
        let values = read(&mut device, Cq::COMPUTE, a);
        assert_eq!(values[..N / 2], [1.0; N / 2]);
        assert_eq!(values[N / 2..N * 3 / 4], [2.0; N / 4]);
        assert!(values[N * 3 / 4..].iter().all(|v| v.is_nan()));
        assert!(device.races().is_empty());
    }
}

#[test]
fn memory_that_enqueued_commands_still_use_may_be_given_to_commands_behind_them() {
    for seed in 0..20 {
        let mut device = open(1, seed);
        let (a, b) = (
            buffer(&mut device, BufferClass::Input),
            buffer(&mut device, BufferClass::Output),
        );
        write(&mut device, Cq::COMPUTE, a, &[1.0; N]);
        let first = buffer(&mut device, BufferClass::Intermediate);
        launch(&mut device, Cq::COMPUTE, &add(), &[a, a, first]);
        launch(&mut device, Cq::COMPUTE, &add(), &[first, a, b]);
        let address = device.address(first).unwrap();
        device.free(first).unwrap();
        let second = buffer(&mut device, BufferClass::Intermediate);
        assert_eq!(device.address(second).unwrap(), address);
        launch(&mut device, Cq::COMPUTE, &add(), &[b, b, second]);
        assert_eq!(read(&mut device, Cq::COMPUTE, second), [6.0; N]);
        assert_eq!(read(&mut device, Cq::COMPUTE, b), [3.0; N]);
    }
}

#[test]
fn weights_are_whole_from_the_start() {
    use sensorium::device::{Activation, Conv2dDesc, Geometry2d, Operand, ResidualOrder, WeightDesc};
    use sensorium::precision::Math;
    use sensorium::tensor::{DType, TensorSpec, View};
    let mut device = open(1, 1);
    let operand = Operand {
        dtype: DType::F32,
        view: View::channels_last([1, 1, N, 1], 1, 0).unwrap(),
    };
    let conv = Conv2dDesc {
        input: operand,
        output: operand,
        residual: None,
        residual_order: ResidualOrder::AfterActivation,
        geometry: Geometry2d {
            kernel: [1, 1],
            stride: [1, 1],
            dilation: [1, 1],
            pad_begin: [0, 0],
        },
        groups: 1,
        activation: Activation::Identity,
        math: Math::Native,
    };
    let input = device
        .alloc(&TensorSpec::new(&[N], DType::F32).unwrap(), BufferClass::Input)
        .unwrap();
    let output = buffer(&mut device, BufferClass::Output);
    write(&mut device, Cq::COMPUTE, input, &[2.0; N]);
    // Memory that an enqueued command still uses.
    let old = buffer(&mut device, BufferClass::Intermediate);
    let copy = OpDesc::Copy {
        src: vector(),
        dst: vector(),
    };
    launch(&mut device, Cq::COMPUTE, &copy, &[input, old]);
    device.free(old).unwrap();
    let weights = device
        .prepare_weights(&WeightDesc::Conv2d {
            desc: &conv,
            weight: &[5.0],
            bias: Some(&[0.5]),
        })
        .unwrap();
    launch(
        &mut device,
        Cq::COMPUTE,
        &OpDesc::Conv2d(conv),
        &[input, weights, output],
    );
    assert_eq!(read(&mut device, Cq::COMPUTE, output), [10.5; N]);
    let doubled = OpDesc::Binary {
        lhs: vector(),
        rhs: vector(),
        dst: vector(),
        kind: BinaryKind::Mul,
    };
    launch(&mut device, Cq::COMPUTE, &doubled, &[output, input, output]);
    assert_eq!(read(&mut device, Cq::COMPUTE, output), [21.0; N]);
}
