//! Imports between the files of a crate go in one direction.
#![expect(clippy::unwrap_used, reason = "a test may say what must be so")]

mod graph;
mod rooms;
mod source;
mod tokens;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::root;
use graph::Imports;

/// The size of the largest import circle that a crate may have. Two files that import each other
/// can be read as one, and more of them are hard to follow.
const CIRCLE_FILES_MAX: usize = 2;

/// The crates of the workspace, by their folders.
fn members() -> Vec<String> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let list = manifest.split("members = [").nth(1).unwrap().split(']').next().unwrap();
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The sources below a folder, by their paths from there.
fn sources(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.insert(path.strip_prefix(folder).unwrap().to_owned(), text);
            }
        }
    }
    found
}

fn imports(member: &str) -> Imports {
    Imports::of(&sources(&root().join(member).join("src")))
}

/// The circles of a crate that are too large, as text: the files of each, and its imports.
fn too_large(imports: &Imports) -> String {
    let circles = imports.circles();
    let large = circles.iter().filter(|circle| circle.len() > CIRCLE_FILES_MAX);
    large.map(|circle| imports.described(circle)).collect()
}

#[test]
fn no_crate_has_an_import_circle_of_more_than_two_files() {
    let members = members();
    assert!(members.len() > 10, "the list of crates was not found: {members:?}");
    let all = members.iter().map(|member| {
        let imports = imports(member);
        assert!(imports.all().next().is_some(), "{member} has no sources");
        let found = too_large(&imports);
        if found.is_empty() { found } else { format!("\n{member}\n{found}") }
    });
    let all: String = all.collect();
    assert!(all.is_empty(), "import circles of more than {CIRCLE_FILES_MAX} files:{all}");
}

/// Whether a file is a module of this name at the root of its crate, or below it.
fn is_of(file: &Path, module: &str) -> bool {
    file.starts_with(module) || file.with_extension("") == Path::new(module)
}

/// A concern of the controller has no reference to turns, nor to the services of other concerns. Turns
/// import concerns, and `run` imports all.
#[test]
fn concerns_of_the_controller_import_neither_its_turns_nor_all_services() {
    let imports = imports("swarm-adapters-k8s");
    let above = ["reconcile", "services", "run"];
    let concerns = |file: &&Path| !above.iter().any(|module| is_of(file, module));
    let files: Vec<_> = imports.all().filter(concerns).collect();
    assert!(files.iter().any(|file| is_of(file, "managed")), "the files were not found");
    for file in files {
        let is_above = |file: &Path| above.iter().any(|module| is_of(file, module));
        let found = imports.of_file(file).iter().filter(|(imported, _)| is_above(imported));
        let found: Vec<_> = found.collect();
        assert!(found.is_empty(), "{} imports {found:?}", file.display());
    }
}

/// The imports of a made-up crate, with the text of each of its files.
fn made_up(files: &[(&str, &str)]) -> Imports {
    let owned = files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned()));
    Imports::of(&owned.collect())
}

#[test]
fn a_circle_of_three_files_is_found_with_its_imports() {
    let imports = made_up(&[
        ("lib.rs", "mod first;\npub mod second;\nmod third;\nmod fourth;"),
        ("first.rs", "use crate::second::{Two, self as other};\npub struct One;"),
        ("second.rs", "pub struct Two;\nfn two() { super::third::three::<u8>() }"),
        ("third.rs", "use super::{first::One, fourth};\npub fn three<T>() {}"),
        ("fourth.rs", "pub fn four() {}"),
    ]);
    let circles = imports.circles();
    assert_eq!(circles.len(), 1);
    assert_eq!(
        imports.described(&circles[0]),
        "  circle of 3 files\n    \
             first.rs -> second.rs (crate::second, crate::second::Two)\n    \
             second.rs -> third.rs (super::third::three)\n    \
             third.rs -> first.rs (super::first::One)\n"
    );
    assert_eq!(too_large(&imports), imports.described(&circles[0]));
}

#[test]
fn two_files_that_import_each_other_are_no_circle_too_large() {
    let imports = made_up(&[
        ("lib.rs", "mod first; mod second;"),
        ("first.rs", "use crate::second::Two; pub struct One;"),
        ("second.rs", "use crate::first::One; pub struct Two;"),
    ]);
    assert_eq!(imports.circles()[0].len(), 2);
    assert_eq!(too_large(&imports), "");
}

