//! What users of captured device work report, provoked on the simulator: each test is named after what must be the case
//! where the report says otherwise.

use crate::graphs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sensorium::device::{
    Activation, BinaryKind, BufferClass, Cq, Device, DeviceError, DeviceHealth, Fault, FaultAt, FaultCall,
    FaultKind, FaultPlan, MissPolicy, OnRace, OpDesc, SimConfig, SimDevice,
};
use sensorium::ops::{DeviceTensor, OpContext};
use sensorium::trace::{
    BankIndex, InputId, Pending, ResetValue, StateId, StateOptions, TraceContext, TraceError, TraceOptions,
    TraceRunner, VariantFn, VariantId, WorkError,
};

use graphs::*;

/// `sum = x + x; y = sum * gain`
fn doubled(context: &mut TraceContext<'_>) -> Result<Outputs, WorkError> {
    let (x, gain, y) = (context.input("x")?, context.param("gain")?, context.output("y")?);
    let ops = context.ops();
    let sum = like(ops, &x)?;
    binary(ops, BinaryKind::Add, &x, &x, &sum)?;
    binary(ops, BinaryKind::Mul, &sum, &gain, &y)?;
    Ok(vec![("y".into(), y)])
}

/// `acc += x; mem = x - mem; z = acc + mem`, in a tensor of its own.
fn summed(context: &mut TraceContext<'_>) -> Result<Outputs, WorkError> {
    let (x, acc, mem) = (context.input("x")?, context.state("acc")?, context.state("mem")?);
    let next_mem = context.write_target("mem")?;
    let ops = context.ops();
    let sum = like(ops, &x)?;
    binary(ops, BinaryKind::Add, &acc, &x, &sum)?;
    binary(ops, BinaryKind::Sub, &x, &mem, &next_mem)?;
    let z = ops.alloc(&vector(), BufferClass::Output)?;
    binary(ops, BinaryKind::Add, &sum, &next_mem, &z)?;
    context.write_state("acc", &sum)?;
    context.write_state("mem", &next_mem)?;
    Ok(vec![("z".into(), z)])
}

struct Bench {
    runner: TraceRunner,
    x: InputId,
    acc: StateId,
    mem: StateId,
    /// `doubled` and `summed`.
    variants: [VariantId; 2],
}

impl Bench {
    /// A runner that is not captured yet.
    fn new(device: &mut dyn Device, options: TraceOptions) -> Result<Self, TraceError> {
        Self::with(device, options, Box::new(doubled))
    }

    fn with(device: &mut dyn Device, options: TraceOptions, forward: VariantFn) -> Result<Self, TraceError> {
        let mut runner = TraceRunner::new("bench", options)?;
        let x = runner.add_input(device, "x", vector(), None)?;
        runner.add_param(device, "gain", 1.0)?;
        let kept = |pingpong| StateOptions { pingpong, banks: 1 };
        let acc = runner.add_state(device, "acc", vector(), Some(&vector_of(|_| 7.0)), kept(false))?;
        let mem = runner.add_state(device, "mem", vector(), None, kept(true))?;
        runner.add_output(device, "y", vector())?;
        let variants = [
            runner.add_variant(device, "first", forward)?,
            runner.add_variant(device, "second", Box::new(summed))?,
        ];
        Ok(Self {
            runner,
            x,
            acc,
            mem,
            variants,
        })
    }

    fn captured(device: &mut dyn Device, options: TraceOptions) -> Result<Self, TraceError> {
        let mut bench = Self::new(device, options)?;
        bench.runner.capture(device)?;
        Ok(bench)
    }

    fn call(
        &mut self,
        device: &mut dyn Device,
        variant: usize,
        input: impl Fn(usize) -> f32,
    ) -> Result<Vec<f32>, TraceError> {
        let input = vector_of(input);
        let outputs = self
            .runner
            .call(device, self.variants[variant], &[(self.x, &input)])?;
        Ok(floats(outputs[0].1.bytes()))
    }

