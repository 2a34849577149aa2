//! Which share of a stream's results came after their deadline.

use std::collections::HashMap;

use crate::telemetry::StreamId;

/// Results of a stream that the share is taken of.
const WINDOW: u32 = u128::BITS;

/// Share above which a stream is late, in percent.
const LATE_PERCENT: u32 = 20;

/// Share below which it is punctual again, in percent: apart from the other, so that it does not flicker.
const PUNCTUAL_PERCENT: u32 = 10;

/// What has become of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Punctuality {
    /// So many percent of its last results were late.
    Late(u32),
    /// Few enough are.
    Punctual,
}

/// The last results of every stream.
#[derive(Debug, Default)]
pub(crate) struct Lateness(HashMap<StreamId, Recent>);

#[derive(Debug, Default)]
struct Recent {
    /// One bit a result, the newest lowest: 1 for a late one.
    late: u128,
    seen: u32,
    told_late: bool,
}

impl Lateness {
    /// Forgets a stream that has ended: if it comes back, it is judged anew.
    pub(crate) fn forget(&mut self, stream: StreamId) {
        self.0.remove(&stream);
    }

    /// Notes a result; what has changed by it, if anything. A stream is judged by full windows only.
    pub(crate) fn note(&mut self, stream: StreamId, late: bool) -> Option<Punctuality> {
        let recent = self.0.entry(stream).or_default();
        recent.late = recent.late << 1 | u128::from(late);
        recent.seen = (recent.seen + 1).min(WINDOW);
        if recent.seen < WINDOW {
            return None;
        }
        let percent = recent.late.count_ones() * 100 / WINDOW;
        match recent.told_late {
            false if percent > LATE_PERCENT => {
                recent.told_late = true;
                Some(Punctuality::Late(percent))
            }
            true if percent < PUNCTUAL_PERCENT => {
                recent.told_late = false;
                Some(Punctuality::Punctual)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Streams;

    #[test]
    fn a_stream_is_late_from_a_fifth_on_and_punctual_below_a_tenth() {
        let streams = Streams::default();
        let (front, rear) = (streams.register("front"), streams.register("rear"));
        let mut lateness = Lateness::default();
        let mut told = Vec::new();
        for number in 0..1_000 {
            // A quarter of the front's results are late until number 500.
            let late = number < 500 && number % 4 == 0;
            told.extend(lateness.note(front, late).map(|change| (number, change)));
            assert_eq!(lateness.note(rear, number % 8 == 0), None);
        }
        // The window is full at number 127. At 579, 12 late ones (9 %) are left in it.
        assert_eq!(told[0], (127, Punctuality::Late(25)));
        let late_left = |number: u32| (number - 127..=number).filter(|n| *n < 500 && n % 4 == 0).count();
        let first = (500..).find(|&number| late_left(number) * 100 / 128 < 10);
        assert_eq!(told[1..], [(first.unwrap_or_default(), Punctuality::Punctual)]);
    }

    #[test]
    fn a_stream_that_was_late_and_comes_back_is_told_of_again() {
        let streams = Streams::default();
        let front = streams.register("front");
        let mut lateness = Lateness::default();
        let all_late = |lateness: &mut Lateness| {
            let notes = (0..WINDOW).filter_map(|_| lateness.note(front, true));
            notes.collect::<Vec<_>>()
        };
        assert_eq!(all_late(&mut lateness), [Punctuality::Late(100)]);
        assert_eq!(all_late(&mut lateness), []);
        lateness.forget(front);
        assert_eq!(all_late(&mut lateness), [Punctuality::Late(100)]);
    }
}
