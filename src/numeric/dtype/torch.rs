//! PyTorch's scalar types and their two numberings.

use std::fmt;

use super::numbering::{DtypeError, Numbering};

/// Which list of ordinals is meant. They agree on 0 to 17; the older list ends there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TorchList {
    /// The list of the c10 build that the custom-op library ships: 0 to 17, `Undefined` = 18.
    Older,
    /// The list of today's PyTorch (`torch/headeronly/core/ScalarType.h`): 0 to 46, `Undefined` = 47.
    Current,
}

macro_rules! scalar_types {
    ($($variant:ident = $ordinal:literal $name:literal),* $(,)?) => {
        /// PyTorch's `c10::ScalarType`. Two pages of the list carry one member, [`ScalarType::Undefined`],
        /// under two ordinals, so an ordinal is always read and told together with its [`TorchList`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum ScalarType {
            $(#[doc = concat!("`", $name, "`, ordinal ", stringify!($ordinal), ".")] $variant,)*
            /// No type: 18 in the older list, 47 in the current one.
            Undefined,
        }

        impl ScalarType {
            /// Every member, in the order of the ordinals.
            pub const ALL: &[Self] = &[$(Self::$variant,)* Self::Undefined];

            /// PyTorch's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Undefined => "Undefined",
                }
            }

            const fn current_ordinal(self) -> u8 {
                match self {
                    $(Self::$variant => $ordinal,)*
                    Self::Undefined => 47,
                }
            }
        }
    };
}

scalar_types! {
    Byte = 0 "Byte", Char = 1 "Char", Short = 2 "Short", Int = 3 "Int", Long = 4 "Long", Half = 5 "Half",
    Float = 6 "Float", Double = 7 "Double", ComplexHalf = 8 "ComplexHalf", ComplexFloat = 9 "ComplexFloat",
    ComplexDouble = 10 "ComplexDouble", Bool = 11 "Bool", QInt8 = 12 "QInt8", QUInt8 = 13 "QUInt8",
    QInt32 = 14 "QInt32", BFloat16 = 15 "BFloat16", QUInt4x2 = 16 "QUInt4x2", QUInt2x4 = 17 "QUInt2x4",
    Bits1x8 = 18 "Bits1x8", Bits2x4 = 19 "Bits2x4", Bits4x2 = 20 "Bits4x2", Bits8 = 21 "Bits8",
    Bits16 = 22 "Bits16", Float8E5m2 = 23 "Float8_e5m2", Float8E4m3fn = 24 "Float8_e4m3fn",
    Float8E5m2fnuz = 25 "Float8_e5m2fnuz", Float8E4m3fnuz = 26 "Float8_e4m3fnuz", UInt16 = 27 "UInt16",
    UInt32 = 28 "UInt32", UInt64 = 29 "UInt64", UInt1 = 30 "UInt1", UInt2 = 31 "UInt2", UInt3 = 32 "UInt3",
    UInt4 = 33 "UInt4", UInt5 = 34 "UInt5", UInt6 = 35 "UInt6", UInt7 = 36 "UInt7", Int1 = 37 "Int1",
    Int2 = 38 "Int2", Int3 = 39 "Int3", Int4 = 40 "Int4", Int5 = 41 "Int5", Int6 = 42 "Int6", Int7 = 43 "Int7",
    Float8E8m0fnu = 44 "Float8_e8m0fnu", Float4E2m1fnX2 = 45 "Float4_e2m1fn_x2",
    Float8E8m0fnuX4 = 46 "Float8_e8m0fnu_x4",
}

impl ScalarType {
    /// The ordinal in a list, or `None` where the list has no such type.
    #[must_use]
    pub const fn ordinal(self, list: TorchList) -> Option<u8> {
        match (list, self) {
            (TorchList::Current, _) => Some(self.current_ordinal()),
            (TorchList::Older, Self::Undefined) => Some(18),
            (TorchList::Older, _) if self.current_ordinal() <= 17 => Some(self.current_ordinal()),
            (TorchList::Older, _) => None,
        }
    }

    /// The type of an ordinal.
    ///
    /// # Errors
    ///
    /// [`DtypeError::UnknownCode`] for an ordinal beyond the list.
    pub fn from_ordinal(list: TorchList, ordinal: u8) -> Result<Self, DtypeError> {
        Self::ALL
            .iter()
            .copied()
            .find(|member| member.ordinal(list) == Some(ordinal))
            .ok_or(DtypeError::UnknownCode {
                numbering: Numbering::Torch,
                code: ordinal,
            })
    }
}

impl fmt::Display for ScalarType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
