//! The manifest with which krew, the plugin manager of kubectl, installs `kubectl swarm`.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{archive, sums};
use crate::notices;

/// Name of the manifest: krew wants the name of the plugin.
pub(crate) const FILE: &str = "swarm.yaml";

const DESCRIPTION: &str = "\
Shows which worker of a pool would run which job, and which jobs would move, before a change is applied.
Also imports manifests of the predecessors of swarm, and lists the operators that share the Swarms of a
cluster. `kubectl swarm plan -f FILE` needs no cluster.
";

const CAVEATS: &str = "\
krew does not install the completion of shells. With this command kubectl completes the words after
`kubectl swarm`:

  cp \"${KREW_ROOT:-$HOME/.krew}/store/swarm/VERSION/kubectl_complete-swarm\" \"${KREW_ROOT:-$HOME/.krew}/bin/\"
";

/// Files of the archive that krew installs.
const INSTALLED: [&str; 4] = ["kubectl-swarm", "kubectl_complete-swarm", "LICENSE", notices::FILE];

/// Returns the manifest for the archives of the plugin in `dist`.
///
/// # Errors
///
/// When `dist` has no such archive, or when an archive lacks a file that krew installs.
pub(crate) fn manifest(dist: &Path, version: &str, downloads: &str) -> Result<String> {
    let mut platforms = Vec::new();
    for (architecture, name) in archives(dist, version)? {
        let path = dist.join(&name);
        let paths = archive::paths(&path)?;
        let mut files = Vec::new();
        for file in INSTALLED {
            let found = paths.iter().find(|it| Path::new(it).file_name() == Some(file.as_ref()));
            let from = found.with_context(|| format!("{name} has no file {file}"))?;
            files.push(json!({"from": from, "to": "."}));
        }
        platforms.push(json!({
            "selector": {"matchLabels": {"os": "linux", "arch": architecture}},
            "uri": format!("{downloads}/v{version}/{name}"),
            "sha256": sums::of(&path)?,
            "files": files,
            "bin": "kubectl-swarm",
        }));
    }
    let manifest = json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "swarm"},
        "spec": {
            "version": format!("v{version}"),
            "shortDescription": "Share named jobs evenly among workers",
            "description": DESCRIPTION,
            "caveats": CAVEATS.replace("VERSION", &format!("v{version}")),
            "platforms": platforms,
        },
    });
    Ok(serde_yaml::to_string(&manifest)?)
}

/// Lists the archives of the plugin by their architectures.
fn archives(dist: &Path, version: &str) -> Result<Vec<(String, String)>> {
    let head = format!("kubectl-swarm-{version}-linux-");
    let architecture =
        |name: &String| Some(name.strip_prefix(&head)?.strip_suffix(".tar.gz")?.to_owned());
    let names = sums::files(dist)?;
    let found: Vec<_> =
        names.into_iter().filter_map(|name| Some((architecture(&name)?, name))).collect();
    if found.is_empty() {
        bail!("{} has no archive {head}ARCH.tar.gz", dist.display());
    }
    Ok(found)
}

/// Checks that a manifest is about a version, and that the archives have its checksums.
pub(crate) fn check(text: &str, dist: &Path, version: &str) -> Result<()> {
    let manifest: Value =
        serde_yaml::from_str(text).with_context(|| format!("{FILE} is no YAML"))?;
    let written = &manifest["spec"]["version"];
    if *written != format!("v{version}") {
        bail!("{FILE} has version {written}, not v{version}");
    }
    let platforms = manifest["spec"]["platforms"].as_array();
    for platform in platforms.with_context(|| format!("{FILE} has no platforms"))? {
        let uri = platform["uri"].as_str().unwrap_or_default();
        let name = uri.rsplit('/').next().unwrap_or_default();
        let found = sums::of(&dist.join(name))?;
        if platform["sha256"] != found {
            bail!("{FILE} has sha256 {} for {name}, whose digest is {found}", platform["sha256"]);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::{fixture, names};

    #[test]
    fn an_archive_without_a_file_of_the_plugin_is_refused() {
        let dist = fixture::dist();
        let name = "kubectl-swarm-0.1.0-linux-amd64.tar.gz";
        fixture::archive(&dist.path().join(name), &[("top/kubectl-swarm", "a program")]);
        let refused = manifest(dist.path(), "0.1.0", names::DOWNLOADS).unwrap_err().to_string();
        assert_eq!(refused, format!("{name} has no file kubectl_complete-swarm"));
        std::fs::remove_file(dist.path().join(name)).unwrap();
        let refused = manifest(dist.path(), "0.1.0", names::DOWNLOADS).unwrap_err().to_string();
        assert!(refused.ends_with("has no archive kubectl-swarm-0.1.0-linux-ARCH.tar.gz"));
    }

    #[test]
    fn the_manifest_follows_the_rules_of_krew() {
        let dist = fixture::dist();
        let text = manifest(dist.path(), "0.1.0", names::DOWNLOADS).unwrap();
        let manifest: Value = serde_yaml::from_str(&text).unwrap();
        assert_eq!(format!("{}.yaml", manifest["metadata"]["name"].as_str().unwrap()), FILE);
        let spec = &manifest["spec"];
        let short = spec["shortDescription"].as_str().unwrap();
        assert!(short.len() < 50 && !short.contains("kubectl") && !short.ends_with('.'), "{short}");
        let caveats = spec["caveats"].as_str().unwrap();
        assert!(caveats.contains("store/swarm/v0.1.0/kubectl_complete-swarm"), "{caveats}");
        let platform = &spec["platforms"][0];
        assert_eq!(platform["files"][2], json!({"from": "top/LICENSE", "to": "."}));
        let uri =
            "https://downloads.example.com/swarm/v0.1.0/kubectl-swarm-0.1.0-linux-amd64.tar.gz";
        assert_eq!(platform["uri"], uri);
    }
}
