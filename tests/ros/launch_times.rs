//! Profiles of traces: when launches ran, and what a profiled replay leaves behind.

use std::time::{Duration, Instant};

use sensorium::device::{
    Activation, BinaryKind, BufferClass, CpuConfig, CpuDevice, Cq, Device, DeviceError, FaultDevice,
    FaultPlan, InjectedFaults, OpDesc, SimConfig, SimDevice,
};
use sensorium::ops::DeviceTensor;
use sensorium::telemetry::profile::{
    BenchStage, OpsProfile, ProfileOptions, bench_trace_runner, profile_variant,
};
use sensorium::tensor::{DType, HostTensor, TensorSpec};
use sensorium::trace::{InputId, StateOptions, TraceOptions, TraceRunner, VariantId};

const ELEMENTS: usize = 40_000;

fn cpu() -> CpuDevice {
    CpuDevice::open(&CpuConfig {
        threads: 2,
        arena_bytes: 8 << 20,
        ..CpuConfig::default()
    })
    .unwrap()
}

/// `out = tanh(x) + sum`, and `sum` becomes `out`: a state that a lost or doubled replay would show.
fn network(device: &mut dyn Device, options: TraceOptions) -> (TraceRunner, VariantId, InputId) {
    let spec = TensorSpec::new(&[ELEMENTS], DType::F32).unwrap();
    let mut runner = TraceRunner::new("net", options).unwrap();
    let input = runner.add_input(device, "x", spec, None).unwrap();
    let state = StateOptions {
        pingpong: true,
        ..StateOptions::default()
    };
    runner.add_state(device, "sum", spec, None, state).unwrap();
    runner.add_output(device, "out", spec).unwrap();
    let forward = move |context: &mut sensorium::trace::TraceContext<'_>| {
        let (x, sum, out) = (context.input("x")?, context.state("sum")?, context.output("out")?);
        let ops = context.ops();
        let y = ops.alloc(&spec, BufferClass::Intermediate)?;
        let of = |tensor: &DeviceTensor| tensor.operand();
        let tanh = OpDesc::Unary {
            src: of(&x),
            dst: of(&y),
            activation: Activation::Tanh,
        };
        ops.run(&tanh, &[x.buffer, y.buffer])?;
        let add = OpDesc::Binary {
            lhs: of(&y),
            rhs: of(&sum),
            dst: of(&out),
            kind: BinaryKind::Add,
        };
        ops.run(&add, &[y.buffer, sum.buffer, out.buffer])?;
        context.write_state("sum", &out)?;
        Ok(vec![("out".to_owned(), out)])
    };
    let variant = runner.add_variant(device, "default", Box::new(forward)).unwrap();
    runner.capture(device).unwrap();
    (runner, variant, input)
}

fn input() -> HostTensor {
    let values: Vec<f32> = (0..ELEMENTS).map(|i| (i as f32 * 0.37).sin()).collect();
    HostTensor::from_slice(&[ELEMENTS], &values).unwrap()
}

#[test]
fn a_profiled_replay_is_a_replay_whose_launches_are_timed_in_order() {
    for options in [TraceOptions::default(), TraceOptions::two_queues()] {
        let (mut profiled, mut plain) = (cpu(), cpu());
        let (mut a, variant_a, input_a) = network(&mut profiled, options.clone());
        let (mut b, variant_b, input_b) = network(&mut plain, options);
        let x = input();
        let mut results = Vec::new();
        for frame in 0..4 {
            let expected = b.call(&mut plain, variant_b, &[(input_b, &x)]).unwrap();
            if frame % 2 == 0 {
                results.push((
                    a.call(&mut profiled, variant_a, &[(input_a, &x)]).unwrap(),
                    expected,
                ));
                continue;
            }
            let begin = Instant::now();
            let (times, pending) = a.profile(&mut profiled, variant_a).unwrap();
            let wall = begin.elapsed().as_nanos() as u64;
            results.push((a.read_all(&mut profiled, pending).unwrap(), expected));
            let ops: Vec<_> = times.iter().map(|time| time.op.name()).collect();
            assert_eq!(ops, ["unary", "binary", "copy"]);
            assert_eq!(times[0].start_ns, 0);
            assert!(times.iter().all(|time| time.end_ns >= time.start_ns));
            assert!(
                times.windows(2).all(|pair| pair[1].start_ns >= pair[0].end_ns),
                "{times:?}"
            );
            assert!(times[2].end_ns <= wall, "{times:?} in {wall} ns");
        }
        // States went on through profiled replays: the fourth sum is four times the first.
        for (found, expected) in &results {
            assert_eq!(found[0].1.bytes(), expected[0].1.bytes());
        }
        let sums = |i: usize| results[i].0[0].1.as_slice::<f32>().unwrap()[1];
        assert!((sums(3) - 4.0 * sums(0)).abs() < 1e-6);
        a.release(&mut profiled).unwrap();
        b.release(&mut plain).unwrap();
    }
}

#[test]
fn a_device_that_cannot_time_its_launches_says_so() {
    let mut sim = SimDevice::open(&SimConfig::default()).unwrap();
    let (mut runner, variant, _) = network(&mut sim, TraceOptions::default());
    let error = runner.profile(&mut sim, variant).unwrap_err();
    assert!(error.to_string().contains("profile on the cpu device"), "{error}");
    // The refusal changed nothing.
    runner.replay(&mut sim, variant).unwrap();
    runner.release(&mut sim).unwrap();
}

