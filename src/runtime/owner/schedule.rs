//! Which of the prepared frames the device takes next: plain data, without threads and without a clock of its own.
//!
//! Frames wait in one queue for each stream, and streams belong to lanes (one a detector). Only the oldest frame of a
//! stream can be chosen, so no stream is ever reordered. Of those, by [`Order::Deadline`]:
//!
//! 1. the frame that is due first; among frames that are due at the same moment, the one whose stream was served the
//!    longest time ago, so that a stream waits for at most one frame of each other one;
//! 2. frames without a deadline after all that have one, and their streams in turns as well. So that these never wait for
//!    ever, one of them goes after [`PATIENCE`] choices in a row that passed one over.
//!
//! A lane that has no room for the results is left out and holds nobody else. A lane with batched variants lets frames of
//! different streams go together: at once when the batch is full, when nobody else is expected to join in time, or when a
//! stream has a second frame waiting; at the latest when the oldest member has waited for the lane's timeout. A stream is
//! expected as long after its last frame as that came after the one before: nobody is held for a slow one that would come
//! too late anyway.
//!
//! [`Order::Arrival`] takes frames as they came, for runs that promise the same results every time: nothing is late there,
//! and a choice by time would make the order depend on how long things took.
//!
//! The memory is reserved once: the queue holds as many frames as the lanes have places, and refuses more.

use crate::telemetry::StreamId;

/// Choices in a row that may pass over a frame without a deadline.
pub const PATIENCE: u32 = 16;

/// A stream without a new frame for so long is not expected to join a batch, in nanoseconds.
pub const SILENT_NS: u64 = 1_000_000_000;

/// What decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The earliest deadline, and turns among equals.
    Deadline,
    /// First come, first served in each lane.
    Arrival,
}

/// How the frames of one lane are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneRules {
    /// Frames of the lane that may wait.
    pub places: usize,
    /// Frames that go to the device together at most; 1: each alone. There must be room for as many results at times.
    pub largest_batch: usize,
    /// Longest time that a frame waits for others to join it, in nanoseconds.
    pub timeout_ns: u64,
    /// Whether a frame whose deadline has passed is given up.
    pub drop_late: bool,
}

/// Frames that are ready for the device.
#[derive(Debug)]
pub struct Schedule<T> {
    order: Order,
    lanes: Vec<Lane>,
    streams: Vec<Stream>,
    /// Every place that there is; streams chain theirs together.
    places: Vec<Place<T>>,
    /// First of the chain of unused places.
    free: Option<usize>,
    len: usize,
    arrivals: u64,
    turn: u64,
    passed_over: u32,
}

#[derive(Debug)]
struct Lane {
    rules: LaneRules,
    waiting: usize,
    survey: Survey,
}

/// What a look at the streams of a lane found.
#[derive(Debug, Clone, Copy, Default)]
struct Survey {
    /// Streams with a frame waiting.
    heads: usize,
    /// Streams without one that are expected to bring one in time.
    awaited: usize,
    /// A stream has more than one frame waiting.
    backlog: bool,
    /// When the frame that has been waiting longest became ready.
    oldest_ns: u64,
}

#[derive(Debug)]
struct Stream {
    id: StreamId,
    lane: usize,
    /// Oldest and newest frame.
    ends: Option<[usize; 2]>,
    /// Turn in which it was last served; 0: never.
    served: u64,
    /// When a frame last came.
    seen_ns: u64,
    /// How long after the one before; `None` while there was one alone.
    gap_ns: Option<u64>,
}

#[derive(Debug)]
struct Place<T> {
    frame: Option<Frame<T>>,
    /// The next newer frame of the stream, or the next unused place.
    next: Option<usize>,
}

#[derive(Debug)]
struct Frame<T> {
    deadline_ns: Option<u64>,
    ready_ns: u64,
    number: u64,
    item: T,
}

/// Smaller goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    without_deadline: bool,
    deadline_ns: u64,
    served: u64,
    number: u64,
}

impl Lane {
    fn may_start(&self, now_ns: u64, closing: bool) -> bool {
        let Survey {
            heads,
            awaited,
            backlog,
            ..
        } = self.survey;
        heads > 0
            && (heads >= self.rules.largest_batch
                || closing
                || backlog
                || awaited == 0
                || self.waiting >= self.rules.places
                || self.due_ns() <= now_ns)
    }

    /// Frames that would go together now.
    fn wanted(&self) -> usize {
        self.survey.heads.min(self.rules.largest_batch).max(1)
    }

    /// When its frames have waited long enough for others.
    const fn due_ns(&self) -> u64 {
        self.survey.oldest_ns.saturating_add(self.rules.timeout_ns)
    }
}

