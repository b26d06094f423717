//! The section of a version in CHANGELOG.md.

use anyhow::{Result, bail};

/// Section of the changelog.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Section<'a> {
    /// Text between the brackets of the heading: a date, or `unreleased`.
    pub(crate) state: &'a str,
    /// Text below the heading.
    pub(crate) body: &'a str,
}

/// State of a section before its release.
pub(crate) const UNRELEASED: &str = "unreleased";

/// Finds the section of a version.
///
/// # Errors
///
/// When there is none, or when its heading has neither a date nor `unreleased`.
pub(crate) fn section<'a>(changelog: &'a str, version: &str) -> Result<Section<'a>> {
    let head = format!("\n## {version}");
    let Some((_, rest)) = changelog.split_once(&format!("{head} (")) else {
        bail!(
            "CHANGELOG.md has no section for {version}: begin one with `## {version} ({UNRELEASED})`"
        );
    };
    let Some((state, rest)) = rest.split_once(")\n") else {
        bail!("CHANGELOG.md: the heading of {version} has no `)` at its end");
    };
    if state != UNRELEASED && !is_date(state) {
        bail!(
            "CHANGELOG.md: `## {version} ({state})` has no date: write ({UNRELEASED}) or (2026-01-31)"
        );
    }
    let body = rest.split_once("\n## ").map_or(rest, |(body, _)| body);
    if body.trim().is_empty() {
        bail!("CHANGELOG.md: the section of {version} is empty: list what the version changes");
    }
    Ok(Section { state, body: body.trim() })
}

/// Returns the changelog with a date in the heading of a version. A heading with a date stays.
///
/// # Errors
///
/// When the changelog has no such section.
pub(crate) fn dated(changelog: &str, version: &str, date: &str) -> Result<String> {
    section(changelog, version)?;
    let heading = format!("\n## {version} ({UNRELEASED})\n");
    Ok(changelog.replacen(&heading, &format!("\n## {version} ({date})\n"), 1))
}

/// Returns a text without its links to files of the checkout, which lead nowhere on a page of releases.
pub(crate) fn without_relative_links(text: &str) -> String {
    let mut parts = text.split("](");
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (target, rest) = part.split_once(')').unwrap_or((part, ""));
        let name = all.rfind('[').filter(|_| !target.contains("://"));
        match name {
            Some(start) => {
                all.remove(start);
                all.push_str(rest);
            }
            None => all.extend(["](", part]),
        }
    }
    all
}

fn is_date(text: &str) -> bool {
    let parts: Vec<_> = text.split('-').map(str::len).collect();
    parts == [4, 2, 2] && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: &str = "# Changelog\n\nIntroduction.\n\n## 0.2.0 (unreleased)\n\nNew.\n\n### Part\n\n\
                             - more\n\n## 0.1.0 (2026-11-27)\n\nOld.\n";

    #[test]
    fn a_section_ends_at_the_next_version() {
        let new = section(CHANGELOG, "0.2.0").unwrap();
        assert_eq!(new, Section { state: "unreleased", body: "New.\n\n### Part\n\n- more" });
        let old = section(CHANGELOG, "0.1.0").unwrap();
        assert_eq!(old, Section { state: "2026-11-27", body: "Old." });
    }

    #[test]
    fn a_missing_or_strange_section_is_refused_with_what_to_write() {
        let refused = |text: &str| section(text, "0.3.0").unwrap_err().to_string();
        assert!(refused(CHANGELOG).contains("`## 0.3.0 (unreleased)`"));
        assert!(refused("# C\n\n## 0.3.0 (soon)\n\nNew.\n").contains("has no date"));
        assert!(refused("# C\n\n## 0.3.0 (unreleased\n").contains("no `)`"));
        assert!(
            refused("# C\n\n## 0.3.0 (unreleased)\n\n## 0.2.0 (unreleased)\n").contains("empty")
        );
    }

    #[test]
    fn only_the_heading_of_the_version_gets_the_date() {
        let text = dated(CHANGELOG, "0.2.0", "2026-12-01").unwrap();
        assert_eq!(text, CHANGELOG.replace("unreleased", "2026-12-01"));
        assert_eq!(dated(&text, "0.2.0", "2027-01-01").unwrap(), text);
        assert_eq!(dated(CHANGELOG, "0.1.0", "2027-01-01").unwrap(), CHANGELOG);
    }

    #[test]
    fn links_to_files_become_their_texts_and_other_links_stay() {
        let text = "See [the unit](docs/systemd.md#unit), [a site](https://example.com) and a[0].";
        let expected = "See the unit, [a site](https://example.com) and a[0].";
        assert_eq!(without_relative_links(text), expected);
    }
}
