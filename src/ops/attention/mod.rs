//! Attention: the one way to the device's fused operation, heads, masks, and the padding of heads.
//!
//! Fused attention is easy to call wrongly without an error, so [`sdpa`] leaves no room for it:
//!
//! - nothing is causal: there is no such form, and a mask says what may be seen;
//! - the scale has no default: that of a padded head is not one over the root of its size;
//! - the blocks of keys come from [`chunk_config`], and the operation's own small blocks are refused for long rows;
//! - a mask over keys that are no multiple of [`KEY_ALIGNMENT`] is refused: an accelerator that works in tiles would
//!   let the keys that fill the last tile through. Run on [`aligned_keys`] keys and mask those that are too many.

mod chunks;
mod heads;
mod masks;
mod padding;

pub use chunks::{CHUNK_TABLE, ChunkConfig, Chunks, KnownChunks, LONG_KEYS, chunk_config};
pub use heads::{merge_heads, split_heads, split_q_kv, split_qkv};
pub use masks::{aligned_keys, expand_key_bias, key_bias, key_bias_row};
pub use padding::{pad_head_columns, pad_head_dim, pad_head_rows, padded_head_dim};

use super::matrix::MatMulOptions;
use super::{DeviceTensor, OpContext};
use crate::device::{BufferClass, DeviceError, OpDesc, Scalar, SdpaDesc};
use crate::tensor::{DType, Shape, TensorError, TensorSpec};

/// Sizes of heads, and of masked keys, are multiples of this: the edge of an accelerator's tile.
pub const KEY_ALIGNMENT: usize = 32;

/// Why attention was not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttentionError {
    /// Tensors that do not fit each other.
    #[error("{tensor} has shape {found}, expected {expected}")]
    Shape {
        /// Which tensor.
        tensor: &'static str,
        /// Its shape.
        found: Box<Shape>,
        /// What was expected, in words.
        expected: String,
    },
    /// A number of heads that does not divide the columns, or the other heads.
    #[error("{what} cannot be divided among {heads} heads")]
    Heads {
        /// What is divided.
        what: String,
        /// How many heads were asked for.
        heads: usize,
    },
    /// A head that does not fill whole tiles.
    #[error(
        "heads of {size} values: expected a multiple of {KEY_ALIGNMENT}; pad the projections' weights with \
         pad_head_columns and pad_head_rows (exact), and keep the scale of {size} values"
    )]
    HeadSize {
        /// Values of a head.
        size: usize,
    },
    /// A scale that is no number.
    #[error(
        "the scale is {0}, expected a finite number (usually one over the root of the unpadded head size)"
    )]
    Scale(f32),
    /// A mask over keys that do not fill whole tiles.
    #[error(
        "a mask over {keys} keys: expected a multiple of {KEY_ALIGNMENT}, because the keys that fill the last tile \
         would not be masked; run on aligned_keys({keys}) keys with those beyond {keys} masked by -inf"
    )]
    UnalignedMask {
        /// How many keys there are.
        keys: usize,
    },
    /// The operation's own blocks for many keys.
    #[error(
        "{keys} keys in the operation's own blocks of 32: from {LONG_KEYS} keys on they are slow and lose accuracy; use \
         Chunks::Auto, or a size of your own"
    )]
    ChunksRequired {
        /// How many keys there are.
        keys: usize,
    },
    /// Blocks that are not whole tiles.
    #[error("chunks of {queries} queries and {keys} keys: expected positive multiples of {KEY_ALIGNMENT}")]
    ChunkSize {
        /// Queries of a chunk.
        queries: usize,
        /// Keys of a chunk.
        keys: usize,
    },
    /// The device refused.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A view or size that cannot be.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

fn shape_error(tensor: &'static str, found: Shape, expected: impl Into<String>) -> AttentionError {
    AttentionError::Shape {
        tensor,
        found: Box::new(found),
        expected: expected.into(),
    }
}

/// What attention does beside its inputs.
#[derive(Debug, Clone, Copy)]
pub struct SdpaOptions<'a> {
    /// Factor of the products of queries and keys.
    pub scale: f32,
    /// Added to the scores: `[1 | B, 1 | H, Sq, Sk]`, `-inf` for what may not be seen. A query that may see nothing
    /// gives zeros.
    pub mask: Option<&'a DeviceTensor>,
    /// Blocks of queries and keys.
    pub chunks: Chunks,
    /// Whether the result is `[B, 1, Sq, H * Dv]` rather than `[B, H, Sq, Dv]`; costs nothing.
    pub concat_heads: bool,
}

