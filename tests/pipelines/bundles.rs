//! Model bundles: made, checked against every kind of damage, and run by a pipeline.

use crate::tiny;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use sensorium::image::encode_png;
use sensorium::perception::bundle::{Bundle, FindingKind, MANIFEST_FILE, compare, pinned};
use serde_json::{Value, json};
use tiny::{Lab, Outcome, film, found, outcome, picture};

/// A pipeline whose model is the bundle.
const PIPELINE: &str = "\
pipeline: bundled
models:
  squares: { type: bundle, path: bundle, max_streams: 3 }
nodes:
  camera: { kind: source, bag: '', rate: max }
  detector: { kind: detector, model: squares, input: camera }
  jsonl: { kind: jsonl, input: detector }
";

fn bundle(lab: &Lab, arguments: &[&str]) -> Outcome {
    outcome(
        tiny::sensorium()
            .current_dir(lab.path(""))
            .arg("bundle")
            .args(arguments),
    )
}

/// A lab with a bundle of the tiny network, with one sample of two squares.
fn made() -> (Lab, Outcome) {
    let lab = Lab::new();
    let image = picture(&[(2, [8, 16]), (0, [32, 32])]);
    std::fs::write(lab.path("two.png"), encode_png(&image.view()).unwrap()).unwrap();
    std::fs::write(lab.path("front.json"), "{\"camera\": \"front\"}").unwrap();
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

fn manifest(lab: &Lab) -> Value {
    serde_json::from_slice(&std::fs::read(lab.path("bundle/bundle.json")).unwrap()).unwrap()
}

/// Writes the manifest anew, changed.
fn rewrite(lab: &Lab, change: impl FnOnce(&mut Value)) {
    let mut value = manifest(lab);
    change(&mut value);
    std::fs::write(lab.path("bundle/bundle.json"), value.to_string()).unwrap();
}

fn sha256(path: &Path) -> String {
    sensorium::weights::file_sha256(path).unwrap()
}

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

/// What is done to a bundle, and the line that is told.
type Damage = (&'static str, fn(&Lab), FindingKind, &'static str);

const DAMAGES: [Damage; 9] = [
    (
        "a byte changed",
        |lab| {
            let path = lab.path("bundle/weights/squares.onnx");
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[100] ^= 1;
            std::fs::write(path, bytes).unwrap();
        },
        FindingKind::Modified,
        "weights/squares.onnx",
    ),
    (
        "a file grown",
        |lab| {
            let path = lab.path("bundle/labels/colours.txt");
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(path, text + "\nwhite").unwrap();
        },
        FindingKind::Modified,
        "labels/colours.txt",
    ),
    (
        "a file gone",
        |lab| {
            std::fs::remove_file(lab.path("bundle/calib/front.json")).unwrap();
        },
        FindingKind::Missing,
        "calib/front.json",
    ),
    (
        "a file more",
        |lab| {
            std::fs::write(lab.path("bundle/weights/other.onnx"), "x").unwrap();
        },
        FindingKind::Extra,
        "weights/other.onnx",
    ),
    (
        "a folder in place of a file",
        |lab| {
            let path = lab.path("bundle/calib/front.json");
            std::fs::remove_file(&path).unwrap();
            std::fs::create_dir(&path).unwrap();
        },
        FindingKind::Unsafe,
        "calib/front.json",
    ),
    (
        "a link in place of a file",
        |lab| {
            let path = lab.path("bundle/labels/colours.txt");
            std::fs::remove_file(&path).unwrap();
            std::os::unix::fs::symlink(lab.path("colours.txt"), path).unwrap();
        },
        FindingKind::Unsafe,
        "labels/colours.txt",
    ),
    (
        "a link in place of a folder",
        |lab| {
            std::fs::rename(lab.path("bundle/labels"), lab.path("labels")).unwrap();
            std::os::unix::fs::symlink(lab.path("labels"), lab.path("bundle/labels")).unwrap();
        },
        FindingKind::Unsafe,
        "labels/colours.txt",
    ),
    (
        "a link that nothing names",
        |lab| {
            std::os::unix::fs::symlink("/", lab.path("bundle/root")).unwrap();
        },
        FindingKind::Unsafe,
        "root",
    ),
    (
        "no revision",
        |lab| {
            rewrite(lab, |value| value["source"]["revision"] = json!(""));
        },
        FindingKind::Unverified,
        "source.revision",
    ),
];

#[test]
fn every_damage_is_told_by_its_file() {
    for (what, damage, kind, path) in DAMAGES {
        let (lab, _) = made();
        damage(&lab);
        let findings = Bundle::open(&lab.path("bundle")).unwrap().check(None).unwrap();
        let [finding] = findings.as_slice() else {
            panic!("{what}: {findings:?}")
        };
        assert_eq!((finding.kind, finding.path.as_str()), (kind, path), "{what}");
        let run = bundle(&lab, &["check", "bundle"]);
        let code = if kind == FindingKind::Unverified { 0 } else { 1 };
        assert_eq!(run.code, Some(code), "{what}: {run:?}");
        assert!(run.out.contains(&format!("{kind}: {path}")), "{what}: {run:?}");
        assert_eq!(
            bundle(&lab, &["check", "bundle", "--strict"]).code,
            Some(1),
            "{what}"
        );
        // What is there and was changed is not loaded; what is more is not looked at.
        let mut command = tiny::sensorium();
        let loaded = outcome(command.current_dir(lab.path("")).args(["check", "bundled.yaml"]));
        let refused = !matches!(kind, FindingKind::Extra | FindingKind::Unverified) && path != "root";
        assert_eq!(loaded.code, Some(i32::from(refused)), "{what}: {loaded:?}");
        assert!(!refused || loaded.told.contains(path), "{what}: {loaded:?}");
    }
}

/// What is done to a manifest, and what is told.
type Untruth = (fn(&mut Value), &'static str);

#[test]
fn manifests_that_cannot_be_true_are_refused() {
    let cases: [Untruth; 9] = [
        (|it| it["bundle"] = json!(2), "its format is 2"),
        (|it| it["more"] = json!(1), "unknown field `more`"),
        (|it| it["version"] = json!(""), "cannot be empty"),
        (
            |it| it["files"]["../tiny.yaml"] = json!({ "sha256": "0".repeat(64), "bytes": 1 }),
            "without `..`",
        ),
        (
            |it| it["files"]["/etc/passwd"] = json!({ "sha256": "0".repeat(64), "bytes": 1 }),
            "without a leading `/`",
        ),
        (
            |it| it["files"]["weights/squares.onnx"]["sha256"] = json!("abc"),
            "no SHA-256",
        ),
        (
            |it| it["files"]["weights/squares.onnx"]["bytes"] = json!(-1),
            "invalid value",
        ),
        (
            |it| it["model"]["weights"] = json!("../squares.onnx"),
            "is none of its files",
        ),
        (
            |it| it["samples"][0]["reference"] = json!("gone.json"),
            "is none of its files",
        ),
    ];
    let (lab, _) = made();
    let good = std::fs::read(lab.path("bundle/bundle.json")).unwrap();
    for (change, told) in cases {
        rewrite(&lab, change);
        let error = Bundle::open(&lab.path("bundle")).unwrap_err().to_string();
        assert!(error.contains(told), "{told}: {error}");
        std::fs::write(lab.path("bundle/bundle.json"), &good).unwrap();
    }
    for bytes in [
        Vec::new(),
        vec![b' '; (1 << 20) + 1],
        vec![0xff; 10],
        b"[".repeat(100_000),
    ] {
        std::fs::write(lab.path("bundle").join(MANIFEST_FILE), bytes).unwrap();
        Bundle::open(&lab.path("bundle")).unwrap_err();
    }
    std::fs::remove_file(lab.path("bundle/bundle.json")).unwrap();
    assert!(
        Bundle::open(&lab.path("bundle"))
            .unwrap_err()
            .to_string()
            .contains("bundle.json cannot be read")
    );
    assert!(Bundle::open(&lab.path("nowhere")).is_err());
}

#[test]
fn what_a_bundle_pins_cannot_be_changed_and_what_is_wrong_in_it_points_into_it() {
    let (lab, _) = made();
    let check = |arguments: &[&str]| {
        let mut command = tiny::sensorium();
        outcome(
            command
                .current_dir(lab.path(""))
                .args(["check", "bundled.yaml"])
                .args(arguments),
        )
    };
    let threshold = check(&["--set", "models.squares.score_threshold=0.9"]);
    assert_eq!(threshold.code, Some(1));
    assert!(
        threshold.told.contains("unknown key `score_threshold`"),
        "{threshold:?}"
    );
    let streams = check(&["--set", "models.squares.max_streams=5", "--format", "json"]).summary();
    assert_eq!(streams["pipeline"]["models"]["squares"]["max_streams"], 5);
    assert_eq!(streams["pipeline"]["models"]["squares"]["bundle"], "bundle");
    let run = outcome(tiny::sensorium().current_dir(lab.path("")).args([
        "run",
        "bundled.yaml",
        "--bag",
        "bag.mcap",
        "--model",
        "squares.onnx",
    ]));
    assert!(run.told.contains("pins its weights"), "{run:?}");
    rewrite(&lab, |it| it["model"]["preprocess"] = json!("yolox_opencw"));
    let wrong = check(&[]);
    assert_eq!(wrong.code, Some(1));
    for part in ["bundle.json:", "did you mean `yolox_opencv`?"] {
        assert!(wrong.told.contains(part), "{part}: {wrong:?}");
    }
    rewrite(&lab, |it| it["model"] = json!({ "type": "bundle", "path": "." }));
    assert!(check(&[]).told.contains("a bundle cannot hold a bundle"));
}

#[test]
fn a_newer_bundle_makes_an_older_one_outdated() {
    let (lab, _) = made();
    let same = bundle(&lab, &["check", "bundle", "--against", "bundle", "--strict"]);
    assert_eq!(same.code, Some(0), "{same:?}");
    let newer = [
        "make",
        "newer",
        "--from",
        "tiny.yaml",
        "--bundle-version",
        "1.3.0",
        "--licence",
        "Apache-2.0",
        "--repository",
        "example/squares",
        "--revision",
        "abc123",
        "--set",
        "models.squares.score_threshold=0.5",
    ];
    assert_eq!(bundle(&lab, &newer).code, Some(0));
    let older = bundle(&lab, &["check", "bundle", "--against", "newer"]);
    assert_eq!(older.code, Some(0), "{older:?}");
    for line in [
        "outdated: version is \"1.2.0\", and \"1.3.0\" in newer",
        "outdated: model has other settings",
        "outdated: samples/two.png is not in newer",
    ] {
        assert!(older.out.contains(line), "{line}: {older:?}");
    }
    assert_eq!(
        bundle(&lab, &["check", "bundle", "--against", "newer", "--strict"]).code,
        Some(1)
    );
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

/// Serves a pipeline of the lab, and where.
fn serve(lab: &Lab, pipeline: &str) -> (Served, String) {
    let mut child = tiny::sensorium()
        .current_dir(lab.path(""))
        .args(["serve", pipeline, "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let url = line.trim().rsplit(' ').next().unwrap().to_owned();
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
    ] {
        assert!(run.told.contains(line), "{line}: {run:?}");
    }
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
