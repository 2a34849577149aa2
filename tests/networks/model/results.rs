//! What models find, by their variants and parameters.

use std::collections::BTreeMap;
use std::time::Duration;

use sensorium::device::DeviceConfig;
use sensorium::perception::{
    CallValue, Model, ModelError, ModelParts, RunTiming, SensorData, Taken, Thresholds,
};
use sensorium::tensor::HostTensor;
use serde_json::json;

use super::{
    HEIGHT, LOW, NO_PARAMS, WIDTH, by_hand, camera, cloud, cpu, image, lidar, only, patient, pixels, sweep,
};

#[test]
fn a_camera_model_finds_what_its_parts_do_and_parameters_hold_for_one_frame() {
    let pixels = pixels();
    let data = SensorData::Image(image(&pixels).into());
    let usual = camera(LOW).load().unwrap();
    let mut model = Model::open(usual, &DeviceConfig::default(), patient()).unwrap();
    let expected = by_hand(LOW, &pixels);
    assert!(expected.len() > 5, "{} detections", expected.len());
    let first = model.run(&data, "camera", NO_PARAMS).unwrap();
    assert_eq!(first.detections, expected);
    assert_eq!((first.variant, first.within_capacity), (0, None));
    let RunTiming {
        prepare,
        device,
        finish,
        total,
    } = first.timing;
    assert!(total >= prepare + device + finish && device > Duration::ZERO);

    let other = Thresholds {
        score: 0.01,
        nms_iou: 0.2,
        max_detections: 3,
    };
    let params = [
        ("score_threshold", CallValue::Text(" 0.01 ".to_owned())),
        ("nms_threshold", 0.2.into()),
        ("max_detections", 3.0.into()),
    ];
    let changed = model.run(&data, "camera", params).unwrap().detections;
    assert_eq!(changed, by_hand(other, &pixels));
    assert_ne!(changed, expected);
    assert_eq!(
        model.run(&data, "camera", NO_PARAMS).unwrap().detections,
        expected
    );

    // The same pixels as a plain array.
    let array = HostTensor::from_slice(&[HEIGHT, WIDTH, 3], &pixels).unwrap();
    let arrays = BTreeMap::from([("image".to_owned(), array)]);
    let outcome = model
        .run_arrays(&arrays, &Taken::default(), "camera", NO_PARAMS)
        .unwrap();
    assert_eq!(outcome.detections, expected);
}

#[test]
fn a_lidar_model_finds_the_same_whichever_variants_are_warm() {
    let (thin, dense) = (cloud(200), cloud(2560));
    let parts = || ModelParts::from(lidar().load().unwrap());
    let names = parts().device.variants();
    assert_eq!(names.len(), 3);
    let params = || [("score_threshold", CallValue::Float(0.05))];
    let mut found = Vec::new();
    for options in [patient(), only(&[&names[1]])] {
        let mut model = Model::open(parts(), &DeviceConfig::default(), options.clone()).unwrap();
        let warm = model.info()["warm"].clone();
        match &options.variants {
            None => assert_eq!(warm, json!(names)),
            Some(chosen) => assert_eq!(warm.as_array().unwrap().len(), chosen.len() + 1),
        }
        let mut one = |cloud, stamp| {
            let outcome = model.run(&sweep(cloud, stamp), "base_link", params()).unwrap();
            assert_eq!(outcome.within_capacity, Some(true));
            (outcome.variant, outcome.detections)
        };
        found.push([one(&thin, 0), one(&dense, 100_000_000)]);
    }
    let [(first, few), (_, many)] = &found[0];
    assert_eq!(*first, 0, "a thin sweep is for the smallest variant");
    assert!(few.len() + many.len() > 0, "something is found");
    assert_eq!(found[0], found[1]);
}

#[test]
fn warming_up_again_does_nothing_and_warming_up_more_changes_no_result() {
    let parts = ModelParts::from(lidar().load().unwrap());
    let names = parts.device.variants();
    let dense = cloud(2560);
    let mut model = Model::open_on(parts, cpu(), only(&[&names[0]])).unwrap();
    let run = |model: &mut Model, stamp| {
        let outcome = model.run(
            &sweep(&dense, stamp),
            "base_link",
            [("score_threshold", 0.05.into())],
        );
        outcome.unwrap().detections
    };
    let before = run(&mut model, 0);
    assert!(!model.warm_up(Some(&names[..1])).unwrap());
    assert!(!model.warm_up(Some(&[])).unwrap());
    assert!(model.warm_up(Some(&names[1..2])).unwrap());
    assert_eq!(model.info()["warm"], json!(names));
    assert!(!model.warm_up(None).unwrap());
    // The stream starts anew with an older stamp.
    let again = run(&mut model, 0);
    assert_eq!(again.len(), before.len());
    let wrong = model.warm_up(Some(&["huge".to_owned()])).unwrap_err();
    assert_eq!(
        wrong.to_string(),
        format!(
            "model centerpoint has no variant `huge`: it has {}",
            names.join(", ")
        )
    );
    let wrong = Model::open(lidar().load().unwrap(), &DeviceConfig::default(), only(&["huge"]));
    assert!(matches!(wrong, Err(ModelError::Variant { .. })));
}