#[test]
fn a_module_and_its_own_submodules_are_no_circle() {
    let imports = made_up(&[
        ("lib.rs", "mod first; pub struct Zero;"),
        ("first.rs", "mod inner; use inner::Inner; pub struct One; use super::Zero;"),
        ("first/inner.rs", "mod core; use super::One; use core::Core; pub struct Inner;"),
        ("first/inner/core.rs", "use crate::{Zero, first::{One, inner::Inner}}; pub struct Core;"),
    ]);
    assert!(imports.circles().is_empty());
}

#[test]
fn a_reexport_counts_as_the_file_that_defines_the_item() {
    let files = [
        ("lib.rs", "mod facade; mod user; mod other;"),
        ("facade.rs", "mod inner; pub use inner::{Inner as Renamed}; pub use inner::deep::*;"),
        ("facade/inner.rs", "pub mod deep; pub struct Inner; use crate::other::Other;"),
        ("facade/inner/deep.rs", "pub const DEPTH: usize = 3;"),
        ("user.rs", "use crate::facade::Renamed; pub struct User;"),
        ("other.rs", "use crate::user::User; pub struct Other;"),
    ];
    let imports = made_up(&files);
    assert_eq!(imports.circles().len(), 1, "facade/inner.rs, other.rs and user.rs");
    assert!(too_large(&imports).contains("user.rs -> facade/inner.rs (crate::facade::Renamed)"));
    let mut glob = files;
    glob[4].1 = "fn user() -> usize { super::facade::DEPTH } pub struct User;";
    let imports = made_up(&glob);
    assert!(imports.circles().is_empty());
    assert!(imports.of_file("user.rs").contains_key(Path::new("facade/inner/deep.rs")));
}

#[test]
fn tests_comments_and_texts_import_nothing() {
    let imports = made_up(&[
        ("lib.rs", "mod first; mod second; mod third;"),
        (
            "first.rs",
            r##"
            //! See [`crate::second::Two`].
            /* crate::second::Two /* nested */ crate::second::Two */
            pub struct One<'a>(&'a str, char);
            fn one() -> [&'static str; 3] {
                let quote = ('"', '\'', b'"');
                ["crate::second::Two \" crate::second", r#"crate::second::Two " crate::second"#, ""]
            }
            #[cfg(test)]
            use crate::second::Two;
            #[cfg(all(test, unix))]
            mod tests { use crate::second::Two; fn x() { crate::second::Two; } }
            #[cfg(test)]
            impl<T, U> One<'_> { fn two(a: u8, b: u8) -> crate::second::Two { loop {} } }
            pub(in crate::second) struct Hidden;
            use crate::third::Three;
            "##,
        ),
        ("second.rs", "pub struct Two;"),
        ("third.rs", "#![cfg(test)] use crate::second::Two; pub struct Three;"),
    ]);
    let found: Vec<_> = imports.of_file("first.rs").keys().collect();
    assert_eq!(found, [Path::new("third.rs")]);
    assert!(imports.of_file("third.rs").is_empty());
}

#[test]
fn modules_are_found_where_the_compiler_finds_them() {
    let imports = made_up(&[
        ("main.rs", "mod folder; mod inline { pub mod file; } #[path = \"odd/place.rs\"] mod odd;"),
        ("folder/mod.rs", "mod leaf; fn x() { leaf::Leaf::new() }"),
        (
            "folder/leaf.rs",
            "pub struct Leaf; use crate::inline::file as renamed; fn x() { renamed::f() }",
        ),
        ("inline/file.rs", "pub fn f() { $crate::odd::g() }"),
        ("odd/place.rs", "pub fn g() { crate::folder::leaf::Leaf::new(); std::mem::drop(1..2) }"),
        ("bin/another.rs", "mod folder { pub fn f() {} } fn main() { folder::f() }"),
    ]);
    assert_eq!(imports.all().count(), 6);
    assert!(too_large(&imports).contains("circle of 3 files"), "{}", too_large(&imports));
}
