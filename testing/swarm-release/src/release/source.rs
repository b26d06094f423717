//! The commit that a release is made of.

use anyhow::{Result, bail};

use crate::repository;

/// Version, commit and date of a release.
pub(crate) struct Source {
    /// Version, such as `0.1.0`.
    pub(crate) version: String,
    /// Commit, as 40 digits.
    pub(crate) commit: String,
    /// Date of the commit, as RFC 3339.
    pub(crate) date: String,
    /// Date of the commit, in seconds since 1970.
    pub(crate) epoch: u64,
}

impl Source {
    /// Describes the commit of the checkout.
    ///
    /// # Errors
    ///
    /// When files differ from that commit: the release would not be what its commit says.
    pub(crate) fn of_checkout(version: &str) -> Result<Self> {
        let changes = repository::run("git", &["status", "--porcelain"])?;
        if !changes.is_empty() {
            bail!(
                "the checkout differs from its commit, so no release can name that commit. Commit or remove:\n{}",
                changes.trim_end()
            );
        }
        let shown = repository::run("git", &["log", "-1", "--format=%H %cI %ct"])?;
        let fields: Vec<_> = shown.split_whitespace().collect();
        let [commit, date, epoch] = fields.as_slice() else {
            bail!("git log printed `{}`, not a commit and its date", shown.trim());
        };
        Ok(Self {
            version: version.to_owned(),
            commit: (*commit).to_owned(),
            date: (*date).to_owned(),
            epoch: epoch.parse()?,
        })
    }

    /// Reports whether the commit has the tag of the version.
    pub(crate) fn is_tagged(&self) -> Result<bool> {
        let tags = repository::run("git", &["tag", "--points-at", &self.commit])?;
        Ok(tags.lines().any(|tag| tag.strip_prefix('v') == Some(&self.version)))
    }

    /// Returns a release that tests make files for.
    #[cfg(test)]
    pub(crate) fn example() -> Self {
        Self {
            version: "0.1.0".to_owned(),
            commit: "0123456789".repeat(4),
            date: "2026-11-27T00:00:00Z".to_owned(),
            epoch: 1_795_737_600,
        }
    }
}
