//! The model in plain Rust. Every value is an integer from -8 to 8, so that loops over integers give exactly what the
//! device must: exact operations are clipped to the range; of the others, four times the result is rounded to an integer
//! (nearest even) and clipped, and no result lies near a tie.

use super::case::{Binary, Case, Function, Graph, Node, Pool};
use super::graphs::Random;

/// Rows, columns and channels of every tensor, `[1, SIDE, SIDE, CHANNELS]`.
pub(crate) const SIDE: usize = 4;
pub(crate) const CHANNELS: usize = 4;
pub(crate) const LEN: usize = SIDE * SIDE * CHANNELS;
pub(crate) const LIMIT: i32 = 8;

pub(crate) type Value = Vec<i32>;

/// Repeatable data of a tensor.
pub(crate) fn data(number: u8) -> Value {
    let mut random = Random(number.into());
    (0..LEN).map(|_| random.below(17) as i32 - LIMIT).collect()
}

/// First value of a state.
pub(crate) fn first(state: usize) -> Value {
    data(200 + state as u8)
}

/// Weights `[CHANNELS, inputs, 3, 3]` and bias of a convolution: -1, 0 and 1.
pub(crate) fn weights(depthwise: bool) -> (Vec<i32>, Vec<i32>) {
    let mut random = Random(if depthwise { 77 } else { 78 });
    let inputs = if depthwise { 1 } else { CHANNELS };
    let mut signs = |count: usize| (0..count).map(|_| random.below(3) as i32 - 1).collect();
    (signs(CHANNELS * inputs * 9), signs(CHANNELS))
}

fn clip(value: i32) -> i32 {
    value.clamp(-LIMIT, LIMIT)
}

/// What becomes of a result that is no integer.
pub(crate) fn snap(value: f64) -> i32 {
    clip((4.0 * value).round_ties_even() as i32)
}

pub(crate) fn function(function: Function, x: i32) -> i32 {
    match function {
        Function::Relu => x.max(0),
        Function::Leaky => clip(if x < 0 { 2 * x } else { x }),
        other => snap(real(other, f64::from(x))),
    }
}

fn real(function: Function, x: f64) -> f64 {
    match function {
        Function::Relu => x.max(0.0),
        Function::Leaky => x.max(2.0 * x),
        Function::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Function::Silu => x / (1.0 + (-x).exp()),
        Function::HardSigmoid => (0.2 * x + 0.5).clamp(0.0, 1.0),
        Function::HardSwish => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
        Function::Tanh => x.tanh(),
    }
}

fn binary(kind: Binary, a: i32, b: i32) -> i32 {
    clip(match kind {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Max => a.max(b),
        Binary::Min => a.min(b),
    })
}

fn softmax(values: [i32; 4]) -> [f64; 4] {
    let max = values.into_iter().max().unwrap_or(0);
    let powers = values.map(|value| f64::from(value - max).exp());
    powers.map(|power| power / powers.iter().sum::<f64>())
}

const fn at(row: usize, column: usize, channel: usize) -> usize {
    (row * SIDE + column) * CHANNELS + channel
}

/// A tensor by its indices.
fn filled(value: impl Fn(usize, usize, usize) -> i32) -> Value {
    (0..LEN)
        .map(|i| value(i / CHANNELS / SIDE, i / CHANNELS % SIDE, i % CHANNELS))
        .collect()
}

/// Places of the 3x3 window around a pixel that lie inside the image, with their number in the window.
fn window(row: usize, column: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..9).filter_map(move |tap| {
        let (row, column) = (row + tap / 3, column + tap % 3);
        let inside = (1..=SIDE).contains(&row) && (1..=SIDE).contains(&column);
        inside.then(|| (row - 1, column - 1, tap))
    })
}

fn conv(value: &[i32], depthwise: bool) -> Value {
    let (weight, bias) = weights(depthwise);
    filled(|row, column, out| {
        let mut sum = bias[out];
        for (row, column, tap) in window(row, column) {
            if depthwise {
                sum += weight[out * 9 + tap] * value[at(row, column, out)];
            } else {
                for channel in 0..CHANNELS {
                    sum += weight[(out * CHANNELS + channel) * 9 + tap] * value[at(row, column, channel)];
                }
            }
        }
        clip(sum)
    })
}

fn pool(value: &[i32], kind: Pool) -> Value {
    filled(|row, column, channel| {
        let inside: Vec<i32> = window(row, column)
            .map(|(row, column, _)| value[at(row, column, channel)])
            .collect();
        let sum: i32 = inside.iter().sum();
        match kind {
            Pool::Max => inside.into_iter().max().unwrap_or(0),
            Pool::Whole => snap(f64::from(sum) / 9.0),
            Pool::Inside => snap(f64::from(sum) / inside.len() as f64),
        }
    })
}

fn softmax_along(value: &[i32], axis: usize) -> Value {
    filled(|row, column, channel| {
        let (place, line) = match axis {
            0 => return snap(1.0),
            1 => (row, [0, 1, 2, 3].map(|i| value[at(i, column, channel)])),
            2 => (column, [0, 1, 2, 3].map(|i| value[at(row, i, channel)])),
            _ => (channel, [0, 1, 2, 3].map(|i| value[at(row, column, i)])),
        };
        snap(softmax(line)[place])
    })
}

