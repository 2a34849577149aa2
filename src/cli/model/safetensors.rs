//! What a safetensors file holds.

use std::collections::BTreeMap;

use comfy_table::CellAlignment;
use serde::Serialize;

use super::info::{grouped, or_dash};
use crate::cli::report;
use crate::weights::Safetensors;

/// A safetensors file without its values.
#[derive(Debug, Serialize)]
pub(super) struct Contents {
    /// File name.
    model: String,
    /// What the file says about itself.
    metadata: BTreeMap<String, String>,
    /// Floating-point elements of all tensors.
    parameters: u64,
    /// Bytes of all tensors.
    bytes: u64,
    /// Tensors by name.
    tensors: Vec<TensorLine>,
}

#[derive(Debug, Serialize)]
struct TensorLine {
    name: String,
    /// Type in the spelling of the file.
    stored_type: &'static str,
    /// Type that it is read as; absent if its values cannot be read.
    dtype: Option<String>,
    shape: Vec<usize>,
    bytes: usize,
}

impl Contents {
    pub(super) fn of(file: &Safetensors) -> Self {
        let entries = file.entries();
        let floats = entries
            .values()
            .filter(|entry| entry.element.is_some_and(|element| element.is_float()));
        Self {
            model: file.name().to_owned(),
            metadata: file.metadata().clone(),
            parameters: floats.map(|entry| entry.shape.elements() as u64).sum(),
            bytes: entries.values().map(|entry| entry.bytes() as u64).sum(),
            tensors: entries
                .iter()
                .map(|(name, entry)| TensorLine {
                    name: name.clone(),
                    stored_type: entry.stored_type,
                    dtype: entry.element.map(|element| element.to_string()),
                    shape: entry.shape.to_vec(),
                    bytes: entry.bytes(),
                })
                .collect(),
        }
    }

    pub(super) fn text(&self) -> String {
        let metadata: Vec<String> = self.metadata.iter().map(|(k, v)| format!("{k}: {v}")).collect();
        let mut facts = report::table();
        facts.add_row(["model", &self.model]);
        facts.add_row(["metadata", &or_dash(&metadata.join(", "))]);
        facts.add_row(["parameters", &grouped(self.parameters)]);
        facts.add_row(["bytes", &grouped(self.bytes)]);

        let mut tensors = report::table();
        tensors.set_header(["tensor", "stored as", "read as", "shape", "bytes"]);
        for line in &self.tensors {
            let dims: Vec<String> = line.shape.iter().map(ToString::to_string).collect();
            tensors.add_row([
                &line.name,
                line.stored_type,
                line.dtype.as_deref().unwrap_or("-"),
                &format!("[{}]", dims.join(", ")),
                &grouped(line.bytes as u64),
            ]);
        }
        if let Some(column) = tensors.column_mut(4) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!("{facts}\n{tensors}")
    }
}
