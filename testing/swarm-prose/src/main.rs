//! Applies the writing rules to every text of this repository that a person reads: Markdown, comments,
//! and the messages in string literals.
//!
//! Vale applies the rules in `styles/`, and `counts.tsv` lists how many places in each file break one.
//! `swarm-prose check` fails if a count rises, and names the places. `swarm-prose check PATH…` prints all
//! places below some paths instead. `swarm-prose bless` writes the counts, unless a rule is broken more
//! often than before in all files together. The variable `VALE` names the program.

mod code;
mod files;
mod git;
mod hash;
#[cfg(test)]
mod messages;
mod page;
mod ratchet;
mod scan;
mod vale;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use git::git;
use ratchet::{Change, Counts};
use vale::Alert;

/// The folder of this program, with the rules and the list.
const HOME: &str = "testing/swarm-prose";
/// The list of counts.
const LIST: &str = "testing/swarm-prose/counts.tsv";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String]) -> Result<ExitCode> {
    let root = root()?;
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["check"] => check(&root),
        ["check", paths @ ..] => list(&root, paths),
        ["bless"] => bless(&root),
        _ => bail!("write `swarm-prose check [PATH...]` or `swarm-prose bless`"),
    }
}

/// Fails if a count is higher than the list allows.
fn check(root: &Path) -> Result<ExitCode> {
    let alerts = alerts(root, &[])?;
    let (allowed, found) = (allowed(root)?.unwrap_or_default(), Counts::of(&alerts));
    let rises = allowed.rises(&found);
    if !rises.is_empty() {
        print_rises(root, &rises, &alerts);
        println!(
            "\nRewrite what is new. If it only moved from another file, run `just bless-prose`."
        );
        return Ok(ExitCode::FAILURE);
    }
    let total = found.total();
    match allowed.fallen(&found) {
        0 => println!("{total} places break a writing rule, as many as {LIST} says."),
        fallen => println!(
            "{total} places break a writing rule, {fallen} fewer than {LIST} says: run `just bless-prose`."
        ),
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the list, unless a rule is broken more often than it says.
fn bless(root: &Path) -> Result<ExitCode> {
    let alerts = alerts(root, &[])?;
    let found = Counts::of(&alerts);
    // The first list takes the counts as they are.
    let allowed = allowed(root)?.unwrap_or_else(|| found.clone());
    let refused = allowed.refused(&found, &changed_rules(root)?);
    if !refused.is_empty() {
        print_rises(root, &refused, &alerts);
        println!("\nThese rules are broken more often than before, in all files together:");
        for rule in refused.iter().map(|rise| rise.rule.as_str()).collect::<BTreeSet<_>>() {
            println!("  {rule}: {}, before {}", found.of_rule(rule), allowed.of_rule(rule));
        }
        println!("Rewrite what is new; nothing is written.");
        return Ok(ExitCode::FAILURE);
    }
    fs::write(root.join(LIST), found.list()).with_context(|| format!("cannot write {LIST}"))?;
    for (rule, count) in found.by_rule() {
        println!("{count:6} {rule}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints all alerts below some paths.
fn list(root: &Path, paths: &[&str]) -> Result<ExitCode> {
    for Alert { file, line, rule, message } in alerts(root, paths)? {
        println!("{file}:{line}: {message} ({rule})");
    }
    Ok(ExitCode::SUCCESS)
}

/// The alerts in the files below some paths; without paths, in all files.
fn alerts(root: &Path, paths: &[&str]) -> Result<Vec<Alert>> {
    let mut pages = files::pages(root)?;
    let is_below = |file: &str, path: &&str| Path::new(file).starts_with(path);
    if let Some(unknown) =
        paths.iter().find(|path| !pages.iter().any(|page| is_below(&page.file, path)))
    {
        bail!("no text below {unknown:?}: write a path from the top of the repository");
    }
    pages.retain(|page| paths.is_empty() || paths.iter().any(|path| is_below(&page.file, path)));
    let vale = std::env::var_os("VALE").unwrap_or_else(|| OsString::from("vale"));
    vale::alerts(&PathBuf::from(vale), &root.join(HOME).join("vale.ini"), &pages)
}

/// Prints the places of each rise. For a file in the list, these are the places in lines that changed
/// since the last commit of the list. If these do not explain the rise, it prints all places.
fn print_rises(root: &Path, rises: &[Change], alerts: &[Alert]) {
    let commit = git::last_commit(root, LIST);
    for Change { file, rule, allowed, found } in rises {
        let changed = commit.as_deref().filter(|_| *allowed > 0);
        let changed = changed.map(|commit| git::changed_lines(root, commit, file));
        let changed = changed.and_then(Result::ok).unwrap_or_default();
        let is_changed = |alert: &&&Alert| changed.iter().any(|lines| lines.contains(&alert.line));
        let is_of_rise = |alert: &&Alert| alert.file == *file && alert.rule == *rule;
        let all: Vec<_> = alerts.iter().filter(is_of_rise).collect();
        let new: Vec<_> = all.iter().filter(is_changed).copied().collect();
        let is_explained = new.len() >= found - allowed;
        println!("{file}: {rule}: {found} places, {allowed} in the list");
        for alert in if is_explained { new } else { all } {
            println!("  {file}:{}: {}", alert.line, alert.message);
        }
    }
}

/// The counts of the list, or `None` if the list does not exist.
fn allowed(root: &Path) -> Result<Option<Counts>> {
    match fs::read_to_string(root.join(LIST)) {
        Ok(list) => Counts::parse(&list).context(LIST).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).context(LIST),
    }
}

/// The rules whose files differ from the last commit.
fn changed_rules(root: &Path) -> Result<BTreeSet<String>> {
    let styles = format!("{HOME}/styles/");
    let status = git(root, &["status", "--porcelain", "--untracked-files=all", "--", &styles])?;
    let rule = |line: &str| {
        let (_, path) = line.split_once(&styles)?;
        Some(path.strip_suffix(".yml")?.replace('/', "."))
    };
    Ok(status.lines().filter_map(rule).collect())
}

/// The top of the repository that contains the current folder.
fn root() -> Result<PathBuf> {
    let top = git(Path::new("."), &["rev-parse", "--show-toplevel"])?;
    Ok(PathBuf::from(top.trim_end_matches('\n')))
}
