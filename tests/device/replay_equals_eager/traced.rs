//! A generated model on a simulated device.

use std::error::Error;

use sensorium::device::{
    Activation, BinaryKind, BufferClass, BufferId, Conv2dDesc, Device, Geometry2d, OpDesc, Operand,
    Pool2dDesc, PoolKind, ResidualOrder, Scalar, SimDevice, WeightDesc,
};
use sensorium::ops::{DeviceTensor, OpContext};
use sensorium::precision::Math;
use sensorium::tensor::{DType, HostTensor, TensorSpec, View};
use sensorium::trace::{
    BankOptions, InputId, OnFull, ParamId, StateId, StateOptions, StreamBanks, TraceContext, TraceOptions,
    TraceRunner, VariantFn, VariantId, WorkError,
};

use super::case::{Binary, Case, Function, Graph, Narrow, Node, Pool};
use super::graphs::{Outputs, binary, like, simulator, unary};
use super::plain::{CHANNELS, LIMIT, SIDE, Value, first, weights};

const DIMS: [usize; 4] = [1, SIDE, SIDE, CHANNELS];
/// Banks beside those of the streams.
pub(crate) const EXTRA_BANKS: usize = 2;

pub(crate) fn spec(dtype: DType) -> TensorSpec {
    TensorSpec::new(&DIMS, dtype).unwrap()
}

/// An input's data as the host hands it over: the first in fp32, the second in int8.
pub(crate) fn host_input(input: usize, value: &Value) -> HostTensor {
    match input {
        0 => host(value),
        _ => {
            let bytes: Vec<i8> = value.iter().map(|&x| x as i8).collect();
            HostTensor::from_slice(&DIMS, &bytes).unwrap()
        }
    }
}

pub(crate) fn host(value: &Value) -> HostTensor {
    let floats: Vec<f32> = value.iter().map(|&x| x as f32).collect();
    HostTensor::from_slice(&DIMS, &floats).unwrap()
}

/// One device with one runner on it.
pub(crate) struct Side {
    pub(crate) device: SimDevice,
    pub(crate) runner: TraceRunner,
    pub(crate) inputs: [InputId; 2],
    pub(crate) param: ParamId,
    pub(crate) states: Vec<StateId>,
    pub(crate) variants: Vec<VariantId>,
    pub(crate) banks: StreamBanks<u8>,
    weights: [BufferId; 2],
    registered: usize,
}

impl Side {
    pub(crate) fn new(case: &Case, seed: u64, options: &TraceOptions) -> Result<Self, Box<dyn Error>> {
        let mut device = simulator(options.queues, seed);
        let weights = [prepare(&mut device, false)?, prepare(&mut device, true)?];
        let mut runner = TraceRunner::new("random", options.clone())?;
        let widen = Box::new(
            |ops: &mut OpContext<'_>, staging, input| -> Result<(), WorkError> {
                Ok(ops.copy(&staging, &input)?)
            },
        );
        let inputs = [
            runner.add_input(&mut device, "x0", spec(DType::F32), None)?,
            runner.add_input_with(&mut device, "x1", spec(DType::F32), spec(DType::I8), None, widen)?,
        ];
        let param = runner.add_param(&mut device, "param", 1.0)?;
        runner.add_param(&mut device, "four", 4.0)?;
        let mut states = Vec::new();
        for (index, &pingpong) in case.states.iter().enumerate() {
            let options = StateOptions {
                pingpong,
                banks: case.max_streams + EXTRA_BANKS,
            };
            let init = host(&first(index));
            let spec = spec(DType::F32);
            states.push(runner.add_state(&mut device, &format!("s{index}"), spec, Some(&init), options)?);
        }
        runner.add_output(&mut device, "y", spec(DType::F32))?;
        let options = BankOptions {
            max_streams: case.max_streams,
            on_full: if case.evict { OnFull::Evict } else { OnFull::Reject },
            max_gap_s: None,
        };
        let banks = StreamBanks::new(&runner, &states, options)?;
        let mut side = Self {
            device,
            runner,
            inputs,
            param,
            states,
            variants: Vec::new(),
            banks,
            weights,
            registered: 0,
        };
        for index in 0..case.variants.len() {
            let variant = side.add_variant(case, index)?;
            side.variants.push(variant);
        }
        Ok(side)
    }

    /// Registers a graph as one more variant.
    fn add_variant(&mut self, case: &Case, index: usize) -> Result<VariantId, Box<dyn Error>> {
        self.registered += 1;
        let name = format!("variant {} of graph {index}", self.registered);
        let (graph, states, weights) = (case.variants[index].clone(), case.states.clone(), self.weights);
        let forward: VariantFn = Box::new(move |context| forward(context, &graph, &states, weights));
        Ok(self.runner.add_variant(&mut self.device, &name, forward)?)
    }

    /// Registers one more variant, which nobody runs.
    pub(crate) fn extend(&mut self, case: &Case) -> Result<(), Box<dyn Error>> {
        self.add_variant(case, 0).map(drop)
    }
}

