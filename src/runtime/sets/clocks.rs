//! Whether sensors share a clock, and whether time jumps back.
//!
//! A stamp less the time of arrival is how far a sensor's clock is ahead of the receiver's. Sensors that share a clock
//! are ahead by about the same; one that is far from the middle of all has a clock of its own, and nothing it sends
//! will ever fit.

/// A difference to the other sensors' clocks that no delay explains.
const MAX_DIFFERENCE_NS: i64 = 10_000_000_000;

/// A step back of a sensor's stamps beyond this is a jump in time, not a message out of order.
const JUMP_BACK_NS: i64 = 500_000_000;

/// What is known of one member.
#[derive(Debug, Clone, Copy, Default)]
struct Member {
    /// Its newest stamp and its last time of arrival, offset taken off.
    last: Option<Last>,
    off: bool,
}

#[derive(Debug, Clone, Copy)]
struct Last {
    newest_ns: i64,
    time_ns: i64,
    arrival_ns: i64,
}

impl Last {
    /// How far its clock is ahead of the receiver's.
    const fn lead_ns(&self) -> i64 {
        self.time_ns.saturating_sub(self.arrival_ns)
    }
}

/// What is to be done with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Fine,
    /// The stamps start over.
    JumpBack {
        from_ns: i64,
    },
    /// The sensor's clock is not that of the others.
    Off,
}

/// A member whose clock was found to differ, or to agree again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    pub(super) member: usize,
    pub(super) stamp_ns: i64,
    /// What the others' clock says; `None` where it agrees again.
    pub(super) others_ns: Option<i64>,
}

/// The clocks of all members.
#[derive(Debug)]
pub(super) struct Clocks {
    members: Vec<Member>,
    limit_ns: i64,
    changes: Vec<Change>,
}

impl Clocks {
    pub(super) fn new(members: usize, timeout_ns: i64) -> Self {
        Self {
            members: vec![Member::default(); members],
            limit_ns: MAX_DIFFERENCE_NS.max(timeout_ns.saturating_mul(4)),
            changes: Vec::new(),
        }
    }

    /// Takes note of a message and says what it is worth.
    pub(super) fn judge(&mut self, member: usize, time_ns: i64, arrival_ns: i64) -> Verdict {
        let before = self.members[member].last;
        self.members[member].last = Some(Last {
            // A message that is thrown away must not tell what is newest.
            newest_ns: before.map_or(time_ns, |last| last.newest_ns),
            time_ns,
            arrival_ns,
        });
        self.compare(arrival_ns);
        if self.members[member].off {
            return Verdict::Off;
        }
        let jump = before
            .map(|last| last.newest_ns)
            .filter(|newest| newest.saturating_sub(time_ns) > JUMP_BACK_NS);
        if let Some(from_ns) = jump {
            for other in &mut self.members {
                other.last = None;
            }
            self.members[member].last = Some(Last {
                newest_ns: time_ns,
                time_ns,
                arrival_ns,
            });
            return Verdict::JumpBack { from_ns };
        }
        if let Some(last) = &mut self.members[member].last {
            last.newest_ns = last.newest_ns.max(time_ns);
        }
        Verdict::Fine
    }

    /// Compares all members that were heard of lately with the middle of them.
    fn compare(&mut self, now_ns: i64) {
        let recent = |last: &Last| now_ns.abs_diff(last.arrival_ns) <= self.limit_ns as u64;
        let heard = self
            .members
            .iter()
            .filter_map(|member| member.last.filter(recent));
        let mut leads: Vec<i64> = heard.map(|last| last.lead_ns()).collect();
        leads.sort_unstable();
        let Some(&upper) = leads.get(leads.len() / 2) else {
            return;
        };
        // Of two in the middle, the one that is nearer to the receiver's clock.
        let lower = leads[(leads.len() - 1) / 2];
        let middle_ns = if lower.unsigned_abs() < upper.unsigned_abs() {
            lower
        } else {
            upper
        };
        for (position, member) in self.members.iter_mut().enumerate() {
            let Some(last) = member
                .last
                .filter(|last| now_ns.abs_diff(last.arrival_ns) <= self.limit_ns as u64)
            else {
                continue;
            };
            let off = last.lead_ns().abs_diff(middle_ns) > self.limit_ns as u64;
            if off != member.off {
                member.off = off;
                self.changes.push(Change {
                    member: position,
                    stamp_ns: last.time_ns,
                    others_ns: off.then(|| last.arrival_ns.saturating_add(middle_ns)),
                });
            }
        }
    }

    /// What [`judge`](Self::judge) found out.
    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Whether a member has sent something that is later than a time, or never will in this time.
    pub(super) fn is_past(&self, member: usize, time_ns: i64) -> bool {
        let member = &self.members[member];
        member.off || member.last.is_some_and(|last| last.newest_ns > time_ns)
    }

    /// Whether a member's clock is not that of the others.
    pub(super) fn is_off(&self, member: usize) -> bool {
        self.members[member].off
    }
}
