//! The end of a device.

use std::time::{Duration, Instant};

use super::Open;
use super::replay::with_temporary;
use super::subject::{A_WHILE, N, Subject, add, floats, values};
use super::verdict::{Stop, ensure, equal, fail, refused, same_bits};
use crate::device::{BufferClass, CaptureKind, Cq, DeviceError, DeviceHealth, MissPolicy};

pub(super) fn closing_twice_is_closing_once(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    with_temporary(&mut subject)?;
    for _ in 0..3 {
        subject.device.close();
        equal(
            "the health of a closed device",
            &subject.device.health(),
            &DeviceHealth::Closed,
        )?;
    }
    // Another one can be opened meanwhile, and is not touched by what happens to the closed one.
    let mut other = Subject::open(open)?;
    let a = other.filled(BufferClass::Input, &[1.0; N])?;
    subject.device.close();
    drop(subject);
    same_bits(
        "a buffer of another device",
        &other.read(Cq::COMPUTE, a)?,
        &[1.0; N],
    )
}

pub(super) fn a_closed_device_answers_closed_to_everything(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let a = subject.filled(BufferClass::Input, &[1.0; N])?;
    let mut slot = subject.slot(&[2.0; N])?;
    let bytes = slot.len();
    let event = subject.device.record_event(Cq::COMPUTE)?;
    let program = subject.device.compile(&add()?)?;
    let trace = match subject.caps().capture {
        CaptureKind::Prebuilt => None,
        _ => Some(subject.capture(Cq::COMPUTE, |subject| {
            subject.launch(Cq::COMPUTE, &add()?, &[a, a, a])
        })?),
    };
    subject.device.close();
    let device = &mut subject.device;
    let cq = Cq::COMPUTE;
    refused!("alloc", device.alloc(&floats(N)?, BufferClass::Input), Closed);
    refused!("free", device.free(a), Closed);
    refused!("address", device.address(a), Closed);
    refused!("acknowledge", device.acknowledge(a), Closed);
    refused!("host_slot", device.host_slot(64), Closed);
    refused!("write", device.write(cq, a, 0, &slot, bytes), Closed);
    refused!("read", device.read(cq, a, 0, &mut slot, bytes), Closed);
    refused!("copy", device.copy(cq, a, a), Closed);
    refused!("record_event", device.record_event(cq), Closed);
    refused!("wait_event", device.wait_event(cq, event), Closed);
    refused!("poll_event", device.poll_event(event), Closed);
    refused!("sync_event", device.sync_event(event, Instant::now()), Closed);
    refused!("compile", device.compile(&add()?), Closed);
    refused!("launch", device.launch(cq, program, &[a, a, a]), Closed);
    refused!("begin_capture", device.begin_capture(cq), Closed);
    refused!("end_capture", device.end_capture(), Closed);
    refused!("abort_capture", device.abort_capture(), Closed);
    if let Some(trace) = trace {
        refused!("replay", device.replay(cq, trace), Closed);
        refused!("release_trace", device.release_trace(trace), Closed);
        refused!("unsafe_live", device.unsafe_live(trace), Closed);
    }
    refused!("drain", device.drain(Duration::from_secs(1)), Closed);
    // Look-ups that cannot fail do not.
    device.set_misses(MissPolicy::Allow);
    device.caps();
    device.program_count();
    equal("bytes in use after closing", &device.memory().used_bytes, &0)?;
    equal("a slot after the refusals", &values(&slot)?, &vec![2.0; N])
}

pub(super) fn closing_ends_pending_work_and_gives_slots_back(open: &mut Open<'_>) -> Result<(), Stop> {
    for cq in Subject::open(open)?.queues() {
        let mut subject = Subject::open(open)?;
        let a = subject.filled(BufferClass::Input, &[1.0; N])?;
        subject.keep_busy(cq, 2 * A_WHILE)?;
        let mut up = subject.slot(&[2.0; N])?;
        subject.device.write(cq, a, 0, &up, up.len())?;
        let down = subject.start_read(cq, a, N)?;
        subject.device.close();
        let up = up
            .bytes_mut()
            .map_err(|_| fail("closing kept the slot of an upload"))?;
        up.fill(0);
        let down = down
            .bytes()
            .map_err(|_| fail("closing kept the slot of a download"))?;
        let whole = [2.0_f32, 0.0]
            .map(|value| [value; N])
            .iter()
            .any(|values| bytemuck::cast_slice::<_, u8>(values) == down);
        ensure(whole, "closing left half a download")?;
    }
    Ok(())
}

pub(super) fn closing_gives_up_a_capture(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let a = subject.filled(BufferClass::Input, &[1.0; N])?;
    subject.device.compile(&add()?)?;
    subject.device.begin_capture(Cq::COMPUTE)?;
    subject.launch(Cq::COMPUTE, &add()?, &[a, a, a])?;
    subject.device.close();
    equal(
        "the health of a closed device",
        &subject.device.health(),
        &DeviceHealth::Closed,
    )?;
    refused!("ending the capture", subject.device.end_capture(), Closed);
    Ok(())
}

pub(super) fn a_device_may_be_dropped_without_closing(open: &mut Open<'_>) -> Result<(), Stop> {
    for capturing in [false, true] {
        let mut subject = Subject::open(open)?;
        let a = subject.filled(BufferClass::Input, &[1.0; N])?;
        subject.keep_busy(Cq::COMPUTE, A_WHILE)?;
        let slot = subject.start_read(Cq::COMPUTE, a, N)?;
        if capturing {
            subject.drain()?;
            subject.device.begin_capture(Cq::COMPUTE)?;
        }
        drop(subject);
        ensure(slot.bytes().is_ok(), "a dropped device kept a slot")?;
    }
    Ok(())
}
