//! Wrong use that a runner answers by name, before it costs anything.

use std::time::Duration;

use sensorium::device::{BufferClass, Cq, Device, FaultDevice, FaultPlan, InjectedFaults, MissPolicy};
use sensorium::ops::{DeviceTensor, OpContext};
use sensorium::tensor::{DType, HostTensor, Layout, TensorSpec};
use sensorium::trace::{
    BankIndex, ResetValue, StateOptions, TraceError, TraceOptions, TraceRunner, VariantFn, WorkError,
};

use super::failures::refusal;
use super::replay::{doubled, rectified, runner};
use super::spy::Spy;
use super::temporal::{Kind, Model, Twin, floats, in_every_mode, on_every_device, ramp, spec};

/// Something that registers a tensor.
type Register = fn(&mut TraceRunner, &mut dyn Device) -> Result<(), TraceError>;

const REGISTRATIONS: [(&str, Register); 4] = [
    ("input", |runner, device| {
        runner.add_input(device, "late", spec(), None).map(drop)
    }),
    ("parameter", |runner, device| {
        runner.add_param(device, "late", 1.0).map(drop)
    }),
    ("state", |runner, device| {
        let options = StateOptions::default();
        runner.add_state(device, "late", spec(), None, options).map(drop)
    }),
    ("output", |runner, device| {
        runner.add_output(device, "late", tiled(spec()))
    }),
];

fn tiled(spec: TensorSpec) -> TensorSpec {
    TensorSpec {
        layout: Layout::Tile,
        ..spec
    }
}

/// The one way around the borrow checker: a variant that has a runner of its own.
#[test]
fn a_tensor_registered_from_inside_a_variant_is_refused_in_the_warm_up_already() {
    on_every_device(|open| {
        let mut device = open(1);
        let device = device.as_mut();
        for (kind, register) in &REGISTRATIONS[..3] {
            let mut inner = TraceRunner::new("inner", TraceOptions::default()).unwrap();
            let forward: VariantFn = Box::new(move |context| {
                assert!(!context.capturing(), "the warm-up lets it pass");
                register(&mut inner, context.ops().device)?;
                doubled(context)
            });
            assert_eq!(
                refusal(device, forward),
                format!(
                    "test: variant odd: inner: {kind} late: allocating a persistent buffer is not supported during trace \
                     capture"
                )
            );
        }
        assert_eq!(device.memory().used_bytes, 0);
    });
}

#[test]
fn a_staging_function_that_keeps_memory_is_refused_in_the_warm_up_already() {
    in_every_mode(|device, options| {
        let mut runner = TraceRunner::new("test", options).unwrap();
        let keeping = |ops: &mut OpContext<'_>, from: DeviceTensor, to: DeviceTensor| {
            ops.alloc(&spec(), BufferClass::State)?;
            Ok::<_, WorkError>(ops.copy(&from, &to)?)
        };
        runner
            .add_input_with(device, "x", spec(), spec(), None, Box::new(keeping))
            .unwrap();
        runner
            .add_variant(device, "default", Box::new(rectified))
            .unwrap();
        let used = device.memory();
        let error = runner.capture(device).unwrap_err();
        assert_eq!(
            error.to_string(),
            "test: staging of input x: allocating a persistent buffer is not supported during trace capture"
        );
        assert_eq!(device.memory(), used);
    });
}

#[test]
fn a_variant_can_neither_close_the_device_nor_silence_it() {
    in_every_mode(|device, options| {
        let (told, heard) = std::sync::mpsc::channel();
        let told = std::sync::Mutex::new(told);
        device.set_completion_hook(std::sync::Arc::new(move || {
            // The test may have ended.
            let _ = told.lock().unwrap().send(());
        }));
        let meddling: VariantFn = Box::new(|context| {
            let device = &mut *context.ops().device;
            device.set_completion_hook(std::sync::Arc::new(|| {}));
            device.close();
            doubled(context)
        });
        let (mut runner, x, _, variant) = runner(device, options, meddling);
        runner.capture(device).unwrap();
        while heard.try_recv().is_ok() {}
        let y = runner.call(device, variant, &[(x, &ramp(1.0))]).unwrap();
        assert_eq!(floats(&y[0].1)[0], 2.0);
        heard.recv_timeout(Duration::from_secs(60)).unwrap();
    });
}

