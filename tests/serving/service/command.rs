//! `sensorium serve` and `sensorium smoke`.

use crate::tiny;
use std::process::{Child, Command};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sensorium::image::{ImageRef, PixelFormat, encode_png};
use sensorium::server::Token;
use sensorium::server::client::{
    Client, Expected, Gates, check_bad_request, check_service, compare_with_reference,
};
use serde_json::{Value, json};
use tiny::Lab;

use super::{PATIENCE, box_of, png, squares};

/// `sensorium serve` of a lab's pipeline, and where it listens.
fn command(lab: &Lab, more: &[&str]) -> (Child, String) {
    tiny::serve(lab, &[&["tiny.yaml"], more].concat())
}

#[test]
fn an_address_that_is_taken_is_told_before_a_model_is_loaded() {
    let lab = Lab::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    // Weights that take for ever to read: they would be waited for.
    let made = Command::new("mkfifo")
        .arg(lab.path("endless.onnx"))
        .status()
        .unwrap();
    assert!(made.success());
    let out = tiny::sensorium()
        .current_dir(lab.path(""))
        .args([
            "serve",
            "tiny.yaml",
            "--weights",
            "endless.onnx",
            "--listen",
            &address,
        ])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(told.contains("cannot listen on"), "{told}");
}

#[cfg(unix)]
#[test]
fn a_second_interrupt_ends_a_service_at_once() {
    let lab = Lab::new();
    let made = Command::new("mkfifo")
        .arg(lab.path("endless.onnx"))
        .status()
        .unwrap();
    assert!(made.success());
    // The model is never loaded, so that the first interrupt alone would wait for it.
    let (mut child, _) = command(&lab, &["--weights", "endless.onnx"]);
    let status = loop {
        let told = Command::new("kill")
            .args(["-TERM", &child.id().to_string()])
            .status();
        // One that has ended already cannot be told.
        drop(told);
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(130));
}

/// Asks a command to end as a service manager does.
#[cfg(unix)]
fn terminate(child: Child) -> std::process::Output {
    let killed = Command::new("kill")
        .args(["-TERM", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    child.wait_with_output().unwrap()
}

#[cfg(unix)]
#[test]
fn the_command_serves_until_it_is_asked_to_end() {
    let lab = Lab::new();
    std::fs::write(lab.path("token"), "correct-horse-battery\n").unwrap();
    let (child, url) = command(&lab, &["--token-file", "token", "--max-body-mb", "1"]);
    let client = Client::new(&url, Some(Token::new("correct-horse-battery").unwrap()), PATIENCE);
    client.wait_ready(PATIENCE).unwrap();
    let (body, square) = png(7);
    assert_eq!(
        box_of(&client.post("/predict", body.to_string().as_bytes()).unwrap()),
        square
    );
    let info = client.get("/info").unwrap().body;
    assert_eq!(info["input"]["max_body_bytes"], 1 << 20);
    let digest = sensorium::weights::file_sha256(lab.path("squares.onnx")).unwrap();
    assert_eq!(
        info["weights"],
        json!({ "file": "squares.onnx", "sha256": digest })
    );
    assert_eq!(
        Client::new(&url, None, PATIENCE).get("/info").unwrap().status,
        401
    );
    let out = terminate(child);
    assert!(out.status.success(), "{out:?}");
}

#[cfg(unix)]
#[test]
fn a_command_without_a_model_says_so_and_ends_with_a_failure() {
    let lab = Lab::new();
    std::fs::write(lab.path("broken.onnx"), "no network").unwrap();
    let (child, url) = command(&lab, &["--weights", "broken.onnx"]);
    let client = Client::new(&url, None, PATIENCE);
    let error = client.wait_ready(PATIENCE).unwrap_err().to_string();
    assert!(error.contains("has no model"), "{error}");
    let out = terminate(child);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&out.stderr).contains("could not be served"),
        "{out:?}"
    );
}