fn image() -> Operand {
    Operand {
        dtype: DType::F32,
        view: View::channels_last([1, CHANNELS, SIDE, SIDE], CHANNELS, 0).unwrap(),
    }
}

fn geometry() -> Geometry2d {
    Geometry2d {
        kernel: [3, 3],
        stride: [1, 1],
        dilation: [1, 1],
        pad_begin: [1, 1],
    }
}

fn clip() -> Activation {
    Activation::Clip {
        low: Scalar::new(-LIMIT as f32),
        high: Scalar::new(LIMIT as f32),
    }
}

fn convolution(depthwise: bool) -> Conv2dDesc {
    Conv2dDesc {
        input: image(),
        output: image(),
        residual: None,
        residual_order: ResidualOrder::AfterActivation,
        geometry: geometry(),
        groups: if depthwise { CHANNELS } else { 1 },
        activation: clip(),
        math: Math::Native,
    }
}

fn prepare(device: &mut dyn Device, depthwise: bool) -> Result<BufferId, Box<dyn Error>> {
    let (weight, bias) = weights(depthwise);
    let floats = |values: Vec<i32>| -> Vec<f32> { values.into_iter().map(|x| x as f32).collect() };
    let desc = WeightDesc::Conv2d {
        desc: &convolution(depthwise),
        weight: &floats(weight),
        bias: Some(&floats(bias)),
    };
    Ok(device.prepare_weights(&desc)?)
}

fn forward(
    context: &mut TraceContext<'_>,
    graph: &Graph,
    states: &[bool],
    weights: [BufferId; 2],
) -> Result<Outputs, WorkError> {
    let mut values = vec![context.input("x0")?, context.input("x1")?];
    for state in 0..states.len() {
        values.push(context.state(&format!("s{state}"))?);
    }
    let params = [context.param("param")?, context.param("four")?];
    for &next in &graph.nodes {
        let value = node(context.ops(), next, &values, params, weights)?;
        values.push(value);
    }
    let get = |index: usize| values[index % values.len()];
    for (state, &pingpong) in states.iter().enumerate() {
        let source = match pingpong {
            true => graph.pingpong.as_ref().map(|sources| sources[state]),
            false => graph.in_place[state],
        };
        let Some(source) = source else { continue };
        let name = format!("s{state}");
        let mut value = get(source);
        if graph.direct {
            let target = context.write_target(&name)?;
            if value.buffer != target.buffer {
                unary(context.ops(), Activation::Identity, &value, &target)?;
            }
            value = target;
        }
        context.write_state(&name, &value)?;
    }
    let mut outputs = Outputs::new();
    if let Some(source) = graph.output {
        let mut value = get(source);
        if graph.direct {
            let target = context.output("y")?;
            unary(context.ops(), Activation::Identity, &value, &target)?;
            value = target;
        }
        outputs.push(("y".into(), context.write_output("y", &value)?));
    }
    if let Some(source) = graph.own {
        let ops = context.ops();
        let own = ops.alloc(&spec(DType::F32), BufferClass::Output)?;
        ops.copy(&get(source), &own)?;
        outputs.push(("own".into(), own));
    }
    Ok(outputs)
}

/// Clips in place.
fn clipped(ops: &mut OpContext<'_>, value: DeviceTensor) -> Result<DeviceTensor, WorkError> {
    unary(ops, clip(), &value, &value)?;
    Ok(value)
}

/// Four times the value, rounded to an integer and clipped, in place.
fn snapped(
    ops: &mut OpContext<'_>,
    value: DeviceTensor,
    four: &DeviceTensor,
) -> Result<DeviceTensor, WorkError> {
    binary(ops, BinaryKind::Mul, &value, four, &value)?;
    cast(ops, DType::I8, &value, &value)?;
    clipped(ops, value)
}