fn node(node: Node, values: &[Value], param: i32) -> Value {
    let get = |index: usize| &values[index % values.len()];
    let each = |a: usize, f: &dyn Fn(i32) -> i32| get(a).iter().map(|&x| f(x)).collect();
    match node {
        Node::Unary(kind, a) => each(a, &|x| function(kind, x)),
        Node::Binary(kind, a, b) => {
            let pairs = get(a).iter().zip(get(b));
            pairs.map(|(&a, &b)| binary(kind, a, b)).collect()
        }
        Node::Param(kind, a) => each(a, &|x| binary(kind, x, param)),
        Node::Transpose(a) => filled(|row, column, channel| get(a)[at(column, row, channel)]),
        Node::Halves(a, b) => filled(|row, column, channel| match row {
            0 | 1 => get(a)[at(SIDE - 1 - row, column, channel)],
            _ => get(b)[at(row - 2, SIDE - 1 - column, channel)],
        }),
        Node::Cast(_, a) => get(a).clone(),
        Node::Conv { depthwise, value } => conv(get(value), depthwise),
        Node::Pool(kind, a) => pool(get(a), kind),
        Node::Softmax { axis, value } => softmax_along(get(value), axis),
    }
}

/// States of a stream that is not in use, or those that it had when it was last in use.
struct Stream {
    key: u8,
    states: Vec<Value>,
    lost: bool,
}

/// Inputs, states, streams.
pub(crate) struct Plain<'a> {
    case: &'a Case,
    pub(crate) inputs: [Value; 2],
    pub(crate) param: i32,
    pub(crate) states: Vec<Value>,
    pub(crate) saved: Vec<[Value; 2]>,
    /// Most recently selected first.
    streams: Vec<Stream>,
    /// The states in use are the first stream's.
    loaded: bool,
}

impl<'a> Plain<'a> {
    pub(crate) fn new(case: &'a Case) -> Self {
        let states: Vec<_> = (0..case.states.len()).map(first).collect();
        Self {
            case,
            inputs: [vec![0; LEN], vec![0; LEN]],
            param: 1,
            saved: states
                .iter()
                .map(|state| [state.clone(), state.clone()])
                .collect(),
            states,
            streams: Vec::new(),
            loaded: false,
        }
    }

    /// Runs a variant: what it writes to the persistent output and to its own.
    pub(crate) fn run(&mut self, graph: &Graph) -> Vec<(String, Value)> {
        let mut values = self.inputs.to_vec();
        values.extend(self.states.iter().cloned());
        for &next in &graph.nodes {
            values.push(node(next, &values, self.param));
        }
        let count = values.len();
        let mut next = self.states.clone();
        for (state, &pingpong) in self.case.states.iter().enumerate() {
            let source = match pingpong {
                true => graph.pingpong.as_ref().map(|sources| sources[state]),
                false => graph.in_place[state],
            };
            let Some(source) = source else { continue };
            let value = values[source % count].clone();
            if !pingpong {
                // Whoever reads it from here on reads the new value.
                values[2 + state].clone_from(&value);
            }
            next[state] = value;
        }
        self.states = next;
        let named = [("y", graph.output), ("own", graph.own)];
        let outputs = named
            .into_iter()
            .filter_map(|(name, source)| Some((name.to_owned(), values[source? % count].clone())));
        outputs.collect()
    }

    /// Whether the stream starts afresh; `None` if it is refused.
    pub(crate) fn select(&mut self, key: u8, reset: bool) -> Option<bool> {
        let known = self.streams.iter().position(|stream| stream.key == key);
        let full = self.streams.len() == self.case.max_streams;
        if known.is_none() && full && !self.case.evict {
            return None;
        }
        if self.loaded {
            self.streams[0].states.clone_from(&self.states);
        }
        let mut stream = match known {
            Some(index) => self.streams.remove(index),
            None => {
                if full {
                    self.streams.pop();
                }
                Stream {
                    key,
                    states: Vec::new(),
                    lost: true,
                }
            }
        };
        let fresh = reset || stream.lost;
        if fresh {
            stream.states = (0..self.states.len()).map(first).collect();
        }
        stream.lost = false;
        self.states.clone_from(&stream.states);
        self.streams.insert(0, stream);
        self.loaded = true;
        Some(fresh)
    }

    /// The runner warmed up again: the states in use are lost.
    pub(crate) fn restart(&mut self) {
        self.states = (0..self.states.len()).map(first).collect();
        if self.loaded {
            self.streams[0].lost = true;
            self.loaded = false;
        }
    }
}

#[test]
fn no_result_lies_near_a_tie() {
    let clear = |value: f64| {
        let part = (4.0 * value).rem_euclid(1.0);
        assert!((part - 0.5).abs() > 1e-4, "{value}");
    };
    for x in -LIMIT..=LIMIT {
        use Function::*;
        for function in [Sigmoid, Silu, HardSigmoid, HardSwish, Tanh] {
            clear(real(function, f64::from(x)));
        }
        for y in -LIMIT..=LIMIT {
            for z in -LIMIT..=LIMIT {
                for w in -LIMIT..=LIMIT {
                    softmax([x, y, z, w]).into_iter().for_each(clear);
                }
            }
        }
    }
    for sum in -9 * LIMIT..=9 * LIMIT {
        for count in [4.0, 6.0, 9.0] {
            clear(f64::from(sum) / count);
        }
    }
}
