//! The three eight-bit layouts: where the fields are, whatever they mean.

use std::fmt;
use std::num::FpCategory;
use std::str::FromStr;

use crate::numeric::IsaDtype;

/// Layout of an eight-bit float: 1 sign bit, then `E` exponent bits, then `M` mantissa bits.
///
/// A code with the exponent field `e` and the mantissa field `m` has the value
/// `2^(e - bias) * (1 + m / 2^M)`, or `2^(1 - bias) * m / 2^M` where `e` is 0; the bias is `2^(E-1) - 1`. What
/// the codes of the all-ones exponent field mean depends on the [`Fp8Policy`](super::Fp8Policy).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fp8Format {
    /// 3 exponent and 4 mantissa bits, bias 3.
    E3M4,
    /// 4 exponent and 3 mantissa bits, bias 7.
    E4M3,
    /// 5 exponent and 2 mantissa bits, bias 15.
    E5M2,
}

impl Fp8Format {
    /// Every layout, by exponent bits.
    pub const ALL: [Self; 3] = [Self::E3M4, Self::E4M3, Self::E5M2];

    /// Width of the exponent field.
    #[must_use]
    pub const fn exponent_bits(self) -> u32 {
        match self {
            Self::E3M4 => 3,
            Self::E4M3 => 4,
            Self::E5M2 => 5,
        }
    }

    /// Width of the mantissa field.
    #[must_use]
    pub const fn mantissa_bits(self) -> u32 {
        7 - self.exponent_bits()
    }

    /// What the exponent field holds for the exponent 0.
    #[must_use]
    pub const fn bias(self) -> u32 {
        (1 << (self.exponent_bits() - 1)) - 1
    }

    /// Largest exponent of a finite value where the all-ones exponent field is kept for infinity and NaN, as
    /// in IEEE 754: 3, 7 and 15.
    #[must_use]
    pub const fn ieee_emax(self) -> u32 {
        (1 << self.exponent_bits()) - 2 - self.bias()
    }

    /// Whether the sign bit of a code is set.
    #[must_use]
    pub const fn sign(self, code: u8) -> bool {
        code & 0x80 != 0
    }

    /// The exponent field of a code, biased.
    #[must_use]
    pub const fn exponent(self, code: u8) -> u8 {
        (code & 0x7f) >> self.mantissa_bits()
    }

    /// The mantissa field of a code.
    #[must_use]
    pub const fn mantissa(self, code: u8) -> u8 {
        code & ((1 << self.mantissa_bits()) - 1)
    }
}

impl fmt::Display for Fp8Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::E3M4 => "E3M4",
            Self::E4M3 => "E4M3",
            Self::E5M2 => "E5M2",
        })
    }
}

/// A name that no layout has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no FP8 format is called {0:?}; the choices are E3M4, E4M3 and E5M2")]
pub struct UnknownFp8Format(String);

impl FromStr for Fp8Format {
    type Err = UnknownFp8Format;

    /// Reads the name in upper or lower case.
    fn from_str(name: &str) -> Result<Self, UnknownFp8Format> {
        Self::ALL
            .into_iter()
            .find(|format| format.to_string().eq_ignore_ascii_case(name))
            .ok_or_else(|| UnknownFp8Format(name.to_owned()))
    }
}

impl Fp8Format {
    /// The layout behind an instruction-word code, or `None` for a type that is no 8-bit float with a layout here.
    #[must_use]
    pub const fn of(dtype: IsaDtype) -> Option<Self> {
        match dtype {
            IsaDtype::Fp8Exp3 => Some(Self::E3M4),
            IsaDtype::Fp8Exp4 => Some(Self::E4M3),
            IsaDtype::Fp8Exp5 => Some(Self::E5M2),
            _ => None,
        }
    }

    /// Its code in instruction words.
    #[must_use]
    pub const fn isa(self) -> IsaDtype {
        match self {
            Self::E3M4 => IsaDtype::Fp8Exp3,
            Self::E4M3 => IsaDtype::Fp8Exp4,
            Self::E5M2 => IsaDtype::Fp8Exp5,
        }
    }
}

/// A code taken apart, to be shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fp8Fields {
    /// Whether the sign bit is set.
    pub sign: bool,
    /// Exponent field, biased.
    pub exponent: u8,
    /// Mantissa field.
    pub mantissa: u8,
    /// What kind of number the code is in its own format.
    pub class: FpCategory,
    /// Its value, exact; NaN keeps the sign.
    pub value: f32,
}
