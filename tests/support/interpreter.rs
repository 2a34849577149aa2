//! Plain loops over a lowered graph: what each device operation means, written once more and slowly, so
//! that lowering can be checked without a device.

use std::collections::HashMap;

use half::bf16;
use sensorium::device::{
    Activation, BinaryKind, Conv2dDesc, OpDesc, Operand, PillarsDesc, Pool2dDesc, PoolKind, ReduceKind,
    ResidualOrder,
};
use sensorium::models::{DensePlan, LoweredGraph, Slot, Step, WeightPlan};
use sensorium::precision::Math;
use sensorium::tensor::{DType, View};

/// Runs a graph on inputs given element by element in the order of their buffers; the outputs come back
/// row-major.
pub(crate) fn run(graph: &LoweredGraph, inputs: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let mut memory = Memory::default();
    for (i, (plan, values)) in graph.inputs.iter().zip(inputs).enumerate() {
        assert_eq!(plan.spec.shape.elements(), values.len(), "input {}", plan.name);
        let stored = values.iter().map(|&v| round(plan.spec.dtype, v)).collect();
        memory.buffers.insert(Slot::Input(i), stored);
    }
    for (i, plan) in graph.weights.iter().enumerate() {
        if let WeightPlan::Constant { values, .. } = plan {
            let values = match values.dtype() {
                DType::Bf16 => values
                    .as_slice::<bf16>()
                    .unwrap()
                    .iter()
                    .map(|v| v.to_f32())
                    .collect(),
                _ => values.as_slice::<f32>().unwrap().to_vec(),
            };
            memory.buffers.insert(Slot::Weight(i), values);
        }
    }
    for step in &graph.steps {
        match step {
            // Contents are undefined: a NaN that reaches an output shows a read before a write.
            Step::Alloc(b) => {
                let size = graph.buffers[*b].spec.shape.elements();
                let before = memory.buffers.insert(Slot::Buffer(*b), vec![f32::NAN; size]);
                assert!(before.is_none(), "buffer {b} is reserved twice");
            }
            Step::Free(b) => assert!(memory.buffers.remove(&Slot::Buffer(*b)).is_some()),
            Step::Launch(launch) => memory.launch(graph, &launch.op, &launch.slots),
        }
    }
    let outputs: Vec<Vec<f32>> = graph
        .outputs
        .iter()
        .map(|o| memory.buffers.remove(&Slot::Buffer(o.buffer)).unwrap())
        .collect();
    let left = memory
        .buffers
        .keys()
        .filter(|s| matches!(s, Slot::Buffer(_)))
        .count();
    assert_eq!(left, 0, "buffers were not returned");
    outputs
}

fn round(dtype: DType, x: f32) -> f32 {
    match dtype {
        DType::F32 => x,
        DType::Bf16 => bf16::from_f32(x).to_f32(),
        DType::U8 => f32::from(x as u8),
        DType::U32 | DType::I32 => x.round(),
        other => panic!("no buffers of {other} are expected"),
    }
}

fn indices(view: &View) -> Vec<usize> {
    let mut out = vec![view.offset as isize];
    for (&dim, &step) in view.shape.iter().zip(view.steps()) {
        out = out
            .iter()
            .flat_map(|&base| (0..dim as isize).map(move |i| base + i * step))
            .collect();
    }
    out.into_iter().map(|i| usize::try_from(i).unwrap()).collect()
}

fn at(view: &View, index: [usize; 4]) -> usize {
    let moved: isize = index
        .iter()
        .zip(view.steps())
        .map(|(&i, &step)| i as isize * step)
        .sum();
    usize::try_from(view.offset as isize + moved).unwrap()
}

fn dims(operand: &Operand) -> [usize; 4] {
    operand.view.shape[..].try_into().unwrap()
}

fn activate(activation: Activation, x: f32) -> f32 {
    match activation {
        Activation::Identity => x,
        Activation::Relu => x.max(0.0),
        Activation::Clip { low, high } => x.max(low.get()).min(high.get()),
        Activation::LeakyRelu { slope } => {
            if x < 0.0 {
                slope.get() * x
            } else {
                x
            }
        }
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::HardSigmoid { alpha, beta } => (alpha.get() * x + beta.get()).clamp(0.0, 1.0),
        Activation::HardSwish => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
        Activation::Tanh => x.tanh(),
        Activation::Exp => x.exp(),
        Activation::Sqrt => x.sqrt(),
        Activation::Abs => x.abs(),
        Activation::Neg => -x,
        Activation::Log => x.ln(),
        Activation::Reciprocal => 1.0 / x,
        other => panic!("{other:?} has no reference"),
    }
}

