//! Where a value was written: a file, or a command-line override.

use std::ops::Range;
use std::sync::Arc;

use miette::NamedSource;

/// A named text that values come from.
pub(super) type Source = Arc<NamedSource<String>>;

/// A source of the given name.
pub(super) fn source(name: &str, text: String) -> Source {
    Arc::new(NamedSource::new(name, text))
}

/// A range of bytes in a source. The range always lies within the text, on character boundaries.
#[derive(Debug, Clone)]
pub(super) struct Span {
    source: Source,
    range: Range<usize>,
}

impl Span {
    /// The part of `range` that lies within the text, widened to whole characters.
    pub(super) fn new(source: &Source, range: Range<usize>) -> Self {
        let text = source.inner();
        let is_boundary = |at: &usize| text.is_char_boundary(*at);
        let start = (0..=range.start.min(text.len()))
            .rev()
            .find(is_boundary)
            .unwrap_or(0);
        let end = (range.end.max(start)..text.len())
            .find(is_boundary)
            .unwrap_or(text.len());
        Self {
            source: Arc::clone(source),
            range: start..end,
        }
    }

    /// The source that the range points into.
    pub(super) const fn source(&self) -> &Source {
        &self.source
    }

    /// The bytes, as an offset range.
    pub(super) fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// The text that the range covers.
    pub(super) fn text(&self) -> &str {
        &self.source.inner()[self.range()]
    }

    /// Line and column of the start, counted from 1; the column counts characters.
    pub(super) fn line_column(&self) -> (usize, usize) {
        let before = &self.source.inner()[..self.range.start];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.matches('\n').count() + 1;
        (line, before[line_start..].chars().count() + 1)
    }
}
