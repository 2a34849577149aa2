//! Models with their devices: parameters and inputs that are checked, variants, and every way in which they end.

use crate::spy;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sensorium::device::{
    CpuConfig, CpuDevice, Device, DeviceConfig, Fault, FaultAt, FaultCall, FaultDevice, FaultKind, FaultPlan,
    InjectedFaults,
};
use sensorium::image::{ImageRef, PixelFormat, Preset};
use sensorium::lidar::PointCloud;
use sensorium::outputs::Detections;
use sensorium::perception::centerpoint::CenterPointSource;
use sensorium::perception::{
    CallParam, CallParamError, CallParamKind, CallParams, CallValue, CameraSource, DeviceModel, FrameKey,
    HeadKind, HostModel, InputError, Model, ModelError, ModelOptions, ModelParts, PrepareError, RunTiming,
    SensorData, Sweep, Taken, Thresholds,
};
use sensorium::tensor::HostTensor;
use sensorium::trace::TraceOptions;
use sensorium::weights::{WeightOrigin, WeightSearch};
use serde_json::json;
use spy::Spy;

const NO_PARAMS: [(&str, CallValue); 0] = [];
const IDENTITY: [f64; 16] = [
    1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0,
];
const WIDTH: usize = 320;
const HEIGHT: usize = 200;

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("pipelines/weights")
        .join(name)
}

fn camera(thresholds: Thresholds) -> CameraSource {
    CameraSource {
        labels: Some(shipped("yolox_sim.labels")),
        thresholds,
        ..CameraSource::new(
            "yolox",
            &shipped("yolox_sim.onnx"),
            HeadKind::Yolox,
            Preset::YoloxOpencv,
        )
    }
}

const LOW: Thresholds = Thresholds {
    score: 0.001,
    nms_iou: 0.45,
    max_detections: 50,
};

fn lidar() -> CenterPointSource {
    CenterPointSource {
        variants: 3,
        ..CenterPointSource::new("centerpoint", &shipped("centerpoint_sim.safetensors"))
    }
}

fn cpu() -> Box<dyn Device> {
    let config = CpuConfig {
        arena_bytes: 512 << 20,
        ..CpuConfig::default()
    };
    Box::new(CpuDevice::open(&config).unwrap())
}

/// Hardly optimised, on a busy machine.
fn patient() -> ModelOptions {
    ModelOptions {
        deadline: Duration::from_secs(300),
        ..ModelOptions::default()
    }
}

fn only(names: &[&str]) -> ModelOptions {
    ModelOptions {
        variants: Some(names.iter().map(|&name| name.to_owned()).collect()),
        ..patient()
    }
}

/// Repeatable bytes without a pattern, in blocks so that there is something to see.
fn pixels() -> Vec<u8> {
    let at = |x: usize, y: usize, c: usize| ((x / 16 * 7919 + y / 16 * 104_729 + c * 31) % 251) as u8;
    let rows = (0..HEIGHT).flat_map(|y| (0..WIDTH).map(move |x| (x, y)));
    rows.flat_map(|(x, y)| [at(x, y, 0), at(x, y, 1), at(x, y, 2)])
        .collect()
}

/// Boxes of points on a plane.
fn cloud(points: usize) -> PointCloud {
    let mut cloud = PointCloud::default();
    for i in 0..points {
        let (box_at, within) = (i / 64 % 40, i % 64);
        cloud
            .x
            .push((box_at % 8) as f32 * 5.0 - 18.0 + (within % 8) as f32 * 0.5);
        cloud
            .y
            .push((box_at / 8) as f32 * 6.0 - 14.0 + (within / 8) as f32 * 0.25);
        cloud.z.push(-1.5 + (i * 37 % 100) as f32 / 60.0);
        cloud.intensity.push((i % 255) as f32);
    }
    cloud
}

