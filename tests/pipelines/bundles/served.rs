//! Calibrations and samples of a bundle, and services that run it.

use crate::tiny;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sensorium::perception::bundle::{Bundle, compare, pinned};
use sensorium::server::client::Client;
use serde_json::{Value, json};
use tiny::{Lab, outcome};

use super::{FRONT, PIPELINE, bundle, made, replace, rewrite, sha256};

#[test]
fn what_is_no_calibration_is_refused_and_told_by_its_file_and_key() {
    let (lab, _) = made();
    std::fs::write(lab.path("rear.json"), "{\"camera\": \"rear\"}").unwrap();
    let run = bundle(
        &lab,
        &[
            "make",
            "other",
            "--from",
            "tiny.yaml",
            "--calibration",
            "rear.json",
        ],
    );
    assert_eq!(run.code, Some(1), "{run:?}");
    for part in ["rear.json: camera: unknown field", "a calibration is"] {
        assert!(run.told.contains(part), "{part}: {run:?}");
    }
    assert!(!lab.path("other").exists());
    // A file of an earlier program, which took any JSON: its digest is right.
    let wrong = FRONT.replace("-0.05, 0.0, 0.0", "-0.05");
    replace(&lab, "calib/front.json", &wrong);
    let run = bundle(&lab, &["check", "bundle"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    let told = "invalid: calib/front.json is no calibration: cameras.front.distortion: ";
    assert!(run.out.contains(told), "{run:?}");
    let serve = outcome(tiny::sensorium().current_dir(lab.path("")).args([
        "serve",
        "bundled.yaml",
        "--listen",
        "127.0.0.1:0",
    ]));
    assert_eq!(serve.code, Some(1), "{serve:?}");
    assert!(serve.told.contains("cameras.front.distortion"), "{serve:?}");
}

#[test]
fn a_service_offers_the_calibrations_of_its_bundle() {
    let (lab, _) = made();
    let presets = |more: &[&str]| {
        let (service, url) = serve_with(&lab, "bundled.yaml", more);
        let client = Client::new(&url, None, PATIENCE);
        client.wait_ready(PATIENCE).unwrap();
        let info = client.get("/info").unwrap().body;
        let data = STANDARD.encode(std::fs::read(lab.path("two.png")).unwrap());
        let predict = |preset: &str| {
            let body = json!({
                "images": [{ "data": data, "camera": "front" }],
                "calibration": { "preset": preset },
            });
            client.post("/predict", body.to_string().as_bytes()).unwrap()
        };
        let (front, rear) = (predict("front"), predict("rear"));
        drop(service);
        (info["calibration_presets"].clone(), front, rear)
    };
    let (names, front, rear) = presets(&[]);
    assert_eq!(names, json!(["front"]));
    assert_eq!(
        (front.status, &front.body["num_detections"]),
        (200, &json!(2)),
        "{front:?}"
    );
    assert_eq!(rear.status, 400, "{rear:?}");
    assert!(
        rear.body["detail"].to_string().contains("one of front"),
        "{rear:?}"
    );
    // A folder takes the place of the bundle's.
    std::fs::create_dir(lab.path("folder")).unwrap();
    std::fs::write(lab.path("folder/rear.json"), FRONT).unwrap();
    let (names, front, rear) = presets(&["--calib-dir", "folder"]);
    assert_eq!((names, front.status, rear.status), (json!(["rear"]), 400, 200));
    // What the manifest does not know is not offered.
    std::fs::write(lab.path("bundle/calib/rear.json"), FRONT).unwrap();
    let run = outcome(tiny::sensorium().current_dir(lab.path("")).args([
        "serve",
        "bundled.yaml",
        "--listen",
        "127.0.0.1:0",
    ]));
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.told.contains("does not know calib/rear.json"), "{run:?}");
}

#[test]
fn samples_that_give_other_results_are_told() {
    let (lab, _) = made();
    let path = lab.path("bundle/samples/two.reference.json");
    let mut reference: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    reference["detections"][0]["score"] = json!(0.5);
    std::fs::write(&path, reference.to_string()).unwrap();
    // The digest is right, the result is not.
    let (digest, bytes) = (sha256(&path), path.metadata().unwrap().len());
    rewrite(&lab, |it| {
        it["files"]["samples/two.reference.json"] = json!({ "sha256": digest, "bytes": bytes });
    });
    assert_eq!(bundle(&lab, &["check", "bundle"]).code, Some(0));
    let run = bundle(&lab, &["check", "bundle", "--run"]);
    assert_eq!(run.code, Some(1));
    assert!(
        run.out.contains("modified: samples/two.png gives other results"),
        "{run:?}"
    );
}

#[test]
fn a_service_is_compared_to_what_the_bundle_pins() {
    let (lab, _) = made();
    let bundle = Bundle::open(&lab.path("bundle")).unwrap();
    let pins = pinned(bundle.manifest());
    assert_eq!(pins.weights_sha256, sha256(&lab.path("squares.onnx")));
    let info = json!({ "bundle": pins });
    assert_eq!(compare(&info, &pins), Vec::<String>::new());
    assert_eq!(compare(&json!({}), &pins).len(), 1);
    let mut other = info.clone();
    other["bundle"]["weights_sha256"] = json!("0");
    other["bundle"]["model"]["score_threshold"] = json!(0.1);
    other["bundle"]["model"]["more"] = json!(1);
    let found = compare(&other, &pins);
    let told = |part: &str| found.iter().any(|line| line.contains(part));
    assert!(
        found.len() == 3 && told("weights_sha256") && told("model.score_threshold") && told("model.more"),
        "{found:?}"
    );
}

/// A command that serves, ended when the test is over.
struct Served(std::process::Child);

impl Drop for Served {
    fn drop(&mut self) {
        // What has ended already needs no end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How long a service may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Serves a pipeline of the lab, and where.
fn serve(lab: &Lab, pipeline: &str) -> (Served, String) {
    serve_with(lab, pipeline, &[])
}

fn serve_with(lab: &Lab, pipeline: &str, more: &[&str]) -> (Served, String) {
    let (child, url) = tiny::serve(lab, &[&[pipeline], more].concat());
    (Served(child), url)
}

#[test]
fn the_smoke_command_tells_a_service_of_a_bundle_from_one_of_something_else() {
    let (lab, _) = made();
    // As the bundle says; the other changes what may be changed beside a bundle.
    let same = PIPELINE.replace(", max_streams: 3", "");
    std::fs::write(lab.path("same.yaml"), same).unwrap();
    let smoke = |url: &str, dir: &str| {
        let mut command = tiny::sensorium();
        outcome(
            command
                .current_dir(lab.path(""))
                .args(["smoke", url, "--bundle", dir]),
        )
    };
    let (service, url) = serve(&lab, "same.yaml");
    let run = smoke(&url, "bundle");
    assert_eq!(run.code, Some(0), "{run:?}");
    // The sample of the bundle was sent, and its stored reference compared.
    assert!(
        run.out.contains("n=2") && run.out.contains("recall=1.0000"),
        "{run:?}"
    );
    let newer = [
        "make",
        "newer",
        "--from",
        "tiny.yaml",
        "--bundle-version",
        "1.3.0",
        "--set",
        "models.squares.score_threshold=0.5",
    ];
    assert_eq!(bundle(&lab, &newer).code, Some(0));
    let run = smoke(&url, "newer");
    assert_eq!(run.code, Some(1), "{run:?}");
    for line in [
        "`version` is \"1.2.0\"",
        "`model.score_threshold` is 0.3",
        "`files.samples/two.png` is",
        "the bundle newer has no samples: no stored answer was compared",
        "make it with --sample FILE",
    ] {
        assert!(run.told.contains(line), "{line}: {run:?}");
    }
    drop(service);
    // A service of just this bundle fails all the same.
    let newer = PIPELINE.replace("path: bundle, max_streams: 3", "path: newer");
    std::fs::write(lab.path("newer.yaml"), newer).unwrap();
    let (service, url) = serve(&lab, "newer.yaml");
    let run = smoke(&url, "newer");
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.out.contains("FAILED (no frame was sent)"), "{run:?}");
    assert!(run.told.contains("has no samples"), "{run:?}");
    drop(service);
    let (service, url) = serve(&lab, "bundled.yaml");
    let run = smoke(&url, "bundle");
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.told.contains("`model.max_streams` is 3"), "{run:?}");
    drop(service);
    let (_service, url) = serve(&lab, "tiny.yaml");
    let run = smoke(&url, "bundle");
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.told.contains("the service runs no bundle"), "{run:?}");
}
