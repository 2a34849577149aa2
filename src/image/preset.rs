//! Pre-processing by name, as pipeline files spell it.

use super::{ImageError, LetterboxPlan};

/// A named way of preparing frames, fixed by how a family of public weights was trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Preset {
    /// The public YOLOX weights: aspect ratio kept, image top left, padded with 114, blue-green-red bytes
    /// 0 to 255, resized as OpenCV's `INTER_LINEAR`.
    YoloxOpencv,
    /// Both sides scaled to the target, no padding, blue-green-red bytes 0 to 255, resized as OpenCV's
    /// `INTER_LINEAR`: what FastestDet takes (after a division by 255).
    StretchOpencv,
}

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 2] = [Self::YoloxOpencv, Self::StretchOpencv];

    /// The preset of that name.
    ///
    /// # Errors
    /// [`ImageError::UnknownPreset`], which lists the known names.
    pub fn from_name(name: &str) -> Result<Self, ImageError> {
        Self::ALL
            .into_iter()
            .find(|preset| preset.name() == name)
            .ok_or_else(|| ImageError::UnknownPreset {
                name: name.to_owned(),
                known: Self::ALL.map(Self::name).join(", "),
            })
    }

    /// The name that pipeline files use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::YoloxOpencv => "yolox_opencv",
            Self::StretchOpencv => "stretch_opencv",
        }
    }

    /// The plan for frames of one size.
    ///
    /// # Errors
    /// As [`LetterboxPlan::new`].
    pub fn plan(
        self,
        source_width: usize,
        source_height: usize,
        target_width: usize,
        target_height: usize,
    ) -> Result<LetterboxPlan, ImageError> {
        let make = match self {
            Self::YoloxOpencv => LetterboxPlan::new,
            Self::StretchOpencv => LetterboxPlan::stretch,
        };
        make(source_width, source_height, target_width, target_height)
    }
}
