//! Selection of the best scores: the first `k` of any axis, and the proposals of a query head.
//!
//! The proposals of a dense heat map are its best (class, cell) pairs. Scores lie class by class (index
//! `class * cells + cell`, the order in which ONNX models flatten `[classes, H, W]`), the best of them are selected, and
//! their indices are taken apart again. Every step is exact; equal scores are in the order of their index.

mod host;

pub use host::{
    SelectionMetrics, StrongOverlap, class_major_host, decode_class_major_host, local_max_margins,
    selection_metrics, topk_host,
};

use super::{DeviceTensor, OpContext, OpRefusal};
use crate::device::{OpDesc, SplitIndexDesc, TopKDesc, TopKOrder};
use crate::tensor::DType;

const OP: &str = "topk";

/// Selections of proposals are made in multiples of this, so that what is gathered with them has whole tiles.
pub const K_MULTIPLE: usize = 16;

/// What to write over a score that must not be selected: below every score, and finite. Accelerators return
/// [`SENTINEL`] for a selected `-inf`.
pub const MASK_VALUE: f32 = -1e30;

/// An index that is none. This device never selects it; where it comes from elsewhere, [`decode_class_major`] keeps it
/// inside the tables.
pub const SENTINEL: u32 = u32::MAX;

/// `k` rounded up to a multiple of [`K_MULTIPLE`]: 500 becomes 512.
#[must_use]
pub const fn padded_k(k: usize) -> usize {
    k.next_multiple_of(K_MULTIPLE)
}

/// The first `k` elements of every line along `axis` and their positions (uint32), in order; equal elements by ascending
/// position, a NaN as if larger than every number. Values come first. Both are dense, have the source's shape but for the
/// axis, and are freed by the caller.
///
/// # Errors
/// [`OpRefusal`]; nothing stays allocated.
pub fn topk(
    ops: &mut OpContext<'_>,
    src: &DeviceTensor,
    axis: usize,
    k: usize,
    order: TopKOrder,
) -> Result<[DeviceTensor; 2], OpRefusal> {
    let shape = src.view.shape;
    let mut dims = shape.to_vec();
    match dims.get_mut(axis) {
        Some(len) if k <= *len => *len = k,
        Some(len) => {
            let reason = format!("{k} elements of an axis of {len}: there must be as many as are selected");
            return Err(OpRefusal::invalid(OP, reason));
        }
        None => return Err(OpRefusal::invalid(OP, format!("axis {axis} of shape {shape}"))),
    }
    let mut positions = None;
    let values = ops.make(OP, &dims, src.dtype, |ops, values| {
        let made = ops.make(OP, &dims, DType::U32, |ops, indices| {
            let desc = TopKDesc {
                src: src.operand(),
                values: values.operand(),
                indices: indices.operand(),
                axis,
                order,
            };
            ops.run(&OpDesc::TopK(desc), &[src.buffer, values.buffer, indices.buffer])
                .map_err(OpRefusal::device(OP))
        });
        positions = Some(made?);
        Ok(())
    })?;
    Ok([values, positions.unwrap_or(values)])
}

/// Takes indices of a class-major row apart: `class = index / cells` and `cell = index % cells`, exactly. With `clamp`, an
/// index past the row (such as [`SENTINEL`]) becomes the last class's last cell and can be used as an index of tables;
/// without it it keeps the last class and a cell past the map, for which [`super::gather::gather_rows`] gives zeros. Cells
/// come first; both are `[n]`, uint32, and freed by the caller.
///
/// # Errors
/// [`OpRefusal`]; nothing stays allocated.
pub fn decode_class_major(
    ops: &mut OpContext<'_>,
    indices: &DeviceTensor,
    cells: usize,
    classes: usize,
    clamp: bool,
) -> Result<[DeviceTensor; 2], OpRefusal> {
    const OP: &str = "decode_class_major";
    let count = indices.view.shape.elements();
    let line = indices
        .reshape(&[count])
        .ok_or_else(|| OpRefusal::shape(OP, "the index", indices.view.shape, "entries at equal distances"))?;
    let [major_len, minor_len] = row_dims(OP, cells, classes)?;
    let mut kinds = None;
    let places = ops.make(OP, &[count], DType::U32, |ops, places| {
        let made = ops.make(OP, &[count], DType::U32, |ops, kinds| {
            let desc = SplitIndexDesc {
                index: line.operand(),
                major: kinds.operand(),
                minor: places.operand(),
                major_len,
                minor_len,
                clamp,
            };
            ops.run(
                &OpDesc::SplitIndex(desc),
                &[line.buffer, kinds.buffer, places.buffer],
            )
            .map_err(OpRefusal::device(OP))
        });
        kinds = Some(made?);
        Ok(())
    })?;
    Ok([places, kinds.unwrap_or(places)])
}

