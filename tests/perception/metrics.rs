//! Metrics against NumPy in float64 and against hand counts.

use crate::support;
use ndarray::{ArrayD, IxDyn, arr1, arr2};
use sensorium::accuracy::metrics::{
    Centres, Direction, MatchOptions, Metric, MetricError, ValidRows, ade_fde, argmax_agreement,
    box_iou_xyxy, direction_of, error_stats, label_agreement, mask_iou, masked_pcc, match_detections,
    mean_iou, pcc, topk_overlap, topk_set_overlap, valid_row_pcc, values_of,
};
use sensorium::numeric::Fp8Policy;
use sensorium::tensor::{DType, HostTensor};
use serde_json::{Value, json};

/// A small generator of numbers: the high bits of a linear congruence.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn array(&mut self, dims: &[usize], of: impl Fn(f64) -> f64) -> ArrayD<f64> {
        ArrayD::from_shape_simple_fn(IxDyn(dims), || of(self.next()))
    }

    /// An array and one that is like it.
    fn pair(&mut self, dims: &[usize], noise: f64) -> [ArrayD<f64>; 2] {
        let reference = self.array(dims, |x| 20.0 * x - 7.0);
        let test = &reference + &self.array(dims, |x| noise * (x - 0.5));
        [test, reference]
    }
}

fn array(values: &[f64]) -> ArrayD<f64> {
    arr1(values).into_dyn()
}

fn as_json(values: &ArrayD<f64>) -> Value {
    let elements: Vec<Value> = values.iter().map(|v| json!(v)).collect();
    json!({"shape": values.shape(), "values": elements})
}

/// Cases for NumPy, beside what this crate answers.
#[derive(Default)]
struct Cases {
    questions: Vec<Value>,
    answers: Vec<Vec<f64>>,
}

impl Cases {
    fn add(&mut self, metric: &str, [test, reference]: [&ArrayD<f64>; 2], more: Value, answer: Vec<f64>) {
        let mut question = json!({"metric": metric, "test": as_json(test), "reference": as_json(reference)});
        for (key, value) in more.as_object().unwrap() {
            question[key] = value.clone();
        }
        self.questions.push(question);
        self.answers.push(answer);
    }
}