#[test]
fn the_client_tells_a_service_that_is_another() {
    let lab = Lab::new();
    let service = squares(&lab);
    let client = service.client();
    let expected = Expected {
        weights_sha256: Some("0123".to_owned()),
        ..Expected::default()
    };
    let (info, failures) = check_service(&client, &expected).unwrap();
    assert_eq!((&info["weights"]["sha256"], failures.len()), (&json!("0123"), 0));
    let expected = Expected {
        model: Some("other".to_owned()),
        variant: Some("large".to_owned()),
        ..expected
    };
    let (_, failures) = check_service(&client, &expected).unwrap();
    assert_eq!(failures.len(), 2, "{failures:?}");
    assert_eq!(check_bad_request(&client).unwrap(), Vec::<String>::new());
}

#[test]
fn an_answer_is_held_against_a_stored_one() {
    let row = |label: &str, score: f64, center: [f64; 3]| json!({ "label": label, "score": score, "center": center });
    let stored = json!({ "model": "m", "frame_id": "f", "detections": [
        row("CAR", 0.9, [1.0, 0.0, 0.0]), row("CAR", 0.8, [1.4, 0.0, 0.0]), row("BUS", 0.7, [9.0, 9.0, 0.0])] });
    let gates = Gates::default();
    let (metrics, failures) = compare_with_reference(&stored, &stored, &gates);
    assert_eq!(
        (failures.len(), metrics["recall"], metrics["precision"]),
        (0, 1.0, 1.0)
    );

    // The best row of the reference chooses first: 1.3 is nearer to 1.4, and goes to 1.0.
    let mut other = stored.clone();
    other["detections"] = json!([
        row("CAR", 0.88, [1.3, 0.0, 0.0]),
        row("CAR", 0.5, [1.8, 0.0, 0.0]),
        row("TRUCK", 0.7, [9.0, 9.0, 0.0])
    ]);
    other["frame_id"] = json!("g");
    let (metrics, failures) = compare_with_reference(&other, &stored, &gates);
    assert!(
        (metrics["recall"] - 2.0 / 3.0).abs() < 1e-12 && (metrics["score_err_max"] - 0.3).abs() < 1e-12,
        "{metrics:?}"
    );
    assert_eq!(failures.len(), 4, "{failures:?}");

    let boxes = |left: f64| json!({ "detections": [{ "label": "car", "score": 0.5, "box_xyxy": [left, 0, left + 10.0, 10] }] });
    assert!(
        compare_with_reference(&boxes(3.0), &boxes(0.0), &gates)
            .1
            .is_empty(),
        "their overlap is 7 / 13"
    );
    assert_eq!(
        compare_with_reference(&boxes(4.0), &boxes(0.0), &gates).1.len(),
        2,
        "their overlap is 6 / 14"
    );

    let columns = json!(["x", "y", "yaw"]);
    let path = |end: f64| json!({ "columns": columns, "trajectory": [[0, 0, 0], [1, 0, 0], [2, end, 0]] });
    let (metrics, failures) = compare_with_reference(&path(1.5), &path(0.0), &gates);
    assert_eq!((metrics["ade"], metrics["fde"], failures.len()), (0.5, 1.5, 1));
    for broken in [
        json!({}),
        json!({ "columns": columns, "trajectory": 7 }),
        json!({ "columns": columns, "trajectory": [[0, 0]] }),
        json!(null),
    ] {
        assert!(
            !compare_with_reference(&broken, &path(0.0), &gates).1.is_empty(),
            "{broken}"
        );
    }

    // x and y are where the columns of each side say.
    let turned = json!({ "columns": ["t", "y", "yaw", "x"], "trajectory": [[0, 0, 9, 0], [1, 0, 9, 1], [2, 1.5, 9, 2]] });
    let (metrics, failures) = compare_with_reference(&turned, &path(0.0), &gates);
    assert_eq!((metrics["ade"], metrics["fde"], failures.len()), (0.5, 1.5, 1));
    let (metrics, _) = compare_with_reference(&path(0.0), &turned, &gates);
    assert_eq!((metrics["ade"], metrics["fde"]), (0.5, 1.5));
    for (column, told) in [
        (json!(["x", "yaw"]), "no `y`"),
        (Value::Null, "`columns` are no list"),
    ] {
        let mut other = path(0.0);
        other["columns"] = column;
        for (body, reference) in [(&other, &path(0.0)), (&path(0.0), &other)] {
            let (metrics, failures) = compare_with_reference(body, reference, &gates);
            assert_eq!((metrics.len(), failures.len()), (0, 1), "{failures:?}");
            assert!(failures[0].contains(told), "{told}: {failures:?}");
        }
    }

    for empty in [
        json!({}),
        json!({ "model": "m" }),
        json!({ "trajectory": 7 }),
        json!(null),
        json!([]),
    ] {
        let (_, failures) =
            compare_with_reference(&json!({ "model": "m", "detections": [] }), &empty, &gates);
        assert_eq!(failures.len(), 1, "{empty}");
        assert!(failures[0].starts_with("nothing was compared"), "{failures:?}");
    }

    let labels = |last: u8| json!({ "labels": { "encoding": "raw", "dtype": "uint8", "shape": [4], "data": STANDARD.encode([1, 2, 3, last]) } });
    let (metrics, failures) = compare_with_reference(&labels(9), &labels(4), &gates);
    assert_eq!((metrics["labels.agreement"], failures.len()), (0.75, 1));
    let floats = |values: [f32; 3]| {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        json!({ "a": { "b": { "encoding": "raw", "dtype": "float32", "shape": [3], "data": STANDARD.encode(bytes) } } })
    };
    let inf = f32::INFINITY;
    let (metrics, failures) =
        compare_with_reference(&floats([inf, 1.0, 2.5]), &floats([inf, 1.0, 2.0]), &gates);
    assert_eq!((metrics["a.b.max_abs_err"], failures.len()), (0.5, 0));
    let mut strict = gates;
    strict.set("max_abs_err", 0.1).unwrap();
    assert_eq!(
        compare_with_reference(&floats([inf, 1.0, 2.5]), &floats([inf, 1.0, 2.0]), &strict)
            .1
            .len(),
        1
    );
    assert_eq!(
        compare_with_reference(&floats([f32::NAN, 1.0, 2.0]), &floats([inf, 1.0, 2.0]), &gates)
            .1
            .len(),
        1
    );
    assert!(strict.set("max_abs", 1.0).is_err());

    let mask = |grey: u8| {
        let pixels = [0, 1, 2, grey];
        let image = ImageRef::new(&pixels, 2, 2, 2, PixelFormat::Mono8).unwrap();
        json!({ "mask": sensorium::io::forms::encode_png_form(&image, "mask").unwrap() })
    };
    assert_eq!(
        compare_with_reference(&mask(9), &mask(3), &gates).0["mask.agreement"],
        0.75
    );
}

