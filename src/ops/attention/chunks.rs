//! How many queries and keys are worked on at a time.

use super::{AttentionError, KEY_ALIGNMENT};

/// Keys from which on the operation's own small blocks are refused.
pub const LONG_KEYS: usize = 1000;

/// Queries and keys that are worked on at a time. The numbers of a result depend on the keys (each block is one step of
/// an online softmax) and not on the queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkConfig {
    /// Queries of a chunk.
    pub queries: usize,
    /// Keys of a chunk.
    pub keys: usize,
}

/// A shape and its chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownChunks {
    /// Queries.
    pub queries: usize,
    /// Keys.
    pub keys: usize,
    /// The chunks.
    pub chunks: ChunkConfig,
}

/// Shapes that are not left to the rules of [`chunk_config`]: rows this short take all their keys in one block.
pub const CHUNK_TABLE: [KnownChunks; 4] = [
    in_one_block(576, 576, 576),
    in_one_block(352, 352, 352),
    in_one_block(352, 564, 576),
    in_one_block(500, 500, 512),
];

const fn in_one_block(queries: usize, keys: usize, block: usize) -> KnownChunks {
    KnownChunks {
        queries,
        keys,
        chunks: ChunkConfig {
            queries: 64,
            keys: block,
        },
    }
}

/// The chunks for a number of queries and keys: those of the table, else 64 queries with 1,024 keys from 16,384 keys on,
/// 512 from 4,096, 128 from 1,000, and 64 below; 32 where a sequence fits one tile.
#[must_use]
pub fn chunk_config(queries: usize, keys: usize) -> ChunkConfig {
    let known = CHUNK_TABLE
        .iter()
        .find(|known| (known.queries, known.keys) == (queries, keys));
    if let Some(known) = known {
        return known.chunks;
    }
    let short = |length: usize| {
        if length <= KEY_ALIGNMENT {
            KEY_ALIGNMENT
        } else {
            64
        }
    };
    match keys {
        16_384.. => ChunkConfig {
            queries: 64,
            keys: 1024,
        },
        4096.. => ChunkConfig {
            queries: 64,
            keys: 512,
        },
        LONG_KEYS.. => ChunkConfig {
            queries: 64,
            keys: 128,
        },
        _ => ChunkConfig {
            queries: short(queries),
            keys: short(keys),
        },
    }
}

/// Which chunks attention uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Chunks {
    /// Those of [`chunk_config`].
    #[default]
    Auto,
    /// These.
    Fixed(ChunkConfig),
    /// The operation's own, 32 by 32; refused from [`LONG_KEYS`] keys on.
    OfOperation,
}

impl Chunks {
    /// The chunks for a number of queries and keys.
    ///
    /// # Errors
    /// [`AttentionError::ChunksRequired`], [`AttentionError::ChunkSize`].
    pub fn resolve(self, queries: usize, keys: usize) -> Result<ChunkConfig, AttentionError> {
        let chunks = match self {
            Self::Auto => chunk_config(queries, keys),
            Self::OfOperation if keys >= LONG_KEYS => return Err(AttentionError::ChunksRequired { keys }),
            Self::OfOperation => ChunkConfig {
                queries: KEY_ALIGNMENT,
                keys: KEY_ALIGNMENT,
            },
            Self::Fixed(chunks) => chunks,
        };
        let whole = |size: usize| size > 0 && size.is_multiple_of(KEY_ALIGNMENT);
        match whole(chunks.queries) && whole(chunks.keys) {
            true => Ok(chunks),
            false => Err(AttentionError::ChunkSize {
                queries: chunks.queries,
                keys: chunks.keys,
            }),
        }
    }
}
