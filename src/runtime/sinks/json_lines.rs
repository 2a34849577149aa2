//! JSON lines: one object a frame.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use super::{Sink, frame_line};
use crate::runtime::RuntimeError;
use crate::runtime::frame::{Detected, Sample};

/// Writes one JSON object a frame.
#[derive(Debug)]
pub(crate) struct JsonLinesSink {
    file: BufWriter<File>,
    with_latency: bool,
}

impl JsonLinesSink {
    /// Creates the file.
    ///
    /// # Errors
    /// [`RuntimeError::Unwritable`].
    pub(crate) fn create(path: &Path, with_latency: bool) -> Result<Self, RuntimeError> {
        let file = File::create(path).map_err(|e| RuntimeError::Unwritable {
            path: path.into(),
            reason: e.to_string(),
        })?;
        Ok(Self {
            file: BufWriter::new(file),
            with_latency,
        })
    }
}

impl Sink for JsonLinesSink {
    async fn write(&mut self, sample: &Arc<Sample<Detected>>) -> Result<(), String> {
        let mut line =
            serde_json::to_vec(&frame_line(sample, self.with_latency)).map_err(|e| e.to_string())?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(|e| e.to_string())
    }

    async fn finish(mut self) -> Result<(), String> {
        self.file.flush().map_err(|e| e.to_string())
    }
}
