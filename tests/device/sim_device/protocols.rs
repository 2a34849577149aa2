//! Every wait of a two-queue protocol is missed when it is missing, whatever the order of execution.

use std::time::Duration;

use sensorium::device::sim::{CommandInfo, RaceObject};
use sensorium::device::{
    BufferClass, BufferId, Cq, Device, HostSlot, OnRace, Race, SimConfig, SimDevice, TraceId,
};

use super::harness::*;

/// A device and its waits, one of which may be left out.
pub(crate) struct Bench {
    pub(crate) device: SimDevice,
    waits: usize,
    left_out: Option<usize>,
}

impl Bench {
    pub(crate) fn new(seed: u64, left_out: Option<usize>) -> Self {
        let device = SimDevice::open(&SimConfig {
            on_race: OnRace::Report,
            track_allocations: false,
            ..config(2, seed)
        });
        Self {
            device: device.unwrap(),
            waits: 0,
            left_out,
        }
    }

    /// Whether the next wait is made.
    fn waits(&mut self) -> bool {
        self.waits += 1;
        self.left_out != Some(self.waits - 1)
    }

    /// Orders `behind` after what is on `cq` now.
    pub(crate) fn order(&mut self, cq: Cq, behind: Cq) {
        let event = self.device.record_event(cq).unwrap();
        if self.waits() {
            self.device.wait_event(behind, event).unwrap();
        }
    }

    pub(crate) fn buffer(&mut self, class: BufferClass) -> BufferId {
        buffer(&mut self.device, class)
    }

    pub(crate) fn write(&mut self, cq: Cq, dst: BufferId) {
        write(&mut self.device, cq, dst, &[1.0; N]);
    }

    pub(crate) fn read(&mut self, cq: Cq, src: BufferId) -> HostSlot {
        let mut slot = HostSlot::new(N * 4);
        self.device.read(cq, src, 0, &mut slot, N * 4).unwrap();
        slot
    }

    pub(crate) fn copy(&mut self, cq: Cq, src: BufferId, dst: BufferId) {
        self.device.copy(cq, src, dst).unwrap();
    }

    fn add(&mut self, cq: Cq, buffers: [BufferId; 3]) {
        launch(&mut self.device, cq, &add(), &buffers);
    }

    /// A trace of `dst = lhs + rhs` through an intermediate.
    fn trace(&mut self, [lhs, rhs, dst]: [BufferId; 3]) -> TraceId {
        self.device.compile(&add()).unwrap();
        capture(&mut self.device, |device| {
            let middle = buffer(device, BufferClass::Intermediate);
            launch(device, Cq::COMPUTE, &add(), &[lhs, rhs, middle]);
            launch(device, Cq::COMPUTE, &add(), &[middle, middle, dst]);
            device.free(middle).unwrap();
        })
    }

    fn replay(&mut self, cq: Cq, trace: TraceId) {
        self.device.replay(cq, trace).unwrap();
    }
}

/// A race in one line: both commands with what they do to what.
fn short(race: &Race) -> String {
    let side = |info: &CommandInfo| {
        let object = match info.object {
            RaceObject::Buffer { class, .. } => format!("{class:?}"),
            RaceObject::HostSlot(_) => "slot".into(),
        };
        let verb = if info.writes { "writes" } else { "reads" };
        format!("{} {} {verb} {object}", info.cq, info.command)
    };
    format!("{}, {}", side(&race.first), side(&race.second))
}

type Protocol = fn(&mut Bench);

