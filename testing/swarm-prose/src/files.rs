//! The files whose texts are judged.

use std::path::Path;

use anyhow::{Context, Result};

use crate::code::{self, Literals};
use crate::git::git;
use crate::hash;
use crate::page::Page;
use crate::scan::Language;

/// Folders and files that others wrote, or that a program wrote from texts that are judged elsewhere.
const LEFT_OUT: [&str; 4] = [
    "deploy/chart/swarm/templates/",
    "deploy/crds/swarm.yaml",
    "docs/reference/",
    "testing/predecessors/",
];

/// The way to find the texts of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Markdown,
    Code(Language, Literals),
    HashComments,
}

/// The pages of all files of the repository at `root`, also of files that are not committed yet.
/// Files without a text have none.
pub(crate) fn pages(root: &Path) -> Result<Vec<Page>> {
    let mut pages = Vec::new();
    for file in listed(root)? {
        let path = root.join(&file);
        // A file that was deleted is listed until the deletion is staged.
        let Some(kind) = kind(&file).filter(|_| path.is_file()) else { continue };
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {file}"))?;
        let page = page(&file, kind, &text);
        pages.extend((!page.is_empty()).then_some(page));
    }
    Ok(pages)
}

fn page(file: &str, kind: Kind, text: &str) -> Page {
    match kind {
        Kind::Markdown => Page::of_markdown(file, text),
        Kind::Code(language, literals) => {
            Page::of_blocks(file, code::blocks(text, language, literals))
        }
        Kind::HashComments => Page::of_blocks(file, hash::blocks(text)),
    }
}

/// The files that git knows or would add, sorted.
pub(crate) fn listed(root: &Path) -> Result<Vec<String>> {
    let names = git(root, &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
    let mut files: Vec<_> =
        names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    files.sort();
    files.dedup();
    Ok(files)
}

fn kind(file: &str) -> Option<Kind> {
    if LEFT_OUT.iter().any(|it| file.starts_with(it)) {
        return None;
    }
    let (_, name) = file.rsplit_once('/').unwrap_or(("", file));
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    match extension {
        "md" => Some(Kind::Markdown),
        "rs" => Some(Kind::Code(Language::Rust, literals(file))),
        "go" => Some(Kind::Code(Language::Go, literals(file))),
        "yaml" | "yml" | "toml" | "sh" => Some(Kind::HashComments),
        _ if ["justfile", "Dockerfile"].contains(&name) => Some(Kind::HashComments),
        // The scripts of the gate have no extension.
        _ if file.starts_with(".ci/") => Some(Kind::HashComments),
        _ => None,
    }
}

/// Tests, and tools that are never shipped, have data in their literals.
pub(crate) fn literals(file: &str) -> Literals {
    let is_test = |part: &str| part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs");
    let is_data = file.starts_with("testing/") || file.split('/').any(is_test);
    if is_data { Literals::LeftOut } else { Literals::Read }
}

#[cfg(test)]
mod tests {
    use super::{Kind, kind};
    use crate::code::Literals;
    use crate::scan::Language;

    #[test]
    fn each_kind_of_file_is_read_in_its_way() {
        let rust = |literals| Some(Kind::Code(Language::Rust, literals));
        let expected = [
            ("README.md", Some(Kind::Markdown)),
            ("docs/reference/cli.md", None),
            ("deploy/crds/swarm.yaml", None),
            ("deploy/crds/users.yaml", Some(Kind::HashComments)),
            ("justfile", Some(Kind::HashComments)),
            (".ci/run", Some(Kind::HashComments)),
            ("LICENSE", None),
            ("swarm-core/src/turn.rs", rust(Literals::Read)),
            ("swarm-core/src/turn/tests.rs", rust(Literals::LeftOut)),
            ("swarm-core/src/turn/recheck_tests.rs", rust(Literals::LeftOut)),
            ("swarm-core/tests/wire.rs", rust(Literals::LeftOut)),
            ("testing/swarm-sim/src/step.rs", rust(Literals::LeftOut)),
        ];
        for (file, expected) in expected {
            assert_eq!(kind(file), expected, "{file}");
        }
    }
}
