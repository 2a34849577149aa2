//! One switch for each optimisation.

use std::collections::BTreeMap;

use super::knob_values::{KnobSource, KnobValue, KnobValues, Setting};

/// One optimisation: its name, the best measured setting as the default, and what else it can be.
#[derive(Debug, Clone, PartialEq)]
pub struct Knob {
    name: &'static str,
    default: KnobValue,
    doc: &'static str,
    choices: Vec<KnobValue>,
    experiment: bool,
}

impl Knob {
    /// A knob; names are capitals, digits and `_`, as in environment variables.
    pub fn new(name: &'static str, default: impl Into<KnobValue>, doc: &'static str) -> Self {
        Self {
            name,
            default: default.into(),
            doc,
            choices: Vec::new(),
            experiment: false,
        }
    }

    /// With nothing allowed but these values.
    #[must_use]
    pub fn choices<T: Into<KnobValue>>(self, choices: impl IntoIterator<Item = T>) -> Self {
        Self {
            choices: choices.into_iter().map(Into::into).collect(),
            ..self
        }
    }

    /// Not measured well enough to be set in earnest: reading another value than the default warns.
    #[must_use]
    pub fn experiment(self) -> Self {
        Self {
            experiment: true,
            ..self
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self, value: &KnobValue, from: &str) -> Result<(), KnobError> {
        if std::mem::discriminant(value) != std::mem::discriminant(&self.default) {
            return Err(KnobError::Kind {
                from: from.into(),
                found: value.to_string(),
                expected: self.default.kind(),
            });
        }
        if !self.choices.is_empty() && !self.choices.contains(value) {
            return Err(KnobError::Choice {
                from: from.into(),
                found: value.to_string(),
                allowed: self.choices.iter().map(ToString::to_string).collect(),
            });
        }
        Ok(())
    }
}

/// What is wrong with knobs, or with a setting of one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KnobError {
    /// A name that no environment variable has, or one that two knobs have.
    #[error("knob `{name}`: {reason}")]
    Name {
        /// The knob.
        name: String,
        /// What is wrong with its name.
        reason: &'static str,
    },
    /// A knob that is not there.
    #[error("there is no knob `{name}`: expected one of {}", .known.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
        /// The knobs that there are.
        known: Vec<&'static str>,
    },
    /// A value of another kind.
    #[error("{from}: `{found}` is not {expected}")]
    Kind {
        /// The variable or knob.
        from: String,
        /// The value.
        found: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A value that is not among the choices.
    #[error("{from}: `{found}` is not allowed: expected one of {}", .allowed.join(", "))]
    Choice {
        /// The variable or knob.
        from: String,
        /// The value.
        found: String,
        /// The choices.
        allowed: Vec<String>,
    },
    /// Pinned settings that are not the defaults.
    #[error("the pinned settings are not the defaults: {}", .differences.join("; "))]
    Pinned {
        /// One sentence for each variable that differs.
        differences: Vec<String>,
    },
}

/// The knobs of a model or program. Each can be set by an environment variable, `PREFIX_NAME`, so that one run with and
/// one without an optimisation need no other program.
#[derive(Debug, Clone, PartialEq)]
pub struct Knobs {
    prefix: String,
    knobs: Vec<Knob>,
}

impl Knobs {
    /// Knobs under a prefix.
    ///
    /// # Errors
    /// [`KnobError::Name`]; [`KnobError::Kind`] or [`KnobError::Choice`] for a default or choice that the knob itself
    /// does not allow.
    pub fn new(prefix: &str, knobs: Vec<Knob>) -> Result<Self, KnobError> {
        let fits = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let names = knobs.iter().map(|knob| -> &str { knob.name });
        for (index, name) in std::iter::once(prefix).chain(names).enumerate() {
            let reason = if name.is_empty() || !name.chars().all(fits) {
                "names are capitals, digits and `_`"
            } else if index > 0 && knobs[..index - 1].iter().any(|knob| knob.name == name) {
                "two knobs have this name"
            } else {
                continue;
            };
            return Err(KnobError::Name {
                name: name.into(),
                reason,
            });
        }
        for knob in &knobs {
            for value in knob.choices.iter().chain([&knob.default]) {
                knob.check(value, knob.name)?;
            }
        }
        Ok(Self {
            prefix: prefix.into(),
            knobs,
        })
    }

    /// The variable of a knob.
    #[must_use]
    pub fn env_name(&self, name: &str) -> String {
        format!("{}_{name}", self.prefix)
    }