#[test]
fn numpy_agrees_on_random_arrays() {
    let Some(mut oracle) = support::oracle("metrics.py") else {
        return;
    };
    let mut numbers = Numbers(3);
    let mut cases = Cases::default();
    for (dims, noise) in [
        (&[4000][..], 1e-6),
        (&[5, 7, 11], 3.0),
        (&[64, 81], 40.0),
        (&[2, 1, 3, 9], 0.2),
    ] {
        let [t, r] = numbers.pair(dims, noise);
        let both = [&t, &r];
        cases.add("pcc", both, json!({}), vec![pcc(&t, &r).unwrap()]);
        let stats = error_stats(&t, &r).unwrap();
        assert_eq!(stats.n, t.len());
        cases.add(
            "error_stats",
            both,
            json!({}),
            vec![stats.pcc, stats.max_abs, stats.mean_abs, stats.rel_l2],
        );
        // A mask over the last axis, repeated over the others.
        let last = *dims.last().unwrap();
        let mask = numbers.array(&[last], |x| f64::from(u8::from(x < 0.6)));
        let kept = mask.mapv(|m| m != 0.0);
        cases.add(
            "masked_pcc",
            both,
            json!({"mask": as_json(&mask)}),
            vec![masked_pcc(&t, &r, &kept).unwrap()],
        );
        let k = t.len() / 3 + 1;
        let overlap = topk_set_overlap(&t, &r, k).unwrap();
        cases.add("topk_set_overlap", both, json!({"k": k}), vec![overlap]);
        let rounded = [t.mapv(f64::round), r.mapv(f64::round)];
        let agreement = label_agreement(&rounded[0], &rounded[1], None).unwrap();
        cases.add(
            "label_agreement",
            [&rounded[0], &rounded[1]],
            json!({}),
            vec![agreement],
        );
        let masks = [t.mapv(|x| x.max(0.0)), r.mapv(|x| x.max(0.0))];
        let iou = mask_iou(&masks[0], &masks[1]).unwrap();
        cases.add("mask_iou", [&masks[0], &masks[1]], json!({}), vec![iou]);
    }

    let [t, r] = numbers.pair(&[6, 9, 5], 12.0);
    for axis in [-1, 0, 1] {
        let agreement = argmax_agreement(&t, &r, axis, None).unwrap();
        cases.add(
            "argmax_agreement",
            [&t, &r],
            json!({"axis": axis}),
            vec![agreement],
        );
        let rows = [1_usize, 4, 0, 4];
        let found = valid_row_pcc(&t, &r, ValidRows::At(&rows), axis).unwrap();
        cases.add(
            "valid_row_pcc",
            [&t, &r],
            json!({"rows": rows, "axis": axis}),
            vec![found],
        );
        let found = valid_row_pcc(&t, &r, ValidRows::First(3), axis).unwrap();
        cases.add(
            "valid_row_pcc",
            [&t, &r],
            json!({"rows": [0, 1, 2], "axis": axis}),
            vec![found],
        );
    }
    let mask = numbers.array(&[6, 9], |x| f64::from(u8::from(x < 0.5)));
    let agreement = argmax_agreement(&t, &r, 2, Some(&mask.mapv(|m| m != 0.0))).unwrap();
    cases.add(
        "argmax_agreement",
        [&t, &r],
        json!({"axis": 2, "mask": as_json(&mask)}),
        vec![agreement],
    );

    // Labels of which some are ignored, and a class that nobody has.
    let labels = |numbers: &mut Numbers| numbers.array(&[40, 30], |x| (x * 5.0).floor());
    let (mut t, mut r) = (labels(&mut numbers), labels(&mut numbers));
    for (i, (t, r)) in t.iter_mut().zip(&mut r).enumerate() {
        match i % 7 {
            0 => *r = 255.0,
            1..5 => *t = *r,
            _ => {}
        }
    }
    let found = mean_iou(&t, &r, 6, Some(255)).unwrap();
    assert_eq!(found.per_class[5], None);
    let mut answer = vec![found.mean];
    answer.extend(found.per_class.iter().map(|iou| iou.unwrap_or(f64::NAN)));
    cases.add("mean_iou", [&t, &r], json!({"classes": 6, "ignore": 255}), answer);

    let boxes = |numbers: &mut Numbers, count: usize| {
        let mut boxes = numbers.array(&[count, 4], |x| x * 50.0);
        for mut row in boxes.rows_mut() {
            row[2] += row[0];
            row[3] += row[1];
        }
        boxes
    };
    let (a, b) = (boxes(&mut numbers, 13), boxes(&mut numbers, 8));
    let overlaps = box_iou_xyxy(&a, &b).unwrap();
    assert_eq!(overlaps.dim(), (13, 8));
    cases.add(
        "box_iou_xyxy",
        [&a, &b],
        json!({}),
        overlaps.iter().copied().collect(),
    );

    let [t, r] = numbers.pair(&[3, 6, 12, 3], 4.0);
    for dims in [1, 2, 3] {
        let errors = ade_fde(&t, &r, dims).unwrap();
        cases.add(
            "ade_fde",
            [&t, &r],
            json!({"dims": dims}),
            vec![errors.ade, errors.fde],
        );
    }

    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), serde_json::to_vec(&cases.questions).unwrap()).unwrap();
    let answers: Vec<Vec<Option<f64>>> =
        serde_json::from_slice(&support::run(oracle.arg(file.path()))).unwrap();
    assert_eq!(answers.len(), cases.answers.len());
    for ((question, expected), found) in cases.questions.iter().zip(&answers).zip(&cases.answers) {
        let metric = &question["metric"];
        assert_eq!(found.len(), expected.len(), "{metric}");
        for (found, expected) in found.iter().zip(expected) {
            match expected {
                Some(expected) => {
                    let difference = (found - expected).abs();
                    assert!(difference <= 1e-12, "{metric}: {found} is not {expected}");
                }
                None => assert!(found.is_nan(), "{metric}: {found}"),
            }
        }
    }
}

