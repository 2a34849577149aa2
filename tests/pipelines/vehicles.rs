//! Vehicle files: what they say, what is wrong with them, what they become, and what they need.

use crate::tiny;
use std::env::VarError;
use std::path::{Path, PathBuf};

use sensorium::device::DeviceLayer;
use sensorium::pipeline::{
    NodeKind, Overrides, PipelineError, Topics, Vehicle, VehicleOverrides, VehicleSensorKind, vehicle_schema,
};
use sensorium::runtime::{Budget, Footprint};
use tiny::outcome;

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

/// A file of the sedan, a text in it, what takes its place, and what must be told.
const MISTAKES: [(&str, &str, &str, &[&str]); 23] = [
    (
        "vehicles/sedan.yaml",
        "vehicle_model: sedan",
        "vehicle_modl: sedan",
        &["sedan.yaml:", "in the vehicle", "did you mean `vehicle_model`?"],
    ),
    (
        "vehicles/sedan.yaml",
        "kind: lidar",
        "kind: lidr",
        &[
            "`sensors.lidar_roof.kind` cannot be `lidr`",
            "did you mean `lidar`?",
        ],
    ),
    (
        "vehicles/sedan.yaml",
        "points: 130000",
        "points: 0",
        &["`sensors.lidar_roof.points` cannot be 0", "from 1 to 100000000"],
    ),
    (
        "vehicles/sedan.yaml",
        "frame: lidar_roof",
        "frame: lidar_rof",
        &["does not place the frame `lidar_rof`"],
    ),
    (
        "vehicles/sedan.yaml",
        "topic: /sensing/camera/front_left/image_raw",
        "topic: /sensing/camera/front/image_raw",
        &["`camera1` has the topic of `camera0`"],
    ),
    (
        "vehicles/sedan.yaml",
        "pointcloud: [lidar_roof]",
        "pointcloud: [lidar_root]",
        &["there is no sensor `lidar_root`", "did you mean `lidar_roof`?"],
    ),
    (
        "vehicles/sedan.yaml",
        "pointcloud: [lidar_roof]",
        "pointclod: [lidar_roof]",
        &["has no source `pointclod`", "did you mean `pointcloud`?"],
    ),
    (
        "vehicles/sedan.yaml",
        "pointcloud: [lidar_roof]",
        "pointcloud: [lidar_roof, camera0]",
        &["`camera0` sends images", "its detectors take point clouds"],
    ),
    (
        "vehicles/sedan.yaml",
        "models.yolox.max_streams: 5",
        "models.yolo.max_streams: 5",
        &["`models` has no `yolo`", "did you mean `yolox`?"],
    ),
    (
        "vehicles/sedan.yaml",
        "models.yolox.max_streams: 5",
        "models.yolox.max_streams: lots",
        &["sedan.yaml:", "cannot be the text \"lots\"", "from 1 to 1024"],
    ),
    (
        "vehicles/sedan.yaml",
        "/lidar_centerpoint.yaml",
        "/lidar_centrepoint.yaml",
        &["lidar_centrepoint.yaml cannot be read"],
    ),
    (
        "vehicles/sedan.yaml",
        "calibration: ../individual_params",
        "calibration: ../params",
        &[
            "sensors_calibration.yaml cannot be read",
            "this vehicle's calibration",
        ],
    ),
    (
        "vehicles/sedan.yaml",
        "${VEHICLE_ID:-default}",
        "\"../default\"",
        &["`vehicle_id` cannot be", "the name of a folder"],
    ),
    (
        "vehicles/sedan.yaml",
        "feed: { subscribe: ros2 }",
        "feed: { subscribe: ros2, bag: x.mcap }",
        &["expected one of `subscribe`, `bag` and `simulate`"],
    ),
    (
        "vehicles/sedan.yaml",
        "      nodes.objects.topic: ~/rois/{stream}\n",
        "",
        &[],
    ),
    (
        "vehicles/sedan.yaml",
        "nodes.objects.topic: ~/rois/{stream}",
        "nodes.objects.topic: ~/output/objects",
        &["both publish on ~/output/objects", "nodes.objects.topic"],
    ),
    (
        "vehicles/sedan.yaml",
        "lidar:\n    file",
        "sensors:\n    file",
        &["a pipeline of a vehicle cannot be called `sensors`"],
    ),
    (
        "individual_params/config/default/five_cameras_one_lidar/sensor_kit_calibration.yaml",
        "lidar_roof_base_link: { x: 0.0,",
        "lidar_roof_base_link: { y: 0.0,",
        &["sensor_kit_calibration.yaml:3:", "is there twice"],
    ),
    (
        "individual_params/config/default/five_cameras_one_lidar/sensor_kit_calibration.yaml",
        "yaw: 1.5712",
        "yaw: 90",
        &["cannot be 90", "from -6.3 to 6.3"],
    ),
    (
        "individual_params/config/default/five_cameras_one_lidar/sensor_kit_calibration.yaml",
        "  camera0/camera_link:",
        "  sensor_kit_base_link: { x: 0.0, y: 0.0, z: 0.0, roll: 0.0, pitch: 0.0, yaw: 0.0 }\n  camera0/camera_link:",
        &[
            "the frame `sensor_kit_base_link` has two parents",
            "sensors_calibration.yaml:3:",
        ],
    ),
    (
        "individual_params/config/default/five_cameras_one_lidar/sensors_calibration.yaml",
        "base_link:\n",
        "map:\n",
        &["does not hang below `base_link`", "its topmost frame is `map`"],
    ),
    (
        "individual_params/config/default/five_cameras_one_lidar/camera0.yaml",
        "image_width: 1280",
        "image_width: 1920",
        &["camera0.yaml:1:", "1920 x 720", "the camera sends 1280 x 720"],
    ),
    (
        "individual_params/config/default/five_cameras_one_lidar/camera0.yaml",
        "plumb_bob",
        "equidistant",
        &[
            "`distortion_coefficients` is 1 x 5",
            "expected 1 x 4 for `equidistant`",
        ],
    ),
];

