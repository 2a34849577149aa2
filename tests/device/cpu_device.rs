//! What is the CPU device's own: texts, where buffers lie, what a panic costs. The contract itself is checked by
//! `device_conformance`.

use std::time::{Duration, Instant};

use sensorium::device::{
    Activation, BinaryKind, BufferClass, BufferId, CpuConfig, CpuDevice, Cq, Device, DeviceError,
    DeviceHealth, OpDesc, Operand, UnsafeLive,
};
use sensorium::tensor::{DType, Shape, TensorSpec, View};

const N: usize = 1000;

fn open(queues: u8) -> CpuDevice {
    CpuDevice::open(&CpuConfig {
        queues,
        threads: 2,
        arena_bytes: 1 << 20,
        ..CpuConfig::default()
    })
    .unwrap()
}

fn spec() -> TensorSpec {
    TensorSpec::new(&[N], DType::F32).unwrap()
}

fn operand() -> Operand {
    Operand {
        dtype: DType::F32,
        view: View::contiguous(Shape::new(&[N]).unwrap()),
    }
}

fn add() -> OpDesc {
    OpDesc::Binary {
        lhs: operand(),
        rhs: operand(),
        dst: operand(),
        kind: BinaryKind::Add,
    }
}

fn relu() -> OpDesc {
    OpDesc::Unary {
        src: operand(),
        dst: operand(),
        activation: Activation::Relu,
    }
}

fn buffer(device: &mut CpuDevice, class: BufferClass) -> BufferId {
    device.alloc(&spec(), class).unwrap()
}

fn write(device: &mut CpuDevice, cq: Cq, dst: BufferId, values: &[f32]) {
    let mut slot = device.host_slot(values.len() * 4).unwrap();
    slot.bytes_mut()
        .unwrap()
        .copy_from_slice(bytemuck::cast_slice(values));
    device.write(cq, dst, 0, &slot, values.len() * 4).unwrap();
}

fn read(device: &mut CpuDevice, cq: Cq, src: BufferId) -> Vec<f32> {
    let mut slot = device.host_slot(N * 4).unwrap();
    device.read(cq, src, 0, &mut slot, N * 4).unwrap();
    assert!(slot.is_busy() || slot.bytes().is_ok());
    let done = device.record_event(cq).unwrap();
    device
        .sync_event(done, Instant::now() + Duration::from_secs(10))
        .unwrap();
    bytemuck::cast_slice(slot.bytes().unwrap()).to_vec()
}

fn run(device: &mut CpuDevice, op: &OpDesc, buffers: &[BufferId]) -> Result<(), DeviceError> {
    let program = device.compile(op)?;
    device.launch(Cq::COMPUTE, program, buffers)
}

#[test]
fn a_replay_is_refused_while_a_later_buffer_is_alive() {
    let mut device = open(1);
    let (a, b) = (
        buffer(&mut device, BufferClass::Input),
        buffer(&mut device, BufferClass::Output),
    );
    write(&mut device, Cq::COMPUTE, a, &[1.0; N]);
    run(&mut device, &add(), &[a, a, b]).unwrap();
    device.begin_capture(Cq::COMPUTE).unwrap();
    let temporary = buffer(&mut device, BufferClass::Intermediate);
    run(&mut device, &add(), &[a, a, temporary]).unwrap();
    run(&mut device, &add(), &[temporary, a, b]).unwrap();
    let address = device.address(temporary).unwrap();
    device.free(temporary).unwrap();
    let trace = device.end_capture().unwrap();

    let late = buffer(&mut device, BufferClass::Output);
    assert_eq!(
        device.address(late).unwrap(),
        address,
        "what a capture frees is used again"
    );
    let live = UnsafeLive {
        buffers: vec![late],
        programs: Vec::new(),
    };
    assert_eq!(device.unsafe_live(trace).unwrap(), live);
    assert_eq!(
        device.replay(Cq::COMPUTE, trace),
        Err(DeviceError::UnsafeReplay {
            trace,
            live: Box::new(live)
        })
    );
    // An owner that acknowledges the hazard gets it: the replay overwrites the late buffer.
    write(&mut device, Cq::COMPUTE, late, &[7.0; N]);
    device.acknowledge(late).unwrap();
    device.replay(Cq::COMPUTE, trace).unwrap();
    assert_eq!(read(&mut device, Cq::COMPUTE, late), [2.0; N]);
    assert_eq!(read(&mut device, Cq::COMPUTE, b), [3.0; N]);

    let later = buffer(&mut device, BufferClass::Output);
    assert!(device.replay(Cq::COMPUTE, trace).is_err());
    device.free(later).unwrap();
    device.replay(Cq::COMPUTE, trace).unwrap();
}

