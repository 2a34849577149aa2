//! The query head of TransFusion (Bai et al., 2022): proposals from a heat map become queries, which look at each other
//! and at the map in one decoder layer, and each gives one box.
//!
//! The device computes a form of it that is equal in real numbers: position embeddings depend on the cell alone, so they
//! are tables that are made once in f64; heads of attention are padded to whole tiles in the weights of the projections;
//! all outputs are two layers. One decoder layer only: a second one would embed positions that the first predicts, for
//! which there is no table.

mod assemble;
mod constants;
mod decoder;
mod weights;

pub use assemble::{RawOutputs, TransFusionOutputs, assemble_transfusion};
pub use weights::{
    FfnWeights, Linear, MhaWeights, NormWeights, PosEmbedMlp, PredictionHead, QueryHeadWeights,
};

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use ndarray::{Array2, ArrayView2, s};

use self::constants::Constants;
use super::block_error::BlockError;
use super::layers::{RowLinear, free, free_buffer};
use crate::device::{BinaryKind, BufferClass, Device, OpDesc};
use crate::ops::attention::{AttentionError, pad_head_columns, pad_head_rows};
use crate::ops::gather::gather_rows;
use crate::ops::topk::{Selection, TopKSelect, decode_class_major};
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::{DType, HostTensor, Shape, TensorSpec};

const HEAD: &str = "query head";

/// Queries, `[K, E]` each.
#[derive(Debug, Clone, Copy)]
pub struct Queries {
    /// What they hold.
    pub content: DeviceTensor,
    /// Their position embedding.
    pub position: DeviceTensor,
}

/// What the head gives; freed by the caller.
#[derive(Debug, Clone, Copy)]
pub struct HeadOutputs {
    /// All outputs of each query side by side, fp32 `[K, C]` with `C` a multiple of 32; [`TransFusionQueryHead::unpack_heads`]
    /// takes them apart.
    pub heads: DeviceTensor,
    /// The heat of each query's cell, `[K, classes]`, of the heat map's type.
    pub query_heat: DeviceTensor,
    /// Class-major positions of the proposals, uint32: those that were given, or the ones selected.
    pub indices: DeviceTensor,
}

/// The head with its weights. They are brought to the device by [`TransFusionQueryHead::prepare`] or the first run,
/// which must not be inside a capture.
pub struct TransFusionQueryHead {
    weights: QueryHeadWeights,
    self_qkv: RowLinear,
    self_out: RowLinear,
    cross_q: RowLinear,
    cross_kv: RowLinear,
    cross_out: RowLinear,
    ffn: [RowLinear; 2],
    predict: [RowLinear; 2],
    slices: Vec<(String, Range<usize>)>,
    outputs: usize,
    constants: Mutex<Vec<Constants>>,
}

impl fmt::Debug for TransFusionQueryHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

fn device<E: Into<AttentionError>>(error: E) -> BlockError {
    BlockError::Attention {
        block: HEAD.into(),
        source: Box::new(error.into()),
    }
}

