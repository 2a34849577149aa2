//! Batch normalisation folded into the layer before it, in float64.

use super::BatchNorm;
use super::batchnorm::Along;

/// Parameters that do not belong together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FoldError {
    /// A parameter of another length than the number of channels.
    #[error("{what} has {found} values, the layer has {channels} output channels")]
    Channels {
        /// Which parameter.
        what: &'static str,
        /// Its length.
        found: usize,
        /// Output channels of the layer.
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
    /// A shape that is not that of the values, or lacks the axis of the channels.
    #[error("{values} values are no array of shape {dims:?} with channels along axis {axis}")]
    Shape {
        /// Number of values.
        values: usize,
        /// The shape.
        dims: Vec<usize>,
        /// The axis.
        axis: usize,
    },
    /// Groups that do not divide the channels.
    #[error("{channels} input channels cannot be divided into {groups} groups")]
    Groups {
        /// Input channels of the layer.
        channels: usize,
        /// Its groups.
        groups: usize,
    },
}

/// How the weights of a linear layer lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinearLayout {
    /// `[Cout, Cin]`: PyTorch's `Linear`, ONNX's `Gemm` with `transB`.
    OutIn,
    /// `[Cin, Cout]`: `MatMul`, `Gemm` without `transB`.
    InOut,
}

/// Weights and bias in float64 of one layer that does what a layer followed by a batch normalisation does; the
/// layer's output channels run along `axis` of its weights of shape `dims`. For whoever rounds to the type of a
/// device: that rounding is then the only one. An absent bias is zeros.
///
/// # Errors
/// [`FoldError`] if the lengths do not fit each other.
pub fn fold_bn(
    weight: &[f64],
    dims: &[usize],
    bias: Option<&[f64]>,
    norm: &BatchNorm,
    axis: usize,
) -> Result<(Vec<f64>, Vec<f64>), FoldError> {
    let along = Along::new(weight.len(), dims, axis)?;
    let affine = norm.affine(along.channels)?;
    let folded = weight.iter().enumerate();
    let folded = folded.map(|(i, &w)| w * affine[along.channel(i)].0).collect();
    Ok((folded, folded_bias(bias, &affine)?))
}

/// Weights and bias of one convolution that does what a convolution followed by a batch normalisation does.
/// `weight` is `[Cout, Cin / groups, ...]` row-major, for any number of groups and of dimensions, with `Cout` the
/// number of normalised channels; `bias` has one value per output channel (absent: zeros). Computed in float64 and
/// rounded to f32 once.
///
/// # Errors
/// [`FoldError`] if the lengths do not fit each other.
pub fn fold_bn_conv(
    weight: &[f32],
    bias: Option<&[f32]>,
    norm: &BatchNorm,
) -> Result<(Vec<f32>, Vec<f32>), FoldError> {
    let channels = norm.channels();
    if channels == 0 || !weight.len().is_multiple_of(channels) {
        return Err(FoldError::Weights {
            weights: weight.len(),
            channels,
        });
    }
    let per_channel = weight.len() / channels;
    rounded(weight, bias, norm, channels, |i| i / per_channel)
}

/// As [`fold_bn_conv`] for a linear layer whose weights have the shape `dims`.
///
/// # Errors
/// [`FoldError`] if the lengths do not fit each other.
pub fn fold_bn_linear(
    weight: &[f32],
    dims: [usize; 2],
    bias: Option<&[f32]>,
    norm: &BatchNorm,
    layout: LinearLayout,
) -> Result<(Vec<f32>, Vec<f32>), FoldError> {
    let axis = match layout {
        LinearLayout::OutIn => 0,
        LinearLayout::InOut => 1,
    };
    let along = Along::new(weight.len(), &dims, axis)?;
    rounded(weight, bias, norm, along.channels, |i| along.channel(i))
}

/// As [`fold_bn_conv`] for a transposed convolution, whose weights are `[Cin, Cout / groups, ...]`: the first
/// `Cin / groups` rows make the first `Cout / groups` output channels, and so on.
///
/// # Errors
/// [`FoldError`] if the lengths do not fit each other.
pub fn fold_bn_conv_transpose(
    weight: &[f32],
    dims: &[usize],
    bias: Option<&[f32]>,
    norm: &BatchNorm,
    groups: usize,
) -> Result<(Vec<f32>, Vec<f32>), FoldError> {
    let along = Along::new(weight.len(), dims, 1)?;
    let inputs = dims[0];
    if groups == 0 || !inputs.is_multiple_of(groups) {
        return Err(FoldError::Groups {
            channels: inputs,
            groups,
        });
    }
    let group_len = (weight.len() / groups).max(1);
    let per_group = along.channels;
    rounded(weight, bias, norm, per_group * groups, |i| {
        i / group_len * per_group + along.channel(i)
    })
}

