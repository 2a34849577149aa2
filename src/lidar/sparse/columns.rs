//! Active voxels in the order of x, y, z: slabs of one x, columns of one x and y, voxels of a column.
//!
//! Nothing here grows with the grid, so that voxels may lie far outside it.

use std::ops::Range;

/// Voxels of one x and y.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) y: i32,
    /// Place of its first voxel in the order.
    pub(super) first: u32,
    /// Bit `z - z0` of each voxel, where the set is no taller than a word.
    pub(super) mask: u64,
}

/// Columns of one x.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slab {
    pub(super) x: i32,
    /// Its first column.
    pub(super) first: u32,
}

/// Heights that a column's mask has bits for.
pub(super) const MASK_BITS: usize = u64::BITS as usize;

/// The sorted set. Places in the order are called ranks.
#[derive(Debug, Clone, Default)]
pub(super) struct Columns {
    /// Ends with one more, which only holds where the columns end.
    pub(super) slabs: Vec<Slab>,
    /// Ends with one more, which only holds where the voxels end.
    pub(super) columns: Vec<Column>,
    /// z by rank.
    pub(super) z: Vec<i32>,
    /// z of the masks' lowest bit; `None` where the set is taller than a mask.
    pub(super) z0: Option<i32>,
}

impl Columns {
    /// Takes voxels in ascending order of (x, y, z) without repetition, fewer than 2³² - 1.
    pub(super) fn fill(&mut self, voxels: impl Iterator<Item = [i32; 3]> + Clone) {
        let heights = voxels.clone().map(|v| v[2]);
        let (low, high) = heights.fold((i32::MAX, i32::MIN), |(low, high), z| (low.min(z), high.max(z)));
        let is_short = i64::from(high) - i64::from(low) < MASK_BITS as i64;
        self.clear(is_short.then_some(low));
        let mut last = None;
        for [x, y, z] in voxels {
            if last.is_none_or(|(last_x, _)| last_x != x) {
                self.open_slab(x);
            }
            if last != Some((x, y)) {
                self.push_column(y, 0);
            }
            last = Some((x, y));
            self.z.push(z);
            if let (true, Some(column)) = (is_short, self.columns.last_mut()) {
                column.mask |= 1 << (z - low);
            }
        }
        self.close();
    }

    /// Empties the set; [`Columns::close`] must follow.
    pub(super) fn clear(&mut self, z0: Option<i32>) {
        self.slabs.clear();
        self.columns.clear();
        self.z.clear();
        self.z0 = z0;
    }

    /// Begins the columns of one x, which is above those before it.
    pub(super) fn open_slab(&mut self, x: i32) {
        // Fits: there are not more columns than voxels.
        let first = self.columns.len() as u32;
        self.slabs.push(Slab { x, first });
    }

    /// Adds a column with the voxels of a mask.
    pub(super) fn push_column(&mut self, y: i32, mask: u64) {
        // Fits: there are fewer than 2³² - 1 voxels.
        let first = self.z.len() as u32;
        self.columns.push(Column { y, first, mask });
        self.z
            .extend(bits(mask).map(|bit| self.z0.unwrap_or(0) + bit as i32));
    }

    /// Adds the entries that hold where the columns and the voxels end.
    pub(super) fn close(&mut self) {
        self.open_slab(i32::MAX);
        self.push_column(i32::MAX, 0);
    }

    /// Slabs with their columns.
    pub(super) fn slabs(&self) -> impl Iterator<Item = (i32, &[Column])> {
        self.slabs.windows(2).map(|pair| {
            (
                pair[0].x,
                &self.columns[pair[0].first as usize..pair[1].first as usize],
            )
        })
    }

    /// Which columns have one x.
    fn slab_range(&self, x: i64) -> Range<usize> {
        let slabs = self
            .slabs
            .split_last()
            .map_or(&self.slabs[..], |(_, slabs)| slabs);
        match slabs.binary_search_by_key(&x, |slab| i64::from(slab.x)) {
            Ok(at) => self.slabs[at].first as usize..self.slabs[at + 1].first as usize,
            Err(_) => 0..0,
        }
    }

    /// The columns of one x; none if there are none.
    pub(super) fn slab(&self, x: i64) -> &[Column] {
        &self.columns[self.slab_range(x)]
    }

    /// The rank of a voxel, by bisection.
    pub(super) fn find(&self, [x, y, z]: [i64; 3]) -> Option<u32> {
        let range = self.slab_range(x);
        let columns = &self.columns[range.clone()];
        let at = columns
            .binary_search_by_key(&y, |column| i64::from(column.y))
            .ok()?;
        let at = range.start + at;
        let first = self.columns[at].first as usize;
        let voxels = &self.z[first..self.columns[at + 1].first as usize];
        let place = voxels.binary_search_by_key(&z, |&z| i64::from(z)).ok()?;
        // Fits: a rank.
        Some((first + place) as u32)
    }
}

/// The bits that are set, lowest first.
#[inline(always)]
pub(super) fn bits(mut mask: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros();
        (mask != 0).then(|| {
            mask &= mask - 1;
            bit
        })
    })
}
