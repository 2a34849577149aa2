//! Where the weights of a model are.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use super::cache_root;

/// Who said where a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WeightOrigin {
    /// The caller.
    Explicit,
    /// An environment variable.
    Environment,
    /// It lies in the model's own folder.
    Folder,
    /// It lies in the cache.
    Cache,
}

impl fmt::Display for WeightOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Explicit => "explicit",
            Self::Environment => "environment",
            Self::Folder => "folder",
            Self::Cache => "cache",
        })
    }
}

/// A file of weights that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundWeights {
    /// The file.
    pub path: PathBuf,
    /// Who said where it is.
    pub origin: WeightOrigin,
}

/// Weights that are nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WeightSearchError {
    /// A place that was named does not have them. Others are not tried: whoever names a place means it.
    #[error("no file {}, where {said_by} says the weights are", path.display())]
    NotThere {
        /// The file.
        path: PathBuf,
        /// Who named the place.
        said_by: String,
    },
    /// No place has them.
    #[error("no weights `{file}`: tried {tried}; name a file, or set {variable} to the folder that has it")]
    Nowhere {
        /// The file.
        file: String,
        /// Places that were looked at, in words.
        tried: String,
        /// The variable that would name a folder.
        variable: String,
    },
}

/// Looks for files of weights: where the caller says, then in the folder that `<PREFIX>_WEIGHTS_DIR` names, then in the
/// model's own folder, then in the cache (`models/<name>` below [`cache_root`]).
#[derive(Debug, Clone)]
pub struct WeightSearch {
    prefix: String,
    explicit: Option<PathBuf>,
    folder: Option<PathBuf>,
    cache: Option<PathBuf>,
}

impl WeightSearch {
    /// A search for a model of that name whose environment variables begin with `prefix`, as `SENSORIUM_YOLOX`.
    #[must_use]
    pub fn new(name: &str, prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            explicit: None,
            folder: None,
            cache: cache_root().map(|root| root.join("models").join(name)),
        }
    }

    /// With a file, or the folder that holds it, that overrules everything else.
    #[must_use]
    pub fn explicit(self, path: Option<PathBuf>) -> Self {
        Self {
            explicit: path,
            ..self
        }
    }

    /// With the model's own folder.
    #[must_use]
    pub fn folder(self, folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: Some(folder.into()),
            ..self
        }
    }

    /// With another cache; `None`: without.
    #[must_use]
    pub fn cache(self, folder: Option<PathBuf>) -> Self {
        Self {
            cache: folder,
            ..self
        }
    }

    /// Finds a file by its name.
    ///
    /// # Errors
    /// [`WeightSearchError`].
    pub fn find(&self, file: &str) -> Result<FoundWeights, WeightSearchError> {
        self.find_with(file, |variable| std::env::var_os(variable))
    }

    /// As [`Self::find`], with an environment of the caller's.
    ///
    /// # Errors
    /// [`WeightSearchError`].
    pub fn find_with(
        &self,
        file: &str,
        environment: impl Fn(&str) -> Option<OsString>,
    ) -> Result<FoundWeights, WeightSearchError> {
        let named = |path: PathBuf, origin, said_by: &str| match path.is_file() {
            true => Ok(FoundWeights { path, origin }),
            false => Err(WeightSearchError::NotThere {
                path,
                said_by: said_by.to_owned(),
            }),
        };
        if let Some(explicit) = &self.explicit {
            let path = match explicit.is_dir() {
                true => explicit.join(file),
                false => explicit.clone(),
            };
            return named(path, WeightOrigin::Explicit, "the caller");
        }
        let variable = format!("{}_WEIGHTS_DIR", self.prefix);
        if let Some(folder) = environment(&variable).filter(|folder| !folder.is_empty()) {
            return named(
                Path::new(&folder).join(file),
                WeightOrigin::Environment,
                &variable,
            );
        }
        let places = [
            (&self.folder, WeightOrigin::Folder),
            (&self.cache, WeightOrigin::Cache),
        ];
        let places = places.map(|(folder, origin)| Some((folder.as_ref()?.join(file), origin)));
        for (path, origin) in places.iter().flatten() {
            if path.is_file() {
                return Ok(FoundWeights {
                    path: path.clone(),
                    origin: *origin,
                });
            }
        }
        let tried: Vec<String> = places
            .iter()
            .flatten()
            .map(|(path, _)| path.display().to_string())
            .collect();
        Err(WeightSearchError::Nowhere {
            file: file.to_owned(),
            tried: match &tried[..] {
                [] => "nothing, as there is neither a folder nor a cache".to_owned(),
                some => some.join(", "),
            },
            variable,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const FILE: &str = "net.onnx";

    #[test]
    fn the_caller_comes_before_the_environment_the_folder_and_the_cache() {
        let root = tempfile::tempdir().unwrap();
        let place = |name: &str| {
            let folder = root.path().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(FILE), name).unwrap();
            folder
        };
        let (own, set, local, cache) = (place("own"), place("set"), place("local"), place("cache"));
        let search = WeightSearch::new("net", "SENSORIUM_NET")
            .folder(&local)
            .cache(Some(cache.clone()));
        let set_to = |folder: &Path| {
            let folder = folder.as_os_str().to_owned();
            move |name: &str| (name == "SENSORIUM_NET_WEIGHTS_DIR").then(|| folder.clone())
        };
        let unset = |_: &str| None;
        let found = |folder: &Path, origin| FoundWeights {
            path: folder.join(FILE),
            origin,
        };
        for explicit in [own.clone(), own.join(FILE)] {
            let search = search.clone().explicit(Some(explicit));
            assert_eq!(
                search.find_with(FILE, set_to(&set)),
                Ok(found(&own, WeightOrigin::Explicit))
            );
        }
        assert_eq!(
            search.find_with(FILE, set_to(&set)),
            Ok(found(&set, WeightOrigin::Environment))
        );
        assert_eq!(
            search.find_with(FILE, unset),
            Ok(found(&local, WeightOrigin::Folder))
        );
        std::fs::remove_file(local.join(FILE)).unwrap();
        assert_eq!(
            search.find_with(FILE, unset),
            Ok(found(&cache, WeightOrigin::Cache))
        );
        std::fs::remove_file(cache.join(FILE)).unwrap();
        let nowhere = search.find_with(FILE, unset).unwrap_err().to_string();
        assert!(
            nowhere.contains("local") && nowhere.contains("cache"),
            "{nowhere}"
        );
        assert!(nowhere.contains("SENSORIUM_NET_WEIGHTS_DIR"), "{nowhere}");
        // A place that was named and does not have the file is an error, not a reason to look further.
        std::fs::remove_file(set.join(FILE)).unwrap();
        std::fs::write(local.join(FILE), "here").unwrap();
        let wrong = search.find_with(FILE, set_to(&set)).unwrap_err();
        assert!(matches!(wrong, WeightSearchError::NotThere { .. }), "{wrong}");
        let wrong = search
            .explicit(Some("nowhere.onnx".into()))
            .find_with(FILE, unset);
        assert!(matches!(wrong, Err(WeightSearchError::NotThere { .. })));
    }
}
