//! Gaps in the numbers of messages.

use super::attachment::Gid;

/// Publishers of one topic whose numbers are remembered. Who has more of them starts anew with the oldest.
const PUBLISHERS: usize = 64;

/// The last number of each publisher, the one heard last at the end.
#[derive(Debug, Default)]
pub struct Sequences(Vec<(Gid, i64)>);

impl Sequences {
    /// Messages between the last one of this publisher and this one. A publisher's first message that arrives has
    /// missed none: what was sent before the subscription was not for it. Numbers that go back, as latched messages
    /// have them that are sent again, count for nothing.
    pub fn missed_before(&mut self, gid: Gid, sequence: i64) -> u64 {
        let known = self.0.iter().position(|(other, _)| *other == gid);
        let Some(place) = known else {
            if self.0.len() == PUBLISHERS {
                self.0.remove(0);
            }
            self.0.push((gid, sequence));
            return 0;
        };
        let (_, last) = self.0.remove(place);
        self.0.push((gid, last.max(sequence)));
        let missed = sequence.saturating_sub(last).saturating_sub(1);
        u64::try_from(missed).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_counted_for_each_publisher() {
        let (a, b) = (Gid([1; 16]), Gid([2; 16]));
        let mut sequences = Sequences::default();
        let heard = [
            (a, 5, 0),
            (a, 6, 0),
            (b, 1, 0),
            (a, 9, 2),
            (b, 2, 0),
            (a, 8, 0),
            (a, 10, 0),
        ];
        for (gid, number, missed) in heard {
            assert_eq!(sequences.missed_before(gid, number), missed, "{gid:?} {number}");
        }
        assert_eq!(sequences.missed_before(a, i64::MAX), i64::MAX as u64 - 11);
        assert_eq!(sequences.missed_before(a, i64::MIN), 0);
    }

    #[test]
    fn no_number_of_publishers_takes_all_memory() {
        let mut sequences = Sequences::default();
        for i in 0..10_000_u32 {
            let mut gid = [0; 16];
            gid[..4].copy_from_slice(&i.to_le_bytes());
            assert_eq!(sequences.missed_before(Gid(gid), 1), 0);
        }
        assert_eq!(sequences.0.len(), PUBLISHERS);
    }
}
