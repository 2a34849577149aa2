//! `sensorium model bench`, from the outside. Nothing here depends on how long anything takes.

use crate::support;
use crate::unknown;
use std::path::{Path, PathBuf};
use std::process::Output;

fn bench(file: &Path, more: &[&str]) -> Output {
    crate::tiny::sensorium()
        .args(["model", "bench"])
        .arg(file)
        .args(more)
        .env_remove("SENSORIUM_TEST_PYTHON")
        .output()
        .unwrap()
}

/// A Python that has ONNX Runtime.
fn python() -> Option<PathBuf> {
    support::oracle("").map(|command| command.get_program().into())
}

fn told(output: &Output) -> String {
    assert!(!output.status.success());
    assert!(
        output.stdout.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    // Long lines are broken at the width of the terminal.
    let text = String::from_utf8_lossy(&output.stderr).replace('│', " ");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_configuration_has_a_row_whose_parts_make_its_total() {
    let Some(path) = support::data("models/FastestDet_352.onnx") else {
        return;
    };
    let output = bench(&path, &["--threads", "1,2", "--runs", "2", "--format", "json"]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = found["rows"].as_array().unwrap();
    let settings: Vec<_> = rows
        .iter()
        .map(|row| (row["storage"].as_str().unwrap(), row["threads"].as_u64().unwrap()))
        .collect();
    assert_eq!(settings, [("f32", 1), ("f32", 2), ("bf16", 1), ("bf16", 2)]);
    assert_eq!(found["runs"], 2);
    assert!(found.get("onnx_runtime_version").is_none());
    for row in rows {
        let part = |name: &str| row[name]["fastest_ms"].as_f64().unwrap();
        let total = part("total");
        let sum = part("upload") + part("replay") + part("read");
        assert!(part("replay") > 0.0 && sum <= total * 1.000_001, "{row}");
        assert!(total <= row["total"]["median_ms"].as_f64().unwrap());
        assert!(
            row["device"].as_str().unwrap().contains("thread(s), bf16 "),
            "{row}"
        );
        assert!(row.get("onnx_runtime").is_none() && row.get("ratio_median").is_none());
    }
}

#[test]
fn onnx_runtime_stands_beside_where_there_is_a_python_with_it() {
    let (Some(path), Some(python)) = (support::data("models/FastestDet_352.onnx"), python()) else {
        return;
    };
    let python = python.to_str().unwrap();
    let arguments = [
        "--threads",
        "1",
        "--storage",
        "f32",
        "--runs",
        "3",
        "--python",
        python,
    ];
    let output = bench(&path, &[&arguments[..], &["--format", "json"]].concat());
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = &found["rows"][0];
    let ours = row["total"]["median_ms"].as_f64().unwrap();
    let theirs = row["onnx_runtime"]["median_ms"].as_f64().unwrap();
    let ratio = row["ratio_median"].as_f64().unwrap();
    assert!(
        theirs > 0.0 && (ratio - ours / theirs).abs() < 1e-9 * ratio,
        "{row}"
    );

    let output = bench(&path, &arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    let version = found["onnx_runtime_version"].as_str().unwrap();
    assert!(
        text.contains(&format!("beside ONNX Runtime {version} in fp32")),
        "{text}"
    );
    assert!(text.contains("ratio") && text.contains("f32"), "{text}");
}

#[test]
fn what_cannot_be_timed_is_told() {
    let missing = bench(Path::new("no/such.onnx"), &[]);
    assert!(told(&missing).contains("no/such.onnx cannot be read as a model"));

    let threads = told(&bench(Path::new("no/such.onnx"), &["--threads", "0"]));
    assert!(threads.contains("0 is not in 1..=256"), "{threads}");
    let storage = told(&bench(Path::new("no/such.onnx"), &["--storage", "f16"]));
    assert!(storage.contains("possible values: f32, bf16"), "{storage}");

    let (_folder, unknown) = unknown::unknown_operation();
    let refused = told(&bench(&unknown, &[]));
    assert!(
        refused.contains("cannot be run on the device") && refused.contains("Frobnicate"),
        "{refused}"
    );
    let Some(path) = support::data("models/FastestDet_352.onnx") else {
        return;
    };
    let nothing = told(&bench(&path, &["--python", "no/such/python"]));
    assert!(
        nothing.contains("no/such/python cannot be run as a Python"),
        "{nothing}"
    );
    // A program that starts and says nothing of use.
    let silent = told(&bench(&path, &["--python", "/bin/true"]));
    assert!(silent.contains("/bin/true stopped answering"), "{silent}");
}

#[test]
fn a_python_without_onnx_runtime_is_told_with_what_to_install() {
    let (Some(path), Some(python)) = (support::data("models/FastestDet_352.onnx"), python()) else {
        return;
    };
    // `-I -S`, so that nothing that is installed is found: a program of its own, as --python takes no arguments.
    let folder = tempfile::tempdir().unwrap();
    let bare = folder.path().join("bare-python");
    std::fs::write(
        &bare,
        format!("#!/bin/sh\nexec {} -I -S \"$@\"\n", python.display()),
    )
    .unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&bare, mode).unwrap();
    let text = told(&bench(&path, &["--python", bare.to_str().unwrap()]));
    assert!(
        text.contains("has no ONNX Runtime") && text.contains("-m pip install onnxruntime numpy"),
        "{text}"
    );
}