#[derive(Default)]
struct Memory {
    buffers: HashMap<Slot, Vec<f32>>,
}

impl Memory {
    fn load(&self, slot: Slot, operand: &Operand) -> Vec<f32> {
        let buffer = self
            .buffers
            .get(&slot)
            .unwrap_or_else(|| panic!("{slot:?} does not live"));
        indices(&operand.view).into_iter().map(|i| buffer[i]).collect()
    }

    fn store(&mut self, slot: Slot, operand: &Operand, values: impl IntoIterator<Item = f32>) {
        let buffer = self
            .buffers
            .get_mut(&slot)
            .unwrap_or_else(|| panic!("{slot:?} does not live"));
        let mut values = values.into_iter();
        for i in indices(&operand.view) {
            buffer[i] = round(operand.dtype, values.next().unwrap());
        }
        assert!(values.next().is_none());
    }

    fn launch(&mut self, graph: &LoweredGraph, op: &OpDesc, slots: &[Slot]) {
        match op {
            OpDesc::Copy { src, dst } => {
                let values = self.load(slots[0], src);
                self.store(slots[1], dst, values);
            }
            OpDesc::Fill { dst, value } => {
                let count = dst.view.shape.elements();
                self.store(slots[0], dst, vec![value.get(); count]);
            }
            OpDesc::Unary { src, dst, activation } => {
                let values = self.load(slots[0], src);
                self.store(
                    slots[1],
                    dst,
                    values.into_iter().map(|x| activate(*activation, x)),
                );
            }
            OpDesc::Binary { lhs, rhs, dst, kind } => {
                let (left, right) = (self.load(slots[0], lhs), self.load(slots[1], rhs));
                assert_eq!(lhs.view.shape, dst.view.shape);
                assert_eq!(rhs.view.shape, dst.view.shape);
                let apply = |(a, b): (f32, f32)| match kind {
                    BinaryKind::Add => a + b,
                    BinaryKind::Sub => a - b,
                    BinaryKind::Mul => a * b,
                    BinaryKind::Div => a / b,
                    BinaryKind::Max => a.max(b),
                    BinaryKind::Min => a.min(b),
                    BinaryKind::Equal => f32::from(u8::from(a == b)),
                    BinaryKind::Less => f32::from(u8::from(a < b)),
                    BinaryKind::LessOrEqual => f32::from(u8::from(a <= b)),
                    BinaryKind::Quotient => (a as i64 / b as i64) as f32,
                    BinaryKind::Remainder => (a as i64).rem_euclid(b as i64) as f32,
                    BinaryKind::LeakyRelu => {
                        if a < 0.0 {
                            a * b
                        } else {
                            a
                        }
                    }
                    other => panic!("{other:?} has no reference"),
                };
                self.store(slots[2], dst, left.into_iter().zip(right).map(apply));
            }
            OpDesc::Conv2d(desc) => self.conv(graph, desc, slots),
            OpDesc::Pool2d(desc) => self.pool(desc, slots),
            OpDesc::Pillars(desc) => self.pillars(graph, desc, slots),
            OpDesc::ResizeNearest {
                src,
                dst,
                rows,
                columns,
            } => {
                let [n, c, h, w] = dims(dst);
                let from = &self.buffers[&slots[0]];
                let mut out = Vec::new();
                for (b, ch) in (0..n).flat_map(|b| (0..c).map(move |ch| (b, ch))) {
                    for (y, x) in (0..h).flat_map(|y| (0..w).map(move |x| (y, x))) {
                        out.push(from[at(&src.view, [b, ch, rows[y] as usize, columns[x] as usize])]);
                    }
                }
                self.store(slots[1], dst, out);
            }
            OpDesc::Softmax { src, dst, axis } => {
                assert_eq!(src.view.shape, dst.view.shape);
                let (values, shape) = (self.load(slots[0], src), src.view.shape);
                let inner: usize = shape[axis + 1..].iter().product();
                let mut out = vec![0.0; values.len()];
                for start in (0..values.len()).filter(|i| (i / inner).is_multiple_of(shape[*axis])) {
                    let line: Vec<usize> = (0..shape[*axis]).map(|k| start + k * inner).collect();
                    let top = line.iter().map(|&i| values[i]).fold(f32::NEG_INFINITY, f32::max);
                    let sum: f64 = line.iter().map(|&i| f64::from(values[i] - top).exp()).sum();
                    for i in line {
                        out[i] = (f64::from(values[i] - top).exp() / sum) as f32;
                    }
                }
                self.store(slots[1], dst, out);
            }
            OpDesc::Reduce(desc) => {
                let values = self.load(slots[0], &desc.src);
                let mut groups: Vec<Vec<f64>> = vec![Vec::new(); desc.dst.view.shape.elements()];
                let (from, to) = (desc.src.view.shape, desc.dst.view.shape);
                for (i, value) in values.into_iter().enumerate() {
                    let (mut rest, mut at, mut step) = (i, 0, 1);
                    for axis in (0..from.rank()).rev() {
                        let index = rest % from[axis];
                        rest /= from[axis];
                        at += if to[axis] == 1 { 0 } else { index * step };
                        step *= to[axis];
                    }
                    groups[at].push(value.into());
                }
                let reduce = |group: &Vec<f64>| match desc.kind {
                    ReduceKind::Sum => group.iter().sum::<f64>(),
                    ReduceKind::Mean => group.iter().sum::<f64>() / group.len() as f64,
                    ReduceKind::Max => group.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                    other => panic!("{other:?} has no reference"),
                };
                let reduced: Vec<f32> = groups.iter().map(|group| reduce(group) as f32).collect();
                self.store(slots[1], &desc.dst, reduced);
            }
            OpDesc::Gather {
                src,
                dst,
                axis,
                indices,
            } => {
                for (to, &from) in indices.iter().enumerate() {
                    let part = |operand: &Operand, index: usize| Operand {
                        view: operand.view.slice(*axis, index, 1, 1).unwrap(),
                        ..*operand
                    };
                    let values = self.load(slots[0], &part(src, from as usize));
                    self.store(slots[1], &part(dst, to), values);
                }
            }
            other => panic!("{} has no reference", other.name()),
        }
    }

