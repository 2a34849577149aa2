//! Finishing one YOLOX head of 3549 cells: decoding a quiet scene, and suppression when everything fires.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark stops at the first surprise"
)]

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use sensorium::perception::{BoxExtent, Candidate, NmsMode, NmsParams, YoloxHead, nms};

const CELLS: usize = 3549;

/// Pseudo-random numbers from 0 to 1.
fn random(state: &mut u64) -> f32 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 40) as f32 / (1 << 24) as f32
}

/// Boxes of 10 to 60 px around `objects` places in a 416 px square.
fn candidates(objects: usize, classes: usize) -> Vec<Candidate> {
    let state = &mut 42;
    let places: Vec<[f32; 2]> = (0..objects)
        .map(|_| [random(state) * 416.0, random(state) * 416.0])
        .collect();
    (0..CELLS)
        .map(|cell| {
            let [cx, cy] = places[cell % objects];
            let (x, y) = (cx + random(state) * 8.0, cy + random(state) * 8.0);
            let (w, h) = (10.0 + random(state) * 50.0, 10.0 + random(state) * 50.0);
            Candidate {
                box_xyxy: [x, y, x + w, y + h],
                score: 0.3 + 0.7 * random(state),
                label_id: (cell % objects % classes) as u32,
                cell: cell as u32,
            }
        })
        .collect()
}

fn suppression(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("nms_3549_candidates");
    for (name, objects, mode) in [
        ("40_objects_class_aware", 40, NmsMode::ClassAware),
        ("40_objects_class_agnostic", 40, NmsMode::ClassAgnostic),
        ("scattered_class_agnostic", CELLS, NmsMode::ClassAgnostic),
    ] {
        let params = NmsParams {
            iou_threshold: 0.45,
            mode,
            extent: BoxExtent::InclusivePixels,
            max_candidates: CELLS,
        };
        let input = candidates(objects, 8);
        group.bench_function(name, |bencher| {
            bencher.iter_batched_ref(|| input.clone(), |c| nms(c, &params), BatchSize::SmallInput);
        });
    }
    group.finish();
}

fn decoding(criterion: &mut Criterion) {
    let decoder = YoloxHead::new([416, 416], &[1, CELLS, 85]).unwrap();
    let state = &mut 7;
    let mut head: Vec<f32> = (0..CELLS * 85).map(|_| random(state) * 0.1).collect();
    // One cell in a hundred sees something.
    for row in head.chunks_exact_mut(85).step_by(100) {
        (row[4], row[12]) = (0.9, 0.8);
    }
    let mut out = Vec::new();
    criterion.bench_function("yolox_decode_3549x85", |bencher| {
        bencher.iter(|| {
            out.clear();
            decoder.decode(&head, 0.3, NmsMode::ClassAware, &mut out).unwrap()
        });
    });
}

criterion_group!(benches, suppression, decoding);
criterion_main!(benches);
