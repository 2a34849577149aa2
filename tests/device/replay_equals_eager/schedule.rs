//! A schedule by replays, by eager runs and in plain Rust, side by side.

use std::error::Error;
use std::time::Duration;

use proptest::test_runner::TestCaseError;
use sensorium::device::{Device, EventId, HostSlot};
use sensorium::tensor::HostTensor;
use sensorium::trace::{
    BankError, BankIndex, InputId, Pending, ResetValue, Select, TensorMap, TraceError, TraceOptions,
};

use super::case::{Case, Frame, How, Step};
use super::graphs::{fill, floats};
use super::plain::{LEN, Plain, Value, data, first};
use super::traced::{EXTRA_BANKS, Side, host, host_input};

type Outcome = Result<(), Box<dyn Error>>;

/// Runs a case on two devices and checks every value and every order between the queues.
pub(crate) fn run(case: &Case, options: &TraceOptions) -> Result<(), TestCaseError> {
    let outcome = Race::new(case, options).and_then(|mut race| race.run());
    outcome.map_err(|error| TestCaseError::fail(error.to_string()))
}

/// A replay whose outputs are read behind the next frame.
struct Behind {
    pending: Pending,
    eager: TensorMap,
}

/// The read of one output under way, and the bits that it must bring.
struct Reading {
    event: EventId,
    slot: HostSlot,
    expected: HostTensor,
    what: String,
}

/// The three contestants.
struct Race<'a> {
    case: &'a Case,
    two_sets: bool,
    replayed: Side,
    eager: Side,
    plain: Plain<'a>,
    behind: Option<Behind>,
    readings: Vec<Reading>,
}

impl<'a> Race<'a> {
    fn new(case: &'a Case, options: &TraceOptions) -> Result<Self, Box<dyn Error>> {
        let mut replayed = Side::new(case, case.seed, options)?;
        replayed.runner.capture(&mut replayed.device)?;
        Ok(Self {
            case,
            two_sets: options.output_phases == 2,
            replayed,
            eager: Side::new(case, !case.seed, options)?,
            plain: Plain::new(case),
            behind: None,
            readings: Vec::new(),
        })
    }

    fn run(&mut self) -> Outcome {
        for (index, step) in self.case.steps.iter().enumerate() {
            self.step(step)
                .map_err(|error| format!("step {index}: {error}"))?;
        }
        self.read_behind()?;
        self.finish_readings()?;
        for state in 0..self.case.states.len() {
            self.check_state(state)?;
        }
        for side in [&mut self.replayed, &mut self.eager] {
            side.runner.release(&mut side.device)?;
            side.device.drain(Duration::from_secs(1))?;
            if let Some(race) = side.device.races().first() {
                return Err(race.to_string().into());
            }
        }
        Ok(())
    }

    /// Does the same on both devices.
    fn both(&mut self, mut act: impl FnMut(&mut Side) -> Result<(), TraceError>) -> Outcome {
        act(&mut self.replayed)?;
        Ok(act(&mut self.eager)?)
    }

    fn step(&mut self, step: &Step) -> Outcome {
        let states = self.case.states.len();
        match *step {
            Step::Frame(ref frame) => self.frame(frame),
            Step::Reset { state, value } => {
                let state = state % states;
                let tensor = value.map(|number| host(&data(number)));
                self.plain.states[state] = value.map_or_else(|| first(state), data);
                self.both(|side| {
                    let value = tensor.as_ref().map_or(ResetValue::Init, ResetValue::Host);
                    side.runner
                        .reset_state(&mut side.device, side.states[state], value)
                })
            }
            Step::Save { state, bank } => {
                let (state, extra) = (state % states, bank % EXTRA_BANKS);
                let bank = BankIndex(self.case.max_streams + extra);
                self.plain.saved[state][extra] = self.plain.states[state].clone();
                self.both(|side| side.runner.save_state(&mut side.device, side.states[state], bank))
            }
            Step::Load { state, bank } => {
                let (state, extra) = (state % states, bank % EXTRA_BANKS);
                let bank = BankIndex(self.case.max_streams + extra);
                self.plain.states[state] = self.plain.saved[state][extra].clone();
                self.both(|side| side.runner.load_state(&mut side.device, side.states[state], bank))
            }
            Step::ReadState(state) => self.check_state(state % states),
            Step::WriteInput { input, value } => {
                self.plain.inputs[input] = data(value);
                let tensor = host_input(input, &self.plain.inputs[input]);
                self.both(|side| {
                    let id = side.inputs[input];
                    side.runner.write_input(&mut side.device, id, &tensor)
                })
            }
            Step::CaptureAgain => {
                // Reads of the old traces must be over.
                self.read_behind()?;
                self.finish_readings()?;
                for side in [&mut self.replayed, &mut self.eager] {
                    side.extend(self.case)?;
                }
                self.replayed.runner.capture(&mut self.replayed.device)?;
                self.eager.runner.warm_up(&mut self.eager.device)?;
                self.plain.restart();
                Ok(())
            }
        }
    }

