//! What users of comparable systems reported as bugs, as far as it concerns a device. The numbers are rows of
//! a list of public reports; those that are missing concern what is built on a device (7: warm-up runs that
//! advanced a state) or what a device cannot see (8: buffers that a caller swapped after the capture).

use std::time::Instant;

use super::Open;
use super::capture::launches_beyond;
use super::replay::with_temporary;
use super::subject::{A_WHILE, DEADLINE, N, PERSISTENT, Subject, add, fill, floats, multiply, relu, values};
use super::verdict::{Stop, ensure, equal, fail, refused, same_bits};
use crate::device::{BufferClass, Cq, DeviceError, MissPolicy};

/// Row 1: a buffer made after a capture lies where the trace keeps an intermediate, and a replay destroys it.
pub(super) fn report_01_an_allocation_after_the_capture_keeps_its_contents(
    open: &mut Open<'_>,
) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let (_, _, trace) = with_temporary(&mut subject)?;
    let mut later = Vec::new();
    for (index, class) in PERSISTENT.into_iter().enumerate() {
        let value = 100.0 + index as f32;
        later.push((subject.filled(class, &[value; N])?, value));
    }
    // Refused or not: nobody said that they may be overwritten.
    let replayed = subject.device.replay(Cq::COMPUTE, trace);
    subject.drain()?;
    for &(buffer, value) in &later {
        let what = format!("a buffer made after a capture, after a replay that was answered {replayed:?}");
        same_bits(&what, &subject.read(Cq::COMPUTE, buffer)?, &[value; N])?;
    }
    Ok(())
}

/// Row 2: the code of a program compiled after a capture lies where the trace keeps an intermediate; what fails
/// is the program's next use.
pub(super) fn report_02_a_program_compiled_after_the_capture_is_named(
    open: &mut Open<'_>,
) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let (a, b, trace) = with_temporary(&mut subject)?;
    let late = multiply()?;
    subject.launch(Cq::COMPUTE, &late, &[a, a, b])?;
    match subject.device.replay(Cq::COMPUTE, trace) {
        Err(DeviceError::UnsafeReplay { live, .. }) => {
            equal(
                "programs named by the refusal",
                &live.programs,
                &vec![late.name().to_owned()],
            )?;
        }
        other => refused!("a replay after a late program", other, UnsafeReplay { .. }),
    }
    subject.launch(Cq::COMPUTE, &late, &[a, a, b])?;
    same_bits(
        "the late program after it",
        &subject.read(Cq::COMPUTE, b)?,
        &[4.0; N],
    )
}

/// Row 3: the storage of a second trace lies within that of the first, and replaying the first destroys the
/// results of the second.
pub(super) fn report_03_the_storage_of_one_trace_survives_another(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let (a, b, first) = with_temporary(&mut subject)?;
    let kept = |subject: &mut Subject, into| subject.launch(Cq::COMPUTE, &add()?, &[a, a, into]);
    // An output of its own, made in the second capture, where the first freed something.
    subject.device.begin_capture(Cq::COMPUTE)?;
    let own = subject.device.alloc(&floats(N)?, BufferClass::Output)?;
    kept(&mut subject, own)?;
    let second = subject.device.end_capture()?;
    refused!(
        "the first trace while the output of the second is alive",
        subject.device.replay(Cq::COMPUTE, first),
        UnsafeReplay { .. }
    );
    subject.device.replay(Cq::COMPUTE, second)?;
    same_bits("the second trace", &subject.read(Cq::COMPUTE, own)?, &[4.0; N])?;
    // Whoever reads before the next replay may acknowledge it.
    subject.device.acknowledge(own)?;
    for _ in 0..3 {
        subject.device.replay(Cq::COMPUTE, first)?;
        same_bits(
            "the first trace in turn",
            &subject.read(Cq::COMPUTE, b)?,
            &[6.0; N],
        )?;
        subject.device.replay(Cq::COMPUTE, second)?;
        same_bits(
            "the second trace in turn",
            &subject.read(Cq::COMPUTE, own)?,
            &[4.0; N],
        )?;
    }
    Ok(())
}

