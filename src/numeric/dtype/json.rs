//! The texts that stand for data types in a model's JSON.
//!
//! Two readers exist in the deployed runtime and they know different sets. Both take an unknown text for
//! "unknown, one byte an element"; here it is an error that lists the known ones.

use super::numbering::DtypeError;
use super::table::{ContainerDtype, IsaDtype, NrtDtype, ROWS};

/// What a text in a container's JSON stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonDtype {
    /// The type that the container holds.
    pub container: ContainerDtype,
    /// The elements that hide in an integer of the container, where the text names a packed form. The
    /// container's number alone does not tell, so whoever needs it must keep it.
    pub packed: Option<&'static PackedX4>,
}

/// Four small floats in one unsigned integer, the first in the low bits.
#[derive(Debug, PartialEq, Eq)]
pub struct PackedX4 {
    /// Text in JSON.
    pub json: &'static str,
    /// The four elements.
    pub element: IsaDtype,
    /// The integer that carries them.
    pub carrier: ContainerDtype,
}

/// Every packed form.
pub const PACKED_X4: &[PackedX4] = &[
    PackedX4 {
        json: "float8_e4m3fn_x4",
        element: IsaDtype::Fp8Exp4,
        carrier: ContainerDtype::Uint32,
    },
    PackedX4 {
        json: "float8_e5m2_x4",
        element: IsaDtype::Fp8Exp5,
        carrier: ContainerDtype::Uint32,
    },
    PackedX4 {
        json: "float4_e2m1fn_x4",
        element: IsaDtype::Fp4Exp2,
        carrier: ContainerDtype::Uint16,
    },
];

/// The one second name: E4M3 without infinities.
pub(super) const ALIAS: (&str, ContainerDtype) = ("float8_e4m3fn", ContainerDtype::Fp8Exp4);

/// Reads a data type of a container's JSON (`def.json`): 15 names, one alias, three packed forms.
///
/// An unpacked `float8_e5m2` or `float4_e2m1fn` is not among them; E5M2 is written `float8e5`.
///
/// # Errors
///
/// [`DtypeError::UnknownName`] with the 19 known texts.
pub fn container_dtype_from_json(text: &str) -> Result<JsonDtype, DtypeError> {
    if let Some(packed) = PACKED_X4.iter().find(|packed| packed.json == text) {
        return Ok(JsonDtype {
            container: packed.carrier,
            packed: Some(packed),
        });
    }
    let named = ROWS
        .iter()
        .filter_map(|row| Some((row.json?, row.runtime?.container)))
        .chain([ALIAS])
        .find(|&(name, _)| name == text);
    match named {
        Some((_, container)) => Ok(JsonDtype {
            container,
            packed: None,
        }),
        None => Err(unknown(
            text,
            "a container's JSON",
            ROWS.iter()
                .filter_map(|row| row.json)
                .chain([ALIAS.0])
                .chain(PACKED_X4.iter().map(|packed| packed.json)),
        )),
    }
}

/// Reads the data type of a model's input or output: integers, bfloat16, float16 and float32 only. The 8-bit
/// floats have numbers in the public API but no text here.
///
/// # Errors
///
/// [`DtypeError::UnknownName`] with the 11 known texts.
pub fn io_dtype_from_json(text: &str) -> Result<NrtDtype, DtypeError> {
    let known = || {
        ROWS.iter()
            .filter(|row| row.bits >= 8 && !row.isa.name().starts_with("FP8") && row.isa != IsaDtype::Fp32r)
            .filter_map(|row| Some((row.json?, row.runtime?.nrt)))
    };
    known()
        .find(|&(name, _)| name == text)
        .map(|(_, dtype)| dtype)
        .ok_or_else(|| {
            unknown(
                text,
                "a model's inputs and outputs",
                known().map(|(name, _)| name),
            )
        })
}

fn unknown(text: &str, set: &'static str, known: impl Iterator<Item = &'static str>) -> DtypeError {
    DtypeError::UnknownName {
        text: text.chars().take(64).collect(),
        set,
        known: known.collect::<Vec<_>>().join(", "),
    }
}
