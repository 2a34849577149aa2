//! The error function, the logarithm, and what is made of them. `formula` states the errors.

use super::formula::{
    EXP, EXP_MIN, LN2_HIGH, LN2_LOW, LOG2_E, TO_INTEGER, exp, reciprocal, sigmoid_of_number,
};
use super::lanes::Lanes;

/// `erfc(z) exp(z^2) (1 + 2 z)` for `0 <= z <= 9.9`, as a polynomial in `t = (z - 2) / (z + 2)`: least maximum of the
/// relative error (9e-9).
const ERFC: [f32; 11] = [
    1.276_978_4,
    -0.092_763_9,
    -0.166_031_32,
    0.164_053_28,
    -0.054_205_712,
    -0.008_045_774,
    0.008_640_284,
    0.001_277_809_8,
    -0.001_254_149_2,
    -0.000_370_016_67,
    2.389_766e-5,
];
/// Where erfc is cut: it is below the normal range there.
const ERFC_MAX: f32 = 9.9;

/// `erf(x) / x` for `|x| <= 0.9`, as a polynomial in `x^2`: least maximum of the relative error (3e-10).
const ERF: [f32; 7] = [
    std::f32::consts::FRAC_2_SQRT_PI,
    -0.376_126_35,
    0.112_837_15,
    -0.026_860_509,
    0.005_203_859,
    -0.000_817_563_9,
    8.513_102_5e-5,
];

/// The polynomial with these coefficients, the constant first.
#[inline(always)]
fn polynomial<V: Lanes, const N: usize>(x: V, coefficients: [f32; N]) -> V {
    let mut p = x.like(coefficients[N - 1]);
    for &c in coefficients[..N - 1].iter().rev() {
        p = p.fma(x, x.like(c));
    }
    p
}

/// `exp(-c x^2)`. The square's rounding error, which the exponential would enlarge, is put back.
#[inline(always)]
fn gauss<V: Lanes>(x: V, c: f32) -> V {
    let square = x.mul(x);
    let lost = x.fma(x, x.like(0.0).sub(square));
    let y = exp(square.mul(x.like(-c)));
    y.mul(lost).neg_fma(x.like(c), y)
}

/// `erfc(z)` for `0 <= z <= ERFC_MAX`, given `exp(-z^2)`. One reciprocal serves both denominators.
#[inline(always)]
fn erfc<V: Lanes>(z: V, gauss: V) -> V {
    let outer = z.add(z).add(z.like(1.0));
    let inner = z.add(z.like(2.0));
    let r = reciprocal(outer.mul(inner));
    let t = z.sub(z.like(2.0)).mul(r.mul(outer));
    polynomial(t, ERFC).mul(r.mul(inner)).mul(gauss)
}

/// `erf(x)`
#[inline(always)]
pub(super) fn erf<V: Lanes>(x: V) -> V {
    let z = x.like(ERFC_MAX).smaller(x.abs());
    let near = x.mul(polynomial(x.mul(x), ERF));
    let far = x.like(1.0).sub(erfc(z, gauss(z, 1.0)));
    let y = z.if_less(x.like(0.84), near, far.with_sign_of(x));
    x.if_nan(x, y)
}

/// `x (1 + erf(x / sqrt(2))) / 2`, as `x` times the normal distribution's tail, which does not cancel.
#[inline(always)]
pub(super) fn gelu<V: Lanes>(x: V) -> V {
    let magnitude = x.like(14.0).smaller(x.abs());
    let z = magnitude.mul(x.like(std::f32::consts::FRAC_1_SQRT_2));
    let tail = erfc(z, gauss(magnitude, 0.5)).mul(x.like(0.5));
    let y = x.mul(x.if_less(x.like(0.0), tail, x.like(1.0).sub(tail)));
    x.if_nan(x, y)
}

/// `x (1 + tanh(u)) / 2` with `u = sqrt(2 / pi) (x + 0.044715 x^3)`, as `x sigmoid(2 u)`.
#[inline(always)]
pub(super) fn gelu_tanh<V: Lanes>(x: V) -> V {
    const TWICE: f32 = 2.0 * 0.797_884_6;
    let cubic = x.mul(x).fma(x.like(0.044_715), x.like(1.0));
    let y = x.mul(sigmoid_of_number(x.mul(cubic).mul(x.like(TWICE))));
    x.if_nan(x, y)
}

