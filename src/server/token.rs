//! The secret that a client shows: a bearer token.

use std::fmt;
use std::path::{Path, PathBuf};

/// Shortest token that is taken.
const SHORTEST: usize = 16;
/// Longest file that is read for one.
const LONGEST_FILE: u64 = 4_096;

/// A secret that requests have to show as `Authorization: Bearer SECRET`. It is never printed.
#[derive(Clone)]
pub struct Token(String);

/// A token that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("the token file {} cannot be read: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The file is too large to be one.
    #[error("the token file {} has {bytes} bytes; a token takes {LONGEST_FILE} at most", path.display())]
    Large {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// Too short to be a secret.
    #[error("a token of {length} characters can be guessed; it takes {SHORTEST} at least")]
    Short {
        /// Characters that there are.
        length: usize,
    },
    /// Characters that no header holds.
    #[error("a token is made of visible ASCII characters without blanks")]
    Characters,
}

impl Token {
    /// Takes a text as a token.
    ///
    /// # Errors
    /// [`TokenError::Short`], [`TokenError::Characters`].
    pub fn new(text: &str) -> Result<Self, TokenError> {
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::Characters);
        }
        match text.len() {
            length if length < SHORTEST => Err(TokenError::Short { length }),
            _ => Ok(Self(text.to_owned())),
        }
    }

    /// Reads a file that holds a token; blanks and line ends around it are no part of it.
    ///
    /// # Errors
    /// Those of reading, and those of [`Token::new`].
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let refuse = |source| TokenError::File {
            path: path.to_owned(),
            source,
        };
        let bytes = std::fs::metadata(path).map_err(refuse)?.len();
        if bytes > LONGEST_FILE {
            return Err(TokenError::Large {
                path: path.to_owned(),
                bytes,
            });
        }
        Self::new(std::fs::read_to_string(path).map_err(refuse)?.trim())
    }

    /// The value of the header that shows it.
    #[must_use]
    pub fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Whether the value of an `Authorization` header shows this token. How long it takes does not tell how much of it
    /// is right.
    #[must_use]
    pub fn is_shown_by(&self, header: &[u8]) -> bool {
        let Some((scheme, shown)) = header.split_at_checked("Bearer ".len()) else {
            return false;
        };
        let known = self.0.as_bytes();
        if !scheme.eq_ignore_ascii_case(b"Bearer ") || shown.len() != known.len() {
            return false;
        }
        let differing = shown
            .iter()
            .zip(known)
            .fold(0, |differing, (a, b)| differing | (a ^ b));
        std::hint::black_box(differing) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn only_the_token_itself_is_taken() {
        let token = Token::new("0123456789abcdef").unwrap();
        assert!(token.is_shown_by(b"Bearer 0123456789abcdef"));
        assert!(token.is_shown_by(b"bearer 0123456789abcdef"));
        for wrong in [
            "Bearer 0123456789abcdeF",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
            "",
        ] {
            assert!(!token.is_shown_by(wrong.as_bytes()), "{wrong}");
        }
        assert_eq!(format!("{token:?}"), "Token(..)");
    }

    #[test]
    fn what_is_no_token_is_refused() {
        assert!(matches!(
            Token::new("short"),
            Err(TokenError::Short { length: 5 })
        ));
        assert!(matches!(
            Token::new("0123456789 abcdef"),
            Err(TokenError::Characters)
        ));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        assert!(matches!(Token::read(&path), Err(TokenError::File { .. })));
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        assert!(
            Token::read(&path)
                .unwrap()
                .is_shown_by(b"Bearer 0123456789abcdef")
        );
        std::fs::write(&path, vec![b'a'; 5_000]).unwrap();
        assert!(matches!(
            Token::read(&path),
            Err(TokenError::Large { bytes: 5_000, .. })
        ));
    }
}
