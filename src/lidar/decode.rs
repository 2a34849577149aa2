//! Boxes from a centre head, as Autoware's CenterPoint decodes them.

use super::boxes::{Box3d, Box3dVariance, DecodeCounts};
use super::decode_config::{DecodeConfigError, Gates};
use super::heads::{CenterHeads, HeadValues, HeadsError};
use super::rounded::{atan2, exp, ln, logit_floor, sigmoid};

/// Cells that are looked at together in the search for candidates.
const BLOCK: usize = 64;

/// What a [`CenterHeadDecode`] is made of.
#[derive(Debug, Clone, Copy)]
pub struct CenterHeadParams {
    /// Size of a voxel in x and y in metres.
    pub voxel_size_m: [f64; 2],
    /// Lower corner of the range in x and y in metres.
    pub range_min_m: [f64; 2],
    /// Voxels a cell, along one side.
    pub downsample_factor: usize,
    /// Cells in x and y.
    pub grid: [usize; 2],
    /// Whether the heads say variances.
    pub has_variance: bool,
    /// Whether the speed is to be reported.
    pub has_twist: bool,
}

/// Decoder of a centre head.
///
/// Of cell (ix, iy), all in float32 and in this order, without fused multiply-add:
///
/// - score = largest `1 / (1 + exp(-logit))`, label = the first class that has it;
/// - `x = (voxel * downsample) * (ix + offset_x) + range_min_x`, y likewise (no half cell is added);
/// - bin = the first whose limit is above `sqrt(x*x + y*y)`; beyond the last one the cell is dropped;
/// - dropped unless `score >= threshold[bin][label]` and `score > 0`;
/// - dropped unless `sqrt(sin*sin + cos*cos) >= yaw_norm_threshold[label]`;
/// - width, length, height = `exp` of the three dim channels, yaw = `atan2(sin, cos)`.
///
/// There is no local maximum and no top-k. `exp`, `ln` and `atan2` are float64 values rounded to float32 once; the kernel's
/// own may differ from that in the last bit. A cell that would become a box but holds NaN or infinity, or has a NaN or
/// infinite logit, is dropped and counted; Autoware would pass such boxes on.
#[derive(Debug, Clone, PartialEq)]
pub struct CenterHeadDecode {
    gates: Gates,
    /// Below all of these, no threshold can be reached.
    logit_floors: Vec<f32>,
    voxel_m: [f32; 2],
    cell_m: [f32; 2],
    range_min_m: [f32; 2],
    grid: [usize; 2],
    has_variance: bool,
    has_twist: bool,
}

/// One cell with everything that decides about it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DecodedCell {
    /// The box; bit for bit what [`CenterHeadDecode::decode`] gives for a cell that it keeps.
    pub decoded: Box3d,
    /// Length of the heading vector.
    pub yaw_norm: f32,
    /// Distance bin; `None` beyond the last.
    pub distance_bin: Option<usize>,
    /// Score threshold of the bin and class; infinite without a bin.
    pub score_threshold: f32,
    /// Threshold of the heading vector.
    pub yaw_norm_threshold: f32,
    /// Whether the score reaches its threshold.
    pub passes_score: bool,
    /// Whether the heading vector reaches its threshold.
    pub passes_yaw_norm: bool,
    /// Whether every number is one.
    pub finite: bool,
}

impl DecodedCell {
    /// Whether the cell becomes a box.
    #[must_use]
    pub const fn keep(&self) -> bool {
        self.passes_score && self.passes_yaw_norm && self.finite
    }
}

/// The class of a cell.
struct Best {
    label: usize,
    score: f32,
    finite: bool,
}

impl CenterHeadDecode {
    /// A decoder.
    ///
    /// # Errors
    /// [`DecodeConfigError::Grid`].
    pub fn new(params: &CenterHeadParams, gates: Gates) -> Result<Self, DecodeConfigError> {
        let [x, y] = params.grid;
        if x == 0 || y == 0 || x.checked_mul(y).is_none_or(|cells| u32::try_from(cells).is_err()) {
            return Err(DecodeConfigError::Grid { x, y });
        }
        let voxel_m = params.voxel_size_m.map(|v| v as f32);
        Ok(Self {
            logit_floors: floors(&gates),
            gates,
            voxel_m,
            cell_m: voxel_m.map(|v| v * params.downsample_factor as f32),
            range_min_m: params.range_min_m.map(|v| v as f32),
            grid: params.grid,
            has_variance: params.has_variance,
            has_twist: params.has_twist,
        })
    }

