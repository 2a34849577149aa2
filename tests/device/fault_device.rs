//! Faults injected into the CPU device: every kind does what the plan says, and nothing else.

use std::time::{Duration, Instant};

use sensorium::device::conformance::{CHECKS, Outcome, run_all};
use sensorium::device::{
    Activation, BufferClass, BufferId, CpuConfig, CpuDevice, Cq, Device, DeviceError, DeviceHealth, EventId,
    Fault, FaultAt, FaultCall, FaultDevice, FaultKind, FaultPlan, HostSlot, InjectedFaults, OpDesc, Operand,
};
use sensorium::tensor::{DType, Shape, TensorSpec, View};

const N: usize = 1000;

fn cpu(queues: u8) -> Box<dyn Device> {
    let config = CpuConfig {
        queues,
        threads: 1,
        arena_bytes: 64 << 20,
        trace_region_bytes: 1 << 20,
        ..CpuConfig::default()
    };
    Box::new(CpuDevice::open(&config).unwrap())
}

fn inject(faults: &[Fault]) -> InjectedFaults {
    InjectedFaults::new(&FaultPlan {
        seed: 5,
        faults: faults.to_vec(),
    })
}

fn faulty(queues: u8, faults: &[Fault]) -> FaultDevice {
    FaultDevice::new(cpu(queues), inject(faults))
}

fn spec() -> TensorSpec {
    TensorSpec::new(&[N], DType::F32).unwrap()
}

fn relu() -> OpDesc {
    let operand = Operand {
        dtype: DType::F32,
        view: View::contiguous(Shape::new(&[N]).unwrap()),
    };
    OpDesc::Unary {
        src: operand,
        dst: operand,
        activation: Activation::Relu,
    }
}

fn buffer(device: &mut dyn Device, class: BufferClass) -> BufferId {
    device.alloc(&spec(), class).unwrap()
}

fn slot_of(value: f32) -> HostSlot {
    let mut slot = HostSlot::new(N * 4);
    slot.bytes_mut()
        .unwrap()
        .copy_from_slice(bytemuck::cast_slice(&[value; N]));
    slot
}

fn sync(device: &dyn Device, event: EventId) -> Result<(), DeviceError> {
    device.sync_event(event, Instant::now() + Duration::from_secs(10))
}

fn read(device: &mut dyn Device, cq: Cq, src: BufferId) -> Vec<f32> {
    let mut slot = device.host_slot(N * 4).unwrap();
    device.read(cq, src, 0, &mut slot, N * 4).unwrap();
    let done = device.record_event(cq).unwrap();
    sync(device, done).unwrap();
    bytemuck::cast_slice(slot.bytes().unwrap()).to_vec()
}

/// `b = max(a, 0)` as a trace.
fn captured(
    device: &mut dyn Device,
    [a, b]: [BufferId; 2],
) -> Result<sensorium::device::TraceId, DeviceError> {
    let program = device.compile(&relu()).unwrap();
    device.begin_capture(Cq::COMPUTE).unwrap();
    let between = device.alloc(&spec(), BufferClass::Intermediate).unwrap();
    device.launch(Cq::COMPUTE, program, &[a, between]).unwrap();
    device.launch(Cq::COMPUTE, program, &[between, b]).unwrap();
    device.free(between).unwrap();
    device.end_capture()
}

#[test]
fn a_wrapped_device_without_faults_keeps_the_contract() {
    for queues in [1, 2] {
        let reports = run_all(&mut || Ok(Box::new(faulty(queues, &[])))).unwrap();
        assert_eq!(reports.len(), CHECKS.len());
        for report in &reports {
            if let Outcome::Failed(failure) = &report.outcome {
                panic!("{queues} queue(s): {}: {failure}", report.check.name);
            }
        }
    }
    let device = faulty(2, &[]);
    assert!(device.caps().description.ends_with(", faults injected"));
}