#[test]
fn a_replay_is_refused_after_a_program_was_compiled_behind_its_capture() {
    let mut device = open(1);
    let (a, b) = (
        buffer(&mut device, BufferClass::Input),
        buffer(&mut device, BufferClass::Output),
    );
    run(&mut device, &relu(), &[a, b]).unwrap();
    device.begin_capture(Cq::COMPUTE).unwrap();
    run(&mut device, &relu(), &[a, b]).unwrap();
    let trace = device.end_capture().unwrap();
    device.replay(Cq::COMPUTE, trace).unwrap();

    device.compile(&add()).unwrap();
    let refusal = device.replay(Cq::COMPUTE, trace).unwrap_err().to_string();
    assert!(
        refusal.contains("found 1 program(s) compiled after the capture: binary"),
        "{refusal}"
    );
    // Captured again, the program lies before the capture.
    device.release_trace(trace).unwrap();
    device.begin_capture(Cq::COMPUTE).unwrap();
    run(&mut device, &add(), &[a, a, b]).unwrap();
    let trace = device.end_capture().unwrap();
    device.replay(Cq::COMPUTE, trace).unwrap();
}

#[test]
fn wrong_ids_sizes_and_bindings_are_errors_that_change_nothing() {
    let mut device = open(1);
    let a = buffer(&mut device, BufferClass::Input);
    let small = device
        .alloc(
            &TensorSpec::new(&[N - 1], DType::F32).unwrap(),
            BufferClass::Output,
        )
        .unwrap();
    let program = device.compile(&relu()).unwrap();
    let short = device.launch(Cq::COMPUTE, program, &[a, small]).unwrap_err();
    assert_eq!(
        short.to_string(),
        "unary: operand 1 (buffer 2) has 3996 bytes, the program reaches 4000"
    );
    assert!(matches!(
        device.launch(Cq::COMPUTE, program, &[a]),
        Err(DeviceError::InvalidBinding { .. })
    ));
    assert_eq!(
        device.record_event(Cq::IO),
        Err(DeviceError::UnknownQueue(Cq::IO, 1))
    );
    assert!(matches!(
        device.copy(Cq::COMPUTE, a, small),
        Err(DeviceError::OutOfRange { .. })
    ));
    let mut slot = device.host_slot(8).unwrap();
    assert!(matches!(
        device.write(Cq::COMPUTE, a, 0, &slot, 12),
        Err(DeviceError::OutOfRange { .. })
    ));
    assert!(matches!(
        device.read(Cq::COMPUTE, a, N * 4 - 4, &mut slot, 8),
        Err(DeviceError::OutOfRange { .. })
    ));
    assert!(matches!(
        device.read(Cq::COMPUTE, a, usize::MAX, &mut slot, 8),
        Err(DeviceError::OutOfRange { .. })
    ));
    let big = TensorSpec::new(&[1 << 20], DType::F32).unwrap();
    assert!(matches!(
        device.alloc(&big, BufferClass::Input),
        Err(DeviceError::OutOfMemory { .. })
    ));
    device.free(a).unwrap();
    assert_eq!(device.free(a), Err(DeviceError::UnknownBuffer(a)));
    assert_eq!(device.health(), DeviceHealth::Healthy);

    // Events of another device were never recorded here.
    let mut other = open(1);
    let foreign = (0..5)
        .map(|_| other.record_event(Cq::COMPUTE).unwrap())
        .last()
        .unwrap();
    assert_eq!(
        device.wait_event(Cq::COMPUTE, foreign),
        Err(DeviceError::UnknownEvent(foreign))
    );
}

#[test]
fn a_completion_hook_that_panics_loses_the_device_and_leaves_nobody_waiting() {
    let mut device = open(2);
    device.set_completion_hook(std::sync::Arc::new(|| panic!("the hook gives up")));
    let first = device.record_event(Cq::IO).unwrap();
    device.wait_event(Cq::COMPUTE, first).unwrap();
    let second = device.record_event(Cq::COMPUTE).unwrap();
    // Both queues go on, whether the wait below is told of the loss or is done before it.
    let _ = device.sync_event(second, Instant::now() + Duration::from_secs(60));
    let end = Instant::now() + Duration::from_secs(60);
    while device.health() == DeviceHealth::Healthy && Instant::now() < end {
        std::thread::yield_now();
    }
    assert_eq!(
        device.record_event(Cq::IO),
        Err(DeviceError::Lost {
            reason: "the completion hook panicked: the hook gives up".into()
        })
    );
    device.close();
    assert_eq!(device.health(), DeviceHealth::Closed);
}
