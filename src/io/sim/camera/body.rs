//! Bodies of an image, and the colours of what they are made of.

use super::super::material::Material;
use super::super::random::{floor, fraction};
use super::light::{Colour, blend, rgb, scale};
use super::texture::{Textures, chance};
use super::view::{Frame, Vec3};
use crate::outputs::ObjectLabel;

/// A body of an image.
#[derive(Debug, Clone, Copy)]
pub(super) struct Body {
    pub(super) frame: Frame,
    /// Towards the sun, in the body's frame.
    pub(super) sun: Vec3,
    /// Nothing for scenery.
    pub(super) label: Option<ObjectLabel>,
    /// Length, width and height of a road user.
    pub(super) size: Vec3,
    /// A number that decides about its looks.
    pub(super) look: u32,
    /// Numbers from 0 to 1 that follow from it.
    traits: [f32; TRAITS],
}

const TRAITS: usize = 14;

/// A part of a body, or a flat face of one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Surface {
    pub(super) body: u32,
    pub(super) material: Material,
    /// Of a flat face, in the body's frame; of a round one it follows from `middle` and `radii`.
    pub(super) normal: Option<Vec3>,
    pub(super) middle: Vec3,
    pub(super) radii: Vec3,
    pub(super) high: f32,
}

impl Surface {
    /// The outward normal at a point.
    pub(super) fn normal_at(&self, p: Vec3) -> Vec3 {
        if let Some(normal) = self.normal {
            return normal;
        }
        let n = [0, 1, 2].map(|i| (p[i] - self.middle[i]) / (self.radii[i] * self.radii[i]));
        let length = super::view::dot(n, n).sqrt().max(1e-6);
        n.map(|value| value / length)
    }
}

/// What a surface looks like at a point.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    pub(super) colour: Colour,
    /// Share of the sky that it mirrors.
    pub(super) shine: f32,
    /// Light of its own.
    pub(super) glow: f32,
}

impl Look {
    const fn dull(colour: Colour) -> Self {
        Self {
            colour,
            shine: 0.0,
            glow: 0.0,
        }
    }

    const fn shiny(colour: Colour, shine: f32) -> Self {
        Self {
            colour,
            shine,
            glow: 0.0,
        }
    }

    const fn lamp(colour: Colour, glow: f32) -> Self {
        Self {
            colour,
            shine: 0.1,
            glow,
        }
    }
}

const PAINTS: [Colour; 16] = [
    rgb(232, 232, 228),
    rgb(232, 232, 228),
    rgb(176, 180, 184),
    rgb(176, 180, 184),
    rgb(104, 108, 112),
    rgb(104, 108, 112),
    rgb(34, 35, 38),
    rgb(34, 35, 38),
    rgb(152, 24, 28),
    rgb(30, 60, 132),
    rgb(26, 36, 66),
    rgb(32, 76, 52),
    rgb(190, 176, 144),
    rgb(216, 170, 36),
    rgb(196, 84, 28),
    rgb(120, 168, 196),
];

const CLOTHES: [Colour; 12] = [
    rgb(38, 40, 46),
    rgb(58, 62, 72),
    rgb(44, 62, 104),
    rgb(140, 34, 38),
    rgb(196, 194, 188),
    rgb(94, 98, 62),
    rgb(186, 150, 96),
    rgb(40, 98, 92),
    rgb(214, 170, 40),
    rgb(120, 70, 112),
    rgb(116, 120, 124),
    rgb(214, 96, 40),
];

const TROUSERS: [Colour; 6] = [
    rgb(36, 44, 70),
    rgb(32, 32, 36),
    rgb(70, 72, 78),
    rgb(120, 106, 84),
    rgb(58, 74, 104),
    rgb(48, 40, 36),
];

const WALLS: [Colour; 8] = [
    rgb(176, 164, 146),
    rgb(150, 92, 76),
    rgb(196, 190, 178),
    rgb(164, 130, 104),
    rgb(132, 136, 138),
    rgb(206, 186, 150),
    rgb(120, 84, 70),
    rgb(178, 176, 172),
];

const SKINS: [Colour; 4] = [
    rgb(224, 178, 150),
    rgb(196, 144, 112),
    rgb(142, 96, 70),
    rgb(96, 64, 48),
];

const RUBBER: Colour = rgb(32, 32, 34);
const DARK: Colour = rgb(44, 45, 48);
const PANE: Colour = rgb(36, 42, 48);
const WHITE: Colour = rgb(240, 240, 232);
const RED: Colour = rgb(180, 22, 24);

