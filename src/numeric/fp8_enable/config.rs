//! The conversion policy as a container holds it.

use crate::numeric::{Fp8Knobs, Fp8Policy, Fp8PolicyError};

/// Size of the policy in bytes.
pub const FP8_CONV_CONFIG_BYTES: usize = 16;

const RANGE_EXTENSION: usize = 0;
const EMAX_E4M3: usize = 4;
const EMAX_E5M2: usize = 8;
const OCP_SAT: usize = 12;
const SIS: usize = 13;
const SNS: usize = 14;

/// The bytes that hold nothing: what a C compiler leaves between the fields.
const PADDING: [usize; 4] = [1, 2, 3, 15];

/// Why bytes are no policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fp8ConfigError {
    /// Too few or too many bytes.
    #[error("an FP8 conversion policy has {FP8_CONV_CONFIG_BYTES} bytes, not {actual}")]
    Length {
        /// Bytes given.
        actual: usize,
    },
    /// A truth value that is neither.
    #[error("byte {offset}: {field} is {value} ({value:#04x}), but must be 0 or 1")]
    Boolean {
        /// Where it stands.
        offset: usize,
        /// Its name.
        field: &'static str,
        /// The byte.
        value: u8,
    },
}

/// How a core converts to and from 8-bit floats (`kbin_fp8_conv_cfg_t`, 16 bytes, little-endian): bool at 0,
/// u32 at 4 and 8, bool at 12, 13 and 14.
///
/// E3M4 has no largest exponent of its own; it follows the two general flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fp8ConvConfig {
    /// Widens the range beyond that of the format.
    pub fp8_range_extension: bool,
    /// Largest exponent of E4M3.
    pub emax_fp8_e4m3: u32,
    /// Largest exponent of E5M2.
    pub emax_fp8_e5m2: u32,
    /// Saturates as the OCP formats do.
    pub ocp_sat: bool,
    /// Goes to the conversions other than OCP. What it means is unknown: public descriptions disagree.
    pub sis: bool,
    /// Goes to the conversions other than OCP. What it means is unknown: public descriptions disagree.
    pub sns: bool,
    /// Bytes 1, 2, 3 and 15, kept as read.
    pub padding: [u8; 4],
}

impl Default for Fp8ConvConfig {
    /// What the runtime starts from when neither the container nor the environment says otherwise, by public
    /// descriptions of it: range extension and saturation on, largest exponents 8 and 15.
    fn default() -> Self {
        Self {
            fp8_range_extension: true,
            emax_fp8_e4m3: 8,
            emax_fp8_e5m2: 15,
            ocp_sat: true,
            sis: false,
            sns: false,
            padding: [0; 4],
        }
    }
}

impl Fp8ConvConfig {
    /// Reads a policy. Padding is kept, not checked.
    ///
    /// # Errors
    ///
    /// [`Fp8ConfigError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Fp8ConfigError> {
        let bytes: &[u8; FP8_CONV_CONFIG_BYTES] = bytes
            .try_into()
            .map_err(|_| Fp8ConfigError::Length { actual: bytes.len() })?;
        let boolean = |offset: usize, field| match bytes[offset] {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(Fp8ConfigError::Boolean { offset, field, value }),
        };
        let word = |offset: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[offset + i]));
        Ok(Self {
            fp8_range_extension: boolean(RANGE_EXTENSION, "fp8_range_extension")?,
            emax_fp8_e4m3: word(EMAX_E4M3),
            emax_fp8_e5m2: word(EMAX_E5M2),
            ocp_sat: boolean(OCP_SAT, "ocp_sat")?,
            sis: boolean(SIS, "sis")?,
            sns: boolean(SNS, "sns")?,
            padding: PADDING.map(|offset| bytes[offset]),
        })
    }

    /// The policy's bytes: the exact inverse of [`parse`](Self::parse).
    #[must_use]
    pub fn to_bytes(&self) -> [u8; FP8_CONV_CONFIG_BYTES] {
        let mut bytes = [0; FP8_CONV_CONFIG_BYTES];
        bytes[RANGE_EXTENSION] = self.fp8_range_extension.into();
        bytes[EMAX_E4M3..EMAX_E5M2].copy_from_slice(&self.emax_fp8_e4m3.to_le_bytes());
        bytes[EMAX_E5M2..OCP_SAT].copy_from_slice(&self.emax_fp8_e5m2.to_le_bytes());
        bytes[OCP_SAT] = self.ocp_sat.into();
        bytes[SIS] = self.sis.into();
        bytes[SNS] = self.sns.into();
        for (offset, byte) in PADDING.into_iter().zip(self.padding) {
            bytes[offset] = byte;
        }
        bytes
    }
}

impl TryFrom<Fp8ConvConfig> for Fp8Policy {
    type Error = Fp8PolicyError;

    /// The policy that the configuration sets for conversions; `sis` and `sns` have no part in it.
    fn try_from(config: Fp8ConvConfig) -> Result<Self, Fp8PolicyError> {
        Self::new(Fp8Knobs {
            range_extension: config.fp8_range_extension,
            ocp_sat: config.ocp_sat,
            emax_e4m3: config.emax_fp8_e4m3,
            emax_e5m2: config.emax_fp8_e5m2,
        })
    }
}