impl SdpaOptions<'_> {
    /// No mask, automatic chunks, heads apart.
    #[must_use]
    pub const fn new(scale: f32) -> Self {
        Self {
            scale,
            mask: None,
            chunks: Chunks::Auto,
            concat_heads: false,
        }
    }
}

/// Sizes of attention.
struct Sizes {
    batches: usize,
    heads: usize,
    queries: usize,
    keys: usize,
    size: usize,
    value_size: usize,
}

fn sizes(q: &DeviceTensor, k: &DeviceTensor, v: &DeviceTensor) -> Result<Sizes, AttentionError> {
    let (qs, ks, vs) = (q.view.shape, k.view.shape, v.view.shape);
    if qs.rank() != 4 {
        return Err(shape_error("the query", qs, "[batch, heads, queries, size]"));
    }
    if ks.rank() != 4 || ks[0] != qs[0] || ks[3] != qs[3] {
        return Err(shape_error(
            "the key",
            ks,
            format!("[{}, heads, keys, {}]", qs[0], qs[3]),
        ));
    }
    if vs.rank() != 4 || vs[..3] != ks[..3] {
        let expected = format!("[{}, {}, {}, size]", ks[0], ks[1], ks[2]);
        return Err(shape_error("the value", vs, expected));
    }
    if ks[1] == 0 || !qs[1].is_multiple_of(ks[1]) {
        return Err(AttentionError::Heads {
            what: format!("{} heads of queries", qs[1]),
            heads: ks[1],
        });
    }
    Ok(Sizes {
        batches: qs[0],
        heads: qs[1],
        queries: qs[2],
        keys: ks[2],
        size: qs[3],
        value_size: vs[3],
    })
}

fn finite(scale: f32) -> Result<f32, AttentionError> {
    if scale.is_finite() {
        Ok(scale)
    } else {
        Err(AttentionError::Scale(scale))
    }
}

/// The mask as the scores see it.
fn stretched(mask: &DeviceTensor, sizes: &Sizes) -> Result<DeviceTensor, AttentionError> {
    let shape = mask.view.shape;
    let fits = shape.rank() == 4
        && (shape[0] == 1 || shape[0] == sizes.batches)
        && (shape[1] == 1 || shape[1] == sizes.heads)
        && shape[2..] == [sizes.queries, sizes.keys];
    if !fits {
        let expected = format!(
            "[1 or {}, 1 or {}, {}, {}]; a row of keys becomes one by expand_key_bias",
            sizes.batches, sizes.heads, sizes.queries, sizes.keys
        );
        return Err(shape_error("the mask", shape, expected));
    }
    let scores = Shape::new(&[sizes.batches, sizes.heads, sizes.queries, sizes.keys])?;
    Ok(DeviceTensor {
        view: mask.view.broadcast_to(scores)?,
        ..*mask
    })
}

/// `softmax(scale * q k^T + mask) v` in one operation: `[B, H, Sq, D]`, `[B, Hkv, Sk, D]` and `[B, Hkv, Sk, Dv]` to a new
/// `[B, H, Sq, Dv]` (or `[B, 1, Sq, H * Dv]`) of the query's type, which the caller frees. `Hkv` divides `H`. Without a
/// mask any number of keys is exact.
///
/// # Errors
/// [`AttentionError`]; nothing stays allocated.
pub fn sdpa(
    ops: &mut OpContext<'_>,
    [q, k, v]: [&DeviceTensor; 3],
    options: &SdpaOptions<'_>,
) -> Result<DeviceTensor, AttentionError> {
    let sizes = sizes(q, k, v)?;
    let scale = finite(options.scale)?;
    for size in [sizes.size, sizes.value_size] {
        if size == 0 || !size.is_multiple_of(KEY_ALIGNMENT) {
            return Err(AttentionError::HeadSize { size });
        }
    }
    if options.mask.is_some() && !sizes.keys.is_multiple_of(KEY_ALIGNMENT) {
        return Err(AttentionError::UnalignedMask { keys: sizes.keys });
    }
    let chunks = options.chunks.resolve(sizes.queries, sizes.keys)?;
    let mask = options.mask.map(|mask| stretched(mask, &sizes)).transpose()?;
    let joined = [sizes.batches, 1, sizes.queries, sizes.heads * sizes.value_size];
    let apart = [sizes.batches, sizes.heads, sizes.queries, sizes.value_size];
    let dims = if options.concat_heads { joined } else { apart };
    let output = ops.alloc(&TensorSpec::new(&dims, q.dtype)?, BufferClass::Intermediate)?;
    let seen = if options.concat_heads {
        split_heads(&output, sizes.heads)
    } else {
        Ok(output)
    };
    let seen = match seen {
        Ok(seen) => seen,
        Err(error) => {
            ops.free(&output)?;
            return Err(error);
        }
    };
    let op = OpDesc::Sdpa(SdpaDesc {
        query: q.operand(),
        key: k.operand(),
        value: v.operand(),
        output: seen.operand(),
        mask: mask.as_ref().map(DeviceTensor::operand),
        scale: Scalar::new(scale),
        key_block: chunks.keys,
    });
    let mut buffers = vec![q.buffer, k.buffer, v.buffer, output.buffer];
    buffers.extend(mask.map(|mask| mask.buffer));
    Ok(ops.run_into(&op, &buffers, output)?)
}