    /// The same decoder with one score threshold for every bin and class.
    #[must_use]
    pub fn with_score_threshold(mut self, threshold: f64) -> Self {
        self.gates = self.gates.with_score_threshold(threshold);
        self.logit_floors = floors(&self.gates);
        self
    }

    /// The thresholds.
    #[must_use]
    pub const fn gates(&self) -> &Gates {
        &self.gates
    }

    /// Size of a voxel in x and y in metres.
    #[must_use]
    pub const fn voxel_size_m(&self) -> [f32; 2] {
        self.voxel_m
    }

    /// Number of cells.
    #[must_use]
    pub const fn cells(&self) -> usize {
        self.grid[0] * self.grid[1]
    }

    /// Appends the boxes of a frame to `out`, in the order of cells. Allocates only where `out` has to grow.
    ///
    /// # Errors
    /// [`HeadsError`] if the heads are not those of this decoder.
    pub fn decode(&self, heads: &CenterHeads<'_>, out: &mut Vec<Box3d>) -> Result<DecodeCounts, HeadsError> {
        self.check(heads)?;
        if heads.cells != self.cells() {
            return Err(HeadsError::Cells {
                got: heads.cells,
                expected: self.cells(),
            });
        }
        let mut counts = DecodeCounts {
            seen: heads.cells,
            ..DecodeCounts::default()
        };
        let mut looked_at = 0;
        let each = |cell: usize| {
            looked_at += 1;
            self.decode_cell(heads, cell, &mut counts, out);
        };
        if heads.heatmap.is_planar() {
            self.plane_candidates(heads, each);
        } else {
            (0..heads.cells)
                .filter(|&cell| self.row_is_candidate(heads.heatmap.row(cell)))
                .for_each(each);
        }
        counts.below_score += heads.cells - looked_at;
        Ok(counts)
    }

    /// The same arithmetic at chosen cells, dropping none: to compare two devices at the same cells. `values` are the
    /// heads at `cells`, from [`head_values_at`](super::head_values_at).
    ///
    /// # Errors
    /// [`HeadsError`] if the values are not those of this decoder, [`HeadsError::Cells`] for another number of cells.
    pub fn decode_cells(&self, values: &HeadValues, cells: &[u32]) -> Result<Vec<DecodedCell>, HeadsError> {
        let heads = values.heads()?;
        self.check(&heads)?;
        if heads.cells != cells.len() {
            return Err(HeadsError::Cells {
                got: heads.cells,
                expected: cells.len(),
            });
        }
        let decoded = cells.iter().enumerate().map(|(row, &cell)| {
            if cell as usize >= self.cells() {
                return Err(HeadsError::Cell {
                    cell,
                    cells: self.cells(),
                });
            }
            let best = best(&heads, row);
            let (x, y) = self.position(&heads, row, cell as usize);
            let yaw_norm = yaw_norm(&heads, row);
            let distance_bin = self.bin(x, y);
            let decoded = self.assemble(&heads, row, cell, &best, (x, y));
            let score_threshold =
                distance_bin.map_or(f32::INFINITY, |bin| self.gates.score_threshold(bin, best.label));
            let yaw_norm_threshold = self.gates.yaw_norm_thresholds()[best.label];
            Ok(DecodedCell {
                decoded,
                yaw_norm,
                distance_bin,
                score_threshold,
                yaw_norm_threshold,
                passes_score: best.score >= score_threshold && best.score > 0.0,
                passes_yaw_norm: yaw_norm >= yaw_norm_threshold,
                finite: best.finite && all_finite(&heads, row) && decoded.is_finite(),
            })
        });
        decoded.collect()
    }

