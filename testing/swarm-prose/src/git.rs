//! Asks git about the files of the repository.

use std::ops::Range;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The output of git in a folder.
pub(crate) fn git(folder: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output();
    let output = output.context("cannot run git, which knows the files")?;
    ensure!(output.status.success(), "git: {}", String::from_utf8_lossy(&output.stderr).trim());
    String::from_utf8(output.stdout).context("git's output is not UTF-8")
}

/// The commit that last changed a file, if the history has it.
pub(crate) fn last_commit(root: &Path, file: &str) -> Option<String> {
    let commit = git(root, &["log", "-1", "--format=%H", "--", file]).ok()?;
    Some(commit.trim().to_owned()).filter(|commit| !commit.is_empty())
}

/// The lines of a file that differ from a commit, counted from 1.
pub(crate) fn changed_lines(root: &Path, commit: &str, file: &str) -> Result<Vec<Range<usize>>> {
    let difference = git(root, &["diff", "--no-ext-diff", "--unified=0", commit, "--", file])?;
    Ok(difference.lines().filter_map(hunk).collect())
}

/// The new lines of a hunk, by its header such as `@@ -3 +3,2 @@`.
fn hunk(line: &str) -> Option<Range<usize>> {
    let (_, rest) = line.strip_prefix("@@ -")?.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let (start, length) = new.split_once(',').unwrap_or((new, "1"));
    let start = start.parse().ok()?;
    Some(start..start + length.parse::<usize>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::hunk;

    #[test]
    fn a_header_of_a_hunk_gives_the_new_lines() {
        assert_eq!(hunk("@@ -3 +4 @@ fn a()"), Some(4..5));
        assert_eq!(hunk("@@ -3,2 +4,3 @@"), Some(4..7));
        assert_eq!(hunk("@@ -3,2 +2,0 @@"), Some(2..2));
        assert_eq!(hunk("+@@ -3 +4 @@"), None);
    }
}