    fn frame(&mut self, frame: &Frame) -> Outcome {
        if let Some((stream, reset)) = frame.stream
            && !self.select(stream, reset)?
        {
            return Ok(());
        }
        if let Some(param) = frame.param {
            self.plain.param = param.into();
            self.both(|side| side.runner.set_param(side.param, param.into()))?;
        }
        let mut tensors = Vec::new();
        for (input, number) in frame.inputs.iter().enumerate() {
            if let Some(number) = *number {
                self.plain.inputs[input] = data(number);
                tensors.push((input, host_input(input, &self.plain.inputs[input])));
            }
        }
        let variant = frame.variant % self.case.variants.len();
        let expected = self.plain.run(&self.case.variants[variant]);
        let eager = run_eager(&mut self.eager, variant, &tensors)?;
        check(&eager, &expected, "eager run")?;
        let side = &mut self.replayed;
        let found = match frame.how {
            How::Eager => Some(run_eager(side, variant, &tensors)?),
            How::Call => {
                let inputs = named(side, &tensors);
                Some(
                    side.runner
                        .call(&mut side.device, side.variants[variant], &inputs)?,
                )
            }
            How::Stream | How::ReadBehind | How::Unread => None,
        };
        if let Some(found) = found {
            same_bits(&found, &eager)?;
            return self.read_behind();
        }
        let pending = self.replay(variant, &tensors)?;
        self.read_behind()?;
        match frame.how {
            How::Stream => {
                for (number, (name, expected)) in eager.into_iter().enumerate() {
                    self.read(pending, number, name, expected)?;
                }
            }
            How::ReadBehind => self.behind = Some(Behind { pending, eager }),
            How::Call | How::Unread | How::Eager => {}
        }
        Ok(())
    }

    /// Whether the stream was let in.
    fn select(&mut self, stream: u8, reset: bool) -> Result<bool, Box<dyn Error>> {
        let expected = self.plain.select(stream, reset);
        let select = Select {
            reset,
            timestamp_s: None,
        };
        for side in [&mut self.replayed, &mut self.eager] {
            let selected = side
                .banks
                .select(&mut side.device, &mut side.runner, &stream, select);
            match (selected, expected) {
                (Ok(freshness), Some(fresh)) if freshness.is_fresh() == fresh => {}
                (Err(BankError::Full { .. }), None) => {}
                (Err(error), _) => return Err(error.into()),
                (Ok(freshness), _) => {
                    return Err(
                        format!("stream {stream} is {freshness:?}, fresh {expected:?} expected").into(),
                    );
                }
            }
        }
        Ok(expected.is_some())
    }

    fn replay(&mut self, variant: usize, tensors: &[(usize, HostTensor)]) -> Result<Pending, Box<dyn Error>> {
        let side = &mut self.replayed;
        let mut slots = Vec::new();
        for (input, tensor) in tensors {
            let mut slot = side.device.host_slot(tensor.bytes().len())?;
            fill(&mut slot, tensor.bytes())?;
            slots.push((side.inputs[*input], slot));
        }
        let uploads: Vec<_> = slots.iter().map(|(input, slot)| (*input, slot)).collect();
        Ok(side
            .runner
            .run(&mut side.device, side.variants[variant], &uploads)?)
    }

