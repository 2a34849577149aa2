//! Sparse convolutional encoders: chains of sub-manifold and strided layers over active voxels, each one gather by an
//! index from the host and one product with the weights, in one launch.
//!
//! Which voxel sees which is plain index data, one gather index `[rows, K]` a level and kernel. Shapes are those of
//! capacities: the rows of an index past a frame's voxels hold a sentinel that no table has, so nothing on the device
//! depends on how many voxels there are.

mod form;
mod spec;

pub use form::{TableError, TableForm, dense_gather, pack_table, pack_table_into};
pub use spec::{SparseConvSpec, im2col_weight};

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::block_error::BlockError;
use super::layers::{free, free_buffer};
use crate::device::{
    Activation, BufferClass, BufferId, Device, GatherConvDesc, OpDesc, Operand, WeightDesc, WeightForm,
};
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::{DType, TensorSpec};

const ENCODER: &str = "sparse encoder";

/// Where a layer stands in the chain.
#[derive(Debug)]
struct Place {
    /// Which of the index names it reads.
    index: usize,
    /// The layer whose output it adds.
    residual: Option<usize>,
    /// The last layer that adds its output.
    last_residual: Option<usize>,
}

/// Results of an encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SparseFeatures {
    /// The last layer's output, `[rows, Cout]` fp32.
    pub output: DeviceTensor,
    /// The same as the last layer's form of a table, `[rows, terms * Cout]`; the output itself where that is fp32.
    pub table: DeviceTensor,
}

impl SparseFeatures {
    /// Returns the memory of both.
    ///
    /// # Errors
    /// As [`OpContext::free`].
    pub fn free(&self, ops: &mut OpContext<'_>) -> Result<(), BlockError> {
        let freed = ops.free(&self.output);
        let table = match self.table.buffer == self.output.buffer {
            true => Ok(()),
            false => ops.free(&self.table),
        };
        freed.and(table).map_err(BlockError::device(ENCODER))
    }
}

/// What a layer has made and what is still needed of it.
#[derive(Debug, Clone, Copy)]
struct Made {
    /// What the next layer reads: the terms or the output.
    table: DeviceTensor,
    terms: Option<DeviceTensor>,
    output: Option<DeviceTensor>,
}

/// A chain of sparse layers, each working on the table that the one before it writes. Weights are brought to the device
/// in the first run.
#[derive(Debug)]
pub struct SparseEncoder {
    layers: Vec<SparseConvSpec>,
    places: Vec<Place>,
    index_names: Vec<String>,
    weights: WeightForm,
    prepared: Mutex<HashMap<(usize, GatherConvDesc), BufferId>>,
}

impl SparseEncoder {
    /// A chain of layers, whose weights are rounded as `weights` says.
    ///
    /// # Errors
    /// [`BlockError::Weights`] for no layers, two layers of one name, layers whose channels or table forms do not follow
    /// each other, an index that is read with different numbers of taps, or a residual of a layer that does not come
    /// before or has other channels.
    pub fn new(layers: Vec<SparseConvSpec>, weights: WeightForm) -> Result<Self, BlockError> {
        let mut places: Vec<Place> = Vec::with_capacity(layers.len());
        let mut index_names: Vec<String> = Vec::new();
        let mut index_taps = Vec::new();
        if layers.is_empty() {
            return Err(BlockError::weights(ENCODER, "there are no layers"));
        }
        for (at, layer) in layers.iter().enumerate() {
            layer.check()?;
            let wrong = |reason: String| Err(BlockError::weights(&layer.name, reason));
            let before = &layers[..at];
            if before.iter().any(|other| other.name == layer.name) {
                return wrong("another layer has that name".into());
            }
            if let Some(last) = before.last() {
                if last.outputs() != layer.inputs() {
                    return wrong(format!(
                        "{} input channels behind {}",
                        layer.inputs(),
                        last.outputs()
                    ));
                }
                if last.output != layer.input {
                    return wrong(format!(
                        "reads a {:?} table behind a {:?} one",
                        layer.input, last.output
                    ));
                }
            }
            let index = index_names.iter().position(|name| *name == layer.index);
            let index = index.unwrap_or_else(|| {
                index_names.push(layer.index.clone());
                index_taps.push(layer.taps());
                index_names.len() - 1
            });
            if index_taps[index] != layer.taps() {
                return wrong(format!(
                    "{} taps, but the index {:?} is read with {}",
                    layer.taps(),
                    layer.index,
                    index_taps[index]
                ));
            }
            let source = |name: &String| match before.iter().position(|other| other.name == *name) {
                Some(source) if before[source].outputs() == layer.outputs() => Ok(source),
                Some(source) => {
                    wrong_source(layer, name, &format!("has {} channels", before[source].outputs()))
                }
                None => wrong_source(layer, name, "is no layer before it"),
            };
            let residual = layer.residual.as_ref().map(source).transpose()?;
            if let Some(source) = residual {
                places[source].last_residual = Some(at);
            }
            places.push(Place {
                index,
                residual,
                last_residual: None,
            });
        }
        Ok(Self {
            layers,
            places,
            index_names,
            weights,
            prepared: Mutex::default(),
        })
    }

