//! Variants that fail or return what cannot be read, and what is left afterwards.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use sensorium::device::{Activation, BufferClass, CpuConfig, CpuDevice, Cq, Device, DeviceError, MissPolicy};
use sensorium::ops::{DeviceTensor, OpContext};
use sensorium::tensor::{DType, HostTensor, TensorSpec, View};
use sensorium::trace::{StateOptions, TraceError, TraceOptions, TraceRunner, VariantFn};

use super::replay::{doubled, rectified, runner};
use super::spy::Spy;
use super::temporal::{N, floats, in_every_mode, intermediate, on_every_device, ramp, spec, unary};

#[test]
fn a_program_that_first_appears_in_the_capture_is_named_and_the_device_survives() {
    in_every_mode(|device, options| {
        let strict: VariantFn = Box::new(|context| match context.capturing() {
            true => rectified(context),
            false => doubled(context),
        });
        let (mut runner, ..) = runner(device, options.clone(), strict);
        let error = runner.capture(device).unwrap_err().to_string();
        assert!(error.starts_with("test: variant default: "), "{error}");
        assert!(error.contains("cache misses are forbidden: Unary"), "{error}");
        let (used, programs) = (device.memory(), device.program_count());
        assert_eq!(runner.capture(device).unwrap_err().to_string(), error);
        assert_eq!((device.memory(), device.program_count()), (used, programs));
        runner.release(device).unwrap();
        let (mut other, x, _, variant) = self::runner(device, options, Box::new(doubled));
        other.capture(device).unwrap();
        other.call(device, variant, &[(x, &ramp(1.0))]).unwrap();
    });
}

#[test]
fn a_capture_ends_even_when_the_variant_panics() {
    in_every_mode(|device, options| {
        let armed = Arc::new(AtomicBool::new(true));
        let trigger = Arc::clone(&armed);
        let forward: VariantFn = Box::new(move |context| {
            let left = intermediate(context)?;
            let armed = context.capturing() && trigger.load(Ordering::SeqCst);
            assert!(!armed, "variant gives up");
            context.ops().free(&left)?;
            doubled(context)
        });
        let (mut runner, x, _, variant) = runner(device, options, forward);
        let used = device.memory();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runner.capture(device)));
        assert!(outcome.is_err());
        assert_eq!(device.memory(), used);
        armed.store(false, Ordering::SeqCst);
        runner.capture(device).unwrap();
        runner.call(device, variant, &[(x, &ramp(1.0))]).unwrap();
    });
}

#[test]
fn a_variant_that_fails_costs_only_itself() {
    in_every_mode(|device, options| {
        for capturing in [false, true] {
            let repaired = Arc::new(AtomicBool::new(false));
            let works = Arc::clone(&repaired);
            let broken: VariantFn = Box::new(move |context| {
                let z = context.ops().alloc(&spec(), BufferClass::Output)?;
                if context.capturing() == capturing && !works.load(Ordering::SeqCst) {
                    return Err("no such layer".into());
                }
                // A program that no other variant has.
                let x = context.input("x")?;
                unary(context.ops(), Activation::Tanh, x, z)?;
                Ok(one("z", z))
            });
            let (mut runner, x, _, first) = runner(device, options.clone(), Box::new(doubled));
            let broken = runner.add_variant(device, "broken", broken).unwrap();
            let last = runner.add_variant(device, "last", Box::new(rectified)).unwrap();
            for _ in 0..2 {
                let error = runner.capture(device).unwrap_err();
                assert_eq!(error.to_string(), "test: variant broken: no such layer");
                assert!(!runner.captured());
                let input = ramp(-3.0);
                let y = runner.call(device, first, &[(x, &input)]).unwrap();
                let z = runner.call(device, last, &[(x, &input)]).unwrap();
                assert_eq!([floats(&y[0].1)[0], floats(&z[0].1)[0]], [-6.0, 0.0]);
                let refused = runner.call(device, broken, &[(x, &input)]).unwrap_err();
                assert_eq!(refused.to_string(), "test: variant broken is not captured yet");
                assert!(runner.outputs(broken).is_err());
            }
            repaired.store(true, Ordering::SeqCst);
            runner.capture(device).unwrap();
            assert!(runner.captured());
            for variant in [first, broken, last] {
                runner.call(device, variant, &[(x, &ramp(0.0))]).unwrap();
            }
            runner.release(device).unwrap();
        }
        assert_eq!(device.memory().used_bytes, 0);
    });
}

