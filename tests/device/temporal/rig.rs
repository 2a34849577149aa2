//! A reference model on a device, and what its sensors see.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sensorium::device::cpu::kernels::Bf16Dot;
use sensorium::device::{CpuConfig, CpuDevice, Device, HostSlot, SimConfig, SimDevice};
use sensorium::image::{ImageRef, PixelFormat};
use sensorium::lidar::Columns;
use sensorium::perception::temporal::{BevRing, SeededWeights, StreamQueries, TemporalOptions};
use sensorium::perception::{
    DeviceModel, FrameKey, HostModel, ModelTrace, SensorData, SubmitError, Sweep, Taken,
};
use sensorium::tensor::HostTensor;
use sensorium::trace::{BankOptions, Freshness, OnFull, TraceOptions};

/// Which model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    BevRing,
    StreamQueries,
}

pub(crate) const KINDS: [Kind; 2] = [Kind::BevRing, Kind::StreamQueries];

/// One frame of a sensor: what it sees follows from a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Shot {
    pub(crate) stamp_ns: i64,
    pub(crate) content: u64,
    /// x, y in metres and heading in radians; `None` where they are not known.
    pub(crate) ground: Option<[f64; 3]>,
}

impl Shot {
    /// A frame at a time in seconds; where it was taken follows from its content.
    pub(crate) fn at(time_s: f64, content: u64) -> Self {
        let mut drawn = SeededWeights::new(content, "ground");
        let mut metres = |scale: f64| f64::from(drawn.unit()) * scale;
        Self {
            stamp_ns: (time_s * 1e9) as i64 + 1_700_000_000_000_000_000,
            content,
            ground: Some([81_000.0 + metres(4.0), -3_000.0 + metres(4.0), metres(0.3)]),
        }
    }

    fn level_pose(&self) -> Option<[f64; 16]> {
        self.ground.map(|[x, y, heading]| {
            let (s, c) = heading.sin_cos();
            #[rustfmt::skip]
            let pose = [c, -s, 0.0, x, s, c, 0.0, y, 0.0, 0.0, 1.0, 1.9, 0.0, 0.0, 0.0, 1.0];
            pose
        })
    }

    /// x to the right, y down, z ahead.
    fn optical_pose(&self) -> Option<[f64; 16]> {
        self.ground.map(|[x, y, heading]| {
            let (s, c) = heading.sin_cos();
            #[rustfmt::skip]
            let pose = [s, 0.0, c, x, -c, 0.0, s, y, 0.0, -1.0, 0.0, 1.5, 0.0, 0.0, 0.0, 1.0];
            pose
        })
    }
}

/// A model with one frame under way at a time.
pub(crate) struct Rig {
    pub(crate) device: Box<dyn Device>,
    pub(crate) trace: ModelTrace,
    kind: Kind,
    host: Arc<dyn HostModel>,
    inputs: Vec<HostSlot>,
    output: HostSlot,
}

/// A bit pattern a number, so that equal means equal.
pub(crate) type Bits = Vec<u32>;

impl Rig {
    pub(crate) fn new(
        kind: Kind,
        options: TemporalOptions,
        mut device: Box<dyn Device>,
        mut traced: TraceOptions,
    ) -> Self {
        traced.deadline = Duration::from_secs(300);
        let (host, graph): (Arc<dyn HostModel>, Box<dyn DeviceModel>) = match kind {
            Kind::BevRing => {
                let loaded = BevRing::load(options).unwrap();
                (Arc::new(loaded.host), Box::new(loaded.device))
            }
            Kind::StreamQueries => {
                let loaded = StreamQueries::load(options).unwrap();
                (Arc::new(loaded.host), Box::new(loaded.device))
            }
        };
        let mut trace = graph.build(device.as_mut(), traced).unwrap();
        trace.capture(device.as_mut()).unwrap();
        let slots = trace.input_specs().iter();
        let inputs = slots
            .map(|spec| device.host_slot(spec.bytes()).unwrap())
            .collect();
        Self {
            kind,
            host,
            inputs,
            output: device.host_slot(trace.output_bytes()).unwrap(),
            device,
            trace,
        }
    }

    /// On one thread and two queues.
    pub(crate) fn plain(kind: Kind, options: TemporalOptions) -> Self {
        Self::new(kind, options, cpu(1, 2), TraceOptions::two_queues())
    }

    /// Brings a frame to the network's inputs.
    pub(crate) fn prepare(&mut self, shot: &Shot) {
        let mut slots: Vec<&mut [u8]> = self
            .inputs
            .iter_mut()
            .map(|slot| slot.bytes_mut().unwrap())
            .collect();
        match self.kind {
            Kind::BevRing => {
                let [x, y, z, intensity] = cloud(shot.content);
                let sweep = Sweep {
                    stream: "",
                    stamp_ns: shot.stamp_ns,
                    points: Columns {
                        x: &x,
                        y: &y,
                        z: &z,
                        intensity: &intensity,
                    },
                    world_from_sensor: shot.level_pose(),
                };
                self.host.prepare(&SensorData::Sweep(sweep), &mut slots).unwrap();
            }
            Kind::StreamQueries => {
                let pixels = picture(shot.content);
                let image = ImageRef::new(&pixels, 64, 48, 64 * 3, PixelFormat::Bgr8).unwrap();
                let taken = Taken {
                    stream: "",
                    stamp_ns: shot.stamp_ns,
                    world_from_sensor: shot.optical_pose(),
                    reset: false,
                };
                let data = SensorData::Image(image.into());
                self.host.prepare_taken(&data, &taken, &mut slots).unwrap();
            }
        }
    }

