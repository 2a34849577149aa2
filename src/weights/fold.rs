//! Batch normalisation folded into the convolution before it.

/// Parameters of a batch normalisation at inference, one value per channel.
#[derive(Debug, Clone, Copy)]
pub struct BatchNorm<'a> {
    /// Scale (gamma).
    pub scale: &'a [f32],
    /// Shift (beta).
    pub shift: &'a [f32],
    /// Running mean.
    pub mean: &'a [f32],
    /// Running variance.
    pub variance: &'a [f32],
    /// Added to the variance.
    pub epsilon: f32,
}

/// Parameters that do not belong together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FoldError {
    /// A parameter of another length than the number of channels.
    #[error("{what} has {found} values, the convolution has {channels} output channels")]
    Channels {
        /// Which parameter.
        what: &'static str,
        /// Its length.
        found: usize,
        /// Output channels of the convolution.
        channels: usize,
    },
    /// Weights that cannot be divided among the channels.
    #[error("{weights} weights cannot be divided among {channels} output channels")]
    Weights {
        /// Number of weights.
        weights: usize,
        /// Output channels.
        channels: usize,
    },
}

impl BatchNorm<'_> {
    /// Factor and shift per channel, `y = factor * x + shift`, in float64:
    /// `factor = scale / sqrt(variance + epsilon)`, `shift = shift - mean * factor`.
    ///
    /// # Errors
    /// [`FoldError::Channels`] if a parameter does not have `channels` values.
    pub fn affine(&self, channels: usize) -> Result<Vec<(f64, f64)>, FoldError> {
        let named = [
            ("scale", self.scale),
            ("shift", self.shift),
            ("mean", self.mean),
            ("variance", self.variance),
        ];
        if let Some((what, values)) = named.into_iter().find(|(_, v)| v.len() != channels) {
            return Err(FoldError::Channels {
                what,
                found: values.len(),
                channels,
            });
        }
        let affine = (0..channels).map(|c| {
            let factor =
                f64::from(self.scale[c]) / (f64::from(self.variance[c]) + f64::from(self.epsilon)).sqrt();
            (
                factor,
                f64::from(self.shift[c]) - f64::from(self.mean[c]) * factor,
            )
        });
        Ok(affine.collect())
    }
}

/// Weights and bias of one convolution that does what a convolution followed by a batch normalisation does.
/// `weight` is `[Cout, ...]` row-major with `Cout` the number of normalised channels, `bias` has one value
/// per output channel (absent: zeros). Computed in float64 and rounded to f32 once.
///
/// # Errors
/// [`FoldError`] if the lengths do not fit each other.
pub fn fold_bn_conv(
    weight: &[f32],
    bias: Option<&[f32]>,
    norm: &BatchNorm<'_>,
) -> Result<(Vec<f32>, Vec<f32>), FoldError> {
    let channels = norm.scale.len();
    let affine = norm.affine(channels)?;
    if let Some(bias) = bias
        && bias.len() != channels
    {
        return Err(FoldError::Channels {
            what: "bias",
            found: bias.len(),
            channels,
        });
    }
    if channels == 0 || !weight.len().is_multiple_of(channels) {
        return Err(FoldError::Weights {
            weights: weight.len(),
            channels,
        });
    }
    let per_channel = weight.len() / channels;
    let folded_weight = weight
        .iter()
        .enumerate()
        .map(|(i, &w)| (f64::from(w) * affine[i / per_channel].0) as f32)
        .collect();
    let folded_bias = affine
        .iter()
        .enumerate()
        .map(|(c, &(factor, shift))| (bias.map_or(0.0, |b| f64::from(b[c])) * factor + shift) as f32)
        .collect();
    Ok((folded_weight, folded_bias))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn folding_equals_normalising_the_convolution_in_float64() {
        let (scale, shift) = ([0.5_f32, -2.0], [0.25_f32, 1.0]);
        let (mean, variance) = ([3.0_f32, -0.125], [0.7_f32, 1e-4]);
        let norm = BatchNorm {
            scale: &scale,
            shift: &shift,
            mean: &mean,
            variance: &variance,
            epsilon: 1e-3,
        };
        let (weight, bias) = ([1.0_f32, 2.0, 3.0, -1.0, 0.5, 0.1], [0.3_f32, -0.7]);
        let (folded_weight, folded_bias) = fold_bn_conv(&weight, Some(&bias), &norm).unwrap();
        let x = [0.9_f64, -1.7, 0.33];
        for c in 0..2 {
            let dot = |w: &[f32]| (0..3).map(|k| f64::from(w[3 * c + k]) * x[k]).sum::<f64>();
            let conv = dot(&weight) + f64::from(bias[c]);
            let deviation = (f64::from(variance[c]) + f64::from(1e-3_f32)).sqrt();
            let expected =
                (conv - f64::from(mean[c])) / deviation * f64::from(scale[c]) + f64::from(shift[c]);
            let found = dot(&folded_weight) + f64::from(folded_bias[c]);
            assert!(
                (found - expected).abs() <= 4e-7 * expected.abs(),
                "{found} {expected}"
            );
        }
        // Rounded once: the first factor is 0.5 / sqrt(0.7 + 0.001).
        let exact = 0.5 / (f64::from(0.7_f32) + f64::from(1e-3_f32)).sqrt();
        assert_eq!(folded_weight[2].to_bits(), ((3.0 * exact) as f32).to_bits());
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        let ones = [1.0_f32; 2];
        let norm = BatchNorm {
            scale: &ones,
            shift: &ones,
            mean: &ones[..1],
            variance: &ones,
            epsilon: 0.0,
        };
        let found = fold_bn_conv(&[1.0; 4], None, &norm);
        assert!(matches!(found, Err(FoldError::Channels { what: "mean", .. })));
        let norm = BatchNorm { mean: &ones, ..norm };
        assert!(matches!(
            fold_bn_conv(&[1.0; 3], None, &norm),
            Err(FoldError::Weights { .. })
        ));
    }
}
