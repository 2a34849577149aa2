//! The buffer of frames: chains, interpolation, jumps in time, and what it refuses.

use crate::support;
use proptest::prelude::*;
use sensorium::io::bag::Bag;
use sensorium::io::messages::{
    HeaderMsg, QuaternionMsg, TF_TYPE, TfMsg, TransformMsg, TransformStampedMsg, Vector3Msg,
};
use sensorium::io::tf::{TfBuffer, TfError, TfLimits, TfUpdate, Transform};

const S: i64 = 1_000_000_000;

fn at<'a>(
    parent: &'a str,
    child: &'a str,
    stamp_ns: i64,
    translation: [f64; 3],
    rotation: [f64; 4],
) -> TfMsg<'a> {
    let [x, y, z] = translation;
    let [qx, qy, qz, qw] = rotation;
    let transform = TransformStampedMsg {
        header: HeaderMsg::new(stamp_ns, parent).unwrap(),
        child_frame_id: child,
        transform: TransformMsg {
            translation: Vector3Msg { x, y, z },
            rotation: QuaternionMsg {
                x: qx,
                y: qy,
                z: qz,
                w: qw,
            },
        },
    };
    TfMsg {
        transforms: vec![transform],
    }
}

fn turn(axis: [f64; 3], angle: f64) -> [f64; 4] {
    let length = axis.iter().map(|v| v * v).sum::<f64>().sqrt();
    let [x, y, z] = axis.map(|v| v / length * (angle / 2.0).sin());
    [x, y, z, (angle / 2.0).cos()]
}

const NONE: [f64; 4] = [0.0, 0.0, 0.0, 1.0];

type Matrix = [[f64; 3]; 3];

fn matrix(transform: &Transform) -> Matrix {
    let m = transform.matrix();
    [[m[0], m[1], m[2]], [m[4], m[5], m[6]], [m[8], m[9], m[10]]]
}

fn product(a: &Matrix, b: &Matrix) -> Matrix {
    std::array::from_fn(|i| std::array::from_fn(|j| (0..3).map(|k| a[i][k] * b[k][j]).sum()))
}

fn transposed(a: &Matrix) -> Matrix {
    std::array::from_fn(|i| std::array::from_fn(|j| a[j][i]))
}

/// Rodrigues' formula.
fn rotation_about(axis: [f64; 3], angle: f64) -> Matrix {
    let [x, y, z] = axis;
    let (s, c) = angle.sin_cos();
    let t = 1.0 - c;
    [
        [t * x * x + c, t * x * y - s * z, t * x * z + s * y],
        [t * x * y + s * z, t * y * y + c, t * y * z - s * x],
        [t * x * z - s * y, t * y * z + s * x, t * z * z + c],
    ]
}

/// A part of the way from one rotation to another, by the axis and angle of the rotation between them: no quaternion.
fn between(from: &Matrix, to: &Matrix, part: f64) -> Matrix {
    let step = product(&transposed(from), to);
    let axis = [
        step[2][1] - step[1][2],
        step[0][2] - step[2][0],
        step[1][0] - step[0][1],
    ];
    let sine = axis.iter().map(|v| v * v).sum::<f64>().sqrt() / 2.0;
    let cosine = (step[0][0] + step[1][1] + step[2][2] - 1.0) / 2.0;
    if sine < 1e-12 {
        return *from;
    }
    let unit = axis.map(|v| v / (2.0 * sine));
    product(from, &rotation_about(unit, part * sine.atan2(cosine)))
}

