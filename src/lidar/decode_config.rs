//! What decides which cells of a head become boxes, with the rules of Autoware's configuration.

/// Why parameters make no decoder.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DecodeConfigError {
    /// No class at all.
    #[error("class_names is empty; name the classes of the head in its order")]
    NoClasses,
    /// No distance bin.
    #[error(
        "distance_bin_upper_limits is empty; give at least one upper limit in metres, such as [200.0] (packages before \
         distance bins have score_threshold instead)"
    )]
    NoBins,
    /// Bins that do not ascend.
    #[error(
        "distance_bin_upper_limits[{index}] = {value} does not ascend; sort the limits and leave NaN out"
    )]
    Bins {
        /// Place in the list.
        index: usize,
        /// The limit there.
        value: f64,
    },
    /// Thresholds for another number of bins and classes.
    #[error(
        "{got} score thresholds for {bins} distance bins and {classes} classes; give one for every bin of every class \
         ({expected})"
    )]
    ScoreThresholds {
        /// Thresholds given.
        got: usize,
        /// Thresholds needed.
        expected: usize,
        /// Bins.
        bins: usize,
        /// Classes.
        classes: usize,
    },
    /// Yaw thresholds for another number of classes.
    #[error(
        "{got} yaw_norm_thresholds for {expected} classes; give one for every class, 0 to trust any heading"
    )]
    YawThresholds {
        /// Thresholds given.
        got: usize,
        /// Classes.
        expected: usize,
    },
    /// A grid without cells, or with more than can be counted.
    #[error(
        "a grid of {x} x {y} cells cannot be decoded; check point_cloud_range, voxel_size and downsample_factor"
    )]
    Grid {
        /// Cells in x.
        x: usize,
        /// Cells in y.
        y: usize,
    },
}

/// Score thresholds by class and distance, and heading thresholds by class.
#[derive(Debug, Clone, PartialEq)]
pub struct Gates {
    classes: usize,
    bin_limits_m: Vec<f32>,
    /// `[bins, classes]`.
    score: Vec<f32>,
    yaw_norm: Vec<f32>,
}

impl Gates {
    /// Gates for `classes` classes. `score` is `[bins, classes]`. As Autoware does, values go to float32, and thresholds
    /// outside 0 to below 1 become 0.
    ///
    /// # Errors
    /// [`DecodeConfigError`].
    pub fn new(
        classes: usize,
        bin_limits_m: &[f64],
        score: &[f64],
        yaw_norm: &[f64],
    ) -> Result<Self, DecodeConfigError> {
        if classes == 0 {
            return Err(DecodeConfigError::NoClasses);
        }
        if bin_limits_m.is_empty() {
            return Err(DecodeConfigError::NoBins);
        }
        let mut last = f64::NEG_INFINITY;
        for (index, &value) in bin_limits_m.iter().enumerate() {
            if value.is_nan() || value < last {
                return Err(DecodeConfigError::Bins { index, value });
            }
            last = value;
        }
        let bins = bin_limits_m.len();
        let expected = bins.saturating_mul(classes);
        if score.len() != expected {
            return Err(DecodeConfigError::ScoreThresholds {
                got: score.len(),
                expected,
                bins,
                classes,
            });
        }
        if yaw_norm.len() != classes {
            return Err(DecodeConfigError::YawThresholds {
                got: yaw_norm.len(),
                expected: classes,
            });
        }
        Ok(Self {
            classes,
            bin_limits_m: bin_limits_m.iter().map(|&v| v as f32).collect(),
            score: score.iter().map(|&v| coerced(v)).collect(),
            yaw_norm: yaw_norm.iter().map(|&v| coerced(v)).collect(),
        })
    }

    /// Gates from Autoware's `min_confidence_scores`: one list of thresholds a class, one threshold a bin.
    ///
    /// # Errors
    /// [`DecodeConfigError`].
    pub fn from_class_lists<L: AsRef<[f64]>>(
        bin_limits_m: &[f64],
        class_scores: &[L],
        yaw_norm: &[f64],
    ) -> Result<Self, DecodeConfigError> {
        let (classes, bins) = (class_scores.len(), bin_limits_m.len());
        if let Some(wrong) = class_scores.iter().find(|list| list.as_ref().len() != bins)
            && bins > 0
        {
            return Err(DecodeConfigError::ScoreThresholds {
                got: wrong.as_ref().len(),
                expected: bins,
                bins,
                classes: 1,
            });
        }
        let score: Vec<f64> = (0..bins)
            .flat_map(|bin| class_scores.iter().map(move |list| list.as_ref()[bin]))
            .collect();
        Self::new(classes, bin_limits_m, &score, yaw_norm)
    }

    /// The same gates with one score threshold for every bin and class (0 where it is outside 0 to below 1).
    #[must_use]
    pub fn with_score_threshold(mut self, threshold: f64) -> Self {
        self.score.fill(coerced(threshold));
        self
    }

    /// Number of classes.
    #[must_use]
    pub const fn classes(&self) -> usize {
        self.classes
    }

    /// Upper limits of the distance bins in metres, ascending; a limit is outside its bin.
    #[must_use]
    pub fn bin_limits_m(&self) -> &[f32] {
        &self.bin_limits_m
    }

    /// Score thresholds `[bins, classes]`.
    #[must_use]
    pub fn score_thresholds(&self) -> &[f32] {
        &self.score
    }

    /// Threshold of a class in a bin.
    pub(super) fn score_threshold(&self, bin: usize, label: usize) -> f32 {
        self.score[bin * self.classes + label]
    }

    /// Shortest heading vector of each class.
    #[must_use]
    pub fn yaw_norm_thresholds(&self) -> &[f32] {
        &self.yaw_norm
    }

    /// Lowest score threshold of a class in any bin.
    pub(super) fn lowest_score(&self, label: usize) -> f32 {
        self.score
            .iter()
            .skip(label)
            .step_by(self.classes)
            .copied()
            .fold(f32::INFINITY, f32::min)
    }
}

/// A threshold in float32, 0 unless it is from 0 to below 1.
pub(super) fn coerced(threshold: f64) -> f32 {
    let value = threshold as f32;
    if (0.0..1.0).contains(&value) { value } else { 0.0 }
}