    /// Runs the stateless variant and checks what comes out.
    fn doubles(&mut self, device: &mut dyn Device, frame: usize) {
        let found = self.call(device, 0, |i| (frame + i) as f32).unwrap();
        assert_eq!(found, double_of(frame), "frame {frame}");
    }
}

fn double_of(frame: usize) -> Vec<f32> {
    (0..N).map(|i| 2.0 * (frame + i) as f32).collect()
}

/// One queue; two queues; two queues with everything.
fn modes() -> [TraceOptions; 3] {
    let unstaged = TraceOptions {
        queues: 2,
        ..TraceOptions::default()
    };
    [TraceOptions::default(), unstaged, TraceOptions::two_queues()]
}

fn faulty(queues: u8, faults: Vec<Fault>) -> SimDevice {
    SimDevice::open(&SimConfig {
        faults: FaultPlan { seed: 3, faults },
        ..small(queues, 3)
    })
    .unwrap()
}

// Reported: what is allocated after a capture is corrupted by a replay.
#[test]
fn memory_allocated_after_the_capture_is_refused_before_a_replay_can_destroy_it() {
    for options in modes() {
        let mut device = simulator(options.queues, 1);
        let mut bench = Bench::captured(&mut device, options).unwrap();
        let later = device.alloc(&vector(), BufferClass::Output).unwrap();
        let error = bench.call(&mut device, 0, |_| 1.0).unwrap_err().to_string();
        assert!(
            error.contains(&format!(
                "found 1 device buffer(s) still alive that were allocated after the capture and may overlap its \
                 intermediates: [BufferId({})]",
                later.to_string().trim_start_matches("buffer ")
            )),
            "{error}"
        );
        device.free(later).unwrap();
        bench.doubles(&mut device, 3);
        assert_eq!(device.races(), []);
    }
    // What is prevented.
    let mut device = SimDevice::open(&SimConfig {
        track_allocations: false,
        ..small(1, 1)
    })
    .unwrap();
    let mut bench = Bench::captured(&mut device, TraceOptions::default()).unwrap();
    let later = device.alloc(&vector(), BufferClass::Output).unwrap();
    let slot = slot_of(&mut device, &[5.0; N]);
    device.write(Cq::COMPUTE, later, 0, &slot, 4 * N).unwrap();
    bench.doubles(&mut device, 3);
    let mut slot = device.host_slot(4 * N).unwrap();
    device.read(Cq::COMPUTE, later, 0, &mut slot, 4 * N).unwrap();
    device.drain(Duration::from_secs(1)).unwrap();
    assert_ne!(floats(slot.bytes().unwrap()), [5.0; N]);
}

// Reported: late corruption after the first use of an operation.
#[test]
fn a_program_compiled_after_the_capture_is_refused_by_name() {
    let mut device = simulator(2, 1);
    let mut bench = Bench::captured(&mut device, TraceOptions::two_queues()).unwrap();
    let whole = DeviceTensor::whole(bench.runner.state_buffer(bench.acc).unwrap().buffer, &vector());
    let op = OpDesc::Unary {
        src: whole.operand(),
        dst: whole.operand(),
        activation: Activation::Tanh,
    };
    let refused = device.compile(&op).unwrap_err();
    assert!(
        matches!(refused, DeviceError::CacheMissForbidden { .. }),
        "{refused}"
    );
    bench.doubles(&mut device, 1);
    // Somebody else on the device allows it.
    device.set_misses(MissPolicy::Allow);
    device.compile(&op).unwrap();
    let error = bench.call(&mut device, 0, |_| 1.0).unwrap_err().to_string();
    assert!(
        error.contains("found 1 program(s) compiled after the capture: unary"),
        "{error}"
    );
}

