//! Compares the public API of each library for others with the list in its folder, so that a review
//! sees each change.
//!
//! `just bless-api` writes the lists again. A list has the items that a user can name. It leaves out
//! impls that are derived, or that every type has.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A library, and the features that its list has. `mutations` is never among them.
struct Library {
    name: &'static str,
    features: &'static str,
}

/// The libraries. The list of `swarm-replicas` has the machine without its driver.
const LIBRARIES: [Library; 2] = [
    Library { name: "swarm-core", features: "default,serde" },
    Library { name: "swarm-replicas", features: "" },
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
        // Without the driver, the documentation links to items that are left out.
        cargo.arg("-Arustdoc::broken_intra_doc_links");
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
fn the_public_api_of_each_library_is_listed() {
    for library in LIBRARIES {
        let (file, now) = (library.dir().join("public-api.txt"), library.api());
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&file, &now).unwrap();
        }
        let listed = fs::read_to_string(file).unwrap();
        let name = library.name;
        assert!(
            now == listed,
            "the API of {name} has changed; if that is meant, write `just bless-api`:\n{}",
            difference(&listed, &now)
        );
    }
}
