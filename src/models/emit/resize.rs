//! Resizing of images.

use super::super::error::NodeError;
use super::super::facts::NodeContext;
use super::super::lower::{Located, Lowerer};
use super::super::resize::{self, ResizePlan};
use super::one_channel_step;
use crate::device::OpDesc;
use crate::tensor::{Shape, View};

/// Resize and Upsample of `[N, C, H, W]` along rows and columns, and of `[N, C, L]` as an image of one row.
pub(super) fn resized(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let plan = resize::plan(context)?;
    let (shape, _) = resize::target(context)?;
    let src = lowerer.channels_last(context.input(0)?)?;
    let dst = match lowerer.place(output) {
        Some(_) => lowerer.destination(output, shape)?,
        None => lowerer.fresh_channels_last(output, shape)?,
    };
    let dst = one_channel_step(dst);
    let (from, to) = (as_image(src)?, as_image(dst)?);
    let op = match plan {
        ResizePlan::Nearest { rows, columns } => OpDesc::ResizeNearest {
            src: from.operand(),
            dst: to.operand(),
            rows: rows.into(),
            columns: columns.into(),
        },
        ResizePlan::Weighted { rows, columns } => OpDesc::ResizeTaps {
            src: from.operand(),
            dst: to.operand(),
            rows,
            columns,
        },
    };
    lowerer.launch(&context.node.name, op, &[src.slot, dst.slot]);
    lowerer.set(output, dst);
    Ok(())
}

/// `[N, C, L]` as an image of one row; an image as it is.
pub(super) fn as_image(located: Located) -> Result<Located, NodeError> {
    let [n, c, length] = located.view.shape[..] else {
        return Ok(located);
    };
    let mut view = View::contiguous(Shape::new(&[n, c, 1, length])?);
    let [of_images, of_channels, of_columns, ..] = located.view.strides;
    view.strides[..4].copy_from_slice(&[of_images, of_channels, 0, of_columns]);
    view.offset = located.view.offset;
    Ok(located.with_view(view))
}
