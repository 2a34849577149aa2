//! What the records depend on and no source settles: registers, packings, capabilities.

use super::config::Fp8ConvConfig;
use super::engine::ComputeEngine;
use super::records::RecordFields;
use crate::numeric::NeuronArch;

/// Which of the two registers of a conversion is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Selector {
    /// The register of selector 0.
    Zero = 0,
    /// The register of selector 1.
    One = 1,
}

/// The flags that an engine's control register holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ControlFlags {
    /// [`Fp8ConvConfig::fp8_range_extension`].
    pub range_extension: bool,
    /// [`Fp8ConvConfig::ocp_sat`].
    pub ocp_sat: bool,
    /// [`Fp8ConvConfig::sis`].
    pub sis: bool,
    /// [`Fp8ConvConfig::sns`].
    pub sns: bool,
}

impl From<&Fp8ConvConfig> for ControlFlags {
    fn from(config: &Fp8ConvConfig) -> Self {
        Self {
            range_extension: config.fp8_range_extension,
            ocp_sat: config.ocp_sat,
            sis: config.sis,
            sns: config.sns,
        }
    }
}

/// Why a layout has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A register lies beyond the last address.
    #[error("the register {offset:#x} bytes into the window at {base:#x} lies beyond 64 bits")]
    Address {
        /// Start of the window.
        base: u64,
        /// Offset in it.
        offset: u128,
    },
    /// A largest exponent does not fit its bits.
    #[error("{field} is {value}, above {limit}, the largest that its register holds")]
    Emax {
        /// Name in the policy.
        field: &'static str,
        /// Its value.
        value: u32,
        /// The largest that fits.
        limit: u32,
    },
}

/// Where registers are, what their bits mean, where records hold their fields, who can do it.
pub trait RegisterLayout {
    /// Whether the architecture has these registers at all.
    fn is_capable(&self, arch: NeuronArch) -> bool;

    /// Number of DMA engines that serve one core.
    fn dma_engines(&self, arch: NeuronArch) -> u32;

    /// Where records hold addresses and values.
    fn record_fields(&self) -> RecordFields;

    /// Address of an engine's control register.
    ///
    /// # Errors
    ///
    /// [`LayoutError`].
    fn control_address(&self, engine: ComputeEngine) -> Result<u64, LayoutError>;

    /// What an engine's control register is set to.
    ///
    /// # Errors
    ///
    /// [`LayoutError`].
    fn control_value(&self, engine: ComputeEngine, flags: ControlFlags) -> Result<u32, LayoutError>;

    /// Address of the register for largest exponents in the sequencer of DVE.
    ///
    /// # Errors
    ///
    /// [`LayoutError`].
    fn emax_address(&self) -> Result<u64, LayoutError>;

    /// What the register for largest exponents is set to.
    ///
    /// # Errors
    ///
    /// [`LayoutError`].
    fn emax_value(&self, e4m3: u32, e5m2: u32) -> Result<u32, LayoutError>;

    /// Address of a DMA engine's register for conversions to and from OCP formats.
    ///
    /// # Errors
    ///
    /// [`LayoutError`].
    fn ocp_address(&self, dma: u32, selector: Selector) -> Result<u64, LayoutError>;

    /// What it is set to.
    ///
    /// # Errors
    ///
    /// [`LayoutError`].
    fn ocp_value(&self, range_extension: bool, ocp_sat: bool, selector: Selector)
    -> Result<u32, LayoutError>;

    /// Address of a DMA engine's register for other conversions.
    ///
    /// # Errors
    ///
    /// [`LayoutError`].
    fn non_ocp_address(&self, dma: u32, selector: Selector) -> Result<u64, LayoutError>;

    /// What it is set to.
    ///
    /// # Errors
    ///
    /// [`LayoutError`].
    fn non_ocp_value(&self, sis: bool, sns: bool, selector: Selector) -> Result<u32, LayoutError>;
}

/// Control registers of PE, ACT, POOL and DVE in the core's window. Published.
const CONTROL: [u64; 4] = [0xF00, 0xF08, 0xF0C, 0xF04];
/// Register for largest exponents in the core's window. Published.
const EMAX: u64 = 0x32C;
/// Part of a DMA engine's window that holds its converters. Published.
const CONVERTERS: u64 = 0x2000;
/// Registers for OCP conversions in that part; that selector 0 is the lower one is made up.
const OCP: [u64; 2] = [0xC00, 0xC10];
/// Registers for other conversions in that part; likewise.
const NON_OCP: [u64; 2] = [0xC04, 0xC14];

/// Largest value of a 16-bit half of the register for largest exponents.
const EMAX_LIMIT: u32 = 0xFFFF;

