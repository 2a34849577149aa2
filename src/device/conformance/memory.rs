//! Buffers: where they lie, what they hold, what happens when there is no room.

use super::Open;
use super::graphs::reserve;
use super::replay::with_temporary;
use super::subject::{A_WHILE, N, PERSISTENT, Random, Subject, add, floats, relu, values};
use super::verdict::{Stop, ensure, equal, fail, refused, same_bits};
use crate::device::{BinaryKind, BufferClass, BufferId, Cq, DeviceError, DeviceHealth, OpDesc};
use crate::tensor::{DType, Layout, TensorSpec};

pub(super) fn capabilities_hold_together(open: &mut Open<'_>) -> Result<(), Stop> {
    let subject = Subject::open(open)?;
    let caps = subject.caps();
    ensure(caps.queues >= 1, "it has no command queue")?;
    ensure(caps.queue_depth >= 1, "its queues hold no command")?;
    ensure(
        caps.alignment.is_power_of_two(),
        "its alignment is no power of two",
    )?;
    ensure(caps.memory_bytes > 0, "it has no memory")?;
    ensure(!caps.backend.is_empty(), "its backend has no name")?;
    ensure(!caps.dtypes.is_empty(), "its buffers can hold nothing")?;
    let memory = subject.device.memory();
    equal("bytes in use on a new device", &memory.used_bytes, &0)?;
    equal("bytes of traces on a new device", &memory.trace_bytes, &0)?;
    ensure(
        memory.largest_free_bytes <= caps.memory_bytes,
        "more memory is free than there is",
    )?;
    equal("its health", &subject.device.health(), &DeviceHealth::Healthy)
}

pub(super) fn every_type_of_the_list_can_be_stored(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    for &dtype in subject.caps().dtypes.to_vec().iter() {
        for class in PERSISTENT {
            let spec = TensorSpec::new(&[3, 5], dtype).map_err(DeviceError::from)?;
            let buffer = subject.device.alloc(&spec, class)?;
            let pattern: Vec<u8> = (0..spec.bytes()).map(|i| i as u8 ^ 0xa5).collect();
            let mut slot = subject.device.host_slot(pattern.len())?;
            slot.bytes_mut()
                .map_err(DeviceError::from)?
                .copy_from_slice(&pattern);
            subject
                .device
                .write(Cq::COMPUTE, buffer, 0, &slot, pattern.len())?;
            let mut back = subject.device.host_slot(pattern.len())?;
            subject
                .device
                .read(Cq::COMPUTE, buffer, 0, &mut back, pattern.len())?;
            subject.drain()?;
            let what = format!("a {class:?} buffer of {dtype}");
            equal(
                &what,
                &back.bytes().map_err(DeviceError::from)?,
                &pattern.as_slice(),
            )?;
            subject.device.free(buffer)?;
        }
    }
    Ok(())
}

pub(super) fn a_layout_is_stored_or_refused_by_name(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    for layout in [Layout::RowMajor, Layout::Tile] {
        let spec = TensorSpec {
            layout,
            ..TensorSpec::new(&[33, 5], DType::F32).map_err(DeviceError::from)?
        };
        let before = subject.device.memory();
        match subject.device.alloc(&spec, BufferClass::Weight) {
            Ok(buffer) => {
                let bytes = spec.bytes();
                let slot = subject.device.host_slot(bytes)?;
                subject.device.write(Cq::COMPUTE, buffer, 0, &slot, bytes)?;
                subject.drain()?;
                subject.device.free(buffer)?;
            }
            // Every device has to have one layout.
            Err(DeviceError::UnsupportedLayout { layout: told, .. }) if layout != Layout::RowMajor => {
                equal("the refused layout", &told, &layout)?;
            }
            Err(other) => return Err(fail(format!("a buffer in {layout} layout: {other}"))),
        }
        equal("memory after it", &subject.device.memory(), &before)?;
    }
    Ok(())
}

