//! The one table of data types: every enum, conversion, page and test of this room is made from it.

use super::arch::NeuronArch;
use super::numbering::numbering;
use super::torch::ScalarType;

/// Where a value of the table comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// Stated by one of the two reference texts: on the custom-op wrapper (torch and ISA), and
    /// on FP8 and the record format (ISA, container, DMA).
    Seed,
    /// Read in AWS's public `nrt.h` or in a public description of the shipped headers and libraries.
    Public,
}

/// What the elements of a data type are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// No element: the code that every gate refuses.
    Nothing,
    /// Two's complement.
    Signed,
    /// Unsigned integer.
    Unsigned,
    /// Floating point with a sign.
    Float,
    /// Floating point without a sign that only scales a block of other elements.
    Scale,
    /// A compressed stream (computed permutation trellis coding): transport only, how it is decoded is not
    /// public.
    Compressed,
}

/// One data type under all its numbers.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The type in instruction words.
    pub isa: IsaDtype,
    /// What its elements are.
    pub kind: Kind,
    /// Width of an element in bits; 0 for [`IsaDtype::Invalid`].
    pub bits: u8,
    /// Where `bits` comes from.
    pub bits_source: Source,
    /// First architecture whose header names the code.
    pub since: NeuronArch,
    /// Where the code and its name come from.
    pub code_source: Source,
    /// Numbers of the runtime's layers; none for what only instruction words and descriptors hold.
    pub runtime: Option<Runtime>,
    /// The torch type to which the custom-op wrapper maps the code.
    pub torch: Option<ScalarType>,
    /// The text that stands for it in a container's JSON.
    pub json: Option<&'static str>,
}

/// The numbers of one data type in the layers of the runtime.
#[derive(Debug, Clone, Copy)]
pub struct Runtime {
    /// In the container.
    pub container: ContainerDtype,
    /// Where the container's number comes from.
    pub container_source: Source,
    /// In the public API, as AWS's header has it.
    pub nrt: NrtDtype,
    /// In the public API, as the reference text on FP8 has it.
    pub seed_nrt: SeedNrtDtype,
    /// In DMA descriptors.
    pub sdma: SdmaDtype,
    /// In pairs of 4-bit fields.
    pub basic: BasicDtype,
}

/// Doc line of a member that means what the instruction-word code of the same name means.
macro_rules! see {
    ($variant:ident) => {
        concat!("[`IsaDtype::", stringify!($variant), "`].")
    };
}

