//! From a network's output to detections: the decoder of a family, then suppression.

use std::sync::{Mutex, PoisonError};

use super::{
    BoxExtent, Candidate, FastestDetHead, HeadError, NmsMode, NmsParams, ScoreRule, SelectionParams,
    YoloxHead, select,
};
use crate::image::BackMap;
use crate::outputs::Detection2D;

/// Candidates that are looked at; bounds the time that a bad frame can take.
const MAX_CANDIDATES: usize = 30_000;

/// Family of a detector's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadKind {
    /// `[1, cells, 5 + classes]` of three grids.
    Yolox,
    /// `[1, 5 + classes, rows, columns]`.
    FastestDet,
}

/// What is reported.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// Lowest score, 0 to 1.
    pub score: f32,
    /// Largest overlap of two boxes of a class, 0 to 1.
    pub nms_iou: f32,
    /// Most detections of one image.
    pub max_detections: usize,
}

/// Decodes the output of one network.
#[derive(Debug)]
pub struct Head {
    decoder: Decoder,
    thresholds: Thresholds,
    /// Memory of finished decodes, to be used again.
    spare: Mutex<Vec<Vec<Candidate>>>,
}

#[derive(Debug)]
enum Decoder {
    Yolox(YoloxHead),
    FastestDet(FastestDetHead),
}

impl Head {
    /// A head for outputs of dimensions `dims` of a network that takes `input_px` (width, height).
    ///
    /// # Errors
    /// [`HeadError`] if the dimensions are not those of the family.
    pub fn new(
        kind: HeadKind,
        input_px: [usize; 2],
        dims: &[usize],
        thresholds: Thresholds,
    ) -> Result<Self, HeadError> {
        let decoder = match kind {
            HeadKind::Yolox => Decoder::Yolox(YoloxHead::new(input_px, dims)?),
            HeadKind::FastestDet => {
                Decoder::FastestDet(FastestDetHead::new(input_px, dims, ScoreRule::Weighted)?)
            }
        };
        Ok(Self {
            decoder,
            thresholds,
            spare: Mutex::new(Vec::new()),
        })
    }

    /// Number of classes.
    #[must_use]
    pub fn classes(&self) -> usize {
        match &self.decoder {
            Decoder::Yolox(head) => head.classes(),
            Decoder::FastestDet(head) => head.classes(),
        }
    }

    /// What is reported.
    #[must_use]
    pub const fn thresholds(&self) -> Thresholds {
        self.thresholds
    }

    /// The objects in an output, in pixels of the source image, best first.
    ///
    /// # Errors
    /// [`HeadError::Length`].
    pub fn decode(&self, output: &[f32], back: &BackMap) -> Result<Vec<Detection2D>, HeadError> {
        self.decode_with(output, back, self.thresholds)
    }

    /// As [`Self::decode`] with other thresholds.
    ///
    /// # Errors
    /// [`HeadError::Length`].
    pub fn decode_with(
        &self,
        output: &[f32],
        back: &BackMap,
        thresholds: Thresholds,
    ) -> Result<Vec<Detection2D>, HeadError> {
        let Thresholds {
            score,
            nms_iou,
            max_detections,
        } = thresholds;
        let mode = NmsMode::ClassAware;
        let mut candidates = self
            .spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
            .unwrap_or_default();
        candidates.clear();
        let decoded = match &self.decoder {
            Decoder::Yolox(head) => head.decode(output, score, mode, &mut candidates)?,
            Decoder::FastestDet(head) => head.decode(output, score, &mut candidates)?,
        };
        if decoded.malformed > 0 {
            tracing::debug!(
                malformed = decoded.malformed,
                "the network's output holds impossible boxes"
            );
        }
        let params = SelectionParams {
            nms: NmsParams {
                iou_threshold: nms_iou,
                mode,
                extent: BoxExtent::InclusivePixels,
                max_candidates: MAX_CANDIDATES,
            },
            max_detections,
        };
        let (detections, _) = select(&mut candidates, &params, back);
        self.spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(candidates);
        Ok(detections)
    }
}
