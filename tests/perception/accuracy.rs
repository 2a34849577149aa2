//! Detections matched with the truth: average precision against NumPy, and every rule in a case worked out by hand.

use crate::support;
use std::f64::consts::PI;

use sensorium::accuracy::{
    ClassAccuracy, Evaluation, EvaluationParams, FrameObjects, PrecisionRecall, SeenObject, Side, evaluate,
    interpolate, read_frames,
};
use sensorium::outputs::{DetectedObject, ObjectLabel, OrientationAvailability, Twist2D};
use serde_json::{Value, json};

fn object(label: ObjectLabel, score: f32, x: f64, y: f64) -> SeenObject {
    SeenObject::new(DetectedObject {
        label,
        score,
        position_m: [x, y, 0.0],
        yaw_rad: 0.0,
        size_m: [4.0, 2.0, 1.5],
        orientation: OrientationAvailability::Available,
        twist: None,
        pose_variance: None,
        twist_variance: None,
    })
}

fn car(score: f32, x: f64) -> SeenObject {
    object(ObjectLabel::Car, score, x, 0.0)
}

fn with_points(points: u32, seen: SeenObject) -> SeenObject {
    SeenObject {
        points: Some(points),
        ..seen
    }
}

fn frames(frames: &[&[SeenObject]]) -> Vec<FrameObjects> {
    let frame = |(i, objects): (usize, &&[SeenObject])| FrameObjects {
        stamp_ns: i as i64,
        objects: objects.to_vec(),
    };
    frames.iter().enumerate().map(frame).collect()
}

/// One distance of 1 m, and the result of the only class.
fn cars(detections: &[&[SeenObject]], truth: &[&[SeenObject]]) -> ClassAccuracy {
    let params = EvaluationParams {
        distances_m: vec![1.0],
        ..EvaluationParams::default()
    };
    let evaluation = evaluate(&frames(detections), &frames(truth), &params).unwrap();
    let [class] = &evaluation.classes[..] else {
        panic!("{evaluation:?}")
    };
    assert_eq!(class.label, ObjectLabel::Car);
    class.clone()
}

#[track_caller]
fn close(got: f64, expected: f64) {
    assert!((got - expected).abs() < 1e-12, "{got} is not {expected}");
}

#[test]
fn perfect_detections_have_precision_one_and_none_have_zero() {
    let truth: &[SeenObject] = &[car(1.0, 0.0), car(1.0, 10.0)];
    let perfect = cars(&[truth], &[truth]);
    close(perfect.at[0].ap_nuscenes, 1.0);
    close(perfect.at[0].ap_all_points, 1.0);
    let nothing = cars(&[&[]], &[truth]);
    assert_eq!(
        (
            nothing.at[0].ap_nuscenes,
            nothing.at[0].ap_all_points,
            nothing.at[0].recall
        ),
        (0.0, 0.0, 0.0)
    );
    let wrong = cars(&[&[car(0.9, 50.0)]], &[truth]);
    assert_eq!(
        (
            wrong.at[0].ap_nuscenes,
            wrong.at[0].hits,
            wrong.at[0].false_alarms
        ),
        (0.0, 0, 1)
    );
}

#[test]
fn precision_worked_out_by_hand() {
    // Hit, miss, hit of 4 objects: precision 1, 1/2, 2/3 at recall 1/4, 1/4, 1/2.
    let curve = PrecisionRecall::new([true, false, true], 4);
    assert_eq!((curve.hits(), curve.recall()), (2, 0.5));
    close(curve.all_point_ap(), 0.25 * 1.0 + 0.25 * (2.0 / 3.0));
    // At recall 0.25 the second point counts, then the line to the third.
    let expected: f64 = (11..=100)
        .map(|step| match step {
            11..25 => 1.0,
            25..=50 => 0.5 + (2.0 / 3.0 - 0.5) * f64::from(step - 25) / 25.0,
            _ => 0.1,
        })
        .map(|precision: f64| precision - 0.1)
        .sum::<f64>()
        / 90.0
        / 0.9;
    assert!((curve.nuscenes_ap(0.1, 0.1) - expected).abs() < 1e-12);
    assert_eq!(PrecisionRecall::new([], 4).nuscenes_ap(0.1, 0.1), 0.0);
}