#[test]
fn a_refused_call_enqueues_nothing_and_the_next_one_works() {
    type Call = fn(&mut FaultDevice, [BufferId; 2]) -> Result<(), DeviceError>;
    let calls: [(FaultCall, Call); 8] = [
        (FaultCall::Write, |device, [a, _]| {
            let slot = slot_of(1.0);
            let outcome = device.write(Cq::COMPUTE, a, 0, &slot, N * 4);
            assert!(
                outcome.is_ok() || !slot.is_busy(),
                "a refused write keeps no slot"
            );
            outcome
        }),
        (FaultCall::Read, |device, [a, _]| {
            let mut slot = HostSlot::new(N * 4);
            let outcome = device.read(Cq::COMPUTE, a, 0, &mut slot, N * 4);
            assert!(outcome.is_ok() || !slot.is_busy(), "a refused read keeps no slot");
            outcome
        }),
        (FaultCall::Copy, |device, [a, b]| device.copy(Cq::COMPUTE, a, b)),
        (FaultCall::Launch, |device, [a, b]| {
            let program = device.compile(&relu())?;
            device.launch(Cq::COMPUTE, program, &[a, b])
        }),
        (FaultCall::Replay, |device, buffers| {
            let trace = captured(device, buffers).unwrap();
            let outcome = device.replay(Cq::COMPUTE, trace);
            device.drain(Duration::from_secs(10)).unwrap();
            device.release_trace(trace).unwrap();
            outcome
        }),
        (FaultCall::RecordEvent, |device, _| {
            device.record_event(Cq::COMPUTE).map(drop)
        }),
        (FaultCall::WaitEvent, |device, _| {
            let event = device.record_event(Cq::IO).unwrap();
            device.wait_event(Cq::COMPUTE, event)
        }),
        (FaultCall::Any, |device, [a, b]| device.copy(Cq::COMPUTE, a, b)),
    ];
    for (call, make) in calls {
        let mut device = faulty(
            2,
            &[Fault::new(FaultAt::Nth(2), FaultKind::Refuse(call)).on(Cq::COMPUTE)],
        );
        let buffers = [
            buffer(&mut device, BufferClass::Input),
            buffer(&mut device, BufferClass::Output),
        ];
        make(&mut device, buffers).unwrap_or_else(|e| panic!("{call:?}: {e}"));
        assert_eq!(
            make(&mut device, buffers),
            Err(DeviceError::QueueFull {
                cq: Cq::COMPUTE,
                depth: device.caps().queue_depth,
                waited: Duration::ZERO
            }),
            "{call:?}"
        );
        make(&mut device, buffers).unwrap_or_else(|e| panic!("{call:?}: {e}"));
        device.drain(Duration::from_secs(10)).unwrap();
        assert_eq!(device.health(), DeviceHealth::Healthy);
    }
}

#[test]
fn a_queue_that_waits_for_a_lost_event_stands_still_and_the_other_goes_on() {
    let mut device = faulty(2, &[Fault::new(FaultAt::Nth(2), FaultKind::LoseEvent).on(Cq::IO)]);
    let [a, b] = [BufferClass::Input, BufferClass::Output].map(|class| buffer(&mut device, class));
    device.write(Cq::IO, a, 0, &slot_of(1.0), N * 4).unwrap();
    let first = device.record_event(Cq::IO).unwrap();
    let lost = device.record_event(Cq::IO).unwrap();
    let third = device.record_event(Cq::IO).unwrap();
    sync(&device, third).unwrap();
    sync(&device, first).unwrap();
    assert_eq!(device.poll_event(lost), Ok(false));
    let short = Instant::now() + Duration::from_millis(30);
    assert!(matches!(
        device.sync_event(lost, short),
        Err(DeviceError::Timeout { what, .. }) if what == lost.to_string()
    ));
    assert!(Instant::now() >= short, "a wait lasts until its deadline");

    device.wait_event(Cq::COMPUTE, lost).unwrap();
    let (upload, mut download) = (slot_of(7.0), HostSlot::new(N * 4));
    device.write(Cq::COMPUTE, b, 0, &upload, N * 4).unwrap();
    device.read(Cq::COMPUTE, a, 0, &mut download, N * 4).unwrap();
    let behind = device.record_event(Cq::COMPUTE).unwrap();
    assert!(upload.is_busy() && download.is_busy());
    assert_eq!(device.poll_event(behind), Ok(false));
    assert!(matches!(
        device.drain(Duration::from_millis(20)),
        Err(DeviceError::Timeout { .. })
    ));
    assert_eq!(read(&mut device, Cq::IO, a), [1.0; N]);
    assert_ne!(
        read(&mut device, Cq::IO, b),
        [7.0; N],
        "what stands behind the wait never runs"
    );

    // Whoever waits for something behind it stands as well.
    device.wait_event(Cq::IO, behind).unwrap();
    let next = device.record_event(Cq::IO).unwrap();
    assert_eq!(device.poll_event(next), Ok(false));
    assert_eq!(device.health(), DeviceHealth::Healthy);
    device.close();
    assert!(
        !upload.is_busy() && !download.is_busy(),
        "a closed device lends nothing"
    );
}