#[test]
fn a_trace_that_does_not_fit_is_named_and_the_smaller_ones_run() {
    let mut device = CpuDevice::open(&CpuConfig {
        queues: 1,
        threads: 1,
        arena_bytes: 1 << 20,
        trace_region_bytes: 1000,
        ..CpuConfig::default()
    })
    .unwrap();
    let (mut runner, x, _, first) = runner(&mut device, TraceOptions::default(), Box::new(doubled));
    let long: VariantFn = Box::new(|context| {
        let (x, y) = (context.input("x")?, context.output("y")?);
        for _ in 0..20 {
            unary(context.ops(), Activation::Relu, x, y)?;
        }
        Ok(vec![("y".into(), y)])
    });
    runner.add_variant(&mut device, "long", long).unwrap();
    let used = device.memory();
    let error = runner.capture(&mut device).unwrap_err();
    assert!(matches!(error, TraceError::Capture { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.starts_with("test: variant long: the capture failed: the trace needs"),
        "{text}"
    );
    assert_eq!(device.memory().used_bytes, used.used_bytes);
    runner.call(&mut device, first, &[(x, &ramp(0.0))]).unwrap();
}

/// What a capture of a variant answers beside a good one that stays usable.
pub(super) fn refusal(device: &mut dyn Device, forward: VariantFn) -> String {
    let (mut runner, x, _, good) = runner(device, TraceOptions::default(), Box::new(doubled));
    runner.add_variant(device, "odd", forward).unwrap();
    let used = device.memory().used_bytes;
    let error = runner.capture(device).unwrap_err();
    assert_eq!(device.memory().used_bytes, used);
    runner.call(device, good, &[(x, &ramp(0.0))]).unwrap();
    runner.release(device).unwrap();
    error.to_string()
}

fn one(name: &str, tensor: DeviceTensor) -> Vec<(String, DeviceTensor)> {
    vec![(name.to_owned(), tensor)]
}

#[test]
fn a_variant_that_returns_what_cannot_be_read_is_refused_with_the_reason() {
    on_every_device(|open| {
        let mut device = open(1);
        let device = device.as_mut();
        let mut ops = OpContext::new(&mut *device, Cq::COMPUTE);
        let foreign = ops.upload(&ramp(0.0), BufferClass::Weight).unwrap();
        let clean = device.memory().used_bytes;
        let nothing: VariantFn = Box::new(|_| Ok(Vec::new()));
        assert_eq!(refusal(device, nothing), "test: variant odd returns no output");
        let weights: VariantFn = Box::new(move |_| Ok(one("w", foreign)));
        assert_eq!(
            refusal(device, weights),
            format!(
                "test: output w of variant odd lies in {}, which neither the runner registered nor this run of the variant \
                 allocated",
                foreign.buffer
            )
        );
        let freed: VariantFn = Box::new(|context| {
            let tensor = intermediate(context)?;
            context.ops().free(&tensor)?;
            Ok(one("gone", tensor))
        });
        let error = refusal(device, freed);
        assert!(error.ends_with("which was freed or never existed"), "{error}");
        let input: VariantFn = Box::new(|context| Ok(one("x", context.input("x")?)));
        assert_eq!(
            refusal(device, input),
            "test: output x of variant odd is the input x: the next replay may change it before it is read, so copy it \
             with write_output"
        );
        let strided: VariantFn = Box::new(|context| {
            let mut z = context.ops().alloc(&spec(), BufferClass::Output)?;
            z.view.strides[0] = 0;
            Ok(one("z", z))
        });
        assert_eq!(
            refusal(device, strided),
            "test: output z of variant odd is not dense and row-major"
        );
        let too_long: VariantFn = Box::new(|context| {
            let mut z = context.ops().alloc(&spec(), BufferClass::Output)?;
            z.view = View::contiguous(TensorSpec::new(&[N + 1], DType::F32)?.shape);
            Ok(one("z", z))
        });
        assert_eq!(
            refusal(device, too_long),
            "test: output z of variant odd reaches 260 bytes, its buffer has 256"
        );
        let twice: VariantFn = Box::new(|context| {
            let z = context.ops().alloc(&spec(), BufferClass::Output)?;
            Ok(vec![("a".into(), z), ("b".into(), z)])
        });
        assert_eq!(
            refusal(device, twice),
            "test: output b of variant odd is returned twice"
        );
        assert_eq!(device.memory().used_bytes, clean);
    });
}

#[test]
fn an_output_kept_from_another_phase_is_refused() {
    on_every_device(|open| {
        let mut device = open(2);
        let device = device.as_mut();
        let mut kept = None;
        let stale: VariantFn = Box::new(move |context| {
            let x = context.input("x")?;
            let y = *kept.get_or_insert(context.output("y")?);
            unary(context.ops(), Activation::Relu, x, y)?;
            Ok(one("y", y))
        });
        let (mut runner, ..) = runner(device, TraceOptions::two_queues(), stale);
        let error = runner.capture(device).unwrap_err();
        assert_eq!(
            error.to_string(),
            "test: output y of variant default is the output y of another phase: ask the context for it in every run"
        );
    });
}

#[test]
fn what_a_variant_leaves_behind_is_freed_and_what_the_runner_keeps_is_not() {
    in_every_mode(|device, options| {
        let careless: VariantFn = Box::new(|context| {
            let x = context.input("x")?;
            let left = intermediate(context)?;
            unary(context.ops(), Activation::Relu, x, left)?;
            let y = context.write_output("y", &left)?;
            Ok(one("y", y))
        });
        let greedy: VariantFn = Box::new(|context| {
            let y = context.output("y")?;
            context.ops().free(&y)?;
            Ok(one("y", y))
        });
        let (mut runner, x, _, variant) = runner(device, options, careless);
        let used = device.memory().used_bytes;
        runner.capture(device).unwrap();
        assert_eq!(device.memory().used_bytes, used);
        let second = runner.add_variant(device, "greedy", greedy).unwrap();
        let error = runner.capture(device).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("freeing a tensor that the trace runner keeps"),
            "{error}"
        );
        assert!(runner.call(device, second, &[]).is_err());
        for _ in 0..3 {
            let y = runner.call(device, variant, &[(x, &ramp(-1.0))]).unwrap();
            assert_eq!(floats(&y[0].1)[..3], [0.0, 0.0, 1.0]);
        }
    });
}

#[test]
fn a_variant_cannot_end_the_capture_or_replay_from_inside() {
    on_every_device(|open| {
        let mut device = open(1);
        let device = device.as_mut();
        type Meddle = fn(&mut dyn Device) -> Result<(), DeviceError>;
        let meddling: [Meddle; 4] = [
            |device| device.begin_capture(Cq::COMPUTE),
            |device| device.end_capture().map(drop),
            |device| device.abort_capture(),
            |device| {
                device.set_misses(MissPolicy::Allow);
                device.alloc(&spec(), BufferClass::Weight).map(drop)
            },
        ];
        for meddle in meddling {
            let forward: VariantFn = Box::new(move |context| {
                if context.capturing() {
                    meddle(context.ops().device)?;
                }
                rectified(context)
            });
            let error = refusal(device, forward);
            assert!(
                error.ends_with("is not supported during trace capture"),
                "{error}"
            );
        }
    });
}

#[test]
fn an_eager_run_that_needs_a_new_program_is_refused_by_name() {
    in_every_mode(|device, options| {
        let other = Arc::new(AtomicBool::new(false));
        let chosen = Arc::clone(&other);
        let forward: VariantFn = Box::new(move |context| match chosen.load(Ordering::SeqCst) {
            true => rectified(context),
            false => doubled(context),
        });
        let (mut runner, x, _, variant) = runner(device, options, forward);
        runner.capture(device).unwrap();
        other.store(true, Ordering::SeqCst);
        let (used, programs) = (device.memory(), device.program_count());
        // Whatever another user of the device allows.
        device.set_misses(MissPolicy::Allow);
        let refused = runner.run_eager(device, variant, &[(x, &ramp(0.0))]);
        let Err(TraceError::CompilesAfterCapture { work, op, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(work, "an eager run of variant default");
        assert!(op.starts_with("Unary"), "{op}");
        assert_eq!((device.memory(), device.program_count()), (used, programs));
        let y = runner.call(device, variant, &[(x, &ramp(4.0))]).unwrap();
        assert_eq!(floats(&y[0].1)[0], 8.0);
    });
}

/// Checked in builds with debug assertions only.
#[cfg(debug_assertions)]
#[test]
fn a_persistent_buffer_that_was_freed_or_moved_is_noticed_before_the_replay() {
    on_every_device(|open| {
        let mut device = open(1);
        let device = device.as_mut();
        let found = Arc::new(Mutex::new(None));
        let shown = Arc::clone(&found);
        let forward: VariantFn = Box::new(move |context| {
            *shown.lock().unwrap() = Some(context.input("x")?);
            doubled(context)
        });
        let (mut runner, _, _, variant) = runner(device, TraceOptions::default(), forward);
        runner.capture(device).unwrap();
        runner.replay(device, variant).unwrap();
        let x = found.lock().unwrap().unwrap();
        device.free(x.buffer).unwrap();
        let error = runner.replay(device, variant).unwrap_err();
        assert!(
            matches!(error, TraceError::Moved { buffer, .. } if buffer == x.buffer),
            "{error}"
        );
    });
}

#[test]
fn wrong_use_is_answered_with_names() {
    on_every_device(|open| {
        let mut device = open(1);
        let device = device.as_mut();
        let (mut runner, x, _, variant) = runner(device, TraceOptions::default(), Box::new(doubled));
        let error = runner.call(device, variant, &[]).unwrap_err();
        assert_eq!(error.to_string(), "test: variant default is not captured yet");
        runner.capture(device).unwrap();
        let short = HostTensor::from_slice(&[N - 1], &[0.0_f32; N - 1]).unwrap();
        let error = runner.call(device, variant, &[(x, &short)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "test: x expects float32 [64] (256 bytes), found float32 [63]"
        );
        let slot = device.host_slot(16).unwrap();
        assert!(matches!(
            runner.upload(device, &[(x, &slot)]),
            Err(TraceError::WrongInput { .. })
        ));
        let error = runner
            .add_variant(device, "default", Box::new(doubled))
            .unwrap_err();
        assert_eq!(error.to_string(), "test: default is registered already");
        let unknown: VariantFn = Box::new(|context| {
            context.input("pillars")?;
            Ok(Vec::new())
        });
        runner.add_variant(device, "lidar", unknown).unwrap();
        let error = runner.capture(device).unwrap_err();
        assert_eq!(
            error.to_string(),
            "test: variant lidar: no input is called pillars; there are [\"x\"]"
        );
        let wrong = [
            TraceOptions {
                stage_inputs: true,
                ..TraceOptions::default()
            },
            TraceOptions {
                queues: 3,
                ..TraceOptions::default()
            },
            TraceOptions {
                output_phases: 0,
                ..TraceOptions::default()
            },
            TraceOptions {
                warmup_runs: 0,
                ..TraceOptions::default()
            },
        ];
        let texts = wrong.map(|options| TraceRunner::new("t", options).unwrap_err().to_string());
        assert_eq!(
            texts,
            [
                "t: staged inputs need two command queues",
                "t: queues must be 1 or 2, not 3",
                "t: output phases must be 1 or 2, not 0",
                "t: at least one warm-up run is needed before a capture",
            ]
        );
    });
}

#[test]
fn a_refused_registration_leaves_nothing_behind() {
    on_every_device(|open| {
        let mut device = Spy::new(open(2));
        let mut runner = TraceRunner::new("test", TraceOptions::two_queues()).unwrap();
        let options = StateOptions {
            pingpong: true,
            banks: 2,
        };
        // Slot, then a buffer and a write for A, B and two banks.
        for call in 0..9 {
            device.refuse_in = Some(call);
            let refused = runner.add_state(&mut device, "s", spec(), None, options);
            assert!(matches!(refused, Err(TraceError::Device { .. })), "{refused:?}");
            assert_eq!(device.memory().used_bytes, 0, "call {call}");
        }
        runner.add_state(&mut device, "s", spec(), None, options).unwrap();
        assert_eq!(device.memory().used_bytes, 4 * spec().bytes());
        let small = HostTensor::zeros(TensorSpec::new(&[1], DType::F32).unwrap());
        let refused = runner.add_input(&mut device, "x", spec(), Some(&small));
        assert!(
            matches!(refused, Err(TraceError::WrongInput { .. })),
            "{refused:?}"
        );
        assert_eq!(device.memory().used_bytes, 4 * spec().bytes());
    });
}
