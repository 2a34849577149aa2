//! The inner loops of convolution and pooling, generic over the vector type.

use super::formula::{Function, with_activation};
use super::lanes::{Lanes, Storage, prefetch_line};
use crate::device::{Activation, PoolKind, ResidualOrder};

/// Where one tap of a window lies for neighbouring output pixels: `base`, `base + step`, and so on. A tap
/// outside the image has `step` 0 and points at zeros.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tap {
    pub(super) base: *const f32,
    pub(super) step: isize,
}

/// Repeats `$body` for each pixel `$p` of a tile. Written out rather than looped, because accumulators stay in
/// registers only if every index is a constant, and the compiler does not unroll a loop of this size.
macro_rules! for_pixels {
    ($count:ident, $p:ident => $body:block) => {
        for_pixels!($count, $p => $body; 0 1 2 3 4 5 6 7 8 9 10 11 12 13)
    };
    ($count:ident, $p:ident => $body:block; $($index:literal)*) => {
        $(
            if $index < $count {
                let $p: usize = $index;
                $body
            }
        )*
    };
}
pub(super) use for_pixels;

/// Rows of a panel between the one that is multiplied and the one that is asked for: the processor itself asks ahead
/// only within a page.
const AHEAD: usize = 24;

/// Dense tile: `MR <= 14` output pixels, `NV` vectors of output channels.
///
/// `sums[p][k] = bias[k] + sum over taps, then channels, of input * weight`, one chain of fused
/// multiply-adds each. `panel` holds `[1 + taps * cin][NV * V::N]`, the biases first.
///
/// # Safety
/// The instruction set is there; every tap is readable for `MR` pixels, `cin` values each;
/// `panel` and `sums` (`[MR][NV * V::N]`) are valid for their sizes.
#[expect(clippy::needless_range_loop, reason = "vectors are an index of the formula")]
#[inline(always)]
pub(super) unsafe fn dense<V: Lanes, const MR: usize, const NV: usize>(
    taps: &[Tap],
    cin: usize,
    panel: *const f32,
    sums: *mut f32,
) {
    // SAFETY: every address lies inside what the caller promises.
    unsafe {
        let width = NV * V::N;
        let mut w = [V::splat(0.0); NV];
        for v in 0..NV {
            w[v] = V::load(panel.add(v * V::N));
        }
        let mut acc = [w; MR];
        let mut weights = panel.add(width);
        for tap in taps {
            let step = tap.step;
            // Three row pointers and two index registers address fourteen rows without spilling.
            let step3 = 3 * step;
            let mut near = tap.base;
            let mut middle = near.wrapping_offset(5 * step);
            let mut far = near.wrapping_offset(10 * step);
            for _ in 0..cin {
                for v in 0..NV {
                    w[v] = V::load(weights.add(v * V::N));
                    prefetch_line(weights.wrapping_add(AHEAD * width + v * V::N).cast());
                }
                for_pixels!(MR, p => {
                    let row = match p / 5 {
                        0 => near,
                        1 => middle,
                        _ => far,
                    };
                    let value = V::splat(*row.offset(match p % 5 {
                        3 => step3,
                        q => q as isize * step,
                    }));
                    for v in 0..NV {
                        acc[p][v] = value.fma(w[v], acc[p][v]);
                    }
                });
                near = near.wrapping_add(1);
                middle = middle.wrapping_add(1);
                far = far.wrapping_add(1);
                weights = weights.add(width);
            }
        }
        for_pixels!(MR, p => {
            for v in 0..NV {
                acc[p][v].store(sums.add(p * width + v * V::N));
            }
        });
    }
}

