//! `sensorium model info`, from the outside.

use crate::support;
use crate::unknown;
use std::path::Path;
use std::process::Output;

fn info(file: &Path, more: &[&str]) -> Output {
    let mut command = crate::tiny::sensorium();
    command
        .args(["model", "info"])
        .arg(file)
        .args(more)
        .output()
        .unwrap()
}

#[test]
fn a_model_is_described_as_json() {
    let Some(path) = support::data("models/yolox_nano_416.onnx") else {
        return;
    };
    let output = info(&path, &["--format", "json"]);
    assert!(output.status.success());
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        found["inputs"],
        serde_json::json!([{"name": "images", "dtype": "float32", "shape": [1, 3, 416, 416]}])
    );
    assert_eq!(found["outputs"][0]["shape"], serde_json::json!([1, 3549, 85]));
    assert_eq!(
        (&found["opset"], &found["producer"]),
        (&11.into(), &"pytorch 1.11.0".into())
    );
    assert_eq!(
        (&found["ops"]["Conv"], &found["ops"]["Sigmoid"]),
        (&113.into(), &110.into())
    );
    // 2 x (output elements) x (weights of one output channel), summed over the 113 convolutions.
    assert!((found["gflop"].as_f64().unwrap() - 1.045_106_816).abs() < 1e-12);
    assert_eq!(found["not_importable"], serde_json::json!([]));
}

#[test]
fn an_operation_that_cannot_be_imported_is_told_and_is_no_failure() {
    let (_folder, path) = unknown::unknown_operation();
    let output = info(&path, &[]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("[1, 4]"), "{text}");
    assert!(
        text.contains("\nnot importable: operation Frobnicate (first at node `odd`)"),
        "{text}"
    );
}

#[test]
fn a_public_detector_is_described_and_importable() {
    let Some(path) = support::data("models/nanodet_m_416.onnx") else {
        return;
    };
    let output = info(&path, &[]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("941,8") && text.contains("[1, 2704, 80]"), "{text}");
    assert!(!text.contains("not importable"), "{text}");
}

/// A safetensors file of two tensors, one in a type whose values are not read.
fn safetensors_file() -> tempfile::NamedTempFile {
    let header = r#"{"__metadata__":{"format":"pt"},"head.weight":{"dtype":"F8_E4M3","shape":[40,5,5],"data_offsets":[0,1000]},"head.scale":{"dtype":"F8_E8M0","shape":[4],"data_offsets":[1000,1004]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend([0; 1004]);
    let file = tempfile::Builder::new()
        .suffix(".SafeTensors")
        .tempfile()
        .unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

#[test]
fn the_tensors_of_a_safetensors_file_are_listed() {
    let file = safetensors_file();
    let output = info(file.path(), &["--format", "json"]);
    assert!(output.status.success());
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        found,
        serde_json::json!({
            "model": file.path().file_name().unwrap().to_str().unwrap(),
            "metadata": {"format": "pt"},
            "parameters": 1000,
            "bytes": 1004,
            "tensors": [
                {"name": "head.scale", "stored_type": "F8_E8M0", "dtype": null, "shape": [4], "bytes": 4},
                {"name": "head.weight", "stored_type": "F8_E4M3", "dtype": "float8_e4m3fn", "shape": [40, 5, 5],
                 "bytes": 1000},
            ],
        })
    );
    let text = String::from_utf8(info(file.path(), &[]).stdout).unwrap();
    let line = text.lines().find(|line| line.contains("head.weight")).unwrap();
    let cells: Vec<&str> = line.split_whitespace().filter(|cell| *cell != "│").collect();
    assert_eq!(
        cells,
        [
            "head.weight",
            "F8_E4M3",
            "float8_e4m3fn",
            "[40,",
            "5,",
            "5]",
            "1,000"
        ]
    );
    assert!(text.contains("format: pt"), "{text}");
}

#[test]
fn a_safetensors_file_that_lies_ends_with_code_1_and_names_the_tensor() {
    let file = safetensors_file();
    let bytes = std::fs::read(file.path()).unwrap();
    std::fs::write(file.path(), &bytes[..bytes.len() - 1]).unwrap();
    let output = info(file.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("cannot be read as a model")
            && text.contains("head.scale")
            && text.contains("1000..1004"),
        "{text}"
    );
}

#[test]
fn a_file_that_is_no_model_ends_with_code_1_and_says_what_to_do() {
    let file = tempfile::Builder::new().suffix(".onnx").tempfile().unwrap();
    std::fs::write(file.path(), b"these bytes are no model").unwrap();
    let output = info(file.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("cannot be read as a model") && text.contains("help"),
        "{text}"
    );
    let missing = info(Path::new("no/such/model.onnx"), &[]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(missing.stdout.is_empty());
}
