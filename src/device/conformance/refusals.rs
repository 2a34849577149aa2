//! Calls that cannot be done: refused, and nothing has happened.

use super::Open;
use super::subject::{N, Subject, add, floats, relu, values};
use super::verdict::{Stop, equal, refused, same_bits};
use crate::device::{
    Activation, BufferClass, Conv2dDesc, Cq, DeviceError, Geometry2d, Operand, ResidualOrder, WeightDesc,
};
use crate::precision::Math;
use crate::tensor::{DType, View};

const BYTES: usize = N * size_of::<f32>();

pub(super) fn bytes_outside_a_buffer_or_slot_are_refused(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let a = subject.filled(BufferClass::Input, &[1.0; N])?;
    let neighbour = subject.filled(BufferClass::Input, &[2.0; N])?;
    let long = subject.slot(&[9.0; 2 * N])?;
    let mut short = subject.slot(&[8.0; 2])?;
    let outside = [
        (0, BYTES + 1),
        (1, BYTES),
        (BYTES, 1),
        (BYTES + 1, 0),
        (BYTES - 4, 8),
        (usize::MAX, 0),
        (usize::MAX, 1),
        (usize::MAX - 3, 8),
        (8, usize::MAX),
        (0, usize::MAX),
        (usize::MAX, usize::MAX),
    ];
    for cq in subject.queues() {
        for (offset, len) in outside {
            let written = subject.device.write(cq, a, offset, &long, len);
            refused!(
                format!("writing {len} bytes at {offset}"),
                written,
                OutOfRange { .. }
            );
            let mut target = subject.slot(&[7.0; 2 * N])?;
            let read = subject.device.read(cq, a, offset, &mut target, len);
            refused!(
                format!("reading {len} bytes at {offset}"),
                read,
                OutOfRange { .. }
            );
            equal("the slot of a refused read", &values(&target)?, &vec![7.0; 2 * N])?;
        }
        let written = subject.device.write(cq, a, 0, &short, 12);
        refused!("writing more than the slot has", written, OutOfRange { .. });
        let read = subject.device.read(cq, a, 0, &mut short, 12);
        refused!("reading more than the slot holds", read, OutOfRange { .. });
        subject.drain()?;
        same_bits("a buffer after the refusals", &subject.read(cq, a)?, &[1.0; N])?;
        same_bits("its neighbour", &subject.read(cq, neighbour)?, &[2.0; N])?;
    }
    // Inside, offsets count bytes of the buffer.
    subject.device.write(Cq::COMPUTE, a, BYTES - 8, &short, 8)?;
    let mut expected = vec![1.0; N];
    expected[N - 2..].fill(8.0);
    same_bits("the end of a buffer", &subject.read(Cq::COMPUTE, a)?, &expected)?;
    let mut tail = subject.slot(&[0.0; 2])?;
    subject.device.read(Cq::COMPUTE, a, BYTES - 12, &mut tail, 8)?;
    subject.drain()?;
    equal("a part of a buffer", &values(&tail)?, &vec![1.0, 8.0])
}

pub(super) fn copies_need_buffers_of_one_size(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let a = subject.filled(BufferClass::State, &[1.0; N])?;
    let small = subject.filled(BufferClass::Bank, &[2.0; N / 2])?;
    refused!(
        "a copy into less",
        subject.device.copy(Cq::COMPUTE, a, small),
        OutOfRange { .. }
    );
    refused!(
        "a copy into more",
        subject.device.copy(Cq::COMPUTE, small, a),
        OutOfRange { .. }
    );
    subject.drain()?;
    same_bits("the larger", &subject.read(Cq::COMPUTE, a)?, &[1.0; N])?;
    let half = subject.read_some(Cq::COMPUTE, small, N / 2)?;
    same_bits("the smaller", &half, &[2.0; N / 2])?;
    let bank = subject.filled(BufferClass::Bank, &[5.0; N])?;
    for cq in subject.queues() {
        subject.device.copy(cq, bank, a)?;
        same_bits("a copy of one size", &subject.read(cq, a)?, &[5.0; N])?;
        subject.device.copy(cq, a, a)?;
        same_bits("a copy onto itself", &subject.read(cq, a)?, &[5.0; N])?;
    }
    Ok(())
}

pub(super) fn bindings_that_do_not_fit_are_refused(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let a = subject.filled(BufferClass::Input, &[1.0; N])?;
    let b = subject.filled(BufferClass::Output, &[0.0; N])?;
    let small = subject.filled(BufferClass::Output, &[2.0; N - 1])?;
    let program = subject.device.compile(&add()?)?;
    let wrong = [
        vec![],
        vec![a],
        vec![a, b],
        vec![a, a, b, b],
        vec![small, a, b],
        vec![a, small, b],
        vec![a, a, small],
    ];
    for (index, buffers) in wrong.iter().enumerate() {
        let launched = subject.device.launch(Cq::COMPUTE, program, buffers);
        refused!(format!("wrong binding {index}"), launched, InvalidBinding { .. });
    }
    subject.drain()?;
    same_bits(
        "an output after the refusals",
        &subject.read(Cq::COMPUTE, b)?,
        &[0.0; N],
    )?;
    let kept = subject.read_some(Cq::COMPUTE, small, N - 1)?;
    same_bits("a buffer that is too small", &kept, &[2.0; N - 1])?;
    // Larger than needed is large enough.
    let large = subject.filled(BufferClass::Output, &[0.0; N + 1])?;
    subject.device.launch(Cq::COMPUTE, program, &[a, a, large])?;
    let mut expected = vec![2.0; N];
    expected.push(0.0);
    let sum = subject.read_some(Cq::COMPUTE, large, N + 1)?;
    same_bits("a buffer that is larger than needed", &sum, &expected)
}