pub(super) fn addresses_stay_where_they_are(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let gap = subject.buffer(BufferClass::State)?;
    let (a, b, trace) = with_temporary(&mut subject)?;
    let addresses = |subject: &Subject| -> Result<[u64; 2], DeviceError> {
        Ok([subject.device.address(a)?, subject.device.address(b)?])
    };
    let first = addresses(&subject)?;
    ensure(first[0] != first[1], "two buffers have one address")?;
    for _ in 0..4 {
        subject.device.replay(Cq::COMPUTE, trace)?;
        subject.drain()?;
        equal("addresses after a replay", &addresses(&subject)?, &first)?;
    }
    // A hole beside them is no reason to move.
    subject.device.free(gap)?;
    equal("addresses after a neighbour went", &addresses(&subject)?, &first)?;
    subject.device.release_trace(trace)?;
    equal("addresses after the trace went", &addresses(&subject)?, &first)
}

pub(super) fn live_buffers_are_aligned_and_never_overlap(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let alignment = subject.caps().alignment as u64;
    let mut random = Random::new(3);
    let mut live: Vec<(BufferId, u64, u64)> = Vec::new();
    for _ in 0..400 {
        let draw = random.next();
        if draw.is_multiple_of(3) && !live.is_empty() {
            let (buffer, ..) = live.swap_remove(draw / 3 % live.len());
            subject.device.free(buffer)?;
            continue;
        }
        let spec = TensorSpec::new(&[draw % 1000 + 1], DType::U8).map_err(DeviceError::from)?;
        let buffer = subject.device.alloc(&spec, BufferClass::State)?;
        let start = subject.device.address(buffer)?;
        let end = start + spec.bytes() as u64;
        ensure(
            start.is_multiple_of(alignment),
            "an address is not aligned as the capabilities say",
        )?;
        if let Some(other) = live.iter().find(|&&(_, s, e)| start < e && s < end) {
            return Err(fail(format!(
                "bytes {start}..{end} were handed out while {other:?} was alive"
            )));
        }
        live.push((buffer, start, end));
    }
    for (buffer, ..) in live {
        subject.device.free(buffer)?;
    }
    equal(
        "bytes in use after all was freed",
        &subject.device.memory().used_bytes,
        &0,
    )
}

pub(super) fn what_a_capture_frees_is_used_again(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let a = subject.filled(BufferClass::Input, &[2.0; N])?;
    let b = subject.filled(BufferClass::Output, &[0.0; N])?;
    subject.device.compile(&add()?)?;
    let used = subject.device.memory().used_bytes;
    // More than half of what there is: two of them at a time do not fit.
    let elements = subject.device.memory().largest_free_bytes / size_of::<f32>() / 3 * 2;
    let mut traces = Vec::new();
    for _ in 0..3 {
        traces.push(subject.capture(Cq::COMPUTE, |subject| {
            let temporary = subject
                .device
                .alloc(&floats(elements)?, BufferClass::Intermediate)?;
            subject.launch(Cq::COMPUTE, &add()?, &[a, a, temporary])?;
            subject.launch(Cq::COMPUTE, &add()?, &[temporary, a, b])?;
            subject.device.free(temporary)
        })?);
    }
    equal(
        "bytes in use after the captures",
        &subject.device.memory().used_bytes,
        &used,
    )?;
    for trace in traces {
        subject.write(Cq::COMPUTE, b, &[0.0; N])?;
        subject.device.replay(Cq::COMPUTE, trace)?;
        same_bits(
            "a trace with shared storage",
            &subject.read(Cq::COMPUTE, b)?,
            &[6.0; N],
        )?;
    }
    Ok(())
}

