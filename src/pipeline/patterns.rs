//! Patterns that texts of a pipeline file keep: as the JSON Schema says them, and as they are checked here.

use serde_json::Value as Json;

/// A pattern of texts.
pub(super) struct Pattern {
    /// As the schema has it.
    regex: &'static str,
    /// In words.
    pub(super) rule: &'static str,
    /// Whether a text keeps it.
    pub(super) fits: fn(&str) -> bool,
}

/// Names of pipelines, models and nodes.
pub(super) const NAME: &str = "^[a-z0-9_-]+$";
/// A name without slashes, as ROS 2 allows it.
pub(super) const TOKEN: &str = "^[A-Za-z_][A-Za-z0-9_]*$";
/// A namespace of ROS 2: names joined by slashes, the leading one may be left out.
pub(super) const NAMESPACE: &str = "^/?([A-Za-z_][A-Za-z0-9_]*(/[A-Za-z_][A-Za-z0-9_]*)*)?$";
/// A topic of ROS 2: absolute, relative to the namespace, or below the node (`~/`).
pub(super) const TOPIC: &str = "^(~/|/)?[A-Za-z_][A-Za-z0-9_]*(/[A-Za-z_][A-Za-z0-9_]*)*$";
/// A topic in which {stream} is filled in.
pub(super) const STREAM_TOPIC: &str =
    r"^(~/|/)?([A-Za-z_][A-Za-z0-9_]*|\{stream\})(/([A-Za-z_][A-Za-z0-9_]*|\{stream\}))*$";

const PATTERNS: [Pattern; 5] = [
    Pattern {
        regex: NAME,
        rule: "a name of small letters, digits, `_` and `-`",
        fits: is_name,
    },
    Pattern {
        regex: TOKEN,
        rule: "a name of letters, digits and `_`, no digit first",
        fits: is_token,
    },
    Pattern {
        regex: NAMESPACE,
        rule: "a namespace such as /perception/lidar",
        fits: |text| {
            let inner = text.strip_prefix('/').unwrap_or(text);
            inner.is_empty() || inner.split('/').all(is_token)
        },
    },
    Pattern {
        regex: TOPIC,
        rule: "a topic such as /a/b, a/b or ~/a",
        fits: |text| is_topic(text, is_token),
    },
    Pattern {
        regex: STREAM_TOPIC,
        rule: "a topic such as /a/b, ~/a or ~/{stream}/a",
        fits: |text| is_topic(text, |part| part == "{stream}" || is_token(part)),
    },
];

/// The pattern that a schema asks for; `None` where it asks for none.
pub(super) fn asked(pattern: &Json) -> Option<&'static Pattern> {
    let regex = pattern.as_str()?;
    PATTERNS.iter().find(|known| known.regex == regex)
}

fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    !text.is_empty() && text.chars().all(allowed)
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn is_topic(text: &str, is_part: impl Fn(&str) -> bool) -> bool {
    let inner = text.strip_prefix("~/").or_else(|| text.strip_prefix('/'));
    inner.unwrap_or(text).split('/').all(is_part)
}
