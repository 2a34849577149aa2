//! One prepared tensor in a file.
//!
//! A file is 8 bytes that name the format, the length of its header (4 bytes, little-endian), the header (JSON: key,
//! element type, shape, layout), a checksum of header and elements (XXH3, 8 bytes, little-endian), and the elements as
//! the host has them in memory. Files are for the machine that wrote them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde_json::json;
use xxhash_rust::xxh3::Xxh3;

use super::whole_file;
use crate::tensor::{HostTensor, TensorSpec};

/// Names the format and its version.
const MAGIC: &[u8; 8] = b"SENSWGT1";

/// The header of an entry: what the file must hold to be of use.
fn header(key: &str, spec: &TensorSpec) -> Vec<u8> {
    let header = json!({
        "key": key,
        "dtype": spec.dtype.to_string(),
        "shape": &spec.shape[..],
        "layout": spec.layout.to_string(),
    });
    header.to_string().into_bytes()
}

fn checksum(header: &[u8], elements: &[u8]) -> [u8; 8] {
    let mut hash = Xxh3::new();
    hash.update(header);
    hash.update(elements);
    hash.digest().to_le_bytes()
}

/// Reads the tensor of a key and specification.
///
/// # Errors
/// What the system says; [`io::ErrorKind::InvalidData`] for a file of another tensor, or a damaged one.
pub(super) fn read(path: &Path, key: &str, spec: &TensorSpec) -> io::Result<HostTensor> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut file = File::open(path)?;
    let expected = header(key, spec);
    let front = MAGIC.len() + 4 + expected.len() + 8;
    // Before memory is reserved: the file is as long as the tensor that is wanted makes it.
    if file.metadata()?.len() != (front as u64).saturating_add(spec.bytes() as u64) {
        return Err(wrong("it has the length of another tensor"));
    }
    let mut start = vec![0; front];
    file.read_exact(&mut start)?;
    let (magic, rest) = start.split_at(MAGIC.len());
    let (length, rest) = rest.split_at(4);
    let (found, sum) = rest.split_at(expected.len());
    if magic != MAGIC || length != (expected.len() as u32).to_le_bytes() || found != expected {
        return Err(wrong("it holds another tensor"));
    }
    let mut tensor = HostTensor::zeros(*spec);
    file.read_exact(tensor.bytes_mut())?;
    match sum == checksum(found, tensor.bytes()) {
        true => Ok(tensor),
        false => Err(wrong("it is damaged: its checksum is another")),
    }
}

/// Writes a tensor: whole, or not at all.
pub(super) fn write(path: &Path, key: &str, tensor: &HostTensor) -> io::Result<()> {
    let header = header(key, tensor.spec());
    let length = (header.len() as u32).to_le_bytes();
    let sum = checksum(&header, tensor.bytes());
    whole_file::write(path, &[MAGIC, &length, &header, &sum, tensor.bytes()])
}
