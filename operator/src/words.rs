//! Parts of sentences and of names that are made in several places.

use sha2::{Digest, Sha256};

/// How many names a sentence has room for.
const NAMED: usize = 10;

/// The first names, and how many more there are.
pub(crate) fn listed(names: &[String]) -> String {
    let shown = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(NAMED) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}

/// The first hexadecimal digits of the SHA-256 sum.
pub(crate) fn short_hash(bytes: impl AsRef<[u8]>, digits: usize) -> String {
    let mut hash = format!("{:x}", Sha256::digest(bytes));
    hash.truncate(digits);
    hash
}

#[cfg(test)]
mod tests {
    use super::listed;

    #[test]
    fn ten_names_are_told_and_the_others_counted() {
        let names: Vec<String> = (1..=12).map(|number| number.to_string()).collect();
        assert_eq!(listed(&names[..2]), "1, 2");
        assert_eq!(listed(&names[..10]), "1, 2, 3, 4, 5, 6, 7, 8, 9, 10");
        assert_eq!(listed(&names), "1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more");
    }
}