    fn check(&self, heads: &CenterHeads<'_>) -> Result<(), HeadsError> {
        let twice = if self.has_variance { 2 } else { 1 };
        let vel = if self.has_twist { 2 * twice } else { 0 };
        let classes = self.gates.classes();
        if heads.heatmap.channels() != classes {
            return Err(HeadsError::Channels {
                head: "heatmap",
                got: heads.heatmap.channels(),
                expected: classes,
            });
        }
        for (head, view, expected) in [
            ("offset", &heads.offset, 2 * twice),
            ("z", &heads.z, twice),
            ("dim", &heads.dim, 3 * twice),
            ("rot", &heads.rot, 2 * twice),
            ("vel", &heads.vel, vel),
        ] {
            if view.channels() < expected {
                return Err(HeadsError::Channels {
                    head,
                    got: view.channels(),
                    expected,
                });
            }
        }
        Ok(())
    }

    /// Whether any class of a row may reach its threshold. NaN may: it is then found and counted.
    fn row_is_candidate(&self, row: &[f32]) -> bool {
        row.iter()
            .zip(&self.logit_floors)
            .fold(false, |any, (logit, floor)| any | at_least(*logit, *floor))
    }

    fn plane_candidates(&self, heads: &CenterHeads<'_>, mut each: impl FnMut(usize)) {
        let mut start = 0;
        while start < heads.cells {
            let length = BLOCK.min(heads.cells - start);
            let mut hits = [0_u32; BLOCK];
            for (class, &floor) in self.logit_floors.iter().enumerate() {
                let run = heads.heatmap.run(class, start, length);
                for (hit, &logit) in hits.iter_mut().zip(run) {
                    *hit |= u32::from(at_least(logit, floor));
                }
            }
            if hits.iter().fold(0, |any, hit| any | hit) != 0 {
                for (i, _) in hits[..length].iter().enumerate().filter(|(_, hit)| **hit != 0) {
                    each(start + i);
                }
            }
            start += length;
        }
    }

    fn decode_cell(
        &self,
        heads: &CenterHeads<'_>,
        cell: usize,
        counts: &mut DecodeCounts,
        out: &mut Vec<Box3d>,
    ) {
        let best = best(heads, cell);
        if !best.finite {
            counts.non_finite += 1;
            return;
        }
        // No bin asks for less; most candidates of a block end here.
        if best.score < self.gates.lowest_score(best.label) || best.score <= 0.0 {
            counts.below_score += 1;
            return;
        }
        let (x, y) = self.position(heads, cell, cell);
        if !(x.is_finite() && y.is_finite()) {
            counts.non_finite += 1;
            return;
        }
        let Some(bin) = self.bin(x, y) else {
            counts.out_of_range += 1;
            return;
        };
        if best.score < self.gates.score_threshold(bin, best.label) {
            counts.below_score += 1;
            return;
        }
        let yaw_norm = yaw_norm(heads, cell);
        if yaw_norm < self.gates.yaw_norm_thresholds()[best.label] {
            counts.weak_heading += 1;
            return;
        }
        let decoded = self.assemble(heads, cell, cell as u32, &best, (x, y));
        if !(all_finite(heads, cell) && decoded.is_finite()) {
            counts.non_finite += 1;
            return;
        }
        counts.kept += 1;
        out.push(decoded);
    }

    /// Middle of the box of a cell whose values are in row `row` of the heads.
    fn position(&self, heads: &CenterHeads<'_>, row: usize, cell: usize) -> (f32, f32) {
        let [columns, _] = self.grid;
        let (ix, iy) = ((cell % columns) as f32, (cell / columns) as f32);
        let x = self.cell_m[0] * (ix + heads.offset.at(0, row)) + self.range_min_m[0];
        let y = self.cell_m[1] * (iy + heads.offset.at(1, row)) + self.range_min_m[1];
        (x, y)
    }

    fn bin(&self, x: f32, y: f32) -> Option<usize> {
        let distance = (x * x + y * y).sqrt();
        self.gates
            .bin_limits_m()
            .iter()
            .position(|&limit| distance < limit)
    }

