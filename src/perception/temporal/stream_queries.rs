//! The host half of the queries with a memory.

use std::sync::Arc;

use super::bev_ring::write_inputs;
use super::decode::{Decoder, decode_queries};
use super::image_input::ImageInput;
use super::place::Place;
use super::{QUERIES, StreamQueriesGraph, TemporalError, TemporalOptions};
use crate::outputs::Detections;
use crate::perception::{
    CallParam, CallParams, HeadError, HostModel, Placement, PrepareError, PreparedFrame, Sensor, SensorData,
    Taken,
};

/// Images in, objects out: queries look at the image and at what was found in the last frames of the stream. Boxes have
/// x ahead, y to the left and z up, from the camera. Random weights; see the [module](super).
#[derive(Debug)]
pub struct StreamQueries {
    decoder: Decoder,
    images: ImageInput,
}

/// Both halves of the model.
#[derive(Debug)]
pub struct LoadedStreamQueries {
    /// What runs on the host.
    pub host: StreamQueries,
    /// What runs on the device.
    pub device: StreamQueriesGraph,
}

impl StreamQueries {
    /// Makes both halves.
    ///
    /// # Errors
    /// [`TemporalError`] for options that make no model.
    pub fn load(options: TemporalOptions) -> Result<LoadedStreamQueries, TemporalError> {
        options.check()?;
        let host = Self {
            decoder: Decoder::new(&options),
            images: ImageInput::default(),
        };
        let name = Arc::clone(&options.name);
        let device = StreamQueriesGraph::new(options).map_err(|error| TemporalError::new(&name, error))?;
        Ok(LoadedStreamQueries { host, device })
    }
}

impl HostModel for StreamQueries {
    fn name(&self) -> &Arc<str> {
        self.decoder.name()
    }

    fn sensor(&self) -> Sensor {
        Sensor::Camera
    }

    fn prepare(
        &self,
        data: &SensorData<'_>,
        inputs: &mut [&mut [u8]],
    ) -> Result<PreparedFrame, PrepareError> {
        self.prepare_taken(data, &Taken::default(), inputs)
    }

    fn prepare_taken(
        &self,
        data: &SensorData<'_>,
        taken: &Taken<'_>,
        inputs: &mut [&mut [u8]],
    ) -> Result<PreparedFrame, PrepareError> {
        let SensorData::Image(picture) = data else {
            return Err(PrepareError::WrongSensor {
                expected: Sensor::Camera,
            });
        };
        let place = Place::of_optical(taken.stamp_ns, taken.world_from_sensor.as_ref()).row();
        self.images.with_values(&picture.pixels, |values| {
            write_inputs(
                inputs,
                [bytemuck::cast_slice(values), bytemuck::cast_slice(&place)],
            )
        })?
    }

    fn finish(
        &self,
        output: &[f32],
        placement: &Placement,
        frame_id: &Arc<str>,
    ) -> Result<Detections, HeadError> {
        self.finish_with(output, placement, frame_id, &CallParams::default())
    }

    fn call_params(&self) -> Vec<CallParam> {
        self.decoder.call_params()
    }

    fn finish_with(
        &self,
        output: &[f32],
        placement: &Placement,
        frame_id: &Arc<str>,
        params: &CallParams,
    ) -> Result<Detections, HeadError> {
        let Placement::Sensor = placement else {
            return Err(HeadError::Placement);
        };
        let threshold = self.decoder.threshold(params);
        self.decoder.objects(frame_id, |boxes| {
            decode_queries(output, QUERIES, threshold, boxes)
        })
    }
}
