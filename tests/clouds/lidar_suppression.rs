//! Rotated overlaps, and suppression by the fast forms against comparing all pairs.

use crate::support;
use std::f64::consts::{FRAC_PI_4, PI, SQRT_2};

use sensorium::lidar::{
    BevBox, Box3d, IouBevNmsParams, NmsWorkspace, PcdetBox, PcdetNmsParams, Peak, PeakParams, bev_box,
    bev_box_corners, circle_nms, clip_convex, heatmap_peaks, iou_bev, iou_bev_nms, pcdet_iou_bev, pcdet_nms,
    polygon_area,
};
use sensorium::outputs::{DetectedObject, ObjectLabel, OrientationAvailability};

/// Pseudo-random numbers from 0 to 1.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.next()
    }
}

fn rectangle(x: f64, y: f64, length_m: f64, width_m: f64, yaw_rad: f64) -> BevBox {
    BevBox {
        centre_m: [x, y],
        length_m,
        width_m,
        yaw_rad,
    }
}

fn object(x: f64, y: f64, length: f64, width: f64, yaw_rad: f64, label: ObjectLabel) -> DetectedObject {
    DetectedObject {
        label,
        score: 0.5,
        position_m: [x, y, 0.0],
        yaw_rad,
        size_m: [length, width, 1.0],
        orientation: OrientationAvailability::Available,
        twist: None,
        pose_variance: None,
        twist_variance: None,
    }
}

#[track_caller]
fn close(got: f64, expected: f64) {
    assert!((got - expected).abs() < 1e-12, "{got} is not {expected}");
}

#[test]
fn overlaps_worked_out_by_hand() {
    let unit = rectangle(0.0, 0.0, 2.0, 2.0, 0.0);
    let with = |other: BevBox| {
        let (there, back) = (iou_bev(&unit, &other), iou_bev(&other, &unit));
        close(there, back);
        there
    };
    close(with(unit), 1.0);
    close(with(rectangle(1.0, 0.0, 2.0, 2.0, 0.0)), 2.0 / 6.0);
    close(with(rectangle(0.5, -0.5, 1.0, 1.0, 0.0)), 0.25);
    // A square turned by 45 degrees cuts the corners off: a regular octagon is left.
    let octagon = 8.0 * (SQRT_2 - 1.0);
    close(
        with(rectangle(0.0, 0.0, 2.0, 2.0, FRAC_PI_4)),
        octagon / (8.0 - octagon),
    );
    // A diamond of half the area, with its corners on the edges.
    close(with(rectangle(0.0, 0.0, SQRT_2, SQRT_2, FRAC_PI_4)), 0.5);
    // Edges and corners that touch share no area.
    for other in [
        rectangle(2.0, 0.0, 2.0, 2.0, 0.0),
        rectangle(2.0, 2.0, 2.0, 2.0, 0.0),
        rectangle(1.0 + SQRT_2 / 2.0, 0.0, 1.0, 1.0, FRAC_PI_4),
        rectangle(50.0, 0.0, 2.0, 2.0, 0.3),
    ] {
        close(with(other), 0.0);
    }
    // Half a turn changes nothing.
    close(
        with(rectangle(0.3, 0.4, 3.0, 1.0, 0.7)),
        with(rectangle(0.3, 0.4, 3.0, 1.0, 0.7 - PI)),
    );
}

