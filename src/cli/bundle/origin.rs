//! The files of a bundle beside the repository that they come from.

use std::path::Path;
use std::process::Command;

use miette::IntoDiagnostic;

use crate::perception::bundle::{Bundle, BundleFile, BundleFinding, FindingKind};

/// Folders of a bundle whose files come from the repository.
const FOLDERS: [&str; 2] = ["weights/", "params/"];
/// Longest pointer that Git LFS leaves in place of a large file, in bytes.
const MAX_POINTER_BYTES: usize = 1_024;

/// Files that are something else at the recorded revision than in the bundle, and those of which nobody can tell.
///
/// The checkout is asked by `git`, which may not reach for the network. A file is looked for by its name alone: a bundle does not
/// record where it lay.
///
/// # Errors
/// A bundle whose place cannot be told.
pub(super) fn check(bundle: &Bundle, checkout: &Path) -> miette::Result<Vec<BundleFinding>> {
    let there = checkout.display();
    let revision = bundle.manifest().source.revision.trim();
    if revision.is_empty() {
        // Told already.
        return Ok(Vec::new());
    }
    let unverified = |path: &str, detail: String| BundleFinding {
        kind: FindingKind::Unverified,
        path: path.to_owned(),
        detail,
    };
    let repository = Repository { checkout };
    let tree = match repository.tree(revision) {
        Ok(tree) => tree,
        Err(reason) => {
            let detail = format!("is {revision:?}, which {there} does not know: {reason}");
            return Ok(vec![unverified("source.revision", detail)]);
        }
    };
    let folder = std::path::absolute(bundle.folder()).into_diagnostic()?;
    let mut found = Vec::new();
    let files = bundle.manifest().files.iter();
    for (name, file) in files.filter(|(name, _)| FOLDERS.iter().any(|folder| name.starts_with(folder))) {
        let plain = name.rsplit('/').next().unwrap_or(name);
        let mut blobs = tree
            .iter()
            .filter(|(path, _)| path.rsplit('/').next() == Some(plain))
            .peekable();
        if blobs.peek().is_none() {
            let detail = format!("is at no place of revision {revision:?} in {there}");
            found.push(unverified(name, detail));
            continue;
        }
        match repository.blob_of(&folder.join(name)) {
            Ok(own) if blobs.any(|(_, blob)| *blob == own || repository.points_to(blob, file)) => {}
            Ok(_) => found.push(BundleFinding {
                kind: FindingKind::Modified,
                path: name.clone(),
                detail: format!(
                    "is not at the recorded revision {revision:?}: {there} has another file there"
                ),
            }),
            Err(reason) => found.push(unverified(
                name,
                format!("cannot be compared to {there}: {reason}"),
            )),
        }
    }
    Ok(found)
}

/// A checkout of a repository.
struct Repository<'a> {
    checkout: &'a Path,
}

impl Repository<'_> {
    /// Paths of a revision with the names of their blobs.
    fn tree(&self, revision: &str) -> Result<Vec<(String, String)>, String> {
        if revision.starts_with('-') {
            return Err("no revision begins with `-`".to_owned());
        }
        let commit = self.git(&["rev-parse", "--verify", &format!("{revision}^{{commit}}")])?;
        let commit = String::from_utf8_lossy(&commit);
        let listing = self.git(&["ls-tree", "-r", "-z", "--full-tree", commit.trim()])?;
        let listing = String::from_utf8_lossy(&listing);
        let entry = |line: &str| {
            // MODE TYPE NAME, a tab, and the path.
            let (facts, path) = line.split_once('\t')?;
            Some((path.to_owned(), facts.rsplit(' ').next()?.to_owned()))
        };
        Ok(listing.split('\0').filter_map(entry).collect())
    }

    /// The name that a file has as a blob.
    fn blob_of(&self, file: &Path) -> Result<String, String> {
        let file = file.to_str().ok_or("its path is no text")?;
        let name = self.git(&["hash-object", "--no-filters", "--", file])?;
        Ok(String::from_utf8_lossy(&name).trim().to_owned())
    }

    /// Whether a blob is what Git LFS leaves in place of the file.
    fn points_to(&self, blob: &str, file: &BundleFile) -> bool {
        let size = self.git(&["cat-file", "-s", blob]).unwrap_or_default();
        let size: Option<usize> = String::from_utf8_lossy(&size).trim().parse().ok();
        if size.is_none_or(|bytes| bytes > MAX_POINTER_BYTES) {
            return false;
        }
        let pointer = self.git(&["cat-file", "blob", blob]).unwrap_or_default();
        let pointer = String::from_utf8_lossy(&pointer);
        let expected = format!("oid sha256:{}", file.sha256);
        pointer.starts_with("version https://git-lfs.github.com/spec/")
            && pointer.lines().any(|line| line == expected)
    }

    fn git(&self, arguments: &[&str]) -> Result<Vec<u8>, String> {
        let mut command = Command::new("git");
        command.arg("-C").arg(self.checkout).args(arguments);
        // Those of a hook that started this program name another repository.
        for name in [
            "GIT_DIR",
            "GIT_WORK_TREE",
            "GIT_INDEX_FILE",
            "GIT_OBJECT_DIRECTORY",
        ] {
            command.env_remove(name);
        }
        // A partial clone would fetch what it lacks.
        command
            .env("GIT_ALLOW_PROTOCOL", "none")
            .env("GIT_OPTIONAL_LOCKS", "0");
        let output = command
            .output()
            .map_err(|error| format!("git cannot be run: {error}"))?;
        match output.status.success() {
            true => Ok(output.stdout),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }
}
