//! `sensorium dtype`: data types under all their numbers, and single values taken apart.

mod value;

use std::process::ExitCode;

use clap::ArgGroup;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};
use miette::{Diagnostic, IntoDiagnostic};
use serde::Serialize;

use super::pipeline_args::Format;
use super::report;
use crate::numeric::{
    DtypeError, Fp8Policy, Fp8PolicyError, IsaDtype, Kind, ROWS, Row, Source, TorchList, dtype_page,
};
use value::{ValueError, ValueView};

/// Shows data types under all their numbers, or one value of a type.
///
/// Without options: the sixteen base codes of instruction words with their torch types as the custom-op wrapper
/// maps them (`absent` where it aborts), and their numbers in containers, the public API and DMA descriptors.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("what").args(["all", "page", "isa"]))]
#[command(after_help = "Examples:
  sensorium dtype
  sensorium dtype --all
  sensorium dtype --isa 0xE --value 0x7e --policy ocp
  sensorium dtype --isa 6 --value 0x3fc0")]
pub(super) struct Args {
    /// Shows the codes beyond 15 too.
    #[arg(long)]
    all: bool,
    /// Prints docs/DTYPES.md.
    #[arg(long)]
    page: bool,
    /// One data type: its code in instruction words, decimal or 0x.., or its name, such as FP8_EXP4.
    #[arg(long, value_name = "CODE")]
    isa: Option<String>,
    /// Bits of one value to take apart: decimal, 0x.. or 0b...
    #[arg(long, value_name = "BITS", requires = "isa")]
    value: Option<String>,
    /// How 8-bit floats treat their largest codes: ieee, ocp, ocp-nonsat or extended.
    #[arg(long, value_name = "NAME", requires = "value", default_value_t)]
    policy: Policy,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// An FP8 policy by name.
#[derive(Debug, Clone, Default)]
struct Policy(Fp8Policy);

impl std::str::FromStr for Policy {
    type Err = Fp8PolicyError;

    fn from_str(name: &str) -> Result<Self, Fp8PolicyError> {
        name.parse().map(Self)
    }
}

impl std::fmt::Display for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Debug, thiserror::Error, Diagnostic)]
enum DtypeCommandError {
    #[error("'{text}' is no data type code")]
    #[diagnostic(help(
        "Give 0 to 31 (decimal or 0x..), or a name: `sensorium dtype --all` lists them. Codes 23 and 24 are assigned \
         in no source."
    ))]
    Code {
        text: String,
        #[source]
        cause: Option<DtypeError>,
    },
    #[error("'{text}' is no bit pattern")]
    #[diagnostic(help("Give the bits as 0x7e, 126 or 0b01111110."))]
    Bits { text: String },
    #[error(transparent)]
    #[diagnostic(help("`sensorium dtype --all` shows each type's width."))]
    Value(#[from] ValueError),
}

