//! Which messages belong together.

use std::sync::Arc;

use super::clocks::{Clocks, Verdict};
use super::latest::Latest;
use super::nearest::Nearest;
use crate::pipeline::{MatchRule, OnPartial, SyncSettings};

/// What a [`Matcher`] goes by. Times are nanoseconds.
#[derive(Debug, Clone)]
pub struct MatchSettings {
    /// What is subtracted from the stamps of each member before they are compared; one for each member.
    pub offsets_ns: Vec<i64>,
    /// Which messages belong to one set.
    pub rule: MatchRule,
    /// Longest time that a set waits after its first member arrived.
    pub timeout_ns: i64,
    /// What becomes of a set that a member is missing in.
    pub on_partial: OnPartial,
    /// Fewest members of a set that is released.
    pub min_members: usize,
    /// Most sets that wait for members.
    pub max_waiting: usize,
}

impl From<&SyncSettings> for MatchSettings {
    fn from(settings: &SyncSettings) -> Self {
        Self {
            offsets_ns: settings.members.iter().map(|member| member.offset_ns).collect(),
            rule: settings.policy,
            timeout_ns: settings.timeout_ns,
            on_partial: settings.on_partial,
            min_members: settings.min_members.into(),
            max_waiting: settings.max_waiting.into(),
        }
    }
}

impl MatchSettings {
    /// Whether a set of so many members is released.
    pub(super) fn releases(&self, members: usize) -> bool {
        let complete = members == self.offsets_ns.len();
        complete || (self.on_partial == OnPartial::Release && members >= self.min_members)
    }
}

/// A message as a member of a set that is released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed<T> {
    /// The message.
    pub item: T,
    /// Its stamp as the sensor gave it.
    pub stamp_ns: i64,
    /// Whether no earlier set had it. Only under [`MatchRule::Latest`] may one be in several.
    pub first: bool,
}

/// A set that is released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchedSet<T> {
    /// Stamp of its earliest member, or of its reference where it has one.
    pub stamp_ns: i64,
    /// One place for each member; at least one is filled.
    pub members: Vec<Option<Placed<T>>>,
}

impl<T> MatchedSet<T> {
    /// Whether a member is missing.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.members.iter().any(Option::is_none)
    }
}

/// Why a message is in no set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unused {
    /// The set that it belongs to was released without it, or was dropped for what it lacked.
    Unmatched,
    /// Another message of its sensor took its place.
    Superseded,
    /// Its sensor's clock is not that of the others.
    Unsynchronised,
}

/// What comes of a message or of time that passes, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<T> {
    /// A set is released.
    Set(MatchedSet<T>),
    /// A message will not be in any set.
    Unused {
        /// Position of its sensor among the members.
        member: usize,
        /// The message.
        item: T,
        /// Why.
        why: Unused,
    },
    /// A sensor's clock was found to differ from the others'; told once until it agrees again.
    ClockOff {
        /// Position of the sensor among the members.
        member: usize,
        /// Its stamp.
        stamp_ns: i64,
        /// What the clock of the others says for the same moment.
        others_ns: i64,
    },
    /// A sensor's clock agrees with the others' again.
    ClockBack {
        /// Position of the sensor among the members.
        member: usize,
    },
    /// Stamps jumped back, as where a bag is played again: what waited is dropped.
    JumpedBack {
        /// Position of the sensor among the members.
        member: usize,
        /// Its newest stamp until now.
        from_ns: i64,
        /// The stamp that was there before.
        to_ns: i64,
    },
}

/// A message that waits.
#[derive(Debug)]
pub(super) struct Held<T> {
    pub(super) item: T,
    pub(super) stamp_ns: i64,
}

/// Brings messages of several sensors together into sets.
///
/// Everything follows from stamps and times of arrival that are given to it, so the same messages make the same sets at
/// any pace, whether or not somebody lets time pass between them. Sets come in rising order of time. A set waits no longer
/// 1. when every member is there;
/// 2. when each missing member has sent something later, or has another clock;
/// 3. when a later set waits no longer;
/// 4. when `timeout_ns` have passed on the clock of arrival since its first member arrived;
/// 5. when more than `max_waiting` sets wait.
///
/// A message of a set that was released is [`Unused::Unmatched`]: nothing is carried over to the next set, so a sensor
/// that was held up is in the newest set again with its next message in time.
#[derive(Debug)]
pub struct Matcher<T> {
    settings: MatchSettings,
    clocks: Clocks,
    waiting: Waiting<T>,
    now_ns: i64,
}

#[derive(Debug)]
enum Waiting<T> {
    Nearest(Nearest<T>),
    Latest(Latest<T>),
}

impl<T: Clone> Matcher<T> {
    /// A matcher of as many members as `settings` has offsets.
    #[must_use]
    pub fn new(settings: MatchSettings) -> Self {
        let members = settings.offsets_ns.len();
        let waiting = match settings.rule {
            MatchRule::Within { tolerance_ns } => Waiting::Nearest(Nearest::new(members, tolerance_ns)),
            MatchRule::Latest {
                reference,
                max_age_ns,
            } => Waiting::Latest(Latest::new(members, reference, max_age_ns)),
        };
        Self {
            clocks: Clocks::new(members, settings.timeout_ns),
            waiting,
            settings,
            now_ns: i64::MIN,
        }
    }