#[test]
fn interpolation_takes_the_last_of_equal_places_and_is_zero_beyond_the_end() {
    let (xs, ys) = ([0.2, 0.2, 0.5, 0.5], [1.0, 0.5, 2.0, 1.0]);
    let at = |x| interpolate(x, &xs, &ys);
    assert_eq!((at(0.0), at(0.2), at(0.5), at(0.51)), (1.0, 0.5, 1.0, 0.0));
    close(at(0.35), 1.25);
    assert_eq!(interpolate(0.5, &[], &[]), 0.0);
}

#[test]
fn an_object_is_found_once_by_the_best_detection_and_the_nearest_object_is_taken() {
    // The better detection takes the nearest of two objects, the other gets the second one.
    let both = cars(
        &[&[car(0.5, 0.4), car(0.9, 0.3)]],
        &[&[car(1.0, 0.0), car(1.0, 1.2)]],
    );
    assert_eq!((both.at[0].hits, both.at[0].false_alarms), (2, 0));
    // A second detection of the same object is a false alarm.
    let twice = cars(&[&[car(0.9, 0.3), car(0.5, 0.1)]], &[&[car(1.0, 0.0)]]);
    assert_eq!((twice.at[0].hits, twice.at[0].false_alarms), (1, 1));
    // Exactly at the distance is no hit, another frame's object neither.
    let at_distance = cars(&[&[car(0.9, 1.0)], &[]], &[&[car(1.0, 0.0)], &[car(1.0, 1.0)]]);
    assert_eq!((at_distance.at[0].hits, at_distance.at[0].false_alarms), (0, 1));
}

#[test]
fn height_does_not_matter_and_classes_do() {
    let mut high = car(0.9, 0.0);
    high.object.position_m[2] = 50.0;
    assert_eq!(cars(&[&[high]], &[&[car(1.0, 0.0)]]).at[0].hits, 1);
    let truck = object(ObjectLabel::Truck, 0.9, 0.0, 0.0);
    let params = EvaluationParams::default();
    let evaluation = evaluate(&frames(&[&[truck]]), &frames(&[&[car(1.0, 0.0)]]), &params).unwrap();
    let [car, truck] = &evaluation.classes[..] else {
        panic!()
    };
    assert_eq!((car.objects, car.at[0].hits, car.detections), (1, 0, 0));
    // A class that the truth does not name has no precision, and counts in no mean.
    assert_eq!((truck.objects, truck.at.len(), truck.detections), (0, 0, 1));
    assert_eq!(
        evaluation.mean_ap_nuscenes,
        [(0.5, 0.0), (1.0, 0.0), (2.0, 0.0), (4.0, 0.0)]
    );
}

#[test]
fn objects_with_few_points_are_neither_found_nor_missed() {
    let few: &[SeenObject] = &[
        with_points(4, car(1.0, 0.0)),
        with_points(5, car(1.0, 10.0)),
        car(1.0, 20.0),
    ];
    // The detection on it is left out; a second one there is a false alarm.
    let found = cars(&[&[car(0.9, 0.1), car(0.8, 10.0), car(0.7, 20.0)]], &[few]);
    assert_eq!((found.objects, found.ignored), (2, 1));
    assert_eq!(
        (found.at[0].hits, found.at[0].false_alarms, found.at[0].recall),
        (2, 0, 1.0)
    );
    close(found.at[0].ap_all_points, 1.0);
    let twice = cars(
        &[&[car(0.9, 0.1), car(0.85, -0.1), car(0.8, 10.0), car(0.7, 20.0)]],
        &[few],
    );
    assert_eq!((twice.at[0].hits, twice.at[0].false_alarms), (2, 1));
    // An object that counts goes first, even if the other one is nearer.
    let near: &[SeenObject] = &[with_points(0, car(1.0, 0.0)), with_points(9, car(1.0, 0.9))];
    let chosen = cars(&[&[car(0.9, 0.1)]], &[near]);
    assert_eq!((chosen.at[0].hits, chosen.at[0].recall), (1, 1.0));
    // With nothing that counts there is no precision.
    let none = cars(&[&[car(0.9, 0.0)]], &[&[with_points(0, car(1.0, 0.0))]]);
    assert_eq!((none.objects, none.at.len()), (0, 0));
}

