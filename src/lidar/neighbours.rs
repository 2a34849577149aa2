//! A grid of buckets that finds what lies near a point.

const NONE: u32 = u32::MAX;

/// Items by the square they lie in. The squares repeat over a power of two, so that any coordinates fit; what shares a
/// bucket without being near costs a comparison and nothing else.
#[derive(Debug, Clone, Default)]
pub(super) struct Neighbours {
    /// First item of each bucket.
    first: Vec<u32>,
    /// The item after each item in its bucket.
    next: Vec<u32>,
    side: usize,
    square_m: f64,
}

impl Neighbours {
    /// Empties the grid for up to `items` items. Points up to `reach_m` apart (above 0) will be found.
    pub(super) fn reset(&mut self, items: usize, reach_m: f64) {
        // About two buckets an item. Four a side at least, or the nine squares around one would share buckets.
        self.side = ((2 * items) as f64).sqrt().ceil().clamp(4.0, 1024.0) as usize;
        self.side = self.side.next_power_of_two();
        // A little more than the reach: float32 distances round, and so does the division below.
        self.square_m = reach_m * (1.0 + 1e-6);
        self.first.clear();
        self.first.resize(self.side * self.side, NONE);
        self.next.clear();
        self.next.resize(items, NONE);
    }

    /// The square of a point; casting holds huge numbers at the ends.
    fn square(&self, x: f64, y: f64) -> (i64, i64) {
        (
            (x / self.square_m).floor() as i64,
            (y / self.square_m).floor() as i64,
        )
    }

    fn bucket(&self, ix: i64, iy: i64) -> usize {
        let mask = self.side - 1;
        (ix as usize & mask) + (iy as usize & mask) * self.side
    }

    /// Adds item `item` (below the number given to `reset`) at a point of finite coordinates.
    pub(super) fn insert(&mut self, item: u32, x: f64, y: f64) {
        let (ix, iy) = self.square(x, y);
        let bucket = self.bucket(ix, iy);
        self.next[item as usize] = std::mem::replace(&mut self.first[bucket], item);
    }

    /// Whether any item that may be within reach of the point fulfils `test`.
    pub(super) fn any(&self, x: f64, y: f64, mut test: impl FnMut(u32) -> bool) -> bool {
        let (ix, iy) = self.square(x, y);
        for dy in -1..=1 {
            for dx in -1..=1 {
                let mut item = self.first[self.bucket(ix.wrapping_add(dx), iy.wrapping_add(dy))];
                while item != NONE {
                    if test(item) {
                        return true;
                    }
                    item = self.next[item as usize];
                }
            }
        }
        false
    }
}