    /// The network's inputs as they are.
    pub(crate) fn inputs(&self) -> Vec<HostTensor> {
        let specs = self.trace.input_specs();
        let both = specs.iter().zip(&self.inputs);
        both.map(|(spec, slot)| {
            let floats: Vec<f32> = floats(&slot.bytes().unwrap()[..spec.bytes()]);
            HostTensor::from_slice(&spec.shape, &floats).unwrap()
        })
        .collect()
    }

    /// The network's output, and whether the stream went on.
    pub(crate) fn run(
        &mut self,
        stream: &str,
        shot: &Shot,
        reset: bool,
    ) -> Result<(Bits, Freshness), SubmitError> {
        self.prepare(shot);
        let key = FrameKey {
            stream,
            stamp_ns: shot.stamp_ns,
            reset,
        };
        let device = self.device.as_mut();
        let submitted = self.trace.submit(device, 0, &self.inputs, &key)?;
        let done = self.trace.runner().0.wait(device, submitted.pending.done);
        done.unwrap();
        let read = self.trace.read(device, submitted.pending, &mut self.output);
        let read = read.unwrap();
        self.trace.runner().0.wait(device, read).unwrap();
        assert!(self.trace.completed(device, submitted.uploaded).unwrap());
        let bytes = &self.output.bytes().unwrap()[..self.trace.output_bytes()];
        let bits = floats(bytes).into_iter().map(f32::to_bits).collect();
        Ok((bits, submitted.freshness.unwrap()))
    }

    /// The outputs of a stream that is alone on the device.
    pub(crate) fn alone(&mut self, name: &str, shots: &[Shot]) -> Vec<Bits> {
        let outputs = shots.iter().enumerate().map(|(index, shot)| {
            let (bits, freshness) = self.run(name, shot, index == 0).unwrap();
            assert_eq!(freshness.is_fresh(), index == 0);
            bits
        });
        outputs.collect()
    }

    /// Time of `frames` frames of these streams in turn, without preparing them and with the next one under way while one
    /// runs.
    pub(crate) fn time(&mut self, streams: &[&str], frames: usize) -> Duration {
        let device = self.device.as_mut();
        let mut last = None;
        let began = Instant::now();
        for frame in 0..frames {
            let key = FrameKey {
                stream: streams[frame % streams.len()],
                stamp_ns: frame as i64,
                reset: false,
            };
            let submitted = self.trace.submit(device, 0, &self.inputs, &key).unwrap();
            if let Some(before) = last.replace(submitted.pending.done) {
                self.trace.runner().0.wait(device, before).unwrap();
            }
        }
        self.trace.runner().0.wait(device, last.unwrap()).unwrap();
        let took = began.elapsed();
        device.drain(Duration::from_secs(300)).unwrap();
        took
    }
}

/// Options of a small model.
pub(crate) fn options(memory_frames: usize, max_streams: usize, on_full: OnFull) -> TemporalOptions {
    TemporalOptions {
        seed: 11,
        memory_frames,
        streams: BankOptions {
            max_streams,
            on_full,
            max_gap_s: None,
        },
        ..TemporalOptions::new("remembers")
    }
}

pub(crate) fn cpu(threads: usize, queues: u8) -> Box<dyn Device> {
    let config = CpuConfig {
        threads,
        queues,
        bf16_dot: Some(Bf16Dot::Off),
        ..CpuConfig::default()
    };
    Box::new(CpuDevice::open(&config).unwrap())
}

pub(crate) fn simulator(queues: u8) -> Box<dyn Device> {
    let config = SimConfig {
        queues,
        arena_bytes: 64 << 20,
        seed: 5,
        ..SimConfig::default()
    };
    Box::new(SimDevice::open(&config).unwrap())
}

pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    let (values, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty());
    values.iter().map(|&b| f32::from_ne_bytes(b)).collect()
}

/// Points around the sensor; none for content 0.
fn cloud(content: u64) -> [Vec<f32>; 4] {
    let count = if content == 0 { 0 } else { 600 };
    let mut drawn = SeededWeights::new(content, "cloud");
    let mut numbers = |scale: f32| drawn.numbers(count, scale);
    let [x, y, z] = [numbers(50.0), numbers(50.0), numbers(2.5)];
    let intensity = numbers(127.0).into_iter().map(|v| v + 127.0).collect();
    [x, y, z, intensity]
}

/// A picture of coloured blocks; black for content 0.
fn picture(content: u64) -> Vec<u8> {
    let mut drawn = SeededWeights::new(content, "picture");
    let blocks: Vec<f32> = drawn.numbers(8 * 6 * 3, 127.0);
    let pixel = |i: usize| {
        let (channel, column, row) = (i % 3, i / 3 % 64, i / 3 / 64);
        (blocks[(row / 8 * 8 + column / 8) * 3 + channel] + 128.0) as u8
    };
    let bytes = 64 * 48 * 3;
    (0..bytes)
        .map(|i| if content == 0 { 0 } else { pixel(i) })
        .collect()
}