/// Classes and cells, if a row of them can be indexed by uint32.
fn row_dims(op: &'static str, cells: usize, classes: usize) -> Result<[u32; 2], OpRefusal> {
    let fits = (cells.checked_mul(classes)).is_some_and(|row| row > 0 && row <= SENTINEL as usize);
    match (u32::try_from(classes), u32::try_from(cells)) {
        (Ok(classes), Ok(cells)) if fits => Ok([classes, cells]),
        _ => {
            let reason = format!("{classes} classes of {cells} cells: one to 2^32 - 1 scores are expected");
            Err(OpRefusal::invalid(op, reason))
        }
    }
}

/// What was selected: tensors `[padded_k]` of uint32, freed by the caller.
#[derive(Debug, Clone, Copy)]
pub struct Selection {
    /// Indices `class * cells + cell`, best first.
    pub indices: DeviceTensor,
    /// The cells.
    pub cells: DeviceTensor,
    /// The classes.
    pub classes: DeviceTensor,
}

impl Selection {
    /// All three, to be freed.
    #[must_use]
    pub const fn tensors(&self) -> [DeviceTensor; 3] {
        [self.indices, self.cells, self.classes]
    }
}

/// The proposals of a heat map: its best `padded_k(k)` scores, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopKSelect {
    cells: usize,
    classes: usize,
    k: usize,
}

impl TopKSelect {
    /// A selection of `k` proposals of `cells * classes` scores.
    ///
    /// # Errors
    /// [`OpRefusal::Invalid`] for no proposals, more than there are scores once `k` is padded, or more scores than uint32
    /// has indices.
    pub fn new(cells: usize, classes: usize, k: usize) -> Result<Self, OpRefusal> {
        row_dims(OP, cells, classes)?;
        let padded = k.checked_next_multiple_of(K_MULTIPLE).unwrap_or(usize::MAX);
        if k == 0 || padded > cells * classes {
            let reason = format!(
                "{k} proposals, {padded} with padding to a multiple of {K_MULTIPLE}, of {} scores: at least one, and no \
                 more than there are scores",
                cells * classes
            );
            return Err(OpRefusal::invalid(OP, reason));
        }
        Ok(Self { cells, classes, k })
    }

    /// Proposals asked for.
    #[must_use]
    pub const fn k(&self) -> usize {
        self.k
    }

    /// Proposals selected, the best [`TopKSelect::k`] of them first.
    #[must_use]
    pub const fn padded_k(&self) -> usize {
        padded_k(self.k)
    }

    /// Selects from rows `[.., cells, classes]` (a stored map `[1, H, W, C]`, say).
    ///
    /// # Errors
    /// [`OpRefusal`]; nothing stays allocated.
    pub fn forward(&self, ops: &mut OpContext<'_>, heat: &DeviceTensor) -> Result<Selection, OpRefusal> {
        let row = self.class_major_row(ops, heat)?;
        let selected = topk(ops, &row, 0, self.padded_k(), TopKOrder::Largest);
        ops.discard(&[row]);
        let [values, indices] = selected?;
        ops.discard(&[values]);
        match decode_class_major(ops, &indices, self.cells, self.classes, true) {
            Ok([cells, classes]) => Ok(Selection {
                indices,
                cells,
                classes,
            }),
            Err(error) => {
                ops.discard(&[indices]);
                Err(error)
            }
        }
    }

    /// The scores of rows `[.., cells, classes]` as one row, class by class; freed by the caller.
    ///
    /// # Errors
    /// [`OpRefusal`]; nothing stays allocated.
    pub fn class_major_row(
        &self,
        ops: &mut OpContext<'_>,
        heat: &DeviceTensor,
    ) -> Result<DeviceTensor, OpRefusal> {
        const OP: &str = "class_major_row";
        let Self { cells, classes, .. } = *self;
        let rows = heat
            .as_rows()
            .filter(|rows| rows.view.shape[..] == [cells, classes]);
        let rows = rows.ok_or_else(|| {
            let expected = format!("rows at equal distances, [.., {cells}, {classes}]");
            OpRefusal::shape(OP, "the heat", heat.view.shape, expected)
        })?;
        let by_class = rows.view.transpose(&[1, 0]).map_err(OpRefusal::tensor(OP))?;
        let made = ops.make(OP, &[classes, cells], heat.dtype, |ops, row| {
            ops.copy(
                &DeviceTensor {
                    view: by_class,
                    ..rows
                },
                row,
            )
            .map_err(OpRefusal::device(OP))
        })?;
        // A new tensor is dense, so it is one row.
        Ok(made.reshape(&[classes * cells]).unwrap_or(made))
    }
}
