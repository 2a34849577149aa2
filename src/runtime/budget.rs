//! What a vehicle needs of its computer, and whether it has it: memory, bandwidth, time of the device.

use std::collections::BTreeMap;

use serde::Serialize;

use super::footprint::Footprint;
use super::owner::FRAMES_UNDER_WAY;
use super::slots::{SlotCounts, prepare_workers};
use crate::pipeline::{
    ActorRole, Channel, NodeKind, OnStreamsFull, Pipeline, Plan, RunsOn, Vehicle, VehicleSensor,
};

const MIB: f64 = 1_048_576.0;

/// What a vehicle needs.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Budget {
    /// Bytes a second that the sensors which are played send.
    pub sensor_bytes_per_s: f64,
    /// Bytes a second that go to the device; `None` where the models are not known.
    pub upload_bytes_per_s: Option<f64>,
    /// Bytes a second that memory is read and written with for that.
    pub memory_bytes_per_s: f64,
    /// Bytes of messages that are under way when every channel is full.
    pub queue_bytes: u64,
    /// Bytes of host memory that the device copies from and to; `None` where the models are not known.
    pub slot_bytes: Option<u64>,
    /// What each detector has to do.
    pub detectors: Vec<DetectorLoad>,
    /// Part of the device's time that is asked for, 1 for all of it; `None` where no frame's time is known.
    pub device_load: Option<f64>,
    /// What the device's memory holds; `None` where the models are not known.
    pub footprint: Option<Footprint>,
    /// What does not fit, and what hardly does.
    pub findings: Vec<Finding>,
}

/// What a detector has to do.
#[derive(Debug, Clone, Serialize)]
pub struct DetectorLoad {
    /// The detector's node.
    pub detector: String,
    /// Its model.
    pub model: String,
    /// Streams that it is fed with.
    pub streams: usize,
    /// Streams that the model has room for.
    pub max_streams: u16,
    /// Frames a second of all its streams.
    pub frames_per_s: f64,
    /// Device time of one frame in milliseconds, where it is known.
    pub expected_ms: Option<f64>,
}

/// Something that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Whether the vehicle cannot run so.
    pub is_error: bool,
    /// What does not fit.
    pub message: String,
    /// What to change.
    pub help: String,
}

impl Budget {
    /// Adds up what a vehicle needs. Without a footprint, what depends on the models is left out.
    #[must_use]
    pub fn new(vehicle: &Vehicle, footprint: Option<Footprint>) -> Self {
        let sensors: BTreeMap<&str, &VehicleSensor> = vehicle
            .sensors
            .iter()
            .map(|sensor| (sensor.name.as_str(), sensor))
            .collect();
        let mut played: Vec<&VehicleSensor> = Vec::new();
        for stream in &vehicle.streams {
            if let Some(sensor) = sensors.get(stream.sensor.as_str())
                && !played.iter().any(|known| known.name == sensor.name)
            {
                played.push(sensor);
            }
        }
        let sensor_bytes_per_s: f64 = played.iter().map(|sensor| sensor.bytes_per_s()).sum();
        let detectors = loads(vehicle, &sensors);
        let upload_bytes_per_s = footprint.as_ref().map(|footprint| {
            let of = |detector: &str| footprint.models.iter().find(|model| model.detector == detector);
            let bytes = |load: &DetectorLoad| of(&load.detector).map_or(0, |model| model.input_bytes) as f64;
            detectors
                .iter()
                .map(|load| bytes(load) * load.frames_per_s)
                .sum::<f64>()
        });
        let known: Option<Vec<f64>> = detectors
            .iter()
            .filter(|load| load.streams > 0)
            .map(|load| load.expected_ms.map(|ms| ms * load.frames_per_s / 1_000.0))
            .collect();
        let plan = vehicle.pipeline.plan();
        let mut budget = Self {
            sensor_bytes_per_s,
            upload_bytes_per_s,
            // A message is written when it arrives and read when it is prepared; an input is written, copied (read and
            // written) to the device, and read there.
            memory_bytes_per_s: 2.0 * sensor_bytes_per_s + 4.0 * upload_bytes_per_s.unwrap_or(0.0),
            queue_bytes: queue_bytes(vehicle, &plan, &sensors),
            slot_bytes: footprint
                .as_ref()
                .map(|footprint| slot_bytes(&vehicle.pipeline, &plan, footprint)),
            detectors,
            device_load: known.map(|parts| parts.iter().sum()),
            footprint,
            findings: Vec::new(),
        };
        budget.judge(vehicle);
        budget
    }