    fn conv(&mut self, graph: &LoweredGraph, desc: &Conv2dDesc, slots: &[Slot]) {
        assert_eq!(desc.math, Math::Native, "no reference");
        let Slot::Weight(index) = slots[1] else {
            panic!("weights expected")
        };
        let WeightPlan::Conv2d {
            weight,
            bias,
            desc: planned,
            ..
        } = &graph.weights[index]
        else {
            panic!("convolution weights expected")
        };
        assert_eq!(planned.as_ref(), desc);
        let weight: Vec<f32> = weight
            .widen()
            .iter()
            .map(|&w| round(desc.input.dtype, w))
            .collect();
        let ([n, cin, h, w], [_, cout, oh, ow]) = (dims(&desc.input), dims(&desc.output));
        let (g, per_group) = (desc.geometry, cin / desc.groups);
        let [kh, kw] = g.kernel;
        assert_eq!(weight.len(), cout * per_group * kh * kw);
        for operand in [Some(&desc.input), Some(&desc.output), desc.residual.as_ref()]
            .into_iter()
            .flatten()
        {
            assert_eq!(operand.view.steps()[1], 1, "channels-last is promised");
        }
        let residual = desc.residual.as_ref().map(|r| self.load(slots[3], r));
        let input = &self.buffers[&slots[0]];
        let mut out = Vec::with_capacity(n * cout * oh * ow);
        for b in 0..n {
            for oc in 0..cout {
                let first = oc / (cout / desc.groups) * per_group;
                // [row, column, channel], as the input lies.
                let tap = |i: usize| weight[(oc * per_group + i % per_group) * kh * kw + i / per_group];
                let taps: Vec<f64> = (0..kh * kw * per_group).map(|i| f64::from(tap(i))).collect();
                for (oy, ox) in (0..oh).flat_map(|y| (0..ow).map(move |x| (y, x))) {
                    let mut sum = bias.as_ref().map_or(0.0, |b| f64::from(b[oc]));
                    for (ky, kx) in (0..kh).flat_map(|y| (0..kw).map(move |x| (y, x))) {
                        let y = (oy * g.stride[0] + ky * g.dilation[0]).wrapping_sub(g.pad_begin[0]);
                        let x = (ox * g.stride[1] + kx * g.dilation[1]).wrapping_sub(g.pad_begin[1]);
                        if y < h && x < w {
                            let base = at(&desc.input.view, [b, first, y, x]);
                            let pixel = &input[base..base + per_group];
                            let taps = &taps[(ky * kw + kx) * per_group..];
                            sum += pixel
                                .iter()
                                .zip(taps)
                                .map(|(&x, &t)| f64::from(x) * t)
                                .sum::<f64>();
                        }
                    }
                    let added = residual.as_ref().map_or(0.0, |r| r[out.len()]);
                    out.push(match desc.residual_order {
                        ResidualOrder::AfterActivation => activate(desc.activation, sum as f32) + added,
                        ResidualOrder::BeforeActivation => activate(desc.activation, sum as f32 + added),
                    });
                }
            }
        }
        self.store(slots[2], &desc.output, out);
    }

