//! How subcommands write: results to standard output, diagnostics to standard error.

use std::io::{self, Write};
use std::process::ExitCode;

use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use miette::{IntoDiagnostic, Report, WrapErr};

/// Writes a command's result to standard output, with a newline at the end if the text has none. A reader
/// that went away (`sensorium ... | head`) is no error.
///
/// # Errors
/// Standard output cannot be written for another reason, such as a full disk.
pub(super) fn print(text: &str) -> miette::Result<()> {
    let mut out = io::stdout().lock();
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    match write!(out, "{text}{newline}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written
            .into_diagnostic()
            .wrap_err("the result cannot be written to standard output"),
    }
}

/// Shows an error with its source lines, causes and advice on standard error; the exit code of failure.
pub(super) fn failure(error: &Report) -> ExitCode {
    show(error);
    ExitCode::FAILURE
}

/// Shows a diagnostic of any severity on standard error.
pub(super) fn show(diagnostic: &Report) {
    // With standard error closed there is nobody left to tell; the exit code still says it.
    let _ = writeln!(io::stderr().lock(), "{diagnostic:?}");
}

/// An empty table in the style of this command.
pub(super) fn table() -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY);
    table
}
