//! What each simplification does to the bits of a network's outputs, and to its memory.

use std::path::PathBuf;

use prost::Message;
use sensorium::models::{LowerOptions, Passes, lower};
use sensorium::weights::OnnxModel;
use sensorium::weights::proto::{AttributeProto, GraphProto, ModelProto, OperatorSetIdProto, TensorProto};

use crate::importer::wide::{cases, data, name};
use crate::importer::{device, node, sizes, value};

fn options(passes: Passes) -> LowerOptions {
    LowerOptions {
        passes,
        ..LowerOptions::default()
    }
}

/// Outputs of all cases with a pass and without; the number of cases that cannot be lowered without it, and of those
/// whose launches differ. `equal` judges the two.
fn compare(
    cases: &[PathBuf],
    [with, without]: [Passes; 2],
    equal: impl Fn(&[Vec<f32>], &[Vec<f32>]) -> bool,
) -> (usize, usize, Vec<String>) {
    let (mut refused, mut different, mut failures) = (0, 0, Vec::new());
    for case in cases {
        let model = OnnxModel::open(case).unwrap();
        let on = lower(&model, &options(with)).unwrap();
        let Ok(off) = lower(&model, &options(without)) else {
            refused += 1;
            continue;
        };
        if on.steps == off.steps {
            continue;
        }
        different += 1;
        let (inputs, _) = data(case, on.inputs.iter().map(|i| i.spec.shape.elements()));
        if !equal(&device::eager(&on, &inputs), &device::eager(&off, &inputs)) {
            failures.push(name(case));
        }
    }
    (refused, different, failures)
}

fn all_cases() -> Option<Vec<(tempfile::TempDir, Vec<PathBuf>)>> {
    ["make_ops.py", "make_wide.py", "make_nets.py"]
        .into_iter()
        .map(cases)
        .collect()
}

#[test]
fn exact_passes_change_no_bit_of_any_graph() {
    let Some(folders) = all_cases() else {
        return;
    };
    let cases: Vec<PathBuf> = folders.iter().flat_map(|(_, cases)| cases.clone()).collect();
    let all = Passes::ALL;
    // Feature nets are found by their activations.
    let literal = Passes {
        patterns: false,
        ..all
    };
    let [mut constants, mut followers, mut transposes, mut in_place] = [all, literal, all, all];
    constants.constants = false;
    followers.followers = false;
    transposes.transposes = false;
    in_place.in_place = false;
    let exact = [
        ("constants", [all, constants], 10),
        ("followers", [literal, followers], 20),
        ("transposes", [all, transposes], 10),
        ("in place", [all, in_place], 40),
    ];
    for (pass, switched, least) in exact {
        let (refused, different, failures) = compare(&cases, switched, device::same_bits);
        println!("{pass}: {different} graphs differ in their launches, {refused} need the pass");
        assert!(failures.is_empty(), "{pass} changes the bits of {failures:?}");
        // A pass that changed no launch would not be tested.
        assert!(
            different >= least && refused <= 6,
            "{pass}: {different} differ, {refused} refused"
        );
    }
}

#[test]
fn patterns_and_norms_stay_within_their_rounding() {
    let Some(folders) = all_cases() else {
        return;
    };
    let cases: Vec<PathBuf> = folders.iter().flat_map(|(_, cases)| cases.clone()).collect();
    let near = |a: &[Vec<f32>], b: &[Vec<f32>]| {
        let close =
            |(x, y): (&f32, &f32)| (x - y).abs() <= 1e-5 * y.abs().max(1.0) || x.to_bits() == y.to_bits();
        a.iter().zip(b).all(|(a, b)| a.iter().zip(b).all(close))
    };
    let all = Passes::ALL;
    let [mut patterns, mut norms, mut biases] = [all; 3];
    patterns.patterns = false;
    norms.norms = false;
    biases.biases = false;
    for (pass, without) in [
        ("patterns", patterns),
        ("norms", norms),
        ("biases", biases),
        ("all", Passes::NONE),
    ] {
        let (refused, different, failures) = compare(&cases, [all, without], near);
        println!("{pass}: {different} graphs differ in their launches, {refused} need the pass");
        assert!(failures.is_empty(), "{pass}: {failures:?}");
        assert!(
            different >= 5 && refused <= 6,
            "{pass}: {different} differ, {refused} refused"
        );
    }
}

fn floats(name: &str, dims: &[i64], values: &[f32]) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        dims: dims.to_vec(),
        data_type: 1,
        float_data: values.to_vec(),
        ..TensorProto::default()
    }
}

