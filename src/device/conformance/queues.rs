//! Order within a queue, order between queues, deadlines.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::Open;
use super::subject::{A_WHILE, DEADLINE, N, Subject, add, fill, relu, values};
use super::verdict::{Stop, ensure, equal, fail, refused, same_bits};
use crate::device::{BufferClass, Cq, DeviceError, EventId};

pub(super) fn commands_of_one_queue_run_in_order(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    for cq in subject.queues() {
        let [a, b, c] = [(); 3].map(|()| subject.buffer(BufferClass::State));
        let (a, b, c) = (a?, b?, c?);
        let mut slots = Vec::new();
        // Every command needs the one before it and destroys what it needs.
        for round in 1..=(subject.caps().queue_depth / 8).clamp(1, 40) as u8 {
            let value = f32::from(round);
            subject.write(cq, a, &[value; N])?;
            subject.launch(cq, &add()?, &[a, a, b])?;
            subject.device.copy(cq, b, c)?;
            subject.launch(cq, &fill(-1.0)?, &[b])?;
            subject.launch(cq, &add()?, &[c, b, a])?;
            slots.push((2.0 * value - 1.0, subject.start_read(cq, a, N)?));
        }
        subject.finish(cq)?;
        for (expected, slot) in slots {
            same_bits("the end of a chain of commands", &values(&slot)?, &[expected; N])?;
        }
    }
    Ok(())
}

pub(super) fn an_event_makes_one_queue_wait_for_another(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    for (from, to) in [(Cq::IO, Cq::COMPUTE), (Cq::COMPUTE, Cq::IO)] {
        subject.prepare_busy(from)?;
        let a = subject.filled(BufferClass::Input, &[0.0; N])?;
        let b = subject.filled(BufferClass::Output, &[0.0; N])?;
        for round in 1..=6_u8 {
            // Without the wait the sum would be made of the value of the round before.
            subject.keep_busy(from, A_WHILE)?;
            subject.write(from, a, &[f32::from(round); N])?;
            subject.order(from, to)?;
            subject.launch(to, &add()?, &[a, a, b])?;
            subject.order(to, from)?;
            let sum = subject.read(to, b)?;
            let what = format!("what {to} made of an upload on {from} that it waited for");
            same_bits(&what, &sum, &[2.0 * f32::from(round); N])?;
        }
    }
    Ok(())
}

pub(super) fn an_event_completes_when_its_queue_gets_there(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    for cq in subject.queues() {
        let a = subject.filled(BufferClass::Input, &[3.0; N])?;
        subject.keep_busy(cq, A_WHILE)?;
        let slot = subject.start_read(cq, a, N)?;
        let event = subject.device.record_event(cq)?;
        // It gets there without anybody waiting for it.
        let end = Instant::now() + DEADLINE;
        while !subject.device.poll_event(event)? {
            ensure(Instant::now() < end, "a recorded event never completes")?;
            thread::yield_now();
        }
        let read = values(&slot)
            .map_err(|_| fail("an event was complete before the transfer that was enqueued ahead of it"))?;
        same_bits("a transfer ahead of a completed event", &read, &[3.0; N])?;
    }
    Ok(())
}

pub(super) fn an_event_that_was_never_recorded_is_refused(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut other = Subject::open(open)?;
    let mut foreign = other.device.record_event(Cq::COMPUTE)?;
    for _ in 0..4 {
        foreign = other.device.record_event(Cq::COMPUTE)?;
    }
    let mut subject = Subject::open(open)?;
    for event in [foreign, EventId(0), EventId(u64::MAX)] {
        let waited = subject.device.wait_event(Cq::COMPUTE, event);
        refused!("a wait for an event of nobody", waited, UnknownEvent(_));
        let polled = subject.device.poll_event(event);
        refused!("a look at an event of nobody", polled, UnknownEvent(_));
        let synced = subject.sync(event);
        refused!(
            "waiting on the host for an event of nobody",
            synced,
            UnknownEvent(_)
        );
    }
    let a = subject.filled(BufferClass::Input, &[1.0; N])?;
    same_bits(
        "a buffer after the refusals",
        &subject.read(Cq::COMPUTE, a)?,
        &[1.0; N],
    )
}

pub(super) fn an_event_stays_known_after_it_completed(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let first = subject.device.record_event(Cq::COMPUTE)?;
    for _ in 0..(subject.caps().queue_depth / 2).min(100) {
        subject.device.record_event(Cq::COMPUTE)?;
    }
    subject.drain()?;
    ensure(
        subject.device.poll_event(first)?,
        "an event is not complete after the queues were drained",
    )?;
    subject.device.sync_event(first, Instant::now())?;
    for cq in subject.queues() {
        subject.device.wait_event(cq, first)?;
    }
    subject.drain()?;
    Ok(())
}