fn sweep(cloud: &PointCloud, stamp_ns: i64) -> SensorData<'_> {
    SensorData::Sweep(Sweep {
        stream: "top",
        stamp_ns,
        points: cloud.columns(),
        world_from_sensor: Some(IDENTITY),
    })
}

fn image(pixels: &[u8]) -> ImageRef<'_> {
    ImageRef::new(pixels, WIDTH, HEIGHT, 3 * WIDTH, PixelFormat::Rgb8).unwrap()
}

/// What a camera detector finds, put together by hand.
fn by_hand(thresholds: Thresholds, pixels: &[u8]) -> Detections {
    let loaded = camera(thresholds).load().unwrap();
    let mut device = cpu();
    let options = TraceOptions {
        deadline: Duration::from_secs(300),
        ..TraceOptions::two_queues()
    };
    let mut trace = loaded.device.build(device.as_mut(), options).unwrap();
    trace.capture(device.as_mut()).unwrap();
    let mut input = device.host_slot(trace.input_specs()[0].bytes()).unwrap();
    let mut output = device.host_slot(trace.output_bytes()).unwrap();
    let data = SensorData::Image(image(pixels).into());
    let frame = HostModel::prepare(&loaded.host, &data, &mut [input.bytes_mut().unwrap()]).unwrap();
    let key = FrameKey::default();
    let submitted = trace.submit(device.as_mut(), frame.variant, [&input], &key);
    let pending = submitted.unwrap().pending;
    trace.read(device.as_mut(), pending, &mut output).unwrap();
    device.drain(Duration::from_secs(300)).unwrap();
    let floats: &[f32] = bytemuck::cast_slice(output.bytes().unwrap());
    HostModel::finish(&loaded.host, floats, &frame.placement, &"camera".into()).unwrap()
}

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

#[test]
fn closing_is_done_once_also_on_drop_and_a_device_can_be_had_back() {
    let spy = Spy::new(cpu());
    let closes = Arc::clone(&spy.closes);
    let closed = || closes.load(Ordering::Relaxed);
    let open = |device| Model::open_on(camera(LOW).load().unwrap(), device, patient()).unwrap();
    let mut model = open(Box::new(spy));
    model.close().unwrap();
    model.close().unwrap();
    assert_eq!((closed(), model.is_closed()), (1, true));
    let pixels = pixels();
    let data = SensorData::Image(image(&pixels).into());
    let after = model.run(&data, "camera", NO_PARAMS);
    assert!(matches!(after, Err(ModelError::Closed { .. })));
    assert!(matches!(model.warm_up(None), Err(ModelError::Closed { .. })));
    let arrays = model.run_arrays(&BTreeMap::new(), &Taken::default(), "camera", NO_PARAMS);
    assert!(matches!(arrays, Err(ModelError::Closed { .. })));
    drop(model);
    assert_eq!(closed(), 1);

    let spy = Spy::new(cpu());
    let dropped = Arc::clone(&spy.closes);
    drop(open(Box::new(spy)));
    assert_eq!(dropped.load(Ordering::Relaxed), 1);

    let device = cpu();
    let before = device.memory().used_bytes;
    let device = open(device).into_device().unwrap();
    assert_eq!(
        device.memory().used_bytes,
        before,
        "weights and tensors were given back"
    );
    let mut again = open(device);
    assert!(again.run(&data, "camera", NO_PARAMS).is_ok());
}

/// Every call of a build in turn is refused; whatever it is, the device is closed and the error says which model.
#[test]
fn a_build_that_fails_anywhere_closes_everything() {
    let mut refused_at = 0;
    let mut failures = 0;
    loop {
        let mut spy = Spy::new(cpu());
        spy.refuse_in = Some(refused_at);
        let closes = Arc::clone(&spy.closes);
        match Model::open_on(lidar().load().unwrap(), Box::new(spy), only(&[])) {
            Ok(_) => break,
            Err(ModelError::Build { model, source }) => {
                assert_eq!(&*model, "centerpoint");
                assert!(!source.to_string().is_empty());
                assert_eq!(closes.load(Ordering::Relaxed), 1, "call {refused_at}");
            }
            Err(other) => panic!("call {refused_at}: {other}"),
        }
        failures += 1;
        // The first and the last calls are of every kind; between them are many alike.
        refused_at += if refused_at < 12 { 1 } else { 47 };
    }
    println!("{failures} builds failed, the last at call {refused_at}");
    assert!(failures > 12);
}

