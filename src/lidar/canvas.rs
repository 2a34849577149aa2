//! Pillars on the map they come from.

use super::grid::{PillarCell, PillarGridSpec};

/// Pillars and maps that do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CanvasError {
    /// The map has another size.
    #[error("the map holds {found} values, but {expected} are needed ({what}); give a slice of that length")]
    MapLength {
        /// How the length comes about.
        what: String,
        /// Length that is needed.
        expected: usize,
        /// Length that was given.
        found: usize,
    },
    /// Rows of features and places differ in number.
    #[error("{found} features do not make {pillars} rows of one width; give one row a pillar")]
    Features {
        /// Number of places.
        pillars: usize,
        /// Number of values.
        found: usize,
    },
    /// The sentinel is the number of a pillar.
    #[error(
        "the sentinel {sentinel} is also the number of one of {pillars} pillars; give the number of a row of zeros"
    )]
    Sentinel {
        /// As given.
        sentinel: u32,
        /// Number of pillars.
        pillars: usize,
    },
    /// A pillar outside the map.
    #[error("the pillar {pillar} lies in cell x {ix}, y {iy}, outside the grid of {grid_x} x {grid_y} cells")]
    Outside {
        /// Number of the pillar.
        pillar: usize,
        /// Cell along x.
        ix: u16,
        /// Cell along y.
        iy: u16,
        /// Cells along x.
        grid_x: usize,
        /// Cells along y.
        grid_y: usize,
    },
}

fn cell(pillar: usize, place: PillarCell, spec: &PillarGridSpec) -> Result<usize, CanvasError> {
    let (ix, iy) = (usize::from(place.ix), usize::from(place.iy));
    if ix < spec.grid_x() && iy < spec.grid_y() {
        return Ok(iy * spec.grid_x() + ix);
    }
    Err(CanvasError::Outside {
        pillar,
        ix: place.ix,
        iy: place.iy,
        grid_x: spec.grid_x(),
        grid_y: spec.grid_y(),
    })
}

fn map_length(expected: usize, found: usize, what: impl FnOnce() -> String) -> Result<(), CanvasError> {
    if expected == found {
        return Ok(());
    }
    Err(CanvasError::MapLength {
        what: what(),
        expected,
        found,
    })
}

/// Writes each pillar's row of features (P, C) to its cell of a map (C, H, W), H = cells along y, W = cells along x;
/// every other cell becomes 0. Where two pillars have one cell, the later counts.
///
/// # Errors
/// [`CanvasError`]; the map is unchanged then.
pub fn scatter_canvas(
    features: &[f32],
    coords: &[PillarCell],
    spec: &PillarGridSpec,
    channels: usize,
    map: &mut [f32],
) -> Result<(), CanvasError> {
    let cells = spec.num_cells();
    if coords.len().checked_mul(channels) != Some(features.len()) {
        return Err(CanvasError::Features {
            pillars: coords.len(),
            found: features.len(),
        });
    }
    map_length(channels.saturating_mul(cells), map.len(), || {
        format!(
            "{channels} channels of {} x {} cells",
            spec.grid_y(),
            spec.grid_x()
        )
    })?;
    for (pillar, &place) in coords.iter().enumerate() {
        cell(pillar, place, spec)?;
    }
    map.fill(0.0);
    if channels == 0 {
        return Ok(());
    }
    for (pillar, (row, &place)) in features.chunks_exact(channels).zip(coords).enumerate() {
        let at = cell(pillar, place, spec)?;
        for (channel, &value) in row.iter().enumerate() {
            map[channel * cells + at] = value;
        }
    }
    Ok(())
}

/// For each cell of a map (H, W) the number of its pillar, or the sentinel: the gather form of [`scatter_canvas`],
/// `map[cell] = table[index[cell]]` with a row of zeros at the sentinel. Where two pillars have one cell, the later
/// counts.
///
/// # Errors
/// [`CanvasError`]; the index is unchanged then.
pub fn canvas_gather_index(
    coords: &[PillarCell],
    spec: &PillarGridSpec,
    sentinel: u32,
    index: &mut [u32],
) -> Result<(), CanvasError> {
    map_length(spec.num_cells(), index.len(), || {
        format!("{} x {} cells", spec.grid_y(), spec.grid_x())
    })?;
    if (sentinel as usize) < coords.len() {
        return Err(CanvasError::Sentinel {
            sentinel,
            pillars: coords.len(),
        });
    }
    for (pillar, &place) in coords.iter().enumerate() {
        cell(pillar, place, spec)?;
    }
    index.fill(sentinel);
    for (pillar, &place) in coords.iter().enumerate() {
        // Fits: pillars are fewer than the sentinel, or as many.
        index[cell(pillar, place, spec)?] = pillar as u32;
    }
    Ok(())
}
