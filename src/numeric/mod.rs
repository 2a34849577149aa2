//! Number formats and their exact conversions: plain functions on plain values.
//!
//! May be called by every room; calls none.

pub mod blockfloat;
mod descriptor;
mod dtype;
mod fp8_enable;
mod halves;
mod isa;
mod length;
mod minifloat;
mod simd_chunks;
mod simd_halves;

pub use descriptor::{
    ARG_TENSOR_BYTES, ArgLocation, ArgTensor, ArgTensorError, BuildError, FrameworkShape, HbmStorage,
    InlineForm, MAX_ARGUMENTS, MaterialiseError, SbufStorage, ShapeType, TensorStorage, TensorView,
    UTENSOR_BYTES, UTensor, parse_arguments,
};
pub use dtype::{
    BasicDtype, ContainerDtype, DtypeError, IllegalDtype, IsaDtype, JsonDtype, Kind, LegalityStage,
    NeuronArch, NrtDtype, Numbering, PACKED_X4, PackedX4, ROWS, Row, Runtime, Scalar, ScalarType, SdmaDtype,
    SeedNrtDtype, Source, TorchList, WrapperError, check_dtype, check_dtype_64, check_dtype_inc_fp4,
    container_dtype_from_json, dtype_page, element_size, io_dtype_from_json, is_valid_dtype,
    is_valid_dtype_64, is_valid_dtype_inc_fp4, isa_to_torch, match_gate, scalar,
};
pub use fp8_enable::{
    AssumedLayout, ComputeEngine, ControlFlags, EngineType, FP8_CONV_CONFIG_BYTES, Fp8ConfigError,
    Fp8ConvConfig, Fp8EnableError, LayoutError, Preamble, PreambleRecord, RECORD_BYTES, RecordFieldError,
    RecordFields, RegisterLayout, Selector, fp8_preamble,
};
pub use halves::{
    bf16_decode_into, bf16_encode_into, bf16_to_f32, f16_decode_into, f16_encode_into, f16_to_f32,
    round_to_bf16, round_to_f16,
};
pub use isa::Isa;
pub use length::LengthError;
pub use minifloat::{
    Fp8Fields, Fp8Format, Fp8Knobs, Fp8Policy, Fp8PolicyError, UnknownFp8Format, fp4_decode, fp4_decode_into,
    fp4_encode, fp4_encode_into, fp4_packed_bytes, fp8_decode, fp8_decode_into, fp8_encode, fp8_encode_into,
    fp8_fields,
};
