//! Every kind of damage, and manifests that cannot be true.

use crate::tiny;

use sensorium::perception::bundle::{Bundle, FindingKind, MANIFEST_FILE};
use serde_json::{Value, json};
use tiny::{Lab, outcome};

use super::{bundle, made, rewrite, rewrite_model};

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