/// To another type and back.
fn cast(
    ops: &mut OpContext<'_>,
    dtype: DType,
    src: &DeviceTensor,
    dst: &DeviceTensor,
) -> Result<(), WorkError> {
    let narrow = ops.alloc(&spec(dtype), BufferClass::Intermediate)?;
    ops.copy(src, &narrow)?;
    ops.copy(&narrow, dst)?;
    Ok(ops.free(&narrow)?)
}

fn kind_of(kind: Binary) -> BinaryKind {
    match kind {
        Binary::Add => BinaryKind::Add,
        Binary::Sub => BinaryKind::Sub,
        Binary::Mul => BinaryKind::Mul,
        Binary::Max => BinaryKind::Max,
        Binary::Min => BinaryKind::Min,
    }
}

fn activation_of(function: Function) -> Activation {
    match function {
        Function::Relu => Activation::Relu,
        Function::Leaky => Activation::LeakyRelu {
            slope: Scalar::new(2.0),
        },
        Function::Sigmoid => Activation::Sigmoid,
        Function::Silu => Activation::Silu,
        Function::HardSigmoid => Activation::HardSigmoid {
            alpha: Scalar::new(0.2),
            beta: Scalar::new(0.5),
        },
        Function::HardSwish => Activation::HardSwish,
        Function::Tanh => Activation::Tanh,
    }
}

fn node(
    ops: &mut OpContext<'_>,
    node: Node,
    values: &[DeviceTensor],
    [param, four]: [DeviceTensor; 2],
    weights: [BufferId; 2],
) -> Result<DeviceTensor, WorkError> {
    let get = |index: usize| values[index % values.len()];
    let out = like(ops, &values[0])?;
    match node {
        Node::Unary(function, a) => {
            unary(ops, activation_of(function), &get(a), &out)?;
            match function {
                Function::Relu | Function::Leaky => clipped(ops, out),
                _ => snapped(ops, out, &four),
            }
        }
        Node::Binary(kind, a, b) => {
            binary(ops, kind_of(kind), &get(a), &get(b), &out)?;
            clipped(ops, out)
        }
        Node::Param(kind, a) => {
            binary(ops, kind_of(kind), &get(a), &param, &out)?;
            clipped(ops, out)
        }
        Node::Transpose(a) => {
            let mut source = get(a);
            source.view = source.view.transpose(&[0, 2, 1, 3])?;
            ops.copy(&source, &out)?;
            Ok(out)
        }
        Node::Halves(a, b) => {
            let half = SIDE / 2;
            let (mut top, mut bottom, mut target) = (get(a), get(b), out);
            top.view = top.view.slice(1, SIDE - 1, half, -1)?;
            target.view = out.view.slice(1, 0, half, 1)?;
            ops.copy(&top, &target)?;
            bottom.view = bottom.view.slice(1, 0, half, 1)?.slice(2, SIDE - 1, SIDE, -1)?;
            target.view = out.view.slice(1, half, half, 1)?;
            ops.copy(&bottom, &target)?;
            Ok(out)
        }
        Node::Cast(to, a) => {
            let dtype = match to {
                Narrow::Bf16 => DType::Bf16,
                Narrow::F16 => DType::F16,
                Narrow::I8 => DType::I8,
                Narrow::I32 => DType::I32,
            };
            cast(ops, dtype, &get(a), &out)?;
            Ok(out)
        }
        Node::Conv { depthwise, value } => {
            let op = OpDesc::Conv2d(convolution(depthwise));
            ops.run(
                &op,
                &[get(value).buffer, weights[usize::from(depthwise)], out.buffer],
            )?;
            Ok(out)
        }
        Node::Pool(pool, a) => {
            let op = OpDesc::Pool2d(Pool2dDesc {
                input: image(),
                output: image(),
                geometry: geometry(),
                kind: match pool {
                    Pool::Max => PoolKind::Max,
                    Pool::Whole => PoolKind::AverageIncludingPad,
                    Pool::Inside => PoolKind::AverageExcludingPad,
                },
            });
            ops.run(&op, &[get(a).buffer, out.buffer])?;
            match pool {
                Pool::Max => Ok(out),
                Pool::Whole | Pool::Inside => snapped(ops, out, &four),
            }
        }
        Node::Softmax { axis, value } => {
            let source = get(value);
            let op = OpDesc::Softmax {
                src: source.operand(),
                dst: out.operand(),
                axis,
            };
            ops.run(&op, &[source.buffer, out.buffer])?;
            snapped(ops, out, &four)
        }
    }
}
