//! Comparisons, truth values, choices, and arithmetic of whole numbers.
//!
//! Truth values are 0 and 1 in the type that they were computed in. Whole numbers are float32, which holds all of them
//! up to 2^24; constants beyond are refused, indices are below the size of an axis.

use super::super::error::{NodeError, broadcast, form, invalid};
use super::super::facts::NodeContext;
use super::super::lower::{Located, Lowerer};
use crate::device::{Activation, BinaryKind, OpDesc, Scalar};
use crate::tensor::DType;
use crate::weights::ElementType;

/// Operations on two tensors that end in a truth value, and PRelu.
pub(super) fn compared(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let op = context.node.op_type.as_str();
    let (left, right) = (context.input(0)?, context.input(1)?);
    let (left, right) = (lowerer.operand(left)?, lowerer.operand(right)?);
    if left.dtype != right.dtype {
        return invalid("operands of different types");
    }
    let shape = broadcast(&[left.view.shape, right.view.shape])?;
    let like = if left.view.shape == shape { left } else { right };
    let name = &context.node.name;
    let (kind, operands) = match op {
        "Equal" => (BinaryKind::Equal, [left, right]),
        "Less" => (BinaryKind::Less, [left, right]),
        "LessOrEqual" => (BinaryKind::LessOrEqual, [left, right]),
        "Greater" => (BinaryKind::Less, [right, left]),
        "GreaterOrEqual" => (BinaryKind::LessOrEqual, [right, left]),
        "And" => (BinaryKind::Mul, [left, right]),
        "Or" => (BinaryKind::Max, [left, right]),
        "PRelu" => (BinaryKind::LeakyRelu, [left, right]),
        // One of the two, not both: they differ.
        _ => {
            let equal = lowerer.combine(name, BinaryKind::Equal, left, right)?;
            let zero = lowerer.number(0.0, left.dtype)?;
            (BinaryKind::Equal, [equal, zero])
        }
    };
    let dst = lowerer.destination_like(output, shape, &like)?;
    lowerer.combine_to(name, kind, operands, dst)?;
    lowerer.set(output, dst);
    Ok(())
}

/// The opposite of a truth value.
pub(super) fn negated(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let src = lowerer.operand(context.input(0)?)?;
    let zero = lowerer.number(0.0, src.dtype)?;
    let dst = lowerer.destination_like(output, src.view.shape, &src)?;
    lowerer.combine_to(&context.node.name, BinaryKind::Equal, [src, zero], dst)?;
    lowerer.set(output, dst);
    Ok(())
}

/// Where: the first of two values where a condition holds, else the second.
pub(super) fn chosen(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let condition = lowerer.operand(context.input(0)?)?;
    let (yes, no) = (
        lowerer.operand(context.input(1)?)?,
        lowerer.operand(context.input(2)?)?,
    );
    if yes.dtype != no.dtype {
        return invalid("values of different types");
    }
    let shape = broadcast(&[condition.view.shape, yes.view.shape, no.view.shape])?;
    let like = [yes, no].into_iter().find(|value| value.view.shape == shape);
    let dst = lowerer.destination_like(output, shape, &like.unwrap_or(yes))?;
    select(lowerer, &context.node.name, [condition, yes, no], dst)?;
    lowerer.set(output, dst);
    Ok(())
}

fn select(
    lowerer: &mut Lowerer<'_>,
    name: &str,
    [condition, yes, no]: [Located; 3],
    dst: Located,
) -> Result<(), NodeError> {
    let shape = dst.view.shape;
    let op = OpDesc::Select {
        condition: condition.spread(shape)?.operand(),
        yes: yes.spread(shape)?.operand(),
        no: no.spread(shape)?.operand(),
        dst: dst.operand(),
    };
    lowerer.launch(name, op, &[condition.slot, yes.slot, no.slot, dst.slot]);
    Ok(())
}

/// The remainder of whole numbers, with the sign of the divisor.
pub(super) fn remainder(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let whole = |index: usize| Ok::<_, NodeError>(is_whole(lowerer, context.input(index)?));
    if context.node.int("fmod")?.unwrap_or(0) != 0 || !whole(0)? || !whole(1)? {
        return form("the remainder of other than whole numbers, or with the sign of the dividend,");
    }
    let (left, right) = (
        lowerer.operand(context.input(0)?)?,
        lowerer.operand(context.input(1)?)?,
    );
    let shape = broadcast(&[left.view.shape, right.view.shape])?;
    let dst = lowerer.destination_like(output, shape, &left)?;
    lowerer.combine_to(&context.node.name, BinaryKind::Remainder, [left, right], dst)?;
    lowerer.set(output, dst);
    Ok(())
}

/// Whether a value is of whole numbers.
pub(super) fn is_whole(lowerer: &Lowerer<'_>, value: &str) -> bool {
    let element = lowerer.facts.get(value).and_then(|fact| fact.element);
    element.is_some_and(|element| !element.is_float() && element != ElementType::Bool)
}