impl TransFusionQueryHead {
    /// A head.
    ///
    /// # Errors
    /// [`BlockError::Weights`] as [`QueryHeadWeights::validate`].
    pub fn new(weights: QueryHeadWeights) -> Result<Self, BlockError> {
        weights.validate()?;
        let channels = weights.channels();
        let dense = |name: &str, weight: ArrayView2<'_, f32>, bias: &[f32], relu: bool| {
            RowLinear::new(&format!("{HEAD}, {name}"), weight, Some(bias), relu)
        };
        let layer = |name: &str, layer: &Linear, relu: bool| {
            dense(name, layer.weight.view(), &layer.bias.to_vec(), relu)
        };
        // Some of the three projections of an attention, padded: [E, parts * heads * padded size].
        let projection = |name: &str, mha: &MhaWeights, parts: Range<usize>| {
            let columns = s![.., parts.start * channels..parts.end * channels];
            let biases = s![parts.start * channels..parts.end * channels];
            let (weight, bias) = pad_head_columns(
                mha.input.weight.slice(columns),
                Some(mha.input.bias.slice(biases)),
                parts.len() * mha.heads,
                channels / mha.heads,
            )
            .map_err(device)?;
            dense(name, weight.view(), &bias.unwrap_or_default().to_vec(), false)
        };
        let back = |name: &str, mha: &MhaWeights| {
            let weight =
                pad_head_rows(mha.output.weight.view(), mha.heads, channels / mha.heads).map_err(device)?;
            dense(name, weight.view(), &mha.output.bias.to_vec(), false)
        };
        let merged = weights.merged_heads()?;
        Ok(Self {
            self_qkv: projection("self_attn.input", &weights.self_attn, 0..3)?,
            self_out: back("self_attn.output", &weights.self_attn)?,
            cross_q: projection("cross_attn.query", &weights.cross_attn, 0..1)?,
            cross_kv: projection("cross_attn.key_value", &weights.cross_attn, 1..3)?,
            cross_out: back("cross_attn.output", &weights.cross_attn)?,
            ffn: [
                layer("ffn.hidden", &weights.ffn.hidden, true)?,
                layer("ffn.output", &weights.ffn.output, false)?,
            ],
            predict: [
                dense(
                    "heads.hidden",
                    merged.hidden_weight.view(),
                    &merged.hidden_bias,
                    true,
                )?,
                dense(
                    "heads.output",
                    merged.output_weight.view(),
                    &merged.output_bias,
                    false,
                )?,
            ],
            outputs: merged.output_bias.len(),
            slices: merged.slices,
            weights,
            constants: Mutex::default(),
        })
    }

    /// The host weights.
    #[must_use]
    pub const fn weights(&self) -> &QueryHeadWeights {
        &self.weights
    }

    /// One line about the head.
    #[must_use]
    pub fn describe(&self) -> String {
        let weights = &self.weights;
        let names: Vec<&str> = self.slices.iter().map(|(name, _)| name.as_str()).collect();
        format!(
            "TransFusionQueryHead({} queries of {} x {} cells and {} classes, {} channels, {} and {} heads, outputs {})",
            weights.num_proposals,
            weights.height,
            weights.width,
            weights.num_classes,
            weights.channels(),
            weights.self_attn.heads,
            weights.cross_attn.heads,
            names.join(" ")
        )
    }

    /// Brings tables and rows to the device for maps of this type.
    ///
    /// # Errors
    /// [`BlockError::DType`] for a type other than fp32 and bf16; [`BlockError::Attention`] for what the device refuses.
    pub fn prepare(&self, ops: &mut OpContext<'_>, dtype: DType) -> Result<(), BlockError> {
        self.constants(ops, dtype).map(drop)
    }

    /// Returns the memory of everything that was brought to the device. The head may run again.
    pub fn release(&self, device: &mut dyn Device) {
        let mut constants = self.constants.lock().unwrap_or_else(PoisonError::into_inner);
        for tensor in constants.drain(..).flat_map(|constants| constants.all()) {
            free_buffer(device, tensor.buffer);
        }
        let layers = [
            &self.self_qkv,
            &self.self_out,
            &self.cross_q,
            &self.cross_kv,
            &self.cross_out,
        ];
        for layer in layers.into_iter().chain(&self.ffn).chain(&self.predict) {
            layer.release(device);
        }
    }

    /// The whole head: features `[cells, E]` of the map and its heat `[cells, classes]` to outputs, which the caller
    /// frees. Proposals are the best of the heat, or those of `indices` (class-major positions, uint32, at least `K`; the
    /// first `K` are used).
    ///
    /// # Errors
    /// [`BlockError`]; nothing stays allocated but weights.
    pub fn forward(
        &self,
        ops: &mut OpContext<'_>,
        features: &DeviceTensor,
        heat: &DeviceTensor,
        indices: Option<&DeviceTensor>,
    ) -> Result<HeadOutputs, BlockError> {
        let selection = self.select(ops, heat, indices)?;
        let mut made = vec![selection.cells, selection.classes];
        let outcome = self.run(ops, features, heat, &selection, &mut made);
        if outcome.is_err() && indices.is_none() {
            made.push(selection.indices);
        }
        free(ops, &made);
        outcome
    }

    /// The proposals: the best of the heat `[cells, classes]`, or those of `indices`, taken apart into cells and classes.
    /// What is new is freed by the caller: cells and classes, and the indices where none were given.
    ///
    /// # Errors
    /// [`BlockError`]; nothing stays allocated.
    pub fn select(
        &self,
        ops: &mut OpContext<'_>,
        heat: &DeviceTensor,
        indices: Option<&DeviceTensor>,
    ) -> Result<Selection, BlockError> {
        let (cells, kinds) = (self.weights.cells(), self.weights.num_classes);
        let Some(indices) = indices else {
            let heat = self.map("the heat map", heat, kinds)?;
            return Ok(TopKSelect::new(cells, kinds, self.weights.num_proposals)?.forward(ops, &heat)?);
        };
        let first = self.first("the indices", indices)?;
        let [cells, classes] = decode_class_major(ops, &first, cells, kinds, true)?;
        Ok(Selection {
            indices: *indices,
            cells,
            classes,
        })
    }

    fn run(
        &self,
        ops: &mut OpContext<'_>,
        features: &DeviceTensor,
        heat: &DeviceTensor,
        selection: &Selection,
        made: &mut Vec<DeviceTensor>,
    ) -> Result<HeadOutputs, BlockError> {
        let queries = self.init_queries(ops, features, selection)?;
        made.extend([queries.content, queries.position]);
        let keys = self.keys(ops, features)?;
        made.push(keys);
        let decoded = self.decoder(ops, &queries, &keys)?;
        made.push(decoded);
        let heads = self.predict(ops, &decoded)?;
        match self.query_heat(ops, heat, selection) {
            Ok(query_heat) => Ok(HeadOutputs {
                heads,
                query_heat,
                indices: selection.indices,
            }),
            Err(error) => {
                free(ops, &[heads]);
                Err(error)
            }
        }
    }

    /// Queries `[K, E]`: the features of their cells plus the row of their class; and the embedding of their positions.
    ///
    /// # Errors
    /// [`BlockError`]; nothing stays allocated but weights.
    pub fn init_queries(
        &self,
        ops: &mut OpContext<'_>,
        features: &DeviceTensor,
        selection: &Selection,
    ) -> Result<Queries, BlockError> {
        let features = self.map("the features", features, self.weights.channels())?;
        let constants = self.constants(ops, features.dtype)?;
        let cells = self.first("the cells", &selection.cells)?;
        let classes = self.first("the classes", &selection.classes)?;
        let mut rows = |table: &DeviceTensor, index: &DeviceTensor, made: &mut Vec<DeviceTensor>| {
            keep(made, gather_rows(ops, table, index).map_err(BlockError::from))
        };
        let mut made = Vec::new();
        let picked = (|| {
            Ok([
                rows(&features, &cells, &mut made)?,
                rows(&constants.class_table, &classes, &mut made)?,
                rows(&constants.query_pos, &cells, &mut made)?,
            ])
        })();
        let outcome = picked.and_then(|[of_cell, of_class, position]| {
            let content = add(ops, &of_cell, &of_class)?;
            made.retain(|tensor| tensor.buffer != position.buffer);
            Ok(Queries { content, position })
        });
        free(ops, &made);
        outcome
    }

    /// What queries look at, `[cells, E]`: features plus the embedding of their positions.
    ///
    /// # Errors
    /// [`BlockError`]; nothing stays allocated but weights.
    pub fn keys(&self, ops: &mut OpContext<'_>, features: &DeviceTensor) -> Result<DeviceTensor, BlockError> {
        let features = self.map("the features", features, self.weights.channels())?;
        let constants = self.constants(ops, features.dtype)?;
        add(ops, &features, &constants.key_pos)
    }

    /// All outputs of decoded queries `[K, E]`, fp32 `[K, C]`.
    ///
    /// # Errors
    /// [`BlockError`]; nothing stays allocated but weights.
    pub fn predict(
        &self,
        ops: &mut OpContext<'_>,
        decoded: &DeviceTensor,
    ) -> Result<DeviceTensor, BlockError> {
        let hidden = self.predict[0].forward(ops, decoded)?;
        let spec = TensorSpec::new(&[hidden.view.shape[0], self.outputs], DType::F32);
        let outcome = spec.map_err(BlockError::tensor(HEAD)).and_then(|spec| {
            let heads = ops.alloc(&spec, BufferClass::Intermediate).map_err(device)?;
            match self.predict[1].forward_into(ops, &hidden, &heads) {
                Ok(()) => Ok(heads),
                Err(error) => {
                    free(ops, &[heads]);
                    Err(error)
                }
            }
        });
        free(ops, &[hidden]);
        outcome
    }

    /// The heat of the queries' cells, `[K, classes]`: rows of the heat map `[cells, classes]`, bit for bit.
    ///
    /// # Errors
    /// [`BlockError`]; nothing stays allocated.
    pub fn query_heat(
        &self,
        ops: &mut OpContext<'_>,
        heat: &DeviceTensor,
        selection: &Selection,
    ) -> Result<DeviceTensor, BlockError> {
        let heat = self.map("the heat map", heat, self.weights.num_classes)?;
        let cells = self.first("the cells", &selection.cells)?;
        Ok(gather_rows(ops, &heat, &cells)?)
    }

    /// Outputs `[K, C]` that came to the host by name, `[channels, K]`.
    ///
    /// # Errors
    /// [`BlockError`] for a tensor of another shape or type.
    pub fn unpack_heads(&self, raw: &HostTensor) -> Result<BTreeMap<String, Array2<f32>>, BlockError> {
        let (queries, outputs) = (self.weights.num_proposals, self.outputs);
        let (values, shape) = (
            raw.as_slice::<f32>().map_err(BlockError::tensor(HEAD))?,
            *raw.shape(),
        );
        let rows = ArrayView2::from_shape((queries, outputs), values);
        let Some(rows) = rows.ok().filter(|_| shape.last() == Some(&outputs)) else {
            let expected = format!("[{queries}, {outputs}]");
            return Err(BlockError::shape(HEAD, "the outputs", shape, expected));
        };
        let of = |range: &Range<usize>| rows.slice(s![.., range.clone()]).t().to_owned();
        Ok(self
            .slices
            .iter()
            .map(|(name, range)| (name.clone(), of(range)))
            .collect())
    }

    /// A map's rows `[cells, columns]`.
    fn map(&self, what: &str, tensor: &DeviceTensor, columns: usize) -> Result<DeviceTensor, BlockError> {
        as_matrix(tensor, [self.weights.cells(), columns]).map_err(|_| {
            let expected = format!("[{}, {columns}] at equal distances", self.weights.cells());
            BlockError::shape(HEAD, what, tensor.view.shape, expected)
        })
    }

    /// The first `K` entries of an index.
    fn first(&self, what: &str, index: &DeviceTensor) -> Result<DeviceTensor, BlockError> {
        let queries = self.weights.num_proposals;
        let shape = index.view.shape;
        let line = Shape::new(&[shape.elements()])
            .ok()
            .and_then(|line| index.view.reshape(line));
        let view = line.and_then(|line| line.slice(0, 0, queries, 1).ok());
        match view {
            Some(view) => Ok(DeviceTensor { view, ..*index }),
            None => Err(BlockError::shape(
                HEAD,
                what,
                shape,
                format!("at least {queries} entries"),
            )),
        }
    }
}

