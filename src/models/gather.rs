//! Rows picked by an index on the device, and the scatter of pillars to their cells in that form: each cell says which
//! row it takes, so shapes are static, nothing is written twice and no canvas has to be cleared.

use super::block_error::BlockError;
use super::layers::{as_feature_map, free};
use crate::device::{BufferClass, OpDesc};
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::{DType, Shape, TensorSpec};

const BLOCK: &str = "gather";

/// An index that a table does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("entry {position} of the index is {value}: the table has {rows} rows{}",
    sentinel.map(|s| format!(", and {s} marks an empty place")).unwrap_or_default())]
pub struct IndexError {
    /// Position of the first such entry.
    pub position: usize,
    /// The entry.
    pub value: u32,
    /// Rows of the table.
    pub rows: usize,
    /// The entry that stands for a row of zeros.
    pub sentinel: Option<u32>,
}

/// Checks an index before it is uploaded: every entry below `rows`, or the sentinel. The device gives zeros for any
/// other entry, so that a wrong index would not show.
///
/// # Errors
/// [`IndexError`] with the first entry that is neither.
pub fn check_index(index: &[u32], rows: usize, sentinel: Option<u32>) -> Result<(), IndexError> {
    let wrong = |value: u32| value as usize >= rows && Some(value) != sentinel;
    // Without a branch an entry; the place is looked for only where there is one.
    if !index.iter().fold(false, |any, &value| any | wrong(value)) {
        return Ok(());
    }
    match index.iter().position(|&value| wrong(value)) {
        Some(position) => Err(IndexError {
            position,
            value: index[position],
            rows,
            sentinel,
        }),
        None => Ok(()),
    }
}

/// `out[i] = table[index[i]]` for a table `[V, D]` and an index of uint32; zeros where the table has no such row. The
/// result `[N, D]` has the table's type and is freed by the caller.
///
/// # Errors
/// [`BlockError`]; nothing stays allocated.
pub fn gather_rows(
    ops: &mut OpContext<'_>,
    table: &DeviceTensor,
    index: &DeviceTensor,
) -> Result<DeviceTensor, BlockError> {
    let columns = table.view.shape.last().copied().unwrap_or(1);
    let dims = [index.view.shape.elements(), columns];
    let spec = TensorSpec::new(&dims, table.dtype).map_err(BlockError::tensor(BLOCK))?;
    let rows = ops
        .alloc(&spec, BufferClass::Intermediate)
        .map_err(BlockError::device(BLOCK))?;
    match gather_rows_into(ops, table, index, &rows) {
        Ok(()) => Ok(rows),
        Err(error) => {
            free(ops, &[rows]);
            Err(error)
        }
    }
}

/// As [`gather_rows`], into rows that exist.
///
/// # Errors
/// [`BlockError`].
pub fn gather_rows_into(
    ops: &mut OpContext<'_>,
    table: &DeviceTensor,
    index: &DeviceTensor,
    rows: &DeviceTensor,
) -> Result<(), BlockError> {
    if index.dtype != DType::U32 {
        return Err(BlockError::DType {
            block: BLOCK.into(),
            tensor: "the index".into(),
            found: index.dtype,
            expected: DType::U32,
        });
    }
    let (table, rows) = (matrix(table, "the table")?, matrix(rows, "the result")?);
    let line = Shape::new(&[index.view.shape.elements()]).ok();
    let Some(view) = line.and_then(|line| index.view.reshape(line)) else {
        let found = index.view.shape;
        return Err(BlockError::shape(
            BLOCK,
            "the index",
            found,
            "entries at equal distances",
        ));
    };
    let op = OpDesc::GatherRows {
        table: table.operand(),
        index: DeviceTensor { view, ..*index }.operand(),
        dst: rows.operand(),
    };
    ops.run(&op, &[table.buffer, index.buffer, rows.buffer])
        .map_err(BlockError::device(BLOCK))
}

/// Puts rows `[P, D]` where a canvas wants them: `canvas[cell] = rows[index[cell]]`, zeros where the index is none of
/// the rows. `index` has one entry for each of `height * width` cells, row by row. The result is a feature map
/// `[1, D, height, width]`, freed by the caller.
///
/// # Errors
/// [`BlockError`]; nothing stays allocated.
pub fn scatter_rows(
    ops: &mut OpContext<'_>,
    rows: &DeviceTensor,
    index: &DeviceTensor,
    [height, width]: [usize; 2],
) -> Result<DeviceTensor, BlockError> {
    if height.checked_mul(width) != Some(index.view.shape.elements()) {
        let expected = format!("one entry for each of {height} x {width} cells");
        return Err(BlockError::shape(BLOCK, "the index", index.view.shape, expected));
    }
    let canvas = gather_rows(ops, rows, index)?;
    let channels = canvas.view.shape[1];
    as_feature_map(&canvas, [1, height, width, channels])
}

/// `[.., R, C]` as `[R, C]`.
fn matrix(tensor: &DeviceTensor, what: &str) -> Result<DeviceTensor, BlockError> {
    let shape = tensor.view.shape;
    let flat = shape.split_last().and_then(|(&columns, front)| {
        let dims = Shape::new(&[front.iter().product(), columns]).ok()?;
        tensor.view.reshape(dims)
    });
    match flat {
        Some(view) => Ok(DeviceTensor { view, ..*tensor }),
        None => Err(BlockError::shape(
            BLOCK,
            what,
            shape,
            "rows at equal distances, [.., R, C]",
        )),
    }
}