/// Makes the enums and [`ROWS`] of the table below. A row reads
///
/// `Variant = code "NAME", kind bits where-bits-are-from, first-architecture where-the-code-is-from,
/// runtime(container-number "NAME" where-from, "NAME in nrt.h"), torch(Type), json("text");`
///
/// where the last three may be absent.
macro_rules! dtype_table {
    ($(
        $(#[$doc:meta])*
        $variant:ident = $code:literal $name:literal, $kind:ident $bits:literal $bits_source:ident,
        $since:ident $code_source:ident
        $(, runtime($container:literal $container_name:literal $container_source:ident, $nrt_name:literal))?
        $(, torch($torch:ident))?
        $(, json($json:literal))?;
    )*) => {
        numbering! {
            /// Data type codes in instruction words (`NEURON_ISA_TPB_DTYPE`, one byte). A code keeps its
            /// meaning on every architecture; later ones add codes ([`NeuronArch`]).
            ///
            /// The name of an 8-bit float tells the width of its exponent: `FP8_EXP4` is E4M3. Codes 0x17,
            /// 0x18 and those above 0x1F are assigned in no source.
            IsaDtype, Isa { $($(#[$doc])* $variant = $code $name,)* }
        }
        numbering! {
            /// Data type numbers in a model container (`kbin_dtype`): dense, the 8-bit floats first.
            ContainerDtype, Container { $($(#[doc = see!($variant)] $variant = $container $container_name,)?)* }
        }
        numbering! {
            /// Data type numbers of the runtime's public API as AWS's `nrt.h` has them: those of instruction
            /// words.
            NrtDtype, Nrt { $($(#[doc = see!($variant)] $variant = $code $nrt_name,)?)* }
        }
        numbering! {
            /// Data type numbers of the runtime's public API as the text on FP8 has them: those of the
            /// container. AWS's public header contradicts that text. Both are kept, as types of their own, so
            /// that neither is taken for the other: see [`NrtDtype`].
            SeedNrtDtype, SeedNrt { $($(#[doc = see!($variant)] $variant = $container $container_name,)?)* }
        }
        numbering! {
            /// Data type numbers in DMA descriptors (`SDMA_DTYPE`): those of instruction words.
            SdmaDtype, Sdma { $($(#[doc = see!($variant)] $variant = $code $container_name,)?)* }
        }
        numbering! {
            /// The sixteen codes that fit a nibble (`NEURON_ISA_TPB_DTYPE_BASIC`), which the headers of v4
            /// and v5 define a second time with the same values: only these may stand in a pair of 4-bit
            /// fields.
            BasicDtype, Basic {
                $($(
                    #[doc = see!($variant)]
                    $variant = $code dtype_table!(@second $container, concat!("BASIC_", $name)),
                )?)*
            }
        }

        /// All data types in the order of their instruction-word codes.
        pub const ROWS: &[Row] = &[$(Row {
            isa: IsaDtype::$variant,
            kind: Kind::$kind,
            bits: $bits,
            bits_source: Source::$bits_source,
            since: NeuronArch::$since,
            code_source: Source::$code_source,
            runtime: dtype_table!(@option $(Runtime {
                container: ContainerDtype::$variant,
                container_source: Source::$container_source,
                nrt: NrtDtype::$variant,
                seed_nrt: SeedNrtDtype::$variant,
                sdma: SdmaDtype::$variant,
                basic: BasicDtype::$variant,
            })?),
            torch: dtype_table!(@option $(ScalarType::$torch)?),
            json: dtype_table!(@option $($json)?),
        }),*];
    };
    (@option) => { None };
    (@option $value:expr) => { Some($value) };
    (@second $first:expr, $second:expr) => { $second };
}

dtype_table! {
    /// No type. Hardware uses the code for bit vectors; every gate refuses it.
    Invalid = 0x00 "INVALID", Nothing 0 Seed, V1 Seed,
        runtime(0 "INVALID" Public, "NRT_DTYPE_INVALID");
    /// Unsigned 64-bit integer; legal only where an operation allows it.
    Uint64 = 0x01 "UINT64", Unsigned 64 Public, V2 Seed,
        runtime(11 "UINT64" Seed, "NRT_DTYPE_UINT64"), json("uint64");
    /// Signed 8-bit integer.
    Int8 = 0x02 "INT8", Signed 8 Seed, V2 Seed,
        runtime(12 "INT8" Public, "NRT_DTYPE_INT8"), torch(Char), json("int8");
    /// Unsigned 8-bit integer.
    Uint8 = 0x03 "UINT8", Unsigned 8 Seed, V1 Seed,
        runtime(8 "UINT8" Public, "NRT_DTYPE_UINT8"), torch(Byte), json("uint8");
    /// Signed 16-bit integer.
    Int16 = 0x04 "INT16", Signed 16 Seed, V2 Seed,
        runtime(13 "INT16" Public, "NRT_DTYPE_INT16"), torch(Short), json("int16");
    /// Unsigned 16-bit integer.
    Uint16 = 0x05 "UINT16", Unsigned 16 Seed, V1 Seed,
        runtime(9 "UINT16" Public, "NRT_DTYPE_UINT16"), json("uint16");
    /// bfloat16: 8 exponent bits, 7 fraction bits.
    Bfloat16 = 0x06 "BFLOAT16", Float 16 Seed, V1 Seed,
        runtime(7 "BF16" Public, "NRT_DTYPE_BFLOAT16"), torch(BFloat16), json("bfloat16");
    /// IEEE half: 5 exponent bits, 10 fraction bits.
    Fp16 = 0x07 "FP16", Float 16 Seed, V1 Seed,
        runtime(4 "FP16" Public, "NRT_DTYPE_FLOAT16"), torch(Half), json("float16");
    /// Signed 32-bit integer.
    Int32 = 0x08 "INT32", Signed 32 Seed, V1 Seed,
        runtime(14 "INT32" Public, "NRT_DTYPE_INT32"), torch(Int), json("int32");
    /// Unsigned 32-bit integer.
    Uint32 = 0x09 "UINT32", Unsigned 32 Public, V2 Seed,
        runtime(10 "UINT32" Public, "NRT_DTYPE_UINT32"), json("uint32");
    /// IEEE single.
    Fp32 = 0x0A "FP32", Float 32 Seed, V1 Seed,
        runtime(5 "FP32" Public, "NRT_DTYPE_FLOAT32"), torch(Float), json("float32");
    /// Partial single: stored as 4 bytes, rounded by the hardware in a way no source describes, so nothing
    /// here converts it. Legal only where an operation allows it.
    Fp32r = 0x0B "FP32R", Float 32 Public, V2 Seed,
        runtime(6 "FP32r" Seed, "NRT_DTYPE_FP32R"), json("float32r");
    /// Signed 64-bit integer; legal only where an operation allows it.
    Int64 = 0x0C "INT64", Signed 64 Seed, V1 Seed,
        runtime(15 "INT64" Public, "NRT_DTYPE_INT64"), torch(Long), json("int64");
    /// E3M4: 3 exponent bits, 4 fraction bits, bias 3.
    Fp8Exp3 = 0x0D "FP8_EXP3", Float 8 Seed, V2 Seed,
        runtime(1 "FP8_E3" Seed, "NRT_DTYPE_FP8_E3"), json("float8e3");
    /// E4M3: 4 exponent bits, 3 fraction bits, bias 7.
    Fp8Exp4 = 0x0E "FP8_EXP4", Float 8 Seed, V2 Seed,
        runtime(2 "FP8_E4" Seed, "NRT_DTYPE_FP8_E4"), json("float8e4");
    /// E5M2: 5 exponent bits, 2 fraction bits, bias 15.
    Fp8Exp5 = 0x0F "FP8_EXP5", Float 8 Seed, V2 Seed,
        runtime(3 "FP8_E5" Seed, "NRT_DTYPE_FP8_E5"), json("float8e5");
    /// E2M1: 2 exponent bits, 1 fraction bit, bias 1, two elements a byte.
    Fp4Exp2 = 0x10 "FP4_EXP2", Float 4 Public, V4 Seed;
    /// E2M5: 2 exponent bits, 5 fraction bits.
    Fp8Exp2 = 0x11 "FP8_EXP2", Float 8 Public, V5 Public;
    /// Signed 4-bit integer, two elements a byte.
    Int4 = 0x12 "INT4", Signed 4 Public, V5 Public;
    /// E8M0: a power of two.
    Sfp8E8 = 0x13 "SFP8_E8", Scale 8 Public, V5 Public;
    /// E7M1.
    Sfp8E7 = 0x14 "SFP8_E7", Scale 8 Public, V5 Public;
    /// E6M2.
    Sfp8E6 = 0x15 "SFP8_E6", Scale 8 Public, V5 Public;
    /// E5M3.
    Sfp8E5 = 0x16 "SFP8_E5", Scale 8 Public, V5 Public;
    /// 1 bit an element; the low three bits of a CPTC code are its width.
    Cptc1 = 0x19 "CPTC1", Compressed 1 Public, V4 Seed;
    /// 2 bits an element.
    Cptc2 = 0x1A "CPTC2", Compressed 2 Public, V4 Seed;
    /// 3 bits an element.
    Cptc3 = 0x1B "CPTC3", Compressed 3 Public, V4 Seed;
    /// 4 bits an element.
    Cptc4 = 0x1C "CPTC4", Compressed 4 Public, V4 Seed;
    /// 5 bits an element.
    Cptc5 = 0x1D "CPTC5", Compressed 5 Public, V4 Seed;
    /// 6 bits an element.
    Cptc6 = 0x1E "CPTC6", Compressed 6 Public, V4 Seed;
    /// 7 bits an element.
    Cptc7 = 0x1F "CPTC7", Compressed 7 Public, V4 Seed;
}

impl IsaDtype {
    /// The row of the table.
    #[must_use]
    pub fn row(self) -> &'static Row {
        // One row per member, in the order of `ALL`: both come from one expansion.
        &ROWS[Self::ALL
            .iter()
            .position(|&member| member == self)
            .unwrap_or_default()]
    }
}
