//! Reading a vehicle file with all that it names.

use std::path::{Path, PathBuf};

use super::calibration::Calibration;
use super::member::{Feed, Member, Workshop, put, value_mut};
use super::merge::merge;
use super::raw::{RawFeed, RawVehicle};
use super::sensor::VehicleSensor;
use super::{Vehicle, VehicleLimits, sections, vehicle_schema};
use crate::perception::Sensor;
use crate::pipeline::load::{Overrides, invalid, meant, read, written};
use crate::pipeline::nearest::{alternatives, suggestion};
use crate::pipeline::problem::{PipelineError, Problem};
use crate::pipeline::ros2::node_name;
use crate::pipeline::settings::{Pipeline, SWEEPS_A_SECOND, SimulateSettings, SimulatedCameras};
use crate::pipeline::source::{Source, Span, source};
use crate::pipeline::substitute::Environment;
use crate::pipeline::tree::{Entry, Node, Value};
use crate::pipeline::validate::{section, value_span};
use crate::pipeline::{set, shape};

/// What the command line changes in a vehicle. Paths are relative to the working directory.
#[derive(Debug, Clone, Default)]
pub struct VehicleOverrides {
    /// As for a pipeline file. A dotted path begins with the name of one of the vehicle's pipelines, or it is one of the
    /// vehicle file.
    pub pipeline: Overrides,
    /// Length in seconds of a simulated drive that all sources play, in place of what they would. Its cameras are those of
    /// the vehicle that it has, by their topics.
    pub simulate_s: Option<f64>,
    /// Names of the only sensors that are played; empty: all. A pipeline of which no sensor is played is left out.
    pub sensors: Vec<String>,
    /// Leaves out what publishes, so that a replay does not speak to the vehicle.
    pub no_publish: bool,
}

impl Vehicle {
    /// Reads a vehicle file, with `${VAR}` taken from the environment of the process.
    ///
    /// # Errors
    /// A file that cannot be read, or all that is wrong with it and with the files that it names.
    pub fn load(path: &Path, overrides: &VehicleOverrides) -> Result<Self, PipelineError> {
        let text = read(path)?;
        Self::parse(path, text, overrides, &|name| std::env::var(name))
    }

    /// Reads the text of a vehicle file named `path`, with `${VAR}` taken from `environment`.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn parse(
        path: &Path,
        text: String,
        overrides: &VehicleOverrides,
        environment: Environment<'_>,
    ) -> Result<Self, PipelineError> {
        let source = source(&path.display().to_string(), text);
        let mut problems = Vec::new();
        let vehicle = understand(path, &source, overrides, environment, &mut problems);
        match vehicle {
            Some(vehicle) if problems.is_empty() => Ok(vehicle),
            _ => {
                // Sections that all pipelines share are checked with each of them.
                let mut seen: Vec<_> = Vec::new();
                problems.retain(|problem| {
                    let record = problem.to_record();
                    let is_new = !seen.contains(&record);
                    if is_new {
                        seen.push(record);
                    }
                    is_new
                });
                Err(invalid(source.name(), problems).into())
            }
        }
    }
}

