//! The undecoded YOLOX head: `[1, cells, 5 + classes]`, one row per grid cell, finest grid first.

use super::NmsMode;
use super::candidate::{Candidate, DecodeCounts, HeadError};

/// Pixels per grid cell of the three grids.
pub const YOLOX_STRIDES: [usize; 3] = [8, 16, 32];

/// Values of a row before the class probabilities: x, y, width, height, objectness.
const BOX_VALUES: usize = 5;

/// Reads a YOLOX head. A row holds `dx, dy, log w, log h, objectness, p(class 0), ...`; objectness and class
/// probabilities have gone through the sigmoid already. With cell `(gx, gy)` and stride `s`:
/// `centre = ((dx + gx) * s, (dy + gy) * s)`, `size = (exp(log w) * s, exp(log h) * s)`,
/// `score = objectness * p(class)`, all in single precision, as the public YOLOX demo computes them.
#[derive(Debug, Clone)]
pub struct YoloxHead {
    cells: Vec<Cell>,
    classes: usize,
}

/// Grid position and stride of one row, as the floats that the formula wants.
#[derive(Debug, Clone, Copy)]
struct Cell {
    x: f32,
    y: f32,
    stride: f32,
}

impl YoloxHead {
    /// A decoder for a detector input of `input_px` (width, height) and a head of dimensions `dims`.
    ///
    /// # Errors
    /// [`HeadError::Input`] if a stride does not divide the input, [`HeadError::Shape`] if `dims` is not
    /// `[1, cells of the three grids, 5 + classes]` with at least one class.
    pub fn new(input_px: [usize; 2], dims: &[usize]) -> Result<Self, HeadError> {
        let cells = grid_cells(input_px)?;
        match *dims {
            [1, n, values] if n == cells.len() && values > BOX_VALUES => Ok(Self {
                cells,
                classes: values - BOX_VALUES,
            }),
            _ => Err(HeadError::Shape {
                expected: format!(
                    "[1, {}, 5 + classes], the strides 8, 16, 32 on {} x {} px",
                    cells.len(),
                    input_px[0],
                    input_px[1]
                ),
                found: dims.to_vec(),
            }),
        }
    }

    /// Number of classes.
    #[must_use]
    pub const fn classes(&self) -> usize {
        self.classes
    }

    /// Number of grid cells.
    #[must_use]
    pub fn cells(&self) -> usize {
        self.cells.len()
    }

    /// Appends to `out` every candidate that scores above `score_threshold`, in pixels of the detector input.
    ///
    /// With [`NmsMode::ClassAware`] a cell proposes each of its classes above the threshold, with
    /// [`NmsMode::ClassAgnostic`] only its best one (the first among equals): the two variants of the demo.
    ///
    /// # Errors
    /// [`HeadError::Length`].
    pub fn decode(
        &self,
        head: &[f32],
        score_threshold: f32,
        mode: NmsMode,
        out: &mut Vec<Candidate>,
    ) -> Result<DecodeCounts, HeadError> {
        let row_values = BOX_VALUES + self.classes;
        let expected = self.cells.len() * row_values;
        if head.len() != expected {
            return Err(HeadError::Length {
                expected,
                found: head.len(),
            });
        }
        let mut counts = DecodeCounts::default();
        for (index, (row, cell)) in head.chunks_exact(row_values).zip(&self.cells).enumerate() {
            let (values, probabilities) = row.split_at(BOX_VALUES);
            let objectness = values[4];
            // A probability is at most 1, so nothing in this cell can reach the threshold. (A NaN goes on to
            // its own comparison, which it fails.)
            if objectness <= score_threshold {
                continue;
            }
            let box_xyxy = cell.decode_box(values);
            let before = out.len();
            let mut propose = |class: usize, score: f32| {
                if score > score_threshold {
                    match Candidate::checked(box_xyxy, score, class as u32, index as u32) {
                        Some(candidate) => out.push(candidate),
                        None => counts.malformed += 1,
                    }
                }
            };
            let scores = probabilities.iter().map(|p| objectness * p).enumerate();
            match mode {
                NmsMode::ClassAware => scores.for_each(|(class, score)| propose(class, score)),
                NmsMode::ClassAgnostic => {
                    let best = scores.reduce(|best, next| if next.1 > best.1 { next } else { best });
                    if let Some((class, score)) = best {
                        propose(class, score);
                    }
                }
            }
            counts.cells += usize::from(out.len() > before);
        }
        Ok(counts)
    }
}

impl Cell {
    /// Left, top, right, bottom from the first four values of a row.
    fn decode_box(&self, values: &[f32]) -> [f32; 4] {
        let x = (values[0] + self.x) * self.stride;
        let y = (values[1] + self.y) * self.stride;
        let half_width = values[2].exp() * self.stride / 2.0;
        let half_height = values[3].exp() * self.stride / 2.0;
        [x - half_width, y - half_height, x + half_width, y + half_height]
    }
}

/// The cells of all grids: stride by stride, row by row.
fn grid_cells(input_px: [usize; 2]) -> Result<Vec<Cell>, HeadError> {
    let mut cells = Vec::new();
    for stride in YOLOX_STRIDES {
        if input_px.iter().any(|side| *side == 0 || side % stride != 0) {
            return Err(HeadError::Input { input_px, stride });
        }
        let [columns, rows] = input_px.map(|side| side / stride);
        cells.extend((0..rows * columns).map(|i| Cell {
            x: (i % columns) as f32,
            y: (i / columns) as f32,
            stride: stride as f32,
        }));
    }
    Ok(cells)
}