fn faulty(kind: FaultKind, at: FaultAt) -> Box<dyn Device> {
    let plan = FaultPlan {
        seed: 1,
        faults: vec![Fault::new(at, kind)],
    };
    Box::new(FaultDevice::new(cpu(), InjectedFaults::new(&plan)))
}

#[test]
fn faults_of_a_build_are_told_and_nothing_stays_open() {
    for (kind, at) in [
        (FaultKind::LoseDevice(FaultCall::Launch), FaultAt::Nth(5)),
        (FaultKind::LoseDevice(FaultCall::Write), FaultAt::Nth(1)),
        (FaultKind::Refuse(FaultCall::Launch), FaultAt::From(3)),
        (FaultKind::PartialCapture { launches: 2 }, FaultAt::Nth(1)),
    ] {
        let spy = Spy::new(faulty(kind, at));
        let closes = Arc::clone(&spy.closes);
        let found = Model::open_on(lidar().load().unwrap(), Box::new(spy), only(&[]));
        assert!(
            matches!(found, Err(ModelError::Build { .. })),
            "{kind:?}: {found:?}"
        );
        assert_eq!(closes.load(Ordering::Relaxed), 1, "{kind:?}");
    }
}

#[test]
fn a_refused_frame_is_an_error_and_the_next_one_runs() {
    let pixels = pixels();
    let data = SensorData::Image(image(&pixels).into());
    let device = faulty(FaultKind::Refuse(FaultCall::Replay), FaultAt::Nth(2));
    let mut model = Model::open_on(camera(LOW).load().unwrap(), device, patient()).unwrap();
    let first = model.run(&data, "camera", NO_PARAMS).unwrap().detections;
    assert!(matches!(
        model.run(&data, "camera", NO_PARAMS),
        Err(ModelError::Trace(_))
    ));
    assert_eq!(model.run(&data, "camera", NO_PARAMS).unwrap().detections, first);
}

#[test]
fn a_model_whose_device_is_lost_is_closed() {
    let pixels = pixels();
    let data = SensorData::Image(image(&pixels).into());
    let spy = Spy::new(faulty(FaultKind::LoseDevice(FaultCall::Replay), FaultAt::Nth(2)));
    let closes = Arc::clone(&spy.closes);
    let mut model = Model::open_on(camera(LOW).load().unwrap(), Box::new(spy), patient()).unwrap();
    model.run(&data, "camera", NO_PARAMS).unwrap();
    assert!(matches!(
        model.run(&data, "camera", NO_PARAMS),
        Err(ModelError::Trace(_))
    ));
    assert!(model.is_closed());
    assert!(matches!(
        model.run(&data, "camera", NO_PARAMS),
        Err(ModelError::Closed { .. })
    ));
    drop(model);
    assert_eq!(closes.load(Ordering::Relaxed), 1);
}

#[test]
fn a_model_may_move_to_the_thread_that_owns_it() {
    let pixels = pixels();
    let mut model = Model::open_on(camera(LOW).load().unwrap(), cpu(), patient()).unwrap();
    let data = SensorData::Image(image(&pixels).into());
    let here = model.run(&data, "camera", NO_PARAMS).unwrap().detections;
    let there = std::thread::scope(|scope| {
        let owner = scope.spawn(move || {
            let data = SensorData::Image(image(&pixels).into());
            model.run(&data, "camera", NO_PARAMS).unwrap().detections
        });
        owner.join().unwrap()
    });
    assert_eq!(here, there);
}
