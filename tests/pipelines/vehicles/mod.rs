//! Vehicle files: what they say, what is wrong with them, what they become, and what they need.

mod members;
mod mistakes;
mod needs;
mod runs;

use std::env::VarError;
use std::path::{Path, PathBuf};

use sensorium::device::DeviceLayer;
use sensorium::pipeline::{
    NodeKind, Overrides, PipelineError, PublisherSettings, Topics, Vehicle, VehicleOverrides,
    VehicleSensorKind, vehicle_schema,
};
use sensorium::runtime::Budget;

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn no_environment(_: &str) -> Result<String, VarError> {
    Err(VarError::NotPresent)
}

fn load(path: &Path, overrides: &VehicleOverrides) -> Result<Vehicle, PipelineError> {
    let text = std::fs::read_to_string(path).unwrap();
    Vehicle::parse(path, text, overrides, &no_environment)
}

fn shipped(name: &str, overrides: &VehicleOverrides) -> Vehicle {
    let path = repository(&format!("config/vehicles/{name}.yaml"));
    load(&path, overrides).unwrap_or_else(|error| panic!("{error}: {:?}", problems(&error)))
}

fn problems(error: &PipelineError) -> Vec<String> {
    let record = |problem: &sensorium::pipeline::Problem| {
        let record = problem.to_record();
        let file = Path::new(&record.file)
            .file_name()
            .unwrap()
            .to_string_lossy()
            .into_owned();
        format!(
            "{file}:{}:{}: {}; {}; {}",
            record.line,
            record.column,
            record.message,
            record.expected,
            record.help.unwrap_or_default()
        )
    };
    error.problems().iter().map(record).collect()
}

fn set(changes: &[(&str, &str)]) -> VehicleOverrides {
    VehicleOverrides {
        pipeline: Overrides {
            set: changes
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            ..Overrides::default()
        },
        ..VehicleOverrides::default()
    }
}

/// A copy of the shipped sedan with its calibration, where files can be changed.
struct Garage {
    folder: tempfile::TempDir,
}

const KIT: &str = "individual_params/config/default/five_cameras_one_lidar";

impl Garage {
    fn new() -> Self {
        let garage = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let pipelines = repository("pipelines");
        std::fs::create_dir_all(garage.path("config/vehicles")).unwrap();
        std::fs::create_dir_all(garage.path(&format!("config/{KIT}"))).unwrap();
        for entry in std::fs::read_dir(repository(&format!("config/{KIT}"))).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            std::fs::copy(entry.path(), garage.path(&format!("config/{KIT}/{name}"))).unwrap();
        }
        let text = std::fs::read_to_string(repository("config/vehicles/sedan.yaml")).unwrap();
        let text = text.replace("../../pipelines", &pipelines.display().to_string());
        std::fs::write(garage.path("config/vehicles/sedan.yaml"), text).unwrap();
        garage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces a text that is in a file once.
    fn change(&self, file: &str, from: &str, to: &str) {
        let path = self.path(&format!("config/{file}"));
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches(from).count(), 1, "{from:?} in {file}");
        std::fs::write(&path, text.replace(from, to)).unwrap();
    }

    fn load(&self) -> Result<Vehicle, PipelineError> {
        load(
            &self.path("config/vehicles/sedan.yaml"),
            &VehicleOverrides::default(),
        )
    }
}

#[test]
fn the_shipped_schema_is_the_one_of_the_types() {
    let path = repository("config/vehicles/vehicle.schema.json");
    let shipped: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert!(
        &shipped == vehicle_schema(),
        "out of date: sensorium schema vehicle > config/vehicles/vehicle.schema.json"
    );
}

#[test]
fn the_shipped_vehicles_are_good_and_become_one_pipeline_each() {
    for (name, lidars, cameras) in [("sedan", 1, 5), ("shuttle", 3, 8)] {
        let vehicle = shipped(name, &VehicleOverrides::default());
        let is_lidar = |kind: &VehicleSensorKind| matches!(kind, VehicleSensorKind::Lidar { .. });
        let found = vehicle
            .sensors
            .iter()
            .filter(|sensor| is_lidar(&sensor.kind))
            .count();
        assert_eq!((found, vehicle.sensors.len()), (lidars, lidars + cameras));
        assert_eq!(
            vehicle.streams.len(),
            lidars + cameras,
            "every sensor is taken once"
        );
        let calibrated = vehicle.sensors.iter().filter(|sensor| match &sensor.kind {
            VehicleSensorKind::Camera { intrinsics, .. } => intrinsics.is_some(),
            VehicleSensorKind::Lidar { .. } => false,
        });
        assert_eq!(calibrated.count(), cameras);
        let pipeline = &vehicle.pipeline;
        assert_eq!(pipeline.name, name);
        assert!(pipeline.warnings.is_empty() && pipeline.missing.is_empty());
        assert_eq!(
            pipeline.ros2.node, name,
            "one node of the graph, called as the vehicle"
        );
        assert_eq!(pipeline.models.len(), 2);
        // Every node, edge and model is known by its own name.
        for node in &pipeline.nodes {
            assert_eq!(
                pipeline
                    .nodes
                    .iter()
                    .filter(|other| other.name == node.name)
                    .count(),
                1
            );
            if let NodeKind::Detector(detector) = &node.kind {
                assert!(pipeline.models.contains_key(&detector.model));
            }
        }
        for edge in &pipeline.edges {
            for end in [&edge.from, &edge.to] {
                assert!(pipeline.nodes.iter().any(|node| node.name == *end), "{end}");
            }
        }
        // A sink of ROS 2 for each kind of result.
        let budget = Budget::new(&vehicle, None);
        assert!(
            budget.fits() && budget.findings.is_empty(),
            "{:?}",
            budget.findings
        );
    }
}

