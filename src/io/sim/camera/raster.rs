//! Which surface is nearest in each pixel.

use super::mesh::MAX_CORNERS;
use super::view::{NEAR_M, Vec3, View};

/// No surface: sky or ground.
pub(super) const NOTHING: u32 = 0;

/// What a body covers of the image, whatever stands before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Silhouette {
    /// Tells the bodies of an image apart; 0 for one whose silhouette nobody asks for.
    mark: u32,
    pub(super) pixels: u32,
    /// First column and row, last column and row.
    pub(super) bounds: [i32; 4],
}

impl Silhouette {
    pub(super) const fn new(mark: u32) -> Self {
        Self {
            mark,
            pixels: 0,
            bounds: [i32::MAX, i32::MAX, i32::MIN, i32::MIN],
        }
    }

    fn extend(&mut self, [left, right]: [i32; 2], row: i32) {
        let [x0, y0, x1, y1] = &mut self.bounds;
        (*x0, *x1) = ((*x0).min(left), (*x1).max(right));
        (*y0, *y1) = ((*y0).min(row), (*y1).max(row));
    }
}

/// Depths, surfaces and shadows of an image.
#[derive(Debug)]
pub(super) struct Canvas {
    width: usize,
    height: usize,
    /// 1 over the distance along the optical axis.
    pub(super) nearness: Vec<f32>,
    pub(super) surface: Vec<u32>,
    /// 1 where the ground is in the shade of something.
    pub(super) shade: Vec<u8>,
    marks: Vec<u32>,
    /// First and last covered place of each row.
    spans: Vec<[f32; 2]>,
}

impl Canvas {
    pub(super) fn new(width: usize, height: usize) -> Self {
        let pixels = width * height;
        Self {
            width,
            height,
            nearness: vec![0.0; pixels],
            surface: vec![NOTHING; pixels],
            shade: vec![0; pixels],
            marks: vec![0; pixels],
            spans: vec![[0.0; 2]; height],
        }
    }

    pub(super) fn clear(&mut self) {
        self.nearness.fill(0.0);
        self.surface.fill(NOTHING);
        self.shade.fill(0);
        self.marks.fill(0);
    }

    /// Draws a flat face. `nearness` is a + b·column + c·row on its plane; `hole` says of a pixel and its nearness
    /// whether one looks through.
    pub(super) fn face(
        &mut self,
        corners: &[[f32; 2]],
        [a, b, c]: [f32; 3],
        surface: u32,
        silhouette: &mut Silhouette,
        hole: impl Fn(f32, f32, f32) -> bool,
    ) {
        let Some((first, last)) = self.scan(corners) else {
            return;
        };
        for row in first..last {
            let Some((from, to)) = self.span(row) else {
                continue;
            };
            let at = a + c * row as f32;
            let base = row * self.width;
            let pixels = base + from..base + to;
            let mut seen = [i32::MAX, i32::MIN];
            let nearness = &mut self.nearness[pixels.clone()];
            let surfaces = &mut self.surface[pixels.clone()];
            if silhouette.mark == 0 {
                for (i, (near, owner)) in nearness.iter_mut().zip(surfaces).enumerate() {
                    let column = (from + i) as f32;
                    let here = at + b * column;
                    if here > *near && !hole(column, row as f32, here) {
                        *near = here;
                        *owner = surface;
                    }
                }
                continue;
            }
            let marks = &mut self.marks[pixels];
            for (i, ((near, owner), mark)) in nearness.iter_mut().zip(surfaces).zip(marks).enumerate() {
                let column = (from + i) as f32;
                let here = at + b * column;
                if hole(column, row as f32, here) {
                    continue;
                }
                seen = [seen[0].min((from + i) as i32), (from + i) as i32];
                if *mark != silhouette.mark {
                    *mark = silhouette.mark;
                    silhouette.pixels += 1;
                }
                if here > *near {
                    *near = here;
                    *owner = surface;
                }
            }
            if seen[0] <= seen[1] {
                silhouette.extend(seen, row as i32);
            }
        }
    }