impl<T> Schedule<T> {
    /// An empty schedule for these lanes; the sum of their places is what it holds at most.
    #[must_use]
    pub fn new(order: Order, rules: &[LaneRules]) -> Self {
        let capacity: usize = rules.iter().map(|rules| rules.places).sum();
        let place = |index: usize| Place {
            frame: None,
            next: (index + 1 < capacity).then_some(index + 1),
        };
        let lane = |&rules: &LaneRules| Lane {
            rules,
            waiting: 0,
            survey: Survey::default(),
        };
        Self {
            order,
            lanes: rules.iter().map(lane).collect(),
            streams: Vec::new(),
            places: (0..capacity).map(place).collect(),
            free: (capacity > 0).then_some(0),
            len: 0,
            arrivals: 0,
            turn: 0,
            passed_over: 0,
        }
    }

    /// Frames that wait.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether there is no place left.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.free.is_none()
    }

    /// Adds the newest frame of a stream, which became ready at `now_ns`. Its deadline is on the same clock.
    ///
    /// # Errors
    /// The frame, if there is no place left or no such lane.
    pub fn push(
        &mut self,
        lane: usize,
        stream: StreamId,
        deadline_ns: Option<u64>,
        now_ns: u64,
        item: T,
    ) -> Result<(), T> {
        let (Some(place), true) = (self.free, lane < self.lanes.len()) else {
            return Err(item);
        };
        self.free = self.places[place].next;
        self.arrivals += 1;
        self.places[place] = Place {
            frame: Some(Frame {
                deadline_ns,
                ready_ns: now_ns,
                number: self.arrivals,
                item,
            }),
            next: None,
        };
        let (index, is_new) = self.stream(lane, stream, now_ns);
        let stream = &mut self.streams[index];
        if !is_new {
            stream.gap_ns = Some(now_ns.saturating_sub(stream.seen_ns));
        }
        stream.seen_ns = now_ns;
        stream.ends = match stream.ends {
            Some([oldest, newest]) => {
                self.places[newest].next = Some(place);
                Some([oldest, place])
            }
            None => Some([place; 2]),
        };
        self.lanes[lane].waiting += 1;
        self.len += 1;
        Ok(())
    }

    /// Takes the frames that go to the device next, all of one lane and of different streams, and appends them to
    /// `batch`, first come or first due first. `room` tells how many results of a lane there is room for. While
    /// `closing`, no batch waits for others. Answers the lane; `None` if no frame may go now.
    pub fn next(
        &mut self,
        now_ns: u64,
        closing: bool,
        room: impl Fn(usize) -> usize,
        batch: &mut Vec<T>,
    ) -> Option<usize> {
        self.survey(now_ns);
        let lanes = &self.lanes;
        let may_go =
            |lane: usize| lanes[lane].may_start(now_ns, closing) && room(lane) >= lanes[lane].wanted();
        let (first, passed_over) = self.first(may_go)?;
        self.passed_over = passed_over;
        let lane = self.streams[first].lane;
        self.turn += 1;
        let most = self.lanes[lane].wanted();
        let mut next = Some(first);
        for _ in 0..most {
            let Some(stream) = next else { break };
            let Some(item) = self.take_oldest(stream) else {
                break;
            };
            self.streams[stream].served = self.turn;
            batch.push(item);
            next = self.joins(lane);
        }
        Some(lane)
    }

    /// When a batch that waits for others starts without them, if none comes; `None` if none waits.
    pub fn wake_ns(&mut self, now_ns: u64) -> Option<u64> {
        self.survey(now_ns);
        let held = self
            .lanes
            .iter()
            .filter(|lane| lane.survey.heads > 0 && !lane.may_start(now_ns, false));
        held.map(Lane::due_ns).min()
    }

    /// Takes a frame whose deadline has passed, out of a lane that gives such frames up.
    pub fn take_late(&mut self, now_ns: u64) -> Option<T> {
        let late = |stream: &Stream| {
            let head = self.head(stream)?;
            let rules = &self.lanes[stream.lane].rules;
            (rules.drop_late && head.deadline_ns.is_some_and(|due| due < now_ns)).then_some(())
        };
        let found = self.streams.iter().position(|stream| late(stream).is_some())?;
        self.take_oldest(found)
    }

    /// Takes the frame that has been here longest.
    pub fn take_any(&mut self) -> Option<T> {
        let numbers = self.streams.iter().enumerate();
        let oldest = numbers
            .filter_map(|(index, stream)| Some((self.head(stream)?.number, index)))
            .min()?;
        self.take_oldest(oldest.1)
    }

    /// The stream whose oldest frame goes first, of the lanes that may go, and how many choices in a row have then passed
    /// over a frame without a deadline.
    fn first(&self, may_go: impl Fn(usize) -> bool) -> Option<(usize, u32)> {
        let open = || {
            let ranks = self.ranks();
            ranks.filter(|&(_, index)| may_go(self.streams[index].lane))
        };
        if self.order == Order::Arrival {
            let oldest = open().map(|(rank, index)| (rank.number, index)).min();
            return oldest.map(|(_, index)| (index, 0));
        }
        let (rank, index) = open().min()?;
        let waiting = open().filter(|(rank, _)| rank.without_deadline).min();
        Some(match waiting {
            _ if rank.without_deadline => (index, 0),
            None => (index, self.passed_over),
            Some((_, waiting)) if self.passed_over >= PATIENCE => (waiting, 0),
            Some(_) => (index, self.passed_over + 1),
        })
    }

    /// The next stream of a lane that goes along with those served in this turn.
    fn joins(&self, lane: usize) -> Option<usize> {
        let own = || {
            let ranks = self.ranks();
            ranks.filter(|&(_, index)| self.streams[index].lane == lane)
        };
        let is_new = |index: usize| self.streams[index].served < self.turn;
        match self.order {
            Order::Deadline => own()
                .filter(|&(_, index)| is_new(index))
                .min()
                .map(|(_, index)| index),
            // A second frame of a stream ends the batch, or those behind it would overtake it.
            Order::Arrival => {
                let oldest = own().map(|(rank, index)| (rank.number, index)).min();
                oldest.map(|(_, index)| index).filter(|&index| is_new(index))
            }
        }
    }

    /// The oldest frame of every stream: its rank and the stream.
    fn ranks(&self) -> impl Iterator<Item = (Rank, usize)> {
        let streams = self.streams.iter().enumerate();
        streams.filter_map(|(index, stream)| {
            let head = self.head(stream)?;
            let rank = Rank {
                without_deadline: head.deadline_ns.is_none(),
                deadline_ns: head.deadline_ns.unwrap_or(u64::MAX),
                served: stream.served,
                number: head.number,
            };
            Some((rank, index))
        })
    }

    fn head(&self, stream: &Stream) -> Option<&Frame<T>> {
        let [oldest, _] = stream.ends?;
        self.places[oldest].frame.as_ref()
    }

    fn take_oldest(&mut self, stream: usize) -> Option<T> {
        let stream = &mut self.streams[stream];
        let [oldest, newest] = stream.ends?;
        let place = &mut self.places[oldest];
        let frame = place.frame.take()?;
        stream.ends = place.next.map(|next| [next, newest]);
        place.next = self.free;
        self.free = Some(oldest);
        self.lanes[stream.lane].waiting -= 1;
        self.len -= 1;
        Some(frame.item)
    }

    /// Looks at every stream once and counts for its lane.
    fn survey(&mut self, now_ns: u64) {
        for lane in &mut self.lanes {
            lane.survey = Survey {
                oldest_ns: u64::MAX,
                ..Survey::default()
            };
        }
        for stream in &self.streams {
            let survey = &mut self.lanes[stream.lane].survey;
            let head = stream.ends.and_then(|[oldest, newest]| {
                survey.backlog |= oldest != newest;
                self.places[oldest].frame.as_ref()
            });
            if let Some(head) = head {
                survey.heads += 1;
                survey.oldest_ns = survey.oldest_ns.min(head.ready_ns);
            }
        }
        for stream in self.streams.iter().filter(|stream| stream.ends.is_none()) {
            let lane = &mut self.lanes[stream.lane];
            let due_ns = lane.due_ns();
            let comes_in_time = |gap_ns| stream.seen_ns.saturating_add(gap_ns) <= due_ns;
            if !is_silent(stream, now_ns) && stream.gap_ns.is_none_or(comes_in_time) {
                lane.survey.awaited += 1;
            }
        }
    }

    /// The place of a stream in the list, and whether it is new; a new one takes the place of one that fell silent.
    fn stream(&mut self, lane: usize, id: StreamId, now_ns: u64) -> (usize, bool) {
        let known = |stream: &Stream| stream.id == id && stream.lane == lane;
        if let Some(index) = self.streams.iter().position(known) {
            return (index, false);
        }
        let new = Stream {
            id,
            lane,
            ends: None,
            served: 0,
            seen_ns: now_ns,
            gap_ns: None,
        };
        let gone = |stream: &Stream| stream.ends.is_none() && is_silent(stream, now_ns);
        let index = match self.streams.iter().position(gone) {
            Some(index) => {
                self.streams[index] = new;
                index
            }
            None => {
                self.streams.push(new);
                self.streams.len() - 1
            }
        };
        (index, true)
    }
}

const fn is_silent(stream: &Stream, now_ns: u64) -> bool {
    now_ns.saturating_sub(stream.seen_ns) > SILENT_NS
}
