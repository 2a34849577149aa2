//! `sensorium cloud`, from the outside.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

fn cloud(arguments: &[&dyn AsRef<OsStr>]) -> Output {
    let mut command = crate::tiny::sensorium();
    command
        .arg("cloud")
        .args(arguments.iter().map(AsRef::as_ref))
        .env("NO_COLOR", "1");
    command.output().unwrap()
}

fn printed(arguments: &[&dyn AsRef<OsStr>]) -> String {
    let output = cloud(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(arguments: &[&dyn AsRef<OsStr>]) -> String {
    let output = cloud(arguments);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Three points, one of them nowhere.
fn sweep(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("sweep.pcd");
    let text = "# .PCD v0.7\nVERSION 0.7\nFIELDS x y z intensity ring t\nSIZE 4 4 4 4 2 4\nTYPE F F F F U U\n\
         COUNT 1 1 1 1 1 1\nWIDTH 3\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS 3\nDATA ascii\n\
         1.5 -2 0.25 10 0 0\nnan 0 0 0 1 0\n-8 4 2 255 31 50000000\n";
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn info_shows_layout_counts_and_ranges_to_people_and_programs() {
    let folder = tempfile::tempdir().unwrap();
    let path = sweep(folder.path());
    let text = printed(&[&"info", &path]);
    for line in [
        "format       PCD",
        "layout       x:float32 y:float32 z:float32 intensity:float32 ring:uint16 t:uint32, ascii",
        "points       3",
        "nowhere      1 with a coordinate that is NaN or infinite",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}: {text}");
    }
    let row = text.lines().find(|line| line.contains("time (s)")).unwrap();
    assert_eq!(
        row.split_whitespace().collect::<Vec<_>>(),
        ["time", "(s)", "0.000", "0.050"]
    );
    let value: Value = serde_json::from_str(&printed(&[&"info", &path, &"--format", &"json"])).unwrap();
    assert_eq!(
        value["columns"],
        json!({
            "x": [-8.0, 1.5], "y": [-2.0, 4.0], "z": [0.0, 2.0], "intensity": [0.0, 255.0], "ring": [0.0, 31.0],
            "time": [0.0, 0.05],
        })
    );
    assert_eq!(
        (&value["points"], &value["non_finite"], &value["width"]),
        (&json!(3), &json!(1), &json!(3))
    );
    let without = printed(&[&"info", &path, &"--without", &"ring,time", &"--format", &"json"]);
    let value: Value = serde_json::from_str(&without).unwrap();
    assert!(value["columns"].get("ring").is_none() && value["columns"].get("intensity").is_some());
}

#[test]
fn a_cloud_goes_through_every_format_and_what_is_lost_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = sweep(folder.path());
    let at = |name: &str| folder.path().join(name);
    let told = printed(&[
        &"convert",
        &path,
        &at("a.cdr"),
        &"--frame-id",
        &"top",
        &"--stamp-ns",
        &"1700000000000000005",
    ]);
    assert!(
        told.starts_with("2 points to ") && told.ends_with("a.cdr; 1 without a place left out\n"),
        "{told}"
    );
    printed(&[
        &"convert",
        &at("a.cdr"),
        &at("b.pcd"),
        &"--pcd",
        &"binary_compressed",
    ]);
    let told = printed(&[&"convert", &at("b.pcd"), &at("c.npy")]);
    assert!(
        told.ends_with("; time and return type left out, which this format has no place for\n"),
        "{told}"
    );
    printed(&[&"convert", &at("c.npy"), &at("d.bin"), &"--layout", &"xyzir"]);
    let values: Vec<f32> = std::fs::read(at("d.bin"))
        .unwrap()
        .chunks(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect();
    assert_eq!(values, [1.5, -2.0, 0.25, 10.0, 0.0, -8.0, 4.0, 2.0, 255.0, 31.0]);
    let info: Value = serde_json::from_str(&printed(&[&"info", &at("a.cdr"), &"--format", &"json"])).unwrap();
    assert_eq!(info["stamp_ns"], json!(1_700_000_000_000_000_005i64));
    let kept = printed(&[
        &"convert",
        &path,
        &at("k.pcd"),
        &"--pcd",
        &"ascii",
        &"--keep-non-finite",
    ]);
    assert!(kept.starts_with("3 points"), "{kept}");
    let text = std::fs::read_to_string(at("k.pcd")).unwrap();
    assert!(
        text.ends_with("DATA ascii\n1.5 -2 0.25 10 0 0\nnan 0 0 0 1 0\n-8 4 2 255 31 50000000\n"),
        "{text}"
    );
}

#[test]
fn refusals_name_the_file_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = sweep(folder.path());
    let odd = folder.path().join("odd.bin");
    std::fs::write(&odd, [0u8; 7]).unwrap();
    let text = refused(&[&"info", &odd]);
    assert!(
        text.contains("odd.bin: 7 bytes could be no layout that is known; name the layout"),
        "{text}"
    );
    let text = refused(&[&"convert", &path, &folder.path().join("a.ply")]);
    assert!(
        text.contains("the extension of a point cloud is .pcd, .bin, .npy, .npz or .cdr"),
        "{text}"
    );
    let text = refused(&[&"info", &odd, &"--layout", &"xyq"]);
    assert!(
        text.contains("columns are up to 64 of x, y, z, i, r, t, l and _"),
        "{text}"
    );
    assert!(refused(&[&"info", &folder.path().join("none.pcd")]).contains("cannot read"));
}
