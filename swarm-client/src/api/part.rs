//! The resource `SwarmLedgerPart`: a part of the jobs of a ledger that is too large for one object.

use std::fmt;
use std::io::{Read, Write};
use std::str::FromStr;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use swarm_core::parts::StoredPart;

/// Part of the jobs of a ledger: the jobs with the same low bits of their hash. It never changes.
///
/// It has an effect only while its `SwarmLedger` names it.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "swarm.k8slab.info",
    version = "v1alpha1",
    kind = "SwarmLedgerPart",
    namespaced,
    doc = "Part of the jobs of a SwarmLedger that is too large for one object. Only the operator \
           writes it.",
    derive = "PartialEq",
    printcolumn(json_path = ".spec.ledger", name = "Ledger", type_ = "string"),
    printcolumn(json_path = ".metadata.creationTimestamp", name = "Age", type_ = "date")
)]
#[x_kube(validation = kube::core::Rule::new("self == oldSelf")
    .message("a part of a ledger never changes: the operator writes another one"))]
#[serde(rename_all = "camelCase")]
pub struct SwarmLedgerPartSpec {
    /// `SwarmLedger` that this part belongs to.
    #[schemars(length(min = 1, max = 253))]
    pub ledger: String,
    /// Holders of these jobs, as compressed JSON in the field `gzip`.
    #[schemars(schema_with = "holdings")]
    pub holdings: PartHoldings,
}

/// The contents of a part: a [`StoredPart`] as compressed JSON. The API server stores one string
/// several times as fast as an object of many fields.
///
/// `base64 -d | gunzip` reads the field `gzip`. A part of an earlier version has the fields of a
/// `StoredPart` instead, and is read as well.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct PartHoldings {
    gzip: ByteString,
}

/// The two forms that are accepted.
#[derive(Deserialize)]
#[serde(untagged)]
#[serde(expecting = "it has neither the field `gzip` nor the fields of an uncompressed part")]
enum Stored {
    Plain(StoredPart),
    Compressed(Compressed),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Compressed {
    gzip: ByteString,
}

impl TryFrom<Stored> for PartHoldings {
    type Error = String;

    fn try_from(stored: Stored) -> Result<Self, String> {
        match stored {
            Stored::Plain(part) => Self::of(&part),
            Stored::Compressed(Compressed { gzip }) => Ok(Self { gzip }),
        }
    }
}

impl PartHoldings {
    /// The most bytes of JSON. The operator writes about 100,000 of them.
    pub const BYTES_MAX: usize = 1_200_000;

    /// Compresses a part.
    ///
    /// # Errors
    ///
    /// A sentence that the part is longer than [`BYTES_MAX`](Self::BYTES_MAX), so that it could not
    /// be read.
    pub fn of(part: &StoredPart) -> Result<Self, String> {
        let text = serde_json::to_vec(part).map_err(|error| error.to_string())?;
        if Self::BYTES_MAX < text.len() {
            return Err(too_long());
        }
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        let written = gzip.write_all(&text).and_then(|()| gzip.finish());
        Ok(Self { gzip: ByteString(written.map_err(|error| error.to_string())?) })
    }

    /// Decompresses the part.
    ///
    /// # Errors
    ///
    /// A sentence about the contents: no compressed JSON of these fields, or more than
    /// [`BYTES_MAX`](Self::BYTES_MAX).
    pub fn read(&self) -> Result<StoredPart, String> {
        let mut text = Vec::new();
        // A kilobyte of gzip may expand to a megabyte.
        let mut gzip = GzDecoder::new(self.gzip.0.as_slice()).take(Self::BYTES_MAX as u64 + 1);
        let read = gzip.read_to_end(&mut text);
        read.map_err(|error| format!("it cannot be decompressed: {error}"))?;
        if Self::BYTES_MAX < text.len() {
            return Err(too_long());
        }
        serde_json::from_slice(&text).map_err(|error| error.to_string())
    }
}

fn too_long() -> String {
    format!("it has more than {} bytes", PartHoldings::BYTES_MAX)
}

impl fmt::Debug for PartHoldings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.read() {
            Ok(part) => part.fmt(f),
            Err(why) => f.debug_tuple("PartHoldings").field(&why).finish(),
        }
    }
}

/// The schema of the holdings: one value, as in a ledger.
fn holdings(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "description": "Holders of these jobs, as compressed JSON in the field `gzip`.",
        "x-kubernetes-map-type": "atomic",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// The name of a part in its ledger, such as `17-9f3a5c0000000001`: the revision that wrote the
/// part, and the digest of its contents. The name of the object is the name of the ledger, a dot,
/// and this name.
///
/// The ledger of the same revision is the first to name a part; otherwise no ledger ever names it.
/// So a part that no ledger of its revision or a later one names is garbage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PartName {
    /// The revision of the ledger that wrote the part.
    pub revision: u64,
    /// The digest of its contents.
    pub digest: u64,
}

