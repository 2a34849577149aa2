//! What integration tests share: where the test data and the Python peers are.
//!
//! Both are optional. Without `SENSORIUM_TEST_DATA` (a folder) or `SENSORIUM_TEST_PYTHON` (an interpreter
//! that can import the peers of `tests/oracles/requirements.txt`) a test that needs them says that it was
//! skipped and passes; with the variable set, anything missing is a failure.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test target includes this file and uses its own part"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::path::PathBuf;
use std::process::Command;

/// A file or folder of the test data, or `None` (and a line saying so) where no data folder is set.
pub fn data(path: &str) -> Option<PathBuf> {
    let Some(root) = std::env::var_os("SENSORIUM_TEST_DATA") else {
        println!("skipped: needs {path}; set SENSORIUM_TEST_DATA to the data folder");
        return None;
    };
    let full = std::path::absolute(PathBuf::from(root).join(path)).unwrap();
    assert!(
        full.exists(),
        "SENSORIUM_TEST_DATA is set, but {} is missing",
        full.display()
    );
    Some(full)
}

/// A command that runs one of `tests/oracles/*.py`, or `None` (and a line saying so) without an interpreter.
pub fn oracle(script: &str) -> Option<Command> {
    let Some(python) = std::env::var_os("SENSORIUM_TEST_PYTHON") else {
        println!("skipped: needs Python peers; set SENSORIUM_TEST_PYTHON (see docs/TESTING.md)");
        return None;
    };
    let mut command = Command::new(python);
    command.arg(
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("tests/oracles")
            .join(script),
    );
    Some(command)
}

/// As [`oracle`], with the interpreter that has OpenCV 4.8.1 (`tests/oracles/requirements-opencv48.txt`).
pub fn oracle_opencv48(script: &str) -> Option<Command> {
    let Some(python) = std::env::var_os("SENSORIUM_TEST_PYTHON_OPENCV48") else {
        println!("skipped: needs OpenCV 4.8.1; set SENSORIUM_TEST_PYTHON_OPENCV48 (see docs/TESTING.md)");
        return None;
    };
    let mut command = Command::new(python);
    command.arg(
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("tests/oracles")
            .join(script),
    );
    Some(command)
}

/// Runs a command and returns its standard output; a failure shows both streams.
pub fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?} failed:\n{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// Little-endian fp32 values.
pub fn floats(bytes: &[u8]) -> Vec<f32> {
    let (values, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty(), "{} bytes are no whole fp32 values", bytes.len());
    values.iter().map(|&b| f32::from_le_bytes(b)).collect()
}
