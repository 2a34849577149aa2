//! A run at one moment, as the status page tells it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{DeviceReading, Live, LiveState, ProcessReading, Quantiles, QueueReading, StageReading, lock};
use crate::telemetry::StreamAccount;

/// A run at one moment: the body of `/status`, and what `sensorium top` shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveStatus {
    /// Name of the pipeline; empty before the run has begun.
    pub pipeline: String,
    /// What it is about.
    pub state: LiveState,
    /// Why it is not ready.
    pub reasons: Vec<String>,
    /// Seconds since the run began.
    pub uptime_s: f64,
    /// Streams in the order of registration.
    pub streams: Vec<StreamReading>,
    /// Stages that the last frames passed, in order.
    pub stages: Vec<StageReading>,
    /// Channels between actors.
    pub queues: Vec<QueueReading>,
    /// Sinks in the order of the pipeline file.
    pub sinks: Vec<SinkReading>,
    /// The device in words; empty until it is open.
    pub device: String,
    /// What the device's queues do.
    pub device_use: DeviceReading,
    /// How often the device was lost and opened again.
    pub device_restarts: u64,
    /// How often each actor was started again, for those that were.
    pub actor_restarts: BTreeMap<String, u64>,
    /// State banks of models that keep state for each stream.
    pub banks: Vec<BankReading>,
    /// What the process takes of the machine.
    pub process: ProcessReading,
}

/// One stream at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamReading {
    /// Name of the stream.
    pub name: String,
    /// Frames that came in.
    pub frames_in: u64,
    /// Frames that came out.
    pub frames_out: u64,
    /// Frames that are under way.
    pub under_way: u64,
    /// Results a second, of the last frames; absent until there are two.
    pub rate_hz: Option<f64>,
    /// From release to publishing, of the last frames.
    pub latency: Option<Quantiles>,
    /// Frames that came out after their deadline.
    pub deadline_misses: u64,
    /// What was dropped, by place and reason.
    pub drops: Vec<StreamDrops>,
}

impl StreamReading {
    /// Frames that were dropped, for whatever reason.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.drops.iter().map(|drop| drop.count).sum()
    }
}

/// Drops of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamDrops {
    /// Why.
    pub reason: String,
    /// Actor or channel.
    pub place: String,
    /// How many.
    pub count: u64,
}

/// One sink at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkReading {
    /// Name of its node.
    pub name: String,
    /// Results that were sent to it.
    pub results_in: u64,
    /// Results that it wrote.
    pub written: u64,
    /// Results that it could not write, or had no room for.
    pub dropped: u64,
}

/// State banks of one model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BankReading {
    /// The model.
    pub model: String,
    /// Banks that a stream has.
    pub used: usize,
    /// Banks that there are.
    pub capacity: usize,
}

impl Live {
    /// The run as it is now.
    #[must_use]
    pub fn status(&self) -> LiveStatus {
        let run = self.run();
        let now_ns = run.as_ref().map_or(0, |run| run.clock.now_ns());
        let (state, reasons) = lock(&self.inner.state).clone();
        let accounts = run.as_ref().map_or_else(Vec::new, |run| run.frames.accounts());
        let results = run.as_ref().map_or_else(Vec::new, |run| run.results.accounts());
        let misses = lock(&self.inner.misses).clone();
        // Copies: every result takes these locks, and none waits until a page is made.
        let recent = lock(&self.inner.recent).clone();
        let device = lock(&self.inner.device_name).clone();
        let actor_restarts = lock(&self.inner.restarts).clone();
        let banks = lock(&self.inner.banks).values().cloned().collect();
        let streams = accounts.iter().map(|account| StreamReading {
            name: account.name.to_string(),
            frames_in: account.frames_in,
            frames_out: account.frames_out,
            under_way: account.open,
            rate_hz: recent.rate_hz(account.stream.index(), now_ns),
            latency: recent.total(account.stream.index()),
            deadline_misses: misses.get(&account.stream).copied().unwrap_or(0),
            drops: drops_of(account),
        });
        LiveStatus {
            streams: streams.collect(),
            stages: recent.stages(),
            pipeline: run
                .as_ref()
                .map_or_else(String::new, |run| run.pipeline.to_string()),
            state,
            reasons,
            uptime_s: now_ns as f64 * 1e-9,
            queues: self.queues(),
            sinks: results.iter().map(sink_of).collect(),
            device,
            device_use: self.inner.device.read(now_ns),
            device_restarts: run.as_ref().map_or(0, |run| run.frames.device_restarts()),
            actor_restarts,
            banks,
            process: ProcessReading::take(),
        }
    }
}

