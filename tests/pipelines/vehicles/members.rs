//! Pipelines that share a vehicle: what the vehicle renames in them, and what they must agree on.

use std::path::{Path, PathBuf};

use sensorium::pipeline::{NodeKind, PipelineError, SyncSettings, Vehicle, VehicleOverrides};

use super::{load, repository};

/// The vehicle of a file with these sensors, or all of them.
fn of(path: &Path, sensors: &[&str]) -> Result<Vehicle, PipelineError> {
    let overrides = VehicleOverrides {
        sensors: sensors.iter().map(|name| (*name).to_owned()).collect(),
        ..VehicleOverrides::default()
    };
    load(path, &overrides)
}

fn syncs(vehicle: &Vehicle) -> Vec<&SyncSettings> {
    let nodes = vehicle.pipeline.nodes.iter();
    nodes
        .filter_map(|node| match &node.kind {
            NodeKind::Sync(settings) => Some(settings),
            _ => None,
        })
        .collect()
}

fn topics(settings: &SyncSettings) -> Vec<&str> {
    settings
        .members
        .iter()
        .map(|member| member.topic.as_str())
        .collect()
}

/// A folder with a vehicle of two LiDARs, of which two pipelines put sweeps together; `left` and `right` are added to the
/// pipelines, `vehicle` to the vehicle.
fn twice(left: &str, right: &str, vehicle: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let kit = folder.path().join("config/default/two");
    std::fs::create_dir_all(&kit).unwrap();
    let place = "{ x: 0.0, y: 0.0, z: 1.0, roll: 0.0, pitch: 0.0, yaw: 0.0 }";
    let sensors = format!("base_link:\n  sensor_kit_base_link: {place}\n");
    std::fs::write(kit.join("sensors_calibration.yaml"), sensors).unwrap();
    let places = format!("sensor_kit_base_link:\n  one_base_link: {place}\n  two_base_link: {place}\n");
    std::fs::write(kit.join("sensor_kit_calibration.yaml"), places).unwrap();
    for (name, added) in [("left", left), ("right", right)] {
        let text = format!(
            "pipeline: {name}\n\
             models: {{ ring: {{ type: bev_ring }} }}\n\
             nodes:\n\
             \x20 lidars: {{ kind: source, topics: [/a, /b] }}\n\
             \x20 pair: {{ kind: sync, input: lidars, policy: latest, reference: /b, members: [{{ topic: /a, sensor: lidar }}, {{ topic: /b, sensor: lidar }}] }}\n\
             \x20 cloud: {{ kind: concat, input: pair }}\n\
             \x20 detector: {{ kind: detector, model: ring, input: cloud }}\n\
             \x20 lines: {{ kind: jsonl, input: detector, path: out.jsonl }}\n\
             {added}"
        );
        std::fs::write(folder.path().join(format!("{name}.yaml")), text).unwrap();
    }
    let sensor = |name: &str| {
        format!(
            "  {name}: {{ kind: lidar, topic: /lidar/{name}, frame: {name}, rate_hz: 10, points: 1000 }}\n"
        )
    };
    let text = format!(
        "vehicle: test\nvehicle_model: car\nsensor_model: two\ncalibration: .\nsensors:\n{}{}\
         feed: {{ bag: drive.mcap }}\n{vehicle}\
         pipelines:\n\
         \x20 left: {{ file: left.yaml, sources: {{ lidars: [one, two] }} }}\n\
         \x20 right: {{ file: right.yaml, sources: {{ lidars: [one, two] }} }}\n",
        sensor("one"),
        sensor("two"),
    );
    std::fs::write(folder.path().join("drive.mcap"), "").unwrap();
    let path = folder.path().join("car.yaml");
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

fn refused(path: &Path) -> Vec<String> {
    let error = of(path, &[]).unwrap_err();
    error
        .problems()
        .iter()
        .map(|problem| problem.to_record().message)
        .collect()
}

#[test]
fn members_of_sets_are_the_sensors_that_are_played_in_their_place() {
    let file = repository("config/vehicles/shuttle.yaml");
    let all = of(&file, &[]).unwrap();
    assert_eq!(
        topics(syncs(&all)[0]),
        [
            "/sensing/lidar/top/pointcloud",
            "/sensing/lidar/left/pointcloud",
            "/sensing/lidar/right/pointcloud"
        ]
    );
    let two = of(&file, &["lidar_top", "lidar_right"]).unwrap();
    assert_eq!(
        topics(syncs(&two)[0]),
        ["/sensing/lidar/top/pointcloud", "/sensing/lidar/right/pointcloud"]
    );
}

#[test]
fn a_reference_that_is_left_out_gives_way_to_the_first_member() {
    let (_folder, path) = twice("", "", "");
    let reference = |vehicle: &Vehicle| format!("{:?}", syncs(vehicle)[0].policy);
    let both = of(&path, &[]).unwrap();
    assert!(reference(&both).contains("reference: 1"), "{}", reference(&both));
    let one = of(&path, &["one"]).unwrap();
    assert!(reference(&one).contains("reference: 0"), "{}", reference(&one));
    assert_eq!(topics(syncs(&one)[0]), ["/lidar/one"]);
}

#[test]
fn streams_of_two_pipelines_with_the_same_nodes_keep_apart() {
    let (_folder, path) = twice("", "", "");
    let vehicle = of(&path, &[]).unwrap();
    let mut streams: Vec<&str> = Vec::new();
    for node in &vehicle.pipeline.nodes {
        match &node.kind {
            NodeKind::Sync(settings) => streams.push(&settings.stream),
            NodeKind::Concat(settings) => streams.push(&settings.stream),
            _ => {}
        }
    }
    streams.sort_unstable();
    assert_eq!(streams, ["left.cloud", "left.pair", "right.cloud", "right.pair"]);
}

#[test]
fn streams_that_are_called_alike_are_refused() {
    let (folder, path) = twice("", "", "");
    for name in ["left", "right"] {
        let file = folder.path().join(format!("{name}.yaml"));
        let text = std::fs::read_to_string(&file).unwrap();
        let named = text.replace("kind: concat,", "kind: concat, stream: all,");
        std::fs::write(&file, named).unwrap();
    }
    assert_eq!(
        refused(&path),
        ["`left.cloud` and `right.cloud` name their streams all"]
    );
}

#[test]
fn faults_of_every_pipeline_keep_their_actors() {
    let fault = |actor: &str| {
        format!("supervision: {{ limit: 2, fault: [{{ actor: {actor}, kind: panic, nth: 1 }}] }}\n")
    };
    let (_folder, path) = twice(&fault("detector/prepare"), &fault("lidars"), "");
    let supervision = of(&path, &[]).unwrap().pipeline.supervision;
    let actors: Vec<&str> = supervision
        .fault
        .iter()
        .map(|fault| fault.actor.as_str())
        .collect();
    // The two sources play the same and become one.
    assert_eq!(actors, ["left.detector/prepare", "sensors"]);
    assert_eq!(supervision.limit, 2);
}

#[test]
fn supervision_is_that_of_the_vehicle_or_one_that_its_pipelines_agree_on() {
    let (left, right) = (
        "supervision: { limit: 2 }\n",
        "supervision: { watchdog_ms: 7000 }\n",
    );
    let (_folder, path) = twice(left, right, "");
    let supervision = of(&path, &[]).unwrap().pipeline.supervision;
    assert_eq!((supervision.limit, supervision.watchdog_ms), (2, 7_000));

    let (_folder, path) = twice(left, "supervision: { limit: 5 }\n", "");
    assert_eq!(
        refused(&path),
        ["`supervision.limit` is not the same in all pipelines of the vehicle"]
    );

    let (_folder, path) = twice(left, "supervision: { limit: 5 }\n", "supervision: { limit: 9 }\n");
    assert_eq!(of(&path, &[]).unwrap().pipeline.supervision.limit, 9);

    let fault = "supervision: { fault: [{ actor: left.lines, kind: fail, nth: 1 }] }\n";
    let (_folder, path) = twice("", "", fault);
    assert_eq!(refused(&path), ["faults of actors are not those of a vehicle"]);
}
