//! The selection on the host: what the device's is compared with, and how two selections are compared.

use std::cmp::Ordering;
use std::collections::HashSet;

use super::super::OpRefusal;
use crate::device::TopKOrder;

/// Positions of the first `k` scores (all of them, if there are fewer), by the order of [`crate::device::TopKDesc`]:
/// sorted, ties to the lower position, a NaN as if larger than every number.
#[must_use]
pub fn topk_host(scores: &[f32], k: usize, order: TopKOrder) -> Vec<u32> {
    let ascending = |a: f32, b: f32| a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()));
    let mut positions: Vec<u32> = (0..scores.len() as u32).collect();
    // A stable sort keeps equal scores in the order of their positions.
    positions.sort_by(|&a, &b| {
        let (a, b) = (scores[a as usize], scores[b as usize]);
        match order {
            TopKOrder::Largest => ascending(b, a),
            TopKOrder::Smallest => ascending(a, b),
        }
    });
    positions.truncate(k);
    positions
}

/// Rows `[cells, classes]` as one row, class by class.
#[must_use]
pub fn class_major_host<T: Copy>(rows: &[T], classes: usize) -> Vec<T> {
    (0..classes)
        .flat_map(|class| rows.iter().skip(class).step_by(classes.max(1)).copied())
        .collect()
}

/// Cell and class of an index of a class-major row; one past the row becomes the last class's last cell.
#[must_use]
pub fn decode_class_major_host(index: u32, cells: usize, classes: usize) -> [u32; 2] {
    let last = (cells * classes).saturating_sub(1);
    let index = (index as usize).min(last);
    let class = (1..classes).filter(|class| index >= class * cells).count();
    [(index - class * cells) as u32, class as u32]
}

/// How a selection compares with the reference's, as sets.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectionMetrics {
    /// Indices of the reference.
    pub total: usize,
    /// Indices in both.
    pub shared: usize,
    /// The same for the reference's strong proposals, where its scores are known.
    pub strong: Option<StrongOverlap>,
}

impl SelectionMetrics {
    /// Share of the reference's indices that were selected; 1 where there are none.
    #[must_use]
    pub fn overlap(&self) -> f64 {
        share(self.shared, self.total)
    }
}

/// What became of proposals whose reference score is at least a threshold.
#[derive(Debug, Clone, PartialEq)]
pub struct StrongOverlap {
    /// How many there are.
    pub total: usize,
    /// How many were selected.
    pub kept: usize,
    /// Those that were not, in the reference's order.
    pub missed: Vec<u32>,
}

impl StrongOverlap {
    /// Share that was selected; 1 where there are none.
    #[must_use]
    pub fn overlap(&self) -> f64 {
        share(self.kept, self.total)
    }
}

fn share(part: usize, of: usize) -> f64 {
    if of == 0 { 1.0 } else { part as f64 / of as f64 }
}

/// Compares a selection with the reference's. `scores` are the reference's scores of `reference`, one each: those of at
/// least `strong` are counted apart.
///
/// # Errors
/// [`OpRefusal::Invalid`] for another number of scores than indices.
pub fn selection_metrics(
    selected: &[u32],
    reference: &[u32],
    scores: Option<&[f32]>,
    strong: f32,
) -> Result<SelectionMetrics, OpRefusal> {
    if let Some(scores) = scores.filter(|scores| scores.len() != reference.len()) {
        let reason = format!("{} scores for {} indices", scores.len(), reference.len());
        return Err(OpRefusal::invalid("selection_metrics", reason));
    }
    let selected: HashSet<u32> = selected.iter().copied().collect();
    let strong = scores.map(|scores| {
        let pairs = reference.iter().zip(scores);
        let strong: Vec<u32> = pairs
            .filter(|&(_, &score)| score >= strong)
            .map(|(&i, _)| i)
            .collect();
        let missed: Vec<u32> = strong.iter().copied().filter(|i| !selected.contains(i)).collect();
        StrongOverlap {
            total: strong.len(),
            kept: strong.len() - missed.len(),
            missed,
        }
    });
    Ok(SelectionMetrics {
        total: reference.len(),
        shared: reference.iter().filter(|i| selected.contains(i)).count(),
        strong,
    })
}

/// How clearly proposals win their window: for each class-major index, `(h - n) / h` with its own heat `h` and the
/// largest `n` of the others of its class in the `kernel x kernel` window, cut at the border; 1 without others, 0 where
/// the heat is 0. `heat` is `[classes, height, width]`, before the local maximum. A small margin is a near tie, which
/// another rounding may decide otherwise.
///
/// # Errors
/// [`OpRefusal::Invalid`] for heat that is no whole number of maps, an even window, or an index past the heat.
pub fn local_max_margins(
    indices: &[u32],
    heat: &[f32],
    [height, width]: [usize; 2],
    kernel: usize,
) -> Result<Vec<f32>, OpRefusal> {
    const OP: &str = "local_max_margins";
    let cells = height.saturating_mul(width);
    if cells == 0 || !heat.len().is_multiple_of(cells) {
        let reason = format!("{} values are no maps of {height} x {width}", heat.len());
        return Err(OpRefusal::invalid(OP, reason));
    }
    if kernel.is_multiple_of(2) {
        return Err(OpRefusal::invalid(
            OP,
            format!("a window of {kernel}: sides are odd"),
        ));
    }
    let around = |at: usize, len: usize| at.saturating_sub(kernel / 2)..(at + kernel / 2 + 1).min(len);
    let margin = |&index: &u32| {
        let index = index as usize;
        let Some(&own) = heat.get(index) else {
            let reason = format!("index {index} of {} values", heat.len());
            return Err(OpRefusal::invalid(OP, reason));
        };
        let (map, y, x) = (index / cells * cells, index % cells / width, index % width);
        let places = around(y, height).flat_map(|y| around(x, width).map(move |x| map + y * width + x));
        let others = places.filter(|&place| place != index).map(|place| heat[place]);
        let best = others.max_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
        Ok(match best {
            None => 1.0,
            Some(_) if own == 0.0 => 0.0,
            Some(best) => (own - best) / own,
        })
    };
    indices.iter().map(margin).collect()
}
