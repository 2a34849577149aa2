//! The matrices that an operand holds in its last two axes, and their way into the tiles of dense layers.

use std::ops::Range;

use super::BufferRef;
use super::elementwise::load_run;
use super::ops::Ops;
use super::tile::Tap;
use crate::device::Operand;
use crate::tensor::DType;

/// Values that are turned at a time where a matrix has its columns without gaps.
const TURNED: usize = 128;

/// The last two axes of an operand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Matrix {
    pub(super) dtype: DType,
    pub(super) offset: isize,
    pub(super) row_step: isize,
    pub(super) step: isize,
}

impl Matrix {
    pub(super) fn new(operand: &Operand) -> Self {
        let view = &operand.view;
        let rank = view.rank();
        Self {
            dtype: operand.dtype,
            offset: view.offset as isize,
            row_step: view.strides[rank - 2],
            step: view.strides[rank - 1],
        }
    }

    /// The element of a row and column.
    pub(super) const fn at(&self, row: usize, column: usize) -> isize {
        self.offset + row as isize * self.row_step + column as isize * self.step
    }

    /// The matrix that lies so many elements further.
    pub(super) const fn moved(self, elements: isize) -> Self {
        Self {
            offset: self.offset + elements,
            ..self
        }
    }

    /// Rows and columns exchanged.
    pub(super) const fn turned(self) -> Self {
        Self {
            row_step: self.step,
            step: self.row_step,
            ..self
        }
    }

    /// Whether rows can be read as fp32 where they lie.
    pub(super) const fn is_direct(&self) -> bool {
        matches!(self.dtype, DType::F32) && self.step == 1
    }

    /// Copies some rows of some columns as a panel: a row of zeros (what sums start with), then the rows, each of whole
    /// vectors that end in zeros.
    ///
    /// # Safety
    /// The processor has the instruction set of `ops`; the rows and columns lie inside the buffer.
    pub(super) unsafe fn pack(
        &self,
        ops: &Ops,
        buffer: BufferRef,
        rows: Range<usize>,
        columns: Range<usize>,
        to: &mut [f32],
    ) {
        let count = columns.len();
        let width = count.next_multiple_of(ops.lanes);
        let (zeros, packed) = to[..(rows.len() + 1) * width].split_at_mut(width);
        zeros.fill(0.0);
        if self.row_step != 1 || self.step == 1 {
            for (row, to) in rows.zip(packed.chunks_exact_mut(width)) {
                let place = (self.at(row, columns.start), self.step);
                // SAFETY: the caller's contract.
                unsafe { load_run(ops, self.dtype, buffer, place, &mut to[..count]) };
                to[count..].fill(0.0);
            }
            return;
        }
        let mut line = [0.0; TURNED];
        for (block, packed) in packed.chunks_mut(TURNED * width).enumerate() {
            let line = &mut line[..packed.len() / width];
            for (i, column) in columns.clone().enumerate() {
                let place = (self.at(rows.start + block * TURNED, column), 1);
                // SAFETY: the caller's contract.
                unsafe { load_run(ops, self.dtype, buffer, place, line) };
                for (to, &value) in packed.chunks_exact_mut(width).zip(&*line) {
                    to[i] = value;
                }
            }
            for to in packed.chunks_exact_mut(width) {
                to[count..].fill(0.0);
            }
        }
    }

    /// Some rows as fp32: where they lie, or widened to `to` (rows of `columns` values without gaps).
    ///
    /// # Safety
    /// As [`Self::pack`].
    pub(super) unsafe fn rows(
        &self,
        ops: &Ops,
        buffer: BufferRef,
        rows: Range<usize>,
        columns: usize,
        to: &mut [f32],
    ) -> Tap {
        if self.is_direct() {
            return Tap {
                base: buffer.at(self.at(rows.start, 0)),
                step: self.row_step,
            };
        }
        if columns > 0 {
            for (row, to) in rows.zip(to.chunks_exact_mut(columns)) {
                // SAFETY: the caller's contract.
                unsafe { load_run(ops, self.dtype, buffer, (self.at(row, 0), self.step), to) };
            }
        }
        Tap {
            base: to.as_ptr(),
            step: columns as isize,
        }
    }
}