/// `log(1 + r)` for `sqrt(1/2) - 1 <= r <= sqrt(2) - 1` (the classic single-precision polynomial of Moshier), plus
/// `n ln 2`.
#[inline(always)]
fn log_of_parts<V: Lanes>(r: V, n: V) -> V {
    let p = polynomial(
        r,
        [
            0.333_333_3,
            -2.499_999_4e-1,
            2.000_071_5e-1,
            -1.666_805_8e-1,
            1.424_932_3e-1,
            -1.242_014_1e-1,
            1.167_699_9e-1,
            -1.151_461e-1,
            7.037_683_6e-2,
        ],
    );
    let z = r.mul(r);
    let y = p.mul(z).mul(r);
    let y = n.fma(r.like(LN2_LOW), y);
    let y = z.neg_fma(r.like(0.5), y);
    n.fma(r.like(LN2_HIGH), r.add(y))
}

/// `log(x)`
#[inline(always)]
pub(super) fn log<V: Lanes>(x: V) -> V {
    // Numbers under the normal range are brought into it.
    let tiny = x.like(f32::MIN_POSITIVE);
    let scaled = x.if_less(tiny, x.mul(x.like(8_388_608.0)), x);
    let shift = x.if_less(tiny, x.like(-23.0), x.like(0.0));
    let mantissa = scaled.mantissa();
    let exponent = scaled.exponent().add(shift);
    let large = x
        .like(std::f32::consts::SQRT_2)
        .if_less(mantissa, x.like(1.0), x.like(0.0));
    let half = large.neg_fma(x.like(0.5), x.like(1.0));
    let y = log_of_parts(mantissa.mul(half).sub(x.like(1.0)), exponent.add(large));
    let y = x.like(f32::MAX).if_less(x, x.like(f32::INFINITY), y);
    let y = x.like(0.0).if_less(x, y, x.like(f32::NEG_INFINITY));
    let y = x.if_less(x.like(0.0), x.like(f32::NAN), y);
    x.if_nan(x, y)
}

/// `log(1 + t)` for `0 <= t <= 1`.
#[inline(always)]
fn log1p_of_unit<V: Lanes>(t: V) -> V {
    const LIMIT: f32 = std::f32::consts::SQRT_2 - 1.0;
    let one = t.like(1.0);
    let r = t.like(LIMIT).if_less(t, t.sub(one).mul(t.like(0.5)), t);
    let n = t.like(LIMIT).if_less(t, one, t.like(0.0));
    log_of_parts(r, n)
}

/// `log(1 + exp(x))`
#[inline(always)]
pub(super) fn softplus<V: Lanes>(x: V) -> V {
    let t = exp(x.like(0.0).sub(x.abs()));
    let y = x.like(0.0).larger(x).add(log1p_of_unit(t));
    x.if_nan(x, y)
}

/// `exp(x) - 1` for `x <= 0`.
#[inline(always)]
pub(super) fn expm1_of_negative<V: Lanes>(x: V) -> V {
    let one = x.like(1.0);
    let inside = x.like(EXP_MIN).larger(x);
    let shift = inside.fma(x.like(LOG2_E), x.like(TO_INTEGER));
    let n = shift.sub(x.like(TO_INTEGER));
    let r = n.neg_fma(x.like(LN2_HIGH), inside);
    let r = n.neg_fma(x.like(LN2_LOW), r);
    let p = polynomial(r, EXP).mul(r).fma(r, r);
    let power = one.scale(shift);
    p.fma(power, power.sub(one))
}

/// `x tanh(log(1 + exp(x)))`, the logarithm and the tanh cancelled against each other.
#[inline(always)]
pub(super) fn mish<V: Lanes>(x: V) -> V {
    // From here on the factor is 1 in fp32.
    let e = exp(x.like(20.0).smaller(x));
    let n = e.fma(e, e.add(e));
    let y = x.mul(n.div(n.add(x.like(2.0))));
    x.if_nan(x, y)
}