/// Tile of a sparse convolution: `MR <= 14` gathered rows of `cin` values, one behind the other, `NV` vectors of output
/// channels. Row `p` belongs to the output row `places[p]`:
///
/// `sums[places[p]][k] += sum over channels of rows[p] * weight`, one chain of fused multiply-adds that goes on from the
/// sum so far. `weights` holds `[cin][NV * V::N]`, `sums` has a row every `sum_step` values.
///
/// # Safety
/// The instruction set is there; `rows`, `weights` and `places` are valid for what is stated, `sums` for every place;
/// places differ.
#[expect(clippy::needless_range_loop, reason = "vectors are an index of the formula")]
#[inline(always)]
pub(super) unsafe fn gathered<V: Lanes, const MR: usize, const NV: usize>(
    rows: *const f32,
    cin: usize,
    mut weights: *const f32,
    places: *const u32,
    sums: *mut f32,
    sum_step: usize,
) {
    // SAFETY: every address lies inside what the caller promises.
    unsafe {
        let width = NV * V::N;
        let place = |p: usize| sums.add(*places.add(p) as usize * sum_step);
        let mut w = [V::splat(0.0); NV];
        let mut acc = [w; MR];
        for_pixels!(MR, p => {
            for v in 0..NV {
                acc[p][v] = V::load(place(p).add(v * V::N));
            }
        });
        // Three row pointers and two index registers address fourteen rows without spilling.
        let step = cin as isize;
        let step3 = 3 * step;
        let mut near = rows;
        let mut middle = near.wrapping_offset(5 * step);
        let mut far = near.wrapping_offset(10 * step);
        for _ in 0..cin {
            for v in 0..NV {
                w[v] = V::load(weights.add(v * V::N));
            }
            for_pixels!(MR, p => {
                let row = match p / 5 {
                    0 => near,
                    1 => middle,
                    _ => far,
                };
                let value = V::splat(*row.offset(match p % 5 {
                    3 => step3,
                    q => q as isize * step,
                }));
                for v in 0..NV {
                    acc[p][v] = value.fma(w[v], acc[p][v]);
                }
            });
            near = near.wrapping_add(1);
            middle = middle.wrapping_add(1);
            far = far.wrapping_add(1);
            weights = weights.add(width);
        }
        for_pixels!(MR, p => {
            for v in 0..NV {
                acc[p][v].store(place(p).add(v * V::N));
            }
        });
    }
}

/// `to[places[row]] += from[row]` for `count` rows of `width` values, a multiple of `V::N`. `from` has them one behind the
/// other, `to` every `to_step` values.
///
/// # Safety
/// The instruction set is there; `from` and `places` are valid for what is stated, `to` for every place.
#[inline(always)]
pub(super) unsafe fn add_rows<V: Lanes>(
    from: *const f32,
    width: usize,
    places: *const u32,
    count: usize,
    to: *mut f32,
    to_step: usize,
) {
    // SAFETY: every address lies inside what the caller promises.
    unsafe {
        for row in 0..count {
            let from = from.add(row * width);
            let to = to.add(*places.add(row) as usize * to_step);
            for c in (0..width).step_by(V::N) {
                V::load(to.add(c)).add(V::load(from.add(c))).store(to.add(c));
            }
        }
    }
}

/// Depth-wise tile: the `P <= 14` output pixels from the `x0`-th on, the `lanes` channels from `channel` on.
///
/// `sums[p][c] = bias[c] + sum over taps of input * weight`. `panel` holds `[1 + taps][V::N]`. With `PART`,
/// `lanes` may be below `V::N`.
///
/// # Safety
/// As [`dense`]; taps are readable for `lanes` values from `channel` on.
#[inline(always)]
pub(super) unsafe fn depthwise<V: Lanes, const P: usize, const PART: bool>(
    taps: &[Tap],
    x0: usize,
    channel: usize,
    lanes: usize,
    panel: *const f32,
    sums: *mut f32,
) {
    // SAFETY: every address lies inside what the caller promises.
    unsafe {
        let mut acc = [V::load(panel); P];
        let mut weights = panel;
        for tap in taps {
            weights = weights.add(V::N);
            let w = V::load(weights);
            let mut pixel = tap
                .base
                .wrapping_offset(x0 as isize * tap.step + channel as isize);
            for_pixels!(P, p => {
                let x = if PART { V::load_first(pixel, lanes) } else { V::load(pixel) };
                acc[p] = x.fma(w, acc[p]);
                pixel = pixel.wrapping_offset(tap.step);
            });
        }
        for_pixels!(P, p => { acc[p].store(sums.add(p * V::N)); });
    }
}

/// What happens to a tile of sums: activation, residual, conversion, store.
#[derive(Debug, Clone, Copy)]
pub(super) struct Finish {
    /// `[rows][sum_step]`
    pub(super) sums: *const f32,
    pub(super) sum_step: usize,
    pub(super) rows: usize,
    /// Channels to store, at most `sum_step`.
    pub(super) channels: usize,
    pub(super) activation: Activation,
    /// First element of the first pixel, and elements to the next.
    pub(super) out: *mut u8,
    pub(super) out_step: isize,
    /// The same of the residual, null where there is none.
    pub(super) residual: *const u8,
    pub(super) residual_step: isize,
    pub(super) order: ResidualOrder,
}

