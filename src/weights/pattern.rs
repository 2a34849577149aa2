//! Names by pattern.

use std::fmt;

use globset::{Glob, GlobMatcher};
use regex::Regex;

/// A pattern of names: a glob, or a regular expression.
///
/// In a glob `*` stands for any text, `/` included, `?` for one character, `[ab]` for one of several, `{a,b}` for one
/// of several texts; it describes the whole name. A regular expression matches where it finds a part of the name:
/// `^` and `$` tie it to the ends.
#[derive(Clone)]
pub struct Pattern(Matcher);

#[derive(Clone)]
enum Matcher {
    Glob(GlobMatcher),
    Regex(Regex),
}

/// A pattern that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no {kind}: {reason}")]
pub struct PatternError {
    text: String,
    kind: &'static str,
    reason: String,
}

impl Pattern {
    /// A glob.
    ///
    /// # Errors
    /// [`PatternError`].
    pub fn glob(text: &str) -> Result<Self, PatternError> {
        let glob = Glob::new(text).map_err(|error| PatternError {
            text: text.to_owned(),
            kind: "glob",
            reason: error.kind().to_string(),
        })?;
        Ok(Self(Matcher::Glob(glob.compile_matcher())))
    }

    /// A regular expression.
    ///
    /// # Errors
    /// [`PatternError`].
    pub fn regex(text: &str) -> Result<Self, PatternError> {
        let regex = Regex::new(text).map_err(|error| PatternError {
            text: text.to_owned(),
            kind: "regular expression",
            reason: error.to_string(),
        })?;
        Ok(Self(Matcher::Regex(regex)))
    }

    /// Whether a name fits.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match &self.0 {
            Matcher::Glob(glob) => glob.is_match(name),
            Matcher::Regex(regex) => regex.is_match(name),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Matcher::Glob(glob) => f.pad(glob.glob().glob()),
            Matcher::Regex(regex) => f.pad(regex.as_str()),
        }
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.0 {
            Matcher::Glob(_) => "glob",
            Matcher::Regex(_) => "regex",
        };
        write!(f, "Pattern::{kind}({:?})", self.to_string())
    }
}
