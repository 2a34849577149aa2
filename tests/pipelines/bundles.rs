//! Model bundles: made, checked against every kind of damage, and run by a pipeline.

use crate::tiny;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sensorium::image::encode_png;
use sensorium::perception::bundle::{Bundle, FindingKind, MANIFEST_FILE, compare, pinned, settings_sha256};
use sensorium::server::client::Client;
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

/// The camera that the bundle has a calibration of.
const FRONT: &str = r#"{ "cameras": { "front": {
    "intrinsics": { "fx": 60.0, "fy": 60.0, "cx": 32.0, "cy": 32.0 },
    "T_ref_from_camera": [[0, 0, 1, 1.5], [-1, 0, 0, 0], [0, -1, 0, 1.2], [0, 0, 0, 1]],
    "distortion": [0.1, -0.05, 0.0, 0.0] } } }"#;

/// A lab with a bundle of the tiny network, with one sample of two squares.
fn made() -> (Lab, Outcome) {
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

fn manifest(lab: &Lab) -> Value {
    serde_json::from_slice(&std::fs::read(lab.path("bundle/bundle.json")).unwrap()).unwrap()
}

/// Writes the manifest anew, changed.
fn rewrite(lab: &Lab, change: impl FnOnce(&mut Value)) {
    let mut value = manifest(lab);
    change(&mut value);
    std::fs::write(lab.path("bundle/bundle.json"), value.to_string()).unwrap();
}

/// Writes the manifest anew with other pinned settings, as if it had been made with them.
fn rewrite_model(lab: &Lab, change: impl FnOnce(&mut Value)) {
    rewrite(lab, |it| {
        change(&mut it["model"]);
        it["model_sha256"] = settings_sha256(it["model"].as_object().unwrap()).into();
    });
}

/// Writes a file of the bundle anew, with the digest that it has then.
fn replace(lab: &Lab, name: &str, text: &str) {
    let path = lab.path("bundle").join(name);
    std::fs::write(&path, text).unwrap();
    let digest = sha256(&path);
    rewrite(lab, |it| {
        it["files"][name] = json!({ "sha256": digest, "bytes": text.len() })
    });
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

const DAMAGES: [Damage; 16] = [
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
    (
        "a revision that moves",
        |lab| {
            rewrite(lab, |value| value["source"]["revision"] = json!("main"));
        },
        FindingKind::Unverified,
        "source.revision",
    ),
    (
        "no repository",
        |lab| {
            rewrite(lab, |value| value["source"]["repository"] = json!(" "));
        },
        FindingKind::Unverified,
        "source.repository",
    ),
    (
        "no licence",
        |lab| {
            rewrite(lab, |value| {
                drop(value.as_object_mut().unwrap().remove("licence"))
            });
        },
        FindingKind::Unverified,
        "licence",
    ),
    (
        "no samples",
        |lab| {
            rewrite(lab, |value| value["samples"] = json!([]));
        },
        FindingKind::Unverified,
        "samples",
    ),
    (
        "settings without a digest, as in earlier manifests",
        |lab| {
            rewrite(lab, |value| {
                drop(value.as_object_mut().unwrap().remove("model_sha256"))
            });
        },
        FindingKind::Unverified,
        "model",
    ),
    (
        "a setting changed",
        |lab| {
            rewrite(lab, |value| value["model"]["score_threshold"] = json!(0.31));
        },
        FindingKind::Modified,
        "model",
    ),
    (
        "a setting more",
        |lab| {
            rewrite(lab, |value| value["model"]["max_in_flight"] = json!(1));
        },
        FindingKind::Modified,
        "model",
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
    let cases: [Untruth; 10] = [
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
            |it| it["calibrations"] = json!({ "rear": "calib/front.json" }),
            "has to be \"calib/rear.json\"",
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
    rewrite_model(&lab, |it| it["preprocess"] = json!("yolox_opencw"));
    let wrong = check(&[]);
    assert_eq!(wrong.code, Some(1));
    for part in ["bundle.json:", "did you mean `yolox_opencv`?"] {
        assert!(wrong.told.contains(part), "{part}: {wrong:?}");
    }
    rewrite_model(&lab, |it| *it = json!({ "type": "bundle", "path": "." }));
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
    // The other way around all is well, whatever else is in the newer one: it only has no samples.
    let newer = bundle(&lab, &["check", "newer", "--against", "bundle"]);
    assert_eq!(newer.code, Some(0), "{newer:?}");
    let warnings: Vec<&str> = newer
        .out
        .lines()
        .filter(|line| !line.starts_with("squares"))
        .collect();
    assert_eq!(warnings, ["unverified: samples is not recorded"], "{newer:?}");
}

#[test]
fn versions_are_compared_as_numbers_and_one_version_is_one_bundle() {
    let (lab, _) = made();
    let copied = Command::new("cp")
        .args(["-r", "bundle", "other"])
        .current_dir(lab.path(""))
        .status();
    assert!(copied.unwrap().success());
    let against = |version: &str| {
        rewrite(&lab, |it| it["version"] = version.into());
        let run = bundle(&lab, &["check", "bundle", "--against", "other"]);
        assert_eq!(run.code, Some(0), "{run:?}");
        let strict = bundle(&lab, &["check", "bundle", "--against", "other", "--strict"]);
        let mut lines: Vec<String> = run.out.lines().map(str::to_owned).collect();
        // The last one is the state.
        lines.pop();
        assert_eq!(strict.code, Some(i32::from(!lines.is_empty())), "{strict:?}");
        lines
    };
    for same_or_newer in ["1.2.0", "1.2", "1.10.0", "2.0.0-rc.1", "10"] {
        assert_eq!(against(same_or_newer), Vec::<String>::new(), "{same_or_newer}");
    }
    for older in ["1.1.9", "0.20", "1.2.0-rc.1"] {
        let told = format!("outdated: version is {older:?}, and \"1.2.0\" in other");
        assert_eq!(against(older), [told]);
    }
    let told = "unverified: version is \"best\", and \"1.2.0\" in other: nobody can tell which is newer";
    assert_eq!(against("best"), [told]);
    rewrite_model(&lab, |it| it["score_threshold"] = json!(0.4));
    replace(&lab, "labels/colours.txt", "red\ngreen\nnavy\n");
    rewrite(&lab, |it| it["source"]["revision"] = json!("def456"));
    assert_eq!(
        against("1.2.0"),
        [
            "changed: source.revision is \"def456\", and \"abc123\" in other",
            "changed: model has other settings than in other",
            "changed: labels/colours.txt is another file than in other",
        ]
    );
    assert_eq!(against("1.3.0"), Vec::<String>::new());
    rewrite(&lab, |it| it["name"] = json!("circles"));
    assert_eq!(
        against("1.3.0"),
        ["changed: name is \"circles\", and \"squares\" in other"]
    );
}

/// A checkout with files, all of them committed, and the revision.
fn checkout(lab: &Lab, name: &str, files: &[(&str, &[u8])]) -> String {
    let folder = lab.path(name);
    for (file, bytes) in files {
        let path = folder.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command
            .current_dir(&folder)
            .args(["-c", "user.name=a", "-c", "user.email=a@example.com"]);
        let output = command.args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "weights"]);
    git(&["rev-parse", "HEAD"])
}

#[test]
fn weights_are_compared_to_the_recorded_revision_of_a_checkout() {
    let (lab, _) = made();
    let weights = std::fs::read(lab.path("squares.onnx")).unwrap();
    let digest = sha256(&lab.path("squares.onnx"));
    let pointer = format!(
        "version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {}\n",
        weights.len()
    );
    let check = |name: &str, revision: &str| {
        rewrite(&lab, |it| it["source"]["revision"] = revision.into());
        bundle(&lab, &["check", "bundle", "--source", name])
    };
    let plain = checkout(&lab, "plain", &[("models/squares.onnx", &weights)]);
    let large = checkout(&lab, "large", &[("squares.onnx", pointer.as_bytes())]);
    for (name, revision) in [("plain", &plain), ("large", &large)] {
        // What lies there now does not count.
        std::fs::write(lab.path(name).join("squares.onnx"), "later").unwrap();
        let run = check(name, revision);
        assert_eq!(
            (run.code, run.out.lines().count()),
            (Some(0), 1),
            "{name}: {run:?}"
        );
    }
    let other = checkout(&lab, "other", &[("squares.onnx", &weights[1..])]);
    let run = check("other", &other);
    assert_eq!(run.code, Some(1), "{run:?}");
    let told = format!("modified: weights/squares.onnx is not at the recorded revision {other:?}");
    assert!(run.out.contains(&told), "{run:?}");
    let nothing = checkout(&lab, "nothing", &[("readme", b"moved")]);
    for (name, revision, told) in [
        (
            "nothing",
            nothing.as_str(),
            "unverified: weights/squares.onnx is at no place of revision",
        ),
        (
            "nothing",
            "abc123",
            "unverified: source.revision is \"abc123\", which nothing does not know",
        ),
        ("nothing", "--all", "no revision begins with `-`"),
        ("nowhere", "abc123", "which nowhere does not know"),
    ] {
        let run = check(name, revision);
        assert_eq!(run.code, Some(0), "{run:?}");
        assert!(run.out.contains(told), "{told}: {run:?}");
    }
}

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
    let mut child = tiny::sensorium()
        .current_dir(lab.path(""))
        .args(["serve", pipeline, "--listen", "127.0.0.1:0"])
        .args(more)
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
