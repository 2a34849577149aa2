//! Detector heads to boxes, held against the public demos' arithmetic on real network outputs.

use crate::support;
use std::path::PathBuf;

use proptest::prelude::*;
use sensorium::image::{BackMap, LetterboxPlan};
use sensorium::outputs::Detection2D;
use sensorium::perception::{
    BoxExtent, COCO_80, DecodeCounts, FastestDetHead, HeadError, LabelError, NmsMode, NmsParams, ScoreRule,
    SelectionParams, YoloxHead, coco_80, iou, parse_labels, read_labels, select,
};

const SCORE_THRESHOLD: f32 = 0.3;

fn params(mode: NmsMode) -> SelectionParams {
    SelectionParams {
        nms: NmsParams {
            iou_threshold: 0.45,
            mode,
            extent: BoxExtent::InclusivePixels,
            max_candidates: 4096,
        },
        max_detections: 300,
    }
}

/// What the oracle left for one image.
struct Case {
    file: PathBuf,
    head: Vec<f32>,
    size: [usize; 2],
    boxes: Vec<(String, Detection2D)>,
}

/// Runs a network on every camera image in ONNX Runtime; `None` without data or Python.
fn run_oracle(kind: &str, model: &str) -> Option<Vec<Case>> {
    let (camera, model) = (support::data("camera")?, support::data(model)?);
    let mut oracle = support::oracle("detect.py")?;
    let mut files: Vec<PathBuf> = [".", "photos", "nuscenes_n015"]
        .iter()
        .flat_map(|folder| camera.join(folder).read_dir().unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "jpg"))
        .collect();
    files.sort();
    assert!(files.len() >= 14);
    let folder = tempfile::tempdir().unwrap();
    support::run(oracle.arg(kind).arg(model).arg(folder.path()).args(&files));
    let read = |i: usize, ending: &str| std::fs::read(folder.path().join(format!("{i}.{ending}"))).unwrap();
    let text = |i: usize, ending: &str| String::from_utf8(read(i, ending)).unwrap();
    let cases = files.into_iter().enumerate().map(|(i, file)| Case {
        file,
        head: read(i, "head")
            .as_chunks()
            .0
            .iter()
            .map(|&b| f32::from_le_bytes(b))
            .collect(),
        size: {
            let sides: Vec<usize> = text(i, "txt").split(' ').map(|s| s.parse().unwrap()).collect();
            [sides[0], sides[1]]
        },
        boxes: text(i, "boxes").lines().map(parse_box).collect(),
    });
    Some(cases.collect())
}

fn parse_box(line: &str) -> (String, Detection2D) {
    let mut words = line.split(' ');
    let variant = words.next().unwrap().to_owned();
    let label_id = words.next().unwrap().parse().unwrap();
    let numbers: Vec<f32> = words.map(|w| w.parse().unwrap()).collect();
    let detection = Detection2D {
        label_id,
        score: numbers[0],
        box_xyxy: numbers[1..].try_into().unwrap(),
    };
    (variant, detection)
}

/// Same boxes with the same labels and scores, in any order among nearly equal scores.
fn assert_same(ours: &[Detection2D], theirs: &[&Detection2D], context: &str) {
    assert_eq!(ours.len(), theirs.len(), "{context}: {ours:?} against {theirs:?}");
    let mut used = vec![false; ours.len()];
    for expected in theirs {
        let found = ours.iter().enumerate().position(|(i, got)| {
            !used[i]
                && got.label_id == expected.label_id
                && (got.score - expected.score).abs() <= 1e-5
                && iou(&got.box_xyxy, &expected.box_xyxy, BoxExtent::Continuous) >= 0.999
        });
        let found = found.unwrap_or_else(|| panic!("{context}: no match for {expected:?} in {ours:?}"));
        used[found] = true;
    }
    assert!(
        ours.is_sorted_by(|a, b| a.score >= b.score),
        "{context}: best first"
    );
}

/// Label and score of the detections, for reading.
fn summary(detections: &[Detection2D]) -> Vec<(&'static str, f32)> {
    detections
        .iter()
        .map(|d| (COCO_80[d.label_id as usize], (d.score * 1000.0).round() / 1000.0))
        .collect()
}

fn yolox_detections(case: &Case, mode: NmsMode) -> Vec<Detection2D> {
    let values = case.head.len() / 3549;
    let head = YoloxHead::new([416, 416], &[1, 3549, values]).unwrap();
    let mut candidates = Vec::new();
    let counts = head
        .decode(&case.head, SCORE_THRESHOLD, mode, &mut candidates)
        .unwrap();
    assert_eq!(counts.malformed, 0);
    let back = LetterboxPlan::new(case.size[0], case.size[1], 416, 416)
        .unwrap()
        .back_map();
    select(&mut candidates, &params(mode), &back).0
}

