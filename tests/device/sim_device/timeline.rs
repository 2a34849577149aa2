//! Virtual time, computed by hand.

use std::collections::BTreeMap;
use std::time::Duration;

use sensorium::device::sim::{SimCommand, TimelineEntry};
use sensorium::device::{
    BufferClass, Cq, Device, DeviceError, Fault, FaultAt, FaultKind, FaultPlan, SimConfig, SimCosts,
    SimDevice,
};

use super::harness::*;

/// Numbers that are easy to add: a vector of 256 bytes goes up in 256 ns, comes down in 512, is copied in 128.
fn costs() -> SimCosts {
    SimCosts {
        upload_bytes_per_us: 1_000,
        read_bytes_per_us: 500,
        copy_bytes_per_us: 2_000,
        launch_ns: 50,
        output_bytes_per_us: 1_000,
        op_ns: BTreeMap::from([("unary".into(), 1_000)]),
        replay_ns: 70,
        event_ns: 10,
    }
}

fn timed(seed: u64) -> SimDevice {
    SimDevice::open(&SimConfig {
        costs: costs(),
        ..config(2, seed)
    })
    .unwrap()
}

fn spans(device: &SimDevice) -> Vec<(u8, String, u64, u64)> {
    let entry = |e: TimelineEntry| (e.cq.0, e.command.to_string(), e.start_ns, e.end_ns);
    device.timeline().into_iter().map(entry).collect()
}

#[test]
fn a_frame_on_two_queues_takes_the_time_of_its_parts() {
    for seed in 0..20 {
        let mut device = timed(seed);
        let (a, b) = (
            buffer(&mut device, BufferClass::Input),
            buffer(&mut device, BufferClass::Output),
        );
        device.compile(&add()).unwrap();
        device.compile(&relu()).unwrap();
        let trace = capture(&mut device, |device| {
            launch(device, Cq::COMPUTE, &relu(), &[a, b]);
            launch(device, Cq::COMPUTE, &add(), &[b, b, b]);
        });
        assert_eq!(
            device.virtual_now_ns(),
            0,
            "a capture takes no time on the device"
        );

        write(&mut device, Cq::IO, a, &[1.0; N]);
        let uploaded = device.record_event(Cq::IO).unwrap();
        device.copy(Cq::COMPUTE, b, b).unwrap();
        device.wait_event(Cq::COMPUTE, uploaded).unwrap();
        device.replay(Cq::COMPUTE, trace).unwrap();
        launch(&mut device, Cq::COMPUTE, &relu(), &[b, b]);
        let done = device.record_event(Cq::COMPUTE).unwrap();
        // Beside the replay, on the other queue.
        write(&mut device, Cq::IO, b, &[]);
        device.poll_event(uploaded).unwrap();
        let polled = device.virtual_now_ns();
        assert!(polled == 0 || polled == 266, "{polled}");
        sync(&device, done).unwrap();
        assert_eq!(device.virtual_now_ns(), 2_662);
        device.advance_host(Duration::from_nanos(338));
        launch(&mut device, Cq::COMPUTE, &add(), &[b, b, b]);
        device.wait_event(Cq::IO, done).unwrap();
        read(&mut device, Cq::IO, a);
        assert_eq!(device.virtual_now_ns(), 3_532);
        device.drain(Duration::from_secs(1)).unwrap();
        assert_eq!(device.virtual_now_ns(), 3_532);

        let expected = [
            (1, "upload", 0, 256),
            (1, "record", 256, 266),
            (0, "copy", 0, 128),
            (0, "wait", 266, 276),
            (0, "replay of trace 1", 276, 276 + 70 + 1_000 + 256),
            (0, "launch of unary", 1_602, 1_602 + 50 + 1_000),
            (0, "record", 2_652, 2_662),
            (1, "upload", 266, 266),
            (0, "launch of binary", 3_000, 3_306),
            (1, "wait", 3_000, 3_010),
            (1, "read", 3_010, 3_522),
            (1, "record", 3_522, 3_532),
        ]
        .map(|(cq, command, start, end): (u8, &str, u64, u64)| (cq, command.to_owned(), start, end));
        assert_eq!(spans(&device), expected, "seed {seed}");
    }
}

