//! What a model with its device is put together from.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::error::{BuildError, ModelError};
use crate::device::{Device, HostSlot};
use crate::perception::centerpoint::LoadedCenterPoint;
use crate::perception::temporal::{LoadedBevRing, LoadedStreamQueries};
use crate::perception::{DeviceModel, HostModel, LoadedCamera, ModelTrace};
use crate::trace::TraceOptions;
use crate::weights::FoundWeights;

/// Both halves of a model, and where they come from.
#[derive(Debug)]
pub struct ModelParts {
    /// What runs on the host.
    pub host: Arc<dyn HostModel>,
    /// What runs on the device.
    pub device: Box<dyn DeviceModel>,
    /// Where the weights were found, for reports.
    pub weights: Option<FoundWeights>,
}

impl From<LoadedCamera> for ModelParts {
    fn from(LoadedCamera { host, device }: LoadedCamera) -> Self {
        Self {
            host: Arc::new(host),
            device: Box::new(device),
            weights: None,
        }
    }
}

impl From<LoadedCenterPoint> for ModelParts {
    fn from(LoadedCenterPoint { host, device, .. }: LoadedCenterPoint) -> Self {
        Self {
            host: Arc::new(host),
            device: Box::new(device),
            weights: None,
        }
    }
}

impl From<LoadedBevRing> for ModelParts {
    fn from(LoadedBevRing { host, device }: LoadedBevRing) -> Self {
        Self {
            host: Arc::new(host),
            device: Box::new(device),
            weights: None,
        }
    }
}

impl From<LoadedStreamQueries> for ModelParts {
    fn from(LoadedStreamQueries { host, device }: LoadedStreamQueries) -> Self {
        Self {
            host: Arc::new(host),
            device: Box::new(device),
            weights: None,
        }
    }
}

/// How a model is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelOptions {
    /// Variants to warm up, by name; `None`: all. The largest is always among them.
    pub variants: Option<Vec<String>>,
    /// Longest wait for the device.
    pub deadline: Duration,
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self {
            variants: None,
            deadline: TraceOptions::default().deadline,
        }
    }
}

/// Positions of variants, the last one among them.
pub(super) fn positions(parts: &ModelParts, names: Option<&[String]>) -> Result<BTreeSet<usize>, ModelError> {
    let known = parts.device.variants();
    let mut chosen: BTreeSet<usize> = match names {
        None => (0..known.len()).collect(),
        Some(names) => {
            let position = |name: &String| {
                let found = known.iter().position(|it| it == name);
                found.ok_or_else(|| ModelError::Variant {
                    model: Arc::clone(parts.host.name()),
                    name: name
                        .chars()
                        .take(64)
                        .map(|c| if c.is_control() { ' ' } else { c })
                        .collect(),
                    known: known.join(", "),
                })
            };
            names.iter().map(position).collect::<Result<_, _>>()?
        }
    };
    chosen.extend(known.len().checked_sub(1));
    Ok(chosen)
}

/// The trace of a model with some variants, captured, and memory for its inputs and its output.
pub(super) fn build(
    parts: &ModelParts,
    device: &mut dyn Device,
    options: &ModelOptions,
    variants: &BTreeSet<usize>,
) -> Result<(ModelTrace, Vec<HostSlot>, HostSlot), ModelError> {
    let trace_options = TraceOptions {
        deadline: options.deadline,
        ..TraceOptions::default()
    };
    let made = || -> Result<_, BuildError> {
        let mut trace = parts.device.build_variants(device, trace_options, variants)?;
        trace.capture(device)?;
        let inputs = trace
            .input_specs()
            .iter()
            .map(|spec| device.host_slot(spec.bytes()));
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let output = device.host_slot(trace.output_bytes())?;
        Ok((trace, inputs, output))
    };
    made().map_err(|source| ModelError::Build {
        model: Arc::clone(parts.host.name()),
        source,
    })
}
