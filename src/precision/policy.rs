//! Which module computes with which precision.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use globset::{Glob, GlobMatcher};

use super::{Precision, PrecisionError};

/// What the modules that a pattern matches compute with.
#[derive(Debug, Clone)]
struct Rule {
    matcher: GlobMatcher,
    precision: Precision,
}

impl Rule {
    fn pattern(&self) -> &str {
        self.matcher.glob().glob()
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.pattern() == other.pattern() && self.precision == other.precision
    }
}

/// A module that asked, and what it got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedModule {
    /// Name of the module.
    pub module: String,
    /// What it computes with.
    pub precision: Precision,
    /// Pattern of the rule that decided; `None` where the default did.
    pub pattern: Option<String>,
}

/// Ordered rules `PATTERN = PRECISION` over the names of modules: the first that matches decides, the default where none
/// does. A pattern is that of the crate `globset` over the whole name: `*` stands for any characters, dots among them, `?` for one,
/// `{a,b}` for one of several and `[ab]` for one character of several.
///
/// A policy remembers who asked, so that [`PrecisionPolicy::describe`] can tell.
///
/// ```
/// # use sensorium::precision::{Precision, PrecisionPolicy};
/// let policy = PrecisionPolicy::parse(&[("head.reg*", "accurate"), ("backbone.*", "HiFi2+fp32:w=bfp8")], "balanced")?;
/// assert_eq!(policy.resolve("head.reg.fc1"), "HiFi4+fp32".parse::<Precision>()?);
/// # Ok::<(), sensorium::precision::PrecisionError>(())
/// ```
#[derive(Debug)]
pub struct PrecisionPolicy {
    rules: Vec<Rule>,
    default: Precision,
    /// Index of the rule that decided for each module that asked.
    asked: Mutex<BTreeMap<String, Option<usize>>>,
}

impl Clone for PrecisionPolicy {
    /// The same rules; nobody has asked the copy.
    fn clone(&self) -> Self {
        Self::from_rules(self.rules.clone(), self.default)
    }
}

impl PartialEq for PrecisionPolicy {
    /// Whether rules and default are the same.
    fn eq(&self, other: &Self) -> bool {
        self.rules == other.rules && self.default == other.default
    }
}

impl PrecisionPolicy {
    /// A policy of rules, pattern and precision, in order, and what modules get that none matches.
    ///
    /// # Errors
    /// [`PrecisionError`] of the first text that is no precision, or of the first pattern that is none.
    pub fn parse(rules: &[(&str, &str)], default: &str) -> Result<Self, PrecisionError> {
        let rules = rules.iter().map(|&(pattern, text)| rule(pattern, text));
        Ok(Self::from_rules(
            rules.collect::<Result<_, _>>()?,
            default.parse()?,
        ))
    }

    fn from_rules(rules: Vec<Rule>, default: Precision) -> Self {
        Self {
            rules,
            default,
            asked: Mutex::default(),
        }
    }

    /// The precision of a module.
    #[must_use]
    pub fn resolve(&self, module: &str) -> Precision {
        let index = self.rules.iter().position(|rule| rule.matcher.is_match(module));
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.insert(module.to_owned(), index);
        index.map_or(self.default, |index| self.rules[index].precision)
    }

    /// A policy in which rules come before those of this one. The text holds rules between semicolons,
    /// `backbone.*=HiFi4+fp32;*=HiFi2+fp32`; a precision alone is for every module.
    ///
    /// # Errors
    /// [`PrecisionError`].
    pub fn overridden(&self, text: &str) -> Result<Self, PrecisionError> {
        let parts = text.split(';').map(str::trim);
        let mut rules = Vec::new();
        for part in parts {
            rules.push(match part.split_once('=') {
                // The `=` of a setting such as `:w=bfp8` ends no pattern.
                Some((pattern, text)) if !pattern.contains(':') => rule(pattern.trim(), text.trim())?,
                _ => rule("*", part)?,
            });
        }
        rules.extend_from_slice(&self.rules);
        Ok(Self::from_rules(rules, self.default))
    }

    /// The policy with the override that the variable `PREFIX_PRECISION` holds; the same policy where it is unset or
    /// empty. `environment` looks variables up.
    ///
    /// # Errors
    /// [`PrecisionError::Environment`].
    pub fn with_env(
        &self,
        prefix: &str,
        environment: impl FnOnce(&str) -> Option<String>,
    ) -> Result<Self, PrecisionError> {
        let variable = format!("{prefix}_PRECISION");
        let Some(text) = environment(&variable).filter(|text| !text.trim().is_empty()) else {
            return Ok(self.clone());
        };
        self.overridden(&text)
            .map_err(|source| PrecisionError::Environment {
                variable,
                source: Box::new(source),
            })
    }

    /// The modules that have asked so far, by name, each with the rule that decided.
    #[must_use]
    pub fn resolved(&self) -> Vec<ResolvedModule> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let resolved = asked.iter().map(|(module, &index)| {
            let rule = index.map(|index| &self.rules[index]);
            ResolvedModule {
                module: module.clone(),
                precision: rule.map_or(self.default, |rule| rule.precision),
                pattern: rule.map(|rule| rule.pattern().to_owned()),
            }
        });
        resolved.collect()
    }

    /// Rules and default, a line each, and the modules that have asked: what a log should say of a run.
    #[must_use]
    pub fn describe(&self) -> String {
        use fmt::Write;
        let mut text = String::new();
        // Writing to a string does not fail.
        for rule in &self.rules {
            let _ = writeln!(text, "{} = {}", rule.pattern(), rule.precision);
        }
        let _ = writeln!(text, "otherwise {}", self.default);
        for module in self.resolved() {
            let rule = module
                .pattern
                .map_or("the default".into(), |pattern| format!("rule {pattern}"));
            let _ = writeln!(text, "  {} -> {} ({rule})", module.module, module.precision);
        }
        text
    }
}

fn rule(pattern: &str, text: &str) -> Result<Rule, PrecisionError> {
    if pattern.is_empty() || text.is_empty() {
        return Err(PrecisionError::Rule {
            rule: format!("{pattern}={text}"),
        });
    }
    let glob = Glob::new(pattern).map_err(|error| PrecisionError::Pattern {
        pattern: pattern.into(),
        reason: error.kind().to_string(),
    })?;
    Ok(Rule {
        matcher: glob.compile_matcher(),
        precision: text.parse()?,
    })
}
