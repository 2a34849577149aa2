//! Sets of bytes.

use std::ops::Range;

/// Disjoint, sorted, non-empty ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ranges(Vec<Range<usize>>);

impl Ranges {
    /// The ranges, ascending, with bytes between any two.
    pub(super) fn iter(&self) -> impl Iterator<Item = Range<usize>> {
        self.0.iter().cloned()
    }

    /// Whether no byte is in the set.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds all bytes of a range.
    pub(super) fn insert(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        // Neighbours that touch become one.
        let first = self.0.partition_point(|r| r.end < range.start);
        let last = self.0.partition_point(|r| r.start <= range.end);
        let merged = match self.0.get(first..last) {
            Some([one]) => range.start.min(one.start)..range.end.max(one.end),
            Some([low, .., high]) => range.start.min(low.start)..range.end.max(high.end),
            _ => range,
        };
        self.0.splice(first..last, [merged]);
    }

    /// Removes all bytes of a range and returns those that were in the set.
    pub(super) fn remove(&mut self, range: &Range<usize>) -> Vec<Range<usize>> {
        let first = self.0.partition_point(|r| r.end <= range.start);
        let last = self.0.partition_point(|r| r.start < range.end);
        if first >= last || range.is_empty() {
            return Vec::new();
        }
        let touched = &self.0[first..last];
        let before = touched[0].start..range.start;
        let behind = range.end..touched[touched.len() - 1].end;
        let removed = touched
            .iter()
            .map(|r| r.start.max(range.start)..r.end.min(range.end))
            .collect();
        let kept = [before, behind].into_iter().filter(|r| !r.is_empty());
        self.0.splice(first..last, kept);
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::random::SplitMix64;

    #[test]
    fn a_set_of_ranges_is_a_set_of_bytes() {
        let mut random = SplitMix64::new(3);
        for _ in 0..300 {
            let mut set = Ranges::default();
            let mut bytes = [false; 24];
            for _ in 0..12 {
                let (a, b) = (random.below(25) as usize, random.below(25) as usize);
                let range = a.min(b)..a.max(b);
                if random.below(2) == 0 {
                    set.insert(range.clone());
                    bytes[range].fill(true);
                } else {
                    let expected: Vec<usize> = range.clone().filter(|&i| bytes[i]).collect();
                    let removed: Vec<usize> = set.remove(&range).into_iter().flatten().collect();
                    assert_eq!(removed, expected);
                    bytes[range].fill(false);
                }
                let listed: Vec<usize> = set.iter().flatten().collect();
                assert_eq!(listed, (0..24).filter(|&i| bytes[i]).collect::<Vec<_>>());
                assert!(set.0.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
        }
    }
}
