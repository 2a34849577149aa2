//! Classes corrected by the area of the box, as Autoware's `DetectionClassRemapper` does.

use serde::Deserialize;

use crate::outputs::{DetectedObject, ObjectLabel};

/// Classes in the order of their numbers.
const LABELS: [ObjectLabel; 8] = [
    ObjectLabel::Unknown,
    ObjectLabel::Car,
    ObjectLabel::Truck,
    ObjectLabel::Bus,
    ObjectLabel::Trailer,
    ObjectLabel::Motorcycle,
    ObjectLabel::Bicycle,
    ObjectLabel::Pedestrian,
];

/// The parameters of Autoware's `detection_class_remapper.param.yaml`: square matrices, row by row. Row: the class that
/// the network says; column: the class that it may become. `Default` changes no class.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct RemapParams {
    /// Not 0 where a class may become another.
    pub allow_remapping_by_area_matrix: Vec<i64>,
    /// Smallest area of the box in m², inclusive.
    pub min_area_matrix: Vec<f64>,
    /// Largest area in m², inclusive.
    pub max_area_matrix: Vec<f64>,
}

/// Why parameters make no remapper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RemapError {
    /// No matrix.
    #[error("allow_remapping_by_area_matrix is empty; give 64 values, 8 rows of 8 classes")]
    Empty,
    /// Matrices of different sizes.
    #[error(
        "{name} has {got} values, allow_remapping_by_area_matrix has {expected}; all three need the same number"
    )]
    Length {
        /// The other matrix.
        name: &'static str,
        /// Its values.
        got: usize,
        /// Those of the first.
        expected: usize,
    },
    /// A number of values that is no square.
    #[error(
        "allow_remapping_by_area_matrix has {got} values, which make no square; give 64, 8 rows of 8 classes"
    )]
    Square {
        /// Values.
        got: usize,
    },
    /// More classes than there are.
    #[error("the remapping matrices have {got} classes, there are {}; give 64 values, 8 rows of 8 classes", LABELS.len())]
    Classes {
        /// Classes.
        got: usize,
    },
}

/// Changes the class of a box by its area.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassRemapper {
    classes: usize,
    /// `[from, to]`: smallest and largest area, where the change is allowed.
    areas_m2: Vec<Option<(f64, f64)>>,
}

impl ClassRemapper {
    /// A remapper of Autoware's lists.
    ///
    /// # Errors
    /// [`RemapError`].
    pub fn new(params: &RemapParams) -> Result<Self, RemapError> {
        let allow = &params.allow_remapping_by_area_matrix;
        let (smallest, largest) = (&params.min_area_matrix, &params.max_area_matrix);
        let expected = allow.len();
        if expected == 0 {
            return Err(RemapError::Empty);
        }
        for (name, list) in [("min_area_matrix", smallest), ("max_area_matrix", largest)] {
            if list.len() != expected {
                return Err(RemapError::Length {
                    name,
                    got: list.len(),
                    expected,
                });
            }
        }
        let classes = expected.isqrt();
        if classes * classes != expected {
            return Err(RemapError::Square { got: expected });
        }
        if classes > LABELS.len() {
            return Err(RemapError::Classes { got: classes });
        }
        // What is no number is as large as can be, on both sides, as Autoware has it.
        let bound = |area: f64| if area.is_finite() { area } else { f64::MAX };
        let areas_m2 = allow
            .iter()
            .zip(smallest.iter().zip(largest))
            .map(|(&allow, (&smallest, &largest))| (allow != 0).then(|| (bound(smallest), bound(largest))))
            .collect();
        Ok(Self { classes, areas_m2 })
    }

    /// The class of a box: the first one allowed for its area `float32(length * width)`, or its own.
    #[must_use]
    pub fn remap(&self, label: ObjectLabel, length_m: f64, width_m: f64) -> ObjectLabel {
        let row = label as usize * self.classes;
        if label as usize >= self.classes {
            return label;
        }
        let area = f64::from((length_m * width_m) as f32);
        let allowed = |bounds: &Option<(f64, f64)>| {
            bounds.is_some_and(|(smallest, largest)| area >= smallest && area <= largest)
        };
        self.areas_m2[row..row + self.classes]
            .iter()
            .position(allowed)
            .map_or(label, |to| LABELS[to])
    }

    /// Changes the classes of `objects`; returns how many changed.
    pub fn apply(&self, objects: &mut [DetectedObject]) -> usize {
        let mut changed = 0;
        for object in objects {
            let label = self.remap(object.label, object.size_m[0], object.size_m[1]);
            changed += usize::from(label != object.label);
            object.label = label;
        }
        changed
    }
}