    /// The literal net: both layers on every point, the maximum beside each.
    fn pillars(&mut self, graph: &LoweredGraph, desc: &PillarsDesc, slots: &[Slot]) {
        let Slot::Weight(index) = slots[1] else {
            panic!("weights expected")
        };
        let WeightPlan::Pillars {
            desc: planned,
            first,
            second,
            ..
        } = &graph.weights[index]
        else {
            panic!("weights of a feature net expected")
        };
        assert_eq!(planned.as_ref(), desc);
        assert_eq!(desc.hidden, second.as_ref().map(|_| first.bias.len()));
        let layer = |plan: &DensePlan, x: &[f64]| -> Vec<f64> {
            let outputs = plan.bias.len();
            assert_eq!(plan.weight.len(), x.len() * outputs);
            let sum = |o: usize| -> f64 {
                let products = x.iter().enumerate();
                products
                    .map(|(i, x)| x * f64::from(plan.weight[i * outputs + o]))
                    .sum()
            };
            (0..outputs)
                .map(|o| (f64::from(plan.bias[o]) + sum(o)).max(0.0))
                .collect()
        };
        let top = |rows: &[Vec<f64>]| -> Vec<f64> {
            (0..rows[0].len())
                .map(|o| rows.iter().map(|row| row[o]).fold(f64::NEG_INFINITY, f64::max))
                .collect()
        };
        let values: Vec<f64> = self
            .load(slots[0], &desc.points)
            .iter()
            .map(|&v| v.into())
            .collect();
        let [_, points, features] = desc.points.view.shape[..] else {
            panic!("points of another rank")
        };
        let mut out = Vec::new();
        for pillar in values.chunks(points * features) {
            let first: Vec<Vec<f64>> = pillar.chunks(features).map(|x| layer(first, x)).collect();
            let maximum = top(&first);
            let last = match second {
                None => maximum,
                Some(second) => {
                    let both = first.iter().map(|h| [&h[..], &maximum[..]].concat());
                    top(&both.map(|x| layer(second, &x)).collect::<Vec<_>>())
                }
            };
            out.extend(last.into_iter().map(|v| v as f32));
        }
        self.store(slots[2], &desc.output, out);
    }

    fn pool(&mut self, desc: &Pool2dDesc, slots: &[Slot]) {
        let ([n, c, h, w], [_, _, oh, ow]) = (dims(&desc.input), dims(&desc.output));
        let g = desc.geometry;
        assert_eq!((desc.input.view.steps()[1], desc.output.view.steps()[1]), (1, 1));
        let input = &self.buffers[&slots[0]];
        let mut out = Vec::new();
        for (b, ch) in (0..n).flat_map(|b| (0..c).map(move |ch| (b, ch))) {
            for (oy, ox) in (0..oh).flat_map(|y| (0..ow).map(move |x| (y, x))) {
                let taps = (0..g.kernel[0]).flat_map(|ky| (0..g.kernel[1]).map(move |kx| (ky, kx)));
                let inside: Vec<f64> = taps
                    .filter_map(|(ky, kx)| {
                        let y = (oy * g.stride[0] + ky * g.dilation[0]).wrapping_sub(g.pad_begin[0]);
                        let x = (ox * g.stride[1] + kx * g.dilation[1]).wrapping_sub(g.pad_begin[1]);
                        (y < h && x < w).then(|| f64::from(input[at(&desc.input.view, [b, ch, y, x])]))
                    })
                    .collect();
                let sum: f64 = inside.iter().sum();
                out.push(match desc.kind {
                    PoolKind::Max => inside.iter().copied().fold(f64::NEG_INFINITY, f64::max) as f32,
                    PoolKind::AverageIncludingPad => (sum / (g.kernel[0] * g.kernel[1]) as f64) as f32,
                    PoolKind::AverageExcludingPad => (sum / inside.len() as f64) as f32,
                    PoolKind::Sum => sum as f32,
                });
            }
        }
        self.store(slots[1], &desc.output, out);
    }
}
