//! `sensorium demo`, and `sensorium run` on a recorded drive, as a user runs them.

use std::path::Path;
use std::process::Output;

fn sensorium(arguments: &[&str]) -> Output {
    let mut command = crate::tiny::sensorium();
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR"));
    command.output().unwrap()
}

fn done(arguments: &[&str]) -> String {
    let output = sensorium(arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}\n{text}\n{errors}");
    text
}

fn lines(path: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn the_demo_leaves_a_report_a_recording_and_what_eval_takes() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("demo");
    let name = out.to_str().unwrap();
    let text = done(&["demo", "--seconds", "0.5", "--seed", "3", "--out", name]);
    for part in [
        "LiDAR, CenterPoint",
        "Cameras, YOLOX",
        "CAR",
        "precision",
        "deadline",
        "device busy",
        "report.html",
        "sensorium eval",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("Detection quality"));
    // A sweep from above with the three images of its moment beside it.
    assert!(page.contains("class=\"moment\"") && page.contains("data:image/png;base64"));
    assert!(page.matches("data:image/jpeg;base64").count() >= 3);
    assert_eq!(lines(&out.join("truth.jsonl")).len(), 5);
    assert_eq!(lines(&out.join("image_truth.jsonl")).len(), 3);
    let found = lines(&out.join("detections.jsonl"));
    for kind in ["objects", "detections"] {
        assert!(
            found.iter().any(|line| line[kind].is_array()),
            "no line of {kind}"
        );
    }
    let info = done(&["bag", "info", out.join("drive.mcap").to_str().unwrap()]);
    for topic in [
        "/sensing/lidar/concatenated/pointcloud",
        "/sensing/camera/front/image_raw",
        "/tf_static",
        "/ground_truth/objects",
    ] {
        assert!(info.contains(topic), "{topic} is missing in\n{info}");
    }
    let files = ["detections.jsonl", "truth.jsonl"].map(|file| out.join(file));
    let evaluated = done(&[
        "eval",
        "--detections",
        files[0].to_str().unwrap(),
        "--truth",
        files[1].to_str().unwrap(),
    ]);
    assert!(evaluated.contains("CAR"), "{evaluated}");
}

#[test]
fn a_drive_played_from_its_bag_gives_the_objects_of_the_drive_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let text = |name: &str| path(name).to_str().unwrap().to_owned();
    done(&[
        "sim",
        "--seconds",
        "0.4",
        "--seed",
        "6",
        "--out",
        &text("drive.mcap"),
    ]);
    for (pipeline, set, out) in [
        (
            "pipelines/centerpoint.yaml",
            "nodes.lidar.clock=deterministic",
            "bag.jsonl",
        ),
        (
            "pipelines/demo.yaml",
            "nodes.drive.clock=deterministic",
            "drive.jsonl",
        ),
    ] {
        let mut arguments = vec!["run", pipeline, "--set", set];
        let (bag, jsonl) = (text("drive.mcap"), text(out));
        if pipeline.contains("centerpoint") {
            arguments.extend(["--bag", &bag]);
        } else {
            arguments.extend([
                "--set",
                "nodes.drive.simulate={ seconds: 0.4, seed: 6, cameras: front, camera_hz: 5 }",
            ]);
        }
        arguments.extend(["--jsonl", &jsonl]);
        done(&arguments);
    }
    let (from_bag, mut from_drive) = (lines(&path("bag.jsonl")), lines(&path("drive.jsonl")));
    let before = from_drive.len();
    from_drive.retain(|line| line["objects"].is_array());
    assert_eq!(before - from_drive.len(), 2, "the images of the front camera");
    assert_eq!(from_bag.len(), 4);
    assert_eq!(from_bag, from_drive);
}

#[test]
fn a_folder_that_cannot_be_made_and_times_that_cannot_be_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = sensorium(&["demo", "--seconds", "0.1", "--out", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not a folder"));
    let output = sensorium(&["demo", "--seconds", "0"]);
    assert_eq!(output.status.code(), Some(2));
}