#[test]
fn small_areas_do_not_overlap() {
    let same = |side: f64| {
        iou_bev(
            &rectangle(5.0, 5.0, side, side, 0.4),
            &rectangle(5.0, 5.0, side, side, 0.4),
        )
    };
    // A union of 0.01 m² is the smallest, an area of 1e-6 m² anyway.
    assert_eq!(
        (same(0.099), same(1e-3), same(9.9e-4), same(0.0)),
        (0.0, 0.0, 0.0, 0.0)
    );
    close(same(0.101), 1.0);
    let large = rectangle(0.0, 0.0, 4.0, 2.0, 0.0);
    let sliver = |overlap: f64| iou_bev(&large, &rectangle(4.0 - overlap, 0.0, 4.0, 2.0, 0.0));
    assert_eq!(sliver(0.4e-6), 0.0);
    assert!(sliver(0.6e-6) > 0.0);
    for value in [f64::NAN, f64::INFINITY] {
        for odd in [
            rectangle(value, 0.0, 4.0, 2.0, 0.0),
            rectangle(0.0, 0.0, value, 2.0, 0.0),
            rectangle(0.0, 0.0, 4.0, 2.0, value),
        ] {
            assert_eq!((iou_bev(&large, &odd), iou_bev(&odd, &large)), (0.0, 0.0));
        }
    }
}

#[test]
fn polygons_are_clipped_and_measured() {
    let square = bev_box_corners(&rectangle(1.0, 1.0, 2.0, 2.0, 0.0));
    assert_eq!(square, [[2.0, 2.0], [0.0, 2.0], [0.0, 0.0], [2.0, 0.0]]);
    close(polygon_area(&square), 4.0);
    let backwards: Vec<_> = square.iter().rev().copied().collect();
    close(polygon_area(&backwards), -4.0);
    assert_eq!((polygon_area(&[]), polygon_area(&square[..2])), (0.0, 0.0));
    let triangle = [[-1.0, 0.5], [3.0, 0.5], [1.0, 2.5]];
    close(polygon_area(&clip_convex(&triangle, &square)), 2.75);
    assert!(clip_convex(&[[5.0, 5.0], [6.0, 5.0], [6.0, 6.0]], &square).is_empty());
    assert!(clip_convex(&[], &square).is_empty());
}

/// Pairs that meet in every way: apart, crossing, one inside the other, sharing edges or corners, thin, far away.
fn pairs() -> Vec<(BevBox, BevBox)> {
    let random = &mut Random(0x1234_5678_9abc_def1);
    let mut pairs = Vec::new();
    for i in 0..3000 {
        let far = if i % 3 == 0 { 150.0 } else { 0.0 };
        let a = rectangle(
            far + random.between(-2.0, 2.0),
            -far + random.between(-2.0, 2.0),
            random.between(0.3, 12.0),
            random.between(0.1, 3.0),
            random.between(-7.0, 7.0),
        );
        let mut b = rectangle(
            a.centre_m[0] + random.between(-4.0, 4.0),
            a.centre_m[1] + random.between(-4.0, 4.0),
            random.between(0.3, 12.0),
            random.between(0.1, 3.0),
            random.between(-7.0, 7.0),
        );
        let (sin, cos) = a.yaw_rad.sin_cos();
        let beside = |along: f64, across: f64| {
            [
                a.centre_m[0] + along * cos - across * sin,
                a.centre_m[1] + along * sin + across * cos,
            ]
        };
        match i % 12 {
            0 => b = a,
            1 => b.yaw_rad = a.yaw_rad,
            2 => (b.yaw_rad, b.centre_m) = (a.yaw_rad + PI / 2.0, a.centre_m),
            // Sharing a whole edge, from outside and from inside.
            3 => {
                b = BevBox {
                    centre_m: beside(a.length_m, 0.0),
                    ..a
                }
            }
            4 => {
                b = BevBox {
                    centre_m: beside(a.length_m / 4.0, 0.0),
                    length_m: a.length_m / 2.0,
                    ..a
                }
            }
            5 => {
                b = BevBox {
                    centre_m: beside(a.length_m / 2.0, a.width_m / 2.0),
                    ..a
                }
            }
            6 => {
                b = BevBox {
                    yaw_rad: a.yaw_rad + 1e-9,
                    ..a
                }
            }
            7 => b.width_m = 1e-3,
            _ => {}
        }
        pairs.push((a, b));
    }
    pairs
}

