//! Sizes as people write them: `4MiB`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The sizes that a spec may have. The bounds are in the pattern, so that a cluster has them, too.
const PATTERN: &str = "^[1-9][0-9]{0,5}(KiB|MiB|GiB)$";
/// The maximum number of digits in [`PATTERN`].
const DIGITS_MAX: usize = 6;
/// The units, with the binary logarithm of their bytes.
const UNITS: [(&str, u32); 3] = [("KiB", 10), ("MiB", 20), ("GiB", 30)];

/// A size of a spec: a whole number and a unit, such as `512KiB`, `4MiB` or `1GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    number: u32,
    unit: &'static str,
    shift: u32,
}

impl Size {
    /// Returns the size in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        u64::from(self.number) << self.shift
    }
}

fn parsed(text: &str) -> Option<Size> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let (unit, shift) = UNITS.into_iter().find(|(known, _)| *known == unit)?;
    if number.starts_with('0') || DIGITS_MAX < number.len() {
        return None;
    }
    Some(Size { number: number.parse().ok()?, unit, shift })
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.number, self.unit)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// The error gives examples of sizes.
impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parsed(text).ok_or_else(|| {
            let shown: String = text.chars().take(40).flat_map(char::escape_default).collect();
            format!("`{shown}` is not a size; write for example 512KiB, 4MiB or 1GiB")
        })
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": PATTERN})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_read_and_anything_else_is_refused_with_an_example() {
        for (text, bytes) in
            [("1KiB", 1 << 10), ("4MiB", 4 << 20), ("999999GiB", 999_999 << 30), ("10KiB", 10_240)]
        {
            let size: Size = text.parse().unwrap();
            assert_eq!((size.bytes(), size.to_string()), (bytes, text.to_owned()));
        }
        for text in ["", "4", "MiB", "4Mi", "4MB", "0KiB", "04MiB", "1000000KiB", "4 MiB", "-4MiB"]
        {
            let error = text.parse::<Size>().unwrap_err();
            assert!(error.contains(&format!("`{text}` is not a size")), "{error}");
        }
    }
}