fn farthest(a: &Matrix, b: &Matrix) -> f64 {
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn a_quarter_turn_takes_x_to_y() {
    let mut buffer = TfBuffer::default();
    buffer.insert(
        &at(
            "map",
            "base",
            0,
            [10.0, 0.0, 1.0],
            turn([0.0, 0.0, 1.0], std::f64::consts::FRAC_PI_2),
        ),
        true,
    );
    let transform = buffer.lookup("map", "base", 123).unwrap();
    let near = |a: [f64; 3], b: [f64; 3]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
    assert!(near(transform.apply([1.0, 0.0, 0.0]), [10.0, 1.0, 1.0]));
    assert!(near(transform.apply([0.0, 2.0, 0.0]), [8.0, 0.0, 1.0]));
    let back = buffer.lookup("base", "map", 123).unwrap();
    assert!(near(back.apply([10.0, 1.0, 1.0]), [1.0, 0.0, 0.0]));
    let m = transform.matrix();
    assert!(near([m[3], m[7], m[11]], [10.0, 0.0, 1.0]) && m[12..] == [0.0, 0.0, 0.0, 1.0]);
    assert!(near([m[0], m[4], m[8]], [0.0, 1.0, 0.0]), "{m:?}");
}

#[test]
fn chains_meet_at_the_common_ancestor() {
    let mut buffer = TfBuffer::default();
    // A tree: map - odom - base - (top, left - left_optical).
    let edges = [
        ("map", "odom", [5.0, 1.0, 0.0], turn([0.0, 0.0, 1.0], 0.3)),
        ("odom", "base", [2.0, -1.0, 0.5], turn([0.1, 0.2, 1.0], -1.2)),
        ("base", "top", [0.0, 0.0, 2.0], turn([1.0, 0.0, 0.0], 0.01)),
        ("base", "left", [1.0, 0.7, 1.5], turn([0.0, 1.0, 0.0], 0.5)),
        ("left", "left_optical", [0.0; 3], turn([1.0, -1.0, 1.0], 2.0)),
    ];
    for (parent, child, translation, rotation) in edges {
        buffer.insert(&at(parent, child, 0, translation, rotation), true);
    }
    // By matrices: to the root and back down.
    let to_map = |frame: &str| {
        let mut rotation = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        let mut origin = [0.0; 3];
        let mut frame = frame;
        while let Some((parent, _, t, q)) = edges.iter().find(|edge| edge.1 == frame) {
            let angle = 2.0 * q[3].acos();
            let sine = (angle / 2.0).sin();
            let edge = rotation_about([q[0] / sine, q[1] / sine, q[2] / sine], angle);
            rotation = product(&edge, &rotation);
            origin = std::array::from_fn(|i| t[i] + (0..3).map(|k| edge[i][k] * origin[k]).sum::<f64>());
            frame = parent;
        }
        (rotation, origin)
    };
    for target in ["map", "odom", "base", "top", "left", "left_optical"] {
        for source in ["map", "odom", "base", "top", "left", "left_optical"] {
            let found = buffer.lookup(target, source, 77).unwrap();
            let ((rt, ot), (rs, os)) = (to_map(target), to_map(source));
            let point = [0.3, -4.0, 2.5];
            let in_map: [f64; 3] =
                std::array::from_fn(|i| os[i] + (0..3).map(|k| rs[i][k] * point[k]).sum::<f64>());
            let expected: [f64; 3] =
                std::array::from_fn(|i| (0..3).map(|k| rt[k][i] * (in_map[k] - ot[k])).sum::<f64>());
            let got = found.apply(point);
            assert!(
                got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12),
                "{target} {source}: {got:?} {expected:?}"
            );
        }
    }
    assert_eq!(buffer.lookup("top", "top", 0).unwrap(), Transform::IDENTITY);
    // The slash that ROS 1 wrote in front.
    assert_eq!(buffer.lookup("/map", "/base", 0), buffer.lookup("map", "base", 0));
    assert_eq!(buffer.newest_common_ns("top", "left_optical"), Ok(None));
}

