//! Every way in which a model ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sensorium::device::{
    Device, Fault, FaultAt, FaultCall, FaultDevice, FaultKind, FaultPlan, InjectedFaults,
};
use sensorium::perception::{Model, ModelError, SensorData, Taken};

use super::{LOW, NO_PARAMS, camera, cpu, image, lidar, only, patient, pixels};
use crate::spy::Spy;

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