#[test]
fn a_queue_that_stands_fills_up_and_still_refuses_what_makes_no_sense() {
    let mut device = faulty(1, &[Fault::new(FaultAt::Nth(1), FaultKind::LoseEvent)]);
    let a = buffer(&mut device, BufferClass::Input);
    let gone = buffer(&mut device, BufferClass::Input);
    device.free(gone).unwrap();
    let lost = device.record_event(Cq::COMPUTE).unwrap();
    device.wait_event(Cq::COMPUTE, lost).unwrap();
    assert_eq!(
        device.copy(Cq::COMPUTE, a, gone),
        Err(DeviceError::UnknownBuffer(gone))
    );
    for _ in 0..device.caps().queue_depth {
        device.copy(Cq::COMPUTE, a, a).unwrap();
    }
    assert!(matches!(
        device.record_event(Cq::COMPUTE),
        Err(DeviceError::QueueFull { cq: Cq::COMPUTE, .. })
    ));
}

/// A device whose first event on the I/O queue never completes, so that a queue can be made to stand.
fn with_a_lost_event() -> Box<dyn Device> {
    Box::new(faulty(
        2,
        &[Fault::new(FaultAt::Nth(1), FaultKind::LoseEvent).on(Cq::IO)],
    ))
}

#[test]
fn an_early_event_completes_with_the_one_before_it() {
    let early = Fault::new(FaultAt::From(2), FaultKind::EarlyEvent).on(Cq::COMPUTE);
    let mut device = FaultDevice::new(with_a_lost_event(), inject(&[early]));
    let a = buffer(&mut device, BufferClass::Input);
    let lost = device.record_event(Cq::IO).unwrap();
    let before = device.record_event(Cq::COMPUTE).unwrap();
    device.wait_event(Cq::COMPUTE, lost).unwrap();
    let slot = slot_of(1.0);
    device.write(Cq::COMPUTE, a, 0, &slot, N * 4).unwrap();
    // The write never runs, and yet both events behind it complete.
    for _ in 0..2 {
        let early = device.record_event(Cq::COMPUTE).unwrap();
        assert_ne!(early, before);
        sync(&device, early).unwrap();
        assert_eq!(device.poll_event(early), Ok(true));
        device.wait_event(Cq::IO, early).unwrap();
    }
    assert!(slot.is_busy());
    let io = device.record_event(Cq::IO).unwrap();
    sync(&device, io).unwrap();

    // With none before it: at once.
    let first = Fault::new(FaultAt::Nth(1), FaultKind::EarlyEvent).on(Cq::COMPUTE);
    let mut device = FaultDevice::new(with_a_lost_event(), inject(&[first]));
    let lost = device.record_event(Cq::IO).unwrap();
    device.wait_event(Cq::COMPUTE, lost).unwrap();
    let early = device.record_event(Cq::COMPUTE).unwrap();
    let regular = device.record_event(Cq::COMPUTE).unwrap();
    assert_eq!(device.poll_event(early), Ok(true));
    assert_eq!(device.poll_event(regular), Ok(false));
    device.wait_event(Cq::IO, early).unwrap();
}

#[test]
fn an_ignored_wait_holds_nothing_up() {
    let ignored = Fault::new(FaultAt::Nth(1), FaultKind::IgnoreWait);
    let mut device = FaultDevice::new(with_a_lost_event(), inject(&[ignored]));
    let lost = device.record_event(Cq::IO).unwrap();
    device.wait_event(Cq::COMPUTE, lost).unwrap();
    let done = device.record_event(Cq::COMPUTE).unwrap();
    sync(&device, done).unwrap();
    device.wait_event(Cq::COMPUTE, lost).unwrap();
    let behind = device.record_event(Cq::COMPUTE).unwrap();
    assert_eq!(device.poll_event(behind), Ok(false), "the next wait counts");
}

