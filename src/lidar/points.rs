//! Points as the pillars take them: one slice a column.

use super::cloud::Columns;

/// Most columns of a point: coordinates and four more.
pub const MAX_POINT_FEATURES: usize = 7;

const MAX_EXTRA: usize = MAX_POINT_FEATURES - 3;

/// Columns of a cloud that do not belong together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ColumnsError {
    /// One column is shorter or longer than the others.
    #[error(
        "the column {column} holds {found} values, but x holds {expected}; give every column one value a point"
    )]
    Length {
        /// Name of the column.
        column: &'static str,
        /// Length of x.
        expected: usize,
        /// Its length.
        found: usize,
    },
    /// More columns than any encoder takes.
    #[error("a point has {found} columns, but at most {MAX_POINT_FEATURES} are taken; leave some out")]
    TooMany {
        /// Columns, the coordinates included.
        found: usize,
    },
}

/// Borrowed columns of points, all of one length: coordinates in metres, then what a network takes after them, in its
/// order (time lag; intensity and time lag; time lag and class scores).
#[derive(Debug, Clone, Copy)]
pub struct PointColumns<'a> {
    pub(super) xyz: [&'a [f32]; 3],
    extra: [&'a [f32]; MAX_EXTRA],
    extras: usize,
}

impl<'a> PointColumns<'a> {
    /// Columns that belong together.
    ///
    /// # Errors
    /// [`ColumnsError`] for columns of different lengths and for more than four after the coordinates.
    pub fn new(x: &'a [f32], y: &'a [f32], z: &'a [f32], extra: &[&'a [f32]]) -> Result<Self, ColumnsError> {
        if extra.len() > MAX_EXTRA {
            return Err(ColumnsError::TooMany {
                found: 3 + extra.len(),
            });
        }
        same_length("y", x.len(), y.len())?;
        same_length("z", x.len(), z.len())?;
        for column in extra {
            same_length("after z", x.len(), column.len())?;
        }
        Ok(Self::of_one_length([x, y, z], extra))
    }

    /// Columns known to have one length; at most four after the coordinates.
    pub(super) fn of_one_length(xyz: [&'a [f32]; 3], extra: &[&'a [f32]]) -> Self {
        let mut kept: [&[f32]; MAX_EXTRA] = [&[]; MAX_EXTRA];
        kept[..extra.len()].copy_from_slice(extra);
        Self {
            xyz,
            extra: kept,
            extras: extra.len(),
        }
    }

    /// Number of points.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.xyz[0].len()
    }

    /// Whether there is no point.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.xyz[0].is_empty()
    }

    /// Values of a point: 3 to 7.
    #[must_use]
    pub const fn features(&self) -> usize {
        3 + self.extras
    }

    /// The columns after z.
    #[must_use]
    pub fn extra(&self) -> &[&'a [f32]] {
        &self.extra[..self.extras]
    }
}

fn same_length(column: &'static str, expected: usize, found: usize) -> Result<(), ColumnsError> {
    if expected == found {
        return Ok(());
    }
    Err(ColumnsError::Length {
        column,
        expected,
        found,
    })
}

/// Number of points, if y and z (and the intensity, unless it is empty) have it too.
pub(super) fn checked_len(columns: &Columns<'_>) -> Result<usize, ColumnsError> {
    let length = columns.x.len();
    same_length("y", length, columns.y.len())?;
    same_length("z", length, columns.z.len())?;
    if !columns.intensity.is_empty() {
        same_length("intensity", length, columns.intensity.len())?;
    }
    Ok(length)
}
