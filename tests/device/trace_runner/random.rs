//! Random programs: replays, eager runs and plain Rust agree.

use proptest::prelude::*;
use sensorium::device::{Device, EventId, HostSlot};
use sensorium::trace::{BankIndex, Pending, ResetValue, StateId, TraceError, TraceOptions, VariantFn};

use super::temporal::{DEVICES, Kind, Model, Open, Twin, every_mode, filled, floats, peek, ramp, spec};

#[derive(Debug, Clone)]
enum Action {
    Upload(i8),
    WriteInput(i8),
    Keep(f32),
    /// Read at once, in flight with what follows, or only at the end.
    Run {
        kind: Kind,
        read_late: bool,
    },
    RunEager(Kind),
    ResetAll,
    ResetMem(i8),
    ResetSum,
    Save(usize),
    Load(usize),
    Recapture,
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![3 => Just(Kind::Step), 1 => Just(Kind::Peek), 1 => Just(Kind::Count)]
}

fn actions() -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => any::<i8>().prop_map(Action::Upload),
        2 => any::<i8>().prop_map(Action::WriteInput),
        2 => prop::sample::select(vec![0.0, -0.0, 0.5, 1.0, -0.25]).prop_map(Action::Keep),
        12 => (kinds(), any::<bool>()).prop_map(|(kind, read_late)| Action::Run { kind, read_late }),
        2 => kinds().prop_map(Action::RunEager),
        1 => Just(Action::ResetAll),
        1 => any::<i8>().prop_map(Action::ResetMem),
        1 => Just(Action::ResetSum),
        2 => (0..2_usize).prop_map(Action::Save),
        2 => (0..2_usize).prop_map(Action::Load),
        1 => Just(Action::Recapture),
    ]
}

/// A read that was enqueued or is still to be.
struct Read {
    kind: Kind,
    pending: Pending,
    enqueued: Option<(HostSlot, EventId)>,
    expected: Vec<f32>,
    /// A later run wrote the same set of the persistent output.
    overwritten: bool,
}

/// One program on a device: captured traces, the same by eager runs, and plain Rust, side by side.
struct Trio<'a> {
    device: &'a mut dyn Device,
    traced: Model,
    eager: Model,
    twin: Twin,
    banks: [Twin; 2],
    x: Vec<f32>,
    keep: f32,
    reads: Vec<Read>,
    recaptures: usize,
}

impl<'a> Trio<'a> {
    fn new(device: &'a mut dyn Device, options: TraceOptions) -> Self {
        let mut traced = Model::build(device, options.clone(), 2).unwrap();
        let mut eager = Model::build(device, options, 2).unwrap();
        traced.runner.warm_up(device).unwrap();
        eager.runner.warm_up(device).unwrap();
        traced.runner.capture(device).unwrap();
        Self {
            device,
            traced,
            eager,
            twin: Twin::default(),
            banks: [Twin::default(), Twin::default()],
            x: vec![0.0; spec().shape.elements()],
            keep: 0.5,
            reads: Vec::new(),
            recaptures: 0,
        }
    }

    fn both(&mut self, mut act: impl FnMut(&mut Model, &mut dyn Device) -> Result<(), TraceError>) {
        act(&mut self.traced, self.device).unwrap();
        act(&mut self.eager, self.device).unwrap();
    }

    fn every_state(
        &mut self,
        mut act: impl FnMut(&mut Model, &mut dyn Device, StateId) -> Result<(), TraceError>,
    ) {
        self.both(|model, device| {
            [model.mem, model.trend, model.sum]
                .into_iter()
                .try_for_each(|state| act(model, device, state))
        });
    }