#[test]
fn the_smoke_command_sends_a_frame_and_ends_with_what_it_found() {
    let lab = Lab::new();
    let service = squares(&lab);
    let url = format!("http://{}", service.address);
    let (image, _) = tiny::numbered(4);
    std::fs::write(lab.path("frame.png"), encode_png(&image.view()).unwrap()).unwrap();
    let smoke = |more: &[&str]| {
        let mut command = tiny::sensorium();
        command
            .current_dir(lab.path(""))
            .args(["smoke", &url, "--image", "frame.png"])
            .args(more);
        command.output().unwrap()
    };
    let out = smoke(&["--out", "frame.reference.json", "--expect-backend", "cpu"]);
    assert!(out.status.success(), "{out:?}");
    let line = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        line.contains(": ok n=1") && line.contains("(no stored answer was compared)"),
        "{out:?}"
    );
    let out = smoke(&[]);
    assert!(
        String::from_utf8_lossy(&out.stdout).contains("recall=1.0000"),
        "{out:?}"
    );
    let out = smoke(&["--param", "score_threshold=0.99", "--expect-model", "other"]);
    assert_eq!(out.status.code(), Some(1));
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        told.contains("recall 0.0000 is below 0.95") && told.contains("expected \"other\""),
        "{told}"
    );
    std::fs::write(lab.path("empty.json"), "{}").unwrap();
    let out = smoke(&["--reference", "empty.json"]);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(told.contains("nothing was compared"), "{told}");
    let out = tiny::sensorium().args(["smoke", &url]).output().unwrap();
    assert!(out.status.success(), "{out:?}");
    assert!(
        String::from_utf8_lossy(&out.stdout).contains("ok (no frame was sent)"),
        "{out:?}"
    );
}
