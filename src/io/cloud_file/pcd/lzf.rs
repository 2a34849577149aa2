//! LZF, the packing of compressed PCD files.
//!
//! A block is a row of commands. A byte below 32 says that so many bytes and one follow as they are. Any other byte
//! copies from what is unpacked already: its top three bits are the length less 2 (7 means that a byte follows which is
//! added), its low five bits and the next byte the distance less 1.

/// Most bytes that one packed byte can stand for: a copy of 264 from three bytes.
pub(super) const MAX_RATIO: u64 = 264 / 3;

const MAX_LITERAL: usize = 32;
const MAX_DISTANCE: usize = 1 << 13;
const MAX_COPY: usize = 264;
const MIN_COPY: usize = 3;

/// Unpacks exactly `unpacked` bytes.
///
/// # Errors
/// The byte of `block` where it makes no sense: it ends too early, copies what is not there, or yields another length.
pub(super) fn decompress(block: &[u8], unpacked: usize) -> Result<Vec<u8>, usize> {
    let mut out = Vec::with_capacity(unpacked);
    let mut at = 0;
    while at < block.len() {
        let command = usize::from(block[at]);
        let start = at;
        at += 1;
        if command < 32 {
            let literal = block.get(at..at + command + 1).ok_or(start)?;
            out.extend_from_slice(literal);
            at += literal.len();
        } else {
            let mut next = || {
                let byte = block.get(at).copied().map(usize::from).ok_or(start);
                at += 1;
                byte
            };
            let length = match command >> 5 {
                7 => 7 + next()?,
                short => short,
            } + 2;
            let distance = ((command & 31) << 8) + next()? + 1;
            let from = out.len().checked_sub(distance).ok_or(start)?;
            if out.len() + length > unpacked {
                return Err(start);
            }
            // The copy may overlap what it makes, which repeats it.
            for i in from..from + length {
                out.push(out[i]);
            }
        }
        if out.len() > unpacked {
            return Err(start);
        }
    }
    if out.len() == unpacked { Ok(out) } else { Err(at) }
}

/// Packs bytes. What does not repeat itself grows by a byte in 32.
pub(super) fn compress(bytes: &[u8]) -> Vec<u8> {
    const SLOTS: usize = 1 << 14;
    let mut seen = vec![usize::MAX; SLOTS];
    let mut out = Vec::with_capacity(bytes.len() / 2);
    let (mut at, mut literal) = (0, 0);
    while at + MIN_COPY <= bytes.len() {
        let key = u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], 0]);
        let slot = (key.wrapping_mul(0x9e37_79b1) >> 18) as usize;
        let from = std::mem::replace(&mut seen[slot], at);
        let known = from < at && at - from <= MAX_DISTANCE && bytes[from..from + 3] == bytes[at..at + 3];
        if !known {
            at += 1;
            continue;
        }
        let most = MAX_COPY.min(bytes.len() - at);
        let more = (MIN_COPY..most).take_while(|&i| bytes[from + i] == bytes[at + i]);
        let length = MIN_COPY + more.count();
        append_literals(&bytes[literal..at], &mut out);
        let (code, distance) = (length - 2, at - from - 1);
        out.push(((code.min(7) << 5) | (distance >> 8)) as u8);
        if code >= 7 {
            out.push((code - 7) as u8);
        }
        out.push(distance as u8);
        at += length;
        literal = at;
    }
    append_literals(&bytes[literal..], &mut out);
    out
}

fn append_literals(bytes: &[u8], out: &mut Vec<u8>) {
    for run in bytes.chunks(MAX_LITERAL) {
        out.push((run.len() - 1) as u8);
        out.extend_from_slice(run);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn commands_are_read_as_the_format_has_them() {
        // Worked out by hand: three literals, a copy of 4 from 3 back, a copy of 9 + 1 from 1 back.
        let block = [2, b'a', b'b', b'c', 0x40, 2, 0xe0, 1, 0];
        assert_eq!(decompress(&block, 17).unwrap(), b"abcabcaaaaaaaaaaa");
        assert_eq!(decompress(&block, 16), Err(6));
        assert_eq!(decompress(&block, 18), Err(9));
        assert_eq!(decompress(&block[..8], 17), Err(6));
        assert_eq!(decompress(&[0x20, 0], 3), Err(0), "a copy of what is not there");
        assert_eq!(decompress(&[5, 1], 6), Err(0), "literals cut off");
        assert_eq!(decompress(&[], 0), Ok(vec![]));
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(
            words in proptest::collection::vec(0u8..5, 0..3000),
            runs in proptest::collection::vec((any::<u8>(), 1usize..600), 0..12),
        ) {
            let mut bytes = words;
            for (value, length) in runs {
                bytes.extend(std::iter::repeat_n(value, length));
            }
            let packed = compress(&bytes);
            prop_assert!(packed.len() <= bytes.len() + bytes.len() / 32 + 1);
            prop_assert_eq!(decompress(&packed, bytes.len()), Ok(bytes));
        }

        #[test]
        fn any_bytes_are_unpacked_or_refused_within_the_length_asked_for(
            block in proptest::collection::vec(any::<u8>(), 0..400),
            unpacked in 0usize..5000,
        ) {
            match decompress(&block, unpacked) {
                Ok(bytes) => prop_assert_eq!(bytes.len(), unpacked),
                Err(at) => prop_assert!(at <= block.len()),
            }
        }
    }
}