#[test]
fn uploads_overlap_replays_and_the_period_is_that_of_the_longer() {
    for seed in 0..10 {
        let mut device = timed(seed);
        let (a, staging, b) = (
            buffer(&mut device, BufferClass::Input),
            buffer(&mut device, BufferClass::Staging),
            buffer(&mut device, BufferClass::Output),
        );
        device.compile(&relu()).unwrap();
        let trace = capture(&mut device, |device| {
            launch(device, Cq::COMPUTE, &relu(), &[a, b])
        });
        let mut consumed = None;
        for _ in 0..6 {
            if let Some(consumed) = consumed {
                device.wait_event(Cq::IO, consumed).unwrap();
            }
            write(&mut device, Cq::IO, staging, &[1.0; N]);
            let uploaded = device.record_event(Cq::IO).unwrap();
            device.wait_event(Cq::COMPUTE, uploaded).unwrap();
            device.copy(Cq::COMPUTE, staging, a).unwrap();
            consumed = Some(device.record_event(Cq::COMPUTE).unwrap());
            device.replay(Cq::COMPUTE, trace).unwrap();
        }
        device.drain(Duration::from_secs(1)).unwrap();
        let timeline = device.timeline();
        let replays: Vec<_> = timeline
            .iter()
            .filter(|e| matches!(e.command, SimCommand::Replay(_)))
            .collect();
        // A wait, a copy, a record and a replay of 70 + 1000: the upload hides behind the replay.
        for pair in replays.windows(2) {
            assert_eq!(pair[1].start_ns - pair[0].start_ns, 10 + 128 + 10 + 1_070);
        }
        let uploads = timeline
            .iter()
            .filter(|e| e.command == SimCommand::Upload)
            .skip(1);
        for (upload, replay) in uploads.zip(&replays) {
            assert!(replay.start_ns < upload.end_ns && upload.end_ns < replay.end_ns);
        }
        assert_eq!(device.races(), []);
    }
}

#[test]
fn a_full_queue_makes_the_host_wait_for_its_first_command() {
    let mut device = SimDevice::open(&SimConfig {
        queue_depth: 2,
        costs: costs(),
        ..config(1, 0)
    })
    .unwrap();
    let a = buffer(&mut device, BufferClass::Input);
    let mut slots = Vec::new();
    for expected in [0, 0, 256, 512, 768] {
        let slot = slot_of(&[1.0; N]);
        device.write(Cq::COMPUTE, a, 0, &slot, N * 4).unwrap();
        assert_eq!(device.virtual_now_ns(), expected);
        slots.push(slot);
    }
    // The first three had to be done; the others had not.
    assert!(slots[..3].iter().all(|slot| !slot.is_busy()) && slots[3..].iter().all(|slot| slot.is_busy()));
}

#[test]
fn a_slow_queue_takes_longer_from_its_command_on() {
    let mut device = SimDevice::open(&SimConfig {
        costs: costs(),
        faults: FaultPlan {
            seed: 0,
            faults: vec![Fault::new(FaultAt::From(2), FaultKind::Slow { factor: 3 }).on(Cq::IO)],
        },
        ..config(2, 0)
    })
    .unwrap();
    let a = buffer(&mut device, BufferClass::Input);
    for cq in [Cq::IO, Cq::COMPUTE, Cq::IO, Cq::COMPUTE] {
        write(&mut device, cq, a, &[1.0; N]);
    }
    let ends: Vec<_> = device.timeline().iter().map(|e| e.end_ns).collect();
    assert_eq!(ends, [256, 256, 256 + 768, 512]);
}

#[test]
fn deadlines_are_spent_in_virtual_time() {
    let mut device = SimDevice::open(&SimConfig {
        costs: SimCosts {
            launch_ns: 40_000_000,
            ..costs()
        },
        ..config(1, 0)
    })
    .unwrap();
    let a = buffer(&mut device, BufferClass::Input);
    for _ in 0..100 {
        launch(&mut device, Cq::COMPUTE, &add(), &[a, a, a]);
    }
    // Four virtual seconds of work, none of which pass in reality.
    let end_ns = 100 * 40_000_256;
    assert_eq!(
        device.drain(Duration::from_secs(3)),
        Err(DeviceError::Timeout {
            what: "draining the queues".into(),
            waited: Duration::from_secs(3)
        })
    );
    assert_eq!(device.virtual_now_ns(), 3_000_000_000);
    device.drain(Duration::from_secs(2)).unwrap();
    assert_eq!(device.virtual_now_ns(), end_ns);
}