    /// Whether the vehicle can run.
    #[must_use]
    pub fn fits(&self) -> bool {
        !self.findings.iter().any(|finding| finding.is_error)
    }

    fn judge(&mut self, vehicle: &Vehicle) {
        let mut found = Vec::new();
        let mut refuse = |is_error, message: String, help: String| {
            found.push(Finding {
                is_error,
                message,
                help,
            });
        };
        for load in &self.detectors {
            if load.streams > usize::from(load.max_streams) {
                let on_full = vehicle.pipeline.models[&load.model].on_full;
                refuse(
                    on_full == OnStreamsFull::Reject,
                    format!(
                        "the detector {} is fed with {} streams, and its model has room for {}",
                        load.detector, load.streams, load.max_streams
                    ),
                    format!(
                        "set models.{}.max_streams to {}, or feed it with fewer sensors",
                        own_name(&load.model),
                        load.streams
                    ),
                );
            }
        }
        if let Some(footprint) = &self.footprint {
            let mib = |bytes: usize| bytes.div_ceil(1 << 20);
            if footprint.enough_bytes > footprint.arena_bytes {
                refuse(
                    true,
                    format!(
                        "the models need more than {} MiB of device memory ({} MiB when they are captured)",
                        mib(footprint.arena_bytes),
                        mib(footprint.used_bytes)
                    ),
                    format!("device.arena_mib: {} is enough", mib(footprint.enough_bytes)),
                );
            }
        }
        if let Some(load) = self.device_load
            && load > 0.9
        {
            refuse(
                load > 1.0,
                format!("the device would be busy for {:.0} % of the time", load * 100.0),
                "lower rate_hz of sensors, leave sensors out, or run a smaller or less precise model; expected_ms says how \
                 long a frame takes"
                    .to_owned(),
            );
        }
        let limit = vehicle.limits.memory_gb_s * 1e9;
        if self.memory_bytes_per_s > limit {
            refuse(
                true,
                format!(
                    "frames move {:.2} GB/s through memory, and the computer has {:.2} GB/s",
                    self.memory_bytes_per_s / 1e9,
                    limit / 1e9
                ),
                "lower rate_hz, send smaller or compressed images, or correct limits.memory_gb_s".to_owned(),
            );
        }
        let host = self.queue_bytes + self.slot_bytes.unwrap_or(0);
        if host as f64 > f64::from(vehicle.limits.host_mib) * MIB {
            refuse(
                true,
                format!(
                    "frames under way may take {:.0} MiB of host memory, and they have {} MiB",
                    host as f64 / MIB,
                    vehicle.limits.host_mib
                ),
                "lower the capacity of channels (set: channels.default.capacity), or raise limits.host_mib"
                    .to_owned(),
            );
        }
        for node in &vehicle.pipeline.nodes {
            let NodeKind::Source(source) = &node.kind else {
                continue;
            };
            let Some(deadline_ms) = source.deadline_ms else {
                continue;
            };
            for stream in vehicle.streams.iter().filter(|stream| stream.source == node.name) {
                if let Some(ms) = stream.expected_ms
                    && ms > f64::from(deadline_ms)
                {
                    refuse(
                        false,
                        format!(
                            "a frame of {} takes {ms} ms on the device alone, and {} has a deadline of {deadline_ms} ms",
                            stream.sensor, node.name
                        ),
                        "raise deadline_ms of the source, or run a faster model".to_owned(),
                    );
                }
            }
        }
        found.dedup();
        self.findings = found;
    }
}

/// The name of a model in its own pipeline file.
fn own_name(merged: &str) -> &str {
    merged.split_once('.').map_or(merged, |(_, name)| name)
}

/// One stream into a detector: a sensor, or several that are put together on the way.
struct Input<'v> {
    through: Option<&'v str>,
    rate_hz: f64,
    frame_bytes: u64,
}