/// Notes a tensor that is freed later.
fn keep(
    made: &mut Vec<DeviceTensor>,
    tensor: Result<DeviceTensor, BlockError>,
) -> Result<DeviceTensor, BlockError> {
    if let Ok(tensor) = &tensor {
        made.push(*tensor);
    }
    tensor
}

/// A sum, a new dense tensor.
fn add(ops: &mut OpContext<'_>, a: &DeviceTensor, b: &DeviceTensor) -> Result<DeviceTensor, BlockError> {
    let spec = TensorSpec::new(&a.view.shape, a.dtype).map_err(BlockError::tensor(HEAD))?;
    let sum = ops.alloc(&spec, BufferClass::Intermediate).map_err(device)?;
    let op = OpDesc::Binary {
        lhs: a.operand(),
        rhs: b.operand(),
        dst: sum.operand(),
        kind: BinaryKind::Add,
    };
    ops.run_into(&op, &[a.buffer, b.buffer, sum.buffer], sum)
        .map_err(device)
}

/// Rows `[R, C]` as `[1, 1, R, C]`.
fn as_rows(tensor: &DeviceTensor) -> Result<DeviceTensor, BlockError> {
    match tensor.view.shape[..] {
        [rows, columns] => reshaped(tensor, &[1, 1, rows, columns]),
        _ => Err(BlockError::shape(
            HEAD,
            "rows",
            tensor.view.shape,
            "[rows, columns]",
        )),
    }
}

/// A tensor as rows `[R, C]`.
fn as_matrix(tensor: &DeviceTensor, dims: [usize; 2]) -> Result<DeviceTensor, BlockError> {
    reshaped(tensor, &dims)
}

fn reshaped(tensor: &DeviceTensor, dims: &[usize]) -> Result<DeviceTensor, BlockError> {
    let shape = Shape::new(dims).map_err(BlockError::tensor(HEAD))?;
    match tensor.view.reshape(shape) {
        Some(view) => Ok(DeviceTensor { view, ..*tensor }),
        None => Err(BlockError::shape(
            HEAD,
            "rows",
            tensor.view.shape,
            shape.to_string(),
        )),
    }
}
