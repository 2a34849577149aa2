//! The element-wise functions, each written once over any vector type.
//!
//! Errors are against the exact function; `tests/device/kernels.rs` holds them to these bounds.
//!
//! | function | error | special values |
//! |---|---|---|
//! | exp | 2 ulp | below -87.33654 (results under the normal range): 0; above 88.72283: infinity |
//! | sigmoid | 4 ulp | below -86: 0 (absolute error under 5e-38); +infinity: 1 |
//! | silu | 5 ulp | below -86: 0 (absolute error under 4e-36); -infinity: NaN, as `x / (1 + exp(-x))` is |
//! | tanh | 3 ulp | +-infinity: +-1 |
//! | erf | 3 ulp | +-infinity: +-1 |
//! | gelu | 6 ulp | below -13.2: 0 (absolute error under 2e-37); -infinity: NaN, as `x (1 + erf) / 2` is |
//! | gelu, tanh form | 5 ulp times `max(1, 2 abs(u))` | as gelu; `u` is the argument of the tanh |
//! | log | 2 ulp | 0: -infinity; below 0: NaN; +infinity: +infinity |
//! | softplus | 4 ulp | below -87.33654: 0 |
//! | elu | 4 ulp | -infinity: -alpha |
//! | mish | 6 ulp | below -87.33654: 0; -infinity: NaN, as `x tanh(softplus(x))` is |
//! | sqrt, reciprocal | 0.5 ulp | of a negative number: NaN; of 0: infinity of its sign |
//! | rsqrt | 1.5 ulp | of 0: infinity |
//!
//! NaN gives NaN everywhere.

use super::lanes::Lanes;
use super::special::{erf, expm1_of_negative, gelu, gelu_tanh, log, mish, softplus};
use crate::device::{Activation, BinaryKind};

/// A function of one element.
pub(super) trait Function: Copy {
    /// The function, lane by lane.
    fn apply<V: Lanes>(self, x: V) -> V;
}

/// A function of two elements.
pub(super) trait Function2: Copy {
    /// The function, lane by lane.
    fn apply<V: Lanes>(self, x: V, y: V) -> V;
}

/// `1.5 * 2^23`: adding it to a float below 2^22 rounds that to an integer in the low bits.
pub(super) const TO_INTEGER: f32 = 12_582_912.0;
pub(super) const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// `ln 2` in two parts; the first has nine bits, so its product with any exponent is exact.
pub(super) const LN2_HIGH: f32 = 0.693_359_4;
pub(super) const LN2_LOW: f32 = -2.121_944_4e-4;
pub(super) const EXP_MIN: f32 = -87.336_54;
const EXP_MAX: f32 = 88.722_83;
/// Where the sigmoid is cut to 0: there `1 + exp(-x)` is still below 2^125, as the reciprocal needs.
const SIGMOID_MIN: f32 = -86.0;

/// `exp(r) = 1 + r + r^2 (c[0] + c[1] r + ...)` for `|r| <= ln 2 / 2`: least maximum of the relative error
/// (4e-9), fitted with the first two coefficients held at 1.
pub(super) const EXP: [f32; 5] = [
    0.499_999_94,
    0.166_665_2,
    0.041_668_408,
    0.008_368_921,
    0.001_381_417_5,
];

/// `exp(x)` for `EXP_MIN <= x <= EXP_MAX`.
#[inline(always)]
fn exp_in_range<V: Lanes>(x: V) -> V {
    let shift = x.fma(x.like(LOG2_E), x.like(TO_INTEGER));
    let n = shift.sub(x.like(TO_INTEGER));
    let r = n.neg_fma(x.like(LN2_HIGH), x);
    let r = n.neg_fma(x.like(LN2_LOW), r);
    let p = r.fma(x.like(EXP[4]), x.like(EXP[3]));
    let p = p.fma(r, x.like(EXP[2]));
    let p = p.fma(r, x.like(EXP[1]));
    let p = p.fma(r, x.like(EXP[0]));
    let p = p.fma(r, x.like(1.0));
    p.fma(r, x.like(1.0)).scale(shift)
}

/// `exp(x)`
#[inline(always)]
pub(super) fn exp<V: Lanes>(x: V) -> V {
    let inside = x.like(EXP_MIN).larger(x);
    let inside = x.like(EXP_MAX).smaller(inside);
    let y = exp_in_range(inside);
    let y = x.if_less(x.like(EXP_MIN), x.like(0.0), y);
    let y = x.like(EXP_MAX).if_less(x, x.like(f32::INFINITY), y);
    x.if_nan(x, y)
}

