//! Messages as DDS carries them here: CDR bytes of a type that nobody knows at build time.

use std::convert::Infallible;

use rustdds::bytes::Bytes;
use rustdds::no_key::{Decode, DefaultDecoder, DeserializerAdapter, SerializerAdapter};
use rustdds::{RepresentationIdentifier, no_key};

use crate::io::cdr::HEADER_LEN;

/// Writes messages.
pub(super) type RawWriter = no_key::DataWriter<Body, Raw>;
/// Takes messages.
pub(super) type RawReader = no_key::SimpleDataReader<Vec<u8>, Raw>;

/// What follows the header of a little-endian CDR message.
#[derive(Debug, Clone)]
pub(super) struct Body(Bytes);

impl Body {
    /// The body of a message, without a copy; `None` for any other message than little-endian plain CDR: the header
    /// that goes out is written by the middleware and the same for all.
    pub(super) fn of_message(message: Vec<u8>) -> Option<Self> {
        message
            .starts_with(&[0, 1])
            .then(|| Bytes::from(message))
            .filter(|message| message.len() >= HEADER_LEN)
            .map(|message| Self(message.slice(HEADER_LEN..)))
    }
}

/// Hands bytes through as they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raw;

impl SerializerAdapter<Body> for Raw {
    type Error = Infallible;

    fn output_encoding() -> RepresentationIdentifier {
        RepresentationIdentifier::CDR_LE
    }

    fn to_bytes(body: &Body) -> Result<Bytes, Infallible> {
        Ok(body.0.clone())
    }
}

impl DeserializerAdapter<Vec<u8>> for Raw {
    type Error = Infallible;
    type Decoded = Vec<u8>;

    fn supported_encodings() -> &'static [RepresentationIdentifier] {
        &[RepresentationIdentifier::CDR_LE, RepresentationIdentifier::CDR_BE]
    }

    fn transform_decoded(message: Vec<u8>) -> Vec<u8> {
        message
    }
}

impl DefaultDecoder<Vec<u8>> for Raw {
    type Decoder = Self;
    const DECODER: Self = Self;
}

impl Decode<'_, Vec<u8>> for Raw {
    type Error = Infallible;

    fn decode_bytes(self, body: &[u8], encoding: RepresentationIdentifier) -> Result<Vec<u8>, Infallible> {
        let little_endian = u8::from(encoding != RepresentationIdentifier::CDR_BE);
        let mut message = Vec::with_capacity(HEADER_LEN + body.len());
        message.extend_from_slice(&[0, little_endian, 0, 0]);
        message.extend_from_slice(body);
        Ok(message)
    }
}
