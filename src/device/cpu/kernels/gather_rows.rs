//! Rows picked by an index that lies on the device.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::check::{ensure, required_bytes, writes_each_place_once};
use super::copy::{RunFn, relocation};
use super::nest::share;
use super::{BufferRef, Kernel};
use crate::device::cpu::pool::ComputePool;
use crate::device::{DeviceError, Operand};
use crate::tensor::DType;

const OP: &str = "gather_rows";

/// Rows at equal distances, and the elements of a row.
#[derive(Debug, Clone, Copy)]
struct Rows {
    offset: isize,
    row_step: isize,
    step: isize,
}

impl Rows {
    const fn new(operand: &Operand) -> Self {
        Self {
            offset: operand.view.offset as isize,
            row_step: operand.view.strides[0],
            step: operand.view.strides[1],
        }
    }
}

/// A prepared gather. Buffers: table, index, destination.
struct GatherRows {
    table: Rows,
    /// Rows of the table.
    known: usize,
    index_offset: isize,
    index_step: isize,
    dst: Rows,
    rows: usize,
    columns: usize,
    dtype: DType,
    run: RunFn,
    required: [usize; 3],
}

/// Prepares a gather.
pub(super) fn prepare(
    table: &Operand,
    index: &Operand,
    dst: &Operand,
) -> Result<Arc<dyn Kernel>, DeviceError> {
    let shapes = [table.view.shape, index.view.shape, dst.view.shape];
    let [from, picks, to] = &shapes;
    let fits =
        from.rank() == 2 && picks.rank() == 1 && to.rank() == 2 && to[0] == picks[0] && to[1] == from[1];
    ensure(fits, OP, || {
        format!(
            "table {from}, index {picks} and destination {to} do not fit: expected [rows, columns], [n] and \
             [n, columns]"
        )
    })?;
    ensure(index.dtype == DType::U32, OP, || {
        format!("index holds {}, expected {}", index.dtype, DType::U32)
    })?;
    ensure(table.dtype == dst.dtype, OP, || {
        format!("table holds {}, destination {}", table.dtype, dst.dtype)
    })?;
    writes_each_place_once(OP, "destination", dst)?;
    Ok(Arc::new(GatherRows {
        table: Rows::new(table),
        known: from[0],
        index_offset: index.view.offset as isize,
        index_step: index.view.strides[0],
        dst: Rows::new(dst),
        rows: to[0],
        columns: to[1],
        dtype: table.dtype,
        run: relocation(table.dtype),
        required: [
            required_bytes(OP, "table", table)?,
            required_bytes(OP, "index", index)?,
            required_bytes(OP, "destination", dst)?,
        ],
    }))
}

impl GatherRows {
    /// The table's row for one of the destination's; `None` for one that the table does not have.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `row` lies inside the destination.
    unsafe fn pick(&self, index: BufferRef, row: usize) -> Option<usize> {
        let place = index.at::<u32>(self.index_offset + row as isize * self.index_step);
        // SAFETY: the index has an entry for every row. Read once: what is compared is what is used.
        let row = unsafe { place.read_volatile() } as usize;
        (row < self.known).then_some(row)
    }

    /// Fills `count` rows of the destination with zeros.
    ///
    /// # Safety
    /// As [`Kernel::run`]; the rows lie inside the destination.
    unsafe fn clear(&self, dst: BufferRef, first: usize, count: usize) {
        let size = self.dtype.size_bytes();
        let begin =
            |row: usize| dst.at::<u8>((self.dst.offset + row as isize * self.dst.row_step) * size as isize);
        // SAFETY: the rows lie inside the checked view; without gaps they are one run of bytes.
        unsafe {
            if self.dst.step == 1 && self.dst.row_step == self.columns as isize {
                begin(first).write_bytes(0, count * self.columns * size);
                return;
            }
            for row in first..first + count {
                (self.run)(
                    (&raw const ZERO).cast(),
                    0,
                    begin(row),
                    self.dst.step,
                    self.columns,
                );
            }
        }
    }

    /// # Safety
    /// As [`Kernel::run`].
    unsafe fn rows(&self, buffers: &[BufferRef], rows: Range<usize>) {
        let size = self.dtype.size_bytes() as isize;
        let mut row = rows.start;
        // SAFETY: table rows are below their number, destination rows inside the view.
        unsafe {
            while row < rows.end {
                if let Some(from) = self.pick(buffers[1], row) {
                    let src = self.table.offset + from as isize * self.table.row_step;
                    let dst = self.dst.offset + row as isize * self.dst.row_step;
                    (self.run)(
                        buffers[0].at(src * size),
                        self.table.step,
                        buffers[2].at(dst * size),
                        self.dst.step,
                        self.columns,
                    );
                    row += 1;
                    continue;
                }
                let first = row;
                while row < rows.end && self.pick(buffers[1], row).is_none() {
                    row += 1;
                }
                self.clear(buffers[2], first, row - first);
            }
        }
    }
}

/// What is read for rows of zeros; aligned for every type.
static ZERO: u64 = 0;

impl Kernel for GatherRows {
    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        share(pool, self.rows, self.columns.div_ceil(8), &|rows, _| {
            // SAFETY: the caller's contract; different ranges write different rows.
            unsafe { self.rows(buffers, rows) };
        });
    }
}

impl fmt::Debug for GatherRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "GatherRows({}, {} of {} rows of {})",
            self.dtype, self.rows, self.known, self.columns
        )
    }
}
