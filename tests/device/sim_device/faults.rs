//! Every kind of fault, and what is left behind.

use std::time::{Duration, Instant};

use sensorium::device::{
    BufferClass, Cq, Device, DeviceError, DeviceHealth, Fault, FaultAt, FaultCall, FaultKind, FaultPlan,
    OnRace, SimConfig, SimDevice,
};

use super::harness::*;

fn faulty(queues: u8, at: FaultAt, kind: FaultKind) -> SimDevice {
    SimDevice::open(&SimConfig {
        faults: FaultPlan {
            seed: 5,
            faults: vec![Fault::new(at, kind)],
        },
        ..config(queues, 1)
    })
    .unwrap()
}

#[test]
fn a_refused_call_enqueues_nothing_and_the_next_one_works() {
    type Call = fn(&mut SimDevice, [sensorium::device::BufferId; 2]) -> Result<(), DeviceError>;
    let calls: [(FaultCall, Call); 6] = [
        (FaultCall::Write, |device, [a, _]| {
            device.write(Cq::COMPUTE, a, 0, &slot_of(&[1.0; N]), N * 4)
        }),
        (FaultCall::Read, |device, [a, _]| {
            let mut slot = device.host_slot(N * 4)?;
            let outcome = device.read(Cq::COMPUTE, a, 0, &mut slot, N * 4);
            assert_eq!(slot.is_busy(), outcome.is_ok(), "a refused read keeps no slot");
            outcome
        }),
        (FaultCall::Copy, |device, [a, b]| device.copy(Cq::COMPUTE, a, b)),
        (FaultCall::Launch, |device, [a, b]| {
            let program = device.compile(&relu())?;
            device.launch(Cq::COMPUTE, program, &[a, b])
        }),
        (FaultCall::RecordEvent, |device, _| {
            device.record_event(Cq::COMPUTE).map(drop)
        }),
        (FaultCall::Any, |device, [a, b]| device.copy(Cq::COMPUTE, a, b)),
    ];
    for (call, make) in calls {
        let mut device = faulty(1, FaultAt::Nth(2), FaultKind::Refuse(call));
        let buffers = [
            buffer(&mut device, BufferClass::Input),
            buffer(&mut device, BufferClass::Output),
        ];
        make(&mut device, buffers).unwrap();
        let commands = device.timeline().len();
        assert_eq!(
            make(&mut device, buffers),
            Err(DeviceError::QueueFull {
                cq: Cq::COMPUTE,
                depth: 1024,
                waited: Duration::ZERO
            }),
            "{call:?}"
        );
        assert_eq!(device.timeline().len(), commands);
        make(&mut device, buffers).unwrap();
        assert_eq!(device.timeline().len(), commands + 1);
        device.drain(Duration::from_secs(1)).unwrap();
    }
}

#[test]
fn a_refused_wait_and_a_refused_replay_can_be_repeated() {
    let mut device = SimDevice::open(&SimConfig {
        faults: FaultPlan {
            seed: 0,
            faults: vec![
                Fault::new(FaultAt::Nth(1), FaultKind::Refuse(FaultCall::WaitEvent)),
                Fault::new(FaultAt::Nth(1), FaultKind::Refuse(FaultCall::Replay)),
            ],
        },
        ..config(2, 1)
    })
    .unwrap();
    let (a, b) = (
        buffer(&mut device, BufferClass::Input),
        buffer(&mut device, BufferClass::Output),
    );
    device.compile(&relu()).unwrap();
    let trace = capture(&mut device, |device| {
        launch(device, Cq::COMPUTE, &relu(), &[a, b])
    });
    write(&mut device, Cq::IO, a, &[2.0; N]);
    let uploaded = device.record_event(Cq::IO).unwrap();
    assert!(matches!(
        device.wait_event(Cq::COMPUTE, uploaded),
        Err(DeviceError::QueueFull { cq: Cq::COMPUTE, .. })
    ));
    device.wait_event(Cq::COMPUTE, uploaded).unwrap();
    assert!(device.replay(Cq::COMPUTE, trace).is_err());
    device.replay(Cq::COMPUTE, trace).unwrap();
    assert_eq!(read(&mut device, Cq::COMPUTE, b), [2.0; N]);
}

