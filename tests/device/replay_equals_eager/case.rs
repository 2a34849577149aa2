//! What is generated: graphs, and what is done with them.

use std::fmt;

use proptest::prelude::*;

/// One operation. Operands are values of the graph, counted from 0 (inputs, then states, then earlier nodes) and taken
/// modulo their number, so that every number means something and nodes can be left out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Node {
    Unary(Function, usize),
    Binary(Binary, usize, usize),
    /// With the parameter, broadcast.
    Param(Binary, usize),
    /// Rows and columns change places.
    Transpose(usize),
    /// The lower rows of one value, upside down, above the upper rows of another, mirrored.
    Halves(usize, usize),
    /// To another type and back.
    Cast(Narrow, usize),
    /// A 3x3 convolution; depth-wise, or over all channels.
    Conv {
        depthwise: bool,
        value: usize,
    },
    Pool(Pool, usize),
    Softmax {
        axis: usize,
        value: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    Relu,
    Leaky,
    Sigmoid,
    Silu,
    HardSigmoid,
    HardSwish,
    Tanh,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Max,
    Min,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Narrow {
    Bf16,
    F16,
    I8,
    I32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pool {
    Max,
    Whole,
    Inside,
}

/// A variant.
#[derive(Debug, Clone)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
    /// The value that goes to the persistent output, if any.
    pub(crate) output: Option<usize>,
    /// The value that goes to an output of the variant's own. There is one if there is no persistent one.
    pub(crate) own: Option<usize>,
    /// The value that goes to each in-place state, in turn, before the outputs.
    pub(crate) in_place: Vec<Option<usize>>,
    /// The values that go to the ping-pong states.
    pub(crate) pingpong: Option<Vec<usize>>,
    /// The last operation of what is written computes straight into its target.
    pub(crate) direct: bool,
}

/// What happens next.
#[derive(Clone)]
pub(crate) enum Step {
    Frame(Frame),
    Reset { state: usize, value: Option<u8> },
    Save { state: usize, bank: usize },
    Load { state: usize, bank: usize },
    ReadState(usize),
    WriteInput { input: usize, value: u8 },
    CaptureAgain,
}

#[derive(Clone)]
pub(crate) struct Frame {
    pub(crate) variant: usize,
    /// New data for each of the two inputs.
    pub(crate) inputs: [Option<u8>; 2],
    pub(crate) param: Option<i8>,
    pub(crate) stream: Option<(u8, bool)>,
    pub(crate) how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// Reads at once and waits.
    Call,
    /// Reads at once, and waits at the end.
    Stream,
    /// Reads behind the next frame, if the outputs are still there.
    ReadBehind,
    Unread,
    /// Without the trace, between replays.
    Eager,
}

/// A model and a schedule.
#[derive(Clone)]
pub(crate) struct Case {
    /// Order of execution on the device.
    pub(crate) seed: u64,
    /// Whether each state is a ping-pong state.
    pub(crate) states: Vec<bool>,
    pub(crate) variants: Vec<Graph>,
    /// Streams whose states are kept.
    pub(crate) max_streams: usize,
    pub(crate) evict: bool,
    pub(crate) steps: Vec<Step>,
}

fn nodes() -> impl Strategy<Value = Node> {
    use Function::*;
    let value = || 0..12_usize;
    let function = prop::sample::select(vec![Relu, Leaky, Sigmoid, Silu, HardSigmoid, HardSwish, Tanh]);
    let binary = || {
        prop::sample::select(vec![
            Binary::Add,
            Binary::Sub,
            Binary::Mul,
            Binary::Max,
            Binary::Min,
        ])
    };
    let narrow = prop::sample::select(vec![Narrow::Bf16, Narrow::F16, Narrow::I8, Narrow::I32]);
    let pool = prop::sample::select(vec![Pool::Max, Pool::Whole, Pool::Inside]);
    prop_oneof![
        3 => (function, value()).prop_map(|(f, a)| Node::Unary(f, a)),
        5 => (binary(), value(), value()).prop_map(|(kind, a, b)| Node::Binary(kind, a, b)),
        2 => (binary(), value()).prop_map(|(kind, a)| Node::Param(kind, a)),
        1 => value().prop_map(Node::Transpose),
        1 => (value(), value()).prop_map(|(a, b)| Node::Halves(a, b)),
        1 => (narrow, value()).prop_map(|(to, a)| Node::Cast(to, a)),
        2 => (any::<bool>(), value()).prop_map(|(depthwise, value)| Node::Conv { depthwise, value }),
        1 => (pool, value()).prop_map(|(pool, a)| Node::Pool(pool, a)),
        1 => (0..4_usize, value()).prop_map(|(axis, value)| Node::Softmax { axis, value }),
    ]
}

fn graphs() -> impl Strategy<Value = Graph> {
    let value = || 0..12_usize;
    let steps = prop::option::weighted(0.7, prop::collection::vec(value(), 3));
    let in_place = prop::collection::vec(prop::option::weighted(0.6, value()), 3);
    (
        prop::collection::vec(nodes(), 0..5),
        prop::option::weighted(0.8, value()),
        prop::option::weighted(0.3, value()),
        in_place,
        steps,
        any::<bool>(),
    )
        .prop_map(|(nodes, output, own, in_place, pingpong, direct)| Graph {
            nodes,
            own: own.or(if output.is_none() { Some(0) } else { None }),
            output,
            in_place,
            pingpong,
            direct,
        })
}

fn steps() -> impl Strategy<Value = Step> {
    let data = || prop::option::weighted(0.6, any::<u8>());
    let how = prop::sample::select(vec![
        How::Call,
        How::Stream,
        How::Stream,
        How::ReadBehind,
        How::ReadBehind,
        How::Unread,
        How::Eager,
    ]);
    let frame = (
        0..3_usize,
        [data(), data()],
        prop::option::weighted(0.3, -3..4_i8),
        prop::option::weighted(0.4, (0..4_u8, prop::bool::weighted(0.2))),
        how,
    );
    let frame = frame.prop_map(|(variant, inputs, param, stream, how)| {
        Step::Frame(Frame {
            variant,
            inputs,
            param,
            stream,
            how,
        })
    });
    let state = || 0..3_usize;
    prop_oneof![
        40 => frame,
        3 => (state(), prop::option::of(any::<u8>())).prop_map(|(state, value)| Step::Reset { state, value }),
        2 => (state(), 0..3_usize).prop_map(|(state, bank)| Step::Save { state, bank }),
        2 => (state(), 0..3_usize).prop_map(|(state, bank)| Step::Load { state, bank }),
        2 => state().prop_map(Step::ReadState),
        4 => (0..2_usize, any::<u8>()).prop_map(|(input, value)| Step::WriteInput { input, value }),
        1 => Just(Step::CaptureAgain),
    ]
}

/// Every case.
pub(crate) fn cases() -> impl Strategy<Value = Case> {
    (
        any::<u64>(),
        prop::collection::vec(any::<bool>(), 1..4),
        prop::collection::vec(graphs(), 1..4),
        1..4_usize,
        any::<bool>(),
        prop::collection::vec(steps(), 1..12),
    )
        .prop_map(|(seed, states, variants, max_streams, evict, steps)| Case {
            seed,
            states,
            variants,
            max_streams,
            evict,
            steps,
        })
}

impl Node {
    /// The same with operands below `count`.
    const fn modulo(self, count: usize) -> Self {
        match self {
            Self::Unary(function, a) => Self::Unary(function, a % count),
            Self::Binary(kind, a, b) => Self::Binary(kind, a % count, b % count),
            Self::Param(kind, a) => Self::Param(kind, a % count),
            Self::Transpose(a) => Self::Transpose(a % count),
            Self::Halves(a, b) => Self::Halves(a % count, b % count),
            Self::Cast(to, a) => Self::Cast(to, a % count),
            Self::Conv { depthwise, value } => Self::Conv {
                depthwise,
                value: value % count,
            },
            Self::Pool(pool, a) => Self::Pool(pool, a % count),
            Self::Softmax { axis, value } => Self::Softmax {
                axis,
                value: value % count,
            },
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unary(function, a) => write!(f, "{function:?}(v{a})"),
            Self::Binary(kind, a, b) => write!(f, "{kind:?}(v{a}, v{b})"),
            Self::Param(kind, a) => write!(f, "{kind:?}(v{a}, param)"),
            Self::Transpose(a) => write!(f, "Transpose(v{a})"),
            Self::Halves(a, b) => write!(f, "Halves(v{a}, v{b})"),
            Self::Cast(to, a) => write!(f, "{to:?}(v{a})"),
            Self::Conv { depthwise, value } => {
                write!(f, "{}(v{value})", if depthwise { "Depthwise" } else { "Conv" })
            }
            Self::Pool(pool, a) => write!(f, "Pool{pool:?}(v{a})"),
            Self::Softmax { axis, value } => write!(f, "Softmax{axis}(v{value})"),
        }
    }
}

impl Case {
    /// Values of a graph before its nodes.
    pub(crate) fn leaves(&self) -> usize {
        2 + self.states.len()
    }

    fn fmt_graph(&self, graph: &Graph, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, node) in graph.nodes.iter().enumerate() {
            let count = self.leaves() + index;
            write!(f, "v{count} = {:?}; ", node.modulo(count))?;
        }
        let count = self.leaves() + graph.nodes.len();
        for (state, &pingpong) in self.states.iter().enumerate() {
            let value = match pingpong {
                true => graph.pingpong.as_ref().map(|values| values[state]),
                false => graph.in_place[state],
            };
            if let Some(value) = value {
                write!(f, "state{state} <- v{}; ", value % count)?;
            }
        }
        if let Some(value) = graph.output {
            write!(f, "y <- v{}; ", value % count)?;
        }
        if let Some(value) = graph.own {
            write!(f, "own <- v{}; ", value % count)?;
        }
        if graph.direct {
            f.write_str("(direct)")?;
        }
        Ok(())
    }
}

