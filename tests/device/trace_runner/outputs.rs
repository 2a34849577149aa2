//! Outputs: how long they hold, and segments that hand values over.

use sensorium::device::{Activation, BinaryKind, BufferClass, Device};
use sensorium::trace::{
    InputId, StateOptions, TraceContext, TraceError, TraceOptions, TraceRunner, VariantFn, VariantId,
};

use super::replay::{doubled, runner};
use super::temporal::{
    binary, filled, floats, in_every_mode, intermediate, on_every_device, ramp, spec, unary,
};

#[test]
fn outputs_that_a_later_replay_overwrites_cannot_be_read() {
    on_every_device(|open| {
        let mut device = open(2);
        let device = device.as_mut();
        let (mut runner, x, _, variant) = runner(device, TraceOptions::two_queues(), Box::new(doubled));
        runner.capture(device).unwrap();
        let bytes = spec().bytes();
        let input = device.host_slot(bytes).unwrap();
        let mut output = device.host_slot(bytes).unwrap();
        let runs: Vec<_> = (0..3)
            .map(|_| runner.run(device, variant, &[(x, &input)]).unwrap())
            .collect();
        // Two sets of outputs: the third replay takes the first one's.
        let overtaken = runner.read(device, runs[0], 0, &mut output).unwrap_err();
        assert_eq!(
            overtaken.to_string(),
            "test: output y of this replay of variant default was overwritten by a later one"
        );
        for &run in &runs[1..] {
            let read = runner.read(device, run, 0, &mut output).unwrap();
            runner.wait(device, read).unwrap();
        }
        let unknown = runner.read(device, runs[2], 1, &mut output).unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "test: variant default: no output is called 1; there are [\"y\"]"
        );
        // An eager run writes the set of the next replay.
        let run = runner.run(device, variant, &[(x, &input)]).unwrap();
        runner.run(device, variant, &[(x, &input)]).unwrap();
        runner.run_eager(device, variant, &[]).unwrap();
        let overtaken = runner.read(device, run, 0, &mut output);
        assert!(
            matches!(overtaken, Err(TraceError::Overtaken { .. })),
            "{overtaken:?}"
        );
    });
}

/// Three variants: two with an output of their own around one with a persistent output.
fn three(device: &mut dyn Device, options: TraceOptions) -> (TraceRunner, InputId, [VariantId; 3]) {
    let (mut runner, x, _, persistent) = runner(device, options, Box::new(doubled));
    let own = |context: &mut TraceContext<'_>| {
        // An intermediate of its own, so that there is freed memory for a later capture to use.
        let x = context.input("x")?;
        let middle = intermediate(context)?;
        unary(context.ops(), Activation::Relu, x, middle)?;
        let z = context.ops().alloc(&spec(), BufferClass::Output)?;
        binary(context.ops(), BinaryKind::Add, middle, middle, z)?;
        context.ops().free(&middle)?;
        Ok(vec![("z".to_owned(), z)])
    };
    let early = runner.add_variant(device, "early", Box::new(own)).unwrap();
    let late = runner.add_variant(device, "late", Box::new(own)).unwrap();
    runner.capture(device).unwrap();
    (runner, x, [persistent, early, late])
}

#[test]
fn an_output_that_a_variant_allocated_holds_until_an_earlier_trace_replays() {
    in_every_mode(|device, options| {
        let (mut runner, x, [persistent, early, late]) = three(device, options);
        let mut slot = device.host_slot(spec().bytes()).unwrap();
        let up = filled(device, &ramp(1.0));
        let run = |runner: &mut TraceRunner, device: &mut dyn Device, variant| {
            runner.run(device, variant, &[(x, &up)]).unwrap()
        };
        // A trace that was captured later cannot reach it.
        let first = run(&mut runner, device, early);
        run(&mut runner, device, late);
        let read = runner.read(device, first, 0, &mut slot).unwrap();
        runner.wait(device, read).unwrap();
        let values: &[f32] = bytemuck::cast_slice(slot.bytes().unwrap());
        assert_eq!(values[3], 8.0);
        // A trace that was captured before may.
        for earlier in [persistent, early] {
            let second = run(&mut runner, device, late);
            run(&mut runner, device, earlier);
            let overtaken = runner.read(device, second, 0, &mut slot);
            assert!(
                matches!(overtaken, Err(TraceError::Overtaken { .. })),
                "{overtaken:?}"
            );
        }
    });
}

#[test]
fn segments_hand_over_by_a_state_and_are_read_while_the_next_one_runs() {
    in_every_mode(|device, options| {
        let mut runner = TraceRunner::new("long", options).unwrap();
        let x = runner.add_input(device, "x", spec(), None).unwrap();
        runner
            .add_state(device, "middle", spec(), None, StateOptions::default())
            .unwrap();
        runner.add_output(device, "first", spec()).unwrap();
        runner.add_output(device, "second", spec()).unwrap();
        let first: VariantFn = Box::new(|context| {
            let x = context.input("x")?;
            let doubled = intermediate(context)?;
            binary(context.ops(), BinaryKind::Add, x, x, doubled)?;
            context.write_state("middle", &doubled)?;
            let first = context.write_output("first", &doubled)?;
            Ok(vec![("first".into(), first)])
        });
        let second: VariantFn = Box::new(|context| {
            let (x, middle, second) = (
                context.input("x")?,
                context.state("middle")?,
                context.output("second")?,
            );
            binary(context.ops(), BinaryKind::Mul, middle, x, second)?;
            Ok(vec![("second".into(), second)])
        });
        let first = runner.add_variant(device, "first", first).unwrap();
        let second = runner.add_variant(device, "second", second).unwrap();
        runner.capture(device).unwrap();
        let bytes = spec().bytes();
        let mut slots: Vec<_> = (0..2).map(|_| device.host_slot(bytes).unwrap()).collect();
        for frame in 0..50 {
            let input = ramp(frame as f32);
            let up = filled(device, &input);
            let head = runner.run(device, first, &[(x, &up)]).unwrap();
            let read = runner.read(device, head, 0, &mut slots[0]).unwrap();
            // In flight beside the read; neither waits for the other.
            let tail = runner.replay(device, second).unwrap();
            let last = runner.read(device, tail, 0, &mut slots[1]).unwrap();
            runner.wait(device, read).unwrap();
            runner.wait(device, last).unwrap();
            for (i, &v) in floats(&input).iter().enumerate() {
                let value = |slot: usize| bytemuck::cast_slice::<_, f32>(slots[slot].bytes().unwrap())[i];
                assert_eq!([value(0), value(1)], [2.0 * v, 2.0 * v * v]);
            }
        }
    });
}
