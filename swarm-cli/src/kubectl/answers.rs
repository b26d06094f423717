//! Names of objects, as arguments of kubectl.

/// Maximum length of the name of an object.
const NAME_MAX: usize = 253;

/// Checks the name of an object or of a namespace, which a file may have chosen: kubectl must read
/// it as a name, not as an option or another object.
///
/// # Errors
///
/// A sentence about a text that names no object.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let is_end = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_inner = |b: &u8| is_end(b) || b"-.".contains(b);
    let bytes = name.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    let is_name = bytes.len() <= NAME_MAX
        && bytes.iter().all(|b| is_inner(b))
        && ends.into_iter().all(|end| end.is_some_and(|b| is_end(b)));
    if is_name {
        return Ok(());
    }
    Err(format!(
        "`{}` names no object of a cluster; write lower-case letters, digits, `-` and `.`, with a \
         letter or digit at both ends",
        name.escape_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_neither_an_option_nor_a_path() {
        for name in ["a", "swarm-worker-config", "a.b-1", "0", &"a".repeat(NAME_MAX)] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        let long = "a".repeat(NAME_MAX + 1);
        for text in
            ["", "-a", "--kubeconfig=a", "a/b", "../a", "a b", "A", "a,b", ".a", "a-", "é", &long]
        {
            assert!(check_name(text).is_err(), "{text}");
        }
    }
}
