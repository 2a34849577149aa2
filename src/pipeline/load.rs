//! Reading a pipeline file: text, tree, substitutions, overrides, shape, meaning.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::problem::{InvalidPipeline, PipelineError, Problem};
use super::raw::RawPipeline;
use super::schema::pipeline_schema;
use super::settings::{Pipeline, Rate};
use super::source::{Source, Span, source};
use super::substitute::{Environment, substitute};
use super::{set, shape, tree, validate};

/// Largest pipeline file that is read.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Most problems that are told of one file.
const MAX_PROBLEMS: usize = 50;

/// What the command line changes in a pipeline file. Paths are relative to the working directory.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// Dotted paths and new values (YAML), in the order given.
    pub set: Vec<(String, String)>,
    /// Other names for topics, from and to, before those of the file.
    pub remap: Vec<(String, String)>,
    /// Bag of the only source.
    pub bag: Option<PathBuf>,
    /// Weights of the only model.
    pub model: Option<PathBuf>,
    /// Replay speed of every source.
    pub rate: Option<Rate>,
    /// Every source plays on the deterministic clock.
    pub deterministic: bool,
    /// File of the only recorder.
    pub record: Option<PathBuf>,
    /// File of the only JSON-lines sink.
    pub jsonl: Option<PathBuf>,
}

impl Pipeline {
    /// Reads a pipeline file, with `${VAR}` taken from the environment of the process.
    ///
    /// # Errors
    /// A file that cannot be read, or all that is wrong with it.
    pub fn load(path: &Path, overrides: &Overrides) -> Result<Self, PipelineError> {
        let text = read(path)?;
        Self::parse(path, text, overrides, &|name| std::env::var(name))
    }

    /// Reads the text of a pipeline file named `path`, with `${VAR}` taken from `environment`.
    ///
    /// # Errors
    /// All that is wrong with the text, with what the overrides change in it, or with the files that it names:
    /// weights, label files and bags must exist where they are given.
    pub fn parse(
        path: &Path,
        text: String,
        overrides: &Overrides,
        environment: Environment<'_>,
    ) -> Result<Self, PipelineError> {
        let source = source(&path.display().to_string(), text);
        let mut problems = Vec::new();
        let pipeline = understand(path, &source, overrides, environment, &mut problems);
        match pipeline {
            Some(pipeline) if problems.is_empty() => Ok(pipeline),
            _ => Err(invalid(source.name(), problems).into()),
        }
    }

    /// Asks that every file which a run needs has been given.
    ///
    /// # Errors
    /// Every model without weights and every source without a bag.
    pub fn require_files(&self) -> Result<(), PipelineError> {
        if self.missing.is_empty() {
            return Ok(());
        }
        let problems = self.missing.iter().cloned().map(Problem::into_error).collect();
        Err(invalid(&self.file.display().to_string(), problems).into())
    }
}

fn invalid(file: &str, mut problems: Vec<Problem>) -> InvalidPipeline {
    problems.sort_by(|a, b| a.order().cmp(&b.order()));
    let unreported = problems.len().saturating_sub(MAX_PROBLEMS);
    problems.truncate(MAX_PROBLEMS);
    InvalidPipeline {
        file: file.to_owned(),
        problems,
        unreported,
    }
}

fn read(path: &Path) -> Result<String, PipelineError> {
    let cannot = |cause| PipelineError::Read {
        path: path.to_owned(),
        cause,
    };
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(cannot)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(PipelineError::TooLarge {
            path: path.to_owned(),
            limit_bytes: MAX_FILE_BYTES,
        });
    }
    String::from_utf8(bytes).map_err(|error| PipelineError::NotText {
        path: path.to_owned(),
        valid_up_to: error.utf8_error().valid_up_to(),
    })
}

fn understand(
    path: &Path,
    source: &Source,
    overrides: &Overrides,
    environment: Environment<'_>,
    problems: &mut Vec<Problem>,
) -> Option<Pipeline> {
    let mut tree = match tree::parse(source, 0) {
        Ok(tree) => tree,
        Err(problem) => {
            problems.push(*problem);
            return None;
        }
    };
    substitute(&mut tree, environment, problems);
    for (dotted, value) in &overrides.set {
        problems.extend(set::apply(&mut tree, dotted, value).err().map(|problem| *problem));
    }
    let json = shape::check(&tree, pipeline_schema(), problems)?;
    match serde_json::from_value::<RawPipeline>(json) {
        Ok(raw) => Some(validate::validate(path, &tree, raw, overrides, problems)),
        // The schema and the types come from one definition, so this is a defect; it must still be no panic.
        Err(error) => {
            let start = Span::new(source, 0..0);
            problems.push(Problem::error(error.to_string(), &start, "in this file"));
            None
        }
    }
}
