//! Finishing a centre head of 240 x 240 cells in which some 500 cells see something: decoding, suppression, remapping.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark stops at the first surprise"
)]

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use sensorium::lidar::{
    CenterHeadDecode, CenterHeadParams, CenterHeads, ClassRemapper, Gates, HeadChannels, HeadPlanes,
    IouBevNmsParams, NmsWorkspace, ObjectRules, RemapParams, YawRule, circle_nms, iou_bev_nms, sort_by_score,
    to_detected_objects,
};

const SIDE: usize = 240;
const CELLS: usize = SIDE * SIDE;
const CLASSES: usize = 5;
const COLUMNS: usize = 15;

/// The value of column `column` at `cell`, the same in benches/peers/lidar_decode.py: 64 objects on a quiet map, each seen
/// by 3 x 3 cells.
fn value(column: usize, cell: usize) -> f32 {
    let noise = (((cell * 2_654_435_761 + column * 40_503) >> 7) & 0xffff) as f32 / 65536.0;
    let (ix, iy) = (cell % SIDE, cell / SIDE);
    let candidate = ix % 32 < 3 && iy % 32 < 3;
    match column {
        0..CLASSES if candidate && column == (ix / 32 + iy / 32) % CLASSES => 1.0 + 3.0 * noise,
        0..CLASSES => -6.0 + 2.0 * noise,
        8 => 0.7 * noise,
        9 => 1.0 + 0.8 * noise,
        10 => 0.5 * noise,
        _ => 2.0 * noise - 1.0,
    }
}

fn remapper() -> ClassRemapper {
    let (mut allow, mut smallest, mut largest) = (vec![0; 64], vec![0.0; 64], vec![0.0; 64]);
    for (from, to, low, high) in [
        (1, 2, 12.1, 36.0),
        (1, 4, 36.0, 999.999),
        (2, 4, 36.0, 999.999),
        (3, 4, 36.0, 999.999),
    ] {
        let i = from * 8 + to;
        (allow[i], smallest[i], largest[i]) = (1, low, high);
    }
    ClassRemapper::new(&RemapParams {
        allow_remapping_by_area_matrix: allow,
        min_area_matrix: smallest,
        max_area_matrix: largest,
    })
    .unwrap()
}

fn finishing(criterion: &mut Criterion) {
    let channels = HeadChannels::centerpoint(CLASSES, false);
    let planes: Vec<f32> = (0..COLUMNS * CELLS)
        .map(|i| value(i / CELLS, i % CELLS))
        .collect();
    let head = |first: usize, count: usize| &planes[first * CELLS..][..count * CELLS];
    let planes = HeadPlanes {
        heatmap: head(0, 5),
        offset: head(5, 2),
        z: head(7, 1),
        dim: head(8, 3),
        rot: head(11, 2),
        vel: head(13, 2),
    };
    let planes = CenterHeads::planes(planes, channels, CELLS).unwrap();
    let packed: Vec<(usize, Vec<f32>)> = [16, 32]
        .map(|row| {
            let padded = |i: usize| {
                if i % row < COLUMNS {
                    value(i % row, i / row)
                } else {
                    0.0
                }
            };
            (row, (0..row * CELLS).map(padded).collect())
        })
        .to_vec();
    let gates = Gates::new(
        CLASSES,
        &[50.0, 90.0, 121.0, 200.0],
        &[0.35; 4 * CLASSES],
        &[0.3, 0.3, 0.3, 0.3, 0.0],
    )
    .unwrap();
    let params = CenterHeadParams {
        voxel_size_m: [0.32, 0.32],
        range_min_m: [-76.8, -76.8],
        downsample_factor: 2,
        grid: [SIDE, SIDE],
        has_variance: false,
        has_twist: true,
    };
    let decoder = CenterHeadDecode::new(&params, gates).unwrap();
    let names = ["CAR", "TRUCK", "BUS", "BICYCLE", "PEDESTRIAN"];
    let rules = ObjectRules::new(&names, YawRule::CenterPoint, true);
    let (remapper, iou_params) = (remapper(), IouBevNmsParams::default());
    let mut workspace = NmsWorkspace::default();
    let (mut boxes, mut objects) = (Vec::new(), Vec::new());

    let mut group = criterion.benchmark_group("lidar_decode_240x240");
    group.bench_function("decode/planes", |bencher| {
        bencher.iter(|| {
            boxes.clear();
            decoder.decode(&planes, &mut boxes).unwrap()
        });
    });
    for (row, data) in &packed {
        let heads = CenterHeads::packed_rows(data, *row, channels, CELLS).unwrap();
        group.bench_function(format!("decode/rows_of_{row}"), |bencher| {
            bencher.iter(|| {
                boxes.clear();
                decoder.decode(&heads, &mut boxes).unwrap()
            });
        });
    }
    boxes.clear();
    decoder.decode(&planes, &mut boxes).unwrap();
    sort_by_score(&mut boxes);
    to_detected_objects(&boxes, &rules, &mut objects);
    println!("{} boxes", boxes.len());
    let (all_boxes, all_objects) = (boxes.clone(), objects.clone());
    group.bench_function("circle_nms", |bencher| {
        bencher.iter_batched_ref(
            || all_boxes.clone(),
            |boxes| circle_nms(boxes, 0.5, &mut workspace),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("iou_bev_nms", |bencher| {
        bencher.iter_batched_ref(
            || all_objects.clone(),
            |objects| iou_bev_nms(objects, &iou_params, &mut workspace),
            BatchSize::SmallInput,
        );
    });
    for (name, heads) in [
        ("whole/planes", planes),
        (
            "whole/rows_of_32",
            CenterHeads::packed_rows(&packed[1].1, 32, channels, CELLS).unwrap(),
        ),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                boxes.clear();
                objects.clear();
                let counts = decoder.decode(&heads, &mut boxes).unwrap();
                sort_by_score(&mut boxes);
                let near = circle_nms(&mut boxes, 0.5, &mut workspace);
                to_detected_objects(&boxes, &rules, &mut objects);
                let overlapping = iou_bev_nms(&mut objects, &iou_params, &mut workspace);
                let changed = remapper.apply(&mut objects);
                (counts, near, overlapping, changed)
            });
        });
    }
    println!("{} objects", objects.len());
    group.finish();
}

criterion_group!(benches, finishing);
criterion_main!(benches);