// Reported: trace A destroys trace B.
#[test]
fn a_second_trace_leaves_the_first_one_intact() {
    for options in modes() {
        let mut device = simulator(options.queues, 5);
        // Two runners, each with two variants, all traces over the same freed intermediates.
        let mut benches = [
            Bench::new(&mut device, options.clone()).unwrap(),
            Bench::new(&mut device, options).unwrap(),
        ];
        for bench in &mut benches {
            bench.runner.warm_up(&mut device).unwrap();
        }
        for bench in &mut benches {
            bench.runner.capture(&mut device).unwrap();
        }
        let mut random = Random(9);
        let mut states = [[7.0, 0.0]; 2];
        for frame in 0..60 {
            let which = random.below(2);
            if random.one_in(2) {
                benches[which].doubles(&mut device, frame);
            } else {
                let x = frame as f32;
                let [acc, mem] = &mut states[which];
                (*acc, *mem) = (*acc + x, x - *mem);
                let expected = [*acc + *mem; N];
                assert_eq!(benches[which].call(&mut device, 1, |_| x).unwrap(), expected);
            }
        }
        assert_eq!(device.races(), []);
    }
}

// Reported: synchronising, recording an event or reading in a capture.
#[test]
fn what_a_capture_cannot_contain_is_refused_and_the_capture_goes_on() {
    let mut device = simulator(2, 1);
    let event = device.record_event(Cq::COMPUTE).unwrap();
    let tried = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tried);
    let forward: VariantFn = Box::new(move |context| {
        let x = context.input("x")?;
        let capturing = context.capturing();
        let device = &mut *context.ops().device;
        let mut slot = device.host_slot(4 * N)?;
        let later = Instant::now() + Duration::from_secs(1);
        if capturing {
            let refused = [
                device.record_event(Cq::COMPUTE).map(drop),
                device.record_event(Cq::IO).map(drop),
                device.wait_event(Cq::COMPUTE, event),
                device.wait_event(Cq::IO, event),
                device.sync_event(event, later),
                device.drain(Duration::from_secs(1)),
                device.write(Cq::COMPUTE, x.buffer, 0, &slot, N),
                device.write(Cq::IO, x.buffer, 0, &slot, N),
                device.read(Cq::COMPUTE, x.buffer, 0, &mut slot, N),
                device.read(Cq::IO, x.buffer, 0, &mut slot, N),
                device.copy(Cq::COMPUTE, x.buffer, x.buffer),
                device.begin_capture(Cq::IO),
            ];
            for refusal in refused {
                let refusal = refusal.unwrap_err();
                assert!(matches!(refusal, DeviceError::DuringCapture { .. }), "{refusal}");
                count.fetch_add(1, Ordering::SeqCst);
            }
        }
        doubled(context)
    });
    let mut bench = Bench::with(&mut device, TraceOptions::two_queues(), forward).unwrap();
    bench.runner.capture(&mut device).unwrap();
    // Two sets of outputs in two directions of the states.
    assert_eq!(tried.load(Ordering::SeqCst), 4 * 12);
    for frame in 0..4 {
        bench.doubles(&mut device, frame);
    }
}

// Reported: a failed capture is never ended.
#[test]
fn a_capture_that_fails_in_any_way_leaves_no_device_stuck_capturing() {
    type Failing = fn() -> Result<(), WorkError>;
    let ways: [Failing; 2] = [|| Err("no such layer".into()), || panic!("gives up")];
    for way in ways {
        for options in modes() {
            let mut device = simulator(options.queues, 1);
            let armed = Arc::new(AtomicUsize::new(1));
            let trigger = Arc::clone(&armed);
            let forward: VariantFn = Box::new(move |context| {
                let x = context.input("x")?;
                like(context.ops(), &x)?;
                if context.capturing() && trigger.load(Ordering::SeqCst) == 1 {
                    way()?;
                }
                doubled(context)
            });
            let mut bench = Bench::with(&mut device, options, forward).unwrap();
            let used = device.memory();
            let outcome = catch_unwind(AssertUnwindSafe(|| bench.runner.capture(&mut device)));
            assert!(!matches!(outcome, Ok(Ok(()))));
            device.drain(Duration::from_secs(1)).unwrap();
            device.begin_capture(Cq::COMPUTE).unwrap();
            device.abort_capture().unwrap();
            armed.store(0, Ordering::SeqCst);
            bench.runner.capture(&mut device).unwrap();
            bench.doubles(&mut device, 2);
            bench.runner.release(&mut device).unwrap();
            assert!(device.memory().used_bytes < used.used_bytes);
        }
    }
}

