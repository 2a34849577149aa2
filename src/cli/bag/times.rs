//! Times of the command line: seconds from the start of a bag, or since the epoch.

use std::str::FromStr;

/// A point in a bag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BagTime {
    /// Nanoseconds from the bag's first message.
    Offset(u64),
    /// Nanoseconds since the epoch.
    Absolute(u64),
}

impl BagTime {
    /// Nanoseconds since the epoch, in a bag that starts at `start_ns`.
    pub(super) fn in_bag(self, start_ns: u64) -> u64 {
        match self {
            Self::Offset(ns) => start_ns.saturating_add(ns),
            Self::Absolute(ns) => ns,
        }
    }
}

impl FromStr for BagTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix('@') {
            Some(seconds) => seconds_ns(seconds).map(Self::Absolute),
            None => seconds_ns(text).map(Self::Offset),
        }
        .map_err(|_| {
            "seconds from the start of the bag are expected, such as 12.5, or since the epoch, such as \
             @1700000000.25"
                .to_owned()
        })
    }
}

/// Decimal seconds in nanoseconds, exactly.
pub(super) fn seconds_ns(text: &str) -> Result<u64, String> {
    let expected = || "seconds are expected, such as 12.5".to_owned();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return Err(expected());
    }
    let nanoseconds = format!("{fraction:0<9}").parse::<u64>().map_err(|_| expected())?;
    let whole = whole
        .parse::<u64>()
        .ok()
        .and_then(|s| s.checked_mul(1_000_000_000));
    whole
        .and_then(|whole| whole.checked_add(nanoseconds))
        .ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_read_to_the_nanosecond() {
        assert_eq!(seconds_ns("1700000000.123456789"), Ok(1_700_000_000_123_456_789));
        assert_eq!(
            (seconds_ns("0.5"), seconds_ns("12")),
            (Ok(500_000_000), Ok(12_000_000_000))
        );
        for text in [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "1e3",
            "1.0000000001",
            "99999999999999",
            "1.5s",
        ] {
            assert!(seconds_ns(text).is_err(), "{text}");
        }
        assert_eq!("3.25".parse(), Ok(BagTime::Offset(3_250_000_000)));
        assert_eq!("@3".parse(), Ok(BagTime::Absolute(3_000_000_000)));
        assert_eq!(BagTime::Offset(u64::MAX).in_bag(5), u64::MAX);
    }
}
