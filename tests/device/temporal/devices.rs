//! The same bits on every device, replayed and eager.

use sensorium::perception::temporal::TemporalOptions;
use sensorium::tensor::DType;
use sensorium::trace::{OnFull, TraceOptions};

use crate::temporal::rig::{Bits, KINDS, Kind, Rig, Shot, cpu, options, simulator};

fn stored(storage: DType, max_streams: usize) -> TemporalOptions {
    TemporalOptions {
        storage,
        ..options(2, max_streams, OnFull::Reject)
    }
}

fn turns() -> Vec<(&'static str, Shot)> {
    let order = ["a", "b", "a", "a", "b"];
    let shots = order.iter().enumerate();
    shots
        .map(|(i, &stream)| (stream, Shot::at(i as f64 * 0.1, 300 + i as u64)))
        .collect()
}

fn outputs(mut rig: Rig) -> Vec<Bits> {
    let outputs = turns()
        .iter()
        .map(|(stream, shot)| rig.run(stream, shot, false).unwrap().0)
        .collect();
    rig.trace.release(rig.device.as_mut()).unwrap();
    rig.device.close();
    outputs
}

#[test]
fn every_device_gives_the_same_bits() {
    for kind in KINDS {
        for storage in [DType::F32, DType::Bf16] {
            let rig = |device, traced| Rig::new(kind, stored(storage, 2), device, traced);
            let (one, two) = (TraceOptions::default, TraceOptions::two_queues);
            let expected = outputs(rig(cpu(1, 1), one()));
            let finite = |bits: &Bits| bits.iter().all(|&b| f32::from_bits(b).is_finite());
            assert!(expected.iter().all(finite));
            for (name, found) in [
                ("two threads", outputs(rig(cpu(2, 2), two()))),
                ("a simulator", outputs(rig(simulator(1), one()))),
                ("a simulator with two queues", outputs(rig(simulator(2), two()))),
            ] {
                assert!(found == expected, "{kind:?} in {storage} on {name}");
            }
        }
    }
}

#[test]
fn eager_runs_step_like_replays() {
    for kind in KINDS {
        for storage in [DType::F32, DType::Bf16] {
            let shots: Vec<Shot> = turns().into_iter().map(|(_, shot)| shot).collect();
            let replayed = Rig::plain(kind, stored(storage, 1)).alone("one", &shots);
            let mut rig = Rig::plain(kind, stored(storage, 1));
            for (shot, replayed) in shots.iter().zip(replayed) {
                assert!(eager(&mut rig, shot) == replayed, "{kind:?} in {storage}");
            }
        }
    }
}

fn eager(rig: &mut Rig, shot: &Shot) -> Bits {
    rig.prepare(shot);
    let tensors = rig.inputs();
    let device = rig.device.as_mut();
    let (runner, variants, ids) = rig.trace.runner();
    let inputs: Vec<_> = ids.iter().copied().zip(&tensors).collect();
    let outputs = runner.run_eager(device, variants[0], &inputs).unwrap();
    let floats: &[f32] = outputs[0].1.as_slice().unwrap();
    floats.iter().map(|v| v.to_bits()).collect()
}

/// Two seeds are two networks, and one seed is one.
#[test]
fn a_seed_is_a_network() {
    for kind in KINDS {
        let shots = [turns()[0].1];
        let of = |seed| {
            let options = TemporalOptions {
                seed,
                ..options(1, 1, OnFull::Reject)
            };
            Rig::plain(kind, options).alone("one", &shots)
        };
        assert!(of(1) == of(1) && of(1) != of(2), "{kind:?}");
    }
}

#[test]
fn options_that_make_no_model_are_refused() {
    use sensorium::perception::temporal::{BevRing, StreamQueries};
    let sound = options(1, 1, OnFull::Reject);
    for (change, words) in [
        (
            TemporalOptions {
                memory_frames: 0,
                ..sound.clone()
            },
            "1 to 16",
        ),
        (
            TemporalOptions {
                memory_frames: 17,
                ..sound.clone()
            },
            "1 to 16",
        ),
        (
            TemporalOptions {
                storage: DType::U8,
                ..sound.clone()
            },
            "float32 or bfloat16",
        ),
        (
            TemporalOptions {
                score_threshold: f32::NAN,
                ..sound.clone()
            },
            "0 to 0.999",
        ),
        (
            TemporalOptions {
                score_threshold: 1.0,
                ..sound.clone()
            },
            "0 to 0.999",
        ),
        (options(1, 0, OnFull::Reject), "room for a stream"),
    ] {
        for error in [
            BevRing::load(change.clone()).map(drop).unwrap_err(),
            StreamQueries::load(change).map(drop).unwrap_err(),
        ] {
            assert!(error.to_string().contains(words), "{error}");
            assert!(error.to_string().starts_with("model remembers: "), "{error}");
        }
    }
    assert!(Rig::plain(Kind::BevRing, sound).trace.banks().is_some());
}
