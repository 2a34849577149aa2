//! ROS 2 parameter files, as Autoware's nodes are given them: keys with places, and what can be wrong with one. Which
//! keys there are and what they mean, the models say.

mod error;
mod read;

pub use error::{ParamError, ParamOrigin};
pub use read::MAX_PARAM_FILE_BYTES;
pub(super) use read::{Item, Leaf, SUBSTITUTION, Value, read};

/// How far a key is from a known one: edits in the last name, then in the whole. `None` beyond what a slip can be,
/// about one letter in three of the last name.
pub(super) fn distance(key: &str, known: &str) -> Option<(usize, usize)> {
    // Comparing takes time in proportion to both lengths, and no key is this long.
    if key.len() > 128 {
        return None;
    }
    let plain = key.to_lowercase().replace('-', "_");
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let in_last = strsim::osa_distance(&last(&plain), &last(known));
    let allowed = last(&plain).chars().count().div_ceil(3);
    (in_last <= allowed).then(|| (in_last, strsim::osa_distance(&plain, known)))
}
