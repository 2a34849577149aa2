//! The resizes that presets are built from, against OpenCV 4.11 and 4.8.1.

use crate::support;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use sensorium::image::{
    Contraction, ImageError, Kernels, LinearF32Plan, NearestPlan, Raster, ResizePlan, Workspace,
};

/// Width and height of a source and of its result.
type Geometry = ([usize; 2], [usize; 2]);

/// Repeatable noise.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }

    fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| (self.next() as f32 / 4e6) - 200.0).collect()
    }
}

/// The corners that OpenCV treats by themselves, the deployed sizes, and random ones: 60 of them.
fn geometries(seed: u64) -> Vec<Geometry> {
    let mut all = vec![
        ([1, 1], [1, 1]),
        ([1, 1], [7, 5]),
        ([9, 1], [4, 1]),
        ([1, 9], [1, 4]),
        ([1, 37], [5, 12]),
        ([41, 1], [12, 3]),
        ([2, 2], [1, 1]),
        ([7, 5], [7, 5]),
        ([64, 48], [32, 24]),
        ([64, 48], [32, 23]),
        ([66, 48], [22, 16]),
        ([64, 60], [16, 12]),
        ([65, 49], [5, 7]),
        ([32, 24], [64, 48]),
        ([64, 24], [32, 48]),
        ([33, 25], [99, 20]),
        ([300, 200], [1, 1]),
        ([480, 270], [192, 108]),
        ([720, 465], [192, 108]),
        ([400, 225], [320, 180]),
        ([491, 3], [49, 1]),
        ([192, 108], [192, 108]),
    ];
    let mut noise = Noise(seed);
    while all.len() < 60 {
        let target = [noise.below(120) + 1, noise.below(90) + 1];
        let source = match all.len() % 6 {
            0 => target.map(|side| 2 * side),
            1 => target.map(|side| side + side / 3),
            2 => target.map(|side| 5 * side),
            3 => target.map(|side| (side / 2).max(1)),
            _ => [noise.below(260) + 1, noise.below(180) + 1],
        };
        all.push((source, target));
    }
    all
}

/// Cases of a method, run through both OpenCVs; `check` gets a case and OpenCV's bytes.
fn against_opencv<T: bytemuck::Pod>(
    method: &str,
    kind: &str,
    cases: &[(Geometry, usize, Vec<T>)],
    check: impl Fn(&Geometry, usize, &[T], &[T]),
) {
    let oracles = [
        support::oracle("resize_methods.py"),
        support::oracle_opencv48("resize_methods.py"),
    ];
    for oracle in oracles.into_iter().flatten() {
        let folder = tempfile::tempdir().unwrap();
        let expected = run_opencv(oracle, folder.path(), method, kind, cases);
        assert!(!cases.is_empty());
        for ((geometry, channels, samples), expected) in cases.iter().zip(&expected) {
            check(geometry, *channels, samples, bytemuck::cast_slice(expected));
        }
    }
}

fn run_opencv<T: bytemuck::Pod>(
    mut oracle: Command,
    folder: &Path,
    method: &str,
    kind: &str,
    cases: &[(Geometry, usize, Vec<T>)],
) -> Vec<Vec<T>> {
    let mut list = String::new();
    for (i, (([w, h], [tw, th]), channels, samples)) in cases.iter().enumerate() {
        std::fs::write(folder.join(format!("{i}.src")), bytemuck::cast_slice(samples)).unwrap();
        writeln!(list, "{i} {method} {kind} {w} {h} {channels} {tw} {th}").unwrap();
    }
    std::fs::write(folder.join("cases.txt"), list).unwrap();
    support::run(oracle.arg(folder));
    (0..cases.len())
        .map(|i| {
            let bytes = std::fs::read(folder.join(format!("{i}.dst"))).unwrap();
            bytemuck::allocation::pod_collect_to_vec(&bytes)
        })
        .collect()
}