/// A convolution of one pixel, `[1, channels, 1, 4]`, with its normalisation.
fn normalised(weight: &[f32], norm: [&[f32]; 4], epsilon: f32) -> OnnxModel {
    let outputs = norm[0].len();
    let channels = weight.len() / outputs;
    let (o, c) = (outputs as i64, channels as i64);
    let mut initializer = vec![floats("w", &[o, c, 1, 1], weight)];
    initializer.extend(
        ["s", "b", "m", "v"]
            .iter()
            .zip(norm)
            .map(|(name, values)| floats(name, &[o], values)),
    );
    let epsilon = AttributeProto {
        name: "epsilon".to_owned(),
        f: epsilon,
        r#type: 1,
        ..AttributeProto::default()
    };
    let mut norm = node("BatchNormalization", &["c", "s", "b", "m", "v"], &["y"]);
    norm.attribute.push(epsilon);
    let proto = ModelProto {
        ir_version: 8,
        graph: Some(GraphProto {
            node: vec![node("Conv", &["x", "w"], &["c"]), norm],
            input: vec![value("x", &sizes(&[1, c, 1, 4]))],
            output: vec![value("y", &[])],
            initializer,
            ..GraphProto::default()
        }),
        opset_import: vec![OperatorSetIdProto {
            domain: String::new(),
            version: 13,
        }],
        ..ModelProto::default()
    };
    OnnxModel::from_bytes(&proto.encode_to_vec(), "norm.onnx", None).unwrap()
}

/// Numbers without a pattern in -1..1.
fn noise(count: usize, mut state: u64) -> Vec<f32> {
    let next = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32) / (1 << 23) as f32 - 1.0
    };
    (0..count).map(next).collect()
}

fn both(model: &OnnxModel, input: &[f32]) -> [Vec<f32>; 2] {
    let on = Passes::ALL;
    let off = Passes { norms: false, ..on };
    [on, off].map(|passes| {
        let graph = lower(model, &options(passes)).unwrap();
        assert_eq!(graph.stats.fused.contains_key("norm"), passes.norms);
        device::eager(&graph, &[input.to_vec()]).concat()
    })
}

#[test]
fn folding_by_powers_of_two_changes_no_bit() {
    // Whole weights and inputs, factors 2 / sqrt(4) and 8 / sqrt(16), whole shifts and means: every step is exact.
    let weight: Vec<f32> = noise(2 * 5, 1).iter().map(|x| (x * 50.0).round()).collect();
    let input: Vec<f32> = noise(5 * 4, 2).iter().map(|x| (x * 50.0).round()).collect();
    let model = normalised(
        &weight,
        [&[2.0, 8.0], &[3.0, -7.0], &[-4.0, 12.0], &[4.0, 16.0]],
        0.0,
    );
    let [folded, literal] = both(&model, &input);
    assert_eq!(folded, literal);
    assert!(folded.iter().any(|&y| y != 0.0));
}

#[test]
fn a_folded_normalisation_is_within_the_rounding_of_its_weights() {
    let (outputs, channels) = (7, 40);
    let weight = noise(outputs * channels, 3);
    let input = noise(channels * 4, 4);
    let [scale, shift, mean] = [5, 6, 7].map(|seed| noise(outputs, seed));
    let variance: Vec<f32> = noise(outputs, 8).iter().map(|v| v.abs() + 0.1).collect();
    let model = normalised(&weight, [&scale, &shift, &mean, &variance], 1e-3);
    let [folded, literal] = both(&model, &input);
    for (o, pixel) in (0..outputs).flat_map(|o| (0..4).map(move |pixel| (o, pixel))) {
        let products =
            (0..channels).map(|c| f64::from(weight[o * channels + c]) * f64::from(input[c * 4 + pixel]));
        let (sum, size) = products.fold((0.0, 0.0), |(sum, size), p| (sum + p, size + p.abs()));
        let factor = f64::from(scale[o]) / (f64::from(variance[o]) + f64::from(1e-3_f32)).sqrt();
        let exact = (sum - f64::from(mean[o])) * factor + f64::from(shift[o]);
        // Half a unit for the weight and one for each of the products and sums behind it.
        let bound = f64::from(f32::EPSILON) / 2.0
            * (channels as f64 + 4.0)
            * (size * factor.abs() + (mean[o].abs() as f64 * factor.abs()) + f64::from(shift[o].abs()));
        for (what, found) in [("folded", &folded), ("literal", &literal)] {
            let error = (f64::from(found[o * 4 + pixel]) - exact).abs();
            assert!(error <= bound, "{what}: {error:e} above {bound:e}");
        }
    }
}

#[test]
fn memory_is_saved_where_launches_write_in_place() {
    let Some((_folder, cases)) = cases("make_nets.py") else {
        return;
    };
    for case in &cases {
        let model = OnnxModel::open(case).unwrap();
        let all = Passes::ALL;
        let on = lower(&model, &options(all)).unwrap().stats;
        let off = lower(
            &model,
            &options(Passes {
                in_place: false,
                ..all
            }),
        )
        .unwrap()
        .stats;
        println!(
            "{}: {} in place, {} of {} bytes",
            name(case),
            on.in_place,
            on.peak_bytes,
            off.peak_bytes
        );
        assert_eq!((off.in_place, off.in_place_bytes), (0, 0));
        assert!(on.peak_bytes <= off.peak_bytes, "{}", name(case));
        assert_eq!(on.in_place > 0, on.in_place_bytes > 0);
        if name(case) != "residual" {
            assert!(on.in_place > 0, "{}", name(case));
        }
    }
}
