//! Where one frame has been in its parent.

use std::collections::VecDeque;

use super::{TfLimits, Transform};

/// What became of a transform that was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Kept,
    /// The same stamp again.
    Repeated,
    /// Older than the history goes.
    TooOld,
}

/// Why there is no transform at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gap {
    Empty,
    Before { oldest_ns: i64 },
    After { newest_ns: i64 },
}

/// Transforms of one frame.
#[derive(Debug, Clone)]
pub(super) enum History {
    /// One that holds at all times.
    Static(Transform),
    /// Some with their stamps, oldest first, no two of one stamp.
    Moving(VecDeque<(i64, Transform)>),
}

impl History {
    pub(super) fn newest_ns(&self) -> Option<i64> {
        match self {
            Self::Static(_) => None,
            Self::Moving(samples) => samples.back().map(|&(stamp, _)| stamp),
        }
    }

    pub(super) fn oldest_ns(&self) -> Option<i64> {
        match self {
            Self::Static(_) => None,
            Self::Moving(samples) => samples.front().map(|&(stamp, _)| stamp),
        }
    }

    /// Forgets where a moving frame has been.
    pub(super) fn forget(&mut self) {
        if let Self::Moving(samples) = self {
            samples.clear();
        }
    }

    /// Takes in where the frame is at a time; a static one becomes a moving one.
    pub(super) fn tell(&mut self, stamp_ns: i64, transform: Transform, limits: &TfLimits) -> Told {
        let samples = match self {
            Self::Moving(samples) => samples,
            Self::Static(_) => {
                *self = Self::Moving(VecDeque::from([(stamp_ns, transform)]));
                return Told::Kept;
            }
        };
        let newest = samples.back().map_or(stamp_ns, |&(newest, _)| newest);
        if newest.saturating_sub(stamp_ns) > limits.history_ns {
            return Told::TooOld;
        }
        // Nearly always the end.
        let at = samples.partition_point(|&(stamp, _)| stamp < stamp_ns);
        if samples.get(at).is_some_and(|&(stamp, _)| stamp == stamp_ns) {
            return Told::Repeated;
        }
        samples.insert(at, (stamp_ns, transform));
        let newest = newest.max(stamp_ns);
        while samples.len() > limits.history_len.max(1)
            || samples
                .front()
                .is_some_and(|&(oldest, _)| newest.saturating_sub(oldest) > limits.history_ns)
        {
            samples.pop_front();
        }
        Told::Kept
    }

    /// Where the frame is at a time.
    pub(super) fn at(&self, stamp_ns: i64) -> Result<Transform, Gap> {
        let samples = match self {
            Self::Static(transform) => return Ok(*transform),
            Self::Moving(samples) => samples,
        };
        let next = samples.partition_point(|&(stamp, _)| stamp < stamp_ns);
        let after = samples.get(next);
        if let Some(&(stamp, transform)) = after
            && stamp == stamp_ns
        {
            return Ok(transform);
        }
        let before = next.checked_sub(1).and_then(|last| samples.get(last));
        match (before, after) {
            (Some(&(from, a)), Some(&(to, b))) => {
                let part = stamp_ns.abs_diff(from) as f64 / to.abs_diff(from) as f64;
                Ok(a.towards(&b, part))
            }
            (None, Some(&(oldest_ns, _))) => Err(Gap::Before { oldest_ns }),
            (Some(&(newest_ns, _)), None) => Err(Gap::After { newest_ns }),
            (None, None) => Err(Gap::Empty),
        }
    }
}