/// `out = activation(sums) + residual`, or `out = activation(sums + residual)`
///
/// # Safety
/// The instruction set is there; all addresses are valid for the rows and channels stated.
#[inline(always)]
pub(super) unsafe fn finish<V: Lanes, S: Storage>(tile: &Finish) {
    with_activation!(tile.activation, f => {
        // SAFETY: the caller's contract.
        unsafe { finish_rows::<V, S, _>(tile, f) }
    });
}

#[inline(always)]
unsafe fn finish_rows<V: Lanes, S: Storage, F: Function>(tile: &Finish, f: F) {
    let whole = tile.channels - tile.channels % V::N;
    let rest = tile.channels - whole;
    // SAFETY: the caller's contract.
    unsafe {
        match (rest, whole / V::N, tile.residual.is_null()) {
            (0, 1, true) => return whole_rows::<V, S, F, 1, NO_RESIDUAL>(tile, f),
            (0, 2, true) => return whole_rows::<V, S, F, 2, NO_RESIDUAL>(tile, f),
            (0, 2, false) => {
                return match tile.order {
                    ResidualOrder::AfterActivation => whole_rows::<V, S, F, 2, RESIDUAL_AFTER>(tile, f),
                    ResidualOrder::BeforeActivation => whole_rows::<V, S, F, 2, RESIDUAL_BEFORE>(tile, f),
                };
            }
            _ => {}
        }
    }
    let before = !tile.residual.is_null() && tile.order == ResidualOrder::BeforeActivation;
    let after = !tile.residual.is_null() && !before;
    // SAFETY: every address lies inside what the caller of `finish` promises; a residual pointer is only
    // moved, never read, while it is null.
    unsafe {
        for row in 0..tile.rows {
            let sums = tile.sums.add(row * tile.sum_step);
            let out = tile.out.cast::<S>().offset(row as isize * tile.out_step);
            let residual = tile
                .residual
                .cast::<S>()
                .wrapping_offset(row as isize * tile.residual_step);
            for c in (0..whole).step_by(V::N) {
                let mut y = V::load(sums.add(c));
                if before {
                    y = y.add(S::load(residual.add(c)));
                }
                y = f.apply(y);
                if after {
                    y = y.add(S::load(residual.add(c)));
                }
                S::store(y, out.add(c));
            }
            if rest > 0 {
                let mut y = V::load_first(sums.add(whole), rest);
                if before {
                    y = y.add(S::load_first(residual.add(whole), rest));
                }
                y = f.apply(y);
                if after {
                    y = y.add(S::load_first(residual.add(whole), rest));
                }
                S::store_first(y, out.add(whole), rest);
            }
        }
    }
}

/// What [`whole_rows`] does with a residual.
const NO_RESIDUAL: u8 = 0;
const RESIDUAL_AFTER: u8 = 1;
const RESIDUAL_BEFORE: u8 = 2;

/// Rows of `NV` whole vectors.
///
/// # Safety
/// As [`finish`].
#[expect(clippy::needless_range_loop, reason = "vectors are an index of the formula")]
#[inline(always)]
unsafe fn whole_rows<V: Lanes, S: Storage, F: Function, const NV: usize, const RESIDUAL: u8>(
    tile: &Finish,
    f: F,
) {
    let mut sums = tile.sums;
    let mut out = tile.out.cast::<S>();
    let mut residual = tile.residual.cast::<S>();
    for _ in 0..tile.rows {
        // SAFETY: every address lies inside what the caller of `finish` promises.
        unsafe {
            let mut y = [V::splat(0.0); NV];
            for v in 0..NV {
                let mut sum = V::load(sums.add(v * V::N));
                if RESIDUAL == RESIDUAL_BEFORE {
                    sum = sum.add(S::load(residual.add(v * V::N)));
                }
                y[v] = f.apply(sum);
            }
            for v in 0..NV {
                if RESIDUAL == RESIDUAL_AFTER {
                    y[v] = y[v].add(S::load(residual.add(v * V::N)));
                }
                S::store(y[v], out.add(v * V::N));
            }
        }
        sums = sums.wrapping_add(tile.sum_step);
        out = out.wrapping_offset(tile.out_step);
        residual = residual.wrapping_offset(tile.residual_step);
    }
}

/// One output pixel of a pooling: `taps` are the addresses of the window's pixels inside the image.
///
/// # Safety
/// The instruction set is there; every tap and `out` are valid for `channels` elements.
#[inline(always)]
pub(super) unsafe fn pool<V: Lanes, S: Storage>(
    taps: &[*const u8],
    channels: usize,
    kind: PoolKind,
    divisor: f32,
    out: *mut u8,
) {
    // SAFETY: the caller's contract.
    unsafe {
        match kind {
            PoolKind::Max => pool_vectors::<V, S, true>(taps, channels, divisor, out.cast()),
            PoolKind::AverageIncludingPad | PoolKind::AverageExcludingPad | PoolKind::Sum => {
                pool_vectors::<V, S, false>(taps, channels, divisor, out.cast());
            }
        }
    }
}

