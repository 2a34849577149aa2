//! Frames on the device, alone or several in one replay: upload, replay, read, delivery.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{DeviceOwner, NAME, State, tell_banks};
use crate::device::{DeviceError, DeviceHealth, EventId, HostSlot};
use crate::perception::{FrameKey, Placement, SubmitError, Submitted};
use crate::runtime::admission::Admitted;
use crate::runtime::frame::{FrameMeta, Inferred, Message, Prepared, Sample, Slots};
use crate::runtime::slots::PooledSlot;
use crate::telemetry::{DropReason, Stage};
use crate::trace::{Freshness, Pending, TraceError};

/// A replay and its frames: one, or several of different streams.
#[derive(Debug)]
pub(super) struct Flight {
    lane: usize,
    members: Vec<Member>,
    /// When the inputs had arrived; 0 until then.
    uploaded_ns: u64,
    uploaded: EventId,
    pending: Pending,
    /// Set once all reads are enqueued: completes with the last one.
    read: Option<EventId>,
    submitted: Instant,
}

/// A frame on the device.
#[derive(Debug)]
pub(super) struct Member {
    meta: FrameMeta,
    message: Arc<Message>,
    placement: Placement,
    variant: usize,
    /// Held until the upload is done.
    inputs: Slots,
    output: PooledSlot,
    admitted: Admitted,
}

impl Member {
    fn slots(&self) -> impl Iterator<Item = &HostSlot> {
        self.inputs.iter().map(|slot| &**slot)
    }
}

impl DeviceOwner {
    /// Takes a frame out of the channel, and all that came with it, so that the choice is made among them.
    pub(super) fn take_up(&mut self, sample: Sample<Prepared>) {
        self.make_ready(sample);
        while !self.ready.is_full() {
            let Some(sample) = self.input.try_recv() else {
                break;
            };
            self.make_ready(sample);
        }
    }

    fn make_ready(&mut self, sample: Sample<Prepared>) {
        let (lane, stream) = (sample.payload.detector, sample.meta.id.stream);
        let deadline_ns = sample.meta.deadline_ns;
        let now_ns = self.clock.now_ns();
        // There are as many places as slots, of which every frame holds one.
        if let Err(sample) = self.ready.push(lane, stream, deadline_ns, now_ns, sample) {
            self.turn_away(&sample);
        }
    }

    /// Brings frames onto the device as long as it has room for them.
    pub(super) fn fill(&mut self) {
        if self.shutdown.is_aborting() {
            self.turn_all_away();
        }
        while let State::Up(bench) = &self.state
            && !self.ready.is_empty()
        {
            let now_ns = self.clock.now_ns();
            while let Some(late) = self.ready.take_late(now_ns) {
                self.ledger
                    .frame_dropped(late.meta.id, NAME, DropReason::DeadlineMissed);
            }
            if self.flights.len() >= bench.depth {
                return;
            }
            let lanes = &self.lanes;
            let room = |lane: usize| lanes[lane].output_slots.available();
            let Some(lane) = self.ready.next(now_ns, self.exhausted, room, &mut self.chosen) else {
                return;
            };
            self.submit(lane);
        }
    }

    /// When a batch starts that waits for others, if there is room for it.
    pub(super) fn batch_due(&mut self) -> Option<Instant> {
        let State::Up(bench) = &self.state else {
            return None;
        };
        if self.flights.len() >= bench.depth {
            return None;
        }
        let now_ns = self.clock.now_ns();
        let after_ns = self.ready.wake_ns(now_ns)?.saturating_sub(now_ns);
        Instant::now().checked_add(Duration::from_nanos(after_ns))
    }

