//! Reductions over any axes, as poolings with one window.

use super::super::error::{NodeError, form};
use super::super::facts::NodeContext;
use super::super::infer;
use super::super::lower::{Located, Lowerer};
use super::pool::whole_window;
use crate::device::{OpDesc, Pool2dDesc, PoolKind};
use crate::tensor::{Shape, View};

/// A reduction is a pooling of images `[N, C, reduced, 1]` with one window: one kept axis whose elements lie next to each
/// other is the channels, the other kept axes are the images. A value that cannot be seen so is copied once.
pub(super) fn reduce(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let value = context.input(0)?;
    let source = lowerer.operand(value)?;
    let rank = source.view.rank();
    let (mut axes, _) = infer::reduce_axes(context, rank)?;
    axes.sort_unstable();
    axes.dedup();
    let kept: Vec<usize> = (0..rank).filter(|axis| !axes.contains(axis)).collect();
    // The last of those whose elements lie next to each other, else the last.
    let beside = |axis: &&usize| source.view.strides[**axis] == 1 && source.view.shape[**axis] > 1;
    let channel = kept.iter().rev().find(beside).or(kept.last()).copied();
    let images: Vec<usize> = kept.iter().copied().filter(|&a| Some(a) != channel).collect();
    let order: Vec<usize> = [&images[..], &axes[..], channel.as_slice()].concat();
    let dims = |axes: &[usize]| -> Vec<usize> { axes.iter().map(|&a| source.view.shape[a]).collect() };
    let count = |axes: &[usize]| dims(axes).iter().product::<usize>();
    let (n, reduced, c) = (count(&images), count(&axes), count(channel.as_slice()));
    let stored = Shape::new(&[n, reduced, 1, c])?;
    let arranged = source.view.transpose(&order)?;
    let seen = arranged.reshape(stored).filter(|v| c == 1 || v.strides[3] == 1);
    let image = match seen {
        Some(view) => source.with_view(view),
        None => {
            let copy = lowerer.reserve(value, arranged.shape, View::contiguous(arranged.shape))?;
            lowerer.copy(value, source.with_view(arranged), copy);
            copy.with_view(View::contiguous(stored))
        }
    };
    let made = lowerer.reserve(
        output,
        Shape::new(&[n, c])?,
        View::contiguous(Shape::new(&[n, 1, 1, c])?),
    )?;
    let kind = match context.node.op_type.as_str() {
        "ReduceMax" => PoolKind::Max,
        "ReduceSum" => PoolKind::Sum,
        _ => PoolKind::AverageExcludingPad,
    };
    let op = OpDesc::Pool2d(Pool2dDesc {
        input: channels_second(image)?.operand(),
        output: channels_second(made)?.operand(),
        geometry: whole_window([reduced, 1]),
        kind,
    });
    lowerer.launch(&context.node.name, op, &[image.slot, made.slot]);
    // The kept axes in their own order, then the shape that the node gives them.
    let by_image: Vec<usize> = [&images[..], channel.as_slice()].concat();
    let mut back: Vec<usize> = (0..by_image.len()).collect();
    back.sort_by_key(|&position| by_image[position]);
    let view = View::contiguous(Shape::new(&dims(&by_image))?).transpose(&back)?;
    let shape = lowerer.facts.shape(output);
    match shape.and_then(|shape| view.reshape(shape)) {
        Some(view) => lowerer.finish(output, made.with_view(view)),
        None => return form("this shape of the result"),
    }
    Ok(())
}

/// `[N, H, W, C]` as `[N, C, H, W]`; one channel may have any step, kernels are promised 1.
fn channels_second(located: Located) -> Result<Located, NodeError> {
    let mut view = located.view.transpose(&[0, 3, 1, 2])?;
    view.strides[1] = 1;
    Ok(located.with_view(view))
}
