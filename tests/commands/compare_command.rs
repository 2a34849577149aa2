//! `sensorium compare`, from the outside.

use crate::support;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use sensorium::accuracy::save_goldens;
use sensorium::tensor::HostTensor;
use sensorium::weights::NpzCompression;
use serde_json::{Value, json};

const BOXES: &str = r#"{"stream":"front","seq":0,"stamp_ns":5,"detections":[{"label":"CAR","label_id":0,"score":0.9,"box_xyxy":[0,0,10,10]},{"label":"BUS","label_id":1,"score":0.8,"box_xyxy":[20,0,40,10]}]}
{"stream":"rear","seq":0,"stamp_ns":5,"detections":[{"label":"CAR","label_id":0,"score":0.7,"box_xyxy":[0,0,10,10]}]}
"#;
const OBJECTS: &str = r#"{"stream":"lidar","seq":0,"stamp_ns":7,"objects":[{"label":"CAR","score":0.9,"position_m":[10,0,0],"yaw_rad":0,"size_m":[4,2,1.5]},{"label":"CAR","score":0.6,"position_m":[30,4,0],"yaw_rad":0,"size_m":[4,2,1.5]}]}
"#;

fn compare(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = crate::tiny::sensorium();
    command.current_dir(folder).env("NO_COLOR", "1");
    command.arg("compare").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn write(folder: &Path, file: &str, contents: &str) {
    std::fs::write(folder.join(file), contents).unwrap();
}

fn archive(folder: &Path, file: &str, arrays: &[(&str, &[f32])]) {
    let tensors: BTreeMap<String, HostTensor> = arrays
        .iter()
        .map(|(name, values)| {
            let tensor = HostTensor::from_slice(&[values.len()], values).unwrap();
            ((*name).to_owned(), tensor)
        })
        .collect();
    let meta = Some(json!({"model": "net"}));
    save_goldens(&folder.join(file), &tensors, meta, NpzCompression::Stored).unwrap();
}

/// The rows of a report by name: value, and whether it passed.
fn rows(document: &Value) -> BTreeMap<String, (Option<f64>, Option<bool>)> {
    let rows = document["rows"].as_array().unwrap().iter();
    rows.map(|row| {
        let name = row["name"].as_str().unwrap().to_owned();
        (name, (row["value"].as_f64(), row["passed"].as_bool()))
    })
    .collect()
}

#[test]
fn arrays_are_compared_by_name_and_gates_decide_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    archive(
        folder,
        "golden.npz",
        &[("a", &[1.0, 2.0, 3.0]), ("b", &[4.0, 4.5, 7.0]), ("c", &[1.0])],
    );
    archive(
        folder,
        "run.npz",
        &[("a", &[1.0, 2.0, 3.0]), ("b", &[4.0, 4.5, 7.25])],
    );
    let told = compare(folder, &["run.npz", "golden.npz"]);
    assert!(told.status.success(), "{told:?}");
    let shown = text(&told.stdout);
    for part in ["run.npz beside golden.npz", "pcc", "0.25", "no gates"] {
        assert!(shown.contains(part), "no {part} in\n{shown}");
    }

    write(folder, "gates.yaml", "a: 0.999\nb: [0.25, max, max_abs]\n");
    let passed = compare(folder, &["run.npz", "golden.npz", "--gates", "gates.yaml"]);
    assert_eq!(passed.status.code(), Some(0), "{passed:?}");
    assert!(text(&passed.stdout).contains("all 2 gates passed"));

    // A looser value, a missing array: each fails.
    write(
        folder,
        "gates.json",
        r#"{"b": [0.2, "max", "max_abs"], "c": 0.9}"#,
    );
    let failed = compare(
        folder,
        &[
            "run.npz",
            "golden.npz",
            "--gates",
            "gates.json",
            "--format",
            "json",
        ],
    );
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    assert!(failed.stderr.is_empty());
    let document: Value = serde_json::from_slice(&failed.stdout).unwrap();
    assert_eq!(
        (&document["passed"], &document["meta"]["model"]),
        (&json!(false), &json!("net"))
    );
    let rows = rows(&document);
    assert_eq!(rows["a"], (Some(1.0), None));
    assert_eq!(rows["b"], (Some(0.25), Some(false)));
    assert_eq!(rows["c"], (None, Some(false)));

    let mean = compare(
        folder,
        &[
            "run.npz",
            "golden.npz",
            "--metric",
            "mean_abs",
            "--format",
            "json",
        ],
    );
    let document: Value = serde_json::from_slice(&mean.stdout).unwrap();
    assert_eq!(document["rows"][1]["value"], json!(0.25 / 3.0));
}

