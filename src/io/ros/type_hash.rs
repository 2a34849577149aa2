//! The hash that tells whether two sides mean the same message type.

use std::fmt;
use std::str::FromStr;

/// Hash of a message type, version 1 (REP 2016): SHA-256 of the type's description in JSON. Written `RIHS01_` and 64
/// hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeHash(pub [u8; 32]);

/// What a text starts with that is a [`TypeHash`].
const PREFIX: &str = "RIHS01_";

/// A text that is no type hash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a type hash (RIHS01_ and 64 hexadecimal digits)")]
pub struct TypeHashError(String);

impl fmt::Display for TypeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for TypeHash {
    type Err = TypeHashError;

    fn from_str(text: &str) -> Result<Self, TypeHashError> {
        let refused = || TypeHashError(text.to_owned());
        let digits = text.strip_prefix(PREFIX).ok_or_else(refused)?.as_bytes();
        if digits.len() != 64 {
            return Err(refused());
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |ascii: u8| char::from(ascii).to_digit(16);
            let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else {
                return Err(refused());
            };
            *byte = (high << 4 | low) as u8;
        }
        Ok(Self(hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let text = "RIHS01_9198cabf7da3796ae6fe19c4cb3bdd3525492988c70522628af5daa124bae2b5";
        assert_eq!(
            text.parse::<TypeHash>().map(|hash| hash.to_string()),
            Ok(text.to_owned())
        );
        for wrong in [
            "",
            "RIHS01_",
            "RIHS02_9198cabf7da3796ae6fe19c4cb3bdd3525492988c70522628af5daa124bae2b5",
            "RIHS01_9198cabf7da3796ae6fe19c4cb3bdd3525492988c70522628af5daa124bae2b",
            "RIHS01_+198cabf7da3796ae6fe19c4cb3bdd3525492988c70522628af5daa124bae2b5",
        ] {
            assert!(wrong.parse::<TypeHash>().is_err(), "{wrong:?}");
        }
    }
}
