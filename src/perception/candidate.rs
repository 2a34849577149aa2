//! What a decoded head is made of, and what can be wrong with a head.

/// Largest magnitude of a coordinate that is taken for a box, in pixels. Far beyond any image, and small
/// enough that areas stay finite in single precision.
pub const MAX_COORDINATE_PX: f32 = 1e9;

/// One box that a head proposes, before suppression.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Left, top, right, bottom in pixels; of the detector input as decoders write it.
    pub box_xyxy: [f32; 4],
    /// Confidence, 0 to 1.
    pub score: f32,
    /// Index into the class names.
    pub label_id: u32,
    /// Index of the head cell that proposed it; settles the order of equal scores.
    pub cell: u32,
}

/// What a decoder did with the cells of one head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DecodeCounts {
    /// Cells with at least one candidate.
    pub cells: usize,
    /// Candidates that scored high enough but were refused: a score above 1, a coordinate that is not a
    /// number or beyond [`MAX_COORDINATE_PX`], no width or no height. Not zero means that the network's
    /// output is broken.
    pub malformed: usize,
}

/// A head that does not have the form its decoder reads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeadError {
    /// The output tensor has other dimensions.
    #[error("head of shape {found:?} is not {expected}")]
    Shape {
        /// What was required, in words.
        expected: String,
        /// Dimensions found.
        found: Vec<usize>,
    },
    /// The detector input cannot be divided into the grids that the strides ask for.
    #[error("input of {} x {} px is not a multiple of stride {stride}", input_px[0], input_px[1])]
    Input {
        /// Width and height of the detector input in pixels.
        input_px: [usize; 2],
        /// The stride that does not divide it.
        stride: usize,
    },
    /// The frame was prepared for another kind of model.
    #[error("the frame was prepared for another kind of model")]
    Placement,
    /// Parameters of the call that do not fit the model.
    #[error("{0}")]
    Params(String),
    /// The slice is shorter or longer than the head.
    #[error("head has {expected} values, found {found}")]
    Length {
        /// Values that the shape needs.
        expected: usize,
        /// Values given.
        found: usize,
    },
}

impl Candidate {
    /// The candidate, if it is one: a score of 0 to 1, finite coordinates, an area.
    pub(super) fn checked(box_xyxy: [f32; 4], score: f32, label_id: u32, cell: u32) -> Option<Self> {
        let [x1, y1, x2, y2] = box_xyxy;
        let in_range = box_xyxy.iter().all(|v| v.abs() <= MAX_COORDINATE_PX);
        // Written so that a NaN fails every comparison.
        (in_range && (0.0..=1.0).contains(&score) && x2 > x1 && y2 > y1).then_some(Self {
            box_xyxy,
            score,
            label_id,
            cell,
        })
    }
}
