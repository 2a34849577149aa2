//! Text that is safe inside markup, and numbers as reports write them.

use std::borrow::Cow;

/// Text for an HTML or SVG element or attribute. Names come from recordings, so nothing in them may act as
/// markup; control characters, which XML forbids, become the replacement character.
pub(super) fn escape(text: &str) -> Cow<'_, str> {
    let special =
        |c: char| matches!(c, '&' | '<' | '>' | '"' | '\'' | '\u{FFFE}' | '\u{FFFF}') || c.is_control();
    if !text.contains(special) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ if special(c) => safe.push('\u{FFFD}'),
            _ => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

/// Microseconds as milliseconds to the microsecond, without a unit.
pub(super) fn ms(value_us: f64) -> String {
    format!("{:.3}", value_us / 1000.0)
}

/// A duration in microseconds with the unit that suits it, to three digits, for labels.
pub(super) fn duration(value_us: f64) -> String {
    let (value, unit) = match value_us {
        v if v < 1000.0 => (v, "µs"),
        v if v < 1e6 => (v / 1e3, "ms"),
        v => (v / 1e6, "s"),
    };
    let digits = match value {
        v if v >= 100.0 || v.fract() == 0.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {unit}")
}

/// A count with thin spaces between groups of three digits.
pub(super) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut grouped = String::with_capacity(digits.len() * 2);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push('\u{2009}');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_name_can_act_as_markup() {
        assert_eq!(
            escape("<script>alert('a' & \"b\")</script>"),
            "&lt;script&gt;alert(&#39;a&#39; &amp; &quot;b&quot;)&lt;/script&gt;"
        );
        assert_eq!(escape("a\0b\u{1b}[31m"), "a\u{FFFD}b\u{FFFD}[31m");
        assert!(matches!(escape("/camera/front é"), Cow::Borrowed(_)));
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(ms(5_234.5), "5.234");
        assert_eq!(count(0), "0");
        assert_eq!(count(1_234_567), "1\u{2009}234\u{2009}567");
        assert_eq!(count(123), "123");
        assert_eq!(duration(12.34), "12.3 µs");
        assert_eq!(duration(5_234.5), "5.23 ms");
        assert_eq!(duration(2.5e6), "2.50 s");
        assert_eq!(
            (duration(0.0).as_str(), duration(40_000.0).as_str()),
            ("0 µs", "40 ms")
        );
    }
}
