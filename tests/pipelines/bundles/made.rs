//! Bundles that are made, and run by a pipeline.

use crate::tiny;
use std::path::PathBuf;

use serde_json::{Value, json};
use tiny::{Lab, film, found, outcome};

use super::{bundle, made, manifest, sha256};

#[test]
fn a_bundle_holds_the_model_its_files_and_what_it_makes_of_samples() {
    let (lab, run) = made();
    assert_eq!(run.code, Some(0), "{run:?}");
    let manifest = manifest(&lab);
    assert_eq!(manifest["name"], "squares");
    assert_eq!(manifest["version"], "1.2.0");
    assert_eq!(
        manifest["source"],
        json!({ "repository": "example/squares", "revision": "abc123" })
    );
    let model = &manifest["model"];
    // As short as in the pipeline file, and with paths of the bundle.
    assert_eq!(model["type"], "yolox");
    assert_eq!(model["score_threshold"].to_string(), "0.3");
    assert_eq!(model["weights"], "weights/squares.onnx");
    assert_eq!(model["labels"], "labels/colours.txt");
    let files = manifest["files"].as_object().unwrap();
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    let expected = [
        "calib/front.json",
        "labels/colours.txt",
        "samples/two.png",
        "samples/two.reference.json",
        "weights/squares.onnx",
    ];
    assert_eq!(names, expected);
    for (name, file) in files {
        let path = lab.path("bundle").join(name);
        assert_eq!(file["bytes"], path.metadata().unwrap().len());
        assert_eq!(file["sha256"], sha256(&path).as_str());
    }
    // What the network makes of the picture is known beforehand.
    let reference: Value =
        serde_json::from_slice(&std::fs::read(lab.path("bundle/samples/two.reference.json")).unwrap())
            .unwrap();
    let mut labels: Vec<&str> = reference["detections"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["label"].as_str().unwrap())
        .collect();
    labels.sort_unstable();
    assert_eq!(labels, ["blue", "red"]);
    for detection in reference["detections"].as_array().unwrap() {
        assert!((detection["score"].as_f64().unwrap() - tiny::SCORE).abs() < 1e-5);
    }
    let check = bundle(&lab, &["check", "bundle", "--run", "--strict"]);
    assert_eq!(check.code, Some(0), "{check:?}");
    // What is there is not written over, and nothing half made is left.
    let again = bundle(&lab, &["make", "bundle", "--from", "tiny.yaml"]);
    assert_eq!(again.code, Some(1));
    assert!(again.told.contains("bundle is there already"), "{again:?}");
    let broken = bundle(
        &lab,
        &["make", "other", "--from", "tiny.yaml", "--sample", "colours.txt"],
    );
    assert_eq!(broken.code, Some(1), "{broken:?}");
    let left: Vec<PathBuf> = std::fs::read_dir(lab.path(""))
        .unwrap()
        .map(|it| it.unwrap().path())
        .collect();
    assert!(
        !left.iter().any(|path| path.to_string_lossy().contains("other")),
        "{left:?}"
    );
}

#[test]
fn a_pipeline_runs_a_bundle_as_it_runs_the_model_that_it_was_made_of() {
    let (lab, _) = made();
    lab.bag(&film("/camera", 6, 100_000_000));
    let plain = lab.run(&["--jsonl", "plain.jsonl"]);
    assert_eq!(plain.code, Some(0), "{plain:?}");
    let mut command = tiny::sensorium();
    command.current_dir(lab.path("")).args([
        "run",
        "bundled.yaml",
        "--bag",
        "bag.mcap",
        "--jsonl",
        "bundled.jsonl",
    ]);
    let bundled = outcome(&mut command);
    assert_eq!(bundled.code, Some(0), "{bundled:?}");
    let detections = |name: &str| lab.lines(name).iter().map(found).collect::<Vec<_>>();
    assert_eq!(detections("plain.jsonl"), detections("bundled.jsonl"));
    assert_eq!(detections("plain.jsonl").len(), 6);
}

#[test]
fn a_model_whose_weights_come_out_of_a_seed_has_a_bundle_without_weights() {
    let lab = Lab::new();
    let ring = "pipeline: ring\nmodels:\n  ring: { type: bev_ring, seed: 7 }\nnodes:\n  \
                lidar: { kind: source, bag: '', rate: max }\n  \
                detector: { kind: detector, model: ring, input: lidar }\n";
    std::fs::write(lab.path("ring.yaml"), ring).unwrap();
    let run = bundle(&lab, &["make", "bundle", "--from", "ring.yaml"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let manifest = manifest(&lab);
    assert_eq!(manifest["model"]["seed"], 7);
    assert_eq!(manifest["model"].get("weights"), None);
    let bundled = ring.replace("type: bev_ring, seed: 7", "type: bundle, path: bundle");
    std::fs::write(lab.path("bundled.yaml"), bundled).unwrap();
    let mut command = tiny::sensorium();
    let check = outcome(command.current_dir(lab.path("")).args(["check", "bundled.yaml"]));
    assert_eq!(check.code, Some(0), "{check:?}");
    assert!(check.out.contains("out of the seed"), "{check:?}");
}
