//! The race detector against happens-before as a graph: one node a command or host wait, edges as the
//! contract states them, and reachability for "comes after".

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use proptest::prelude::*;
use sensorium::device::sim::CommandInfo;
use sensorium::device::{
    Activation, BufferClass, BufferId, Cq, Device, DeviceError, EventId, HostSlot, OnRace, OpDesc, Operand,
    SimConfig, SimDevice,
};
use sensorium::tensor::{DType, Shape, TensorSpec, View};

use super::harness::*;

const BUFFERS: usize = 3;
/// Bytes of a buffer.
const SIZE: usize = 64;
const SLOTS: usize = 2;

/// A call; numbers are taken modulo what there is.
#[derive(Debug, Clone)]
enum Call {
    Write(u8, usize, usize, usize, usize),
    Read(u8, usize, usize, usize, usize),
    Copy(u8, usize, usize),
    /// `dst[b..] = relu(src[a..])`, each of 4 floats.
    Launch(u8, usize, usize, usize, usize),
    Record(u8),
    Wait(u8, usize),
    Sync(usize),
    Poll(usize),
    Drain,
    /// Frees a buffer and allocates another.
    Renew(usize),
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let cq = 0..2_u8;
    let buffer = 0..BUFFERS;
    let cut = 0..SIZE;
    let slot = 0..SLOTS;
    let call = prop_oneof![
        4 => (cq.clone(), buffer.clone(), cut.clone(), cut.clone(), slot.clone())
            .prop_map(|(q, b, x, y, s)| Call::Write(q, b, x, y, s)),
        4 => (cq.clone(), buffer.clone(), cut.clone(), cut.clone(), slot)
            .prop_map(|(q, b, x, y, s)| Call::Read(q, b, x, y, s)),
        2 => (cq.clone(), buffer.clone(), buffer.clone()).prop_map(|(q, a, b)| Call::Copy(q, a, b)),
        3 => (cq.clone(), buffer.clone(), 0..13_usize, buffer.clone(), 0..13_usize)
            .prop_map(|(q, a, x, b, y)| Call::Launch(q, a, x, b, y)),
        5 => cq.clone().prop_map(Call::Record),
        5 => (cq, any::<usize>()).prop_map(|(q, e)| Call::Wait(q, e)),
        2 => any::<usize>().prop_map(Call::Sync),
        2 => any::<usize>().prop_map(Call::Poll),
        1 => Just(Call::Drain),
        1 => buffer.prop_map(Call::Renew),
    ];
    prop::collection::vec(call, 1..40)
}

/// What a command touches: memory (`None`) or a slot, a byte range, and whether it writes.
type Touch = (Option<usize>, std::ops::Range<usize>, bool);

/// One command or host wait.
struct Node {
    /// Queue and number on it; `None` for the host.
    command: Option<(usize, u64)>,
    touches: Vec<Touch>,
    before: Vec<usize>,
}

/// The graph as it grows.
#[derive(Default)]
struct Graph {
    nodes: Vec<Node>,
    last: [Option<usize>; 2],
    counts: [u64; 2],
    host: Option<usize>,
}

