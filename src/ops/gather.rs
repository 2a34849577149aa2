//! Rows picked by an index on the device, and the scatter of pillars to their cells in that form: each cell says which
//! row it takes, so shapes are static, nothing is written twice and no canvas has to be cleared.
//!
//! An entry that the table does not have gives a row of zeros, whatever lies behind the table. That is the only way to
//! mark an empty place: a mark that is also a row of the table would pick that row, so [`check_index`] refuses it.

use super::{DeviceTensor, OpContext, OpRefusal};
use crate::device::{OpDesc, Scalar};
use crate::tensor::{DType, Shape};

const OP: &str = "gather_rows";

/// Why an index is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// An entry that a table does not have.
    #[error("entry {position} of the index is {value}: the table has {rows} rows{}",
        sentinel.map(|s| format!(", and {s} marks an empty place")).unwrap_or_default())]
    Entry {
        /// Position of the first such entry.
        position: usize,
        /// The entry.
        value: u32,
        /// Rows of the table.
        rows: usize,
        /// The entry that stands for a row of zeros.
        sentinel: Option<u32>,
    },
    /// A mark of empty places that is a row of the table.
    #[error("{sentinel} cannot mark an empty place: the table has {rows} rows, so it is one of them")]
    Sentinel {
        /// The mark.
        sentinel: u32,
        /// Rows of the table.
        rows: usize,
    },
}

/// Checks an index before it is uploaded: every entry below `rows`, or the sentinel, which is none of the rows. The
/// device gives zeros for any other entry, so that a wrong index would not show.
///
/// # Errors
/// [`IndexError::Entry`] with the first entry that is neither; [`IndexError::Sentinel`].
pub fn check_index(index: &[u32], rows: usize, sentinel: Option<u32>) -> Result<(), IndexError> {
    if let Some(sentinel) = sentinel.filter(|&sentinel| (sentinel as usize) < rows) {
        return Err(IndexError::Sentinel { sentinel, rows });
    }
    let wrong = |value: u32| value as usize >= rows && Some(value) != sentinel;
    // Without a branch an entry; the place is looked for only where there is one.
    if !index.iter().fold(false, |any, &value| any | wrong(value)) {
        return Ok(());
    }
    match index.iter().position(|&value| wrong(value)) {
        Some(position) => Err(IndexError::Entry {
            position,
            value: index[position],
            rows,
            sentinel,
        }),
        None => Ok(()),
    }
}

/// `out[i] = table[index[i]]` for a table `[.., V, D]` and an index of uint32; zeros where the table has no such row. The
/// result `[N, D]` has the table's type and is freed by the caller.
///
/// # Errors
/// [`OpRefusal`]; nothing stays allocated.
pub fn gather_rows(
    ops: &mut OpContext<'_>,
    table: &DeviceTensor,
    index: &DeviceTensor,
) -> Result<DeviceTensor, OpRefusal> {
    let columns = table.view.shape.last().copied().unwrap_or(1);
    let dims = [index.view.shape.elements(), columns];
    ops.make(OP, &dims, table.dtype, |ops, rows| {
        gather_rows_into(ops, table, index, rows)
    })
}

/// As [`gather_rows`], into rows that exist.
///
/// # Errors
/// [`OpRefusal`].
pub fn gather_rows_into(
    ops: &mut OpContext<'_>,
    table: &DeviceTensor,
    index: &DeviceTensor,
    rows: &DeviceTensor,
) -> Result<(), OpRefusal> {
    if index.dtype != DType::U32 {
        return Err(OpRefusal::DType {
            op: OP,
            tensor: "the index",
            found: index.dtype,
            expected: DType::U32.to_string(),
        });
    }
    let (table, rows) = (matrix(table, "the table")?, matrix(rows, "the result")?);
    let line = index
        .reshape(&[index.view.shape.elements()])
        .ok_or_else(|| OpRefusal::shape(OP, "the index", index.view.shape, "entries at equal distances"))?;
    let op = OpDesc::GatherRows {
        table: table.operand(),
        index: line.operand(),
        dst: rows.operand(),
    };
    ops.run(&op, &[table.buffer, line.buffer, rows.buffer])
        .map_err(OpRefusal::device(OP))
}

/// A table `[P + count, D]` of the rows `[.., P, D]` and `count` rows of zeros behind them, freed by the caller. For
/// whoever picks empty places by the number of a row, as an embedding with a padding row does: the row is there and is
/// zeros.
///
/// # Errors
/// [`OpRefusal`]; nothing stays allocated.
pub fn with_zero_rows(
    ops: &mut OpContext<'_>,
    rows: &DeviceTensor,
    count: usize,
) -> Result<DeviceTensor, OpRefusal> {
    const OP: &str = "with_zero_rows";
    let rows = matrix(rows, "the rows")?;
    let [known, columns] = [rows.view.shape[0], rows.view.shape[1]];
    let dims = [known.saturating_add(count), columns];
    ops.make(OP, &dims, rows.dtype, |ops, table| {
        let part = |first, count| -> Result<DeviceTensor, OpRefusal> {
            let view = table.view.slice(0, first, count, 1);
            Ok(DeviceTensor {
                view: view.map_err(OpRefusal::tensor(OP))?,
                ..*table
            })
        };
        ops.copy(&rows, &part(0, known)?).map_err(OpRefusal::device(OP))?;
        let zeros = OpDesc::Fill {
            dst: part(known, count)?.operand(),
            value: Scalar::new(0.0),
        };
        ops.run(&zeros, &[table.buffer]).map_err(OpRefusal::device(OP))
    })
}

/// Puts rows `[.., P, D]` where a canvas wants them: `canvas[cell] = rows[index[cell]]`, zeros where the index is none of
/// the rows. `index` has one entry for each of `height * width` cells, row by row. The result is a feature map
/// `[1, D, height, width]`, freed by the caller.
///
/// # Errors
/// [`OpRefusal`]; nothing stays allocated.
pub fn scatter_rows(
    ops: &mut OpContext<'_>,
    rows: &DeviceTensor,
    index: &DeviceTensor,
    [height, width]: [usize; 2],
) -> Result<DeviceTensor, OpRefusal> {
    const OP: &str = "scatter_rows";
    if height.checked_mul(width) != Some(index.view.shape.elements()) {
        let expected = format!("one entry for each of {height} x {width} cells");
        return Err(OpRefusal::shape(OP, "the index", index.view.shape, expected));
    }
    let channels = rows.view.shape.last().copied().unwrap_or(1);
    ops.make_map(OP, [1, channels, height, width], rows.dtype, |ops, canvas| {
        let dims = Shape::new(&[height * width, channels]).map_err(OpRefusal::tensor(OP))?;
        let cells = canvas
            .view
            .transpose(&[0, 2, 3, 1])
            .map_err(OpRefusal::tensor(OP))?;
        // A new map is dense, so its cells are rows.
        let view = cells.reshape(dims).unwrap_or(cells);
        gather_rows_into(ops, rows, index, &DeviceTensor { view, ..*canvas })
    })
}

/// `[.., R, C]` as `[R, C]`.
fn matrix(tensor: &DeviceTensor, what: &'static str) -> Result<DeviceTensor, OpRefusal> {
    tensor
        .as_rows()
        .ok_or_else(|| OpRefusal::shape(OP, what, tensor.view.shape, "rows at equal distances, [.., R, C]"))
}
