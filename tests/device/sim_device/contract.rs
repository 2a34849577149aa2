//! The device contract, where the simulator keeps it in its own way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sensorium::device::{
    BufferClass, Cq, Device, DeviceError, DeviceHealth, MissPolicy, SimConfig, SimDevice, SlotError,
};

use super::harness::*;

#[test]
fn nothing_runs_before_the_host_waits() {
    let mut device = open(2, 1);
    let a = buffer(&mut device, BufferClass::Input);
    let mut slot = slot_of(&[3.0; N]);
    device.write(Cq::IO, a, 0, &slot, N * 4).unwrap();
    assert_eq!(slot.bytes_mut().unwrap_err(), SlotError);
    let mut out = device.host_slot(N * 4).unwrap();
    device.read(Cq::IO, a, 0, &mut out, N * 4).unwrap();
    assert_eq!(out.bytes().unwrap_err(), SlotError);
    assert!(matches!(
        device.read(Cq::IO, a, 0, &mut out, N * 4),
        Err(DeviceError::Slot(SlotError))
    ));
    device.drain(Duration::from_secs(10)).unwrap();
    assert_eq!(bytemuck::cast_slice::<u8, f32>(out.bytes().unwrap()), [3.0; N]);
    slot.bytes_mut().unwrap().fill(0);
}

#[test]
fn loops_that_poll_end_for_every_seed() {
    let mut early = 0;
    for seed in 0..200 {
        let mut device = open(2, seed);
        let (a, b) = (
            buffer(&mut device, BufferClass::Input),
            buffer(&mut device, BufferClass::Output),
        );
        write(&mut device, Cq::IO, a, &[1.0; N]);
        let uploaded = device.record_event(Cq::IO).unwrap();
        device.wait_event(Cq::COMPUTE, uploaded).unwrap();
        for _ in 0..20 {
            launch(&mut device, Cq::COMPUTE, &add(), &[a, a, b]);
        }
        let done = device.record_event(Cq::COMPUTE).unwrap();
        let mut polls = 0;
        while !device.poll_event(done).unwrap() {
            polls += 1;
            assert!(polls < 100, "seed {seed}");
        }
        assert!(polls >= 7, "at most three commands a poll");
        // Whatever the polls saw, the time is that of the event.
        assert_eq!(device.virtual_now_ns(), device.timeline().last().unwrap().end_ns);
        // The upload is over as well, but a poll must be able to find that late.
        let other = device.record_event(Cq::IO).unwrap();
        let first = device.poll_event(other).unwrap();
        early += usize::from(first);
        assert!(first || device.poll_event(other).unwrap(), "never twice nothing");
    }
    assert!(
        (20..180).contains(&early),
        "polls find events done at once in {early} of 200"
    );
}

#[test]
fn an_owner_that_sleeps_between_hooks_reaches_its_event() {
    for seed in 0..50 {
        let mut device = open(2, seed);
        let calls = Arc::new(AtomicUsize::new(0));
        let hook = Arc::clone(&calls);
        device.set_completion_hook(Arc::new(move || {
            hook.fetch_add(1, Ordering::SeqCst);
        }));
        let a = buffer(&mut device, BufferClass::Input);
        for _ in 0..10 {
            write(&mut device, Cq::IO, a, &[1.0; N]);
        }
        let done = device.record_event(Cq::IO).unwrap();
        loop {
            assert!(
                calls.swap(0, Ordering::SeqCst) > 0,
                "seed {seed}: the owner sleeps for ever"
            );
            if device.poll_event(done).unwrap() {
                break;
            }
        }
    }
}

