//! `sensorium model info`: what a model file holds.

use std::path::Path;
use std::process::ExitCode;

use comfy_table::CellAlignment;
use miette::IntoDiagnostic;

use super::no_model;
use super::safetensors::Contents;
use crate::cli::pipeline_args::Format;
use crate::cli::report;
use crate::models::{Survey, SurveyedValue, survey};
use crate::weights::{OnnxModel, Safetensors};

/// Prints what a file holds.
///
/// # Errors
/// A file that is no model.
pub(super) fn run(file: &Path, format: Format) -> miette::Result<ExitCode> {
    report::print(&described(file, format)?)?;
    Ok(ExitCode::SUCCESS)
}

fn described(file: &Path, format: Format) -> miette::Result<String> {
    let is_safetensors = file
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("safetensors"));
    if is_safetensors {
        let contents = Contents::of(&Safetensors::open(file).map_err(|cause| no_model(file, cause))?);
        return match format {
            Format::Text => Ok(contents.text()),
            Format::Json => serde_json::to_string_pretty(&contents).into_diagnostic(),
        };
    }
    let survey = survey(&OnnxModel::open(file).map_err(|cause| no_model(file, cause))?);
    match format {
        Format::Text => Ok(text(&survey)),
        Format::Json => serde_json::to_string_pretty(&survey).into_diagnostic(),
    }
}

pub(super) fn or_dash(text: &str) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        text.to_owned()
    }
}

fn text(survey: &Survey) -> String {
    let mut facts = report::table();
    facts.add_row(["model", &survey.model]);
    facts.add_row(["producer", &or_dash(&survey.producer)]);
    facts.add_row([
        "operator set",
        &format!("{} (file format {})", survey.opset, survey.ir_version),
    ]);
    facts.add_row(["parameters", &grouped(survey.parameters)]);
    let gflop = survey
        .gflop
        .map_or_else(|| "unknown: a shape is open".to_owned(), |g| format!("{g:.3}"));
    facts.add_row(["GFLOP", &gflop]);
    facts.add_row(["external data", &or_dash(&survey.external_data.join(", "))]);

    let mut values = report::table();
    values.set_header(["", "name", "type", "shape"]);
    for (kind, list) in [("input", &survey.inputs), ("output", &survey.outputs)] {
        for SurveyedValue { name, dtype, shape } in list {
            let shape = shape
                .as_ref()
                .map(|dims| dims.iter().map(ToString::to_string).collect::<Vec<_>>());
            let shape = shape.map_or_else(|| "?".to_owned(), |dims| format!("[{}]", dims.join(", ")));
            values.add_row([kind, name, dtype, &shape]);
        }
    }

    let mut ops = report::table();
    ops.set_header(["operation", "nodes"]);
    let mut by_count: Vec<(&String, &usize)> = survey.ops.iter().collect();
    by_count.sort_by_key(|&(op, &count)| (std::cmp::Reverse(count), op));
    for (op, count) in by_count {
        ops.add_row([op, &count.to_string()]);
    }
    if let Some(column) = ops.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }

    let mut text = format!("{facts}\n{values}\n{ops}");
    for obstacle in &survey.not_importable {
        text.push_str("\nnot importable: ");
        text.push_str(obstacle);
    }
    text
}

/// Digits in groups of three.
pub(super) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let lead = digits.len() % 3;
    let (head, rest) = digits.split_at(lead);
    let groups = rest
        .as_bytes()
        .chunks(3)
        .map(|c| String::from_utf8_lossy(c).into_owned());
    let parts: Vec<String> = (!head.is_empty())
        .then(|| head.to_owned())
        .into_iter()
        .chain(groups)
        .collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_by_three() {
        assert_eq!(
            [grouped(7), grouped(910), grouped(911_010)],
            ["7", "910", "911,010"]
        );
    }
}
