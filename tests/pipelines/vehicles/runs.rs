//! The shipped vehicles at work, and the command.

use super::repository;
use crate::tiny::{self, outcome};

/// The shipped sedan on a simulated drive, with the shipped weights, and the shuttle's top LiDAR under another name.
#[test]
fn the_shipped_vehicles_run_on_a_simulated_drive() {
    let folder = tempfile::tempdir().unwrap();
    // Sensors, and the streams that come of them: a member of a set and the set are frames as well.
    let runs: [(&str, &[&str], &[&str], u64); 2] = [
        (
            "sedan",
            &["--sensors", "lidar_roof,camera0,camera1"],
            &[
                "/sensing/camera/front/image_raw",
                "/sensing/camera/front_left/image_raw",
                "/sensing/lidar/concatenated/pointcloud",
            ],
            3,
        ),
        (
            "shuttle",
            &[
                "--sensors",
                "lidar_top",
                "--remap",
                "/sensing/lidar/top/pointcloud:=/sensing/lidar/concatenated/pointcloud",
            ],
            &["lidars.cloud"],
            3,
        ),
    ];
    for (name, arguments, topics, streams) in runs {
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
        let frames = 5 * streams;
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

/// As on the road: sensors out of the ROS 2 graph, and results on their topics there.
#[cfg(unix)]
#[test]
fn the_shipped_vehicles_start_with_all_their_sensors_and_publishers() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    for name in ["sedan", "shuttle"] {
        let mut child = tiny::sensorium()
            .args(["run", "--format", "json", "--vehicle"])
            .arg(repository(&format!("config/vehicles/{name}.yaml")))
            .env("ZENOH_CONFIG_OVERRIDE", "connect/endpoints=[]")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = String::new();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        // The sinks are open by then.
        while !told.contains("subscribes to") {
            let Some(line) = lines.next() else {
                panic!("{name} ended: {told}");
            };
            told += &line.unwrap();
            told.push('\n');
        }
        let asked = Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status();
        assert!(asked.unwrap().success());
        // What is still told must not fill the pipe.
        told.extend(lines.map_while(Result::ok));
        assert_eq!(child.wait().unwrap().code(), Some(0), "{name}: {told}");
    }
}