#[test]
fn archives_that_numpy_wrote_are_compared() {
    let Some(python) = std::env::var_os("SENSORIUM_TEST_PYTHON") else {
        println!("skipped: needs Python peers; set SENSORIUM_TEST_PYTHON (see docs/TESTING.md)");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let script = "import numpy as np\n\
        x = np.arange(24, dtype=np.float64).reshape(2, 3, 4)\n\
        np.savez('golden.npz', x=x, labels=np.array([1, 2, 3, 4]))\n\
        np.savez_compressed('run.npz', x=np.asfortranarray(x.astype(np.float16)), labels=np.array([1, 2, 0, 4], np.uint8))\n";
    support::run(
        Command::new(python)
            .current_dir(folder.path())
            .args(["-c", script]),
    );
    write(
        folder.path(),
        "gates.yaml",
        "x: 1\nlabels: [0.75, min, label_agreement]\n",
    );
    let told = compare(
        folder.path(),
        &[
            "run.npz",
            "golden.npz",
            "--gates",
            "gates.yaml",
            "--format",
            "json",
        ],
    );
    assert!(told.status.success(), "{told:?}");
    let document: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(document["rows"][0]["value"], json!(0.75));
}

#[test]
fn detections_are_matched_by_stream_and_stamp() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(folder, "golden.jsonl", &format!("{BOXES}{OBJECTS}"));
    // The bus moved by half its length, one car of the road by 0.3 m, the other one is gone.
    let moved = format!("{BOXES}{OBJECTS}")
        .replace("[20,0,40,10]", "[25,0,40,10]")
        .replace("[10,0,0]", "[10,0.3,9]")
        .replace(
            "\"score\":0.6,\"position_m\":[30",
            "\"score\":0.6,\"position_m\":[33",
        );
    write(folder, "run.jsonl", &moved);
    let gates = "objects.recall: 0.5\nobjects.center_err_max: 0.31\nboxes.recall: 1\nboxes.iou_min: 0.7\nboxes.score_err_max: 0\n";
    write(folder, "gates.yaml", gates);
    let told = compare(
        folder,
        &[
            "run.jsonl",
            "golden.jsonl",
            "--gates",
            "gates.yaml",
            "--format",
            "json",
        ],
    );
    assert_eq!(told.status.code(), Some(0), "{told:?}");
    let document: Value = serde_json::from_slice(&told.stdout).unwrap();
    let rows = rows(&document);
    assert_eq!(rows.len(), 10);
    assert_eq!(rows["objects.recall"], (Some(0.5), Some(true)));
    assert_eq!(rows["objects.precision"].0, Some(0.5));
    assert!((rows["objects.center_err_max"].0.unwrap() - 0.3).abs() < 1e-12);
    assert_eq!(rows["boxes.precision"].0, Some(1.0));
    assert!((rows["boxes.iou_min"].0.unwrap() - 0.75).abs() < 1e-12);
    assert!((rows["boxes.iou"].0.unwrap() - 2.75 / 3.0).abs() < 1e-12);

    // Tighter limits match less; a gate on it fails.
    let strict = [
        "run.jsonl",
        "golden.jsonl",
        "--gates",
        "gates.yaml",
        "--min-overlap",
        "0.8",
        "--max-distance",
        "0.2",
    ];
    let told = compare(folder, &strict);
    assert_eq!(told.status.code(), Some(1));
    let shown = text(&told.stdout);
    assert!(
        shown.contains("FAILED") && shown.contains("boxes.recall"),
        "{shown}"
    );

    // A frame that is missing is missed, one that is too much is a false alarm.
    write(folder, "front.jsonl", BOXES.lines().next().unwrap());
    let told = compare(folder, &["front.jsonl", "golden.jsonl", "--format", "json"]);
    let document: Value = serde_json::from_slice(&told.stdout).unwrap();
    let found = self::rows(&document);
    assert!((found["boxes.recall"].0.unwrap() - 2.0 / 3.0).abs() < 1e-12);
    assert_eq!(
        (found["boxes.precision"].0, found["objects.recall"].0),
        (Some(1.0), Some(0.0))
    );
    assert_eq!(found["objects.center_err_max"].0, None);

    // A gate on what neither side has fails.
    write(folder, "other.yaml", "objects.recall: 0.5\n");
    let told = compare(folder, &["front.jsonl", "front.jsonl", "--gates", "other.yaml"]);
    assert_eq!(told.status.code(), Some(1));
    assert!(
        text(&told.stdout).contains("objects.recall: neither side has"),
        "{}",
        text(&told.stdout)
    );
}