#[test]
fn a_correlation_is_told_only_where_there_is_one() {
    let rising = array(&[1.0, 2.0, 3.0]);
    let constant = |value: f64| array(&[value; 3]);
    assert_eq!(pcc(&rising, &rising).unwrap(), 1.0);
    assert_eq!(pcc(&rising, &array(&[3.0, 2.0, 1.0])).unwrap(), -1.0);
    for (a, b, expected) in [
        (constant(2.0), constant(2.0), 1.0),
        // As close as numpy.allclose has it: 1e-8 + 1e-5 of the reference.
        (constant(2.0), constant(2.0 + 1.9e-5), 1.0),
        (constant(2.0), constant(2.0 + 2.1e-5), 0.0),
        (constant(0.0), constant(-0.0), 1.0),
        (constant(2.0), constant(3.0), 0.0),
        (constant(2.0), rising.clone(), 0.0),
        (rising.clone(), constant(2.0), 0.0),
    ] {
        assert_eq!(pcc(&a, &b).unwrap(), expected, "{a} {b}");
    }
    for bad in [f64::NAN, f64::INFINITY] {
        assert!(pcc(&array(&[bad, 1.0, 2.0]), &rising).unwrap().is_nan());
        assert!(pcc(&rising, &array(&[bad, 1.0, 2.0])).unwrap().is_nan());
        assert!(pcc(&array(&[bad; 3]), &array(&[bad; 3])).unwrap().is_nan());
    }
    // Equal sides are exactly 1, however their sums round.
    let mut numbers = Numbers(9);
    for n in 2..200 {
        let values = numbers.array(&[n], |x| x * 3.0 - 1.0);
        assert_eq!(pcc(&values, &values).unwrap(), 1.0, "{n}");
        assert_eq!(pcc(&values, &-&values).unwrap(), -1.0, "{n}");
    }
    // A side that is all but constant is not constant: detected by largest == smallest alone.
    let nearly = array(&[1.0, 1.0, 1.0 + f64::EPSILON]);
    assert!(pcc(&nearly, &rising).unwrap() > 0.8);
    // Neither squares nor sums leave the range of float64.
    for scale in [1e-300, 1e300] {
        let scaled = rising.mapv(|x| x * scale);
        assert!((pcc(&scaled, &rising).unwrap() - 1.0).abs() < 1e-14, "{scale}");
    }
}

#[test]
fn errors_keep_what_is_not_a_number() {
    let stats = error_stats(&array(&[1.0, f64::NAN, 3.0]), &array(&[1.0, 2.0, 3.0])).unwrap();
    assert!(stats.pcc.is_nan() && stats.max_abs.is_nan() && stats.mean_abs.is_nan() && stats.rel_l2.is_nan());
    let zeros = array(&[0.0, 0.0]);
    assert_eq!(error_stats(&zeros, &zeros).unwrap().rel_l2, 0.0);
    assert_eq!(
        error_stats(&array(&[0.0, 1e-9]), &zeros).unwrap().rel_l2,
        f64::INFINITY
    );
    let tiny = error_stats(&array(&[3e-200, 4e-200]), &array(&[6e-200, 8e-200])).unwrap();
    assert!((tiny.rel_l2 - 0.5).abs() < 1e-15, "{tiny:?}");
}

