//! Bounded zstd decompression of messages and of whole files.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use super::BagError;

/// First bytes of a zstd frame.
pub(super) const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Decompresses one message; memory grows with what comes out, never with what a header claims.
///
/// `Ok(None)` where it would pass `limit` bytes.
pub(super) fn decompress_message(frame: &[u8], limit: u64) -> io::Result<Option<Vec<u8>>> {
    let decoder = zstd::stream::read::Decoder::with_buffer(frame)?;
    let mut message = Vec::new();
    decoder.take(limit.saturating_add(1)).read_to_end(&mut message)?;
    Ok((message.len() as u64 <= limit).then_some(message))
}

/// Decompresses a whole file into `to`; at most `limit` bytes.
pub(super) fn decompress_file(from: &Path, to: &Path, limit: u64) -> Result<u64, BagError> {
    let source = File::open(from).map_err(BagError::io(from))?;
    let bad = |source| BagError::Decompress {
        path: from.to_owned(),
        what: "the file".to_owned(),
        source,
    };
    let decoder = zstd::stream::read::Decoder::new(source).map_err(bad)?;
    let mut decoder = decoder.take(limit.saturating_add(1));
    let mut target = BufWriter::new(File::create(to).map_err(BagError::io(to))?);
    let mut block = vec![0; 1 << 20];
    let mut written = 0;
    loop {
        let n = decoder.read(&mut block).map_err(bad)?;
        if n == 0 {
            break;
        }
        written += n as u64;
        if written > limit {
            return Err(BagError::TooLarge {
                path: from.to_owned(),
                what: "the decompressed file".to_owned(),
                limit,
            });
        }
        target.write_all(&block[..n]).map_err(BagError::io(to))?;
    }
    target.flush().map_err(BagError::io(to))?;
    Ok(written)
}
