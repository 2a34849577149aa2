//! The token that a command shows or asks for.

use std::path::Path;

use miette::miette;

use crate::server::{Token, TokenError};

/// Environment variable with the token of a service.
pub(super) const SERVICE: &str = "SENSORIUM_TOKEN";
/// Environment variable with the token of a run that listens.
pub(super) const RUN: &str = "SENSORIUM_HTTP_TOKEN";

/// The token in a file, or else that of an environment variable; `None` where there is neither.
///
/// # Errors
/// What is there is no token.
pub(super) fn token(file: Option<&Path>, variable: &str) -> miette::Result<Option<Token>> {
    let help = "make one with `openssl rand -hex 32`";
    if let Some(path) = file {
        let read = Token::read(path).map(Some);
        return read.map_err(|error| miette!(help = help, "{error}"));
    }
    let refuse = |error: TokenError| miette!(help = help, "{variable}: {error}");
    match std::env::var(variable) {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => Token::new(text.trim()).map(Some).map_err(refuse),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(refuse(TokenError::Characters)),
    }
}