#[test]
fn what_a_vehicle_sets_goes_before_its_pipelines_and_the_command_line_before_both() {
    let vehicle = shipped(
        "sedan",
        &set(&[
            ("cameras.models.yolox.max_streams", "7"),
            ("device.arena_mib", "640"),
        ]),
    );
    assert_eq!(vehicle.pipeline.models["cameras.yolox"].max_streams, 7);
    let config = vehicle.pipeline.device.config(&DeviceLayer::default());
    assert_eq!(config.arena_bytes, 640 << 20);
    let edge = |from: &str| {
        let mut edges = vehicle.pipeline.edges.iter();
        edges.find(|edge| edge.from == from).unwrap().clone()
    };
    assert_eq!(edge("cameras.image").capacity, 5, "of the vehicle");
    assert_eq!(edge("lidar.pointcloud").capacity, 1, "of the pipeline");
    // The environment goes before files, not before the command line.
    let environment = DeviceLayer {
        arena_mib: Some(512),
        ..DeviceLayer::default()
    };
    assert_eq!(
        vehicle.pipeline.device.config(&environment).arena_bytes,
        640 << 20
    );
    let plain = shipped("sedan", &VehicleOverrides::default());
    assert_eq!(plain.pipeline.device.config(&environment).arena_bytes, 512 << 20);
    assert_eq!(
        plain.pipeline.device.config(&DeviceLayer::default()).arena_bytes,
        768 << 20
    );
}

#[test]
fn foxglove_connects_to_a_vehicle_where_it_is_asked_to() {
    let address = "127.0.0.1:8765".parse().unwrap();
    let overrides = VehicleOverrides {
        pipeline: Overrides {
            foxglove: Some(address),
            ..Overrides::default()
        },
        no_publish: true,
        ..VehicleOverrides::default()
    };
    let vehicle = shipped("sedan", &overrides);
    let listens = |node: &sensorium::pipeline::Node| matches!(&node.kind, NodeKind::Publisher(PublisherSettings::Foxglove(it)) if it.address == address);
    assert_eq!(
        vehicle.pipeline.nodes.iter().filter(|node| listens(node)).count(),
        1
    );
}

#[test]
fn sensors_that_are_left_out_take_their_pipelines_with_them() {
    let only_lidar = VehicleOverrides {
        sensors: vec!["lidar_roof".into()],
        no_publish: true,
        ..VehicleOverrides::default()
    };
    let pipeline = shipped("sedan", &only_lidar).pipeline;
    let names: Vec<&str> = pipeline.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["lidar.pointcloud", "lidar.detector"]);
    assert!(pipeline.inactive.contains(&"lidar.objects".to_owned()));
    let unknown = VehicleOverrides {
        sensors: vec!["lidar_rof".into()],
        ..VehicleOverrides::default()
    };
    let error = load(&repository("config/vehicles/sedan.yaml"), &unknown).unwrap_err();
    let found = problems(&error);
    assert!(
        found.iter().any(|it| it.contains("did you mean `lidar_roof`?")),
        "{found:?}"
    );
}

#[test]
fn a_replay_is_one_source_and_live_sensors_are_one_for_each_pipeline() {
    let replay = VehicleOverrides {
        simulate_s: Some(3.0),
        ..VehicleOverrides::default()
    };
    let pipeline = shipped("sedan", &replay).pipeline;
    let sources: Vec<_> = pipeline
        .nodes
        .iter()
        .filter_map(|node| match &node.kind {
            NodeKind::Source(source) => Some((node.name.as_str(), source)),
            _ => None,
        })
        .collect();
    let [(name, source)] = sources.as_slice() else {
        panic!("{sources:?}")
    };
    assert_eq!(*name, "sensors");
    assert!(
        source
            .simulate
            .is_some_and(|drive| drive.seconds == 3.0 && drive.camera_hz == 10)
    );
    assert!(matches!(&source.topics, Topics::Listed(topics) if topics.len() == 6));
    for edge in pipeline.edges.iter().filter(|edge| edge.from == "sensors") {
        assert!(edge.to == "lidar.detector" || edge.to == "cameras.detector");
    }
    let live = shipped("sedan", &VehicleOverrides::default()).pipeline;
    let sources = live
        .nodes
        .iter()
        .filter(|node| matches!(node.kind, NodeKind::Source(_)));
    assert_eq!(sources.count(), 2);
}