    /// Names of the indices, in the order in which [`SparseEncoder::forward`] takes them.
    #[must_use]
    pub fn index_names(&self) -> &[String] {
        &self.index_names
    }

    /// The layers, in order.
    #[must_use]
    pub fn layers(&self) -> &[SparseConvSpec] {
        &self.layers
    }

    /// Columns of the table that the first layer reads.
    #[must_use]
    pub fn input_width(&self) -> usize {
        self.layers[0].input.terms() * self.layers[0].inputs()
    }

    /// Form of the table that the first layer reads.
    #[must_use]
    pub fn input_form(&self) -> TableForm {
        self.layers[0].input
    }

    /// Runs the chain on a table `[V, columns]`, with an index `[rows, K]` of uint32 for each of the index names. An
    /// entry that a layer's input does not have stands for no voxel. Outputs between are freed as soon as no layer needs
    /// them any more; the results are freed by the caller, the inputs stay.
    ///
    /// With `taps`, every layer's output `[rows, Cout]` in fp32 is handed out as well, by the layer's name, and freed by
    /// the caller; the last of them is [`SparseFeatures::output`].
    ///
    /// # Errors
    /// [`BlockError`]; nothing stays allocated but weights, and nothing is handed out.
    pub fn forward(
        &self,
        ops: &mut OpContext<'_>,
        table: &DeviceTensor,
        indices: &[DeviceTensor],
        taps: Option<&mut Vec<(String, DeviceTensor)>>,
    ) -> Result<SparseFeatures, BlockError> {
        if indices.len() != self.index_names.len() {
            return Err(BlockError::Count {
                block: ENCODER.into(),
                found: indices.len(),
                expected: self.index_names.len(),
            });
        }
        let keep_all = taps.is_some();
        let mut made: Vec<Made> = Vec::with_capacity(self.layers.len());
        let mut table = *table;
        for at in 0..self.layers.len() {
            match self.layer(
                ops,
                at,
                [&table, &indices[self.places[at].index]],
                &made,
                keep_all,
            ) {
                Ok(next) => {
                    table = next.table;
                    made.push(next);
                }
                Err(error) => {
                    for held in &mut made {
                        held.release(ops, true);
                    }
                    return Err(error);
                }
            }
            self.release_used(ops, at, &mut made, keep_all);
        }
        // The last layer writes its output whatever its form.
        let output = made.last().and_then(|made| made.output).unwrap_or(table);
        if let Some(taps) = taps {
            let outputs = self.layers.iter().zip(&made);
            taps.extend(outputs.filter_map(|(layer, made)| Some((layer.name.clone(), made.output?))));
        }
        Ok(SparseFeatures { output, table })
    }

    /// Frees what no layer after `at` needs.
    fn release_used(&self, ops: &mut OpContext<'_>, at: usize, made: &mut [Made], keep_all: bool) {
        for (layer, held) in made.iter_mut().enumerate().take(at) {
            let is_added_later = self.places[layer].last_residual.is_some_and(|last| last > at);
            held.release(ops, !keep_all && !is_added_later);
        }
    }

