//! Sets of messages whose stamps are close to each other.

use super::clocks::Clocks;
use super::matcher::{Held, MatchSettings, MatchedSet, Outcome, Placed, Unused};

/// Sets that wait, and the last one that does no more. Times are stamps without the sensors' offsets.
#[derive(Debug)]
pub(super) struct Nearest<T> {
    members: usize,
    tolerance_ns: i64,
    /// In rising order of their earliest times.
    pending: Vec<Pending<T>>,
    last: Option<Gone>,
}

#[derive(Debug)]
struct Pending<T> {
    slots: Vec<Option<(i64, Held<T>)>>,
    span: TimeSpan,
    first_arrival_ns: i64,
}

/// Earliest and latest time of a set.
#[derive(Debug, Clone, Copy)]
struct TimeSpan {
    from_ns: i64,
    to_ns: i64,
}

/// A set that waits no more.
#[derive(Debug)]
struct Gone {
    span: TimeSpan,
    /// Time of each member, also of those that came too late.
    times_ns: Vec<Option<i64>>,
}

impl TimeSpan {
    fn with(self, time_ns: i64) -> Self {
        Self {
            from_ns: self.from_ns.min(time_ns),
            to_ns: self.to_ns.max(time_ns),
        }
    }

    const fn length_ns(self) -> i64 {
        self.to_ns.saturating_sub(self.from_ns)
    }

    /// Twice the distance of a time from the middle.
    fn distance(self, time_ns: i64) -> u128 {
        (2 * i128::from(time_ns) - i128::from(self.from_ns) - i128::from(self.to_ns)).unsigned_abs()
    }
}

impl<T> Pending<T> {
    fn count(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    fn of(span: TimeSpan, slots: Vec<Option<(i64, Held<T>)>>, first_arrival_ns: i64) -> Self {
        Self {
            slots,
            span,
            first_arrival_ns,
        }
    }
}

impl<T> Nearest<T> {
    pub(super) const fn new(members: usize, tolerance_ns: i64) -> Self {
        Self {
            members,
            tolerance_ns,
            pending: Vec::new(),
            last: None,
        }
    }

    pub(super) fn push(
        &mut self,
        member: usize,
        time_ns: i64,
        arrival_ns: i64,
        held: Held<T>,
        out: &mut Vec<Outcome<T>>,
    ) {
        if let Some(why) = self.refusal(member, time_ns) {
            out.push(Outcome::Unused {
                member,
                item: held.item,
                why,
            });
            return;
        }
        match self.best(member, time_ns) {
            Some((at, _)) => {
                let set = &mut self.pending[at];
                set.span = set.span.with(time_ns);
                set.slots[member] = Some((time_ns, held));
                set.first_arrival_ns = set.first_arrival_ns.min(arrival_ns);
            }
            None => {
                let mut slots: Vec<_> = (0..self.members).map(|_| None).collect();
                slots[member] = Some((time_ns, held));
                let span = TimeSpan {
                    from_ns: time_ns,
                    to_ns: time_ns,
                };
                self.pending.push(Pending::of(span, slots, arrival_ns));
            }
        }
        self.pending.sort_by_key(|set| set.span.from_ns);
    }

    /// The set that waits for this message: the nearest one that it fits.
    fn best(&self, member: usize, time_ns: i64) -> Option<(usize, u128)> {
        let fits = |set: &Pending<T>| {
            set.slots[member].is_none() && set.span.with(time_ns).length_ns() <= self.tolerance_ns
        };
        let sets = self.pending.iter().enumerate().filter(|(_, set)| fits(set));
        sets.map(|(at, set)| (at, set.span.distance(time_ns)))
            .min_by_key(|&(at, distance)| (distance, at))
    }

    /// Why a message will not be in any set, if that is so.
    fn refusal(&mut self, member: usize, time_ns: i64) -> Option<Unused> {
        let same = |slot: &Option<(i64, Held<T>)>| slot.as_ref().is_some_and(|(known, _)| *known == time_ns);
        if self.pending.iter().any(|set| same(&set.slots[member])) {
            return Some(Unused::Superseded);
        }
        // The sensor has sent something later for a set that is no later than this: no two sets cross, or have one stamp.
        let crosses = |set: &Pending<T>| {
            let later = |(known, _): &(i64, Held<T>)| time_ns < *known;
            set.slots[member].as_ref().is_some_and(later) && set.span.from_ns <= time_ns
        };
        if self.pending.iter().any(crosses) {
            return Some(Unused::Superseded);
        }
        let nearest = self.best(member, time_ns).map(|(_, distance)| distance);
        let last = self.last.as_mut()?;
        if last.times_ns[member].is_some_and(|known| time_ns <= known) {
            return Some(Unused::Superseded);
        }
        // It belongs to the set that did not wait for it; the next one of its sensor does not any more.
        let belongs = last.times_ns[member].is_none()
            && last.span.with(time_ns).length_ns() <= self.tolerance_ns
            && nearest.is_none_or(|nearest| last.span.distance(time_ns) < nearest);
        if belongs {
            last.times_ns[member] = Some(time_ns);
        }
        if belongs || time_ns <= last.span.from_ns {
            return Some(Unused::Unmatched);
        }
        None
    }