// Reported: success is reported, with stale outputs.
#[test]
fn a_refused_enqueue_is_an_error_and_never_an_old_result() {
    for options in modes() {
        let mut refusals = 0;
        for n in 1.. {
            let refusal = Fault::new(FaultAt::Nth(n), FaultKind::Refuse(FaultCall::Any));
            let mut device = faulty(options.queues, vec![refusal]);
            let Ok(mut bench) = Bench::captured(&mut device, options.clone()) else {
                continue;
            };
            let mut refused = false;
            for frame in 0..5 {
                let input = |i| (frame + i) as f32;
                let found = match bench.call(&mut device, 0, input) {
                    Ok(found) => found,
                    Err(error) => {
                        refused = true;
                        assert!(error.to_string().contains("is full (1024 commands)"), "{error}");
                        bench.call(&mut device, 0, input).unwrap()
                    }
                };
                assert_eq!(found, double_of(frame), "call {n} refused, frame {frame}");
            }
            assert_eq!(device.races(), [], "call {n} refused");
            if !refused {
                break;
            }
            refusals += 1;
        }
        // Upload, replay and read of five frames; with two queues their events and waits as well.
        assert!(refusals >= 5 * 3, "{refusals}");
    }
}

// Reported: a temporal state is wrong from the first frame on.
#[test]
fn warm_up_runs_advance_no_state() {
    for options in modes() {
        let mut device = simulator(options.queues, 1);
        let options = TraceOptions {
            warmup_runs: 3,
            ..options
        };
        let mut bench = Bench::captured(&mut device, options).unwrap();
        for (state, first) in [(bench.acc, 7.0), (bench.mem, 0.0)] {
            let value = bench.runner.read_state(&mut device, state).unwrap();
            assert_eq!(floats(value.bytes()), [first; N]);
        }
        assert_eq!(bench.call(&mut device, 1, |_| 2.0).unwrap(), [7.0 + 2.0 + 2.0; N]);
        assert_eq!(
            bench.call(&mut device, 1, |_| 3.0).unwrap(),
            [12.0 + 3.0 - 2.0; N]
        );
    }
}

// Reported: buffers are replaced behind the back of a trace.
#[test]
fn a_buffer_that_was_replaced_is_noticed_before_the_replay() {
    let mut device = simulator(2, 1);
    let mut bench = Bench::captured(&mut device, TraceOptions::two_queues()).unwrap();
    let addresses = |bench: &Bench, device: &SimDevice| {
        let state = |id| bench.runner.state_buffer(id).unwrap().buffer;
        [state(bench.acc), state(bench.mem)].map(|buffer| device.address(buffer).unwrap())
    };
    let before = addresses(&bench, &device);
    bench
        .runner
        .add_variant(&mut device, "third", Box::new(doubled))
        .unwrap();
    bench.runner.capture(&mut device).unwrap();
    assert_eq!(addresses(&bench, &device), before);
    bench.doubles(&mut device, 1);

    let acc = bench.runner.state_buffer(bench.acc).unwrap().buffer;
    device.free(acc).unwrap();
    let found = bench.call(&mut device, 0, |_| 1.0);
    if cfg!(debug_assertions) {
        assert!(
            matches!(found, Err(TraceError::Moved { buffer, .. }) if buffer == acc),
            "{found:?}"
        );
    }
}

