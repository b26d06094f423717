//! The values of plain scalars in manifests, as `kubectl` reads them: by YAML 1.1, with two
//! exceptions. `0o17` is a number, and `1:30` is a text.

use serde_json::{Number, Value};

/// Numbers from here on have no exact integer in JSON.
const INTEGERS_BELOW: f64 = 9_223_372_036_854_775_808.0;

/// The value of a scalar without a tag.
///
/// # Errors
///
/// If no value can hold the number.
pub(super) fn plain(text: &str) -> Result<Value, String> {
    let value = match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            true.into()
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            false.into()
        }
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF"
        | "-.inf" | "-.Inf" | "-.INF" => {
            return Err("a number is infinite; quote it if it is a text".to_owned());
        }
        _ if text.starts_with('.') => fraction(text).unwrap_or_else(|| text.into()),
        _ if text.starts_with(|c: char| c.is_ascii_digit() || c == '+' || c == '-') => {
            let digits = text.replace('_', "");
            integer(&digits).or_else(|| float(&digits)).unwrap_or_else(|| text.into())
        }
        _ => text.into(),
    };
    Ok(value)
}

/// The value of a scalar of a kind, which is the end of a tag such as `!!int`. `None` if the text is
/// of another kind.
///
/// # Errors
///
/// If no value can hold the number.
pub(super) fn of_kind(kind: &str, text: &str) -> Result<Option<Value>, String> {
    let value = plain(text)?;
    let is_of_kind = match kind {
        "null" => value.is_null(),
        "bool" => value.is_boolean(),
        "int" => value.is_i64() || value.is_u64(),
        _ => value.is_number(),
    };
    Ok(is_of_kind.then_some(value))
}

/// A key that `kubectl` reads as another text than the file has.
///
/// # Errors
///
/// If the key has no text at all.
pub(super) fn renamed_key(text: &str) -> Result<Option<String>, String> {
    let key = match plain(text)? {
        Value::String(_) => return Ok(None),
        Value::Number(number) => number.to_string(),
        Value::Bool(is_true) => is_true.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            return Err(format!(
                "Kubernetes refuses the key `{text}`; write \"{text}\", in quotes"
            ));
        }
    };
    Ok(Some(key).filter(|key| key != text))
}

/// An integer with an optional sign and the prefix of its base. A leading zero means base 8.
fn integer(text: &str) -> Option<Value> {
    let (is_negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match (unsigned.get(..2), unsigned.get(2..)) {
        (Some("0x" | "0X"), Some(digits)) => (16, digits),
        (Some("0o" | "0O"), Some(digits)) => (8, digits),
        (Some("0b" | "0B"), Some(digits)) => (2, digits),
        _ if unsigned.starts_with('0') => (8, unsigned),
        _ => (10, unsigned),
    };
    // The standard library accepts another sign here.
    if !digits.starts_with(|c: char| c.is_digit(radix)) {
        return None;
    }
    let number = u64::from_str_radix(digits, radix).ok()?;
    if is_negative {
        return 0_i64.checked_sub_unsigned(number).map(Value::from);
    }
    // An unsigned number has no sign at all.
    let fits = !text.starts_with('+') || i64::try_from(number).is_ok();
    fits.then(|| number.into())
}

/// A number that starts with a dot. Single `_` between digits are left out.
fn fraction(text: &str) -> Option<Value> {
    let mut parts = text.split('_').peekable();
    let is_digit = |c: char| c.is_ascii_digit();
    while let Some(part) = parts.next() {
        let next = parts.peek();
        if next.is_some_and(|next| !part.ends_with(is_digit) || !next.starts_with(is_digit)) {
            return None;
        }
    }
    float(&text.replace('_', ""))
}

/// A decimal number. Without a fraction it is an integer, since JSON makes no difference.
fn float(text: &str) -> Option<Value> {
    let is_decimal = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E');
    let float: f64 = text.parse().ok().filter(|_| text.chars().all(is_decimal))?;
    if float.fract() == 0.0 && float.abs() < INTEGERS_BELOW {
        #[expect(clippy::cast_possible_truncation, reason = "it is in range and has no fraction")]
        return Some(Value::from(float as i64));
    }
    Number::from_f64(float).map(Value::from)
}

#[cfg(test)]
mod tests {
    use super::super::{documents, manifests};

    /// The same cases that a scenario lays before `kubectl`.
    #[test]
    fn a_text_has_the_value_that_kubectl_reads() {
        let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../testing/readings.yaml");
        let table = std::fs::read_to_string(table).unwrap();
        let cases = documents(&table).unwrap().remove(0).1;
        assert!(90 < cases.as_array().unwrap().len());
        for case in cases.as_array().unwrap() {
            let text =
                format!("base: &base {{a: 1, b: 2}}\nvalue: {}\n", case["text"].as_str().unwrap());
            match (manifests(&text), case["refused"].as_str()) {
                (Ok(read), None) => assert_eq!(read[0].value["value"], case["value"], "{text}"),
                (Err(error), Some(expected)) => {
                    let said = error.source.to_string();
                    assert!(said.contains(expected), "{said}, not: {expected}");
                }
                (read, expected) => panic!("{text} is {read:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn a_key_without_a_text_is_refused() {
        let said = manifests("a: {~: 1}").unwrap_err().source.to_string();
        let expected =
            "a: Kubernetes refuses the key `~`; write \"~\", in quotes at line 1 column 5";
        assert_eq!(said, expected);
    }
}
