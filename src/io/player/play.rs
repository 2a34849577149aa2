//! The loop that releases messages when they are due.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::control::Control;
use super::read_ahead::{Item, Message, Queue, Reading};
use super::schedule::Schedule;
use super::stamps::Stamps;
use super::{
    ClockMessages, Ending, PlayerClock, PlayerError, PlayerSettings, PlayerSink, PlayerSummary, Rate,
    Release, Reset,
};
use crate::io::messages::ClockMsg;

/// Where messages come from while playing.
pub(super) enum Feed<'a> {
    ReadAhead(&'a Queue),
    /// Everything, loaded beforehand, and the place of the next message.
    Loaded {
        messages: Vec<Message>,
        next: usize,
        looped: bool,
    },
}

impl Feed<'_> {
    /// The next item, and whether it had to be waited for.
    fn next(&mut self) -> Option<(Item, bool)> {
        let (messages, next, looped) = match self {
            Self::ReadAhead(queue) => return queue.pop(),
            Self::Loaded {
                messages,
                next,
                looped,
            } => (messages, next, *looped),
        };
        if looped && *next > 0 && *next == messages.len() {
            *next = 0;
            return Some((Item::LoopEnd, false));
        }
        let message = messages.get_mut(*next)?;
        *next += 1;
        let data = match looped {
            true => message.data.clone(),
            false => std::mem::take(&mut message.data),
        };
        Some((Item::Message(Message { data, ..*message }), false))
    }
}

/// A player at work.
pub(super) struct Playing<'a> {
    pub settings: &'a PlayerSettings,
    pub stamps: &'a [Stamps],
    /// Place of `/clock` in the list of played topics.
    pub clock_topic: usize,
    pub control: Arc<Control>,
    pub clock: &'a dyn PlayerClock,
    pub sink: &'a mut dyn PlayerSink,
    pub schedule: Schedule,
    pub loop_length_ns: u64,
    pub summary: PlayerSummary,
    /// How far times are moved in this loop.
    pub shift_ns: u64,
    /// When `/clock` is due next, on the bag's time.
    pub next_tick_ns: u64,
}

/// Why waiting ended.
enum Due {
    /// The message is to be released; when that should have been.
    Now(Instant),
    Stopped,
}