    /// Enqueues upload and replay of the chosen frames.
    fn submit(&mut self, lane: usize) {
        let State::Up(bench) = &mut self.state else { return };
        let mut members = self.spare.pop().unwrap_or_default();
        let now_ns = self.clock.now_ns();
        for sample in self.chosen.drain(..) {
            let Some(output) = self.lanes[lane].output_slots.try_take() else {
                // Not reached: there was room for as many, and nobody else takes any.
                self.ledger
                    .frame_dropped(sample.meta.id, NAME, DropReason::DeviceError);
                continue;
            };
            let (sample, prepared) = sample.replace(());
            let mut meta = sample.meta;
            meta.times.begin(Stage::Upload, now_ns);
            members.push(Member {
                meta,
                message: sample.message,
                placement: prepared.placement,
                variant: prepared.variant,
                inputs: prepared.inputs,
                output,
                admitted: prepared.admitted,
            });
        }
        let (device, trace) = (bench.device.as_mut(), &mut bench.traces[lane]);
        let submitted = match &members[..] {
            [] => return,
            [only] => {
                // Topics of different sources may have one name, streams have not.
                let stream = self.ledger.streams().name(only.meta.id.stream);
                let key = FrameKey {
                    stream: &stream,
                    stamp_ns: only.meta.stamp_ns,
                    reset: false,
                };
                trace.submit(device, only.variant, only.slots(), &key)
            }
            several => trace.submit_batch(device, several.iter().map(Member::slots)),
        };
        match submitted {
            Ok(Submitted {
                uploaded,
                pending,
                freshness,
            }) => {
                for member in &mut members {
                    member.meta.freshness = freshness;
                }
                if freshness.is_some_and(Freshness::is_fresh) {
                    tell_banks(&self.live, &self.lanes[lane], trace);
                }
                if members.len() > 1 {
                    self.frames_together += members.len() as u64;
                }
                self.flights.push_back(Flight {
                    lane,
                    members,
                    uploaded_ns: 0,
                    uploaded,
                    pending,
                    read: None,
                    submitted: Instant::now(),
                });
            }
            Err(error @ (SubmitError::StreamRejected { .. } | SubmitError::Key(_))) => {
                tracing::debug!(%error, "frame refused");
                self.abandon_all(members, DropReason::StreamRejected);
            }
            Err(SubmitError::Trace(error)) => {
                // The upload may be under way although what follows it was refused.
                self.abandon_all(members, DropReason::DeviceError);
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
        if flight.uploaded_ns == 0 && trace.completed(device, flight.uploaded)? {
            flight.uploaded_ns = self.clock.now_ns().max(1);
            for member in &mut flight.members {
                member.meta.times.end(Stage::Upload, flight.uploaded_ns);
                // Free in all but broken devices.
                self.returning
                    .extend(member.inputs.drain(..).filter(|slot| slot.is_busy()));
            }
        }
        if flight.read.is_none() && trace.completed(device, flight.pending.done)? {
            let now_ns = self.clock.now_ns();
            for (place, member) in flight.members.iter_mut().enumerate() {
                let times = &mut member.meta.times;
                // Replays run one after another: this one began when its data was there and the last one over.
                times.begin(Stage::Replay, flight.uploaded_ns.max(self.last_replay_ns));
                times.end(Stage::Replay, now_ns);
                times.begin(Stage::Readback, now_ns);
                let read = trace.read_place(device, flight.pending, place, &mut member.output)?;
                flight.read = Some(read);
            }
            self.last_replay_ns = now_ns;
        }
        let Some(read) = flight.read else { return Ok(false) };
        if !trace.completed(device, read)? {
            return Ok(false);
        }
        let now_ns = self.clock.now_ns();
        for member in &mut flight.members {
            member.meta.times.end(Stage::Readback, now_ns);
        }
        Ok(true)
    }

    fn deliver(&mut self, flight: Flight) {
        self.recovery.frame_came_back();
        let Flight {
            lane, mut members, ..
        } = flight;
        self.live.device().came_back(members.len() as u64);
        for (position, member) in members.drain(..).enumerate() {
            let mut meta = member.meta;
            let first = self.known.insert(meta.id.stream);
            meta.fresh = meta.freshness.map_or(first, Freshness::is_fresh);
            meta.device_restarts = u32::try_from(self.ledger.device_restarts()).unwrap_or(u32::MAX);
            let id = meta.id;
            self.watch(&meta, position == 0);
            let sample = Sample {
                meta,
                message: member.message,
                payload: Inferred {
                    output: member.output,
                    admitted: member.admitted,
                    placement: member.placement,
                },
            };
            // There are no more output slots than places in the channel, so it is full only if it is closed.
            if self.lanes[lane].results.try_send(sample).is_err() {
                self.ledger.frame_dropped(id, NAME, DropReason::ShuttingDown);
            }
        }
        self.spare.push(members);
    }

    /// Tells whoever watches what a frame did on the device; frames of one replay were there together, so only the first of
    /// them tells of the queues.
    fn watch(&self, meta: &FrameMeta, first: bool) {
        for (stage, span) in meta.times.spans().filter(|_| first) {
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

    /// Drops the frames of a replay.
    pub(super) fn abandon(&mut self, flight: Flight, reason: DropReason) {
        self.abandon_all(flight.members, reason);
    }

    fn abandon_all(&mut self, mut members: Vec<Member>, reason: DropReason) {
        for member in members.drain(..) {
            self.ledger.frame_dropped(member.meta.id, NAME, reason);
            self.returning.extend(member.inputs);
            self.returning.push(member.output);
        }
        self.spare.push(members);
    }

    /// Drops every frame that is ready: there is no device for it.
    pub(super) fn turn_all_away(&mut self) {
        while let Some(sample) = self.ready.take_any() {
            self.turn_away(&sample);
        }
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
