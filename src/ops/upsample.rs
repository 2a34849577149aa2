//! Enlarging feature maps by whole factors.

use super::conv::{LayerError, new_map};
use super::{DeviceTensor, OpContext};
use crate::device::OpDesc;

/// Longest side of an enlarged map.
const MAX_SIZE: usize = 1 << 16;

/// Repeats every pixel `scale` times along rows and columns, as a new map of the same type that the caller frees. Exact:
/// ONNX's nearest resize with asymmetric coordinates rounded down.
///
/// # Errors
/// [`LayerError::Weights`] for a scale of 0, [`LayerError::Shape`], [`LayerError::Device`]; nothing stays allocated.
pub fn upsample_nearest(
    ops: &mut OpContext<'_>,
    map: &DeviceTensor,
    scale: usize,
) -> Result<DeviceTensor, LayerError> {
    const LAYER: &str = "nearest up-sampling";
    let table = |size: usize| -> Option<Vec<u32>> {
        let enlarged = size.checked_mul(scale).filter(|&enlarged| enlarged <= MAX_SIZE)?;
        (0..enlarged).map(|at| u32::try_from(at / scale).ok()).collect()
    };
    if scale == 0 {
        return Err(LayerError::weights(LAYER, "a scale of 0: at least 1 is needed"));
    }
    let sizes = match map.view.shape[..] {
        [n, c, h, w] => table(h).zip(table(w)).map(|tables| (n, c, tables)),
        _ => None,
    };
    let Some((n, c, (rows, columns))) = sizes else {
        let expected = format!("[N, C, H, W] whose sides times {scale} are at most {MAX_SIZE}");
        return Err(LayerError::shape(LAYER, "the map", map.view.shape, expected));
    };
    let larger = new_map(ops, LAYER, [n, c, rows.len(), columns.len()], map.dtype)?;
    let op = OpDesc::ResizeNearest {
        src: map.operand(),
        dst: larger.operand(),
        rows: rows.into(),
        columns: columns.into(),
    };
    super::conv::made(ops, larger, |ops, larger| {
        ops.run(&op, &[map.buffer, larger.buffer])
            .map_err(LayerError::device(LAYER))
    })
}
