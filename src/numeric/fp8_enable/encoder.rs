//! From policy to records.

use super::config::Fp8ConvConfig;
use super::engine::{ComputeEngine, EngineType};
use super::layout::{LayoutError, RegisterLayout, Selector};
use super::records::PreambleRecord;
use crate::numeric::NeuronArch;

/// Most DMA engines that a core may have by the published headers.
const MAX_DMA_ENGINES: u32 = 32;

/// Selectors in the order in which their registers are written.
const SELECTORS: [Selector; 2] = [Selector::One, Selector::Zero];

/// Why there is no list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fp8EnableError {
    /// The architecture cannot be set up for 8-bit floats.
    #[error(
        "architecture {arch} has no registers for conversions of 8-bit floats: the model cannot be loaded"
    )]
    NotCapable {
        /// The architecture.
        arch: NeuronArch,
    },
    /// The layout names more DMA engines than there can be.
    #[error("{dma_engines} DMA engines for one core; there can be at most {MAX_DMA_ENGINES}")]
    TooManyDmaEngines {
        /// How many it names.
        dma_engines: u32,
    },
    /// The layout has no answer.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// What is to be put before a model's instructions on one engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preamble {
    /// Nothing: the engine converts no numbers.
    NotNeeded {
        /// Which engine.
        engine: EngineType,
    },
    /// These records, in this order.
    Records(Vec<PreambleRecord>),
}

impl Preamble {
    /// The records; none where none are needed.
    #[must_use]
    pub fn records(&self) -> &[PreambleRecord] {
        match self {
            Self::NotNeeded { .. } => &[],
            Self::Records(records) => records,
        }
    }

    /// The records' bytes, one after the other.
    #[must_use]
    pub fn to_bytes(&self, layout: &dyn RegisterLayout) -> Vec<u8> {
        let fields = layout.record_fields();
        self.records()
            .iter()
            .flat_map(|record| record.to_bytes(&fields))
            .collect()
    }
}

/// The records that set one engine up for 8-bit floats.
///
/// 1. An architecture without the registers is refused, before anything is asked about the engine.
/// 2. Engines beyond the four that convert numbers need nothing.
/// 3. The engine's control register is written.
/// 4. DVE: the register for largest exponents is written.
/// 5. PE: for every DMA engine four registers are written: OCP conversions with selector 1, then 0, then the
///    other conversions with selector 1, then 0.
/// 6. After all writes the control register is read back, and on DVE the register for largest exponents too.
///    The DMA engines' registers are not.
///
/// # Errors
///
/// [`Fp8EnableError`].
pub fn fp8_preamble(
    arch: NeuronArch,
    engine: EngineType,
    config: &Fp8ConvConfig,
    layout: &dyn RegisterLayout,
) -> Result<Preamble, Fp8EnableError> {
    if !layout.is_capable(arch) {
        return Err(Fp8EnableError::NotCapable { arch });
    }
    let Some(compute) = engine.compute() else {
        return Ok(Preamble::NotNeeded { engine });
    };
    let control = layout.control_address(compute)?;
    let mut records = vec![PreambleRecord::Write {
        address: control,
        value: layout.control_value(compute, config.into())?,
    }];
    let mut fences = vec![PreambleRecord::DummyRead { address: control }];
    match compute {
        ComputeEngine::Dve => {
            let address = layout.emax_address()?;
            let value = layout.emax_value(config.emax_fp8_e4m3, config.emax_fp8_e5m2)?;
            records.push(PreambleRecord::Write { address, value });
            fences.push(PreambleRecord::DummyRead { address });
        }
        ComputeEngine::Pe => {
            let dma_engines = layout.dma_engines(arch);
            if dma_engines > MAX_DMA_ENGINES {
                return Err(Fp8EnableError::TooManyDmaEngines { dma_engines });
            }
            for dma in 0..dma_engines {
                for selector in SELECTORS {
                    records.push(PreambleRecord::Write {
                        address: layout.ocp_address(dma, selector)?,
                        value: layout.ocp_value(config.fp8_range_extension, config.ocp_sat, selector)?,
                    });
                }
                for selector in SELECTORS {
                    records.push(PreambleRecord::Write {
                        address: layout.non_ocp_address(dma, selector)?,
                        value: layout.non_ocp_value(config.sis, config.sns, selector)?,
                    });
                }
            }
        }
        ComputeEngine::Act | ComputeEngine::Pool => {}
    }
    records.append(&mut fences);
    Ok(Preamble::Records(records))
}