#[test]
fn a_capture_refuses_what_a_trace_cannot_hold_and_stays_usable() {
    let mut device = open(2, 1);
    let (a, b) = (
        buffer(&mut device, BufferClass::Input),
        buffer(&mut device, BufferClass::Output),
    );
    write(&mut device, Cq::COMPUTE, a, &[-1.0; N]);
    launch(&mut device, Cq::COMPUTE, &relu(), &[a, b]);
    device.drain(Duration::from_secs(10)).unwrap();
    let event = device.record_event(Cq::COMPUTE).unwrap();
    let mut slot = device.host_slot(N * 4).unwrap();
    let commands = device.timeline().len();

    device.begin_capture(Cq::COMPUTE).unwrap();
    device.set_misses(MissPolicy::Forbid);
    let refused = |outcome: Result<(), DeviceError>| {
        assert!(
            matches!(outcome, Err(DeviceError::DuringCapture { .. })),
            "{outcome:?}"
        );
    };
    for cq in [Cq::COMPUTE, Cq::IO] {
        refused(device.write(cq, a, 0, &slot, 4));
        refused(device.read(cq, a, 0, &mut slot, 4));
        refused(device.copy(cq, a, b));
        refused(device.record_event(cq).map(drop));
        refused(device.wait_event(cq, event));
        refused(device.begin_capture(cq));
    }
    refused(sync(&device, event));
    refused(device.alloc(&spec(), BufferClass::Input).map(drop));
    refused(device.free(a));
    refused(device.drain(Duration::from_secs(1)));
    let program = device.compile(&relu()).unwrap();
    refused(device.launch(Cq::IO, program, &[a, b]));
    assert!(matches!(
        device.compile(&add()),
        Err(DeviceError::CacheMissForbidden { .. })
    ));
    let inside = buffer(&mut device, BufferClass::Intermediate);
    device.launch(Cq::COMPUTE, program, &[a, inside]).unwrap();
    device.abort_capture().unwrap();
    assert_eq!(device.free(inside), Err(DeviceError::UnknownBuffer(inside)));
    assert_eq!(device.abort_capture(), Err(DeviceError::NotCapturing));
    assert_eq!(device.end_capture(), Err(DeviceError::NotCapturing));
    assert_eq!(device.timeline().len(), commands, "nothing of it was enqueued");

    let trace = capture(&mut device, |device| {
        launch(device, Cq::COMPUTE, &relu(), &[a, b])
    });
    write(&mut device, Cq::COMPUTE, a, &[3.0; N]);
    write(&mut device, Cq::COMPUTE, b, &[9.0; N]);
    device.replay(Cq::COMPUTE, trace).unwrap();
    assert_eq!(read(&mut device, Cq::COMPUTE, b), [3.0; N]);
    device.release_trace(trace).unwrap();
    assert_eq!(
        device.replay(Cq::COMPUTE, trace),
        Err(DeviceError::UnknownTrace(trace))
    );
}

#[test]
fn a_replay_is_refused_after_a_program_was_compiled_behind_its_capture() {
    let mut device = open(1, 1);
    let (a, b) = (
        buffer(&mut device, BufferClass::Input),
        buffer(&mut device, BufferClass::Output),
    );
    device.compile(&relu()).unwrap();
    let trace = capture(&mut device, |device| {
        launch(device, Cq::COMPUTE, &relu(), &[a, b])
    });
    device.replay(Cq::COMPUTE, trace).unwrap();
    device.compile(&add()).unwrap();
    let refusal = device.replay(Cq::COMPUTE, trace).unwrap_err().to_string();
    assert!(
        refusal.contains("1 program(s) compiled after the capture: binary"),
        "{refusal}"
    );
}

#[test]
fn a_trace_that_does_not_fit_its_region_is_refused_and_leaves_nothing() {
    let mut device = SimDevice::open(&SimConfig {
        trace_region_bytes: 200,
        ..config(1, 1)
    })
    .unwrap();
    let a = buffer(&mut device, BufferClass::Input);
    let used = device.memory();
    device.begin_capture(Cq::COMPUTE).unwrap();
    let b = buffer(&mut device, BufferClass::Output);
    for _ in 0..5 {
        launch(&mut device, Cq::COMPUTE, &relu(), &[a, b]);
    }
    let refusal = device.end_capture().unwrap_err();
    assert!(
        matches!(refusal, DeviceError::TraceRegionFull { region: 200, free: 200, needed } if needed > 200),
        "{refusal}"
    );
    assert_eq!(device.memory(), used);
    assert_eq!(device.end_capture(), Err(DeviceError::NotCapturing));
}

