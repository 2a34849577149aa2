//! The functions that exist once per instruction set.

use super::Isa;
use super::conv_matrix_sum::{AT_ONCE, Row, SumRule, Weights};
use super::tile::{Finish, Tap};
use crate::device::{Activation, BinaryKind, PoolKind};
use crate::tensor::DType;

pub(super) type DenseFn = unsafe fn(&[Tap], usize, *const f32, *mut f32);
pub(super) type GatheredFn = unsafe fn(*const f32, usize, *const f32, *const u32, *mut f32, usize);
pub(super) type AddRowsFn = unsafe fn(*const f32, usize, *const u32, usize, *mut f32, usize);
pub(super) type DepthwiseFn = unsafe fn(&[Tap], usize, usize, usize, *const f32, *mut f32);
pub(super) type FinishFn = unsafe fn(&Finish);
pub(super) type PoolFn = unsafe fn(&[*const u8], usize, PoolKind, f32, *mut u8);
pub(super) type WidenFn = unsafe fn(*const u8, *mut f32, usize);
pub(super) type MatrixSumFn = unsafe fn(&SumRule, &[[f32; 2]], &[Weights], &mut [Row]);
pub(super) type MaxRowsFn = unsafe fn(*const f32, usize, usize, usize, *mut f32);
pub(super) type NarrowFn = unsafe fn(*const f32, *mut u8, usize);

/// Vectors of output channels in a full panel of a dense convolution.
pub(super) const PANEL_VECTORS: usize = 2;

/// Functions that depend on the storage type.
pub(super) struct StorageOps {
    /// See [`super::tile::finish`].
    pub(super) finish: FinishFn,
    /// See [`super::tile::pool`].
    pub(super) pool: PoolFn,
    /// See [`super::tile::widen`].
    pub(super) widen: WidenFn,
    /// See [`super::tile::narrow`].
    pub(super) narrow: NarrowFn,
}