// Reported: wrong only after a run of another shape: a recycled host buffer is read.
#[test]
fn a_host_slot_cannot_be_used_again_before_its_upload_is_done() {
    for options in modes() {
        for seed in 0..10 {
            let mut device = simulator(options.queues, seed);
            let mut bench = Bench::captured(&mut device, options.clone()).unwrap();
            let mut slot = slot_of(&mut device, &[4.0; N]);
            let uploaded = bench.runner.upload(&mut device, &[(bench.x, &slot)]).unwrap();
            // Nothing is executed before the host waits, so the device still has it.
            assert!(fill(&mut slot, &[0; 4 * N]).is_err());
            bench.runner.wait(&mut device, uploaded).unwrap();
            fill(&mut slot, bytemuck::cast_slice(&[9.0_f32; N])).unwrap();
            let pending = bench.runner.replay(&mut device, bench.variants[0]).unwrap();
            let outputs = bench.runner.read_all(&mut device, pending).unwrap();
            assert_eq!(floats(outputs[0].1.bytes()), [8.0; N]);
            // A slot that its owner drops lives until it was read, whatever takes its place.
            bench.runner.upload(&mut device, &[(bench.x, &slot)]).unwrap();
            drop(slot);
            let others: Vec<_> = (0..8).map(|_| slot_of(&mut device, &[-1.0; N])).collect();
            let pending = bench.runner.replay(&mut device, bench.variants[0]).unwrap();
            let outputs = bench.runner.read_all(&mut device, pending).unwrap();
            assert_eq!(floats(outputs[0].1.bytes()), [18.0; N]);
            drop(others);
        }
    }
}

// Reported: an allocation in the capture makes the graph useless.
#[test]
fn a_persistent_buffer_asked_for_in_a_capture_is_refused_by_name() {
    for class in [BufferClass::Input, BufferClass::State, BufferClass::Bank] {
        let mut device = simulator(1, 1);
        let forward: VariantFn = Box::new(move |context| {
            if context.capturing() {
                context.ops().alloc(&vector(), class)?;
            }
            doubled(context)
        });
        let mut bench = Bench::with(&mut device, TraceOptions::default(), forward).unwrap();
        let error = bench.runner.capture(&mut device).unwrap_err().to_string();
        assert_eq!(
            error,
            "bench: variant first: allocating a persistent buffer is not supported during trace capture"
        );
        // The other variant has its traces and runs.
        assert_eq!(bench.call(&mut device, 1, |_| 1.0).unwrap(), [9.0; N]);
    }
}

// Reported: faults only when eager operations come between replays.
#[test]
fn eager_work_between_replays_disturbs_neither() {
    for options in modes() {
        for seed in 0..5 {
            let mut device = simulator(options.queues, seed);
            let mut bench = Bench::new(&mut device, options.clone()).unwrap();
            let mut kept =
                |_| DeviceTensor::whole(device.alloc(&vector(), BufferClass::State).unwrap(), &vector());
            let (count, one) = (kept(0), kept(1));
            for (tensor, value) in [(count, 0.0), (one, 1.0)] {
                let slot = slot_of(&mut device, &[value; N]);
                device.write(Cq::COMPUTE, tensor.buffer, 0, &slot, 4 * N).unwrap();
            }
            // Counts, through a temporary tensor that takes addresses which captures freed.
            let eager = move |ops: &mut OpContext<'_>| -> Result<(), WorkError> {
                let next = like(ops, &count)?;
                binary(ops, BinaryKind::Add, &count, &one, &next)?;
                ops.copy(&next, &count)?;
                Ok(ops.free(&next)?)
            };
            bench.runner.add_eager_warmup("count", Box::new(eager)).unwrap();
            bench.runner.capture(&mut device).unwrap();
            for frame in 0..20 {
                eager(&mut OpContext::new(&mut device, Cq::COMPUTE)).unwrap();
                bench.doubles(&mut device, frame);
            }
            let mut slot = device.host_slot(4 * N).unwrap();
            device
                .read(Cq::COMPUTE, count.buffer, 0, &mut slot, 4 * N)
                .unwrap();
            device.drain(Duration::from_secs(1)).unwrap();
            // Once in the warm-up.
            assert_eq!(floats(slot.bytes().unwrap()), [21.0; N]);
            assert_eq!(device.races(), []);
        }
    }
}

