//! The decoder layer.

use super::{HEAD, Queries, TransFusionQueryHead, add, as_matrix, as_rows, device, keep};
use crate::models::BlockError;
use crate::models::layers::free;
use crate::ops::attention::{SdpaOptions, padded_head_dim, sdpa, split_heads, split_qkv};
use crate::ops::{DeviceTensor, LayerNormOptions, OpContext};

impl TransFusionQueryHead {
    /// The decoder layer: self-attention, cross-attention to `keys`, feed-forward, each added to what was there and
    /// normalised. `[K, E]`.
    ///
    /// # Errors
    /// [`BlockError`]; nothing stays allocated but weights.
    pub fn decoder(
        &self,
        ops: &mut OpContext<'_>,
        queries: &Queries,
        keys: &DeviceTensor,
    ) -> Result<DeviceTensor, BlockError> {
        let first = self.self_attention(ops, queries)?;
        let moved = Queries {
            content: first,
            ..*queries
        };
        let second = self.cross_attention(ops, &moved, keys);
        free(ops, &[first]);
        let second = second?;
        let third = self.feed_forward(ops, &second);
        free(ops, &[second]);
        third
    }

    /// `norm(x + attention(x + p, x + p, x + p))`
    ///
    /// # Errors
    /// [`BlockError`]; nothing stays allocated but weights.
    pub fn self_attention(
        &self,
        ops: &mut OpContext<'_>,
        queries: &Queries,
    ) -> Result<DeviceTensor, BlockError> {
        let heads = self.weights.self_attn.heads;
        let mut made = Vec::new();
        let outcome = (|| {
            let x = keep(&mut made, add(ops, &queries.content, &queries.position))?;
            let projected = keep(&mut made, self.self_qkv.forward(ops, &x))?;
            let [q, k, v] = split_qkv(&as_rows(&projected)?, heads, heads).map_err(device)?;
            let joined = keep(&mut made, self.attend(ops, [&q, &k, &v], heads))?;
            let output = keep(&mut made, self.self_out.forward(ops, &joined))?;
            self.norm(ops, 0, &output, &queries.content)
        })();
        free(ops, &made);
        outcome
    }

    /// `norm(x + attention(x + p, keys, keys))`
    ///
    /// # Errors
    /// [`BlockError`]; nothing stays allocated but weights.
    pub fn cross_attention(
        &self,
        ops: &mut OpContext<'_>,
        queries: &Queries,
        keys: &DeviceTensor,
    ) -> Result<DeviceTensor, BlockError> {
        let heads = self.weights.cross_attn.heads;
        let mut made = Vec::new();
        let outcome = (|| {
            let x = keep(&mut made, add(ops, &queries.content, &queries.position))?;
            let q = keep(&mut made, self.cross_q.forward(ops, &x))?;
            let kv = keep(&mut made, self.cross_kv.forward(ops, keys))?;
            let both = split_heads(&as_rows(&kv)?, 2 * heads).map_err(device)?;
            let half = |first: usize| -> Result<DeviceTensor, BlockError> {
                let view = both
                    .view
                    .slice(1, first, heads, 1)
                    .map_err(BlockError::tensor(HEAD))?;
                Ok(DeviceTensor { view, ..both })
            };
            let q = split_heads(&as_rows(&q)?, heads).map_err(device)?;
            let joined = keep(&mut made, self.attend(ops, [&q, &half(0)?, &half(heads)?], heads))?;
            let output = keep(&mut made, self.cross_out.forward(ops, &joined))?;
            self.norm(ops, 1, &output, &queries.content)
        })();
        free(ops, &made);
        outcome
    }

    /// `norm(x + ffn(x))`
    ///
    /// # Errors
    /// [`BlockError`]; nothing stays allocated but weights.
    pub fn feed_forward(
        &self,
        ops: &mut OpContext<'_>,
        x: &DeviceTensor,
    ) -> Result<DeviceTensor, BlockError> {
        let mut made = Vec::new();
        let outcome = (|| {
            let hidden = keep(&mut made, self.ffn[0].forward(ops, x))?;
            let output = keep(&mut made, self.ffn[1].forward(ops, &hidden))?;
            self.norm(ops, 2, &output, x)
        })();
        free(ops, &made);
        outcome
    }

    /// Attention with the scale of heads that are not padded; heads side by side, `[K, heads * padded size]`.
    fn attend(
        &self,
        ops: &mut OpContext<'_>,
        tensors: [&DeviceTensor; 3],
        heads: usize,
    ) -> Result<DeviceTensor, BlockError> {
        let size = self.weights.channels() / heads;
        let options = SdpaOptions {
            concat_heads: true,
            ..SdpaOptions::new(1.0 / (size as f32).sqrt())
        };
        let joined = sdpa(ops, tensors, &options).map_err(device)?;
        let width = heads * padded_head_dim(size);
        as_matrix(&joined, [joined.view.shape[2], width])
    }

    fn norm(
        &self,
        ops: &mut OpContext<'_>,
        which: usize,
        x: &DeviceTensor,
        residual: &DeviceTensor,
    ) -> Result<DeviceTensor, BlockError> {
        let [gamma, beta] = self.constants(ops, x.dtype)?.norms[which];
        let options = LayerNormOptions {
            residual: Some(residual),
            gamma: Some(&gamma),
            beta: Some(&beta),
            ..LayerNormOptions::new(self.weights.norms[which].epsilon)
        };
        ops.layer_norm(x, &options).map_err(device)
    }
}
