//! The page on data types, made from the table.

use std::fmt::Write as _;

use super::arch::NeuronArch;
use super::json::{ALIAS, PACKED_X4};
use super::table::{IsaDtype, Kind, ROWS, Row, Source};

/// The text of `docs/DTYPES.md`; a test holds the file to it, and `sensorium dtype --page` prints it.
#[must_use]
pub fn dtype_page() -> String {
    let mut text = String::from(INTRODUCTION);
    text.push_str(
        "\n| ISA code | name | bits | kind | header since | container | NRT (nrt.h) | NRT (text) | DMA | torch (custom op) | JSON |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in ROWS {
        push_row(&mut text, row);
    }
    text.push_str(NOTES);
    text.push_str("\n## What each header names\n\n| architecture | codes | which |\n|---|---|---|\n");
    for &arch in NeuronArch::ALL {
        let codes: Vec<u8> = arch.dtypes().map(IsaDtype::code).collect();
        let _ = writeln!(text, "| {arch} | {} | {} |", codes.len(), runs(&codes));
    }
    text.push_str("\n## Packed forms in JSON\n\n| text | four elements of | carried as |\n|---|---|---|\n");
    for packed in PACKED_X4 {
        let _ = writeln!(
            text,
            "| `{}` | {} | {} ({}) |",
            packed.json,
            packed.element,
            packed.carrier,
            packed.carrier.code()
        );
    }
    let _ = writeln!(
        text,
        "\n`{}` is a second name of {} ({}).",
        ALIAS.0,
        ALIAS.1,
        ALIAS.1.code()
    );
    text
}

const INTRODUCTION: &str = "\
# Data types and their numbers

Made from the table in `src/numeric/dtype/table.rs` (`sensorium dtype --page`); a test holds it to that.

One data type goes under several numbers, and none is a relabelling of another. Values marked ° come from public
descriptions (AWS's `nrt.h`, descriptions of the shipped headers and libraries); the others from the two reference
texts. A value that no source gives is not here, and asking for it is an error that names the code.
";

const NOTES: &str = "
- **header since** is the first architecture whose header names the code. It is no run-time gate: the custom-op
  wrapper takes INT8 and INT16 on v1, whose header does not name them.
- **torch** is filled for exactly the eight codes that the custom-op wrapper translates. It aborts on every other;
  here that is an error.
- **NRT** has two columns because the sources disagree: AWS's public header numbers like the instruction words, the
  text on FP8 says it numbers like the container. They are two types, `NrtDtype` and `SeedNrtDtype`.
- **DMA** numbers equal the instruction words', and so do those of the nibble-sized twin (`BasicDtype`) of v4 and v5.
- The low three bits of a CPTC code are its width. How the stream is decoded is not public.
- Codes 0x17, 0x18 and those above 0x1F are assigned in no source.
- FP32R is a single that the hardware rounds in a way no source describes: it has a name, a width and a gate, and no
  conversion.
";

fn push_row(text: &mut String, row: &Row) {
    let mark = |source: Source| match source {
        Source::Seed => "",
        Source::Public => "°",
    };
    let bits = match row.kind {
        Kind::Nothing => "–".to_owned(),
        _ => format!("{}{}", row.bits, mark(row.bits_source)),
    };
    let (container, nrt, seed_nrt, sdma) = match row.runtime {
        Some(runtime) => (
            format!(
                "{} {}{}",
                runtime.container.code(),
                runtime.container,
                mark(runtime.container_source)
            ),
            format!("{}°", runtime.nrt.code()),
            format!("{}{}", runtime.seed_nrt.code(), mark(runtime.container_source)),
            runtime.sdma.code().to_string(),
        ),
        None => ("–".into(), "–".into(), "–".into(), "–".into()),
    };
    let torch = row.torch.map_or("–".to_owned(), |torch| {
        format!(
            "{} {torch}",
            torch.ordinal(super::TorchList::Older).unwrap_or_default()
        )
    });
    let kind = match row.kind {
        Kind::Nothing => "–",
        Kind::Signed => "signed",
        Kind::Unsigned => "unsigned",
        Kind::Float => "float",
        Kind::Scale => "scale",
        Kind::Compressed => "compressed",
    };
    let json = row.json.map_or("–".to_owned(), |json| format!("`{json}`"));
    let _ = writeln!(
        text,
        "| {:#04x}{} | {} | {bits} | {kind} | {} | {container} | {nrt} | {seed_nrt} | {sdma} | {torch} | {json} |",
        row.isa.code(),
        mark(row.code_source),
        row.isa,
        row.since,
    );
}

/// `0, 3, 5–8` for the codes of a header.
fn runs(codes: &[u8]) -> String {
    codes
        .chunk_by(|a, b| a + 1 == *b)
        .map(|run| match run {
            [first, .., last] => format!("{first}–{last}"),
            [only] => only.to_string(),
            [] => String::new(),
        })
        .collect::<Vec<_>>()
        .join(", ")
}
