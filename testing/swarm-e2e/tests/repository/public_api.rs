//! Compares the public API of each library for others with the list in its folder, so that a review
//! sees each change.
//!
//! `just bless-api` writes the lists again. A list has the items that a user can name. It leaves out
//! impls that are derived, or that every type has. `just api` compares all lists. `cargo test` compares
//! only the list of the core, because the others compile a client of Kubernetes a second time.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A library by its folder, and the features that its list has. `mutations` is never among them.
struct Library {
    name: &'static str,
    features: &'static str,
}

const CORE: Library = Library { name: "swarm-core", features: "default,serde" };
/// The libraries with many dependencies.
const OTHERS: [Library; 3] = [
    Library { name: "swarm-spec", features: "" },
    Library { name: "swarm-client", features: "k8s-openapi/v1_33" },
    Library { name: "swarm-replicas", features: "default,k8s-openapi/v1_33" },
];

impl Library {
    fn dir(&self) -> PathBuf {
        super::root().join(self.name)
    }

    /// Returns the file with the documentation as JSON. Rust calls that unstable: its format
    /// belongs to the pinned toolchain, and the version of `public-api` with it.
    fn rustdoc_json(&self) -> PathBuf {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("public-api");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["rustdoc", "--quiet", "--locked", "--lib", "--no-default-features"]);
        cargo.args(["--features", self.features, "--target-dir"]).arg(&target);
        cargo.args(["--", "-Zunstable-options", "--output-format=json"]);
        cargo.current_dir(self.dir()).env("RUSTC_BOOTSTRAP", "1");
        assert!(cargo.status().unwrap().success(), "{}: no documentation", self.name);
        target.join("doc").join(self.name.replace('-', "_")).with_extension("json")
    }

    fn api(&self) -> String {
        let api = public_api::Builder::from_rustdoc_json(self.rustdoc_json())
            .omit_blanket_impls(true)
            .omit_auto_trait_impls(true)
            .omit_auto_derived_impls(true)
            .build()
            .unwrap();
        api.to_string()
    }

    /// Fails unless the list in the folder is the API of now. Writes the list first if `UPDATE` is set.
    fn check(&self) {
        let (file, now) = (self.dir().join("public-api.txt"), self.api());
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&file, &now).unwrap();
        }
        let listed = fs::read_to_string(file).unwrap();
        assert!(
            now == listed,
            "the API of {} has changed; if that is meant, write `just bless-api`:\n{}",
            self.name,
            difference(&listed, &now)
        );
    }
}

/// Returns the lines that only one of two texts has, each after a sign.
fn difference(listed: &str, now: &str) -> String {
    let only_in = |these: &str, others: &str, sign: &str| {
        let others: std::collections::BTreeSet<_> = others.lines().collect();
        let only = these.lines().filter(|line| !others.contains(line));
        only.map(|line| format!("{sign} {line}\n")).collect::<Vec<_>>().concat()
    };
    only_in(listed, now, "-") + &only_in(now, listed, "+")
}

#[test]
fn the_public_api_of_the_core_is_listed() {
    CORE.check();
}

#[test]
#[ignore = "`just api` runs it: it compiles a client of Kubernetes a second time"]
fn the_public_api_of_each_other_library_is_listed() {
    OTHERS.iter().for_each(Library::check);
}