/// Row 4: synchronising inside a capture is an error that ruins the capture, or the process.
pub(super) fn report_04_synchronising_in_a_capture_is_refused_and_costs_nothing(
    open: &mut Open<'_>,
) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let a = subject.filled(BufferClass::Input, &[-5.0; N])?;
    let b = subject.filled(BufferClass::Output, &[1.0; N])?;
    subject.device.compile(&relu()?)?;
    let event = subject.device.record_event(Cq::COMPUTE)?;
    let mut slot = subject.slot(&[0.0; N])?;
    subject.device.begin_capture(Cq::COMPUTE)?;
    for _ in 0..3 {
        refused!("a synchronisation", subject.sync(event), DuringCapture { .. });
        refused!(
            "an event",
            subject.device.record_event(Cq::COMPUTE),
            DuringCapture { .. }
        );
        let bytes = slot.len();
        let read = subject.device.read(Cq::COMPUTE, b, 0, &mut slot, bytes);
        refused!("a read", read, DuringCapture { .. });
        refused!("a drain", subject.drain(), DuringCapture { .. });
        subject.launch(Cq::COMPUTE, &relu()?, &[a, b])?;
    }
    let trace = subject.device.end_capture()?;
    subject.sync(event)?;
    subject.device.replay(Cq::COMPUTE, trace)?;
    same_bits("the trace", &subject.read(Cq::COMPUTE, b)?, &[0.0; N])
}

/// Row 5: a capture that failed is never ended; the stream stays in it, or a destructor aborts the process.
pub(super) fn report_05_a_capture_that_failed_can_be_given_up_and_begun_again(
    open: &mut Open<'_>,
) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let a = subject.filled(BufferClass::Input, &[3.0; N])?;
    let b = subject.filled(BufferClass::Output, &[0.0; N])?;
    subject.device.compile(&add()?)?;
    for _ in 0..3 {
        subject.device.set_misses(MissPolicy::Forbid);
        subject.device.begin_capture(Cq::COMPUTE)?;
        subject.launch(Cq::COMPUTE, &add()?, &[a, a, b])?;
        let cold = subject.launch(Cq::COMPUTE, &multiply()?, &[a, a, b]);
        refused!("a cold operation", cold, CacheMissForbidden { .. });
        subject.device.abort_capture()?;
        subject.device.set_misses(MissPolicy::Allow);
        // The queue is out of the capture.
        subject.launch(Cq::COMPUTE, &add()?, &[a, a, b])?;
        same_bits("eager work after it", &subject.read(Cq::COMPUTE, b)?, &[6.0; N])?;
        subject.write(Cq::COMPUTE, b, &[0.0; N])?;
    }
    let trace = subject.capture(Cq::COMPUTE, |subject| {
        subject.launch(Cq::COMPUTE, &add()?, &[a, a, b])
    })?;
    subject.device.replay(Cq::COMPUTE, trace)?;
    same_bits("the capture after it", &subject.read(Cq::COMPUTE, b)?, &[6.0; N])?;
    subject.device.begin_capture(Cq::COMPUTE)?;
    drop(subject);
    Ok(())
}

/// Row 6: a refused enqueue records nothing, success is reported, and the outputs are those of the run before.
pub(super) fn report_06_a_refused_replay_is_told_and_leaves_the_outputs(
    open: &mut Open<'_>,
) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let (a, b, trace) = with_temporary(&mut subject)?;
    subject.device.replay(Cq::COMPUTE, trace)?;
    same_bits("the run before", &subject.read(Cq::COMPUTE, b)?, &[6.0; N])?;
    subject.write(Cq::COMPUTE, a, &[3.0; N])?;
    let late = subject.buffer(BufferClass::Input)?;
    let refusal = subject.device.replay(Cq::COMPUTE, trace);
    refused!("an unsafe replay", refusal, UnsafeReplay { .. });
    // An event behind it completes and says nothing of it.
    same_bits(
        "the outputs after a refusal",
        &subject.read(Cq::COMPUTE, b)?,
        &[6.0; N],
    )?;
    subject.device.free(late)?;
    subject.device.replay(Cq::COMPUTE, trace)?;
    same_bits(
        "the outputs after the next replay",
        &subject.read(Cq::COMPUTE, b)?,
        &[9.0; N],
    )
}