impl Graph {
    fn command(&mut self, cq: u8, touches: Vec<Touch>, waits_for: Option<usize>) -> usize {
        let queue = cq as usize;
        self.counts[queue] += 1;
        let before = [self.last[queue], self.host, waits_for];
        self.nodes.push(Node {
            command: Some((queue, self.counts[queue])),
            touches,
            before: before.into_iter().flatten().collect(),
        });
        self.last[queue] = Some(self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    fn host_saw(&mut self, nodes: impl IntoIterator<Item = usize>) {
        self.nodes.push(Node {
            command: None,
            touches: Vec::new(),
            before: self.host.into_iter().chain(nodes).collect(),
        });
        self.host = Some(self.nodes.len() - 1);
    }

    /// Pairs of conflicting commands of which neither comes after the other, as node numbers.
    fn races(&self) -> BTreeSet<(usize, usize)> {
        let mut past: Vec<BTreeSet<usize>> = Vec::new();
        let mut races = BTreeSet::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let mut reached: BTreeSet<usize> = node.before.iter().copied().collect();
            for &earlier in &node.before {
                reached.extend(&past[earlier]);
            }
            for earlier in 0..number {
                let conflict = self.nodes[earlier].touches.iter().any(|(space, range, writes)| {
                    node.touches.iter().any(|(other, bytes, also)| {
                        space == other
                            && (*writes || *also)
                            && range.start.max(bytes.start) < range.end.min(bytes.end)
                    })
                });
                if conflict && !reached.contains(&earlier) {
                    races.insert((earlier, number));
                }
            }
            past.push(reached);
        }
        races
    }
}

/// A device, the graph beside it, and what calls refer to.
struct Pair {
    device: SimDevice,
    graph: Graph,
    buffers: Vec<BufferId>,
    slots: Vec<HostSlot>,
    events: Vec<(EventId, usize)>,
    /// Slots of their own, kept until the end.
    spent: Vec<HostSlot>,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let mut device = SimDevice::open(&SimConfig {
            arena_bytes: 4096,
            on_race: OnRace::Report,
            ..config(2, seed)
        })
        .unwrap();
        let spec = TensorSpec::new(&[SIZE], DType::U8).unwrap();
        Self {
            buffers: (0..BUFFERS)
                .map(|_| device.alloc(&spec, BufferClass::State).unwrap())
                .collect(),
            slots: (0..SLOTS).map(|_| HostSlot::new(SIZE)).collect(),
            device,
            graph: Graph::default(),
            events: Vec::new(),
            spent: Vec::new(),
        }
    }

    fn memory(&self, buffer: usize, range: std::ops::Range<usize>, writes: bool) -> Touch {
        let base = self.device.address(self.buffers[buffer]).unwrap() as usize;
        (None, base + range.start..base + range.end, writes)
    }

    fn make(&mut self, call: &Call, shared_slots: bool) {
        let event = |number: usize, events: &[(EventId, usize)]| {
            (!events.is_empty()).then(|| events[number % events.len()])
        };
        match *call {
            Call::Write(cq, buffer, x, y, slot) | Call::Read(cq, buffer, x, y, slot) => {
                let writes = matches!(call, Call::Write(..));
                let (start, len) = (x.min(y), x.max(y) - x.min(y));
                let mut own = HostSlot::new(SIZE);
                let used = if shared_slots {
                    &mut self.slots[slot]
                } else {
                    &mut own
                };
                let id = self.buffers[buffer];
                let outcome = if writes {
                    self.device.write(Cq(cq), id, start, used, len)
                } else {
                    self.device.read(Cq(cq), id, start, used, len)
                };
                let number = if shared_slots {
                    slot
                } else {
                    self.spent.push(own);
                    SLOTS + self.spent.len()
                };
                match outcome {
                    // A slot on loan: nothing was enqueued.
                    Err(DeviceError::Slot(_)) => {}
                    outcome => {
                        outcome.unwrap();
                        let memory = self.memory(buffer, start..start + len, writes);
                        self.graph
                            .command(cq, vec![memory, (Some(number), 0..len, !writes)], None);
                    }
                }
            }
            Call::Copy(cq, from, to) => {
                self.device
                    .copy(Cq(cq), self.buffers[from], self.buffers[to])
                    .unwrap();
                let touches = vec![self.memory(from, 0..SIZE, false), self.memory(to, 0..SIZE, true)];
                self.graph.command(cq, touches, None);
            }
            Call::Launch(cq, from, x, to, y) => {
                let part = |offset: usize| Operand {
                    dtype: DType::F32,
                    view: View {
                        offset,
                        ..View::contiguous(Shape::new(&[4]).unwrap())
                    },
                };
                let op = OpDesc::Unary {
                    src: part(x),
                    dst: part(y),
                    activation: Activation::Relu,
                };
                let buffers = [self.buffers[from], self.buffers[to]];
                launch(&mut self.device, Cq(cq), &op, &buffers);
                let touches = vec![
                    self.memory(from, x * 4..x * 4 + 16, false),
                    self.memory(to, y * 4..y * 4 + 16, true),
                ];
                self.graph.command(cq, touches, None);
            }
            Call::Record(cq) => {
                let event = self.device.record_event(Cq(cq)).unwrap();
                let node = self.graph.command(cq, Vec::new(), None);
                self.events.push((event, node));
            }
            Call::Wait(cq, number) => {
                if let Some((event, node)) = event(number, &self.events) {
                    self.device.wait_event(Cq(cq), event).unwrap();
                    self.graph.command(cq, Vec::new(), Some(node));
                }
            }
            Call::Sync(number) => {
                if let Some((event, node)) = event(number, &self.events) {
                    sync(&self.device, event).unwrap();
                    self.graph.host_saw([node]);
                }
            }
            Call::Poll(number) => {
                if let Some((event, node)) = event(number, &self.events)
                    && self.device.poll_event(event).unwrap()
                {
                    self.graph.host_saw([node]);
                }
            }
            Call::Drain => {
                self.device.drain(Duration::from_secs(60)).unwrap();
                let last = self.graph.last;
                self.graph.host_saw(last.into_iter().flatten());
            }
            Call::Renew(buffer) => {
                let spec = TensorSpec::new(&[SIZE], DType::U8).unwrap();
                self.device.free(self.buffers[buffer]).unwrap();
                self.buffers[buffer] = self.device.alloc(&spec, BufferClass::State).unwrap();
            }
        }
    }
}

