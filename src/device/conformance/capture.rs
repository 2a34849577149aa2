//! What a capture takes, and how it ends.

use std::time::{Duration, Instant};

use super::Open;
use super::subject::{N, PERSISTENT, Subject, add, floats, multiply, relu, values};
use super::verdict::{Stop, ensure, equal, fail, refused, same_bits};
use crate::device::{
    Activation, BufferClass, Conv2dDesc, Cq, DeviceError, DeviceHealth, Geometry2d, Operand, ResidualOrder,
    WeightDesc,
};
use crate::precision::Math;
use crate::tensor::{DType, View};

pub(super) fn a_capture_refuses_what_a_trace_cannot_hold_on_every_queue(
    open: &mut Open<'_>,
) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let a = subject.filled(BufferClass::Input, &[-3.0; N])?;
    let b = subject.filled(BufferClass::Output, &[9.0; N])?;
    let c = subject.filled(BufferClass::State, &[7.0; N])?;
    let program = subject.device.compile(&relu()?)?;
    let earlier = subject.capture(Cq::COMPUTE, |subject| {
        subject.launch(Cq::COMPUTE, &relu()?, &[c, c])
    })?;
    let event = subject.device.record_event(Cq::COMPUTE)?;
    subject.drain()?;
    let mut slot = subject.slot(&[5.0; N])?;
    let bytes = slot.len();
    let conv = one_by_one()?;
    let weights = WeightDesc::Conv2d {
        desc: &conv,
        weight: &[1.0],
        bias: None,
    };

    for capturing in subject.queues() {
        let before = subject.device.memory();
        subject.device.begin_capture(capturing)?;
        for cq in subject.queues() {
            let device = &mut subject.device;
            refused!(
                format!("a write on {cq}"),
                device.write(cq, a, 0, &slot, bytes),
                DuringCapture { .. }
            );
            refused!(
                format!("a read on {cq}"),
                device.read(cq, a, 0, &mut slot, bytes),
                DuringCapture { .. }
            );
            refused!(
                format!("a copy on {cq}"),
                device.copy(cq, a, b),
                DuringCapture { .. }
            );
            refused!(
                format!("an event on {cq}"),
                device.record_event(cq),
                DuringCapture { .. }
            );
            refused!(
                format!("a wait on {cq}"),
                device.wait_event(cq, event),
                DuringCapture { .. }
            );
            refused!(
                format!("a replay on {cq}"),
                device.replay(cq, earlier),
                DuringCapture { .. }
            );
            refused!(
                format!("a capture on {cq}"),
                device.begin_capture(cq),
                DuringCapture { .. }
            );
            if cq != capturing {
                let launched = device.launch(cq, program, &[a, b]);
                refused!(format!("a launch on {cq}"), launched, DuringCapture { .. });
            }
        }
        let device = &mut subject.device;
        let now = Instant::now();
        refused!(
            "waiting on the host",
            device.sync_event(event, now),
            DuringCapture { .. }
        );
        refused!(
            "draining",
            device.drain(Duration::from_secs(1)),
            DuringCapture { .. }
        );
        refused!(
            "preparing weights",
            device.prepare_weights(&weights),
            DuringCapture { .. }
        );
        refused!(
            "releasing a trace",
            device.release_trace(earlier),
            DuringCapture { .. }
        );
        refused!(
            "freeing a persistent buffer",
            device.free(a),
            DuringCapture { .. }
        );
        for class in PERSISTENT {
            let reserved = device.alloc(&floats(N)?, class);
            refused!(
                format!("reserving a buffer of class {class:?}"),
                reserved,
                DuringCapture { .. }
            );
        }
        equal("memory after the refusals", &subject.device.memory(), &before)?;

        subject.launch(capturing, &relu()?, &[a, b])?;
        let trace = subject.device.end_capture()?;
        same_bits(
            "a buffer after the capture",
            &subject.read(capturing, b)?,
            &[9.0; N],
        )?;
        same_bits("its input", &subject.read(capturing, a)?, &[-3.0; N])?;
        equal("a slot after the refusals", &values(&slot)?, &vec![5.0; N])?;
        subject.device.replay(capturing, trace)?;
        same_bits("what the trace makes", &subject.read(capturing, b)?, &[0.0; N])?;
        subject.write(capturing, b, &[9.0; N])?;
        subject.drain()?;
        subject.device.release_trace(trace)?;
    }
    Ok(())
}

/// The smallest convolution.
fn one_by_one() -> Result<Conv2dDesc, DeviceError> {
    let operand = Operand {
        dtype: DType::F32,
        view: View::channels_last([1, 1, 1, 1], 1, 0)?,
    };
    Ok(Conv2dDesc {
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
    })
}

pub(super) fn a_capture_allows_what_touches_no_queue(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let a = subject.filled(BufferClass::Input, &[1.5; N])?;
    let b = subject.filled(BufferClass::Output, &[0.0; N])?;
    subject.device.compile(&add()?)?;
    let event = subject.device.record_event(Cq::COMPUTE)?;
    subject.drain()?;
    let address = subject.device.address(a)?;
    let programs = subject.device.program_count();

    let trace = subject.capture(Cq::COMPUTE, |subject| {
        let device = &mut subject.device;
        device.host_slot(64)?.bytes_mut()?.fill(1);
        device.poll_event(event)?;
        device.compile(&add()?)?;
        device.memory();
        let intermediate = device.alloc(&floats(N)?, BufferClass::Intermediate)?;
        subject.launch(Cq::COMPUTE, &add()?, &[a, a, intermediate])?;
        subject.launch(Cq::COMPUTE, &add()?, &[intermediate, a, b])?;
        subject.device.free(intermediate)
    })?;
    equal("the address of a buffer", &subject.device.address(a)?, &address)?;
    equal(
        "the number of programs",
        &subject.device.program_count(),
        &programs,
    )?;
    equal("the health", &subject.device.health(), &DeviceHealth::Healthy)?;
    subject.device.replay(Cq::COMPUTE, trace)?;
    same_bits("what the trace makes", &subject.read(Cq::COMPUTE, b)?, &[4.5; N])
}

