//! Sections of which a process has one: what the pipelines of a vehicle say about them becomes one section.

use crate::pipeline::problem::Problem;
use crate::pipeline::source::Span;
use crate::pipeline::tree::{Entry, Node, Value};

/// One section of what the vehicle and its pipelines say. What the vehicle says goes before the pipelines, which must not
/// contradict each other.
pub(super) fn merge(
    section: &str,
    vehicle: &Node,
    pipelines: &[&Node],
    problems: &mut Vec<Problem>,
) -> Option<Entry> {
    let mut merged: Option<Entry> = vehicle.entry(section).cloned();
    let fixed = merged.as_ref().map(keys).unwrap_or_default();
    for pipeline in pipelines {
        let Some(said) = pipeline.entry(section) else {
            continue;
        };
        match &mut merged {
            None => merged = Some(said.clone()),
            Some(merged) => add(section, &mut merged.value, &said.value, &fixed, problems),
        }
    }
    merged
}

/// Paths of a section whose values are those of the vehicle.
fn keys(section: &Entry) -> Vec<String> {
    section
        .value
        .entries()
        .iter()
        .map(|entry| entry.key.clone())
        .collect()
}

fn add(path: &str, merged: &mut Node, said: &Node, fixed: &[String], problems: &mut Vec<Problem>) {
    let (Value::Map(known), Value::Map(new)) = (&mut merged.value, &said.value) else {
        // A section that is no map is told when it is checked.
        return;
    };
    for entry in new {
        if fixed.contains(&entry.key) {
            continue;
        }
        match known.iter_mut().find(|known| known.key == entry.key) {
            None => known.push(entry.clone()),
            Some(found) => compare(&format!("{path}.{}", entry.key), found, entry, problems),
        }
    }
}

fn compare(path: &str, first: &mut Entry, second: &Entry, problems: &mut Vec<Problem>) {
    if same(&first.value, &second.value) {
        return;
    }
    if let (Value::Map(_), Value::Map(_)) = (&first.value.value, &second.value.value) {
        return add(path, &mut first.value, &second.value, &[], problems);
    }
    let place = |span: &Span| {
        let (line, column) = span.line_column();
        format!("{}:{line}:{column}", span.source().name())
    };
    let (one, other) = (&first.key_span, &second.key_span);
    problems.push(
        Problem::error(
            format!("`{path}` is not the same in all pipelines of the vehicle"),
            other,
            format!("expected what {} says", place(one)),
        )
        .help(format!(
            "one process has one of it: say `{path}` in the vehicle file, which goes before {} and {}",
            place(one),
            place(other)
        )),
    );
}

fn same(one: &Node, other: &Node) -> bool {
    match (&one.value, &other.value) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::Float(a), Value::Float(b)) => a == b,
        (Value::Int(a), Value::Float(b)) | (Value::Float(b), Value::Int(a)) => *a as f64 == *b,
        (Value::Text(a) | Value::Substituted(a), Value::Text(b) | Value::Substituted(b)) => a == b,
        (Value::List(a), Value::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Map(a), Value::Map(b)) => {
            let has = |entry: &Entry| {
                b.iter()
                    .any(|it| it.key == entry.key && same(&it.value, &entry.value))
            };
            a.len() == b.len() && a.iter().all(has)
        }
        _ => false,
    }
}