/// Graph and schedule, a line each.
impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<_> = self
            .states
            .iter()
            .map(|&pingpong| if pingpong { "ping-pong" } else { "in place" })
            .collect();
        write!(
            f,
            "seed {}; v0, v1 inputs; v2.. states: {}; {} stream(s), {}",
            self.seed,
            kinds.join(", "),
            self.max_streams,
            if self.evict { "evict" } else { "reject" }
        )?;
        for (index, graph) in self.variants.iter().enumerate() {
            write!(f, "\n  variant {index}: ")?;
            self.fmt_graph(graph, f)?;
        }
        for (index, step) in self.steps.iter().enumerate() {
            write!(f, "\n  step {index}: {step:?}")?;
        }
        f.write_str("\n")
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(frame) => {
                write!(f, "variant {}, {:?}", frame.variant, frame.how)?;
                for (input, data) in frame.inputs.iter().enumerate() {
                    if let Some(data) = data {
                        write!(f, ", v{input} = data({data})")?;
                    }
                }
                if let Some(param) = frame.param {
                    write!(f, ", param = {param}")?;
                }
                if let Some((stream, reset)) = frame.stream {
                    write!(f, ", stream {stream}{}", if reset { " reset" } else { "" })?;
                }
                Ok(())
            }
            Self::Reset { state, value: None } => write!(f, "reset state{state}"),
            Self::Reset {
                state,
                value: Some(data),
            } => write!(f, "reset state{state} to data({data})"),
            Self::Save { state, bank } => write!(f, "save state{state} to bank {bank}"),
            Self::Load { state, bank } => write!(f, "load state{state} from bank {bank}"),
            Self::ReadState(state) => write!(f, "read state{state}"),
            Self::WriteInput { input, value } => write!(f, "write input v{input} = data({value})"),
            Self::CaptureAgain => f.write_str("add a variant and capture again"),
        }
    }
}
