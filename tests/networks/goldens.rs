//! Taps, goldens, frozen gates and the report of a comparison.

use crate::support;
use std::collections::BTreeMap;
use std::path::Path;

use ndarray::{ArrayD, arr1};
use sensorium::accuracy::compare::{Arrays, CompareOptions, Gates, compare_taps};
use sensorium::accuracy::gates::{Gate, GateError, GateRegistry, GatesWrite, gates_of, parse_gates};
use sensorium::accuracy::metrics::{Direction, Metric};
use sensorium::accuracy::{GoldenError, Goldens, TapRegistry, save_goldens};
use sensorium::device::{Activation, BufferClass, CpuConfig, CpuDevice, OpDesc};
use sensorium::numeric::Fp8Policy;
use sensorium::ops::DeviceTensor;
use sensorium::tensor::{DType, HostTensor, TensorSpec};
use sensorium::trace::{InputId, TraceError, TraceOptions, TraceRunner, VariantId};
use sensorium::weights::NpzCompression;
use serde_json::json;

fn device() -> CpuDevice {
    CpuDevice::open(&CpuConfig {
        threads: 1,
        arena_bytes: 1 << 20,
        ..CpuConfig::default()
    })
    .unwrap()
}

/// `y = relu(x)`, `z = tanh(y)`, with taps on both, and on the transpose of y.
fn network(device: &mut CpuDevice) -> (TraceRunner, VariantId, InputId) {
    let spec = TensorSpec::new(&[2, 3], DType::F32).unwrap();
    let mut runner = TraceRunner::new("net", TraceOptions::default()).unwrap();
    let input = runner.add_input(device, "x", spec, None).unwrap();
    runner.add_output(device, "z", spec).unwrap();
    let variant = runner.add_variant(
        device,
        "default",
        Box::new(move |context| {
            let (x, z) = (context.input("x")?, context.output("z")?);
            let y = context.ops().alloc(&spec, BufferClass::Intermediate)?;
            let apply = |from: DeviceTensor, to: DeviceTensor, activation| OpDesc::Unary {
                src: from.operand(),
                dst: to.operand(),
                activation,
            };
            context
                .ops()
                .run(&apply(x, y, Activation::Relu), &[x.buffer, y.buffer])?;
            context.scope("block", |context| {
                context.tap("y", &y)?;
                let turned = DeviceTensor {
                    view: y.view.transpose(&[1, 0])?.slice(0, 2, 3, -1)?,
                    ..y
                };
                context.scope("inner", |context| context.tap("turned", &turned))?;
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
            })?;
            context
                .ops()
                .run(&apply(y, z, Activation::Tanh), &[y.buffer, z.buffer])?;
            context.tap("z", &z)?;
            Ok(vec![("z".to_owned(), z)])
        }),
    );
    (runner, variant.unwrap(), input)
}

const X: [f32; 6] = [-1.0, 2.0, -3.0, 4.0, -5.0, 6.0];

fn floats(tensor: &HostTensor) -> Vec<f32> {
    tensor.as_slice::<f32>().unwrap().to_vec()
}