#[test]
fn a_wait_for_a_lost_event_ends_at_its_deadline_in_virtual_time() {
    let mut device = faulty(2, FaultAt::Nth(2), FaultKind::LoseEvent);
    let a = buffer(&mut device, BufferClass::Input);
    write(&mut device, Cq::IO, a, &[1.0; N]);
    let first = device.record_event(Cq::IO).unwrap();
    let lost = device.record_event(Cq::IO).unwrap();
    let third = device.record_event(Cq::IO).unwrap();
    sync(&device, third).unwrap();
    sync(&device, first).unwrap();
    let before = device.virtual_now_ns();
    assert_eq!(
        sync(&device, lost),
        Err(DeviceError::Timeout {
            what: lost.to_string(),
            waited: Duration::from_secs(60)
        })
    );
    assert_eq!(device.virtual_now_ns(), before + 60_000_000_000);
    for _ in 0..50 {
        assert_eq!(device.poll_event(lost), Ok(false));
    }
    // A queue that waits for it stands still, and the other goes on.
    device.wait_event(Cq::COMPUTE, lost).unwrap();
    let mut slot = device.host_slot(N * 4).unwrap();
    device.read(Cq::COMPUTE, a, 0, &mut slot, N * 4).unwrap();
    let behind = device.record_event(Cq::COMPUTE).unwrap();
    assert!(matches!(sync(&device, behind), Err(DeviceError::Timeout { .. })));
    assert!(matches!(
        device.drain(Duration::from_secs(1)),
        Err(DeviceError::Timeout { .. })
    ));
    assert!(slot.is_busy());
    assert_eq!(read(&mut device, Cq::IO, a), [1.0; N]);
    assert!(device.timeline().iter().all(|entry| entry.cq == Cq::IO));
    device.close();
    assert!(!slot.is_busy());
}

#[test]
fn an_event_recorded_too_early_orders_only_what_was_before_its_forerunner() {
    for seed in 0..20 {
        let mut device = SimDevice::open(&SimConfig {
            on_race: OnRace::Report,
            faults: FaultPlan {
                seed: 0,
                faults: vec![
                    Fault::new(FaultAt::Nth(1), FaultKind::EarlyEvent).on(Cq::COMPUTE),
                    Fault::new(FaultAt::Nth(2), FaultKind::EarlyEvent).on(Cq::IO),
                ],
            },
            ..config(2, seed)
        })
        .unwrap();
        let (a, b) = (
            buffer(&mut device, BufferClass::Input),
            buffer(&mut device, BufferClass::Input),
        );
        write(&mut device, Cq::COMPUTE, b, &[1.0; N]);
        let first = device.record_event(Cq::COMPUTE).unwrap();
        assert_eq!(
            device.sync_event(first, Instant::now()),
            Ok(()),
            "no forerunner: over at once"
        );
        assert_eq!(device.virtual_now_ns(), 0);

        write(&mut device, Cq::IO, a, &[1.0; N]);
        let regular = device.record_event(Cq::IO).unwrap();
        let late = slot_of(&[2.0; N]);
        device.write(Cq::IO, b, 0, &late, N * 4).unwrap();
        let early = device.record_event(Cq::IO).unwrap();
        let third = device.record_event(Cq::IO).unwrap();
        sync(&device, early).unwrap();
        let regular_ns = device
            .timeline()
            .iter()
            .filter(|e| e.cq == Cq::IO)
            .nth(1)
            .unwrap()
            .end_ns;
        assert_eq!(device.virtual_now_ns(), regular_ns);
        assert_eq!(device.poll_event(regular), Ok(true));
        // The first upload is ordered, the second is not.
        device.copy(Cq::COMPUTE, a, a).unwrap();
        assert_eq!(device.races().len(), 1, "the two uploads to one buffer");
        device.copy(Cq::COMPUTE, b, b).unwrap();
        assert_eq!(device.races().len(), 2);
        sync(&device, third).unwrap();
        device.copy(Cq::COMPUTE, b, b).unwrap();
        assert_eq!(device.races().len(), 2);
    }
}

