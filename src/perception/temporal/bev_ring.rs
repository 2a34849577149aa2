//! The host half of the ring of maps.

use std::sync::{Arc, Mutex, PoisonError};

use super::bev_features::{BEV_CHANNELS, BEV_SIDE, bev_features};
use super::decode::{Decoder, centre_decoder, decode_cells};
use super::place::Place;
use super::{BevRingGraph, TemporalError, TemporalOptions};
use crate::lidar::CenterHeadDecode;
use crate::outputs::Detections;
use crate::perception::{
    CallParam, CallParams, HeadError, HostModel, Placement, PrepareError, PreparedFrame, Sensor, SensorData,
};

/// Sweeps in, objects out: the maps of the last frames of the stream are fused with this one's. Random weights; see the
/// [module](super).
#[derive(Debug)]
pub struct BevRing {
    decoder: Decoder,
    cells: CenterHeadDecode,
    /// Memory of maps, to be used again.
    spare: Mutex<Vec<Vec<[f32; BEV_CHANNELS]>>>,
}

/// Both halves of the model.
#[derive(Debug)]
pub struct LoadedBevRing {
    /// What runs on the host.
    pub host: BevRing,
    /// What runs on the device.
    pub device: BevRingGraph,
}

impl BevRing {
    /// Makes both halves.
    ///
    /// # Errors
    /// [`TemporalError`] for options that make no model.
    pub fn load(options: TemporalOptions) -> Result<LoadedBevRing, TemporalError> {
        options.check()?;
        let host = Self {
            decoder: Decoder::new(&options),
            cells: centre_decoder(&options)?,
            spare: Mutex::default(),
        };
        let name = Arc::clone(&options.name);
        let device = BevRingGraph::new(options).map_err(|error| TemporalError::new(&name, error))?;
        Ok(LoadedBevRing { host, device })
    }
}

impl HostModel for BevRing {
    fn name(&self) -> &Arc<str> {
        self.decoder.name()
    }

    fn sensor(&self) -> Sensor {
        Sensor::Lidar
    }

    fn prepare(
        &self,
        data: &SensorData<'_>,
        inputs: &mut [&mut [u8]],
    ) -> Result<PreparedFrame, PrepareError> {
        let SensorData::Sweep(sweep) = data else {
            return Err(PrepareError::WrongSensor {
                expected: Sensor::Lidar,
            });
        };
        let spare = || self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let mut features = spare().pop().unwrap_or_default();
        features.resize(BEV_SIDE * BEV_SIDE, [0.0; BEV_CHANNELS]);
        bev_features(&sweep.points, &mut features);
        let place = Place::of_level(sweep.stamp_ns, sweep.world_from_sensor.as_ref());
        let written = write_inputs(
            inputs,
            [
                bytemuck::cast_slice(&features),
                bytemuck::cast_slice(&place.row()),
            ],
        );
        spare().push(features);
        written
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
        self.decoder.objects(frame_id, |boxes| {
            if params.is_empty() {
                return decode_cells(&self.cells, output, boxes);
            }
            let threshold = f64::from(self.decoder.threshold(params));
            let cells = self.cells.clone().with_score_threshold(threshold);
            decode_cells(&cells, output, boxes)
        })
    }
}

/// Writes both inputs of a frame.
pub(super) fn write_inputs(
    inputs: &mut [&mut [u8]],
    values: [&[u8]; 2],
) -> Result<PreparedFrame, PrepareError> {
    for (input, expected) in values.iter().enumerate() {
        let found = inputs.get(input).map_or(0, |bytes| bytes.len());
        if found < expected.len() || inputs.len() != values.len() {
            return Err(PrepareError::InputLength {
                input,
                expected: expected.len(),
                found,
            });
        }
    }
    for (input, values) in inputs.iter_mut().zip(values) {
        input[..values.len()].copy_from_slice(values);
    }
    Ok(PreparedFrame {
        variant: 0,
        placement: Placement::Sensor,
        within_capacity: None,
        planned: None,
    })
}