fn drops_of(account: &StreamAccount) -> Vec<StreamDrops> {
    let drops = account.drops.iter();
    drops
        .map(|drop| StreamDrops {
            reason: drop.reason.name().to_owned(),
            place: drop.place.clone(),
            count: drop.count,
        })
        .collect()
}

fn sink_of(account: &StreamAccount) -> SinkReading {
    SinkReading {
        name: account.name.to_string(),
        results_in: account.frames_in,
        written: account.frames_out,
        dropped: account.dropped(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use super::*;
    use crate::telemetry::{DropReason, FrameTimes, Ledger, MonotonicClock, Stage, Streams};

    #[test]
    fn a_status_tells_of_every_part_and_is_read_back_from_json() {
        let live = Live::default();
        assert_eq!(live.status().state, LiveState::Starting);
        assert!(live.status().pipeline.is_empty());

        let streams = Streams::default();
        let camera = streams.register("/front");
        let frames = Arc::new(Ledger::new(streams));
        let results = Arc::new(Ledger::new(Streams::default()));
        let clock = MonotonicClock::start();
        live.begin("squares", clock, &frames, &results);
        let queue = live.queue("camera", "detector/prepare", 4, clock);
        queue.sent(clock.now_ns());
        live.device().replayed(0, 1_000);
        live.device().came_back(1);
        live.name_device("cpu: a processor");
        live.banks("temporal", 2, 8);
        live.restarted("detector/prepare");
        live.set_state(LiveState::Degraded, vec!["a sink failed".into()]);
        let (first, second) = (frames.frame_in(camera), frames.frame_in(camera));
        let _open = frames.frame_in(camera);
        frames.frame_out(first);
        frames.frame_dropped(second, "detector", DropReason::ChannelFullOldest);
        let mut times = FrameTimes::new(0);
        times.begin(Stage::Publish, 1_000_000);
        times.end(Stage::Publish, 3_000_000);
        live.came_out(camera, &times);
        live.missed_deadline(camera);
        let sink = results.streams().register("jsonl");
        let result = results.frame_in(sink);
        results.frame_out(result);

        let status = live.status();
        let text = serde_json::to_string(&status).unwrap();
        // Decimals of a time are not read back to the last bit; all others are.
        let read: LiveStatus = serde_json::from_str(&text).unwrap();
        assert_eq!((&read.streams, &read.stages), (&status.streams, &status.stages));
        assert_eq!((&read.sinks, &read.banks), (&status.sinks, &status.banks));
        assert_eq!((read.state, &read.reasons), (status.state, &status.reasons));
        assert_eq!(read.actor_restarts, status.actor_restarts);
        let stream = &status.streams[0];
        assert_eq!((stream.frames_in, stream.frames_out, stream.under_way), (3, 1, 1));
        assert_eq!((stream.dropped(), stream.deadline_misses), (1, 1));
        assert_eq!(stream.latency.unwrap().p50_ms, 3.0);
        assert_eq!(stream.drops[0].reason, "channel_full_oldest");
        assert_eq!(status.queues[0].len, 1);
        assert_eq!((status.sinks[0].written, status.sinks[0].dropped), (1, 0));
        assert_eq!(status.actor_restarts["detector/prepare"], 1);
        assert_eq!(status.banks[0].used, 2);
        assert_eq!(status.device_use.frames, 1);
        assert_eq!(status.stages[0].service.p50_ms, 2.0);
    }
}
