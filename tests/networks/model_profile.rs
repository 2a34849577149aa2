//! `sensorium model profile`, from the outside.

use crate::support;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

fn profile(folder: &Path, file: &Path, arguments: &[&str]) -> Output {
    let mut command = crate::tiny::sensorium();
    command
        .current_dir(folder)
        .env("NO_COLOR", "1")
        .args(["model", "profile"]);
    command.arg(file).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A protobuf field of bytes.
fn field(number: u8, contents: &[u8]) -> Vec<u8> {
    assert!(contents.len() < 128, "lengths of one byte are enough here");
    [&[number << 3 | 2, contents.len() as u8], contents].concat()
}

/// A protobuf field of a small number.
fn small(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

fn value_info(name: &str, dims: [u8; 4]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|&dim| field(1, &small(1, dim))).collect();
    let tensor = [small(1, 1), field(2, &dims)].concat();
    [field(1, name.as_bytes()), field(2, &field(1, &tensor))].concat()
}

fn node(op: &str, name: &str, inputs: &[&str], output: &str) -> Vec<u8> {
    let inputs: Vec<u8> = inputs
        .iter()
        .flat_map(|input| field(1, input.as_bytes()))
        .collect();
    let rest = [
        field(2, output.as_bytes()),
        field(3, name.as_bytes()),
        field(4, op.as_bytes()),
    ];
    field(1, &[inputs, rest.concat()].concat())
}

/// An ONNX model of `out = tanh(x) * relu(x)` over `[1, 2, 16, 16]`, or of an operation that nobody knows.
fn write_model(path: &Path, known: bool) {
    let dims = [1, 2, 16, 16];
    let last = if known { "Mul" } else { "Frobnicate" };
    let graph = [
        node("Tanh", "left", &["x"], "a"),
        node("Relu", "right", &["x"], "b"),
        node(last, "both", &["a", "b"], "out"),
        field(2, b"tiny"),
        field(11, &value_info("x", dims)),
        field(12, &value_info("out", dims)),
    ]
    .concat();
    let mut model = small(1, 8);
    // The graph is longer than lengths of one byte: two of seven bits.
    model.extend([
        7 << 3 | 2,
        (graph.len() % 128) as u8 | 128,
        (graph.len() / 128) as u8,
    ]);
    model.extend(graph);
    model.extend(field(8, &small(2, 13)));
    std::fs::write(path, model).unwrap();
}

#[test]
fn stages_and_launches_are_told_as_text_as_json_and_as_a_picture() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, model) = (folder.path(), folder.path().join("tiny.onnx"));
    write_model(&model, true);
    let told = profile(
        folder,
        &model,
        &[
            "--frames",
            "20",
            "--threads",
            "1",
            "--json",
            "out.json",
            "--picture",
            "out.svg",
        ],
    );
    assert!(told.status.success(), "{told:?}");
    let shown = text(&told.stdout);
    for part in [
        "host_in",
        "back_to_back",
        "post: a model file alone",
        "of peak",
        "binary [1, 2, 16, 16] -> [1, 2, 16, 16] float32",
        "peak measured on 1 thread(s)",
        "processor: frequency",
        "#1 to binary #2",
    ] {
        assert!(shown.contains(part), "no {part} in\n{shown}");
    }

    let document: Value = serde_json::from_slice(&std::fs::read(folder.join("out.json")).unwrap()).unwrap();
    let stages = document["stages"].as_array().unwrap();
    let names: Vec<&str> = stages
        .iter()
        .map(|stage| stage["stage"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["host_in", "h2d", "trace", "d2h", "end_to_end", "back_to_back"]
    );
    for stage in stages {
        let of = |key: &str| stage[key].as_f64().unwrap();
        let frames = if stage["stage"] == "back_to_back" { 2 } else { 20 };
        assert_eq!(stage["n"], json!(frames));
        assert!(
            of("min_us") <= of("p50_us") && of("p50_us") <= of("p99_us"),
            "{stage}"
        );
        assert!(of("p99_us") <= of("max_us") && of("min_us") > 0.0, "{stage}");
    }
    let launches = document["ops"]["launches"].as_array().unwrap();
    let told: Vec<_> = launches
        .iter()
        .map(|row| (&row["name"], &row["op"], &row["flop"], &row["bytes"]))
        .collect();
    let (one, two) = (json!(2 * 512 * 4), json!(3 * 512 * 4));
    assert_eq!(
        told,
        [
            (&json!("left"), &json!("unary"), &json!(512), &one),
            (&json!("right"), &json!("unary"), &json!(512), &one),
            (&json!("both"), &json!("binary"), &json!(512), &two)
        ]
    );
    let shares: f64 = launches.iter().map(|row| row["share"].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-9);
    assert!(document["ops"]["peak"]["flop_per_s"].as_f64().unwrap() > 1e8);
    assert_eq!(document["ops"]["top_gaps"].as_array().unwrap().len(), 2);
    assert!(document["cpu"].get("frequency_mhz").is_some());

    let svg = text(&std::fs::read(folder.join("out.svg")).unwrap());
    let picture = roxmltree::Document::parse(&svg).unwrap();
    let titles: Vec<_> = picture
        .descendants()
        .filter(|node| node.has_tag_name("title"))
        .collect();
    assert!(
        titles
            .iter()
            .any(|title| title.text().unwrap().starts_with("#2 both binary")),
        "{svg}"
    );

    let json = profile(
        folder,
        &model,
        &["--frames", "3", "--storage", "bf16", "--format", "json"],
    );
    let document: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&document["model"], &document["storage"]),
        (&json!("tiny.onnx"), &json!("bfloat16"))
    );
}