#[test]
fn yolox_boxes_equal_the_public_demo_on_every_image() {
    let Some(cases) = run_oracle("yolox", "models/yolox_nano_416.onnx") else {
        return;
    };
    let mut total = 0;
    for case in &cases {
        for (variant, mode) in [
            ("aware", NmsMode::ClassAware),
            ("agnostic", NmsMode::ClassAgnostic),
        ] {
            let theirs: Vec<_> = case
                .boxes
                .iter()
                .filter(|b| b.0 == variant)
                .map(|b| &b.1)
                .collect();
            let ours = yolox_detections(case, mode);
            assert_same(&ours, &theirs, &format!("{} {variant}", case.file.display()));
            total += ours.len();
        }
    }
    assert!(total > 100, "only {total} boxes compared");

    let of = |name: &str| {
        let case = cases.iter().find(|c| c.file.ends_with(name)).unwrap();
        summary(&yolox_detections(case, NmsMode::ClassAware))
    };
    let dog = of("photos/dog.jpg");
    for expected in [("dog", 0.855), ("bicycle", 0.803), ("car", 0.798)] {
        assert!(dog.contains(&expected), "{expected:?} in {dog:?}");
    }
    let people = of("photos/peds_0.jpg").iter().filter(|d| d.0 == "person").count();
    assert_eq!(people, 4);
}

#[test]
fn a_head_of_three_classes_decodes_like_one_of_eighty() {
    let Some(cases) = run_oracle("yolox", "models/yolox_nano_416_3class.onnx") else {
        return;
    };
    let mut total = 0;
    for case in &cases {
        let theirs: Vec<_> = case
            .boxes
            .iter()
            .filter(|b| b.0 == "aware")
            .map(|b| &b.1)
            .collect();
        let ours = yolox_detections(case, NmsMode::ClassAware);
        assert_same(&ours, &theirs, &case.file.display().to_string());
        total += ours.len();
    }
    assert!(total > 0, "the weeds photo has detections");
}

#[test]
fn fastestdet_boxes_equal_the_public_example_on_every_image() {
    let Some(cases) = run_oracle("fastestdet", "models/FastestDet_352.onnx") else {
        return;
    };
    let head = FastestDetHead::new([352, 352], &[1, 85, 22, 22], ScoreRule::Weighted).unwrap();
    let mut total = 0;
    for case in &cases {
        let back = LetterboxPlan::stretch(case.size[0], case.size[1], 352, 352)
            .unwrap()
            .back_map();
        for (variant, mode) in [
            ("aware", NmsMode::ClassAware),
            ("agnostic", NmsMode::ClassAgnostic),
        ] {
            let theirs: Vec<_> = case
                .boxes
                .iter()
                .filter(|b| b.0 == variant)
                .map(|b| &b.1)
                .collect();
            let mut candidates = Vec::new();
            let counts = head.decode(&case.head, SCORE_THRESHOLD, &mut candidates).unwrap();
            assert_eq!(counts.malformed, 0);
            let (ours, _) = select(&mut candidates, &params(mode), &back);
            assert_same(&ours, &theirs, &format!("{} {variant}", case.file.display()));
            total += ours.len();
        }
    }
    assert!(total > 50, "only {total} boxes compared");
}

/// A map that leaves boxes as they are, in an image of that size.
fn same_pixels(width: usize, height: usize) -> BackMap {
    LetterboxPlan::stretch(width, height, width, height)
        .unwrap()
        .back_map()
}

/// A head in which nothing is found, with some rows replaced.
fn head_with(cells: usize, classes: usize, rows: &[(usize, &[f32])]) -> Vec<f32> {
    let mut head = vec![0.0; cells * (5 + classes)];
    for (cell, row) in rows {
        head[cell * (5 + classes)..][..row.len()].copy_from_slice(row);
    }
    head
}

