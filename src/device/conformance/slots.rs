//! Host slots: lent to the device, and nobody else's until it gives them back.

use std::time::Instant;

use super::Open;
use super::subject::{A_WHILE, DEADLINE, N, Subject, values};
use super::verdict::{Stop, ensure, equal, refused, same_bits};
use crate::device::{BufferClass, DeviceError};

pub(super) fn the_host_cannot_change_what_is_being_uploaded(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    for cq in subject.queues() {
        subject.prepare_busy(cq)?;
        let a = subject.filled(BufferClass::Input, &[0.0; N])?;
        for round in 1..=4_u8 {
            let mut slot = subject.slot(&[f32::from(round); N])?;
            subject.keep_busy(cq, A_WHILE)?;
            subject.device.write(cq, a, 0, &slot, slot.len())?;
            let event = subject.device.record_event(cq)?;
            let end = Instant::now() + DEADLINE;
            let mut done = false;
            while !done {
                // Whatever the host may write now must not arrive.
                if let Ok(bytes) = slot.bytes_mut() {
                    bytes.fill(0xff);
                }
                done = subject.device.poll_event(event)?;
                ensure(Instant::now() < end, "an upload never ends")?;
            }
            ensure(!slot.is_busy(), "a slot was not given back after its upload")?;
            let arrived = subject.read(cq, a)?;
            same_bits(
                "an upload whose slot was used again",
                &arrived,
                &[f32::from(round); N],
            )?;
        }
    }
    Ok(())
}

pub(super) fn the_host_cannot_see_half_a_download(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    for cq in subject.queues() {
        subject.prepare_busy(cq)?;
        for round in 1..=4_u8 {
            let a = subject.filled(BufferClass::Output, &[f32::from(round); N])?;
            subject.keep_busy(cq, A_WHILE)?;
            let slot = subject.start_read(cq, a, N)?;
            let event = subject.device.record_event(cq)?;
            let end = Instant::now() + DEADLINE;
            let seen = loop {
                match values(&slot) {
                    Ok(seen) => break seen,
                    Err(_) => ensure(Instant::now() < end, "a download never gives its slot back")?,
                }
                subject.device.poll_event(event)?;
            };
            same_bits("what the host saw of a download", &seen, &[f32::from(round); N])?;
            subject.sync(event)?;
            subject.device.free(a)?;
        }
    }
    Ok(())
}

pub(super) fn a_slot_that_is_being_filled_takes_no_second_transfer(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    for cq in subject.queues() {
        subject.prepare_busy(cq)?;
        let a = subject.filled(BufferClass::Output, &[1.0; N])?;
        let b = subject.filled(BufferClass::Output, &[2.0; N])?;
        subject.keep_busy(cq, A_WHILE)?;
        let mut slot = subject.start_read(cq, a, N)?;
        let bytes = slot.len();
        // Only a transfer that is over may be followed by another one.
        let read = subject.device.read(cq, b, 0, &mut slot, bytes);
        let expected = match read {
            Ok(()) => 2.0,
            Err(DeviceError::Slot(_)) => 1.0,
            Err(other) => return Err(other.into()),
        };
        let written = subject.device.write(cq, b, 0, &slot, bytes);
        ensure(
            matches!(written, Ok(()) | Err(DeviceError::Slot(_))),
            "an upload from a slot on loan is refused with the slot's error",
        )?;
        subject.drain()?;
        same_bits(
            "a slot that two downloads wanted",
            &values(&slot)?,
            &[expected; N],
        )?;
        let kept = if written.is_ok() { expected } else { 2.0 };
        same_bits("the buffer that wanted it too", &subject.read(cq, b)?, &[kept; N])?;
        subject.device.read(cq, a, 0, &mut slot, bytes)?;
        subject.drain()?;
        same_bits("a slot that is used again", &values(&slot)?, &[1.0; N])?;
    }
    Ok(())
}

pub(super) fn a_slot_may_go_away_before_its_transfer_is_done(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    for cq in subject.queues() {
        subject.prepare_busy(cq)?;
        let a = subject.filled(BufferClass::Input, &[0.0; N])?;
        subject.keep_busy(cq, A_WHILE)?;
        let up = subject.slot(&[4.0; N])?;
        subject.device.write(cq, a, 0, &up, up.len())?;
        drop(up);
        drop(subject.start_read(cq, a, N)?);
        // Memory that the slots had is soon somebody else's.
        let other = [subject.slot(&[-1.0; N])?, subject.slot(&[-2.0; N])?];
        same_bits(
            "an upload from a slot that is gone",
            &subject.read(cq, a)?,
            &[4.0; N],
        )?;
        equal("slots beside it", &values(&other[0])?, &vec![-1.0; N])?;
    }
    Ok(())
}

pub(super) fn a_slot_beyond_all_memory_is_refused(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    refused!(
        "a slot of the whole address space",
        subject.device.host_slot(usize::MAX),
        OutOfMemory { .. }
    );
    equal("a slot of no bytes", &subject.device.host_slot(0)?.len(), &0)?;
    equal("a slot of one byte", &subject.device.host_slot(1)?.len(), &1)
}