#[test]
fn a_wait_that_the_queue_ignores_is_found_like_one_that_was_forgotten() {
    let mut stale = 0;
    for seed in 0..40 {
        let mut device = SimDevice::open(&SimConfig {
            on_race: OnRace::Report,
            faults: FaultPlan {
                seed: 0,
                faults: vec![Fault::new(FaultAt::Nth(2), FaultKind::IgnoreWait)],
            },
            ..config(2, seed)
        })
        .unwrap();
        let (a, b) = (
            buffer(&mut device, BufferClass::Input),
            buffer(&mut device, BufferClass::Output),
        );
        for frame in 0..2 {
            write(&mut device, Cq::IO, a, &[frame as f32; N]);
            let uploaded = device.record_event(Cq::IO).unwrap();
            device.wait_event(Cq::COMPUTE, uploaded).unwrap();
            device.copy(Cq::COMPUTE, a, b).unwrap();
            device.drain(Duration::from_secs(1)).unwrap();
        }
        let races = device.races();
        assert_eq!(races.len(), 1);
        assert_eq!((races[0].first.cq, races[0].second.cq), (Cq::IO, Cq::COMPUTE));
        stale += usize::from(read(&mut device, Cq::COMPUTE, b) == [0.0; N]);
    }
    assert!(
        (5..35).contains(&stale),
        "the order of execution shows it in {stale} of 40 seeds"
    );
}

#[test]
fn a_queue_behind_a_lost_event_fills_up() {
    let mut device = SimDevice::open(&SimConfig {
        queue_depth: 4,
        faults: FaultPlan {
            seed: 0,
            faults: vec![Fault::new(FaultAt::Nth(1), FaultKind::LoseEvent)],
        },
        ..config(2, 1)
    })
    .unwrap();
    let (a, b) = (
        buffer(&mut device, BufferClass::Input),
        buffer(&mut device, BufferClass::Output),
    );
    let lost = device.record_event(Cq::IO).unwrap();
    device.wait_event(Cq::COMPUTE, lost).unwrap();
    for _ in 0..3 {
        device.copy(Cq::COMPUTE, a, b).unwrap();
    }
    let refusal = device.copy(Cq::COMPUTE, a, b).unwrap_err();
    assert!(
        matches!(refusal, DeviceError::QueueFull { cq: Cq::COMPUTE, depth: 4, waited } if !waited.is_zero()),
        "{refusal}"
    );
    for _ in 0..100 {
        device.copy(Cq::IO, b, b).unwrap();
    }
}

#[test]
fn a_capture_that_stops_short_is_given_up() {
    let mut device = faulty(1, FaultAt::Nth(2), FaultKind::PartialCapture { launches: 2 });
    let (a, b) = (
        buffer(&mut device, BufferClass::Input),
        buffer(&mut device, BufferClass::Output),
    );
    write(&mut device, Cq::COMPUTE, a, &[4.0; N]);
    let record = |device: &mut SimDevice, launches: usize| {
        device.begin_capture(Cq::COMPUTE)?;
        let inside = device.alloc(&spec(), BufferClass::Output)?;
        let program = device.compile(&relu())?;
        for _ in 0..launches {
            device.launch(Cq::COMPUTE, program, &[a, inside])?;
        }
        device.launch(Cq::COMPUTE, program, &[a, b])?;
        device.end_capture()
    };
    let first = record(&mut device, 3).unwrap();
    device.release_trace(first).unwrap();
    let memory = device.memory();
    let refusal = record(&mut device, 3).unwrap_err();
    assert!(
        matches!(refusal, DeviceError::TraceRegionFull { needed, free, .. } if needed == 2 * free),
        "{refusal}"
    );
    assert_eq!(device.memory(), memory);
    assert_eq!(device.abort_capture(), Err(DeviceError::NotCapturing));
    let trace = record(&mut device, 1).unwrap();
    device.replay(Cq::COMPUTE, trace).unwrap();
    assert_eq!(read(&mut device, Cq::COMPUTE, b), [4.0; N]);
}

