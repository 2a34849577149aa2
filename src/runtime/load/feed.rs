//! The feed that offers messages from memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::restamp::{shifted, shifted_transforms};
use super::{Arrivals, Load, Until};
use crate::io::cdr::CdrError;
use crate::perception::Sensor;
use crate::runtime::frame::Message;
use crate::runtime::source::{Feed, Playback};
use crate::runtime::topics::PlayedTopic;

/// The messages of one topic.
#[derive(Debug)]
pub(super) struct Track {
    pub(super) topic: PlayedTopic,
    /// Their places among all messages.
    pub(super) places: Vec<usize>,
    /// Mean time between two of them.
    pub(super) period_ns: u64,
    /// From the first to the last.
    pub(super) span_ns: u64,
}

impl Track {
    /// Message of the `turn`-th query, and what its stamps are behind those of the recording.
    fn at(&self, turn: u64) -> (usize, u64) {
        let count = self.places.len() as u64;
        let shift_ns = (turn / count).saturating_mul(self.span_ns + self.period_ns);
        (self.places[(turn % count) as usize], shift_ns)
    }
}

/// One stream that is offered.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) track: usize,
    pub(super) name: Arc<str>,
    /// Results that come of one of its messages.
    pub(super) receivers: u64,
}

/// Offers messages from memory.
pub(in crate::runtime) struct LoadFeed {
    pub(super) played: Arc<[Message]>,
    pub(super) transforms: Vec<usize>,
    pub(super) tracks: Vec<Track>,
    pub(super) lanes: Vec<Lane>,
    pub(super) load: Load,
}

impl LoadFeed {
    /// Messages that will be offered, if that is known.
    pub(in crate::runtime) fn queries(&self) -> u64 {
        match (self.load.until, self.period_ns()) {
            (Until::Queries(queries), _) => queries.min(self.load.most_queries),
            (Until::For(time), Some(period_ns)) => {
                let all_ns = (self.load.warm_up + time).as_nanos();
                let lanes = self.lanes.len() as u128;
                u64::try_from((all_ns * lanes).div_ceil(u128::from(period_ns)))
                    .unwrap_or(u64::MAX)
                    .min(self.load.most_queries)
            }
            (Until::For(_), None) => 0,
        }
    }

    /// From one message of a stream to its next; `None` in a closed loop.
    fn period_ns(&self) -> Option<u64> {
        match self.load.arrivals {
            Arrivals::AfterLast => None,
            Arrivals::Every { period_ns } => Some(period_ns.max(1)),
            Arrivals::AsRecorded => Some(self.tracks[0].period_ns),
        }
    }

    /// The transforms that belong before a message of the first LiDAR, each once, in the order of the recording; before
    /// one of the first stream where there is no LiDAR.
    fn transforms_before(&self, progress: &mut TransformsSent, turn: u64) -> Vec<Result<Message, CdrError>> {
        let lidar = |track: &&Track| track.topic.sensor == Sensor::Lidar;
        let Some(track) = self.tracks.iter().find(lidar).or(self.tracks.first()) else {
            return Vec::new();
        };
        let mut due = Vec::new();
        let (place, shift_ns) = track.at(turn);
        let passed_ns = self.played[place].log_time_ns;
        let round = turn / track.places.len() as u64;
        loop {
            let Some(&next) = self.transforms.get(progress.next) else {
                // What the recording has after its last message belongs to the next round.
                if progress.round >= round || self.transforms.is_empty() {
                    return due;
                }
                *progress = TransformsSent {
                    round: progress.round + 1,
                    next: 0,
                };
                continue;
            };
            let message = &self.played[next];
            let behind = progress.round < round;
            if !behind && message.log_time_ns > passed_ns {
                return due;
            }
            let shift_ns = if behind {
                (progress.round).saturating_mul(track.span_ns + track.period_ns)
            } else {
                shift_ns
            };
            due.push(shifted_transforms(message, shift_ns));
            progress.next += 1;
        }
    }
}

/// How far the transforms of a recording were sent.
#[derive(Debug, Default)]
struct TransformsSent {
    round: u64,
    next: usize,
}

