//! Greedy matching of two sets.

use std::cmp::Ordering;

/// Matches by falling score of the first set (the earlier of equals first, NaN last): each element takes the one of
/// `others` elements of the second set that is free and costs least (the earlier of equals). `cost` is `None`, or NaN, for
/// two that do not belong together. Returns pairs of indices with their cost, in the order in which they were matched.
pub(crate) fn greedy(
    scores: &[f64],
    others: usize,
    cost: impl Fn(usize, usize) -> Option<f64>,
) -> Vec<([usize; 2], f64)> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| by_falling_score(scores[a], scores[b]));
    let mut free = vec![true; others];
    let mut pairs = Vec::new();
    for one in order {
        let mut best: Option<(f64, usize)> = None;
        for other in (0..others).filter(|&other| free[other]) {
            let cost = cost(one, other).filter(|cost| !cost.is_nan());
            if let Some(cost) = cost
                && best.is_none_or(|(least, _)| cost < least)
            {
                best = Some((cost, other));
            }
        }
        if let Some((cost, other)) = best {
            free[other] = false;
            pairs.push(([one, other], cost));
        }
    }
    pairs
}

fn by_falling_score(a: f64, b: f64) -> Ordering {
    let falling = b.partial_cmp(&a).unwrap_or(Ordering::Equal);
    a.is_nan().cmp(&b.is_nan()).then(falling)
}
