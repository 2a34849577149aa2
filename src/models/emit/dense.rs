//! Products of rows with constant matrices, and the feature net of pillars.

use super::super::error::{NodeError, form, invalid};
use super::super::facts::NodeContext;
use super::super::fuse::{Dense, Group};
use super::super::lower::{Located, Lowerer};
use super::super::place::as_rows;
use super::super::plan::{DensePlan, Slot, WeightPlan};
use super::conv::{folded, norm_parameters};
use crate::device::{Conv2dDesc, Geometry2d, OpDesc, PillarsDesc, ResidualOrder};
use crate::precision::Math;
use crate::tensor::{Shape, View};

/// A product with its followers: a convolution of one tap over an image of one row.
pub(in crate::models) fn dense(
    lowerer: &mut Lowerer<'_>,
    dense: &Dense,
    output: &str,
) -> Result<(), NodeError> {
    let context = lowerer.context(dense.product);
    let matrix = Matrix::folded(lowerer, dense, &context)?;
    let input = lowerer.rows(context.input(0)?)?;
    let shape = [context.shape(0)?, context.shape(1)?];
    let front = shape[0].split_last().map_or(&[][..], |(_, front)| front);
    let shape = Shape::new(&[front, &[matrix.outputs]].concat())?;
    let target = lowerer.destination_rows(output, shape)?;
    let Some(rows) = as_rows(&target.view) else {
        return form(format!("a result of shape {shape}"));
    };
    let desc = Conv2dDesc {
        input: as_line(input)?.operand(),
        output: as_line(target.with_view(rows))?.operand(),
        residual: None,
        residual_order: ResidualOrder::AfterActivation,
        geometry: Geometry2d {
            kernel: [1; 2],
            stride: [1; 2],
            dilation: [1; 2],
            pad_begin: [0; 2],
        },
        groups: 1,
        activation: dense.activation,
        math: Math::Native,
    };
    let slot = Slot::Weight(lowerer.weights.len());
    lowerer.weights.push(WeightPlan::Conv2d {
        name: context.input(1)?.to_owned(),
        desc: Box::new(desc.clone()),
        weight: lowerer.stored(context.input(1)?, &matrix.weight, matrix.inputs)?,
        bias: matrix.offsets,
    });
    let slots = [input.slot, slot, target.slot];
    lowerer.launch(&context.node.name, OpDesc::Conv2d(desc), &slots);
    lowerer.finish_at(output, target);
    Ok(())
}

/// A feature net: one or two dense layers, each with a maximum behind it.
pub(in crate::models) fn pillars(
    lowerer: &mut Lowerer<'_>,
    input: &str,
    first: &Dense,
    second: Option<&Dense>,
    group: &Group,
) -> Result<(), NodeError> {
    let mut layers = Vec::with_capacity(2);
    for dense in std::iter::once(first).chain(second) {
        layers.push(Matrix::folded(lowerer, dense, &lowerer.context(dense.product))?);
    }
    let Some(last) = layers.last() else {
        return invalid("a layer was expected");
    };
    let outputs = last.outputs;
    let hidden = second.map(|_| layers[0].outputs);
    let shape = lowerer.facts.shape(input);
    let [pillars, count, features] = shape.as_deref().unwrap_or_default()[..] else {
        return invalid("points of another form");
    };
    // Points keep their three axes; rows at equal distances are what the kernel wants of them.
    let rows = lowerer.rows(input)?;
    let Some(points) = rows.view.reshape(Shape::new(&[pillars, count, features])?) else {
        return form("these strides of the points");
    };
    let Some(shape) = lowerer.facts.shape(&group.output) else {
        return form("a result of unknown shape");
    };
    let target = lowerer.destination_rows(&group.output, shape)?;
    let view = target.view.reshape(Shape::new(&[pillars, outputs])?);
    let Some(view) = view.filter(|v| outputs == 1 || v.strides[1] == 1) else {
        return form(format!("a result of shape {shape}"));
    };
    let desc = PillarsDesc {
        points: rows.with_view(points).operand(),
        output: target.with_view(view).operand(),
        hidden,
    };
    let mut plans = layers.into_iter().map(Matrix::by_input);
    let slot = Slot::Weight(lowerer.weights.len());
    let name = lowerer.context(first.product).input(1)?.to_owned();
    lowerer.weights.push(WeightPlan::Pillars {
        name,
        desc: Box::new(desc.clone()),
        first: match plans.next() {
            Some(first) => first,
            None => return invalid("a layer was expected"),
        },
        second: plans.next(),
    });
    let slots = [rows.slot, slot, target.slot];
    let name = lowerer.node(group.at).name.clone();
    lowerer.launch(&name, OpDesc::Pillars(desc), &slots);
    lowerer.finish_at(&group.output, target);
    Ok(())
}

