//! The list of state directories outside the default ones: a directory with a link to each of them.
//! Commands find the pools there without `--dir`.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::private_dir;

/// The name of the list. No pool can have it.
const NAME: &str = ".elsewhere";
/// Maximum number of directories in the list. A new one replaces the oldest.
const LISTED_MAX: usize = 1_000;

/// Adds the path without links of a state directory to the list below `home`, the parent of the default
/// directories. Directories that are gone leave the list. O(list).
///
/// # Errors
///
/// If the list cannot be written, or another user may write it.
pub(crate) fn add(home: &Path, dir: &Path) -> anyhow::Result<()> {
    let list = private_dir::claim(&home.join(NAME), "")?;
    let mut hasher = DefaultHasher::new();
    dir.hash(&mut hasher);
    let link = list.join(format!("{:016x}", hasher.finish()));
    let mut others = links(&list);
    others.retain(|it| *it != link);
    for gone in others.extract_if(.., |it| is_gone(it)) {
        let _ = fs::remove_file(gone);
    }
    let added_at = |it: &PathBuf| fs::symlink_metadata(it).and_then(|it| it.modified()).ok();
    others.sort_by_key(added_at);
    let surplus = (others.len() + 1).saturating_sub(LISTED_MAX);
    for oldest in others.iter().take(surplus) {
        let _ = fs::remove_file(oldest);
    }
    match symlink(dir, &link) {
        // A list that has this directory already stays as it is.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.with_context(|| format!("{} cannot be made", link.display())),
    }
}

/// Returns the links of the list below `home`.
pub(crate) fn links_in(home: &Path) -> Vec<PathBuf> {
    links(&home.join(NAME))
}

fn links(list: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(list).into_iter().flatten().take(LISTED_MAX).flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Whether a path is the list.
pub(crate) fn is_list(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == NAME)
}

fn is_gone(link: &Path) -> bool {
    fs::metadata(link).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_listed_once_and_leaves_the_list_when_it_is_gone() {
        let home = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| home.path().join(name));
        let listed = || {
            let targets = links_in(home.path()).into_iter().map(|it| fs::read_link(it).unwrap());
            let mut targets: Vec<_> = targets.collect();
            targets.sort();
            targets
        };
        for dir in [&one, &other, &one] {
            fs::create_dir_all(dir).unwrap();
            add(home.path(), dir).unwrap();
        }
        assert_eq!(listed(), [one.clone(), other.clone()]);
        fs::remove_dir(&other).unwrap();
        add(home.path(), &one).unwrap();
        assert_eq!(listed(), [one]);
    }

    #[test]
    fn a_list_that_is_full_takes_another_directory_in_place_of_one() {
        let home = tempfile::tempdir().unwrap();
        let dirs: Vec<_> = (0..=LISTED_MAX).map(|n| home.path().join(format!("{n:04}"))).collect();
        for dir in &dirs {
            fs::create_dir(dir).unwrap();
        }
        add(home.path(), &dirs[0]).unwrap();
        let list = home.path().join(NAME);
        for (number, dir) in dirs.iter().enumerate().take(LISTED_MAX).skip(1) {
            symlink(dir, list.join(format!("{number}"))).unwrap();
        }
        add(home.path(), &dirs[LISTED_MAX]).unwrap();
        let targets: Vec<_> =
            links_in(home.path()).into_iter().map(|it| fs::read_link(it).unwrap()).collect();
        assert_eq!(targets.len(), LISTED_MAX);
        assert!(targets.contains(&dirs[LISTED_MAX]), "{targets:?}");
    }
}