#[test]
fn overlaps_equal_those_of_rational_arithmetic() {
    let Some(mut oracle) = support::oracle("rotated_iou.py") else {
        return;
    };
    let pairs = pairs();
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("pairs"), folder.path().join("out"));
    let row = |b: &BevBox| [b.centre_m[0], b.centre_m[1], b.length_m, b.width_m, b.yaw_rad];
    let bytes: Vec<u8> = pairs
        .iter()
        .flat_map(|(a, b)| [row(a), row(b)].concat())
        .flat_map(f64::to_le_bytes)
        .collect();
    std::fs::write(&input, bytes).unwrap();
    support::run(oracle.args([&input, &output]));
    let bytes = std::fs::read(&output).unwrap();
    let (values, _) = bytes.as_chunks::<8>();
    let values: Vec<f64> = values.iter().map(|&v| f64::from_le_bytes(v)).collect();
    assert_eq!(values.len(), 2 * pairs.len());
    let (mut largest, mut overlapping) = (0.0_f64, 0);
    for ((a, b), expected) in pairs.iter().zip(values.chunks_exact(2)) {
        let overlap = polygon_area(&clip_convex(&bev_box_corners(a), &bev_box_corners(b)));
        assert!(
            (overlap - expected[0]).abs() < 1e-10,
            "{a:?} {b:?}: {overlap}, exactly {}",
            expected[0]
        );
        // At the smallest area one of the two may be on the other side.
        let iou = iou_bev(a, b);
        let difference = (iou - expected[1]).abs();
        assert!(
            difference < 1e-11 || expected[0] < 2e-6,
            "{a:?} {b:?}: {iou}, exactly {}",
            expected[1]
        );
        if expected[0] >= 2e-6 {
            largest = largest.max(difference);
            overlapping += 1;
        }
    }
    println!(
        "{overlapping} of {} pairs overlap, largest difference {largest:e}",
        pairs.len()
    );
    assert!(overlapping > 1500 && overlapping < pairs.len());
}

fn scene(random: &mut Random, count: usize, span_m: f64) -> Vec<DetectedObject> {
    (0..count)
        .map(|i| {
            let label = [
                ObjectLabel::Car,
                ObjectLabel::Pedestrian,
                ObjectLabel::Bus,
                ObjectLabel::Bicycle,
            ][i % 4];
            let length = random.between(0.4, if i % 4 == 2 { 12.0 } else { 5.0 });
            let (x, y) = (random.between(-span_m, span_m), random.between(-span_m, span_m));
            object(
                x,
                y,
                length,
                random.between(0.3, 2.6),
                random.between(-PI, PI),
                label,
            )
        })
        .collect()
}

#[test]
fn circles_suppress_as_comparing_all_pairs_does() {
    let random = &mut Random(77);
    let mut workspace = NmsWorkspace::default();
    for (count, span, distance) in [
        (0, 1.0, 0.5),
        (1, 1.0, 0.5),
        (400, 20.0, 0.5),
        (900, 5.0, 1.5),
        (300, 150.0, 40.0),
        (50, 3.0, 0.0),
        (50, 3.0, -1.0),
    ] {
        let mut boxes: Vec<Box3d> = (0..count)
            .map(|cell| Box3d {
                position_m: [
                    random.between(-span, span) as f32,
                    random.between(-span, span) as f32,
                    0.0,
                ],
                cell,
                ..Box3d::default()
            })
            .collect();
        if count > 100 {
            // Exactly at the distance, at the same place, beyond all numbers, and none.
            boxes[20].position_m = [0.0, 0.0, 0.0];
            boxes[21].position_m = [distance, 0.0, 0.0];
            boxes[22].position_m = [0.0, 0.0, 9.0];
            boxes[23].position_m = [f32::MAX, 0.0, 0.0];
            boxes[24].position_m = [f32::MAX, 0.0, 0.0];
            boxes[25].position_m = [f32::NAN, 0.0, 0.0];
            boxes[26].position_m = [f32::INFINITY, 0.0, 0.0];
        }
        let mut kept: Vec<Box3d> = Vec::new();
        for b in &boxes {
            let near = |k: &&Box3d| {
                let (dx, dy) = (
                    k.position_m[0] - b.position_m[0],
                    k.position_m[1] - b.position_m[1],
                );
                dx * dx + dy * dy < distance * distance
            };
            if distance <= 0.0 || !kept.iter().any(|k| near(&k)) {
                kept.push(*b);
            }
        }
        let removed = circle_nms(&mut boxes, distance, &mut workspace);
        let cells = |boxes: &[Box3d]| boxes.iter().map(|b| b.cell).collect::<Vec<_>>();
        assert_eq!(cells(&boxes), cells(&kept));
        assert_eq!(removed, count as usize - kept.len());
        assert!(removed > 0 || count < 100, "{count} boxes, none suppressed");
    }
}