/// One instruction set's functions.
pub(super) struct Ops {
    /// fp32 values in a vector.
    pub(super) lanes: usize,
    /// [`super::tile::dense`] for one vector and two vectors of channels, by number of pixels less one.
    pub(super) dense: [&'static [DenseFn]; PANEL_VECTORS],
    /// [`super::tile::gathered`] for one vector and two vectors of channels, by number of rows less one.
    pub(super) gathered: [&'static [GatheredFn]; PANEL_VECTORS],
    /// See [`super::tile::add_rows`].
    pub(super) add_rows: AddRowsFn,
    /// [`super::tile::depthwise`] for whole vectors and part of one, by number of pixels less one.
    pub(super) depthwise: [&'static [DepthwiseFn]; 2],
    /// Functions for fp32 storage.
    pub(super) f32: StorageOps,
    /// Functions for bf16 storage.
    pub(super) bf16: StorageOps,
    /// See [`super::tile::max_rows`].
    pub(super) max_rows: MaxRowsFn,
    /// [`super::conv_matrix_sum::sum`] by number of pixels less one.
    pub(super) matrix_sum: [MatrixSumFn; AT_ONCE],
    /// See [`super::formula::activate`].
    pub(super) activate: unsafe fn(Activation, &mut [f32]),
    /// See [`super::formula::combine`].
    pub(super) combine: unsafe fn(BinaryKind, &mut [f32], &[f32]),
}

impl Ops {
    /// Functions for a storage type ([`super::check::storage`] admits two).
    #[inline]
    pub(super) const fn of(&self, dtype: DType) -> &StorageOps {
        match dtype {
            DType::Bf16 => &self.bf16,
            _ => &self.f32,
        }
    }

    /// Most output pixels in a tile.
    #[inline]
    pub(super) const fn tile_rows(&self) -> usize {
        self.dense[0].len()
    }
}

/// Instantiates everything for one vector type, as a static `OPS`. The attribute gives each function its
/// instruction set; the generic bodies are inlined into it.
macro_rules! instantiate {
    ($(#[$feature:meta])? $lanes:ident, tile rows: [$($rows:literal)*]) => {
        mod instances {
            use half::bf16;

            use super::$lanes;
            use $crate::device::cpu::kernels::formula;
            use $crate::device::cpu::kernels::lanes::{Lanes, Storage};
            use $crate::device::cpu::kernels::conv_matrix_sum::{self, Row, SumRule, Weights};
            use $crate::device::cpu::kernels::ops::{Ops, StorageOps};
            use $crate::device::cpu::kernels::tile::{self, Finish, Tap};
            use $crate::device::{Activation, BinaryKind, PoolKind};

            $(#[$feature])?
            unsafe fn dense<const MR: usize, const NV: usize>(
                taps: &[Tap],
                cin: usize,
                panel: *const f32,
                sums: *mut f32,
            ) {
                // SAFETY: the same contract.
                unsafe { tile::dense::<$lanes, MR, NV>(taps, cin, panel, sums) }
            }

            $(#[$feature])?
            unsafe fn gathered<const MR: usize, const NV: usize>(
                rows: *const f32,
                cin: usize,
                weights: *const f32,
                places: *const u32,
                sums: *mut f32,
                sum_step: usize,
            ) {
                // SAFETY: the same contract.
                unsafe { tile::gathered::<$lanes, MR, NV>(rows, cin, weights, places, sums, sum_step) }
            }

            $(#[$feature])?
            unsafe fn add_rows(
                from: *const f32,
                width: usize,
                places: *const u32,
                count: usize,
                to: *mut f32,
                to_step: usize,
            ) {
                // SAFETY: the same contract.
                unsafe { tile::add_rows::<$lanes>(from, width, places, count, to, to_step) }
            }

            $(#[$feature])?
            unsafe fn depthwise<const P: usize, const PART: bool>(
                taps: &[Tap],
                x0: usize,
                channel: usize,
                lanes: usize,
                panel: *const f32,
                sums: *mut f32,
            ) {
                // SAFETY: the same contract.
                unsafe { tile::depthwise::<$lanes, P, PART>(taps, x0, channel, lanes, panel, sums) }
            }

            $(#[$feature])?
            unsafe fn finish<S: Storage>(tile: &Finish) {
                // SAFETY: the same contract.
                unsafe { tile::finish::<$lanes, S>(tile) }
            }

            $(#[$feature])?
            unsafe fn pool<S: Storage>(
                taps: &[*const u8],
                channels: usize,
                kind: PoolKind,
                divisor: f32,
                out: *mut u8,
            ) {
                // SAFETY: the same contract.
                unsafe { tile::pool::<$lanes, S>(taps, channels, kind, divisor, out) }
            }

            $(#[$feature])?
            unsafe fn widen<S: Storage>(from: *const u8, to: *mut f32, count: usize) {
                // SAFETY: the same contract.
                unsafe { tile::widen::<$lanes, S>(from, to, count) }
            }

            $(#[$feature])?
            unsafe fn narrow<S: Storage>(from: *const f32, to: *mut u8, count: usize) {
                // SAFETY: the same contract.
                unsafe { tile::narrow::<$lanes, S>(from, to, count) }
            }

            $(#[$feature])?
            unsafe fn max_rows(from: *const f32, step: usize, rows: usize, columns: usize, to: *mut f32) {
                // SAFETY: the same contract.
                unsafe { tile::max_rows::<$lanes>(from, step, rows, columns, to) }
            }

            $(#[$feature])?
            unsafe fn matrix_sum<const P: usize>(
                rule: &SumRule,
                activations: &[[f32; 2]],
                weights: &[Weights],
                sums: &mut [Row],
            ) {
                // SAFETY: the same contract.
                unsafe { conv_matrix_sum::sum::<$lanes, P>(rule, activations, weights, sums) }
            }

            $(#[$feature])?
            unsafe fn activate(activation: Activation, values: &mut [f32]) {
                // SAFETY: the same contract.
                unsafe { formula::activate::<$lanes>(activation, values) }
            }

            $(#[$feature])?
            unsafe fn combine(kind: BinaryKind, left: &mut [f32], right: &[f32]) {
                // SAFETY: the same contract.
                unsafe { formula::combine::<$lanes>(kind, left, right) }
            }

            const fn storage<S: Storage>() -> StorageOps {
                StorageOps { finish: finish::<S>, pool: pool::<S>, widen: widen::<S>, narrow: narrow::<S> }
            }

            pub(in $crate::device::cpu::kernels) static OPS: Ops = Ops {
                lanes: <$lanes as Lanes>::N,
                dense: [&[$(dense::<$rows, 1>),*], &[$(dense::<$rows, 2>),*]],
                gathered: [&[$(gathered::<$rows, 1>),*], &[$(gathered::<$rows, 2>),*]],
                add_rows,
                depthwise: [&[$(depthwise::<$rows, false>),*], &[$(depthwise::<$rows, true>),*]],
                f32: storage::<f32>(),
                bf16: storage::<bf16>(),
                max_rows,
                matrix_sum: [matrix_sum::<1>, matrix_sum::<2>, matrix_sum::<3>, matrix_sum::<4>],
                activate,
                combine,
            };
        }
        pub(super) use instances::OPS;
    };
}
pub(super) use instantiate;

mod scalar {
    /// One lane.
    type Scalar = f32;
    super::instantiate! { Scalar, tile rows: [1 2 3 4] }
}

/// The functions of an instruction set, or `None` where the processor lacks it.
pub(super) fn for_isa(isa: Isa) -> Option<&'static Ops> {
    isa.is_available().then_some(match isa {
        Isa::Scalar => &scalar::OPS,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => &super::simd_avx2::OPS,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => &super::simd_avx512::OPS,
        #[cfg(not(target_arch = "x86_64"))]
        Isa::Avx2 | Isa::Avx512 => &scalar::OPS,
    })
}