#[test]
fn every_mistake_is_told_where_it_stands_and_what_was_expected() {
    for (file, from, to, told) in MISTAKES {
        let garage = Garage::new();
        garage.change(file, from, to);
        let error = match garage.load() {
            // A change that is none: the harness itself is right.
            Ok(_) => {
                assert!(told.is_empty(), "{to:?} was taken");
                continue;
            }
            Err(error) => error,
        };
        let found = problems(&error).join("\n");
        for part in told {
            assert!(found.contains(part), "{to:?}: {part:?} is not in\n{found}");
        }
        assert!(!told.is_empty(), "{to:?}: {found}");
    }
}

#[test]
fn frames_that_go_round_in_a_circle_are_told_and_end() {
    let garage = Garage::new();
    let file = format!("{KIT}/sensors_calibration.yaml");
    garage.change(
        &file,
        "base_link:\n  sensor_kit_base_link:",
        "lidar_roof_base_link:\n  sensor_kit_base_link:",
    );
    let found = problems(&garage.load().unwrap_err()).join("\n");
    assert!(found.contains("go round in a circle"), "{found}");
}

#[test]
fn settings_of_the_device_that_contradict_each_other_name_both_places() {
    let garage = Garage::new();
    garage.change(
        "vehicles/sedan.yaml",
        "device: { backend: cpu, threads: auto, queues: 2, arena_mib: 768 }",
        "",
    );
    // The two pipelines say the same but for the memory, which one of them leaves open.
    let vehicle = garage.load().unwrap();
    assert_eq!(
        vehicle
            .pipeline
            .device
            .config(&DeviceLayer::default())
            .arena_bytes,
        512 << 20
    );
    let path = garage.path("config/vehicles/sedan.yaml");
    let error = load(&path, &set(&[("cameras.device.arena_mib", "256")])).unwrap_err();
    let found = problems(&error);
    let [problem] = found.as_slice() else {
        panic!("{found:?}")
    };
    for part in [
        "`device.arena_mib` is not the same",
        "lidar_centerpoint.yaml:17:",
        "say `device.arena_mib` in the vehicle file",
    ] {
        assert!(problem.contains(part), "{part}: {problem}");
    }
}

