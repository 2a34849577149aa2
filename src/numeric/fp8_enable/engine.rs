//! The engines of a core.

use std::fmt;

/// An engine by its number: PE 0, ACT 1, POOL 2, DVE 3, SP 4. Larger numbers are engines too, without a name
/// here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EngineType(pub u32);

impl EngineType {
    /// Matrix products.
    pub const PE: Self = Self(0);
    /// Activation functions.
    pub const ACT: Self = Self(1);
    /// Pooling.
    pub const POOL: Self = Self(2);
    /// Vectors.
    pub const DVE: Self = Self(3);
    /// Synchronisation; no conversions.
    pub const SP: Self = Self(4);

    /// The engine as one of the four that convert numbers, or `None` beyond them.
    #[must_use]
    pub const fn compute(self) -> Option<ComputeEngine> {
        match self.0 {
            0 => Some(ComputeEngine::Pe),
            1 => Some(ComputeEngine::Act),
            2 => Some(ComputeEngine::Pool),
            3 => Some(ComputeEngine::Dve),
            _ => None,
        }
    }
}

impl fmt::Display for EngineType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.pad("PE"),
            1 => f.pad("ACT"),
            2 => f.pad("POOL"),
            3 => f.pad("DVE"),
            4 => f.pad("SP"),
            number => write!(f, "engine {number}"),
        }
    }
}

/// The engines that convert numbers, and so have registers for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ComputeEngine {
    /// [`EngineType::PE`].
    Pe = 0,
    /// [`EngineType::ACT`].
    Act = 1,
    /// [`EngineType::POOL`].
    Pool = 2,
    /// [`EngineType::DVE`].
    Dve = 3,
}