fn inputs_of<'v>(
    vehicle: &'v Vehicle,
    detector: &str,
    sensors: &BTreeMap<&str, &VehicleSensor>,
) -> Vec<Input<'v>> {
    let mut inputs: Vec<Input<'_>> = Vec::new();
    for stream in vehicle
        .streams
        .iter()
        .filter(|stream| stream.detector == detector)
    {
        let Some(sensor) = sensors.get(stream.sensor.as_str()) else {
            continue;
        };
        let through = stream.through.as_deref();
        let together = inputs
            .iter_mut()
            .find(|input| through.is_some() && input.through == through);
        match together {
            // As many sets as the fastest sensor sends, each with what all have sent.
            Some(input) => {
                input.rate_hz = input.rate_hz.max(sensor.rate_hz);
                input.frame_bytes += sensor.frame_bytes();
            }
            None => inputs.push(Input {
                through,
                rate_hz: sensor.rate_hz,
                frame_bytes: sensor.frame_bytes(),
            }),
        }
    }
    inputs
}

fn loads(vehicle: &Vehicle, sensors: &BTreeMap<&str, &VehicleSensor>) -> Vec<DetectorLoad> {
    let detectors = vehicle.pipeline.nodes.iter().filter_map(|node| match &node.kind {
        NodeKind::Detector(settings) => Some((&node.name, &settings.model)),
        _ => None,
    });
    let load = |(detector, model): (&String, &String)| {
        let streams: Vec<_> = vehicle
            .streams
            .iter()
            .filter(|it| it.detector == *detector)
            .collect();
        let inputs = inputs_of(vehicle, detector, sensors);
        DetectorLoad {
            detector: detector.clone(),
            model: model.clone(),
            streams: inputs.len(),
            max_streams: vehicle.pipeline.models[model].max_streams,
            frames_per_s: inputs.iter().map(|input| input.rate_hz).sum(),
            expected_ms: streams.iter().find_map(|stream| stream.expected_ms),
        }
    };
    detectors.map(load).collect()
}

/// Bytes of messages under way when every channel is full: a message is kept until its results have been written.
fn queue_bytes(vehicle: &Vehicle, plan: &Plan, sensors: &BTreeMap<&str, &VehicleSensor>) -> u64 {
    let mut bytes = 0;
    for node in &vehicle.pipeline.nodes {
        if !matches!(node.kind, NodeKind::Detector(_)) {
            continue;
        }
        let inputs = inputs_of(vehicle, &node.name, sensors);
        let largest = inputs.iter().map(|input| input.frame_bytes).max().unwrap_or(0);
        let actors: Vec<&str> = plan
            .actors
            .iter()
            .filter(|actor| actor.node.as_deref() == Some(&*node.name))
            .map(|actor| actor.name.as_str())
            .collect();
        let touches = |name: &str| actors.contains(&name);
        let queued: u64 = plan
            .channels
            .iter()
            .filter(|channel| touches(&channel.from) || touches(&channel.to))
            .map(|channel| u64::from(channel.capacity))
            .sum();
        let workers: u64 = plan
            .actors
            .iter()
            .filter(|actor| touches(&actor.name))
            .map(|actor| match actor.runs_on {
                RunsOn::Workers(count) => u64::from(count),
                _ => 1,
            })
            .sum();
        bytes += (queued + workers + FRAMES_UNDER_WAY as u64) * largest;
    }
    bytes
}

/// Bytes of the slots that inputs are prepared in and outputs are read into.
fn slot_bytes(pipeline: &Pipeline, plan: &Plan, footprint: &Footprint) -> u64 {
    let device = plan
        .actors
        .iter()
        .find(|actor| actor.role == ActorRole::DeviceOwner);
    let device = device.map_or("device", |actor| actor.name.as_str());
    let places = |is_there: &dyn Fn(&Channel) -> bool| {
        let channel = plan.channels.iter().find(|channel| is_there(channel));
        channel.map_or(1, |channel| channel.capacity as usize)
    };
    let bytes = footprint.models.iter().map(|found| {
        let mut nodes = pipeline.nodes.iter().filter(|node| node.name == found.detector);
        let Some(NodeKind::Detector(settings)) = nodes.next().map(|node| &node.kind) else {
            return 0;
        };
        let model = &pipeline.models[&settings.model];
        let of = |channel: &Channel| channel.detector.as_deref() == Some(&*found.detector);
        let slots = SlotCounts::of(
            model,
            places(&|channel| channel.to == device && of(channel)),
            places(&|channel| channel.from == device && of(channel)),
            prepare_workers(settings, model),
        );
        slots.inputs * found.input_bytes + slots.outputs * found.output_bytes
    });
    bytes.sum::<usize>() as u64
}
