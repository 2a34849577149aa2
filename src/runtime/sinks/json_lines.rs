//! JSON lines: one object a frame.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Sink, frame_line};
use crate::runtime::RuntimeError;
use crate::runtime::frame::{Detected, Sample};

/// Writes one JSON object a frame.
#[derive(Debug)]
pub(crate) struct JsonLinesSink {
    file: File,
    path: PathBuf,
    with_latency: bool,
    /// Bytes of whole lines.
    whole: u64,
}

impl JsonLinesSink {
    /// Creates the file.
    ///
    /// # Errors
    /// [`RuntimeError::Unwritable`].
    pub(crate) fn create(path: &Path, with_latency: bool) -> Result<Self, RuntimeError> {
        Self::opened(path, File::create(path).map(|file| (file, 0)), with_latency)
    }

    /// Goes on behind the lines that are in the file.
    ///
    /// # Errors
    /// [`RuntimeError::Unwritable`].
    pub(crate) fn go_on(path: &Path, with_latency: bool) -> Result<Self, RuntimeError> {
        let opened = File::options().append(true).create(true).open(path);
        let opened = opened.and_then(|mut file| {
            let whole = file.seek(SeekFrom::End(0))?;
            Ok((file, whole))
        });
        Self::opened(path, opened, with_latency)
    }

    fn opened(
        path: &Path,
        opened: io::Result<(File, u64)>,
        with_latency: bool,
    ) -> Result<Self, RuntimeError> {
        let (file, whole) = opened.map_err(|e| RuntimeError::Unwritable {
            path: path.into(),
            reason: e.to_string(),
        })?;
        Ok(Self {
            file,
            path: path.to_owned(),
            with_latency,
            whole,
        })
    }

    fn trouble(&self, error: &io::Error) -> String {
        format!("writing {}: {error}", self.path.display())
    }
}

impl Sink for JsonLinesSink {
    // Half a line may be in the file; another one behind it would make both unreadable.
    const GOES_ON: bool = false;

    async fn write(&mut self, sample: &Arc<Sample<Detected>>) -> Result<(), String> {
        let mut line =
            serde_json::to_vec(&frame_line(sample, self.with_latency)).map_err(|e| e.to_string())?;
        line.push(b'\n');
        // Every line reaches the file at once: it can be followed, and one that is lost is counted as such.
        self.file.write_all(&line).map_err(|e| self.trouble(&e))?;
        self.whole += line.len() as u64;
        Ok(())
    }

    async fn recover(&mut self) -> Result<(), String> {
        let cut = self.file.set_len(self.whole);
        cut.and_then(|()| self.file.seek(SeekFrom::Start(self.whole)))
            .map_err(|e| self.trouble(&e))?;
        Ok(())
    }

    async fn finish(self) -> Result<(), String> {
        Ok(())
    }
}
