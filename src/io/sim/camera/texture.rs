//! Noise that repeats: blotches for surfaces and clouds, and a sensor's grain.

use std::sync::LazyLock;

use super::super::random::{Random, floor, mix};

const SIDE: usize = 256;
const GRAIN: usize = 1 << 15;
/// Samples that one stretch of grain is for.
pub(super) const STRETCH: usize = 2048;

/// Texels, row by row. The size is part of the type, so that a texel's index needs no check.
type Table = [f32; SIDE * SIDE];

/// Tables that every image reads.
#[derive(Debug)]
pub(super) struct Textures {
    /// Noise from -1 to 1, row by row.
    blotches: Box<Table>,
    /// The same without its finer half: neighbours differ little.
    drifts: Box<Table>,
    /// Normal noise of variance 1.
    grain: Vec<f32>,
}

impl Textures {
    /// The tables; they are the same for every camera, and made once.
    pub(super) fn shared() -> &'static Self {
        static SHARED: LazyLock<Textures> = LazyLock::new(Textures::new);
        &SHARED
    }

    fn new() -> Self {
        let drifts = noise(&[(32, 0.5), (16, 0.35), (8, 0.25)]);
        let blotches = noise(&[(32, 0.4), (16, 0.25), (8, 0.2), (4, 0.2), (2, 0.2), (1, 0.15)]);
        let mut random = Random::new(0, 0x67a1);
        let grain = (0..GRAIN)
            .map(|_| {
                let sum: f64 = (0..6).map(|_| random.unit()).sum();
                ((sum - 3.0) * std::f64::consts::SQRT_2) as f32
            })
            .collect();
        Self {
            blotches,
            drifts,
            grain,
        }
    }

    /// Noise at a place, a texel a unit; the same within a texel.
    pub(super) fn coarse(&self, x: f32, y: f32) -> f32 {
        self.blotches[texel(floor(x), floor(y))]
    }

    /// Noise at a place, without steps.
    pub(super) fn smooth(&self, x: f32, y: f32) -> f32 {
        let (i, j) = (floor(x), floor(y));
        let (s, t) = (x - i as f32, y - j as f32);
        let row = |j: i32| {
            let (left, right) = (
                self.blotches[texel(i, j)],
                self.blotches[texel(i.wrapping_add(1), j)],
            );
            left + (right - left) * s
        };
        let (above, below) = (row(j), row(j.wrapping_add(1)));
        above + (below - above) * t
    }

    /// [`coarse`](Self::coarse) along a track.
    pub(super) fn coarse_on(&self, track: &Track) -> f32 {
        self.blotches[track.texel()]
    }

    /// Noise along a track that changes over some 8 units and more.
    pub(super) fn drift_on(&self, track: &Track) -> f32 {
        self.drifts[track.texel()]
    }

    /// The grain of a stretch of an image.
    pub(super) fn grain(&self, noise: u64, stretch: u64) -> &[f32] {
        let start = mix(noise ^ mix(stretch)) as usize % (GRAIN - STRETCH);
        &self.grain[start..start + STRETCH]
    }
}

/// A straight way over a texture, step by step: places in 65536ths of a unit, which wrap as textures do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Track {
    at: [u32; 2],
    step: [u32; 2],
}

impl Track {
    pub(super) fn new(at: [f64; 2], step: [f64; 2], units: f64) -> Self {
        let fixed = |metres: f64| (metres * units * 65536.0) as i64 as u32;
        Self {
            at: at.map(fixed),
            step: step.map(fixed),
        }
    }

    pub(super) fn advance(&mut self) {
        self.at = [0, 1].map(|axis| self.at[axis].wrapping_add(self.step[axis]));
    }

    /// Whole units.
    pub(super) fn cell(&self) -> [i32; 2] {
        self.at.map(|place| (place as i32) >> 16)
    }

    /// What is left of them, 0 to 65535.
    pub(super) fn rest(&self) -> [u32; 2] {
        self.at.map(|place| place & 0xffff)
    }

    fn texel(&self) -> usize {
        let [i, j] = self.cell();
        texel(i, j)
    }
}

fn texel(i: i32, j: i32) -> usize {
    let wrap = |place: i32| place as usize % SIDE;
    wrap(j) * SIDE + wrap(i)
}

/// Smooth noise on lattices of the given cells, each with its weight.
fn noise(octaves: &[(usize, f32)]) -> Box<Table> {
    let mut noise = Box::new([0.0f32; SIDE * SIDE]);
    for &(cell, weight) in octaves {
        let cells = SIDE / cell;
        let mut random = Random::new(cell as u64, 0xb107);
        let lattice: Vec<f32> = (0..cells * cells)
            .map(|_| random.between(-1.0, 1.0) as f32)
            .collect();
        for (pixel, value) in noise.iter_mut().enumerate() {
            let (x, y) = (pixel % SIDE, pixel / SIDE);
            let at = |i: usize, j: usize| lattice[(j % cells) * cells + i % cells];
            let (i, j) = (x / cell, y / cell);
            let share = |place: usize| {
                let t = (place % cell) as f32 / cell as f32;
                t * t * (3.0 - 2.0 * t)
            };
            let (s, t) = (share(x), share(y));
            let above = at(i, j) + (at(i + 1, j) - at(i, j)) * s;
            let below = at(i, j + 1) + (at(i + 1, j + 1) - at(i, j + 1)) * s;
            *value += weight * (above + (below - above) * t);
        }
    }
    noise
}

/// A number from 0 to 1 that a place has always.
pub(super) fn chance(a: i32, b: i32, salt: u32) -> f32 {
    let bits = (a as u32).wrapping_mul(0x9e37_79b1) ^ (b as u32).wrapping_mul(0x85eb_ca77) ^ salt;
    let bits = (bits ^ (bits >> 15)).wrapping_mul(0x2c1b_3c6d);
    let bits = (bits ^ (bits >> 12)).wrapping_mul(0x297a_2d39);
    ((bits ^ (bits >> 15)) >> 8) as f32 / 16_777_216.0
}
