//! What can be chosen of a preset.

use super::super::{ChannelOrder, Contraction, ImageError, Layout, PresetOption, SampleType};
use super::Preset;

/// Departures from what is deployed. Everything left out is as deployed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PresetOptions {
    /// Width and height of the network's input in pixels.
    pub target_px: Option<[usize; 2]>,
    /// Order of the axes.
    pub layout: Option<Layout>,
    /// Type of the values.
    pub samples: Option<SampleType>,
    /// Order of the channels.
    pub order: Option<ChannelOrder>,
    /// How float blends are rounded, where a preset has any.
    pub contraction: Option<Contraction>,
    /// Pixels of the resized frame for each of the frame, along x and y, where that is a parameter of the preset:
    /// BEVFusion's `img_aug_scale_x` and `img_aug_scale_y`.
    pub scale: Option<[f32; 2]>,
}

impl PresetOptions {
    /// Everything as deployed.
    pub const DEPLOYED: Self = Self {
        target_px: None,
        layout: None,
        samples: None,
        order: None,
        contraction: None,
        scale: None,
    };

    /// Refuses what `preset` cannot do.
    ///
    /// # Errors
    /// [`ImageError::PresetOption`].
    pub fn check(&self, preset: Preset) -> Result<(), ImageError> {
        let refuse = |option, reason: String| ImageError::PresetOption {
            preset: preset.name(),
            option,
            reason,
        };
        if self.samples == Some(SampleType::U8) && preset.computes_in_float() {
            return Err(refuse(
                PresetOption::Samples,
                "values are floats, which uint8 cannot hold; take bf16 or fp32".to_owned(),
            ));
        }
        if self.contraction.is_some() && !preset.has_contraction() {
            return Err(refuse(
                PresetOption::Contraction,
                "no floats are blended, so there is no contraction to choose".to_owned(),
            ));
        }
        if self.scale.is_some() && !preset.takes_scale() {
            return Err(refuse(
                PresetOption::Scale,
                "the scale is no parameter of it".to_owned(),
            ));
        }
        match (self.target_px, preset) {
            (Some(_), _) if !preset.takes_target() => Err(refuse(
                PresetOption::Target,
                "the size of the input is fixed".to_owned(),
            )),
            (None, _) if preset.deployed_px().is_none() => Err(refuse(
                PresetOption::Target,
                "the size of the input has to be given".to_owned(),
            )),
            _ => Ok(()),
        }
    }
}