/// `1 / d` for `1 <= d < 2^125`, within 1 ulp: a cubic step takes the seed's error from 0.0506 to 1.3e-4, a
/// quadratic one to 1.7e-8. Unlike a division it shares the multiply-add units, which is twice as fast.
#[inline(always)]
pub(super) fn reciprocal<V: Lanes>(d: V) -> V {
    let one = d.like(1.0);
    let r = d.reciprocal_seed();
    let h = d.neg_fma(r, one);
    let h = h.fma(h, h);
    let r = r.fma(h, r);
    let h = d.neg_fma(r, one);
    r.fma(h, r)
}

/// `1 / (1 + exp(-x))` for every `x` but NaN, which gives an arbitrary value.
#[inline(always)]
pub(super) fn sigmoid_of_number<V: Lanes>(x: V) -> V {
    let inside = x.like(SIGMOID_MIN).larger(x);
    let inside = x.like(-SIGMOID_MIN).smaller(inside);
    // exp(-x), with the signs moved into the constants: `r` is the negated remainder.
    let shift = inside.fma(x.like(-LOG2_E), x.like(TO_INTEGER));
    let n = shift.sub(x.like(TO_INTEGER));
    let r = n.fma(x.like(LN2_HIGH), inside);
    let r = n.fma(x.like(LN2_LOW), r);
    let p = r.fma(x.like(EXP[4]), x.like(-EXP[3]));
    let p = p.fma(r, x.like(EXP[2]));
    let p = p.fma(r, x.like(-EXP[1]));
    let p = p.fma(r, x.like(EXP[0]));
    let p = p.fma(r, x.like(-1.0));
    let p = p.fma(r, x.like(1.0)).scale(shift);
    let y = reciprocal(p.add(x.like(1.0)));
    x.if_less(x.like(SIGMOID_MIN), x.like(0.0), y)
}

/// `tanh(x)`: an odd polynomial (the classic single-precision one of Moshier) near 0, elsewhere
/// `1 - 2 / (exp(2|x|) + 1)`.
#[inline(always)]
fn tanh<V: Lanes>(x: V) -> V {
    let one = x.like(1.0);
    let magnitude = x.abs();
    let z = x.mul(x);
    let p = z.fma(x.like(-5.704_988_7e-3), x.like(2.063_909e-2));
    let p = p.fma(z, x.like(-5.373_971_6e-2));
    let p = p.fma(z, x.like(1.333_144_2e-1));
    let p = p.fma(z, x.like(-3.333_328e-1));
    let near = p.mul(z).fma(x, x);
    // From 10 on the result is 1 in fp32.
    let twice = x.like(20.0).smaller(magnitude.add(magnitude));
    let far = one.sub(x.like(2.0).div(exp_in_range(twice).add(one)));
    let y = magnitude.if_less(x.like(0.625), near, far.with_sign_of(x));
    x.if_nan(x, y)
}

/// `max(x, 0)`, NaN staying NaN.
#[inline(always)]
fn clip<V: Lanes>(x: V, low: f32, high: f32) -> V {
    let x = x.like(low).larger(x);
    x.like(high).smaller(x)
}

/// `yes`, or 0 where `x` is NaN.
#[inline(always)]
fn number<V: Lanes>(x: V, yes: V) -> V {
    x.if_nan(x.like(0.0), yes)
}

/// `x` without its fraction.
#[inline(always)]
fn cut<V: Lanes>(x: V) -> V {
    x.abs().floor().with_sign_of(x)
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident { $($field:ident),* } |$self:ident, $x:ident| $body:expr;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy)]
            pub(super) struct $name { $(pub(super) $field: f32),* }

            impl Function for $name {
                #[inline(always)]
                fn apply<V: Lanes>($self, $x: V) -> V {
                    $body
                }
            }
        )*
    };
}

