//! The two rows that a vertical blend reads, kept from one output row to the next.

/// Memory for two rows, and which source rows they hold. Neighbouring output rows share source rows, so most rows are made
/// once.
#[derive(Debug, Clone, Default)]
pub(super) struct RowPair<R> {
    slots: [R; 2],
    held: [Option<usize>; 2],
}

impl<R> RowPair<R> {
    /// Forgets what is held and makes each row's memory ready.
    pub(super) fn start(&mut self, prepare: impl FnMut(&mut R)) {
        self.held = [None; 2];
        self.slots.iter_mut().for_each(prepare);
    }

    /// Upper and lower row; `fill` makes the ones that are not at hand.
    pub(super) fn get(&mut self, [upper, lower]: [usize; 2], mut fill: impl FnMut(usize, &mut R)) -> [&R; 2] {
        if self.held[0] != Some(upper) && self.held[1] == Some(upper) {
            self.slots.swap(0, 1);
            self.held.swap(0, 1);
        }
        let wanted = if lower == upper { 1 } else { 2 };
        for (slot, row) in [upper, lower].into_iter().enumerate().take(wanted) {
            if self.held[slot] != Some(row) {
                fill(row, &mut self.slots[slot]);
                self.held[slot] = Some(row);
            }
        }
        [&self.slots[0], &self.slots[wanted - 1]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_made_once_while_it_is_needed() {
        let mut pair = RowPair::<usize>::default();
        pair.start(|row| *row = usize::MAX);
        let mut made = Vec::new();
        for rows in [[0, 0], [0, 1], [0, 1], [1, 2], [2, 3], [5, 6], [6, 6], [6, 7]] {
            let held = pair.get(rows, |y, row| {
                made.push(y);
                *row = y;
            });
            assert_eq!(held.map(|row| *row), rows);
        }
        assert_eq!(made, [0, 1, 2, 3, 5, 6, 7]);
        pair.start(|_| {});
        pair.get([6, 7], |y, _| made.push(y));
        assert_eq!(made[7..], [6, 7], "a new frame has new rows");
    }
}
