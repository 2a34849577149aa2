//! One layer of a sparse encoder and the forms of its weights.

use ndarray::{Array2, ArrayView3, ArrayView5, Axis};

use super::super::block_error::BlockError;
use super::form::TableForm;

/// One sparse layer, sub-manifold or strided, with batch normalisation folded into its weights:
/// `y[o] = relu(sum_k W[:, k, :] . x[index[o, k]] + bias (+ residual[o]))`.
#[derive(Debug, Clone)]
pub struct SparseConvSpec {
    pub(super) name: String,
    /// `[Cout, K, Cin]`
    pub(super) weight: Vec<f32>,
    pub(super) dims: [usize; 3],
    pub(super) bias: Vec<f32>,
    pub(super) index: String,
    pub(super) residual: Option<String>,
    pub(super) relu: bool,
    pub(super) input: TableForm,
    pub(super) output: TableForm,
}

impl SparseConvSpec {
    /// A layer with a filter `[Cout, k0, k1, k2, Cin]` (KRSC, k0 along x), one bias per output channel and a ReLU, which
    /// reads and writes fp32 tables. `index` names the gather index that it reads, which layers of one level share.
    #[must_use]
    pub fn new(name: &str, weight: ArrayView5<'_, f32>, bias: &[f32], index: &str) -> Self {
        let (cout, a, b, c, cin) = weight.dim();
        Self {
            name: name.into(),
            weight: weight.iter().copied().collect(),
            dims: [cout, a * b * c, cin],
            bias: bias.to_vec(),
            index: index.into(),
            residual: None,
            relu: true,
            input: TableForm::Float32,
            output: TableForm::Float32,
        }
    }

    /// As [`SparseConvSpec::new`], with the taps of the filter in one axis: `[Cout, K, Cin]`.
    #[must_use]
    pub fn from_taps(name: &str, weight: ArrayView3<'_, f32>, bias: &[f32], index: &str) -> Self {
        // The new axes are of one element each, so nothing moves.
        let weight = weight.insert_axis(Axis(2)).insert_axis(Axis(2));
        Self::new(name, weight, bias, index)
    }

    /// With the output of an earlier layer added before the ReLU.
    #[must_use]
    pub fn residual(self, layer: &str) -> Self {
        Self {
            residual: Some(layer.into()),
            ..self
        }
    }

    /// Without the ReLU.
    #[must_use]
    pub fn linear(self) -> Self {
        Self { relu: false, ..self }
    }

    /// With a table of another form as its input.
    #[must_use]
    pub fn reads(self, input: TableForm) -> Self {
        Self { input, ..self }
    }

    /// With a table of another form as its output.
    #[must_use]
    pub fn writes(self, output: TableForm) -> Self {
        Self { output, ..self }
    }

    /// The layer's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Name of the gather index that it reads.
    #[must_use]
    pub fn index(&self) -> &str {
        &self.index
    }

    /// Input channels.
    #[must_use]
    pub const fn inputs(&self) -> usize {
        self.dims[2]
    }

    /// Output channels.
    #[must_use]
    pub const fn outputs(&self) -> usize {
        self.dims[0]
    }

    /// Taps of the kernel.
    #[must_use]
    pub const fn taps(&self) -> usize {
        self.dims[1]
    }

    pub(super) fn check(&self) -> Result<(), BlockError> {
        let reason = if self.dims.contains(&0) {
            format!("weights {:?} (outputs, taps, inputs): none may be 0", self.dims)
        } else if self.bias.len() != self.outputs() {
            format!(
                "{} biases for {} output channels",
                self.bias.len(),
                self.outputs()
            )
        } else {
            return Ok(());
        };
        Err(BlockError::weights(&self.name, reason))
    }

    /// Weights `[Cout, K, terms * Cin]` as the device takes them: repeated for the second term of the input.
    pub(super) fn device_weights(&self) -> Vec<f32> {
        let terms = self.input.terms();
        let mut weights = Vec::with_capacity(self.weight.len() * terms);
        for channels in self.weight.chunks_exact(self.inputs()) {
            for _ in 0..terms {
                weights.extend_from_slice(channels);
            }
        }
        weights
    }
}

/// The matrix `[K * cin_pad, cout_pad]` that an im2col matrix of a padded table is multiplied with: row `k * cin_pad + j`
/// holds the weights of tap `k` and input channel `j`. With two input terms the second block of channels repeats the
/// weights, with two output terms the columns are repeated; what is left are zeros.
///
/// # Errors
/// [`BlockError::Weights`] where the terms do not fit the padded widths.
pub fn im2col_weight(
    weight: ArrayView3<'_, f32>,
    [cin_pad, cout_pad]: [usize; 2],
    [input, output]: [TableForm; 2],
) -> Result<Array2<f32>, BlockError> {
    let (cout, taps, cin) = weight.dim();
    for (what, channels, terms, width) in [
        ("input", cin, input.terms(), cin_pad),
        ("output", cout, output.terms(), cout_pad),
    ] {
        if channels * terms > width {
            let reason = format!("{terms} terms of {channels} {what} channels do not fit {width} columns");
            return Err(BlockError::weights("im2col weights", reason));
        }
    }
    let mut matrix = Array2::zeros((taps * cin_pad, cout_pad));
    for ((o, k, c), &value) in weight.indexed_iter() {
        for (term_in, term_out) in (0..input.terms()).flat_map(|i| (0..output.terms()).map(move |o| (i, o))) {
            matrix[[k * cin_pad + term_in * cin + c, term_out * cout + o]] = value;
        }
    }
    Ok(matrix)
}
