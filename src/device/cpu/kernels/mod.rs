//! The CPU device's kernels: each operation prepared once, then run on raw buffers.
//!
//! [`prepare`] checks a description completely and makes every decision; running the result makes none and
//! allocates nothing. Arithmetic is fp32 (but see `conv_matrix` and `dot`) whatever the storage ([`crate::tensor::DType::F32`] or
//! [`crate::tensor::DType::Bf16`], rounded to nearest even on store). Every formula exists once, generic over
//! the vector type (`lanes`), and is instantiated for one lane, AVX2 and AVX-512: all three, and any number
//! of threads, give the same bits (NaN payloads excepted).
//!
//! - `check`: shapes, bounds, types
//! - `lanes`, `simd_avx2`, `simd_avx512`, `ops`: vector types and the functions instantiated for each
//! - `formula`, `special`: activations
//! - `tile`: the inner loops of convolution and pooling
//! - `geometry`, `conv`, `conv_dense`, `conv_depthwise`, `pack`: convolution
//! - `conv_matrix`, `conv_matrix_sum`: convolution with the arithmetic of a matrix engine
//! - `dot`, `division`, `conv_dot`, `simd_amx`, `simd_pairs`: dense convolution of bf16 with instructions that multiply
//!   bf16; these sum otherwise, and which of them a device uses is part of its [`KernelSet`]
//! - `pillars`: the feature net of pillars, made of the convolution's tiles
//! - `gather_conv`, `gather_conv_dot`: sparse convolutions, pair by pair of rows
//! - `pooling`, `softmax`, `elementwise`, `copy`, `indexed`, `gather_rows`: the other operations
//! - `select`, `pick`, `resize_taps`: choice by a condition, moves by an index on the device, resizing by weights
//! - `topk`, `split_index`, `local_max`, `grid_sample`, `segment`: selections and samplings
//! - `matmul` and `sdpa` on the convolution's tiles, with `matrix`, the packing that they share
//! - `layer_norm`, `reduce`, and `rows`, functions of rows
//! - `nest`: loops over strided views

mod check;
mod conv;
mod conv_dense;
mod conv_depthwise;
mod conv_dot;
mod conv_matrix;
mod conv_matrix_sum;
mod copy;
mod division;
mod dot;
mod elementwise;
mod formula;
mod gather_conv;
mod gather_conv_dot;
mod gather_rows;
mod geometry;
mod grid_sample;
mod indexed;
mod lanes;
mod layer_norm;
mod local_max;
mod matmul;
mod matrix;
mod nest;
mod ops;
mod pack;
mod pick;
mod pillars;
mod pooling;
mod reduce;
mod resize_taps;
mod rows;
mod sdpa;
mod segment;
mod select;
#[cfg(target_arch = "x86_64")]
mod simd_amx;
#[cfg(target_arch = "x86_64")]
mod simd_avx2;
#[cfg(target_arch = "x86_64")]
mod simd_avx512;
#[cfg(target_arch = "x86_64")]
mod simd_pairs;
mod softmax;
mod special;
mod split_index;
mod tile;
mod topk;

use std::fmt;
use std::sync::Arc;

use super::pool::ComputePool;
use crate::device::{DeviceError, OpDesc};

pub use crate::numeric::Isa;
pub use dot::{Bf16Dot, KernelSet};
pub use pack::pack_weights;

/// One bound buffer.
#[derive(Debug, Clone, Copy)]
pub struct BufferRef {
    /// First byte, aligned to 64.
    pub ptr: *mut u8,
    /// Size in bytes.
    pub bytes: usize,
}

// SAFETY: a `BufferRef` is an address; whoever runs a kernel with it promises that no conflicting access
// is under way (see `Kernel::run`).
unsafe impl Send for BufferRef {}
// SAFETY: as above.
unsafe impl Sync for BufferRef {}

impl BufferRef {
    /// Address of the element `offset`. Never dereferenced here, so any offset is allowed.
    #[inline]
    const fn at<T>(&self, offset: isize) -> *mut T {
        self.ptr.cast::<T>().wrapping_offset(offset)
    }
}

/// A prepared operation: every decision (instruction set, blocking, index tables) is made, running it
/// allocates nothing.
pub trait Kernel: Send + Sync + fmt::Debug {
    /// Bytes of scratch memory that each pool thread must offer.
    fn scratch_bytes(&self) -> usize {
        0
    }