    /// Every setting, decided once: the program's where it says something, else the environment's, else the default. A
    /// variable that is empty says nothing. An experiment that is switched on is logged as a warning.
    ///
    /// # Errors
    /// [`KnobError::Unknown`] for an override of a knob that is not there; [`KnobError::Kind`], [`KnobError::Choice`].
    pub fn read(
        &self,
        environment: impl Fn(&str) -> Option<String>,
        overrides: &[(&str, KnobValue)],
    ) -> Result<KnobValues, KnobError> {
        for (name, _) in overrides {
            self.find(name)?;
        }
        let mut settings = BTreeMap::new();
        for knob in &self.knobs {
            let variable = self.env_name(knob.name);
            let told = overrides.iter().rfind(|(name, _)| *name == knob.name);
            let (value, source, from) = if let Some((_, value)) = told {
                (value.clone(), KnobSource::Override, knob.name)
            } else if let Some(text) = environment(&variable).filter(|text| !text.trim().is_empty()) {
                let value = knob.default.parse_like(&text).ok_or_else(|| KnobError::Kind {
                    from: variable.clone(),
                    found: text,
                    expected: knob.default.kind(),
                })?;
                (value, KnobSource::Environment, variable.as_str())
            } else {
                (knob.default.clone(), KnobSource::Default, knob.name)
            };
            knob.check(&value, from)?;
            if knob.experiment && value != knob.default {
                tracing::warn!(knob = %variable, %value, default = %knob.default, "an experiment is switched on");
            }
            settings.insert(
                knob.name,
                Setting {
                    overridden: value != knob.default,
                    value,
                    source,
                },
            );
        }
        Ok(KnobValues {
            prefix: self.prefix.clone(),
            settings,
        })
    }

    /// Every knob at its default.
    #[must_use]
    pub fn defaults(&self) -> KnobValues {
        let settings = self.knobs.iter().map(|knob| {
            let setting = Setting {
                value: knob.default.clone(),
                source: KnobSource::Default,
                overridden: false,
            };
            (knob.name, setting)
        });
        KnobValues {
            prefix: self.prefix.clone(),
            settings: settings.collect(),
        }
    }

    /// The variables that pin the defaults, for the environment of a deployment.
    #[must_use]
    pub fn serve_env(&self) -> BTreeMap<String, String> {
        self.defaults().serve_env()
    }

    /// Whether a deployment's environment pins every knob at its default and no knob that is not there. Variables without
    /// the prefix are not looked at.
    ///
    /// # Errors
    /// [`KnobError::Pinned`] with everything that differs.
    pub fn check_pinned<'a>(
        &self,
        pinned: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), KnobError> {
        let begin = self.env_name("");
        let pinned: BTreeMap<&str, &str> = pinned
            .into_iter()
            .filter(|(name, _)| name.starts_with(&begin))
            .collect();
        let mut differences = Vec::new();
        for knob in &self.knobs {
            let variable = self.env_name(knob.name);
            match pinned.get(variable.as_str()) {
                None => differences.push(format!("{variable} is missing (default {})", knob.default)),
                Some(text) if knob.default.parse_like(text).as_ref() != Some(&knob.default) => {
                    differences.push(format!("{variable} is `{text}`, the default is {}", knob.default));
                }
                Some(_) => {}
            }
        }
        for name in pinned
            .keys()
            .filter(|name| self.find(&name[begin.len()..]).is_err())
        {
            differences.push(format!("{name} sets no knob"));
        }
        match differences.is_empty() {
            true => Ok(()),
            false => Err(KnobError::Pinned { differences }),
        }
    }

    /// A Markdown table of all knobs.
    #[must_use]
    pub fn doc_table(&self) -> String {
        let mut table = String::from("| variable | default | choices | what |\n|---|---|---|---|\n");
        for knob in &self.knobs {
            let choices: Vec<String> = knob.choices.iter().map(ToString::to_string).collect();
            let mark = if knob.experiment { " (experiment)" } else { "" };
            table += &format!(
                "| `{}` | `{}` | {} | {}{mark} |\n",
                self.env_name(knob.name),
                knob.default,
                choices.join(", "),
                knob.doc.replace('|', "\\|"),
            );
        }
        table
    }

    fn find(&self, name: &str) -> Result<&Knob, KnobError> {
        self.knobs
            .iter()
            .find(|knob| knob.name == name)
            .ok_or_else(|| KnobError::Unknown {
                name: name.into(),
                known: self.knobs.iter().map(Knob::name).collect(),
            })
    }
}