    fn act(&mut self, action: &Action) {
        match *action {
            Action::Upload(value) => {
                let tensor = ramp(value.into());
                let slot = filled(self.device, &tensor);
                self.both(|model, device| model.runner.upload(device, &[(model.x, &slot)]).map(drop));
                self.x = floats(&tensor).to_vec();
            }
            Action::WriteInput(value) => {
                let tensor = ramp(value.into());
                self.both(|model, device| model.runner.write_input(device, model.x, &tensor));
                self.x = floats(&tensor).to_vec();
            }
            Action::Keep(value) => {
                self.both(|model, _| model.runner.set_param(model.keep, value));
                self.keep = value;
            }
            Action::Run { kind, read_late } => self.run(kind, read_late),
            Action::RunEager(kind) => {
                let set = self.traced.runner.phase().output;
                let expected = self.eagerly(kind);
                let variant = self.traced.variant(kind);
                let outputs = self.traced.runner.run_eager(self.device, variant, &[]).unwrap();
                assert_eq!(floats(&outputs[0].1), expected);
                self.overwrite(kind, set);
            }
            Action::ResetAll => {
                self.both(|model, device| model.runner.reset_states(device));
                self.twin = Twin::default();
            }
            Action::ResetMem(value) => {
                let tensor = ramp(value.into());
                self.both(|model, device| {
                    model
                        .runner
                        .reset_state(device, model.mem, ResetValue::Host(&tensor))
                });
                self.twin.mem = floats(&tensor).to_vec();
            }
            Action::ResetSum => {
                self.both(|model, device| model.runner.reset_state(device, model.sum, ResetValue::Init));
                self.twin.sum = Twin::default().sum;
            }
            Action::Save(bank) => {
                self.every_state(|model, device, state| {
                    model.runner.save_state(device, state, BankIndex(bank))
                });
                self.banks[bank] = self.twin.clone();
            }
            Action::Load(bank) => {
                self.every_state(|model, device, state| {
                    model.runner.load_state(device, state, BankIndex(bank))
                });
                self.twin = self.banks[bank].clone();
            }
            Action::Recapture => self.recapture(),
        }
    }

    fn run(&mut self, kind: Kind, read_late: bool) {
        let expected = self.eagerly(kind);
        let variant = self.traced.variant(kind);
        let pending = self.traced.runner.replay(self.device, variant).unwrap();
        self.overwrite(kind, pending.phase.output);
        let enqueued = (!read_late).then(|| {
            let mut slot = self.device.host_slot(spec().bytes()).unwrap();
            let event = self.traced.runner.read(self.device, pending, 0, &mut slot);
            (slot, event.unwrap())
        });
        self.reads.push(Read {
            kind,
            pending,
            enqueued,
            expected,
            overwritten: false,
        });
    }

    /// Runs the eager model and plain Rust, which must agree.
    fn eagerly(&mut self, kind: Kind) -> Vec<f32> {
        let expected = self.twin.run(kind, &self.x, self.keep);
        let variant = self.eager.variant(kind);
        let outputs = self.eager.runner.run_eager(self.device, variant, &[]).unwrap();
        let output = floats(&outputs[0].1);
        assert_eq!(output, expected);
        // Its bits, which tell -0 from 0.
        output.to_vec()
    }

    fn overwrite(&mut self, kind: Kind, set: usize) {
        for read in &mut self.reads {
            let same = kind != Kind::Peek && read.kind != Kind::Peek && read.pending.phase.output == set;
            read.overwritten |= same;
        }
    }

    fn recapture(&mut self) {
        self.settle();
        self.recaptures += 1;
        let name = format!("again{}", self.recaptures);
        let again: VariantFn = Box::new(peek);
        self.traced.runner.add_variant(self.device, &name, again).unwrap();
        self.traced.runner.capture(self.device).unwrap();
        // All states start again.
        self.eager.runner.reset_states(self.device).unwrap();
        self.twin = Twin::default();
    }

    /// Checks all reads so far.
    fn settle(&mut self) {
        for read in std::mem::take(&mut self.reads) {
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            if let Some((slot, event)) = read.enqueued {
                self.traced.runner.wait(self.device, event).unwrap();
                let values: &[f32] = bytemuck::cast_slice(slot.bytes().unwrap());
                assert_eq!(bits(values), bits(&read.expected));
                continue;
            }
            match self.traced.runner.read_all(self.device, read.pending) {
                Ok(outputs) => {
                    assert!(!read.overwritten);
                    assert_eq!(bits(floats(&outputs[0].1)), bits(&read.expected));
                }
                Err(TraceError::Overtaken { .. }) => {
                    assert!(read.overwritten || read.kind == Kind::Peek);
                }
                Err(other) => panic!("{other}"),
            }
        }
        let twin = self.traced.states(self.device);
        assert_eq!(twin, self.twin);
        assert_eq!(self.eager.states(self.device), self.twin);
    }
}

fn agree(open: Open, options: TraceOptions, program: &[Action]) {
    let mut device = open(options.queues);
    let mut trio = Trio::new(device.as_mut(), options);
    for action in program {
        trio.act(action);
    }
    trio.settle();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_program_gives_the_same_by_replays_eager_runs_and_plain_rust(
        mode in 0..5_usize,
        program in prop::collection::vec(actions(), 1..60),
    ) {
        for (_, open) in DEVICES {
            agree(open, every_mode()[mode].clone(), &program);
        }
    }
}