/// Each protocol with what happens without its first wait, its second, and so on.
const PROTOCOLS: &[(Protocol, &[&str])] = &[
    // Staged uploads: the copy waits for the upload, the next upload for the copy.
    (
        |bench| {
            let (staging, x) = (
                bench.buffer(BufferClass::Staging),
                bench.buffer(BufferClass::Input),
            );
            bench.write(Cq::IO, staging);
            bench.order(Cq::IO, Cq::COMPUTE);
            bench.copy(Cq::COMPUTE, staging, x);
            bench.order(Cq::COMPUTE, Cq::IO);
            bench.write(Cq::IO, staging);
        },
        &[
            "CQ1 upload writes Staging, CQ0 copy reads Staging",
            "CQ0 copy reads Staging, CQ1 upload writes Staging",
        ],
    ),
    // Uploads straight into an input that launches read.
    (
        |bench| {
            let (x, y) = (
                bench.buffer(BufferClass::Input),
                bench.buffer(BufferClass::Output),
            );
            bench.write(Cq::IO, x);
            bench.order(Cq::IO, Cq::COMPUTE);
            bench.add(Cq::COMPUTE, [x, x, y]);
            bench.order(Cq::COMPUTE, Cq::IO);
            bench.write(Cq::IO, x);
        },
        &[
            "CQ1 upload writes Input, CQ0 launch of binary reads Input",
            "CQ0 launch of binary reads Input, CQ1 upload writes Input",
        ],
    ),
    // Outputs: the read waits for the launch, the next launch for the read.
    (
        |bench| {
            let (x, y) = (
                bench.buffer(BufferClass::Input),
                bench.buffer(BufferClass::Output),
            );
            bench.add(Cq::COMPUTE, [x, x, y]);
            bench.order(Cq::COMPUTE, Cq::IO);
            bench.read(Cq::IO, y);
            bench.order(Cq::IO, Cq::COMPUTE);
            bench.add(Cq::COMPUTE, [x, x, y]);
        },
        &[
            "CQ0 launch of binary writes Output, CQ1 read reads Output",
            "CQ1 read reads Output, CQ0 launch of binary writes Output",
        ],
    ),
    // The same through a trace.
    (
        |bench| {
            let (x, y) = (
                bench.buffer(BufferClass::Input),
                bench.buffer(BufferClass::Output),
            );
            let trace = bench.trace([x, x, y]);
            bench.write(Cq::IO, x);
            bench.order(Cq::IO, Cq::COMPUTE);
            bench.replay(Cq::COMPUTE, trace);
            bench.order(Cq::COMPUTE, Cq::IO);
            bench.read(Cq::IO, y);
            bench.order(Cq::IO, Cq::COMPUTE);
            bench.replay(Cq::COMPUTE, trace);
        },
        &[
            "CQ1 upload writes Input, CQ0 replay of trace 1 reads Input",
            "CQ0 replay of trace 1 writes Output, CQ1 read reads Output",
            "CQ1 read reads Output, CQ0 replay of trace 1 writes Output",
        ],
    ),
    // A parameter that is uploaded beside the replays.
    (
        |bench| {
            let (x, p, y) = (
                bench.buffer(BufferClass::Input),
                bench.buffer(BufferClass::Param),
                bench.buffer(BufferClass::Output),
            );
            let trace = bench.trace([x, p, y]);
            bench.write(Cq::IO, p);
            bench.order(Cq::IO, Cq::COMPUTE);
            bench.replay(Cq::COMPUTE, trace);
            bench.order(Cq::COMPUTE, Cq::IO);
            bench.write(Cq::IO, p);
        },
        &[
            "CQ1 upload writes Param, CQ0 replay of trace 1 reads Param",
            "CQ0 replay of trace 1 reads Param, CQ1 upload writes Param",
        ],
    ),
    // A state that is saved to a bank between two replays, and loaded from another.
    (
        |bench| {
            let x = bench.buffer(BufferClass::Input);
            let (state, first, second) = (
                bench.buffer(BufferClass::State),
                bench.buffer(BufferClass::Bank),
                bench.buffer(BufferClass::Bank),
            );
            let trace = bench.trace([x, x, state]);
            bench.replay(Cq::COMPUTE, trace);
            bench.order(Cq::COMPUTE, Cq::IO);
            bench.copy(Cq::IO, state, first);
            bench.order(Cq::IO, Cq::COMPUTE);
            bench.copy(Cq::COMPUTE, second, state);
            bench.order(Cq::COMPUTE, Cq::IO);
            bench.write(Cq::IO, state);
        },
        &[
            "CQ0 replay of trace 1 writes State, CQ1 copy reads State",
            "CQ1 copy reads State, CQ0 copy writes State",
            "CQ0 copy writes State, CQ1 upload writes State",
        ],
    ),
    // Memory that is freed while a launch uses it, and given to an upload.
    (
        |bench| {
            let y = bench.buffer(BufferClass::Output);
            let old = bench.buffer(BufferClass::Intermediate);
            bench.add(Cq::COMPUTE, [old, old, y]);
            let address = bench.device.address(old).unwrap();
            bench.device.free(old).unwrap();
            let new = bench.buffer(BufferClass::Input);
            assert_eq!(bench.device.address(new).unwrap(), address);
            bench.order(Cq::COMPUTE, Cq::IO);
            bench.write(Cq::IO, new);
        },
        &["CQ0 launch of binary reads Intermediate, CQ1 upload writes Input"],
    ),
    // Two traces whose intermediates share memory, on two queues.
    (
        |bench| {
            let (x, y, z) = (
                bench.buffer(BufferClass::Input),
                bench.buffer(BufferClass::Output),
                bench.buffer(BufferClass::Output),
            );
            let (first, second) = (bench.trace([x, x, y]), bench.trace([x, x, z]));
            bench.replay(Cq::COMPUTE, first);
            bench.order(Cq::COMPUTE, Cq::IO);
            bench.replay(Cq::IO, second);
        },
        &["CQ0 replay of trace 1 writes Intermediate, CQ1 replay of trace 2 reads Intermediate"],
    ),
    // A buffer in memory that a trace's intermediate had: read while the trace runs.
    (
        |bench| {
            let (x, y) = (
                bench.buffer(BufferClass::Input),
                bench.buffer(BufferClass::Output),
            );
            let trace = bench.trace([x, x, y]);
            let late = bench.buffer(BufferClass::Output);
            bench.write(Cq::IO, late);
            bench.read(Cq::IO, late);
            bench.order(Cq::IO, Cq::COMPUTE);
            bench.replay(Cq::COMPUTE, trace);
        },
        &["CQ1 read reads Output, CQ0 replay of trace 1 writes Intermediate"],
    ),
    // The same where the intermediate was allocated and freed, and never used.
    (
        |bench| {
            let (x, y) = (
                bench.buffer(BufferClass::Input),
                bench.buffer(BufferClass::Output),
            );
            bench.device.compile(&add()).unwrap();
            let trace = capture(&mut bench.device, |device| {
                let unused = buffer(device, BufferClass::Intermediate);
                device.free(unused).unwrap();
                launch(device, Cq::COMPUTE, &add(), &[x, x, y]);
            });
            let late = bench.buffer(BufferClass::Output);
            bench.replay(Cq::COMPUTE, trace);
            bench.order(Cq::COMPUTE, Cq::IO);
            bench.write(Cq::IO, late);
        },
        &["CQ0 replay of trace 1 writes Intermediate, CQ1 upload writes Output"],
    ),
    // A host slot that the device gave back, but not in an order that the queues know.
    (
        |bench| {
            let (x, y) = (
                bench.buffer(BufferClass::Input),
                bench.buffer(BufferClass::Output),
            );
            let slot = bench.read(Cq::COMPUTE, y);
            let other = bench.device.record_event(Cq::IO).unwrap();
            while slot.is_busy() {
                bench.device.poll_event(other).unwrap();
            }
            bench.order(Cq::COMPUTE, Cq::IO);
            bench.device.write(Cq::IO, x, 0, &slot, N * 4).unwrap();
        },
        &["CQ0 read writes slot, CQ1 upload reads slot"],
    ),
    // The host waits instead of a queue.
    (
        |bench| {
            let (x, y) = (
                bench.buffer(BufferClass::Input),
                bench.buffer(BufferClass::Output),
            );
            bench.write(Cq::IO, x);
            let uploaded = bench.device.record_event(Cq::IO).unwrap();
            if bench.waits() {
                sync(&bench.device, uploaded).unwrap();
            }
            bench.add(Cq::COMPUTE, [x, x, y]);
            let computed = bench.device.record_event(Cq::COMPUTE).unwrap();
            let polled = bench.waits();
            while polled && !bench.device.poll_event(computed).unwrap() {}
            bench.read(Cq::IO, y);
            if bench.waits() {
                bench.device.drain(Duration::from_secs(1)).unwrap();
            }
            bench.copy(Cq::COMPUTE, x, y);
        },
        &[
            "CQ1 upload writes Input, CQ0 launch of binary reads Input",
            "CQ0 launch of binary writes Output, CQ1 read reads Output",
            "CQ1 read reads Output, CQ0 copy writes Output",
        ],
    ),
];

#[test]
fn each_missing_wait_is_exactly_one_race_between_the_right_commands() {
    for (number, (protocol, expected)) in PROTOCOLS.iter().enumerate() {
        for seed in 0..12 {
            let mut bench = Bench::new(seed, None);
            protocol(&mut bench);
            assert_eq!(bench.device.races(), [], "protocol {number} with all waits");
            assert_eq!(bench.waits, expected.len(), "protocol {number} lists every wait");
            for (missing, &expected) in expected.iter().enumerate() {
                let mut bench = Bench::new(seed, Some(missing));
                protocol(&mut bench);
                let races: Vec<_> = bench.device.races().iter().map(short).collect();
                assert_eq!(
                    races,
                    [expected],
                    "protocol {number} without wait {missing}, seed {seed}"
                );
            }
        }
    }
}
