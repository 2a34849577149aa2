//! Batch normalisation at inference.

use super::fold::FoldError;

/// Parameters of a batch normalisation at inference, one value per channel, in float64:
/// `y = (x - mean) / sqrt(variance + epsilon) * scale + shift`.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchNorm {
    /// Scale (gamma).
    pub scale: Vec<f64>,
    /// Shift (beta).
    pub shift: Vec<f64>,
    /// Running mean.
    pub mean: Vec<f64>,
    /// Running variance.
    pub variance: Vec<f64>,
    /// Added to the variance.
    pub epsilon: f64,
}

impl BatchNorm {
    /// Number of channels.
    #[must_use]
    pub const fn channels(&self) -> usize {
        self.scale.len()
    }

    /// Factor and shift per channel, `y = factor * x + shift`, in float64:
    /// `factor = scale / sqrt(variance + epsilon)`, `shift = shift - mean * factor`.
    ///
    /// # Errors
    /// [`FoldError::Channels`] if a parameter does not have `channels` values.
    pub fn affine(&self, channels: usize) -> Result<Vec<(f64, f64)>, FoldError> {
        let named = [
            ("scale", &self.scale),
            ("shift", &self.shift),
            ("mean", &self.mean),
            ("variance", &self.variance),
        ];
        if let Some((what, values)) = named.into_iter().find(|(_, v)| v.len() != channels) {
            return Err(FoldError::Channels {
                what,
                found: values.len(),
                channels,
            });
        }
        let affine = (0..channels).map(|c| {
            let factor = self.scale[c] / (self.variance[c] + self.epsilon).sqrt();
            (factor, self.shift[c] - self.mean[c] * factor)
        });
        Ok(affine.collect())
    }

    /// Normalises row-major `values` of shape `dims` whose channels run along `axis`.
    ///
    /// # Errors
    /// [`FoldError`] if the shape does not fit the values or the channels.
    pub fn apply(&self, values: &[f64], dims: &[usize], axis: usize) -> Result<Vec<f64>, FoldError> {
        let along = Along::new(values.len(), dims, axis)?;
        let affine = self.affine(along.channels)?;
        let normalised = values.iter().enumerate().map(|(i, &x)| {
            let (factor, shift) = affine[along.channel(i)];
            x * factor + shift
        });
        Ok(normalised.collect())
    }
}

/// Which channel each element of a row-major array belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Along {
    pub(super) channels: usize,
    /// Elements from one channel to the next.
    inner: usize,
}

impl Along {
    pub(super) fn new(values: usize, dims: &[usize], axis: usize) -> Result<Self, FoldError> {
        let elements = dims.iter().try_fold(1_usize, |n, &d| n.checked_mul(d));
        if axis >= dims.len() || elements != Some(values) {
            return Err(FoldError::Shape {
                values,
                dims: dims.to_vec(),
                axis,
            });
        }
        Ok(Self {
            channels: dims[axis],
            inner: dims[axis + 1..].iter().product(),
        })
    }

    pub(super) const fn channel(self, element: usize) -> usize {
        element / self.inner % self.channels
    }
}