pub(super) fn captured_launches_do_not_run_before_the_replay(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let a = subject.filled(BufferClass::Input, &[1.0; N])?;
    let sum = subject.filled(BufferClass::State, &[10.0; N])?;
    subject.device.compile(&add()?)?;
    let trace = subject.capture(Cq::COMPUTE, |subject| {
        subject.launch(Cq::COMPUTE, &add()?, &[sum, a, sum])
    })?;
    for runs in 0..5_u8 {
        let found = subject.read(Cq::COMPUTE, sum)?;
        let what = format!("a sum after {runs} replay(s)");
        same_bits(&what, &found, &[10.0 + f32::from(runs); N])?;
        subject.device.replay(Cq::COMPUTE, trace)?;
    }
    Ok(())
}

pub(super) fn a_trace_replays_on_every_queue(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let a = subject.filled(BufferClass::Input, &[1.0; N])?;
    let sum = subject.filled(BufferClass::State, &[0.0; N])?;
    let mut expected = 0.0;
    for captured_on in subject.queues() {
        let trace = subject.capture(captured_on, |subject| {
            subject.launch(captured_on, &add()?, &[sum, a, sum])
        })?;
        for cq in subject.queues() {
            subject.device.replay(cq, trace)?;
            expected += 1.0;
            let found = subject.read(cq, sum)?;
            let what = format!("a trace captured on {captured_on} and replayed on {cq}");
            same_bits(&what, &found, &[expected; N])?;
        }
        subject.device.release_trace(trace)?;
    }
    Ok(())
}

pub(super) fn an_aborted_capture_leaves_nothing(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let a = subject.filled(BufferClass::Input, &[2.0; N])?;
    let b = subject.filled(BufferClass::Output, &[8.0; N])?;
    subject.device.compile(&add()?)?;
    let before = subject.device.memory();
    for _ in 0..3 {
        subject.device.begin_capture(Cq::COMPUTE)?;
        let inside = subject.device.alloc(&floats(N)?, BufferClass::Output)?;
        let freed = subject.device.alloc(&floats(N)?, BufferClass::Intermediate)?;
        subject.launch(Cq::COMPUTE, &add()?, &[a, a, inside])?;
        subject.launch(Cq::COMPUTE, &add()?, &[a, a, b])?;
        subject.device.free(freed)?;
        subject.device.abort_capture()?;
        refused!(
            "a buffer of an aborted capture",
            subject.device.free(inside),
            UnknownBuffer(_)
        );
        equal(
            "memory after an aborted capture",
            &subject.device.memory(),
            &before,
        )?;
    }
    subject.drain()?;
    same_bits(
        "what it would have written",
        &subject.read(Cq::COMPUTE, b)?,
        &[8.0; N],
    )?;
    // The device goes on, with captures and without.
    let trace = subject.capture(Cq::COMPUTE, |subject| {
        subject.launch(Cq::COMPUTE, &add()?, &[a, a, b])
    })?;
    subject.device.replay(Cq::COMPUTE, trace)?;
    same_bits("the next trace", &subject.read(Cq::COMPUTE, b)?, &[4.0; N])
}

pub(super) fn ending_what_never_began_is_refused(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let a = subject.filled(BufferClass::Input, &[2.0; N])?;
    subject.device.compile(&relu()?)?;
    for _ in 0..2 {
        refused!("ending no capture", subject.device.end_capture(), NotCapturing);
        refused!(
            "aborting no capture",
            subject.device.abort_capture(),
            NotCapturing
        );
        subject.capture(Cq::COMPUTE, |subject| {
            subject.launch(Cq::COMPUTE, &relu()?, &[a, a])
        })?;
    }
    Ok(())
}

pub(super) fn a_trace_beyond_its_region_is_given_up(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let a = subject.filled(BufferClass::Input, &[3.0; N])?;
    let b = subject.filled(BufferClass::Output, &[0.0; N])?;
    let program = subject.device.compile(&multiply()?)?;
    let small = subject.capture(Cq::COMPUTE, |subject| {
        subject.launch(Cq::COMPUTE, &multiply()?, &[a, a, b])
    })?;
    let launches = launches_beyond(&subject)?;
    let before = subject.device.memory();
    subject.device.begin_capture(Cq::COMPUTE)?;
    let inside = subject.device.alloc(&floats(N)?, BufferClass::Output)?;
    for _ in 0..launches {
        subject.device.launch(Cq::COMPUTE, program, &[a, a, inside])?;
    }
    let ended = subject.device.end_capture();
    refused!("a trace beyond its region", ended, TraceRegionFull { .. });
    refused!("ending it again", subject.device.end_capture(), NotCapturing);
    refused!("its output", subject.device.free(inside), UnknownBuffer(_));
    equal("memory after it was given up", &subject.device.memory(), &before)?;
    subject.device.replay(Cq::COMPUTE, small)?;
    same_bits("the trace before it", &subject.read(Cq::COMPUTE, b)?, &[9.0; N])
}

/// How many launches do not fit into the trace region any more, after one trace of one launch was captured.
pub(super) fn launches_beyond(subject: &Subject) -> Result<usize, Stop> {
    let one = subject.device.memory().trace_bytes;
    if one == 0 {
        return Err(fail("a trace takes nothing of the trace region"));
    }
    let region = subject.caps().trace_region_bytes;
    ensure(one <= region, "one launch takes more than the trace region has")?;
    Ok(region / one + 1)
}