proptest! {
    #[test]
    fn rotations_are_interpolated_along_the_shorter_arc_at_constant_speed(
        axes in proptest::array::uniform6(-1.0f64..1.0),
        angles in proptest::array::uniform2(-3.1f64..3.1),
        from in proptest::array::uniform3(-100.0f64..100.0),
        to in proptest::array::uniform3(-100.0f64..100.0),
        part in 0i64..=1000,
        negated in any::<bool>(),
    ) {
        let [a, b, c, d, e, f] = axes;
        prop_assume!(a * a + b * b + c * c > 1e-3 && d * d + e * e + f * f > 1e-3);
        let first = turn([a, b, c], angles[0]);
        let second = turn([d, e, f], angles[1]);
        let told = if negated { second.map(|v| -v) } else { second };
        let mut buffer = TfBuffer::default();
        buffer.insert(&at("map", "base", 0, from, first), false);
        buffer.insert(&at("map", "base", 1000, to, told), false);
        let ends = [0, 1000].map(|stamp| matrix(&buffer.lookup("map", "base", stamp).unwrap()));
        let step = product(&transposed(&ends[0]), &ends[1]);
        let trace = step[0][0] + step[1][1] + step[2][2];
        // Half a turn has two shorter arcs, and the oracle loses its axis near it.
        prop_assume!(trace > -0.99);
        let found = buffer.lookup("map", "base", part).unwrap();
        let expected = between(&ends[0], &ends[1], part as f64 / 1000.0);
        prop_assert!(farthest(&matrix(&found), &expected) < 1e-9);
        for i in 0..3 {
            let line = from[i] + (to[i] - from[i]) * part as f64 / 1000.0;
            prop_assert!((found.translation[i] - line).abs() < 1e-9);
        }
        let length: f64 = found.rotation.iter().map(|v| v * v).sum();
        prop_assert!((length - 1.0).abs() < 1e-12);
    }
}

#[test]
fn every_way_to_miss_is_told_with_its_frames_and_times() {
    let mut buffer = TfBuffer::default();
    assert_eq!(
        buffer.lookup("map", "base", 0).unwrap_err().to_string(),
        "frame map is unknown; known are: none"
    );
    for stamp in [10 * S, 11 * S] {
        buffer.insert(&at("map", "base", stamp, [0.0; 3], NONE), false);
    }
    buffer.insert(&at("world", "tower", 0, [0.0; 3], NONE), true);
    let told = |target, source, stamp| buffer.lookup(target, source, stamp).unwrap_err().to_string();
    assert_eq!(
        told("map", "bas", 10 * S),
        "frame bas is unknown; known are: map, base, world, tower"
    );
    assert_eq!(
        told("map", "base", 10 * S - 1),
        "frame base is needed at 9.999999999, but its transforms start at 10.000000000: 0.000000001 s into the past"
    );
    assert_eq!(
        told("map", "base", 946_655_660 * S),
        "frame base is needed at 946655660.000000000, but its transforms end at 11.000000000: 946655649.000000000 s into \
         the future"
    );
    assert_eq!(
        told("tower", "base", 10 * S),
        "no transform connects base and tower: their roots are map and world"
    );
    assert!(buffer.lookup("map", "base", 10 * S).is_ok() && buffer.lookup("base", "map", 11 * S).is_ok());
    assert_eq!(buffer.newest_common_ns("map", "base"), Ok(Some(11 * S)));
    let mut forgotten = buffer.clone();
    forgotten.forget_moving();
    assert_eq!(
        forgotten.lookup("map", "base", 0),
        Err(TfError::NoData {
            frame: "base".to_owned()
        })
    );
    assert!(forgotten.lookup("world", "tower", 0).is_ok());
}

