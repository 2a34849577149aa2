//! `sensorium device` and `sensorium device check` from outside.

use serde_json::Value;

fn sensorium(environment: &[(&str, &str)], arguments: &[&str]) -> (i32, String, String) {
    let output = crate::tiny::sensorium()
        .args(arguments)
        .env_remove("SENSORIUM_LOG")
        .env("NO_COLOR", "1")
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn the_device_is_shown_as_a_run_would_open_it() {
    let environment = [
        ("SENSORIUM_DEVICE_THREADS", "3"),
        ("SENSORIUM_DEVICE_ARENA_MIB", "64"),
    ];
    let arguments = ["device", "--arena-mib", "32", "--queues", "1"];
    let (code, out, err) = sensorium(&environment, &arguments);
    assert_eq!(code, 0, "{err}");
    for expected in [
        "3 thread(s)",
        "1, 1024 commands each, wait for each other on the device",
        "32 MiB, 0 bytes in use",
        "64 MiB, 0 bytes in use",
        "uint8, int8, int32, uint32, float16, bfloat16, float32",
    ] {
        assert!(out.contains(expected), "no {expected} in\n{out}");
    }
    let (code, out, _) = sensorium(&environment, &[&arguments[..], &["--format", "json"]].concat());
    let document: Value = serde_json::from_str(&out).unwrap();
    let device = &document["device"];
    assert_eq!(
        (code, &device["requested"], &device["used"], &device["fallback"]),
        (0, &"cpu".into(), &"cpu".into(), &Value::Null)
    );
    assert_eq!(device["memory"]["bytes"], 32 << 20);
    assert_eq!(document["backends"], serde_json::json!(["cpu", "sim"]));
}

#[test]
fn the_devices_of_this_program_pass_the_conformance_suite() {
    for backend in ["cpu", "sim"] {
        passes(backend);
    }
}

fn passes(backend: &str) {
    let arguments = [
        "device",
        "check",
        "--backend",
        backend,
        "--queues",
        "1",
        "--threads",
        "1",
        "--arena-mib",
        "16",
        "--trace-region-mib",
        "1",
    ];
    let (code, out, err) = sensorium(&[], &arguments);
    assert_eq!(code, 0, "{out}\n{err}");
    assert!(out.starts_with(&format!("{backend}: ")), "{out}");
    assert!(
        out.contains("skipped: an event makes one queue wait for another: it has one command queue"),
        "{out}"
    );
    assert!(out.trim_end().ends_with("passed, 0 failed, 2 skipped"), "{out}");
}

#[test]
fn wrong_settings_are_told_with_what_was_expected() {
    let (code, _, err) = sensorium(&[], &["device", "--queues", "3"]);
    assert!(
        code == 2 && err.contains("expected a whole number from 1 to 2"),
        "{err}"
    );
    let (code, _, err) = sensorium(&[], &["device", "check", "--backend", "cpo"]);
    assert!(code == 2 && err.contains("did you mean `cpu`?"), "{err}");
    let (code, _, err) = sensorium(&[("SENSORIUM_DEVICE_BACKEND", "tpu")], &["device"]);
    assert!(
        code == 1 && err.contains("SENSORIUM_DEVICE_BACKEND cannot be `tpu`"),
        "{err}"
    );
    let (code, _, err) = sensorium(&[], &["device", "check", "--threads", "257"]);
    assert!(code == 2 && err.contains("from 1 to 256"), "{err}");
}