#[test]
fn what_cannot_fit_is_refused_with_what_to_change() {
    let findings = |changes: &[(&str, &str)]| {
        let budget = Budget::new(&shipped("sedan", &set(changes)), None);
        let fits = budget.fits();
        let lines = budget
            .findings
            .iter()
            .map(|it| format!("{}; {}", it.message, it.help));
        (fits, lines.collect::<Vec<_>>().join("\n"))
    };
    assert_eq!(findings(&[]), (true, String::new()));
    // What is set, and what is found then.
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);
    let cases: [Case<'_>; 5] = [
        (
            &[("cameras.models.yolox.max_streams", "4")],
            &[
                "fed with 5 streams",
                "room for 4",
                "models.yolox.max_streams to 5",
            ],
        ),
        (
            &[
                ("pipelines.lidar.expected_ms", "{ detector: 60 }"),
                ("pipelines.cameras.expected_ms", "{ detector: 9 }"),
            ],
            &["busy for 105 % of the time"],
        ),
        (
            &[("limits.memory_gb_s", "0.2")],
            &["through memory", "limits.memory_gb_s"],
        ),
        (
            &[("limits.host_mib", "16")],
            &["MiB of host memory", "limits.host_mib"],
        ),
        (
            &[("sensors.camera0.rate_hz", "1000"), ("limits.memory_gb_s", "5")],
            &["GB/s through memory"],
        ),
    ];
    for (changes, told) in cases {
        let (fits, found) = findings(changes);
        assert!(!fits, "{changes:?}");
        for part in told {
            assert!(found.contains(part), "{changes:?}: {part:?} is not in {found}");
        }
    }
    // Nearly all of the device's time is worth a word, and so is a frame that is late before it begins.
    let (fits, found) = findings(&[
        ("pipelines.lidar.expected_ms", "{ detector: 50 }"),
        ("pipelines.cameras.expected_ms", "{ detector: 9 }"),
        ("lidar.nodes.pointcloud.deadline_ms", "40"),
    ]);
    assert!(
        fits && found.contains("95 %") && found.contains("deadline of 40 ms"),
        "{found}"
    );
}

/// By hand, from the numbers of the vehicle file.
#[test]
fn bytes_are_added_up_as_the_sensors_send_them() {
    let budget = Budget::new(&shipped("sedan", &VehicleOverrides::default()), None);
    let sent = 10.0 * (130_000.0 * 16.0) + 5.0 * 10.0 * (1_280.0 * 720.0 * 3.0);
    assert!((budget.sensor_bytes_per_s - sent).abs() < 1.0);
    assert!((budget.memory_bytes_per_s - 2.0 * sent).abs() < 1.0);
    // LiDAR: 1 in front of prepare, 2 and 2 around the device, 1 to the publisher; 2 workers; 2 on the device.
    // Cameras: 5, 4 and 2, 5; 3 workers; 2.
    let queued = (6 + 2 + 2) * 130_000 * 16 + (16 + 3 + 2) * 1_280 * 720 * 3;
    assert_eq!(budget.queue_bytes, queued);
    let seconds: Vec<f64> = budget.detectors.iter().map(|it| it.frames_per_s).collect();
    assert_eq!(seconds, [10.0, 50.0]);
}

#[test]
fn a_footprint_is_what_the_device_holds_and_says_how_much_is_enough() {
    let only_lidar = |mib: &str| {
        let mut overrides = set(&[("device.arena_mib", mib)]);
        overrides.sensors = vec!["lidar_roof".into()];
        shipped("sedan", &overrides)
    };
    let vehicle = only_lidar("16");
    let footprint = Footprint::measure(&vehicle.pipeline, &DeviceLayer::default()).unwrap();
    assert_eq!(footprint.arena_bytes, 16 << 20);
    assert!(footprint.enough_bytes > footprint.arena_bytes);
    assert!(footprint.used_bytes <= footprint.enough_bytes);
    let [model] = footprint.models.as_slice() else {
        panic!("{footprint:?}")
    };
    assert!(model.device_bytes <= footprint.used_bytes && model.input_bytes > 0 && model.output_bytes > 0);
    // As a run makes them: 2 places, a worker and 2 flights before the device, 2 places and one more behind it.
    let slot_bytes = (5 * model.input_bytes + 3 * model.output_bytes) as u64;
    let enough = (footprint.enough_bytes >> 20).to_string();
    let budget = Budget::new(&vehicle, Some(footprint));
    assert_eq!(budget.slot_bytes, Some(slot_bytes));
    assert!(!budget.fits());
    assert!(
        budget.findings[0]
            .help
            .contains(&format!("arena_mib: {enough} is enough"))
    );
    // What it says is true: with so much, the same is held, and it fits.
    let vehicle = only_lidar(&enough);
    let again = Footprint::measure(&vehicle.pipeline, &DeviceLayer::default()).unwrap();
    assert_eq!(again.enough_bytes, again.arena_bytes);
    assert!(Budget::new(&vehicle, Some(again)).fits());
}