fn byte_cases(seed: u64) -> Vec<(Geometry, usize, Vec<u8>)> {
    let mut noise = Noise(seed);
    let mut cases = Vec::new();
    for geometry in geometries(seed) {
        for channels in 1..=4 {
            let [w, h] = geometry.0;
            cases.push((geometry, channels, noise.bytes(w * h * channels)));
        }
    }
    cases
}

fn assert_same<T: PartialEq + std::fmt::Debug>(what: &str, ours: &[T], theirs: &[T]) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    let wrong = ours.iter().zip(theirs).filter(|(a, b)| a != b).count();
    let first = ours.iter().zip(theirs).position(|(a, b)| a != b);
    assert!(
        first.is_none(),
        "{what}: {wrong} of {} differ, the first at {first:?}: {:?}",
        ours.len(),
        first.map(|at| (&ours[at], &theirs[at]))
    );
}

fn bytes_equal_opencv(
    method: &str,
    seed: u64,
    plan: impl Fn([usize; 2], [usize; 2]) -> Result<ResizePlan, ImageError>,
) {
    let cases = byte_cases(seed);
    against_opencv(
        method,
        "u8",
        &cases,
        |&(source, target), channels, samples, expected| {
            for kernels in Kernels::available() {
                let plan = plan(source, target).unwrap().with_kernels(kernels);
                let mut ours = vec![0xEE; target[0] * target[1] * channels];
                let raster = Raster::new(samples, source, channels).unwrap();
                plan.apply_raster(raster, &mut ours, &mut Workspace::default())
                    .unwrap();
                let what = format!(
                    "{method} {source:?} to {target:?}, {channels} channels, {}",
                    kernels.name()
                );
                assert_same(&what, &ours, expected);
            }
        },
    );
}

#[test]
fn linear_equals_opencv_bit_for_bit() {
    bytes_equal_opencv("linear", 11, ResizePlan::new);
}

#[test]
fn area_equals_opencv_bit_for_bit() {
    bytes_equal_opencv("area", 12, ResizePlan::area);
}

#[test]
fn nearest_equals_opencv_bit_for_bit() {
    let check_u8 = byte_cases(13);
    against_opencv(
        "nearest",
        "u8",
        &check_u8,
        |&(source, target), channels, samples, expected| {
            let plan = NearestPlan::new(source, target).unwrap();
            let mut ours = vec![0; target[0] * target[1] * channels];
            plan.apply(&Raster::new(samples, source, channels).unwrap(), &mut ours)
                .unwrap();
            assert_same(&format!("nearest {source:?} to {target:?}"), &ours, expected);
        },
    );
    let check_f32 = float_cases(14, geometries(14));
    against_opencv(
        "nearest",
        "f32",
        &check_f32,
        |&(source, target), channels, samples, expected| {
            let plan = NearestPlan::new(source, target).unwrap();
            let mut ours = vec![0.0; target[0] * target[1] * channels];
            plan.apply(&Raster::new(samples, source, channels).unwrap(), &mut ours)
                .unwrap();
            assert_same(&format!("nearest {source:?} to {target:?}"), &ours, expected);
        },
    );
}

fn float_cases(seed: u64, geometries: Vec<Geometry>) -> Vec<(Geometry, usize, Vec<f32>)> {
    let mut noise = Noise(seed);
    let mut cases = Vec::new();
    for geometry in geometries {
        for channels in 1..=4 {
            let [w, h] = geometry.0;
            cases.push((geometry, channels, noise.floats(w * h * channels)));
        }
    }
    cases
}

fn floats_equal_opencv(kind: &str, cases: &[(Geometry, usize, Vec<f32>)], contraction: Contraction) {
    against_opencv(
        "linear",
        kind,
        cases,
        |&(source, target), channels, samples, expected| {
            for kernels in Kernels::available() {
                let plan = LinearF32Plan::new(source, target, contraction)
                    .unwrap()
                    .with_kernels(kernels);
                let mut ours = vec![0.0; target[0] * target[1] * channels];
                plan.apply(Raster::new(samples, source, channels).unwrap(), &mut ours)
                    .unwrap();
                let what = format!(
                    "{kind} {source:?} to {target:?}, {channels} channels, {}",
                    kernels.name()
                );
                assert_same(&what, &ours, expected);
            }
        },
    );
}