/// A constant matrix with what follows the product folded in.
struct Matrix {
    /// `[outputs, inputs]`
    weight: Vec<f32>,
    offsets: Option<Vec<f32>>,
    inputs: usize,
    outputs: usize,
}

impl Matrix {
    fn folded(lowerer: &Lowerer<'_>, dense: &Dense, context: &NodeContext<'_>) -> Result<Self, NodeError> {
        let product = Self::of_product(context)?;
        let norm = dense.norm.map(|norm| norm_parameters(&lowerer.context(norm)));
        let added = (dense.bias.as_ref()).and_then(|name| lowerer.facts.array(name)?.to_f32());
        let (weight, offsets) = folded(
            product.weight,
            product.offsets,
            norm.transpose()?.as_ref(),
            added.as_deref(),
            product.outputs,
        )?;
        Ok(Self {
            weight,
            offsets,
            ..product
        })
    }

    /// The same as `[inputs, outputs]`.
    fn by_input(self) -> DensePlan {
        let (inputs, outputs) = (self.inputs, self.outputs);
        let places = (0..inputs).flat_map(|i| (0..outputs).map(move |o| o * inputs + i));
        DensePlan {
            weight: places.map(|place| self.weight[place]).collect(),
            bias: self.offsets.unwrap_or_else(|| vec![0.0; outputs]),
        }
    }

    /// The product alone.
    fn of_product(context: &NodeContext<'_>) -> Result<Self, NodeError> {
        let (rows, matrix) = (context.shape(0)?, context.shape(1)?);
        let is_gemm = context.node.op_type == "Gemm";
        let flag = |name: &str| Ok::<_, NodeError>(is_gemm && context.node.int(name)?.unwrap_or(0) != 0);
        let factor = |name: &str| Ok::<_, NodeError>(context.node.float(name)?.unwrap_or(1.0));
        if flag("transA")? {
            return form("a transposed first factor");
        }
        let turned = flag("transB")?;
        let [a, b] = matrix[..] else {
            return form(format!("a product of {rows} and {matrix}"));
        };
        let (inputs, outputs) = if turned { (b, a) } else { (a, b) };
        if rows.last() != Some(&inputs) || inputs == 0 || outputs == 0 {
            return invalid(format!("factors {rows} and {matrix} do not fit"));
        }
        let Some(values) = context.float_input(1)? else {
            return invalid("the second factor is missing");
        };
        let (alpha, beta) = match is_gemm {
            true => (factor("alpha")?, factor("beta")?),
            false => (1.0, 1.0),
        };
        let place = |o: usize, i: usize| if turned { o * inputs + i } else { i * outputs + o };
        let places = (0..outputs).flat_map(|o| (0..inputs).map(move |i| place(o, i)));
        let offsets = match if is_gemm { context.float_input(2)? } else { None } {
            None => None,
            Some(offsets) => {
                let shape = context.shape(2)?;
                let columns = shape.last().copied().unwrap_or(1);
                if shape.elements() != columns || (columns != 1 && columns != outputs) {
                    return form(format!("an addend of shape {shape}"));
                }
                let each = |o: usize| beta * offsets[if columns == 1 { 0 } else { o }];
                Some((0..outputs).map(each).collect())
            }
        };
        Ok(Self {
            weight: places.map(|place| alpha * values[place]).collect(),
            offsets,
            inputs,
            outputs,
        })
    }
}

/// `[R, C]` as `[1, C, 1, R]`.
fn as_line(rows: Located) -> Result<Located, NodeError> {
    let [count, columns] = rows.view.shape[..] else {
        return invalid("rows were expected");
    };
    let mut view = View::contiguous(Shape::new(&[1, columns, 1, count])?);
    view.strides[..4].copy_from_slice(&[0, 1, 0, rows.view.strides[0]]);
    view.offset = rows.view.offset;
    Ok(rows.with_view(view))
}
