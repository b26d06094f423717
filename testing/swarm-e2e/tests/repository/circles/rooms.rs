//! Rooms of `swarm-local` import each other along their arrows, never back.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use super::graph::Imports;
use super::{imports, is_of, made_up};

/// A room, and the rooms that it may import.
type Arrows<'a> = (&'a str, &'a [&'a str]);

/// The modules at the root of the crate. A room comes after all rooms that it may import, so that
/// arrows make no circle.
const ROOMS: [Arrows<'_>; 9] = [
    ("format", &[]),
    ("settings", &["format"]),
    ("state_dir", &["settings"]),
    ("print", &["settings"]),
    ("processes", &["format", "settings", "state_dir"]),
    ("logs", &["processes"]),
    ("pool", &["format", "settings", "state_dir", "print", "processes", "logs"]),
    ("serve", &["processes", "pool"]),
    ("commands", &["settings", "state_dir", "print", "processes", "logs", "pool", "serve"]),
];

/// The only file outside of the rooms. It may import all of them.
const TOP: &str = "lib.rs";

/// The files without a room and the imports without an arrow, as text.
fn strays(imports: &Imports, rooms: &[Arrows<'_>]) -> String {
    let room = |file: &Path| rooms.iter().find(|(room, _)| is_of(file, room));
    let mut found = String::new();
    for file in imports.all().filter(|file| *file != Path::new(TOP)) {
        let Some((own, allowed)) = room(file) else {
            let _ = writeln!(found, "{} is in no room", file.display());
            continue;
        };
        for (imported, paths) in imports.of_file(file) {
            let other = room(imported).map(|(name, _)| name);
            if other.is_some_and(|other| other != own && !allowed.contains(other)) {
                let _ = writeln!(found, "{} imports {paths:?}", file.display());
            }
        }
    }
    found
}

#[test]
fn rooms_of_one_machine_import_each_other_along_the_arrows_only() {
    let mut before = BTreeSet::new();
    for (room, allowed) in ROOMS {
        assert!(allowed.iter().all(|other| before.contains(other)), "an arrow of {room} goes back");
        before.insert(room);
    }
    let imports = imports("swarm-local");
    let is_empty = |room: &&str| !imports.all().any(|file| is_of(file, room));
    assert_eq!(before.into_iter().find(is_empty), None, "a room has no files");
    let found = strays(&imports, &ROOMS);
    assert!(found.is_empty(), "{found}");
}

#[test]
fn a_lower_room_that_imports_a_higher_one_is_found() {
    let imports = made_up(&[
        (TOP, "mod low; mod high; mod odd; use high::over::Over;"),
        ("low.rs", "pub mod under; pub struct Low;"),
        ("low/under.rs", "use super::Low; use crate::high::over::Over; pub struct Under;"),
        ("high.rs", "pub mod over; use crate::low::Low;"),
        ("high/over.rs", "use crate::low::under::Under; pub struct Over;"),
        ("odd.rs", "use crate::low::Low;"),
    ]);
    assert_eq!(
        strays(&imports, &[("low", &[]), ("high", &["low"])]),
        "low/under.rs imports {\"crate::high::over::Over\"}\nodd.rs is in no room\n"
    );
}
