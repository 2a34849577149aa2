//! The order between the two queues: that every step of it is taken.

use std::time::Duration;

use sensorium::device::Device;
use sensorium::trace::{ProtocolStep, TraceOptions};

use super::spy::Spy;
use super::temporal::{Kind, Model, every_mode, filled, on_every_device, ramp, spec};

/// Frames that use everything, two in flight.
fn everything(device: &mut dyn Device, options: TraceOptions) -> Model {
    let mut model = Model::captured(device, options, 2);
    let mut slots: Vec<_> = (0..2)
        .map(|_| device.host_slot(spec().bytes()).unwrap())
        .collect();
    let mut reads = Vec::new();
    for frame in 0..8_usize {
        let up = filled(device, &ramp(frame as f32));
        model.runner.set_param(model.keep, frame as f32 / 8.0).unwrap();
        model.runner.upload(device, &[(model.x, &up)]).unwrap();
        if frame % 3 == 0 {
            model.runner.write_input(device, model.x, &ramp(0.0)).unwrap();
        }
        let kind = [Kind::Step, Kind::Peek, Kind::Count][frame % 3];
        let variant = model.variant(kind);
        let pending = model.runner.replay(device, variant).unwrap();
        if let Some(event) = reads.pop() {
            model.runner.wait(device, event).unwrap();
        }
        let slot = &mut slots[frame % 2];
        reads.push(model.runner.read(device, pending, 0, slot).unwrap());
        model.states(device);
    }
    model.runner.wait(device, reads[0]).unwrap();
    model
}

#[test]
fn every_step_of_the_order_between_two_queues_is_taken_in_a_normal_run() {
    on_every_device(|open| {
        let mut taken = [0; ProtocolStep::ALL.len()];
        for options in every_mode().into_iter().filter(|options| options.queues == 2) {
            let mut device = open(2);
            let model = everything(device.as_mut(), options.clone());
            let staged = options.stage_inputs;
            for (count, step) in taken.iter_mut().zip(ProtocolStep::ALL) {
                let reached = model.runner.protocol_step_count(step);
                let expected = match step {
                    ProtocolStep::UploadWaitsForReplay => !staged,
                    ProtocolStep::UploadWaitsForStaging | ProtocolStep::StagingRecorded => staged,
                    _ => true,
                };
                assert_eq!(reached > 0, expected, "{step:?} with {options:?}: {reached}");
                *count += reached;
            }
        }
        assert!(taken.iter().all(|&count| count > 0), "{taken:?}");
    });
}

#[test]
fn one_queue_needs_no_waiting() {
    on_every_device(|open| {
        let mut device = open(1);
        let model = everything(device.as_mut(), TraceOptions::default());
        let waits = [
            ProtocolStep::UploadWaitsForReplay,
            ProtocolStep::UploadWaitsForStaging,
            ProtocolStep::ReplayWaitsForUpload,
            ProtocolStep::WriteInputWaitsForUpload,
            ProtocolStep::ReplayWaitsForRead,
            ProtocolStep::ReadWaitsForReplay,
        ];
        let counts = waits.map(|step| model.runner.protocol_step_count(step));
        assert_eq!(counts, [0; 6]);
    });
}

#[test]
fn a_step_that_is_left_out_is_left_out_and_still_counted() {
    on_every_device(|open| {
        for step in ProtocolStep::ALL {
            let mut device = Spy::new(open(2));
            let mut model = Model::captured(&mut device, TraceOptions::two_queues(), 0);
            let whole = run_one(&mut device, &mut model, step);
            let mut device = Spy::new(open(2));
            let options = TraceOptions {
                omit: Some(step),
                ..TraceOptions::two_queues()
            };
            let mut model = Model::captured(&mut device, options, 0);
            let mutated = run_one(&mut device, &mut model, step);
            let name = format!("{step:?}");
            if name.contains("WaitsFor") {
                let waits = |calls: &[&str]| calls.iter().filter(|call| **call == "wait_event").count();
                assert_eq!(waits(&whole.0) - waits(&mutated.0), whole.1 as usize, "{name}");
            } else if whole.1 > 0 {
                // The same calls in another order: an event comes too early.
                assert_ne!(whole.0, mutated.0, "{name}");
                assert_eq!(sorted(whole.0), sorted(mutated.0), "{name}");
            }
            assert_eq!(whole.1, mutated.1, "{name}");
        }
    });
}

fn sorted(mut calls: Vec<&'static str>) -> Vec<&'static str> {
    calls.sort_unstable();
    calls
}

/// Two frames one after the other, each waited for, so that nothing races whatever is left out: the calls and how often
/// the step was due.
fn run_one(device: &mut Spy, model: &mut Model, step: ProtocolStep) -> (Vec<&'static str>, u64) {
    device.take("");
    let before = model.runner.protocol_step_count(step);
    let mut slot = device.host_slot(spec().bytes()).unwrap();
    for frame in 0..3 {
        let settle = |device: &mut Spy| device.drain(Duration::from_secs(10)).unwrap();
        let up = filled(device, &ramp(frame as f32));
        model.runner.upload(device, &[(model.x, &up)]).unwrap();
        settle(device);
        model.runner.write_input(device, model.x, &ramp(0.0)).unwrap();
        settle(device);
        model.runner.upload(device, &[(model.x, &up)]).unwrap();
        settle(device);
        let pending = model.runner.replay(device, model.step).unwrap();
        settle(device);
        model.runner.read(device, pending, 0, &mut slot).unwrap();
        settle(device);
        let read = model.runner.read_state(device, model.sum);
        assert!(
            read.is_ok() || step == ProtocolStep::StateReadRecorded,
            "{read:?}"
        );
        settle(device);
    }
    let calls = std::mem::take(&mut device.log);
    (calls, model.runner.protocol_step_count(step) - before)
}
