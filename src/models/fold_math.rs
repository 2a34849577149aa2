//! Arithmetic, comparisons and functions of constants.
//!
//! float32 is computed in float64 and rounded once, which for sums, differences, products, quotients and roots is the
//! same as computing in float32.

use super::error::{NodeError, broadcast, form, invalid};
use super::facts::NodeContext;
use super::fold::{array, bounded, take};
use super::infer;
use crate::tensor::{Shape, View};
use crate::weights::{Array, ElementType, Values};

/// What the device computes with the same bits, so that it may be left to it.
const EXACT: &[&str] = &[
    "Abs", "Add", "Ceil", "Div", "Floor", "Max", "Min", "Mul", "Neg", "Round", "Sqrt", "Sub",
];

/// Functions of one constant.
const UNARY: &[&str] = &[
    "Abs",
    "Ceil",
    "Cos",
    "Exp",
    "Floor",
    "Log",
    "Neg",
    "Not",
    "Reciprocal",
    "Round",
    "Sigmoid",
    "Sin",
    "Sqrt",
    "Tanh",
];

/// Functions of two constants.
const BINARY: &[&str] = &[
    "Add",
    "And",
    "Div",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Max",
    "Min",
    "Mod",
    "Mul",
    "Or",
    "Pow",
    "Sub",
    "Xor",
];

/// Reductions of whole numbers, as sizes are computed with.
const REDUCTIONS: &[&str] = &["ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum"];

/// Whether an operation computes element by element, or reduces.
pub(super) fn is_function(op: &str) -> bool {
    UNARY.contains(&op) || BINARY.contains(&op) || REDUCTIONS.contains(&op)
}

/// What a function makes of constants; `None` where that is left to the device.
pub(super) fn function(context: &NodeContext<'_>, arrays: &[&Array]) -> Result<Option<Array>, NodeError> {
    let op = context.node.op_type.as_str();
    let floats = arrays.iter().all(|a| a.element().is_float());
    if !context.facts.passes().constants && floats && EXACT.contains(&op) {
        return Ok(None);
    }
    match arrays {
        [only, ..] if REDUCTIONS.contains(&op) => reduction(context, only),
        [only] if UNARY.contains(&op) => unary(op, only).map(Some),
        [lhs, rhs] if op == "Pow" => power(lhs, rhs).map(Some),
        [lhs, rhs] if op == "Mod" && context.node.int("fmod")?.unwrap_or(0) != 0 => {
            binary("Fmod", lhs, rhs).map(Some)
        }
        [lhs, rhs] if BINARY.contains(&op) => binary(op, lhs, rhs).map(Some),
        _ => Ok(None),
    }
}

/// Refuses to compute in a type that only stores values.
fn computed_in(element: ElementType) -> Result<(), NodeError> {
    if element.is_storage_only() {
        return form(format!("arithmetic in {element}"));
    }
    Ok(())
}

fn unary(op: &str, from: &Array) -> Result<Array, NodeError> {
    computed_in(from.element())?;
    let float = |x: f64| match op {
        "Abs" => x.abs(),
        "Ceil" => x.ceil(),
        "Cos" => x.cos(),
        "Exp" => x.exp(),
        "Floor" => x.floor(),
        "Log" => x.ln(),
        "Neg" => -x,
        "Reciprocal" => 1.0 / x,
        "Round" => x.round_ties_even(),
        "Sigmoid" => 1.0 / (1.0 + (-x).exp()),
        "Sin" => x.sin(),
        "Sqrt" => x.sqrt(),
        _ => x.tanh(),
    };
    let values = match from.values() {
        Values::F32(v) if op != "Not" => Values::F32(v.iter().map(|&x| float(f64::from(x)) as f32).collect()),
        Values::F64(v) if op != "Not" => Values::F64(v.iter().map(|&x| float(x)).collect()),
        Values::I64(v) => {
            let whole = |&x: &i64| match op {
                "Abs" => x.checked_abs(),
                "Neg" => x.checked_neg(),
                "Not" => Some(i64::from(x == 0)),
                _ => None,
            };
            match v.iter().map(whole).collect() {
                Some(values) => Values::I64(values),
                None => return form("whole numbers"),
            }
        }
        _ => return form(format!("a value of type {}", from.element())),
    };
    array(*from.shape(), from.element(), values)
}

/// Two constants broadcast to their common shape.
fn spread(lhs: &Array, rhs: &Array) -> Result<(Array, Array), NodeError> {
    let shape = broadcast(&[*lhs.shape(), *rhs.shape()])?;
    bounded(&shape)?;
    let spread = |a: &Array| take(a, &View::contiguous(*a.shape()).broadcast_to(shape)?);
    Ok((spread(lhs)?, spread(rhs)?))
}