/// A layout to work with where the hardware's own is not known. **Not the hardware's**: records made with it
/// are good for tests and tools, not for a device.
///
/// Published, in descriptions of the shipped libraries, and used here:
///
/// - offsets of the registers inside their windows, known for v4 alone. The same descriptions say that v2 and
///   v3 answer 0, which stands for "absent"; the reference text on FP8 says that v2 uses these registers
///   too. Hence `capable` is v4 alone unless changed
/// - 16 DMA engines a core, on v2 to v4
/// - bytes 0 to 12 of every record are header, events and mode
///
/// Made up:
///
/// - where windows start and how far those of two DMA engines are apart
/// - which of two registers selector 0 is
/// - every packing. Control: range extension, saturation, `sis`, `sns` from bit 0 up, the same for every engine.
///   Largest exponents: E4M3 in the low half, E5M2 in the high half. OCP: range extension in bit 0, saturation
///   in bit 1. Other conversions: `sis` in bit 0, `sns` in bit 1. The original hands the selector to the last
///   two packings; what it does there is unknown, and here it does nothing
/// - where records hold addresses and values
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssumedLayout {
    /// Architectures that have the registers.
    pub capable: Vec<NeuronArch>,
    /// DMA engines that serve one core.
    pub dma_engines: u32,
    /// Start of the core's window of registers.
    pub core_window: u64,
    /// Start of the first DMA engine's window.
    pub dma_window: u64,
    /// From one DMA engine's window to the next, in bytes.
    pub dma_window_bytes: u64,
    /// Where records hold addresses and values.
    pub fields: RecordFields,
}

impl Default for AssumedLayout {
    fn default() -> Self {
        Self {
            capable: vec![NeuronArch::V4],
            dma_engines: 16,
            core_window: 0,
            dma_window: 0x0100_0000,
            dma_window_bytes: 0x0001_0000,
            fields: RecordFields::default(),
        }
    }
}

impl AssumedLayout {
    fn converter(&self, dma: u32, register: u64) -> Result<u64, LayoutError> {
        let engine = u128::from(dma) * u128::from(self.dma_window_bytes);
        register_at(self.dma_window, engine + u128::from(CONVERTERS + register))
    }
}

fn register_at(base: u64, offset: u128) -> Result<u64, LayoutError> {
    u64::try_from(u128::from(base) + offset).map_err(|_| LayoutError::Address { base, offset })
}

fn packed(flags: &[bool]) -> u32 {
    flags
        .iter()
        .rev()
        .fold(0, |bits, &flag| bits << 1 | u32::from(flag))
}

impl RegisterLayout for AssumedLayout {
    fn is_capable(&self, arch: NeuronArch) -> bool {
        self.capable.contains(&arch)
    }

    fn dma_engines(&self, _: NeuronArch) -> u32 {
        self.dma_engines
    }

    fn record_fields(&self) -> RecordFields {
        self.fields
    }

    fn control_address(&self, engine: ComputeEngine) -> Result<u64, LayoutError> {
        register_at(self.core_window, CONTROL[engine as usize].into())
    }

    fn control_value(&self, _: ComputeEngine, flags: ControlFlags) -> Result<u32, LayoutError> {
        Ok(packed(&[
            flags.range_extension,
            flags.ocp_sat,
            flags.sis,
            flags.sns,
        ]))
    }

    fn emax_address(&self) -> Result<u64, LayoutError> {
        register_at(self.core_window, EMAX.into())
    }

    fn emax_value(&self, e4m3: u32, e5m2: u32) -> Result<u32, LayoutError> {
        for (field, value) in [("emax_fp8_e4m3", e4m3), ("emax_fp8_e5m2", e5m2)] {
            if value > EMAX_LIMIT {
                return Err(LayoutError::Emax {
                    field,
                    value,
                    limit: EMAX_LIMIT,
                });
            }
        }
        Ok(e4m3 | e5m2 << 16)
    }

    fn ocp_address(&self, dma: u32, selector: Selector) -> Result<u64, LayoutError> {
        self.converter(dma, OCP[selector as usize])
    }

    fn ocp_value(&self, range_extension: bool, ocp_sat: bool, _: Selector) -> Result<u32, LayoutError> {
        Ok(packed(&[range_extension, ocp_sat]))
    }

    fn non_ocp_address(&self, dma: u32, selector: Selector) -> Result<u64, LayoutError> {
        self.converter(dma, NON_OCP[selector as usize])
    }

    fn non_ocp_value(&self, sis: bool, sns: bool, _: Selector) -> Result<u32, LayoutError> {
        Ok(packed(&[sis, sns]))
    }
}
