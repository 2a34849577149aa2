//! Every step of the order between the queues is needed: left out, the simulator misses it.
//!
//! A model with everything that a runner offers streams frames on two queues. With all steps in place there is no race
//! and every result is that of a plain model of it, in whatever order the simulator executes; with any one step left
//! out, the simulator says between which commands nothing is in order.

use crate::graphs;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::error::Error;

use sensorium::device::sim::{CommandInfo, RaceObject};
use sensorium::device::{
    BinaryKind, BufferClass, Device, EventId, HostSlot, OnRace, Race, SimConfig, SimDevice,
};
use sensorium::tensor::{DType, HostTensor, TensorSpec};
use sensorium::trace::{
    BankOptions, InputId, OnFull, ParamId, Pending, ProtocolStep, Select, StateId, StateOptions, StreamBanks,
    TraceContext, TraceOptions, TraceRunner, VariantId, WorkError,
};

use graphs::*;

const FRAMES: usize = 40;
const SEEDS: u64 = 12;

/// `s = x * gain + u; acc += s; mem = s - mem; y = acc + mem; z = max(mem, x)`
fn step(context: &mut TraceContext<'_>) -> Result<Outputs, WorkError> {
    let (x, u, gain) = (context.input("x")?, context.input("u")?, context.param("gain")?);
    let (acc, mem) = (context.state("acc")?, context.state("mem")?);
    let (next_mem, y) = (context.write_target("mem")?, context.output("y")?);
    let ops = context.ops();
    let (s, next_acc) = (like(ops, &x)?, like(ops, &x)?);
    binary(ops, BinaryKind::Mul, &x, &gain, &s)?;
    binary(ops, BinaryKind::Add, &s, &u, &s)?;
    binary(ops, BinaryKind::Add, &acc, &s, &next_acc)?;
    binary(ops, BinaryKind::Sub, &s, &mem, &next_mem)?;
    ops.free(&s)?;
    binary(ops, BinaryKind::Add, &next_acc, &next_mem, &y)?;
    let z = ops.alloc(&vector(), BufferClass::Output)?;
    binary(ops, BinaryKind::Max, &next_mem, &x, &z)?;
    context.write_state("acc", &next_acc)?;
    context.write_state("mem", &next_mem)?;
    Ok(vec![("y".into(), y), ("z".into(), z)])
}

/// `acc += x; y = acc - u; z = mem + u`, which leaves the ping-pong state where it is.
fn look(context: &mut TraceContext<'_>) -> Result<Outputs, WorkError> {
    let (x, u) = (context.input("x")?, context.input("u")?);
    let (acc, mem) = (context.state("acc")?, context.state("mem")?);
    let ops = context.ops();
    let (sum, difference) = (like(ops, &x)?, like(ops, &x)?);
    binary(ops, BinaryKind::Add, &acc, &x, &sum)?;
    binary(ops, BinaryKind::Sub, &sum, &u, &difference)?;
    let z = ops.alloc(&vector(), BufferClass::Output)?;
    binary(ops, BinaryKind::Add, &mem, &u, &z)?;
    context.write_state("acc", &sum)?;
    let y = context.write_output("y", &difference)?;
    Ok(vec![("y".into(), y), ("z".into(), z)])
}

/// The same model in plain Rust.
struct Plain {
    x: Vec<f32>,
    u: Vec<f32>,
    gain: f32,
    acc: Vec<f32>,
    mem: Vec<f32>,
    /// States of the known streams, most recently used first.
    streams: Vec<(u8, Vec<f32>, Vec<f32>)>,
}

fn zip(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) -> Vec<f32> {
    a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect()
}

impl Plain {
    fn new() -> Self {
        Self {
            x: vec![0.0; N],
            u: vec![0.0; N],
            gain: 1.0,
            acc: vec![5.0; N],
            mem: vec![0.0; N],
            streams: Vec::new(),
        }
    }

