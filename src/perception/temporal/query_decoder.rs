//! Layers in which queries look at rows: at themselves and the memory, then at the tokens of an image.

use super::QUERY_CHANNELS;
use super::layers::{dense, release_all};
use super::scratch::{Scratch, seen_as};
use crate::device::Device;
use crate::models::RowLinear;
use crate::ops::attention::{SdpaOptions, expand_key_bias, sdpa, split_heads};
use crate::ops::{DeviceTensor, LayerNormOptions};
use crate::trace::WorkError;

/// Heads of 32 values.
const HEADS: usize = QUERY_CHANNELS / 32;
/// Added to variances.
const EPSILON: f32 = 1e-5;

/// `norm(x + out(attention(q(x), k(rows), v(rows))))`
#[derive(Debug)]
struct Attention {
    q: RowLinear,
    k: RowLinear,
    v: RowLinear,
    out: RowLinear,
}

/// Attention to the rows of queries and memory, attention to the tokens, and two dense layers, each added to what it was
/// made of and normalised.
#[derive(Debug)]
pub(super) struct QueryLayer {
    hybrid: Attention,
    cross: Attention,
    wide: RowLinear,
    narrow: RowLinear,
}

impl Attention {
    fn new(seed: u64, name: &str) -> Result<Self, WorkError> {
        let layer = |part: &str| dense(seed, &format!("{name}.{part}"), [QUERY_CHANNELS; 2], false);
        Ok(Self {
            q: layer("q")?,
            k: layer("k")?,
            v: layer("v")?,
            out: layer("out")?,
        })
    }

    fn forward(
        &self,
        work: &mut Scratch<'_, '_>,
        x: &DeviceTensor,
        rows: &DeviceTensor,
        mask: Option<&DeviceTensor>,
    ) -> Result<DeviceTensor, WorkError> {
        let mut heads = |layer: &RowLinear, rows: &DeviceTensor| -> Result<DeviceTensor, WorkError> {
            let made = work.made(|ops| layer.forward(ops, rows))?;
            let [count, columns] = [made.view.shape[0], made.view.shape[1]];
            Ok(split_heads(&seen_as(&made, &[1, 1, count, columns])?, HEADS)?)
        };
        let (q, k, v) = (heads(&self.q, x)?, heads(&self.k, rows)?, heads(&self.v, rows)?);
        let options = SdpaOptions {
            mask,
            concat_heads: true,
            ..SdpaOptions::new(1.0 / 32.0_f32.sqrt())
        };
        let seen = work.made(|ops| sdpa(ops, [&q, &k, &v], &options))?;
        let seen = seen_as(&seen, &x.view.shape)?;
        let out = work.made(|ops| self.out.forward(ops, &seen))?;
        normalised(work, x, &out)
    }

    fn release(&self, device: &mut dyn Device) {
        release_all(device, &[], &[&self.q, &self.k, &self.v, &self.out]);
    }
}

impl QueryLayer {
    pub(super) fn new(seed: u64, name: &str) -> Result<Self, WorkError> {
        let channels = QUERY_CHANNELS;
        Ok(Self {
            hybrid: Attention::new(seed, &format!("{name}.hybrid"))?,
            cross: Attention::new(seed, &format!("{name}.cross"))?,
            wide: dense(seed, &format!("{name}.wide"), [channels, 2 * channels], true)?,
            narrow: dense(seed, &format!("{name}.narrow"), [2 * channels, channels], false)?,
        })
    }

    /// Queries `[Q, C]`, memory `[L, C]`, tokens `[T, C]`; `key_bias` `[1, 1, 1, Q + L]` says which rows of queries and
    /// memory there are.
    pub(super) fn forward(
        &self,
        work: &mut Scratch<'_, '_>,
        x: &DeviceTensor,
        memory: &DeviceTensor,
        key_bias: &DeviceTensor,
        tokens: &DeviceTensor,
    ) -> Result<DeviceTensor, WorkError> {
        let rows = work.stacked(x, memory)?;
        let mask = expand_key_bias(key_bias, x.view.shape[0])?;
        let x = self.hybrid.forward(work, x, &rows, Some(&mask))?;
        let x = self.cross.forward(work, &x, tokens, None)?;
        let wide = work.made(|ops| self.wide.forward(ops, &x))?;
        let narrow = work.made(|ops| self.narrow.forward(ops, &wide))?;
        normalised(work, &x, &narrow)
    }

    pub(super) fn release(&self, device: &mut dyn Device) {
        self.hybrid.release(device);
        self.cross.release(device);
        release_all(device, &[], &[&self.wide, &self.narrow]);
    }
}

/// `norm(a + b)` of rows, without factors.
pub(super) fn normalised(
    work: &mut Scratch<'_, '_>,
    a: &DeviceTensor,
    b: &DeviceTensor,
) -> Result<DeviceTensor, WorkError> {
    let options = LayerNormOptions {
        residual: Some(b),
        ..LayerNormOptions::new(EPSILON)
    };
    Ok(work.made(|ops| ops.layer_norm(a, &options))?)
}
