//! What a query head is made of, as host arrays.

use ndarray::{Array1, Array2, ArrayView2, Axis};

use super::HEAD;
use crate::models::BlockError;
use crate::models::centerhead::{HeadSpec, MergedHeads, merge_heads};
use crate::models::layers::ConvSpec;
use crate::ops::topk::TopKSelect;

/// Outputs of the merged heads are padded to a multiple of this.
const PAD_HEADS_TO: usize = 32;

/// A dense layer `y = x W + b`.
#[derive(Debug, Clone, PartialEq)]
pub struct Linear {
    /// `[inputs, outputs]`
    pub weight: Array2<f32>,
    /// `[outputs]`
    pub bias: Array1<f32>,
}

impl Linear {
    /// A layer.
    #[must_use]
    pub const fn new(weight: Array2<f32>, bias: Array1<f32>) -> Self {
        Self { weight, bias }
    }

    fn check(&self, what: &str, inputs: usize, outputs: Option<usize>) -> Result<(), BlockError> {
        let (found, columns) = self.weight.dim();
        let outputs = outputs.unwrap_or(columns);
        if (found, columns) != (inputs, outputs) || self.bias.len() != outputs || outputs == 0 {
            let biases = self.bias.len();
            return Err(wrong(format!(
                "{what} has weights [{found}, {columns}] and {biases} biases, expected [{inputs}, {outputs}] and \
                 {outputs}"
            )));
        }
        Ok(())
    }

    /// `x W + b` in f64.
    fn run(&self, x: &Array2<f64>) -> Array2<f64> {
        x.dot(&self.weight.mapv(f64::from)) + self.bias.mapv(f64::from)
    }
}

/// Multi-head attention.
#[derive(Debug, Clone, PartialEq)]
pub struct MhaWeights {
    /// Queries, keys and values side by side, `[E, 3 E]`.
    pub input: Linear,
    /// `[E, E]`
    pub output: Linear,
    /// Heads, each of `E / heads` values.
    pub heads: usize,
}

/// The position embedding: two dense layers with a ReLU between them, batch normalisation folded in.
#[derive(Debug, Clone, PartialEq)]
pub struct PosEmbedMlp {
    /// `[2, hidden]`
    pub hidden: Linear,
    /// `[hidden, E]`
    pub output: Linear,
}

impl PosEmbedMlp {
    /// The embeddings `[n, E]` of positions `[n, 2]`, in f64.
    #[must_use]
    pub fn embed(&self, positions: ArrayView2<'_, f32>) -> Array2<f64> {
        let hidden = self.hidden.run(&positions.mapv(f64::from));
        self.output.run(&hidden.mapv(|x| x.max(0.0)))
    }
}

/// A layer normalisation. The epsilon is the model's; there is no default.
#[derive(Debug, Clone, PartialEq)]
pub struct NormWeights {
    /// Factors, `[E]`.
    pub gamma: Array1<f32>,
    /// Summands, `[E]`.
    pub beta: Array1<f32>,
    /// Added to the variance.
    pub epsilon: f32,
}

/// The feed-forward part: a dense layer with a ReLU, and one without.
#[derive(Debug, Clone, PartialEq)]
pub struct FfnWeights {
    /// `[E, hidden]`
    pub hidden: Linear,
    /// `[hidden, E]`
    pub output: Linear,
}

/// One kind of output: a dense layer with a ReLU (batch normalisation folded in), and one without.
#[derive(Debug, Clone, PartialEq)]
pub struct PredictionHead {
    /// Name of the output.
    pub name: String,
    /// `[E, hidden]`
    pub hidden: Linear,
    /// `[hidden, channels]`
    pub output: Linear,
}

/// A query head of TransFusion: one decoder layer over proposals of a heat map. `E` is the number of channels.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryHeadWeights {
    /// Rows of the map.
    pub height: usize,
    /// Columns of the map.
    pub width: usize,
    /// Classes of the heat map.
    pub num_classes: usize,
    /// Queries.
    pub num_proposals: usize,
    /// What a query of each class starts with, `[classes, E]`.
    pub class_table: Array2<f32>,
    /// Position of each cell in the model's own numbering, `[height * width, 2]`.
    pub bev_pos: Array2<f32>,
    /// Position embedding of queries.
    pub self_posembed: PosEmbedMlp,
    /// Position embedding of keys.
    pub cross_posembed: PosEmbedMlp,
    /// Attention among queries.
    pub self_attn: MhaWeights,
    /// Attention of queries to the map.
    pub cross_attn: MhaWeights,
    /// Behind self-attention, cross-attention and feed-forward.
    pub norms: [NormWeights; 3],
    /// Feed-forward part.
    pub ffn: FfnWeights,
    /// Outputs.
    pub heads: Vec<PredictionHead>,
}

fn wrong(reason: impl Into<String>) -> BlockError {
    BlockError::weights(HEAD, reason)
}

