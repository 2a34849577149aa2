//! Checks a spanned tree against the JSON Schema, collecting every error, and turns it into plain JSON.
//!
//! Only the keywords that the schema of pipeline files uses are understood; a test keeps the two together.

use serde_json::{Map, Number, Value as Json};

use super::nearest::{alternatives, nearest, suggestion};
use super::patterns;
use super::problem::Problem;
use super::reader::{SchemaReader, accepts};
use super::source::Span;
use super::tree::{Entry, Node, Value};

/// The tree as JSON, without the parts that are wrong: those are dropped from named maps and lists, and left
/// out of a map where they may be; where they may not, the whole map is dropped. `None` if nothing is left.
pub(super) fn check(tree: &Node, schema: &Json, problems: &mut Vec<Problem>) -> Option<Json> {
    let start = Span::new(tree.span.source(), 0..0);
    let whole = match schema["title"].as_str() {
        Some("Vehicle") => "the vehicle",
        Some("Pipeline") | None => "the pipeline",
        Some(_) => "the file",
    };
    Shape {
        schema: SchemaReader { root: schema },
        problems,
    }
    .check(
        tree,
        schema,
        &Place {
            path: "",
            key: &start,
            whole,
        },
    )
}

/// Where a value stands: its dotted path, and the key that it belongs to.
struct Place<'a> {
    path: &'a str,
    key: &'a Span,
    /// What the whole file is.
    whole: &'static str,
}

impl Place<'_> {
    fn named(&self) -> String {
        if self.path.is_empty() {
            self.whole.to_owned()
        } else {
            format!("`{}`", self.path)
        }
    }

    fn child(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }
}

struct Shape<'s, 'p> {
    schema: SchemaReader<'s>,
    problems: &'p mut Vec<Problem>,
}

