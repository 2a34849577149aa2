//! One line of a definition: `TYPE NAME [DEFAULT]` or `TYPE NAME=VALUE`, and `#` with a comment.

use super::definition::{Constant, Element, Field, FieldType, Repeat, is_name, long_name};

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Nothing: it is empty or a comment.
    Nothing,
    Field(Field),
    Constant(Constant),
}

/// Reads a line of a message of `package`.
///
/// # Errors
/// What is wrong with the line.
pub(super) fn read_line(line: &str, package: &str) -> Result<Line, &'static str> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(Line::Nothing);
    }
    let Some((type_text, rest)) = line.split_once([' ', '\t']) else {
        return Err("a type and a name are expected");
    };
    let field_type = read_type(type_text, package)?;
    let rest = rest.trim_start();
    let end = rest
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    if !is_name(name) {
        return Err("a name is expected behind the type: letters, digits and underscores");
    }
    let name = name.to_owned();
    if let Some(value) = rest.trim_start().strip_prefix('=') {
        if field_type.repeat != Repeat::One || matches!(field_type.element, Element::Message(_)) {
            return Err("a constant is one number, bool or string");
        }
        return Ok(Line::Constant(Constant {
            name,
            element: field_type.element,
            value: read_value(value)?.ok_or("a constant needs a value")?,
        }));
    }
    if !rest.is_empty() && !rest.starts_with([' ', '\t', '#']) {
        return Err("a space is expected between a name and its default");
    }
    Ok(Line::Field(Field {
        name,
        field_type,
        default: read_value(rest)?,
    }))
}

/// A default or the value of a constant, without the comment behind it.
fn read_value(text: &str) -> Result<Option<String>, &'static str> {
    let text = text.trim();
    let value = match text.chars().next() {
        // A '#' within quotes or brackets is no comment.
        Some(quote @ ('"' | '\'')) => {
            let mut escaped = false;
            let close = text[1..].find(|c| {
                let closes = c == quote && !escaped;
                escaped = c == '\\' && !escaped;
                closes
            });
            // The quote that opens and the one that closes are a byte each.
            &text[..close.ok_or("a quote is not closed")? + 2]
        }
        Some('[') => {
            let close = text.find(']').ok_or("a bracket is not closed")?;
            &text[..=close]
        }
        _ => text.split('#').next().unwrap_or_default().trim_end(),
    };
    Ok((!value.is_empty()).then(|| value.to_owned()))
}

/// `ELEMENT`, `ELEMENT[]`, `ELEMENT[5]` or `ELEMENT[<=5]`.
fn read_type(text: &str, package: &str) -> Result<FieldType, &'static str> {
    let (element, repeat) = match text.strip_suffix(']') {
        None => (text, Repeat::One),
        Some(open) => {
            let (element, count) = open.rsplit_once('[').ok_or("a ']' without a '['")?;
            let repeat = match count.strip_prefix("<=") {
                _ if count.is_empty() => Repeat::Sequence,
                Some(bound) => Repeat::Bounded(read_count(bound)?),
                None => Repeat::Array(read_count(count)?),
            };
            (element, repeat)
        }
    };
    Ok(FieldType {
        element: read_element(element, package)?,
        repeat,
    })
}

fn read_element(text: &str, package: &str) -> Result<Element, &'static str> {
    let (name, bound) = match text.split_once("<=") {
        Some((name, bound)) => (name, Some(read_count(bound)?)),
        None => (text, None),
    };
    Ok(match name {
        "string" => Element::String(bound),
        "wstring" => Element::WString(bound),
        _ if bound.is_some() => return Err("only strings and sequences have a bound"),
        "bool" => Element::Bool,
        "byte" => Element::Byte,
        "char" => Element::Char,
        "int8" => Element::Int8,
        "uint8" => Element::UInt8,
        "int16" => Element::Int16,
        "uint16" => Element::UInt16,
        "int32" => Element::Int32,
        "uint32" => Element::UInt32,
        "int64" => Element::Int64,
        "uint64" => Element::UInt64,
        "float32" => Element::Float32,
        "float64" => Element::Float64,
        _ => {
            let known = if name.contains('/') {
                long_name(name)
            } else {
                long_name(&format!("{package}/{name}"))
            };
            Element::Message(known.map_err(|_| "neither a type of ROS 2 nor the name of a message")?)
        }
    })
}

