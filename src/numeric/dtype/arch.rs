//! Which architecture's header names which code.

use std::fmt;

use super::table::{IsaDtype, ROWS};

/// NeuronCore architectures by the version of their instruction set.
///
/// Their sets of data types grow: v1 has 8 codes, v2 and v3 have 16, v4 has 24, v5 has 30 (the counts are
/// those of the shipped headers; the codes of v4 beyond [`IsaDtype::Fp4Exp2`] and the CPTC family, and all
/// that v5 adds, are known from public descriptions of those headers).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NeuronArch {
    /// Tonga.
    V1,
    /// Sunda.
    V2,
    /// Cayman.
    V3,
    /// Mariana.
    V4,
    /// Maverick.
    V5,
}

impl NeuronArch {
    /// Every architecture, oldest first.
    pub const ALL: &[Self] = &[Self::V1, Self::V2, Self::V3, Self::V4, Self::V5];

    /// Whether the header of this architecture names the code.
    ///
    /// This is a fact about headers. It is no run-time gate of the custom-op wrapper, which is built against
    /// a later header and accepts INT8 and INT16 on v1 too ([`isa_to_torch`](super::isa_to_torch)).
    #[must_use]
    pub fn names(self, dtype: IsaDtype) -> bool {
        ROWS.iter().any(|row| row.isa == dtype && row.since <= self)
    }

    /// The codes that its header names, in the order of their values.
    pub fn dtypes(self) -> impl Iterator<Item = IsaDtype> {
        ROWS.iter()
            .filter(move |row| row.since <= self)
            .map(|row| row.isa)
    }
}

impl fmt::Display for NeuronArch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
            Self::V3 => "v3",
            Self::V4 => "v4",
            Self::V5 => "v5",
        })
    }
}
