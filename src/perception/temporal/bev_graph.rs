//! The device half of the ring of maps.

use std::sync::Arc;

use super::layers::{bank_count, conv, conv_spec, free_all, head, release_all, upload_all};
use super::place::{Movement, PLACE_LANES, movement};
use super::scratch::{Scratch, part, seen_as};
use super::{BEV_CHANNELS, BEV_RANGE_M, BEV_SIDE, CLASSES, TemporalOptions};
use crate::device::{BinaryKind, Cq, Device};
use crate::lidar::HeadChannels;
use crate::models::as_feature_map;
use crate::models::centerhead::CenterHead;
use crate::ops::conv::{Conv2d, split_channels};
use crate::ops::deform::{GridSampleOptions, grid_sample, pixel_to_grid};
use crate::ops::{DeviceTensor, MatMulOptions, OpContext};
use crate::perception::{DeviceModel, DeviceWeights, ModelTrace};
use crate::tensor::{DType, HostTensor, TensorSpec};
use crate::trace::{StateOptions, TraceContext, TraceOptions, TraceRunner, WorkError};

/// Rows and columns of the maps that are kept, and of the heads.
pub const BEV_CELLS: usize = BEV_SIDE / 2;

/// Channels of the maps that are kept.
const CHANNELS: usize = 32;
const STEM_CHANNELS: usize = 16;
const HIDDEN_CHANNELS: usize = 16;

/// Names in the trace.
const POINTS: &str = "bev";
const PLACE: &str = "place";
const RING: &str = "ring";
const PLACES: &str = "places";
const HEADS: &str = "heads";

/// The network: a convolution at the sweep's resolution, two at half of it, and the result is this frame's map. The maps
/// of the last frames are sampled where the sensor is now, one 1 x 1 convolution fuses them with this one, and a centre
/// head reads the outcome. The ring then holds this frame's map first.
#[derive(Debug, Clone)]
pub struct BevRingGraph {
    options: TemporalOptions,
    output: TensorSpec,
}

impl BevRingGraph {
    pub(super) fn new(options: TemporalOptions) -> Result<Self, WorkError> {
        let network = Network::new(&options)?;
        Ok(Self {
            output: network.head.out_spec([1, BEV_CELLS, BEV_CELLS])?,
            options,
        })
    }

    /// Values of one cell in the output.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.output.shape[3]
    }

    /// Floats of one output.
    #[must_use]
    pub fn output_len(&self) -> usize {
        self.output.shape.elements()
    }
}

/// The layers, whose weights come to the device in their first run.
#[derive(Debug)]
struct Network {
    stem: Conv2d,
    down: Conv2d,
    body: Conv2d,
    fuse: Conv2d,
    head: CenterHead,
}

impl Network {
    fn new(options: &TemporalOptions) -> Result<Self, WorkError> {
        let seed = options.seed;
        let joined = CHANNELS * (options.memory_frames + 1);
        let HeadChannels {
            offset,
            z,
            dim,
            rot,
            vel,
            ..
        } = HeadChannels::centerpoint(CLASSES.len(), false);
        let [inputs, hidden] = [CHANNELS, HIDDEN_CHANNELS];
        let heads = [
            // A few cells in a hundred reach the usual thresholds.
            head(seed, "heatmap", [inputs, hidden], &[-3.0; CLASSES.len()], 4.0),
            head(seed, "offset", [inputs, hidden], &vec![0.5; offset], 0.2),
            head(seed, "height", [inputs, hidden], &vec![-1.0; z], 0.3),
            head(seed, "size", [inputs, hidden], &[0.6, 1.4, 0.5][..dim], 0.1),
            head(seed, "heading", [inputs, hidden], &vec![0.0; rot], 0.5),
            head(seed, "velocity", [inputs, hidden], &vec![0.0; vel], 0.5),
        ];
        Ok(Self {
            stem: conv(seed, "stem", [BEV_CHANNELS, STEM_CHANNELS], 3, 1)?,
            down: conv(seed, "down", [STEM_CHANNELS, CHANNELS], 3, 2)?,
            body: conv(seed, "body", [CHANNELS, CHANNELS], 3, 1)?,
            fuse: conv(seed, "fuse", [joined, CHANNELS], 1, 1)?,
            head: CenterHead::new(
                conv_spec(seed, "shared", [CHANNELS, CHANNELS], 3),
                &[CHANNELS],
                &heads,
                false,
            )?,
        })
    }
}

