//! What the codes of a layout mean beyond IEEE 754, and what becomes of values that are too large.

use std::fmt;
use std::str::FromStr;

use super::format::Fp8Format;

/// The run-time settings of an FP8 conversion, as they are given; [`Fp8Policy::new`] checks them.
///
/// They are the range settings of AWS Neuron's `kbin_fp8_conv_cfg_t`, which its runtime writes to every engine
/// once per model load. Its other two, `sis` and `sns`, are for conversions outside OCP's formats; what they do
/// is not public, and they are not modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fp8Knobs {
    /// The all-ones exponent field of every layout holds numbers.
    pub range_extension: bool,
    /// Values beyond the largest one become the largest one.
    pub ocp_sat: bool,
    /// Largest exponent, unbiased, of a finite E4M3 value that encoding may produce.
    pub emax_e4m3: u32,
    /// Largest exponent, unbiased, of a finite E5M2 value that encoding may produce.
    pub emax_e5m2: u32,
}

/// Settings of an FP8 conversion that belong together.
///
/// No public source says what every combination does. This is how they are read here, for a layout with `M`
/// mantissa bits whose IEEE 754 form ends at the exponent `E` ([`Fp8Format::ieee_emax`]: E3M4 3, E4M3 7, E5M2
/// 15). `emax` is the knob of the layout; E3M4 has none and takes `E`, or `E + 1` with `range_extension`.
///
/// | `range_extension` | `emax` | all-ones exponent field | largest encoded value | beyond it, `ocp_sat` on | beyond it, `ocp_sat` off |
/// |---|---|---|---|---|---|
/// | off | 0 to `E` | mantissa 0 infinity, others NaN | `(2 - 2^-M) * 2^emax` | largest value | infinity |
/// | on | 0 to `E` | numbers; all-ones mantissa NaN | `(2 - 2^-M) * 2^emax` | largest value | NaN |
/// | off or on | `E + 1` | numbers; all-ones mantissa NaN | `(2 - 2^(1-M)) * 2^emax` | largest value | NaN |
/// | off or on | above | refused: [`Fp8PolicyError::EmaxTooLarge`] | | | |
///
/// - Beyond the largest value is what would still be larger after rounding to nearest even with an unbounded
///   exponent, and infinity. Signs are kept.
/// - A NaN stays NaN with its sign. Its code is the all-ones magnitude where the all-ones exponent field holds
///   numbers, else the all-ones exponent with the top mantissa bit.
/// - `emax` limits what encoding produces, never what a code decodes to; `ocp_sat` does not touch decoding
///   either.
/// - An exponent of 0 leaves normal numbers in every layout, so there is no `emax` that is too small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fp8Policy(Fp8Knobs);

/// Settings that no layout can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fp8PolicyError {
    /// An exponent that the layout has no bits for.
    #[error("emax {emax} does not fit {format}: its exponent field ends at {limit}; choose 0 to {limit}")]
    EmaxTooLarge {
        /// The layout.
        format: Fp8Format,
        /// The exponent asked for.
        emax: u32,
        /// Exponent of the all-ones field.
        limit: u32,
    },
    /// A name that no policy has.
    #[error("no FP8 policy is called {0:?}; the choices are ieee, ocp, ocp-nonsat and extended")]
    UnknownName(String),
}

impl Fp8Policy {
    /// `ieee`: infinities and NaN as in IEEE 754, overflow to infinity. Equals ml_dtypes' `float8_e3m4`,
    /// `float8_e4m3` and `float8_e5m2`.
    pub const IEEE: Self = Self::unchecked(false, false, 7, 15);

    /// `ocp`: the formats of OCP's 8-bit specification, saturating. E4M3 ends at 448 and has no infinity;
    /// E5M2 ends at 57344, decodes infinities and never encodes one.
    pub const OCP: Self = Self::unchecked(false, true, 8, 15);

    /// `ocp-nonsat`: the same formats without saturation: E4M3 overflows to NaN, E5M2 to infinity. Equals
    /// ml_dtypes' `float8_e4m3fn` and `float8_e5m2`.
    pub const OCP_NONSAT: Self = Self::unchecked(false, false, 8, 15);