/// Compares what the device found with the graph; returns the number of racing pairs.
fn compare(pair: &Pair) -> Result<usize, TestCaseError> {
    let expected = pair.graph.races();
    let nodes: HashMap<(usize, u64), usize> = pair
        .graph
        .nodes
        .iter()
        .enumerate()
        .filter_map(|(number, node)| Some((node.command?, number)))
        .collect();
    let node = |info: &CommandInfo| nodes[&(info.cq.0 as usize, info.sequence)];
    // Of several commands of one queue that race with one later command, the last is told: waiting for it
    // orders the others too.
    let queue = |number: usize| pair.graph.nodes[number].command.map(|(queue, _)| queue);
    let last: BTreeSet<(usize, usize)> = expected
        .iter()
        .map(|&(first, second)| ((second, queue(first)), first))
        .collect::<BTreeMap<_, _>>()
        .into_iter()
        .map(|((second, _), first)| (first, second))
        .collect();
    let races = pair.device.races();
    let found: BTreeSet<_> = races
        .iter()
        .map(|race| (node(&race.first), node(&race.second)))
        .collect();
    prop_assert_eq!(&found, &last);
    prop_assert_eq!(found.len(), races.len(), "told twice");
    Ok(expected.len())
}

#[test]
fn the_detector_finds_the_races_of_the_happens_before_graph() {
    let (mut racing, mut clean) = (0, 0);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 4000,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let racing_cases = std::cell::RefCell::new((&mut racing, &mut clean));
    runner
        .run(
            &(calls(), any::<u64>(), any::<bool>()),
            |(calls, seed, shared_slots)| {
                let mut pair = Pair::new(seed);
                for call in &calls {
                    pair.make(call, shared_slots);
                }
                let races = compare(&pair)?;
                let (racing, clean) = &mut *racing_cases.borrow_mut();
                **(if races > 0 { racing } else { clean }) += 1;
                Ok(())
            },
        )
        .unwrap();
    assert!(
        racing > 500 && clean > 500,
        "{racing} with races, {clean} without"
    );
}

#[test]
fn races_do_not_depend_on_the_order_of_execution() {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    runner
        .run(&(calls(), any::<u64>()), |(calls, seed)| {
            // What a poll answers does depend on it, and with it what the host knows.
            let calls = calls.into_iter().filter(|call| !matches!(call, Call::Poll(_)));
            let calls: Vec<Call> = calls.collect();
            let told = |seed| {
                let mut pair = Pair::new(seed);
                for call in &calls {
                    pair.make(call, false);
                }
                let plain = |info: CommandInfo| (info.cq, info.sequence, info.command, info.writes);
                let races = pair.device.races().into_iter();
                let races: Vec<_> = races.map(|r| (plain(r.first), plain(r.second))).collect();
                (races, pair.device.timeline(), pair.device.virtual_now_ns())
            };
            prop_assert_eq!(told(seed), told(!seed));
            Ok(())
        })
        .unwrap();
}
