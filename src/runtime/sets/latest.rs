//! Sets of a reference's messages with the newest of every other sensor.

use std::collections::VecDeque;
use std::sync::Arc;

use super::clocks::Clocks;
use super::matcher::{Held, MatchSettings, MatchedSet, Outcome, Placed, Released, Shared, Unused, let_go};

/// The newest message of each sensor, and messages of the reference that wait for some. Times are stamps without the
/// sensors' offsets.
#[derive(Debug)]
pub(super) struct Latest<T> {
    reference: usize,
    max_age_ns: i64,
    /// The newest message of each member but the reference.
    newest: Vec<Option<Timed<T>>>,
    pending: VecDeque<Pending<T>>,
    /// Time of the newest message of the reference.
    last_ns: Option<i64>,
}

/// A message with its time.
type Timed<T> = (i64, Arc<Shared<T>>);

#[derive(Debug)]
struct Pending<T> {
    time_ns: i64,
    arrival_ns: i64,
    slots: Vec<Option<Arc<Shared<T>>>>,
}

impl<T: Clone> Latest<T> {
    pub(super) fn new(members: usize, reference: usize, max_age_ns: i64) -> Self {
        Self {
            reference,
            max_age_ns,
            newest: (0..members).map(|_| None).collect(),
            pending: VecDeque::new(),
            last_ns: None,
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
        let before_ns = match member == self.reference {
            true => self.last_ns,
            false => self.newest[member].as_ref().map(|(time_ns, _)| *time_ns),
        };
        if before_ns.is_some_and(|before_ns| time_ns <= before_ns) {
            out.push(Outcome::Unused {
                member,
                item: held.item,
                why: Unused::Superseded,
            });
            return;
        }
        let shared = Arc::new(Shared {
            held,
            released: Released::default(),
        });
        let is_near = |other_ns: i64, time_ns: i64, limit_ns: i64| {
            i128::from(other_ns).abs_diff(i128::from(time_ns)) <= limit_ns.unsigned_abs().into()
        };
        if member == self.reference {
            self.last_ns = Some(time_ns);
            let near = |(other_ns, shared): &Timed<T>| {
                is_near(*other_ns, time_ns, self.max_age_ns).then(|| Arc::clone(shared))
            };
            let newest = self.newest.iter().map(|newest| newest.as_ref().and_then(near));
            let mut slots: Vec<Option<Arc<Shared<T>>>> = newest.collect();
            slots[member] = Some(shared);
            self.pending.push_back(Pending {
                time_ns,
                arrival_ns,
                slots,
            });
            return;
        }
        for set in &mut self.pending {
            if set.slots[member].is_none() && is_near(set.time_ns, time_ns, self.max_age_ns) {
                set.slots[member] = Some(Arc::clone(&shared));
            }
        }
        if let Some((_, older)) = self.newest[member].replace((time_ns, shared)) {
            let_go(older, member, Unused::Superseded, out);
        }
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
            let slots = || set.slots.iter().enumerate();
            now_ns.saturating_sub(set.arrival_ns) >= settings.timeout_ns
                || slots().all(|(member, slot)| slot.is_some() || clocks.is_off(member))
        };
        let last = self.pending.iter().rposition(done).map_or(0, |last| last + 1);
        let too_many = self.pending.len().saturating_sub(settings.max_waiting);
        self.finalise(last.max(too_many), settings, out);
    }

    pub(super) fn finalise_all(&mut self, settings: &MatchSettings, out: &mut Vec<Outcome<T>>) {
        self.finalise(self.pending.len(), settings, out);
        self.forget_newest(out);
    }

    /// Releases or drops the oldest `count` sets.
    fn finalise(&mut self, count: usize, settings: &MatchSettings, out: &mut Vec<Outcome<T>>) {
        for set in self.pending.drain(..count) {
            if !settings.releases(set.slots.iter().flatten().count()) {
                unused(set, Unused::Unmatched, out);
                continue;
            }
            let stamp_ns = set.slots[self.reference]
                .as_ref()
                .map_or(set.time_ns, |reference| reference.held.stamp_ns);
            let placed = |shared: Arc<Shared<T>>| Placed {
                stamp_ns: shared.held.stamp_ns,
                first: shared.released.set(),
                item: shared.held.item.clone(),
            };
            let members = set.slots.into_iter().map(|slot| slot.map(placed)).collect();
            out.push(Outcome::Set(MatchedSet { stamp_ns, members }));
        }
    }

    /// Takes all messages of a member out.
    pub(super) fn purge(&mut self, member: usize, out: &mut Vec<Outcome<T>>) {
        if member == self.reference {
            // Without it there are no sets.
            for set in self.pending.drain(..) {
                unused(set, Unused::Unsynchronised, out);
            }
            self.last_ns = None;
            return;
        }
        let newest = self.newest[member].take().map(|(_, shared)| shared);
        let waiting = self.pending.iter_mut().filter_map(|set| set.slots[member].take());
        for shared in waiting.chain(newest).collect::<Vec<_>>() {
            let_go(shared, member, Unused::Unsynchronised, out);
        }
    }

    /// Drops everything and forgets what was.
    pub(super) fn clear(&mut self, out: &mut Vec<Outcome<T>>) {
        for set in self.pending.drain(..) {
            unused(set, Unused::Unmatched, out);
        }
        self.last_ns = None;
        self.forget_newest(out);
    }

    fn forget_newest(&mut self, out: &mut Vec<Outcome<T>>) {
        for (member, newest) in self.newest.iter_mut().enumerate() {
            if let Some((_, shared)) = newest.take() {
                let_go(shared, member, Unused::Unmatched, out);
            }
        }
    }

    pub(super) fn rebase(&mut self, now_ns: i64) {
        for set in &mut self.pending {
            set.arrival_ns = set.arrival_ns.min(now_ns);
        }
    }

    pub(super) fn first_arrival_ns(&self) -> Option<i64> {
        self.pending.iter().map(|set| set.arrival_ns).min()
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }
}

fn unused<T>(set: Pending<T>, why: Unused, out: &mut Vec<Outcome<T>>) {
    for (member, slot) in set.slots.into_iter().enumerate() {
        if let Some(shared) = slot {
            let_go(shared, member, why, out);
        }
    }
}
