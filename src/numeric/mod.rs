//! Number formats and their exact conversions: plain functions on plain values.
//!
//! May be called by every room; calls none.

pub mod blockfloat;
mod dtype;
mod halves;

pub use dtype::{
    BasicDtype, ContainerDtype, DtypeError, IllegalDtype, IsaDtype, JsonDtype, Kind, LegalityStage,
    NeuronArch, NrtDtype, Numbering, PACKED_X4, PackedX4, ROWS, Row, Runtime, Scalar, ScalarType, SdmaDtype,
    SeedNrtDtype, Source, TorchList, WrapperError, check_dtype, check_dtype_64, check_dtype_inc_fp4,
    container_dtype_from_json, dtype_page, element_size, io_dtype_from_json, is_valid_dtype,
    is_valid_dtype_64, is_valid_dtype_inc_fp4, isa_to_torch, match_gate, scalar,
};
pub use halves::{bf16_to_f32, f16_to_f32, round_to_bf16, round_to_f16};
