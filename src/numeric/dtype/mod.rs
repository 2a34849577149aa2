//! The numbers under which one data type goes: torch, instruction words, containers, public API, DMA.
//!
//! [`ROWS`] is the one table; the enums, their conversions, the page `docs/DTYPES.md` and the tests are made
//! from it. A number that no source gives is an error that names the code, never a guess.

mod arch;
mod convert;
mod json;
mod legality;
mod numbering;
mod page;
mod table;
mod torch;
mod wrapper;

#[cfg(test)]
mod tests;

pub use arch::NeuronArch;
pub use json::{JsonDtype, PACKED_X4, PackedX4, container_dtype_from_json, io_dtype_from_json};
pub use legality::{
    IllegalDtype, LegalityStage, check_dtype, check_dtype_64, check_dtype_inc_fp4, is_valid_dtype,
    is_valid_dtype_64, is_valid_dtype_inc_fp4,
};
pub use numbering::{DtypeError, Numbering};
pub use page::dtype_page;
pub use table::{
    BasicDtype, ContainerDtype, IsaDtype, Kind, NrtDtype, ROWS, Row, Runtime, SdmaDtype, SeedNrtDtype, Source,
};
pub use torch::{ScalarType, TorchList};
pub use wrapper::{Scalar, WrapperError, element_size, isa_to_torch, match_gate, scalar};