    fn read(&mut self, pending: Pending, number: usize, name: String, expected: HostTensor) -> Outcome {
        let side = &mut self.replayed;
        let mut slot = side.device.host_slot(4 * LEN)?;
        let event = side.runner.read(&mut side.device, pending, number, &mut slot)?;
        self.readings.push(Reading {
            event,
            slot,
            expected,
            what: format!("{name}, read beside other work,"),
        });
        Ok(())
    }

    /// Reads what the frame before the last one left, as far as it is still there.
    fn read_behind(&mut self) -> Outcome {
        let Some(Behind { pending, eager }) = self.behind.take() else {
            return Ok(());
        };
        for (number, (name, expected)) in eager.into_iter().enumerate() {
            let kept = self.two_sets && name == "y";
            match self.read(pending, number, name, expected) {
                Err(error) if !kept && overtaken(&*error) => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }

    fn finish_readings(&mut self) -> Outcome {
        let side = &mut self.replayed;
        for reading in self.readings.drain(..) {
            side.runner.wait(&mut side.device, reading.event)?;
            if reading.slot.bytes()? != reading.expected.bytes() {
                return Err(differs(
                    &reading.what,
                    reading.slot.bytes()?,
                    reading.expected.bytes(),
                ));
            }
        }
        Ok(())
    }

    /// The states of all three.
    fn check_state(&mut self, state: usize) -> Outcome {
        let expected = vec![("state".to_owned(), self.plain.states[state].clone())];
        let mut tensors = Vec::new();
        for side in [&mut self.eager, &mut self.replayed] {
            let tensor = side.runner.read_state(&mut side.device, side.states[state])?;
            tensors.push(vec![("state".to_owned(), tensor)]);
        }
        check(&tensors[0], &expected, "state after eager runs")?;
        same_bits(&tensors[1], &tensors[0])
    }
}

fn overtaken(error: &(dyn Error + 'static)) -> bool {
    matches!(
        error.downcast_ref::<TraceError>(),
        Some(TraceError::Overtaken { .. })
    )
}

fn named<'t>(side: &Side, tensors: &'t [(usize, HostTensor)]) -> Vec<(InputId, &'t HostTensor)> {
    let tensors = tensors.iter();
    tensors
        .map(|(input, tensor)| (side.inputs[*input], tensor))
        .collect()
}

fn run_eager(
    side: &mut Side,
    variant: usize,
    tensors: &[(usize, HostTensor)],
) -> Result<TensorMap, Box<dyn Error>> {
    let inputs = named(side, tensors);
    let variant = side.variants[variant];
    Ok(side.runner.run_eager(&mut side.device, variant, &inputs)?)
}

/// Compares with the integers.
fn check(found: &TensorMap, expected: &[(String, Value)], what: &str) -> Outcome {
    if found.len() != expected.len() {
        return Err(format!("{what}: {} outputs instead of {}", found.len(), expected.len()).into());
    }
    for ((name, tensor), (expected_name, value)) in found.iter().zip(expected) {
        let right = tensor.as_slice::<f32>()?.iter().zip(value);
        if name != expected_name || !right.into_iter().all(|(&found, &value)| found == value as f32) {
            return Err(differs(
                &format!("{what}: {name}"),
                tensor.bytes(),
                host(value).bytes(),
            ));
        }
    }
    Ok(())
}

/// Compares bit for bit.
fn same_bits(replayed: &TensorMap, eager: &TensorMap) -> Outcome {
    for ((name, replayed), (_, eager)) in replayed.iter().zip(eager) {
        if replayed.bytes() != eager.bytes() {
            return Err(differs(
                &format!("{name} by replay"),
                replayed.bytes(),
                eager.bytes(),
            ));
        }
    }
    match replayed.len() == eager.len() {
        true => Ok(()),
        false => Err("another number of outputs".into()),
    }
}

fn differs(what: &str, found: &[u8], expected: &[u8]) -> Box<dyn Error> {
    let (found, expected) = (floats(found), floats(expected));
    let place = found
        .iter()
        .zip(&expected)
        .position(|(a, b)| a.to_bits() != b.to_bits());
    let place = place.unwrap_or(0);
    format!(
        "{what} is {} at element {place}, not {}",
        found[place], expected[place]
    )
    .into()
}
