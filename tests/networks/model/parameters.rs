//! Parameters and arrays that are checked before anything runs, and what a model says of itself.

use std::collections::BTreeMap;

use sensorium::perception::{
    CallParam, CallParamError, CallParamKind, CallParams, CallValue, CameraSource, HostModel, InputError,
    Model, ModelError, ModelParts, PrepareError, SensorData, Taken,
};
use sensorium::tensor::HostTensor;
use sensorium::weights::{WeightOrigin, WeightSearch};
use serde_json::json;

use super::{
    IDENTITY, LOW, NO_PARAMS, camera, cloud, cpu, image, lidar, only, patient, pixels, shipped, sweep,
};

#[test]
fn parameters_are_checked_before_anything_runs() {
    let mut model = Model::open_on(camera(LOW).load().unwrap(), cpu(), patient()).unwrap();
    let pixels = pixels();
    let data = SensorData::Image(image(&pixels).into());
    let mut refused = |name: &str, value: CallValue| match model.run(&data, "camera", [(name, value)]) {
        Err(ModelError::Params(error)) => error.to_string(),
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(
        refused("score_treshold", 0.5.into()),
        "the model has no parameter `score_treshold`: did you mean `score_threshold`?"
    );
    assert_eq!(
        refused("colour", 0.5.into()),
        "the model has no parameter `colour`: it takes score_threshold, nms_threshold, max_detections"
    );
    assert_eq!(
        refused("score_threshold", 1.5.into()),
        "parameter `score_threshold` is 1.5; expected a finite number from 0 to 1"
    );
    assert_eq!(
        refused("score_threshold", true.into()),
        "parameter `score_threshold` is true; expected a finite number from 0 to 1"
    );
    assert_eq!(
        refused("score_threshold", "high".into()),
        "parameter `score_threshold` is \"high\"; expected a finite number from 0 to 1"
    );
    for value in [f64::NAN, f64::INFINITY, -0.1] {
        assert!(refused("nms_threshold", value.into()).contains("from 0 to 1"));
    }
    assert_eq!(
        refused("max_detections", 2.5.into()),
        "parameter `max_detections` is 2.5; expected a whole number from 1 to 30000"
    );
    for value in [
        0.into(),
        30_001.into(),
        false.into(),
        CallValue::from("NaN"),
        CallValue::from("1e3."),
    ] {
        assert!(refused("max_detections", value).contains("from 1 to 30000"));
    }
}

#[test]
fn values_are_taken_in_the_type_that_is_declared() {
    let param = |name, kind| CallParam {
        name,
        kind,
        default: None,
        about: "",
    };
    let declared = [
        param("flag", CallParamKind::Bool),
        param(
            "count",
            CallParamKind::Int {
                min: None,
                max: Some(7),
            },
        ),
        param(
            "share",
            CallParamKind::Float {
                min: Some(-1.0),
                max: None,
            },
        ),
    ];
    let check = |text: &str| {
        CallParams::check_json(
            &declared,
            serde_json::from_str::<serde_json::Value>(text)
                .unwrap()
                .as_object()
                .unwrap(),
        )
    };
    let good = check(r#"{"flag": true, "count": "-12", "share": "1e2"}"#).unwrap();
    assert_eq!(
        (good.truth("flag"), good.whole("count"), good.number("share")),
        (Some(true), Some(-12), Some(100.0))
    );
    assert_eq!(
        check(r#"{"count": 7.0, "share": 3}"#).unwrap().whole("count"),
        Some(7)
    );
    assert_eq!(check("{}").unwrap(), CallParams::default());
    for wrong in [
        r#"{"flag": 1}"#,
        r#"{"flag": "true"}"#,
        r#"{"flag": 0.0}"#,
        r#"{"count": true}"#,
        r#"{"count": 1.5}"#,
        r#"{"count": "one"}"#,
        r#"{"count": 1e300}"#,
        r#"{"share": false}"#,
        r#"{"share": "inf"}"#,
        r#"{"share": "nan"}"#,
        r#"{"share": ""}"#,
    ] {
        assert!(
            matches!(check(wrong), Err(CallParamError::Type { .. })),
            "{wrong}: {:?}",
            check(wrong)
        );
    }
    for wrong in [r#"{"count": 8}"#, r#"{"share": -1.5}"#] {
        assert!(
            matches!(check(wrong), Err(CallParamError::Range { .. })),
            "{wrong}"
        );
    }
    for wrong in [r#"{"share": null}"#, r#"{"share": [1]}"#, r#"{"count": {}}"#] {
        assert!(
            matches!(check(wrong), Err(CallParamError::Json { .. })),
            "{wrong}"
        );
    }
    let twice = CallParams::check(&declared, [("share", 1.0.into()), ("share", 2.0.into())]);
    assert_eq!(twice, Err(CallParamError::Twice { name: "share" }));
    let none = CallParams::check(&[], [("a\u{1b}[2J", 1.0.into())]).unwrap_err();
    assert_eq!(
        none.to_string(),
        "the model has no parameter `a [2J`: it takes none"
    );
}

#[test]
fn parameters_of_a_lidar_model_are_those_that_may_change() {
    let loaded = lidar().load().unwrap();
    let declared = loaded.host.call_params();
    let names: Vec<&str> = declared.iter().map(|param| param.name).collect();
    assert_eq!(names.len(), 5);
    for name in &names {
        let mut params = loaded.host.params();
        // Every declared value is one that the model takes.
        let CallParamKind::Float { min, max } = declared.iter().find(|it| it.name == *name).unwrap().kind
        else {
            panic!("{name}");
        };
        for value in [min, max].into_iter().flatten() {
            params
                .set(name, value)
                .unwrap_or_else(|error| panic!("{name} {value}: {error}"));
        }
    }
    assert!(CallParams::check(&declared, [("score_threshold", 1.0.into())]).is_err());
    assert!(CallParams::check(&declared, [("circle_nms_dist_threshold", 0.0.into())]).is_err());
}

#[test]
fn arrays_that_the_model_does_not_take_are_refused() {
    let mut model = Model::open_on(lidar().load().unwrap(), cpu(), only(&[])).unwrap();
    let taken = Taken {
        stream: "top",
        stamp_ns: 1,
        world_from_sensor: Some(IDENTITY),
        ..Taken::default()
    };
    let floats =
        |dims: &[usize]| HostTensor::from_slice(dims, &vec![1.0_f32; dims.iter().product()]).unwrap();
    let mut refused = |name: &str, array: HostTensor| {
        let arrays = BTreeMap::from([(name.to_owned(), array)]);
        match model.run_arrays(&arrays, &taken, "base_link", NO_PARAMS) {
            Err(ModelError::Input(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        refused("cloud", floats(&[3, 4])).to_string(),
        "the model takes no input `cloud`: it takes `points`"
    );
    assert_eq!(
        refused("points", floats(&[3, 5])).to_string(),
        "input `points` has shape [3, 5]; expected float32 [any, 4]: x, y, z in metres in the sensor's frame, and \
         intensity, of each point"
    );
    assert!(matches!(
        refused("points", floats(&[12])),
        InputError::Shape { .. }
    ));
    let bytes = HostTensor::from_slice(&[1, 4], &[0_u8; 4]).unwrap();
    assert!(matches!(refused("points", bytes), InputError::Type { .. }));
    let none = model.run_arrays(&BTreeMap::new(), &taken, "base_link", NO_PARAMS);
    assert!(matches!(
        none,
        Err(ModelError::Input(InputError::Missing { name: "points", .. }))
    ));

    let dense = cloud(2560);
    let rows: Vec<f32> = (0..dense.len())
        .flat_map(|i| [dense.x[i], dense.y[i], dense.z[i], dense.intensity[i]])
        .collect();
    let arrays = BTreeMap::from([(
        "points".to_owned(),
        HostTensor::from_slice(&[dense.len(), 4], &rows).unwrap(),
    )]);
    let params = || [("score_threshold", CallValue::Float(0.05))];
    let found = model
        .run_arrays(&arrays, &taken, "base_link", params())
        .unwrap()
        .detections;
    let mut other = Model::open_on(lidar().load().unwrap(), cpu(), only(&[])).unwrap();
    assert_eq!(
        found,
        other
            .run(&sweep(&dense, 1), "base_link", params())
            .unwrap()
            .detections
    );
    // The model goes on after a frame that it does not take.
    let pixels = pixels();
    let wrong = model.run(&SensorData::Image(image(&pixels).into()), "base_link", NO_PARAMS);
    assert!(matches!(
        wrong,
        Err(ModelError::Prepare(PrepareError::WrongSensor { .. }))
    ));
    assert!(
        model
            .run(&sweep(&dense, 200_000_000), "base_link", NO_PARAMS)
            .is_ok()
    );
}

#[test]
fn a_model_tells_what_it_is() {
    let found = WeightSearch::new("yolox", "SENSORIUM_TEST_YOLOX")
        .folder(shipped(""))
        .cache(None)
        .find_with("yolox_sim.onnx", |_| None)
        .unwrap();
    assert_eq!(found.origin, WeightOrigin::Folder);
    let source = CameraSource {
        weights: found.path.clone(),
        ..camera(LOW)
    };
    let parts = ModelParts {
        weights: Some(found),
        ..source.load().unwrap().into()
    };
    let mut model = Model::open_on(parts, cpu(), patient()).unwrap();
    let info = model.info();
    assert_eq!(
        (&info["model"], &info["sensor"]),
        (&json!("yolox"), &json!("images"))
    );
    assert_eq!(info["weights"]["origin"], json!("folder"));
    assert_eq!(info["params"]["score_threshold"]["default"], json!(0.001));
    assert_eq!(info["params"]["max_detections"]["max"], json!(30_000));
    assert_eq!(info["inputs"]["image"]["shape"], json!([null, null, 3]));
    assert_eq!(
        (&info["variants"], &info["warm"]),
        (&json!(["default"]), &json!(["default"]))
    );
    assert_eq!(info["device"]["health"], json!("healthy"));
    assert!(info["trace"].is_object());
    model.close().unwrap();
    let info = model.info();
    assert_eq!((&info["closed"], info.get("device")), (&json!(true), None));
}
