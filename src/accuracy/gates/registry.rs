//! The gates of a test, frozen beside it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{Gate, GateError, gates_of, parse_gates};
use crate::accuracy::files::write_whole;

/// Environment variable that forbids writing gate files: set, and neither empty nor `0`.
pub const GATES_READONLY_VARIABLE: &str = "SENSORIUM_GATES_READONLY";

/// Whether gates are frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GatesWrite {
    /// Unless [`GATES_READONLY_VARIABLE`] is set.
    #[default]
    UnlessReadOnly,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What a gate said of a value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GateResult {
    /// Name of the gate.
    pub name: String,
    /// The value.
    pub value: f64,
    /// The gate.
    pub gate: Gate,
    /// Whether it passed.
    pub passed: bool,
}

impl fmt::Display for GateResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name, value, gate, ..
        } = self;
        let verdict = if self.passed { "passed" } else { "failed" };
        write!(
            f,
            "gate {name} {verdict}: {} is {value}, required {gate}",
            gate.metric()
        )
    }
}

/// Declared gates, the frozen ones in their file, and what was checked.
#[derive(Debug)]
pub struct GateRegistry {
    file: PathBuf,
    declared: BTreeMap<String, Gate>,
    frozen: BTreeMap<String, Gate>,
    results: Vec<GateResult>,
    write: bool,
}

impl GateRegistry {
    /// Gates frozen in `file` (none where it does not exist), and those declared now.
    ///
    /// # Errors
    /// [`GateError::Loosened`] for a declaration that is looser than what is frozen; [`GateError::Read`] and
    /// [`GateError::Form`] for a file that cannot be used.
    pub fn open(
        file: impl Into<PathBuf>,
        declared: impl IntoIterator<Item = (String, Gate)>,
        write: GatesWrite,
    ) -> Result<Self, GateError> {
        let file = file.into();
        let registry = Self {
            frozen: read(&file)?,
            declared: declared.into_iter().collect(),
            results: Vec::new(),
            write: match write {
                GatesWrite::UnlessReadOnly => !read_only(),
                GatesWrite::Always => true,
                GatesWrite::Never => false,
            },
            file,
        };
        for (name, gate) in &registry.declared {
            registry.refuse_looser(name, gate)?;
        }
        Ok(registry)
    }

    /// Gates of a test, frozen in `<stem of the test>.gates.json` beside it: pass `file!()` from the root of the package.
    ///
    /// # Errors
    /// As [`GateRegistry::open`].
    pub fn for_test(
        test_file: impl AsRef<Path>,
        declared: impl IntoIterator<Item = (String, Gate)>,
    ) -> Result<Self, GateError> {
        let file = test_file.as_ref().with_extension("gates.json");
        Self::open(file, declared, GatesWrite::default())
    }

    /// Checks a value with the declared gate of that name (with the frozen one where none is declared), and freezes the
    /// gate if it passes and is new or tighter. A value that fails freezes nothing.
    ///
    /// # Errors
    /// [`GateError::Undeclared`]; [`GateError::Loosened`] if the file was changed meanwhile; [`GateError::Write`].
    pub fn check(&mut self, name: &str, value: f64) -> Result<GateResult, GateError> {
        let Some(gate) = self.gate(name).cloned() else {
            return Err(GateError::Undeclared {
                name: name.to_owned(),
                known: self.names().map(str::to_owned).collect(),
            });
        };
        let result = GateResult {
            name: name.to_owned(),
            value,
            passed: gate.passes(value),
            gate,
        };
        self.results.push(result.clone());
        if result.passed {
            self.freeze(name, &result.gate)?;
        }
        Ok(result)
    }

    /// Declares a gate, unless it is looser than the frozen one, and checks a value with it.
    ///
    /// # Errors
    /// [`GateError::Loosened`]; as [`GateRegistry::check`].
    pub fn check_with(&mut self, name: &str, value: f64, gate: Gate) -> Result<GateResult, GateError> {
        self.refuse_looser(name, &gate)?;
        self.declared.insert(name.to_owned(), gate);
        self.check(name, value)
    }

    /// [`GateRegistry::check`] for which a value that fails is an error.
    ///
    /// # Errors
    /// [`GateError::Failed`]; as [`GateRegistry::check`].
    pub fn require(&mut self, name: &str, value: f64) -> Result<(), GateError> {
        let result = self.check(name, value)?;
        match result.passed {
            true => Ok(()),
            false => Err(GateError::Failed(Box::new(result))),
        }
    }

    /// The gate of a name: declared, else frozen.
    #[must_use]
    pub fn gate(&self, name: &str) -> Option<&Gate> {
        self.declared.get(name).or_else(|| self.frozen.get(name))
    }

    /// Names of all gates, declared or frozen.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let frozen = self
            .frozen
            .keys()
            .filter(|name| !self.declared.contains_key(*name));
        self.declared.keys().chain(frozen).map(String::as_str)
    }

    /// The frozen gates.
    #[must_use]
    pub const fn frozen(&self) -> &BTreeMap<String, Gate> {
        &self.frozen
    }

    /// What was checked, in order.
    #[must_use]
    pub fn results(&self) -> &[GateResult] {
        &self.results
    }

    fn refuse_looser(&self, name: &str, gate: &Gate) -> Result<(), GateError> {
        match self.frozen.get(name) {
            Some(frozen) if gate.looser_than(frozen) => Err(GateError::Loosened {
                name: name.to_owned(),
                declared: gate.clone(),
                frozen: frozen.clone(),
                file: self.file.clone(),
            }),
            _ => Ok(()),
        }
    }

    fn freeze(&mut self, name: &str, gate: &Gate) -> Result<(), GateError> {
        if !self.write || self.frozen.get(name) == Some(gate) {
            return Ok(());
        }
        // Other tests may have frozen theirs in the same file since it was read.
        self.frozen = read(&self.file)?;
        self.refuse_looser(name, gate)?;
        self.frozen.insert(name.to_owned(), gate.clone());
        let write = || {
            let mut text = serde_json::to_vec_pretty(&self.frozen)?;
            text.push(b'\n');
            write_whole(&self.file, &text)
        };
        write().map_err(|cause| GateError::Write {
            file: self.file.clone(),
            cause,
        })
    }
}

fn read_only() -> bool {
    let set = std::env::var_os(GATES_READONLY_VARIABLE);
    set.is_some_and(|value| !value.is_empty() && value != "0")
}

fn read(file: &Path) -> Result<BTreeMap<String, Gate>, GateError> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(cause) => {
            return Err(GateError::Read {
                file: file.to_owned(),
                cause,
            });
        }
    };
    let form = |reason: String| GateError::Form {
        file: file.to_owned(),
        reason,
    };
    let specs = parse_gates(&text).map_err(form)?;
    gates_of(&specs, |_| "pcc".to_owned()).map_err(|(name, error)| form(format!("{name}: {error}")))
}