fn understand(
    path: &Path,
    source: &Source,
    overrides: &VehicleOverrides,
    environment: Environment<'_>,
    problems: &mut Vec<Problem>,
) -> Option<Vehicle> {
    let mut tree = written(source, environment, problems)?;
    apply_sets(&mut tree, &overrides.pipeline.set, problems);
    let before = problems.len();
    let json = shape::check(&tree, vehicle_schema(), problems)?;
    let raw: RawVehicle = match serde_json::from_value(json) {
        Ok(raw) => raw,
        // The schema and the types come from one definition, so this is a defect; it must still be no panic.
        Err(error) => {
            let start = Span::new(source, 0..0);
            problems.push(Problem::error(error.to_string(), &start, "in this file"));
            return None;
        }
    };
    if problems.len() > before {
        return None;
    }
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    let calibration_folder = calibration_folder(folder, &tree, &raw, problems);
    let root = entry_span(&tree, "calibration");
    let mut calibration = Calibration::read(&calibration_folder, &root, problems);
    let mut sensors: Vec<VehicleSensor> = Vec::new();
    for entry in section(&tree, "sensors") {
        let Some(raw_sensor) = raw.sensors.get(&entry.key) else {
            continue;
        };
        let sensor = VehicleSensor::new(
            entry,
            raw_sensor,
            &raw.base_frame,
            &calibration_folder,
            &mut calibration,
            problems,
        );
        if let Some(other) = sensors.iter().find(|other| other.topic == sensor.topic) {
            problems.push(
                Problem::error(
                    format!("`{}` has the topic of `{}`", sensor.name, other.name),
                    value_span(entry, "topic"),
                    "expected a topic of its own",
                )
                .related(&other.topic_span, "the same one"),
            );
        }
        sensors.push(sensor);
    }
    let is_played = wanted(&sensors, &overrides.sensors, problems);
    let feed = feed_of(&tree, raw.feed.as_ref(), &sensors, overrides, problems);
    let workshop = Workshop {
        folder,
        sensors: &sensors,
        is_played: &is_played,
        feed: feed.as_ref(),
        environment,
        set: &overrides.pipeline.set,
    };
    let mut members: Vec<Member> = Vec::new();
    for entry in section(&tree, "pipelines") {
        if tree_keys().any(|key| key == entry.key) {
            problems.push(Problem::error(
                format!("a pipeline of a vehicle cannot be called `{}`", entry.key),
                &entry.key_span,
                "this is the name of a section of the file",
            ));
        }
        if let Some(raw) = raw.pipelines.get(&entry.key) {
            members.extend(workshop.member(entry, raw, problems));
        }
    }
    if raw.pipelines.is_empty() || members.is_empty() && problems.is_empty() {
        let span = entry_span(&tree, "pipelines");
        problems.push(Problem::error(
            "the vehicle runs no pipeline",
            &span,
            "expected one whose sensors are played",
        ));
    }
    let loaded = load_members(&tree, &raw, &mut members, overrides, problems);
    if !problems.is_empty() {
        return None;
    }
    let merged = merge(path, &raw.vehicle, &members, loaded, &sensors, problems);
    let mut pipeline = merged.pipeline;
    if overrides.no_publish {
        leave_publishers_out(&mut pipeline);
    }
    if let Some(address) = overrides.pipeline.foxglove {
        pipeline = pipeline.with_foxglove(address);
    }
    for (sensor, entry) in sensors.iter().zip(section(&tree, "sensors")) {
        if is_played(&sensor.name) && !merged.streams.iter().any(|stream| stream.sensor == sensor.name) {
            let message = format!("the sensor `{}` is not used", sensor.name);
            pipeline
                .warnings
                .push(Problem::warning(message, &entry.key_span, "no pipeline plays it"));
        }
    }
    let calibration_files = calibration.files.clone();
    pipeline.mounts = calibration.into_mounts();
    Some(Vehicle {
        file: path.to_owned(),
        name: raw.vehicle,
        vehicle_model: raw.vehicle_model,
        sensor_model: raw.sensor_model,
        vehicle_id: raw.vehicle_id,
        base_frame: raw.base_frame,
        calibration: calibration_files,
        sensors,
        streams: merged.streams,
        limits: VehicleLimits {
            memory_gb_s: raw.limits.memory_gb_s,
            host_mib: raw.limits.host_mib,
        },
        pipeline,
    })
}

/// Keys of a vehicle file.
fn tree_keys<'k>() -> impl Iterator<Item = &'k str> {
    let properties = vehicle_schema()["properties"].as_object();
    properties
        .into_iter()
        .flat_map(|keys| keys.keys().map(String::as_str))
}

fn entry_span(tree: &Node, key: &str) -> Span {
    tree.entry(key)
        .map_or(&tree.span, |entry| &entry.key_span)
        .clone()
}

/// Changes of the command line: those of pipelines are applied to their files later.
fn apply_sets(tree: &mut Node, sets: &[(String, String)], problems: &mut Vec<Problem>) {
    let pipelines: Vec<String> = section(tree, "pipelines")
        .iter()
        .map(|it| it.key.clone())
        .collect();
    for (dotted, value) in sets {
        let first = dotted.split('.').next().unwrap_or_default();
        if pipelines.iter().any(|name| name == first) {
            continue;
        }
        if !tree_keys().any(|key| key == first) {
            let option = source("--set", format!("{dotted}={value}"));
            let known = || pipelines.iter().map(String::as_str).chain(tree_keys());
            problems.push(
                Problem::error(
                    format!("the vehicle has no `{first}` that could be set"),
                    &Span::new(&option, 0..first.len()),
                    suggestion(first, known()),
                )
                .help(format!(
                    "a path begins with one of the vehicle's pipelines ({}), or with a key of the vehicle file",
                    alternatives(pipelines.iter().map(String::as_str))
                )),
            );
            continue;
        }
        problems.extend(set::apply(tree, dotted, value).err().map(|problem| *problem));
    }
}

