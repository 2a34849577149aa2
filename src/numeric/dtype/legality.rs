//! Which data type codes an instruction may carry.
//!
//! Each gate is there twice, as in the deployed validator: a fast one that only says yes or no, and one that
//! names the stages that fail. No gate looks at the 8-bit floats: whether a core may use them is settled when
//! it is programmed for them, not per instruction.
//!
//! The compressed codes (CPTC, 0x19..0x1F) pass no gate, not even the one that knows FP4: their names exist
//! in the headers of v4 and v5, but the extended list that this gate consults admits FP4_EXP2 and nothing
//! beyond it, since CPTC streams are moved, never computed on.

use std::fmt;

use super::table::IsaDtype;

const INVALID: u8 = IsaDtype::Invalid.code();
const UINT64: u8 = IsaDtype::Uint64.code();
const FP32R: u8 = IsaDtype::Fp32r.code();
const INT64: u8 = IsaDtype::Int64.code();
const FP4: u8 = IsaDtype::Fp4Exp2.code();
const LAST_BASE: u8 = IsaDtype::Fp8Exp5.code();

/// The base gate: everything up to 15 but INVALID, UINT64, INT64, and FP32R unless the operation allows it.
///
/// INVALID and UINT64 are neighbours, so one comparison refuses both.
#[must_use]
pub const fn is_valid_dtype(code: u8, allow_fp32r: bool) -> bool {
    code > UINT64 && code != INT64 && (allow_fp32r || code != FP32R) && code <= LAST_BASE
}

/// The gate of operations that can work on 64-bit integers.
#[must_use]
pub const fn is_valid_dtype_64(code: u8, allow_fp32r: bool, allow_u64: bool, allow_i64: bool) -> bool {
    code != INVALID
        && (allow_u64 || code != UINT64)
        && (allow_i64 || code != INT64)
        && (allow_fp32r || code != FP32R)
        && code <= LAST_BASE
}

/// The gate of the newer architectures (v4): as the base gate, and FP4_EXP2 where the operation allows it.
#[must_use]
pub const fn is_valid_dtype_inc_fp4(code: u8, allow_fp32r: bool, allow_fp4: bool) -> bool {
    is_valid_dtype(code, allow_fp32r) || (allow_fp4 && code == FP4)
}

/// A stage of the diagnostic gates, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LegalityStage {
    /// The code is INVALID.
    Invalid,
    /// FP32R without permission.
    Fp32r,
    /// UINT64 without permission.
    Uint64,
    /// INT64 without permission.
    Int64,
    /// The code is no member of the list that the gate consults.
    Enum,
}

impl LegalityStage {
    /// The name that the deployed validator prints; it prints none for the last stage, whose name is ours.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "dtype_invalid_check",
            Self::Fp32r => "dtype_fp32r_illegal_check",
            Self::Uint64 => "dtype_uint64_illegal_check",
            Self::Int64 => "dtype_int64_illegal_check",
            Self::Enum => "dtype_enum_check",
        }
    }
}

impl fmt::Display for LegalityStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Refusal of a code, with the first stage that it fails. No code fails two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("data type code {code} ({code:#04x}{}) fails '{stage}'", name_of(*.code))]
pub struct IllegalDtype {
    /// The code.
    pub code: u8,
    /// The stage.
    pub stage: LegalityStage,
}

fn name_of(code: u8) -> String {
    IsaDtype::try_from(code).map_or_else(|_| String::new(), |dtype| format!(", {dtype}"))
}

/// [`is_valid_dtype`], telling the stage that fails.
///
/// # Errors
///
/// The refusal.
pub fn check_dtype(code: u8, allow_fp32r: bool) -> Result<(), IllegalDtype> {
    check(code, allow_fp32r, false, false, false)
}

/// [`is_valid_dtype_64`], telling the stage that fails.
///
/// # Errors
///
/// The refusal.
pub fn check_dtype_64(
    code: u8,
    allow_fp32r: bool,
    allow_u64: bool,
    allow_i64: bool,
) -> Result<(), IllegalDtype> {
    check(code, allow_fp32r, allow_u64, allow_i64, false)
}

/// [`is_valid_dtype_inc_fp4`], telling the stage that fails.
///
/// # Errors
///
/// The refusal.
pub fn check_dtype_inc_fp4(code: u8, allow_fp32r: bool, allow_fp4: bool) -> Result<(), IllegalDtype> {
    check(code, allow_fp32r, false, false, allow_fp4)
}

fn check(
    code: u8,
    allow_fp32r: bool,
    allow_u64: bool,
    allow_i64: bool,
    allow_fp4: bool,
) -> Result<(), IllegalDtype> {
    let stages = [
        (LegalityStage::Invalid, code != INVALID),
        (LegalityStage::Fp32r, allow_fp32r || code != FP32R),
        (LegalityStage::Uint64, allow_u64 || code != UINT64),
        (LegalityStage::Int64, allow_i64 || code != INT64),
        (
            LegalityStage::Enum,
            code <= LAST_BASE || (allow_fp4 && code == FP4),
        ),
    ];
    match stages.into_iter().find(|&(_, passes)| !passes) {
        Some((stage, _)) => Err(IllegalDtype { code, stage }),
        None => Ok(()),
    }
}