    fn run(&mut self, stepping: bool) -> [Vec<f32>; 2] {
        if stepping {
            let s: Vec<f32> = zip(&self.x, &self.u, |x, u| x * self.gain + u);
            self.acc = zip(&self.acc, &s, |acc, s| acc + s);
            self.mem = zip(&s, &self.mem, |s, mem| s - mem);
            [
                zip(&self.acc, &self.mem, |a, m| a + m),
                zip(&self.mem, &self.x, f32::max),
            ]
        } else {
            self.acc = zip(&self.acc, &self.x, |acc, x| acc + x);
            [
                zip(&self.acc, &self.u, |a, u| a - u),
                zip(&self.mem, &self.u, |m, u| m + u),
            ]
        }
    }

    fn select(&mut self, key: u8, reset: bool) {
        if let Some(first) = self.streams.first_mut() {
            first.1.clone_from(&self.acc);
            first.2.clone_from(&self.mem);
        }
        let fresh = Self::new();
        let mut stream = match self.streams.iter().position(|stream| stream.0 == key) {
            Some(index) => self.streams.remove(index),
            None => {
                self.streams.truncate(1);
                (key, fresh.acc.clone(), fresh.mem.clone())
            }
        };
        if reset {
            (stream.1, stream.2) = (fresh.acc, fresh.mem);
        }
        self.acc.clone_from(&stream.1);
        self.mem.clone_from(&stream.2);
        self.streams.insert(0, stream);
    }
}

/// A replay whose output is read later, and what that must bring.
type Unread = (Pending, Vec<f32>);

/// A read under way and what it must bring.
struct Reading {
    event: EventId,
    slot: HostSlot,
    expected: Vec<f32>,
    what: String,
}

struct Scene {
    runner: TraceRunner,
    x: InputId,
    u: InputId,
    gain: ParamId,
    acc: StateId,
    mem: StateId,
    variants: [VariantId; 2],
    banks: StreamBanks<u8>,
    plain: Plain,
    random: Random,
    /// Slots for both inputs with the event of their last upload; the oldest is used next.
    slots: VecDeque<([HostSlot; 2], Option<EventId>)>,
    readings: VecDeque<Reading>,
}