#[test]
fn taps_read_at_once_in_eager_runs_and_are_refused_in_captures() {
    let mut device = device();
    let (mut runner, variant, input) = network(&mut device);
    runner.capture(&mut device).unwrap();
    let x = HostTensor::from_slice(&[2, 3], &X).unwrap();
    let plain = runner.call(&mut device, variant, &[(input, &x)]).unwrap();

    let taps = TapRegistry::all();
    assert!(runner.set_taps(Some(Box::new(taps.clone()))).is_none());
    let tapped = runner.run_eager(&mut device, variant, &[(input, &x)]).unwrap();
    assert_eq!(tapped[0].1.bytes(), plain[0].1.bytes());
    assert_eq!(taps.names(), ["block.inner.turned", "block.y", "z"]);
    let values = taps.values();
    assert_eq!(floats(&values["block.y"]), [0.0, 2.0, 0.0, 4.0, 0.0, 6.0]);
    assert_eq!(&values["block.inner.turned"].shape()[..], [3, 2]);
    assert_eq!(
        floats(&values["block.inner.turned"]),
        [0.0, 6.0, 2.0, 0.0, 0.0, 4.0]
    );
    assert_eq!(values["z"].bytes(), plain[0].1.bytes());

    // A second run shows the same names again.
    let error = runner
        .run_eager(&mut device, variant, &[(input, &x)])
        .unwrap_err();
    assert!(
        matches!(&error, TraceError::Tap { name, .. } if name == "block.y"),
        "{error}"
    );
    taps.clear();
    runner.run_eager(&mut device, variant, &[(input, &x)]).unwrap();
    // A replay shows nothing, and goes on.
    taps.clear();
    runner.call(&mut device, variant, &[(input, &x)]).unwrap();
    assert!(taps.names().is_empty());
    runner.release(&mut device).unwrap();

    let (mut runner, variant, input) = network(&mut device);
    runner.set_taps(Some(Box::new(TapRegistry::new(&["block.*"], &["*.turned"]))));
    // The warm-up shows nothing; the capture cannot.
    let error = runner.capture(&mut device).unwrap_err();
    assert!(
        matches!(&error, TraceError::TapInCapture { name, .. } if name == "block.y"),
        "{error}"
    );
    let few = TapRegistry::new(&["block.*"], &["*.turned"]);
    runner.set_taps(Some(Box::new(few.clone())));
    runner.run_eager(&mut device, variant, &[(input, &x)]).unwrap();
    assert_eq!(few.names(), ["block.y"]);
    // Taps that want nothing of what is shown do not stand in the way.
    runner.set_taps(Some(Box::new(TapRegistry::new(&["nothing"], &[]))));
    runner.capture(&mut device).unwrap();
    runner.set_taps(None);
    runner.capture(&mut device).unwrap();
    runner.release(&mut device).unwrap();
}

fn tensors() -> BTreeMap<String, HostTensor> {
    let policy = Fp8Policy::default();
    let mut all = BTreeMap::new();
    for dtype in [
        DType::F32,
        DType::F16,
        DType::Bf16,
        DType::U8,
        DType::I8,
        DType::U16,
        DType::I16,
        DType::U32,
        DType::I32,
        DType::U64,
        DType::I64,
    ] {
        let tensor = HostTensor::from_f32(&[2, 1, 3], &[0.0, 1.0, 2.5, 3.0, 100.0, 7.0], dtype, &policy);
        all.insert(dtype.to_string(), tensor.unwrap());
    }
    all
}

#[test]
fn goldens_keep_every_type_and_what_they_say_of_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let meta = json!({"model": "net", "seed": 7});
    for compression in [NpzCompression::Stored, NpzCompression::Deflated] {
        let file = folder.path().join("golden.npz");
        save_goldens(&file, &tensors(), Some(meta.clone()), compression).unwrap();
        let goldens = Goldens::open(&file).unwrap();
        assert_eq!(goldens.meta(), &meta);
        assert_eq!(goldens.sha256().len(), 64);
        assert_eq!(goldens.names(), tensors().keys().cloned().collect::<Vec<_>>());
        for name in goldens.names() {
            assert_eq!(goldens.array(&name), tensors().array(&name), "{name}");
        }
        assert_eq!(goldens.array("other"), None);
        // The digest is one of the file.
        if let Some(python) = std::env::var_os("SENSORIUM_TEST_PYTHON") {
            let script =
                "import hashlib,sys;print(hashlib.sha256(open(sys.argv[1],'rb').read()).hexdigest())";
            let told = support::run(std::process::Command::new(python).args(["-c", script]).arg(&file));
            assert_eq!(String::from_utf8(told).unwrap().trim(), goldens.sha256());
        }
    }
    let taps = TapRegistry::all();
    taps.save(&folder.path().join("none.npz"), None, NpzCompression::Stored)
        .unwrap();
    let empty = Goldens::open(&folder.path().join("none.npz")).unwrap();
    assert!(empty.names().is_empty() && empty.meta().is_null());
}