/// Autoware's loop over all earlier objects.
fn plain_iou_nms(objects: &[DetectedObject], params: &IouBevNmsParams) -> Vec<DetectedObject> {
    let keep = |i: usize| {
        let mut max_iou = 0.0_f64;
        for source in &objects[..i] {
            if !params.compares(&objects[i], source) {
                continue;
            }
            let iou = iou_bev(&bev_box(&objects[i]), &bev_box(source));
            max_iou = max_iou.max(iou);
            if iou > params.iou_threshold() {
                break;
            }
        }
        max_iou <= params.iou_threshold()
    };
    (0..objects.len())
        .filter(|&i| keep(i))
        .map(|i| objects[i])
        .collect()
}

#[test]
fn objects_suppress_as_comparing_all_pairs_does() {
    let random = &mut Random(99);
    let mut workspace = NmsWorkspace::default();
    let (mut removed_in_all, mut kept_in_all) = (0, 0);
    for (count, span) in [
        (0, 1.0),
        (1, 1.0),
        (2, 0.1),
        (400, 60.0),
        (400, 15.0),
        (800, 100.0),
    ] {
        for (search, threshold) in [
            (10.0, 0.1),
            (10.0, 0.0),
            (1.5, 0.1),
            (0.0, 0.0),
            (10.0, 0.5),
            (1000.0, 1.0),
        ] {
            let params = IouBevNmsParams::new(search, threshold).unwrap();
            let mut objects = scene(random, count, span);
            if count > 100 {
                objects[50].size_m = [300.0, 200.0, 1.0];
                objects[51].position_m[0] = f64::NAN;
                objects[52].size_m[1] = 0.0;
                objects[53].yaw_rad = f64::INFINITY;
                objects[54] = objects[10];
                objects[55].size_m[0] = -4.0;
            }
            let expected = plain_iou_nms(&objects, &params);
            let before = objects.len();
            let removed = iou_bev_nms(&mut objects, &params, &mut workspace);
            // NaN is not equal to itself.
            assert_eq!(format!("{objects:?}"), format!("{expected:?}"));
            assert_eq!(removed, before - expected.len());
            removed_in_all += removed;
            kept_in_all += expected.len();
        }
    }
    assert!(
        removed_in_all > 500 && kept_in_all > 500,
        "{removed_in_all} removed, {kept_in_all} kept"
    );
}