/// The folder of this vehicle's calibration. A name of a folder is a name, not a way to another one.
fn calibration_folder(folder: &Path, tree: &Node, raw: &RawVehicle, problems: &mut Vec<Problem>) -> PathBuf {
    let is_name = |text: &str| text != ".." && text != "." && !text.contains(['/', '\\', '\0']);
    if !is_name(&raw.vehicle_id) {
        let span = tree.get("vehicle_id").map_or(&tree.span, |node| &node.span);
        problems.push(Problem::error(
            format!("`vehicle_id` cannot be {:?}", raw.vehicle_id),
            span,
            "expected the name of a folder",
        ));
    }
    folder
        .join(&raw.calibration)
        .join("config")
        .join(&raw.vehicle_id)
        .join(&raw.sensor_model)
}

/// Tells which sensors are played.
fn wanted<'a>(
    sensors: &[VehicleSensor],
    only: &'a [String],
    problems: &mut Vec<Problem>,
) -> impl Fn(&str) -> bool + use<'a> {
    let known = || sensors.iter().map(|sensor| sensor.name.as_str());
    for name in only {
        if !known().any(|it| it == name) {
            let option = source("--sensors", name.clone());
            problems.push(
                Problem::error(
                    format!("there is no sensor `{name}`"),
                    &Span::new(&option, 0..name.len()),
                    suggestion(name, known()),
                )
                .help(format!("the sensors are {}", alternatives(known()))),
            );
        }
    }
    move |name| only.is_empty() || only.iter().any(|it| it == name)
}

/// What all sources play: as the command line says, or the vehicle file; `None`: as the pipelines say.
fn feed_of(
    tree: &Node,
    raw: Option<&RawFeed>,
    sensors: &[VehicleSensor],
    overrides: &VehicleOverrides,
    problems: &mut Vec<Problem>,
) -> Option<Feed> {
    if let Some(bag) = &overrides.pipeline.bag {
        let text = bag.display().to_string();
        let span = Span::new(&source("--bag", text.clone()), 0..text.len());
        return Some(Feed::Bag(text, span));
    }
    if let Some(seconds) = overrides.simulate_s {
        let text = seconds.to_string();
        let span = Span::new(&source("--simulate", text.clone()), 0..text.len());
        return Some(Feed::Drive(drive_of(seconds, sensors), span));
    }
    let at = entry_span(tree, "feed");
    let raw = raw?;
    match (raw.subscribe, &raw.bag, raw.simulate) {
        (Some(_), None, None) => Some(Feed::Live(at)),
        (None, Some(bag), None) => {
            // The path is written in this file, and it ends up in another's tree.
            let span = tree
                .get("feed")
                .and_then(|feed| feed.get("bag"))
                .map_or(&at, |bag| &bag.span);
            Some(Feed::Bag(bag.clone(), span.clone()))
        }
        (None, None, Some(drive)) => Some(Feed::Drive(drive, at)),
        _ => {
            problems.push(Problem::error(
                "the vehicle's sources play a bag, simulate a drive or subscribe",
                &at,
                "expected one of `subscribe`, `bag` and `simulate`",
            ));
            None
        }
    }
}

/// The simulated drive of a vehicle: with cameras if it has some, as fast as the slowest of them.
fn drive_of(seconds: f64, sensors: &[VehicleSensor]) -> SimulateSettings {
    let cameras = sensors.iter().filter(|sensor| sensor.sensor() == Sensor::Camera);
    let slowest_hz = cameras
        .map(|sensor| sensor.rate_hz)
        .fold(None, |slowest: Option<f64>, hz| {
            Some(slowest.map_or(hz, |slowest| slowest.min(hz)))
        });
    let possible_hz = (1..=SWEEPS_A_SECOND)
        .rev()
        .filter(|hz| SWEEPS_A_SECOND.is_multiple_of(*hz));
    SimulateSettings {
        seconds,
        seed: 0,
        cameras: slowest_hz.map_or(SimulatedCameras::None, |_| SimulatedCameras::Three),
        camera_hz: possible_hz
            .into_iter()
            .find(|&hz| slowest_hz.is_some_and(|slowest| f64::from(hz) <= slowest))
            .unwrap_or(1),
    }
}

/// Takes the faults of actors out of what a pipeline says about supervision.
fn take_faults(member: &mut Member) -> Option<Entry> {
    take(value_mut(&mut member.tree, "supervision")?, "fault")
}

fn take(section: &mut Value, key: &str) -> Option<Entry> {
    let Value::Map(keys) = section else {
        return None;
    };
    let position = keys.iter().position(|entry| entry.key == key)?;
    Some(keys.remove(position))
}