/// Streams uploads and replays without waiting on the host.
fn stream_blindly(device: &mut SimDevice, bench: &mut Bench) {
    let mut behind: Option<Pending> = None;
    for frame in 0..6 {
        let slot = slot_of(device, &[frame as f32; N]);
        let pending = bench
            .runner
            .run(device, bench.variants[0], &[(bench.x, &slot)])
            .unwrap();
        if let Some(pending) = behind.replace(pending) {
            let mut slot = device.host_slot(4 * N).unwrap();
            bench.runner.read(device, pending, 0, &mut slot).unwrap();
        }
    }
}

// Reported: a capture depends on uncaptured work of another queue.
#[test]
fn an_input_without_a_staging_copy_is_not_overwritten_while_a_replay_reads_it() {
    let options = TraceOptions {
        stage_inputs: false,
        ..TraceOptions::two_queues()
    };
    let mut device = simulator(2, 1);
    let mut bench = Bench::captured(&mut device, options.clone()).unwrap();
    stream_blindly(&mut device, &mut bench);
    assert_eq!(device.races(), []);
    // The same where queue 1 does not wait.
    let mut device = SimDevice::open(&SimConfig {
        on_race: OnRace::Report,
        faults: FaultPlan {
            seed: 0,
            faults: vec![Fault::new(FaultAt::From(1), FaultKind::IgnoreWait).on(Cq::IO)],
        },
        ..small(2, 1)
    })
    .unwrap();
    let mut bench = Bench::captured(&mut device, options).unwrap();
    stream_blindly(&mut device, &mut bench);
    let races: Vec<String> = device.races().iter().map(ToString::to_string).collect();
    let expected = |race: &&String| {
        race.contains("reads buffer") && race.contains("CQ1 must wait for an event recorded on CQ0")
    };
    assert!(races.iter().any(|race| expected(&race)), "{races:#?}");
}

#[test]
fn a_capture_takes_no_launch_of_another_queue() {
    let mut device = simulator(2, 1);
    let forward: VariantFn = Box::new(|context| {
        if context.capturing() {
            context.ops().cq = Cq::IO;
        }
        doubled(context)
    });
    let mut bench = Bench::with(&mut device, TraceOptions::two_queues(), forward).unwrap();
    let error = bench.runner.capture(&mut device).unwrap_err().to_string();
    assert_eq!(
        error,
        "bench: variant first: launching on another queue is not supported during trace capture"
    );
    assert_eq!(bench.call(&mut device, 1, |_| 1.0).unwrap(), [9.0; N]);
}

