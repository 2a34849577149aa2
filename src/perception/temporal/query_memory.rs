//! What is remembered of the best queries of the last frames: their features, where they were, and when.

use super::layers::{dense, release_all, scaled_dense};
use super::place::{Movement, ages, movement};
use super::scratch::{Scratch, part, repeated, seen_as};
use super::{BEV_RANGE_M, PLACE_LANES, PROPAGATED, QUERY_CHANNELS};
use crate::device::{BinaryKind, Device, TopKOrder};
use crate::models::RowLinear;
use crate::ops::DeviceTensor;
use crate::ops::gather::gather_rows;
use crate::ops::topk::topk;
use crate::tensor::DType;
use crate::trace::WorkError;

/// Added to the score of a row of the memory that is not there; its weight is then zero exactly.
const HIDDEN: f32 = 1e30;

/// The memory's tensors: `PROPAGATED` rows a frame, the newest frame first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    /// Features `[L, QUERY_CHANNELS]`.
    pub(super) features: DeviceTensor,
    /// Positions in metres in the sensor's frame of then, `[L, 3]`, float32.
    pub(super) points: DeviceTensor,
    /// Where and when the sensor was, `[L, PLACE_LANES]`, float32.
    pub(super) places: DeviceTensor,
}

/// The queries of this frame that may be remembered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    /// Features `[Q, QUERY_CHANNELS]`.
    pub(super) features: DeviceTensor,
    /// Positions in metres, `[Q, 3]`, float32.
    pub(super) points: DeviceTensor,
    /// Class logits `[Q, classes]`, float32.
    pub(super) logits: DeviceTensor,
}

/// Turns where and when into features: two dense layers over x, y, z in metres, the age in seconds, and a one.
#[derive(Debug)]
pub(super) struct PlaceEncoder {
    inner: RowLinear,
    outer: RowLinear,
}

impl PlaceEncoder {
    pub(super) fn new(seed: u64) -> Result<Self, WorkError> {
        let scales = [1.0 / BEV_RANGE_M, 1.0 / BEV_RANGE_M, 0.25, 1.0, 1.0];
        Ok(Self {
            inner: scaled_dense(seed, "place.inner", &scales, &[0.0; QUERY_CHANNELS], 1.5)?,
            outer: dense(seed, "place.outer", [QUERY_CHANNELS; 2], false)?,
        })
    }

    /// The memory as rows that queries look at, brought to the place of now, and which of them are there (`[L, 1]`).
    pub(super) fn forward(
        &self,
        work: &mut Scratch<'_, '_>,
        memory: &Memory,
        place: &DeviceTensor,
        one: &DeviceTensor,
    ) -> Result<[DeviceTensor; 2], WorkError> {
        let rows = memory.points.view.shape[0];
        let step = movement(work, &memory.places, place, one)?;
        let [age, there] = ages(work, &memory.places, place)?;
        let inputs = work.tensor(&[rows, 5], DType::F32)?;
        moved(work, &memory.points, &step, &part(&inputs, 1, 0, 2)?)?;
        work.copy(&part(&memory.points, 1, 2, 1)?, &part(&inputs, 1, 2, 1)?)?;
        work.copy(&age, &part(&inputs, 1, 3, 1)?)?;
        work.copy(&there, &part(&inputs, 1, 4, 1)?)?;
        let inner = work.made(|ops| self.inner.forward(ops, &inputs))?;
        // Bounded, whatever the distance.
        let bent = work.tanh(&inner)?;
        let bent = work.cast(&bent, memory.features.dtype)?;
        let encoded = work.made(|ops| self.outer.forward(ops, &bent))?;
        Ok([work.add(&memory.features, &encoded)?, there])
    }

    pub(super) fn release(&self, device: &mut dyn Device) {
        release_all(device, &[], &[&self.inner, &self.outer]);
    }
}