/// The pipelines of the members, on one device and as one node of the ROS 2 graph.
fn load_members(
    tree: &Node,
    raw: &RawVehicle,
    members: &mut [Member],
    overrides: &VehicleOverrides,
    problems: &mut Vec<Problem>,
) -> Vec<Pipeline> {
    // What several pipelines are together is not what one of them is called.
    for member in members.iter_mut() {
        if let Some(Value::Map(keys)) = value_mut(&mut member.tree, "ros2") {
            keys.retain(|key| key.key != "node");
        }
    }
    if let Some(fault) = tree.get("supervision").and_then(|section| section.entry("fault")) {
        let message = "faults of actors are not those of a vehicle";
        let label = "expected this in a pipeline file, or in `set` of a pipeline";
        problems.push(Problem::error(message, &fault.key_span, label));
    }
    // Faults name actors of their own pipeline, so they are no common section.
    let faults: Vec<Option<Entry>> = members.iter_mut().map(take_faults).collect();
    for name in ["device", "ros2", "supervision"] {
        let trees: Vec<&Node> = members.iter().map(|member| &member.tree).collect();
        let mut merged = sections::merge(name, tree, &trees, problems);
        if let (Some(merged), "supervision") = (&mut merged, name) {
            take(&mut merged.value.value, "fault");
        }
        if name == "ros2" {
            let at = merged
                .as_ref()
                .map_or(&tree.span, |section| &section.key_span)
                .clone();
            let section = merged.get_or_insert_with(|| Entry {
                key: name.to_owned(),
                key_span: at.clone(),
                value: Node {
                    value: Value::Map(Vec::new()),
                    span: at.clone(),
                },
            });
            let named = section.value.get("node").is_some();
            if let (false, Value::Map(keys)) = (named, &mut section.value.value) {
                put(keys, "node", Value::Text(node_name(&raw.vehicle)), &at);
            }
        }
        for member in members.iter_mut() {
            if let (Some(merged), Value::Map(entries)) = (&merged, &mut member.tree.value) {
                entries.retain(|entry| entry.key != name);
                entries.push(merged.clone());
            }
        }
    }
    for (member, fault) in members.iter_mut().zip(faults) {
        if let (Some(fault), Some(Value::Map(keys))) = (fault, value_mut(&mut member.tree, "supervision")) {
            keys.push(fault);
        }
    }
    let count = |member: &Member, kind: &str| {
        let nodes = section(&member.tree, "nodes").iter();
        nodes
            .filter(|node| node.value.get("kind").and_then(Node::text) == Some(kind))
            .count()
    };
    let given = &overrides.pipeline;
    for (option, kind, path) in [
        ("--record", "recorder", &given.record),
        ("--jsonl", "jsonl", &given.jsonl),
    ] {
        if let Some(path) = path
            && !members.iter().any(|member| count(member, kind) > 0)
        {
            let text = path.display().to_string();
            problems.push(Problem::error(
                format!("{option} needs one place to apply to"),
                &Span::new(&source(option, text.clone()), 0..text.len()),
                format!("no pipeline of the vehicle has a node of kind `{kind}`"),
            ));
        }
    }
    if let Some(model) = &given.model {
        let text = model.display().to_string();
        problems.push(
            Problem::error(
                "--model needs one place to apply to",
                &Span::new(&source("--model", text.clone()), 0..text.len()),
                "a vehicle has several pipelines",
            )
            .help("use --set PIPELINE.models.NAME.weights=FILE"),
        );
    }
    let mut loaded = Vec::new();
    for member in &*members {
        let own = Overrides {
            set: Vec::new(),
            bag: None,
            model: None,
            record: given.record.clone().filter(|_| count(member, "recorder") > 0),
            jsonl: given.jsonl.clone().filter(|_| count(member, "jsonl") > 0),
            ..given.clone()
        };
        loaded.extend(meant(&member.path, &member.tree, &own, problems));
    }
    loaded
}

/// Leaves out the nodes that publish, and the channels into them.
fn leave_publishers_out(pipeline: &mut Pipeline) {
    let is_publisher = |node: &crate::pipeline::settings::Node| node.kind.name() == "publisher";
    let out: Vec<String> = pipeline
        .nodes
        .iter()
        .filter(|node| is_publisher(node))
        .map(|node| node.name.clone())
        .collect();
    pipeline.nodes.retain(|node| !is_publisher(node));
    pipeline.edges.retain(|edge| !out.contains(&edge.to));
    pipeline.inactive.extend(out);
}