// Reported: the trace region is too small.
#[test]
fn a_trace_region_that_is_too_small_is_told_with_its_numbers() {
    let mut device = SimDevice::open(&SimConfig {
        trace_region_bytes: 64,
        ..small(2, 1)
    })
    .unwrap();
    let mut bench = Bench::new(&mut device, TraceOptions::two_queues()).unwrap();
    let used = device.memory();
    let error = bench.runner.capture(&mut device).unwrap_err();
    let TraceError::Capture { variant, source, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(variant, "first");
    let DeviceError::TraceRegionFull { needed, free, region } = **source else {
        panic!("{error}");
    };
    assert!(needed > 64 && free == 64 && region == 64, "{error}");
    assert!(error.to_string().contains(&format!("{needed}")), "{error}");
    assert_eq!(device.memory(), used);
    assert!(matches!(
        bench.call(&mut device, 0, |_| 1.0),
        Err(TraceError::NotCaptured { .. })
    ));
    // The model still runs without traces.
    let eager = bench
        .runner
        .run_eager(&mut device, bench.variants[0], &[(bench.x, &vector_of(|_| 3.0))])
        .unwrap();
    assert_eq!(floats(eager[0].1.bytes()), [6.0; N]);

    // Room for the next attempt.
    let short = Fault::new(FaultAt::Nth(2), FaultKind::PartialCapture { launches: 1 });
    let mut device = faulty(2, vec![short]);
    let mut bench = Bench::new(&mut device, TraceOptions::two_queues()).unwrap();
    assert!(matches!(
        bench.runner.capture(&mut device),
        Err(TraceError::Capture { .. })
    ));
    bench.runner.capture(&mut device).unwrap();
    bench.doubles(&mut device, 1);
}

#[test]
fn a_lost_event_ends_in_a_time_out_that_names_it() {
    for options in modes() {
        let mut named = 0;
        for n in 1..40 {
            let lost = Fault::new(FaultAt::Nth(n), FaultKind::LoseEvent);
            let mut device = faulty(options.queues, vec![lost]);
            let Ok(mut bench) = Bench::captured(&mut device, options.clone()) else {
                continue;
            };
            // Every call ends, with the right result or with a time-out.
            for frame in 0..8 {
                match bench.call(&mut device, 0, |i| (frame + i) as f32) {
                    Ok(found) => assert_eq!(found, double_of(frame), "event {n} lost, frame {frame}"),
                    Err(TraceError::Device { source, .. }) => {
                        let DeviceError::Timeout { what, waited } = *source else {
                            panic!("event {n} lost, frame {frame}: {source}");
                        };
                        assert!(what.starts_with("event "), "{what}");
                        assert_eq!(waited, Duration::from_secs(10));
                        named += 1;
                    }
                    Err(error) => panic!("event {n} lost, frame {frame}: {error}"),
                }
            }
            assert_eq!(device.races(), [], "event {n} lost");
        }
        assert!(named >= 8, "{named}");
    }
}

#[test]
fn a_device_lost_in_the_middle_of_a_stream_answers_every_later_call_with_a_typed_error() {
    for options in modes() {
        let mut streams = 0;
        for n in (40..160).step_by(3) {
            let lost = Fault::new(FaultAt::Nth(n), FaultKind::LoseDevice(FaultCall::Any));
            let mut device = faulty(options.queues, vec![lost]);
            let Ok(mut bench) = Bench::captured(&mut device, options.clone()) else {
                continue;
            };
            let device: &mut dyn Device = &mut device;
            let first = (0..200).find_map(|frame| bench.call(device, frame % 2, |_| 1.0).err());
            assert!(is_lost(&first.expect("the device is lost")));
            assert!(matches!(device.health(), DeviceHealth::Lost { .. }));

            let Bench {
                runner,
                x,
                acc,
                variants: [variant, _],
                ..
            } = &mut bench;
            let (x, acc, variant) = (*x, *acc, *variant);
            let input = vector_of(|_| 1.0);
            let slot = sensorium::device::HostSlot::new(4 * N);
            let answers = [
                runner.upload(device, &[(x, &slot)]).err(),
                runner.replay(device, variant).err(),
                runner.run(device, variant, &[(x, &slot)]).err(),
                runner.call(device, variant, &[(x, &input)]).err(),
                runner.run_eager(device, variant, &[(x, &input)]).err(),
                runner.write_input(device, x, &input).err(),
                runner.read_state(device, acc).err(),
                runner.reset_state(device, acc, ResetValue::Init).err(),
                runner.reset_state(device, acc, ResetValue::Host(&input)).err(),
                runner.save_state(device, acc, BankIndex(0)).err(),
                runner.load_state(device, acc, BankIndex(0)).err(),
                runner.add_variant(device, "late", Box::new(doubled)).err(),
                runner.capture(device).err(),
                runner.release(device).err(),
            ];
            for (call, answer) in answers.into_iter().enumerate() {
                let error = answer.unwrap_or_else(|| panic!("call {call} succeeds on a lost device"));
                assert!(is_lost(&error), "call {call}: {error}");
            }
            runner.release(device).unwrap();
            device.close();
            device.close();
            streams += 1;
        }
        assert!(streams >= 20, "{streams}");
    }
}

fn is_lost(error: &TraceError) -> bool {
    match error {
        TraceError::Device { source, .. } | TraceError::Capture { source, .. } => {
            matches!(**source, DeviceError::Lost { .. })
        }
        TraceError::Forward { source, .. } | TraceError::Work { source, .. } => matches!(
            source.downcast_ref::<DeviceError>(),
            Some(DeviceError::Lost { .. })
        ),
        _ => false,
    }
}