#[test]
fn what_cannot_be_profiled_is_said_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (known, unknown) = (folder.join("tiny.onnx"), folder.join("odd.onnx"));
    write_model(&known, true);
    write_model(&unknown, false);
    std::fs::write(folder.join("text.onnx"), "no model").unwrap();
    for (file, arguments, parts) in [
        (
            folder.join("none.onnx"),
            &[][..],
            ["none.onnx cannot be read as a model", "ONNX"],
        ),
        (
            folder.join("text.onnx"),
            &[],
            ["text.onnx cannot be read as a model", "ONNX"],
        ),
        (unknown, &[], ["cannot be profiled", "Frobnicate"]),
        (
            known.clone(),
            &["--storage", "u8"],
            ["cannot be uint8", "float32 or bfloat16"],
        ),
        (
            known.clone(),
            &["--frames", "1", "--picture", "none/out.svg"],
            ["out.svg cannot be written", "folder"],
        ),
    ] {
        let told = profile(folder, &file, arguments);
        assert_eq!(told.status.code(), Some(1), "{file:?} {arguments:?}: {told:?}");
        let said = text(&told.stderr);
        for part in parts {
            assert!(
                said.contains(part),
                "{file:?} {arguments:?}: no {part} in\n{said}"
            );
        }
    }
    for arguments in [["--frames", "0"], ["--storage", "float"], ["--threads", "-1"]] {
        assert_eq!(
            profile(folder, &known, &arguments).status.code(),
            Some(2),
            "{arguments:?}"
        );
    }
}

#[test]
fn a_public_detector_is_profiled_launch_by_launch() {
    let Some(model) = support::data("models/yolox_nano_416.onnx") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let told = profile(
        folder.path(),
        &model,
        &["--frames", "3", "--warmup", "1", "--format", "json"],
    );
    assert!(told.status.success(), "{told:?}");
    let document: Value = serde_json::from_slice(&told.stdout).unwrap();
    let kinds = document["ops"]["by_op"].as_array().unwrap();
    let convolutions = kinds.iter().find(|kind| kind["op"] == "conv2d").unwrap();
    assert_eq!(convolutions["launches"], json!(113));
    // 2 x (output elements) x (weights of one output channel), summed over the 113 convolutions.
    assert_eq!(convolutions["flop"], json!(1_045_106_816_u64));
    let of = |key: &str| document["ops"][key].as_f64().unwrap();
    // Medians of single launches and gaps need not add up to the median of the whole, but nearly do.
    let parts = of("launches_us") + of("gaps_us");
    assert!(
        (0.5..2.0).contains(&(parts / of("span_us"))),
        "{parts} of {}",
        of("span_us")
    );
}