#[test]
fn objects_suppress_as_autowares_tests_say() {
    let mut workspace = NmsWorkspace::default();
    let mut kept = |threshold: f64, rows: &[(f64, ObjectLabel)]| {
        let params = IouBevNmsParams::new(10.0, threshold).unwrap();
        let mut objects: Vec<_> = rows
            .iter()
            .map(|&(x, label)| object(x, 0.0, 2.0, 2.0, 0.0, label))
            .collect();
        iou_bev_nms(&mut objects, &params, &mut workspace);
        objects.iter().map(|o| o.position_m[0]).collect::<Vec<_>>()
    };
    let (car, person) = (ObjectLabel::Car, ObjectLabel::Pedestrian);
    // The second goes because of the first, the third because of the second, which went already.
    assert_eq!(kept(0.2, &[(0.0, car), (1.0, car), (2.0, car)]), [0.0]);
    assert_eq!(kept(0.0, &[(0.0, car), (0.0, person)]), [0.0, 0.0]);
    assert_eq!(kept(0.0, &[(0.0, person), (0.1, person), (0.2, person)]), [0.0]);
    assert_eq!(kept(0.0, &[(0.0, car), (0.1, ObjectLabel::Bus)]), [0.0]);
    // An overlap of just the threshold stays.
    assert_eq!(kept(1.0 / 3.0, &[(0.0, car), (1.0, car)]), [0.0, 1.0]);
    for (search, threshold) in [
        (f64::NAN, 0.1),
        (-1.0, 0.1),
        (f64::INFINITY, 0.1),
        (10.0, f64::NAN),
        (10.0, -0.1),
        (10.0, 1.1),
    ] {
        IouBevNmsParams::new(search, threshold).unwrap_err();
    }
}

#[test]
fn the_search_distance_is_inclusive() {
    let params = |search| IouBevNmsParams::new(search, 0.0).unwrap();
    let pair = [
        object(0.0, 0.0, 20.0, 2.0, 0.0, ObjectLabel::Bus),
        object(6.0, 0.0, 20.0, 2.0, 0.0, ObjectLabel::Bus),
    ];
    let kept = |search| {
        let mut objects = pair.to_vec();
        iou_bev_nms(&mut objects, &params(search), &mut NmsWorkspace::default());
        objects.len()
    };
    assert_eq!((kept(6.0), kept(6.0_f64.next_down())), (1, 2));
}

fn pcdet(b: &BevBox) -> PcdetBox {
    PcdetBox {
        centre_m: b.centre_m.map(|v| v as f32),
        size_m: [b.length_m as f32, b.width_m as f32],
        heading_rad: b.yaw_rad as f32,
    }
}

#[test]
fn openpcdets_overlap_is_the_exact_one_within_its_tolerances() {
    let mut largest = 0.0_f64;
    let mut compared = 0;
    // Edges on top of each other are left out: there the original's crossings may lie anywhere, and so do these.
    for (i, (a, b)) in pairs().iter().enumerate() {
        if i % 12 < 8 || a.centre_m[0] > 10.0 {
            continue;
        }
        let (exact, theirs) = (iou_bev(a, b), f64::from(pcdet_iou_bev(&pcdet(a), &pcdet(b))));
        // A corner may lie 1 cm outside and still count: at most a strip of 1 cm along the edges.
        let strip = 0.01 * 2.0 * (a.length_m + a.width_m + b.length_m + b.width_m);
        let smaller = (a.length_m * a.width_m).min(b.length_m * b.width_m);
        assert!(
            (exact - theirs).abs() <= strip / smaller + 1e-4,
            "{a:?} {b:?}: {theirs} is not {exact}"
        );
        largest = largest.max((exact - theirs).abs());
        compared += 1;
    }
    println!("{compared} pairs, largest difference to the exact overlap {largest:.4}");
    assert!(compared > 600);
    let unit = pcdet(&rectangle(0.0, 0.0, 2.0, 2.0, 0.0));
    let shifted = PcdetBox {
        centre_m: [1.0, 0.0],
        ..unit
    };
    assert!((pcdet_iou_bev(&unit, &shifted) - 1.0 / 3.0).abs() < 1e-6);
    assert_eq!(
        pcdet_iou_bev(
            &unit,
            &PcdetBox {
                centre_m: [4.0, 0.0],
                ..unit
            }
        ),
        0.0
    );
}