#[inline(always)]
unsafe fn pool_vectors<V: Lanes, S: Storage, const MAX: bool>(
    taps: &[*const u8],
    channels: usize,
    divisor: f32,
    out: *mut S,
) {
    const AT_ONCE: usize = 4;
    let start = if MAX { f32::NEG_INFINITY } else { 0.0 };
    let step = |acc: V, x: V| {
        if MAX {
            x.if_nan(x, x.larger(acc))
        } else {
            acc.add(x)
        }
    };
    let end = |acc: V| if MAX { acc } else { acc.div(acc.like(divisor)) };
    let mut c = 0;
    // SAFETY: every address lies inside what the caller of `pool` promises.
    unsafe {
        while c + AT_ONCE * V::N <= channels {
            let mut acc = [V::splat(start); AT_ONCE];
            for tap in taps {
                let pixel = tap.cast::<S>().add(c);
                for (v, a) in acc.iter_mut().enumerate() {
                    *a = step(*a, S::load(pixel.add(v * V::N)));
                }
            }
            for (v, a) in acc.iter().enumerate() {
                S::store(end(*a), out.add(c + v * V::N));
            }
            c += AT_ONCE * V::N;
        }
        while c < channels {
            let n = V::N.min(channels - c);
            let mut acc = V::splat(start);
            for tap in taps {
                acc = step(acc, S::load_first(tap.cast::<S>().add(c), n));
            }
            S::store_first(end(acc), out.add(c), n);
            c += n;
        }
    }
}

/// `to[c] = max(to[c], max over rows of from[row * step + c])`; a NaN among them gives NaN. Four rows are compared
/// at a time, in the same order on every instruction set.
///
/// # Safety
/// The instruction set is there; `from` is valid for `rows` rows of `columns` values, `to` for `columns` values.
#[inline(always)]
pub(super) unsafe fn max_rows<V: Lanes>(
    from: *const f32,
    step: usize,
    rows: usize,
    columns: usize,
    to: *mut f32,
) {
    const AT_ONCE: usize = 4;
    let larger = |acc: V, x: V| x.if_nan(x, x.larger(acc));
    let mut c = 0;
    // SAFETY: every address lies inside what the caller promises.
    unsafe {
        while c < columns {
            let n = V::N.min(columns - c);
            let mut acc = [V::load_first(to.add(c), n); AT_ONCE];
            let mut row = from.add(c);
            for _ in 0..rows / AT_ONCE {
                for (i, a) in acc.iter_mut().enumerate() {
                    *a = larger(*a, V::load_first(row.add(i * step), n));
                }
                row = row.add(AT_ONCE * step);
            }
            for i in 0..rows % AT_ONCE {
                acc[0] = larger(acc[0], V::load_first(row.add(i * step), n));
            }
            let all = larger(larger(acc[0], acc[1]), larger(acc[2], acc[3]));
            all.store_first(to.add(c), n);
            c += n;
        }
    }
}

/// Copies `count` stored values to fp32.
///
/// # Safety
/// The instruction set is there; both addresses are valid for `count` elements.
#[inline(always)]
pub(super) unsafe fn widen<V: Lanes, S: Storage>(from: *const u8, to: *mut f32, count: usize) {
    let from = from.cast::<S>();
    let whole = count - count % V::N;
    // SAFETY: every address lies inside what the caller promises.
    unsafe {
        for i in (0..whole).step_by(V::N) {
            S::load::<V>(from.add(i)).store(to.add(i));
        }
        if count > whole {
            S::load_first::<V>(from.add(whole), count - whole).store_first(to.add(whole), count - whole);
        }
    }
}

/// Stores `count` fp32 values.
///
/// # Safety
/// The instruction set is there; both addresses are valid for `count` elements.
#[inline(always)]
pub(super) unsafe fn narrow<V: Lanes, S: Storage>(from: *const f32, to: *mut u8, count: usize) {
    let to = to.cast::<S>();
    let whole = count - count % V::N;
    // SAFETY: every address lies inside what the caller promises.
    unsafe {
        for i in (0..whole).step_by(V::N) {
            S::store(V::load(from.add(i)), to.add(i));
        }
        if count > whole {
            S::store_first(
                V::load_first(from.add(whole), count - whole),
                to.add(whole),
                count - whole,
            );
        }
    }
}