#[test]
fn what_cannot_be_true_is_refused_and_counted() {
    let mut buffer = TfBuffer::new(TfLimits {
        frames: 4,
        ..TfLimits::default()
    });
    buffer.insert(&at("map", "odom", 0, [0.0; 3], NONE), true);
    buffer.insert(&at("odom", "base", 0, [0.0; 3], NONE), true);
    let before: Vec<String> = buffer.frames().map(str::to_owned).collect();
    let mut refused = |message: &TfMsg<'_>| buffer.insert(message, true);
    let count = |field: fn(&mut TfUpdate) -> &mut u64| {
        let mut update = TfUpdate::default();
        *field(&mut update) = 1;
        update
    };
    let invalid = count(|u| &mut u.invalid);
    for rotation in [
        [0.0; 4],
        [0.0, 0.0, 0.0, 1.1],
        [f64::NAN, 0.0, 0.0, 1.0],
        [f64::INFINITY, 0.0, 0.0, 0.0],
    ] {
        assert_eq!(refused(&at("map", "new", 0, [0.0; 3], rotation)), invalid);
    }
    for x in [f64::NAN, f64::NEG_INFINITY] {
        assert_eq!(refused(&at("map", "new", 0, [x, 0.0, 0.0], NONE)), invalid);
    }
    let loops = count(|u| &mut u.loops);
    assert_eq!(refused(&at("base", "map", 0, [0.0; 3], NONE)), loops);
    assert_eq!(refused(&at("base", "odom", 0, [0.0; 3], NONE)), loops);
    assert_eq!(refused(&at("new", "new", 0, [0.0; 3], NONE)), loops);
    assert_eq!(
        refused(&at("", "new", 0, [0.0; 3], NONE)),
        count(|u| &mut u.unnamed)
    );
    assert_eq!(
        refused(&at("map", "/", 0, [0.0; 3], NONE)),
        count(|u| &mut u.unnamed)
    );
    assert_eq!(
        refused(&at("map", &"n".repeat(257), 0, [0.0; 3], NONE)),
        count(|u| &mut u.unnamed)
    );
    assert_eq!(
        refused(&at("map", "fourth", 0, [0.0; 3], NONE)),
        count(|u| &mut u.accepted)
    );
    assert_eq!(
        refused(&at("map", "fifth", 0, [0.0; 3], NONE)),
        count(|u| &mut u.too_many_frames)
    );
    assert_eq!(
        refused(&at("a", "b", 0, [0.0; 3], NONE)),
        count(|u| &mut u.too_many_frames)
    );
    // Nearly of length 1 is made so.
    assert_eq!(
        refused(&at("map", "fourth", 0, [0.0; 3], [0.0, 0.0, 0.0, 1.004])),
        count(|u| &mut u.accepted)
    );
    assert_eq!(buffer.lookup("map", "fourth", 0).unwrap().rotation, NONE);
    let total = *buffer.total();
    assert_eq!(
        (
            total.accepted,
            total.invalid,
            total.loops,
            total.unnamed,
            total.too_many_frames
        ),
        (4, 6, 3, 3, 2)
    );
    assert_eq!(buffer.frames().take(3).collect::<Vec<_>>(), before);
}

#[test]
fn history_is_bounded_in_time_and_in_number() {
    let limits = TfLimits {
        history_ns: 2 * S,
        history_len: 4,
        jump_back_ns: 10 * S,
        ..TfLimits::default()
    };
    let mut buffer = TfBuffer::new(limits);
    for i in 0..10 {
        buffer.insert(&at("map", "base", i * S / 10, [i as f64, 0.0, 0.0], NONE), false);
    }
    let oldest = |buffer: &TfBuffer| match buffer.lookup("map", "base", -1) {
        Err(TfError::ExtrapolationPast { oldest_ns, .. }) => oldest_ns,
        other => panic!("{other:?}"),
    };
    assert_eq!(oldest(&buffer), 6 * S / 10);
    buffer.insert(&at("map", "base", 28 * S / 10, [0.0; 3], NONE), false);
    assert_eq!(oldest(&buffer), 8 * S / 10);
    let late = buffer.insert(&at("map", "base", 7 * S / 10, [0.0; 3], NONE), false);
    assert_eq!(
        late,
        TfUpdate {
            too_old: 1,
            ..TfUpdate::default()
        }
    );
    // Out of order within the history, and the same stamp again.
    let middle = buffer.insert(&at("map", "base", 18 * S / 10, [7.0, 0.0, 0.0], NONE), false);
    assert_eq!(
        middle,
        TfUpdate {
            accepted: 1,
            ..TfUpdate::default()
        }
    );
    let again = buffer.insert(&at("map", "base", 18 * S / 10, [9.0, 0.0, 0.0], NONE), false);
    assert_eq!(
        again,
        TfUpdate {
            repeated: 1,
            ..TfUpdate::default()
        }
    );
    assert_eq!(
        buffer.lookup("map", "base", 18 * S / 10).unwrap().translation[0],
        7.0
    );
    assert_eq!(
        buffer.lookup("map", "base", 23 * S / 10).unwrap().translation[0],
        3.5
    );
}

