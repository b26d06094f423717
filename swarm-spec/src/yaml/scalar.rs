//! The values of plain scalars, which are texts without quotes, in lists and views.
//!
//! Only the words and numbers of YAML 1.2 have a meaning. So `no`, `0755` and `1_000` are texts,
//! unlike in YAML 1.1.

use serde_json::{Number, Value};

/// The value of a scalar without a tag.
///
/// # Errors
///
/// If no value can hold the number.
pub(super) fn plain(text: &str) -> Result<Value, String> {
    if text.is_empty() {
        return Ok(Value::Null);
    }
    for kind in ["null", "bool", "int"] {
        if let Some(value) = of_kind(kind, text)? {
            return Ok(value);
        }
    }
    match of_kind("float", text)? {
        Some(value) if !has_leading_zero(text) => Ok(value),
        _ => Ok(text.into()),
    }
}

/// The value of a scalar of a kind, which is the end of a tag such as `!!int`. `None` if the text is
/// of another kind.
///
/// # Errors
///
/// If no value can hold the number.
pub(super) fn of_kind(kind: &str, text: &str) -> Result<Option<Value>, String> {
    let value = match (kind, text) {
        ("null", "null" | "Null" | "NULL" | "~") => Value::Null,
        ("bool", "true" | "True" | "TRUE") => true.into(),
        ("bool", "false" | "False" | "FALSE") => false.into(),
        ("int", text) => return int(text),
        ("float", text) => return float(text),
        _ => return Ok(None),
    };
    Ok(Some(value))
}

fn int(text: &str) -> Result<Option<Value>, String> {
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match unsigned.get(..2) {
        Some("0x") => (16, &unsigned[2..]),
        Some("0o") => (8, &unsigned[2..]),
        Some("0b") => (2, &unsigned[2..]),
        _ => (10, unsigned),
    };
    if !digits.starts_with(|c: char| c.is_digit(radix)) || radix == 10 && has_leading_zero(text) {
        return Ok(None);
    }
    let signed = format!("{sign}{digits}");
    if let Ok(value) = u64::from_str_radix(&signed, radix) {
        return Ok(Some(value.into()));
    }
    if let Ok(value) = i64::from_str_radix(&signed, radix) {
        return Ok(Some(value.into()));
    }
    let is_large = u128::from_str_radix(&signed, radix).is_ok()
        || i128::from_str_radix(&signed, radix).is_ok();
    if is_large {
        Err("the number is too large; quote it if it is a text".to_owned())
    } else {
        Ok(None)
    }
}

/// Whether the text is digits with a leading zero, as in `0755`.
fn has_leading_zero(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    1 < digits.len() && digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn float(text: &str) -> Result<Option<Value>, String> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Err("a number is infinite; quote it if it is a text".to_owned());
    }
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Ok(None);
    }
    let float = text.parse().ok().filter(|float: &f64| float.is_finite());
    Ok(float.and_then(Number::from_f64).map(Value::from))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plain_scalars_have_the_meaning_of_yaml_1_2() {
        let cases = [
            (json!(null), "~ null Null NULL"),
            (json!(true), "true True TRUE"),
            (json!(false), "false False FALSE"),
            (json!(31), "31 +31 0x1F +0x1f 0o37 0b11111"),
            (json!(-31), "-31 -0x1F -0o37 -0b11111"),
            (json!(0), "0 +0 -0 0x0"),
            (json!(u64::MAX), "18446744073709551615"),
            (json!(1.1), "1.10 +1.1"),
            (json!(0.5), ".5 0.5 +.5 5e-1"),
            (json!(-0.5), "-.5 -0.5"),
            (json!(1000.0), "1e3 1E3 1e+3 1000. 1000.0"),
            (json!(9.5), "09.5 9.5"),
        ];
        for (expected, texts) in cases {
            for text in texts.split(' ') {
                assert_eq!(plain(text), Ok(expected.clone()), "{text}");
            }
        }
        let texts = "no yes on off y n tRuE nULL 0755 -0755 00 08 1_000 0_1 _1 1__0 0o8 0O7 0X1F 0B1 0x \
                     0x_1 0x+1 --1 +-1 1:30 1,000 2020-01-02 2020-01-02T03:04:05Z 1e999 -1e999 inf nan \
                     Infinity << = - . .. ... 1.2.3 1.2.3.4 e3 +.nan 1e";
        for text in texts.split(' ').filter(|text| !text.is_empty()) {
            assert_eq!(plain(text), Ok(text.into()), "{text}");
        }
        for text in
            [".inf", "-.inf", "+.INF", ".nan", "18446744073709551616", "-9223372036854775809"]
        {
            assert!(plain(text).is_err(), "{text}");
        }
    }
}