#[test]
fn goldens_refuse_what_they_cannot_keep_or_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("golden.npz");
    let one = |tensor| BTreeMap::from([("t".to_owned(), tensor)]);
    let narrow = HostTensor::from_f32(&[1], &[1.0], DType::F8E4M3, &Fp8Policy::default()).unwrap();
    let error = save_goldens(&file, &one(narrow), None, NpzCompression::Stored).unwrap_err();
    assert!(matches!(error, GoldenError::NoType { .. }), "{error}");
    let large = HostTensor::from_slice(&[1], &[u64::MAX]).unwrap();
    let error = save_goldens(&file, &one(large), None, NpzCompression::Stored).unwrap_err();
    assert!(
        matches!(error, GoldenError::TooLarge { value: u64::MAX, .. }),
        "{error}"
    );
    assert!(!file.exists());
    assert!(matches!(
        Goldens::open(&file).unwrap_err(),
        GoldenError::Read { .. }
    ));
    std::fs::write(&file, "no archive").unwrap();
    assert!(matches!(Goldens::open(&file).unwrap_err(), GoldenError::Npz(_)));
}

fn gate(threshold: f64, metric: &str) -> Gate {
    Gate::of(threshold, metric).unwrap()
}

fn declared(gates: &[(&str, Gate)]) -> Vec<(String, Gate)> {
    gates
        .iter()
        .map(|(name, gate)| ((*name).to_owned(), gate.clone()))
        .collect()
}

/// Gates that write whatever the environment of the test says.
fn registry(file: &Path, gates: &[(&str, Gate)]) -> Result<GateRegistry, GateError> {
    GateRegistry::open(file, declared(gates), GatesWrite::Always)
}

#[test]
fn gates_take_the_direction_of_their_metric_and_refuse_another() {
    assert_eq!(gate(0.99, "pcc").direction(), Direction::Min);
    assert_eq!(gate(0.1, "center_err_p99").direction(), Direction::Max);
    assert!(matches!(
        Gate::of(0.9, "cosine"),
        Err(GateError::UnknownDirection { .. })
    ));
    assert!(Gate::new(0.9, Direction::Min, "cosine").is_ok());
    let error = Gate::new(0.9, Direction::Max, "pcc").unwrap_err();
    assert_eq!(
        error.to_string(),
        "gate max 0.9 of metric pcc: the good side of pcc is min"
    );
    for threshold in [f64::NAN, f64::INFINITY] {
        assert!(matches!(
            Gate::of(threshold, "pcc"),
            Err(GateError::Threshold { .. })
        ));
    }
    let (least, most) = (gate(0.9, "pcc"), gate(0.5, "ade"));
    assert!(least.passes(0.9) && least.passes(1.0) && !least.passes(0.899) && !least.passes(f64::NAN));
    assert!(most.passes(0.5) && most.passes(-1.0) && !most.passes(0.501) && !most.passes(f64::NAN));
    assert!(gate(0.8, "pcc").looser_than(&least) && !gate(0.95, "pcc").looser_than(&least));
    assert!(gate(0.6, "ade").looser_than(&most) && !gate(0.5, "ade").looser_than(&most));
    assert!(gate(0.95, "recall").looser_than(&least));
}

#[test]
fn gates_are_read_from_json_and_yaml_in_every_form() {
    let json = r#"{"a": 0.999, "b": [0.5, "max", "ade"], "c": {"threshold": 1e-3, "metric": "max_abs"}, "d": [1, "min"]}"#;
    let yaml = "a: 0.999\nb: [0.5, max, ade]\nc: {threshold: 1e-3, metric: max_abs}\nd: [1, min]\n";
    for text in [json, yaml] {
        let gates = gates_of(&parse_gates(text).unwrap(), |_| "pcc".to_owned()).unwrap();
        assert_eq!(gates["a"], gate(0.999, "pcc"));
        assert_eq!(gates["b"], gate(0.5, "ade"));
        assert_eq!(gates["c"], gate(1e-3, "max_abs"));
        assert_eq!(gates["d"], gate(1.0, "pcc"));
    }
    for bad in [
        "[]",
        "a: many",
        "a: [1, up]",
        "a: {limit: 3}",
        "a: [0.5, max, ade, now]",
        "{",
        "a: 1\na: 2",
        "a: .nan",
    ] {
        assert!(parse_gates(bad).is_err(), "{bad}");
    }
    let refused = |text| {
        gates_of(&parse_gates(text).unwrap(), |_| "pcc".to_owned())
            .unwrap_err()
            .1
    };
    assert!(matches!(
        refused("a: [0.5, max]"),
        GateError::Contradiction { .. }
    ));
    assert!(matches!(
        refused("a: {threshold: 1, metric: cosine}"),
        GateError::UnknownDirection { .. }
    ));
}

