//! Autoware's two ONNX files as a network: `pts_voxel_encoder_*` and `pts_backbone_neck_head_*`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::weights::HEADS;
use super::{CenterPointParams, LoadError};
use crate::device::{Cq, Device};
use crate::models::{InputFormat, LoadedGraph, LowerOptions, LoweredGraph, lower};
use crate::ops::{DeviceTensor, OpContext, gather};
use crate::perception::DeviceWeights;
use crate::tensor::{DType, Shape, TensorSpec};
use crate::weights::OnnxModel;

/// Why a forward pass failed.
type WorkError = Box<dyn std::error::Error + Send + Sync>;

/// Both networks, lowered.
#[derive(Debug, Clone)]
pub(super) struct OnnxNetwork {
    encoder: LoweredGraph,
    heads: LoweredGraph,
    /// For each head in the order of the packed output: which output of the network it is, and its channels.
    order: Vec<(usize, usize)>,
    /// Rows and columns of the heads.
    pub(super) cells: [usize; 2],
    /// Channels of all heads.
    pub(super) columns: usize,
}

impl OnnxNetwork {
    /// Reads and lowers both files for frames of at most `pillars` pillars.
    pub(super) fn open(
        encoder: &Path,
        heads: &Path,
        params: &CenterPointParams,
        pillars: usize,
        storage: DType,
    ) -> Result<Self, LoadError> {
        let [grid_x, grid_y] = params.grid_size();
        let points = vec![
            pillars,
            params.max_points_per_voxel,
            params.encoder_in_feature_size,
        ];
        let encoder = lowered(encoder, InputFormat::Tensor, storage, |_| points.clone())?;
        let rows = encoder.outputs[0].spec.shape;
        let channels = rows.last().copied().unwrap_or(0);
        if rows.elements() != pillars * channels {
            return Err(LoadError::Form(format!(
                "{} makes {rows} of {pillars} pillars; one row a pillar is expected",
                encoder.model
            )));
        }
        let canvas = vec![1, channels, grid_y, grid_x];
        let heads = lowered(heads, InputFormat::F32ChannelsLast, storage, |_| canvas.clone())?;
        let mut order = Vec::with_capacity(HEADS.len());
        let mut cells = None;
        for name in HEADS {
            let found = heads.outputs.iter().position(|output| output.name == name);
            let Some(index) = found else {
                let known: Vec<&str> = heads.outputs.iter().map(|output| output.name.as_str()).collect();
                return Err(LoadError::Form(format!(
                    "{} has no output {name}; its outputs are {}",
                    heads.model,
                    known.join(", ")
                )));
            };
            let shape = heads.outputs[index].spec.shape;
            let size = match shape[..] {
                [1, _, h, w] => [h, w],
                _ => [0, 0],
            };
            let first = *cells.get_or_insert(size);
            if size != first || size[0] == 0 {
                return Err(LoadError::Form(format!(
                    "{}: output {name} is {shape}; [1, channels, rows, columns] is expected, with the rows and columns of the \
                     others",
                    heads.model
                )));
            }
            order.push((index, shape[1]));
        }
        let columns = order.iter().map(|&(_, channels)| channels).sum();
        Ok(Self {
            encoder,
            heads,
            order,
            cells: cells.unwrap_or_default(),
            columns,
        })
    }

    /// Brings the weights onto a device.
    pub(super) fn prepare(&self, device: &mut dyn Device) -> Result<LoadedOnnx, WorkError> {
        let encoder = LoadedGraph::prepare(self.encoder.clone(), device, Cq::COMPUTE)?;
        let heads = match LoadedGraph::prepare(self.heads.clone(), device, Cq::COMPUTE) {
            Ok(heads) => heads,
            Err(error) => {
                encoder.release(device);
                return Err(error.into());
            }
        };
        Ok(LoadedOnnx {
            encoder,
            heads,
            order: self.order.clone(),
        })
    }
}