    /// Returns the weights' memory. The encoder may run again.
    pub fn release(&self, device: &mut dyn Device) {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, buffer) in prepared.drain() {
            free_buffer(device, buffer);
        }
    }

    /// Runs one layer into new tensors.
    fn layer(
        &self,
        ops: &mut OpContext<'_>,
        at: usize,
        [table, index]: [&DeviceTensor; 2],
        made: &[Made],
        keep_all: bool,
    ) -> Result<Made, BlockError> {
        let (layer, place) = (&self.layers[at], &self.places[at]);
        let residual = place.residual.and_then(|source| made[source].output);
        let rows = check_inputs(layer, table, index, residual.as_ref())?;
        let new = |ops: &mut OpContext<'_>, width: usize, dtype: DType| {
            let spec = TensorSpec::new(&[rows, width], dtype).map_err(BlockError::tensor(&layer.name))?;
            ops.alloc(&spec, BufferClass::Intermediate)
                .map_err(BlockError::device(&layer.name))
        };
        let mut next = match layer.output {
            TableForm::Float32 => {
                let output = new(ops, layer.outputs(), DType::F32)?;
                Made {
                    table: output,
                    terms: None,
                    output: Some(output),
                }
            }
            form @ (TableForm::Bfloat16 | TableForm::TwoTerms) => {
                let terms = new(ops, form.terms() * layer.outputs(), form.dtype())?;
                Made {
                    table: terms,
                    terms: Some(terms),
                    output: None,
                }
            }
        };
        let is_last = at + 1 == self.layers.len();
        let needs_output = keep_all || is_last || place.last_residual.is_some();
        let ran = match next.output {
            None if needs_output => {
                new(ops, layer.outputs(), DType::F32).map(|output| next.output = Some(output))
            }
            _ => Ok(()),
        };
        match ran.and_then(|()| self.run(ops, at, [table, index], residual.as_ref(), &next)) {
            Ok(()) => Ok(next),
            Err(error) => {
                next.release(ops, true);
                Err(error)
            }
        }
    }

    fn run(
        &self,
        ops: &mut OpContext<'_>,
        at: usize,
        [table, index]: [&DeviceTensor; 2],
        residual: Option<&DeviceTensor>,
        next: &Made,
    ) -> Result<(), BlockError> {
        let layer = &self.layers[at];
        let terms: Vec<(BufferId, Operand)> = (next.terms.iter())
            .flat_map(|table| (0..layer.output.terms()).map(move |term| (table, term * layer.outputs())))
            .map(|(table, first)| {
                let view = table.view.slice(1, first, layer.outputs(), 1);
                let view = view.map_err(BlockError::tensor(&layer.name))?;
                Ok((table.buffer, DeviceTensor { view, ..*table }.operand()))
            })
            .collect::<Result<_, BlockError>>()?;
        let desc = GatherConvDesc {
            table: table.operand(),
            index: index.operand(),
            residual: residual.map(DeviceTensor::operand),
            output: next.output.as_ref().map(DeviceTensor::operand),
            terms: terms.iter().map(|(_, operand)| *operand).collect(),
            weights: self.weights,
            activation: match layer.relu {
                true => Activation::Relu,
                false => Activation::Identity,
            },
        };
        let mut buffers = vec![table.buffer, index.buffer, self.weights(ops.device, at, &desc)?];
        buffers.extend(
            residual
                .iter()
                .chain(&next.output.as_ref())
                .map(|tensor| tensor.buffer),
        );
        buffers.extend(terms.iter().map(|(buffer, _)| *buffer));
        ops.run(&OpDesc::GatherConv(desc), &buffers)
            .map_err(BlockError::device(&layer.name))
    }

    fn weights(
        &self,
        device: &mut dyn Device,
        at: usize,
        desc: &GatherConvDesc,
    ) -> Result<BufferId, BlockError> {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (at, desc.clone());
        if let Some(&buffer) = prepared.get(&key) {
            return Ok(buffer);
        }
        let layer = &self.layers[at];
        let weights = WeightDesc::GatherConv {
            desc,
            weight: &layer.device_weights(),
            bias: Some(&layer.bias),
        };
        let buffer = device
            .prepare_weights(&weights)
            .map_err(BlockError::device(&layer.name))?;
        prepared.insert(key, buffer);
        Ok(buffer)
    }
}

impl Made {
    /// Frees the terms, and the output if it is not needed any more.
    fn release(&mut self, ops: &mut OpContext<'_>, output: bool) {
        let gone = [self.terms.take(), self.output.take_if(|_| output)];
        for tensor in gone.into_iter().flatten() {
            free(ops, &[tensor]);
        }
    }
}

fn wrong_source(layer: &SparseConvSpec, name: &str, what: &str) -> Result<usize, BlockError> {
    let reason = format!(
        "the residual {name:?} {what}, expected an earlier one of {} channels",
        layer.outputs()
    );
    Err(BlockError::weights(&layer.name, reason))
}

/// Checks what a layer reads; returns its output rows.
fn check_inputs(
    layer: &SparseConvSpec,
    table: &DeviceTensor,
    index: &DeviceTensor,
    residual: Option<&DeviceTensor>,
) -> Result<usize, BlockError> {
    let width = layer.input.terms() * layer.inputs();
    if table.view.rank() != 2 || table.view.shape[1] != width {
        let expected = format!("[V, {width}]");
        return Err(BlockError::shape(
            &layer.name,
            "the table",
            table.view.shape,
            expected,
        ));
    }
    let types = [
        ("the table", table.dtype, layer.input.dtype()),
        ("the index", index.dtype, DType::U32),
    ];
    for (tensor, found, expected) in types {
        if found != expected {
            return Err(BlockError::DType {
                block: layer.name.clone(),
                tensor: tensor.into(),
                found,
                expected,
            });
        }
    }
    if index.view.rank() != 2 || index.view.shape[1] != layer.taps() {
        let expected = format!("[rows, {}]", layer.taps());
        return Err(BlockError::shape(
            &layer.name,
            "the index",
            index.view.shape,
            expected,
        ));
    }
    let rows = index.view.shape[0];
    if let Some(residual) = residual.filter(|residual| residual.view.shape[0] != rows) {
        let expected = format!("[{rows}, {}], as the index has rows", layer.outputs());
        return Err(BlockError::shape(
            &layer.name,
            "the residual",
            residual.view.shape,
            expected,
        ));
    }
    Ok(rows)
}
