//! `sensorium eval`, from the outside.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

const TRUTH: &str = r#"{"stamp_ns":100,"objects":[{"label":"CAR","position_m":[10,0,0],"yaw_rad":0,"size_m":[4,2,1.5],"points":40,"velocity_mps":[2,0]},{"label":"PEDESTRIAN","position_m":[30,5,0],"yaw_rad":0,"size_m":[0.6,0.6,1.7],"points":2}]}
{"stamp_ns":200,"objects":[{"label":"CAR","position_m":[12,0,0],"yaw_rad":0,"size_m":[4,2,1.5],"points":40}]}
"#;

const DETECTIONS: &str = r#"{"stamp_ns":100,"objects":[{"label":"CAR","score":0.9,"position_m":[10.7,0,0],"yaw_rad":3.1,"size_m":[4,2,1.5],"orientation":"sign_unknown","twist":{"linear_x_mps":-2,"linear_y_mps":0,"angular_z_radps":0}}]}
{"stamp_ns":300,"objects":[]}
"#;

fn eval(folder: &Path, more: &[&str]) -> Output {
    let mut command = crate::tiny::sensorium();
    command.current_dir(folder).env("NO_COLOR", "1");
    let files = [
        "eval",
        "--detections",
        "detections.jsonl",
        "--truth",
        "truth.jsonl",
    ];
    command.args(files).args(more).output().unwrap()
}

fn folder(detections: &str, truth: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("detections.jsonl"), detections).unwrap();
    std::fs::write(folder.path().join("truth.jsonl"), truth).unwrap();
    folder
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_comparison_is_shown_as_tables_and_as_json() {
    let folder = folder(DETECTIONS, TRUTH);
    let output = eval(folder.path(), &[]);
    assert!(output.status.success(), "{output:?}");
    let shown = text(&output.stdout);
    for part in [
        "2 frames of truth, 1 of them without detections; 1 frames of detections without truth",
        "AP 1 m",
        "all 0.5 m",
        "PEDESTRIAN",
        "0.500 (2)",
        "177.6\u{b0}",
        "mean",
    ] {
        assert!(shown.contains(part), "no {part} in\n{shown}");
    }

    let output = eval(folder.path(), &["--json", "--distances", "0.5,1"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let car = &document["classes"][0];
    assert_eq!((&car["label"], &car["objects"]), (&"CAR".into(), &2.into()));
    assert_eq!(
        (&car["at"][0]["hits"], &car["at"][1]["hits"]),
        (&0.into(), &1.into())
    );
    assert_eq!(car["at"][1]["recall"], 0.5);
    assert_eq!(car["heading"]["flipped"], 1.0);
    // Backwards at -2 m/s with the heading turned round is forwards at 2 m/s.
    assert!(car["velocity"]["mean_mps"].as_f64().unwrap() < 0.1);
    assert_eq!(document["classes"][1]["ignored"], 1);
    let fewer = eval(folder.path(), &["--json", "--min-points", "1"]);
    let document: Value = serde_json::from_slice(&fewer.stdout).unwrap();
    assert_eq!(document["classes"][1]["objects"], 1);
}

#[test]
fn bad_files_are_told_with_file_and_line() {
    let good = (DETECTIONS, TRUTH);
    let bad_line = format!("{DETECTIONS}{{\"stamp_ns\":400,\"objects\":[{{\"label\":\"CAR\"}}]}}\n");
    let elsewhere = r#"{"stamp_ns":7,"objects":[]}"#;
    for (detections, truth, more, parts) in [
        (
            bad_line.as_str(),
            good.1,
            &[][..],
            &[
                "detections.jsonl, line 3: not a frame of objects: missing field",
                "position_m",
            ][..],
        ),
        (
            good.0,
            "{}",
            &[],
            &["truth.jsonl, line 1: not a frame of objects: missing field `stamp_ns`"],
        ),
        (good.0, "", &[], &["truth.jsonl has no frame"]),
        (
            elsewhere,
            good.1,
            &[],
            &[
                "no stamp of detections.jsonl is in truth.jsonl",
                "to the nanosecond",
            ],
        ),
        (
            good.0,
            good.1,
            &["--match-distance", "0"],
            &["0 m is no distance to match at"],
        ),
    ] {
        let folder = folder(detections, truth);
        let output = eval(folder.path(), more);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(output.stdout.is_empty());
        let told = text(&output.stderr);
        for part in parts {
            assert!(told.contains(part), "no {part} in\n{told}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let output = eval(folder.path(), &[]);
    assert!(
        text(&output.stderr).contains("truth.jsonl cannot be opened"),
        "{output:?}"
    );
}

#[test]
fn no_detections_at_all_is_a_result() {
    let folder = folder("", TRUTH);
    let output = eval(folder.path(), &["--json"]);
    assert!(output.status.success(), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["frames_without_detections"], 2);
    assert_eq!(document["classes"][0]["at"][1]["ap_nuscenes"], 0.0);
}