#[test]
fn a_frame_with_another_parent_starts_over_there() {
    let mut buffer = TfBuffer::default();
    buffer.insert(&at("map", "truck", 0, [1.0, 0.0, 0.0], NONE), true);
    buffer.insert(&at("map", "box", 0, [5.0, 0.0, 0.0], NONE), false);
    let update = buffer.insert(&at("truck", "box", S / 10, [0.0, 2.0, 0.0], NONE), false);
    assert_eq!(
        update,
        TfUpdate {
            accepted: 1,
            reparented: 1,
            ..TfUpdate::default()
        }
    );
    assert_eq!(
        buffer.lookup("map", "box", S / 10).unwrap().translation,
        [1.0, 2.0, 0.0]
    );
    assert!(matches!(
        buffer.lookup("map", "box", 0),
        Err(TfError::ExtrapolationPast { .. })
    ));
}

/// geometry2 issue 606, ros/geometry2 issues 43, 329 and 551: a bag played in a loop, and old data refused for ever.
#[test]
fn a_bag_played_twice_clears_the_buffer_once_and_goes_on() {
    let Some(path) = support::data("bags/autoware_mot_test_data1/test_data1.db3") else {
        return;
    };
    let bag = Bag::open(&path).unwrap();
    let mut buffer = TfBuffer::default();
    let mut rounds = Vec::new();
    let mut frames = Vec::new();
    for _ in 0..2 {
        let mut round = TfUpdate::default();
        let mut last = None;
        for message in bag.all_messages() {
            let message = message.unwrap();
            if *message.type_name != *TF_TYPE {
                continue;
            }
            let tf = TfMsg::decode(&message.data).unwrap();
            round.add(&buffer.insert(&tf, false));
            let newest = tf.transforms.last().unwrap();
            last = Some(newest.header.stamp_ns());
            frames = vec![
                newest.header.frame_id.to_owned(),
                newest.child_frame_id.to_owned(),
            ];
            // What was just said can be looked up at once.
            buffer
                .lookup(&frames[0], &frames[1], newest.header.stamp_ns())
                .unwrap();
        }
        rounds.push((round, last));
    }
    let ((first, first_end), (second, second_end)) = (rounds[0], rounds[1]);
    assert_eq!(
        (
            first.accepted,
            first.jumps_back,
            second.accepted,
            second.jumps_back
        ),
        (235, 0, 235, 1)
    );
    assert!(
        (3_000_000_000..4_000_000_000).contains(&second.jump_back_ns),
        "{second:?}"
    );
    assert_eq!((first_end, second.too_old, second.repeated), (second_end, 0, 0));
    assert_eq!(buffer.total().jumps_back, 1);
    assert_eq!(buffer.newest_common_ns(&frames[0], &frames[1]), Ok(second_end));
}

proptest! {
    #[test]
    fn any_transforms_leave_a_buffer_that_answers(
        told in proptest::collection::vec((0usize..5, 0usize..5, any::<i32>(), any::<[f64; 3]>(), 0usize..4, any::<bool>()), 0..40),
        asked in proptest::collection::vec((0usize..5, 0usize..5, any::<i64>()), 1..10),
    ) {
        let names = ["a", "b", "c", "d", ""];
        let rotations = [NONE, turn([1.0, 2.0, 3.0], 3.0), [0.0; 4], [f64::NAN; 4]];
        let mut buffer = TfBuffer::new(TfLimits { history_len: 3, ..TfLimits::default() });
        let mut messages = 0;
        for (parent, child, stamp, translation, rotation, is_static) in told {
            let stamp_ns = i64::from(stamp) * S / 16;
            buffer.insert(&at(names[parent], names[child], stamp_ns, translation, rotations[rotation]), is_static);
            messages += 1;
        }
        for (target, source, stamp_ns) in asked {
            let _ = buffer.lookup(names[target], names[source], stamp_ns);
            let _ = buffer.newest_common_ns(names[target], names[source]);
        }
        let t = buffer.total();
        let counted = t.accepted + t.repeated + t.too_old + t.invalid + t.unnamed + t.loops + t.too_many_frames;
        prop_assert_eq!(counted, messages);
    }
}
