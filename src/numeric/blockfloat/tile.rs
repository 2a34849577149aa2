//! Matrices as ttnn stores them: in tiles of 32 x 32.
//!
//! A tile is four faces of 16 x 16: top left, top right, bottom left, bottom right. Its bytes are one exponent
//! for each row of each face, then the mantissas of the faces, each row by row. Tiles follow each other row by
//! row; the sides of the matrix are padded with zeros to whole tiles.

use super::format::TILE_BLOCKS;
use super::{BLOCK_VALUES, BlockFloatError, BlockFormat, Kernels, TILE_SIDE};

/// Rows and columns of a face.
const FACE_SIDE: usize = BLOCK_VALUES;

/// A tile's face rows, in the order of its bytes.
type FaceRows = [[f32; BLOCK_VALUES]; TILE_BLOCKS];

/// Encodes a matrix, given row by row, into tiles.
///
/// # Errors
/// [`BlockFloatError::MatrixValues`] where there are not `rows * cols` values;
/// [`BlockFloatError::TooLarge`] where the tiles would not fit into memory by count.
pub fn encode_tiles(
    format: BlockFormat,
    rows: usize,
    cols: usize,
    values: &[f32],
) -> Result<Vec<u8>, BlockFloatError> {
    let bytes = format.bytes_for(rows, cols)?;
    if rows.checked_mul(cols) != Some(values.len()) {
        return Err(BlockFloatError::MatrixValues {
            found: values.len(),
            rows,
            cols,
        });
    }
    let kernels = Kernels::detect();
    let mut tiles = vec![0; bytes];
    for (index, tile) in tiles.chunks_exact_mut(format.tile_bytes()).enumerate() {
        let mut face_rows: FaceRows = [[0.0; BLOCK_VALUES]; TILE_BLOCKS];
        for (face_row, inside) in face_rows.iter_mut().zip(places(rows, cols, index)) {
            face_row[..inside.len()].copy_from_slice(&values[inside]);
        }
        let (exponents, mantissas) = tile.split_at_mut(TILE_BLOCKS);
        kernels.encode_blocks(format, &face_rows, exponents, mantissas);
    }
    Ok(tiles)
}

/// Decodes tiles into a matrix, row by row; the padding is left out.
///
/// # Errors
/// [`BlockFloatError::TileBytes`] for bytes of another length than such a matrix has;
/// [`BlockFloatError::TooLarge`] where the length is beyond what can be addressed.
pub fn decode_tiles(
    format: BlockFormat,
    rows: usize,
    cols: usize,
    tiles: &[u8],
) -> Result<Vec<f32>, BlockFloatError> {
    let expected = format.bytes_for(rows, cols)?;
    if tiles.len() != expected {
        return Err(BlockFloatError::TileBytes {
            format,
            found: tiles.len(),
            expected,
            rows,
            cols,
        });
    }
    let kernels = Kernels::detect();
    // No more values than the tiles, whose bytes are there, hold.
    let mut values = vec![0.0; rows * cols];
    for (index, tile) in tiles.chunks_exact(format.tile_bytes()).enumerate() {
        let mut face_rows: FaceRows = [[0.0; BLOCK_VALUES]; TILE_BLOCKS];
        let (exponents, mantissas) = tile.split_at(TILE_BLOCKS);
        kernels.decode_blocks(format, exponents, mantissas, &mut face_rows);
        for (face_row, inside) in face_rows.iter().zip(places(rows, cols, index)) {
            let width = inside.len();
            values[inside].copy_from_slice(&face_row[..width]);
        }
    }
    Ok(values)
}

/// Where the values of a tile's face rows lie in the matrix, in the order of the tile's bytes; empty for a
/// face row that is padding.
fn places(rows: usize, cols: usize, tile: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let across = cols.div_ceil(TILE_SIDE);
    let (top, left) = (tile / across * TILE_SIDE, tile % across * TILE_SIDE);
    (0..TILE_BLOCKS).map(move |block| {
        let (face, face_row) = (block / FACE_SIDE, block % FACE_SIDE);
        let row = top + face / 2 * FACE_SIDE + face_row;
        let col = left + face % 2 * FACE_SIDE;
        if row >= rows || col >= cols {
            return 0..0;
        }
        let start = row * cols + col;
        start..start + FACE_SIDE.min(cols - col)
    })
}