#[test]
fn openpcdets_suppression_is_greedy_over_all_pairs() {
    let random = &mut Random(1234);
    let mut workspace = NmsWorkspace::default();
    let mut kept = Vec::new();
    for (count, span, threshold, before, after) in [
        (0, 1.0, 0.1, 10, 10),
        (300, 40.0, 0.01, 1000, 1000),
        (500, 12.0, 0.2, 300, 40),
        (200, 80.0, 0.0, 1000, 1000),
        (200, 5.0, 0.7, 0, 9),
    ] {
        let mut boxes: Vec<PcdetBox> = scene(random, count, span)
            .iter()
            .map(|o| pcdet(&bev_box(o)))
            .collect();
        let mut scores: Vec<f32> = (0..count)
            .map(|_| (random.next() * 50.0).floor() as f32 / 50.0)
            .collect();
        if count > 100 {
            boxes[5].centre_m[0] = f32::NAN;
            scores[7] = f32::NAN;
            boxes[9] = boxes[8];
        }
        let mut order: Vec<usize> = (0..count).filter(|&i| !scores[i].is_nan()).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        order.truncate(before);
        let mut expected: Vec<u32> = Vec::new();
        for &i in &order {
            if !expected
                .iter()
                .any(|&k| pcdet_iou_bev(&boxes[k as usize], &boxes[i]) > threshold)
            {
                expected.push(i as u32);
            }
        }
        expected.truncate(after);
        let params = PcdetNmsParams {
            iou_threshold: threshold,
            most_before: before,
            most_after: after,
        };
        pcdet_nms(&boxes, &scores, &params, &mut workspace, &mut kept);
        assert_eq!(kept, expected);
        assert!(kept.len() < order.len() || count < 100 || before == 0);
    }
}

#[test]
fn peaks_are_local_maxima_of_their_class() {
    let random = &mut Random(4321);
    let [classes, rows, columns] = [2, 37, 29];
    let cells = rows * columns;
    let mut logits: Vec<f32> = (0..classes * cells)
        .map(|_| (random.between(-4.0, 3.0) * 8.0).round() as f32 / 8.0)
        .collect();
    // A plateau, a corner, NaN beside a peak, and infinity.
    for (row, column, value) in [
        (10, 10, 6.0),
        (10, 11, 6.0),
        (0, 0, 7.0),
        (20, 20, 5.0),
        (20, 21, f32::NAN),
        (30, 5, f32::INFINITY),
    ] {
        logits[row * columns + column] = value;
    }
    let mut peaks = Vec::new();
    for kernel in [1, 3, 5] {
        for score_threshold in [0.0, 0.3, 0.9] {
            for most in [5, 64, 10_000] {
                let params = PeakParams {
                    kernel,
                    score_threshold,
                    most,
                };
                heatmap_peaks(&logits, [classes, rows, columns], &params, &mut peaks).unwrap();
                let mut expected: Vec<Peak> = Vec::new();
                let reach = (kernel / 2) as i64;
                for i in 0..classes * cells {
                    let (label, row, column) = (i / cells, i % cells / columns, i % cells % columns);
                    let mut best = logits[i].is_finite();
                    for r in row as i64 - reach..=row as i64 + reach {
                        for c in column as i64 - reach..=column as i64 + reach {
                            if (0..rows as i64).contains(&r) && (0..columns as i64).contains(&c) {
                                let other = logits[label * cells + r as usize * columns + c as usize];
                                best &= other <= logits[i] || other.is_nan();
                            }
                        }
                    }
                    let score = 1.0_f32 / (1.0 + f64::from(-logits[i]).exp() as f32);
                    if best && score > score_threshold {
                        expected.push(Peak {
                            label: label as u32,
                            cell: [row as u32, column as u32],
                            score,
                        });
                    }
                }
                expected.sort_by(|a, b| b.score.total_cmp(&a.score));
                expected.truncate(most);
                assert_eq!(
                    peaks, expected,
                    "kernel {kernel}, threshold {score_threshold}, most {most}"
                );
            }
        }
    }
    let error = heatmap_peaks(
        &logits[1..],
        [classes, rows, columns],
        &PeakParams::default(),
        &mut peaks,
    )
    .unwrap_err();
    assert!(
        error.to_string().contains("heatmap head has 2145 values"),
        "{error}"
    );
}
