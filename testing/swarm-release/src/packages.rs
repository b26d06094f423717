//! The command `packages`: archives and a Debian package of the programs for one machine.
//!
//! Equal programs of the same commit give equal bytes: entries are sorted, owned by root, and dated by
//! `SOURCE_DATE_EPOCH` or else by the commit.

mod archive;
mod debian;
mod program;
mod texts;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::notices;
use crate::repository::{self, VERSION, root};
use archive::{Entry, Tree};
use texts::Texts;

pub(crate) use debian::{finish, nfpm};
pub(crate) use program::Arch;

/// Arguments of `packages`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The folder with the static programs `swarm` and `kubectl-swarm`
    #[arg(long)]
    programs: PathBuf,
    /// The folder to write the archives and the package to
    #[arg(long)]
    out: PathBuf,
    /// The architecture of the programs; by default the one of this machine
    #[arg(long)]
    arch: Option<Arch>,
    /// The `swarm` that writes completions and man pages; by default the packed one
    ///
    /// Name one that runs on this machine if the packed one does not.
    #[arg(long)]
    writer: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { programs, out, arch, writer } = arguments;
    let arch = arch.map_or_else(Arch::of_this_machine, Ok)?;
    let content = Content::read(programs, arch, writer.as_deref())?;
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    for path in content.write_archives(out)? {
        println!("{}", path.display());
    }
    println!("{}", content.write_debian(out, VERSION)?.display());
    Ok(())
}

/// The content of archives and packages.
pub(crate) struct Content {
    arch: Arch,
    /// The seconds since 1970 that every entry is dated with.
    date: u64,
    swarm: Vec<u8>,
    kubectl_swarm: Vec<u8>,
    /// Licences of the crates in the programs.
    notices: String,
    texts: Texts,
}

impl Content {
    /// Reads the programs in `programs`, and lets `writer`, or else the packed `swarm`, write its texts.
    ///
    /// # Errors
    ///
    /// When a program is missing, is for another architecture, or needs shared libraries.
    pub(crate) fn read(programs: &Path, arch: Arch, writer: Option<&Path>) -> Result<Self> {
        let packed = programs.join("swarm");
        Ok(Self {
            arch,
            date: date()?,
            swarm: program::read(&packed, arch)?,
            kubectl_swarm: program::read(&programs.join("kubectl-swarm"), arch)?,
            notices: notices::text()?,
            texts: Texts::write(writer.unwrap_or(&packed))?,
        })
    }

    /// Writes the archives into `out`, and returns their paths.
    ///
    /// # Errors
    ///
    /// When a file cannot be read or written.
    pub(crate) fn write_archives(&self, out: &Path) -> Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for (name, tree) in [("swarm", self.swarm()?), ("kubectl-swarm", self.kubectl_swarm()?)] {
            let top = format!("{name}-{VERSION}-linux-{}", self.arch);
            let path = out.join(format!("{top}.tar.gz"));
            let bytes = archive::pack(&top, &tree, self.date)?;
            fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
            paths.push(path);
        }
        Ok(paths)
    }

    /// Writes the Debian package of `version` into `out`, and returns its path.
    ///
    /// # Errors
    ///
    /// When nfpm, the program in the variable `NFPM`, is missing or fails.
    pub(crate) fn write_debian(&self, out: &Path, version: &str) -> Result<PathBuf> {
        debian::write(self, out, version)
    }

    fn swarm(&self) -> Result<Tree> {
        let mut tree = Tree::from([
            ("swarm".to_owned(), Entry::program(self.swarm.clone())),
            ("LICENSE".to_owned(), Entry::file(committed("LICENSE")?)),
            (notices::FILE.to_owned(), Entry::file(self.notices.clone().into())),
            ("README.md".to_owned(), Entry::file(committed("deploy/package/README.md")?)),
            ("systemd/swarm@.service".to_owned(), Entry::file(committed(UNIT)?)),
        ]);
        let texts = &self.texts;
        tree.extend(files("completions", texts.completions.iter()));
        tree.extend(files("man", texts.pages.iter().filter(|(name, _)| !is_of_the_plugin(name))));
        Ok(tree)
    }

    fn kubectl_swarm(&self) -> Result<Tree> {
        let complete = committed(COMPLETE)?;
        let mut tree = Tree::from([
            ("kubectl-swarm".to_owned(), Entry::program(self.kubectl_swarm.clone())),
            ("kubectl_complete-swarm".to_owned(), Entry::program(complete)),
            ("LICENSE".to_owned(), Entry::file(committed("LICENSE")?)),
            (notices::FILE.to_owned(), Entry::file(self.notices.clone().into())),
        ]);
        let pages = self.texts.pages.iter().filter(|(name, _)| is_of_the_plugin(name));
        tree.extend(files("man", pages));
        Ok(tree)
    }
}

/// The unit for a program that was installed by hand.
const UNIT: &str = "deploy/systemd/swarm@.service";
/// The program that kubectl runs for completions.
const COMPLETE: &str = "kubectl-swarm/kubectl_complete-swarm";

fn is_of_the_plugin(page: &str) -> bool {
    page.starts_with("kubectl-swarm")
}

/// Returns entries in `folder` for some of the texts.
fn files<'a>(
    folder: &str,
    texts: impl Iterator<Item = (&'a String, &'a Vec<u8>)>,
) -> BTreeMap<String, Entry> {
    texts.map(|(name, text)| (format!("{folder}/{name}"), Entry::file(text.clone()))).collect()
}

/// Reads a file of the checkout.
fn committed(path: &str) -> Result<Vec<u8>> {
    fs::read(root().join(path)).with_context(|| format!("cannot read {path}"))
}

/// Returns `SOURCE_DATE_EPOCH`, or else the date of the commit.
fn date() -> Result<u64> {
    const NAME: &str = "SOURCE_DATE_EPOCH";
    if let Ok(date) = env::var(NAME) {
        return date.parse().with_context(|| {
            format!("{NAME} is `{date}`; write the seconds since 1970, such as 1767225600")
        });
    }
    let date = repository::run("git", &["log", "-1", "--format=%ct"])?;
    date.trim().parse().with_context(|| format!("git names the date `{}`", date.trim()))
}

#[cfg(test)]
mod tests;