/// A number from 0 to 1 for each tuft of leaves.
pub(super) fn tuft(p: Vec3, look: u32) -> f32 {
    let [x, y, z] = p.map(|metres| floor(metres * 9.0));
    chance(x.wrapping_mul(31).wrapping_add(z), y, look)
}

impl Body {
    /// `user` is the class and size of a road user.
    pub(super) fn new(frame: Frame, sun: Vec3, user: Option<(ObjectLabel, Vec3)>, look: u32) -> Self {
        Self {
            frame,
            sun,
            label: user.map(|(label, _)| label),
            size: user.map_or([1.0; 3], |(_, size)| size),
            look,
            traits: std::array::from_fn(|which| chance(which as i32, 0, look)),
        }
    }

    fn pick<const N: usize>(&self, colours: &[Colour; N], which: usize) -> Colour {
        colours[((self.traits[which] * N as f32) as usize).min(N - 1)]
    }

    fn paint(&self) -> Colour {
        let tone = 0.85 + 0.3 * self.traits[1];
        scale(self.pick(&PAINTS, 0), tone)
    }

    /// How a surface of it looks at a point with a normal, seen from a distance.
    pub(super) fn look(&self, surface: &Surface, p: Vec3, n: Vec3, textures: &Textures) -> Look {
        let [x, y, z] = p;
        // A facade's own coordinate.
        let along = if n[1].abs() > n[0].abs() { x } else { y };
        let offset = self.look as u8 as f32;
        let rough = |by: f32| textures.coarse(along * by + offset, z * by + offset);
        match surface.material {
            Material::Paint => self.bodywork(p, n),
            Material::Glass => self.pane(p, n),
            Material::Cargo => self.cargo(p, n, rough(12.0)),
            Material::Chassis => self.chassis(p, n),
            Material::Wheel => {
                let out = [(x - surface.middle[0]), (z - surface.middle[2])];
                let from_hub = (out[0] * out[0] + out[1] * out[1]).sqrt() / surface.radii[0];
                if n[1].abs() > 0.5 && from_hub < 0.62 {
                    Look::shiny(rgb(138, 140, 144), 0.15)
                } else {
                    Look::dull(RUBBER)
                }
            }
            Material::Spokes => Look::dull(RUBBER),
            Material::Tubes => Look::shiny(self.pick(&PAINTS, 5), 0.1),
            Material::Trousers => {
                let shoe = self.label == Some(ObjectLabel::Pedestrian) && z < 0.09;
                Look::dull(if shoe { DARK } else { self.pick(&TROUSERS, 2) })
            }
            Material::Jacket => Look::dull(scale(self.pick(&CLOTHES, 0), 1.0 + 0.15 * rough(40.0))),
            Material::Head => self.head(surface, p),
            Material::House => self.house(surface, p, n, along, || rough(16.0)),
            Material::Porch => Look::dull(scale(rgb(108, 84, 66), 0.8 + 0.5 * self.traits[4])),
            Material::Masonry => {
                let joint = fraction(z / 0.25) < 0.08;
                let stone = self.pick(&WALLS, 0);
                Look::dull(scale(
                    stone,
                    (1.0 + 0.25 * rough(14.0)) * if joint { 0.8 } else { 1.0 },
                ))
            }
            Material::Fence => Look::dull(rgb(70, 76, 74)),
            Material::Bark => Look::dull(scale(rgb(98, 82, 66), 1.0 + 0.35 * rough(30.0))),
            Material::Leaves => {
                let leaf = blend(rgb(52, 82, 34), rgb(112, 126, 52), self.traits[0]);
                Look::dull(scale(leaf, 0.45 + 0.8 * tuft(p, self.look)))
            }
            Material::Post => Look::shiny(scale(rgb(128, 132, 134), 0.5 + 0.7 * self.traits[0]), 0.05),
            Material::Sign => {
                let rim = [0, 1, 2].map(|i| {
                    if self.traits[0] < 0.5 {
                        RED[i]
                    } else {
                        rgb(24, 70, 150)[i]
                    }
                });
                let from_edge = (surface.high - z).min(z - surface.high + 2.0 * surface.radii[1]);
                let edge = y.abs() > surface.radii[1] * 0.72 || from_edge < surface.radii[1] * 0.28;
                Look::dull(if n[0] < 0.0 {
                    rgb(120, 122, 124)
                } else if edge {
                    rim
                } else {
                    WHITE
                })
            }
            Material::Signal => self.signal(surface, along, z),
            Material::Casing => {
                let tones = [
                    rgb(92, 104, 96),
                    rgb(150, 152, 150),
                    rgb(60, 84, 64),
                    rgb(84, 76, 66),
                ];
                Look::dull(scale(self.pick(&tones, 0), 1.0 + 0.12 * rough(20.0)))
            }
        }
    }