impl Playing<'_> {
    pub(super) fn run(mut self, mut feed: Feed<'_>) -> Result<PlayerSummary, PlayerError> {
        let mut first = true;
        while let Some((item, waited)) = feed.next() {
            match item {
                Item::Message(message) => {
                    self.summary.starved += u64::from(waited && !first);
                    first = false;
                    if !self.message(message)? {
                        break;
                    }
                }
                Item::Damage(error) => self.summary.damaged(error),
                Item::LoopEnd if self.control.orders().stopped => break,
                Item::LoopEnd => self.begin_again(),
            }
        }
        if self.control.orders().stopped {
            self.summary.ending = Ending::Stopped;
        }
        Ok(self.summary)
    }

    fn begin_again(&mut self) {
        self.summary.loops += 1;
        self.shift_ns = self.shift_ns.saturating_add(self.loop_length_ns);
        self.sink.reset(Reset {
            loop_number: self.summary.loops,
            shift_ns: self.shift_ns,
        });
    }

    /// Releases one message when it is due; `false` when told to stop.
    fn message(&mut self, mut message: Message) -> Result<bool, PlayerError> {
        let time_ns = message.log_time_ns.saturating_add(self.shift_ns);
        if let ClockMessages::Hz(hz) = self.settings.clock {
            while self.next_tick_ns <= time_ns {
                let tick_ns = self.next_tick_ns;
                let Due::Now(intended) = self.wait(tick_ns, false) else {
                    return Ok(false);
                };
                self.release_clock(tick_ns, intended)?;
                // Ticks are apart by the same time of the wall, whatever the rate.
                let rate = match self.schedule.rate() {
                    Rate::Times(rate) => rate,
                    Rate::Max => 1.0,
                };
                let period_ns = (1e9 / hz * rate).round().max(1.0) as u64;
                self.next_tick_ns = tick_ns.saturating_add(period_ns);
            }
        }
        let Due::Now(intended) = self.wait(time_ns, true) else {
            return Ok(false);
        };
        if self.settings.clock == ClockMessages::BeforeEachMessage {
            self.release_clock(time_ns, intended)?;
        }
        let shifts = self.settings.shift_stamps && self.shift_ns > 0;
        if shifts && !self.stamps[message.topic].shift(&mut message.data, self.shift_ns) {
            self.summary.unshifted += 1;
        }
        self.summary.messages += 1;
        self.summary.bytes += message.data.len() as u64;
        self.release(message.topic, message.data, time_ns, intended);
        Ok(true)
    }

    fn release_clock(&mut self, time_ns: u64, intended: Instant) -> Result<(), PlayerError> {
        let clock = i64::try_from(time_ns).ok().and_then(ClockMsg::new);
        let clock = clock.ok_or(PlayerError::ClockTime { time_ns })?;
        self.summary.clock_messages += 1;
        self.release(self.clock_topic, clock.encode(), time_ns, intended);
        Ok(())
    }

    fn release(&mut self, topic: usize, data: Vec<u8>, log_time_ns: u64, intended: Instant) {
        let lateness = self.clock.now().saturating_duration_since(intended);
        self.summary.released(lateness, self.settings.late_after);
        self.sink.release(Release {
            topic,
            data,
            log_time_ns,
            shift_ns: self.shift_ns,
            intended,
            lateness,
        });
    }

    /// Waits until a time of the bag is due. Messages use up steps; `/clock` goes along with the message behind it.
    fn wait(&mut self, time_ns: u64, uses_step: bool) -> Due {
        loop {
            // What is ordered after this count wakes the wait below.
            let heard = self.control.bell.rings();
            let orders = self.control.orders();
            let now = self.clock.now();
            if orders.stopped {
                return Due::Stopped;
            }
            if let Some(rate) = orders.rate.filter(|rate| *rate != self.schedule.rate()) {
                self.schedule.set_rate(rate, now);
            }
            if orders.paused {
                if !self.schedule.is_paused() {
                    self.schedule.pause(now);
                }
                if orders.steps > 0 {
                    if uses_step {
                        self.control.stepped();
                    }
                    self.schedule.move_to(time_ns, now);
                    return Due::Now(now);
                }
                self.clock.wait(None, &self.control.bell, heard);
                continue;
            }
            if self.schedule.is_paused() {
                self.schedule.resume(now);
            }
            match self.schedule.due(time_ns) {
                None => {
                    self.schedule.move_to(time_ns, now);
                    return Due::Now(now);
                }
                Some(due) if due <= now => return Due::Now(due),
                Some(due) => self.clock.wait(Some(due), &self.control.bell, heard),
            }
        }
    }
}

/// Plays with a thread that reads ahead.
pub(super) fn with_reader<T>(
    reading: &Reading,
    queue: &Queue,
    play: impl FnOnce() -> Result<T, PlayerError>,
) -> Result<T, PlayerError> {
    /// Lets the reader go, also where playing ends by a panic.
    struct Closes<'a>(&'a Queue);
    impl Drop for Closes<'_> {
        fn drop(&mut self) {
            self.0.close();
        }
    }
    std::thread::scope(|scope| {
        let closes = Closes(queue);
        let reader = std::thread::Builder::new()
            .name("bag-read-ahead".to_owned())
            .spawn_scoped(scope, || reading.run(queue))
            .map_err(PlayerError::Thread)?;
        queue.wait_until_filled();
        let played = play();
        drop(closes);
        let read = reader.join().unwrap_or(Err(PlayerError::Reader));
        played.and_then(|played| read.map(|()| played))
    })
}

/// How long one turn of a loop is: what was asked for, or to the last message and a little, so that no time comes twice.
pub(super) fn loop_length_ns(range_ns: u64, duration_ns: Option<u64>) -> u64 {
    const GAP: Duration = Duration::from_millis(1);
    duration_ns.unwrap_or_else(|| range_ns.saturating_add(GAP.as_nanos() as u64))
}