/// Runs the command.
///
/// # Errors
/// An unknown code, a value that does not fit it, or a type whose values no source describes.
pub(super) fn run(args: Args) -> miette::Result<ExitCode> {
    let text = match (&args.isa, &args.value) {
        (Some(isa), Some(bits)) => {
            let (dtype, bits) = (parse_dtype(isa)?, parse_bits(bits)?);
            let view = ValueView::new(dtype, bits, &args.policy.0).map_err(DtypeCommandError::from)?;
            match args.format {
                Format::Text => view.text(),
                Format::Json => serde_json::to_string_pretty(&view).into_diagnostic()?,
            }
        }
        (Some(isa), None) => {
            let dtype = parse_dtype(isa)?;
            rows(ROWS.iter().filter(|row| row.isa == dtype), args.format)?
        }
        _ if args.page => dtype_page(),
        _ => rows(
            ROWS.iter().filter(|row| args.all || row.runtime.is_some()),
            args.format,
        )?,
    };
    report::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn parse_dtype(text: &str) -> Result<IsaDtype, DtypeCommandError> {
    if let Some(&named) = IsaDtype::ALL
        .iter()
        .find(|dtype| dtype.name().eq_ignore_ascii_case(text))
    {
        return Ok(named);
    }
    let refused = |cause| DtypeCommandError::Code {
        text: text.into(),
        cause,
    };
    let code = parse_number(text)
        .and_then(|code| u8::try_from(code).ok())
        .ok_or_else(|| refused(None))?;
    IsaDtype::try_from(code).map_err(|cause| refused(Some(cause)))
}

fn parse_bits(text: &str) -> Result<u64, DtypeCommandError> {
    parse_number(text).ok_or_else(|| DtypeCommandError::Bits { text: text.into() })
}

/// A number as a person writes it: decimal, `0x` or `0b`, with underscores between digits.
fn parse_number(text: &str) -> Option<u64> {
    let text = text.trim().replace('_', "").to_ascii_lowercase();
    let (digits, radix) = match (text.strip_prefix("0x"), text.strip_prefix("0b")) {
        (Some(digits), _) => (digits, 16),
        (_, Some(digits)) => (digits, 2),
        _ => (&*text, 10),
    };
    // A second sign, which `from_str_radix` would take, is not part of a bit pattern.
    let plain = digits.starts_with(|first: char| first.is_ascii_alphanumeric());
    plain.then(|| u64::from_str_radix(digits, radix).ok()).flatten()
}

/// A row for programs.
#[derive(Debug, Serialize)]
struct RowView {
    isa: u8,
    name: &'static str,
    bits: u8,
    torch: Option<&'static str>,
    torch_ordinal: Option<u8>,
    container: Option<u8>,
    nrt: Option<u8>,
    seed_nrt: Option<u8>,
    sdma: Option<u8>,
    json: Option<&'static str>,
    header_since: String,
}

impl From<&Row> for RowView {
    fn from(row: &Row) -> Self {
        Self {
            isa: row.isa.code(),
            name: row.isa.name(),
            bits: row.bits,
            torch: row.torch.map(|torch| torch.name()),
            torch_ordinal: row.torch.and_then(|torch| torch.ordinal(TorchList::Older)),
            container: row.runtime.map(|runtime| runtime.container.code()),
            nrt: row.runtime.map(|runtime| runtime.nrt.code()),
            seed_nrt: row.runtime.map(|runtime| runtime.seed_nrt.code()),
            sdma: row.runtime.map(|runtime| runtime.sdma.code()),
            json: row.json,
            header_since: row.since.to_string(),
        }
    }
}

fn rows<'a>(rows: impl Iterator<Item = &'a Row>, format: Format) -> miette::Result<String> {
    let rows: Vec<&Row> = rows.collect();
    if matches!(format, Format::Json) {
        let views: Vec<RowView> = rows.into_iter().map(RowView::from).collect();
        return serde_json::to_string_pretty(&views).into_diagnostic();
    }
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY).set_header([
        "ISA",
        "name",
        "bits",
        "torch",
        "custom op",
        "header",
        "container",
        "NRT",
        "NRT (text)",
        "DMA",
        "JSON",
    ]);
    for column in [0, 2, 7, 8, 9] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let dash = || "-".to_owned();
    for row in &rows {
        let torch = row.torch.map_or_else(dash, |torch| {
            format!("{} {torch}", torch.ordinal(TorchList::Older).unwrap_or_default())
        });
        let number = |code: Option<u8>| code.map_or_else(dash, |code| code.to_string());
        table.add_row([
            format!("{:#x}", row.isa.code()),
            row.isa.to_string(),
            match row.kind {
                Kind::Nothing => dash(),
                _ => row.bits.to_string(),
            },
            torch,
            if row.torch.is_some() { "mapped" } else { "absent" }.to_owned(),
            format!("{}+", row.since),
            row.runtime.map_or_else(dash, |runtime| {
                format!("{} {}", runtime.container.code(), runtime.container)
            }),
            number(row.runtime.map(|runtime| runtime.nrt.code())),
            number(row.runtime.map(|runtime| runtime.seed_nrt.code())),
            number(row.runtime.map(|runtime| runtime.sdma.code())),
            row.json.map_or_else(dash, str::to_owned),
        ]);
    }
    let mut text = table.to_string();
    text.push_str(
        "\ncustom op: mapped = the wrapper translates the code to the torch type; absent = it aborts.\n\
         NRT: as AWS's nrt.h has it; NRT (text): as the reference text on FP8 has it.",
    );
    if rows.iter().any(|row| row.code_source == Source::Public) {
        text.push_str("\nCodes 0x11 to 0x16 are known from public descriptions of the v5 header only.");
    }
    Ok(text)
}
