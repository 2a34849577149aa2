//! Values that a network's function showed, by name.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::goldens::{GoldenError, save_goldens};
use crate::tensor::HostTensor;
use crate::trace::{Taps, WorkError};
use crate::weights::NpzCompression;

/// A value of a name that is there already.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name} was shown already: give every tap of a run its own name, and clear the registry between runs"
)]
pub struct TapTwice {
    /// The name.
    pub name: String,
}

/// Collects the values that are shown to it. Clones share what they collect: give one to a runner
/// ([`TraceRunner::set_taps`](crate::trace::TraceRunner::set_taps)) and keep the other.
#[derive(Debug, Clone)]
pub struct TapRegistry {
    include: Arc<[String]>,
    exclude: Arc<[String]>,
    values: Arc<Mutex<BTreeMap<String, HostTensor>>>,
}

impl TapRegistry {
    /// A registry that wants every value.
    #[must_use]
    pub fn all() -> Self {
        Self {
            include: Arc::default(),
            exclude: Arc::default(),
            values: Arc::default(),
        }
    }

    /// A registry that wants the values whose names match one of `include` (where that is empty, all) and none of
    /// `exclude`. In these patterns `*` stands for any text, dots among it, and `?` for one character.
    #[must_use]
    pub fn new(include: &[&str], exclude: &[&str]) -> Self {
        let patterns = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        Self {
            include: patterns(include),
            exclude: patterns(exclude),
            values: Arc::default(),
        }
    }

    /// Names of what was shown, in alphabetical order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.held().keys().cloned().collect()
    }

    /// A copy of what was shown.
    #[must_use]
    pub fn values(&self) -> BTreeMap<String, HostTensor> {
        self.held().clone()
    }

    /// Writes what was shown as goldens.
    ///
    /// # Errors
    /// As [`save_goldens`].
    pub fn save(
        &self,
        file: &Path,
        meta: Option<Value>,
        compression: NpzCompression,
    ) -> Result<(), GoldenError> {
        save_goldens(file, &self.held(), meta, compression)
    }

    /// Forgets what was shown, before the next run.
    pub fn clear(&self) {
        self.held().clear();
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<String, HostTensor>> {
        // A map is whole whoever panicked while holding it.
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taps for TapRegistry {
    fn wants(&self, name: &str) -> bool {
        let matches = |patterns: &[String]| patterns.iter().any(|pattern| fits(pattern, name));
        (self.include.is_empty() || matches(&self.include)) && !matches(&self.exclude)
    }

    fn take(&mut self, name: &str, value: HostTensor) -> Result<(), WorkError> {
        let mut held = self.held();
        if held.contains_key(name) {
            return Err(TapTwice {
                name: name.to_owned(),
            }
            .into());
        }
        held.insert(name.to_owned(), value);
        Ok(())
    }
}

/// Whether a name fits a pattern of `*` (any text) and `?` (any character).
fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut seen) = (0, 0);
    // The last star, and the text behind it that was tried: where the rest does not fit, the star takes one more.
    let mut star: Option<(usize, usize)> = None;
    while seen < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, seen));
                at += 1;
            }
            Some(&wanted) if wanted == '?' || wanted == name[seen] => {
                at += 1;
                seen += 1;
            }
            _ => {
                let Some((place, taken)) = star else {
                    return false;
                };
                star = Some((place, taken + 1));
                (at, seen) = (place + 1, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|&rest| rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_names() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", "head.heat", true),
            ("head.*", "head.heat", true),
            ("head.*", "head", false),
            ("*.heat", "a.b.heat", true),
            ("*.heat", "heat", false),
            ("h*t*t", "head.heat", false),
            ("h*a*t", "head.heat", true),
            ("layer?", "layer3", true),
            ("layer?", "layer13", false),
            ("", "x", false),
            ("\u{e9}?", "\u{e9}\u{e8}", true),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }
}
