//! One value of a data type, taken apart.

use std::fmt::Write as _;
use std::num::FpCategory;

use half::{bf16, f16};
use serde::Serialize;

use crate::numeric::{Fp8Format, Fp8Policy, IsaDtype, Kind, fp4_decode, fp8_decode, fp8_fields};

/// Why a value cannot be shown.
#[derive(Debug, thiserror::Error)]
pub(super) enum ValueError {
    /// More bits than the type has.
    #[error("{bits:#x} does not fit {dtype} (ISA code {:#04x}), whose elements have {width} bits", .dtype.code())]
    TooWide { dtype: IsaDtype, bits: u64, width: u8 },
    /// A type whose values no source describes, or that has none.
    #[error("no source says which values {dtype} (ISA code {:#04x}) has", .dtype.code())]
    Undescribed { dtype: IsaDtype },
}

/// A value and its parts.
#[derive(Debug, Serialize)]
pub(super) struct ValueView {
    #[serde(skip)]
    dtype: IsaDtype,
    name: &'static str,
    isa: u8,
    bits: u64,
    width: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    float: Option<FloatView>,
    value: String,
}

/// The fields of a floating-point value.
#[derive(Debug, Serialize)]
struct FloatView {
    sign: bool,
    exponent_field: u64,
    exponent_bits: u32,
    bias: u32,
    mantissa_field: u64,
    mantissa_bits: u32,
    class: &'static str,
}

impl ValueView {
    /// Reads the low bits of `bits` as a value of `dtype`. The policy matters to 8-bit floats only.
    pub(super) fn new(dtype: IsaDtype, bits: u64, policy: &Fp8Policy) -> Result<Self, ValueError> {
        let row = dtype.row();
        let width = row.bits;
        if row.kind == Kind::Nothing {
            return Err(ValueError::Undescribed { dtype });
        }
        if width < 64 && bits >> width != 0 {
            return Err(ValueError::TooWide { dtype, bits, width });
        }
        let mut used_policy = None;
        let (value, float) = match (row.kind, Fp8Format::of(dtype)) {
            (Kind::Unsigned, _) => (bits.to_string(), None),
            (Kind::Signed, _) => {
                let unused = 64 - u32::from(width);
                ((((bits << unused) as i64) >> unused).to_string(), None)
            }
            (_, Some(format)) => {
                used_policy = Some(policy.to_string());
                let code = bits as u8;
                let fields = fp8_fields(format, policy, code);
                let float =
                    FloatView::new(bits, format.exponent_bits(), format.mantissa_bits(), fields.class);
                (number(f64::from(fp8_decode(format, policy, code))), Some(float))
            }
            _ => {
                let (value, exponent, mantissa) = match dtype {
                    IsaDtype::Bfloat16 => (bf16::from_bits(bits as u16).to_f64(), 8, 7),
                    IsaDtype::Fp16 => (f16::from_bits(bits as u16).to_f64(), 5, 10),
                    IsaDtype::Fp32 => (f64::from(f32::from_bits(bits as u32)), 8, 23),
                    IsaDtype::Fp4Exp2 => (f64::from(fp4_decode(bits as u8)), 2, 1),
                    _ => return Err(ValueError::Undescribed { dtype }),
                };
                let class = class_in(bits, exponent, mantissa, value);
                (
                    number(value),
                    Some(FloatView::new(bits, exponent, mantissa, class)),
                )
            }
        };
        Ok(Self {
            dtype,
            name: dtype.name(),
            isa: dtype.code(),
            bits,
            width,
            policy: used_policy,
            float,
            value,
        })
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{} (ISA code {:#04x})", self.dtype, self.isa);
        if let Some(policy) = &self.policy {
            let _ = write!(text, ", policy {policy}");
        }
        let digits = usize::from(self.width).div_ceil(4);
        let _ = write!(text, "\n\nbits      {:#0width$x}", self.bits, width = digits + 2);
        if let Some(float) = &self.float {
            let (e, m) = (float.exponent_bits as usize, float.mantissa_bits as usize);
            let _ = write!(
                text,
                " = {} {:0e$b} {:0m$b}\nsign      {}\nexponent  {} (bias {})\nmantissa  {} of {}\nclass     {}",
                u8::from(float.sign),
                float.exponent_field,
                float.mantissa_field,
                if float.sign { "-" } else { "+" },
                float.exponent_field,
                float.bias,
                float.mantissa_field,
                1_u64 << float.mantissa_bits,
                float.class,
            );
        }
        let _ = write!(text, "\nvalue     {}", self.value);
        text
    }
}

impl FloatView {
    fn new(bits: u64, exponent_bits: u32, mantissa_bits: u32, class: FpCategory) -> Self {
        Self {
            sign: bits >> (exponent_bits + mantissa_bits) & 1 == 1,
            exponent_field: bits >> mantissa_bits & ((1 << exponent_bits) - 1),
            exponent_bits,
            bias: (1 << (exponent_bits - 1)) - 1,
            mantissa_field: bits & ((1 << mantissa_bits) - 1),
            mantissa_bits,
            class: match class {
                FpCategory::Nan => "NaN",
                FpCategory::Infinite => "infinity",
                FpCategory::Zero => "zero",
                FpCategory::Subnormal => "subnormal",
                FpCategory::Normal => "normal",
            },
        }
    }
}

/// What kind of number the bits are in their own format; a value that is subnormal there may be normal in f64.
fn class_in(bits: u64, exponent_bits: u32, mantissa_bits: u32, value: f64) -> FpCategory {
    match value.classify() {
        FpCategory::Normal if bits >> mantissa_bits & ((1 << exponent_bits) - 1) == 0 => {
            FpCategory::Subnormal
        }
        class => class,
    }
}

/// The shortest text that reads back as the same value; very large and small ones with an exponent.
fn number(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && size.is_finite() && !(1e-4..1e7).contains(&size) {
        format!("{value:e}")
    } else {
        value.to_string()
    }
}