/// Row 9: a captured upload reads a host buffer that has been used for something else since.
pub(super) fn report_09_a_host_buffer_that_is_used_again_reaches_no_older_upload(
    open: &mut Open<'_>,
) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let (a, b, trace) = with_temporary(&mut subject)?;
    let mut slot = subject.slot(&[0.0; N])?;
    let bytes = slot.len();
    let mut reads = Vec::new();
    let mut uploaded = subject.device.record_event(Cq::COMPUTE)?;
    for round in 1..=20_u8 {
        // One slot for all uploads, refilled as soon as it may be.
        let end = Instant::now() + DEADLINE;
        while slot.is_busy() {
            subject.device.poll_event(uploaded)?;
            ensure(Instant::now() < end, "an upload never gives its slot back")?;
        }
        let value = f32::from(round);
        slot.bytes_mut()
            .map_err(DeviceError::from)?
            .copy_from_slice(bytemuck::cast_slice(&[value; N]));
        subject.device.write(Cq::COMPUTE, a, 0, &slot, bytes)?;
        uploaded = subject.device.record_event(Cq::COMPUTE)?;
        subject.device.replay(Cq::COMPUTE, trace)?;
        reads.push((3.0 * value, subject.start_read(Cq::COMPUTE, b, N)?));
    }
    subject.drain()?;
    for (expected, read) in reads {
        same_bits("a replay of a recycled slot", &values(&read)?, &[expected; N])?;
    }
    Ok(())
}

/// Row 10: something is allocated between begin and end; the capture fails, or the graph launches only once.
pub(super) fn report_10_an_allocation_in_the_window_spoils_no_later_launch(
    open: &mut Open<'_>,
) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let a = subject.filled(BufferClass::Input, &[1.0; N])?;
    subject.device.compile(&add()?)?;
    subject.device.begin_capture(Cq::COMPUTE)?;
    for class in PERSISTENT {
        let reserved = subject.device.alloc(&floats(N)?, class);
        refused!(format!("a {class:?} buffer"), reserved, DuringCapture { .. });
    }
    let temporary = subject.device.alloc(&floats(N)?, BufferClass::Intermediate)?;
    let output = subject.device.alloc(&floats(N)?, BufferClass::Output)?;
    subject.launch(Cq::COMPUTE, &add()?, &[a, a, temporary])?;
    subject.launch(Cq::COMPUTE, &add()?, &[temporary, a, output])?;
    subject.device.free(temporary)?;
    let trace = subject.device.end_capture()?;
    let memory = subject.device.memory();
    for round in 1..=20_u8 {
        subject.write(Cq::COMPUTE, a, &[f32::from(round); N])?;
        subject.device.replay(Cq::COMPUTE, trace)?;
        let made = subject.read(Cq::COMPUTE, output)?;
        same_bits(&format!("replay {round}"), &made, &[3.0 * f32::from(round); N])?;
    }
    equal("memory after the replays", &subject.device.memory(), &memory)
}