impl<'s> Shape<'s, '_> {
    fn check(&mut self, node: &Node, schema: &'s Json, place: &Place<'_>) -> Option<Json> {
        if matches!(node.value, Value::Unknown) {
            return None;
        }
        // A schema of `true` takes anything; such values are read from the tree, where their places are.
        if *schema == Json::Bool(true) {
            return Some(Json::Null);
        }
        let target = self.schema.follow(schema);
        if let Some(words) = self.schema.words(target) {
            return self.check_word(node, &words, schema, place);
        }
        if let Some(branches) = target["oneOf"].as_array() {
            return self.check_tagged(node, branches, schema, place);
        }
        if let Some(branches) = target["anyOf"].as_array() {
            return self.check_any(node, branches, schema, place);
        }
        if accepts(target, "null") && matches!(node.value, Value::Null) {
            return Some(Json::Null);
        }
        match &node.value {
            Value::Map(entries) if accepts(target, "object") => self.check_map(entries, target, place),
            Value::List(items) if accepts(target, "array") => self.check_list(items, target, place),
            Value::Bool(value) if accepts(target, "boolean") => Some(Json::Bool(*value)),
            Value::Int(value) if accepts(target, "integer") || accepts(target, "number") => {
                self.check_number(*value as f64, integer(*value), node, schema, place)
            }
            Value::Float(value) if accepts(target, "number") => {
                self.check_number(*value, Number::from_f64(*value), node, schema, place)
            }
            Value::Text(text) if accepts(target, "string") => self.check_text(text, node, schema, place),
            Value::Substituted(text) => self.check_substituted(text, node, schema, place),
            _ => self.wrong(node, schema, place),
        }
    }

    fn check_word(
        &mut self,
        node: &Node,
        words: &[&str],
        schema: &'s Json,
        place: &Place<'_>,
    ) -> Option<Json> {
        match node.text() {
            Some(text) if words.contains(&text) => Some(Json::from(text)),
            Some(_) => self.wrong_word(node, words, schema, place),
            None => self.wrong(node, schema, place),
        }
    }

    fn wrong_word(
        &mut self,
        node: &Node,
        words: &[&str],
        schema: &'s Json,
        place: &Place<'_>,
    ) -> Option<Json> {
        let text = node.text().unwrap_or_default();
        // With one word to choose from, any other would seem to be near it.
        let near = nearest(text, words.iter().copied()).filter(|_| words.len() > 1 || text.len() > 3);
        let label = near.map_or_else(
            || format!("expected {}", self.schema.describe(schema)),
            |word| format!("did you mean `{word}`?"),
        );
        let help = format!("`{}` takes {}", place.path, self.schema.describe(schema));
        self.problems.push(
            Problem::error(format!("`{}` cannot be `{text}`", place.path), &node.span, label).help(help),
        );
        None
    }

    /// A value of the wrong type.
    fn wrong(&mut self, node: &Node, schema: &'s Json, place: &Place<'_>) -> Option<Json> {
        let (message, span) = match &node.value {
            Value::Text(text) | Value::Substituted(text) => (
                format!("{} cannot be the text {text:?}", place.named()),
                &node.span,
            ),
            Value::Bool(value) => (format!("{} cannot be {value}", place.named()), &node.span),
            Value::Int(value) => (format!("{} cannot be {value}", place.named()), &node.span),
            Value::Float(value) => (format!("{} cannot be {value}", place.named()), &node.span),
            // A collection has no text of its own to point at, and nothing has no text at all.
            other => (format!("{} cannot be {}", place.named(), other.kind()), place.key),
        };
        self.refuse(message, span, schema)
    }

    fn refuse(&mut self, message: String, span: &Span, schema: &'s Json) -> Option<Json> {
        let problem = Problem::error(
            message,
            span,
            format!("expected {}", self.schema.describe(schema)),
        );
        self.problems.push(match self.schema.description(schema) {
            Some(description) => problem.help(description),
            None => problem,
        });
        None
    }

    fn check_number(
        &mut self,
        value: f64,
        number: Option<Number>,
        node: &Node,
        schema: &'s Json,
        place: &Place<'_>,
    ) -> Option<Json> {
        let target = self.schema.follow(schema);
        let within = target["minimum"].as_f64().is_none_or(|low| value >= low)
            && target["exclusiveMinimum"].as_f64().is_none_or(|low| value > low)
            && target["maximum"].as_f64().is_none_or(|high| value <= high);
        match number {
            Some(number) if within => Some(Json::Number(number)),
            _ => self.wrong(node, schema, place),
        }
    }

    fn check_text(&mut self, text: &str, node: &Node, schema: &'s Json, place: &Place<'_>) -> Option<Json> {
        let target = self.schema.follow(schema);
        let min = target["minLength"].as_u64().unwrap_or(0);
        let fits = |pattern: &patterns::Pattern| (pattern.fits)(text);
        if (text.chars().count() as u64) < min || !patterns::asked(&target["pattern"]).is_none_or(fits) {
            // The error forbids the file, but what else is wrong with it can still be found.
            self.wrong(node, schema, place);
        }
        Some(Json::from(text))
    }

    /// Text from the environment is what its place wants it to be.
    fn check_substituted(
        &mut self,
        text: &str,
        node: &Node,
        schema: &'s Json,
        place: &Place<'_>,
    ) -> Option<Json> {
        let target = self.schema.follow(schema);
        let value = if accepts(target, "string") {
            Some(Value::Text(text.to_owned()))
        } else if accepts(target, "integer") {
            text.parse().ok().map(Value::Int)
        } else if accepts(target, "number") {
            text.parse()
                .ok()
                .filter(|value: &f64| value.is_finite())
                .map(Value::Float)
        } else if accepts(target, "boolean") {
            text.parse().ok().map(Value::Bool)
        } else {
            None
        };
        match value {
            Some(value) => {
                let typed = Node {
                    value,
                    span: node.span.clone(),
                };
                self.check(&typed, schema, place)
            }
            None => self.wrong(node, schema, place),
        }
    }

    /// One of several types: the first that fits; if none does, the error of the one that was meant.
    fn check_any(
        &mut self,
        node: &Node,
        branches: &'s [Json],
        schema: &'s Json,
        place: &Place<'_>,
    ) -> Option<Json> {
        if matches!(node.value, Value::Null) && branches.iter().any(|branch| accepts(branch, "null")) {
            return Some(Json::Null);
        }
        let real: Vec<&Json> = branches
            .iter()
            .filter(|branch| !accepts(branch, "null"))
            .collect();
        for branch in &real {
            let mut unused = Vec::new();
            let mut attempt = Shape {
                schema: self.schema,
                problems: &mut unused,
            };
            if let Some(value) = attempt.check(node, branch, place)
                && unused.is_empty()
            {
                return Some(value);
            }
        }
        let words: Vec<&str> = real
            .iter()
            .filter_map(|branch| self.schema.words(self.schema.follow(branch)))
            .flatten()
            .collect();
        match &node.value {
            Value::Text(_) | Value::Substituted(_) if !words.is_empty() => {
                self.wrong_word(node, &words, schema, place)
            }
            Value::List(_) => match real
                .iter()
                .find(|branch| accepts(self.schema.follow(branch), "array"))
            {
                Some(branch) => self.check(node, branch, place),
                None => self.wrong(node, schema, place),
            },
            _ => match real.as_slice() {
                [only] => self.check(node, only, place),
                _ => self.wrong(node, schema, place),
            },
        }
    }

    /// A map whose `kind` says which keys it has.
    fn check_tagged(
        &mut self,
        node: &Node,
        branches: &'s [Json],
        schema: &'s Json,
        place: &Place<'_>,
    ) -> Option<Json> {
        let Value::Map(entries) = &node.value else {
            return self.wrong(node, schema, place);
        };
        let tags: Vec<(&str, &str, &Json)> = branches
            .iter()
            .map(|branch| self.schema.follow(branch))
            .filter_map(|branch| {
                let (key, value) = branch["properties"]
                    .as_object()?
                    .iter()
                    .find(|(_, property)| property["const"].is_string())?;
                Some((key.as_str(), value["const"].as_str()?, branch))
            })
            .collect();
        let key = tags.first()?.0;
        let words: Vec<&str> = tags.iter().map(|&(_, word, _)| word).collect();
        let Some(tag) = node.entry(key) else {
            self.problems.push(Problem::error(
                format!("{} has no `{key}`", place.named()),
                place.key,
                format!("expected `{key}:` with {}", alternatives(words)),
            ));
            return None;
        };
        let wanted = tag.value.text().unwrap_or_default();
        match tags.iter().find(|&&(_, word, _)| word == wanted) {
            Some((_, _, branch)) => self.check_map(entries, branch, place),
            None => {
                let label = nearest(wanted, words.iter().copied()).map_or_else(
                    || format!("expected {}", alternatives(words.iter().copied())),
                    |word| format!("did you mean `{word}`?"),
                );
                let span = if wanted.is_empty() {
                    &tag.key_span
                } else {
                    &tag.value.span
                };
                self.problems.push(
                    Problem::error(
                        format!("`{}` cannot be `{wanted}`", place.child(key)),
                        span,
                        label,
                    )
                    .help(format!("the kinds are {}", alternatives(words))),
                );
                None
            }
        }
    }

    fn check_map(&mut self, entries: &[Entry], schema: &'s Json, place: &Place<'_>) -> Option<Json> {
        self.check_duplicates(entries, place);
        match schema["properties"].as_object() {
            Some(properties) => self.check_keys(entries, properties, schema, place),
            None => self.check_named(entries, schema, place),
        }
    }

    fn check_duplicates(&mut self, entries: &[Entry], place: &Place<'_>) {
        for (index, entry) in entries.iter().enumerate() {
            if let Some(first) = entries[..index].iter().find(|first| first.key == entry.key) {
                self.problems.push(
                    Problem::error(
                        format!("`{}` is there twice", place.child(&entry.key)),
                        &entry.key_span,
                        "the second one",
                    )
                    .related(&first.key_span, "the first one"),
                );
            }
        }
    }

    /// A map with known keys.
    fn check_keys(
        &mut self,
        entries: &[Entry],
        properties: &'s Map<String, Json>,
        schema: &'s Json,
        place: &Place<'_>,
    ) -> Option<Json> {
        let known = || properties.keys().map(String::as_str);
        let required: Vec<&str> = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Json::as_str)
            .collect();
        let mut map = Map::new();
        // Keys that a misspelt one was meant to be; saying that they are missing too would only confuse.
        let mut meant = Vec::new();
        for entry in entries {
            let Some(property) = properties.get(&entry.key) else {
                meant.extend(nearest(&entry.key, known()));
                self.problems.push(
                    Problem::error(
                        format!("unknown key `{}` in {}", entry.key, place.named()),
                        &entry.key_span,
                        suggestion(&entry.key, known()),
                    )
                    .help(format!("the keys here are {}", alternatives(known()))),
                );
                continue;
            };
            let path = place.child(&entry.key);
            let at = Place {
                path: &path,
                key: &entry.key_span,
                whole: place.whole,
            };
            if let Some(value) = self.check(&entry.value, property, &at) {
                map.insert(entry.key.clone(), value);
            }
        }
        for &key in &required {
            if entries.iter().any(|entry| entry.key == key) || meant.contains(&key) {
                continue;
            }
            let property = &properties[key];
            let label = format!("expected `{key}:` with {}", self.schema.describe(property));
            let problem = Problem::error(format!("{} has no `{key}`", place.named()), place.key, label);
            self.problems.push(match self.schema.description(property) {
                Some(description) => problem.help(description),
                None => problem,
            });
        }
        required
            .iter()
            .all(|&key| map.contains_key(key))
            .then_some(Json::Object(map))
    }

    /// A map whose keys are names.
    fn check_named(&mut self, entries: &[Entry], schema: &'s Json, place: &Place<'_>) -> Option<Json> {
        let mut map = Map::new();
        for entry in entries {
            let path = place.child(&entry.key);
            if let Some(pattern) = patterns::asked(&schema["propertyNames"]["pattern"])
                && !(pattern.fits)(&entry.key)
            {
                self.problems.push(Problem::error(
                    format!("{:?} is no name for an entry of {}", entry.key, place.named()),
                    &entry.key_span,
                    pattern.rule,
                ));
                continue;
            }
            let at = Place {
                path: &path,
                key: &entry.key_span,
                whole: place.whole,
            };
            if let Some(value) = self.check(&entry.value, &schema["additionalProperties"], &at) {
                map.insert(entry.key.clone(), value);
            }
        }
        Some(Json::Object(map))
    }

    fn check_list(&mut self, items: &[Node], schema: &'s Json, place: &Place<'_>) -> Option<Json> {
        if schema["minItems"]
            .as_u64()
            .is_some_and(|min| (items.len() as u64) < min)
        {
            return self.refuse(format!("{} cannot be empty", place.named()), place.key, schema);
        }
        let mut list = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let path = place.child(&index.to_string());
            // A map in a list has no key of its own; its first key stands for it.
            let key = item.entries().first().map_or(&item.span, |first| &first.key_span);
            if let Some(value) = self.check(
                item,
                &schema["items"],
                &Place {
                    path: &path,
                    key,
                    whole: place.whole,
                },
            ) {
                list.push(value);
            }
        }
        Some(Json::Array(list))
    }
}

fn integer(value: i128) -> Option<Number> {
    i64::try_from(value).ok().map(Number::from)
}
