//! Every operation in its forms and operator sets, on the CPU device, against ONNX Runtime.

use std::path::{Path, PathBuf};

use sensorium::models::{LowerOptions, lower};
use sensorium::tensor::DType;
use sensorium::weights::OnnxModel;

use crate::{device, support};

/// The models that a script writes, in order; `None` without Python.
pub(crate) fn cases(script: &str) -> Option<(tempfile::TempDir, Vec<PathBuf>)> {
    let mut command = support::oracle(script)?;
    let folder = tempfile::tempdir().unwrap();
    support::run(command.arg(folder.path()));
    let entries = std::fs::read_dir(folder.path()).unwrap();
    let mut cases: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    cases.retain(|path| path.extension().is_some_and(|e| e == "onnx"));
    cases.sort();
    Some((folder, cases))
}

/// Inputs of a case, divided by the inputs of its graph, and what ONNX Runtime made of them.
pub(crate) fn data(case: &Path, sizes: impl Iterator<Item = usize>) -> (Vec<Vec<f32>>, Vec<f32>) {
    let read = |extension: &str| support::floats(&std::fs::read(case.with_extension(extension)).unwrap());
    let mut rest = read("in");
    let inputs: Vec<Vec<f32>> = sizes.map(|size| rest.drain(..size).collect()).collect();
    assert!(rest.is_empty(), "{}: inputs are left over", case.display());
    (inputs, read("out"))
}

pub(crate) fn name(case: &Path) -> String {
    case.file_stem().unwrap().to_string_lossy().into_owned()
}

/// What is wrong with a case, if anything.
fn failure(case: &Path, options: &LowerOptions, tolerance: f32) -> Option<String> {
    let graph = match lower(&OnnxModel::open(case).unwrap(), options) {
        Ok(graph) => graph,
        Err(error) => return Some(error.to_string()),
    };
    let sizes = graph.inputs.iter().map(|i| i.spec.shape.elements());
    let (inputs, expected) = data(case, sizes);
    let found = match device::try_run(&graph, &inputs) {
        Ok(outputs) => outputs.concat(),
        Err(error) => return Some(format!("{error:?}")),
    };
    if found.len() != expected.len() {
        return Some(format!("{} elements instead of {}", found.len(), expected.len()));
    }
    let exact = name(case).starts_with("exact_") && tolerance == EXACT_ELSE;
    let close = |(&a, &b): (&f32, &f32)| match exact {
        true => a == b || a.is_nan() && b.is_nan(),
        false => a == b || (a - b).abs() <= tolerance * b.abs().max(1.0),
    };
    let count = found.iter().zip(&expected).filter(|&pair| !close(pair)).count();
    let worst = found
        .iter()
        .zip(&expected)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0_f32, f32::max);
    (count > 0).then(|| {
        format!(
            "{count} of {} elements differ, by up to {worst:e}",
            expected.len()
        )
    })
}

/// Of cases that need not be met bit for bit, in fp32.
const EXACT_ELSE: f32 = 1e-5;

#[test]
fn operations_in_all_their_forms_equal_onnx_runtime() {
    let Some((_folder, cases)) = cases("make_wide.py") else {
        return;
    };
    assert!(cases.len() > 450, "{} cases", cases.len());
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            Some(format!(
                "{}: {}",
                name(case),
                failure(case, &LowerOptions::default(), EXACT_ELSE)?
            ))
        })
        .collect();
    assert!(
        failures.is_empty(),
        "{} of {}:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}

#[test]
fn operations_in_bf16_are_near_onnx_runtime() {
    let Some((_folder, cases)) = cases("make_wide.py") else {
        return;
    };
    let options = LowerOptions {
        storage: DType::Bf16,
        ..LowerOptions::default()
    };
    let mut failures = Vec::new();
    for case in &cases {
        if let Some(problem) = failure(case, &options, 0.06) {
            failures.push(format!("{}: {problem}", name(case)));
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
