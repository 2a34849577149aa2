//! What can be wrong with a pipeline file, each problem with its place.

use std::fmt;
use std::path::PathBuf;

use miette::{Diagnostic, LabeledSpan, Severity, SourceCode};
use serde::Serialize;

use super::source::Span;

/// A pipeline file that cannot be used.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[non_exhaustive]
pub enum PipelineError {
    /// The file cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        cause: std::io::Error,
    },
    /// The file is no text.
    #[error("{} is not UTF-8 text: byte {valid_up_to} begins no character", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// Number of good bytes before the first bad one.
        valid_up_to: usize,
    },
    /// The file is larger than any pipeline file should be.
    #[error("{} is larger than {limit_bytes} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Largest size that is read.
        limit_bytes: u64,
    },
    /// The file was read, but what it says is wrong.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Invalid(#[from] InvalidPipeline),
}

impl PipelineError {
    /// The problems found in the text; empty if the text could not be read at all.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Invalid(invalid) => &invalid.problems,
            _ => &[],
        }
    }
}

/// An error with its cause.
pub(super) fn told(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// All that is wrong with one pipeline file.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{file} {}", count(problems, *unreported))]
pub struct InvalidPipeline {
    /// The file, as it was named.
    pub file: String,
    /// The problems found, in the order of the file, up to a number that a person can read.
    #[related]
    pub problems: Vec<Problem>,
    /// Problems found beyond those.
    pub unreported: usize,
}

fn count(problems: &[Problem], unreported: usize) -> String {
    match (problems.len(), unreported) {
        (1, 0) => "has an error".to_owned(),
        (shown, 0) => format!("has {shown} errors"),
        (shown, more) => format!(
            "has {} errors, of which these are the first {shown}",
            shown + more
        ),
    }
}

/// One thing that is wrong (or worth saying), and where.
#[derive(Debug, Clone)]
pub struct Problem {
    severity: Severity,
    message: String,
    span: Span,
    label: String,
    related: Option<(Span, String)>,
    help: Option<String>,
}

impl Problem {
    /// An error at `span`; `label` says there what was expected.
    pub(super) fn error(message: impl Into<String>, span: &Span, label: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            message: message.into(),
            span: span.clone(),
            label: label.into(),
            related: None,
            help: None,
        }
    }

    /// Something that works, but hardly as meant.
    pub(super) fn warning(message: impl Into<String>, span: &Span, label: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(message, span, label)
        }
    }

    /// Something that is left to be given later.
    pub(super) fn note(message: impl Into<String>, span: &Span, label: impl Into<String>) -> Self {
        Self {
            severity: Severity::Advice,
            ..Self::error(message, span, label)
        }
    }

    /// Adds what to do about it.
    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds a second place that belongs to the problem.
    pub(super) fn related(mut self, span: &Span, label: impl Into<String>) -> Self {
        self.related = Some((span.clone(), label.into()));
        self
    }

    /// The same problem as an error.
    pub(super) fn into_error(self) -> Self {
        Self {
            severity: Severity::Error,
            ..self
        }
    }

    /// What is wrong, in one line.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The whole problem as plain data.
    #[must_use]
    pub fn to_record(&self) -> ProblemRecord {
        let (line, column) = self.span.line_column();
        ProblemRecord {
            severity: match self.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
                Severity::Advice => "note",
            },
            file: self.span.source().name().to_owned(),
            line,
            column,
            message: self.message.clone(),
            expected: self.label.clone(),
            help: self.help.clone(),
        }
    }

    /// Sorts by source, then by place.
    pub(super) fn order(&self) -> (&str, usize) {
        (self.span.source().name(), self.span.range().start)
    }
}

/// A [`Problem`] as plain data, for machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ProblemRecord {
    /// `error`, `warning` or `note`.
    pub severity: &'static str,
    /// The file, or the command-line option, that holds the text.
    pub file: String,
    /// Line of the text, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What was expected at that place.
    pub expected: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

impl Diagnostic for Problem {
    fn severity(&self) -> Option<Severity> {
        Some(self.severity)
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as _)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(self.span.source())
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let main = LabeledSpan::new_primary_with_span(Some(self.label.clone()), self.span.range());
        // A label can only point into the source of its own diagnostic.
        let related = self
            .related
            .iter()
            .filter(|(span, _)| span.source() == self.span.source())
            .map(|(span, label)| LabeledSpan::new_with_span(Some(label.clone()), span.range()));
        Some(Box::new(std::iter::once(main).chain(related)))
    }
}