/// Rows of the constants.
const ZERO: usize = 0;
const ONE: usize = 1;
/// Turns metres into units of half the range.
const PER_RANGE: usize = 2;

/// A network on a device.
#[derive(Debug)]
struct Placed {
    network: Network,
    storage: DType,
    frames: usize,
    /// Middles of the cells as places of a sampling, and a one: `[1, cells, 3]`.
    cells: DeviceTensor,
    /// [`ZERO`], [`ONE`] and [`PER_RANGE`], a row each.
    constants: DeviceTensor,
}

impl Placed {
    fn new(options: &TemporalOptions, ops: &mut OpContext<'_>) -> Result<Self, WorkError> {
        let network = Network::new(options)?;
        let side = |i: usize| pixel_to_grid(i as f32, BEV_CELLS);
        let middles: Vec<f32> = (0..BEV_CELLS * BEV_CELLS)
            .flat_map(|i| [side(i % BEV_CELLS), side(i / BEV_CELLS), 1.0])
            .collect();
        let cells = HostTensor::from_slice(&[1, BEV_CELLS * BEV_CELLS, 3], &middles)?;
        let constants = HostTensor::from_slice(&[3, 1], &[0.0, 1.0, 1.0 / BEV_RANGE_M])?;
        let [cells, constants] = upload_all(ops, [&cells, &constants])?;
        Ok(Self {
            network,
            storage: options.storage,
            frames: options.memory_frames,
            cells,
            constants,
        })
    }

    fn forward(&self, context: &mut TraceContext<'_>) -> Result<Vec<(String, DeviceTensor)>, WorkError> {
        let (points, place) = (context.input(POINTS)?, context.input(PLACE)?);
        let (ring, places) = (context.state(RING)?, context.state(PLACES)?);
        let (next_ring, next_places) = (context.write_target(RING)?, context.write_target(PLACES)?);
        let heads = context.output(HEADS)?;
        let network = &self.network;
        {
            let mut work = Scratch::new(context.ops());
            let image = work.cast(&points, self.storage)?;
            let image = as_feature_map(&image, [1, BEV_SIDE, BEV_SIDE, BEV_CHANNELS])?;
            let stem = work.made(|ops| network.stem.forward(ops, &image))?;
            let half = work.made(|ops| network.down.forward(ops, &stem))?;
            let map = work.made(|ops| network.body.forward(ops, &half))?;

            let step = movement(&mut work, &place, &places, &self.constant(ONE)?)?;
            let grid = self.grid(&mut work, &step)?;
            let kept = as_feature_map(&ring, [self.frames, BEV_CELLS, BEV_CELLS, CHANNELS])?;
            let options = GridSampleOptions::default();
            let moved = work.made(|ops| grid_sample(ops, &kept, &grid, &options))?;

            let joined = [1, BEV_CELLS, BEV_CELLS, CHANNELS * (self.frames + 1)];
            let stored = work.tensor(&joined, self.storage)?;
            let joined = as_feature_map(&stored, joined)?;
            for (index, channels) in split_channels(&joined, &vec![CHANNELS; self.frames + 1])?
                .iter()
                .enumerate()
            {
                match index.checked_sub(1) {
                    None => work.copy(&map, channels)?,
                    Some(age) => work.copy(&part(&moved, 0, age, 1)?, channels)?,
                }
            }
            let fused = work.made(|ops| network.fuse.forward(ops, &joined))?;
            network.head.forward_into(work.ops(), &[fused], &heads)?;

            let next = as_feature_map(&next_ring, [self.frames, BEV_CELLS, BEV_CELLS, CHANNELS])?;
            work.copy(&map, &part(&next, 0, 0, 1)?)?;
            work.copy(&place, &part(&next_places, 0, 0, 1)?)?;
            if let kept @ 1.. = self.frames - 1 {
                work.copy(&part(&ring, 0, 0, kept)?, &part(&next_ring, 0, 1, kept)?)?;
                work.copy(&part(&places, 0, 0, kept)?, &part(&next_places, 0, 1, kept)?)?;
            }
        }
        context.write_state(RING, &next_ring)?;
        context.write_state(PLACES, &next_places)?;
        Ok(vec![(HEADS.to_owned(), heads)])
    }