impl QueryHeadWeights {
    /// Channels.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.class_table.ncols()
    }

    /// Cells of the map.
    #[must_use]
    pub const fn cells(&self) -> usize {
        self.height * self.width
    }

    /// Checks that everything fits together.
    ///
    /// # Errors
    /// [`BlockError::Weights`] with the first part that does not fit.
    pub fn validate(&self) -> Result<(), BlockError> {
        let channels = self.channels();
        let cells = self.height.checked_mul(self.width).filter(|&cells| cells > 0);
        let Some(cells) = cells else {
            return Err(wrong(format!("a map of {} x {} cells", self.height, self.width)));
        };
        let most = cells
            .checked_mul(self.num_classes)
            .filter(|&most| u32::try_from(most).is_ok());
        if most.is_none_or(|most| self.num_proposals == 0 || self.num_proposals > most) {
            return Err(wrong(format!(
                "{} proposals of {cells} cells and {} classes",
                self.num_proposals, self.num_classes
            )));
        }
        TopKSelect::new(cells, self.num_classes, self.num_proposals)?;
        if channels == 0 || self.class_table.nrows() != self.num_classes {
            let (rows, columns) = self.class_table.dim();
            return Err(wrong(format!(
                "the class table is [{rows}, {columns}], expected a row for each of {} classes",
                self.num_classes
            )));
        }
        if self.bev_pos.dim() != (cells, 2) {
            let (rows, columns) = self.bev_pos.dim();
            return Err(wrong(format!(
                "bev_pos is [{rows}, {columns}], expected [{cells}, 2]"
            )));
        }
        for (what, embed) in [
            ("self_posembed", &self.self_posembed),
            ("cross_posembed", &self.cross_posembed),
        ] {
            embed.hidden.check(&format!("{what}.hidden"), 2, None)?;
            let hidden = embed.hidden.bias.len();
            embed
                .output
                .check(&format!("{what}.output"), hidden, Some(channels))?;
        }
        for (what, mha) in [("self_attn", &self.self_attn), ("cross_attn", &self.cross_attn)] {
            if mha.heads == 0 || !channels.is_multiple_of(mha.heads) {
                return Err(wrong(format!(
                    "{what}: {channels} channels among {} heads",
                    mha.heads
                )));
            }
            mha.input
                .check(&format!("{what}.input"), channels, Some(3 * channels))?;
            mha.output
                .check(&format!("{what}.output"), channels, Some(channels))?;
        }
        for (i, norm) in self.norms.iter().enumerate() {
            if norm.gamma.len() != channels || norm.beta.len() != channels {
                let (gamma, beta) = (norm.gamma.len(), norm.beta.len());
                return Err(wrong(format!(
                    "norm {i} has {gamma} and {beta} values, expected {channels}"
                )));
            }
            if !(norm.epsilon > 0.0 && norm.epsilon.is_finite()) {
                return Err(wrong(format!(
                    "norm {i} has epsilon {}, expected the model's positive one",
                    norm.epsilon
                )));
            }
        }
        self.ffn.hidden.check("ffn.hidden", channels, None)?;
        self.ffn
            .output
            .check("ffn.output", self.ffn.hidden.bias.len(), Some(channels))?;
        for head in &self.heads {
            head.hidden
                .check(&format!("head {}, hidden", head.name), channels, None)?;
            head.output.check(
                &format!("head {}, output", head.name),
                head.hidden.bias.len(),
                None,
            )?;
        }
        self.merged_heads().map(drop)
    }

    /// The queries' position embedding of every cell, `[cells, E]`: it depends on the position alone, so it is a table.
    /// In f64, rounded once.
    #[must_use]
    pub fn query_pos_table(&self) -> Array2<f32> {
        self.self_posembed.embed(self.bev_pos.view()).mapv(|x| x as f32)
    }

    /// The keys' position embedding of every cell, `[cells, E]`, in f64, rounded once.
    #[must_use]
    pub fn key_pos_table(&self) -> Array2<f32> {
        self.cross_posembed.embed(self.bev_pos.view()).mapv(|x| x as f32)
    }

    /// All heads as two layers: `relu(x [W_i]) blockdiag(O_i)`, outputs padded to a multiple of 32.
    ///
    /// # Errors
    /// [`BlockError::Weights`] if there are no heads, two of one name, or layers that do not follow each other.
    pub fn merged_heads(&self) -> Result<MergedHeads, BlockError> {
        let mut specs: Vec<HeadSpec> = Vec::with_capacity(self.heads.len());
        for head in &self.heads {
            if specs.iter().any(|known| known.name == head.name) {
                return Err(wrong(format!("two heads are called {:?}", head.name)));
            }
            specs.push(HeadSpec {
                name: head.name.clone(),
                hidden: pointwise(&head.hidden),
                output: pointwise(&head.output).linear(),
            });
        }
        merge_heads(&specs, PAD_HEADS_TO)
    }
}

/// A dense layer as a convolution of one tap.
fn pointwise(layer: &Linear) -> ConvSpec {
    let turned = layer.weight.t();
    let weight = turned.insert_axis(Axis(2)).insert_axis(Axis(3));
    ConvSpec::conv(weight, &layer.bias.to_vec())
}
