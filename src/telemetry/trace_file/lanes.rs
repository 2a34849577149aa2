//! Which of an actor's tracks a slice goes to, so that no two slices overlap on one track.

use std::collections::VecDeque;

/// Tracks that an actor may have.
const LANES: usize = 64;
/// Slices of a track that are remembered. What is told later than that many slices of its track goes to another.
const REMEMBERED: usize = 128;

/// The tracks of one actor.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
}

#[derive(Debug, Default)]
struct Lane {
    /// Start and end of the last slices, in the order in which they were told: that of their ends, nearly.
    slices: VecDeque<(u64, u64)>,
    /// End of all slices that are not remembered any more.
    forgotten_until_ns: u64,
}

impl Lane {
    fn is_free(&self, start_ns: u64, end_ns: u64) -> bool {
        start_ns >= self.forgotten_until_ns
            && self
                .slices
                .iter()
                .all(|&(start, end)| end <= start_ns || end_ns <= start)
    }

    fn take(&mut self, start_ns: u64, end_ns: u64) {
        if self.slices.len() == REMEMBERED
            && let Some((_, end)) = self.slices.pop_front()
        {
            self.forgotten_until_ns = self.forgotten_until_ns.max(end);
        }
        self.slices.push_back((start_ns, end_ns));
    }
}

impl Lanes {
    /// The track for a slice, from 0, and whether it is a new one; `None` if all of them are taken at that time.
    pub(super) fn place(&mut self, start_ns: u64, end_ns: u64) -> Option<(usize, bool)> {
        let free = self.lanes.iter().position(|lane| lane.is_free(start_ns, end_ns));
        let (index, is_new) = match free {
            Some(index) => (index, false),
            None if self.lanes.len() < LANES => {
                self.lanes.push(Lane::default());
                (self.lanes.len() - 1, true)
            }
            None => return None,
        };
        self.lanes[index].take(start_ns, end_ns);
        Some((index, is_new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_goes_to_different_lanes_and_what_does_not_to_the_first() {
        let mut lanes = Lanes::default();
        assert_eq!(lanes.place(0, 10), Some((0, true)));
        assert_eq!(lanes.place(10, 20), Some((0, false)));
        assert_eq!(lanes.place(15, 25), Some((1, true)));
        assert_eq!(lanes.place(12, 30), Some((2, true)));
        // Told late: it fits in between.
        assert_eq!(lanes.place(25, 40), Some((0, false)));
        assert_eq!(lanes.place(20, 25), Some((0, false)));
        assert_eq!(lanes.place(5, 15), Some((1, false)));
    }

    #[test]
    fn slices_in_any_order_never_overlap_on_a_lane() {
        let mut lanes = Lanes::default();
        let mut placed: Vec<Vec<(u64, u64)>> = Vec::new();
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut refused = 0;
        for i in 0..5_000_u64 {
            let start = (i * 10 + random(60)).saturating_sub(random(2_000));
            let end = start + random(80);
            match lanes.place(start, end) {
                Some((lane, is_new)) => {
                    assert_eq!(is_new, lane == placed.len());
                    placed.resize(placed.len().max(lane + 1), Vec::new());
                    placed[lane].push((start, end));
                }
                None => refused += 1,
            }
        }
        assert!(placed.len() > 4 && placed.len() <= LANES && refused < 5_000 / 2);
        for lane in &mut placed {
            lane.sort_unstable();
            assert!(
                lane.windows(2)
                    .all(|pair| pair[0].1 <= pair[1].0 || pair[0].0 == pair[0].1 || pair[1].0 == pair[1].1)
            );
        }
    }
}
