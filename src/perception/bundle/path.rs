//! Names of files in a bundle: they must stay in its folder.

use std::path::{Component, Path, PathBuf};

/// Longest name of a file with its folders, in bytes.
const MAX_NAME_BYTES: usize = 1_024;

/// Whether a name stays in the folder, as far as the name alone says it.
///
/// # Errors
/// What is wrong with it.
pub(super) fn plain(name: &str) -> Result<(), String> {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        Err(format!("a name has from 1 to {MAX_NAME_BYTES} bytes"))
    } else if name.contains(['\\', ':', '\0']) || name.chars().any(char::is_control) {
        Err("a name has no backslash, colon or control character".to_owned())
    } else if name.split('/').any(|part| part.is_empty() || part == ".")
        || !Path::new(name).components().all(is_plain)
    {
        Err("a name leads from the bundle's folder down, without `..` and without a leading `/`".to_owned())
    } else {
        Ok(())
    }
}

/// The file of a plain name, if no part of the way is a symbolic link.
///
/// # Errors
/// What is wrong with the name, or the link.
pub(super) fn within(folder: &Path, name: &str) -> Result<PathBuf, String> {
    plain(name)?;
    let mut path = folder.to_owned();
    for part in name.split('/') {
        path.push(part);
        // What is not there is told by whoever reads it.
        if path
            .symlink_metadata()
            .is_ok_and(|metadata| metadata.is_symlink())
        {
            return Err(format!("leads through the symbolic link {}", path.display()));
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_lead_down_are_plain() {
        for name in ["a", "weights/a.onnx", "a/b/c.json", ".hidden"] {
            assert_eq!(plain(name), Ok(()), "{name}");
        }
        for name in [
            "",
            "/a",
            "..",
            "../a",
            "a/../../b",
            "a//b",
            "a/",
            "./a",
            "a\\b",
            "C:/a",
            "a\nb",
        ] {
            assert!(plain(name).is_err(), "{name:?}");
        }
        assert!(plain(&"a/".repeat(600)).is_err());
    }
}