#[test]
fn wrong_ids_sizes_and_bindings_are_errors_that_change_nothing() {
    let mut device = open(1, 1);
    let a = buffer(&mut device, BufferClass::Input);
    let small = sensorium::tensor::TensorSpec::new(&[N - 1], sensorium::tensor::DType::F32).unwrap();
    let small = device.alloc(&small, BufferClass::Output).unwrap();
    let program = device.compile(&relu()).unwrap();
    assert_eq!(
        device
            .launch(Cq::COMPUTE, program, &[a, small])
            .unwrap_err()
            .to_string(),
        "unary: operand 1 (buffer 2) has 252 bytes, the program reaches 256"
    );
    assert!(matches!(
        device.launch(Cq::COMPUTE, program, &[a]),
        Err(DeviceError::InvalidBinding { .. })
    ));
    assert_eq!(
        device.record_event(Cq::IO),
        Err(DeviceError::UnknownQueue(Cq::IO, 1))
    );
    let mut slot = device.host_slot(8).unwrap();
    for outcome in [
        device.copy(Cq::COMPUTE, a, small),
        device.write(Cq::COMPUTE, a, 0, &slot, 12),
        device.read(Cq::COMPUTE, a, N * 4 - 4, &mut slot, 8),
        device.read(Cq::COMPUTE, a, usize::MAX, &mut slot, 8),
    ] {
        assert!(
            matches!(outcome, Err(DeviceError::OutOfRange { .. })),
            "{outcome:?}"
        );
    }
    // An empty transfer at the very end is none.
    device.write(Cq::COMPUTE, a, N * 4, &slot, 0).unwrap();
    let mut other = open(1, 1);
    let foreign = other.record_event(Cq::COMPUTE).unwrap();
    assert_eq!(
        device.wait_event(Cq::COMPUTE, foreign),
        Err(DeviceError::UnknownEvent(foreign))
    );
    device.free(a).unwrap();
    assert_eq!(device.free(a), Err(DeviceError::UnknownBuffer(a)));
    assert_eq!(device.timeline().len(), 1);
    for wrong in [
        config(3, 1),
        config(0, 1),
        SimConfig {
            queue_depth: 0,
            ..config(1, 1)
        },
    ] {
        assert!(matches!(SimDevice::open(&wrong), Err(DeviceError::Config(_))));
    }
}

#[test]
fn a_deadline_that_passes_is_an_error_and_the_wait_can_be_repeated() {
    let mut device = open(1, 1);
    let a = buffer(&mut device, BufferClass::Input);
    write(&mut device, Cq::COMPUTE, a, &[1.0; N]);
    for _ in 0..300 {
        launch(&mut device, Cq::COMPUTE, &relu(), &[a, a]);
    }
    let done = device.record_event(Cq::COMPUTE).unwrap();
    let outcome = device.sync_event(done, Instant::now());
    assert!(matches!(outcome, Err(DeviceError::Timeout { .. })), "{outcome:?}");
    assert_eq!(
        device.drain(Duration::from_micros(1)),
        Err(DeviceError::Timeout {
            what: "draining the queues".into(),
            waited: Duration::from_micros(1)
        })
    );
    // Waiting again and again without any time gets there too: the queues go on meanwhile.
    let mut waits = 0;
    while device.sync_event(done, Instant::now()).is_err() {
        waits += 1;
        assert!(waits < 1000);
    }
    sync(&device, done).unwrap();
}

#[test]
fn closing_finishes_what_it_can_and_is_idempotent() {
    let mut device = open(2, 1);
    let a = buffer(&mut device, BufferClass::Input);
    write(&mut device, Cq::IO, a, &[1.0; N]);
    let mut out = device.host_slot(N * 4).unwrap();
    device.read(Cq::IO, a, 0, &mut out, N * 4).unwrap();
    device.close();
    device.close();
    assert_eq!(bytemuck::cast_slice::<u8, f32>(out.bytes().unwrap()), [1.0; N]);
    assert_eq!(device.health(), DeviceHealth::Closed);
    assert_eq!(
        device.alloc(&spec(), BufferClass::Input),
        Err(DeviceError::Closed)
    );
    assert_eq!(device.drain(Duration::from_secs(1)), Err(DeviceError::Closed));

    let mut device = open(2, 1);
    let a = buffer(&mut device, BufferClass::Input);
    let mut out = device.host_slot(N * 4).unwrap();
    device.read(Cq::IO, a, 0, &mut out, N * 4).unwrap();
    drop(device);
    assert!(out.bytes().is_ok(), "a device that goes gives the slots back");
}
