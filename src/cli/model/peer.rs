//! ONNX Runtime in a Python of the user's, timed from outside.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use miette::Diagnostic;
use serde::Deserialize;

/// What the Python runs.
const SCRIPT: &str = include_str!("peer.py");

/// Why ONNX Runtime cannot take part.
#[derive(Debug, thiserror::Error, Diagnostic)]
pub(super) enum PeerError {
    /// The program does not start.
    #[error("{} cannot be run as a Python", python.display())]
    #[diagnostic(help("give the path of a Python with --python, or unset SENSORIUM_TEST_PYTHON"))]
    Start {
        python: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// It has no ONNX Runtime.
    #[error("the Python {} has no ONNX Runtime: {reason}", python.display())]
    #[diagnostic(help("install it there: {} -m pip install onnxruntime numpy", python.display()))]
    Missing { python: PathBuf, reason: String },
    /// ONNX Runtime refused the model or failed on it.
    #[error("ONNX Runtime cannot run the model: {0}")]
    Failed(String),
    /// It went away, or answered something else.
    #[error("the Python {} stopped answering: {reason}", python.display())]
    #[diagnostic(help("its own words are above, on standard error"))]
    Silent { python: PathBuf, reason: String },
}

/// What the script answers.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Version(String),
    Missing(String),
    Failed(String),
    Seconds(Vec<f64>),
}

/// A running Python with ONNX Runtime and the model.
#[derive(Debug)]
pub(super) struct Peer {
    python: PathBuf,
    child: Child,
    /// Closed when the peer is dropped, which ends the script.
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Version of ONNX Runtime.
    pub(super) version: String,
}

impl Peer {
    /// Starts the Python.
    ///
    /// # Errors
    /// [`PeerError`]
    pub(super) fn start(python: &Path, model: &Path) -> Result<Self, PeerError> {
        let started = Command::new(python)
            .args(["-c", SCRIPT])
            .arg(model)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = started.map_err(|source| PeerError::Start {
            python: python.to_owned(),
            source,
        })?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            // Both were asked for just now.
            return Err(PeerError::Silent {
                python: python.to_owned(),
                reason: "it has no standard input and output".into(),
            });
        };
        let mut peer = Self {
            python: python.to_owned(),
            child,
            requests: Some(requests),
            answers: BufReader::new(answers),
            version: String::new(),
        };
        match peer.answer()? {
            Answer::Version(version) => peer.version = version,
            Answer::Missing(reason) => {
                return Err(PeerError::Missing {
                    python: python.to_owned(),
                    reason,
                });
            }
            other => return Err(peer.silent(format!("{other:?}"))),
        }
        Ok(peer)
    }

    /// Times some runs; the first call for a number of threads also makes a session and warms it up.
    ///
    /// # Errors
    /// [`PeerError`]
    pub(super) fn seconds(&mut self, threads: u16, runs: usize) -> Result<Vec<f64>, PeerError> {
        let sent = match &mut self.requests {
            Some(requests) => writeln!(requests, "{threads} {runs}").and_then(|()| requests.flush()),
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        };
        sent.map_err(|error| self.silent(error.to_string()))?;
        match self.answer()? {
            Answer::Seconds(seconds) if seconds.len() == runs => Ok(seconds),
            Answer::Failed(reason) => Err(PeerError::Failed(reason)),
            other => Err(self.silent(format!("{other:?}"))),
        }
    }

    fn answer(&mut self) -> Result<Answer, PeerError> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(0) => Err(self.silent("it ended".into())),
            Ok(_) => serde_json::from_str(&line).map_err(|_| self.silent(format!("`{}`", line.trim()))),
            Err(error) => Err(self.silent(error.to_string())),
        }
    }

    fn silent(&self, reason: String) -> PeerError {
        PeerError::Silent {
            python: self.python.clone(),
            reason,
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The end of its input ends the script; one that hangs is not waited for.
        drop(self.requests.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
