//! Choices, sequences and positions made of constants.

use super::error::{NodeError, broadcast, form, invalid};
use super::facts::{NodeContext, normal_axis};
use super::fold::{array, bounded, take, vector};
use crate::tensor::{Shape, View};
use crate::weights::{Array, ElementType, Values};

/// Where: the first of two constants where a condition holds, else the second.
pub(super) fn choose([condition, yes, no]: [&Array; 3]) -> Result<Array, NodeError> {
    if yes.element() != no.element() {
        return invalid(format!("values of types {} and {}", yes.element(), no.element()));
    }
    let shape = broadcast(&[*condition.shape(), *yes.shape(), *no.shape()])?;
    bounded(&shape)?;
    let spread = |a: &Array| take(a, &View::contiguous(*a.shape()).broadcast_to(shape)?);
    let (condition, yes, no) = (spread(condition)?, spread(yes)?, spread(no)?);
    let Some(flags) = condition.as_i64() else {
        return invalid("a condition that is no truth value");
    };
    fn chosen<T: Copy>(flags: &[i64], yes: &[T], no: &[T]) -> Vec<T> {
        let pairs = yes.iter().zip(no);
        flags
            .iter()
            .zip(pairs)
            .map(|(&flag, (&y, &n))| if flag != 0 { y } else { n })
            .collect()
    }
    let values = match (yes.values(), no.values()) {
        (Values::F32(y), Values::F32(n)) => Values::F32(chosen(flags, y, n)),
        (Values::F64(y), Values::F64(n)) => Values::F64(chosen(flags, y, n)),
        (Values::I64(y), Values::I64(n)) => Values::I64(chosen(flags, y, n)),
        _ => return invalid("values of different kinds"),
    };
    array(shape, yes.element(), values)
}

/// Range: `start, start + step, ...` below (or, falling, above) `limit`.
pub(super) fn range([start, limit, step]: [&Array; 3]) -> Result<Array, NodeError> {
    let element = start.element();
    if limit.element() != element || step.element() != element {
        return invalid("bounds of different types");
    }
    let count = |count: f64| -> Result<usize, NodeError> {
        if !count.is_finite() {
            return invalid("a sequence without an end");
        }
        let count = count.clamp(0.0, 1e18) as usize;
        bounded(&Shape::new(&[count])?)?;
        Ok(count)
    };
    match (start.values(), limit.values(), step.values()) {
        (Values::I64(a), Values::I64(b), Values::I64(d)) if a.len() == 1 && b.len() == 1 && d.len() == 1 => {
            let (a, b, d) = (a[0], b[0], d[0]);
            let n = count(((b as f64 - a as f64) / d as f64).ceil())?;
            let values = (0..n as i64).map(|i| i.checked_mul(d).and_then(|x| a.checked_add(x)));
            match values.collect() {
                Some(values) => vector(Values::I64(values), element),
                None => invalid("whole-number arithmetic without a result"),
            }
        }
        (Values::F32(a), Values::F32(b), Values::F32(d)) if a.len() == 1 && b.len() == 1 && d.len() == 1 => {
            let (a, b, d) = (a[0], b[0], d[0]);
            let n = count(((f64::from(b) - f64::from(a)) / f64::from(d)).ceil())?;
            vector(Values::F32((0..n).map(|i| a + i as f32 * d).collect()), element)
        }
        _ => form(format!("a sequence of {element}, or bounds that are no numbers")),
    }
}

/// CumSum along one axis.
pub(super) fn cumulative(context: &NodeContext<'_>, from: &Array, axis: &Array) -> Result<Array, NodeError> {
    let axis = match axis.as_i64() {
        Some(&[axis]) => normal_axis(axis, from.shape().rank())?,
        _ => return invalid("an axis that is no whole number"),
    };
    let flag = |name: &str| Ok::<_, NodeError>(context.node.int(name)?.unwrap_or(0) != 0);
    let (exclusive, reverse) = (flag("exclusive")?, flag("reverse")?);
    let shape = *from.shape();
    let (len, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    fn sums<T: Copy>(
        values: &[T],
        order: &[(usize, Option<usize>)],
        exclusive: bool,
        add: impl Fn(T, T) -> T,
        zero: T,
    ) -> Vec<T> {
        let mut made = vec![zero; values.len()];
        for &(at, before) in order {
            made[at] = match before {
                None if exclusive => zero,
                None => values[at],
                Some(before) if exclusive => add(made[before], values[before]),
                Some(before) => add(made[before], values[at]),
            };
        }
        made
    }
    // Each position, and the one before it along the axis.
    let order: Vec<(usize, Option<usize>)> = (0..shape.elements())
        .map(|i| if reverse { shape.elements() - 1 - i } else { i })
        .map(|at| {
            let place = at / inner % len;
            let before = match reverse {
                true => (place + 1 < len).then_some(at + inner),
                false => place.checked_sub(1).map(|_| at - inner),
            };
            (at, before)
        })
        .collect();
    let values = match from.values() {
        Values::F32(v) => Values::F32(sums(v, &order, exclusive, |a, b| a + b, 0.0)),
        Values::F64(v) => Values::F64(sums(v, &order, exclusive, |a, b| a + b, 0.0)),
        Values::I64(v) => Values::I64(sums(v, &order, exclusive, i64::wrapping_add, 0)),
    };
    array(shape, from.element(), values)
}

/// Trilu: a triangle of every matrix in the last two axes, zeros elsewhere.
pub(super) fn triangle(context: &NodeContext<'_>, from: &Array) -> Result<Array, NodeError> {
    let shape = *from.shape();
    let [.., rows, columns] = shape[..] else {
        return invalid(format!("matrices of shape {shape}"));
    };
    let upper = context.node.int("upper")?.unwrap_or(1) != 0;
    let offset = match context.int_input(1)? {
        Some(&[offset]) => offset,
        Some(_) => return invalid("an offset that is no whole number"),
        None => 0,
    };
    let kept = |i: usize| {
        let (row, column) = ((i / columns % rows) as i64, (i % columns) as i64);
        let ahead = (column - row).saturating_sub(offset);
        if upper { ahead >= 0 } else { ahead <= 0 }
    };
    fn cut<T: Copy + Default>(values: &[T], kept: impl Fn(usize) -> bool) -> Vec<T> {
        let each = values.iter().enumerate();
        each.map(|(i, &x)| if kept(i) { x } else { T::default() })
            .collect()
    }
    let values = match from.values() {
        Values::F32(v) => Values::F32(cut(v, kept)),
        Values::F64(v) => Values::F64(cut(v, kept)),
        Values::I64(v) => Values::I64(cut(v, kept)),
    };
    array(shape, from.element(), values)
}

/// NonZero: the positions of all elements that are not 0, an axis in each row.
pub(super) fn non_zero(from: &Array) -> Result<Array, NodeError> {
    let shape = *from.shape();
    let found: Vec<usize> = match from.values() {
        Values::F32(v) => (0..v.len()).filter(|&i| v[i] != 0.0).collect(),
        Values::F64(v) => (0..v.len()).filter(|&i| v[i] != 0.0).collect(),
        Values::I64(v) => (0..v.len()).filter(|&i| v[i] != 0).collect(),
    };
    let rows = (0..shape.rank()).flat_map(|axis| {
        let inner: usize = shape[axis + 1..].iter().product();
        found.iter().map(move |&i| (i / inner % shape[axis]) as i64)
    });
    let values: Vec<i64> = rows.collect();
    array(
        Shape::new(&[shape.rank(), found.len()])?,
        ElementType::I64,
        Values::I64(values),
    )
}