/// x and y of points after a movement on the ground.
fn moved(
    work: &mut Scratch<'_, '_>,
    points: &DeviceTensor,
    step: &Movement,
    to: &DeviceTensor,
) -> Result<(), WorkError> {
    let (x, y) = (part(points, 1, 0, 1)?, part(points, 1, 1, 1)?);
    let turned = {
        let (a, b) = (work.mul(&step.cos, &x)?, work.mul(&step.sin, &y)?);
        let (c, d) = (work.mul(&step.sin, &x)?, work.mul(&step.cos, &y)?);
        [work.sub(&a, &b)?, work.add(&c, &d)?]
    };
    for (axis, (turned, shift)) in turned.iter().zip([&step.dx, &step.dy]).enumerate() {
        work.binary_into(BinaryKind::Add, turned, shift, &part(to, 1, axis, 1)?)?;
    }
    Ok(())
}

/// What is added to the scores of the rows of `queries` queries and the memory, `[1, 1, 1, Q + L]`: nothing for those that
/// are there.
pub(super) fn key_bias(
    work: &mut Scratch<'_, '_>,
    queries: usize,
    there: &DeviceTensor,
    one: &DeviceTensor,
) -> Result<DeviceTensor, WorkError> {
    let remembered = there.view.shape[0];
    let bias = work.tensor(&[queries + remembered, 1], DType::F32)?;
    work.fill(&part(&bias, 0, 0, queries)?, 0.0)?;
    let missing = work.sub(there, one)?;
    let hidden = work.tensor(&[1, 1], DType::F32)?;
    work.fill(&hidden, HIDDEN)?;
    let of_memory = part(&bias, 0, queries, remembered)?;
    work.binary_into(BinaryKind::Mul, &missing, &hidden, &of_memory)?;
    Ok(seen_as(&bias, &[1, 1, 1, queries + remembered])?)
}

/// Writes the memory of the next frame into `next`, which may be the memory itself: the [`PROPAGATED`] queries with the
/// best class first, best first (equal ones in their order), then all but the oldest frame.
pub(super) fn remember(
    work: &mut Scratch<'_, '_>,
    memory: &Memory,
    found: &Found,
    place: &DeviceTensor,
    next: &Memory,
) -> Result<(), WorkError> {
    let best = select(work, &found.logits)?;
    let features = work.made(|ops| gather_rows(ops, &found.features, &best))?;
    let points = work.made(|ops| gather_rows(ops, &found.points, &best))?;
    let places = work.tensor(&[PROPAGATED, PLACE_LANES], DType::F32)?;
    work.copy(&repeated(place, PROPAGATED)?, &places)?;
    let kept = memory.points.view.shape[0] - PROPAGATED;
    for (newest, old, next) in [
        (features, &memory.features, &next.features),
        (points, &memory.points, &next.points),
        (places, &memory.places, &next.places),
    ] {
        // The old rows move within one buffer, so they are gathered beside it first.
        let all = match kept {
            0 => newest,
            _ => work.stacked(&newest, &part(old, 0, 0, kept)?)?,
        };
        work.copy(&all, next)?;
    }
    Ok(())
}

/// Positions of the best queries by their best class, `[PROPAGATED]`.
fn select(work: &mut Scratch<'_, '_>, logits: &DeviceTensor) -> Result<DeviceTensor, WorkError> {
    let queries = logits.view.shape[0];
    let mut first = |src: &DeviceTensor, axis: usize, count: usize| -> Result<[DeviceTensor; 2], WorkError> {
        let mut places = None;
        let values = work.made(|ops| {
            let [values, indices] = topk(ops, src, axis, count, TopKOrder::Largest)?;
            places = Some(indices);
            Ok::<_, WorkError>(values)
        })?;
        let places = places.ok_or("a selection has positions")?;
        Ok([values, work.made(|_| Ok::<_, WorkError>(places))?])
    };
    let [scores, _] = first(logits, 1, 1)?;
    let [_, best] = first(&seen_as(&scores, &[queries])?, 0, PROPAGATED)?;
    Ok(best)
}