/// The network with its one input of the given dimensions.
fn lowered(
    path: &Path,
    format: InputFormat,
    storage: DType,
    dims: impl Fn(&str) -> Vec<usize>,
) -> Result<LoweredGraph, LoadError> {
    let model = OnnxModel::open(path).map_err(|error| LoadError::Form(error.to_string()))?;
    let [input] = model.inputs() else {
        return Err(LoadError::Form(format!(
            "{} has {} inputs; one is expected",
            model.name(),
            model.inputs().len()
        )));
    };
    let options = LowerOptions {
        storage,
        formats: BTreeMap::from([(input.name.clone(), format)]),
        shapes: BTreeMap::from([(input.name.clone(), dims(&input.name))]),
        ..LowerOptions::default()
    };
    let graph = lower(&model, &options)?;
    match graph.outputs.is_empty() {
        true => Err(LoadError::Form(format!("{} has no output", model.name()))),
        false => Ok(graph),
    }
}

/// Both networks with their weights on a device.
#[derive(Debug)]
pub(super) struct LoadedOnnx {
    encoder: LoadedGraph,
    heads: LoadedGraph,
    order: Vec<(usize, usize)>,
}

impl LoadedOnnx {
    /// Points and index to the packed heads.
    pub(super) fn forward(
        &self,
        ops: &mut OpContext<'_>,
        points: &DeviceTensor,
        index: &DeviceTensor,
        canvas: [usize; 2],
        packed: &DeviceTensor,
    ) -> Result<(), WorkError> {
        let encoded = self.encoder.forward(ops, &[*points])?;
        let scattered = rows_of(&encoded[0]).and_then(|rows| {
            let scattered = gather::scatter_rows(ops, &rows, index, canvas)?;
            Ok(scattered)
        });
        free(ops, &encoded);
        let scattered = scattered?;
        let maps = channels_last(&scattered).and_then(|input| Ok(self.heads.forward(ops, &[input])?));
        free(ops, &[scattered]);
        let maps = maps?;
        let made = self.pack(ops, &maps, packed);
        free(ops, &maps);
        made
    }

    /// Copies every map to its channels of the packed rows.
    fn pack(
        &self,
        ops: &mut OpContext<'_>,
        maps: &[DeviceTensor],
        packed: &DeviceTensor,
    ) -> Result<(), WorkError> {
        let mut first = 0;
        for &(index, channels) in &self.order {
            let place = packed
                .view
                .slice(3, first, channels, 1)?
                .transpose(&[0, 3, 1, 2])?;
            ops.copy(
                &maps[index],
                &DeviceTensor {
                    view: place,
                    ..*packed
                },
            )?;
            first += channels;
        }
        Ok(())
    }
}

/// `[P, .., C]` as `[P, C]`.
fn rows_of(encoded: &DeviceTensor) -> Result<DeviceTensor, WorkError> {
    let shape = encoded.view.shape;
    let channels = shape.last().copied().unwrap_or(1);
    let rows = Shape::new(&[shape.elements() / channels.max(1), channels])?;
    let view = encoded
        .view
        .reshape(rows)
        .ok_or("the encoder's rows do not lie side by side")?;
    Ok(DeviceTensor { view, ..*encoded })
}

/// A feature map `[1, C, H, W]` whose channels lie side by side as the buffer `[1, H, W, C]` that it is.
fn channels_last(map: &DeviceTensor) -> Result<DeviceTensor, WorkError> {
    let view = map.view.transpose(&[0, 2, 3, 1])?;
    let whole = DeviceTensor::whole(map.buffer, &TensorSpec::new(&view.shape, map.dtype)?);
    match whole.view == view {
        true => Ok(whole),
        false => Err("the canvas does not lie row by row".into()),
    }
}

/// Returns memory. A tensor that is not there cannot be returned, and that is told by what used it.
fn free(ops: &mut OpContext<'_>, tensors: &[DeviceTensor]) {
    for tensor in tensors {
        let _ = ops.free(tensor);
    }
}

impl DeviceWeights for Arc<LoadedOnnx> {
    fn release(&mut self, device: &mut dyn Device) {
        self.encoder.release(device);
        self.heads.release(device);
    }
}
