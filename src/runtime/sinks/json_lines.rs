//! JSON lines: one object a frame.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
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

    /// Goes on behind the whole lines that are in the file; what a failure left of another is cut off.
    ///
    /// # Errors
    /// [`RuntimeError::Unwritable`].
    pub(crate) fn go_on(path: &Path, with_latency: bool) -> Result<Self, RuntimeError> {
        let opened = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let opened = opened.and_then(|mut file| {
            let whole = end_of_lines(&mut file)?;
            if whole < file.metadata()?.len() {
                file.set_len(whole)?;
            }
            file.seek(SeekFrom::Start(whole))?;
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

/// Where the last whole line of a file ends.
fn end_of_lines(file: &mut File) -> io::Result<u64> {
    let mut block = [0; 1 << 12];
    let mut end = file.seek(SeekFrom::End(0))?;
    while end > 0 {
        let start = end.saturating_sub(block.len() as u64);
        let bytes = &mut block[..(end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(bytes)?;
        if let Some(at) = bytes.iter().rposition(|&byte| byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failure_left_of_a_line_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let long = "7".repeat(10_000);
        for (before, whole) in [
            (String::new(), String::new()),
            ("{\"half".into(), String::new()),
            ("{}\n".into(), "{}\n".into()),
            (format!("{{}}\n[{long}]\n[{long}"), format!("{{}}\n[{long}]\n")),
        ] {
            std::fs::write(&path, &before).unwrap();
            let mut sink = JsonLinesSink::go_on(&path, false).unwrap();
            assert_eq!(sink.whole, whole.len() as u64);
            sink.file.write_all(b"[]\n").unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{whole}[]\n"));
        }
    }
}
