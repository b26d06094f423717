//! Four libraries are fit to be published, under names that begin with `jobswarm-`. `just crates` makes
//! their packages.
#![expect(clippy::unwrap_used, reason = "a test may say what must be so")]

use serde_json::{Value, json};

use crate::layers::cargo;
use crate::root;

/// The package names of the libraries, by their folders.
const LIBRARIES: [(&str, &str); 4] = [
    ("swarm-client", "jobswarm-client"),
    ("swarm-core", "jobswarm-core"),
    ("swarm-replicas", "jobswarm-replicas"),
    ("swarm-spec", "jobswarm-spec"),
];

/// All packages of the workspace, as cargo describes them.
fn packages() -> Vec<Value> {
    let json = cargo(&["metadata", "--no-deps", "--format-version=1", "--locked", "--offline"]);
    let metadata: Value = serde_json::from_str(&json).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// The packages that cargo would publish.
fn published() -> Vec<Value> {
    packages().into_iter().filter(|package| package["publish"].is_null()).collect()
}

/// cargo requires none of these fields to make a package, and a registry shows all of them.
#[test]
fn the_four_libraries_can_be_published_and_say_what_they_are() {
    let packages = published();
    let mut names: Vec<_> = packages.iter().map(|it| it["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, LIBRARIES.map(|(_, name)| name));
    for package in packages {
        let name = &package["name"];
        for field in ["description", "license", "readme", "rust_version"] {
            assert!(package[field].is_string(), "{name} has no {field}");
        }
        for field in ["keywords", "categories"] {
            assert!(!package[field].as_array().unwrap().is_empty(), "{name} has no {field}");
        }
    }
}

/// A library may use what its sibling has only since this version, so an older sibling is too old.
#[test]
fn a_library_requires_its_siblings_in_its_own_version() {
    let mut siblings = 0;
    for package in published() {
        let required = json!(format!("^{}", package["version"].as_str().unwrap()));
        for dependency in package["dependencies"].as_array().unwrap() {
            let is_sibling = LIBRARIES.iter().any(|(_, name)| dependency["name"] == *name);
            if is_sibling {
                assert_eq!(dependency["req"], required, "{}: {dependency}", package["name"]);
                siblings += 1;
            }
        }
    }
    assert!(3 < siblings, "only {siblings} dependencies between the libraries were found");
}

/// Without its licence and its guide a package compiles, so `just crates` would not notice.
#[test]
fn a_package_has_its_licence_and_its_guide_and_nothing_that_only_this_repository_needs() {
    for (folder, name) in LIBRARIES {
        let list = ["package", "--list", "--quiet", "--allow-dirty", "--locked", "--offline"];
        let files = cargo(&[&list[..], &["-p", name]].concat());
        let files: Vec<_> = files.lines().collect();
        for file in ["LICENSE", "README.md", "src/lib.rs"] {
            assert!(files.contains(&file), "{name} has no {file}: {files:?}");
        }
        for file in ["clippy.toml", "public-api.txt"] {
            assert!(!files.contains(&file), "{name} has {file}");
        }
        let ours = std::fs::read_to_string(root().join("LICENSE")).unwrap();
        let theirs = std::fs::read_to_string(root().join(folder).join("LICENSE")).unwrap();
        assert_eq!(ours, theirs, "{folder}/LICENSE");
    }
}