    fn bodywork(&self, [x, y, z]: Vec3, n: Vec3) -> Look {
        let [length, width, height] = self.size;
        let half = width / 2.0;
        let paint = self.paint();
        let plain = Look::shiny(paint, 0.12);
        let (lamps_low, lamps_high) = match self.label {
            Some(ObjectLabel::Car) => (0.36 * height, 0.47 * height),
            _ => (0.55, 0.85),
        };
        let at_lamps = (lamps_low..lamps_high).contains(&z) && y.abs() > 0.6 * half;
        if n[0] > 0.5 {
            return match self.label {
                Some(ObjectLabel::Truck) if z > 0.55 * height.min(3.0) && y.abs() < half - 0.22 => {
                    Look::shiny(PANE, 0.35)
                }
                // The line and where it goes.
                Some(ObjectLabel::Bus) if z > height - 0.75 && z < height - 0.4 && y.abs() < 0.7 * half => {
                    let lit = chance((y * 14.0) as i32, (z * 14.0) as i32, self.look) < 0.45;
                    Look::lamp(if lit { rgb(250, 170, 40) } else { RUBBER }, 0.2)
                }
                _ if at_lamps => Look::lamp(WHITE, 0.35),
                _ if z < lamps_high && z > lamps_low - 0.12 && y.abs() < 0.5 * half => Look::dull(DARK),
                _ if y.abs() < 0.26 && (0.3..0.45).contains(&z) => Look::dull(WHITE),
                _ => plain,
            };
        }
        if n[0] < -0.5 {
            return match self.label {
                Some(ObjectLabel::Bus) if (0.8..1.1).contains(&z) && y.abs() > 0.75 * half => {
                    Look::lamp(RED, 0.25)
                }
                Some(ObjectLabel::Bus) if y.abs() < 0.6 * half && z > 0.8 && fraction(z * 9.0) < 0.4 => {
                    Look::dull(DARK)
                }
                Some(ObjectLabel::Car)
                    if (0.4 * height..0.54 * height).contains(&z) && y.abs() > 0.62 * half =>
                {
                    Look::lamp(RED, 0.25)
                }
                Some(ObjectLabel::Car) if y.abs() < 0.26 && (0.28..0.36).contains(&(z / height)) => {
                    Look::dull(WHITE)
                }
                _ => plain,
            };
        }
        if n[1].abs() > 0.5 {
            let van = self.label == Some(ObjectLabel::Car) && height > 1.79;
            if (van || self.label == Some(ObjectLabel::Truck)) && self.is_cab_window(x, z, van) {
                return Look::shiny(PANE, 0.25);
            }
            let seam = |at: f32| (x - at * length).abs() < 0.015;
            if self.label == Some(ObjectLabel::Car) && z > 0.3 && (seam(-0.03) || seam(0.2) || seam(-0.24)) {
                return Look::dull(scale(paint, 0.35));
            }
            if z < 0.24 * height {
                return Look::shiny(scale(paint, 0.6), 0.05);
            }
        }
        plain
    }

    fn is_cab_window(&self, x: f32, z: f32, van: bool) -> bool {
        let [length, _, height] = self.size;
        let front = length / 2.0;
        if van {
            (1.15..height - 0.3).contains(&z) && (front - 2.3..front - 1.25).contains(&x)
        } else {
            let top = height.min(3.0);
            (0.55 * top..0.55 * top + 0.7).contains(&z) && (front - 1.3..front - 0.35).contains(&x)
        }
    }

    fn pane(&self, [x, _, z]: Vec3, n: Vec3) -> Look {
        let pane = Look::shiny(PANE, 0.1 + 0.22 * n[2].abs() + 0.08 * self.traits[3]);
        if self.label == Some(ObjectLabel::Bus) && n[1].abs() > 0.5 {
            let post = fraction(x / 1.45) < 0.09;
            return if post { Look::dull(DARK) } else { pane };
        }
        // The pillar between the doors.
        if n[1].abs() > 0.5 && (x + 0.03 * self.size[0]).abs() < 0.05 && z < self.size[2] {
            return Look::dull(DARK);
        }
        pane
    }

