//! The nearest valid spelling of a word that is not known.

/// The candidate that `word` was most likely meant to be, if any comes near. Case, `-` and `_` make no
/// difference; otherwise about one letter in three may be wrong, missing, too many or swapped with its
/// neighbour. Only the first 100 candidates are looked at, so that advice costs little on any file.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Comparing takes time in proportion to both lengths, and no name is this long.
    if word.len() > 64 {
        return None;
    }
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let wanted = plain(word);
    let allowed = wanted.chars().count().div_ceil(3);
    candidates
        .into_iter()
        .take(100)
        .map(|candidate| (strsim::osa_distance(&wanted, &plain(candidate)), candidate))
        .filter(|&(distance, _)| distance <= allowed)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// What to say at an unknown word: the nearest valid one, or that there is none.
pub(super) fn suggestion<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, candidates).map_or_else(
        || "not known here".to_owned(),
        |candidate| format!("did you mean `{candidate}`?"),
    )
}

/// Most alternatives that are listed.
const MAX_LISTED: usize = 12;

/// "`a`, `b` or `c`"; of a long list, the beginning and how many more there are.
pub(super) fn alternatives<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let mut words = words.into_iter();
    let mut quoted: Vec<String> = words
        .by_ref()
        .take(MAX_LISTED)
        .map(|word| format!("`{word}`"))
        .collect();
    let more = words.count();
    if more > 0 {
        quoted.push(format!("one of {more} more"));
    }
    match quoted.as_slice() {
        [] => "nothing".to_owned(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word_and_a_stranger_finds_none() {
        let words = ["drop_oldest", "drop_newest", "block"];
        assert_eq!(nearest("drop-oldest", words), Some("drop_oldest"));
        assert_eq!(nearest("DropOldest", words), Some("drop_oldest"));
        assert_eq!(nearest("drop_nwest", words), Some("drop_newest"));
        assert_eq!(nearest("blcok", words), Some("block"));
        assert_eq!(nearest("wait", words), None);
        assert_eq!(nearest("", words), None);
        assert_eq!(nearest(&"b".repeat(1 << 20), words), None);
    }

    #[test]
    fn alternatives_read_as_a_sentence() {
        assert_eq!(alternatives([]), "nothing");
        assert_eq!(alternatives(["a"]), "`a`");
        assert_eq!(alternatives(["a", "b", "c"]), "`a`, `b` or `c`");
        assert!(alternatives(["a"; 20]).ends_with(", `a` or one of 8 more"));
    }
}
