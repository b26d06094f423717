//! Compares the public API with the list `public-api.txt`, so that a review sees each change.
//!
//! `just bless-api` writes the list again. It has the items that a user can name, with all features
//! except `mutations`. It leaves out impls that are derived, or that every type has.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::Command;

/// The documentation of the crate as JSON. Rust calls that unstable: its format belongs to the pinned
/// toolchain, and the version of `public-api` with it.
fn rustdoc_json() -> std::path::PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("public-api");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["rustdoc", "--quiet", "--locked", "--lib", "--features=serde", "--target-dir"]);
    cargo.arg(&target).args(["--", "-Zunstable-options", "--output-format=json"]);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).env("RUSTC_BOOTSTRAP", "1");
    assert!(cargo.status().unwrap().success(), "the documentation cannot be built");
    target.join("doc/swarm_core.json")
}

#[test]
fn the_public_api_is_the_one_that_is_listed() {
    let api = public_api::Builder::from_rustdoc_json(rustdoc_json())
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .unwrap();
    let listed = Path::new(env!("CARGO_MANIFEST_DIR")).join("public-api.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&listed, api.to_string()).unwrap();
    }
    let (now, listed) = (api.to_string(), std::fs::read_to_string(listed).unwrap());
    let only_in = |these: &str, those: &str, sign: &str| {
        let those: std::collections::BTreeSet<_> = those.lines().collect();
        let only = these.lines().filter(|line| !those.contains(line));
        only.map(|line| format!("{sign} {line}\n")).collect::<Vec<_>>().concat()
    };
    let difference = only_in(&listed, &now, "-") + &only_in(&now, &listed, "+");
    assert!(
        now == listed,
        "the API has changed; if that is meant, `just bless-api`:\n{difference}"
    );
}