impl Feed for LoadFeed {
    fn play(&mut self, stage: &Playback) {
        let (load, tally) = (&self.load, &*self.load.tally);
        let lanes = self.lanes.len() as u64;
        let period_ns = self.period_ns();
        let start = Instant::now();
        let start_ns = stage.at_ns(start);
        let warm_up_ns = u64::try_from(load.warm_up.as_nanos()).unwrap_or(u64::MAX);
        let measured_from_ns = start_ns.saturating_add(warm_up_ns);
        tally.lanes.store(lanes, Ordering::Release);
        tally.period_ns.store(period_ns.unwrap_or(0), Ordering::Release);
        tally.started_ns.store(start_ns, Ordering::Release);
        tally.measured_from_ns.store(measured_from_ns, Ordering::Release);
        let end_ns = match load.until {
            Until::For(time) => {
                measured_from_ns.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
            }
            Until::Queries(_) => u64::MAX,
        };
        let enough = match load.until {
            Until::Queries(queries) => queries,
            Until::For(_) => u64::MAX,
        };
        let mut sent = TransformsSent::default();
        let mut measured = 0;
        for query in 0..load.most_queries {
            let (turn, lane) = (query / lanes, &self.lanes[(query % lanes) as usize]);
            let (place, shift_ns) = self.tracks[lane.track].at(turn);
            for transforms in self.transforms_before(&mut sent, turn) {
                let handed = match transforms {
                    Ok(transforms) => stage.hand_over_at(transforms, Instant::now()).is_some(),
                    Err(error) => {
                        stage.damaged(format!("a transform cannot be read: {error}"));
                        true
                    }
                };
                if !handed {
                    return;
                }
            }
            let message = match shifted(&self.played[place], &lane.name, shift_ns) {
                Ok(message) => message,
                Err(error) => {
                    return stage.damaged(format!("a message of {} cannot be read: {error}", lane.name));
                }
            };
            let due = match period_ns {
                // The streams are equal parts of the period apart.
                Some(period_ns) => {
                    let after_ns = u128::from(period_ns) * u128::from(query) / u128::from(lanes);
                    start + Duration::from_nanos(u64::try_from(after_ns).unwrap_or(u64::MAX))
                }
                None => Instant::now(),
            };
            let due_ns = stage.at_ns(due);
            if due_ns >= end_ns || measured >= enough {
                break;
            }
            let Some(late) = stage.hand_over_at(message, due) else {
                return;
            };
            tally.ended_ns.store(due_ns, Ordering::Release);
            if due_ns >= measured_from_ns {
                measured += 1;
                tally.queries.store(measured, Ordering::Release);
                tally.frames.fetch_add(lane.receivers, Ordering::AcqRel);
                if let Some(period_ns) = period_ns {
                    tally.note_late(late, period_ns);
                }
            } else {
                tally.warm_up_queries.fetch_add(1, Ordering::AcqRel);
            }
            if load.give_up_after.is_some_and(|limit| tally.overruns() > limit) {
                tally.gave_up.store(1, Ordering::Release);
                break;
            }
            if period_ns.is_none() && !stage.settled() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::messages::{IMAGE_TYPE, TF_TYPE};

    /// Images of a camera that moves, and no LiDAR: its transforms are offered before them all the same.
    #[test]
    fn transforms_come_before_the_images_of_a_bag_without_points() {
        let message = |topic: &str, type_name: &str, log_time_ns| Message {
            topic: topic.into(),
            type_name: type_name.into(),
            log_time_ns,
            data: Vec::new(),
            beside: Vec::new(),
            parts: Vec::new(),
        };
        let tf = |time_ns| message("/tf", TF_TYPE, time_ns);
        let image = |time_ns| message("/front", IMAGE_TYPE, time_ns);
        let feed = LoadFeed {
            played: [tf(1), image(2), tf(3), tf(4), image(5)].into(),
            transforms: vec![0, 2, 3],
            tracks: vec![Track {
                topic: PlayedTopic::new("/front", Sensor::Camera),
                places: vec![1, 4],
                period_ns: 3,
                span_ns: 3,
            }],
            lanes: Vec::new(),
            load: Load {
                arrivals: Arrivals::AfterLast,
                copies: 1,
                warm_up: Duration::ZERO,
                until: Until::Queries(2),
                most_queries: 2,
                give_up_after: None,
                memory_bytes: 0,
                messages: Arc::default(),
                tally: Arc::default(),
            },
        };
        let mut sent = TransformsSent::default();
        let mut times_of = |turn| -> Vec<u64> {
            let due = feed.transforms_before(&mut sent, turn).into_iter();
            due.filter_map(|message| Some(message.ok()?.log_time_ns))
                .collect()
        };
        assert_eq!([times_of(0), times_of(1)], [vec![1], vec![3, 4]]);
    }

    #[test]
    fn a_track_begins_again_one_period_after_its_end() {
        let track = Track {
            topic: PlayedTopic::new("/points", Sensor::Lidar),
            places: vec![3, 5, 8],
            period_ns: 100,
            span_ns: 200,
        };
        let offered: Vec<_> = (0..7).map(|turn| track.at(turn)).collect();
        assert_eq!(
            offered,
            [(3, 0), (5, 0), (8, 0), (3, 300), (5, 300), (8, 300), (3, 600)]
        );
    }
}
