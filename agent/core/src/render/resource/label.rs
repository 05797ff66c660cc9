//! Values of labels, from names that are longer or have other characters.

use sha2::{Digest as _, Sha256};

/// Kubernetes' own limit, bytes.
const LONGEST: usize = 63;
/// Characters of the hash behind a cut or changed name.
const HASH: usize = 8;

/// A name that is a valid value stays as it is. Any other is cut and cleaned, with a hash of the whole, so that two names with the same
/// begin stay two values.
pub fn value(name: &str) -> String {
    if name.is_empty() || is_valid(name) {
        return name.to_owned();
    }
    let plain = |c: char| if is_inner(c) { c } else { '_' };
    let head: String = name.chars().take(LONGEST - HASH - 1).map(plain).collect();
    let head = head.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let hash = hex(name, HASH / 2);
    match head {
        "" => hash,
        head => format!("{head}-{hash}"),
    }
}

fn is_valid(name: &str) -> bool {
    let ends = name.chars().next().into_iter().chain(name.chars().next_back());
    name.len() <= LONGEST && name.chars().all(is_inner) && ends.into_iter().all(|c| c.is_ascii_alphanumeric())
}

fn is_inner(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// The first bytes of the text's hash, each as two characters.
pub(super) fn hex(text: &str, bytes: usize) -> String {
    let hash = Sha256::digest(text);
    hash.iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
}