impl Scene {
    fn new(device: &mut dyn Device, options: TraceOptions, seed: u64) -> Result<Self, Box<dyn Error>> {
        let mut runner = TraceRunner::new("scene", options)?;
        let x = runner.add_input(device, "x", vector(), None)?;
        let bytes = TensorSpec::new(&[N], DType::U8)?;
        let widen = Box::new(
            |ops: &mut sensorium::ops::OpContext<'_>, staging, input| -> Result<(), WorkError> {
                Ok(ops.copy(&staging, &input)?)
            },
        );
        let u = runner.add_input_with(device, "u", vector(), bytes, None, widen)?;
        let gain = runner.add_param(device, "gain", 1.0)?;
        let kept = |pingpong| StateOptions { pingpong, banks: 2 };
        let acc = runner.add_state(device, "acc", vector(), Some(&vector_of(|_| 5.0)), kept(false))?;
        let mem = runner.add_state(device, "mem", vector(), None, kept(true))?;
        runner.add_output(device, "y", vector())?;
        let variants = [
            runner.add_variant(device, "step", Box::new(step))?,
            runner.add_variant(device, "look", Box::new(look))?,
        ];
        runner.capture(device)?;
        let options = BankOptions {
            max_streams: 2,
            on_full: OnFull::Evict,
            max_gap_s: None,
        };
        let banks = StreamBanks::new(&runner, &[acc, mem], options)?;
        let mut slots = VecDeque::new();
        for _ in 0..4 {
            slots.push_back(([device.host_slot(4 * N)?, device.host_slot(N)?], None));
        }
        Ok(Self {
            runner,
            x,
            u,
            gain,
            acc,
            mem,
            variants,
            banks,
            plain: Plain::new(),
            random: Random(seed),
            slots,
            readings: VecDeque::new(),
        })
    }

    /// A random frame: maybe another stream, another gain, uploads, inputs written in between, a replay, reads.
    fn frame(&mut self, device: &mut dyn Device, behind: &mut Option<Unread>) -> Result<(), Box<dyn Error>> {
        if self.random.one_in(3) {
            let (key, reset) = (self.random.below(3) as u8, self.random.one_in(4));
            let select = Select {
                reset,
                timestamp_s: None,
            };
            self.banks.select(device, &mut self.runner, &key, select)?;
            self.plain.select(key, reset);
        }
        if self.random.one_in(3) {
            self.plain.gain = self.random.below(5) as f32;
            self.runner.set_param(self.gain, self.plain.gain)?;
        }
        if self.random.one_in(4) {
            self.write_input(device)?;
        }
        let which = self.random.below(4);
        self.upload(device, which & 1 != 0, which & 2 != 0)?;
        if self.random.one_in(4) {
            self.write_input(device)?;
        }
        let variant = self.random.below(2);
        let pending = self.runner.replay(device, self.variants[variant])?;
        let [y, z] = self.plain.run(variant == 0);
        // What the frame before left to be read: behind this frame's upload and replay.
        if let Some((pending, expected)) = behind.take() {
            self.read(device, pending, 0, expected)?;
        }
        match self.random.below(4) {
            0 => {}
            1 => *behind = Some((pending, y)),
            2 => self.read(device, pending, 0, y)?,
            _ => {
                self.read(device, pending, 1, z)?;
                self.read(device, pending, 0, y)?;
            }
        }
        if self.random.one_in(3) {
            self.runner.completed(device, pending.done)?;
        }
        if self.random.one_in(8) {
            let acc = self.runner.read_state(device, self.acc)?;
            same(&floats(acc.bytes()), &self.plain.acc, "state acc")?;
            let mem = self.runner.read_state(device, self.mem)?;
            same(&floats(mem.bytes()), &self.plain.mem, "state mem")?;
        }
        while self.readings.len() > 5 {
            self.finish_reading(device)?;
        }
        Ok(())
    }

    fn numbers(&mut self) -> Vec<f32> {
        (0..N).map(|_| self.random.below(100) as f32).collect()
    }

    fn upload(&mut self, device: &mut dyn Device, x: bool, u: bool) -> Result<(), Box<dyn Error>> {
        if !x && !u {
            return Ok(());
        }
        let (mut slots, last) = self.slots.pop_front().unwrap();
        if let Some(event) = last {
            self.runner.wait(device, event)?;
        }
        let mut uploads = Vec::new();
        if x {
            self.plain.x = self.numbers();
            fill(&mut slots[0], bytemuck::cast_slice(&self.plain.x))?;
        }
        if u {
            self.plain.u = self.numbers();
            let bytes: Vec<u8> = self.plain.u.iter().map(|&u| u as u8).collect();
            fill(&mut slots[1], &bytes)?;
        }
        for (wanted, input, slot) in [(x, self.x, &slots[0]), (u, self.u, &slots[1])] {
            if wanted {
                uploads.push((input, slot));
            }
        }
        let event = self.runner.upload(device, &uploads)?;
        self.slots.push_back((slots, Some(event)));
        Ok(())
    }

    fn write_input(&mut self, device: &mut dyn Device) -> Result<(), Box<dyn Error>> {
        let numbers = self.numbers();
        if self.random.one_in(2) {
            self.runner
                .write_input(device, self.x, &HostTensor::from_slice(&[N], &numbers)?)?;
            self.plain.x = numbers;
        } else {
            let bytes: Vec<u8> = numbers.iter().map(|&u| u as u8).collect();
            self.runner
                .write_input(device, self.u, &HostTensor::from_slice(&[N], &bytes)?)?;
            self.plain.u = numbers;
        }
        Ok(())
    }

    fn read(
        &mut self,
        device: &mut dyn Device,
        pending: Pending,
        output: usize,
        expected: Vec<f32>,
    ) -> Result<(), Box<dyn Error>> {
        let mut slot = device.host_slot(4 * N)?;
        let event = self.runner.read(device, pending, output, &mut slot)?;
        self.readings.push_back(Reading {
            event,
            slot,
            expected,
            what: format!("output {output}"),
        });
        Ok(())
    }

    fn finish_reading(&mut self, device: &mut dyn Device) -> Result<(), Box<dyn Error>> {
        let reading = self.readings.pop_front().unwrap();
        self.runner.wait(device, reading.event)?;
        same(&floats(reading.slot.bytes()?), &reading.expected, &reading.what)
    }
}