pub(super) fn the_completion_hook_hears_of_events(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let (tell, heard) = mpsc::channel();
    let tell = Mutex::new(tell);
    subject.device.set_completion_hook(Arc::new(move || {
        // The check may have ended.
        let _ = tell.lock().map(|tell| tell.send(()));
    }));
    for cq in subject.queues() {
        subject.finish(cq)?;
        ensure(
            heard.recv_timeout(DEADLINE).is_ok(),
            "the completion hook was not called for a completed event",
        )?;
    }
    Ok(())
}

pub(super) fn draining_waits_for_every_queue(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    subject.drain()?;
    let a = subject.filled(BufferClass::Input, &[5.0; N])?;
    for busy in subject.queues() {
        subject.keep_busy(busy, A_WHILE)?;
        let slot = subject.start_read(busy, a, N)?;
        subject.drain()?;
        let read = values(&slot).map_err(|_| fail(format!("{busy} was at work after all was drained")))?;
        same_bits("a transfer before a drain", &read, &[5.0; N])?;
    }
    Ok(())
}

pub(super) fn a_deadline_that_passes_is_a_timeout(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    subject.prepare_busy(Cq::COMPUTE)?;
    let a = subject.filled(BufferClass::Input, &[-1.0; N])?;
    let mut timed_out = false;
    for attempt in 1..=20 {
        subject.keep_busy(Cq::COMPUTE, attempt * A_WHILE)?;
        subject.launch(Cq::COMPUTE, &relu()?, &[a, a])?;
        let event = subject.device.record_event(Cq::COMPUTE)?;
        let passed = Instant::now();
        match subject.device.sync_event(event, passed) {
            Err(DeviceError::Timeout { .. }) => timed_out = true,
            Ok(()) => {}
            Err(other) => return Err(other.into()),
        }
        if timed_out {
            match subject.device.drain(Duration::ZERO) {
                Err(DeviceError::Timeout { .. }) => {}
                Ok(()) => ensure(
                    subject.device.poll_event(event)?,
                    "a drain without time succeeded before its queue was empty",
                )?,
                Err(other) => return Err(other.into()),
            }
        }
        // What timed out goes on.
        subject.sync(event)?;
        same_bits("work behind a timeout", &subject.read(Cq::COMPUTE, a)?, &[0.0; N])?;
        if timed_out {
            break;
        }
    }
    ensure(
        timed_out,
        "waiting until a moment that has passed never ended before the work did",
    )
}

pub(super) fn a_full_queue_loses_nothing(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let depth = subject.caps().queue_depth;
    let one = subject.filled(BufferClass::Input, &[1.0; N])?;
    for cq in subject.queues() {
        let sum = subject.filled(BufferClass::State, &[0.0; N])?;
        let program = subject.device.compile(&add()?)?;
        subject.keep_busy(cq, A_WHILE)?;
        let mut accepted = 0_usize;
        for _ in 0..depth + depth / 2 {
            match subject.device.launch(cq, program, &[sum, one, sum]) {
                Ok(()) => accepted += 1,
                // Refused is refused: it must not run all the same.
                Err(DeviceError::QueueFull { .. }) => {}
                Err(other) => return Err(other.into()),
            }
        }
        ensure(
            accepted >= depth / 2,
            "a queue takes fewer commands than half its depth",
        )?;
        subject.drain()?;
        let counted = subject.read(cq, sum)?[0];
        equal(
            "launches that ran, of those accepted",
            &counted,
            &(accepted as f32),
        )?;
    }
    Ok(())
}

pub(super) fn a_queue_that_does_not_exist_is_refused(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let a = subject.filled(BufferClass::Input, &[1.0; N])?;
    let b = subject.filled(BufferClass::Output, &[2.0; N])?;
    let event = subject.device.record_event(Cq::COMPUTE)?;
    let program = subject.device.compile(&relu()?)?;
    let mut slot = subject.slot(&[9.0; N])?;
    let bytes = slot.len();
    for cq in [Cq(subject.caps().queues), Cq(u8::MAX)] {
        let device = &mut subject.device;
        refused!("a write", device.write(cq, a, 0, &slot, bytes), UnknownQueue(..));
        refused!(
            "a read",
            device.read(cq, a, 0, &mut slot, bytes),
            UnknownQueue(..)
        );
        refused!("a copy", device.copy(cq, a, b), UnknownQueue(..));
        refused!("an event", device.record_event(cq), UnknownQueue(..));
        refused!("a wait", device.wait_event(cq, event), UnknownQueue(..));
        refused!("a launch", device.launch(cq, program, &[a, b]), UnknownQueue(..));
        refused!("a capture", device.begin_capture(cq), UnknownQueue(..));
    }
    subject.drain()?;
    same_bits(
        "a buffer after the refusals",
        &subject.read(Cq::COMPUTE, b)?,
        &[2.0; N],
    )?;
    equal("a slot after the refusals", &values(&slot)?, &vec![9.0; N])
}