    fn assemble(
        &self,
        heads: &CenterHeads<'_>,
        row: usize,
        cell: u32,
        best: &Best,
        (x, y): (f32, f32),
    ) -> Box3d {
        let dim = |channel| exp(heads.dim.at(channel, row));
        let (sin, cos) = (heads.rot.at(0, row), heads.rot.at(1, row));
        let velocity_mps = if heads.vel.channels() >= 2 {
            [heads.vel.at(0, row), heads.vel.at(1, row)]
        } else {
            [0.0; 2]
        };
        Box3d {
            label: best.label as u32,
            score: best.score,
            entropy: if self.has_variance {
                entropy(heads, row)
            } else {
                0.0
            },
            position_m: [x, y, heads.z.at(0, row)],
            size_m: [dim(1), dim(0), dim(2)],
            yaw_rad: atan2(sin, cos),
            velocity_mps,
            variance: self.has_variance.then(|| self.variance(heads, row, sin, cos)),
            cell,
        }
    }

    fn variance(&self, heads: &CenterHeads<'_>, row: usize, sin: f32, cos: f32) -> Box3dVariance {
        let of = |view: &super::HeadView<'_>, channel| exp(view.at(channel, row));
        let (sin_sq, cos_sq) = (sin * sin, cos * cos);
        let norm_sq = (sin_sq + cos_sq) * (sin_sq + cos_sq);
        let yaw_rad2 = (cos_sq * of(&heads.rot, 2) + sin_sq * of(&heads.rot, 3)) / norm_sq;
        let velocity_m2ps2 = if heads.vel.channels() >= 4 {
            [of(&heads.vel, 2), of(&heads.vel, 3)]
        } else {
            [0.0; 2]
        };
        Box3dVariance {
            // The cell size in x for y too, as the kernel has it.
            position_m2: [
                self.cell_m[0] * of(&heads.offset, 2),
                self.cell_m[0] * of(&heads.offset, 3),
                of(&heads.z, 1),
            ],
            log_size: [of(&heads.dim, 4), of(&heads.dim, 3), of(&heads.dim, 5)],
            yaw_rad2,
            velocity_m2ps2,
        }
    }
}

/// `logit >= floor`, and true for NaN.
fn at_least(logit: f32, floor: f32) -> bool {
    logit >= floor || logit.is_nan()
}

fn floors(gates: &Gates) -> Vec<f32> {
    (0..gates.classes())
        .map(|label| logit_floor(gates.lowest_score(label)))
        .collect()
}

fn best(heads: &CenterHeads<'_>, row: usize) -> Best {
    let mut best = Best {
        label: 0,
        score: -1.0,
        finite: true,
    };
    for label in 0..heads.heatmap.channels() {
        let logit = heads.heatmap.at(label, row);
        best.finite &= logit < f32::INFINITY;
        let score = sigmoid(logit);
        if score > best.score {
            best.label = label;
            best.score = score;
        }
    }
    best
}

/// Whether the heads other than the heatmap hold numbers only. A logarithm of minus infinity would pass as a size of zero.
fn all_finite(heads: &CenterHeads<'_>, row: usize) -> bool {
    let views = [&heads.offset, &heads.z, &heads.dim, &heads.rot, &heads.vel];
    views
        .iter()
        .all(|view| (0..view.channels()).all(|channel| view.at(channel, row).is_finite()))
}

fn yaw_norm(heads: &CenterHeads<'_>, row: usize) -> f32 {
    let (sin, cos) = (heads.rot.at(0, row), heads.rot.at(1, row));
    (sin * sin + cos * cos).sqrt()
}

/// Sum over classes of `H(p) / ln 2` with p = the logit itself, held between 1e-6 and 1 - 1e-6: the kernel takes the
/// heatmap before the sigmoid here, and so do we, or numbers would not agree.
fn entropy(heads: &CenterHeads<'_>, row: usize) -> f32 {
    const EPSILON: f32 = 1.0e-6;
    (0..heads.heatmap.channels()).fold(0.0, |sum, label| {
        let p = heads.heatmap.at(label, row).clamp(EPSILON, 1.0 - EPSILON);
        sum + (-p * ln(p) - (1.0 - p) * ln(1.0 - p)) * std::f32::consts::LOG2_E
    })
}