#[test]
fn cells_are_placed_by_grid_and_stride() {
    // 64 x 32 px: grids of 8 x 4, 4 x 2 and 2 x 1 cells.
    let head = YoloxHead::new([64, 32], &[1, 42, 7]).unwrap();
    let rows: [(usize, &[f32]); 3] = [
        (8 + 2, &[0.5, 0.25, 0.0, 0.0, 0.9, 0.5, 1.0]),
        (32 + 5, &[0.5, 0.5, 0.0, 0.0, 0.8, 1.0, 0.0]),
        (40 + 1, &[0.5, 0.5, 0.0, 0.0, 1.0, 0.1, 0.7]),
    ];
    let mut found = Vec::new();
    let counts = head
        .decode(&head_with(42, 2, &rows), 0.4, NmsMode::ClassAware, &mut found)
        .unwrap();
    assert_eq!(
        counts,
        DecodeCounts {
            cells: 3,
            malformed: 0
        }
    );
    let boxes: Vec<_> = found
        .iter()
        .map(|c| (c.cell, c.label_id, c.score, c.box_xyxy))
        .collect();
    assert_eq!(
        boxes,
        [
            // Column 2, row 1 of stride 8: centre (20, 10); both classes score high enough.
            (10, 0, 0.45, [16.0, 6.0, 24.0, 14.0]),
            (10, 1, 0.9, [16.0, 6.0, 24.0, 14.0]),
            // Column 1, row 1 of stride 16: centre (24, 24).
            (37, 0, 0.8, [16.0, 16.0, 32.0, 32.0]),
            // Column 1, row 0 of stride 32: centre (48, 16).
            (41, 1, 0.7, [32.0, 0.0, 64.0, 32.0]),
        ]
    );
    let mut best_only = Vec::new();
    head.decode(
        &head_with(42, 2, &rows),
        0.4,
        NmsMode::ClassAgnostic,
        &mut best_only,
    )
    .unwrap();
    let labels: Vec<_> = best_only.iter().map(|c| (c.cell, c.label_id)).collect();
    assert_eq!(labels, [(10, 1), (37, 0), (41, 1)]);
}

#[test]
fn an_empty_fixed_size_head_gives_no_boxes_instead_of_zero_boxes() {
    let yolox = YoloxHead::new([416, 416], &[1, 3549, 85]).unwrap();
    let fastest = FastestDetHead::new([352, 352], &[1, 85, 22, 22], ScoreRule::Weighted).unwrap();
    for threshold in [0.0, 0.3] {
        let mut candidates = Vec::new();
        yolox
            .decode(
                &vec![0.0; 3549 * 85],
                threshold,
                NmsMode::ClassAware,
                &mut candidates,
            )
            .unwrap();
        fastest
            .decode(&vec![0.0; 85 * 22 * 22], threshold, &mut candidates)
            .unwrap();
        let (detections, _) = select(
            &mut candidates,
            &params(NmsMode::ClassAware),
            &same_pixels(416, 416),
        );
        assert_eq!(detections, []);
    }
}

#[test]
fn broken_numbers_in_a_head_are_counted_and_never_become_boxes() {
    let head = YoloxHead::new([32, 32], &[1, 21, 6]).unwrap();
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let good = [0.0, 0.0, 0.0, 0.0, 0.9, 0.9];
    // Each of these has a high score and an impossible box, or an impossible score.
    let malformed: [[f32; 6]; 8] = [
        [nan, 0.0, 0.0, 0.0, 0.9, 0.9],
        [0.0, -inf, 0.0, 0.0, 0.9, 0.9],
        [0.0, 0.0, nan, 0.0, 0.9, 0.9],
        [0.0, 0.0, 0.0, inf, 0.9, 0.9],
        [0.0, 0.0, 90.0, 0.0, 0.9, 0.9],
        [0.0, 0.0, -inf, 0.0, 0.9, 0.9],
        [0.0, 0.0, 0.0, 0.0, 0.9, inf],
        [0.0, 0.0, 0.0, 0.0, 1.5, 0.9],
    ];
    // A score that is not a number is no score.
    let silent: [[f32; 6]; 3] = [
        [0.0, 0.0, 0.0, 0.0, nan, 0.9],
        [0.0, 0.0, 0.0, 0.0, 0.9, nan],
        [0.0, 0.0, 0.0, 0.0, -inf, 0.9],
    ];
    let mut rows: Vec<(usize, &[f32])> = vec![(0, &good)];
    rows.extend(
        malformed
            .iter()
            .chain(&silent)
            .enumerate()
            .map(|(i, row)| (i + 1, row.as_slice())),
    );
    for mode in [NmsMode::ClassAware, NmsMode::ClassAgnostic] {
        let mut found = Vec::new();
        let counts = head
            .decode(&head_with(21, 1, &rows), 0.3, mode, &mut found)
            .unwrap();
        assert_eq!(
            counts,
            DecodeCounts {
                cells: 1,
                malformed: malformed.len()
            }
        );
        assert_eq!(found.len(), 1);
    }

    let fastest = FastestDetHead::new([32, 32], &[1, 6, 1, 2], ScoreRule::Product).unwrap();
    let mut found = Vec::new();
    // Planes of two cells: the second has a NaN for its width.
    let planes = [0.9, 0.9, 0.0, 0.0, 0.0, 0.0, 0.0, nan, 0.0, 0.0, 0.9, 0.9];
    let counts = fastest.decode(&planes, 0.3, &mut found).unwrap();
    assert_eq!(
        counts,
        DecodeCounts {
            cells: 1,
            malformed: 1
        }
    );
    assert_eq!(found[0].box_xyxy, [-8.0, -8.0, 8.0, 8.0]);
}

