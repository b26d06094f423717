//! Reads objects from kubectl's JSON. An answer without the expected objects is an error: it does not
//! mean that the cluster has none.

use serde_json::Value;

/// Maximum length of the name of an object.
const NAME_MAX: usize = 253;

/// Reads a list of objects, which is empty if kubectl printed nothing. `what` names them.
///
/// # Errors
///
/// A sentence about an answer that is not a list of objects.
pub(crate) fn objects(text: &str, what: &str) -> Result<Vec<Value>, String> {
    // kubectl prints nothing for an empty list.
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let wrong = |why: &dyn std::fmt::Display| format!("kubectl printed no list of {what}: {why}");
    let mut list: Value = serde_json::from_str(text).map_err(|error| wrong(&error))?;
    match list.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) if items.iter().all(Value::is_object) => Ok(items),
        _ => Err(wrong(&"`items` is not a list of objects")),
    }
}

/// Reads one object of a kind, which is `None` if kubectl printed nothing.
///
/// # Errors
///
/// A sentence about an answer without an object of this kind.
pub(crate) fn object(text: &str, kind: &str) -> Result<Option<Value>, String> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let object: Value = serde_json::from_str(text)
        .map_err(|error| format!("kubectl printed no {kind}: {error}"))?;
    if object["kind"] != kind {
        return Err(format!("kubectl printed no {kind}: its `kind` is {}", object["kind"]));
    }
    Ok(Some(object))
}

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
        && bytes.iter().all(is_inner)
        && ends.into_iter().all(|end| end.is_some_and(is_end));
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

    #[test]
    fn only_an_empty_answer_means_that_there_is_none() {
        assert_eq!(objects(" \n", "Leases"), Ok(Vec::new()));
        assert_eq!(objects(r#"{"items": []}"#, "Leases"), Ok(Vec::new()));
        for text in ["x", "[1,2]", r#""x""#, r#"{"items":"x"}"#, "{}", r#"{"items":[1]}"#] {
            let error = objects(text, "Leases").unwrap_err();
            assert!(error.starts_with("kubectl printed no list of Leases: "), "{error}");
        }
        assert_eq!(object("", "ConfigMap"), Ok(None));
        assert!(object(r#"{"kind": "ConfigMap"}"#, "ConfigMap").unwrap().is_some());
        for text in ["x", "[1,2]", r#""x""#, "{}", r#"{"kind": "Secret"}"#] {
            let error = object(text, "ConfigMap").unwrap_err();
            assert!(error.starts_with("kubectl printed no ConfigMap: "), "{error}");
        }
    }
}