    /// Smallest size in bytes of each bound buffer, in the order of [`OpDesc`]; prepared weights included.
    fn required_bytes(&self) -> &[usize];

    /// Runs on bound buffers, in the order of [`OpDesc`].
    ///
    /// # Safety
    /// As many buffers as [`Self::required_bytes`] has entries, each alive, aligned to 64 bytes and at least
    /// that large, and not written by anyone else (nor read, where the kernel writes) during the call; a
    /// weights buffer holds what [`pack_weights`] made for the same description and [`KernelSet`]. The pool's
    /// scratch is at least [`Self::scratch_bytes`].
    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool);
}

/// Checks a description and prepares its kernel.
///
/// # Errors
/// [`DeviceError::InvalidOp`] for anything that no kernel can do as described: shapes that do not match,
/// types that are not supported, views that reach below element 0, a destination that would be written twice,
/// geometry that does not fit the output, tables that point outside their axis, or an instruction set that this
/// processor lacks.
pub fn prepare(op: &OpDesc, set: impl Into<KernelSet>) -> Result<Arc<dyn Kernel>, DeviceError> {
    let set = set.into();
    let isa = set.isa;
    let ops = ops::for_isa(isa)
        .ok_or_else(|| check::invalid(op.name(), format!("this processor has no {isa} instructions")))?;
    Ok(match op {
        OpDesc::Copy { src, dst } => copy::prepare(src, dst)?,
        OpDesc::Fill { dst, value } => copy::prepare_fill(dst, value.get())?,
        OpDesc::Conv2d(desc) => conv::prepare(desc, ops, set)?,
        OpDesc::Pool2d(desc) => pooling::prepare(desc, ops)?,
        OpDesc::ResizeNearest {
            src,
            dst,
            rows,
            columns,
        } => indexed::prepare_resize(src, dst, rows, columns)?,
        OpDesc::Unary { src, dst, activation } => elementwise::prepare_unary(src, dst, *activation, ops)?,
        OpDesc::Binary { lhs, rhs, dst, kind } => elementwise::prepare_binary(lhs, rhs, dst, *kind, ops)?,
        OpDesc::Softmax { src, dst, axis } => softmax::prepare(src, dst, *axis, ops)?,
        OpDesc::Gather {
            src,
            dst,
            axis,
            indices,
        } => indexed::prepare_gather(src, dst, *axis, indices)?,
        OpDesc::GatherRows { table, index, dst } => gather_rows::prepare(table, index, dst)?,
        OpDesc::Pillars(desc) => pillars::prepare(desc, ops)?,
        OpDesc::GatherConv(desc) => gather_conv::prepare(desc, ops, set)?,
        OpDesc::Select {
            condition,
            yes,
            no,
            dst,
        } => select::prepare([condition, yes, no, dst], ops)?,
        OpDesc::GatherElements {
            src,
            index,
            dst,
            axis,
        } => pick::prepare_gather(src, index, dst, *axis)?,
        OpDesc::ScatterElements {
            updates,
            index,
            dst,
            axis,
            combine,
        } => pick::prepare_scatter([updates, index, dst], *axis, *combine, ops)?,
        OpDesc::ResizeTaps {
            src,
            dst,
            rows,
            columns,
        } => resize_taps::prepare(src, dst, [rows, columns], ops)?,
        OpDesc::MatMul(desc) => matmul::prepare(desc, ops, rows::for_isa(set.isa))?,
        OpDesc::LayerNorm(desc) => layer_norm::prepare(desc, ops, rows::for_isa(set.isa))?,
        OpDesc::Reduce(desc) => reduce::prepare(desc, ops, rows::for_isa(set.isa))?,
        OpDesc::TopK(desc) => topk::prepare(desc)?,
        OpDesc::SplitIndex(desc) => split_index::prepare(desc)?,
        OpDesc::LocalMax(desc) => local_max::prepare(desc, ops)?,
        OpDesc::GridSample(desc) => grid_sample::prepare(desc, ops)?,
        OpDesc::SegmentReduce(desc) => segment::prepare(desc, ops)?,
        OpDesc::Sdpa(desc) => sdpa::prepare(desc, ops, rows::for_isa(set.isa))?,
    })
}