fn same(found: &[f32], expected: &[f32], what: &str) -> Result<(), Box<dyn Error>> {
    match found == expected {
        true => Ok(()),
        false => Err(format!(
            "{what} is wrong: {:?}.. instead of {:?}..",
            &found[..4],
            &expected[..4]
        )
        .into()),
    }
}

/// How the streaming of some frames ended.
struct Outcome {
    races: Vec<Race>,
    /// An error of the runner, or a wrong result.
    trouble: Option<String>,
    /// How often the step that may be left out was due.
    due: u64,
}

fn stream(staged: bool, seed: u64, omit: Option<ProtocolStep>) -> Outcome {
    let mut device = SimDevice::open(&SimConfig {
        on_race: OnRace::Report,
        ..small(2, seed)
    })
    .unwrap();
    let options = TraceOptions {
        stage_inputs: staged,
        omit,
        ..TraceOptions::two_queues()
    };
    let mut scene = Scene::new(&mut device, options, seed).unwrap();
    let mut behind = None;
    let mut trouble = (0..FRAMES).find_map(|frame| {
        let outcome = scene.frame(&mut device, &mut behind);
        outcome.err().map(|error| format!("frame {frame}: {error}"))
    });
    while trouble.is_none() && !scene.readings.is_empty() {
        trouble = scene
            .finish_reading(&mut device)
            .err()
            .map(|error| error.to_string());
    }
    Outcome {
        races: device.races(),
        trouble,
        due: omit.map_or(0, |step| scene.runner.protocol_step_count(step)),
    }
}

/// One side of a race, short and without numbers that differ from run to run.
fn side(info: &CommandInfo) -> String {
    let object = match info.object {
        RaceObject::Buffer { class, .. } => format!("{class:?}"),
        RaceObject::HostSlot(_) => "slot".into(),
    };
    let command = info.command.to_string();
    let command = command.split(" of trace").next().unwrap();
    format!(
        "{} {command} {} {object}",
        info.cq,
        if info.writes { "writes" } else { "reads" }
    )
}

#[test]
fn with_every_step_in_place_nothing_races_and_every_result_is_right() {
    for staged in [true, false] {
        for seed in 0..4 * SEEDS {
            let outcome = stream(staged, seed, None);
            assert_eq!(outcome.races, [], "staged {staged}, seed {seed}");
            assert_eq!(outcome.trouble, None, "staged {staged}, seed {seed}");
        }
    }
}

