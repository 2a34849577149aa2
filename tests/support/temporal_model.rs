//! A small model with states on any device, and the same model in plain Rust.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test target includes this file and uses its own part"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use sensorium::device::{
    Activation, BinaryKind, BufferClass, CpuConfig, CpuDevice, Device, HostSlot, OpDesc, Operand, SimConfig,
    SimDevice,
};
use sensorium::ops::{DeviceTensor, OpContext};
use sensorium::tensor::{DType, HostTensor, TensorSpec};
use sensorium::trace::{
    InputId, ParamId, StateId, StateOptions, TraceContext, TraceError, TraceOptions, TraceRunner, VariantId,
    WorkError,
};

/// Elements of every tensor of the model.
pub const N: usize = 64;

/// What a variant returns.
pub type Outputs = Vec<(String, DeviceTensor)>;

/// Opens a device with a number of queues.
pub type Open = fn(queues: u8) -> Box<dyn Device>;

/// The devices that every test of traces runs on.
pub const DEVICES: [(&str, Open); 2] = [("cpu", cpu), ("sim", sim)];

pub fn cpu(queues: u8) -> Box<dyn Device> {
    let config = CpuConfig {
        queues,
        threads: 2,
        arena_bytes: 8 << 20,
        ..CpuConfig::default()
    };
    Box::new(CpuDevice::open(&config).unwrap())
}

/// Finds races: the next wait of the host fails.
pub fn sim(queues: u8) -> Box<dyn Device> {
    let config = SimConfig {
        queues,
        arena_bytes: 8 << 20,
        ..SimConfig::default()
    };
    Box::new(SimDevice::open(&config).unwrap())
}

/// Runs a test on every device.
pub fn on_every_device(test: impl Fn(Open)) {
    for (name, open) in DEVICES {
        println!("on {name}");
        test(open);
    }
}

/// Every way of ordering transfers and replays.
pub fn every_mode() -> [TraceOptions; 5] {
    let one = TraceOptions::default();
    let two = TraceOptions {
        queues: 2,
        ..TraceOptions::default()
    };
    [
        one.clone(),
        TraceOptions {
            output_phases: 2,
            ..one
        },
        two.clone(),
        TraceOptions {
            stage_inputs: true,
            ..two
        },
        TraceOptions::two_queues(),
    ]
}

/// Runs a test on every device in every mode.
pub fn in_every_mode(test: impl Fn(&mut dyn Device, TraceOptions)) {
    on_every_device(|open| {
        for options in every_mode() {
            println!("with {options:?}");
            let mut device = open(options.queues);
            test(device.as_mut(), options);
            device.close();
        }
    });
}

pub fn spec() -> TensorSpec {
    TensorSpec::new(&[N], DType::F32).unwrap()
}

/// `value, value + 1, ...`
pub fn ramp(value: f32) -> HostTensor {
    let values: Vec<f32> = (0..N).map(|i| value + i as f32).collect();
    HostTensor::from_slice(&[N], &values).unwrap()
}

pub fn floats(tensor: &HostTensor) -> &[f32] {
    tensor.as_slice().unwrap()
}

/// A host slot that holds a tensor.
pub fn filled(device: &mut dyn Device, tensor: &HostTensor) -> HostSlot {
    let mut slot = device.host_slot(tensor.bytes().len()).unwrap();
    slot.bytes_mut().unwrap().copy_from_slice(tensor.bytes());
    slot
}

/// `dst = lhs (kind) rhs`, with `rhs` broadcast.
pub fn binary(
    ops: &mut OpContext<'_>,
    kind: BinaryKind,
    lhs: DeviceTensor,
    rhs: DeviceTensor,
    dst: DeviceTensor,
) -> Result<(), WorkError> {
    let op = OpDesc::Binary {
        lhs: lhs.operand(),
        rhs: Operand {
            dtype: rhs.dtype,
            view: rhs.view.broadcast_to(dst.view.shape)?,
        },
        dst: dst.operand(),
        kind,
    };
    Ok(ops.run(&op, &[lhs.buffer, rhs.buffer, dst.buffer])?)
}

