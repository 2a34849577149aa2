//! Interpolation along one axis as a matrix.

use ndarray::Array2;

/// How an output element is made of input elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interpolation {
    /// The input element below the output's position.
    Nearest,
    /// Between the two neighbours, in proportion.
    Linear {
        /// Whether the first and last elements of input and output lie on each other; else their outer edges do. There
        /// is no default, since both are common and differ everywhere.
        align_corners: bool,
    },
}

/// Sizes or a scale that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InterpolationError {
    /// An axis without elements, or one that is far too long.
    #[error("{n_in} elements to {n_out}: both are from 1 to {MAX_SIZE}")]
    Size {
        /// Input elements.
        n_in: usize,
        /// Output elements.
        n_out: usize,
    },
    /// A scale that is no positive number.
    #[error("a scale of {0}: a positive, finite number is expected")]
    Scale(f64),
}

/// Longest axis: its matrix takes 128 MiB.
const MAX_SIZE: usize = 1 << 12;

/// The matrix `[n_out, n_in]` with `out = matrix * in`, as `torch.nn.functional.interpolate` computes it.
///
/// With `r = n_in / n_out`, or `1 / scale` where the scale is given (which is then not derived from the sizes again), output
/// `i` lies at
/// - `i * (n_in - 1) / (n_out - 1)` (0 for a single output) where corners are aligned,
/// - `max((i + 1/2) * r - 1/2, 0)` otherwise,
/// - and, for [`Interpolation::Nearest`], `floor(i * r)`, computed in fp32 as for fp32 tensors on the CPU: rounding
///   decides which element is below where `i * r` is whole.
///
/// Positions past the last element are the last element. An axis that keeps its size is copied.
///
/// # Errors
/// [`InterpolationError`].
pub fn interp_matrix(
    n_in: usize,
    n_out: usize,
    mode: Interpolation,
    scale: Option<f64>,
) -> Result<Array2<f64>, InterpolationError> {
    let sizes = 1..=MAX_SIZE;
    if !sizes.contains(&n_in) || !sizes.contains(&n_out) {
        return Err(InterpolationError::Size { n_in, n_out });
    }
    if let Some(scale) = scale.filter(|scale| !scale.is_finite() || *scale <= 0.0) {
        return Err(InterpolationError::Scale(scale));
    }
    let last = n_in - 1;
    let mut matrix = Array2::zeros((n_out, n_in));
    for i in 0..n_out {
        let (below, rest) = match mode {
            _ if n_in == n_out => (i, 0.0),
            Interpolation::Nearest => {
                let ratio = scale.map_or(n_in as f32 / n_out as f32, |scale| (1.0 / scale) as f32);
                ((i as f32 * ratio).floor() as usize, 0.0)
            }
            Interpolation::Linear { align_corners } => {
                let ratio = scale.map_or(n_in as f64 / n_out as f64, |scale| 1.0 / scale);
                let at = match align_corners {
                    true if n_out == 1 => 0.0,
                    true => i as f64 * (last as f64 / (n_out - 1) as f64),
                    false => ((i as f64 + 0.5) * ratio - 0.5).max(0.0),
                };
                let below = (at.floor() as usize).min(last);
                (below, (at - below as f64).clamp(0.0, 1.0))
            }
        };
        let below = below.min(last);
        matrix[[i, below]] += 1.0 - rest;
        matrix[[i, (below + 1).min(last)]] += rest;
    }
    Ok(matrix)
}

/// The matrices `[rows, columns]` of a resize of images: `out = rows * image * columns^T`.
///
/// # Errors
/// [`InterpolationError`].
pub fn resize_matrices(
    in_hw: [usize; 2],
    out_hw: [usize; 2],
    mode: Interpolation,
    scale: Option<[f64; 2]>,
) -> Result<[Array2<f64>; 2], InterpolationError> {
    let axis = |axis: usize| interp_matrix(in_hw[axis], out_hw[axis], mode, scale.map(|scale| scale[axis]));
    Ok([axis(0)?, axis(1)?])
}