#[test]
fn heads_of_another_shape_are_refused_in_words() {
    let error = YoloxHead::new([416, 416], &[1, 8400, 85]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "head of shape [1, 8400, 85] is not [1, 3549, 5 + classes], the strides 8, 16, 32 on 416 x 416 px"
    );
    let refused: [&[usize]; 5] = [&[3549, 85], &[2, 3549, 85], &[1, 3549, 5], &[1, 85, 3549], &[]];
    for dims in refused {
        assert!(
            matches!(YoloxHead::new([416, 416], dims), Err(HeadError::Shape { .. })),
            "{dims:?}"
        );
    }
    assert!(matches!(
        YoloxHead::new([416, 400], &[1, 3549, 85]),
        Err(HeadError::Input { stride: 32, .. })
    ));
    let head = YoloxHead::new([416, 416], &[1, 3549, 85]).unwrap();
    assert_eq!(
        head.decode(&[0.0; 85], 0.3, NmsMode::ClassAware, &mut Vec::new()),
        Err(HeadError::Length {
            expected: 3549 * 85,
            found: 85
        })
    );
    for dims in [[1, 5, 22, 22], [1, 85, 0, 22], [2, 85, 22, 22], [1, 85, 22, 353]] {
        let refused = FastestDetHead::new([352, 352], &dims, ScoreRule::Product);
        assert!(matches!(refused, Err(HeadError::Shape { .. })), "{dims:?}");
    }
}

fn any_mode() -> impl Strategy<Value = NmsMode> {
    prop::sample::select(vec![NmsMode::ClassAware, NmsMode::ClassAgnostic])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a network puts out: no panic, and every box lies in the image with an area and a score.
    #[test]
    fn any_head_gives_boxes_inside_the_image(
        bits in prop::collection::vec(any::<u32>(), 21 * 7),
        mode in any_mode(),
        nearly_sane in any::<bool>(),
    ) {
        let head: Vec<f32> = bits
            .iter()
            .map(|&b| if nearly_sane { (b >> 8) as f32 / (1 << 24) as f32 * 1.2 } else { f32::from_bits(b) })
            .collect();
        let decoder = YoloxHead::new([32, 32], &[1, 21, 7]).unwrap();
        let mut candidates = Vec::new();
        decoder.decode(&head, 0.1, mode, &mut candidates).unwrap();
        let back = LetterboxPlan::new(100, 60, 32, 32).unwrap().back_map();
        let (detections, _) = select(&mut candidates, &params(mode), &back);
        for d in detections {
            let [x1, y1, x2, y2] = d.box_xyxy;
            prop_assert!(0.0 <= x1 && x1 < x2 && x2 <= 100.0 && 0.0 <= y1 && y1 < y2 && y2 <= 60.0, "{d:?}");
            prop_assert!(d.score > 0.1 && d.score <= 1.0);
            prop_assert!(d.label_id < 2);
        }
    }
}

#[test]
fn the_coco_names_are_in_their_public_order() {
    let labels = coco_80();
    assert_eq!(labels.len(), 80);
    for (id, name) in [
        (0, "person"),
        (2, "car"),
        (7, "truck"),
        (16, "dog"),
        (39, "bottle"),
        (79, "toothbrush"),
    ] {
        assert_eq!(labels[id], name);
    }
}

#[test]
fn label_files_name_one_class_a_line() {
    let names = parse_labels("\u{feff}CAR\r\n PEDESTRIAN\nTRAFFIC LIGHT \n\n").unwrap();
    assert_eq!(*names, ["CAR", "PEDESTRIAN", "TRAFFIC LIGHT"]);
    assert!(matches!(
        parse_labels("CAR\n\nBUS\n"),
        Err(LabelError::EmptyLine { line: 2 })
    ));
    assert!(matches!(parse_labels(" \n\n"), Err(LabelError::Empty)));

    let folder = tempfile::tempdir().unwrap();
    let missing = read_labels(&folder.path().join("label.txt")).unwrap_err();
    assert!(missing.to_string().contains("label.txt"), "{missing}");
    let long = folder.path().join("long.txt");
    std::fs::write(&long, "CAR\n".repeat(1 << 18) + "BUS").unwrap();
    assert!(matches!(read_labels(&long), Err(LabelError::TooLong { .. })));

    if let Some(file) = support::data("autoware_params/2023-04/tensorrt_yolox/data/label.txt") {
        let names = read_labels(&file).unwrap();
        assert_eq!(names.len(), 8);
        assert_eq!((&*names[0], &*names[7]), ("UNKNOWN", "ANIMAL"));
    }
}
