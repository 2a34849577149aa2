//! `sensorium check`, `graph` and `schema`.

use sensorium::pipeline::pipeline_schema;

use crate::pipeline_files::repository;

fn sensorium(arguments: &[&str]) -> (i32, String, String) {
    sensorium_with(&[], arguments)
}

fn sensorium_with(environment: &[(&str, &str)], arguments: &[&str]) -> (i32, String, String) {
    let output = crate::tiny::sensorium()
        .args(arguments)
        .envs(environment.iter().copied())
        .env_remove("SENSORIUM_LOG")
        .env("SENSORIUM_YOLOX_ONNX", "")
        .env("SENSORIUM_BAG", "")
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
fn check_reports_and_sets_the_exit_code() {
    let yolox = repository("pipelines/yolox.yaml");
    let yolox = yolox.to_str().unwrap();
    let (code, out, err) = sensorium(&["check", yolox]);
    assert_eq!(code, 0, "{err}");
    assert!(
        out.contains("channel  camera -> detector: capacity 8, block"),
        "{out}"
    );
    assert!(err.contains("give it with --model FILE"), "{err}");

    let (code, out, err) = sensorium(&["check", yolox, "--set", "nodes.camera.rate=fast"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(
        err.contains("--set:1:19") && err.contains("`nodes.camera.rate` cannot be `fast`"),
        "{err}"
    );

    let (code, out, _) = sensorium(&["check", yolox, "--set", "device.queues=9", "--format", "json"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &report["ok"], &report["problems"][0]["column"]),
        (1, &false.into(), &15.into())
    );

    let (code, out, _) = sensorium(&["check", yolox, "--format", "json"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &report["ok"], &report["pipeline"]["name"]),
        (0, &true.into(), &"yolox".into())
    );
    assert_eq!(report["plan"]["actors"].as_array().unwrap().len(), 5);

    let (code, _, err) = sensorium(&["check", "no-such.yaml"]);
    assert!(code == 1 && err.contains("no-such.yaml cannot be read"), "{err}");
    let (code, _, err) = sensorium(&["check", yolox, "--set", "rate"]);
    assert!(code == 2 && err.contains("KEY=VALUE"), "{err}");
}

#[test]
fn check_shows_the_device_that_a_run_would_use() {
    let yolox = repository("pipelines/yolox.yaml");
    let yolox = yolox.to_str().unwrap();
    let variables = [
        ("SENSORIUM_DEVICE_THREADS", "3"),
        ("SENSORIUM_DEVICE_ARENA_MIB", "512"),
    ];
    let arguments = ["check", yolox, "--set", "device.arena_mib=128"];
    let (code, out, err) = sensorium_with(&variables, &arguments);
    assert_eq!(code, 0, "{err}");
    assert!(
        out.contains(
            "device   cpu, threads 3, queues 2, arena 128 MiB, trace region 64 MiB (by the environment: threads)"
        ),
        "{out}"
    );
    let (_, out, _) = sensorium_with(&variables, &[&arguments[..], &["--format", "json"]].concat());
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (
            &report["device"]["threads"]["count"],
            &report["device"]["arena_bytes"]
        ),
        (&3.into(), &(128 << 20).into())
    );

    let (code, _, err) = sensorium_with(&[("SENSORIUM_DEVICE_QUEUE", "1")], &["check", yolox]);
    assert!(
        code == 1 && err.contains("did you mean SENSORIUM_DEVICE_QUEUES?"),
        "{err}"
    );
}

#[test]
fn graph_and_schema_print_what_they_promise() {
    let yolox = repository("pipelines/yolox.yaml");
    let (code, out, _) = sensorium(&["graph", yolox.to_str().unwrap(), "--expanded"]);
    assert!(
        code == 0 && out.starts_with("flowchart LR\n") && out.contains("detector/prepare"),
        "{out}"
    );
    let (code, out, _) = sensorium(&["schema", "pipeline"]);
    assert_eq!(
        (code, &serde_json::from_str::<serde_json::Value>(&out).unwrap()),
        (0, pipeline_schema())
    );
}