functions! {
    /// [`Activation::Identity`]
    Identity {} |self, x| x;
    /// [`Activation::Relu`]
    Relu {} |self, x| x.like(0.0).larger(x);
    /// [`Activation::Clip`]
    Clip { low, high } |self, x| clip(x, self.low, self.high);
    /// [`Activation::LeakyRelu`]
    LeakyRelu { slope } |self, x| x.if_less(x.like(0.0), x.mul(x.like(self.slope)), x);
    /// [`Activation::Sigmoid`]
    Sigmoid {} |self, x| x.if_nan(x, sigmoid_of_number(x));
    /// [`Activation::Silu`]; the product keeps a NaN.
    Silu {} |self, x| x.mul(sigmoid_of_number(x));
    /// [`Activation::HardSigmoid`]
    HardSigmoid { alpha, beta } |self, x| clip(x.fma(x.like(self.alpha), x.like(self.beta)), 0.0, 1.0);
    /// [`Activation::HardSwish`]
    HardSwish {} |self, x| x.mul(clip(x.fma(x.like(1.0 / 6.0), x.like(0.5)), 0.0, 1.0));
    /// [`Activation::Tanh`]
    Tanh {} |self, x| tanh(x);
    /// [`Activation::Exp`]
    Exp {} |self, x| exp(x);
    /// [`Activation::Erf`]
    Erf {} |self, x| erf(x);
    /// [`Activation::Gelu`]
    Gelu {} |self, x| gelu(x);
    /// [`Activation::GeluTanh`]
    GeluTanh {} |self, x| gelu_tanh(x);
    /// [`Activation::Sqrt`]
    Sqrt {} |self, x| x.sqrt();
    /// [`Activation::Rsqrt`]
    Rsqrt {} |self, x| x.like(1.0).div(x.sqrt());
    /// [`Activation::Abs`]
    Abs {} |self, x| x.abs();
    /// [`Activation::Neg`]
    Neg {} |self, x| x.like(-0.0).sub(x);
    /// [`Activation::Log`]
    Log {} |self, x| log(x);
    /// [`Activation::Softplus`]
    Softplus {} |self, x| softplus(x);
    /// [`Activation::Elu`]
    Elu { alpha } |self, x| {
        x.if_less(x.like(0.0), x.like(self.alpha).mul(expm1_of_negative(x)), x)
    };
    /// [`Activation::Reciprocal`]
    Reciprocal {} |self, x| x.like(1.0).div(x);
    /// [`Activation::Floor`]
    Floor {} |self, x| x.floor();
    /// [`Activation::Ceil`]
    Ceil {} |self, x| x.like(-0.0).sub(x.like(-0.0).sub(x).floor());
    /// [`Activation::Round`]
    Round {} |self, x| x.round_even();
    /// [`Activation::Mish`]
    Mish {} |self, x| mish(x);
}

/// Runs `$body` with `$f` bound to the [`Function`] of an activation.
macro_rules! with_activation {
    ($activation:expr, $f:ident => $body:expr) => {{
        use $crate::device::Activation;
        use $crate::device::cpu::kernels::formula;
        match $activation {
            Activation::Identity => {
                let $f = formula::Identity {};
                $body
            }
            Activation::Relu => {
                let $f = formula::Relu {};
                $body
            }
            Activation::Clip { low, high } => {
                let $f = formula::Clip {
                    low: low.get(),
                    high: high.get(),
                };
                $body
            }
            Activation::LeakyRelu { slope } => {
                let $f = formula::LeakyRelu { slope: slope.get() };
                $body
            }
            Activation::Sigmoid => {
                let $f = formula::Sigmoid {};
                $body
            }
            Activation::Silu => {
                let $f = formula::Silu {};
                $body
            }
            Activation::HardSigmoid { alpha, beta } => {
                let $f = formula::HardSigmoid {
                    alpha: alpha.get(),
                    beta: beta.get(),
                };
                $body
            }
            Activation::HardSwish => {
                let $f = formula::HardSwish {};
                $body
            }
            Activation::Tanh => {
                let $f = formula::Tanh {};
                $body
            }
            Activation::Exp => {
                let $f = formula::Exp {};
                $body
            }
            Activation::Erf => {
                let $f = formula::Erf {};
                $body
            }
            Activation::Gelu => {
                let $f = formula::Gelu {};
                $body
            }
            Activation::GeluTanh => {
                let $f = formula::GeluTanh {};
                $body
            }
            Activation::Sqrt => {
                let $f = formula::Sqrt {};
                $body
            }
            Activation::Rsqrt => {
                let $f = formula::Rsqrt {};
                $body
            }
            Activation::Abs => {
                let $f = formula::Abs {};
                $body
            }
            Activation::Neg => {
                let $f = formula::Neg {};
                $body
            }
            Activation::Log => {
                let $f = formula::Log {};
                $body
            }
            Activation::Softplus => {
                let $f = formula::Softplus {};
                $body
            }
            Activation::Elu { alpha } => {
                let $f = formula::Elu { alpha: alpha.get() };
                $body
            }
            Activation::Reciprocal => {
                let $f = formula::Reciprocal {};
                $body
            }
            Activation::Floor => {
                let $f = formula::Floor {};
                $body
            }
            Activation::Ceil => {
                let $f = formula::Ceil {};
                $body
            }
            Activation::Round => {
                let $f = formula::Round {};
                $body
            }
            Activation::Mish => {
                let $f = formula::Mish {};
                $body
            }
        }
    }};
}
pub(super) use with_activation;