/// Row 11: faults only where eager operations run between replays, on memory that both use.
pub(super) fn report_11_eager_work_between_replays_disturbs_neither(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    subject.device.compile(&multiply()?)?;
    subject.device.compile(&fill(1.0)?)?;
    let (a, b, trace) = with_temporary(&mut subject)?;
    for round in 1..=10_u8 {
        let value = f32::from(round);
        // Memory that the trace's intermediate shares, used and returned before the replay.
        let scratch = subject.buffer(BufferClass::Intermediate)?;
        subject.launch(Cq::COMPUTE, &fill(1.0)?, &[scratch])?;
        subject.write(Cq::COMPUTE, a, &[value; N])?;
        subject.launch(Cq::COMPUTE, &multiply()?, &[a, a, scratch])?;
        let square = subject.start_read(Cq::COMPUTE, scratch, N)?;
        subject.device.free(scratch)?;
        subject.device.replay(Cq::COMPUTE, trace)?;
        let made = subject.read(Cq::COMPUTE, b)?;
        same_bits(
            "eager work before a replay",
            &values(&square)?,
            &[value * value; N],
        )?;
        same_bits("a replay after eager work", &made, &[3.0 * value; N])?;
    }
    Ok(())
}

/// Row 12: work of another queue becomes part of a capture, or is missing in its replays.
pub(super) fn report_12_uploads_of_another_queue_reach_a_replay_through_events(
    open: &mut Open<'_>,
) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    subject.prepare_busy(Cq::IO)?;
    let (a, b, trace) = with_temporary(&mut subject)?;
    let uploaded = subject.device.record_event(Cq::IO)?;
    subject.device.begin_capture(Cq::COMPUTE)?;
    let waited = subject.device.wait_event(Cq::COMPUTE, uploaded);
    refused!(
        "a wait for another queue in a capture",
        waited,
        DuringCapture { .. }
    );
    subject.device.abort_capture()?;
    for round in 1..=6_u8 {
        subject.keep_busy(Cq::IO, A_WHILE)?;
        subject.write(Cq::IO, a, &[f32::from(round); N])?;
        subject.order(Cq::IO, Cq::COMPUTE)?;
        subject.device.replay(Cq::COMPUTE, trace)?;
        subject.order(Cq::COMPUTE, Cq::IO)?;
        let made = subject.read(Cq::IO, b)?;
        same_bits(
            "a replay of an upload on another queue",
            &made,
            &[3.0 * f32::from(round); N],
        )?;
    }
    Ok(())
}

/// Row 13: only so many bytes are allocated for the trace region.
pub(super) fn report_13_a_region_that_is_too_small_says_how_much_is_missing(
    open: &mut Open<'_>,
) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let (a, b, small) = with_temporary(&mut subject)?;
    let taken = subject.device.memory().trace_bytes;
    let region_bytes = subject.caps().trace_region_bytes;
    let launches = 2 * launches_beyond(&subject)?;
    let program = subject.device.compile(&add()?)?;
    subject.device.begin_capture(Cq::COMPUTE)?;
    for _ in 0..launches {
        subject.device.launch(Cq::COMPUTE, program, &[a, a, b])?;
    }
    match subject.device.end_capture() {
        Err(DeviceError::TraceRegionFull { needed, free, region }) => {
            equal("the size of the region", &region, &region_bytes)?;
            equal("what is free of it", &free, &(region_bytes - taken))?;
            ensure(needed > free, "the trace would have fitted")?;
        }
        other => refused!("a trace beyond its region", other, TraceRegionFull { .. }),
    }
    // Room that one trace leaves is there for the next.
    let half = subject.caps().trace_region_bytes / taken / 4 * 3;
    let large = |subject: &mut Subject| {
        subject.capture(Cq::COMPUTE, |subject| {
            (0..half.max(1)).try_for_each(|_| subject.device.launch(Cq::COMPUTE, program, &[a, a, b]))
        })
    };
    subject.device.release_trace(small)?;
    for _ in 0..3 {
        let trace = large(&mut subject)?;
        ensure(
            subject.device.memory().trace_bytes > 0,
            "a trace takes nothing of the region",
        )?;
        subject.device.replay(Cq::COMPUTE, trace)?;
        subject.drain()?;
        subject.device.release_trace(trace)?;
        equal("bytes of traces", &subject.device.memory().trace_bytes, &0)?;
    }
    same_bits("what the replays made", &subject.read(Cq::COMPUTE, b)?, &[4.0; N])
        .map_err(|_| fail("a trace that fits is not what was captured"))
}