    /// `extended`: the all-ones exponent field holds numbers in every layout, saturating. E3M4 ends at 30,
    /// E4M3 at 448, E5M2 at 98304.
    pub const EXTENDED: Self = Self::unchecked(true, true, 8, 16);

    /// The policies that have a name, with it.
    pub const NAMED: [(&'static str, Self); 4] = [
        ("ieee", Self::IEEE),
        ("ocp", Self::OCP),
        ("ocp-nonsat", Self::OCP_NONSAT),
        ("extended", Self::EXTENDED),
    ];

    const fn unchecked(range_extension: bool, ocp_sat: bool, emax_e4m3: u32, emax_e5m2: u32) -> Self {
        Self(Fp8Knobs {
            range_extension,
            ocp_sat,
            emax_e4m3,
            emax_e5m2,
        })
    }

    /// Checks settings.
    ///
    /// # Errors
    /// [`Fp8PolicyError::EmaxTooLarge`] for an exponent above that of the layout's all-ones exponent field.
    pub fn new(knobs: Fp8Knobs) -> Result<Self, Fp8PolicyError> {
        for (format, emax) in [
            (Fp8Format::E4M3, knobs.emax_e4m3),
            (Fp8Format::E5M2, knobs.emax_e5m2),
        ] {
            let limit = format.ieee_emax() + 1;
            if emax > limit {
                return Err(Fp8PolicyError::EmaxTooLarge { format, emax, limit });
            }
        }
        Ok(Self(knobs))
    }

    /// The settings.
    #[must_use]
    pub const fn knobs(&self) -> Fp8Knobs {
        self.0
    }

    /// Largest exponent of a finite value that encoding may produce.
    #[must_use]
    pub const fn emax(&self, format: Fp8Format) -> u32 {
        match format {
            Fp8Format::E3M4 => format.ieee_emax() + self.0.range_extension as u32,
            Fp8Format::E4M3 => self.0.emax_e4m3,
            Fp8Format::E5M2 => self.0.emax_e5m2,
        }
    }

    /// Whether the all-ones exponent field is infinity and NaN, as in IEEE 754; if not, it holds numbers.
    #[must_use]
    pub const fn has_infinity(&self, format: Fp8Format) -> bool {
        !self.0.range_extension && self.emax(format) <= format.ieee_emax()
    }

    /// Code of the largest value that encoding may produce.
    #[must_use]
    pub const fn largest_code(&self, format: Fp8Format) -> u8 {
        let all_ones = (((self.emax(format) + format.bias() + 1) << format.mantissa_bits()) - 1) as u8;
        // The all-ones magnitude is NaN in every form.
        if all_ones == 0x7f { 0x7e } else { all_ones }
    }
}

impl Default for Fp8Policy {
    /// [`Fp8Policy::OCP_NONSAT`]: what Neuron's runtime starts from (`emax` 8 and 15, all else off).
    fn default() -> Self {
        Self::OCP_NONSAT
    }
}

impl FromStr for Fp8Policy {
    type Err = Fp8PolicyError;

    fn from_str(name: &str) -> Result<Self, Fp8PolicyError> {
        Self::NAMED
            .into_iter()
            .find_map(|(known, policy)| (known == name).then_some(policy))
            .ok_or_else(|| Fp8PolicyError::UnknownName(name.to_owned()))
    }
}

impl fmt::Display for Fp8Policy {
    /// The policy's name; one without a name shows its settings.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = Self::NAMED.iter().find(|(_, policy)| policy == self) {
            return f.pad(name);
        }
        let on_off = |on| if on { "on" } else { "off" };
        write!(
            f,
            "range_extension {}, ocp_sat {}, emax_e4m3 {}, emax_e5m2 {}",
            on_off(self.0.range_extension),
            on_off(self.0.ocp_sat),
            self.0.emax_e4m3,
            self.0.emax_e5m2
        )
    }
}
