//! Patterns of module names.

use std::fmt;

/// A pattern over a whole name: `*` stands for any characters, dots and none among them, `?` for one. Everything else
/// stands for itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Glob(String);

impl Glob {
    pub(super) fn new(pattern: &str) -> Self {
        Self(pattern.to_owned())
    }

    /// Takes time proportional to the product of the lengths at most.
    pub(super) fn matches(&self, name: &str) -> bool {
        let (pattern, name): (Vec<char>, Vec<char>) = (self.0.chars().collect(), name.chars().collect());
        let (mut p, mut n) = (0, 0);
        // Where the last star stands, and the first character that it does not cover so far.
        let mut star: Option<(usize, usize)> = None;
        while n < name.len() {
            match pattern.get(p) {
                Some('*') => {
                    star = Some((p, n));
                    p += 1;
                }
                Some(&c) if c == '?' || c == name[n] => {
                    p += 1;
                    n += 1;
                }
                _ => match &mut star {
                    // The last star covers one more; an earlier one never has to, since it could only cover what this
                    // one does.
                    Some((at, covered)) => {
                        *covered += 1;
                        (p, n) = (*at + 1, *covered);
                    }
                    None => return false,
                },
            }
        }
        pattern[p..].iter().all(|&c| c == '*')
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Glob;

    /// The definition, by recursion.
    fn slow(pattern: &[char], name: &[char]) -> bool {
        match (pattern.first(), name.first()) {
            (None, None) => true,
            (Some('*'), _) => slow(&pattern[1..], name) || (!name.is_empty() && slow(pattern, &name[1..])),
            (Some(&p), Some(&n)) => (p == '?' || p == n) && slow(&pattern[1..], &name[1..]),
            _ => false,
        }
    }

    /// Every text of some characters up to a length.
    fn texts(alphabet: &[char], longest: usize) -> Vec<Vec<char>> {
        let mut all = vec![Vec::new()];
        let mut last = all.clone();
        for _ in 0..longest {
            last = last
                .iter()
                .flat_map(|text| alphabet.iter().map(move |&c| [&text[..], &[c]].concat()))
                .collect();
            all.extend(last.clone());
        }
        all
    }

    #[test]
    fn every_short_pattern_matches_what_the_definition_says() {
        let names = texts(&['a', '.'], 5);
        for pattern in texts(&['a', '.', '*', '?'], 4) {
            let glob = Glob::new(&pattern.iter().collect::<String>());
            for name in &names {
                let text: String = name.iter().collect();
                assert_eq!(glob.matches(&text), slow(&pattern, name), "{glob} on {text}");
            }
        }
    }

    #[test]
    fn stars_match_dots() {
        assert!(Glob::new("backbone.*").matches("backbone.block3.conv2"));
        assert!(Glob::new("*.conv?").matches("backbone.block3.conv2"));
        assert!(!Glob::new("head.reg*").matches("head.cls"));
        assert!(!Glob::new("backbone.*").matches("backbone"));
        assert!(Glob::new("head.[0]").matches("head.[0]"));
    }

    #[test]
    fn many_stars_do_not_take_long() {
        let pattern = Glob::new(&"a*".repeat(40));
        assert!(!pattern.matches(&format!(
            "{}b{}c",
            "a".repeat(20),
            "a".repeat(5_000).replace('a', "x")
        )));
    }
}
