//! The queries with a memory in float64, its state included.

use sensorium::perception::temporal::{
    BEV_RANGE_M, CLASSES, PROPAGATED, QUERIES, QUERY_CHANNELS, QUERY_IMAGE_PX, SeededWeights,
};
use sensorium::trace::OnFull;

use crate::temporal::plain::{Conv, Dense, Map, assert_near, attention, moved, normalised};
use crate::temporal::rig::{Kind, Rig, Shot, options};

const SEED: u64 = 11;
const C: usize = QUERY_CHANNELS;

struct Attention([Dense; 4]);

impl Attention {
    fn new(name: &str) -> Self {
        Self(["q", "k", "v", "out"].map(|part| Dense::drawn(SEED, &format!("{name}.{part}"), [C, C], false)))
    }

    fn run(&self, x: &Map, rows: &Map) -> Map {
        let [q, k, v, out] = &self.0;
        let seen = attention(&q.run(x), &k.run(rows), &v.run(rows));
        normalised(x, &out.run(&seen))
    }
}

struct Layer {
    hybrid: Attention,
    cross: Attention,
    wide: Dense,
    narrow: Dense,
}

/// A remembered query.
#[derive(Clone)]
struct Remembered {
    features: Vec<f64>,
    point: [f64; 3],
    shot: Shot,
}

struct PlainQueries {
    convs: Vec<Conv>,
    token_places: Map,
    queries: Map,
    anchors: Vec<[f64; 3]>,
    inner: Dense,
    outer: Dense,
    layers: Vec<Layer>,
    classes: Dense,
    boxes: Dense,
    /// The frames that are remembered, newest first.
    memory: Vec<Vec<Remembered>>,
    frames: usize,
}

impl PlainQueries {
    fn new(frames: usize) -> Self {
        let rows = |name: &str, count: usize| {
            let values = SeededWeights::new(SEED, name).numbers(count * C, 1.0);
            Map::from_f32(count, 1, C, &values)
        };
        let anchors = SeededWeights::new(SEED, "anchors").numbers(QUERIES * 3, 1.0);
        let range_m = f64::from(BEV_RANGE_M);
        let anchor = |drawn: &[f32]| {
            let [x, y, z] = [drawn[0], drawn[1], drawn[2]].map(f64::from);
            [(x + 1.0) / 2.0 * range_m, y * range_m / 2.0, z * 2.0]
        };
        let layer = |name: &str| Layer {
            hybrid: Attention::new(&format!("{name}.hybrid")),
            cross: Attention::new(&format!("{name}.cross")),
            wide: Dense::drawn(SEED, &format!("{name}.wide"), [C, 2 * C], true),
            narrow: Dense::drawn(SEED, &format!("{name}.narrow"), [2 * C, C], false),
        };
        let per_range = 1.0 / BEV_RANGE_M;
        let centre = [0.0, 0.0, 0.0, 1.4, 0.6, 0.4, 0.0, 0.0, 0.0, 0.0];
        Self {
            convs: [("conv0", [3, 16]), ("conv1", [16, 32]), ("conv2", [32, C])]
                .into_iter()
                .map(|(name, channels)| Conv::drawn(SEED, name, channels, 3, 2))
                .collect(),
            token_places: rows("tokens", QUERY_IMAGE_PX[0] / 8 * QUERY_IMAGE_PX[1] / 8),
            queries: rows("queries", QUERIES),
            anchors: anchors.chunks_exact(3).map(anchor).collect(),
            inner: Dense::scaled(
                SEED,
                "place.inner",
                &[per_range, per_range, 0.25, 1.0, 1.0],
                &[0.0; C],
                1.5,
            ),
            outer: Dense::drawn(SEED, "place.outer", [C, C], false),
            layers: ["layer0", "layer1"].map(layer).into(),
            classes: Dense::scaled(SEED, "classes", &[1.0; C], &[-1.0; CLASSES.len()], 1.0),
            boxes: Dense::scaled(SEED, "boxes", &[1.0; C], &centre, 0.3),
            memory: Vec::new(),
            frames,
        }
    }

    fn step(&mut self, image: &Map, shot: &Shot) -> Vec<f64> {
        let map = self.convs.iter().fold(image.clone(), |map, conv| conv.run(&map));
        let tokens = Map {
            rows: map.rows * map.columns,
            columns: 1,
            ..map
        };
        let tokens = normalised(&tokens, &self.token_places);
        let memory: Vec<Vec<f64>> = self
            .memory
            .iter()
            .flatten()
            .map(|row| self.encoded(row, shot))
            .collect();
        let mut x = self.queries.clone();
        for layer in &self.layers {
            // What is not there yet is not among the rows at all.
            let mut rows = x.clone();
            rows.rows += memory.len();
            rows.values.extend(memory.concat());
            x = layer.hybrid.run(&x, &rows);
            x = layer.cross.run(&x, &tokens);
            x = normalised(&x, &layer.narrow.run(&layer.wide.run(&x)));
        }
        let (logits, boxes) = (self.classes.run(&x), self.boxes.run(&x));
        let mut output = Vec::new();
        let mut found = Vec::new();
        for query in 0..QUERIES {
            let (logits, boxes) = (logits.pixel(query, 0), boxes.pixel(query, 0));
            let point = [0, 1, 2].map(|axis| self.anchors[query][axis] + boxes[axis]);
            output.extend(logits.iter().chain(&point).chain(&boxes[3..]));
            let best = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let remembered = Remembered {
                features: x.pixel(query, 0).to_vec(),
                point,
                shot: *shot,
            };
            found.push((best, remembered));
        }
        found.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        // Which ones are remembered is no matter of rounding.
        let margin = found[PROPAGATED - 1].0 - found[PROPAGATED].0;
        assert!(margin > 1e-4, "{margin}");
        let best = found.into_iter().take(PROPAGATED).map(|(_, row)| row);
        self.memory.insert(0, best.collect());
        self.memory.truncate(self.frames);
        output
    }

    /// A remembered row as queries see it now.
    fn encoded(&self, row: &Remembered, now: &Shot) -> Vec<f64> {
        let [x, y, z] = row.point;
        let [x, y] = moved([x, y], row.shot.ground, now.ground);
        let age_s = (now.stamp_ns - row.shot.stamp_ns) as f64 / 1e9;
        let inner = self.inner.run(&Map::of_rows(&[vec![x, y, z, age_s, 1.0]]));
        let bent = Map {
            values: inner.values.iter().map(|v| v.tanh()).collect(),
            ..inner
        };
        let place = self.outer.run(&bent);
        row.features
            .iter()
            .zip(&place.values)
            .map(|(a, b)| a + b)
            .collect()
    }
}

#[test]
fn queries_compute_what_they_say() {
    for frames in [1, 2] {
        let mut rig = Rig::plain(Kind::StreamQueries, options(frames, 1, OnFull::Reject));
        let mut plain = PlainQueries::new(frames);
        for i in 0..4 {
            // The clock's coarse step lies between the frames.
            let mut shot = Shot::at(f64::from(i) * 40.0, 60 + i as u64);
            if i == 3 {
                shot.ground = None;
            }
            let (bits, _) = rig.run("one", &shot, false).unwrap();
            let image = rig.inputs()[0].as_slice::<f32>().unwrap().to_vec();
            let [width, height] = QUERY_IMAGE_PX;
            let exact = plain.step(&Map::from_f32(height, width, 3, &image), &shot);
            assert_near(&format!("frame {i}, {frames} remembered"), &bits, &exact, 5e-7);
        }
    }
}