/// `dst = activation(src)`
pub fn unary(
    ops: &mut OpContext<'_>,
    activation: Activation,
    src: DeviceTensor,
    dst: DeviceTensor,
) -> Result<(), WorkError> {
    let op = OpDesc::Unary {
        src: src.operand(),
        dst: dst.operand(),
        activation,
    };
    Ok(ops.run(&op, &[src.buffer, dst.buffer])?)
}

pub fn intermediate(context: &mut TraceContext<'_>) -> Result<DeviceTensor, WorkError> {
    Ok(context.ops().alloc(&spec(), BufferClass::Intermediate)?)
}

/// The model: input `x`, parameter `keep`, ping-pong states `mem` and `trend`, in-place state `sum`.
#[derive(Debug)]
pub struct Model {
    pub runner: TraceRunner,
    pub x: InputId,
    pub keep: ParamId,
    pub mem: StateId,
    pub trend: StateId,
    pub sum: StateId,
    pub step: VariantId,
    pub peek: VariantId,
    pub count: VariantId,
}

impl Model {
    /// Registered, not captured. States start as ramps.
    pub fn build(device: &mut dyn Device, options: TraceOptions, banks: usize) -> Result<Self, TraceError> {
        let mut runner = TraceRunner::new("model", options)?;
        let (x, keep, [mem, trend, sum], [step, peek, count]) =
            match Self::register(device, &mut runner, banks) {
                Ok(ids) => ids,
                Err(error) => {
                    runner.release(device).unwrap();
                    return Err(error);
                }
            };
        Ok(Self {
            runner,
            x,
            keep,
            mem,
            trend,
            sum,
            step,
            peek,
            count,
        })
    }

    fn register(
        device: &mut dyn Device,
        runner: &mut TraceRunner,
        banks: usize,
    ) -> Result<(InputId, ParamId, [StateId; 3], [VariantId; 3]), TraceError> {
        let x = runner.add_input(device, "x", spec(), None)?;
        let keep = runner.add_param(device, "keep", 0.5)?;
        let twin = Twin::default();
        let mut state = |name, values: &[f32], pingpong| {
            let init = HostTensor::from_slice(&[N], values).unwrap();
            let options = StateOptions { pingpong, banks };
            runner.add_state(device, name, spec(), Some(&init), options)
        };
        let states = [
            state("mem", &twin.mem, true)?,
            state("trend", &twin.trend, true)?,
            state("sum", &twin.sum, false)?,
        ];
        runner.add_output(device, "y", spec())?;
        let variants = [
            runner.add_variant(device, "step", Box::new(step))?,
            runner.add_variant(device, "peek", Box::new(peek))?,
            runner.add_variant(device, "count", Box::new(count))?,
        ];
        Ok((x, keep, states, variants))
    }

    /// Registered and captured.
    pub fn captured(device: &mut dyn Device, options: TraceOptions, banks: usize) -> Self {
        let mut model = Self::build(device, options, banks).unwrap();
        model.runner.capture(device).unwrap();
        model
    }

    pub fn variant(&self, kind: Kind) -> VariantId {
        match kind {
            Kind::Step => self.step,
            Kind::Peek => self.peek,
            Kind::Count => self.count,
        }
    }

    /// One replay, waited for: its only output.
    pub fn call(&mut self, device: &mut dyn Device, kind: Kind, x: &HostTensor) -> Vec<f32> {
        let variant = self.variant(kind);
        let outputs = self.runner.call(device, variant, &[(self.x, x)]).unwrap();
        floats(&outputs[0].1).to_vec()
    }

    /// The states as the next replay would read them.
    pub fn states(&mut self, device: &mut dyn Device) -> Twin {
        let mut read = |state| {
            let tensor = self.runner.read_state(device, state).unwrap();
            floats(&tensor).to_vec()
        };
        Twin {
            mem: read(self.mem),
            trend: read(self.trend),
            sum: read(self.sum),
        }
    }
}