/// With IPP: the scales that are let through, and 1, 3 and 4 channels.
#[test]
fn float_linear_equals_opencv_with_ipp_bit_for_bit() {
    let mut noise = Noise(15);
    let mut known = vec![([1600, 900], [1280, 720]), ([160, 90], [128, 72])];
    while known.len() < 60 {
        let [x, y] = [noise.below(40) + 1, noise.below(40) + 1];
        let (from, to) = [(5, 4), (5, 4), (7, 4), (3, 1), (1, 1)][known.len() % 5];
        known.push(([x * from, y * from], [x * to, y * to]));
    }
    let mut cases = float_cases(16, known);
    cases.retain(|(_, channels, _)| *channels != 2);
    floats_equal_opencv("f32", &cases, Contraction::Fused);
}

/// Without IPP: any scale but an exact halving.
#[test]
fn float_linear_equals_opencv_without_ipp_bit_for_bit() {
    let mut all = geometries(17);
    all.retain(|(source, target)| *source != target.map(|side| 2 * side));
    floats_equal_opencv("f32_without_ipp", &float_cases(18, all), Contraction::Separate);
}

#[test]
fn float_scales_that_are_not_verified_are_refused() {
    let refused = |source, target, contraction| {
        let error = LinearF32Plan::new(source, target, contraction).unwrap_err();
        assert!(matches!(error, ImageError::UnverifiedScale { .. }), "{error}");
    };
    refused([1920, 1080], [1000, 720], Contraction::Fused);
    refused([1920, 1080], [1280, 720], Contraction::Fused);
    refused([1600, 900], [1280, 900], Contraction::Fused);
    refused([64, 48], [32, 24], Contraction::Fused);
    refused([64, 48], [32, 24], Contraction::Separate);
    LinearF32Plan::new([1920, 1080], [1000, 720], Contraction::Separate).unwrap();
    LinearF32Plan::new([1600, 900], [1280, 720], Contraction::Fused).unwrap();
}

#[test]
fn a_constant_image_stays_constant() {
    for (source, target) in geometries(19) {
        for value in [0, 1, 114, 254, 255] {
            let pixels = vec![value; source[0] * source[1] * 3];
            let raster = Raster::new(&pixels, source, 3).unwrap();
            for plan in [ResizePlan::new(source, target), ResizePlan::area(source, target)] {
                let mut out = vec![0; target[0] * target[1] * 3];
                plan.unwrap()
                    .apply_raster(raster, &mut out, &mut Workspace::default())
                    .unwrap();
                assert!(out.iter().all(|&byte| byte == value), "{source:?} to {target:?}");
            }
        }
    }
}

#[test]
fn rasters_that_do_not_fit_are_refused() {
    let samples = [0_u8; 24];
    Raster::new(&samples, [4, 2], 3).unwrap();
    assert!(matches!(
        Raster::new(&samples, [4, 3], 3).unwrap_err(),
        ImageError::WrongRasterLength { .. }
    ));
    assert!(matches!(
        Raster::new(&samples, [4, 1], 5).unwrap_err(),
        ImageError::BadChannels { channels: 5 }
    ));
    assert!(matches!(
        Raster::with_step(&samples, [4, 2], 3, 11).unwrap_err(),
        ImageError::WrongRasterLength { .. }
    ));
    assert!(matches!(
        Raster::with_step(&samples, [4, 2], 3, usize::MAX).unwrap_err(),
        ImageError::WrongRasterLength { .. }
    ));
}

#[test]
fn a_mean_of_more_pixels_than_a_sum_can_hold_is_refused() {
    let error = ResizePlan::area([5_000, 5_000], [1, 1]).unwrap_err();
    assert!(
        matches!(
            error,
            ImageError::BlockTooLarge {
                pixels: 25_000_000,
                ..
            }
        ),
        "{error}"
    );
    ResizePlan::area([5_000, 5_000], [2, 2]).unwrap();
}