    /// Where each cell of now lies in the maps of then, `[frames, rows, columns, 2]`: the cells' middles times a matrix
    /// each, in units of half the range.
    fn grid(&self, work: &mut Scratch<'_, '_>, step: &Movement) -> Result<DeviceTensor, WorkError> {
        let matrices = work.tensor(&[self.frames, 3, 2], DType::F32)?;
        let entry = |row: usize, column: usize| -> Result<DeviceTensor, WorkError> {
            seen_as(
                &part(&part(&matrices, 1, row, 1)?, 2, column, 1)?,
                &[self.frames, 1],
            )
            .map_err(Into::into)
        };
        work.copy(&step.cos, &entry(0, 0)?)?;
        work.copy(&step.sin, &entry(0, 1)?)?;
        work.binary_into(BinaryKind::Sub, &self.constant(ZERO)?, &step.sin, &entry(1, 0)?)?;
        work.copy(&step.cos, &entry(1, 1)?)?;
        let per_range = self.constant(PER_RANGE)?;
        work.binary_into(BinaryKind::Mul, &step.dx, &per_range, &entry(2, 0)?)?;
        work.binary_into(BinaryKind::Mul, &step.dy, &per_range, &entry(2, 1)?)?;
        let grid = work.made(|ops| ops.matmul(&self.cells, &matrices, &MatMulOptions::to(DType::F32)))?;
        Ok(seen_as(&grid, &[self.frames, BEV_CELLS, BEV_CELLS, 2])?)
    }

    fn constant(&self, row: usize) -> Result<DeviceTensor, WorkError> {
        Ok(part(&self.constants, 0, row, 1)?)
    }
}

impl DeviceModel for BevRingGraph {
    fn build(
        &self,
        device: &mut dyn Device,
        options: TraceOptions,
    ) -> Result<ModelTrace, Box<dyn std::error::Error + Send + Sync>> {
        let frames = self.options.memory_frames;
        let points_spec = TensorSpec::new(&[1, BEV_SIDE, BEV_SIDE, BEV_CHANNELS], DType::F32)?;
        let place_spec = TensorSpec::new(&[1, PLACE_LANES], DType::F32)?;
        let ring_spec = TensorSpec::new(&[frames, BEV_CELLS, BEV_CELLS, CHANNELS], self.options.storage)?;
        let places_spec = TensorSpec::new(&[frames, PLACE_LANES], DType::F32)?;
        let kept = StateOptions {
            pingpong: true,
            banks: bank_count(&self.options),
        };
        let mut runner = TraceRunner::new(&self.options.name, options)?;
        let points = runner.add_input(device, POINTS, points_spec, None)?;
        let place = runner.add_input(device, PLACE, place_spec, None)?;
        let ring = runner.add_state(device, RING, ring_spec, None, kept)?;
        let places = runner.add_state(device, PLACES, places_spec, None, kept)?;
        runner.add_output(device, HEADS, self.output)?;
        let placed = Arc::new(Placed::new(
            &self.options,
            &mut OpContext::new(device, Cq::COMPUTE),
        )?);
        let network = Arc::clone(&placed);
        let forward = move |context: &mut TraceContext<'_>| network.forward(context);
        let variant = runner.add_variant(device, "default", Box::new(forward))?;
        let inputs = [(points, points_spec), (place, place_spec)];
        let weights = Box::new(placed);
        let trace = ModelTrace::new(device, runner, &inputs, self.output, &[variant], weights)?;
        Ok(trace.with_streams(&[ring, places], self.options.streams)?)
    }
}

impl DeviceWeights for Arc<Placed> {
    fn release(&mut self, device: &mut dyn Device) {
        let network = &self.network;
        release_all(
            device,
            &[&network.stem, &network.down, &network.body, &network.fuse],
            &[],
        );
        network.head.release(device);
        free_all(device, &[self.cells, self.constants]);
    }
}