/// What must be missed without each step: the earlier command, the later one.
const MISSED: [(ProtocolStep, &[&str]); ProtocolStep::ALL.len()] = [
    (
        ProtocolStep::UploadWaitsForReplay,
        &[
            "CQ0 replay reads Input / CQ1 upload writes Input",
            "CQ0 upload writes Input / CQ1 upload writes Input",
        ],
    ),
    (
        ProtocolStep::UploadWaitsForStaging,
        &[
            "CQ0 copy reads Staging / CQ1 upload writes Staging",
            "CQ0 launch of copy reads Staging / CQ1 upload writes Staging",
        ],
    ),
    (
        ProtocolStep::ReplayWaitsForUpload,
        &[
            "CQ1 upload writes Input / CQ0 replay reads Input",
            "CQ1 upload writes Staging / CQ0 copy reads Staging",
            "CQ1 upload writes Staging / CQ0 launch of copy reads Staging",
        ],
    ),
    (
        ProtocolStep::WriteInputWaitsForUpload,
        &[
            "CQ1 upload writes Input / CQ0 upload writes Input",
            "CQ1 upload writes Staging / CQ0 upload writes Staging",
        ],
    ),
    (
        ProtocolStep::ReplayWaitsForRead,
        &[
            "CQ1 read reads Output / CQ0 replay writes Output",
            // An output that its variant allocated, where the trace of another one keeps intermediates.
            "CQ1 read reads Output / CQ0 replay writes Intermediate",
        ],
    ),
    (
        ProtocolStep::ReadWaitsForReplay,
        &["CQ0 replay writes Output / CQ1 read reads Output"],
    ),
    (
        ProtocolStep::UploadRecorded,
        &[
            "CQ1 upload writes Input / CQ0 replay reads Input",
            "CQ1 upload writes Staging / CQ0 copy reads Staging",
            "CQ1 upload writes Staging / CQ0 launch of copy reads Staging",
        ],
    ),
    (
        ProtocolStep::StagingRecorded,
        &[
            "CQ0 copy reads Staging / CQ1 upload writes Staging",
            "CQ0 launch of copy reads Staging / CQ1 upload writes Staging",
        ],
    ),
    (
        ProtocolStep::WriteInputRecorded,
        &[
            "CQ0 upload writes Input / CQ1 upload writes Input",
            "CQ0 copy reads Staging / CQ1 upload writes Staging",
            "CQ0 launch of copy reads Staging / CQ1 upload writes Staging",
        ],
    ),
    (
        ProtocolStep::ReplayRecorded,
        &[
            "CQ0 replay reads Input / CQ1 upload writes Input",
            "CQ0 replay writes Output / CQ1 read reads Output",
        ],
    ),
    (
        ProtocolStep::ReadRecorded,
        &["CQ1 read reads Output / CQ0 replay writes Output", EARLY],
    ),
    // The host alone waits for it.
    (ProtocolStep::StateReadRecorded, &[EARLY]),
];

/// Wrong use: the host looks at a slot that it believes to be its own.
const EARLY: &str = "the host slot still belongs to the device";

#[test]
fn each_step_that_is_left_out_is_missed_and_the_race_names_both_commands() {
    println!("step, runs that miss it, by: first command / second command");
    for ((step, expected), listed) in MISSED.into_iter().zip(ProtocolStep::ALL) {
        assert_eq!(step, listed);
        let (mut due, mut missed, mut runs) = (0, 0, 0);
        // Pairs of commands that race, and wrong use, with the runs that show them.
        let mut found: BTreeMap<String, usize> = BTreeMap::new();
        for staged in [true, false] {
            for seed in 0..SEEDS {
                let outcome = stream(staged, seed, Some(step));
                runs += 1;
                due += outcome.due;
                missed += usize::from(!outcome.races.is_empty() || outcome.trouble.is_some());
                let mut shown: BTreeSet<String> = BTreeSet::new();
                for race in &outcome.races {
                    assert_ne!(race.first.cq, race.second.cq);
                    shown.insert(format!("{} / {}", side(&race.first), side(&race.second)));
                }
                if outcome.trouble.is_some_and(|trouble| trouble.contains(EARLY)) {
                    shown.insert(EARLY.into());
                }
                for pair in shown {
                    *found.entry(pair).or_default() += 1;
                }
            }
        }
        println!("{step:?}: {missed} of {runs}");
        for (pair, runs) in &found {
            println!("    {runs:3}  {pair}");
        }
        assert!(due > 0, "{step:?} was never due");
        for pair in expected {
            assert!(
                found.contains_key(*pair),
                "without {step:?} nobody misses: {pair}"
            );
        }
    }
}
