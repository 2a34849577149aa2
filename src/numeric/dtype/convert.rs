//! The ways between the numberings. Every one goes through the table.

use super::numbering::{DtypeError, Numbering};
use super::table::{
    BasicDtype, ContainerDtype, IsaDtype, Kind, NrtDtype, ROWS, Row, Runtime, SdmaDtype, SeedNrtDtype, Source,
};

/// Both directions between instruction-word codes and one numbering of the runtime.
macro_rules! through_the_table {
    ($($numbering:ident, $kind:ident, $field:ident);* $(;)?) => {
        $(
            impl TryFrom<IsaDtype> for $numbering {
                type Error = DtypeError;

                fn try_from(dtype: IsaDtype) -> Result<Self, DtypeError> {
                    if dtype == IsaDtype::Invalid {
                        return Err(DtypeError::Invalid { numbering: Numbering::Isa });
                    }
                    let runtime = dtype.row().runtime.ok_or(DtypeError::NoEquivalent {
                        from: Numbering::Isa,
                        name: dtype.name(),
                        code: dtype.code(),
                        to: Numbering::$kind,
                    })?;
                    Ok(runtime.$field)
                }
            }

            impl TryFrom<$numbering> for IsaDtype {
                type Error = DtypeError;

                fn try_from(dtype: $numbering) -> Result<Self, DtypeError> {
                    if dtype == $numbering::Invalid {
                        return Err(DtypeError::Invalid { numbering: Numbering::$kind });
                    }
                    ROWS.iter()
                        .find(|row| row.runtime.is_some_and(|runtime| runtime.$field == dtype))
                        .map(|row| row.isa)
                        .ok_or(DtypeError::UnknownCode { numbering: Numbering::$kind, code: dtype.code() })
                }
            }
        )*
    };
}

through_the_table! {
    ContainerDtype, Container, container;
    NrtDtype, Nrt, nrt;
    SeedNrtDtype, SeedNrt, seed_nrt;
    SdmaDtype, Sdma, sdma;
    BasicDtype, Basic, basic;
}

impl TryFrom<ContainerDtype> for SdmaDtype {
    type Error = DtypeError;

    /// The translation that a DMA descriptor builder makes; INVALID is refused, as there.
    fn try_from(dtype: ContainerDtype) -> Result<Self, DtypeError> {
        IsaDtype::try_from(dtype)?.try_into()
    }
}

impl IsaDtype {
    /// Bytes of one element.
    ///
    /// # Errors
    ///
    /// [`DtypeError::Invalid`] for [`IsaDtype::Invalid`], [`DtypeError::SubByte`] for packed and compressed
    /// types.
    pub fn size_bytes(self) -> Result<usize, DtypeError> {
        let row = self.row();
        match (row.kind, row.bits) {
            (Kind::Nothing, _) => Err(DtypeError::Invalid {
                numbering: Numbering::Isa,
            }),
            (_, bits) if bits % 8 == 0 => Ok(usize::from(bits / 8)),
            (_, bits) => Err(DtypeError::SubByte {
                name: self.name(),
                code: self.code(),
                bits,
            }),
        }
    }

    /// Whether the code belongs to the compressed family: `code & 0xF8 == 0x18` and a width that is not 0.
    #[must_use]
    pub const fn is_cptc(self) -> bool {
        self.code() & 0xF8 == 0x18 && self.code() & 7 != 0
    }
}

impl ContainerDtype {
    /// Bytes of one element, by way of the DMA numbering as the runtime does it: its table of sizes is
    /// indexed by DMA codes, and indexing it with a container number gives a wrong size.
    ///
    /// # Errors
    ///
    /// [`DtypeError::Invalid`] for [`ContainerDtype::Invalid`].
    pub fn size_bytes(self) -> Result<usize, DtypeError> {
        IsaDtype::try_from(self)?.size_bytes()
    }
}

impl Row {
    /// Number in the container and where it comes from.
    #[must_use]
    pub fn container(&self) -> Option<(ContainerDtype, Source)> {
        self.runtime.map(
            |Runtime {
                 container,
                 container_source,
                 ..
             }| (container, container_source),
        )
    }
}