impl PartName {
    /// The name of the part's object.
    #[must_use]
    pub fn of(self, ledger: &str) -> String {
        format!("{ledger}.{self}")
    }
}

impl fmt::Display for PartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}", self.revision, self.digest)
    }
}

impl From<PartName> for String {
    fn from(name: PartName) -> Self {
        name.to_string()
    }
}

/// A text that is not the name of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartNameError(String);

impl std::error::Error for PartNameError {}

impl fmt::Display for PartNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} names no part: that is a revision, a dash and 16 hexadecimal digits",
            self.0
        )
    }
}

impl FromStr for PartName {
    type Err = PartNameError;

    fn from_str(text: &str) -> Result<Self, PartNameError> {
        let parsed = text.split_once('-').and_then(|(revision, digest)| {
            let digest = u64::from_str_radix(digest, 16).ok()?;
            Some(Self { revision: revision.parse().ok()?, digest })
        });
        // Another spelling is refused, so that a part has only one name.
        parsed.filter(|name| name.to_string() == text).ok_or_else(|| PartNameError(text.to_owned()))
    }
}

impl TryFrom<String> for PartName {
    type Error = PartNameError;

    fn try_from(text: String) -> Result<Self, PartNameError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use swarm_spec::spec::WORKLOAD_NAME_MAX;

    use super::*;

    #[test]
    fn what_is_named_after_a_workload_of_the_longest_name_has_a_name_that_fits() {
        let ledger = format!("statefulset.{}", "w".repeat(WORKLOAD_NAME_MAX));
        let part = PartName { revision: 10_u64.pow(20 - 1), digest: 0 }.of(&ledger);
        assert_eq!(part.len(), 253);
    }

    fn part(jobs: usize) -> StoredPart {
        let strikes = (0..jobs).map(|n| (format!("stream:camera{n:05}:new"), 1)).collect();
        StoredPart { strikes, ..StoredPart::default() }
    }

    fn read(stored: serde_json::Value) -> Result<StoredPart, String> {
        let holdings: PartHoldings =
            serde_json::from_value(stored).map_err(|error| error.to_string())?;
        holdings.read()
    }

    #[test]
    fn the_content_of_a_part_is_compressed_and_read_in_the_previous_form_as_well() {
        let part = part(3_000);
        let stored = serde_json::to_value(PartHoldings::of(&part).unwrap()).unwrap();
        assert_eq!(stored.as_object().unwrap().keys().collect::<Vec<_>>(), ["gzip"]);
        let plain = serde_json::to_value(&part).unwrap();
        assert!(stored.to_string().len() * 4 < plain.to_string().len());
        assert_eq!(read(stored), Ok(part.clone()));
        assert_eq!(read(plain), Ok(part));
    }

    #[test]
    fn what_is_no_part_is_refused_with_a_sentence() {
        let gzip = |text: &[u8]| {
            let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
            gzip.write_all(text).unwrap();
            json!({"gzip": ByteString(gzip.finish().unwrap())})
        };
        let cut = {
            let PartHoldings { gzip: ByteString(bytes) } = PartHoldings::of(&part(9)).unwrap();
            json!({"gzip": ByteString(bytes[..bytes.len() - 9].to_vec())})
        };
        // Reading stops at the bound.
        let bomb = gzip(&vec![b' '; 10_000_000]);
        for (stored, why) in [
            (json!({"gzip": "AAAA"}), "it cannot be decompressed: "),
            (cut, "it cannot be decompressed: "),
            (bomb, "it has more than 1200000 bytes"),
            (gzip(b"{\"holders\": 7}"), "invalid type: integer `7`"),
            (gzip(b"{\"jobs\": []}"), "unknown field `jobs`"),
            (json!({"jobs": []}), "it has neither the field `gzip` nor"),
            (json!({"gzip": 7}), "it has neither the field `gzip` nor"),
        ] {
            let refused = read(stored).unwrap_err();
            assert!(refused.starts_with(why), "{refused}");
        }
        assert_eq!(PartHoldings::of(&part(50_000)), Err("it has more than 1200000 bytes".into()));
    }

    #[test]
    fn a_part_has_one_name() {
        let name = PartName { revision: 17, digest: 0x9f3a };
        assert_eq!(name.of("statefulset.w"), "statefulset.w.17-0000000000009f3a");
        assert_eq!(name.to_string().parse(), Ok(name));
        for other in
            ["", "17", "17-", "-1", "17-9f3a", "017-0000000000009f3a", "17-0000000000009F3A"]
        {
            assert!(other.parse::<PartName>().is_err(), "{other}");
        }
    }
}