pub(super) fn zero_sized_tensors_work(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let full = subject.filled(BufferClass::Input, &[1.0; N])?;
    let [a, b] = [(); 2].map(|()| reserve(&mut subject, &[0, 4], DType::F32, BufferClass::State));
    let (a, b) = (a?, b?);
    subject.device.address(a.buffer)?;
    let mut slot = subject.device.host_slot(0)?;
    subject.device.write(Cq::COMPUTE, a.buffer, 0, &slot, 0)?;
    subject.device.copy(Cq::COMPUTE, a.buffer, b.buffer)?;
    let op = OpDesc::Binary {
        lhs: a.operand,
        rhs: a.operand,
        dst: b.operand,
        kind: BinaryKind::Add,
    };
    subject.launch(Cq::COMPUTE, &op, &[a.buffer, a.buffer, b.buffer])?;
    subject.drain()?;
    subject.device.read(Cq::COMPUTE, b.buffer, 0, &mut slot, 0)?;
    // A transfer of nothing also works at the very end of a buffer.
    let end = N * size_of::<f32>();
    subject.drain()?;
    subject.device.write(Cq::COMPUTE, full, end, &slot, 0)?;
    subject.drain()?;
    subject.device.free(a.buffer)?;
    subject.device.free(b.buffer)?;
    same_bits(
        "a buffer beside them",
        &subject.read(Cq::COMPUTE, full)?,
        &[1.0; N],
    )
}

pub(super) fn what_was_enqueued_before_a_free_still_happens(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    for cq in subject.queues() {
        subject.prepare_busy(cq)?;
        for _ in 0..4 {
            subject.keep_busy(cq, A_WHILE)?;
            let a = subject.buffer(BufferClass::State)?;
            subject.write(cq, a, &[-1.0; N])?;
            subject.launch(cq, &relu()?, &[a, a])?;
            let slot = subject.start_read(cq, a, N)?;
            subject.device.free(a)?;
            // It may well lie where the freed one lay.
            let b = subject.buffer(BufferClass::State)?;
            subject.write(cq, b, &[7.0; N])?;
            let second = subject.read(cq, b)?;
            same_bits(
                "a buffer that was freed after its read",
                &values(&slot)?,
                &[0.0; N],
            )?;
            same_bits("the buffer after it", &second, &[7.0; N])?;
            subject.device.free(b)?;
        }
    }
    Ok(())
}

pub(super) fn out_of_memory_changes_nothing(open: &mut Open<'_>) -> Result<(), Stop> {
    let mut subject = Subject::open(open)?;
    let a = subject.filled(BufferClass::Input, &[1.0; N])?;
    let before = subject.device.memory();
    let too_large = subject.caps().memory_bytes / size_of::<f32>() + 1;
    for class in PERSISTENT {
        let reserved = subject.device.alloc(&floats(too_large)?, class);
        refused!("a buffer beyond all memory", reserved, OutOfMemory { .. });
    }
    let most = isize::MAX as usize / size_of::<f32>();
    let reserved = subject.device.alloc(&floats(most)?, BufferClass::State);
    refused!(
        "the largest tensor that can be named",
        reserved,
        OutOfMemory { .. }
    );
    equal("memory after the refusals", &subject.device.memory(), &before)?;
    // In a capture the refusal leaves the capture, too.
    subject.device.compile(&relu()?)?;
    subject.device.begin_capture(Cq::COMPUTE)?;
    let reserved = subject
        .device
        .alloc(&floats(too_large)?, BufferClass::Intermediate);
    refused!("an intermediate beyond all memory", reserved, OutOfMemory { .. });
    subject.launch(Cq::COMPUTE, &relu()?, &[a, a])?;
    let trace = subject.device.end_capture()?;
    subject.device.replay(Cq::COMPUTE, trace)?;
    subject.device.release_trace(trace)?;
    equal("memory after a capture", &subject.device.memory(), &before)?;
    // What is said to be free can be had.
    let fits = before.largest_free_bytes / size_of::<f32>();
    let largest = subject.device.alloc(&floats(fits)?, BufferClass::State)?;
    subject.device.free(largest)?;
    equal(
        "memory after the largest buffer",
        &subject.device.memory(),
        &before,
    )?;
    same_bits(
        "a buffer all the while",
        &subject.read(Cq::COMPUTE, a)?,
        &[1.0; N],
    )
}
