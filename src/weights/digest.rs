//! Digests of files.

use std::fmt::Write;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 1 << 16;

/// SHA-256 of a file in hexadecimal.
///
/// # Errors
/// What the system says about the file.
pub fn file_sha256(path: impl AsRef<Path>) -> io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let mut digest = Sha256::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(hex(&digest.finalize())),
            read => digest.update(&chunk[..read]),
        }
    }
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