/// The shipped sedan on a simulated drive, with the shipped weights, and the shuttle's top LiDAR under another name.
#[test]
fn the_shipped_vehicles_run_on_a_simulated_drive() {
    let folder = tempfile::tempdir().unwrap();
    let runs: [(&str, &[&str], &[&str]); 2] = [
        (
            "sedan",
            &["--sensors", "lidar_roof,camera0,camera1"],
            &[
                "/sensing/camera/front/image_raw",
                "/sensing/camera/front_left/image_raw",
                "/sensing/lidar/concatenated/pointcloud",
            ],
        ),
        (
            "shuttle",
            &[
                "--sensors",
                "lidar_top",
                "--remap",
                "/sensing/lidar/top/pointcloud:=/sensing/lidar/concatenated/pointcloud",
            ],
            &["/sensing/lidar/concatenated/pointcloud"],
        ),
    ];
    for (name, arguments, topics) in runs {
        let lines = folder.path().join(format!("{name}.jsonl"));
        let mut command = tiny::sensorium();
        command
            .arg("run")
            .arg("--vehicle")
            .arg(repository(&format!("config/vehicles/{name}.yaml")))
            .args([
                "--simulate",
                "0.5",
                "--no-publish",
                "--rate",
                "max",
                "--format",
                "json",
            ])
            .args(
                ["--set", "lidar.channels.default.on_full=block"]
                    .map(|it| it.replace("lidar.", if name == "shuttle" { "lidars." } else { "lidar." })),
            )
            .args(if name == "sedan" {
                &["--set", "cameras.channels.default.on_full=block"][..]
            } else {
                &[]
            })
            .arg("--jsonl")
            .arg(&lines)
            .args(arguments);
        let run = outcome(&mut command);
        assert_eq!(run.code, Some(0), "{run:?}");
        let frames = 5 * topics.len() as u64;
        assert_eq!(run.frames(), [frames, frames, 0, 0], "{run:?}");
        let found = tiny::json_lines(&std::fs::read_to_string(&lines).unwrap());
        let mut streams: Vec<&str> = found
            .iter()
            .map(|line| line["stream"].as_str().unwrap())
            .collect();
        streams.sort_unstable();
        streams.dedup();
        let named = |topic: &&str| streams.iter().any(|stream| stream.ends_with(topic));
        assert!(
            topics.iter().all(named) && streams.len() == topics.len(),
            "{streams:?}"
        );
    }
}

#[test]
fn the_command_explains_a_vehicle_and_refuses_one_that_cannot_run() {
    let check = |arguments: &[&str]| {
        let mut command = tiny::sensorium();
        let file = repository("config/vehicles/sedan.yaml");
        outcome(
            command
                .args(["check", "--no-models", "--vehicle"])
                .arg(file)
                .args(arguments),
        )
    };
    let good = check(&[]);
    assert_eq!(good.code, Some(0), "{good:?}");
    for part in [
        "lidar_roof",
        "cameras.detector",
        "1280 x 720 rgb8, calibrated",
        "through memory",
        "0.85, 0.00, 1.90",
    ] {
        assert!(good.out.contains(part), "{part}: {}", good.out);
    }
    let bad = check(&["--set", "cameras.models.yolox.max_streams=2", "--format", "json"]);
    assert_eq!(bad.code, Some(1));
    let document = bad.summary();
    assert_eq!(document["ok"], false);
    assert_eq!(document["budget"]["findings"][0]["is_error"], true);
    let graph = {
        let mut command = tiny::sensorium();
        outcome(
            command
                .args(["graph", "--vehicle"])
                .arg(repository("config/vehicles/shuttle.yaml")),
        )
    };
    assert!(
        graph.out.starts_with("flowchart") && graph.out.contains("lidars.detector"),
        "{graph:?}"
    );
    let both = outcome(tiny::sensorium().args(["check", "a.yaml", "--vehicle", "b.yaml"]));
    assert_eq!(both.code, Some(2));
    // Without weights, it is told which are missing.
    let missing = check(&["--set", "cameras.models.yolox.weights=''"]);
    assert_eq!(missing.code, Some(0));
    assert!(
        missing.told.contains("the model `yolox` has no weights yet"),
        "{missing:?}"
    );
}