#[test]
fn recall_is_told_by_range() {
    let truth: Vec<SeenObject> = [5.0, 15.0, 20.0, 39.0, 75.0, 200.0].map(|x| car(1.0, x)).to_vec();
    let found = cars(&[&[car(0.9, 5.0), car(0.9, 20.5), car(0.9, 200.0)]], &[&truth]);
    let bins: Vec<_> = found
        .range_recall
        .iter()
        .map(|bin| (bin.from_m, bin.to_m, bin.objects, bin.hits, bin.recall))
        .collect();
    assert_eq!(
        bins,
        [
            (0.0, Some(20.0), 2, 1, Some(0.5)),
            (20.0, Some(40.0), 2, 1, Some(0.5)),
            (40.0, Some(60.0), 0, 0, None),
            (60.0, Some(80.0), 1, 0, Some(0.0)),
            (80.0, None, 1, 1, Some(1.0)),
        ]
    );
}

#[test]
fn errors_of_heading_and_speed_are_those_of_hits() {
    let turned = |x: f64, yaw_rad: f64, velocity_mps| {
        let mut seen = car(0.9, x);
        seen.object.yaw_rad = yaw_rad;
        SeenObject { velocity_mps, ..seen }
    };
    let truth = [
        turned(0.0, 3.0, Some([1.0, 0.0])),
        turned(10.0, 0.0, Some([0.0, 2.0])),
        turned(20.0, 0.0, None),
        turned(30.0, 0.0, Some([9.0, 9.0])),
    ];
    let detections = [
        // Across the seam: 0.2 apart.
        turned(0.0, 3.2 - 2.0 * PI, Some([1.0, 3.0])),
        turned(10.0, PI, Some([0.0, 1.0])),
        turned(20.0, -0.1, Some([5.0, 5.0])),
        // No hit.
        turned(35.0, 1.0, Some([0.0, 0.0])),
    ];
    let found = cars(&[&detections], &[&truth]);
    let heading = found.heading.unwrap();
    assert_eq!(heading.compared, 3);
    assert!((heading.median_rad - 0.2).abs() < 1e-12, "{heading:?}");
    close(heading.flipped, 1.0 / 3.0);
    let velocity = found.velocity.unwrap();
    assert_eq!(velocity.compared, 2);
    close(velocity.mean_mps, 2.0);
    close(velocity.median_mps, 2.0);
    let nothing = cars(&[&[]], &[&truth]);
    assert_eq!((nothing.heading, nothing.velocity), (None, None));
}

#[test]
fn a_twist_is_turned_into_the_frame_of_the_cloud() {
    let mut seen = car(0.9, 0.0).object;
    seen.yaw_rad = PI / 2.0;
    seen.twist = Some(Twist2D {
        linear_x_mps: 3.0,
        linear_y_mps: 1.0,
        angular_z_radps: 0.0,
    });
    let [x, y] = SeenObject::new(seen).velocity_mps.unwrap();
    close(x, -1.0);
    close(y, 3.0);
}

#[test]
fn frames_belong_together_by_their_stamp() {
    let at = |stamp_ns, objects: &[SeenObject]| FrameObjects {
        stamp_ns,
        objects: objects.to_vec(),
    };
    let truth = [at(7, &[car(1.0, 0.0)]), at(5, &[car(1.0, 5.0)])];
    let detections = [at(5, &[car(0.9, 5.0)]), at(6, &[car(0.9, 5.0)])];
    let evaluation = evaluate(&detections, &truth, &EvaluationParams::default()).unwrap();
    assert_eq!(
        (
            evaluation.frames,
            evaluation.frames_without_detections,
            evaluation.frames_without_truth
        ),
        (2, 1, 1)
    );
    let class = &evaluation.classes[0];
    assert_eq!(
        (
            class.objects,
            class.detections,
            class.at[0].hits,
            class.at[0].false_alarms
        ),
        (2, 1, 1, 0)
    );
}