/// Folds in float64 and rounds once; `channel` says which output channel a weight belongs to.
fn rounded(
    weight: &[f32],
    bias: Option<&[f32]>,
    norm: &BatchNorm,
    channels: usize,
    channel: impl Fn(usize) -> usize,
) -> Result<(Vec<f32>, Vec<f32>), FoldError> {
    let affine = norm.affine(channels)?;
    let bias: Option<Vec<f64>> = bias.map(|b| b.iter().map(|&b| f64::from(b)).collect());
    let folded_bias = folded_bias(bias.as_deref(), &affine)?;
    let folded = weight.iter().enumerate();
    let folded = folded.map(|(i, &w)| (f64::from(w) * affine[channel(i)].0) as f32);
    Ok((folded.collect(), folded_bias.iter().map(|&b| b as f32).collect()))
}

fn folded_bias(bias: Option<&[f64]>, affine: &[(f64, f64)]) -> Result<Vec<f64>, FoldError> {
    if let Some(bias) = bias
        && bias.len() != affine.len()
    {
        return Err(FoldError::Channels {
            what: "bias",
            found: bias.len(),
            channels: affine.len(),
        });
    }
    let folded = affine.iter().enumerate();
    let folded = folded.map(|(c, &(factor, shift))| bias.map_or(0.0, |b| b[c]) * factor + shift);
    Ok(folded.collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn norm() -> BatchNorm {
        BatchNorm {
            scale: vec![0.5, -2.0],
            shift: vec![0.25, 1.0],
            mean: vec![3.0, -0.125],
            variance: vec![f64::from(0.7_f32), f64::from(1e-4_f32)],
            epsilon: f64::from(1e-3_f32),
        }
    }

    #[test]
    fn folding_equals_normalising_the_convolution_in_float64() {
        let norm = norm();
        let (weight, bias) = ([1.0_f32, 2.0, 3.0, -1.0, 0.5, 0.1], [0.3_f32, -0.7]);
        let (folded_weight, folded_bias) = fold_bn_conv(&weight, Some(&bias), &norm).unwrap();
        let x = [0.9_f64, -1.7, 0.33];
        for c in 0..2 {
            let dot = |w: &[f32]| (0..3).map(|k| f64::from(w[3 * c + k]) * x[k]).sum::<f64>();
            let conv = dot(&weight) + f64::from(bias[c]);
            let deviation = (norm.variance[c] + norm.epsilon).sqrt();
            let expected = (conv - norm.mean[c]) / deviation * norm.scale[c] + norm.shift[c];
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
        let short = BatchNorm {
            mean: vec![1.0],
            ..norm()
        };
        let found = fold_bn_conv(&[1.0; 4], None, &short);
        assert!(matches!(found, Err(FoldError::Channels { what: "mean", .. })));
        assert!(matches!(
            fold_bn_conv(&[1.0; 3], None, &norm()),
            Err(FoldError::Weights { .. })
        ));
        let found = fold_bn_linear(&[1.0; 6], [2, 3], Some(&[1.0]), &norm(), LinearLayout::OutIn);
        assert!(matches!(found, Err(FoldError::Channels { what: "bias", .. })));
        let found = fold_bn_linear(&[1.0; 6], [2, 3], None, &norm(), LinearLayout::InOut);
        assert!(matches!(found, Err(FoldError::Channels { what: "scale", .. })));
        let found = fold_bn_linear(&[1.0; 6], [2, 2], None, &norm(), LinearLayout::OutIn);
        assert!(matches!(found, Err(FoldError::Shape { .. })));
        let found = fold_bn_conv_transpose(&[1.0; 6], &[3, 1, 2], None, &norm(), 2);
        assert!(matches!(found, Err(FoldError::Groups { .. })));
        let found = fold_bn(&[1.0; 6], &[3, 2], None, &norm(), 2);
        assert!(matches!(found, Err(FoldError::Shape { axis: 2, .. })));
    }
}
