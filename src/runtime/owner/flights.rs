//! Frames on the device: upload, replay, read, delivery.

use std::sync::Arc;
use std::time::Instant;

use super::{DeviceOwner, NAME, State};
use crate::device::{DeviceError, DeviceHealth, EventId};
use crate::perception::Placement;
use crate::runtime::frame::{FrameMeta, Inferred, Message, Prepared, Sample, Slots};
use crate::runtime::slots::PooledSlot;
use crate::telemetry::{DropReason, Stage};
use crate::trace::{Pending, TraceError};

/// A frame on the device.
#[derive(Debug)]
pub(super) struct Flight {
    lane: usize,
    meta: FrameMeta,
    message: Arc<Message>,
    placement: Placement,
    /// Held until the upload is done.
    inputs: Slots,
    uploaded_ns: u64,
    output: PooledSlot,
    uploaded: EventId,
    pending: Pending,
    /// Set once the read is enqueued.
    read: Option<EventId>,
    submitted: Instant,
}

impl DeviceOwner {
    pub(super) fn take_up(&mut self, sample: Sample<Prepared>) {
        if self.shutdown.is_aborting() {
            self.turn_away(&sample);
            return;
        }
        match self.lanes[sample.payload.detector].output_slots.try_take() {
            Some(slot) => self.submit(sample, slot),
            None => self.held = Some(sample),
        }
    }

    /// Enqueues upload and replay of a frame.
    pub(super) fn submit(&mut self, sample: Sample<Prepared>, output: PooledSlot) {
        let State::Up(bench) = &mut self.state else {
            self.held = Some(sample);
            return;
        };
        let (
            Sample {
                mut meta, message, ..
            },
            Prepared {
                detector: lane,
                variant,
                inputs,
                placement,
            },
        ) = sample.replace(());
        meta.times.begin(Stage::Upload, self.clock.now_ns());
        match bench.traces[lane].submit(bench.device.as_mut(), variant, inputs.iter().map(|slot| &**slot)) {
            Ok((uploaded, pending)) => self.flights.push_back(Flight {
                lane,
                meta,
                message,
                placement,
                inputs,
                uploaded_ns: 0,
                output,
                uploaded,
                pending,
                read: None,
                submitted: Instant::now(),
            }),
            Err(error) => {
                self.ledger.frame_dropped(meta.id, NAME, DropReason::DeviceError);
                // The upload may be under way although what follows it was refused.
                self.returning.extend(inputs);
                self.returning.push(output);
                self.refused(&error);
            }
        }
    }

    /// When the oldest frame on the device will have been there for too long.
    pub(super) fn overdue(&self) -> Option<Instant> {
        let oldest = self.flights.front()?;
        oldest.submitted.checked_add(self.frame_deadline)
    }

    /// Looks at every frame on the device, oldest first, and does what has become possible.
    pub(super) fn advance(&mut self) {
        self.returning.retain(|slot| slot.is_busy());
        let mut index = 0;
        while index < self.flights.len() {
            match self.advance_flight(index) {
                // Only the oldest may leave, so that frames keep their order.
                Ok(true) if index == 0 => {
                    if let Some(flight) = self.flights.pop_front() {
                        self.deliver(flight);
                    }
                }
                Ok(_) => index += 1,
                Err(error) => {
                    if let Some(flight) = self.flights.remove(index) {
                        self.abandon(flight, DropReason::DeviceError);
                    }
                    self.refused(&error);
                }
            }
        }
        if self.overdue().is_some_and(|at| at <= Instant::now()) {
            self.lose(format!(
                "a frame did not come back within {:?}",
                self.frame_deadline
            ));
        }
    }

    /// Whether the frame's output has arrived on the host.
    fn advance_flight(&mut self, index: usize) -> Result<bool, TraceError> {
        let State::Up(bench) = &mut self.state else {
            return Ok(false);
        };
        let device = bench.device.as_mut();
        let flight = &mut self.flights[index];
        let trace = &mut bench.traces[flight.lane];
        if !flight.inputs.is_empty() && trace.completed(device, flight.uploaded)? {
            flight.uploaded_ns = self.clock.now_ns();
            flight.meta.times.end(Stage::Upload, flight.uploaded_ns);
            // Free in all but broken devices.
            self.returning
                .extend(flight.inputs.drain(..).filter(|slot| slot.is_busy()));
        }
        if flight.read.is_none() && trace.completed(device, flight.pending.done)? {
            let now_ns = self.clock.now_ns();
            // Replays run one after another: this one began when its data was there and the last one over.
            flight
                .meta
                .times
                .begin(Stage::Replay, flight.uploaded_ns.max(self.last_replay_ns));
            flight.meta.times.end(Stage::Replay, now_ns);
            self.last_replay_ns = now_ns;
            flight.meta.times.begin(Stage::Readback, now_ns);
            flight.read = Some(trace.read(device, flight.pending, &mut flight.output)?);
        }
        let Some(read) = flight.read else { return Ok(false) };
        if !trace.completed(device, read)? {
            return Ok(false);
        }
        flight.meta.times.end(Stage::Readback, self.clock.now_ns());
        Ok(true)
    }

    fn deliver(&mut self, flight: Flight) {
        let Flight {
            lane,
            mut meta,
            message,
            placement,
            output,
            ..
        } = flight;
        self.recovery.frame_came_back();
        meta.fresh = self.known.insert(meta.id.stream);
        meta.device_restarts = u32::try_from(self.ledger.device_restarts()).unwrap_or(u32::MAX);
        let id = meta.id;
        self.watch(&meta);
        let sample = Sample {
            meta,
            message,
            payload: Inferred { output, placement },
        };
        // There are no more output slots than places in the channel, so it is full only if it is closed.
        if self.lanes[lane].results.try_send(sample).is_err() {
            self.ledger.frame_dropped(id, NAME, DropReason::ShuttingDown);
        }
    }

    /// Tells whoever watches what a frame did on the device.
    fn watch(&self, meta: &FrameMeta) {
        for (stage, span) in meta.times.spans() {
            match stage {
                Stage::Replay => self.live.device().replayed(span.started_ns, span.finished_ns),
                Stage::Upload | Stage::Readback => {
                    self.live.device().transferred(span.started_ns, span.finished_ns);
                }
                _ => {}
            }
        }
        if let Some(trace) = self.ledger.trace() {
            trace.passed_device(meta.id, &meta.times);
        }
    }

    /// Drops a frame that was on the device.
    pub(super) fn abandon(&mut self, flight: Flight, reason: DropReason) {
        self.ledger.frame_dropped(flight.meta.id, NAME, reason);
        self.returning.extend(flight.inputs);
        self.returning.push(flight.output);
    }

    /// After an error of the device, which cost a frame: if the device is gone, so is all that is on it.
    fn refused(&mut self, error: &TraceError) {
        let State::Up(bench) = &self.state else { return };
        let answered_lost = || matches!(error, TraceError::Device { source, .. } if matches!(**source, DeviceError::Lost { .. }));
        match bench.device.health() {
            DeviceHealth::Lost { reason } => self.lose(reason),
            DeviceHealth::Closed => self.lose(error.to_string()),
            DeviceHealth::Healthy if answered_lost() => self.lose(error.to_string()),
            DeviceHealth::Healthy => tracing::error!(%error, "the device refused a frame"),
        }
    }
}