#[test]
fn parameters_that_decide_nothing_are_refused() {
    let refused = |change: fn(&mut EvaluationParams)| {
        let mut params = EvaluationParams::default();
        change(&mut params);
        evaluate(&[], &[], &params).unwrap_err().to_string()
    };
    for (message, part) in [
        (refused(|p| p.distances_m.clear()), "no distance to match at"),
        (refused(|p| p.distances_m[1] = -1.0), "-1 m is no distance"),
        (refused(|p| p.match_distance_m = f64::NAN), "NaN m is no distance"),
        (refused(|p| p.min_precision = 1.0), "min_precision is 1"),
        (refused(|p| p.min_recall = -0.1), "min_recall is -0.1"),
        (
            refused(|p| p.range_borders_m = vec![10.0, 10.0]),
            "10 m does not ascend",
        ),
        (refused(|p| p.range_borders_m = vec![0.0]), "0 m does not ascend"),
    ] {
        assert!(message.contains(part), "{message}");
    }
}

/// Pseudo-random numbers from 0 to 1.
fn random(state: &mut u64) -> f64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 11) as f64 / (1_u64 << 53) as f64
}

/// Truth and detections that find most of it, with doubles, false alarms, equal scores and empty frames.
fn scenes() -> (String, String) {
    let state = &mut (9_u64 << 40);
    let (mut detections, mut truth) = (String::new(), String::new());
    for frame in 0..60 {
        let (mut found, mut there) = (Vec::new(), Vec::new());
        for i in 0..(if frame % 9 == 0 { 0 } else { 12 }) {
            let label = ["CAR", "PEDESTRIAN", "BUS"][i % 3];
            let (x, y) = (random(state) * 100.0 - 50.0, random(state) * 40.0 - 20.0);
            let plain = |x: f64, y: f64| json!({"label": label, "position_m": [x, y, 0.0], "yaw_rad": 0.1, "size_m": [4, 2, 1.5]});
            let mut object = plain(x, y);
            object["points"] = json!(i);
            there.push(object);
            for _ in 0..(random(state) * 2.6) as usize {
                let spread = if random(state) < 0.8 { 1.1 } else { 7.0 };
                let mut object = plain(
                    x + (random(state) - 0.5) * spread,
                    y + (random(state) - 0.5) * spread,
                );
                object["score"] = json!((random(state) * 20.0).floor() / 20.0 + 0.01);
                object["orientation"] = json!("sign_unknown");
                found.push(object);
            }
        }
        truth += &format!("{}\n", json!({"stamp_ns": frame * 100, "objects": there}));
        if frame % 13 != 5 {
            detections += &format!("{}\n", json!({"stamp_ns": frame * 100, "objects": found}));
        }
    }
    (detections, truth)
}

#[test]
fn average_precision_equals_that_of_numpy_after_nuscenes_devkit() {
    let Some(mut oracle) = support::oracle("nuscenes_ap.py") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (detections, truth) = scenes();
    std::fs::write(path("detections"), &detections).unwrap();
    std::fs::write(path("truth"), &truth).unwrap();
    oracle
        .args([path("detections"), path("truth")])
        .args(["0", "0.5", "1", "2", "4"]);
    let expected: Value = serde_json::from_slice(&support::run(&mut oracle)).unwrap();
    let params = EvaluationParams {
        min_points: 0,
        ..EvaluationParams::default()
    };
    let evaluation = evaluate(
        &read_frames(detections.as_bytes(), Side::Detections).unwrap(),
        &read_frames(truth.as_bytes(), Side::Truth).unwrap(),
        &params,
    )
    .unwrap();
    let mut compared = 0;
    let mut largest = 0.0_f64;
    for class in &evaluation.classes {
        let label = serde_json::to_value(class.label).unwrap();
        let rows = expected[label.as_str().unwrap()].as_array().unwrap();
        assert_eq!(rows.len(), class.at.len());
        for (at, row) in class.at.iter().zip(rows) {
            let ap = row[0].as_f64().unwrap();
            largest = largest.max((at.ap_nuscenes - ap).abs());
            assert!(
                (at.ap_nuscenes - ap).abs() < 1e-12,
                "{label}: {at:?} is not {row}"
            );
            // serde_json may read a number one bit off.
            close(at.recall, row[1].as_f64().unwrap());
            assert_eq!(json!([at.hits, at.false_alarms]), json!([row[2], row[3]]));
            assert!(
                ap > 0.02 && ap < 0.98,
                "{label} at {} m: {ap} says little",
                at.distance_m
            );
            compared += 1;
        }
    }
    println!("{compared} average precisions, largest difference {largest:e}");
    assert_eq!(compared, 12);
}