pub(super) fn weights_of_another_size_are_refused(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let operand = |channels| -> Result<Operand, DeviceError> {
        Ok(Operand {
            dtype: DType::F32,
            view: View::channels_last([1, channels, 4, 4], channels, 0)?,
        })
    };
    let desc = Conv2dDesc {
        input: operand(2)?,
        output: operand(3)?,
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
    let before = subject.device.memory();
    let wrong: [(&[f32], Option<&[f32]>); 4] = [
        (&[1.0; 5], None),
        (&[1.0; 7], None),
        (&[], None),
        (&[1.0; 6], Some(&[0.0; 2])),
    ];
    for (weight, bias) in wrong {
        let prepared = subject.device.prepare_weights(&WeightDesc::Conv2d {
            desc: &desc,
            weight,
            bias,
        });
        refused!(
            format!(
                "{} weights instead of 6, bias {bias:?} for 3 filters",
                weight.len()
            ),
            prepared,
            InvalidOp { .. }
        );
    }
    equal("memory after the refusals", &subject.device.memory(), &before)?;
    let weights = subject.device.prepare_weights(&WeightDesc::Conv2d {
        desc: &desc,
        weight: &[1.0; 6],
        bias: Some(&[0.0; 3]),
    })?;
    subject.device.free(weights)?;
    equal(
        "memory after right ones were freed",
        &subject.device.memory(),
        &before,
    )
}

pub(super) fn a_freed_buffer_is_unknown(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let a = subject.filled(BufferClass::Input, &[1.0; N])?;
    let gone = subject.buffer(BufferClass::State)?;
    subject.device.free(gone)?;
    // One at the same place is another one.
    let new = subject.filled(BufferClass::State, &[3.0; N])?;
    let program = subject.device.compile(&relu()?)?;
    let mut slot = subject.slot(&[9.0; N])?;
    let device = &mut subject.device;
    refused!("freeing twice", device.free(gone), UnknownBuffer(_));
    refused!("its address", device.address(gone), UnknownBuffer(_));
    refused!("acknowledging it", device.acknowledge(gone), UnknownBuffer(_));
    for cq in (0..device.caps().queues).map(Cq) {
        refused!(
            "writing it",
            device.write(cq, gone, 0, &slot, BYTES),
            UnknownBuffer(_)
        );
        refused!(
            "reading it",
            device.read(cq, gone, 0, &mut slot, BYTES),
            UnknownBuffer(_)
        );
        refused!("copying from it", device.copy(cq, gone, a), UnknownBuffer(_));
        refused!("copying to it", device.copy(cq, a, gone), UnknownBuffer(_));
        refused!(
            "binding it",
            device.launch(cq, program, &[a, gone]),
            UnknownBuffer(_)
        );
    }
    subject.drain()?;
    same_bits("the buffer after it", &subject.read(Cq::COMPUTE, new)?, &[3.0; N])?;
    same_bits("another buffer", &subject.read(Cq::COMPUTE, a)?, &[1.0; N])?;
    equal("a slot", &values(&slot)?, &vec![9.0; N])
}

pub(super) fn a_released_trace_is_unknown(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let a = subject.filled(BufferClass::Input, &[1.0; N])?;
    let b = subject.filled(BufferClass::Output, &[0.0; N])?;
    subject.device.compile(&add()?)?;
    let capture = |subject: &mut Subject| {
        subject.capture(Cq::COMPUTE, |subject| {
            subject.launch(Cq::COMPUTE, &add()?, &[a, a, b])
        })
    };
    let gone = capture(&mut subject)?;
    let kept = capture(&mut subject)?;
    // What is on its way when it is released still arrives.
    subject.device.replay(Cq::COMPUTE, gone)?;
    subject.device.release_trace(gone)?;
    same_bits(
        "a replay before the release",
        &subject.read(Cq::COMPUTE, b)?,
        &[2.0; N],
    )?;
    refused!(
        "releasing twice",
        subject.device.release_trace(gone),
        UnknownTrace(_)
    );
    refused!(
        "replaying it",
        subject.device.replay(Cq::COMPUTE, gone),
        UnknownTrace(_)
    );
    refused!("looking at it", subject.device.unsafe_live(gone), UnknownTrace(_));
    subject.write(Cq::COMPUTE, b, &[0.0; N])?;
    subject.device.replay(Cq::COMPUTE, kept)?;
    same_bits("the other trace", &subject.read(Cq::COMPUTE, b)?, &[2.0; N])?;
    subject.device.release_trace(kept)?;
    equal(
        "bytes of traces after the release",
        &subject.device.memory().trace_bytes,
        &0,
    )?;
    let after = subject.device.alloc(&floats(N)?, BufferClass::Input)?;
    subject.device.free(after)?;
    Ok(())
}
