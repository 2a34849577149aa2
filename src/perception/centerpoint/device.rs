//! The device half: points and canvas index in, one tensor with all heads out.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::onnx::OnnxNetwork;
use super::weights::CenterPointWeights;
use crate::device::Device;
use crate::models::BlockError;
use crate::models::centerhead::CenterHead;
use crate::models::pillars::{FrameShape, PillarFeatureNet};
use crate::models::second::{Second, SecondFpn};
use crate::ops::{DeviceTensor, OpContext, gather};
use crate::perception::{DeviceModel, DeviceWeights, ModelTrace};
use crate::tensor::{DType, TensorError, TensorSpec};
use crate::trace::{TraceContext, TraceOptions, TraceRunner};

/// Names in the trace.
const POINTS: &str = "points";
const INDEX: &str = "canvas_index";
const HEADS: &str = "heads";

/// A CenterPoint as blocks, with one variant for each number of pillars that it computes at most, or out of Autoware's
/// ONNX files.
#[derive(Debug, Clone)]
pub struct CenterPointGraph {
    name: Arc<str>,
    network: Network,
    shape: FrameShape,
    /// Rows and columns of the canvas.
    canvas: [usize; 2],
    /// Most pillars of each variant, ascending; the last is the frame's.
    buckets: Vec<usize>,
    output: TensorSpec,
}

#[derive(Debug, Clone)]
enum Network {
    Blocks(Arc<CenterPointWeights>),
    Onnx(Box<OnnxNetwork>),
}

#[derive(Debug)]
struct Blocks {
    pfn: PillarFeatureNet,
    backbone: Second,
    neck: SecondFpn,
    head: CenterHead,
}

impl CenterPointGraph {
    /// Puts the blocks together. `canvas` is rows and columns of the grid, `buckets` the numbers of pillars that get a
    /// variant of their own, ascending; `shape.pillars` must be the last of them.
    ///
    /// # Errors
    /// [`BlockError`] for layers that do not follow each other.
    pub fn new(
        name: Arc<str>,
        weights: &CenterPointWeights,
        shape: FrameShape,
        canvas: [usize; 2],
        buckets: Vec<usize>,
    ) -> Result<Self, BlockError> {
        let Blocks {
            backbone, neck, head, ..
        } = Blocks::new(weights)?;
        let [height, width] = canvas;
        let inputs = weights.pfn.outputs();
        let maps = backbone.out_shapes([1, inputs, height, width])?;
        let [n, h, w] = neck.out_size(&maps)?;
        let output = head.out_spec([n, h, w])?;
        Ok(Self {
            name,
            network: Network::Blocks(Arc::new(weights.clone())),
            shape,
            canvas,
            buckets,
            output,
        })
    }

    /// The network of Autoware's files; one variant.
    pub(super) fn of_onnx(
        name: Arc<str>,
        network: OnnxNetwork,
        shape: FrameShape,
        canvas: [usize; 2],
    ) -> Result<Self, TensorError> {
        let [rows, columns] = network.cells;
        Ok(Self {
            name,
            output: TensorSpec::new(&[1, rows, columns, network.columns], DType::F32)?,
            network: Network::Onnx(Box::new(network)),
            buckets: vec![shape.pillars],
            shape,
            canvas,
        })
    }

    /// Rows and columns of the heads.
    #[must_use]
    pub fn cells(&self) -> [usize; 2] {
        [self.output.shape[1], self.output.shape[2]]
    }

    /// Values of one cell in the output.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.output.shape[3]
    }
}

impl DeviceModel for CenterPointGraph {
    fn build(
        &self,
        device: &mut dyn Device,
        options: TraceOptions,
    ) -> Result<ModelTrace, Box<dyn std::error::Error + Send + Sync>> {
        self.build_variants(device, options, &(0..self.buckets.len()).collect())
    }

    fn variants(&self) -> Vec<String> {
        match &self.network {
            Network::Blocks(_) => self
                .buckets
                .iter()
                .map(|&pillars| variant_name(pillars))
                .collect(),
            Network::Onnx(_) => vec!["default".to_owned()],
        }
    }