#[test]
fn a_slow_command_is_over_when_its_call_returns() {
    const LARGE: usize = 16 << 20;
    let mut device = faulty(
        2,
        &[Fault::new(FaultAt::From(1), FaultKind::Slow { factor: 2 }).on(Cq::IO)],
    );
    let large = TensorSpec::new(&[LARGE], DType::U8).unwrap();
    let target = device.alloc(&large, BufferClass::Input).unwrap();
    for _ in 0..3 {
        let mut slot = HostSlot::new(LARGE);
        device.write(Cq::IO, target, 0, &slot, LARGE).unwrap();
        assert!(!slot.is_busy());
        device.read(Cq::IO, target, 0, &mut slot, LARGE).unwrap();
        assert!(!slot.is_busy());
    }
}

#[test]
fn a_capture_that_does_not_fit_is_given_up_and_the_next_one_works() {
    let partial = Fault::new(FaultAt::Nth(1), FaultKind::PartialCapture { launches: 1 });
    let mut device = faulty(1, &[partial]);
    let buffers = [BufferClass::Input, BufferClass::Output].map(|class| buffer(&mut device, class));
    let before = device.memory();
    let Err(DeviceError::TraceRegionFull { needed, free, region }) = captured(&mut device, buffers) else {
        panic!("the capture fits");
    };
    assert!(
        free < needed && free > 0 && region == 1 << 20,
        "{needed} {free} {region}"
    );
    assert_eq!(device.memory(), before);
    let trace = captured(&mut device, buffers).unwrap();
    assert_eq!(device.memory().trace_bytes, needed);
    let slot = slot_of(3.0);
    device.write(Cq::COMPUTE, buffers[0], 0, &slot, N * 4).unwrap();
    device.replay(Cq::COMPUTE, trace).unwrap();
    assert_eq!(read(&mut device, Cq::COMPUTE, buffers[1]), [3.0; N]);
}

#[test]
fn a_lost_device_answers_lost_until_it_is_closed() {
    let mut device = faulty(
        2,
        &[
            Fault::new(FaultAt::Nth(2), FaultKind::LoseDevice(FaultCall::Write)),
            Fault::new(FaultAt::Nth(1), FaultKind::LoseEvent).on(Cq::IO),
        ],
    );
    let a = buffer(&mut device, BufferClass::Input);
    let event = device.record_event(Cq::IO).unwrap();
    device.wait_event(Cq::COMPUTE, event).unwrap();
    let (kept, refused) = (slot_of(1.0), slot_of(2.0));
    device.write(Cq::COMPUTE, a, 0, &kept, N * 4).unwrap();
    let lost = Err(DeviceError::Lost {
        reason: "the fault plan says so".into(),
    });
    assert_eq!(device.write(Cq::IO, a, 0, &refused, N * 4), lost);
    assert!(!refused.is_busy());
    assert_eq!(device.poll_event(event).map(drop), lost);
    assert_eq!(sync(&device, event), lost);
    assert_eq!(device.alloc(&spec(), BufferClass::Input).map(drop), lost);
    assert_eq!(device.drain(Duration::from_secs(10)), lost);
    assert!(matches!(device.health(), DeviceHealth::Lost { .. }));
    assert!(kept.is_busy());
    device.close();
    assert!(!kept.is_busy());
    assert_eq!(device.health(), DeviceHealth::Closed);
    assert_eq!(device.drain(Duration::from_secs(10)), Err(DeviceError::Closed));
    device.close();
}

#[test]
fn a_plan_goes_on_where_it_was_on_the_next_device() {
    let faults = inject(&[
        Fault::new(FaultAt::Nth(3), FaultKind::LoseDevice(FaultCall::Copy)),
        Fault::new(FaultAt::From(5), FaultKind::LoseDevice(FaultCall::Copy)),
    ]);
    // The calls that succeed on one device after another.
    let lives = [0; 4].map(|_| {
        let mut device = FaultDevice::new(cpu(1), faults.clone());
        let a = buffer(&mut device, BufferClass::Input);
        (0..10)
            .take_while(|_| device.copy(Cq::COMPUTE, a, a).is_ok())
            .count()
    });
    assert_eq!(lives, [2, 1, 0, 0]);
}