#[test]
fn a_profile_is_refused_where_a_replay_is() {
    let mut device = cpu();
    let spec = TensorSpec::new(&[4], DType::F32).unwrap();
    let buffer = device.alloc(&spec, BufferClass::Output).unwrap();
    let fill = OpDesc::Fill {
        dst: DeviceTensor::whole(buffer, &spec).operand(),
        value: sensorium::device::Scalar::new(1.0),
    };
    let program = device.compile(&fill).unwrap();
    device.begin_capture(Cq::COMPUTE).unwrap();
    device.launch(Cq::COMPUTE, program, &[buffer]).unwrap();
    let trace = device.end_capture().unwrap();
    let second = Duration::from_secs(1);
    let times = device.profile(Cq::IO, trace, second).unwrap();
    assert_eq!((times.len(), &times[0].op), (1, &fill));
    let late = device.alloc(&spec, BufferClass::Output).unwrap();
    let error = device.profile(Cq::COMPUTE, trace, second).unwrap_err();
    assert!(matches!(error, DeviceError::UnsafeReplay { .. }), "{error}");
    device.free(late).unwrap();
    let error = device.profile(Cq(7), trace, second).unwrap_err();
    assert!(matches!(error, DeviceError::UnknownQueue(..)), "{error}");
    device.begin_capture(Cq::COMPUTE).unwrap();
    let error = device.profile(Cq::COMPUTE, trace, second).unwrap_err();
    assert!(matches!(error, DeviceError::DuringCapture { .. }), "{error}");
    device.abort_capture().unwrap();
    device.release_trace(trace).unwrap();
    let error = device.profile(Cq::COMPUTE, trace, second).unwrap_err();
    assert!(matches!(error, DeviceError::UnknownTrace(_)), "{error}");
    device.close();
    assert_eq!(
        device.profile(Cq::COMPUTE, trace, second),
        Err(DeviceError::Closed)
    );
}

#[test]
fn a_device_that_injects_faults_profiles_what_it_wraps() {
    let mut device = FaultDevice::new(Box::new(cpu()), InjectedFaults::new(&FaultPlan::default()));
    let (mut runner, variant, _) = network(&mut device, TraceOptions::default());
    let (times, _) = runner.profile(&mut device, variant).unwrap();
    assert_eq!(times.len(), 3);
    runner.release(&mut device).unwrap();
}

#[test]
fn stages_and_launches_of_a_variant_add_up() {
    let mut device = cpu();
    let (mut runner, variant, input_id) = network(&mut device, TraceOptions::default());
    let x = input();
    let options = ProfileOptions {
        frames: 12,
        warmup: 2,
        row: 5,
        ..ProfileOptions::default()
    };
    let mut seen = 0;
    let mut post = |outputs: &[sensorium::device::HostSlot]| {
        assert_eq!((outputs.len(), outputs[0].len()), (1, 4 * ELEMENTS));
        std::thread::sleep(Duration::from_millis(1));
        seen += 1;
    };
    let inputs = [(input_id, &x)];
    let bench = bench_trace_runner(
        &mut runner,
        &mut device,
        variant,
        &inputs,
        Some(&mut post),
        &options,
    );
    let rows = bench.unwrap().rows();
    assert_eq!(seen, 14);
    let stages: Vec<_> = rows.iter().map(|row| row.stage).collect();
    assert_eq!(stages, BenchStage::ALL);
    let of = |stage: BenchStage| rows[stage as usize].stats;
    for stage in BenchStage::ALL {
        // Rows of five replays for twelve frames are three.
        let expected = if stage == BenchStage::BackToBack { 3 } else { 12 };
        assert_eq!(of(stage).n, expected, "{stage:?}");
    }
    assert!(of(BenchStage::Post).min_us >= 1000.0);
    // Means add up: a frame is its stages.
    let parts: f64 = BenchStage::ALL[..5].iter().map(|&stage| of(stage).mean_us).sum();
    let whole = of(BenchStage::EndToEnd).mean_us;
    assert!((parts - whole).abs() < 0.01 * whole + 5.0, "{parts} of {whole}");

    let names = ["net", "float32"];
    let profile = profile_variant(
        &mut runner,
        &mut device,
        variant,
        &inputs,
        None,
        None,
        names,
        &options,
    )
    .unwrap();
    assert_eq!(profile.ops.replays, 12);
    let OpsProfile {
        launches,
        by_op,
        top_gaps,
        ..
    } = &profile.ops;
    let flop: Vec<u64> = launches.iter().map(|row| row.flop).collect();
    assert_eq!(flop, [ELEMENTS as u64, ELEMENTS as u64, 0]);
    let bytes: Vec<u64> = launches
        .iter()
        .map(|row| row.bytes / (4 * ELEMENTS as u64))
        .collect();
    assert_eq!(bytes, [2, 3, 2]);
    assert_eq!((by_op.len(), top_gaps.len()), (3, 2));
    let named = profile.clone().named(&["a", "b", "c"].map(str::to_owned));
    let names: Vec<_> = named.ops.launches.iter().map(|row| row.name.as_deref()).collect();
    assert_eq!(names, [Some("a"), Some("b"), Some("c")]);
    // Names of other launches are none of these.
    assert_eq!(profile.clone().named(&["a".to_owned()]), profile);
    let document = serde_json::to_value(&profile).unwrap();
    assert_eq!(document["stages"][0]["stage"], "host_in");
    assert_eq!(
        document["ops"]["launches"][1]["summary"],
        "binary [40000] -> [40000] float32"
    );
    let table = profile.table(2);
    for part in [
        "back_to_back",
        "the 2 longest of 3 launches",
        "unary",
        "GFLOP/s",
        "processor: ",
    ] {
        assert!(table.contains(part), "no {part} in\n{table}");
    }
    runner.release(&mut device).unwrap();
}
