//! The software bill of materials: the crates that the linker puts into the programs, in the
//! format of `CycloneDX`.
//!
//! It is what `cargo tree` lists with the features of the build. Tools that read `cargo metadata` also list
//! crates that no program contains, such as optional dependencies of crates that are linked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::source::Source;
use crate::repository;

/// Packages with the programs of a release, as `.ci/dist` builds them.
const PACKAGES: [&str; 4] = ["swarm-cli", "kubectl-swarm", "swarm-operator", "swarm-worker"];

/// Machines that programs of a release are for.
pub(crate) const TARGETS: [&str; 2] = ["aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"];

/// Crate in the tree, with the names of the crates that it is linked with.
#[derive(Default)]
pub(crate) struct Crate {
    /// The licence, as an expression.
    pub(crate) license: String,
    repository: String,
    uses: BTreeSet<String>,
}

/// Lists the crates that the programs contain, by name and version, such as `anyhow@1.0.0`.
pub(crate) fn linked() -> Result<BTreeMap<String, Crate>> {
    let edges = ["tree", "--frozen", "--edges", "normal,no-proc-macro", "--prefix", "depth"];
    let packages = PACKAGES.iter().flat_map(|package| ["--package", package]);
    let targets = TARGETS.iter().flat_map(|target| ["--target", target]);
    let format = ["--format", "{p}|{l}|{r}"];
    let arguments: Vec<_> =
        edges.into_iter().chain(packages).chain(targets).chain(format).collect();
    crates(&repository::run("cargo", &arguments)?)
}

/// Returns the bill of materials of the checkout.
pub(crate) fn document(source: &Source) -> Result<String> {
    let tree = linked()?;
    let lock = fs::read_to_string(repository::root().join("Cargo.lock"))?;
    let text = serde_json::to_string_pretty(&bill(&tree, &checksums(&lock), source))?;
    Ok(text + "\n")
}

/// Reads the lines of `cargo tree`: depth, name and version, licence, address of the sources.
fn crates(tree: &str) -> Result<BTreeMap<String, Crate>> {
    let mut found = BTreeMap::<String, Crate>::new();
    let mut path: Vec<String> = Vec::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let strange = || format!("cargo tree printed a strange line: {line}");
        let digits = line.find(|c: char| !c.is_ascii_digit()).with_context(strange)?;
        let depth: usize = line[..digits].parse().with_context(strange)?;
        let mut columns = line[digits..].trim_end_matches(" (*)").split('|');
        let mut column = || columns.next().with_context(strange);
        let (package, license, repository) = (column()?, column()?, column()?);
        // The folder of a crate of the workspace comes after its version.
        let package = package.split_once(" (").map_or(package, |(package, _)| package);
        let id = package.replacen(" v", "@", 1);
        path.truncate(depth);
        if let Some(parent) = path.last().and_then(|parent| found.get_mut(parent)) {
            parent.uses.insert(id.clone());
        }
        let entry = found.entry(id.clone()).or_default();
        // Old manifests separate licences to choose from by a slash.
        entry.license = license.replace('/', " OR ");
        repository.clone_into(&mut entry.repository);
        path.push(id);
    }
    Ok(found)
}

/// Reads the checksums of Cargo.lock, by name and version. Crates of the workspace have none.
fn checksums(lock: &str) -> BTreeMap<String, String> {
    let field = |package: &str, key: &str| {
        let head = format!("{key} = \"");
        let line = package.lines().find_map(|line| line.strip_prefix(head.as_str()));
        line.map(|value| value.trim_end_matches('"').to_owned())
    };
    let packages = lock.split("[[package]]\n").skip(1);
    packages
        .filter_map(|package| {
            let id = format!("{}@{}", field(package, "name")?, field(package, "version")?);
            Some((id, field(package, "checksum")?))
        })
        .collect()
}

fn bill(tree: &BTreeMap<String, Crate>, sums: &BTreeMap<String, String>, source: &Source) -> Value {
    let components: Vec<_> =
        tree.iter().map(|(id, found)| component(id, found, sums.get(id))).collect();
    let programs =
        tree.keys().filter(|id| PACKAGES.iter().any(|it| id.split('@').next() == Some(it)));
    let root = format!("swarm@{}", source.version);
    let mut dependencies = vec![json!({"ref": root, "dependsOn": programs.collect::<Vec<_>>()})];
    dependencies.extend(tree.iter().map(|(id, it)| json!({"ref": id, "dependsOn": it.uses})));
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": source.date,
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": "swarm",
                "version": source.version,
                "licenses": [{"expression": "Apache-2.0"}],
            },
        },
        "components": components,
        "dependencies": dependencies,
    })
}

fn component(id: &str, found: &Crate, checksum: Option<&String>) -> Value {
    let (name, version) = id.split_once('@').unwrap_or((id, ""));
    let mut component = json!({"type": "library", "bom-ref": id, "name": name, "version": version});
    if !found.license.is_empty() {
        component["licenses"] = json!([{"expression": found.license}]);
    }
    if let Some(checksum) = checksum {
        component["purl"] = json!(format!("pkg:cargo/{id}"));
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    if !found.repository.is_empty() {
        component["externalReferences"] = json!([{"type": "vcs", "url": found.repository}]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "0swarm-cli v0.1.0 (/somewhere)|Apache-2.0|\n1a v1.0.0|MIT/Apache-2.0|https://a\n\
                        2b v2.0.0|MIT|\n1b v2.0.0|MIT|\n\n0swarm-worker v0.1.0 (/x)|Apache-2.0|\n\
                        1a v1.0.0|MIT/Apache-2.0|https://a (*)\n";

    #[test]
    fn each_crate_has_the_crates_that_it_is_linked_with() {
        let tree = crates(TREE).unwrap();
        let uses: Vec<_> = tree.iter().map(|(id, it)| format!("{id}: {:?}", it.uses)).collect();
        let expected = [
            "a@1.0.0: {\"b@2.0.0\"}",
            "b@2.0.0: {}",
            "swarm-cli@0.1.0: {\"a@1.0.0\", \"b@2.0.0\"}",
            "swarm-worker@0.1.0: {\"a@1.0.0\"}",
        ];
        assert_eq!(uses, expected);
        assert_eq!(tree["a@1.0.0"].license, "MIT OR Apache-2.0");
        assert!(crates("0swarm-cli v0.1.0\n").is_err());
    }

    #[test]
    fn only_crates_with_a_checksum_have_a_public_name() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"0a\"\n\n\
                    [[package]]\nname = \"swarm-cli\"\nversion = \"0.1.0\"\n";
        let sums = checksums(lock);
        assert_eq!(sums, BTreeMap::from([("a@1.0.0".to_owned(), "0a".to_owned())]));
        let source = Source::example();
        let bill = bill(&crates(TREE).unwrap(), &sums, &source);
        assert_eq!(bill["components"][0]["purl"], "pkg:cargo/a@1.0.0");
        assert_eq!(bill["components"][2]["name"], "swarm-cli");
        assert!(bill["components"][2]["purl"].is_null());
        let programs =
            json!({"ref": "swarm@0.1.0", "dependsOn": ["swarm-cli@0.1.0", "swarm-worker@0.1.0"]});
        assert_eq!(bill["dependencies"][0], programs);
    }
}
