//! The storage of a descriptor: where its elements lie.

use std::fmt;

/// In which memory the elements lie (`NEURON_ISA_TPB_CUSTOM_OP_ARG_LOCATION`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ArgLocation {
    /// Nowhere.
    Invalid = 0,
    /// The core's state buffer.
    Sbuf = 1,
    /// The device's memory.
    Hbm = 2,
}

impl ArgLocation {
    /// Every member, in the order of the codes.
    pub const ALL: &[Self] = &[Self::Invalid, Self::Sbuf, Self::Hbm];

    /// The code in the descriptor.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The member of a code, if there is one.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|member| member.code() == code)
    }

    /// The name in the header.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "INVALID",
            Self::Sbuf => "SBUF",
            Self::Hbm => "HBM",
        }
    }
}

impl fmt::Display for ArgLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Elements in the state buffer.
///
/// How partitions, blocks and elements must fit each other is in no source; nothing here relates them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SbufStorage {
    /// Address inside the state buffer's window; the wrapper adds the window's start.
    pub address: u32,
    /// Number of elements.
    pub elements: u32,
    /// Number of partitions.
    pub partitions: u8,
    /// Kept as read.
    pub reserved: [u8; 3],
    /// Elements of one block.
    pub elements_per_block: u32,
}

/// Elements in the device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HbmStorage {
    /// Address as the whole chip sees it.
    pub address: u64,
    /// Number of elements.
    pub elements: u32,
    /// Kept as read.
    pub reserved: u32,
}

/// The 16 bytes of the storage union, read by their [`ArgLocation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TensorStorage {
    /// No location says how to read them: kept as they stand.
    Invalid([u8; 16]),
    /// In the state buffer.
    Sbuf(SbufStorage),
    /// In the device's memory.
    Hbm(HbmStorage),
}

impl TensorStorage {
    /// In which memory the elements lie.
    #[must_use]
    pub const fn location(&self) -> ArgLocation {
        match self {
            Self::Invalid(_) => ArgLocation::Invalid,
            Self::Sbuf(_) => ArgLocation::Sbuf,
            Self::Hbm(_) => ArgLocation::Hbm,
        }
    }

    /// Number of elements, or `None` without a location.
    #[must_use]
    pub const fn elements(&self) -> Option<u32> {
        match self {
            Self::Invalid(_) => None,
            Self::Sbuf(sbuf) => Some(sbuf.elements),
            Self::Hbm(hbm) => Some(hbm.elements),
        }
    }

    pub(super) fn parse(location: ArgLocation, bytes: [u8; 16]) -> Self {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        match location {
            ArgLocation::Invalid => Self::Invalid(bytes),
            ArgLocation::Sbuf => Self::Sbuf(SbufStorage {
                address: word(0),
                elements: word(4),
                partitions: bytes[8],
                reserved: [bytes[9], bytes[10], bytes[11]],
                elements_per_block: word(12),
            }),
            ArgLocation::Hbm => Self::Hbm(HbmStorage {
                address: u64::from(word(0)) | u64::from(word(4)) << 32,
                elements: word(8),
                reserved: word(12),
            }),
        }
    }

    pub(super) fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        match self {
            Self::Invalid(raw) => bytes = raw,
            Self::Sbuf(sbuf) => {
                bytes[0..4].copy_from_slice(&sbuf.address.to_le_bytes());
                bytes[4..8].copy_from_slice(&sbuf.elements.to_le_bytes());
                bytes[8] = sbuf.partitions;
                bytes[9..12].copy_from_slice(&sbuf.reserved);
                bytes[12..16].copy_from_slice(&sbuf.elements_per_block.to_le_bytes());
            }
            Self::Hbm(hbm) => {
                bytes[0..8].copy_from_slice(&hbm.address.to_le_bytes());
                bytes[8..12].copy_from_slice(&hbm.elements.to_le_bytes());
                bytes[12..16].copy_from_slice(&hbm.reserved.to_le_bytes());
            }
        }
        bytes
    }
}