#[test]
fn lines_that_cannot_be_used_are_told_with_their_number() {
    let good = r#"{"stamp_ns":1,"objects":[]}"#;
    let object = r#""label":"CAR","position_m":[1,2,3],"yaw_rad":0,"size_m":[4,2,1]"#;
    let told = |text: &str, side| {
        let error = read_frames(text.as_bytes(), side).unwrap_err();
        (error.line, error.to_string())
    };
    for (line, part) in [
        ("nonsense".to_owned(), "not a frame of objects"),
        (r#"{"objects":[]}"#.to_owned(), "missing field `stamp_ns`"),
        (r#"{"stamp_ns":2,"objects":[{"label":"TRAM"}]}"#.to_owned(), "unknown variant `TRAM`"),
        (r#"{"stamp_ns":2,"objects":[{"label":"CAR"}]}"#.to_owned(), "missing field `position_m`"),
        (format!(r#"{{"stamp_ns":2,"objects":[{{{object}}}]}}"#), "object 0 has no score"),
        (format!(r#"{{"stamp_ns":2,"objects":[{{"score":1.5,{object}}}]}}"#), "object 0 has score 1.5"),
        (r#"{"stamp_ns":2,"objects":[{"label":"CAR","score":1,"position_m":[1,2,1e999],"yaw_rad":0,"size_m":[4,2,1]}]}"#.to_owned(), "number out of range"),
        (r#"{"stamp_ns":2,"objects":[{"label":"CAR","score":1,"position_m":[1,2,3],"yaw_rad":0,"size_m":[4,-2,1]}]}"#.to_owned(), "object 0 has size_m -2"),
        (good.to_owned(), "stamp_ns 1 is that of line 1 already"),
    ] {
        let (number, message) = told(&format!("{good}\n\n{line}\n"), Side::Detections);
        assert_eq!(number, 3, "{message}");
        assert!(message.starts_with("line 3: ") && message.contains(part), "{message}");
    }
    let bytes: &[u8] = b"{\"stamp_ns\":1,\"objects\":[]}\n\xff\xfe\n";
    assert_eq!(read_frames(bytes, Side::Truth).unwrap_err().line, 2);
}

#[test]
fn truth_may_leave_out_what_it_need_not_say() {
    let line = r#"{"stamp_ns":5,"objects":[{"label":"BUS","position_m":[1,2,3],"yaw_rad":0.5,"size_m":[9,2,3],"points":7,"velocity_mps":[1,-2],"id":"x"}]}"#;
    let read = read_frames(line.as_bytes(), Side::Truth).unwrap();
    let [FrameObjects { stamp_ns: 5, objects }] = &read[..] else {
        panic!("{read:?}")
    };
    let seen = objects[0];
    assert_eq!(
        (seen.object.score, seen.points, seen.velocity_mps),
        (1.0, Some(7), Some([1.0, -2.0]))
    );
    assert_eq!(seen.object.orientation, OrientationAvailability::Available);
    // What the library writes is read back.
    let written = serde_json::to_string(&json!({"stamp_ns": 6, "objects": [seen.object]})).unwrap();
    let back = read_frames(written.as_bytes(), Side::Detections).unwrap();
    assert_eq!(back[0].objects[0].object, seen.object);
}

#[test]
fn an_evaluation_is_json_of_plain_numbers() {
    let evaluation: Evaluation = evaluate(
        &frames(&[&[car(0.9, 0.0)]]),
        &frames(&[&[car(1.0, 0.0)]]),
        &EvaluationParams::default(),
    )
    .unwrap();
    let value = serde_json::to_value(&evaluation).unwrap();
    assert_eq!(value["classes"][0]["label"], "CAR");
    assert_eq!(value["classes"][0]["at"][1]["distance_m"], 1.0);
    assert_eq!(value["classes"][0]["at"][1]["ap_all_points"], 1.0);
    assert_eq!(value["mean_ap_nuscenes"][1], json!([1.0, 1.0]));
}
