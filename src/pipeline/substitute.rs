//! `${VAR}` and `${VAR:-default}` in text values: the only way in which a pipeline file reads the environment.

use std::env::VarError;

use super::problem::Problem;
use super::source::Span;
use super::tree::{Node, Value};

/// How the environment is asked for a variable.
pub type Environment<'a> = &'a dyn Fn(&str) -> Result<String, VarError>;

/// Most bytes that all substitutions of one file may yield together.
const MAX_SUBSTITUTED_BYTES: usize = 1 << 20;

/// Replaces every `${...}` in the text values of `tree`; keys stay as they are.
pub(super) fn substitute(tree: &mut Node, environment: Environment<'_>, problems: &mut Vec<Problem>) {
    let mut substitution = Substitution {
        environment,
        problems,
        bytes_left: MAX_SUBSTITUTED_BYTES,
    };
    substitution.node(tree);
}

struct Substitution<'a> {
    environment: Environment<'a>,
    problems: &'a mut Vec<Problem>,
    bytes_left: usize,
}

impl Substitution<'_> {
    fn node(&mut self, node: &mut Node) {
        match &mut node.value {
            Value::List(items) => items.iter_mut().for_each(|item| self.node(item)),
            Value::Map(entries) => entries.iter_mut().for_each(|entry| self.node(&mut entry.value)),
            Value::Text(text) if text.contains("${") => {
                let quoted = node.span.text().starts_with(['"', '\'', '|', '>']);
                let Some(replaced) = self.text(text, &node.span) else {
                    node.value = Value::Unknown;
                    return;
                };
                node.value = if quoted {
                    Value::Text(replaced)
                } else {
                    Value::Substituted(replaced)
                };
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &str, span: &Span) -> Option<String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let (before, from) = rest.split_at(at);
            if let Some(escaped) = before.strip_suffix('$') {
                out.push_str(escaped);
                out.push_str("${");
                rest = &from[2..];
                continue;
            }
            out.push_str(before);
            let Some(end) = from.find('}') else {
                self.refuse(
                    span,
                    from,
                    format!("`{from}` has no closing brace"),
                    "expected `}`",
                );
                return None;
            };
            let (reference, behind) = from.split_at(end + 1);
            let value = self.variable(&reference[2..end], reference, span)?;
            if value.len() > self.bytes_left {
                self.refuse(
                    span,
                    reference,
                    format!("the substitutions of this file yield more than {MAX_SUBSTITUTED_BYTES} bytes"),
                    "no more from here",
                );
                return None;
            }
            self.bytes_left -= value.len();
            out.push_str(&value);
            rest = behind;
        }
        out.push_str(rest);
        Some(out)
    }

    /// The value of what stands between the braces.
    fn variable(&mut self, inner: &str, reference: &str, span: &Span) -> Option<String> {
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !starts_well || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            let message = format!("`{reference}` does not name a variable");
            self.refuse(span, reference, message, "expected ${NAME} or ${NAME:-default}");
            return None;
        }
        match ((self.environment)(name), default) {
            // As in a shell, a default also stands in for an empty variable.
            (Ok(value), Some(default)) if value.is_empty() => Some(default.to_owned()),
            (Ok(value), _) => Some(value),
            (Err(VarError::NotPresent), Some(default)) => Some(default.to_owned()),
            (Err(VarError::NotPresent), None) => {
                self.problems.push(
                    Problem::error(
                        format!("the environment variable `{name}` is not set"),
                        &within(span, reference),
                        "not set, and no default is given",
                    )
                    .help(format!("set it, or write ${{{name}:-default}}")),
                );
                None
            }
            (Err(VarError::NotUnicode(_)), _) => {
                let message = format!("the environment variable `{name}` is not UTF-8 text");
                self.refuse(span, reference, message, "expected text");
                None
            }
        }
    }

    fn refuse(&mut self, span: &Span, part: &str, message: String, label: &str) {
        self.problems
            .push(Problem::error(message, &within(span, part), label));
    }
}

/// The place of `part` in the source, if the text stands there as it is (without escapes or folding).
fn within(span: &Span, part: &str) -> Span {
    match span.text().find(part) {
        Some(at) => {
            let start = span.range().start + at;
            Span::new(span.source(), start..start + part.len())
        }
        None => span.clone(),
    }
}
