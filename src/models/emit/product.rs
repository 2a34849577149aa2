//! Products of matrices of which no factor is a constant matrix.

use super::super::error::{NodeError, form, invalid};
use super::super::facts::NodeContext;
use super::super::lower::{Located, Lowerer};
use crate::device::{Activation, BinaryKind, MatMulDesc, OpDesc, Scalar};
use crate::tensor::{Shape, View};

/// MatMul with the rules of numpy: batch axes are broadcast; a vector on the left is a row, on the right a column, and
/// the axis it adds is taken away again.
pub(super) fn product(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let (left, right) = (
        lowerer.operand(context.input(0)?)?,
        lowerer.operand(context.input(1)?)?,
    );
    let Some(shape) = lowerer.facts.shape(output) else {
        return form("a result of unknown shape");
    };
    let (row, column) = (left.view.rank() == 1, right.view.rank() == 1);
    let left = if row { with_axis(left, 0)? } else { left };
    let right = if column { with_axis(right, 1)? } else { right };
    let mut whole = shape.to_vec();
    if row {
        whole.insert(whole.len() - usize::from(!column), 1);
    }
    if column {
        whole.push(1);
    }
    let whole = Shape::new(&whole)?;
    let dst = lowerer.destination(output, shape)?;
    let Some(view) = dst.view.reshape(whole) else {
        return form(format!("a result of shape {shape}"));
    };
    let factors = [left, right];
    launch(lowerer, context, factors, None, 1.0, dst.with_view(view))?;
    lowerer.set(output, dst);
    Ok(())
}

/// Gemm: `alpha * A B + beta * C`, each factor perhaps transposed.
pub(super) fn gemm(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let node = context.node;
    let flag = |name: &str| Ok::<_, NodeError>(node.int(name)?.unwrap_or(0) != 0);
    let mut factors = [
        lowerer.operand(context.input(0)?)?,
        lowerer.operand(context.input(1)?)?,
    ];
    for (factor, turned) in factors.iter_mut().zip([flag("transA")?, flag("transB")?]) {
        if factor.view.rank() != 2 {
            return invalid("factors that are no matrices");
        }
        if turned {
            *factor = factor.with_view(factor.view.transpose(&[1, 0])?);
        }
    }
    let Some(shape) = lowerer.facts.shape(output) else {
        return form("a result of unknown shape");
    };
    let beta = node.float("beta")?.unwrap_or(1.0);
    let addend = match node.input(2).filter(|_| beta != 0.0) {
        None => None,
        Some(addend) => {
            let mut addend = lowerer.operand(addend)?;
            if beta != 1.0 {
                let factor = lowerer.number(beta, addend.dtype)?;
                addend = lowerer.combine(&node.name, BinaryKind::Mul, addend, factor)?;
            }
            Some(addend.spread(shape)?)
        }
    };
    let dst = lowerer.destination(output, shape)?;
    let alpha = node.float("alpha")?.unwrap_or(1.0);
    launch(lowerer, context, factors, addend, alpha, dst)?;
    lowerer.set(output, dst);
    Ok(())
}

fn with_axis(vector: Located, axis: usize) -> Result<Located, NodeError> {
    let mut dims = vector.view.shape.to_vec();
    dims.insert(axis, 1);
    match vector.view.reshape(Shape::new(&dims)?) {
        Some(view) => Ok(vector.with_view(view)),
        None => invalid("a vector was expected"),
    }
}

fn launch(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    [left, right]: [Located; 2],
    addend: Option<Located>,
    scale: f32,
    dst: Located,
) -> Result<(), NodeError> {
    let rank = dst.view.rank();
    let batch = &dst.view.shape[..rank - 2];
    let spread = |factor: Located| -> Result<View, NodeError> {
        let inner = factor.view.rank() - 2;
        let dims = [batch, &factor.view.shape[inner..]].concat();
        Ok(factor.view.broadcast_to(Shape::new(&dims)?)?)
    };
    let (left, right) = (left.with_view(spread(left)?), right.with_view(spread(right)?));
    if left.view.shape[rank - 1] == 0 {
        return form("a sum over nothing");
    }
    let desc = MatMulDesc {
        lhs: left.operand(),
        rhs: right.operand(),
        output: dst.operand(),
        bias: addend.map(|addend| addend.operand()),
        scale: Scalar::new(scale),
        activation: Activation::Identity,
    };
    let mut slots = vec![left.slot, right.slot, dst.slot];
    slots.extend(addend.map(|addend| addend.slot));
    lowerer.launch(&context.node.name, OpDesc::MatMul(desc), &slots);
    Ok(())
}
