//! `--set a.b.c=value`: changes to a pipeline file from the command line.

use super::nearest::{alternatives, suggestion};
use super::problem::Problem;
use super::source::{Source, Span, source};
use super::tree::{Entry, Node, Value, parse};

/// Sections whose entries have names that the file chose: an override can change such an entry, but not make
/// one, so that a misspelt name is told as such.
const NAMED_SECTIONS: [&str; 2] = ["models", "nodes"];

/// Applies one override. The new value keeps its place in the option's own text, so that later errors point
/// there.
///
/// # Errors
/// A path through something that has no parts, to a model or node that the file does not have, or a value
/// that is no YAML.
pub(super) fn apply(tree: &mut Node, path: &str, value: &str) -> Result<(), Box<Problem>> {
    let option = source("--set", format!("{path}={value}"));
    let new = parse(&option, path.len() + 1)?;
    put(tree, steps(path, &option), new)
}

/// Puts a value of another file in its place; errors point at `at`.
///
/// # Errors
/// As [`apply`].
pub(super) fn put_value(tree: &mut Node, path: &str, at: &Span, new: Node) -> Result<(), Box<Problem>> {
    put(
        tree,
        path.split('.').map(|step| (step, at.clone())).collect(),
        new,
    )
}

fn put(tree: &mut Node, mut steps: Vec<(&str, Span)>, new: Node) -> Result<(), Box<Problem>> {
    let Some((last, last_span)) = steps.pop() else {
        return Ok(());
    };
    let mut here = tree;
    for (depth, (step, span)) in steps.iter().enumerate() {
        here = part(here, step, span, true)?;
        if depth == 0 && NAMED_SECTIONS.contains(step) {
            let (name, name_span) = steps
                .get(1)
                .map_or((last, &last_span), |(name, span)| (*name, span));
            require(here, step, name, name_span)?;
        }
    }
    *part(here, last, &last_span, false)? = new;
    Ok(())
}

/// The dotted path in parts, each with its place.
fn steps<'a>(path: &'a str, option: &Source) -> Vec<(&'a str, Span)> {
    let mut start = 0;
    path.split('.')
        .map(|step| {
            let span = Span::new(option, start..start + step.len());
            start += step.len() + 1;
            (step, span)
        })
        .collect()
}

fn require(section: &Node, section_name: &str, name: &str, span: &Span) -> Result<(), Box<Problem>> {
    let known = || section.entries().iter().map(|entry| entry.key.as_str());
    if known().any(|key| key == name) {
        return Ok(());
    }
    Err(Box::new(
        Problem::error(
            format!("`{section_name}` has no `{name}`"),
            span,
            suggestion(name, known()),
        )
        .help(format!("the file has {}", alternatives(known()))),
    ))
}

/// The part of `node` that `step` names. A key that a map does not have is made: whether it may be there is
/// checked later, with all other keys.
fn part<'t>(node: &'t mut Node, step: &str, span: &Span, inner: bool) -> Result<&'t mut Node, Box<Problem>> {
    if inner && matches!(node.value, Value::Null) {
        node.value = Value::Map(Vec::new());
    }
    match &mut node.value {
        Value::Map(entries) => {
            let found = entries.iter().position(|entry| entry.key == step);
            let index = found.unwrap_or(entries.len());
            if found.is_none() {
                let value = if inner {
                    Value::Map(Vec::new())
                } else {
                    Value::Null
                };
                entries.push(Entry {
                    key: step.to_owned(),
                    key_span: span.clone(),
                    value: Node {
                        value,
                        span: span.clone(),
                    },
                });
            }
            Ok(&mut entries[index].value)
        }
        Value::List(items) => {
            let len = items.len();
            step.parse::<usize>()
                .ok()
                .and_then(|index| items.get_mut(index))
                .ok_or_else(|| {
                    Box::new(Problem::error(
                        format!("`{step}` is no item of a list of {len}"),
                        span,
                        "expected the number of an item, counted from 0",
                    ))
                })
        }
        other => Err(Box::new(Problem::error(
            format!("`{step}` cannot be set: what holds it is {}", other.kind()),
            span,
            "expected the path of a value in the file, such as nodes.camera.rate",
        ))),
    }
}