/// A capacity: a whole number from 1.
fn read_count(text: &str) -> Result<u64, &'static str> {
    match text.parse() {
        Ok(count) if count > 0 && text.bytes().all(|b| b.is_ascii_digit()) => Ok(count),
        _ => Err("a capacity is a whole number from 1"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn field(line: &str) -> Field {
        match read_line(line, "here_msgs").unwrap() {
            Line::Field(field) => field,
            other => panic!("{line:?}: {other:?}"),
        }
    }

    fn constant(line: &str) -> (String, String) {
        match read_line(line, "here_msgs").unwrap() {
            Line::Constant(constant) => (constant.name, constant.value),
            other => panic!("{line:?}: {other:?}"),
        }
    }

    #[test]
    fn types_are_told_by_element_and_count() {
        let of = |line| {
            let field = field(line);
            (field.field_type.element, field.field_type.repeat)
        };
        assert_eq!(of("uint8[] data"), (Element::UInt8, Repeat::Sequence));
        assert_eq!(
            of("float64[36] covariance"),
            (Element::Float64, Repeat::Array(36))
        );
        assert_eq!(of("int32[<=5] few"), (Element::Int32, Repeat::Bounded(5)));
        assert_eq!(of("string<=9 name"), (Element::String(Some(9)), Repeat::One));
        assert_eq!(
            of("\twstring<=9[<=2]\t names # two"),
            (Element::WString(Some(9)), Repeat::Bounded(2))
        );
        let message = |name: &str| Element::Message(name.to_owned());
        assert_eq!(
            of("Part[2] parts"),
            (message("here_msgs/msg/Part"), Repeat::Array(2))
        );
        for header in ["std_msgs/Header header", "std_msgs/msg/Header header"] {
            assert_eq!(of(header), (message("std_msgs/msg/Header"), Repeat::One));
        }
    }

    #[test]
    fn defaults_constants_and_comments_are_told_apart() {
        assert_eq!(field("float64 w 1  # no rotation").default.as_deref(), Some("1"));
        assert_eq!(
            field("string s \"a # b = c\" # text").default.as_deref(),
            Some("\"a # b = c\"")
        );
        assert_eq!(field("string s 'it\\'s'").default.as_deref(), Some("'it\\'s'"));
        assert_eq!(field("int32[] list [1, 2]#x").default.as_deref(), Some("[1, 2]"));
        assert_eq!(field("uint8 x# comment").default, None);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(constant("uint8 CAR=1"), pair("CAR", "1"));
        assert_eq!(constant("byte OK = 0 # fine"), pair("OK", "0"));
        assert_eq!(constant("string S='#'"), pair("S", "'#'"));
        for nothing in ["", "  ", "# a comment", "\t#"] {
            assert_eq!(read_line(nothing, "here_msgs"), Ok(Line::Nothing));
        }
    }

    #[test]
    fn lines_that_are_neither_are_refused() {
        for wrong in [
            "uint8",
            "uint8 1x",
            "uint8 x=",
            "uint8[] X=1",
            "Part X=1",
            "uint8[0] x",
            "uint8[-1] x",
            "uint8[+1] x",
            "uint8[99999999999999999999] x",
            "uint8[<=] x",
            "uint8] x",
            "uint8<=5 x",
            "a/b/c/d x",
            "a/srv/C x",
            "string s \"open",
            "int32[] list [1, 2",
            "uint8 x-y",
            "---",
        ] {
            assert!(read_line(wrong, "here_msgs").is_err(), "{wrong:?}");
        }
    }
}