#[test]
fn a_capture_limit_counts_only_longer_captures() {
    let mut device = faulty(1, FaultAt::Nth(1), FaultKind::PartialCapture { launches: 2 });
    let (a, b) = (
        buffer(&mut device, BufferClass::Input),
        buffer(&mut device, BufferClass::Output),
    );
    let trace = capture(&mut device, |device| {
        launch(device, Cq::COMPUTE, &relu(), &[a, b]);
        launch(device, Cq::COMPUTE, &relu(), &[a, b]);
    });
    device.replay(Cq::COMPUTE, trace).unwrap();
}

#[test]
fn a_lost_device_answers_nothing_else_and_gives_its_slots_back() {
    let mut device = faulty(2, FaultAt::Nth(4), FaultKind::LoseDevice(FaultCall::Any));
    let a = buffer(&mut device, BufferClass::Input);
    write(&mut device, Cq::IO, a, &[1.0; N]);
    let event = device.record_event(Cq::IO).unwrap();
    let mut slot = device.host_slot(N * 4).unwrap();
    device.read(Cq::IO, a, 0, &mut slot, N * 4).unwrap();
    assert!(slot.is_busy());
    let lost = DeviceError::Lost {
        reason: "the fault plan says so".into(),
    };
    assert_eq!(device.record_event(Cq::IO), Err(lost.clone()));
    assert!(!slot.is_busy());
    assert_eq!(device.poll_event(event), Err(lost.clone()));
    assert_eq!(sync(&device, event), Err(lost.clone()));
    assert_eq!(device.drain(Duration::from_secs(1)), Err(lost.clone()));
    assert_eq!(device.copy(Cq::COMPUTE, a, a), Err(lost.clone()));
    assert_eq!(device.compile(&relu()), Err(lost.clone()));
    assert_eq!(device.begin_capture(Cq::COMPUTE), Err(lost));
    assert!(matches!(device.health(), DeviceHealth::Lost { .. }));
    device.close();
    device.close();
    assert_eq!(device.health(), DeviceHealth::Closed);
}

#[test]
fn a_capture_survives_a_refused_launch_and_can_be_given_up_on_a_lost_device() {
    let mut device = SimDevice::open(&SimConfig {
        faults: FaultPlan {
            seed: 0,
            faults: vec![
                Fault::new(FaultAt::Nth(1), FaultKind::Refuse(FaultCall::Launch)),
                Fault::new(FaultAt::Nth(3), FaultKind::LoseDevice(FaultCall::Launch)),
            ],
        },
        ..config(1, 1)
    })
    .unwrap();
    let a = buffer(&mut device, BufferClass::Input);
    let program = device.compile(&relu()).unwrap();
    let used = device.memory();
    device.begin_capture(Cq::COMPUTE).unwrap();
    buffer(&mut device, BufferClass::Intermediate);
    assert!(matches!(
        device.launch(Cq::COMPUTE, program, &[a, a]),
        Err(DeviceError::QueueFull { .. })
    ));
    device.launch(Cq::COMPUTE, program, &[a, a]).unwrap();
    assert!(matches!(
        device.launch(Cq::COMPUTE, program, &[a, a]),
        Err(DeviceError::Lost { .. })
    ));
    assert!(matches!(device.end_capture(), Err(DeviceError::Lost { .. })));
    device.abort_capture().unwrap();
    assert_eq!(device.memory(), used);
}

#[test]
fn faults_by_chance_come_back_with_their_seed() {
    let refused = |seed| {
        let mut device = SimDevice::open(&SimConfig {
            faults: FaultPlan {
                seed,
                faults: vec![Fault::new(
                    FaultAt::Chance { per_million: 300_000 },
                    FaultKind::Refuse(FaultCall::Copy),
                )],
            },
            ..config(1, 1)
        })
        .unwrap();
        let a = buffer(&mut device, BufferClass::Input);
        (0..200)
            .map(|_| device.copy(Cq::COMPUTE, a, a).is_err())
            .collect::<Vec<_>>()
    };
    assert_eq!(refused(1), refused(1));
    assert_ne!(refused(1), refused(2));
    // 60 expected, standard deviation 6.5.
    let count = refused(1).into_iter().filter(|&refused| refused).count();
    assert!((30..90).contains(&count), "{count}");
}
