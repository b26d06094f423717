//! Names on the command line: a version, a registry, an address for downloads, a digest.
//!
//! Each function is a parser for clap. Its error says what to write instead.

/// Registry of the images in files of a clone.
pub(crate) const REGISTRY: &str = "registry.example.com/swarm";

/// Address of the downloads in files of a clone.
pub(crate) const DOWNLOADS: &str = "https://downloads.example.com/swarm";

/// Reads a version, such as `0.1.0` or `0.2.0-rc.1`.
pub(crate) fn version(text: &str) -> Result<String, String> {
    let (numbers, label) = match text.split_once('-') {
        Some((numbers, label)) => (numbers, Some(label)),
        None => (text, None),
    };
    let is_number = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    let is_word = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_version = numbers.split('.').count() == 3
        && numbers.split('.').all(is_number)
        && label.is_none_or(|label| label.split('.').all(is_word));
    if is_version {
        return Ok(text.to_owned());
    }
    Err("write three numbers without `v`, such as 0.1.0 or 0.2.0-rc.1".to_owned())
}

/// Reads a registry, such as `registry.example.com/swarm`.
pub(crate) fn registry(text: &str) -> Result<String, String> {
    let is_letter =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(is_letter);
    let (host, path) = text.split_once('/').unwrap_or((text, ""));
    let (name, port) = host.split_once(':').unwrap_or((host, "0"));
    let is_registry = is_part(name)
        && port.parse::<u16>().is_ok()
        && (path.is_empty() && !text.ends_with('/') || path.split('/').all(is_part));
    if is_registry {
        return Ok(text.to_owned());
    }
    Err(format!("write a host and a path in small letters, without `https://`, such as {REGISTRY}"))
}

/// Reads the address below which the files of releases are offered.
pub(crate) fn downloads(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("https://").unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"'`<>\\{}".contains(&byte);
    if !rest.is_empty() && !rest.ends_with('/') && rest.bytes().all(is_plain) {
        return Ok(text.to_owned());
    }
    Err(format!("write an address with `https://` and without `/` at its end, such as {DOWNLOADS}"))
}

/// Reads the digest of an image, such as `sha256:2cf2…`.
pub(crate) fn digest(text: &str) -> Result<String, String> {
    let hex = text.strip_prefix("sha256:").unwrap_or_default();
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if hex.len() == 64 && hex.bytes().all(is_hex) {
        return Ok(text.to_owned());
    }
    Err("write `sha256:` and 64 digits of 0-9 and a-f".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_versions_are_versions() {
        for good in ["0.1.0", "10.0.12", "0.2.0-rc.1", "1.0.0-a-b"] {
            assert_eq!(version(good), Ok(good.to_owned()));
        }
        for bad in ["", "v0.1.0", "0.1", "0.1.0.0", "0.01.0", "0.1.0-", "0.1.0-a..b", "0.1.x"] {
            assert!(version(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_a_host_and_a_path_are_a_registry() {
        for good in ["registry.example.com/swarm", "localhost:5000", "ghcr.io/a/b-c"] {
            assert_eq!(registry(good), Ok(good.to_owned()));
        }
        for bad in ["", "https://a.b/c", "a.b/", "a.b/C", "a.b//c", "a.b/c:dev", "a:b/c", "a b"] {
            assert!(registry(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_an_address_without_a_slash_at_its_end_offers_downloads() {
        assert!(downloads(DOWNLOADS).is_ok());
        for bad in ["", "https://", "http://a.b", "https://a.b/", "https://a b", "https://a\"b"] {
            assert!(downloads(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_sha256_is_a_digest() {
        let hex = "0123456789abcdef".repeat(4);
        assert!(digest(&format!("sha256:{hex}")).is_ok());
        let bad = [hex.clone(), format!("sha256:{}", &hex[1..]), format!("sha256:{}G", &hex[1..])];
        assert!(bad.iter().all(|text| digest(text).is_err()));
    }
}
