//! The pages below `docs/reference` are generated from the types, the registries and the
//! programs. `UPDATE=1 cargo test -p swarm-operator --test programs reference::` updates them.

#![expect(
    clippy::unwrap_used,
    reason = "clippy allows it in test functions only, and all of this is a test"
)]

mod fields;
mod metrics;
mod operator;
mod pages;
mod reasons;

use std::path::Path;

/// Compares a page with the committed one, or writes it if `UPDATE` is set.
fn check(page: &str, text: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference");
    let file = folder.join(page);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, text).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(committed == text, "docs/reference/{page} is stale: run `just generate`");
}

/// Escapes a text for a cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// Formats a row of a table.
fn row(cells: &[&str]) -> String {
    format!("| {} |\n", cells.iter().map(|text| cell(text)).collect::<Vec<_>>().join(" | "))
}
