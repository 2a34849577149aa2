//! Average precision, in the form of nuScenes' devkit and in the plain one.

/// Steps of recall at which nuScenes samples precision: 0, 0.01, .. 1.
const STEPS: usize = 101;

/// Precision against recall, one point a detection, best score first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PrecisionRecall {
    precision: Vec<f64>,
    recall: Vec<f64>,
    hits: usize,
}

impl PrecisionRecall {
    /// The curve of detections that are hits or not, best score first, of `objects` objects (1 or more).
    #[must_use]
    pub fn new(hits: impl IntoIterator<Item = bool>, objects: usize) -> Self {
        let mut curve = Self::default();
        for (i, hit) in hits.into_iter().enumerate() {
            curve.hits += usize::from(hit);
            curve.precision.push(curve.hits as f64 / (i + 1) as f64);
            curve.recall.push(curve.hits as f64 / objects as f64);
        }
        curve
    }

    /// Hits among the detections.
    #[must_use]
    pub const fn hits(&self) -> usize {
        self.hits
    }

    /// Largest share of the objects that was found.
    #[must_use]
    pub fn recall(&self) -> f64 {
        self.recall.last().copied().unwrap_or(0.0)
    }

    /// Average precision as nuScenes' devkit has it: precision at 101 steps of recall by linear interpolation (0 beyond
    /// the largest recall), steps up to `min_recall` left out, `min_precision` taken off and the rest scaled to 0 to 1.
    #[must_use]
    pub fn nuscenes_ap(&self, min_recall: f64, min_precision: f64) -> f64 {
        if self.hits == 0 {
            return 0.0;
        }
        let first = ((100.0 * min_recall).round_ties_even() as usize + 1).min(STEPS);
        let steps = (first..STEPS).map(|step| {
            let recall = if step + 1 == STEPS {
                1.0
            } else {
                step as f64 * 0.01
            };
            (interpolate(recall, &self.recall, &self.precision) - min_precision).max(0.0)
        });
        let count = STEPS - first;
        if count == 0 {
            return 0.0;
        }
        // Rounding may end above 1.
        (steps.sum::<f64>() / count as f64 / (1.0 - min_precision)).min(1.0)
    }

    /// The area under the curve, all points and nothing clipped: every hit adds its step of recall times the best
    /// precision at that recall or beyond (Pascal VOC since 2010).
    #[must_use]
    pub fn all_point_ap(&self) -> f64 {
        let mut area = 0.0;
        let mut best: f64 = 0.0;
        for i in (0..self.precision.len()).rev() {
            best = best.max(self.precision[i]);
            let before = if i == 0 { 0.0 } else { self.recall[i - 1] };
            area += (self.recall[i] - before) * best;
        }
        area
    }
}

/// The piecewise linear function through (`xs`, `ys`) at `x`, as `numpy.interp(x, xs, ys, right=0)` has it: `xs` does not
/// fall; of equal ones the last counts from there on; before the first its value, beyond the last 0.
#[must_use]
pub fn interpolate(x: f64, xs: &[f64], ys: &[f64]) -> f64 {
    let after = xs.partition_point(|&v| v <= x);
    let Some(at) = after.checked_sub(1) else {
        return ys.first().copied().unwrap_or(0.0);
    };
    match (xs.get(after), ys.get(after)) {
        (Some(next_x), Some(next_y)) if xs[at] < x => {
            let slope = (next_y - ys[at]) / (next_x - xs[at]);
            slope * (x - xs[at]) + ys[at]
        }
        (None, _) if x > xs[at] => 0.0,
        _ => ys[at],
    }
}
