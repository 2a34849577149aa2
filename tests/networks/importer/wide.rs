//! Every operation in its forms and operator sets, on the CPU device, against ONNX Runtime.

use std::path::{Path, PathBuf};

use sensorium::models::{LowerOptions, lower};
use sensorium::tensor::DType;
use sensorium::weights::OnnxModel;

use crate::importer::{device, support};

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
fn failure(case: &Path, options: &LowerOptions) -> Option<String> {
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
    let exact = name(case).starts_with("exact_") && options.storage == DType::F32;
    let finite = expected.iter().filter(|x| x.is_finite());
    // In bf16 a sum is off by what its largest terms are rounded by.
    let top = finite.fold(0.0_f32, |top, x| top.max(x.abs()));
    let close = |(&a, &b): (&f32, &f32)| match options.storage {
        _ if a == b || a.is_nan() && b.is_nan() => true,
        DType::F32 => !exact && (a - b).abs() <= 1e-5 * b.abs().max(1.0),
        _ => (a - b).abs() <= 0.05 * top,
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

fn all_fit(cases: &[PathBuf], options: &LowerOptions) {
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| Some(format!("{}: {}", name(case), failure(case, options)?)))
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
fn operations_in_all_their_forms_equal_onnx_runtime() {
    let Some((_folder, cases)) = cases("make_wide.py") else {
        return;
    };
    assert!(cases.len() > 500, "{} cases", cases.len());
    all_fit(&cases, &LowerOptions::default());
}

/// Operations whose results jump where an input is rounded.
const JUMPING: &[&str] = &[
    "exact_argm",
    "exact_cast_to_whole",
    "exact_ceil",
    "exact_floor",
    "exact_top_k",
];

#[test]
fn operations_in_bf16_are_near_onnx_runtime() {
    let Some((_folder, mut cases)) = cases("make_wide.py") else {
        return;
    };
    cases.retain(|case| !JUMPING.iter().any(|jumping| name(case).starts_with(jumping)));
    let options = LowerOptions {
        storage: DType::Bf16,
        ..LowerOptions::default()
    };
    all_fit(&cases, &options);
}
