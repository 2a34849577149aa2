//! Model bundles: made, checked against every kind of damage, and run by a pipeline.

mod damages;
mod made;
mod served;
mod versions;

use crate::tiny;
use std::path::Path;

use sensorium::image::encode_png;
use sensorium::perception::bundle::settings_sha256;
use serde_json::{Value, json};
use tiny::{Lab, Outcome, outcome, picture};

/// A pipeline whose model is the bundle.
pub(super) const PIPELINE: &str = "\
pipeline: bundled
models:
  squares: { type: bundle, path: bundle, max_streams: 3 }
nodes:
  camera: { kind: source, bag: '', rate: max }
  detector: { kind: detector, model: squares, input: camera }
  jsonl: { kind: jsonl, input: detector }
";

pub(super) fn bundle(lab: &Lab, arguments: &[&str]) -> Outcome {
    outcome(
        tiny::sensorium()
            .current_dir(lab.path(""))
            .arg("bundle")
            .args(arguments),
    )
}

/// The camera that the bundle has a calibration of.
pub(super) const FRONT: &str = r#"{ "cameras": { "front": {
    "intrinsics": { "fx": 60.0, "fy": 60.0, "cx": 32.0, "cy": 32.0 },
    "T_ref_from_camera": [[0, 0, 1, 1.5], [-1, 0, 0, 0], [0, -1, 0, 1.2], [0, 0, 0, 1]],
    "distortion": [0.1, -0.05, 0.0, 0.0] } } }"#;

/// A lab with a bundle of the tiny network, with one sample of two squares.
pub(super) fn made() -> (Lab, Outcome) {
    let lab = Lab::new();
    let image = picture(&[(2, [8, 16]), (0, [32, 32])]);
    std::fs::write(lab.path("two.png"), encode_png(&image.view()).unwrap()).unwrap();
    std::fs::write(lab.path("front.json"), FRONT).unwrap();
    std::fs::write(lab.path("bundled.yaml"), PIPELINE).unwrap();
    let arguments = [
        "make",
        "bundle",
        "--from",
        "tiny.yaml",
        "--bundle-version",
        "1.2.0",
        "--licence",
        "Apache-2.0",
        "--repository",
        "example/squares",
        "--revision",
        "abc123",
        "--sample",
        "two.png",
        "--calibration",
        "front.json",
    ];
    let run = bundle(&lab, &arguments);
    (lab, run)
}

pub(super) fn manifest(lab: &Lab) -> Value {
    serde_json::from_slice(&std::fs::read(lab.path("bundle/bundle.json")).unwrap()).unwrap()
}

/// Writes the manifest anew, changed.
pub(super) fn rewrite(lab: &Lab, change: impl FnOnce(&mut Value)) {
    let mut value = manifest(lab);
    change(&mut value);
    std::fs::write(lab.path("bundle/bundle.json"), value.to_string()).unwrap();
}

/// Writes the manifest anew with other pinned settings, as if it had been made with them.
pub(super) fn rewrite_model(lab: &Lab, change: impl FnOnce(&mut Value)) {
    rewrite(lab, |it| {
        change(&mut it["model"]);
        it["model_sha256"] = settings_sha256(it["model"].as_object().unwrap()).into();
    });
}

/// Writes a file of the bundle anew, with the digest that it has then.
pub(super) fn replace(lab: &Lab, name: &str, text: &str) {
    let path = lab.path("bundle").join(name);
    std::fs::write(&path, text).unwrap();
    let digest = sha256(&path);
    rewrite(lab, |it| {
        it["files"][name] = json!({ "sha256": digest, "bytes": text.len() })
    });
}

pub(super) fn sha256(path: &Path) -> String {
    sensorium::weights::file_sha256(path).unwrap()
}
