//! What every numbering of the table has: codes, names, checked reading.

use std::fmt;

/// The numberings in use, for errors and tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Numbering {
    /// Instruction words: [`IsaDtype`](super::IsaDtype).
    Isa,
    /// Model container: [`ContainerDtype`](super::ContainerDtype).
    Container,
    /// Public API, as AWS's header has it: [`NrtDtype`](super::NrtDtype).
    Nrt,
    /// Public API, as the reference text on FP8 has it: [`SeedNrtDtype`](super::SeedNrtDtype).
    SeedNrt,
    /// DMA descriptors: [`SdmaDtype`](super::SdmaDtype).
    Sdma,
    /// The nibble-sized subset: [`BasicDtype`](super::BasicDtype).
    Basic,
    /// PyTorch's scalar types: [`ScalarType`](super::ScalarType).
    Torch,
}

impl fmt::Display for Numbering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Isa => "instruction-word (ISA)",
            Self::Container => "container (KBIN)",
            Self::Nrt => "NRT (nrt.h)",
            Self::SeedNrt => "NRT (as the text on FP8 has it)",
            Self::Sdma => "DMA (SDMA)",
            Self::Basic => "basic (nibble)",
            Self::Torch => "torch",
        })
    }
}

/// Why a data type cannot be read or converted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DtypeError {
    /// No source assigns the code in this numbering.
    #[error("{numbering} data type code {code} ({code:#04x}) is not assigned in any source")]
    UnknownCode {
        /// Which numbering was read.
        numbering: Numbering,
        /// The code.
        code: u8,
    },
    /// The type exists in one numbering only.
    #[error("{name} (code {code:#04x} of the {from} numbering) has no code in the {to} numbering")]
    NoEquivalent {
        /// Numbering of the type.
        from: Numbering,
        /// Name in `from`.
        name: &'static str,
        /// Code in `from`.
        code: u8,
        /// Numbering in which it was looked up.
        to: Numbering,
    },
    /// The code that stands for no type was to be converted or sized.
    #[error("code 0 of the {numbering} numbering is INVALID: it has no element and no equivalent")]
    Invalid {
        /// Which numbering was read.
        numbering: Numbering,
    },
    /// Elements are packed below the byte.
    #[error("{name} (ISA code {code:#04x}) has {bits}-bit elements: a size in whole bytes does not exist")]
    SubByte {
        /// Name of the type.
        name: &'static str,
        /// Its code.
        code: u8,
        /// Width of an element.
        bits: u8,
    },
    /// A text names no data type.
    #[error("'{text}' names no data type of {set}; known: {known}")]
    UnknownName {
        /// What was read, cut to 64 characters.
        text: String,
        /// Which set of names was searched.
        set: &'static str,
        /// The names of that set.
        known: String,
    },
}

/// Defines one numbering: the enum, its codes and names, reading a code, and the way to the table and back.
macro_rules! numbering {
    ($(#[$meta:meta])* $enum:ident, $kind:ident {
        $($(#[$doc:meta])* $variant:ident = $code:literal $name:expr),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $enum {
            $($(#[$doc])* $variant = $code,)*
        }

        impl $enum {
            /// Every member, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The number.
            #[must_use]
            pub const fn code(self) -> u8 {
                self as u8
            }

            /// The name in this numbering's own spelling.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }

        impl TryFrom<u8> for $enum {
            type Error = $crate::numeric::DtypeError;

            fn try_from(code: u8) -> Result<Self, Self::Error> {
                Self::ALL
                    .iter()
                    .copied()
                    .find(|member| member.code() == code)
                    .ok_or($crate::numeric::DtypeError::UnknownCode {
                        numbering: $crate::numeric::Numbering::$kind,
                        code,
                    })
            }
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}
pub(super) use numbering;