fn binary(op: &str, lhs: &Array, rhs: &Array) -> Result<Array, NodeError> {
    if lhs.element() != rhs.element() {
        return invalid(format!(
            "operands of types {} and {}",
            lhs.element(),
            rhs.element()
        ));
    }
    computed_in(lhs.element())?;
    let (lhs, rhs) = spread(lhs, rhs)?;
    if let Some(values) = compared(op, &lhs, &rhs) {
        return array(*lhs.shape(), ElementType::Bool, values);
    }
    let float = |a: f64, b: f64| match op {
        "Add" => a + b,
        "Sub" => a - b,
        "Mul" => a * b,
        "Div" => a / b,
        "Max" if a.is_nan() || b.is_nan() => f64::NAN,
        "Max" => a.max(b),
        "Min" if a.is_nan() || b.is_nan() => f64::NAN,
        "Min" => a.min(b),
        // Of the sign of the dividend: the only remainder that floats have.
        _ => a % b,
    };
    let values = match (lhs.values(), rhs.values()) {
        (Values::F32(a), Values::F32(b)) => {
            let pairs = a.iter().zip(b);
            Values::F32(
                pairs
                    .map(|(&a, &b)| float(f64::from(a), f64::from(b)) as f32)
                    .collect(),
            )
        }
        (Values::F64(a), Values::F64(b)) => {
            Values::F64(a.iter().zip(b).map(|(&a, &b)| float(a, b)).collect())
        }
        (Values::I64(a), Values::I64(b)) => {
            let whole = |(&a, &b): (&i64, &i64)| match op {
                "Add" => a.checked_add(b),
                "Sub" => a.checked_sub(b),
                "Mul" => a.checked_mul(b),
                "Div" => a.checked_div(b),
                "Max" => Some(a.max(b)),
                "Min" => Some(a.min(b)),
                // Of the sign of the dividend, and of the divisor.
                "Fmod" => a.checked_rem(b),
                _ => a
                    .checked_rem(b)
                    .map(|r| if r != 0 && (r < 0) != (b < 0) { r + b } else { r }),
            };
            match a.iter().zip(b).map(whole).collect() {
                Some(values) => Values::I64(values),
                None => return invalid("whole-number arithmetic without a result"),
            }
        }
        _ => return invalid("operands of different kinds"),
    };
    array(*lhs.shape(), lhs.element(), values)
}

/// Truth values of a comparison or logical function; `None` for other functions.
fn compared(op: &str, lhs: &Array, rhs: &Array) -> Option<Values> {
    fn holds<T: PartialOrd>(op: &str, a: &[T], b: &[T]) -> Option<Values> {
        let test: fn(&T, &T) -> bool = match op {
            "Equal" => |a, b| a == b,
            "Greater" => |a, b| a > b,
            "GreaterOrEqual" => |a, b| a >= b,
            "Less" => |a, b| a < b,
            "LessOrEqual" => |a, b| a <= b,
            "Xor" => |a, b| a != b,
            _ => return None,
        };
        Some(Values::I64(
            a.iter().zip(b).map(|(a, b)| i64::from(test(a, b))).collect(),
        ))
    }
    match (lhs.values(), rhs.values()) {
        (Values::I64(a), Values::I64(b)) if op == "And" => {
            Some(Values::I64(a.iter().zip(b).map(|(a, b)| a & b).collect()))
        }
        (Values::I64(a), Values::I64(b)) if op == "Or" => {
            Some(Values::I64(a.iter().zip(b).map(|(a, b)| a | b).collect()))
        }
        (Values::I64(a), Values::I64(b)) => holds(op, a, b),
        (Values::F32(a), Values::F32(b)) => holds(op, a, b),
        (Values::F64(a), Values::F64(b)) => holds(op, a, b),
        _ => None,
    }
}

/// A power, of the base's type.
fn power(lhs: &Array, rhs: &Array) -> Result<Array, NodeError> {
    computed_in(lhs.element())?;
    let (lhs, rhs) = spread(lhs, rhs)?;
    let exponents: Vec<f64> = match rhs.values() {
        Values::F32(v) => v.iter().map(|&x| f64::from(x)).collect(),
        Values::F64(v) => v.clone(),
        Values::I64(v) => v.iter().map(|&x| x as f64).collect(),
    };
    let values = match lhs.values() {
        Values::F32(v) => {
            let pairs = v.iter().zip(&exponents);
            Values::F32(pairs.map(|(&x, &e)| f64::from(x).powf(e) as f32).collect())
        }
        Values::F64(v) => Values::F64(v.iter().zip(&exponents).map(|(x, &e)| x.powf(e)).collect()),
        Values::I64(v) => {
            let whole = |(&x, &e): (&i64, &f64)| {
                let exponent = (e.fract() == 0.0 && (0.0..64.0).contains(&e)).then_some(e as u32);
                exponent.and_then(|e| x.checked_pow(e))
            };
            match v.iter().zip(&exponents).map(whole).collect() {
                Some(values) => Values::I64(values),
                None => return invalid("whole-number arithmetic without a result"),
            }
        }
    };
    array(*lhs.shape(), lhs.element(), values)
}

/// A reduction of whole numbers over all axes; `None` for anything else.
fn reduction(context: &NodeContext<'_>, from: &Array) -> Result<Option<Array>, NodeError> {
    let rank = from.shape().rank();
    let (axes, keep) = infer::reduce_axes(context, rank)?;
    let (Values::I64(v), true) = (from.values(), axes.is_some_and(|axes| axes.len() == rank)) else {
        return Ok(None);
    };
    let mut rest = v.iter().copied();
    let reduced = match context.node.op_type.as_str() {
        "ReduceMax" => rest.max(),
        "ReduceMin" => rest.min(),
        "ReduceProd" => rest.try_fold(1_i64, i64::checked_mul),
        _ => rest.try_fold(0_i64, i64::checked_add),
    };
    let Some(reduced) = reduced else {
        return invalid("whole-number arithmetic without a result");
    };
    let ones = vec![1; if keep { rank } else { 0 }];
    array(Shape::new(&ones)?, from.element(), Values::I64(vec![reduced])).map(Some)
}