/// The variants of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Writes all states: `mem = mem * keep + x` (into the write target), `trend = x - mem` (by copy), `sum = sum + x` (in
    /// place), `y = mem + sum` of the new values.
    Step,
    /// Writes none: `z = relu(mem - sum)`, in a tensor of its own.
    Peek,
    /// Writes the in-place state: `sum = sum * keep + trend`, `y = sum` of the new value.
    Count,
}

pub fn step(context: &mut TraceContext<'_>) -> Result<Outputs, WorkError> {
    let (x, keep) = (context.input("x")?, context.param("keep")?);
    let (mem, sum) = (context.state("mem")?, context.state("sum")?);
    let next = context.write_target("mem")?;
    let scaled = intermediate(context)?;
    binary(context.ops(), BinaryKind::Mul, mem, keep, scaled)?;
    binary(context.ops(), BinaryKind::Add, scaled, x, next)?;
    context.write_state("mem", &next)?;
    // Reads the old `mem`: the new one is in the other buffer.
    binary(context.ops(), BinaryKind::Sub, x, mem, scaled)?;
    context.write_state("trend", &scaled)?;
    binary(context.ops(), BinaryKind::Add, sum, x, scaled)?;
    context.write_state("sum", &scaled)?;
    context.ops().free(&scaled)?;
    let y = context.output("y")?;
    binary(context.ops(), BinaryKind::Add, next, sum, y)?;
    Ok(vec![("y".into(), y)])
}

pub fn peek(context: &mut TraceContext<'_>) -> Result<Outputs, WorkError> {
    let (mem, sum) = (context.state("mem")?, context.state("sum")?);
    let difference = intermediate(context)?;
    binary(context.ops(), BinaryKind::Sub, mem, sum, difference)?;
    let z = context.ops().alloc(&spec(), BufferClass::Output)?;
    unary(context.ops(), Activation::Relu, difference, z)?;
    context.ops().free(&difference)?;
    Ok(vec![("z".into(), z)])
}

pub fn count(context: &mut TraceContext<'_>) -> Result<Outputs, WorkError> {
    let (keep, sum, trend) = (
        context.param("keep")?,
        context.state("sum")?,
        context.state("trend")?,
    );
    binary(context.ops(), BinaryKind::Mul, sum, keep, sum)?;
    binary(context.ops(), BinaryKind::Add, sum, trend, sum)?;
    context.write_state("sum", &sum)?;
    let y = context.write_output("y", &sum)?;
    Ok(vec![("y".into(), y)])
}

/// The states of the model, and its formulas, in plain Rust.
#[derive(Debug, Clone, PartialEq)]
pub struct Twin {
    pub mem: Vec<f32>,
    pub trend: Vec<f32>,
    pub sum: Vec<f32>,
}

impl Default for Twin {
    fn default() -> Self {
        let from = |first: f32| (0..N).map(|i| first + i as f32 / 8.0).collect();
        Self {
            mem: from(1.0),
            trend: from(-2.0),
            sum: from(0.25),
        }
    }
}

impl Twin {
    /// Runs a variant; the output.
    pub fn run(&mut self, kind: Kind, x: &[f32], keep: f32) -> Vec<f32> {
        (0..N)
            .map(|i| {
                let (mem, sum, trend) = (self.mem[i], self.sum[i], self.trend[i]);
                match kind {
                    Kind::Step => {
                        self.mem[i] = mem * keep + x[i];
                        self.trend[i] = x[i] - mem;
                        self.sum[i] = sum + x[i];
                        self.mem[i] + self.sum[i]
                    }
                    Kind::Peek => (mem - sum).max(0.0),
                    Kind::Count => {
                        self.sum[i] = sum * keep + trend;
                        self.sum[i]
                    }
                }
            })
            .collect()
    }
}