#[test]
fn ties_and_missing_numbers_decide_nothing() {
    let one = |values: &[f64]| arr2(&[[values[0], values[1], values[2]]]).into_dyn();
    let agreement = |t: &[f64], r: &[f64]| argmax_agreement(&one(t), &one(r), -1, None).unwrap();
    assert_eq!(agreement(&[5.0, 5.0, 1.0], &[5.0, 1.0, 5.0]), 1.0);
    assert_eq!(agreement(&[1.0, 5.0, 5.0], &[5.0, 5.0, 5.0]), 0.0);
    assert_eq!(agreement(&[f64::NAN, 5.0, 1.0], &[f64::NAN, 5.0, 1.0]), 0.0);
    let nan = array(&[f64::NAN, 1.0]);
    assert_eq!(label_agreement(&nan, &nan, None).unwrap(), 0.5);
    let negative = [f64::NEG_INFINITY; 3];
    assert_eq!(agreement(&negative, &negative), 1.0);

    assert_eq!(topk_overlap(&[4, 2, 9], &[9, 4, 7], None).unwrap(), 2.0 / 3.0);
    assert_eq!(topk_overlap(&[4, 2, 9], &[9, 4, 7], Some(2)).unwrap(), 0.5);
    // Of equal scores the lower index; NaN behind everything.
    let scores = array(&[1.0, f64::NAN, 1.0, 1.0]);
    assert_eq!(
        topk_set_overlap(&scores, &array(&[9.0, 0.0, 8.0, 1.0]), 2).unwrap(),
        1.0
    );
    assert_eq!(
        topk_set_overlap(&scores, &array(&[9.0, 9.0, 8.0, 7.0]), 3).unwrap(),
        2.0 / 3.0
    );
}

#[test]
fn boxes_without_area_overlap_nothing() {
    let boxes = arr2(&[[0.0, 0.0, 2.0, 2.0], [1.0, 1.0, 1.0, 3.0], [5.0, 5.0, 4.0, 4.0]]).into_dyn();
    let overlaps = box_iou_xyxy(&boxes, &boxes).unwrap();
    assert_eq!(overlaps, arr2(&[[1.0, 0.0, 0.0], [0.0; 3], [0.0; 3]]));
    let empty = array(&[0.0, 0.0]);
    assert_eq!(mask_iou(&empty, &empty).unwrap(), 1.0);
    assert_eq!(mask_iou(&empty, &array(&[0.0, -1.0])).unwrap(), 0.0);
}

fn centres(rows: &[[f64; 3]]) -> ArrayD<f64> {
    arr2(rows).into_dyn()
}

#[test]
fn detections_are_matched_greedily_by_score_within_their_label() {
    let test = centres(&[
        [0.4, 0.0, 9.0],
        [0.1, 0.0, 0.0],
        [10.0, 0.0, 0.0],
        [f64::NAN, 0.0, 0.0],
        [30.0, 0.0, 0.0],
    ]);
    let reference = centres(&[
        [0.0, 0.0, 0.0],
        [10.0, 0.3, 0.0],
        [f64::NAN, 0.0, 0.0],
        [30.0, 0.5, 0.0],
    ]);
    let test = Centres {
        centres: &test,
        labels: &[1, 1, 2, 1, 1],
        scores: &[0.9, 0.8, 0.7, 0.6, 0.5],
    };
    let reference = Centres {
        centres: &reference,
        labels: &[1, 3, 1, 1],
        scores: &[0.5, 0.5, 0.5, 0.25],
    };
    // The surest takes the object although the next one is nearer; 0.5 m is near enough; height does not count.
    let found = match_detections(&test, &reference, &MatchOptions::default()).unwrap();
    assert_eq!(found.pairs, [[0, 0], [4, 3]]);
    assert_eq!(found.center_errors, [0.4, 0.5]);
    assert_eq!(found.score_errors, [0.4, 0.25]);
    assert_eq!((found.recall, found.precision, found.matched()), (0.5, 0.4, 2));
    let any_label = MatchOptions {
        same_label: false,
        ..MatchOptions::default()
    };
    assert_eq!(
        match_detections(&test, &reference, &any_label).unwrap().pairs,
        [[0, 0], [2, 1], [4, 3]]
    );
    let in_space = MatchOptions {
        dims: 3,
        ..MatchOptions::default()
    };
    assert_eq!(
        match_detections(&test, &reference, &in_space).unwrap().pairs,
        [[1, 0], [4, 3]]
    );

    let nobody = centres(&[]);
    let nobody = Centres {
        centres: &nobody,
        labels: &[],
        scores: &[],
    };
    let found = match_detections(&nobody, &nobody, &MatchOptions::default()).unwrap();
    assert_eq!((found.recall, found.precision), (1.0, 1.0));
    let found = match_detections(&nobody, &reference, &MatchOptions::default()).unwrap();
    assert_eq!((found.recall, found.precision), (0.0, 1.0));
}

