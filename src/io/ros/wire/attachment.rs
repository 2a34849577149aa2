//! What rmw_zenoh puts beside every message: 33 bytes that number it, date it and say whose it is.

/// Length of an attachment in bytes.
pub const ATTACHMENT_LEN: usize = 33;

/// Length of a [`Gid`] in bytes, as the attachment writes it in front of one.
const GID_LEN: u8 = 16;

/// Identifies an endpoint: the 128-bit XXH3 hash of its liveliness token, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gid(pub [u8; GID_LEN as usize]);

impl Gid {
    /// The identity of the endpoint with this liveliness token.
    #[must_use]
    pub fn of_token(token: &str) -> Self {
        Self(xxhash_rust::xxh3::xxh3_128(token.as_bytes()).to_le_bytes())
    }
}

/// The attachment of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attachment {
    /// Number of the message among those of its publisher; the first is 1.
    pub sequence: i64,
    /// When it was sent, in nanoseconds since the epoch.
    pub source_time_ns: i64,
    /// The publisher.
    pub gid: Gid,
}

/// Bytes that are no attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AttachmentError {
    /// They are too few or too many.
    #[error("{0} bytes are no attachment of rmw_zenoh (33)")]
    Length(usize),
    /// The publisher's identity has another length.
    #[error("an identity of {0} bytes is none of rmw_zenoh (16)")]
    GidLength(u8),
}

impl Attachment {
    /// The bytes on the wire: two little-endian `i64`, a length, the identity.
    #[must_use]
    pub fn encode(&self) -> [u8; ATTACHMENT_LEN] {
        let mut bytes = [0; ATTACHMENT_LEN];
        bytes[..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.source_time_ns.to_le_bytes());
        bytes[16] = GID_LEN;
        bytes[17..].copy_from_slice(&self.gid.0);
        bytes
    }

    /// Reads the bytes of [`Self::encode`].
    ///
    /// # Errors
    /// [`AttachmentError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, AttachmentError> {
        let whole: &[u8; ATTACHMENT_LEN] = bytes
            .try_into()
            .map_err(|_| AttachmentError::Length(bytes.len()))?;
        if whole[16] != GID_LEN {
            return Err(AttachmentError::GidLength(whole[16]));
        }
        let number = |at: usize| {
            let mut raw = [0; 8];
            raw.copy_from_slice(&whole[at..at + 8]);
            i64::from_le_bytes(raw)
        };
        let mut gid = [0; GID_LEN as usize];
        gid.copy_from_slice(&whole[17..]);
        Ok(Self {
            sequence: number(0),
            source_time_ns: number(8),
            gid: Gid(gid),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attachment_is_laid_out_byte_by_byte() {
        let attachment = Attachment {
            sequence: 0x0102,
            source_time_ns: -2,
            gid: Gid(*b"0123456789abcdef"),
        };
        let mut expected = vec![2, 1, 0, 0, 0, 0, 0, 0, 0xfe];
        expected.extend([0xff; 7]);
        expected.push(0x10);
        expected.extend(b"0123456789abcdef");
        assert_eq!(attachment.encode()[..], expected);
        assert_eq!(Attachment::decode(&expected), Ok(attachment));
        for len in [0, 32, 34] {
            assert_eq!(
                Attachment::decode(&vec![16; len]),
                Err(AttachmentError::Length(len))
            );
        }
        expected[16] = 15;
        assert_eq!(Attachment::decode(&expected), Err(AttachmentError::GidLength(15)));
    }
}
