//! Maps without duplicate keys. By default, the second of two entries would silently replace the
//! first.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};

/// Deserialises a map and refuses duplicate keys; for `deserialize_with`.
pub(crate) fn map<'de, D, V>(deserializer: D) -> Result<BTreeMap<String, V>, D::Error>
where
    D: Deserializer<'de>,
    V: Deserialize<'de>,
{
    deserializer.deserialize_map(Unique(PhantomData))
}

struct Unique<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for Unique<V> {
    type Value = BTreeMap<String, V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut map = BTreeMap::new();
        while let Some((name, value)) = entries.next_entry::<String, V>()? {
            if map.contains_key(&name) {
                return Err(A::Error::custom(format!("`{name}` occurs twice")));
            }
            map.insert(name, value);
        }
        Ok(map)
    }
}