/// A change of type. To a float the numbers stay as they are until they are rounded to the storage type; to whole numbers
/// (int32 and int64) the fraction is cut off; to truth values everything but 0 is true.
pub(super) fn cast(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let input = context.input(0)?;
    let from = lowerer.facts.get(input).and_then(|fact| fact.element);
    let to = lowerer.facts.get(output).and_then(|fact| fact.element);
    let name = &context.node.name;
    match to {
        Some(to) if to.is_storage_only() => return form(format!("a cast to {to}")),
        Some(to) if to.is_float() => {}
        Some(ElementType::Bool) if from == Some(ElementType::Bool) => {}
        Some(ElementType::Bool) => {
            let src = lowerer.operand(input)?;
            let zero = lowerer.number(0.0, src.dtype)?;
            let is_zero = lowerer.combine(name, BinaryKind::Equal, src, zero)?;
            let dst = lowerer.destination_like(output, src.view.shape, &src)?;
            lowerer.combine_to(name, BinaryKind::Equal, [is_zero, zero], dst)?;
            lowerer.set(output, dst);
            return Ok(());
        }
        Some(ElementType::I32 | ElementType::I64) if from.is_some_and(|from| !from.is_float()) => {}
        Some(ElementType::I32 | ElementType::I64) => {
            let src = lowerer.operand_as(input, DType::F32)?;
            let one = lowerer.number(1.0, DType::F32)?;
            let dst = lowerer.destination_like(output, src.view.shape, &src)?;
            lowerer.combine_to(name, BinaryKind::Quotient, [src, one], dst)?;
            lowerer.set(output, dst);
            return Ok(());
        }
        Some(to) => return form(format!("a cast to {to}")),
        None => return form("a cast to an unknown type"),
    }
    let located = lowerer.located(input)?;
    lowerer.set(output, located);
    Ok(())
}

/// Functions of one value that are a few launches: signs, thresholds, and scaled exponentials.
pub(super) fn piecewise(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let (node, name) = (context.node, &context.node.name);
    let float = |attribute: &str, default: f32| Ok::<_, NodeError>(node.float(attribute)?.unwrap_or(default));
    let src = lowerer.operand(context.input(0)?)?;
    let zero = lowerer.number(0.0, src.dtype)?;
    let made = match node.op_type.as_str() {
        // x > 0 less x < 0.
        "Sign" => {
            let above = lowerer.combine(name, BinaryKind::Less, zero, src)?;
            let below = lowerer.combine(name, BinaryKind::Less, src, zero)?;
            lowerer.combine(name, BinaryKind::Sub, above, below)?
        }
        "ThresholdedRelu" => {
            let least = lowerer.number(float("alpha", 1.0)?, src.dtype)?;
            let above = lowerer.combine(name, BinaryKind::Less, least, src)?;
            let dst = lowerer.fresh_like(output, src.view.shape, &src)?;
            select(lowerer, name, [above, src, zero], dst)?;
            dst
        }
        // gamma * (max(0, x) + min(0, alpha * exp(x) - alpha))
        "Selu" => {
            let alpha = float("alpha", 1.673_263_2)?;
            let factor = lowerer.number(float("gamma", 1.050_701)?, src.dtype)?;
            let elu = lowerer.apply(
                name,
                Activation::Elu {
                    alpha: Scalar::new(alpha),
                },
                src,
            )?;
            lowerer.combine(name, BinaryKind::Mul, elu, factor)?
        }
        // x / (1 + |x|)
        _ => {
            let magnitude = lowerer.apply(name, Activation::Abs, src)?;
            let one = lowerer.number(1.0, src.dtype)?;
            let below = lowerer.combine(name, BinaryKind::Add, magnitude, one)?;
            lowerer.combine(name, BinaryKind::Div, src, below)?
        }
    };
    lowerer.finish(output, made);
    Ok(())
}

/// Powers with one constant exponent that products, roots and reciprocals make exactly: whole ones up to 8 in
/// magnitude, and 0.5 more than those.
pub(super) fn power(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let name = &context.node.name;
    let Some(exponent) = context.array(1)?.and_then(|array| array.scalar_f32()) else {
        return form("an exponent of more than one element");
    };
    let twice = exponent * 2.0;
    if twice.fract() != 0.0 || exponent.abs() > 8.5 || exponent == 0.0 {
        return form(format!("the exponent {exponent}"));
    }
    let src = lowerer.operand(context.input(0)?)?;
    let whole = exponent.abs().floor() as u32;
    let mut made: Option<Located> = None;
    let mut square = src;
    for bit in 0..u32::BITS - whole.leading_zeros() {
        if bit > 0 {
            square = lowerer.combine(name, BinaryKind::Mul, square, square)?;
        }
        if whole >> bit & 1 == 1 {
            made = Some(match made {
                Some(made) => lowerer.combine(name, BinaryKind::Mul, made, square)?,
                None => square,
            });
        }
    }
    if exponent.fract() != 0.0 {
        let root = lowerer.apply(name, Activation::Sqrt, src)?;
        made = Some(match made {
            Some(made) => lowerer.combine(name, BinaryKind::Mul, made, root)?,
            None => root,
        });
    }
    let Some(mut made) = made else {
        return form(format!("the exponent {exponent}"));
    };
    if exponent < 0.0 {
        made = lowerer.apply(name, Activation::Reciprocal, made)?;
    }
    match lowerer.facts.shape(output) {
        Some(shape) if shape == made.view.shape => lowerer.finish(output, made),
        _ => return form("an exponent of higher rank than the base"),
    }
    Ok(())
}
