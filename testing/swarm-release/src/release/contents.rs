//! Names of the files that each release has.

use anyhow::{Result, bail};

use super::{krew, names};
use crate::manifests;

/// Architectures of the programs.
const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];

/// Files with the same name in each release.
const ALWAYS: [&str; 5] =
    ["crds.yaml", "install.yaml", "release-notes.md", manifests::SAMPLE, krew::FILE];

/// End of the name of the bill of materials, which also has the version.
const BILL: &str = ".cdx.json";

/// Returns the files of one version for all architectures.
pub(crate) fn of_version(version: &str) -> Vec<String> {
    let mut files = ALWAYS.map(str::to_owned).to_vec();
    files.extend([format!("swarm-{version}{BILL}"), format!("swarm-{version}.tgz")]);
    files
}

/// Returns the files of one version for one architecture.
pub(crate) fn of_architecture(version: &str, architecture: &str) -> [String; 3] {
    [
        format!("jobswarm_{version}_{architecture}.deb"),
        format!("kubectl-swarm-{version}-linux-{architecture}.tar.gz"),
        format!("swarm-{version}-linux-{architecture}.tar.gz"),
    ]
}

/// Reports whether a file is for one architecture only.
pub(crate) fn is_of_one_architecture(version: &str, name: &str) -> bool {
    ARCHITECTURES.iter().any(|it| of_architecture(version, it).iter().any(|file| file == name))
}

/// Returns the version of a release with these files.
///
/// # Errors
///
/// When a file is missing, or when one does not belong to a release. The error lists all such files.
pub(crate) fn version(listed: &[String]) -> Result<String> {
    let version = |name: &String| {
        let version = name.strip_prefix("swarm-")?.strip_suffix(BILL)?;
        names::version(version).ok()
    };
    let versions: Vec<_> = listed.iter().filter_map(version).collect();
    let [version] = versions.as_slice() else {
        bail!("the list names {} files swarm-VERSION{BILL}, not one", versions.len());
    };
    let mut expected = of_version(version);
    let has = |architecture: &&str| {
        of_architecture(version, architecture).iter().any(|name| listed.contains(name))
    };
    let mut architectures: Vec<_> = ARCHITECTURES.into_iter().filter(has).collect();
    if architectures.is_empty() {
        architectures.push(ARCHITECTURES[0]);
    }
    expected.extend(architectures.iter().flat_map(|it| of_architecture(version, it)));
    let missing = expected.iter().filter(|name| !listed.contains(name));
    let missing = missing.map(|name| format!("{name} is missing in the list of digests"));
    let strange = listed.iter().filter(|name| !expected.contains(name));
    let strange = strange.map(|name| format!("{name} is no file of the release {version}"));
    let wrong: Vec<_> = missing.chain(strange).collect();
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(version.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(architectures: &[&str]) -> Vec<String> {
        let mut files = of_version("0.1.0");
        files.extend(architectures.iter().flat_map(|it| of_architecture("0.1.0", it)));
        files
    }

    #[test]
    fn a_complete_list_has_the_version_of_its_names() {
        for architectures in [&["amd64"][..], &["arm64"], &["amd64", "arm64"]] {
            assert_eq!(version(&complete(architectures)).unwrap(), "0.1.0");
        }
    }

    #[test]
    fn each_file_that_is_not_listed_is_named() {
        let complete = complete(&ARCHITECTURES);
        for name in &complete {
            let fewer: Vec<_> = complete.iter().filter(|it| it != &name).cloned().collect();
            let refused = version(&fewer).unwrap_err().to_string();
            let expected = if name.ends_with(BILL) {
                "the list names 0 files swarm-VERSION.cdx.json, not one".to_owned()
            } else {
                format!("{name} is missing in the list of digests")
            };
            assert_eq!(refused, expected);
        }
        let refused = version(&of_version("0.1.0")).unwrap_err().to_string();
        assert!(refused.starts_with("jobswarm_0.1.0_amd64.deb is missing"), "{refused}");
    }

    #[test]
    fn a_file_of_another_version_is_named() {
        let mut files = complete(&["amd64"]);
        files.push("swarm-0.2.0.tgz".to_owned());
        let refused = version(&files).unwrap_err().to_string();
        assert_eq!(refused, "swarm-0.2.0.tgz is no file of the release 0.1.0");
        files.push("swarm-0.2.0.cdx.json".to_owned());
        let refused = version(&files).unwrap_err().to_string();
        assert!(refused.contains("names 2 files"), "{refused}");
    }

    /// The installation page describes each file.
    #[test]
    fn the_installation_page_lists_each_file() {
        let page = include_str!("../../../../docs/installation.md");
        let kinds = of_architecture("0.1.0", "amd64");
        for name in of_version("0.1.0").iter().chain(&kinds) {
            assert!(page.contains(&format!("| `{name}`")), "the page has no line for {name}");
        }
    }
}