/// As [`sdpa`] by two products and a softmax, scores in fp32 between them: for heads of any size, and the way to compare
/// with. The matrix of scores lies in the device's memory meanwhile.
///
/// # Errors
/// [`AttentionError`]; nothing stays allocated.
pub fn attention_matmul(
    ops: &mut OpContext<'_>,
    [q, k, v]: [&DeviceTensor; 3],
    scale: f32,
    mask: Option<&DeviceTensor>,
) -> Result<DeviceTensor, AttentionError> {
    let sizes = sizes(q, k, v)?;
    let scale = finite(scale)?;
    let mask = mask.map(|mask| stretched(mask, &sizes)).transpose()?;
    let (k, v) = (repeated(k, sizes.heads)?, repeated(v, sizes.heads)?);
    // Heads that share keys are an axis of their own on both sides.
    let grouped = Shape::new(&k.view.shape[..3])?;
    let q = regrouped(q, grouped[1], grouped[2])?;
    let mask = mask
        .map(|mask| regrouped(&mask, grouped[1], grouped[2]))
        .transpose()?;
    let turned = DeviceTensor {
        view: k.view.transpose(&[0, 1, 2, 4, 3])?,
        ..k
    };
    let options = MatMulOptions {
        scale,
        bias: mask.as_ref(),
        ..MatMulOptions::to(DType::F32)
    };
    let scores = ops.matmul(&q, &turned, &options)?;
    let softmax = OpDesc::Softmax {
        src: scores.operand(),
        dst: scores.operand(),
        axis: 4,
    };
    let result = ops
        .run(&softmax, &[scores.buffer, scores.buffer])
        .and_then(|()| ops.matmul(&scores, &v, &MatMulOptions::to(q.dtype)));
    ops.free(&scores)?;
    let result = result?;
    let dims = Shape::new(&[sizes.batches, sizes.heads, sizes.queries, sizes.value_size])?;
    match result.view.reshape(dims) {
        Some(view) => Ok(DeviceTensor { view, ..result }),
        // A dense tensor has a view of every shape of its size.
        None => unreachable!("the product is dense"),
    }
}

/// `[B, Hkv, S, D]` as `[B, Hkv, H / Hkv, S, D]`, the same for all heads of a group.
fn repeated(tensor: &DeviceTensor, heads: usize) -> Result<DeviceTensor, AttentionError> {
    let [b, kv, s, d] = [0, 1, 2, 3].map(|axis| tensor.view.shape[axis]);
    let mut view = tensor.view;
    view.shape = Shape::new(&[b, kv, heads / kv, s, d])?;
    view.strides[4] = tensor.view.strides[3];
    view.strides[3] = tensor.view.strides[2];
    view.strides[2] = 0;
    Ok(DeviceTensor { view, ..*tensor })
}

/// `[B, H, R, C]` as `[B, groups, each, R, C]`.
fn regrouped(tensor: &DeviceTensor, groups: usize, each: usize) -> Result<DeviceTensor, AttentionError> {
    let [b, _, r, c] = [0, 1, 2, 3].map(|axis| tensor.view.shape[axis]);
    let steps = tensor.view.strides;
    let mut view = tensor.view;
    view.shape = Shape::new(&[b, groups, each, r, c])?;
    view.strides[1] = steps[1] * each as isize;
    (view.strides[2], view.strides[3], view.strides[4]) = (steps[1], steps[2], steps[3]);
    Ok(DeviceTensor { view, ..*tensor })
}
