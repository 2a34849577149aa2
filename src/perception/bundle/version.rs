//! Which of two versions is the newer one.

use std::cmp::Ordering;

/// The order of two versions: numbers with dots between them, such as `1.2` or `v1.10.0`, then a pre-release after a `-`, which
/// comes before the version itself; what follows a `+` counts for nothing. A number that is left out is 0.
///
/// `None` where one of them is written otherwise, unless both are the same.
pub(super) fn order(one: &str, other: &str) -> Option<Ordering> {
    if one == other {
        return Some(Ordering::Equal);
    }
    let (one, other) = (Version::parse(one)?, Version::parse(other)?);
    let length = one.numbers.len().max(other.numbers.len());
    for at in 0..length {
        let order = one.number(at).cmp(&other.number(at));
        if order.is_ne() {
            return Some(order);
        }
    }
    Some(match (&one.before[..], &other.before[..]) {
        ([], []) => Ordering::Equal,
        ([], _) => Ordering::Greater,
        (_, []) => Ordering::Less,
        (one, other) => {
            let (one, other) = (one.iter(), other.iter());
            one.map(|part| Part::of(part))
                .cmp(other.map(|part| Part::of(part)))
        }
    })
}

struct Version<'a> {
    numbers: Vec<&'a str>,
    /// Parts of the pre-release; none where there is none.
    before: Vec<&'a str>,
}

impl<'a> Version<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let text = text.split_once('+').map_or(text, |(version, _)| version);
        let (numbers, before) = match text.split_once('-') {
            Some((numbers, before)) => (numbers, before.split('.').collect()),
            None => (text, Vec::new()),
        };
        let numbers: Vec<&str> = numbers.split('.').collect();
        let fine = numbers.iter().all(|it| is_number(it)) && before.iter().all(|it| !it.is_empty());
        fine.then_some(Self { numbers, before })
    }

    /// The number at a place, in the order of numbers.
    fn number(&self, at: usize) -> (usize, &'a str) {
        digits(self.numbers.get(at).copied().unwrap_or("0"))
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Digits in the order of their numbers, of any length: a date with a time is longer than any integer type.
fn digits(text: &str) -> (usize, &str) {
    let text = text.trim_start_matches('0');
    (text.len(), text)
}

/// A part of a pre-release; numbers come before words.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Part<'a> {
    Number((usize, &'a str)),
    Word(&'a str),
}

impl<'a> Part<'a> {
    fn of(text: &'a str) -> Self {
        match is_number(text) {
            true => Self::Number(digits(text)),
            false => Self::Word(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        let ascending = [
            "0.9",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.2",
            "1.0.0-alpha.10",
            "1.0.0-alpha.beta",
            "1.0.0-rc.1",
            "v1.0.0",
            "1.2",
            "1.10.0",
            "2",
            "20260101123000123456789",
            "20260101123000123456790",
        ];
        for (at, one) in ascending.iter().enumerate() {
            for (other_at, other) in ascending.iter().enumerate() {
                assert_eq!(order(one, other), Some(at.cmp(&other_at)), "{one} {other}");
            }
        }
        for (one, other) in [
            ("1.0", "1"),
            ("1.0.0+a", "1.0.0+b"),
            ("v1.02", "1.2.0"),
            ("best", "best"),
        ] {
            assert_eq!(order(one, other), Some(Ordering::Equal), "{one} {other}");
        }
        for (one, other) in [
            ("best", "1.0"),
            ("1.0", "1.0rc1"),
            ("1..0", "1.0"),
            ("1.0-", "1.0"),
            ("-1", "1"),
        ] {
            assert_eq!(order(one, other), None, "{one} {other}");
        }
    }
}
