//! What is wrong with a vehicle file is told where it stands.

use sensorium::device::DeviceLayer;

use super::{Garage, KIT, load, problems, set};

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
