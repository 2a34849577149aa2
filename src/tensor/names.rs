//! Element types by the names that people write.

use super::DType;

/// Each type with its short names; the long one is what [`DType`] displays.
const NAMES: [(DType, &[&str]); 14] = [
    (DType::F32, &["fp32", "f32"]),
    (DType::Bf16, &["bf16"]),
    (DType::F16, &["fp16", "f16"]),
    (DType::U8, &["u8"]),
    (DType::I8, &["i8"]),
    (DType::U16, &["u16"]),
    (DType::I16, &["i16"]),
    (DType::I32, &["i32"]),
    (DType::U32, &["u32"]),
    (DType::I64, &["i64"]),
    (DType::U64, &["u64"]),
    (DType::F8E3M4, &["fp8_e3m4"]),
    (DType::F8E4M3, &["fp8_e4m3"]),
    (DType::F8E5M2, &["fp8_e5m2"]),
];

/// A name that no element type has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no element type is called {name:?}; there are {}", known())]
pub struct UnknownDType {
    /// The name.
    pub name: String,
}

impl DType {
    /// The type of a name such as `bfloat16` or `bf16`, in lower case.
    ///
    /// # Errors
    /// [`UnknownDType`], listing the names that exist.
    pub fn named(name: &str) -> Result<Self, UnknownDType> {
        NAMES
            .iter()
            .find(|(dtype, short)| short.contains(&name) || dtype.to_string() == name)
            .map(|&(dtype, _)| dtype)
            .ok_or_else(|| UnknownDType { name: name.into() })
    }
}

fn known() -> String {
    let names = NAMES
        .iter()
        .map(|(dtype, short)| format!("{dtype} ({})", short.join(", ")));
    names.collect::<Vec<_>>().join(", ")
}
