//! The FastestDet head: `[1, 5 + classes, rows, columns]`, one grid, channels first.

use super::candidate::{Candidate, DecodeCounts, HeadError};

/// Planes before the class probabilities: objectness, x, y, width, height.
const BOX_PLANES: usize = 5;

/// How objectness and class probability make a score. Both are in public use with the same weights; the
/// ranking hardly differs, the scale of the scores (and so the threshold) does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScoreRule {
    /// `objectness^0.6 * probability^0.4`, which most deployments use.
    Weighted,
    /// `objectness * probability`.
    Product,
}

impl ScoreRule {
    fn score(self, objectness: f32, probability: f32) -> f32 {
        match self {
            Self::Weighted => objectness.powf(0.6) * probability.powf(0.4),
            Self::Product => objectness * probability,
        }
    }
}

/// Reads a FastestDet head. The planes are `objectness, dx, dy, w, h, p(class 0), ...`; objectness has gone
/// through the sigmoid and the classes through the softmax already. With cell `(gx, gy)` of a grid of
/// `columns x rows`, in parts of the input: `centre = ((gx + tanh dx) / columns, (gy + tanh dy) / rows)`,
/// `size = (sigmoid w, sigmoid h)`. A cell proposes its best class alone.
#[derive(Debug, Clone)]
pub struct FastestDetHead {
    input_px: [usize; 2],
    columns: usize,
    rows: usize,
    classes: usize,
    rule: ScoreRule,
}

impl FastestDetHead {
    /// A decoder for a detector input of `input_px` (width, height) and a head of dimensions `dims`.
    ///
    /// # Errors
    /// [`HeadError::Shape`] if `dims` is not `[1, 5 + classes, rows, columns]`, none of them zero and at least
    /// one class, or if the grid is finer than the input.
    pub fn new(input_px: [usize; 2], dims: &[usize], rule: ScoreRule) -> Result<Self, HeadError> {
        match *dims {
            [1, planes, rows, columns]
                if planes > BOX_PLANES
                    && (1..=input_px[0]).contains(&columns)
                    && (1..=input_px[1]).contains(&rows) =>
            {
                Ok(Self {
                    input_px,
                    columns,
                    rows,
                    classes: planes - BOX_PLANES,
                    rule,
                })
            }
            _ => Err(HeadError::Shape {
                expected: format!(
                    "[1, 5 + classes, rows, columns] on {} x {} px",
                    input_px[0], input_px[1]
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

    /// Appends to `out` every cell that scores above `score_threshold`, in pixels of the detector input.
    ///
    /// # Errors
    /// [`HeadError::Length`].
    pub fn decode(
        &self,
        head: &[f32],
        score_threshold: f32,
        out: &mut Vec<Candidate>,
    ) -> Result<DecodeCounts, HeadError> {
        let cells = self.rows * self.columns;
        let expected = cells * (BOX_PLANES + self.classes);
        if head.len() != expected {
            return Err(HeadError::Length {
                expected,
                found: head.len(),
            });
        }
        let mut counts = DecodeCounts::default();
        for cell in 0..cells {
            let plane = |index: usize| head[index * cells + cell];
            let probabilities = (0..self.classes).map(|class| plane(BOX_PLANES + class));
            let best = probabilities
                .enumerate()
                .reduce(|best, next| if next.1 > best.1 { next } else { best });
            let Some((class, probability)) = best else {
                continue;
            };
            let score = self.rule.score(plane(0), probability);
            if score > score_threshold {
                let box_xyxy = self.decode_box(cell, [1, 2, 3, 4].map(plane));
                match Candidate::checked(box_xyxy, score, class as u32, cell as u32) {
                    Some(candidate) => {
                        out.push(candidate);
                        counts.cells += 1;
                    }
                    None => counts.malformed += 1,
                }
            }
        }
        Ok(counts)
    }

    /// Left, top, right, bottom in pixels of the detector input.
    fn decode_box(&self, cell: usize, [dx, dy, w, h]: [f32; 4]) -> [f32; 4] {
        let [gx, gy] = [cell % self.columns, cell / self.columns].map(|g| g as f32);
        let [width, height] = self.input_px.map(|side| side as f32);
        let x = (gx + dx.tanh()) / self.columns as f32;
        let y = (gy + dy.tanh()) / self.rows as f32;
        let (half_w, half_h) = (0.5 * sigmoid(w), 0.5 * sigmoid(h));
        [
            (x - half_w) * width,
            (y - half_h) * height,
            (x + half_w) * width,
            (y + half_h) * height,
        ]
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}
