//! Looks at the files that a run will write before anything is written.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::pipeline::{Node, NodeKind, Pipeline};
use crate::runtime::RuntimeError;

/// Endings of the files that a bag is made of.
const BAG_FILES: [&str; 5] = ["mcap", "db3", "zstd", "yaml", "yml"];

/// Files that sinks of a run have begun. Whoever opens one of them again goes on with it, so that a change of a sink costs
/// nothing that was written.
#[derive(Debug, Default)]
pub(crate) struct BegunFiles(Mutex<BTreeSet<PathBuf>>);

impl BegunFiles {
    /// Whether a sink of this run has begun the file.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.paths().contains(&real(path))
    }

    /// Takes note of a file that is there now.
    pub(crate) fn note(&self, path: &Path) {
        self.paths().insert(real(path));
    }

    fn paths(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks that every file of the pipeline's sinks can be written, that no two sinks write the same one, and that
/// none of them is part of a bag that is played. Nothing is left behind, and no file that exists is changed.
///
/// # Errors
/// [`RuntimeError::Unwritable`] or [`RuntimeError::Sink`].
pub(crate) fn check_outputs(pipeline: &Pipeline) -> Result<(), RuntimeError> {
    let nodes = pipeline.nodes.iter().enumerate();
    nodes
        .filter_map(|(position, node)| Some((position, node, output_of(node)?)))
        .try_for_each(|(position, node, path)| check(pipeline, node, path, &pipeline.nodes[..position]))
}

/// Checks the file of one sink as [`check_outputs`] does, beside all other nodes of the pipeline.
///
/// # Errors
/// As [`check_outputs`].
pub(crate) fn check_output(pipeline: &Pipeline, node: &Node) -> Result<(), RuntimeError> {
    let others = pipeline.nodes.iter().filter(|other| other.name != node.name);
    output_of(node).map_or(Ok(()), |path| check(pipeline, node, path, others))
}

fn check<'a>(
    pipeline: &Pipeline,
    node: &Node,
    path: &Path,
    others: impl IntoIterator<Item = &'a Node>,
) -> Result<(), RuntimeError> {
    let refuse = |reason: String| RuntimeError::Sink {
        node: node.name.clone(),
        reason,
    };
    if let Some(bag) = bags(pipeline).find(|bag| belongs_to(path, bag)) {
        return Err(refuse(format!(
            "{} belongs to the bag {} that is played; name another file",
            path.display(),
            bag.display()
        )));
    }
    probe(path).map_err(|e| RuntimeError::Unwritable {
        path: path.into(),
        reason: e.to_string(),
    })?;
    let place = real(path);
    let writes_it = |other: &&Node| output_of(other).is_some_and(|known| real(known) == place);
    match others.into_iter().find(writes_it) {
        Some(other) => Err(refuse(format!(
            "{} is also written by {}",
            path.display(),
            other.name
        ))),
        None => Ok(()),
    }
}

/// The file that a node writes.
fn output_of(node: &Node) -> Option<&Path> {
    match &node.kind {
        NodeKind::Recorder(settings) => Some(&settings.path),
        NodeKind::JsonLines(settings) => Some(&settings.path),
        NodeKind::Source(_)
        | NodeKind::Detector(_)
        | NodeKind::Publisher(_)
        | NodeKind::Compute(_)
        | NodeKind::Sync(_)
        | NodeKind::Concat(_) => None,
    }
}

fn bags(pipeline: &Pipeline) -> impl Iterator<Item = &Path> {
    pipeline.nodes.iter().filter_map(|node| match &node.kind {
        NodeKind::Source(source) => source.bag.as_deref(),
        _ => None,
    })
}

/// Whether writing `path` would change the bag.
fn belongs_to(path: &Path, bag: &Path) -> bool {
    let Ok(path) = path.canonicalize() else {
        return false;
    };
    let Ok(bag) = bag.canonicalize() else { return false };
    let ends_in = |path: &Path, known: &[&str]| {
        let ending = path.extension().and_then(|ending| ending.to_str());
        ending.is_some_and(|ending| known.contains(&ending))
    };
    // A bag may be named by its folder or by the metadata file in it.
    let folder = match bag.parent() {
        Some(parent) if ends_in(&bag, &["yaml", "yml"]) => parent,
        _ => &bag,
    };
    path == bag || (path.starts_with(folder) && ends_in(&path, &BAG_FILES))
}

/// The path without links and dots, as far as it exists.
fn real(path: &Path) -> PathBuf {
    path.canonicalize()
        .or_else(|_| {
            let folder = match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            Ok::<_, io::Error>(folder.canonicalize()?.join(path.file_name().unwrap_or_default()))
        })
        .unwrap_or_else(|_| path.to_owned())
}

/// Opens the file for writing as it is; one that was not there is removed again.
fn probe(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        // Opening a pipe waits for its reader, which is for the sink to do.
        Ok(kind) if !kind.is_file() && !kind.is_dir() => Ok(()),
        Ok(_) => OpenOptions::new().append(true).open(path).map(drop),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            OpenOptions::new().write(true).create_new(true).open(path)?;
            fs::remove_file(path)
        }
        Err(error) => Err(error),
    }
}
