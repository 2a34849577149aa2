//! The device half of the queries with a memory.

use std::sync::Arc;

use super::image_input::QUERY_IMAGE_PX;
use super::layers::{bank_count, conv, free_all, release_all, scaled_dense, upload_all};
use super::place::PLACE_LANES;
use super::query_decoder::{QueryLayer, normalised};
use super::query_memory::{Found, Memory, PlaceEncoder, key_bias, remember};
use super::random::SeededWeights;
use super::scratch::{Scratch, part, seen_as};
use super::{BEV_RANGE_M, CLASSES, QUERY_COLUMNS, TemporalOptions};
use crate::device::{BinaryKind, Cq, Device};
use crate::models::{RowLinear, as_feature_map};
use crate::ops::conv::Conv2d;
use crate::ops::{DeviceTensor, OpContext};
use crate::perception::{DeviceModel, DeviceWeights, ModelTrace};
use crate::tensor::{DType, HostTensor, TensorSpec};
use crate::trace::{StateOptions, TraceContext, TraceOptions, TraceRunner, WorkError};

/// Queries of a frame.
pub const QUERIES: usize = 64;
/// Queries of a frame that are remembered.
pub const PROPAGATED: usize = 32;
/// Features of a query or token.
pub const QUERY_CHANNELS: usize = 64;

/// Pixels of a token's side.
const STRIDE: usize = 8;
const ROWS: usize = QUERY_IMAGE_PX[1] / STRIDE;
const COLUMNS: usize = QUERY_IMAGE_PX[0] / STRIDE;
const TOKENS: usize = ROWS * COLUMNS;
const LAYERS: usize = 2;

/// Names in the trace.
const IMAGE: &str = "image";
const PLACE: &str = "place";
const FEATURES: &str = "memory";
const POINTS: &str = "memory_points";
const PLACES: &str = "memory_places";
const OUTPUT: &str = "objects";

/// The network: three convolutions of stride 2 make tokens of an image; queries look at themselves and at the memory, then
/// at the tokens, twice; dense layers read classes and boxes. The best queries go into the memory.
#[derive(Debug, Clone)]
pub struct StreamQueriesGraph {
    options: TemporalOptions,
    output: TensorSpec,
}

impl StreamQueriesGraph {
    pub(super) fn new(options: TemporalOptions) -> Result<Self, WorkError> {
        Network::new(options.seed)?;
        Ok(Self {
            output: TensorSpec::new(&[QUERIES, QUERY_COLUMNS], DType::F32)?,
            options,
        })
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
    convs: [Conv2d; 3],
    places: PlaceEncoder,
    layers: Vec<QueryLayer>,
    classes: RowLinear,
    boxes: RowLinear,
}

impl Network {
    fn new(seed: u64) -> Result<Self, WorkError> {
        let ones = [1.0; QUERY_CHANNELS];
        let layers = (0..LAYERS).map(|layer| QueryLayer::new(seed, &format!("layer{layer}")));
        // Car-sized.
        let centre = [0.0, 0.0, 0.0, 1.4, 0.6, 0.4, 0.0, 0.0, 0.0, 0.0];
        Ok(Self {
            convs: [
                conv(seed, "conv0", [3, 16], 3, 2)?,
                conv(seed, "conv1", [16, 32], 3, 2)?,
                conv(seed, "conv2", [32, QUERY_CHANNELS], 3, 2)?,
            ],
            places: PlaceEncoder::new(seed)?,
            layers: layers.collect::<Result<_, _>>()?,
            classes: scaled_dense(seed, "classes", &ones, &[-1.0; CLASSES.len()], 1.0)?,
            boxes: scaled_dense(seed, "boxes", &ones, &centre, 0.3)?,
        })
    }
}

/// A network on a device.
#[derive(Debug)]
struct Placed {
    network: Network,
    storage: DType,
    /// Features of the queries, `[QUERIES, C]`.
    queries: DeviceTensor,
    /// Where they stand in metres, `[QUERIES, 3]`.
    anchors: DeviceTensor,
    /// Added to the tokens, `[TOKENS, C]`.
    token_places: DeviceTensor,
    /// `[1, 1]`
    one: DeviceTensor,
}

impl Placed {
    fn new(options: &TemporalOptions, ops: &mut OpContext<'_>) -> Result<Self, WorkError> {
        let drawn = |name: &str, count: usize| SeededWeights::new(options.seed, name).numbers(count, 1.0);
        let stored = |rows: usize, values: &[f32]| -> Result<HostTensor, WorkError> {
            let tensor = HostTensor::from_slice(&[rows, QUERY_CHANNELS], values)?;
            Ok(tensor.cast(options.storage)?.into_owned())
        };
        let queries = stored(QUERIES, &drawn("queries", QUERIES * QUERY_CHANNELS))?;
        let token_places = stored(TOKENS, &drawn("tokens", TOKENS * QUERY_CHANNELS))?;
        let mut anchors = drawn("anchors", QUERIES * 3);
        for anchor in anchors.chunks_exact_mut(3) {
            // Ahead of the camera, and near the ground.
            let [x, y, z] = [anchor[0], anchor[1], anchor[2]];
            let ahead = (x + 1.0) / 2.0 * BEV_RANGE_M;
            anchor.copy_from_slice(&[ahead, y * BEV_RANGE_M / 2.0, z * 2.0]);
        }
        let anchors = HostTensor::from_slice(&[QUERIES, 3], &anchors)?;
        let one = HostTensor::from_slice(&[1, 1], &[1.0_f32])?;
        let [queries, anchors, token_places, one] =
            upload_all(ops, [&queries, &anchors, &token_places, &one])?;
        Ok(Self {
            network: Network::new(options.seed)?,
            storage: options.storage,
            queries,
            anchors,
            token_places,
            one,
        })
    }