#[test]
fn what_cannot_be_compared_is_said_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    archive(folder, "a.npz", &[("a", &[1.0, 2.0])]);
    archive(folder, "b.npz", &[("b", &[1.0, 2.0])]);
    write(folder, "lines.jsonl", OBJECTS);
    write(folder, "empty.jsonl", "\n");
    write(folder, "broken.jsonl", "{\"stamp_ns\": 5}\n");
    write(folder, "broken.npz", "PK no archive");
    write(folder, "word.yaml", "a: high\n");
    write(folder, "unknown.yaml", "a: {threshold: 1, metric: cosine}\n");
    write(folder, "wrong.yaml", "a: [1, max]\n");
    write(folder, "name.yaml", "boxes.recal: [0.5, min]\n");
    write(folder, "recall.yaml", "a: [0.5, min, recall]\n");
    for (arguments, parts) in [
        (
            &["none.npz", "a.npz"][..],
            ["none.npz cannot be read", "No such file"],
        ),
        (
            &["a.npz", "b.npz"],
            ["a.npz and b.npz have no array in common", "by name"],
        ),
        (
            &["a.npz", "lines.jsonl"],
            ["a.npz holds arrays and lines.jsonl JSON lines", "two .npz files"],
        ),
        (
            &["lines.jsonl", "a.npz"],
            ["a.npz holds arrays and lines.jsonl JSON lines", "two .npz files"],
        ),
        (
            &["empty.jsonl", "lines.jsonl"],
            ["empty.jsonl has neither", "JSON lines"],
        ),
        (
            &["broken.jsonl", "lines.jsonl"],
            ["broken.jsonl, line 1", "objects"],
        ),
        (
            &["broken.npz", "a.npz"],
            ["broken.npz cannot be used as arrays", "numpy.savez"],
        ),
        (
            &["a.npz", "a.npz", "--gates", "none.yaml"],
            ["none.yaml cannot be read", "No such file"],
        ),
        (
            &["a.npz", "a.npz", "--gates", "word.yaml"],
            ["word.yaml holds no gates", "name: 0.99"],
        ),
        (
            &["a.npz", "a.npz", "--gates", "unknown.yaml"],
            ["gate a of unknown.yaml", "say min or max"],
        ),
        (
            &["a.npz", "a.npz", "--gates", "wrong.yaml"],
            ["gate a of wrong.yaml", "good side of pcc is min"],
        ),
        (
            &["lines.jsonl", "lines.jsonl", "--gates", "name.yaml"],
            ["gate boxes.recal of name.yaml", "boxes.recall"],
        ),
        (
            &["a.npz", "a.npz", "--gates", "recall.yaml"],
            ["no metric of two arrays", "rel_l2"],
        ),
    ] {
        let told = compare(folder, arguments);
        assert_eq!(told.status.code(), Some(1), "{arguments:?}");
        assert!(told.stdout.is_empty(), "{arguments:?}");
        let said = text(&told.stderr);
        for part in parts {
            assert!(said.contains(part), "{arguments:?}: no {part} in\n{said}");
        }
    }
    for (option, value) in [
        ("--metric", "masked_pcc"),
        ("--metric", "cosine"),
        ("--min-overlap", "2"),
        ("--max-distance", "-1"),
        ("--max-distance", "nan"),
    ] {
        let told = compare(folder, &["a.npz", "a.npz", option, value]);
        assert_eq!(told.status.code(), Some(2), "{option} {value}: {told:?}");
    }
}
