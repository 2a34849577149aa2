//! The light of a day: where the sun stands, how clear the air is, how bright the picture.

use super::super::random::Random;
use super::view::Vec3;

/// Linear red, green and blue; 1 is white.
pub(super) type Colour = [f32; 3];

/// A colour as screens show it, 0 to 255, made linear (with a gamma of 2).
pub(super) const fn rgb(red: u8, green: u8, blue: u8) -> Colour {
    const fn linear(value: u8) -> f32 {
        let share = value as f32 / 255.0;
        share * share
    }
    [linear(red), linear(green), linear(blue)]
}

pub(super) fn blend(a: Colour, b: Colour, share: f32) -> Colour {
    [0, 1, 2].map(|i| a[i] + (b[i] - a[i]) * share)
}

pub(super) fn scale(colour: Colour, by: f32) -> Colour {
    colour.map(|value| value * by)
}

pub(super) fn product(a: Colour, b: Colour) -> Colour {
    [a[0] * b[0], a[1] * b[1], a[2] * b[2]]
}

/// The light of a world, the same for all its images.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Light {
    /// Towards the sun, in the map, of length 1.
    pub(super) sun: Vec3,
    pub(super) sunlight: Colour,
    pub(super) skylight: Colour,
    pub(super) zenith: Colour,
    pub(super) horizon: Colour,
    /// Share of the sky that is clouded.
    pub(super) clouds: f32,
    /// Distance at which the air hides half of what is there, in metres.
    pub(super) sight_m: f32,
    /// What linear colours are multiplied by.
    pub(super) exposure: f32,
    /// Standard deviation of the sensor's noise, of 255.
    pub(super) grain: f32,
    /// Where the textures of this world begin.
    pub(super) salt: u32,
    /// Whether cycle lanes are red here.
    pub(super) red_lanes: bool,
}

impl Light {
    /// The light of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, 30);
        let overcast = random.chance(0.35);
        let azimuth = random.between(-std::f64::consts::PI, std::f64::consts::PI);
        let elevation = if overcast {
            random.between(1.1, 1.4)
        } else {
            random.between(0.25, 1.15)
        };
        let (up, level) = elevation.sin_cos();
        let (sin, cos) = azimuth.sin_cos();
        // A low sun is yellow.
        let warmth = ((0.8 - elevation).max(0.0) * 0.6) as f32;
        let strength = if overcast {
            random.between(0.05, 0.3)
        } else {
            random.between(0.75, 1.1)
        } as f32;
        let sky = if overcast {
            random.between(0.6, 0.9)
        } else {
            random.between(0.28, 0.45)
        } as f32;
        let (zenith, horizon) = if overcast {
            let grey = random.between(150.0, 205.0) as u8;
            (rgb(grey, grey, grey + 6), rgb(grey + 25, grey + 25, grey + 28))
        } else {
            (rgb(78, 128, 196), rgb(188, 208, 226))
        };
        let horizon = blend(horizon, rgb(235, 205, 165), warmth * 0.6);
        Self {
            sun: [(cos * level) as f32, (sin * level) as f32, up as f32],
            sunlight: [
                strength,
                strength * (1.0 - 0.25 * warmth),
                strength * (1.0 - 0.6 * warmth),
            ],
            skylight: [sky * 0.95, sky, sky * 1.06],
            zenith,
            horizon,
            clouds: if overcast {
                1.0
            } else {
                random.between(0.0, 0.7) as f32
            },
            sight_m: if random.chance(0.15) {
                random.between(110.0, 250.0)
            } else {
                random.between(350.0, 1200.0)
            } as f32,
            exposure: random.between(0.7, 1.25) as f32,
            grain: random.between(1.0, 4.0) as f32,
            salt: random.bits() as u32,
            red_lanes: random.chance(0.4),
        }
    }

    /// Share of the air's own colour in what comes from a distance.
    pub(super) fn air(&self, distance_m: f32) -> f32 {
        distance_m / (distance_m + self.sight_m)
    }

    /// What the air makes of a colour that comes from a distance.
    pub(super) fn through_air(&self, colour: Colour, distance_m: f32) -> Colour {
        blend(colour, self.horizon, self.air(distance_m))
    }

    /// Light on a surface that faces the sun with a cosine of `towards` and the zenith with one of `up`.
    pub(super) fn on(&self, towards: f32, up: f32) -> Colour {
        let towards = towards.max(0.0);
        // Less of the sky is seen by what looks down.
        let open = 0.65 + 0.35 * up;
        [0, 1, 2].map(|i| self.skylight[i] * open + self.sunlight[i] * towards)
    }
}