#[test]
fn what_cannot_be_compared_is_an_error() {
    let (two, three, none) = (array(&[1.0, 2.0]), array(&[1.0, 2.0, 3.0]), array(&[]));
    let shapes = |error: MetricError| matches!(error, MetricError::Shapes { .. });
    assert!(shapes(pcc(&two, &three).unwrap_err()));
    assert!(shapes(error_stats(&two, &three).unwrap_err()));
    assert!(shapes(argmax_agreement(&two, &three, 0, None).unwrap_err()));
    assert!(shapes(label_agreement(&two, &three, None).unwrap_err()));
    assert!(shapes(mask_iou(&two, &three).unwrap_err()));
    assert!(shapes(mean_iou(&two, &three, 4, None).unwrap_err()));
    assert!(shapes(topk_set_overlap(&two, &three, 1).unwrap_err()));
    assert!(shapes(ade_fde(&two, &three, 1).unwrap_err()));
    let reshaped = arr2(&[[1.0], [2.0]]).into_dyn();
    let error = pcc(&two, &reshaped).unwrap_err();
    assert_eq!(
        error.to_string(),
        "pcc: the result has shape [2], but the reference has [2, 1]"
    );
    let mask = arr1(&[true, false, true]).into_dyn();
    assert!(shapes(masked_pcc(&two, &two, &mask).unwrap_err()));

    let nothing = |error: MetricError| matches!(error, MetricError::Nothing { .. });
    assert!(nothing(pcc(&none, &none).unwrap_err()));
    assert!(nothing(error_stats(&none, &none).unwrap_err()));
    assert!(nothing(label_agreement(&none, &none, None).unwrap_err()));
    assert!(nothing(argmax_agreement(&none, &none, 0, None).unwrap_err()));
    let never = arr1(&[false, false]).into_dyn();
    assert!(nothing(masked_pcc(&two, &two, &never).unwrap_err()));
    assert!(nothing(
        valid_row_pcc(&two, &two, ValidRows::First(0), 0).unwrap_err()
    ));

    for error in [
        valid_row_pcc(&two, &two, ValidRows::First(3), 0).unwrap_err(),
        valid_row_pcc(&two, &three, ValidRows::At(&[2]), 0).unwrap_err(),
        valid_row_pcc(&two, &two, ValidRows::First(1), 1).unwrap_err(),
        argmax_agreement(&two, &two, -2, None).unwrap_err(),
        mean_iou(&two, &two, 0, None).unwrap_err(),
        mean_iou(&two, &two, 2, None).unwrap_err(),
        mean_iou(&array(&[0.5]), &array(&[0.0]), 2, None).unwrap_err(),
        mean_iou(&array(&[f64::NAN]), &array(&[0.0]), 2, None).unwrap_err(),
        topk_overlap(&[1], &[1, 2], Some(2)).unwrap_err(),
        topk_overlap(&[], &[], None).unwrap_err(),
        topk_set_overlap(&two, &two, 3).unwrap_err(),
        ade_fde(&reshaped, &reshaped, 2).unwrap_err(),
    ] {
        assert!(matches!(error, MetricError::Value { .. }), "{error:?}");
    }
    // What is ignored may be any label.
    assert!(mean_iou(&array(&[9.0, 1.0]), &array(&[-1.0, 1.0]), 2, Some(-1)).is_ok());
    for error in [
        box_iou_xyxy(&two, &two).unwrap_err(),
        box_iou_xyxy(&reshaped, &reshaped).unwrap_err(),
        ade_fde(&two, &two, 1).unwrap_err(),
    ] {
        assert!(matches!(error, MetricError::Form { .. }), "{error:?}");
    }
    let side = Centres {
        centres: &reshaped,
        labels: &[1, 1],
        scores: &[0.0],
    };
    let one = |max_dist, dims| MatchOptions {
        max_dist,
        dims,
        same_label: true,
    };
    assert!(shapes(match_detections(&side, &side, &one(1.0, 1)).unwrap_err()));
    for options in [one(1.0, 0), one(1.0, 2), one(-1.0, 1), one(f64::NAN, 1)] {
        let error = match_detections(&side, &side, &options).unwrap_err();
        assert!(matches!(error, MetricError::Value { .. }), "{error:?}");
    }
}

