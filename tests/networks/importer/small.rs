//! Graphs of a few nodes, lowered and run by plain loops, against ONNX Runtime.

use std::collections::BTreeMap;

use sensorium::models::{LowerOptions, lower};
use sensorium::weights::OnnxModel;

use crate::importer::{floats, interpreter, support};

#[test]
fn small_graphs_equal_onnx_runtime() {
    let Some(mut command) = support::oracle("make_ops.py") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    support::run(command.arg(folder.path()));
    let mut cases: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    cases.retain(|p| p.extension().is_some_and(|e| e == "onnx"));
    cases.sort();
    assert!(cases.len() > 150, "{} cases", cases.len());
    let mut failures = Vec::new();
    for case in &cases {
        let name = case.file_stem().unwrap().to_string_lossy().into_owned();
        let read = |extension: &str| floats(&std::fs::read(case.with_extension(extension)).unwrap());
        let graph = match lower(&OnnxModel::open(case).unwrap(), &LowerOptions::default()) {
            Ok(graph) => graph,
            Err(error) => {
                failures.push(format!("{name}: {error}"));
                continue;
            }
        };
        let mut rest = read("in");
        let inputs: Vec<Vec<f32>> = graph
            .inputs
            .iter()
            .map(|i| rest.drain(..i.spec.shape.elements()).collect())
            .collect();
        let (found, expected) = (interpreter::run(&graph, &inputs).concat(), read("out"));
        if found.len() != expected.len() {
            failures.push(format!(
                "{name}: {} elements instead of {}",
                found.len(),
                expected.len()
            ));
            continue;
        }
        // A NaN is close to nothing.
        let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * b.abs().max(1.0);
        let count = found.iter().zip(&expected).filter(|&pair| !close(pair)).count();
        if count > 0 {
            failures.push(format!("{name}: {count} of {} elements differ", expected.len()));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {}:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}

#[test]
fn feature_nets_of_pillars_become_one_launch_and_dense_layers_take_what_follows() {
    let Some(mut command) = support::oracle("make_ops.py") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    support::run(command.arg(folder.path()));
    let launches = |case: &str| {
        let model = OnnxModel::open(folder.path().join(format!("{case}.onnx"))).unwrap();
        let stats = lower(&model, &LowerOptions::default()).unwrap().stats;
        let launches: Vec<(&str, usize)> = stats.launches.into_iter().collect();
        (launches, stats.fused)
    };
    for case in [
        "pillars_one",
        "pillars_squeezed",
        "pillars_two",
        "pillars_expanded",
    ] {
        assert_eq!(launches(case).0, [("pillars", 1)], "{case}");
        assert_eq!(launches(case).1["pillars"], 1);
    }
    assert_eq!(launches("pillars_followed").0, [("pillars", 1), ("unary", 1)]);
    // A first layer that is seen from outside, or is none, stays a layer; what follows it is a net of one layer.
    for case in ["pillars_seen", "pillars_sigmoid", "pillars_swapped"] {
        let (launches, fused) = launches(case);
        assert!(
            launches.contains(&("conv2d", 1)) && launches.contains(&("pillars", 1)),
            "{case}: {launches:?}"
        );
        assert_eq!(fused["pillars"], 1, "{case}");
    }
    assert!(!launches("pillars_other_axis").1.contains_key("pillars"));
    assert_eq!(launches("matmul_norm").0, [("conv2d", 1)]);
    assert_eq!(
        launches("matmul_norm").1,
        BTreeMap::from([("activation", 1), ("norm", 1)])
    );
    assert_eq!(
        launches("matmul_bias").1,
        BTreeMap::from([("activation", 1), ("bias", 1)])
    );
    assert_eq!(
        launches("conv_transpose_doubling").0,
        [("conv2d", 4), ("copy", 2)]
    );
}
