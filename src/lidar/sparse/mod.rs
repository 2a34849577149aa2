//! Rulebooks of sparse convolutions: which active voxel feeds which output voxel through which tap.
//!
//! A sparse tensor is a set of active voxels, one row of features each. Every layer, sub-manifold or strided, is then a
//! gather: `out[o] = sum_k W[:, k, :] . in[map[o, k]]`, where taps without a voxel contribute nothing. The tap number is
//! `(a * k1 + b) * k2 + c` for tap `(a, b, c)` of the kernel, `a` along x. All of this is exact integer work on the host.
//!
//! - `level`: an active set and its lookup, on the sorted columns of `columns`
//! - `window`: kernel, stride, padding and dilation, and the arithmetic of grids
//! - `maps`: the gather maps of sub-manifold and strided layers; `simd_windows` fills them column by column
//! - `gather`: index forms of a map, capacity buckets, to-dense gathers

mod columns;
mod error;
mod gather;
mod level;
mod maps;
mod simd_windows;
mod window;

pub use error::SparseError;
pub use gather::{
    NeighborStats, dense_gather_index, gather_index, im2col, im2col_index, neighbor_stats, pairs_count,
    select_capacity,
};
pub use level::SparseLevel;
pub use maps::{
    NO_NEIGHBOR, NeighborMap, SubmRule, strided_neighbor_map, strided_neighbor_map_into, subm_neighbor_map,
    subm_neighbor_map_into,
};
pub use window::{SparseWindow, conv_out_shape, iter_taps, kernel_offsets};
