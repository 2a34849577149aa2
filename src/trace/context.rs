//! What a variant's function sees.

use super::TraceError;
use super::tables::Tables;
use crate::ops::{DeviceTensor, OpContext};

/// Handed to a variant's function at warm-up, capture and eager runs: the persistent tensors by name, and
/// the operations. There is no host transfer in here: a trace cannot contain one.
#[derive(Debug)]
pub struct TraceContext<'a> {
    pub(super) ops: OpContext<'a>,
    pub(super) tables: &'a Tables,
    pub(super) runner: &'a str,
    pub(super) phase: usize,
    pub(super) capturing: bool,
}

impl<'a> TraceContext<'a> {
    /// The operations.
    pub fn ops(&mut self) -> &mut OpContext<'a> {
        &mut self.ops
    }

    /// An input.
    ///
    /// # Errors
    /// [`TraceError::Unknown`] naming the inputs that exist.
    pub fn input(&self, name: &str) -> Result<DeviceTensor, TraceError> {
        let input = self.tables.inputs.iter().find(|input| input.name == name);
        input.map(|input| input.tensor).ok_or_else(|| {
            self.unknown(
                "input",
                name,
                self.tables.inputs.iter().map(|input| input.name.clone()),
            )
        })
    }

    /// A run-time parameter.
    ///
    /// # Errors
    /// [`TraceError::Unknown`] naming the parameters that exist.
    pub fn param(&self, name: &str) -> Result<DeviceTensor, TraceError> {
        let param = self.tables.params.iter().find(|param| param.name == name);
        param.map(|param| param.tensor).ok_or_else(|| {
            self.unknown(
                "parameter",
                name,
                self.tables.params.iter().map(|param| param.name.clone()),
            )
        })
    }

    /// The persistent output to write in this phase.
    ///
    /// # Errors
    /// [`TraceError::Unknown`] naming the outputs that exist.
    pub fn output(&self, name: &str) -> Result<DeviceTensor, TraceError> {
        let output = self.tables.outputs.iter().find(|output| output.name == name);
        output.map(|output| output.tensors[self.phase]).ok_or_else(|| {
            self.unknown(
                "output",
                name,
                self.tables.outputs.iter().map(|output| output.name.clone()),
            )
        })
    }

    /// Which set of persistent outputs is written: 0, or 1 for every other replay where there are two.
    #[must_use]
    pub const fn phase(&self) -> usize {
        self.phase
    }

    /// Whether launches are being recorded rather than run.
    #[must_use]
    pub const fn capturing(&self) -> bool {
        self.capturing
    }

    fn unknown(&self, kind: &'static str, name: &str, known: impl Iterator<Item = String>) -> TraceError {
        TraceError::Unknown {
            runner: self.runner.into(),
            kind,
            name: name.into(),
            known: known.collect(),
        }
    }
}
