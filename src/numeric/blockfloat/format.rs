//! The two formats and the bytes that they take.

use super::BlockFloatError;

/// Values that share an exponent.
pub const BLOCK_VALUES: usize = 16;

/// Rows and columns of a tile.
pub const TILE_SIDE: usize = 32;

/// Blocks of a tile, each with an exponent byte.
pub(super) const TILE_BLOCKS: usize = TILE_SIDE * TILE_SIDE / BLOCK_VALUES;

/// Exponent field of infinities and NaN.
pub(super) const NOT_FINITE: u8 = 255;

/// How many bits a value keeps beside the shared exponent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockFormat {
    /// A sign and 7 magnitude bits: 17 bytes for 16 values.
    Bfp8,
    /// A sign and 3 magnitude bits: 9 bytes for 16 values.
    Bfp4,
}

impl BlockFormat {
    /// Bits of a magnitude, without the sign. There is no hidden bit.
    #[must_use]
    pub const fn magnitude_bits(self) -> u32 {
        match self {
            Self::Bfp8 => 7,
            Self::Bfp4 => 3,
        }
    }

    /// Bytes of a block's signs and magnitudes, without its exponent.
    #[must_use]
    pub const fn mantissa_bytes(self) -> usize {
        BLOCK_VALUES * (1 + self.magnitude_bits() as usize) / 8
    }

    /// Bytes of a block with its exponent.
    #[must_use]
    pub const fn block_bytes(self) -> usize {
        1 + self.mantissa_bytes()
    }

    /// Bytes of a 32 x 32 tile.
    #[must_use]
    pub const fn tile_bytes(self) -> usize {
        TILE_BLOCKS * self.block_bytes()
    }

    /// Bytes of a matrix in tiles, its sides padded to multiples of 32.
    ///
    /// # Errors
    /// [`BlockFloatError::TooLarge`] where the count does not fit a `usize`.
    pub const fn bytes_for(self, rows: usize, cols: usize) -> Result<usize, BlockFloatError> {
        let (down, across) = (rows.div_ceil(TILE_SIDE), cols.div_ceil(TILE_SIDE));
        if let Some(tiles) = down.checked_mul(across)
            && let Some(bytes) = tiles.checked_mul(self.tile_bytes())
        {
            return Ok(bytes);
        }
        Err(BlockFloatError::TooLarge { rows, cols })
    }
}

impl std::fmt::Display for BlockFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bfp8 => "bfp8",
            Self::Bfp4 => "bfp4",
        })
    }
}
