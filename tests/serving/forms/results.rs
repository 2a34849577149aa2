//! Bodies of results.

use std::sync::Arc;
use std::time::Duration;

use super::form;
use sensorium::io::forms::{ArrayForm, BodyForm, BodyTiming, ToBody, decode_array};
use sensorium::outputs::{
    Detection2D, Detection3D, Detections2D, Detections2DWithMasks, Detections3D, Mask2D, Segmentation3D,
    Trajectory,
};
use sensorium::tensor::HostTensor;
use serde_json::{Map, Value, json};

fn body(result: &impl ToBody, form: BodyForm) -> Result<Value, String> {
    let timing = BodyTiming {
        total: Duration::from_micros(1500),
        ..BodyTiming::default()
    };
    result
        .to_body(form, &timing, Map::new())
        .map_err(|error| error.to_string())
}

fn names(names: &[&str]) -> Arc<[String]> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn floats_of(encoded: &Value) -> Vec<f32> {
    decode_array(&form::<ArrayForm>(encoded), "a", 1 << 20)
        .unwrap()
        .to_f32()
        .unwrap()
}

#[test]
fn boxes_in_space_are_sorted_rounded_and_finite() {
    let one = |score: f32, x: f32| Detection3D {
        label_id: 1,
        score,
        box_xyzlwhy: [x, 2.0, 3.0, 4.0, 5.0, 6.0, 0.7],
        velocity_mps: Some([1.0, -1.0]),
    };
    let all = |found| Detections3D::new(found, names(&["car"]), "m".into(), "base_link".into());
    let found = all(vec![one(0.25, 1.0), one(0.123_456_78, 1.0), one(0.5, 12_345.678)]);
    let json = body(&found, BodyForm::Json).unwrap();
    let scores: Vec<f64> = json["detections"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["score"].as_f64().unwrap())
        .collect();
    assert_eq!(scores, [0.5, 0.25, 0.123457]);
    let first = &json["detections"][0];
    assert_eq!(first["center"], json!([12345.7, 2.0, 3.0]));
    assert_eq!(first["size"], json!([4.0, 5.0, 6.0]));
    assert_eq!(
        (&first["yaw"], &first["velocity"]),
        (&json!(0.7), &json!([1.0, -1.0]))
    );
    assert_eq!(
        (&first["label"], &first["label_id"]),
        (&json!("1"), &json!(1)),
        "a number that has no name is its own"
    );
    assert_eq!(
        (&json["num_detections"], &json["timing_ms"]["total"]),
        (&json!(3), &json!(1.5))
    );
    assert!(json.get("arrays").is_none());
    let npz = body(&found, BodyForm::Npz).unwrap();
    assert_eq!(
        floats_of(&npz["arrays"]["boxes"])[..7],
        [12_345.678, 2.0, 3.0, 4.0, 5.0, 6.0, 0.7]
    );
    assert_eq!(floats_of(&npz["arrays"]["velocities"]).len(), 6);
    let error = body(&all(vec![one(0.5, f32::NAN)]), BodyForm::Json).unwrap_err();
    assert_eq!(error, "non-finite value at body.detections[0].center[0]");
}

#[test]
fn masks_classes_and_trajectories_have_bodies() {
    let mask = |labels: Vec<u16>| {
        Mask2D::new(
            labels,
            [2, 1],
            names(&["road", "car"]),
            "m".into(),
            "camera".into(),
        )
        .unwrap()
    };
    let png = body(&mask(vec![1, 1]), BodyForm::Json).unwrap();
    assert_eq!(
        (&png["mask"]["encoding"], &png["class_counts"]),
        (&json!("png"), &json!({ "car": 2 }))
    );
    assert_eq!(
        body(&mask(vec![1, 1]), BodyForm::Npz).unwrap()["mask"]["dtype"],
        "uint8"
    );
    assert_eq!(
        body(&mask(vec![1, 300]), BodyForm::Json).unwrap()["mask"]["dtype"],
        "uint16"
    );
    assert!(Mask2D::new(vec![1], [2, 1], names(&[]), "m".into(), "f".into()).is_none());

    let points = Segmentation3D {
        label_ids: vec![0, 1, 1],
        class_names: names(&["road", "car"]),
        scores: Some(vec![0.5, 0.25, 1.0]),
        model: "m".into(),
        frame_id: "base_link".into(),
    };
    let json = body(&points, BodyForm::Json).unwrap();
    assert_eq!(
        (&json["labels"]["dtype"], &json["class_counts"]),
        (&json!("uint8"), &json!({ "road": 1, "car": 2 }))
    );
    assert_eq!(floats_of(&json["scores"]), [0.5, 0.25, 1.0]);
    let odd = Segmentation3D {
        scores: Some(vec![f32::NAN]),
        ..points
    };
    assert_eq!(
        body(&odd, BodyForm::Json).unwrap_err(),
        "non-finite value at body.scores[0]"
    );

    let columns = || Trajectory::COLUMNS.map(str::to_owned).to_vec();
    let mut path = Trajectory::new(
        vec![0.0, 1.0, 0.5, 2.0, 3.0, 0.25],
        columns(),
        "m".into(),
        "map".into(),
    )
    .unwrap();
    path.turn_indicator = Some(2);
    path.predicted_agents = Some(HostTensor::from_slice(&[1, 2], &[4.0_f32, 5.0]).unwrap());
    let json = body(&path, BodyForm::Npz).unwrap();
    assert_eq!(json["trajectory"], json!([[0.0, 1.0, 0.5], [2.0, 3.0, 0.25]]));
    assert_eq!(
        (&json["num_poses"], &json["columns"][2], &json["turn_indicator"]),
        (&json!(2), &json!("yaw"), &json!(2))
    );
    assert_eq!(floats_of(&json["predicted_agents"]), [4.0, 5.0]);
    assert_eq!(floats_of(&json["arrays"]["trajectory"]).len(), 6);
    assert!(Trajectory::new(vec![0.0; 4], columns(), "m".into(), "f".into()).is_none());

    let found = Detection2D {
        label_id: 0,
        score: 0.5,
        box_xyxy: [0.0, 0.0, 1.0, 1.0],
    };
    let detections = Detections2D::new(vec![found], names(&["car"]), "m".into(), "camera".into(), [2, 1]);
    let masks = [("semseg".to_owned(), mask(vec![0, 1]))].into();
    let json = body(&Detections2DWithMasks { detections, masks }, BodyForm::Json).unwrap();
    assert_eq!(
        (&json["detections"][0]["label"], &json["semseg"]["encoding"]),
        (&json!("car"), &json!("png"))
    );
}