#[test]
fn a_layout_that_the_device_does_not_have_is_told_with_the_tensor() {
    on_every_device(|open| {
        let mut device = open(1);
        let device = device.as_mut();
        let mut runner = TraceRunner::new("test", TraceOptions::default()).unwrap();
        let in_tiles = HostTensor::zeros(tiled(spec()));
        let stage = |ops: &mut OpContext<'_>, from: DeviceTensor, to: DeviceTensor| {
            Ok::<_, WorkError>(ops.copy(&from, &to)?)
        };
        let refused = [
            runner.add_input(device, "x", tiled(spec()), None).map(drop),
            runner
                .add_input_with(device, "x", spec(), tiled(spec()), None, Box::new(stage))
                .map(drop),
            runner.add_param_with(device, "x", &in_tiles).map(drop),
            runner
                .add_state(device, "x", tiled(spec()), None, StateOptions::default())
                .map(drop),
            runner.add_output(device, "x", tiled(spec())),
        ];
        let kinds = ["input", "input", "parameter", "state", "output"];
        for (refused, kind) in refused.into_iter().zip(kinds) {
            let error = refused.unwrap_err().to_string();
            assert!(error.starts_with(&format!("test: {kind} x: the ")), "{error}");
            assert!(
                error.contains("holds row-major tensors, not tile layout"),
                "{error}"
            );
        }
        // First values in tiles for a tensor in rows.
        let refused = [
            runner.add_input(device, "x", spec(), Some(&in_tiles)).map(drop),
            runner
                .add_state(device, "x", spec(), Some(&in_tiles), StateOptions::default())
                .map(drop),
        ];
        for refused in refused {
            let error = refused.unwrap_err().to_string();
            assert!(
                error.starts_with("test: x expects float32 [64] (256 bytes), found float32 [64]")
                    && error.contains("tile"),
                "{error}"
            );
        }
        assert_eq!(device.memory().used_bytes, 0);
        for (_, register) in &REGISTRATIONS[..3] {
            register(&mut runner, device).unwrap();
        }
    });
}

#[test]
fn a_transfer_that_the_device_refuses_is_told_with_its_tensor() {
    on_every_device(|open| {
        let mut device = Spy::new(open(1));
        let device = &mut device;
        let Model {
            mut runner,
            x,
            keep,
            mem,
            step,
            ..
        } = Model::captured(device, TraceOptions::default(), 1);
        let up = device.host_slot(spec().bytes()).unwrap();
        let mut down = device.host_slot(spec().bytes()).unwrap();
        let done = runner.run(device, step, &[(x, &up)]).unwrap();
        runner.set_param(keep, 0.25).unwrap();
        let value = ramp(1.0);
        // What is refused, and how many calls come before.
        let refuse = |device: &mut Spy, before| device.refuse_in = Some(before);
        refuse(device, 0);
        let upload = runner.upload(device, &[(x, &up)]).map(drop);
        refuse(device, 1);
        let write_input = runner.write_input(device, x, &value);
        refuse(device, 0);
        let param = runner.replay(device, step).map(drop);
        refuse(device, 0);
        let read = runner.read(device, done, 0, &mut down).map(drop);
        refuse(device, 0);
        let reset = runner.reset_state(device, mem, ResetValue::Host(&value));
        refuse(device, 0);
        let reset_init = runner.reset_state(device, mem, ResetValue::Init);
        refuse(device, 0);
        let read_state = runner.read_state(device, mem).map(drop);
        refuse(device, 0);
        let save = runner.save_state(device, mem, BankIndex(0));
        refuse(device, 0);
        let load = runner.load_state(device, mem, BankIndex(0));
        let texts = [
            upload,
            write_input,
            param,
            read,
            reset,
            reset_init,
            read_state,
            save,
            load,
        ]
        .map(|refused| refused.unwrap_err().to_string());
        let expected = [
            "input x",
            "input x",
            "parameter keep",
            "output y of variant step",
            "state mem",
            "state mem",
            "state mem",
            "state mem",
            "state mem",
        ];
        for (text, tensor) in texts.iter().zip(expected) {
            assert_eq!(
                *text,
                format!("model: {tensor}: CQ0 is full (0 commands) and took no further one within 0ns")
            );
        }
        assert_eq!(device.refuse_in, None);
        // A slot that is still being filled: for certain where nothing is executed before the host waits.
        let reading = runner.run(device, step, &[]).unwrap();
        runner.read(device, reading, 0, &mut down).unwrap();
        if device.caps().backend == "sim" {
            let error = runner.upload(device, &[(x, &down)]).unwrap_err().to_string();
            assert!(
                error.starts_with("model: input x: the host slot still belongs"),
                "{error}"
            );
        }
        runner.call(device, step, &[]).unwrap();
    });
}

#[test]
fn a_slot_or_number_that_does_not_fit_is_told_with_variant_and_output() {
    on_every_device(|open| {
        let mut device = open(1);
        let device = device.as_mut();
        let (mut runner, _, _, variant) = runner(device, TraceOptions::default(), Box::new(doubled));
        runner.capture(device).unwrap();
        let run = runner.run(device, variant, &[]).unwrap();
        let mut short = device.host_slot(spec().bytes() - 1).unwrap();
        assert_eq!(
            runner.read(device, run, 0, &mut short).unwrap_err().to_string(),
            "test: output y of variant default expects float32 [64] (256 bytes), found a slot of 255 bytes"
        );
        let mut slot = device.host_slot(spec().bytes()).unwrap();
        assert_eq!(
            runner.read(device, run, 7, &mut slot).unwrap_err().to_string(),
            "test: variant default: no output is called 7; there are [\"y\"]"
        );
        let read = runner.read(device, run, 0, &mut slot).unwrap();
        runner.wait(device, read).unwrap();
        let integers = HostTensor::zeros(TensorSpec::new(&[64], DType::I32).unwrap());
        let mut cold = TraceRunner::new("cold", TraceOptions::default()).unwrap();
        assert_eq!(
            cold.add_param_with(device, "n", &integers)
                .unwrap_err()
                .to_string(),
            "cold: n expects float32 [64] (256 bytes), found int32 [64]"
        );
    });
}

