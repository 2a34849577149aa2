//! Bundles beside others, and beside the revision that they come from.

use crate::tiny;
use std::process::Command;

use serde_json::json;
use tiny::Lab;

use super::{bundle, made, replace, rewrite, rewrite_model, sha256};

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