    fn cargo(&self, [x, y, z]: Vec3, n: Vec3, rough: f32) -> Look {
        let [length, width, height] = self.size;
        let colour = if self.traits[6] < 0.5 {
            rgb(206, 206, 202)
        } else {
            self.pick(&PAINTS, 7)
        };
        let mut colour = scale(colour, 1.0 + 0.08 * rough);
        if self.label == Some(ObjectLabel::Truck) {
            let band = (z / height - 0.62).abs() < 0.08 && x.abs() < 0.3 * length;
            if n[1].abs() > 0.5 && band && self.traits[8] < 0.6 {
                colour = self.pick(&PAINTS, 9);
            }
            let rib = n[1].abs() > 0.5 && fraction(x / 1.1) < 0.04;
            let doors = n[0] < -0.5 && (y.abs() < 0.03 || y.abs() > width / 2.0 - 0.07);
            if rib || doors {
                colour = scale(colour, 0.6);
            }
        }
        Look::shiny(colour, 0.04)
    }

    fn chassis(&self, [_, y, _]: Vec3, n: Vec3) -> Look {
        if n[0] < -0.5 && y.abs() > 0.34 * self.size[1] {
            Look::lamp(RED, 0.25)
        } else {
            Look::dull(DARK)
        }
    }

    fn head(&self, surface: &Surface, [x, _, z]: Vec3) -> Look {
        let hair = [
            rgb(40, 32, 28),
            rgb(92, 64, 40),
            rgb(170, 136, 84),
            rgb(150, 148, 146),
        ];
        let (dx, dz) = (
            (x - surface.middle[0]) / surface.radii[0],
            (z - surface.middle[2]) / surface.radii[2],
        );
        if self.label == Some(ObjectLabel::Bicycle) && dz > 0.15 && self.traits[10] < 0.7 {
            return Look::shiny(self.pick(&PAINTS, 11), 0.1);
        }
        Look::dull(if dz > 0.45 || dx < -0.25 {
            self.pick(&hair, 12)
        } else {
            self.pick(&SKINS, 13)
        })
    }

    fn house(
        &self,
        surface: &Surface,
        [_, _, z]: Vec3,
        n: Vec3,
        along: f32,
        rough: impl Fn() -> f32,
    ) -> Look {
        let tone = 0.8 + 0.4 * self.traits[1];
        let wall = scale(self.pick(&WALLS, 0), tone);
        if n[2] > 0.5 {
            return Look::dull(rgb(96, 88, 84));
        }
        let spacing = 2.0 + 1.6 * self.traits[2];
        let storey = 2.7 + 0.5 * self.traits[3];
        let (across, up) = (along / spacing + 0.5, z / storey);
        let (column, storeys) = (floor(across), floor(up));
        let (s, t) = (across - column as f32, up - storeys as f32);
        let shop = storeys == 0 && self.traits[5] < 0.4;
        let wide = if shop { 0.06 } else { 0.22 + 0.1 * self.traits[6] };
        let roofed = z > surface.high - 0.45;
        let inside = |margin: f32| {
            s > wide + margin && s < 1.0 - wide - margin && t > 0.3 + margin && t < 0.8 - margin
        };
        if roofed {
            return Look::dull(scale(wall, 0.75));
        }
        if inside(0.0) && along.abs() < 60.0 {
            if !inside(0.025) {
                return Look::dull(scale(wall, 1.3));
            }
            let kind = chance(column, storeys, self.look);
            return match kind {
                k if k < 0.25 => Look::shiny(rgb(150, 144, 132), 0.1),
                k if k < 0.3 => Look::lamp(rgb(214, 180, 120), 0.1),
                _ => Look::shiny(PANE, 0.3),
            };
        }
        let brick = self.traits[7] < 0.5 && fraction(z / 0.3) < 0.12;
        Look::dull(scale(wall, (1.0 + 0.2 * rough()) * if brick { 0.9 } else { 1.0 }))
    }

    fn signal(&self, surface: &Surface, along: f32, z: f32) -> Look {
        let from_top = surface.high - z;
        let place = floor(from_top / 0.3) as f32;
        let dz = from_top - (place + 0.5) * 0.3;
        let lit = if self.traits[0] < 0.5 { 0.0 } else { 2.0 };
        if dz * dz + along * along < 0.011 && place == lit {
            let colour = if lit == 0.0 {
                rgb(250, 50, 40)
            } else {
                rgb(60, 240, 150)
            };
            return Look::lamp(colour, 0.9);
        }
        Look::dull(rgb(30, 32, 34))
    }
}