#[test]
fn a_value_whose_buffer_is_gone_is_told_with_what_it_was_to_be_written_to() {
    on_every_device(|open| {
        let mut device = open(1);
        let device = device.as_mut();
        for kind in ["state", "output"] {
            let mut kept: Option<DeviceTensor> = None;
            let stale: VariantFn = Box::new(move |context| {
                let z = match kept {
                    Some(z) => z,
                    None => *kept.insert(context.ops().alloc(&spec(), BufferClass::Output)?),
                };
                match kind {
                    "state" => context.write_state("sum", &z)?,
                    _ => drop(context.write_output("y", &z)?),
                }
                doubled_sum(context)
            });
            let mut model = Model::build(device, TraceOptions::default(), 0).unwrap();
            model.runner.add_variant(device, "stale", stale).unwrap();
            let error = model.runner.capture(device).unwrap_err();
            let name = if kind == "state" { "sum" } else { "y" };
            let text = error.to_string();
            assert!(
                text.starts_with(&format!("model: variant stale: writing {kind} {name}: buffer "))
                    && text.ends_with(" does not exist"),
                "{text}"
            );
            let x = ramp(1.0);
            let expected = Twin::default().run(Kind::Step, floats(&x), 0.5);
            assert_eq!(model.call(device, Kind::Step, &x), expected);
            model.runner.release(device).unwrap();
        }
        assert_eq!(device.memory().used_bytes, 0);
    });
}

/// `y = sum`
fn doubled_sum(
    context: &mut sensorium::trace::TraceContext<'_>,
) -> Result<Vec<(String, DeviceTensor)>, WorkError> {
    let sum = context.state("sum")?;
    let y = context.write_output("y", &sum)?;
    Ok(vec![("y".into(), y)])
}

#[test]
fn a_device_with_fewer_queues_than_the_runner_is_refused_at_once() {
    on_every_device(|open| {
        let mut device = open(1);
        let device = device.as_mut();
        let mut two = TraceRunner::new("two", TraceOptions::two_queues()).unwrap();
        two.add_variant(device, "default", Box::new(doubled)).unwrap();
        let refused = REGISTRATIONS.map(|(_, register)| register(&mut two, device));
        let refused = refused
            .into_iter()
            .chain([two.warm_up(device), two.capture(device)]);
        for refused in refused {
            assert_eq!(
                refused.unwrap_err().to_string(),
                "two: it works with 2 command queues, the device has 1"
            );
        }
        assert_eq!(device.memory().used_bytes, 0);
        two.release(device).unwrap();
    });
}

#[test]
fn a_program_that_a_device_compiles_in_a_capture_against_its_word_is_counted() {
    on_every_device(|open| {
        let mut device = Spy::new(open(1));
        let strict: VariantFn = Box::new(|context| match context.capturing() {
            true => rectified(context),
            false => doubled(context),
        });
        let (mut runner, x, _, variant) = runner(&mut device, TraceOptions::default(), strict);
        let used = device.memory();
        device.compiles_always = true;
        let error = runner.capture(&mut device).unwrap_err();
        assert_eq!(
            error.to_string(),
            "test: variant default compiled 1 program(s) during its capture"
        );
        assert!(matches!(error, TraceError::CompiledInCapture { compiled: 1, .. }));
        assert_eq!(device.memory(), used);
        // By now the program is there.
        device.compiles_always = false;
        device.set_misses(MissPolicy::Forbid);
        runner.capture(&mut device).unwrap();
        let z = runner.call(&mut device, variant, &[(x, &ramp(-1.0))]).unwrap();
        assert_eq!(floats(&z[0].1)[..3], [0.0, 0.0, 1.0]);
    });
}

#[test]
fn a_deadline_beyond_all_clocks_is_no_deadline() {
    in_every_mode(|device, options| {
        let options = TraceOptions {
            deadline: Duration::MAX,
            ..options
        };
        let (mut runner, x, _, variant) = runner(device, options, Box::new(doubled));
        runner.capture(device).unwrap();
        let y = runner.call(device, variant, &[(x, &ramp(1.0))]).unwrap();
        assert_eq!(floats(&y[0].1)[0], 2.0);
        runner.release(device).unwrap();
        let mut ops = OpContext::new(device, Cq::COMPUTE);
        let tensor = ops.upload(&ramp(3.0), BufferClass::Input).unwrap();
        let back = ops.download(&tensor, Duration::MAX).unwrap();
        assert_eq!(back.bytes(), ramp(3.0).bytes());
    });
    on_every_device(|open| {
        let faults = InjectedFaults::new(&FaultPlan::default());
        let mut device = FaultDevice::new(open(1), faults);
        device.record_event(Cq::COMPUTE).unwrap();
        device.drain(Duration::MAX).unwrap();
    });
}