#[test]
fn a_gate_is_frozen_when_it_passes_and_cannot_be_loosened() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("net.gates.json");
    // 17 digits come back as they are.
    let exact = 0.912_345_678_901_234_5;
    let first = [("backbone", gate(0.99, "pcc")), ("head", gate(exact, "pcc"))];
    let mut gates = registry(&file, &first).unwrap();
    // What fails freezes nothing.
    assert!(!gates.check("backbone", 0.98).unwrap().passed);
    assert!(!gates.check("backbone", f64::NAN).unwrap().passed);
    assert!(!file.exists());
    assert!(gates.check("head", 0.95).unwrap().passed);
    assert_eq!(gates.frozen().keys().collect::<Vec<_>>(), ["head"]);
    let error = gates.require("backbone", 0.5).unwrap_err();
    assert_eq!(
        error.to_string(),
        "gate backbone failed: pcc is 0.5, required pcc >= 0.99"
    );
    assert!(matches!(
        gates.check("neck", 1.0),
        Err(GateError::Undeclared { .. })
    ));
    assert_eq!(gates.results().len(), 4);
    assert_eq!(registry(&file, &first).unwrap().frozen()["head"], first[1].1);

    // Looser: a lower minimum, another metric, another direction.
    for looser in [gate(0.91, "pcc"), gate(0.99, "recall"), gate(0.01, "rel_l2")] {
        let error = registry(&file, &[("head", looser.clone())]).unwrap_err();
        assert!(
            matches!(&error, GateError::Loosened { name, .. } if name == "head"),
            "{error}"
        );
        let mut gates = registry(&file, &[]).unwrap();
        assert!(matches!(
            gates.check_with("head", 1.0, looser),
            Err(GateError::Loosened { .. })
        ));
    }
    // Tighter: frozen again once it passes.
    let mut gates = registry(&file, &[("head", gate(0.97, "pcc"))]).unwrap();
    assert!(!gates.check("head", 0.96).unwrap().passed);
    assert_eq!(registry(&file, &[]).unwrap().frozen()["head"].threshold(), exact);
    gates.require("head", 0.98).unwrap();
    assert_eq!(registry(&file, &[]).unwrap().frozen()["head"].threshold(), 0.97);
    assert!(registry(&file, &first).is_err());
    // A frozen gate counts where none is declared.
    assert!(!registry(&file, &[]).unwrap().check("head", 0.96).unwrap().passed);
    // Nothing but the file is left in the folder.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn two_registries_of_one_file_keep_each_others_gates() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("net.gates.json");
    let mut one = registry(&file, &[("a", gate(0.9, "pcc"))]).unwrap();
    let mut other = registry(&file, &[("b", gate(0.9, "pcc")), ("a", gate(0.8, "pcc"))]).unwrap();
    one.require("a", 1.0).unwrap();
    other.require("b", 1.0).unwrap();
    let frozen = registry(&file, &[]).unwrap();
    assert_eq!(frozen.names().collect::<Vec<_>>(), ["a", "b"]);
    // Since the other was opened, the first one froze a tighter gate.
    assert!(matches!(other.check("a", 1.0), Err(GateError::Loosened { .. })));
}

#[test]
fn a_gate_file_is_left_alone_where_it_must_not_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let test = folder.path().join("net.rs");
    let file = folder.path().join("net.gates.json");
    let gates = declared(&[("a", gate(0.9, "pcc"))]);
    let mut never = GateRegistry::open(&file, gates.clone(), GatesWrite::Never).unwrap();
    never.require("a", 1.0).unwrap();
    assert!(!file.exists());
    // By the environment, in a process of its own: this test alone.
    if std::env::var_os("SENSORIUM_GATES_READONLY").is_none() {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args([
            "--exact",
            "goldens::a_gate_file_is_left_alone_where_it_must_not_be_written",
        ]);
        for (value, writes) in [("1", "no"), ("0", "yes"), ("", "yes")] {
            command
                .env("SENSORIUM_GATES_READONLY", value)
                .env("EXPECT_WRITES", writes);
            support::run(&mut command);
        }
    }
    let mut for_test = GateRegistry::for_test(&test, gates).unwrap();
    for_test.require("a", 1.0).unwrap();
    match std::env::var("EXPECT_WRITES").as_deref() {
        Ok(writes) => assert_eq!(file.exists(), writes == "yes"),
        Err(_) => assert_eq!(
            file.exists(),
            std::env::var_os("SENSORIUM_GATES_READONLY").is_none()
        ),
    }
    std::fs::write(&file, "{\"a\": \"high\"}").unwrap();
    let error = GateRegistry::for_test(&test, Vec::new()).unwrap_err();
    assert!(matches!(error, GateError::Form { .. }), "{error}");
}