    /// Ends the waiting of every set up to the last one that has nothing to wait for.
    pub(super) fn advance(
        &mut self,
        settings: &MatchSettings,
        now_ns: i64,
        clocks: &Clocks,
        out: &mut Vec<Outcome<T>>,
    ) {
        let done = |set: &Pending<T>| {
            now_ns.saturating_sub(set.first_arrival_ns) >= settings.timeout_ns
                || set
                    .slots
                    .iter()
                    .enumerate()
                    .all(|(member, slot)| slot.is_some() || clocks.is_past(member, set.span.to_ns))
        };
        let last = self.pending.iter().rposition(done).map_or(0, |last| last + 1);
        let too_many = self.pending.len().saturating_sub(settings.max_waiting);
        self.finalise(last.max(too_many), settings, out);
    }

    pub(super) fn finalise_all(&mut self, settings: &MatchSettings, out: &mut Vec<Outcome<T>>) {
        self.finalise(self.pending.len(), settings, out);
    }

    /// Releases or drops the oldest `count` sets.
    fn finalise(&mut self, count: usize, settings: &MatchSettings, out: &mut Vec<Outcome<T>>) {
        for set in self.pending.drain(..count) {
            let times_ns = set.slots.iter().map(|slot| slot.as_ref().map(|(time, _)| *time));
            self.last = Some(Gone {
                span: set.span,
                times_ns: times_ns.collect(),
            });
            if !settings.releases(set.count()) {
                unused(set, Unused::Unmatched, out);
                continue;
            }
            let members: Vec<Option<Placed<T>>> = set
                .slots
                .into_iter()
                .map(|slot| {
                    slot.map(|(_, held)| Placed {
                        item: held.item,
                        stamp_ns: held.stamp_ns,
                        first: true,
                    })
                })
                .collect();
            let stamps = members.iter().flatten().map(|placed| placed.stamp_ns);
            let stamp_ns = stamps.min().unwrap_or(set.span.from_ns);
            out.push(Outcome::Set(MatchedSet { stamp_ns, members }));
        }
    }

    /// Takes all messages of a member out.
    pub(super) fn purge(&mut self, member: usize, out: &mut Vec<Outcome<T>>) {
        for set in &mut self.pending {
            if let Some((_, held)) = set.slots[member].take() {
                out.push(Outcome::Unused {
                    member,
                    item: held.item,
                    why: Unused::Unsynchronised,
                });
            }
        }
        self.pending.retain(|set| set.count() > 0);
        for set in &mut self.pending {
            let times = || set.slots.iter().flatten().map(|(time, _)| *time);
            if let (Some(from_ns), Some(to_ns)) = (times().min(), times().max()) {
                set.span = TimeSpan { from_ns, to_ns };
            }
        }
        self.pending.sort_by_key(|set| set.span.from_ns);
        // What its sets were compared with may have been of its clock.
        if self
            .last
            .as_ref()
            .is_some_and(|last| last.times_ns[member].is_some())
        {
            self.last = None;
        }
    }

    /// Drops everything and forgets what was.
    pub(super) fn clear(&mut self, out: &mut Vec<Outcome<T>>) {
        self.last = None;
        for set in self.pending.drain(..) {
            unused(set, Unused::Unmatched, out);
        }
    }

    pub(super) fn rebase(&mut self, now_ns: i64) {
        for set in &mut self.pending {
            set.first_arrival_ns = set.first_arrival_ns.min(now_ns);
        }
    }

    pub(super) fn first_arrival_ns(&self) -> Option<i64> {
        self.pending.iter().map(|set| set.first_arrival_ns).min()
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }
}

fn unused<T>(set: Pending<T>, why: Unused, out: &mut Vec<Outcome<T>>) {
    let slots = set.slots.into_iter().enumerate();
    out.extend(slots.filter_map(|(member, slot)| {
        let (_, held) = slot?;
        Some(Outcome::Unused {
            member,
            item: held.item,
            why,
        })
    }));
}