/// [`Function2`] of a [`BinaryKind`]; maximum and minimum of a NaN and anything are NaN.
macro_rules! functions2 {
    ($($(#[$doc:meta])* $name:ident |$x:ident, $y:ident| $body:expr;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy)]
            pub(super) struct $name;

            impl Function2 for $name {
                #[inline(always)]
                fn apply<V: Lanes>(self, $x: V, $y: V) -> V {
                    $body
                }
            }
        )*
    };
}

functions2! {
    /// [`BinaryKind::Add`]
    Add |x, y| x.add(y);
    /// [`BinaryKind::Sub`]
    Sub |x, y| x.sub(y);
    /// [`BinaryKind::Mul`]
    Mul |x, y| x.mul(y);
    /// [`BinaryKind::Div`]
    Div |x, y| x.div(y);
    /// [`BinaryKind::Max`]
    Max |x, y| x.if_nan(x, x.larger(y));
    /// [`BinaryKind::Min`]
    Min |x, y| x.if_nan(x, x.smaller(y));
    /// [`BinaryKind::Equal`]
    Equal |x, y| {
        let zero = x.like(0.0);
        let not_less = x.if_less(y, zero, number(x, number(y, x.like(1.0))));
        y.if_less(x, zero, not_less)
    };
    /// [`BinaryKind::Less`]
    Less |x, y| x.if_less(y, x.like(1.0), x.like(0.0));
    /// [`BinaryKind::LessOrEqual`]
    LessOrEqual |x, y| y.if_less(x, x.like(0.0), number(x, number(y, x.like(1.0))));
    /// [`BinaryKind::Quotient`]
    Quotient |x, y| cut(x.div(y));
    /// [`BinaryKind::Remainder`]
    Remainder |x, y| x.div(y).floor().neg_fma(y, x);
    /// [`BinaryKind::LeakyRelu`]
    LeakyReluBy |x, y| x.if_less(x.like(0.0), x.mul(y), x);
}

/// Runs `$body` with `$f` bound to the [`Function2`] of a binary operation.
macro_rules! with_binary {
    ($kind:expr, $f:ident => $body:expr) => {{
        use $crate::device::BinaryKind;
        use $crate::device::cpu::kernels::formula;
        match $kind {
            BinaryKind::Add => {
                let $f = formula::Add;
                $body
            }
            BinaryKind::Sub => {
                let $f = formula::Sub;
                $body
            }
            BinaryKind::Mul => {
                let $f = formula::Mul;
                $body
            }
            BinaryKind::Div => {
                let $f = formula::Div;
                $body
            }
            BinaryKind::Max => {
                let $f = formula::Max;
                $body
            }
            BinaryKind::Min => {
                let $f = formula::Min;
                $body
            }
            BinaryKind::Equal => {
                let $f = formula::Equal;
                $body
            }
            BinaryKind::Less => {
                let $f = formula::Less;
                $body
            }
            BinaryKind::LessOrEqual => {
                let $f = formula::LessOrEqual;
                $body
            }
            BinaryKind::Quotient => {
                let $f = formula::Quotient;
                $body
            }
            BinaryKind::Remainder => {
                let $f = formula::Remainder;
                $body
            }
            BinaryKind::LeakyRelu => {
                let $f = formula::LeakyReluBy;
                $body
            }
        }
    }};
}

/// Applies an activation in place.
///
/// # Safety
/// The processor has `V`'s instruction set.
#[inline(always)]
pub(super) unsafe fn activate<V: Lanes>(activation: Activation, values: &mut [f32]) {
    with_activation!(activation, f => {
        let mut chunks = values.chunks_exact_mut(V::N);
        for chunk in &mut chunks {
            // SAFETY: a chunk holds V::N values; the caller vouches for the instruction set.
            unsafe { f.apply(V::load(chunk.as_ptr())).store(chunk.as_mut_ptr()) };
        }
        let rest = chunks.into_remainder();
        // SAFETY: only `rest.len()` values are touched; the caller vouches for the instruction set.
        unsafe { f.apply(V::load_first(rest.as_ptr(), rest.len())).store_first(rest.as_mut_ptr(), rest.len()) };
    });
}

/// `left[i] = kind(left[i], right[i])`
///
/// # Safety
/// The processor has `V`'s instruction set.
#[inline(always)]
pub(super) unsafe fn combine<V: Lanes>(kind: BinaryKind, left: &mut [f32], right: &[f32]) {
    let count = left.len().min(right.len());
    let whole = count - count % V::N;
    with_binary!(kind, f => {
        for i in (0..whole).step_by(V::N) {
            // SAFETY: `i + V::N <= count`; the caller vouches for the instruction set.
            unsafe {
                let y = f.apply(V::load(left.as_ptr().add(i)), V::load(right.as_ptr().add(i)));
                y.store(left.as_mut_ptr().add(i));
            }
        }
        let n = count - whole;
        // SAFETY: `whole + n == count`; the caller vouches for the instruction set.
        unsafe {
            let p = left.as_mut_ptr().add(whole);
            f.apply(V::load_first(p, n), V::load_first(right.as_ptr().add(whole), n)).store_first(p, n);
        }
    });
}