    fn build_variants(
        &self,
        device: &mut dyn Device,
        options: TraceOptions,
        chosen: &BTreeSet<usize>,
    ) -> Result<ModelTrace, Box<dyn std::error::Error + Send + Sync>> {
        let (points_spec, index_spec) = (self.shape.features_spec()?, self.shape.index_spec()?);
        let mut runner = TraceRunner::new(&self.name, options)?;
        let points = runner.add_input(device, POINTS, points_spec, None)?;
        let index = runner.add_input(device, INDEX, index_spec, None)?;
        runner.add_output(device, HEADS, self.output)?;
        let canvas = self.canvas;
        let mut variants = Vec::with_capacity(self.buckets.len());
        let inputs = [(points, points_spec), (index, index_spec)];
        let blocks = match &self.network {
            // Made anew: blocks remember where their weights lie, which is nowhere on another device.
            Network::Blocks(weights) => Arc::new(Blocks::new(weights)?),
            Network::Onnx(network) => {
                let loaded = Arc::new(network.prepare(device)?);
                let network = Arc::clone(&loaded);
                let forward = move |context: &mut TraceContext<'_>| {
                    let (points, index) = (context.input(POINTS)?, context.input(INDEX)?);
                    let heads = context.output(HEADS)?;
                    network.forward(context.ops(), &points, &index, canvas, &heads)?;
                    Ok(vec![(HEADS.to_owned(), heads)])
                };
                let variant = runner.add_variant(device, "default", Box::new(forward))?;
                let weights = Box::new(loaded);
                return Ok(ModelTrace::new(
                    device,
                    runner,
                    &inputs,
                    self.output,
                    &[variant],
                    weights,
                )?);
            }
        };
        let mut left_out = 0;
        for (position, &pillars) in self.buckets.iter().enumerate() {
            if !chosen.contains(&position) && position + 1 < self.buckets.len() {
                left_out += 1;
                continue;
            }
            let blocks = Arc::clone(&blocks);
            let forward = move |context: &mut TraceContext<'_>| {
                let mut points = context.input(POINTS)?;
                points.view = points.view.slice(0, 0, pillars, 1)?;
                let (index, heads) = (context.input(INDEX)?, context.output(HEADS)?);
                blocks.forward(context.ops(), &points, &index, canvas, &heads)?;
                Ok(vec![(HEADS.to_owned(), heads)])
            };
            let variant = runner.add_variant(device, &variant_name(pillars), Box::new(forward))?;
            // Frames of the smaller variants that are left out run in this one.
            variants.extend(std::iter::repeat_n(variant, left_out + 1));
            left_out = 0;
        }
        let weights = Box::new(blocks);
        Ok(ModelTrace::new(
            device,
            runner,
            &inputs,
            self.output,
            &variants,
            weights,
        )?)
    }
}

fn variant_name(pillars: usize) -> String {
    format!("{pillars}_pillars")
}

impl Blocks {
    fn new(weights: &CenterPointWeights) -> Result<Self, BlockError> {
        let neck = SecondFpn::new(weights.neck.clone())?;
        Ok(Self {
            pfn: PillarFeatureNet::new(weights.pfn.clone()),
            backbone: Second::new(weights.backbone.clone())?,
            head: CenterHead::new(weights.shared.clone(), &neck.channels(), &weights.heads, false)?,
            neck,
        })
    }

    fn forward(
        &self,
        ops: &mut OpContext<'_>,
        points: &DeviceTensor,
        index: &DeviceTensor,
        canvas: [usize; 2],
        heads: &DeviceTensor,
    ) -> Result<(), BlockError> {
        let rows = self.pfn.forward(ops, points)?;
        let scattered = gather::scatter_rows(ops, &rows, index, canvas);
        free(ops, &[rows]);
        let scattered = scattered?;
        let maps = self.backbone.forward(ops, &scattered);
        free(ops, &[scattered]);
        let maps = maps?;
        let neck = self.neck.forward(ops, &maps);
        free(ops, &maps);
        let neck = neck?;
        let made = self.head.forward_into(ops, &neck.parts, heads);
        free(ops, &[neck.joined]);
        made
    }
}

/// Returns memory. A tensor that is not there cannot be returned, and that is told by what used it.
fn free(ops: &mut OpContext<'_>, tensors: &[DeviceTensor]) {
    for tensor in tensors {
        let _ = ops.free(tensor);
    }
}

impl DeviceWeights for Arc<Blocks> {
    fn release(&mut self, device: &mut dyn Device) {
        self.pfn.release(device);
        self.backbone.release(device);
        self.neck.release(device);
        self.head.release(device);
    }
}