fn arrays(all: &[(&str, &[f64])]) -> BTreeMap<String, ArrayD<f64>> {
    let owned = |(name, values): &(&str, &[f64])| ((*name).to_owned(), arr1(values).into_dyn());
    all.iter().map(owned).collect()
}

#[test]
fn a_report_says_what_passed_and_what_is_missing() {
    let golden = arrays(&[
        ("a", &[1.0, 2.0, 3.0]),
        ("b", &[1.0, 2.0, 3.0]),
        ("c", &[1.0, 2.0]),
        ("gone", &[1.0]),
        ("free", &[5.0, 5.5]),
    ]);
    let test = arrays(&[
        ("a", &[1.0, 2.0, 3.5]),
        ("b", &[1.0, 2.0, f64::NAN]),
        ("c", &[1.0, 2.0, 3.0]),
        ("free", &[5.0, 5.5]),
        ("more", &[0.0]),
    ]);
    let all: BTreeMap<String, Gate> = declared(&[
        ("a", gate(0.5, "max_abs")),
        ("b", gate(0.9, "pcc")),
        ("c", gate(0.9, "pcc")),
        ("gone", gate(0.9, "pcc")),
        ("nowhere", gate(0.9, "pcc")),
        ("dets.recall", gate(0.9, "recall")),
    ])
    .into_iter()
    .collect();
    let report = compare_taps(
        &test,
        &golden,
        &mut Gates::Fixed(&all),
        &CompareOptions::default(),
    )
    .unwrap();
    let verdicts: Vec<_> = report
        .rows()
        .iter()
        .map(|row| (row.name.as_str(), row.passed))
        .collect();
    assert_eq!(
        verdicts,
        [
            ("a", Some(true)),
            ("b", Some(false)),
            ("c", Some(false)),
            ("free", None),
            ("gone", Some(false)),
            ("nowhere", Some(false))
        ]
    );
    assert!(!report.passed());
    assert_eq!(
        (report.rows()[0].metric.as_str(), report.rows()[0].value),
        ("max_abs", 0.5)
    );
    assert_eq!(report.rows()[3].value, 1.0);
    let table = report.table();
    for part in [
        "max_abs <= 0.5",
        "FAILED",
        "c: pcc: the result has shape [3], but the reference has [2]",
        "gone: the run has no such array",
        "4 of 5 gates FAILED",
    ] {
        assert!(table.contains(part), "no {part} in\n{table}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    report.save_json(&file).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(document["passed"], json!(false));
    assert_eq!(
        document["rows"][0]["gate"],
        json!({"threshold": 0.5, "direction": "max", "metric": "max_abs"})
    );
    assert_eq!(document["rows"][1]["value"], json!(null));

    // By name, with the report's own metric.
    let options = CompareOptions {
        metric: Metric::RelL2,
        names: Some(&["free", "more"]),
        title: "two arrays",
        meta: json!({"seed": 1}),
    };
    let report = compare_taps(&test, &golden, &mut Gates::None, &options).unwrap();
    assert!(
        report.passed() && report.table().starts_with("two arrays\n"),
        "{}",
        report.table()
    );
    assert_eq!(report.rows()[0].metric, "rel_l2");
    assert!(report.rows()[1].problem.as_ref().unwrap().contains("goldens"));

    // A registry freezes what passes.
    let gates_file = folder.path().join("net.gates.json");
    let mut gates = registry(
        &gates_file,
        &[("a", gate(0.5, "max_abs")), ("b", gate(0.9, "pcc"))],
    )
    .unwrap();
    compare_taps(
        &test,
        &golden,
        &mut Gates::Frozen(&mut gates),
        &CompareOptions::default(),
    )
    .unwrap();
    assert_eq!(
        registry(&gates_file, &[]).unwrap().names().collect::<Vec<_>>(),
        ["a"]
    );
}
