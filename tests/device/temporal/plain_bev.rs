//! The ring of maps in float64, its state included.

use sensorium::perception::temporal::{BEV_CHANNELS, BEV_RANGE_M, BEV_SIDE, SeededWeights};
use sensorium::trace::OnFull;

use crate::temporal::plain::{Conv, Map, assert_near, moved};
use crate::temporal::rig::{Kind, Rig, Shot, options};

const SEED: u64 = 11;
const CELLS: usize = BEV_SIDE / 2;
const CHANNELS: usize = 32;

struct PlainRing {
    stem: Conv,
    down: Conv,
    body: Conv,
    fuse: Conv,
    shared: Conv,
    heads: Vec<[Conv; 2]>,
    /// The maps of the last frames and where they were taken, newest first; `None` before there were any.
    ring: Vec<Option<(Map, Option<[f64; 3]>)>>,
}

impl PlainRing {
    fn new(frames: usize) -> Self {
        let conv = |name: &str, channels: [usize; 2], kernel: usize, stride: usize| {
            Conv::drawn(SEED, name, channels, kernel, stride)
        };
        let head = |name: &str, bias: &[f32], gain: f32| {
            let output = SeededWeights::new(SEED, name).conv(bias.len(), 16, 1);
            let output = Conv {
                weight: output.mapv(|w| w * gain),
                bias: bias.to_vec(),
                stride: 1,
                relu: false,
            };
            [conv(&format!("{name}.hidden"), [CHANNELS, 16], 1, 1), output]
        };
        Self {
            stem: conv("stem", [BEV_CHANNELS, 16], 3, 1),
            down: conv("down", [16, CHANNELS], 3, 2),
            body: conv("body", [CHANNELS, CHANNELS], 3, 1),
            fuse: conv("fuse", [CHANNELS * (frames + 1), CHANNELS], 1, 1),
            shared: conv("shared", [CHANNELS, CHANNELS], 3, 1),
            heads: vec![
                head("heatmap", &[-3.0; 3], 8.0),
                head("offset", &[0.5; 2], 0.2),
                head("height", &[-1.0], 0.3),
                head("size", &[0.6, 1.4, 0.5], 0.1),
                head("heading", &[0.0; 2], 0.5),
                head("velocity", &[0.0; 2], 0.5),
            ],
            ring: vec![None; frames],
        }
    }

    fn step(&mut self, image: &Map, ground: Option<[f64; 3]>) -> Vec<f64> {
        let map = self.body.run(&self.down.run(&self.stem.run(image)));
        let mut joined = Map::zeros(CELLS, CELLS, CHANNELS * (self.ring.len() + 1));
        for (place, pixel) in joined.values.chunks_exact_mut(joined.channels).enumerate() {
            let (row, column) = (place / CELLS, place % CELLS);
            pixel[..CHANNELS].copy_from_slice(map.pixel(row, column));
            for (kept, channels) in self.ring.iter().zip(pixel[CHANNELS..].chunks_exact_mut(CHANNELS)) {
                if let Some((map, there)) = kept {
                    let metres = [column, row].map(|cell| (cell as f64 + 0.5) * cell_m() - range_m());
                    let metres = moved(metres, ground, *there);
                    sample(map, metres.map(|v| (v + range_m()) / cell_m() - 0.5), channels);
                }
            }
        }
        let shared = self.shared.run(&self.fuse.run(&joined));
        let heads = self
            .heads
            .iter()
            .map(|[hidden, output]| output.run(&hidden.run(&shared)));
        let heads: Vec<Map> = heads.collect();
        self.ring.pop();
        self.ring.insert(0, Some((map, ground)));
        let cells = 0..CELLS * CELLS;
        cells
            .flat_map(|cell| {
                heads
                    .iter()
                    .flat_map(move |head| head.pixel(cell / CELLS, cell % CELLS))
            })
            .copied()
            .collect()
    }
}

fn range_m() -> f64 {
    BEV_RANGE_M.into()
}

fn cell_m() -> f64 {
    2.0 * range_m() / CELLS as f64
}

/// Bilinear between the middles of cells, zeros outside.
fn sample(map: &Map, [x, y]: [f64; 2], into: &mut [f64]) {
    for (dx, dy) in [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)] {
        let (column, row) = (x.floor() + dx, y.floor() + dy);
        let weight = (1.0 - (x - column).abs()) * (1.0 - (y - row).abs());
        let inside = |v: f64| v >= 0.0 && v < CELLS as f64;
        if inside(column) && inside(row) {
            let pixel = map.pixel(row as usize, column as usize);
            into.iter_mut().zip(pixel).for_each(|(sum, v)| *sum += weight * v);
        }
    }
}

#[test]
fn the_ring_computes_what_it_says() {
    for frames in [1, 2] {
        let mut rig = Rig::plain(Kind::BevRing, options(frames, 1, OnFull::Reject));
        let mut plain = PlainRing::new(frames);
        for i in 0..3 {
            let mut shot = Shot::at(f64::from(i) * 0.1, 40 + i as u64);
            // The last place is not known.
            if i == 2 && frames == 2 {
                shot.ground = None;
            }
            let (bits, _) = rig.run("one", &shot, false).unwrap();
            let image = rig.inputs()[0].as_slice::<f32>().unwrap().to_vec();
            let image = Map::from_f32(BEV_SIDE, BEV_SIDE, BEV_CHANNELS, &image);
            let exact = plain.step(&image, shot.ground);
            // Places to a hundred-thousandth of a cell, and float32 sums of a few hundred products.
            assert_near(&format!("frame {i} of a ring of {frames}"), &bits, &exact, 5e-6);
        }
    }
}