    /// Takes a message of a member: stamped by the sensor, and arrived on the clock of whoever received it. Messages of
    /// sensors that are no member are left alone.
    pub fn push(
        &mut self,
        member: usize,
        stamp_ns: i64,
        arrival_ns: i64,
        item: T,
        out: &mut Vec<Outcome<T>>,
    ) {
        let Some(&offset_ns) = self.settings.offsets_ns.get(member) else {
            return;
        };
        if arrival_ns < self.now_ns {
            // The clock of arrival was set back: no set may wait longer for it.
            self.waiting.rebase(arrival_ns);
        }
        self.now_ns = arrival_ns;
        // What has waited long enough by now does not wait for this one.
        self.advance(out);
        let time_ns = stamp_ns.saturating_sub(offset_ns);
        let verdict = self.clocks.judge(member, time_ns, arrival_ns);
        for off in self.clocks.take_changes() {
            out.push(match off.others_ns {
                Some(others_ns) => Outcome::ClockOff {
                    member: off.member,
                    stamp_ns: off.stamp_ns.saturating_add(self.settings.offsets_ns[off.member]),
                    others_ns,
                },
                None => Outcome::ClockBack { member: off.member },
            });
            if off.others_ns.is_some() {
                self.waiting.purge(off.member, out);
            }
        }
        match verdict {
            Verdict::Off => out.push(Outcome::Unused {
                member,
                item,
                why: Unused::Unsynchronised,
            }),
            verdict => {
                if let Verdict::JumpBack { from_ns } = verdict {
                    out.push(Outcome::JumpedBack {
                        member,
                        from_ns: from_ns.saturating_add(offset_ns),
                        to_ns: stamp_ns,
                    });
                    self.waiting.clear(out);
                }
                let held = Held { item, stamp_ns };
                match &mut self.waiting {
                    Waiting::Nearest(nearest) => nearest.push(member, time_ns, arrival_ns, held, out),
                    Waiting::Latest(latest) => latest.push(member, time_ns, arrival_ns, held, out),
                }
            }
        }
        self.advance(out);
    }

    /// Lets time pass on the clock of arrival.
    pub fn expire(&mut self, now_ns: i64, out: &mut Vec<Outcome<T>>) {
        self.now_ns = self.now_ns.max(now_ns);
        self.advance(out);
    }

    /// Nothing will come any more: what waits is released or dropped as it is.
    pub fn flush(&mut self, out: &mut Vec<Outcome<T>>) {
        match &mut self.waiting {
            Waiting::Nearest(nearest) => nearest.finalise_all(&self.settings, out),
            Waiting::Latest(latest) => latest.finalise_all(&self.settings, out),
        }
    }

    /// When the next set stops waiting, on the clock of arrival; `None` while none waits.
    #[must_use]
    pub fn next_expiry_ns(&self) -> Option<i64> {
        let first_ns = match &self.waiting {
            Waiting::Nearest(nearest) => nearest.first_arrival_ns(),
            Waiting::Latest(latest) => latest.first_arrival_ns(),
        };
        first_ns.map(|first_ns| first_ns.saturating_add(self.settings.timeout_ns))
    }

    /// Sets that wait for members.
    #[must_use]
    pub fn waiting(&self) -> usize {
        match &self.waiting {
            Waiting::Nearest(nearest) => nearest.len(),
            Waiting::Latest(latest) => latest.len(),
        }
    }

    fn advance(&mut self, out: &mut Vec<Outcome<T>>) {
        let (settings, now_ns, clocks) = (&self.settings, self.now_ns, &self.clocks);
        match &mut self.waiting {
            Waiting::Nearest(nearest) => nearest.advance(settings, now_ns, clocks, out),
            Waiting::Latest(latest) => latest.advance(settings, now_ns, clocks, out),
        }
    }
}

impl<T: Clone> Waiting<T> {
    fn rebase(&mut self, now_ns: i64) {
        match self {
            Self::Nearest(nearest) => nearest.rebase(now_ns),
            Self::Latest(latest) => latest.rebase(now_ns),
        }
    }

    fn purge(&mut self, member: usize, out: &mut Vec<Outcome<T>>) {
        match self {
            Self::Nearest(nearest) => nearest.purge(member, out),
            Self::Latest(latest) => latest.purge(member, out),
        }
    }

    fn clear(&mut self, out: &mut Vec<Outcome<T>>) {
        match self {
            Self::Nearest(nearest) => nearest.clear(out),
            Self::Latest(latest) => latest.clear(out),
        }
    }
}

/// Gives up a shared message: the last one to hold it tells that it was in no set, unless it was in one.
pub(super) fn let_go<T>(held: Arc<Shared<T>>, member: usize, why: Unused, out: &mut Vec<Outcome<T>>) {
    if let Some(held) = Arc::into_inner(held)
        && !held.released.get()
    {
        out.push(Outcome::Unused {
            member,
            item: held.held.item,
            why,
        });
    }
}

/// A message that several sets may have.
#[derive(Debug)]
pub(super) struct Shared<T> {
    pub(super) held: Held<T>,
    /// Whether a released set has it.
    pub(super) released: Released,
}

/// A flag that is set once.
#[derive(Debug, Default)]
pub(super) struct Released(std::sync::atomic::AtomicBool);

impl Released {
    fn get(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Sets it; whether it was not set before.
    pub(super) fn set(&self) -> bool {
        !self.0.swap(true, std::sync::atomic::Ordering::Relaxed)
    }
}