#[test]
fn named_metrics_know_their_good_side_and_their_mask() {
    let (t, r) = (array(&[1.0, 2.0, 4.0]), array(&[1.0, 2.5, 4.0]));
    let value = |metric: &str| Metric::of_name(metric).unwrap().evaluate(&t, &r, None).unwrap();
    assert_eq!((value("max_abs"), value("label_agreement")), (0.5, 2.0 / 3.0));
    assert!((value("mean_abs") - 0.5 / 3.0).abs() < 1e-15);
    assert!((value("rel_l2") - 0.5 / 23.25_f64.sqrt()).abs() < 1e-15);
    assert_eq!(Metric::of_name("cosine"), None);
    let mask = arr1(&[true, false, true]).into_dyn();
    let masked = Metric::MaskedPcc.evaluate(&t, &r, Some(&mask)).unwrap();
    assert!((masked - 1.0).abs() < 1e-15);
    assert!(matches!(
        Metric::MaskedPcc.evaluate(&t, &r, None),
        Err(MetricError::Mask { .. })
    ));
    assert!(matches!(
        Metric::Pcc.evaluate(&t, &r, Some(&mask)),
        Err(MetricError::Mask { .. })
    ));
    for (name, expected) in [
        ("pcc", Some(Direction::Min)),
        ("rel_l2", Some(Direction::Max)),
        ("recall", Some(Direction::Min)),
        ("fde", Some(Direction::Max)),
        ("center_err_p99", Some(Direction::Max)),
        ("score_err", Some(Direction::Max)),
        ("my_score_err", None),
        ("cosine", None),
    ] {
        assert_eq!(direction_of(name), expected, "{name}");
    }
}

#[test]
fn host_tensors_of_every_type_become_float64() {
    let values = [0.0_f32, 1.0, 2.0, 3.5];
    for dtype in [DType::F32, DType::F16, DType::Bf16, DType::F8E4M3] {
        let tensor = HostTensor::from_f32(&[2, 2], &values, dtype, &Fp8Policy::default()).unwrap();
        let found = values_of(&tensor);
        assert_eq!(found.shape(), [2, 2]);
        assert_eq!(
            found.iter().copied().collect::<Vec<_>>(),
            [0.0, 1.0, 2.0, 3.5],
            "{dtype}"
        );
    }
    let wide = HostTensor::from_slice(&[2], &[i64::MAX, -(1_i64 << 53) + 1]).unwrap();
    assert_eq!(
        values_of(&wide),
        array(&[9.223_372_036_854_776e18, -9_007_199_254_740_991.0])
    );
    let unsigned = HostTensor::from_slice(&[1], &[u32::MAX]).unwrap();
    assert_eq!(values_of(&unsigned), array(&[4_294_967_295.0]));
}