    fn forward(&self, context: &mut TraceContext<'_>) -> Result<Vec<(String, DeviceTensor)>, WorkError> {
        let (image, place) = (context.input(IMAGE)?, context.input(PLACE)?);
        let memory = Memory {
            features: context.state(FEATURES)?,
            points: context.state(POINTS)?,
            places: context.state(PLACES)?,
        };
        let next = Memory {
            features: context.write_target(FEATURES)?,
            points: context.write_target(POINTS)?,
            places: context.write_target(PLACES)?,
        };
        let output = context.output(OUTPUT)?;
        let network = &self.network;
        {
            let mut work = Scratch::new(context.ops());
            let tokens = self.tokens(&mut work, &image)?;
            let [remembered, there] = network.places.forward(&mut work, &memory, &place, &self.one)?;
            let bias = key_bias(&mut work, QUERIES, &there, &self.one)?;
            let mut x = self.queries;
            for layer in &network.layers {
                x = layer.forward(&mut work, &x, &remembered, &bias, &tokens)?;
            }
            let found = self.read(&mut work, &x, &output)?;
            remember(&mut work, &memory, &found, &place, &next)?;
        }
        context.write_state(FEATURES, &next.features)?;
        context.write_state(POINTS, &next.points)?;
        context.write_state(PLACES, &next.places)?;
        Ok(vec![(OUTPUT.to_owned(), output)])
    }

    /// `[TOKENS, C]`
    fn tokens(&self, work: &mut Scratch<'_, '_>, image: &DeviceTensor) -> Result<DeviceTensor, WorkError> {
        let image = work.cast(image, self.storage)?;
        let [width, height] = QUERY_IMAGE_PX;
        let mut map = as_feature_map(&image, [1, height, width, 3])?;
        for layer in &self.network.convs {
            map = work.made(|ops| layer.forward(ops, &map))?;
        }
        let view = map.view.transpose(&[0, 2, 3, 1])?;
        let rows = seen_as(&DeviceTensor { view, ..map }, &[TOKENS, QUERY_CHANNELS])?;
        normalised(work, &rows, &self.token_places)
    }

    /// Classes and boxes into the output.
    fn read(
        &self,
        work: &mut Scratch<'_, '_>,
        x: &DeviceTensor,
        output: &DeviceTensor,
    ) -> Result<Found, WorkError> {
        let logits = work.tensor(&[QUERIES, CLASSES.len()], DType::F32)?;
        self.network.classes.forward_into(work.ops(), x, &logits)?;
        let boxes = work.tensor(&[QUERIES, QUERY_COLUMNS - CLASSES.len()], DType::F32)?;
        self.network.boxes.forward_into(work.ops(), x, &boxes)?;
        let points = work.tensor(&[QUERIES, 3], DType::F32)?;
        work.binary_into(BinaryKind::Add, &part(&boxes, 1, 0, 3)?, &self.anchors, &points)?;
        let first = CLASSES.len();
        work.copy(&logits, &part(output, 1, 0, first)?)?;
        work.copy(&points, &part(output, 1, first, 3)?)?;
        let rest = QUERY_COLUMNS - first - 3;
        work.copy(&part(&boxes, 1, 3, rest)?, &part(output, 1, first + 3, rest)?)?;
        Ok(Found {
            features: *x,
            points,
            logits,
        })
    }
}

impl DeviceModel for StreamQueriesGraph {
    fn build(
        &self,
        device: &mut dyn Device,
        options: TraceOptions,
    ) -> Result<ModelTrace, Box<dyn std::error::Error + Send + Sync>> {
        let [width, height] = QUERY_IMAGE_PX;
        let rows = PROPAGATED * self.options.memory_frames;
        let f32_spec = |dims: &[usize]| TensorSpec::new(dims, DType::F32);
        let (image_spec, place_spec) = (f32_spec(&[1, height, width, 3])?, f32_spec(&[1, PLACE_LANES])?);
        let kept = StateOptions {
            pingpong: false,
            banks: bank_count(&self.options),
        };
        let mut runner = TraceRunner::new(&self.options.name, options)?;
        let image = runner.add_input(device, IMAGE, image_spec, None)?;
        let place = runner.add_input(device, PLACE, place_spec, None)?;
        let features_spec = TensorSpec::new(&[rows, QUERY_CHANNELS], self.options.storage)?;
        let states = [
            runner.add_state(device, FEATURES, features_spec, None, kept)?,
            runner.add_state(device, POINTS, f32_spec(&[rows, 3])?, None, kept)?,
            runner.add_state(device, PLACES, f32_spec(&[rows, PLACE_LANES])?, None, kept)?,
        ];
        runner.add_output(device, OUTPUT, self.output)?;
        let placed = Placed::new(&self.options, &mut OpContext::new(device, Cq::COMPUTE))?;
        let placed = Arc::new(placed);
        let network = Arc::clone(&placed);
        let forward = move |context: &mut TraceContext<'_>| network.forward(context);
        let variant = runner.add_variant(device, "default", Box::new(forward))?;
        let inputs = [(image, image_spec), (place, place_spec)];
        let weights = Box::new(placed);
        let trace = ModelTrace::new(device, runner, &inputs, self.output, &[variant], weights)?;
        Ok(trace.with_streams(&states, self.options.streams)?)
    }
}

impl DeviceWeights for Arc<Placed> {
    fn release(&mut self, device: &mut dyn Device) {
        let network = &self.network;
        release_all(
            device,
            &network.convs.each_ref(),
            &[&network.classes, &network.boxes],
        );
        network.places.release(device);
        network.layers.iter().for_each(|layer| layer.release(device));
        free_all(device, &[self.queries, self.anchors, self.token_places, self.one]);
    }
}