    /// Draws what covers a window of the image where `nearness_at` says so. It is asked with what
    /// `row_at` makes of a row and the window's first column in it, and with the distance from that column.
    pub(super) fn window<R>(
        &mut self,
        [[left, right], [top, bottom]]: [[f32; 2]; 2],
        surface: u32,
        silhouette: &mut Silhouette,
        row_at: impl Fn(f32, f32) -> R,
        nearness_at: impl Fn(&R, f32) -> Option<f32>,
    ) {
        let inside = |low: f32, high: f32, size: usize| {
            let first = low.ceil().clamp(0.0, size as f32) as usize;
            (
                first,
                (high.floor() + 1.0).clamp(first as f32, size as f32) as usize,
            )
        };
        let (from, to) = inside(left, right, self.width);
        let (first, last) = inside(top, bottom, self.height);
        for row in first..last {
            let mut seen = [i32::MAX, i32::MIN];
            let along = row_at(from as f32, row as f32);
            for column in from..to {
                let Some(here) = nearness_at(&along, (column - from) as f32) else {
                    continue;
                };
                seen = [seen[0].min(column as i32), column as i32];
                let pixel = row * self.width + column;
                if silhouette.mark != 0 && self.marks[pixel] != silhouette.mark {
                    self.marks[pixel] = silhouette.mark;
                    silhouette.pixels += 1;
                }
                if here > self.nearness[pixel] {
                    self.nearness[pixel] = here;
                    self.surface[pixel] = surface;
                }
            }
            if seen[0] <= seen[1] {
                silhouette.extend(seen, row as i32);
            }
        }
    }

    /// Puts the ground inside of a polygon into the shade.
    pub(super) fn darken(&mut self, corners: &[[f32; 2]]) {
        let Some((first, last)) = self.scan(corners) else {
            return;
        };
        for row in first..last {
            if let Some((from, to)) = self.span(row) {
                let base = row * self.width;
                self.shade[base + from..base + to].fill(1);
            }
        }
    }

    /// Finds the spans of a convex polygon; gives its first row and the row behind its last.
    fn scan(&mut self, corners: &[[f32; 2]]) -> Option<(usize, usize)> {
        let height = self.height as f32;
        let rows = |y: f32| y.ceil().clamp(0.0, height) as usize;
        let top = corners.iter().map(|c| c[1]).fold(f32::INFINITY, f32::min);
        let bottom = corners.iter().map(|c| c[1]).fold(f32::NEG_INFINITY, f32::max);
        let (first, last) = (rows(top), rows(bottom));
        if first >= last {
            return None;
        }
        self.spans[first..last].fill([f32::INFINITY, f32::NEG_INFINITY]);
        for (i, &from) in corners.iter().enumerate() {
            let to = corners[(i + 1) % corners.len()];
            let (upper, lower) = if from[1] <= to[1] { (from, to) } else { (to, from) };
            let (begin, end) = (rows(upper[1]), rows(lower[1]));
            if begin >= end {
                continue;
            }
            let slope = (lower[0] - upper[0]) / (lower[1] - upper[1]);
            for (row, span) in self.spans[begin..end].iter_mut().enumerate() {
                let x = upper[0] + ((begin + row) as f32 - upper[1]) * slope;
                *span = [span[0].min(x), span[1].max(x)];
            }
        }
        Some((first, last))
    }

    /// Columns that a row's span covers: those whose middle lies inside.
    fn span(&self, row: usize) -> Option<(usize, usize)> {
        let [left, right] = self.spans[row];
        let width = self.width as f32;
        let from = left.ceil().clamp(0.0, width) as usize;
        let to = right.ceil().clamp(0.0, width) as usize;
        (from < to).then_some((from, to))
    }
}

/// A polygon of the camera's frame as pixels, without what lies too near; nothing if that is all of it.
pub(super) fn project<'a>(
    view: &View,
    corners: &[Vec3],
    pixels: &'a mut [[f32; 2]; MAX_CORNERS + 2],
) -> Option<&'a [[f32; 2]]> {
    let mut count = 0;
    for (i, &here) in corners.iter().enumerate() {
        let next = corners[(i + 1) % corners.len()];
        let mut add = |point| {
            // A convex polygon that a plane cuts has one corner more.
            if count < pixels.len() {
                pixels[count] = view.pixel(point);
                count += 1;
            }
        };
        if here[2] >= NEAR_M {
            add(here);
        }
        if (here[2] >= NEAR_M) != (next[2] >= NEAR_M) {
            let share = (NEAR_M - here[2]) / (next[2] - here[2]);
            add([0, 1, 2].map(|axis| here[axis] + (next[axis] - here[axis]) * share));
        }
    }
    (count > 2).then_some(&pixels[..count])
}
